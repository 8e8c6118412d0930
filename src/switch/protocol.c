/* The shared words (64-bit variables) of a switch, and its outcome: one word for all ranks, decided by compare-and-swap. */
#include "switch/switch.h"

#include <assert.h>
#include <stdio.h>

enum { OUTCOME_EPOCH = 12, OUTCOME_RANK = 2 }; /* shifts */
_Static_assert(TREADLE_GROUP_MAX <= 1 << (OUTCOME_EPOCH - OUTCOME_RANK), "a rank fits");

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

static uint64_t outcome_of(uint64_t epoch, int rank, int state) {
  return epoch << OUTCOME_EPOCH | (uint64_t)rank << OUTCOME_RANK | (uint64_t)state;
}

void treadle_outcome_open(treadle_group *group, uint64_t epoch) {
  uint64_t open = outcome_of(epoch, 0, TREADLE_OPEN), word = atomic_load(&group->control->word);
  while (word < open && !atomic_compare_exchange_weak(&group->control->word, &word, open)) {
  }
}

bool treadle_outcome_settle(treadle_group *group, uint64_t epoch, int state) {
  uint64_t wanted = outcome_of(epoch, group->rank, state), word = atomic_load(&group->control->word);
  treadle_rank_line *line = treadle_group_line(group);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT) return false; /* who left decides nothing */
  assert(state == TREADLE_FAILED || word >= outcome_of(epoch, 0, TREADLE_OPEN));
  if (state == TREADLE_FAILED) snprintf(line->text, sizeof line->text, "%s", treadle_error_message());
  while (word <= outcome_of(epoch, 0, TREADLE_OPEN)) /* older, or open */
    if (atomic_compare_exchange_weak(&group->control->word, &word, wanted)) {
      treadle_group_ring_all(group);
      return true;
    }
  return (word & 3) == (uint64_t)state && word >> OUTCOME_EPOCH == epoch;
}

treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch) {
  uint64_t word = atomic_load(&group->control->word);
  const treadle_rank_line *line = treadle_group_line(group);
  if (word >> OUTCOME_EPOCH > epoch && treadle_word_of(group, group->rank, TREADLE_WORD_VERIFIED) < epoch)
    return treadle_fail(TREADLE_PEER, "the other ranks have given up waiting for rank %d and tried again",
                        group->rank);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT)
    return treadle_fail(TREADLE_PEER, "rank %d has left the group: %s", group->rank, line->left_message);
  if (word >> OUTCOME_EPOCH != epoch || (word & 3) != TREADLE_FAILED) return TREADLE_OK;
  int rank = (int)(word >> OUTCOME_RANK & (TREADLE_GROUP_MAX - 1));
  if (rank == group->rank) return treadle_fail(TREADLE_PEER, "%s", treadle_group_line(group)->text);
  return treadle_fail(TREADLE_PEER, "rank %d failed: %s", rank, group->control->lines[rank].text);
}

treadle_status treadle_epoch_check(const treadle_switch *sw, uint64_t epoch) {
  treadle_status status = treadle_helm_check(sw);
  return status == TREADLE_OK ? treadle_outcome_check(sw->group, epoch) : status;
}

bool treadle_outcome_committed(const treadle_group *group, uint64_t epoch) {
  uint64_t word = atomic_load(&group->control->word);
  return word >> OUTCOME_EPOCH > epoch ||
         (word >> OUTCOME_EPOCH == epoch && (word & 3) == TREADLE_COMMITTED);
}
