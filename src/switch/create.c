/* How the ranks agree on a plan and make their memory.
 *
 *   measure   each rank: its windows, its cap_min, its options           -> agree
 *   decide    from everybody's figures, the same everywhere: cap, waves
 *   plan      each rank: its plan; all S = 4096 when one is over its bound -> agree
 *             digests are compared
 *   build     each rank: pool, windows, page tables, counters            -> agree
 *   share     pools and tables of the others are mapped                  -> agree
 *
 * Each step ends with all ranks knowing how all fared, so that a refusal on one is the failure of all, with its
 * message, and nobody waits for a rank that has given up. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PAGE = 2 << 20, DEFAULT_CAP = 256 << 20, DEFAULT_TIMEOUT = 60 };
enum { TABLES_MAGIC = 0x7461626c };

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
  if (alike == group->size) status = treadle_fail((treadle_status)worst->status, "%s", worst->message);
  else status = treadle_fail((treadle_status)worst->status, "rank %d: %s", first, worst->message);
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

static treadle_status measure(const treadle_switch *sw, const treadle_switch_options *options, figures *mine) {
  treadle_status status = TREADLE_OK;
  int64_t page = options->page_bytes ? (int64_t)options->page_bytes : DEFAULT_PAGE;
  if ((page & (page - 1)) != 0 || page < sysconf(_SC_PAGESIZE) || page > INT64_C(1) << 40)
    return treadle_fail(TREADLE_REFUSED, "switch: page size %zu is not a power of two of at least %ld bytes",
                        options->page_bytes, sysconf(_SC_PAGESIZE));
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
    return treadle_fail(TREADLE_REFUSED,
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
      return treadle_fail(TREADLE_REFUSED,
                          "switch: ranks %d and %d were given different options (page size, cap, budget or one_way)",
                          rank, group->rank);
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
                        "switch: the budget of %" PRId64 " bytes is too small: the largest window has %" PRId64
                        " bytes, and a switch takes %" PRId64 " more (%s); give at least %" PRId64 " bytes",
                        budget, largest, wanted, mine->cap_bytes > 0 ? "cap" : "cap_min", largest + wanted);
  if (cap < cap_min)
    return treadle_fail(TREADLE_REFUSED,
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
  TRY(treadle_plan_make(sw->layouts[0], sw->layouts[1], sw->group->rank, (int64_t)mine->page_bytes, waves, cap,
                        &sw->plan));
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
  return treadle_fail(TREADLE_REFUSED,
                      "switch: rank %s has another plan than rank %d: model, layouts and options must be the same "
                      "on all ranks",
                      ranks, best);
}

static bool anyone_over(const treadle_group *group) {
  for (int rank = 0; rank < group->size; rank++)
    if (((const proposal *)treadle_group_said(group, rank))->over > 0) return true;
  return false;
}

static treadle_status plan_together(treadle_switch *sw, const figures *mine, int64_t cap) {
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

/* ---- Build ---- */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

/* The page tables lie in a small pool of their own, which the others map. */
static treadle_status make_tables(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->plan;
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t bytes = (int64_t)(sizeof(treadle_tables) + (size_t)(plan->from_pages + plan->to_pages) * sizeof(int32_t));
  int64_t pages = (bytes + page - 1) / page;
  TRY(treadle_pool_create(pages, page, pages * page, &sw->table_pool));
  treadle_tables *tables = treadle_pool_base(sw->table_pool);
  tables->page_bytes = plan->page_bytes;
  tables->physical_pages = plan->physical_pages;
  tables->pages[TREADLE_TRAIN] = plan->from_pages;
  tables->pages[TREADLE_INFER] = plan->to_pages;
  memcpy(tables->table, plan->from_page, (size_t)plan->from_pages * sizeof(int32_t));
  memcpy(tables->table + plan->from_pages, plan->to_page, (size_t)plan->to_pages * sizeof(int32_t));
  tables->magic = TABLES_MAGIC;
out:
  return status;
}

static treadle_status build(treadle_switch *sw, const figures *mine, int64_t cap) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->plan;
  size_t ranks = (size_t)sw->group->size;
  size_t forward = plan->forward.ops.count, back = plan->back.ops.count;
  sw->pools = treadle_alloc_array(ranks, sizeof *sw->pools);
  sw->tables = treadle_alloc_array(ranks, sizeof *sw->tables);
  sw->views[0] = treadle_alloc_array(ranks, sizeof *sw->views[0]);
  sw->views[1] = treadle_alloc_array(ranks, sizeof *sw->views[1]);
  sw->written = treadle_alloc_array((forward > back ? forward : back) + 1, sizeof *sw->written);
  if (!sw->pools || !sw->tables || !sw->views[0] || !sw->views[1] || !sw->written) return no_memory();
  TRY(treadle_account_create(sw));
  int64_t bound = larger(mine->bytes[0], mine->bytes[1]) + cap;
  TRY(treadle_pool_create(plan->physical_pages, plan->page_bytes, bound, &sw->pool));
  TRY(treadle_pool_map(sw->pool, plan->from_page, plan->from_pages, &sw->windows[TREADLE_TRAIN]));
  TRY(treadle_pool_map(sw->pool, plan->to_page, plan->to_pages, &sw->windows[TREADLE_INFER]));
  TRY(make_tables(sw));
  memset(sw->written, 0, ((forward > back ? forward : back) + 1) * sizeof *sw->written); /* touched */
out:
  return status;
}

/* ---- Share ---- */

/* A rank's tables lead to pages of its pool, whatever it has written there. */
static treadle_status check_tables(const treadle_switch *sw, int rank) {
  const treadle_tables *tables = sw->tables[rank].base;
  size_t bytes = sw->tables[rank].bytes;
  int64_t room = bytes < sizeof *tables ? 0 : (int64_t)((bytes - sizeof *tables) / sizeof(int32_t));
  bool good = room > 0 && tables->magic == TABLES_MAGIC && tables->page_bytes == sw->plan->page_bytes &&
              tables->physical_pages * tables->page_bytes == (int64_t)sw->pools[rank].bytes &&
              tables->pages[0] >= 0 && tables->pages[1] >= 0 && tables->pages[0] <= room &&
              tables->pages[1] <= room - tables->pages[0];
  for (int64_t i = 0; good && i < tables->pages[0] + tables->pages[1]; i++)
    good = tables->table[i] >= 0 && tables->table[i] < tables->physical_pages;
  return good ? TREADLE_OK : treadle_fail(TREADLE_PEER, "switch: rank %d has page tables that are none", rank);
}

static int shift_of(int64_t page_bytes) { return __builtin_ctzll((unsigned long long)page_bytes); }

static treadle_status make_views(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < sw->group->size; rank++) {
    TRY(check_tables(sw, rank));
    const treadle_tables *tables = sw->tables[rank].base;
    treadle_view view = {.base = (char *)(uintptr_t)sw->pools[rank].base, .page_shift = shift_of(sw->plan->page_bytes)};
    view.table = tables->table;
    sw->views[TREADLE_TRAIN][rank] = view;
    view.table += tables->pages[TREADLE_TRAIN];
    sw->views[TREADLE_INFER][rank] = view;
  }
out:
  return status;
}

static treadle_status share_one(treadle_switch *sw, const treadle_pool *pool, treadle_shared *all) {
  return sw->group->ops->share(sw->group, treadle_pool_descriptor(pool), treadle_pool_base(pool),
                               treadle_pool_bytes(pool), all);
}

static treadle_status share(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_switch_agree(sw->group, share_one(sw, sw->pool, sw->pools)));
  TRY(treadle_switch_agree(sw->group, share_one(sw, sw->table_pool, sw->tables)));
  TRY(treadle_switch_agree(sw->group, make_views(sw)));
out:
  return status;
}

/* ---- All of it ---- */

static treadle_status create(treadle_switch *sw, const treadle_switch_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  figures mine = {0};
  int64_t cap;
  TRY(treadle_switch_agree(group, measure(sw, options, &mine)));
  TRY(treadle_group_say(group, &mine, sizeof mine));
  TRY(treadle_switch_agree(group, decide(group, &mine, &cap)));
  TRY(plan_together(sw, &mine, cap));
  TRY(treadle_switch_agree(group, build(sw, &mine, cap)));
  TRY(share(sw));
out:
  return status;
}

treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train,
                                     const treadle_layout *infer, const treadle_switch_options *options,
                                     treadle_switch **switch_p) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options o = options ? *options : (treadle_switch_options){0};
  double group_timeout = group->timeout_seconds;
  *switch_p = NULL;
  group->timeout_seconds = o.timeout_seconds > 0 ? o.timeout_seconds : DEFAULT_TIMEOUT;
  treadle_switch *sw = treadle_alloc(sizeof *sw);
  TRY(treadle_switch_agree(group, sw ? TREADLE_OK : no_memory()));
  *sw = (treadle_switch){.group = group,
                         .layouts = {train, infer},
                         .mover = treadle_copy_choose(),
                         .timeout_seconds = group->timeout_seconds,
                         .one_way = o.one_way};
  TRY(create(sw, &o));
  *switch_p = sw;
out:
  if (status != TREADLE_OK) {
    if (sw && sw->group) treadle_switch_destroy(sw);
    else treadle_free(sw);
  }
  group->timeout_seconds = group_timeout;
  return status;
}
