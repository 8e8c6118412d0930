/* How the ranks agree on a plan.
 *
 *   measure   each rank: its windows, its cap_min, its options             -> agree
 *   decide    from everybody's figures, the same everywhere: cap, waves    -> agree
 *   plan      each rank: its plan; all 4096 waves when one is over its bound -> agree
 *             digests are compared
 *
 * Each step ends with all ranks knowing how all fared, so that a refusal on one is the failure of all, with
 * its message, and nobody waits for a rank that has given up. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PAGE = 2 << 20, DEFAULT_CAP = 256 << 20 };

/* ---- Agreeing ---- */

typedef struct verdict {
  int32_t status;
  char message[TREADLE_GROUP_MESSAGE];
} verdict;

treadle_status treadle_switch_agree(treadle_group *group, treadle_status mine) {
  treadle_status status = TREADLE_OK;
  verdict own = {.status = mine};
  int first = -1, alike = 0;
  if (mine != TREADLE_OK) snprintf(own.message, sizeof own.message, "%s", treadle_error_message());
  TRY(treadle_group_say(group, &own, sizeof own));
  for (int rank = group->size - 1; rank >= 0; rank--)
    if (((const verdict *)treadle_group_said(group, rank))->status != TREADLE_OK) first = rank;
  if (first < 0) goto out;
  const verdict *worst = treadle_group_said(group, first);
  for (int rank = 0; rank < group->size; rank++)
    alike += memcmp(worst, treadle_group_said(group, rank), sizeof *worst) == 0;
  if (alike == group->size)
    status = treadle_fail((treadle_status)worst->status, "%s", worst->message);
  else
    status = treadle_fail((treadle_status)worst->status, "rank %d: %s", first, worst->message);
out:
  return status;
}

/* ---- Measure and decide ---- */

typedef struct figures { /* what a rank says of itself */
  int64_t bytes[2];      /* windows in whole pages, by mode */
  int64_t cap_min;
  uint64_t page_bytes, cap_bytes, budget_bytes; /* options */
  uint64_t one_way;
} figures;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static const size_t MOST_BYTES = (size_t)1 << 60; /* so that sums of sizes fit */

static treadle_status measure(const treadle_switch *sw, const treadle_switch_options *options,
                              figures *mine) {
  treadle_status status = TREADLE_OK;
  int64_t page = options->page_bytes ? (int64_t)options->page_bytes : DEFAULT_PAGE;
  if ((page & (page - 1)) != 0 || page < sysconf(_SC_PAGESIZE) || page > INT64_C(1) << 40)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: page size %zu is not a power of two of at least %ld bytes",
                        options->page_bytes, sysconf(_SC_PAGESIZE));
  if (options->cap_bytes > MOST_BYTES || options->budget_bytes > MOST_BYTES)
    return treadle_fail(TREADLE_REFUSED, "switch: a cap of %zu and a budget of %zu bytes: 2^60 at the most",
                        options->cap_bytes, options->budget_bytes);
  for (int mode = 0; mode < 2; mode++) {
    const treadle_layout *layout = sw->layouts[mode];
    if (treadle_layout_ranks(layout) != sw->group->size)
      return treadle_fail(TREADLE_REFUSED, "switch: layout '%s' has %" PRId64 " ranks, the group has %d",
                          treadle_layout_text(layout), treadle_layout_ranks(layout), sw->group->size);
    int64_t bytes = (int64_t)treadle_layout_window_bytes(layout, sw->group->rank);
    mine->bytes[mode] = (bytes + page - 1) / page * page;
  }
  TRY(treadle_plan_check(sw->layouts[0], sw->layouts[1], sw->group->rank, page));
  if (!options->one_way && !treadle_plan_is_lossless(sw->layouts[0], sw->layouts[1]))
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: the way back from '%s' to '%s' is not bit-exact, and nothing else keeps the "
        "training weights: go one way only (one_way, --cycles 0), or keep the type",
        treadle_layout_text(sw->layouts[1]), treadle_layout_text(sw->layouts[0]));
  mine->page_bytes = (uint64_t)page;
  mine->cap_bytes = options->cap_bytes;
  mine->budget_bytes = options->budget_bytes;
  mine->one_way = options->one_way;
  TRY(treadle_plan_cap_min(sw->layouts[0], sw->layouts[1], sw->group->rank, page, &mine->cap_min));
out:
  return status;
}

/* The largest of all ranks, and that all were given the same options. */
static treadle_status compare_figures(const treadle_group *group, const figures *mine, int64_t *largest_p,
                                      int64_t *cap_min_p, int *tightest_p) {
  *largest_p = *cap_min_p = 0;
  *tightest_p = 0;
  for (int rank = 0; rank < group->size; rank++) {
    const figures *f = treadle_group_said(group, rank);
    if (f->page_bytes != mine->page_bytes || f->cap_bytes != mine->cap_bytes ||
        f->budget_bytes != mine->budget_bytes || f->one_way != mine->one_way)
      return treadle_fail(
          TREADLE_REFUSED,
          "switch: ranks %d and %d were given different options (page size, cap, budget or one_way)", rank,
          group->rank);
    *largest_p = larger(*largest_p, larger(f->bytes[0], f->bytes[1]));
    if (f->cap_min > *cap_min_p) {
      *cap_min_p = f->cap_min;
      *tightest_p = rank;
    }
  }
  return TREADLE_OK;
}

/* Cap and budget, from everybody's figures. */
static treadle_status decide(const treadle_group *group, const figures *mine, int64_t *cap_p) {
  treadle_status status = TREADLE_OK;
  int64_t largest, cap_min, cap = (int64_t)mine->cap_bytes, budget = (int64_t)mine->budget_bytes;
  int tightest;
  *cap_p = 0;
  TRY(compare_figures(group, mine, &largest, &cap_min, &tightest));
  if (cap == 0) cap = budget > 0 ? larger(budget - largest, 0) : larger(DEFAULT_CAP, cap_min);
  *cap_p = cap;
  int64_t wanted = larger((int64_t)mine->cap_bytes, cap_min);
  if (budget > 0 && budget < largest + wanted)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: the budget of %" PRId64
                        " bytes is too small: the largest window has %" PRId64
                        " bytes, and a switch takes %" PRId64 " more (%s); give at least %" PRId64 " bytes",
                        budget, largest, wanted, mine->cap_bytes > 0 ? "cap" : "cap_min", largest + wanted);
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

typedef struct proposal {
  uint64_t digest;
  int64_t over; /* bytes of the peak above the bound */
} proposal;

static treadle_status make_plan(treadle_switch *sw, const figures *mine, int64_t cap, int32_t waves,
                                proposal *proposal_p) {
  treadle_status status = TREADLE_OK;
  treadle_plan_destroy(sw->plan);
  sw->plan = NULL;
  TRY(treadle_plan_make(sw->layouts[0], sw->layouts[1], sw->group->rank, (int64_t)mine->page_bytes, waves,
                        cap, &sw->plan));
  sw->plan->cap_min_bytes = mine->cap_min;
  int64_t peak = sw->plan->physical_pages * sw->plan->page_bytes;
  *proposal_p = (proposal){sw->plan->digest, peak - larger(mine->bytes[0], mine->bytes[1]) - cap};
out:
  return status;
}

/* Do all ranks have the plan of the same pair? Names those that differ from most. */
static treadle_status compare_digests(const treadle_group *group) {
  int best = 0, best_count = 0;
  for (int rank = 0; rank < group->size; rank++) {
    int count = 0;
    uint64_t digest = ((const proposal *)treadle_group_said(group, rank))->digest;
    for (int peer = 0; peer < group->size; peer++)
      count += ((const proposal *)treadle_group_said(group, peer))->digest == digest;
    if (count > best_count) {
      best = rank;
      best_count = count;
    }
  }
  if (best_count == group->size) return TREADLE_OK;
  uint64_t digest = ((const proposal *)treadle_group_said(group, best))->digest;
  char ranks[200];
  size_t used = 0;
  for (int rank = 0; rank < group->size && used < sizeof ranks - 8; rank++)
    if (((const proposal *)treadle_group_said(group, rank))->digest != digest)
      used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", rank);
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: rank %s has another plan than rank %d: model, layouts and options must be the same "
      "on all ranks",
      ranks, best);
}

static bool anyone_over(const treadle_group *group) {
  for (int rank = 0; rank < group->size; rank++)
    if (((const proposal *)treadle_group_said(group, rank))->over > 0) return true;
  return false;
}

static treadle_status plan_all(treadle_switch *sw, const figures *mine, int64_t cap) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  proposal own = {0};
  int32_t waves = treadle_plan_waves(sw->layouts[0], sw->layouts[1], (int64_t)mine->page_bytes, cap);
  TRY(treadle_switch_agree(group, make_plan(sw, mine, cap, waves, &own)));
  TRY(treadle_group_say(group, &own, sizeof own));
  TRY(compare_digests(group));
  if (!anyone_over(group)) goto out;
  TRY(treadle_switch_agree(group, make_plan(sw, mine, cap, TREADLE_MAX_WAVES, &own)));
  TRY(treadle_group_say(group, &own, sizeof own));
  TRY(compare_digests(group));
  if (anyone_over(group)) /* cap_min said that it fits */
    status = treadle_fail(TREADLE_NO_MEMORY, "switch: a rank's peak is over its bound with the most waves");
out:
  return status;
}

treadle_status treadle_switch_plan_together(treadle_switch *sw, const treadle_switch_options *options,
                                            int64_t *bound_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  figures mine = {0};
  int64_t cap;
  TRY(treadle_switch_agree(group, measure(sw, options, &mine)));
  TRY(treadle_group_say(group, &mine, sizeof mine));
  TRY(treadle_switch_agree(group, decide(group, &mine, &cap)));
  TRY(plan_all(sw, &mine, cap));
  *bound_p = larger(mine.bytes[0], mine.bytes[1]) + cap;
out:
  return status;
}
