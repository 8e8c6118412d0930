/* The shared words (64-bit variables) of a switch. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>

/* ---- Words ---- */

void treadle_word_say(treadle_group *group, treadle_setting which, uint64_t value) {
  treadle_group_publish(group, &treadle_group_line(group)->words[which], value);
}

typedef struct in_epoch {
  const treadle_carry *c;
  uint64_t epoch;
} in_epoch;

static treadle_status look(void *context) {
  const in_epoch *in = context;
  return treadle_carry_check(in->c, in->epoch);
}

/* As treadle_group_wait, without sleeping for long: messages come and go meanwhile. */
static treadle_status wait_and_move(treadle_carry *c, int rank, const _Atomic uint64_t *word,
                                    uint64_t value, const treadle_watch *watch, double deadline,
                                    const char *what) {
  treadle_status status = TREADLE_OK;
  double now = treadle_clock_seconds();
  while (atomic_load(word) < value && now < deadline) {
    TRY(watch ? watch->look(watch->context) : TREADLE_OK);
    TRY(treadle_net_move(c));
    treadle_net_pause(c);
    TRY(atomic_load(word) < value ? treadle_group_look(c->group, rank, what) : TREADLE_OK);
    now = treadle_clock_seconds();
  }
  status = treadle_group_wait(c->group, rank, word, value, watch, deadline, what);
out:
  return status;
}

/* As long as waves of this rank are under way: the other one may be waiting for these. */
static treadle_status land_meanwhile(treadle_carry *c, int rank, const _Atomic uint64_t *word,
                                     uint64_t value, const treadle_watch *watch, double deadline,
                                     const char *what) {
  treadle_status status = TREADLE_OK;
  while (treadle_flight_is_on(c) && atomic_load(word) < value && treadle_clock_seconds() < deadline) {
    TRY(treadle_flight_look(c));
    TRY(watch->look(watch->context));
    TRY(treadle_net_move(c));
    TRY(treadle_group_look(c->group, rank, what));
    sched_yield();
  }
out:
  return status;
}

treadle_status treadle_word_wait(treadle_carry *c, int rank, treadle_setting which, uint64_t value,
                                 uint64_t epoch, double deadline, const char *what) {
  treadle_status status = TREADLE_OK;
  in_epoch in = {c, epoch};
  const treadle_watch watch = {look, &in};
  const _Atomic uint64_t *word = &c->group->control->lines[rank].words[which];
  TRY(land_meanwhile(c, rank, word, value, &watch, deadline, what));
  if (treadle_net_is_busy(c) && epoch) return wait_and_move(c, rank, word, value, &watch, deadline, what);
  status = treadle_group_wait(c->group, rank, word, value, epoch ? &watch : NULL, deadline, what);
out:
  return status;
}

treadle_status treadle_carry_meet(const treadle_carry *c, uint64_t epoch, const char *what) {
  in_epoch in = {c, epoch};
  const treadle_watch watch = {look, &in};
  return treadle_group_meet(c->group, &watch, what);
}

/* ---- The outcome ---- */

treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch) {
  const treadle_outcome there = treadle_outcome_now(group->control);
  const treadle_rank_line *line = treadle_group_line(group);
  if (there.epoch > epoch && !treadle_outcome_committed(group, epoch))
    return treadle_fail(TREADLE_PEER, "the other ranks have given up waiting for rank %d and tried again",
                        treadle_group_called(group, group->rank));
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT)
    return treadle_fail(TREADLE_PEER, "rank %d has left the group: %s",
                        treadle_group_called(group, group->rank), line->left_message);
  if (there.epoch != epoch || there.state != TREADLE_FAILED) return TREADLE_OK;
  if (treadle_outcome_is_adrift(group, epoch))
    return treadle_fail(TREADLE_PEER,
                        "node %d has voted to commit, and hears of no outcome from the other nodes",
                        (int)group->nodes->of[group->rank]);
  if (there.rank == group->rank) return treadle_fail(TREADLE_PEER, "%s", line->text);
  return treadle_fail(TREADLE_PEER, "rank %d failed: %s", treadle_group_called(group, there.rank),
                      group->control->lines[there.rank].text);
}

treadle_status treadle_carry_check(const treadle_carry *c, uint64_t epoch) {
  treadle_status status = treadle_carry_look(c);
  return status == TREADLE_OK ? treadle_outcome_check(c->group, epoch) : status;
}
