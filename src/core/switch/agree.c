/* How the ranks agree on a plan.
 *
 *   settle    what own tensors of any rank ask of all (own.c)
 *   check     each rank: its options, its windows                          -> agree
 *   room      is there memory for windows of these sizes? (room.c)
 *   measure   each rank: its cap_min                                       -> agree
 *   decide    from the figures of all ranks, the same on each: cap, waves   -> agree
 *   plan      each rank: its plan; all 4096 waves when one is over its bound -> agree
 *             digests are compared
 *
 * After each step all ranks know the results of all. So if one rank is refused, all fail with its message, and no rank
 * waits for one that has given up. */
#include "switch/attempt.h"
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "base/text.h"
#include "switch/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Measure and decide ---- */

enum { SINGLE = 1 << TREADLE_TRAIN_CLASSES }; /* there are no two versions of the infer window */

typedef struct figures {     /* what a rank says of itself */
  int64_t bytes[TREADLE_KV]; /* windows in whole pages, by class */
  int64_t train_work;        /* in whole pages */
  int64_t cap_min;
  uint64_t page_bytes, cap_bytes, budget_bytes; /* options */
  uint64_t one_way, copied, host, alias, delta;
  uint64_t leaves;               /* bits of classes of training; and SINGLE */
  int64_t waves;                 /* of a plan that was given; 0: none was */
  uint64_t mode, version, binds; /* its mode: another than train where it rejoins */
  int64_t infer_held;            /* of its infer window, its pages: own tensors need none */
  int64_t outside;               /* in no window, and part of the budget */
  uint64_t undoes;               /* all that an update overwrites is kept */
  uint64_t stale;                /* in mode INFER: its infer window holds no version */
} figures;

static const size_t MOST_BYTES = (size_t)1 << 60; /* so that sums of sizes fit */

size_t treadle_switch_page_bytes(const treadle_switch_options *options) {
  return options->page_bytes ? options->page_bytes : treadle_default_page(options->memory.kind);
}

size_t treadle_switch_windows_budget(const treadle_switch_options *options) {
  return options->budget_bytes > options->outside_bytes ? options->budget_bytes - options->outside_bytes
                                                        : 0;
}

static treadle_status check_options(const treadle_switch_options *options, size_t work_bytes) {
  size_t page = treadle_switch_page_bytes(options);
  if ((page & (page - 1)) != 0 || page < (size_t)sysconf(_SC_PAGESIZE) || page > (size_t)1 << 40)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: page size %zu is not a power of two of at least %ld bytes",
                        options->page_bytes, sysconf(_SC_PAGESIZE));
  if (options->cap_bytes > MOST_BYTES || options->budget_bytes > MOST_BYTES)
    return treadle_fail(TREADLE_REFUSED, "switch: a cap of %zu and a budget of %zu bytes: 2^60 at the most",
                        options->cap_bytes, options->budget_bytes);
  if (options->grads_bytes > MOST_BYTES || options->optimizer_bytes > MOST_BYTES ||
      options->train_work_bytes > MOST_BYTES || options->forward_work_bytes > MOST_BYTES ||
      options->reference_bytes > MOST_BYTES || options->kv_block_bytes > MOST_BYTES ||
      options->kv_bytes > MOST_BYTES || work_bytes > MOST_BYTES || options->outside_bytes > MOST_BYTES)
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: gradients of %zu, optimizer state of %zu, KV blocks of %zu, a KV cache of %zu, "
        "work memory of %zu and %zu bytes outside of windows: 2^60 at the most",
        options->grads_bytes, options->optimizer_bytes, options->kv_block_bytes, options->kv_bytes,
        work_bytes, options->outside_bytes);
  if (options->forward_work_bytes > options->train_work_bytes)
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: mode forward has %zu bytes of the trainer's work memory, which has %zu in mode train: "
        "no more than that",
        options->forward_work_bytes, options->train_work_bytes);
  if (options->keep_grads && options->offload_train_grad != TREADLE_ON)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: keep_grads copies gradients that leave the device, and without "
                        "offload_train_grad they stay: leave out one, or set the other");
  if (options->keep == TREADLE_KEEP_HOST && options->offload_train_param == TREADLE_OFF)
    return treadle_fail(TREADLE_REFUSED, "switch: keep=host copies params that leave the device, and with "
                                         "offload_train_param off they stay: leave out one of them");
  return TREADLE_OK;
}

static treadle_status check(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options *options = &sw->terms.options;
  TRY(treadle_ready_plan_take(&sw->terms, sw->layouts[0], sw->layouts[1], sw->group->rank));
  TRY(check_options(options, sw->engine.hooks.work_bytes));
  if (options->guard_pages && !sw->device.ops->guards)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: nothing keeps others out of pages on device '%s': leave out guard_pages",
                        sw->device.ops->name);
  if (options->delta && sw->terms.leaves[TREADLE_PARAMS])
    return treadle_fail(TREADLE_REFUSED,
                        "switch: delta sends what has changed since the last update, and here a switch "
                        "overwrites its source: params leave the device in mode infer, so there are no "
                        "updates; keep them (offload_train_param off), or leave out delta");
  for (int mode = 0; mode < 2; mode++) {
    const treadle_layout *layout = sw->layouts[mode];
    if (treadle_layout_ranks(layout) != sw->group->size)
      return treadle_fail(TREADLE_REFUSED, "switch: layout '%s' has %s, the group has %d",
                          treadle_layout_text(layout),
                          treadle_text_of_count(treadle_layout_ranks(layout), "rank"), sw->group->size);
  }
  for (int mode = 0; mode < 2; mode++)
    if (treadle_layout_window_bytes(sw->layouts[mode], sw->group->rank) > MOST_BYTES)
      return treadle_fail(TREADLE_REFUSED,
                          "switch: the window of layout '%s' has %zu bytes: 2^60 at the most",
                          treadle_layout_text(sw->layouts[mode]),
                          treadle_layout_window_bytes(sw->layouts[mode], sw->group->rank));
  TRY(treadle_plan_check(sw->layouts[0], sw->layouts[1], sw->group->rank,
                         (int64_t)treadle_switch_page_bytes(options)));
  TRY(treadle_own_take(sw));
  TRY(treadle_double_check(sw));
  TRY(treadle_undo_take(&sw->terms, sw->layouts[TREADLE_INFER], &sw->carry, &sw->undo));
  treadle_switch_carry_terms(sw);
  bool rebuilt = treadle_switch_rebuilds(sw);
  if (rebuilt && sw->engine.hooks.transforms && !options->one_way)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: rank %d's engine transforms the weights, and nothing else keeps the "
                        "training weights: keep them in host memory (keep=host) or on the device "
                        "(offload_train_param off), or go one way only (one_way)",
                        sw->group->rank);
  if (rebuilt && !options->one_way && !treadle_plan_is_lossless(sw->layouts[0], sw->layouts[1]))
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: the way back from '%s' to '%s' is not bit-exact, and nothing else keeps the "
        "training weights: keep them in host memory (keep=host), go one way only (one_way, --cycles 0), or "
        "keep "
        "the type",
        treadle_layout_text(sw->layouts[1]), treadle_layout_text(sw->layouts[0]));
out:
  return status;
}

static treadle_status measure(treadle_switch *sw, figures *mine) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options *options = &sw->terms.options;
  int64_t page = (int64_t)treadle_switch_page_bytes(options);
  size_t bytes[TREADLE_KV] = {treadle_layout_window_bytes(sw->layouts[0], sw->group->rank),
                              options->grads_bytes, options->optimizer_bytes,
                              treadle_layout_window_bytes(sw->layouts[1], sw->group->rank)};
  for (int c = 0; c < TREADLE_KV; c++) mine->bytes[c] = ((int64_t)bytes[c] + page - 1) / page * page;
  mine->bytes[TREADLE_PARAMS] = (int64_t)treadle_own_held_bytes(sw, TREADLE_TRAIN);
  mine->infer_held = (int64_t)treadle_own_held_bytes(sw, TREADLE_INFER);
  mine->outside = (int64_t)options->outside_bytes;
  mine->train_work = ((int64_t)options->train_work_bytes + page - 1) / page * page;
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    mine->leaves |= (uint64_t)sw->terms.leaves[c] << c;
    mine->copied |= (uint64_t)sw->terms.copied[c] << c;
  }
  if (!options->double_infer) mine->leaves |= SINGLE;
  mine->page_bytes = (uint64_t)page;
  mine->cap_bytes = options->cap_bytes;
  mine->budget_bytes = options->budget_bytes;
  mine->one_way = options->one_way;
  mine->host = options->host;
  mine->alias = options->alias;
  mine->delta = options->delta;
  mine->waves = sw->terms.ready.waves;
  mine->undoes = sw->undo.whole || bytes[TREADLE_INFER_PARAMS] == 0;
  mine->stale = sw->stale;
  mine->mode = sw->mode;
  mine->version = sw->version;
  mine->binds = sw->engine.hooks.bind || sw->engine.hooks.unbind || options->double_infer;
  const treadle_plan_base_options plan_base = {.page_bytes = page,
                                               .alias = options->alias,
                                               .keep_params = !sw->terms.leaves[TREADLE_PARAMS],
                                               .nodes = sw->group->nodes};
  treadle_plan_base_release(&sw->agreed.plan_base);
  TRY(treadle_plan_base_create(sw->layouts[0], sw->layouts[1], sw->group->rank, &plan_base,
                               &sw->agreed.plan_base));
  mine->cap_min = sw->agreed.plan_base.cap_min_bytes;
out:
  return status;
}

/* The modes of two ranks of a new group: the same, or one is in INFER and goes to TRAIN by itself. */
static bool modes_agree(bool alone, uint64_t a, uint64_t b) {
  return a == b || (alone && ((a == TREADLE_INFER && b == TREADLE_TRAIN) ||
                              (a == TREADLE_TRAIN && b == TREADLE_INFER)));
}

/* Do the infer windows of all ranks in mode INFER hold one version? A node that was adrift may have the one before that of the
 * others. */
static bool is_one_version(const treadle_group *group) {
  const figures *first = NULL;
  for (int rank = 0; rank < group->size; rank++) {
    const figures *f = treadle_group_said(group, rank);
    if (f->mode != TREADLE_INFER) continue;
    if (!first) first = f;
    if (f->stale || f->version != first->version) return false;
  }
  return true;
}

/* That all were given the same options, and are in one mode; what is said of all. */
static treadle_status compare_figures(treadle_switch *sw, const figures *mine, int64_t *cap_min_p,
                                      int *tightest_p) {
  const treadle_group *group = sw->group;
  *cap_min_p = 0;
  *tightest_p = 0;
  sw->agreed.returns = false;
  sw->agreed.undoes = true;
  for (int rank = 0; rank < group->size; rank++) {
    const figures *f = treadle_group_said(group, rank);
    if (f->page_bytes != mine->page_bytes || f->cap_bytes != mine->cap_bytes ||
        f->budget_bytes != mine->budget_bytes || f->one_way != mine->one_way || f->leaves != mine->leaves ||
        f->copied != mine->copied || f->host != mine->host || f->alias != mine->alias ||
        f->delta != mine->delta || f->waves != mine->waves)
      return treadle_fail(
          TREADLE_REFUSED,
          "switch: ranks %d and %d were given different options (page size, cap, budget, "
          "one_way, alias, delta, double_infer, what is offloaded and kept, the waves of a plan, or the "
          "device)",
          rank, group->rank);
    sw->agreed.undoes = sw->agreed.undoes && f->undoes;
    if (!modes_agree(!treadle_switch_rebuilds(sw), f->mode, mine->mode))
      return treadle_fail(TREADLE_STATE, "switch: rank %d is in mode %s, rank %d in mode %s", rank,
                          treadle_mode_text((treadle_mode)f->mode), group->rank,
                          treadle_mode_text((treadle_mode)mine->mode));
    sw->agreed.returns = sw->agreed.returns || f->mode != mine->mode;
    if (f->version > sw->version) sw->version = f->version;
    sw->engine.binds = sw->engine.binds || f->binds;
    if (f->cap_min > *cap_min_p) {
      *cap_min_p = f->cap_min;
      *tightest_p = rank;
    }
  }
  if (sw->mode == TREADLE_INFER && !is_one_version(group)) sw->stale = true;
  return TREADLE_OK;
}

/* ---- The budget ---- */

/* What a rank holds at the fullest moment of a switch beside the cap, when these classes leave the device. leaves: as in figures. */
static int64_t base_of(const figures *f, uint64_t leaves) {
  int64_t kept = f->outside, params = f->bytes[TREADLE_PARAMS], infer = f->bytes[TREADLE_INFER_PARAMS];
  int64_t both = params + f->infer_held + (leaves & SINGLE ? 0 : f->infer_held);
  int64_t largest = treadle_larger(params, infer);
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++)
    if (!(leaves >> c & 1)) kept += f->bytes[c];
  /* Waves are those of whole windows: what is there of the infer window may be what comes first. */
  return kept + (leaves >> TREADLE_PARAMS & 1 && largest < both ? largest : both);
}

static int64_t training_of(const figures *f) {
  return f->bytes[TREADLE_PARAMS] + f->bytes[TREADLE_GRADS] + f->bytes[TREADLE_OPTIMIZER] + f->train_work +
         f->outside;
}

/* The largest of all ranks; leaves: as in base_of. */
static int64_t largest_base(const treadle_group *group, uint64_t leaves) {
  int64_t largest = 0;
  for (int rank = 0; rank < group->size; rank++)
    largest = treadle_larger(largest, base_of(treadle_group_said(group, rank), leaves));
  return largest;
}

/* What would make a switch fit: the first flag or cap that does, alone; else all flags together. */
static void find_remedy(const treadle_group *group, const figures *mine, int64_t cap, int64_t cap_min,
                        char *words, size_t bytes) {
  static const struct {
    uint64_t leaves;
    const char *name;
  } flags[] = {{1 << TREADLE_GRADS, "offload_train_grad (--offload grads)"},
               {1 << TREADLE_OPTIMIZER, "offload_train_optimizer (--offload optimizer)"},
               {1 << TREADLE_PARAMS, "offload_train_param (--offload params)"},
               {7, "all three offload flags (--offload params,grads,optimizer)"},
               {SINGLE, "one version of the infer params at a time (double_infer off, --double off)"}};
  int64_t budget = (int64_t)mine->budget_bytes, now = largest_base(group, mine->leaves);
  words[0] = 0;
  if (cap > cap_min && now + cap_min <= budget) {
    snprintf(words, bytes, "; a cap of %" PRId64 " to %" PRId64 " bytes would make it fit", cap_min,
             budget - now);
    return;
  }
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    int64_t base = largest_base(group, mine->leaves | flags[i].leaves);
    bool can = mine->leaves & SINGLE || !(flags[i].leaves & 1 << TREADLE_PARAMS); /* two: params stay */
    if (!can || base == now || base + cap > budget) continue;
    snprintf(words, bytes, "; %s would make it fit, with %" PRId64 " bytes", flags[i].name, base + cap);
    return;
  }
}

static treadle_status check_budget(const treadle_group *group, const figures *mine, int64_t cap_min) {
  int64_t budget = (int64_t)mine->budget_bytes, base = largest_base(group, mine->leaves);
  int64_t wanted = treadle_larger((int64_t)mine->cap_bytes, cap_min), training = 0;
  int fullest = 0;
  if (budget == 0) return TREADLE_OK;
  for (int rank = 0; rank < group->size; rank++) {
    const figures *f = treadle_group_said(group, rank);
    if (training_of(f) > training) training = training_of(f), fullest = rank;
  }
  if (budget < training)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: the budget of %" PRId64 " bytes is too small: rank %d trains with %" PRId64
                        " bytes (params, gradients, optimizer state, work memory), whatever is offloaded; "
                        "give at least %" PRId64 " bytes",
                        budget, fullest, training, treadle_larger(training, base + wanted));
  if (budget >= base + wanted) return TREADLE_OK;
  char remedy[200];
  find_remedy(group, mine, wanted, cap_min, remedy, sizeof remedy);
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: the budget of %" PRId64 " bytes is too small: the fullest rank holds %" PRId64
      " bytes (%s and what stays on the device), and a switch takes %" PRId64
      " more (%s); give at least %" PRId64 " bytes%s",
      budget, base, mine->leaves & SINGLE ? "the larger window" : "two versions of infer params", wanted,
      mine->cap_bytes > 0 ? "cap" : "cap_min", base + wanted, remedy);
}

/* Cap and budget, from everybody's figures. */
static treadle_status decide(treadle_switch *sw, const figures *mine, int64_t *cap_p) {
  treadle_status status = TREADLE_OK;
  const treadle_group *group = sw->group;
  int64_t cap_min, cap = (int64_t)mine->cap_bytes, budget = (int64_t)mine->budget_bytes;
  int tightest;
  *cap_p = 0;
  TRY(compare_figures(sw, mine, &cap_min, &tightest));
  if (cap == 0)
    cap = budget > 0 ? treadle_larger(budget - largest_base(group, mine->leaves), 0)
                     : treadle_larger((int64_t)treadle_default_cap(sw->device.kind), cap_min);
  *cap_p = cap;
  TRY(check_budget(group, mine, cap_min));
  if (cap < cap_min)
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: a cap of %" PRId64 " bytes is less than the %" PRId64
        " bytes that rank %d needs at the least (cap_min): give a larger cap or smaller pages",
        cap, cap_min, tightest);
out:
  return status;
}

/* ---- Plan ---- */

static treadle_status make_plan(treadle_switch *sw, int64_t cap, int32_t waves,
                                treadle_proposal *proposal_p) {
  treadle_status status = TREADLE_OK;
  treadle_plan_destroy(sw->carry.plan);
  sw->carry.plan = NULL;
  TRY(treadle_plan_make_on(&sw->agreed.plan_base, waves, cap, &sw->carry.plan));
  TRY(treadle_ready_plan_check(&sw->terms, sw->carry.plan));
  TRY(treadle_net_split(&sw->carry));
  TRY(treadle_staging_list(&sw->carry));
  const int64_t peak = sw->carry.plan->physical_pages * sw->carry.plan->page_bytes;
  *proposal_p = (treadle_proposal){sw->carry.plan->digest, peak - treadle_plan_bound(sw->carry.plan), 0};
out:
  return status;
}

static treadle_attempt first_attempt(const treadle_ready_plan *ready, const treadle_plan_base *plan_base,
                                     const figures *mine, int64_t cap) {
  return (treadle_attempt){.cap = cap,
                           .waves = ready->is ? ready->waves
                                              : treadle_plan_waves(plan_base->from, plan_base->to,
                                                                   (int64_t)mine->page_bytes, cap),
                           .may_grow = mine->cap_bytes == 0 && mine->budget_bytes == 0,
                           .given = ready->is};
}

static treadle_status plan_all(treadle_switch *sw, const figures *mine, int64_t *cap) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  treadle_proposal own = {0};
  treadle_attempt a = first_attempt(&sw->terms.ready, &sw->agreed.plan_base, mine, *cap);
  while (!a.done) {
    TRY(treadle_group_agree(group, make_plan(sw, a.cap, a.waves, &own)));
    TRY(treadle_staging_arrange(&sw->carry));
    own.staging = treadle_staging_bytes(&sw->carry);
    TRY(treadle_group_say(group, &own, sizeof own));
    TRY(treadle_attempt_judge(group, &a));
  }
  *cap = a.cap;
out:
  return status;
}

/* What the pool of a rank may have: `bound` is that of the fullest moment of a switch, without what lies outside. */
static size_t pool_bound(const figures *f, int64_t bound) {
  const int64_t most = treadle_larger(bound + f->outside, training_of(f));
  return (size_t)(treadle_larger(most, (int64_t)f->budget_bytes) - f->outside);
}

treadle_status treadle_switch_plan_together(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  figures mine = {0};
  int64_t cap;
  treadle_demand demand;
  const treadle_own_words words = treadle_own_say(&sw->terms.options);
  TRY(treadle_group_say(group, &words, sizeof words));
  TRY(treadle_group_agree(group, treadle_own_settle(group, &sw->terms, &sw->carry.own)));
  TRY(treadle_group_agree(group, check(sw)));
  TRY(treadle_room_limits(group, &sw->device, &sw->terms.options, &demand));
  demand = treadle_room_least(sw, demand);
  TRY(treadle_room_ask(group, &demand));
  TRY(treadle_group_agree(group, measure(sw, &mine)));
  TRY(treadle_group_say(group, &mine, sizeof mine));
  TRY(treadle_group_agree(group, decide(sw, &mine, &cap)));
  TRY(treadle_staging_meet(&sw->carry));
  TRY(plan_all(sw, &mine, &cap));
  const int64_t bound = base_of(&mine, mine.leaves) + cap - mine.outside;
  sw->agreed.bound_bytes = (size_t)bound;
  sw->agreed.pool_bound_bytes = pool_bound(&mine, bound);
out:
  return status;
}

/* ---- All ranks by one ---- */

/* Says it where others would find it. */
static void say_alone(treadle_group *group, const void *mine, size_t bytes) {
  memcpy(group->control->lines[group->rank].payload[group->barriers & 1], mine, bytes);
}

static treadle_status plan_each(treadle_switch *all, treadle_carry *const *carries, int ranks,
                                const treadle_attempt *a) {
  treadle_status status = TREADLE_OK;
  treadle_proposal *own = treadle_alloc_array((size_t)ranks, sizeof *own);
  if (!own) return treadle_memory_is_out();
  for (int rank = 0; rank < ranks; rank++) TRY(make_plan(&all[rank], a->cap, a->waves, &own[rank]));
  TRY(treadle_staging_arrange_alone(carries, ranks));
  for (int rank = 0; rank < ranks; rank++) {
    own[rank].staging = treadle_staging_bytes(carries[rank]);
    say_alone(all[rank].group, &own[rank], sizeof *own);
  }
out:
  treadle_free(own);
  return status;
}

treadle_status treadle_switch_plan_alone(treadle_switch *all, int ranks) {
  treadle_status status = TREADLE_OK;
  figures *mine = treadle_alloc_array((size_t)ranks, sizeof *mine);
  treadle_carry **carries = treadle_alloc_array((size_t)ranks, sizeof *carries);
  int64_t cap = 0;
  if (!mine || !carries) TRY(treadle_memory_is_out());
  for (int rank = 0; rank < ranks; rank++) carries[rank] = &all[rank].carry;
  for (int rank = 0; rank < ranks; rank++) {
    const treadle_own_words words = treadle_own_say(&all[rank].terms.options);
    say_alone(all[rank].group, &words, sizeof words);
  }
  for (int rank = 0; rank < ranks; rank++) {
    treadle_switch *sw = &all[rank];
    TRY(treadle_own_settle(sw->group, &sw->terms, &sw->carry.own));
  }
  for (int rank = 0; rank < ranks; rank++) {
    mine[rank] = (figures){0};
    TRY(check(&all[rank]));
    TRY(measure(&all[rank], &mine[rank]));
    say_alone(all[rank].group, &mine[rank], sizeof *mine);
  }
  for (int rank = 0; rank < ranks; rank++) TRY(decide(&all[rank], &mine[rank], &cap));
  TRY(treadle_staging_meet_alone(carries, ranks));
  treadle_attempt a = first_attempt(&all->terms.ready, &all->agreed.plan_base, mine, cap);
  while (!a.done) {
    TRY(plan_each(all, carries, ranks, &a));
    TRY(treadle_attempt_judge(all->group, &a));
  }
out:
  treadle_free(mine);
  treadle_free(carries);
  return status;
}
