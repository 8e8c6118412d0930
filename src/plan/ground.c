/* What the plans of one rank have in common: how its to-window may be arranged, and the smallest cap.
 *
 * Aliased pages are in use all the time, and so leave fewer to share, while padding makes more of them. So
 * several arrangements are played beside the plain one, from much padding to none, with 4096 waves, where cap_min is
 * found: each has a cap_min of its own. A plan takes the one that gains most of those that its cap allows. The plain one
 * is among them: cap_min never grows, and the bound, in which padding does not count, holds as it does without
 * alias. */
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

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* What an arrangement gains: the bytes that need no copy, less those that hold nothing. */
static int64_t gain_of(const treadle_ground *ground, int32_t i) {
  const treadle_arrangement *a = &ground->arrangements[i];
  return a->pages * ground->options.page_bytes - a->padding_bytes;
}

const treadle_arrangement *treadle_ground_choose(const treadle_ground *ground, int64_t cap_bytes) {
  int32_t best = 0;
  for (int32_t i = 1; i < ground->count; i++)
    if (ground->cap_min[i] <= cap_bytes && gain_of(ground, i) > gain_of(ground, best)) best = i;
  return &ground->arrangements[best];
}

/* When each page of the from-window is touched, whatever the arrangement of the other one. */
static treadle_status play_back(treadle_ground *ground, const treadle_classes *classes,
                                treadle_lives *lives) {
  treadle_status status = TREADLE_OK;
  const treadle_page_life *known = ground->options.films ? ground->options.films->from : NULL;
  TRY(treadle_lives_create(ground->arrangements[0].from_pages, 0, lives));
  if (known) {
    memcpy(lives->from, known, (size_t)lives->from_count * sizeof *known);
    goto out;
  }
  treadle_page_sink back = treadle_page_sink_make(lives->from, ground->options.page_bytes, NULL);
  back.sink.cuts.all = ground->options.cuts_of_all;
  TRY(treadle_direction_walk(classes, ground->to, ground->from, ground->rank, &back.sink));
  treadle_lives_settle(lives);
out:
  return status;
}

/* Plays the pages of all arrangements in one walk, and notes the smallest cap of each. */
static treadle_status play(treadle_ground *ground, treadle_classes *classes) {
  treadle_status status = TREADLE_OK;
  int64_t page_bytes = ground->options.page_bytes, physical;
  const treadle_arrangement *plain = &ground->arrangements[0];
  treadle_lives lives = {0}, others[TREADLE_ARRANGEMENTS] = {0};
  treadle_page_sink sinks[TREADLE_ARRANGEMENTS];
  const treadle_films *films = ground->options.films;
  classes->waves = TREADLE_MAX_WAVES;
  for (int32_t i = 0; i < ground->count; i++) {
    TRY(treadle_lives_create(0, ground->arrangements[i].to_pages, &others[i]));
    sinks[i] = treadle_page_sink_make(others[i].to, page_bytes, &ground->arrangements[i]);
    if (i > 0) sinks[i - 1].also = &sinks[i];
  }
  if (films) memcpy(others[0].to, films->to, (size_t)plain->to_pages * sizeof *films->to);
  sinks[0].sink.cuts.all = ground->options.cuts_of_all;
  if (films && ground->count > 1) {
    treadle_track_target targets[TREADLE_ARRANGEMENTS];
    for (int32_t i = 1; i < ground->count; i++)
      targets[i - 1] = (treadle_track_target){others[i].to, &ground->arrangements[i]};
    TRY(treadle_tracks_play(classes, films->kin, TREADLE_TO, ground->rank, ground->options.cuts_of_all,
                            targets, ground->count - 1));
  } else if (!films) {
    TRY(treadle_direction_walk(classes, ground->from, ground->to, ground->rank, &sinks[0].sink));
  }
  TRY(play_back(ground, classes, &lives));
  for (int32_t i = 0; i < ground->count; i++) {
    treadle_lives_settle(&others[i]);
    treadle_lives both = lives;
    both.to = others[i].to;
    both.to_count = others[i].to_count;
    both.arrangement = &ground->arrangements[i];
    TRY(treadle_lives_share(&both, TREADLE_MAX_WAVES, NULL, NULL, NULL, NULL, &physical));
    ground->cap_min[i] = (physical - largest(plain->from_pages, plain->to_pages)) * page_bytes;
  }
out:
  treadle_lives_release(&lives);
  for (int32_t i = 0; i < ground->count; i++) treadle_lives_release(&others[i]);
  return status;
}

/* Lets go of arrangements that never are the best: another gains as much with as small a cap. The plain one stays. */
static void prune(treadle_ground *ground) {
  int32_t kept = 1;
  bool keeps[TREADLE_ARRANGEMENTS] = {true};
  for (int32_t i = 1; i < ground->count; i++) {
    bool best = gain_of(ground, i) > 0;
    for (int32_t k = 1; best && k < ground->count; k++) {
      bool as_good = gain_of(ground, k) >= gain_of(ground, i) && ground->cap_min[k] <= ground->cap_min[i];
      bool as_bad = gain_of(ground, k) == gain_of(ground, i) && ground->cap_min[k] == ground->cap_min[i];
      if (k != i && as_good && (!as_bad || k < i)) best = false;
    }
    keeps[i] = best;
  }
  for (int32_t i = 1; i < ground->count; i++) {
    if (!keeps[i]) {
      treadle_arrangement_release(&ground->arrangements[i]);
      continue;
    }
    if (kept != i) {
      ground->arrangements[kept] = ground->arrangements[i];
      ground->arrangements[i] = (treadle_arrangement){0};
      ground->cap_min[kept] = ground->cap_min[i];
    }
    kept++;
  }
  ground->count = kept;
}

treadle_status treadle_ground_plain(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    const treadle_ground_options *options, treadle_ground *ground) {
  treadle_status status = TREADLE_OK;
  int64_t page_bytes = options->page_bytes;
  *ground = (treadle_ground){.from = from, .to = to, .rank = rank, .options = *options, .count = 1};
  bool small = options->small_pages && page_bytes >= SMALLEST_PAGE && page_bytes < 4096 &&
               (page_bytes & (page_bytes - 1)) == 0;
  TRY(treadle_plan_check(from, to, rank, small ? 4096 : page_bytes));
  TRY(treadle_arrangement_plain(from, to, rank, page_bytes, &ground->arrangements[0]));
out:
  return status;
}

treadle_status treadle_ground_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                     const treadle_ground_options *options, treadle_ground *ground) {
  treadle_status status = TREADLE_OK;
  treadle_classes classes = {0};
  treadle_own_runs runs = {0};
  TRY(treadle_ground_plain(from, to, rank, options, ground));
  TRY(treadle_classes_create(from, to, options->page_bytes, &classes));
  if (options->alias) {
    TRY(treadle_own_runs_find(&classes, rank, options->page_bytes, &runs));
    for (int i = 0; i < THRIFTS; i++) {
      treadle_arrangement *a = &ground->arrangements[ground->count];
      TRY(treadle_arrangement_create(from, to, rank, options->page_bytes, &runs, thrifts[i], a));
      ground->count += a->pages > 0;
    }
  }
  /* With params kept no page is shared but for aliased ones, which are more than the padding: no cap is needed. */
  if (!options->keep_params) TRY(play(ground, &classes));
  ground->cap_min_bytes = ground->cap_min[0];
  for (int32_t i = 1; i < ground->count; i++)
    if (ground->cap_min[i] < ground->cap_min_bytes) ground->cap_min_bytes = ground->cap_min[i];
  prune(ground);
out:
  treadle_classes_release(&classes);
  treadle_array_release(&runs);
  if (status != TREADLE_OK) treadle_ground_release(ground);
  return status;
}

void treadle_ground_release(treadle_ground *ground) {
  for (int32_t i = 0; i < ground->count; i++) treadle_arrangement_release(&ground->arrangements[i]);
  *ground = (treadle_ground){0};
}
