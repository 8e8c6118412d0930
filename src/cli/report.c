/* The figures of a plan over all ranks.
 *
 * The order follows what a switch does when it prepares: cap_min is the largest over ranks, cap follows
 * from it or from the budget, the waves from cap, and where the peak of any rank is then above its bound
 * all ranks take 4096 waves, with which cap_min was found. Ranks are looked at by several threads. */
#include "cli/report.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/cli.h"
#include "plan/classes.h"

#include <math.h>
#include <string.h>

static const size_t least_page = 4096, most_page = (size_t)1 << 40;

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static size_t round_up(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

double treadle_ratio(size_t moved, size_t lower_bound) {
  if (moved == lower_bound) return 1;
  return (double)moved / (double)lower_bound; /* infinite when the bound is 0: nothing had to move */
}

treadle_status treadle_map_ranks(treadle_layout *from, treadle_layout *to, treadle_rank_map map,
                                 const char **text_p) {
  treadle_layout *infer = to->is_train && !from->is_train ? from : to;
  treadle_status status = treadle_layout_map_ranks(infer, infer == to ? from : to, map);
  if (!status) *text_p = treadle_layout_rank_map(infer);
  return status;
}

/* ---- Cap, waves, measures -------------------------------------------------------------------- */

static size_t window_max(const treadle_report *report, int64_t rank) {
  return max_size(round_up(treadle_layout_window_bytes(report->from, rank), report->page_bytes),
                  round_up(treadle_layout_window_bytes(report->to, rank), report->page_bytes));
}

/* One step of these loops looks at one kind of ranks; kinds that are like another one come in a turn after it. */
typedef struct turn {
  treadle_report *report;
  const char *doing; /* "plan" */
  int32_t count;
  bool alias, second;
  const int64_t *ranks; /* one of each kind */
  const int32_t *like;  /* the first kind whose windows are cut alike; NULL: none are known to be */
  size_t *pairs;        /* bytes received, [ranks * ranks] */
  treadle_classes *classes;
} turn;

static bool is_its_turn(const turn *t, int32_t kind) {
  return (t->like && t->like[kind] < kind) == t->second;
}

static void tell(void *of, int32_t begun) {
  const turn *t = of;
  treadle_progress("%s %d of %d", t->doing, (int)begun, (int)t->count);
}

static treadle_status take_turns(turn *t, treadle_step step) {
  treadle_status status;
  TRY(treadle_parallel(t->count, step, t, tell));
  t->second = true;
  if (t->like) TRY(treadle_parallel(t->count, step, t, tell));
out:
  return status;
}

static treadle_status lay_ground(void *of, int32_t kind) {
  const turn *t = of;
  treadle_report *report = t->report;
  if (!is_its_turn(t, kind)) return TREADLE_OK;
  treadle_ground_options terms = {.page_bytes = (int64_t)report->page_bytes,
                                  .alias = t->alias,
                                  .cuts_of_all = &report->cuts,
                                  .known = t->alias && t->like &&
                                           !t->second, /* without alias no two kinds are alike */
                                  .like = t->second ? &report->grounds[t->like[kind]] : NULL};
  return treadle_ground_create(report->from, report->to, t->ranks[kind], &terms, &report->grounds[kind]);
}

/* The grounds of some ranks, and the largest cap_min and window over them. */
static treadle_status find_cap_min(treadle_report *report, const treadle_report_options *options,
                                   const int64_t *ranks, const int32_t *like, int32_t count) {
  treadle_status status;
  turn t = {report, "smallest cap: kind", count, options->alias, .ranks = ranks, .like = like};
  report->grounds = treadle_alloc_array((size_t)count, sizeof *report->grounds);
  if (!report->grounds) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a report");
  report->ground_count = count;
  TRY(take_turns(&t, lay_ground));
  for (int32_t i = 0; i < count; i++) {
    report->cap_min_bytes = max_size(report->cap_min_bytes, (size_t)report->grounds[i].cap_min_bytes);
    report->window_max_bytes = max_size(report->window_max_bytes, window_max(report, ranks[i]));
  }
out:
  return status;
}

/* Settles cap from what was given, and whether the budget does. */
static treadle_status choose_cap(treadle_report *report, const treadle_report_options *options) {
  size_t least = report->cap_min_bytes, window = report->window_max_bytes, budget = options->budget_bytes;
  if (options->cap_bytes && options->cap_bytes < least)
    return treadle_fail(TREADLE_REFUSED, "a cap of %zu bytes is below the smallest possible, %zu (%s)",
                        options->cap_bytes, least, treadle_text_of_size(least));
  report->fits = true;
  report->cap_bytes = options->cap_bytes ? options->cap_bytes : max_size(TREADLE_DEFAULT_CAP, least);
  report->budget_min_bytes = window + (options->cap_bytes ? options->cap_bytes : least);
  if (!budget) return TREADLE_OK;
  report->fits = budget >= report->budget_min_bytes;
  if (!options->cap_bytes) report->cap_bytes = report->fits ? budget - window : least;
  return TREADLE_OK;
}

static treadle_status measure_kind(void *of, int32_t kind) {
  const turn *t = of;
  treadle_report *report = t->report;
  treadle_plan_info *info = &report->infos[kind];
  if (!is_its_turn(t, kind)) return TREADLE_OK;
  treadle_status status =
      treadle_plan_measure_on(&report->grounds[kind], report->waves, (int64_t)report->cap_bytes,
                              t->second ? &report->infos[t->like[kind]] : NULL, info);
  info->peak_bound_bytes = max_size(info->from_bytes, info->to_bytes) + report->cap_bytes;
  return status;
}

/* Measures one rank of each kind with report->waves; says whether all peaks keep their bounds. */
static treadle_status measure_kinds(treadle_report *report, bool *bounded_p) {
  treadle_status status;
  turn t = {report, "plan of kind", report->kinds.count, .like = report->kinds.like};
  *bounded_p = true;
  TRY(take_turns(&t, measure_kind));
  for (int32_t kind = 0; kind < report->kinds.count; kind++)
    *bounded_p &= report->infos[kind].peak_bytes <= report->infos[kind].peak_bound_bytes;
out:
  return status;
}

static treadle_status measure_pair(void *of, int32_t rank) {
  const turn *t = of;
  return treadle_plan_add_inbound(t->classes, rank, &t->report->cuts, t->pairs + rank * t->report->ranks);
}

/* Bytes by pair: the link load; pairs where they are few. */
static treadle_status measure_pairs(treadle_report *report) {
  treadle_status status = TREADLE_OK;
  treadle_classes classes = {0};
  size_t ranks = (size_t)report->ranks, most = 0;
  size_t *pairs = treadle_alloc_array(ranks * ranks, sizeof *pairs);
  turn t = {report, "bytes by pair: rank", (int32_t)ranks, .pairs = pairs, .classes = &classes};
  double sum = 0;
  if (!pairs) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for bytes by pair"));
  TRY(treadle_classes_create(report->from, report->to, (int64_t)report->page_bytes, &classes));
  TRY(take_turns(&t, measure_pair));
  for (size_t rank = 0; rank < ranks; rank++) {
    size_t load = 0;
    for (size_t by = 0; by < ranks; by++) load += pairs[by * ranks + rank];
    load = max_size(load, treadle_report_rank(report, (int64_t)rank)->moved_bytes);
    most = max_size(most, load);
    sum += (double)load;
  }
  report->link_load = sum > 0 ? (double)most / (sum / (double)ranks) : 1;
  if (ranks <= TREADLE_SHOWN_RANKS) {
    report->pairs = pairs;
    pairs = NULL;
  }
out:
  treadle_classes_release(&classes);
  treadle_free(pairs);
  return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

const treadle_plan_info *treadle_report_rank(const treadle_report *report, int64_t rank) {
  return &report->infos[report->rank < 0 ? report->kinds.of[rank] : 0];
}

static void add_up(treadle_report *report) {
  int64_t first = report->rank < 0 ? 0 : report->rank, end = report->rank < 0 ? report->ranks : first + 1;
  size_t most = 0;
  bool begun = false;
  int64_t room = 0;
  for (int64_t rank = first; rank < end; rank++) {
    const treadle_plan_info *info = treadle_report_rank(report, rank);
    report->moved_bytes += info->moved_bytes;
    report->lower_bound_bytes += info->lower_bound_bytes;
    report->resident_bytes += info->resident_bytes;
    report->infer_bytes += info->infer_bytes;
    report->copied_bytes += info->copied_bytes;
    report->aliased_bytes += info->aliased_bytes;
    report->peak_bytes = max_size(report->peak_bytes, info->peak_bytes);
    most = max_size(most, info->moved_bytes);
    int64_t rank_room = (int64_t)info->peak_bound_bytes - (int64_t)info->peak_bytes;
    if (!begun || rank_room < room) {
      begun = true;
      room = rank_room;
      report->tight_rank = rank;
      report->bound_bytes = info->peak_bound_bytes;
    }
  }
  double model = (double)report->model_bytes;
  report->inbound_max = (double)most / model;
  report->inbound_mean =
      report->rank < 0 ? (double)report->moved_bytes / (double)report->ranks / model : (double)NAN;
}

/* Tables are made of the pages of each kind of ranks, and sums of the bytes of all ranks. */
static treadle_status check_all(const treadle_report *report) {
  const treadle_layout *layouts[] = {report->from, report->to};
  int64_t page = (int64_t)report->page_bytes, pages = 0, all;
  for (int i = 0; i < 2; i++) {
    int64_t bytes = treadle_layout_window_max(layouts[i]);
    pages += bytes / page + 1;
    if (!treadle_mul_fits(bytes, report->ranks, &all) || all > TREADLE_MAX_REPORT_BYTES)
      return treadle_fail(TREADLE_REFUSED,
                          "'%s': windows of up to %s on each of %lld ranks are more than 2^62 bytes in all",
                          treadle_layout_text(layouts[i]), treadle_text_of_size((size_t)bytes),
                          (long long)report->ranks);
  }
  if (pages * report->kinds.count > TREADLE_MAX_REPORT_PAGES)
    return treadle_fail(
        TREADLE_REFUSED,
        "a report over all ranks: %d kinds of ranks with %lld pages of %s each; at most %lld pages in "
        "all will do: take larger pages (--page-size) or ask for one rank (--rank)",
        report->kinds.count, (long long)pages, treadle_text_of_size(report->page_bytes),
        (long long)TREADLE_MAX_REPORT_PAGES);
  return TREADLE_OK;
}

static treadle_status report_all(treadle_report *report, const treadle_report_options *options) {
  treadle_status status = TREADLE_OK;
  bool bounded;
  TRY((options->alias ? treadle_kinds_create_paired : treadle_kinds_create)(report->from, report->to,
                                                                            &report->kinds));
  TRY(check_all(report));
  report->infos = treadle_alloc_array((size_t)report->kinds.count, sizeof *report->infos);
  if (!report->infos) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));
  TRY(find_cap_min(report, options, report->kinds.first, report->kinds.like, report->kinds.count));
  TRY(choose_cap(report, options));
  report->waves =
      treadle_plan_waves(report->from, report->to, (int64_t)report->page_bytes, (int64_t)report->cap_bytes);
  TRY(measure_kinds(report, &bounded));
  if (!bounded && report->waves != TREADLE_MAX_WAVES) {
    report->waves = TREADLE_MAX_WAVES;
    TRY(measure_kinds(report, &bounded));
  }
  if (report->ranks <= TREADLE_PAIR_RANKS) TRY(measure_pairs(report));
  add_up(report);
  if (report->ranks > TREADLE_PAIR_RANKS)
    report->link_load = report->inbound_mean > 0 ? report->inbound_max / report->inbound_mean : 1;
out:
  return status;
}

/* One rank: the very plan that it would run, operations and all. */
static treadle_status report_one(treadle_report *report, const treadle_report_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_plan *plan = NULL;
  int64_t page = (int64_t)report->page_bytes;
  treadle_plan_info *info = report->infos = treadle_alloc(sizeof *report->infos);
  if (!info) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));

  TRY(find_cap_min(report, options, &report->rank, NULL, 1));
  TRY(choose_cap(report, options));
  int64_t cap = (int64_t)report->cap_bytes;
  report->waves = treadle_plan_waves(report->from, report->to, page, cap);
  TRY(treadle_plan_make_on(report->grounds, report->waves, cap, &plan));
  treadle_plan_get_info(plan, info);
  if (info->peak_bytes > info->peak_bound_bytes && report->waves != TREADLE_MAX_WAVES) {
    treadle_plan_destroy(plan);
    plan = NULL;
    report->waves = TREADLE_MAX_WAVES;
    TRY(treadle_plan_make_on(report->grounds, report->waves, cap, &plan));
    treadle_plan_get_info(plan, info);
  }
  report->link_load = (double)NAN;
  add_up(report);
out:
  treadle_plan_destroy(plan);
  return status;
}

treadle_status treadle_report_make(const treadle_model *model, const treadle_report_options *options,
                                   treadle_report *report) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds(), processor_begin = treadle_clock_process_seconds();
  size_t rss_begin = treadle_clock_peak_rss_bytes();
  size_t page = options->page_bytes ? options->page_bytes : TREADLE_DEFAULT_PAGE;
  *report = (treadle_report){.ranks = options->ranks, .rank = options->rank, .page_bytes = page};

  if (page < least_page || page > most_page || (page & (page - 1)))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "a page size of %zu bytes: it must be a power of two from %zu to %zu (1 TiB)", page,
                     least_page, most_page));
  if (options->rank >= options->ranks)
    TRY(treadle_fail(TREADLE_REFUSED, "rank %lld of %lld ranks: they are numbered from 0",
                     (long long)options->rank, (long long)options->ranks));
  report->model_bytes = (size_t)treadle_model_bytes(model);
  TRY(treadle_layout_create(model, options->from, options->ranks, &report->from));
  TRY(treadle_layout_create(model, options->to, options->ranks, &report->to));
  TRY(treadle_map_ranks(report->from, report->to, options->rank_map, &report->rank_map));
  TRY(options->rank < 0 ? report_all(report, options) : report_one(report, options));

  report->seconds = treadle_clock_seconds() - begin;
  report->processor_seconds = treadle_clock_process_seconds() - processor_begin;
  report->rss_bytes = treadle_clock_peak_rss_bytes() - rss_begin;
out:
  treadle_progress_end();
  return status;
}

void treadle_report_release(treadle_report *report) {
  treadle_kinds_release(&report->kinds);
  for (int32_t i = 0; i < report->ground_count; i++) treadle_ground_release(&report->grounds[i]);
  treadle_free(report->grounds);
  treadle_free(report->infos);
  treadle_free(report->pairs);
  treadle_layout_destroy(report->from);
  treadle_layout_destroy(report->to);
  *report = (treadle_report){0};
}
