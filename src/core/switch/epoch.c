/* How the ranks enter, commit and fail together.
 *
 * An epoch is one attempt at something that either all ranks do or none: the waves of a switch, or the binding of
 * their engines after it. Its outcome is one shared variable of all ranks, decided once, by one compare-and-swap:
 *
 *      an older one --treadle_outcome_open--> open --treadle_epoch_commit--> committed
 *           |                                  |
 *           +------- treadle_epoch_fail -------+--treadle_epoch_fail--> failed
 *
 * What a rank publishes on its way, after each call:
 *
 *      treadle_epoch_enter: way, entered; treadle_group_meet; (the waves: done of each, `reclaimed` before the first
 *             that needs it); treadle_epoch_commit: verified, all verified, committed
 *      treadle_epoch_fail, from anywhere: failed; stopped; all have stopped. */
#include "switch/switch.h"

#include "base/clock.h"

#include <stdio.h>

/* ---- Entering ---- */

enum {
  WAY_HANDLES = 1 << 8,
  WAY_REFUSES = 1 << 9,
  WAY_FLAGS = WAY_HANDLES | WAY_REFUSES,
  WAY_VERSION = 10 /* shift */
};

/* Mode, aim and version as one word: what must be the same on all ranks. And whether this one has given out handles, and whether it
 * refuses to go that way. */
static uint64_t way_of(const treadle_switch *sw, int aim) {
  return sw->version << WAY_VERSION | (sw->outlet ? WAY_HANDLES : 0) | (uint64_t)sw->mode << 4 |
         (uint64_t)aim;
}

bool treadle_epoch_has_handles(const treadle_group *group) {
  for (int rank = 0; rank < group->size; rank++)
    if (treadle_word_of(group, rank, TREADLE_WORD_WAY) & WAY_HANDLES) return true;
  return false;
}

static treadle_status check_ways(const treadle_group *group, uint64_t mine) {
  for (int rank = 0; rank < group->size; rank++) {
    uint64_t way = treadle_word_of(group, rank, TREADLE_WORD_WAY);
    if ((way | WAY_FLAGS) == (mine | WAY_FLAGS)) continue;
    return treadle_fail(
        TREADLE_STATE,
        "switch: rank %d is in mode %s, version %llu, on its way to %s; rank %d is in mode %s, version "
        "%llu, on its way to %s: all ranks must take the same arrows",
        treadle_group_called(group, rank), treadle_mode_text((treadle_mode)(way >> 4 & 15)),
        (unsigned long long)(way >> WAY_VERSION), treadle_aim_text((int)(way & 15)),
        treadle_group_called(group, group->rank), treadle_mode_text((treadle_mode)(mine >> 4 & 15)),
        (unsigned long long)(mine >> WAY_VERSION), treadle_aim_text((int)(mine & 15)));
  }
  return TREADLE_OK;
}

/* Nobody writes before all have said whether they refuse: so nothing has changed then. */
static treadle_status hear_refusals(treadle_carry *c, uint64_t epoch, treadle_status own,
                                    const char *message) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = c->group;
  if (own != TREADLE_OK) return treadle_fail(own, "%s", message);
  for (int rank = 0; rank < group->size; rank++)
    if (treadle_word_of(group, rank, TREADLE_WORD_WAY) & WAY_REFUSES) /* it fails the epoch, and says why */
      TRY(treadle_word_wait(c, rank, TREADLE_WORD_PROVED, epoch, epoch, treadle_group_deadline(group),
                            "why it refuses the switch"));
out:
  return status;
}

treadle_status treadle_epoch_enter(treadle_switch *sw, int aim, treadle_status ready) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  uint64_t epoch = treadle_epoch_now(group) + 1, way = way_of(sw, aim);
  char what[40], message[TREADLE_GROUP_MESSAGE];
  /* What the caller's stream still writes, others would read. */
  if (ready == TREADLE_OK) ready = sw->device.ops->renew(&sw->device);
  if (ready == TREADLE_OK) ready = sw->device.ops->fence(&sw->device);
  snprintf(message, sizeof message, "%s", ready == TREADLE_OK ? "" : treadle_error_message());
  if (ready != TREADLE_OK) way |= WAY_REFUSES;
  snprintf(what, sizeof what, "the switch to %s", treadle_aim_text(aim));
  treadle_word_say(group, TREADLE_WORD_WAY, way);
  treadle_word_say(group, TREADLE_WORD_ENTERED, epoch);
  double begin = treadle_clock_seconds();
  treadle_net_say(&sw->carry, treadle_group_words(group));
  TRY(treadle_carry_meet(&sw->carry, epoch, what));
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  treadle_outcome_open(group, epoch);
  TRY(treadle_outcome_check(group, epoch));
  TRY(treadle_switch_point(sw, TREADLE_AT_ENTRY, -1));
  TRY(check_ways(group, way));
  TRY(treadle_net_hear(&sw->carry));
  TRY(hear_refusals(&sw->carry, epoch, ready, message));
out:
  return status;
}

treadle_status treadle_epoch_next(treadle_carry *c) {
  treadle_group *group = c->group;
  uint64_t epoch = treadle_epoch_now(group) + 1;
  treadle_word_say(group, TREADLE_WORD_ENTERED, epoch);
  treadle_outcome_open(group, epoch);
  return treadle_carry_check(c, epoch);
}

/* Whoever sees the flag after the outcome says failed must count what lies there as lost, so a rank that does not go on takes it
 * back. */
treadle_status treadle_epoch_reclaim(const treadle_carry *c, uint64_t epoch) {
  _Atomic uint64_t *reclaimed = &treadle_group_line(c->group)->words[TREADLE_WORD_RECLAIMED];
  atomic_store(reclaimed, epoch); /* nobody waits for it */
  treadle_status status = treadle_carry_check(c, epoch);
  if (status != TREADLE_OK) atomic_store(reclaimed, 0);
  return status;
}

/* ---- Committing ---- */

/* The wait for one rank to have said `which`. When it fails, how far that rank came. */
static treadle_status wait_for_proof(treadle_carry *c, int rank, treadle_setting which, double deadline,
                                     const char *what) {
  treadle_group *group = c->group;
  const uint64_t epoch = treadle_epoch_now(group);
  const bool waves = c->epoch == epoch; /* of this epoch were run, so here as there */
  char message[TREADLE_GROUP_MESSAGE], words[360];
  treadle_status status = treadle_word_wait(c, rank, which, epoch, epoch, deadline, what);
  if (status == TREADLE_OK || status == TREADLE_CANCELLED || !waves ||
      treadle_word_of(group, rank, TREADLE_WORD_ENTERED) < epoch)
    return status;
  uint64_t done = treadle_word_of(group, rank, TREADLE_WORD_DONE);
  int32_t wave = done / TREADLE_DONE_STEP == epoch ? (int32_t)(done % TREADLE_DONE_STEP) : 0;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (treadle_outcome_check(group, epoch) != TREADLE_OK) return status; /* another rank has said more */
  return treadle_fail(status, "%s; rank %d was in %s", message, treadle_group_called(group, rank),
                      treadle_carry_words(c, c->to, wave, words, sizeof words));
}

treadle_status treadle_epoch_prove(treadle_carry *c, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = c->group;
  double begin = treadle_clock_seconds(), deadline = begin + group->timeout_seconds;
  TRY(treadle_carry_look(c));
  treadle_word_say(group, TREADLE_WORD_PROVED, treadle_epoch_now(group));
  for (int rank = 0; rank < group->size; rank++)
    TRY(wait_for_proof(c, rank, TREADLE_WORD_PROVED, deadline, what));
out:
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_epoch_commit(treadle_carry *c, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = c->group;
  uint64_t epoch = treadle_epoch_now(group);
  double begin = treadle_clock_seconds(), deadline = begin + group->timeout_seconds;
  TRY(treadle_carry_look(c)); /* from the next word on this rank alone cannot take it back */
  treadle_word_say(group, TREADLE_WORD_VERIFIED, epoch);
  if (c->faults.planted == TREADLE_FAULT_SKIP_COMMIT) return TREADLE_OK;
  for (int rank = 0; rank < group->size; rank++)
    TRY(wait_for_proof(c, rank, TREADLE_WORD_VERIFIED, deadline, what));
  (void)treadle_outcome_settle(group, epoch, TREADLE_COMMITTED); /* else another outcome stands */
  treadle_outcome_await(group, epoch);
  TRY(treadle_outcome_check(group, epoch));
out:
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* ---- Failing ---- */

static const double HEARSAY = 0.2; /* seconds */

/* Waits until all living ranks that are in the epoch have stopped. False when one has died or does not
 * answer: then this group cannot go on. One may have waited for it in vain already, so this is a part of the limit. */
static bool wait_until_stopped(treadle_carry *c, uint64_t epoch) {
  bool all = true;
  treadle_group *group = c->group;
  double limit = group->timeout_seconds, part = limit / 10 > 1 ? limit / 10 : 1;
  group->timeout_seconds = part < limit ? part : limit;
  double deadline = treadle_group_deadline(group); /* of the wait for all of them */
  double heard = treadle_clock_seconds() + (limit / 10 < HEARSAY ? limit / 10 : HEARSAY);
  for (int rank = 0; rank < group->size; rank++) {
    /* What a rank of another node has said is heard a moment later. */
    if (!treadle_group_is_near(group, rank))
      (void)treadle_word_wait(c, rank, TREADLE_WORD_ENTERED, epoch, 0, heard, "the end of a failed switch");
    if (treadle_word_of(group, rank, TREADLE_WORD_ENTERED) < epoch)
      continue; /* comes late, and will find the outcome */
    if (treadle_word_wait(c, rank, TREADLE_WORD_STOPPED, epoch, 0, deadline,
                          "the end of a failed switch") != TREADLE_OK)
      all = false;
  }
  group->timeout_seconds = limit;
  return all;
}

static bool anyone_reclaimed(treadle_group *group, uint64_t epoch) {
  for (int rank = 0; rank < group->size; rank++)
    if (treadle_word_of(group, rank, TREADLE_WORD_RECLAIMED) == epoch) return true;
  return false;
}

/* What the others may have, that this node has not. */
static void say_adrift(const treadle_group *group, treadle_status status, const char *message) {
  uint64_t way = treadle_word_of(group, group->rank, TREADLE_WORD_WAY);
  int aim = (int)(way & 15);
  char others[40];
  if (aim == TREADLE_TRAIN || aim == TREADLE_FORWARD)
    snprintf(others, sizeof others, "be in mode %s", treadle_aim_text(aim));
  else /* with mode INFER, an arrow to it only binds */
    snprintf(others, sizeof others, "have version %llu",
             (unsigned long long)(way >> WAY_VERSION) + (aim != (int)(way >> 4 & 15)));
  treadle_fail(status, "%s; node %d has voted to commit and knows of no outcome: other nodes may %s",
               message, (int)group->nodes->of[group->rank], others);
}

treadle_status treadle_epoch_fail(treadle_carry *c, treadle_status status, bool *reclaimed_p) {
  treadle_group *group = c->group;
  uint64_t epoch = treadle_epoch_now(group);
  char message[TREADLE_GROUP_MESSAGE];
  *reclaimed_p = false;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (!treadle_outcome_settle(group, epoch, TREADLE_FAILED)) treadle_outcome_await(group, epoch);
  if (treadle_outcome_check(group, epoch) == TREADLE_OK)
    return TREADLE_OK; /* all had verified before this rank gave up waiting */
  bool adrift = treadle_outcome_is_adrift(group, epoch);
  treadle_net_stop(c);
  /* What was asked of the device still reads windows of others. One that still works can bring things back; one that is lost reads nothing, and
   * says so again to whoever asks next. */
  treadle_status over = c->device->ops->fence(c->device);
  over = c->device->ops->renew(c->device);
  (void)over;
  treadle_word_say(group, TREADLE_WORD_STOPPED, epoch);
  bool together = wait_until_stopped(c, epoch);
  *reclaimed_p = anyone_reclaimed(group, epoch);
  if (adrift)
    say_adrift(group, status, message);
  else
    treadle_fail(status, "%s", message);
  if (!together || adrift) treadle_group_fail(group);
  return status;
}
