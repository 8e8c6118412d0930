/* The switch: the state machine that turns train mode to infer mode and back.
 *
 *   1. One mode holds the weights. Its window may be read; the other's bytes mean nothing.
 *   2. During a switch (an epoch) the old mode's bytes do not change until their page is reclaimed, and a page
 *      is reclaimed by its owner only, after every rank has finished the last wave that reads it (plan: need).
 *   3. A rank says `reclaimed` before it writes the first such page, and looks at the outcome in between. So
 *      once the outcome says failed, whoever has not said `reclaimed` never writes one in that epoch.
 *   4. A rank says `verified` after its coverage was proved; the outcome becomes committed only when all have.
 *   5. Mode and version change after the outcome says committed, and by nothing else.
 *   6. The outcome of an epoch is decided once, by one compare-and-swap, for everybody.
 *   7. A rank leaves a failed epoch after all living ranks that entered it have stopped; what it then finds (did
 *      anybody reclaim?) is what all find.
 *   8. A switch allocates nothing, maps nothing and makes no call that another rank could hang.
 *
 * Modes:
 *
 *      treadle_switch_create
 *              |
 *              v         enter, finish          enter, finish
 *           [TRAIN] ----------------> [INFER] ----------------> [TRAIN] ...
 *              |                         |
 *              +----------+--------------+
 *                         | enter, settle: pages were reclaimed before the epoch failed
 *                         v
 *                      [LOST]
 *
 * The outcome of an epoch, one word for all ranks:
 *
 *      an older one --treadle_outcome_open--> open --commit--> committed
 *           |                                  |
 *           +-------------- settle ------------+--settle--> failed
 *
 * What a rank says on its way, each after the call in front of it:
 *
 *      enter: entered; treadle_group_meet; treadle_switch_run: (done of each wave, `reclaimed` before the first
 *             that needs it), coverage; commit: verified, all verified, committed; finish
 *      settle, from anywhere: failed; stopped; all have stopped. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdio.h>

static const char *mode_name(treadle_mode mode) {
  static const char *const names[] = {"train", "infer", "lost"};
  return names[mode];
}

/* ---- One epoch ---- */

/* Every rank has verified: the word becomes committed, by whoever comes first. */
static treadle_status commit(treadle_switch *sw, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  treadle_group_publish(group, &treadle_group_line(group)->verified, epoch);
  double begin = treadle_clock_seconds();
  for (int rank = 0; rank < group->size; rank++)
    TRY(treadle_group_wait(group, rank, &group->control->lines[rank].verified, epoch, epoch,
                           "the proof that all bytes were written"));
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  if (!treadle_outcome_settle(group, epoch, TREADLE_COMMITTED)) TRY(treadle_outcome_check(group, epoch));
out:
  return status;
}

/* Waits until all living ranks that are in the epoch have stopped. False when one has died or does not
 * answer: then this group cannot go on. */
static bool wait_until_stopped(treadle_group *group, uint64_t epoch) {
  bool all = true;
  for (int rank = 0; rank < group->size; rank++) {
    const treadle_line *line = &group->control->lines[rank];
    if (atomic_load(&line->entered) < epoch) continue; /* comes late, and will find the outcome */
    if (treadle_group_wait(group, rank, &line->stopped, epoch, 0, "the end of a failed switch") !=
        TREADLE_OK)
      all = false;
  }
  return all;
}

static bool anyone_reclaimed(treadle_group *group, uint64_t epoch) {
  for (int rank = 0; rank < group->size; rank++)
    if (atomic_load(&group->control->lines[rank].reclaimed) == epoch) return true;
  return false;
}

/* This rank failed, or heard that another did. Returns TREADLE_OK when the outcome is committed all the
 * same. */
static treadle_status settle(treadle_switch *sw, treadle_status status, uint64_t epoch) {
  treadle_group *group = sw->group;
  char message[TREADLE_GROUP_MESSAGE];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (!treadle_outcome_settle(group, epoch, TREADLE_FAILED) &&
      treadle_outcome_check(group, epoch) == TREADLE_OK)
    return TREADLE_OK; /* all had verified before this rank gave up waiting */
  treadle_group_publish(group, &treadle_group_line(group)->stopped, epoch);
  bool together = wait_until_stopped(group, epoch);
  treadle_mode old = sw->mode;
  if (anyone_reclaimed(group, epoch)) {
    sw->mode = TREADLE_LOST;
    treadle_fail(status, "%s; memory of the %s weights was already used again: the weights are lost",
                 message, mode_name(old));
  } else {
    treadle_account_settle(sw, old);
    treadle_fail(status, "%s; the %s weights stand as they were", message, mode_name(old));
  }
  if (!together) treadle_group_fail(group);
  return status;
}

static void finish(treadle_switch *sw, treadle_mode mode) {
  sw->mode = mode;
  if (mode == TREADLE_INFER) sw->version++;
  treadle_account_settle(sw, mode);
}

static treadle_status enter(treadle_switch *sw, treadle_mode mode) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  double begin = treadle_clock_seconds(), group_timeout = group->timeout_seconds;
  uint64_t epoch = ++group->epochs;
  group->timeout_seconds = sw->timeout_seconds;
  sw->stats.wait_seconds = 0;
  treadle_group_publish(group, &treadle_group_line(group)->entered, epoch);
  TRY(treadle_group_meet(group, epoch,
                         mode == TREADLE_INFER ? "the switch to infer" : "the switch to train"));
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  treadle_outcome_open(group, epoch);
  TRY(treadle_outcome_check(group, epoch));
  TRY(treadle_switch_run(sw, mode, epoch));
  TRY(commit(sw, epoch));
out:
  sw->fault = TREADLE_FAULT_NONE;
  if (status != TREADLE_OK) status = settle(sw, status, epoch);
  if (status == TREADLE_OK) finish(sw, mode);
  group->timeout_seconds = group_timeout;
  sw->stats.seconds = treadle_clock_seconds() - begin;
  return status;
}

/* ---- What a user calls ---- */

treadle_status treadle_switch_to_infer(treadle_switch *sw) {
  if (sw->mode == TREADLE_INFER) return TREADLE_OK;
  if (sw->mode == TREADLE_LOST) return treadle_fail(TREADLE_STATE, "switch to infer: the weights are lost");
  return enter(sw, TREADLE_INFER);
}

treadle_status treadle_switch_to_train(treadle_switch *sw) {
  if (sw->mode == TREADLE_TRAIN) return TREADLE_OK;
  if (sw->mode == TREADLE_LOST) return treadle_fail(TREADLE_STATE, "switch to train: the weights are lost");
  if (sw->one_way)
    return treadle_fail(TREADLE_STATE, "switch to train: this switch was made one-way (one_way)");
  return enter(sw, TREADLE_TRAIN);
}

void *treadle_switch_train_window(const treadle_switch *sw) { return sw->windows[TREADLE_TRAIN]; }
void *treadle_switch_infer_window(const treadle_switch *sw) { return sw->windows[TREADLE_INFER]; }
treadle_mode treadle_switch_mode(const treadle_switch *sw) { return sw->mode; }
uint64_t treadle_switch_version(const treadle_switch *sw) { return sw->version; }
const treadle_plan *treadle_switch_plan(const treadle_switch *sw) { return sw->plan; }

void treadle_switch_get_stats(const treadle_switch *sw, treadle_switch_stats *stats_p) {
  *stats_p = sw->stats;
  stats_p->pool_bytes = treadle_pool_held_bytes(sw->pool);
}

void treadle_switch_destroy(treadle_switch *sw) {
  if (!sw) return;
  if (sw->pools) sw->group->ops->unshare(sw->group, sw->pools);
  if (sw->tables) sw->group->ops->unshare(sw->group, sw->tables);
  treadle_pool_destroy(sw->pool);
  treadle_pool_destroy(sw->table_pool);
  treadle_plan_destroy(sw->plan);
  treadle_free(sw->pools);
  treadle_free(sw->tables);
  for (int mode = 0; mode < 2; mode++) {
    treadle_free(sw->views[mode]);
    treadle_free(sw->turns[mode]);
  }
  treadle_free(sw->written);
  treadle_switch_bands_release(sw);
  treadle_free(sw);
}
