/* Accounting: how many pages each class (train, infer) holds, wave by wave.
 *
 * A page belongs to the class that wrote it last and is counted once. When a wave first writes a page of
 * the new window, that page is fresh (no window of the old mode lies on it) or taken from the old mode.
 * Which of them, and when, follows from the plan and is counted when the switch is made; a wave then costs
 * three sums. The highest sum is the peak; it never exceeds the pages of the pool. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "plan/pages.h"

#include <assert.h>
#include <limits.h>

/* Marks, of all physical pages, those a window lies on. */
static void mark_pages(const int32_t *pages, int64_t count, char *marks) {
  for (int64_t i = 0; i < count; i++) marks[pages[i]] = 1;
}

static treadle_status count_turns(treadle_switch *sw, treadle_mode to) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->plan;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  bool forward = to == TREADLE_INFER;
  const int32_t *pages = forward ? plan->to_page : plan->from_page;
  const int32_t *old_pages = forward ? plan->from_page : plan->to_page;
  int64_t count = forward ? plan->to_pages : plan->from_pages;
  int64_t old_count = forward ? plan->from_pages : plan->to_pages;
  treadle_page_life *lives = treadle_alloc_array((size_t)count + 1, sizeof *lives);
  char *old = treadle_alloc((size_t)plan->physical_pages + 1);
  treadle_turn *turns = treadle_alloc_array((size_t)plan->waves, sizeof *turns);
  sw->turns[to] = turns;
  if (!lives || !old || !turns) {
    status = treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
    goto out;
  }
  for (int64_t i = 0; i < count; i++) lives[i] = (treadle_page_life){.first = INT32_MAX, .last = -1};
  for (size_t i = 0; i < direction->ops.count; i++)
    treadle_pages_touch(lives, plan->page_bytes, &direction->ops.items[i]);
  for (size_t i = 0; i < direction->bands.count; i++) {
    const treadle_band *band = &direction->bands.items[i];
    treadle_pages_touch_band(lives, plan->page_bytes, band, &direction->band_parts.items[band->part_first]);
  }
  mark_pages(old_pages, old_count, old);
  for (int64_t i = 0; i < count; i++) {
    if (lives[i].first > lives[i].last) continue; /* no byte of it is used */
    if (old[pages[i]])
      turns[lives[i].first].taken++;
    else
      turns[lives[i].first].fresh++;
    /* The plan promises that nothing is reclaimed before first_reclaim; a failure's message relies on it.
     */
    assert(!old[pages[i]] || lives[i].first >= direction->first_reclaim);
  }
out:
  treadle_free(lives);
  treadle_free(old);
  return status;
}

static void note_peak(treadle_switch *sw) {
  size_t bytes = (size_t)((sw->held[TREADLE_TRAIN] + sw->held[TREADLE_INFER]) * sw->plan->page_bytes);
  if (bytes > sw->stats.peak_bytes) sw->stats.peak_bytes = bytes;
}

treadle_status treadle_account_create(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(count_turns(sw, TREADLE_INFER));
  TRY(count_turns(sw, TREADLE_TRAIN));
  treadle_account_settle(sw, TREADLE_TRAIN);
out:
  return status;
}

treadle_status treadle_account_wave(treadle_switch *sw, treadle_mode to, int32_t wave) {
  treadle_mode old = to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  treadle_turn turn = sw->turns[to][wave];
  sw->held[to] += turn.fresh + turn.taken;
  sw->held[old] -= turn.taken;
  note_peak(sw);
  int64_t held = sw->held[TREADLE_TRAIN] + sw->held[TREADLE_INFER];
  if (held <= sw->plan->physical_pages) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "rank %d: wave %d holds %lld pages, the pool has %lld",
                      sw->group->rank, wave, (long long)held, (long long)sw->plan->physical_pages);
}

void treadle_account_settle(treadle_switch *sw, treadle_mode mode) {
  sw->held[TREADLE_TRAIN] = mode == TREADLE_TRAIN ? sw->plan->from_pages : 0;
  sw->held[TREADLE_INFER] = mode == TREADLE_INFER ? sw->plan->to_pages : 0;
  note_peak(sw);
}
