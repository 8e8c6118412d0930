/* What the plans of one rank have in common: how its to-window may be arranged, and the smallest cap.
 *
 * Aliased pages are in use all the time, so fewer pages can be reused; padding makes the window larger. So several
 * arrangements are tried, from much padding to none, and the plain one in which nothing is moved. Their pages are computed
 * with 4096 waves, and each arrangement has a cap_min of its own. Of those that its cap allows, a plan takes the one that
 * aliases most. The plain one is among them. So cap_min never grows, and the bound, in which padding does not count, is the
 * same as without alias. */
#include "base/larger.h"
#include "plan/alias.h"
#include "plan/sinks.h"
#include "plan/tracks.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { SMALLEST_PAGE = 64 };

/* How much more an alias has to gain than the padding takes; 0: nothing is moved. */
static const int64_t thrifts[] = {1, 16, 64, 0};
enum { THRIFTS = sizeof thrifts / sizeof *thrifts };
static_assert((int)THRIFTS < (int)TREADLE_ARRANGEMENTS, "and the plain one");

/* What an arrangement gains: the bytes that need no copy, less those that hold nothing. */
static int64_t gain_of(const treadle_plan_base *plan_base, int32_t i) {
  const treadle_arrangement *a = &plan_base->arrangements[i];
  return a->pages * plan_base->options.page_bytes - a->padding_bytes;
}

const treadle_arrangement *treadle_plan_base_choose(const treadle_plan_base *plan_base, int64_t cap_bytes) {
  int32_t best = 0;
  for (int32_t i = 1; i < plan_base->count; i++)
    if (plan_base->cap_min[i] <= cap_bytes && gain_of(plan_base, i) > gain_of(plan_base, best)) best = i;
  return &plan_base->arrangements[best];
}

/* When each page of the from-window is touched, whatever the arrangement of the other one. */
static treadle_status play_back(treadle_plan_base *plan_base, const treadle_lanes *lanes,
                                treadle_window_lives *lives) {
  treadle_status status = TREADLE_OK;
  const treadle_page_life *known = plan_base->options.tracks ? plan_base->options.tracks->from : NULL;
  TRY(treadle_window_lives_create(plan_base->arrangements[0].from_pages, 0, lives));
  if (known) {
    memcpy(lives->from, known, (size_t)lives->from_count * sizeof *known);
    goto out;
  }
  treadle_page_sink back = treadle_page_sink_make(lives->from, plan_base->options.page_bytes, NULL);
  back.sink.cuts.all = plan_base->options.cuts_of_all;
  TRY(treadle_direction_walk(lanes, plan_base->to, plan_base->from, plan_base->rank, &back.sink));
  treadle_window_lives_settle(lives);
out:
  return status;
}

/* Plays the pages of all arrangements in one walk, and notes the smallest cap of each. */
static treadle_status play(treadle_plan_base *plan_base, treadle_lanes *lanes) {
  treadle_status status = TREADLE_OK;
  int64_t page_bytes = plan_base->options.page_bytes, physical;
  const treadle_arrangement *plain = &plan_base->arrangements[0];
  treadle_window_lives lives = {0}, others[TREADLE_ARRANGEMENTS] = {0};
  treadle_page_sink sinks[TREADLE_ARRANGEMENTS];
  const treadle_window_tracks *tracks = plan_base->options.tracks;
  lanes->waves = TREADLE_MAX_WAVES;
  for (int32_t i = 0; i < plan_base->count; i++) {
    TRY(treadle_window_lives_create(0, plan_base->arrangements[i].to_pages, &others[i]));
    sinks[i] = treadle_page_sink_make(others[i].to, page_bytes, &plan_base->arrangements[i]);
    if (i > 0) sinks[i - 1].also = &sinks[i];
  }
  if (tracks) memcpy(others[0].to, tracks->to, (size_t)plain->to_pages * sizeof *tracks->to);
  sinks[0].sink.cuts.all = plan_base->options.cuts_of_all;
  if (tracks && plan_base->count > 1) {
    treadle_track_target targets[TREADLE_ARRANGEMENTS];
    for (int32_t i = 1; i < plan_base->count; i++)
      targets[i - 1] = (treadle_track_target){others[i].to, &plan_base->arrangements[i]};
    TRY(treadle_tracks_play_to(tracks, plan_base->rank, plan_base->options.cuts_of_all, TREADLE_MAX_WAVES,
                               targets, plan_base->count - 1));
  } else if (!tracks) {
    TRY(treadle_direction_walk(lanes, plan_base->from, plan_base->to, plan_base->rank, &sinks[0].sink));
  }
  TRY(play_back(plan_base, lanes, &lives));
  for (int32_t i = 0; i < plan_base->count; i++) {
    treadle_window_lives_settle(&others[i]);
    treadle_window_lives both = lives;
    both.to = others[i].to;
    both.to_count = others[i].to_count;
    both.arrangement = &plan_base->arrangements[i];
    TRY(treadle_window_lives_share(&both, TREADLE_MAX_WAVES, NULL, NULL, NULL, NULL, &physical));
    plan_base->cap_min[i] = (physical - treadle_larger(plain->from_pages, plain->to_pages)) * page_bytes;
  }
out:
  treadle_window_lives_release(&lives);
  for (int32_t i = 0; i < plan_base->count; i++) treadle_window_lives_release(&others[i]);
  return status;
}

/* Lets go of arrangements that never are the best: another gains as much with as small a cap. The plain one stays. */
static void prune(treadle_plan_base *plan_base) {
  int32_t kept = 1;
  bool keeps[TREADLE_ARRANGEMENTS] = {true};
  for (int32_t i = 1; i < plan_base->count; i++) {
    bool best = gain_of(plan_base, i) > 0;
    for (int32_t k = 1; best && k < plan_base->count; k++) {
      bool as_good =
          gain_of(plan_base, k) >= gain_of(plan_base, i) && plan_base->cap_min[k] <= plan_base->cap_min[i];
      bool as_bad =
          gain_of(plan_base, k) == gain_of(plan_base, i) && plan_base->cap_min[k] == plan_base->cap_min[i];
      if (k != i && as_good && (!as_bad || k < i)) best = false;
    }
    keeps[i] = best;
  }
  for (int32_t i = 1; i < plan_base->count; i++) {
    if (!keeps[i]) {
      treadle_arrangement_release(&plan_base->arrangements[i]);
      continue;
    }
    if (kept != i) {
      plan_base->arrangements[kept] = plan_base->arrangements[i];
      plan_base->arrangements[i] = (treadle_arrangement){0};
      plan_base->cap_min[kept] = plan_base->cap_min[i];
    }
    kept++;
  }
  plan_base->count = kept;
}

treadle_status treadle_plan_base_plain(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                       const treadle_plan_base_options *options,
                                       treadle_plan_base *plan_base) {
  treadle_status status = TREADLE_OK;
  int64_t page_bytes = options->page_bytes;
  *plan_base = (treadle_plan_base){.from = from, .to = to, .rank = rank, .options = *options, .count = 1};
  bool small = options->small_pages && page_bytes >= SMALLEST_PAGE && page_bytes < 4096 &&
               (page_bytes & (page_bytes - 1)) == 0;
  TRY(treadle_plan_check(from, to, rank, small ? 4096 : page_bytes));
  if (options->nodes && options->nodes->count < 2) plan_base->options.nodes = NULL;
  assert(!options->nodes || options->nodes->ranks == from->ranks);
  TRY(treadle_arrangement_plain(from, to, rank, page_bytes, &plan_base->arrangements[0]));
out:
  return status;
}

treadle_status treadle_plan_base_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                        const treadle_plan_base_options *options,
                                        treadle_plan_base *plan_base) {
  treadle_status status = TREADLE_OK;
  treadle_lanes made = {0};
  treadle_resident_runs runs = {0};
  TRY(treadle_plan_base_plain(from, to, rank, options, plan_base));
  if (!options->tracks) TRY(treadle_lanes_create(from, to, options->page_bytes, &made));
  treadle_lanes lanes = options->tracks ? *options->tracks->lanes : made;
  if (options->alias) {
    TRY(treadle_resident_runs_find(&lanes, rank, options->page_bytes, &runs));
    for (int i = 0; i < THRIFTS; i++) {
      treadle_arrangement *a = &plan_base->arrangements[plan_base->count];
      TRY(treadle_arrangement_create(from, to, rank, options->page_bytes, &runs, thrifts[i], a));
      plan_base->count += a->pages > 0;
    }
  }
  /* With params kept no page is shared but for aliased ones, which are more than the padding: no cap is needed. */
  if (!options->keep_params) TRY(play(plan_base, &lanes));
  plan_base->cap_min_bytes = plan_base->cap_min[0];
  for (int32_t i = 1; i < plan_base->count; i++)
    if (plan_base->cap_min[i] < plan_base->cap_min_bytes) plan_base->cap_min_bytes = plan_base->cap_min[i];
  prune(plan_base);
out:
  treadle_lanes_release(&made);
  treadle_array_release(&runs);
  if (status != TREADLE_OK) treadle_plan_base_release(plan_base);
  return status;
}

void treadle_plan_base_release(treadle_plan_base *plan_base) {
  for (int32_t i = 0; i < plan_base->count; i++) treadle_arrangement_release(&plan_base->arrangements[i]);
  *plan_base = (treadle_plan_base){0};
}
