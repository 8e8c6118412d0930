#include "group/outcome.h"

#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

enum { EPOCH = 12, RANK = 2 }; /* shifts */
_Static_assert(TREADLE_GROUP_MAX <= 1 << (EPOCH - RANK), "a rank fits");
_Static_assert(EPOCH + TREADLE_EPOCH_BITS == 64, "an epoch fits");

static const double LONGER = 1.5, GRACE = 0.5 /* seconds */;

static uint64_t word_of(uint64_t epoch, int rank, int state) {
  return epoch << EPOCH | (uint64_t)rank << RANK | (uint64_t)state;
}

static treadle_outcome read_word(uint64_t word) {
  return (treadle_outcome){word >> EPOCH, (int)(word >> RANK & (TREADLE_GROUP_MAX - 1)), (int)(word & 3)};
}

treadle_outcome treadle_outcome_now(const treadle_control *control) {
  return read_word(atomic_load(&control->word));
}

/* Before the word becomes that of a later epoch. A rank that looks late, or a node that asks, learns from this that the epoch was committed;
 * that the word is of a later one says nothing, since the nodes may have failed that one, too. */
static void remember(treadle_control *control, uint64_t word) {
  const treadle_outcome there = read_word(word);
  uint64_t last = atomic_load(&control->committed);
  while (there.state == TREADLE_COMMITTED && last < there.epoch &&
         !atomic_compare_exchange_weak(&control->committed, &last, there.epoch)) {
  }
}

void treadle_outcome_open(treadle_group *group, uint64_t epoch) {
  uint64_t open = word_of(epoch, 0, TREADLE_OPEN), word = atomic_load(&group->control->word);
  while (word < open) {
    remember(group->control, word);
    if (atomic_compare_exchange_weak(&group->control->word, &word, open)) return;
  }
}

bool treadle_outcome_move(treadle_control *control, treadle_outcome seen, treadle_outcome next) {
  uint64_t word = word_of(seen.epoch, seen.rank, seen.state);
  if (next.epoch > seen.epoch) remember(control, word);
  return atomic_compare_exchange_strong(&control->word, &word, word_of(next.epoch, next.rank, next.state));
}

bool treadle_outcome_settle(treadle_group *group, uint64_t epoch, int state) {
  bool votes = state == TREADLE_COMMITTED && treadle_group_node_count(group) > 1;
  uint64_t wanted = word_of(epoch, group->rank, votes ? TREADLE_VOTED : state),
           word = atomic_load(&group->control->word);
  treadle_rank_line *line = treadle_group_line(group);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT) return false; /* who left decides nothing */
  assert(state == TREADLE_FAILED || word >= word_of(epoch, 0, TREADLE_OPEN));
  if (state == TREADLE_FAILED) snprintf(line->text, sizeof line->text, "%s", treadle_error_message());
  while (word <= word_of(epoch, 0, TREADLE_OPEN)) { /* older, or open */
    remember(group->control, word);
    if (!atomic_compare_exchange_weak(&group->control->word, &word, wanted)) continue;
    treadle_group_ring_all(group);
    return true;
  }
  treadle_outcome there = read_word(word);
  return there.epoch == epoch && (there.state == state || (votes && there.state == TREADLE_VOTED));
}

bool treadle_outcome_committed(const treadle_group *group, uint64_t epoch) {
  treadle_outcome there = treadle_outcome_now(group->control);
  if (there.epoch == epoch) return there.state == TREADLE_COMMITTED;
  return there.epoch > epoch && atomic_load(&group->control->committed) >= epoch;
}

/* ---- Votes ---- */

typedef struct vote {
  treadle_group *group;
  uint64_t epoch;
} vote;

static bool is_undecided(const treadle_group *group, uint64_t epoch) {
  treadle_outcome there = treadle_outcome_now(group->control);
  return there.epoch == epoch && there.state == TREADLE_VOTED;
}

static treadle_status look(void *context) {
  const vote *v = context;
  if (is_undecided(v->group, v->epoch)) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "the vote is decided");
}

/* The courier gives up after the time limit, and some more in which it asks; a rank that it does not tell does so a little later. */
void treadle_outcome_await(treadle_group *group, uint64_t epoch) {
  static const _Atomic uint64_t never;
  vote v = {group, epoch};
  const treadle_watch watch = {look, &v};
  int leader = treadle_group_node_count(group) > 1
                   ? treadle_nodes_leader(group->nodes, group->nodes->of[group->rank])
                   : group->rank;
  double deadline = treadle_clock_seconds() + LONGER * group->timeout_seconds + GRACE;
  while (is_undecided(group, epoch)) {
    treadle_status status =
        treadle_group_wait(group, leader, &never, 1, &watch, deadline, "the outcome of all nodes");
    if (status != TREADLE_STATE && is_undecided(group, epoch)) treadle_outcome_give_up(group, epoch);
  }
}

bool treadle_outcome_is_adrift(const treadle_group *group, uint64_t epoch) {
  return atomic_load(&group->control->adrift) == epoch;
}

/* On the node that decides this is a decision: its courier commits by a change of the same word, before it tells anybody. */
void treadle_outcome_give_up(treadle_group *group, uint64_t epoch) {
  treadle_outcome seen = treadle_outcome_now(group->control);
  if (seen.epoch != epoch || seen.state != TREADLE_VOTED) return;
  treadle_rank_line *line = treadle_group_line(group);
  if (group->nodes->of[group->rank] == 0)
    snprintf(line->text, sizeof line->text, "the leader of node 0 has decided nothing");
  else
    atomic_store(&group->control->adrift, epoch);
  if (treadle_outcome_move(group->control, seen, (treadle_outcome){epoch, group->rank, TREADLE_FAILED}))
    treadle_group_ring_all(group);
  else if (treadle_outcome_committed(group, epoch))
    atomic_store(&group->control->adrift, 0);
}
