/* Reports: the figures of plans over all ranks.
 *
 * The order follows what a switch does when it prepares: cap_min is the largest over ranks, cap follows
 * from it or from the budget, the waves from cap, and where the peak of any rank is then above its bound
 * all ranks take 4096 waves, with which cap_min was found. Ranks are looked at by several threads. */
#include "report/report.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/larger.h"
#include "base/limits.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "base/text.h"
#include "layout/sums.h"
#include "plan/alias.h"
#include "plan/tracks.h"

#include <math.h>

static const size_t least_page = 4096, most_page = (size_t)1 << 40, most_bytes = (size_t)1 << 60;

static size_t round_up(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

/* ---- Cap, waves, measures -------------------------------------------------------------------- */

static void note_windows(treadle_report *report, int64_t rank) {
  treadle_report_info *info = &report->info;
  size_t from = treadle_layout_window_bytes(report->from, rank),
         to = treadle_layout_window_bytes(report->to, rank);
  info->from_bytes = treadle_larger_size(info->from_bytes, round_up(from, info->page_bytes));
  info->to_bytes = treadle_larger_size(info->to_bytes, round_up(to, info->page_bytes));
}

/* One step of these loops looks at one set of equal ranks; sets that are like another one come in a turn after it. */
typedef struct turn {
  treadle_report *report;
  const char *doing; /* "plan" */
  int32_t count;
  bool second;
  const int32_t *like; /* the first set with the same bytes; NULL: none are known to have them */
  size_t *pairs;       /* bytes received, [ranks * ranks] */
  int32_t waves;       /* that windows are played with */
} turn;

static bool is_its_turn(const turn *t, int32_t set) { return (t->like && t->like[set] < set) == t->second; }

static treadle_status tell(void *of, int32_t begun) {
  const turn *t = of;
  return treadle_tell(&t->report->watch, t->doing, begun, t->count);
}

static treadle_status take_turns(turn *t, treadle_loop_step step) {
  treadle_status status;
  TRY(treadle_parallel(t->count, step, t, tell));
  t->second = true;
  if (t->like) TRY(treadle_parallel(t->count, step, t, tell));
out:
  return status;
}

/* ---- Plain windows ---- */

/* Tracks are played with several numbers of waves. They are kept where there is room for all that are made. */
static void keep(treadle_report *report, int side, int32_t set, treadle_tracks *tracks) {
  enum { MOST = 1 << 21 };
  size_t size = treadle_tracks_size(tracks);
  if (atomic_fetch_add(&report->kept_tracks, size) + size <= MOST) {
    report->tracks[side][set] = tracks;
  } else {
    atomic_fetch_sub(&report->kept_tracks, size);
    treadle_tracks_destroy(tracks);
  }
}

/* Both windows of a set, each once for all sets that are cut alike. */
static treadle_status play_kind(void *of, int32_t set) {
  treadle_status status = TREADLE_OK;
  const turn *t = of;
  treadle_report *report = t->report;
  const treadle_layout *layouts[] = {report->from, report->to};
  int64_t rank = report->equal_ranks.first[set], page = (int64_t)report->info.page_bytes;
  treadle_arrangement plain; /* has windows of this many pages? */
  TRY(treadle_arrangement_plain(report->from, report->to, rank, page, &plain));
  treadle_arrangement_release(&plain);
  for (int side = 0; side < TREADLE_SIDES; side++) {
    treadle_page_life **at = &report->lives[side][set];
    treadle_window_lives lives = {0};
    int64_t pages = ((int64_t)treadle_layout_window_bytes(layouts[side], rank) + page - 1) / page;
    if (report->equal_ranks.cut[side][set] != set) continue;
    treadle_free(*at);
    *at = NULL;
    TRY(treadle_window_lives_create(pages, 0, &lives));
    treadle_free(lives.to);
    *at = lives.from;
    const treadle_track_target target = {*at, NULL};
    treadle_tracks *tracks = report->tracks[side][set];
    bool made = !tracks;
    if (made) TRY(treadle_tracks_create(&report->lanes, report->kin, side, rank, &report->cuts, &tracks));
    treadle_tracks_play(tracks, t->waves, &target, 1);
    treadle_window_lives_settle(&(treadle_window_lives){.from = *at, .from_count = pages});
    if (made) keep(report, side, set, tracks);
  }
out:
  return status;
}

/* The plain windows of all sets, with a number of waves. */
static treadle_status play_kinds(treadle_report *report, int32_t waves) {
  treadle_status status;
  size_t count = (size_t)report->equal_ranks.count;
  turn t = {report, "windows of equal ranks", report->equal_ranks.count, .waves = waves};
  for (int side = 0; side < TREADLE_SIDES; side++) {
    if (!report->lives[side]) report->lives[side] = treadle_alloc_array(count, sizeof *report->lives[side]);
    if (!report->tracks[side])
      report->tracks[side] = treadle_alloc_array(count, sizeof *report->tracks[side]);
    if (!report->lives[side] || !report->tracks[side])
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for a report");
  }
  if (!report->kin) TRY(treadle_kin_list(report->from, report->to, &report->kin));
  if (!report->sums) TRY(treadle_sums_create(&report->sums));
  TRY(take_turns(&t, play_kind));
out:
  return status;
}

static treadle_window_tracks tracks_of(const treadle_report *report, int32_t set) {
  const int32_t from = report->equal_ranks.cut[TREADLE_FROM][set],
                to = report->equal_ranks.cut[TREADLE_TO][set];
  return (treadle_window_tracks){.from = report->lives[TREADLE_FROM][from],
                                 .to = report->lives[TREADLE_TO][to],
                                 .lanes = &report->lanes,
                                 .of_to = report->tracks[TREADLE_TO][to],
                                 .kin = report->kin,
                                 .sums = report->sums};
}

/* ---- The smallest cap ---- */

static treadle_status alloc_plan_bases(treadle_report *report, int32_t count) {
  report->plan_bases = treadle_alloc_array((size_t)count, sizeof *report->plan_bases);
  if (!report->plan_bases) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a report");
  report->plan_base_count = count;
  return TREADLE_OK;
}

static void note_plan_base(treadle_report *report, const treadle_plan_base *plan_base) {
  report->info.cap_min_bytes =
      treadle_larger_size(report->info.cap_min_bytes, (size_t)plan_base->cap_min_bytes);
  note_windows(report, plan_base->rank);
}

static treadle_status lay_plan_base(void *of, int32_t set) {
  const turn *t = of;
  treadle_report *report = t->report;
  treadle_plan_base *plan_base = &report->plan_bases[set];
  const treadle_window_tracks tracks = tracks_of(report, set);
  treadle_plan_base_options terms = plan_base->options;
  terms.tracks = &tracks;
  treadle_status status =
      treadle_plan_base_create(report->from, report->to, report->equal_ranks.first[set], &terms, plan_base);
  plan_base->options.tracks = NULL;
  return status;
}

/* The plan bases of all sets, and the largest cap_min and window over them. */
static treadle_status find_cap_min(treadle_report *report, const treadle_plan_base_options *terms) {
  treadle_status status;
  int32_t count = report->equal_ranks.count;
  turn t = {report, "smallest cap: equal ranks", count, .second = false};
  TRY(alloc_plan_bases(report, count));
  for (int32_t i = 0; i < count; i++) report->plan_bases[i].options = *terms;
  TRY(play_kinds(report, TREADLE_MAX_WAVES));
  TRY(take_turns(&t, lay_plan_base));
  for (int32_t i = 0; i < count; i++) note_plan_base(report, &report->plan_bases[i]);
out:
  return status;
}

/* Settles cap from what was given, and whether the budget does. */
static treadle_status choose_cap(treadle_report *report, const treadle_report_options *options) {
  size_t least = report->info.cap_min_bytes, budget = options->budget_bytes;
  size_t window = treadle_larger_size(report->info.from_bytes, report->info.to_bytes);
  if (options->cap_bytes && options->cap_bytes < least)
    return treadle_fail(TREADLE_REFUSED, "a cap of %zu bytes is below the smallest possible, %zu (%s)",
                        options->cap_bytes, least, treadle_text_of_size(least));
  report->info.fits = true;
  report->info.cap_bytes =
      options->cap_bytes ? options->cap_bytes : treadle_larger_size(treadle_default_cap(options->memory), least);
  report->info.budget_min_bytes = window + (options->cap_bytes ? options->cap_bytes : least);
  if (!budget) return TREADLE_OK;
  report->info.fits = budget >= report->info.budget_min_bytes;
  if (!options->cap_bytes) report->info.cap_bytes = report->info.fits ? budget - window : least;
  return TREADLE_OK;
}

static treadle_status measure_set(void *of, int32_t set) {
  const turn *t = of;
  treadle_report *report = t->report;
  treadle_plan_info *info = &report->infos[set];
  const treadle_window_tracks tracks = tracks_of(report, set);
  if (!is_its_turn(t, set)) return TREADLE_OK;
  treadle_status status =
      treadle_plan_measure_on(&report->plan_bases[set], report->info.waves, (int64_t)report->info.cap_bytes,
                              &tracks, t->second ? &report->infos[t->like[set]] : NULL, info);
  info->peak_bound_bytes = treadle_larger_size(info->from_bytes, info->to_bytes) + report->info.cap_bytes;
  return status;
}

/* Measures one rank of each set with report->info.waves; says whether all peaks keep their bounds. */
static treadle_status measure_sets(treadle_report *report, bool *bounded_p) {
  treadle_status status;
  turn t = {report, "plan of equal ranks", report->equal_ranks.count, .like = report->equal_ranks.like};
  *bounded_p = true;
  if (report->info.waves != TREADLE_MAX_WAVES) TRY(play_kinds(report, report->info.waves));
  TRY(take_turns(&t, measure_set));
  for (int32_t set = 0; set < report->equal_ranks.count; set++)
    *bounded_p &= report->infos[set].peak_bytes <= report->infos[set].peak_bound_bytes;
out:
  return status;
}

static treadle_status measure_pair(void *of, int32_t rank) {
  const turn *t = of;
  return treadle_plan_add_inbound(&t->report->lanes, treadle_report_nodes(t->report), rank,
                                  &t->report->cuts, t->pairs + rank * t->report->info.ranks);
}

/* Bytes by pair: the link load; pairs where they are few. */
static treadle_status measure_pairs(treadle_report *report) {
  treadle_status status = TREADLE_OK;
  size_t ranks = (size_t)report->info.ranks, most = 0;
  size_t *pairs = treadle_alloc_array(ranks * ranks, sizeof *pairs);
  turn t = {report, "bytes by pair: rank", (int32_t)ranks, .pairs = pairs};
  double sum = 0;
  if (!pairs) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for bytes by pair"));
  TRY(take_turns(&t, measure_pair));
  for (size_t rank = 0; rank < ranks; rank++) {
    size_t load = 0;
    for (size_t by = 0; by < ranks; by++) load += pairs[by * ranks + rank];
    load = treadle_larger_size(load, treadle_report_moved(report, (int64_t)rank));
    most = treadle_larger_size(most, load);
    sum += (double)load;
  }
  report->info.link_load = sum > 0 ? (double)most / (sum / (double)ranks) : 1;
  if (ranks <= TREADLE_KEPT_RANKS) {
    report->pairs = pairs;
    pairs = NULL;
  }
out:
  treadle_free(pairs);
  return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Tables are made of the pages of each set of equal ranks, and sums of the bytes of all ranks. */
static treadle_status check_all(const treadle_report *report) {
  const treadle_layout *layouts[] = {report->from, report->to};
  int64_t page = (int64_t)report->info.page_bytes, pages = 0, all;
  for (int i = 0; i < 2; i++) {
    int64_t bytes = treadle_layout_window_max(layouts[i]);
    pages += bytes / page + 1;
    if (!treadle_mul_fits(bytes, report->info.ranks, &all) || all > TREADLE_MAX_REPORT_BYTES)
      return treadle_fail(TREADLE_REFUSED,
                          "'%s': windows of up to %s on each of %lld ranks are more than 2^62 bytes in all",
                          treadle_layout_text(layouts[i]), treadle_text_of_size((size_t)bytes),
                          (long long)report->info.ranks);
  }
  if (pages * report->equal_ranks.count > TREADLE_MAX_REPORT_PAGES)
    return treadle_fail(
        TREADLE_REFUSED,
        "a report over all ranks: %d sets of equal ranks with %lld pages of %s each; at most %lld pages in "
        "all will do: take larger pages (--page-size) or ask for one rank (--rank)",
        report->equal_ranks.count, (long long)pages, treadle_text_of_size(report->info.page_bytes),
        (long long)TREADLE_MAX_REPORT_PAGES);
  return TREADLE_OK;
}

static treadle_status report_all(treadle_report *report, const treadle_report_options *options) {
  treadle_status status = TREADLE_OK;
  bool bounded;
  TRY((options->alias ? treadle_equal_ranks_create_paired
                      : treadle_equal_ranks_create)(report->from, report->to, &report->equal_ranks));
  TRY(check_all(report));
  report->infos = treadle_alloc_array((size_t)report->equal_ranks.count, sizeof *report->infos);
  if (!report->infos) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));
  const treadle_plan_base_options terms = {.page_bytes = (int64_t)report->info.page_bytes,
                                           .alias = options->alias,
                                           .cuts_of_all = &report->cuts};
  TRY(treadle_lanes_create(report->from, report->to, (int64_t)report->info.page_bytes, &report->lanes));
  TRY(find_cap_min(report, &terms));
  TRY(choose_cap(report, options));
  report->info.waves = treadle_plan_waves(report->from, report->to, (int64_t)report->info.page_bytes,
                                          (int64_t)report->info.cap_bytes);
  TRY(measure_sets(report, &bounded));
  if (!bounded && report->info.waves != TREADLE_MAX_WAVES) {
    report->info.waves = TREADLE_MAX_WAVES;
    TRY(play_kinds(report, report->info.waves));
    TRY(measure_sets(report, &bounded));
  }
  TRY(treadle_report_add_nodes(report));
  if (report->info.ranks <= TREADLE_PAIR_RANKS) TRY(measure_pairs(report));
  treadle_report_add_up(report);
  if (report->info.ranks > TREADLE_PAIR_RANKS)
    report->info.link_load =
        report->info.inbound_mean > 0 ? report->info.inbound_max / report->info.inbound_mean : 1;
out:
  return status;
}

/* One rank: the very plan that it would run, operations and all. */
static treadle_status report_one(treadle_report *report, const treadle_report_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_plan *plan = NULL;
  int64_t page = (int64_t)report->info.page_bytes;
  treadle_plan_info *info = report->infos = treadle_alloc(sizeof *report->infos);
  if (!info) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));
  *info = TREADLE_INIT(treadle_plan_info);

  const treadle_plan_base_options terms = {.page_bytes = page,
                                           .alias = options->alias,
                                           .cuts_of_all = &report->cuts,
                                           .nodes = treadle_report_nodes(report)};
  TRY(alloc_plan_bases(report, 1));
  TRY(treadle_plan_base_create(report->from, report->to, report->rank, &terms, report->plan_bases));
  note_plan_base(report, report->plan_bases);
  TRY(choose_cap(report, options));
  int64_t cap = (int64_t)report->info.cap_bytes;
  report->info.waves = treadle_plan_waves(report->from, report->to, page, cap);
  TRY(treadle_plan_make_on(report->plan_bases, report->info.waves, cap, &plan));
  treadle_plan_get_info(plan, info);
  if (info->peak_bytes > info->peak_bound_bytes && report->info.waves != TREADLE_MAX_WAVES) {
    treadle_plan_destroy(plan);
    plan = NULL;
    report->info.waves = TREADLE_MAX_WAVES;
    TRY(treadle_plan_make_on(report->plan_bases, report->info.waves, cap, &plan));
    treadle_plan_get_info(plan, info);
  }
  report->info.link_load = (double)NAN;
  TRY(treadle_report_add_node(report, plan));
  treadle_report_add_up(report);
out:
  treadle_plan_destroy(plan);
  return status;
}

/* The page size is settled, and windows are to be had. */
static treadle_status check_options(const treadle_report *report, const treadle_report_options *options) {
  size_t page = report->info.page_bytes;
  int64_t ranks = report->info.ranks;
  if (page < least_page || page > most_page || (page & (page - 1)))
    return treadle_fail(TREADLE_REFUSED,
                        "a page size of %zu bytes: it must be a power of two from %zu to %zu (1 TiB)", page,
                        least_page, most_page);
  if (options->cap_bytes > most_bytes || options->budget_bytes > most_bytes)
    return treadle_fail(TREADLE_REFUSED, "a cap of %zu and a budget of %zu bytes: 2^60 at the most",
                        options->cap_bytes, options->budget_bytes);
  if (options->one_rank && (options->rank < 0 || options->rank >= ranks))
    return treadle_fail(TREADLE_REFUSED, "rank %lld of %lld: ranks are numbered from 0",
                        (long long)options->rank, (long long)ranks);
  return treadle_plan_check(report->from, report->to, options->one_rank ? options->rank : 0, (int64_t)page);
}

treadle_status treadle_report_create(const treadle_layout *from, const treadle_layout *to,
                                     const treadle_report_options *options, treadle_report **report_p) {
  TREADLE_NEED(report_p);
  *report_p = NULL;
  TREADLE_NEED(from);
  TREADLE_NEED(to);
  treadle_status status;
  treadle_report_options o;
  treadle_report *report = treadle_alloc(sizeof *report);
  if (!report) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a report");
  TRY(TREADLE_TAKE(options, &o));
  report->from = from;
  report->to = to;
  report->watch = (treadle_watch){o.watch, o.watch_context};
  report->rank = o.one_rank ? o.rank : -1;
  report->info = (treadle_report_info){.struct_size = sizeof report->info,
                                       .ranks = treadle_layout_ranks(from),
                                       .page_bytes = o.page_bytes ? o.page_bytes : treadle_default_page(o.memory),
                                       .model_bytes = (size_t)treadle_model_bytes(from->model)};
  TRY(check_options(report, &o));
  TRY(treadle_report_start_nodes(report, o.node_of));
  TRY(o.one_rank ? report_one(report, &o) : report_all(report, &o));
  *report_p = report;
  report = NULL;
out:
  treadle_report_destroy(report);
  return status;
}

void treadle_report_destroy(treadle_report *report) {
  if (!report) return;
  for (int side = 0; side < TREADLE_SIDES; side++) {
    for (int32_t i = 0; report->lives[side] && i < report->equal_ranks.count; i++)
      treadle_free(report->lives[side][i]);
    treadle_free(report->lives[side]);
    for (int32_t i = 0; report->tracks[side] && i < report->equal_ranks.count; i++)
      treadle_tracks_destroy(report->tracks[side][i]);
    treadle_free(report->tracks[side]);
  }
  treadle_lanes_release(&report->lanes);
  treadle_free(report->kin);
  treadle_sums_destroy(report->sums);
  treadle_equal_ranks_release(&report->equal_ranks);
  for (int32_t i = 0; i < report->plan_base_count; i++) treadle_plan_base_release(&report->plan_bases[i]);
  treadle_free(report->plan_bases);
  treadle_free(report->infos);
  treadle_free(report->pairs);
  treadle_nodes_release(&report->nodes);
  treadle_free(report->by_node);
  treadle_free(report->rank_nets);
  treadle_free(report);
}
