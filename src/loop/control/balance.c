/* Rows into parts: what may be asked for, one row at a time or groups of them, and in which order the rows of a part come. */
#include "control/balance.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/sized.h"

#include <stdlib.h>

enum { KINDS = TREADLE_BALANCE_GREEDY + 1 };

static treadle_status no_memory(size_t rows) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory to divide %zu rows", rows);
}

/* ---- Input ---- */

treadle_status treadle_balance_sum(const char *what, const int64_t *loads, size_t count, int64_t *sum_p) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (loads[i] < 0) REFUSE("%s of row %zu: %lld, below 0", what, i, (long long)loads[i]);
    if (!treadle_add_fits(sum, loads[i], &sum))
      REFUSE("%s of %zu rows: their sum does not fit into 64 bits, from row %zu on", what, count, i);
  }
  *sum_p = sum;
  return TREADLE_OK;
}

/* What is divided, `count` rows or groups, has as many as parts, and divides where it must. */
static treadle_status check_count(const treadle_balance_spec *spec, const char *what, size_t count) {
  if (count < spec->parts) /* verl's words */
    REFUSE("number of items:[%zu] < k_partitions:[%zu]: fewer %s than parts", count, spec->parts, what);
  if (spec->equal && count % spec->parts)
    REFUSE("%zu %s do not divide into %zu parts of equal size", count, what, spec->parts);
  return TREADLE_OK;
}

static treadle_status check(const treadle_balance_spec *spec) {
  treadle_status status;
  int64_t sum;
  TRY(treadle_check_enum("treadle_balance_divide", "kind", (long long)spec->kind, KINDS));
  if (spec->count > TREADLE_MAX_ROWS)
    REFUSE("%zu rows; at most %lld", spec->count, (long long)TREADLE_MAX_ROWS);
  if (spec->parts == 0) REFUSE("0 parts; at least 1");
  if (!spec->groups) TRY(check_count(spec, "rows", spec->count));
  if (spec->count && !spec->loads) return treadle_refuse_null("treadle_balance_divide", "loads");
  if (spec->groups && spec->ends_small)
    REFUSE("rows of a group stay together: ends_small does not go with groups");
  TRY(treadle_balance_sum("loads", spec->loads, spec->count, &sum));
out:
  return status;
}

/* ---- Parts ---- */

/* Each row to the part with the least so far; with equal, with the fewest rows, and among these the least. */
static treadle_status give_greedily(const int64_t *loads, size_t count, size_t parts, bool equal,
                                    int64_t *owner) {
  int64_t *sums = treadle_alloc_array(2 * parts, sizeof *sums), *counts = sums ? sums + parts : NULL;
  if (!sums) return no_memory(count);
  for (size_t i = 0; i < count; i++) {
    size_t least = 0;
    for (size_t p = 1; p < parts; p++) {
      bool fewer = equal && counts[p] < counts[least], as_many = !equal || counts[p] == counts[least];
      if (fewer || (as_many && sums[p] < sums[least])) least = p;
    }
    owner[i] = (int64_t)least;
    sums[least] += loads[i];
    counts[least]++;
  }
  treadle_free(sums);
  return TREADLE_OK;
}

static treadle_status divide(const treadle_balance_spec *spec, const int64_t *loads, size_t count,
                             int64_t *owner) {
  return spec->kind == TREADLE_BALANCE_GREEDY
             ? give_greedily(loads, count, spec->parts, spec->equal, owner)
             : treadle_karmarkar_karp(loads, count, spec->parts, spec->equal, owner);
}

void treadle_balance_list(const int64_t *owner, size_t count, size_t parts, int64_t *order,
                          int64_t *counts) {
  int64_t at = 0;
  for (size_t p = 0; p < parts; p++) counts[p] = 0;
  for (size_t i = 0; i < count; i++) counts[owner[i]]++;
  for (size_t p = 0; p < parts; p++) { /* now: where each part begins */
    int64_t begin = at;
    at += counts[p];
    counts[p] = begin;
  }
  for (size_t i = 0; i < count; i++) order[counts[owner[i]]++] = (int64_t)i;
  for (size_t p = parts; p-- > 1;) counts[p] -= counts[p - 1]; /* from ends to counts */
}

/* ---- Groups ---- */

typedef struct group_run {
  int64_t group;
  size_t first; /* row */
} group_run;

static int by_group(const void *a, const void *b) {
  const group_run *x = a, *y = b;
  if (x->group != y->group) return x->group < y->group ? -1 : 1;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* of [rows]: the number of each row's group, from 0 as they come; loads of these. */
static treadle_status number_groups(const treadle_balance_spec *spec, int64_t *of, int64_t *loads,
                                    size_t *count_p) {
  treadle_status status = TREADLE_OK;
  size_t count = 0;
  group_run *runs = treadle_alloc_array(spec->count + 1, sizeof *runs);
  if (!runs) TRY(no_memory(spec->count));
  for (size_t i = 0; i < spec->count; i++) {
    if (i == 0 || spec->groups[i] != spec->groups[i - 1]) {
      runs[count] = (group_run){.group = spec->groups[i], .first = i};
      loads[count++] = 0;
    }
    of[i] = (int64_t)count - 1;
    loads[count - 1] += spec->loads[i];
  }
  qsort(runs, count, sizeof *runs, by_group);
  for (size_t i = 1; i < count; i++)
    if (runs[i].group == runs[i - 1].group)
      TRY(treadle_fail(
          TREADLE_REFUSED,
          "group %lld stands at row %zu and again at row %zu: rows of a group must be neighbours",
          (long long)runs[i].group, runs[i - 1].first, runs[i].first));
  *count_p = count;
out:
  treadle_free(runs);
  return status;
}

/* owner [rows], through the groups. */
static treadle_status divide_groups(const treadle_balance_spec *spec, int64_t *owner) {
  treadle_status status;
  size_t count;
  int64_t *of = treadle_alloc_array(3 * spec->count + 1, sizeof *of), *loads = of ? of + spec->count : NULL,
          *of_group = of ? loads + spec->count : NULL;
  if (!of) TRY(no_memory(spec->count));
  TRY(number_groups(spec, of, loads, &count));
  TRY(check_count(spec, "groups", count));
  TRY(divide(spec, loads, count, of_group));
  for (size_t i = 0; i < spec->count; i++) owner[i] = of_group[of[i]];
out:
  treadle_free(of);
  return status;
}

/* ---- The order inside of a part ---- */

typedef struct loaded {
  int64_t load, row;
} loaded;

static int by_load(const void *a, const void *b) {
  const loaded *x = a, *y = b;
  if (x->load == y->load) return x->row < y->row ? -1 : x->row > y->row;
  return x->load < y->load ? -1 : 1;
}

/* Small rows at both ends: places 0, 2, 4 .., then .. 5, 3, 1. */
static treadle_status put_small_at_ends(const treadle_balance_spec *spec, int64_t *order,
                                        const int64_t *counts) {
  loaded *sorted = treadle_alloc_array(spec->count + 1, sizeof *sorted);
  if (!sorted) return no_memory(spec->count);
  for (size_t p = 0; p < spec->parts; order += counts[p], p++) {
    int64_t count = counts[p], at = 0;
    for (int64_t i = 0; i < count; i++)
      sorted[i] = (loaded){.load = spec->loads[order[i]], .row = order[i]};
    qsort(sorted, (size_t)count, sizeof *sorted, by_load);
    for (int64_t i = 0; i < count; i += 2) order[at++] = sorted[i].row;
    for (int64_t i = count - 1 - count % 2; i > 0; i -= 2) order[at++] = sorted[i].row;
  }
  treadle_free(sorted);
  return TREADLE_OK;
}

/* ---- All ---- */

treadle_status treadle_balance_divide(const treadle_balance_spec *spec, int64_t *order, int64_t *counts) {
  treadle_status status;
  treadle_balance_spec given;
  int64_t *owner = NULL;
  TREADLE_NEED(spec);
  TRY(TREADLE_TAKE(spec, &given));
  TRY(check(&given));
  TREADLE_NEED(order);
  TREADLE_NEED(counts);
  owner = treadle_alloc_array(given.count, sizeof *owner);
  if (!owner) TRY(no_memory(given.count));
  TRY(given.groups ? divide_groups(&given, owner) : divide(&given, given.loads, given.count, owner));
  treadle_balance_list(owner, given.count, given.parts, order, counts);
  if (given.ends_small) TRY(put_small_at_ends(&given, order, counts));
out:
  treadle_free(owner);
  return status;
}
