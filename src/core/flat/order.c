/* Flat grids with long units: the position of a cell among all elements of the same rule on its rank.
 *
 * A rank has one range of each unit, whatever layers lie in it, so its parts of two layers differ. To let such ranks still
 * move all tensors at one pace, a layout tells the plan, for each cell, how many elements of the same
 * rule the rank has in all (total), before this parameter (before) and of it (weight): sums over intervals, from
 * prefix sums by address. */
/* Steps are parameters sorted by rule, unit and address; a group is those of one rule in one unit, and
 * step.before the elements of the group before it. With lengths 10, 30, 20 these are 0, 10, 40.
 *
 * A cell adds up all groups of its rule. Where these are many, a table by range has the sums ahead: a plan asks for as many cells
 * as it has parts (docs/speed.md). */
#include "flat/flat_grid.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct entry { /* a parameter while they are sorted */
  int32_t rule, unit;
  int64_t start, elems;
} entry;

static int by_rule(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->rule != y->rule) return x->rule < y->rule ? -1 : 1;
  if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
  return (x->start > y->start) - (x->start < y->start);
}

/* Each parameter asks each unit that holds parameters of its rule. */
static treadle_status check_cost(const treadle_flat_stage *stage, int32_t rules) {
  for (int32_t r = 0; r < rules; r++) {
    int64_t groups = stage->group_first[r + 1] - stage->group_first[r], params = 0;
    for (int32_t g = stage->group_first[r]; g < stage->group_first[r + 1]; g++)
      params += stage->groups[g].count;
    if (groups * params > TREADLE_MAX_REPORT_CUTS)
      return treadle_fail(TREADLE_REFUSED,
                          "a flat layout has %" PRId64 " parameters of one pattern in %" PRId64
                          " buckets, too many for a plan: larger buckets will do",
                          params, groups);
  }
  return TREADLE_OK;
}

/* The elements of a group at addresses below `address`.
 * Lengths 10, 30, 20 at addresses 0, 64, 128: below 74 are 10 + 10. */
static int64_t below(const treadle_flat_stage *stage, const treadle_flat_rule_params *group,
                     int64_t address) {
  const treadle_flat_interval *steps = &stage->steps[group->first];
  int32_t low = 0,
          high = group->count; /* steps before low begin below the address, those from high on do not */
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (steps[middle].start < address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return 0;
  const treadle_flat_interval *last = &steps[low - 1];
  return last->before + (address < last->end ? address : last->end) - last->start;
}

/* What a rank with that range has of a group. */
static int64_t count_of(const treadle_flat_stage *stage, const treadle_flat_rule_params *group,
                        int64_t range) {
  const int64_t shard = stage->units[group->unit].shard, low = range * shard;
  return below(stage, group, low + shard) - below(stage, group, low);
}

static int64_t ranges_of(const treadle_flat_stage *stage, int32_t first, int32_t end) {
  int64_t ranges = 0;
  for (int32_t g = first; g < end; g++) {
    const treadle_dim *over = stage->units[stage->groups[g].unit].over;
    if (over && over->size > ranges) ranges = over->size;
  }
  return ranges;
}

static treadle_status sum_ahead(treadle_flat_grid *flat, treadle_flat_stage *stage) {
  enum { FEW = 16, MOST = 1 << 19 }; /* groups; entries of all tables */
  const size_t rules = (size_t)flat->grid.rule_count;
  stage->ahead = treadle_arena_alloc_array(&flat->grid.arena, rules + 1, sizeof *stage->ahead);
  if (!stage->ahead) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (size_t r = 0; r < rules; r++) {
    const int32_t first = stage->group_first[r], end = stage->group_first[r + 1], groups = end - first;
    const int64_t ranges = ranges_of(stage, first, end), width = groups + 1;
    stage->ahead[r] = NULL;
    if (groups < FEW || ranges > (MOST - flat->ahead_count) / width) continue;
    int64_t *sums = treadle_arena_alloc_array(&flat->grid.arena, (size_t)(ranges * width), sizeof *sums);
    if (!sums) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    for (int64_t range = 0; range < ranges; range++) {
      int64_t *ahead = sums + range * width;
      ahead[0] = 0;
      for (int32_t g = 0; g < groups; g++)
        ahead[g + 1] = ahead[g] + count_of(stage, &stage->groups[first + g], range);
    }
    stage->ahead[r] = sums;
    flat->ahead_count += ranges * width;
  }
  return TREADLE_OK;
}

/* groups: group_first[r] to group_first[r + 1] are of rule r, by unit; rules without parameters have none. */
treadle_status treadle_flat_order(treadle_flat_grid *flat, treadle_flat_stage *stage) {
  treadle_arena *arena = &flat->grid.arena;
  size_t count = (size_t)stage->param_count, rules = (size_t)flat->grid.rule_count;
  entry *sorted = treadle_alloc_array(count + 1, sizeof *sorted);
  stage->steps = treadle_arena_alloc_array(arena, count + 1, sizeof *stage->steps);
  stage->groups = treadle_arena_alloc_array(arena, count + 1, sizeof *stage->groups);
  stage->group_first = treadle_arena_alloc_array(arena, rules + 1, sizeof *stage->group_first);
  if (!sorted || !stage->steps || !stage->groups || !stage->group_first) {
    treadle_free(sorted);
    return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  }
  for (size_t i = 0; i < count; i++) {
    const treadle_flat_param *param = &stage->params[i];
    sorted[i] = (entry){param->storage->rule, param->unit, param->start, param->elems};
  }
  if (count > 0) qsort(sorted, count, sizeof *sorted, by_rule);
  int32_t groups = 0, rule = 0;
  for (size_t i = 0; i < count; i++) {
    const entry *at = &sorted[i];
    bool goes_on = i > 0 && at->rule == sorted[i - 1].rule && at->unit == sorted[i - 1].unit;
    while (rule < at->rule) stage->group_first[++rule] = groups;
    if (!goes_on) stage->groups[groups++] = (treadle_flat_rule_params){at->unit, (int32_t)i, 0};
    stage->groups[groups - 1].count++;
    stage->steps[i] = (treadle_flat_interval){.start = at->start, .end = at->start + at->elems};
    if (goes_on) stage->steps[i].before = stage->steps[i - 1].before + sorted[i - 1].elems;
  }
  while (rule < (int32_t)rules) stage->group_first[++rule] = groups;
  treadle_free(sorted);
  const treadle_status status = check_cost(stage, (int32_t)rules);
  return status != TREADLE_OK ? status : sum_ahead(flat, stage);
}

/* The number of a unit's group among those of a rule, which has one. */
static int32_t group_of(const treadle_flat_stage *stage, int32_t rule, int32_t unit) {
  int32_t low = stage->group_first[rule], high = stage->group_first[rule + 1];
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (stage->groups[middle].unit < unit)
      low = middle + 1;
    else
      high = middle;
  }
  return low - stage->group_first[rule];
}

/* What a rank with that range has of a rule, and of it in the units before one. */
static void sum_up(const treadle_flat_stage *stage, int32_t rule, int32_t unit, int64_t range,
                   int64_t *before_p, int64_t *total_p) {
  const int32_t first = stage->group_first[rule], groups = stage->group_first[rule + 1] - first,
                own = group_of(stage, rule, unit);
  const int64_t *ahead = stage->ahead[rule] ? stage->ahead[rule] + range * (groups + 1) : NULL;
  *before_p = ahead ? ahead[own] : 0;
  *total_p = ahead ? ahead[groups] : 0;
  for (int32_t g = 0; g < groups && !ahead; g++) {
    if (g == own) *before_p = *total_p;
    *total_p += count_of(stage, &stage->groups[first + g], range);
  }
}

/* A rank with range `range` has it of every unit with parameters of the rule. total: all that it has of
 * the rule. before: what it has in earlier units, and in this one before the parameter. weight: what it
 * has of the parameter. */
void treadle_flat_place_in_order(const treadle_flat_stage *stage, const treadle_flat_param *param,
                                 int64_t range, treadle_cell *cell) {
  const int32_t rule = param->storage->rule;
  const int64_t shard = stage->units[param->unit].shard, low = range * shard, high = low + shard;
  const int64_t end = param->start + param->elems < high ? param->start + param->elems : high;
  const int64_t start = param->start > low ? param->start : low;
  const treadle_flat_rule_params *group =
      &stage->groups[stage->group_first[rule] + group_of(stage, rule, param->unit)];
  sum_up(stage, rule, param->unit, range, &cell->before, &cell->total);
  cell->before += below(stage, group, start) - below(stage, group, low);
  cell->weight = end - start;
}
