/* The shared words (64-bit variables) of a switch. */
#include "switch/switch.h"

#include <stdio.h>

/* ---- Words ---- */

void treadle_word_say(treadle_group *group, treadle_setting which, uint64_t value) {
  treadle_group_publish(group, &treadle_group_line(group)->words[which], value);
}

typedef struct in_epoch {
  const treadle_switch *sw;
  uint64_t epoch;
} in_epoch;

static treadle_status look(void *context) {
  const in_epoch *in = context;
  return treadle_epoch_check(in->sw, in->epoch);
}

treadle_status treadle_word_wait(const treadle_switch *sw, int rank, treadle_setting which, uint64_t value,
                                 uint64_t epoch, double deadline, const char *what) {
  in_epoch in = {sw, epoch};
  const treadle_watch watch = {look, &in};
  return treadle_group_wait(sw->group, rank, &sw->group->control->lines[rank].words[which], value,
                            epoch ? &watch : NULL, deadline, what);
}

treadle_status treadle_epoch_meet(const treadle_switch *sw, uint64_t epoch, const char *what) {
  in_epoch in = {sw, epoch};
  const treadle_watch watch = {look, &in};
  return treadle_group_meet(sw->group, &watch, what);
}

treadle_status treadle_epoch_fetch(const treadle_switch *sw, treadle_fetch *fetch, uint64_t epoch,
                                   const char *what) {
  in_epoch in = {sw, epoch};
  const treadle_watch watch = {look, &in};
  return treadle_link_fetch(sw->group, fetch, &watch, treadle_group_deadline(sw->group), what);
}

/* ---- The outcome ---- */

treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch) {
  const treadle_outcome there = treadle_outcome_now(group->control);
  const treadle_rank_line *line = treadle_group_line(group);
  if (there.epoch > epoch && treadle_word_of(group, group->rank, TREADLE_WORD_VERIFIED) < epoch)
    return treadle_fail(TREADLE_PEER, "the other ranks have given up waiting for rank %d and tried again",
                        group->rank);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT)
    return treadle_fail(TREADLE_PEER, "rank %d has left the group: %s", group->rank, line->left_message);
  if (there.epoch != epoch || there.state != TREADLE_FAILED) return TREADLE_OK;
  if (treadle_outcome_is_adrift(group, epoch))
    return treadle_fail(TREADLE_PEER,
                        "node %d has voted to commit, and hears of no outcome from the other nodes",
                        (int)group->nodes->of[group->rank]);
  if (there.rank == group->rank) return treadle_fail(TREADLE_PEER, "%s", line->text);
  return treadle_fail(TREADLE_PEER, "rank %d failed: %s", there.rank,
                      group->control->lines[there.rank].text);
}

treadle_status treadle_epoch_check(const treadle_switch *sw, uint64_t epoch) {
  treadle_status status = treadle_helm_check(sw);
  return status == TREADLE_OK ? treadle_outcome_check(sw->group, epoch) : status;
}
