/* The outcome between nodes.
 *
 *     a node                          the lowest node
 *     all have verified: vote    ->   all nodes have voted: commit, to all
 *     failed by itself: fail, to all  one has not within the time limit, or is gone: fail, to all
 *
 * A node that failed by itself had not voted, so nobody commits, and its word is as good as the lowest node's. A node that has voted and hears
 * nothing within the time limit asks all others. One that knows answers; one that has not voted itself fails now, and says so. If nobody
 * answers, the node is adrift (outcome.h), which is final here: a word that comes later changes nothing.
 *
 * A word about an epoch is taken when this node is ready for it: its outcome of the epoch before is known. Else it is kept; nodes come one
 * by one out of an epoch, and words of different nodes overtake each other. */
#include "group/courier.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static const double ASKING = 0.4; /* of the time limit: how long answers are waited for */

static bool decides(const treadle_courier *courier) { return courier->node == 0; }

static double limit_of(const treadle_courier *courier) {
  return (double)atomic_load(&courier->group->control->limit_ms) / 1e3;
}

/* ---- Failed ---- */

static const char in_vain[] = "its node has waited in vain for the outcome of all nodes";

/* The rank's text is what its own node has, or what was said. */
static void say_failed(treadle_courier *courier, uint64_t epoch, int rank) {
  const char *text = courier->group->control->lines[rank].text;
  courier->failed = epoch;
  treadle_courier_send_all(
      courier, (treadle_mail_head){.frame.type = TREADLE_MAIL_FAIL, .rank = rank, .epoch = epoch}, text,
      strnlen(text, TREADLE_GROUP_MESSAGE - 1));
}

/* May an epoch be failed now? Not while one before it, or this one in another way, is open. */
static bool is_ready(treadle_outcome now, uint64_t epoch) {
  bool decided = now.state == TREADLE_COMMITTED || now.state == TREADLE_FAILED;
  return now.epoch == epoch ? !decided : now.epoch < epoch && (decided || now.epoch == 0);
}

/* The epoch fails here, because of a rank of another node. */
static bool fail_here(treadle_courier *courier, uint64_t epoch, int rank, const char *text) {
  treadle_control *control = courier->group->control;
  for (treadle_outcome now; is_ready(now = treadle_outcome_now(control), epoch);) {
    snprintf(control->lines[rank].text, TREADLE_GROUP_MESSAGE, "%s", text);
    if (!treadle_outcome_move(control, now, (treadle_outcome){epoch, rank, TREADLE_FAILED})) continue;
    treadle_group_ring_all(courier->group);
    return true;
  }
  return false;
}

static void hear_failed(treadle_courier *courier, const treadle_mail_head *head, const char *content) {
  treadle_courier_peer *peer = &courier->peers[head->node];
  size_t bytes = head->frame.bytes < TREADLE_GROUP_MESSAGE ? head->frame.bytes : TREADLE_GROUP_MESSAGE - 1;
  memcpy(peer->failed_text, content, bytes);
  peer->failed_text[bytes] = 0;
  peer->failed = *head;
  /* Lines of this node's ranks are written by these alone: what is said of one of them stands in the speaker's. */
  const treadle_nodes *nodes = courier->group->nodes;
  if (nodes->of[head->rank] == courier->node) peer->failed.rank = treadle_nodes_leader(nodes, head->node);
}

/* What was said of epochs for which this node was not ready. */
static void look_at_failed(treadle_courier *courier) {
  for (int32_t node = 0; node < courier->group->nodes->count; node++) {
    treadle_courier_peer *peer = &courier->peers[node];
    treadle_outcome now = treadle_outcome_now(courier->group->control);
    if (peer->failed.epoch == 0) continue;
    /* It has left the epoch that this node is in, and has not voted for; what it said of that was overtaken, or never said. */
    if (now.state == TREADLE_OPEN && now.epoch > 0 && now.epoch < peer->failed.epoch &&
        fail_here(courier, now.epoch, peer->failed.rank, peer->failed_text))
      now = treadle_outcome_now(courier->group->control);
    bool over =
        now.epoch > peer->failed.epoch || (now.epoch == peer->failed.epoch && !is_ready(now, now.epoch));
    if (over || fail_here(courier, peer->failed.epoch, peer->failed.rank, peer->failed_text))
      peer->failed.epoch = 0;
  }
}

/* ---- Votes ---- */

/* False: this node has given up. */
static bool commit_here(treadle_courier *courier, uint64_t epoch) {
  treadle_outcome now = treadle_outcome_now(courier->group->control);
  if (now.epoch != epoch || now.state != TREADLE_VOTED ||
      !treadle_outcome_move(courier->group->control, now,
                            (treadle_outcome){epoch, now.rank, TREADLE_COMMITTED}))
    return false;
  treadle_group_ring_all(courier->group);
  return true;
}

/* The lowest node: a node that has not voted; -1: all have. */
static int32_t find_missing(const treadle_courier *courier, uint64_t epoch) {
  for (int32_t node = 0; node < courier->group->nodes->count; node++)
    if (node != courier->node && courier->peers[node].voted < epoch) return node;
  return -1;
}

static void decide(treadle_courier *courier, uint64_t epoch, double waited) {
  int32_t missing = find_missing(courier, epoch);
  if (missing < 0) {
    if (commit_here(courier, epoch))
      treadle_courier_send_all(
          courier, (treadle_mail_head){.frame.type = TREADLE_MAIL_COMMIT, .epoch = epoch}, NULL, 0);
    return;
  }
  bool gone = courier->peers[missing].wire.socket < 0;
  if (!gone && waited < limit_of(courier)) return;
  char text[TREADLE_GROUP_MESSAGE];
  int leader = treadle_nodes_leader(courier->group->nodes, missing);
  if (gone)
    snprintf(text, sizeof text, "node %d has died, or cannot be reached", (int)missing);
  else
    snprintf(text, sizeof text, "node %d has not voted in %.1f s", (int)missing, waited);
  if (fail_here(courier, epoch, leader, text)) say_failed(courier, epoch, leader);
}

/* A node that has voted, and waits for the lowest. */
static void wait_for_decision(treadle_courier *courier, uint64_t epoch, double now) {
  double limit = limit_of(courier);
  if (courier->asked_at == 0) {
    if (now - courier->voted_at < limit && courier->peers[0].wire.socket >= 0) return;
    courier->asked_at = now;
    treadle_courier_send_all(courier, (treadle_mail_head){.frame.type = TREADLE_MAIL_ASK, .epoch = epoch},
                             NULL, 0);
  } else if (now - courier->asked_at > ASKING * limit) {
    treadle_outcome_give_up(courier->group, epoch);
  }
}

void treadle_courier_vote(treadle_courier *courier) {
  const treadle_outcome now = treadle_outcome_now(courier->group->control);
  double time = treadle_clock_seconds();
  if (now.state == TREADLE_FAILED && now.epoch > courier->failed &&
      courier->group->nodes->of[now.rank] == courier->node &&
      !treadle_outcome_is_adrift(courier->group, now.epoch))
    say_failed(courier, now.epoch, now.rank);
  if (now.state == TREADLE_VOTED && now.epoch > courier->voted) {
    courier->voted = now.epoch;
    courier->voted_at = time;
    courier->asked_at = 0;
    if (!decides(courier))
      treadle_courier_send(
          courier, 0, (treadle_mail_head){.frame.type = TREADLE_MAIL_VOTE, .epoch = now.epoch}, NULL, 0);
  }
  look_at_failed(courier);
  if (now.state != TREADLE_VOTED) return;
  if (decides(courier))
    decide(courier, now.epoch, time - courier->voted_at);
  else
    wait_for_decision(courier, now.epoch, time);
}

/* ---- What others say ---- */

/* Nobody can have committed an epoch that this node has left without a vote, or would have had to decide. */
static bool cannot_be(const treadle_courier *courier, uint64_t epoch) {
  return decides(courier) || courier->voted < epoch;
}

/* Somebody has voted, and does not know what has become of it. This node may have gone on: out of an epoch that was committed, without meeting
 * the others. */
static void answer(treadle_courier *courier, const treadle_mail_head *head) {
  treadle_group *group = courier->group;
  treadle_outcome now = treadle_outcome_now(group->control);
  int asker = treadle_nodes_leader(group->nodes, head->node);
  uint64_t epoch = head->epoch;
  if (treadle_outcome_committed(group, epoch)) {
    treadle_courier_send(courier, head->node,
                         (treadle_mail_head){.frame.type = TREADLE_MAIL_COMMIT, .epoch = epoch}, NULL, 0);
  } else if (now.epoch == epoch && now.state == TREADLE_FAILED) {
    if (!treadle_outcome_is_adrift(group, epoch)) say_failed(courier, epoch, now.rank);
  } else if (now.epoch > epoch) {
    if (cannot_be(courier, epoch))
      treadle_courier_send(
          courier, head->node,
          (treadle_mail_head){.frame.type = TREADLE_MAIL_FAIL, .rank = asker, .epoch = epoch}, in_vain,
          sizeof in_vain - 1);
  } else if ((now.epoch < epoch || now.state == TREADLE_OPEN) &&
             fail_here(courier, epoch, asker, in_vain)) {
    say_failed(courier, epoch, asker);
  }
}

void treadle_courier_hear(treadle_courier *courier, const treadle_mail_head *head, const char *content) {
  treadle_courier_peer *peer = &courier->peers[head->node];
  switch ((treadle_mail_type)head->frame.type) {
  case TREADLE_MAIL_VOTE:
    if (head->epoch > peer->voted) peer->voted = head->epoch;
    break;
  case TREADLE_MAIL_COMMIT: (void)commit_here(courier, head->epoch); break;
  case TREADLE_MAIL_FAIL: hear_failed(courier, head, content); break;
  case TREADLE_MAIL_ASK: answer(courier, head); break;
  default: break;
  }
}
