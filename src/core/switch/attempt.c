/* Plans that all ranks have made with one cap and one number of waves: will they do, and if not, what is tried next? */
#include "switch/attempt.h"

#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

static const treadle_proposal *proposal_of(const treadle_group *group, int rank) {
  return treadle_group_said(group, rank);
}

/* Do all ranks have the plan of the same pair? Names those that differ from most. */
static treadle_status compare_digests(const treadle_group *group) {
  int best = 0, best_count = 0;
  for (int rank = 0; rank < group->size; rank++) {
    int count = 0;
    uint64_t digest = proposal_of(group, rank)->digest;
    for (int peer = 0; peer < group->size; peer++) count += proposal_of(group, peer)->digest == digest;
    if (count > best_count) {
      best = rank;
      best_count = count;
    }
  }
  if (best_count == group->size) return TREADLE_OK;
  uint64_t digest = proposal_of(group, best)->digest;
  char ranks[200];
  size_t used = 0;
  for (int rank = 0; rank < group->size && used < sizeof ranks - 8; rank++)
    if (proposal_of(group, rank)->digest != digest)
      used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", rank);
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: rank %s has another plan than rank %d: model, layouts and options must be the same "
      "on all ranks",
      ranks, best);
}

/* With more waves each stages less; with the most of them, a cap that was left open grows. */
static treadle_status next_for_staging(const treadle_group *group, treadle_attempt *a) {
  int fullest = 0;
  for (int rank = 1; rank < group->size; rank++)
    if (proposal_of(group, rank)->staging > proposal_of(group, fullest)->staging) fullest = rank;
  int64_t staging = proposal_of(group, fullest)->staging;
  a->done = staging <= a->cap;
  if (a->done) return TREADLE_OK;
  if (a->waves < TREADLE_MAX_WAVES && !a->given) {
    a->waves = a->waves > TREADLE_MAX_WAVES / 2 ? TREADLE_MAX_WAVES : 2 * a->waves;
    return TREADLE_OK;
  }
  if (a->may_grow && !a->given) {
    a->cap = staging;
    return TREADLE_OK;
  }
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: a cap of %" PRId64 " bytes is less than the %" PRId64
      " bytes of staging in which rank %d gives others what they read of its own tensors, in "
      "%d wave%s: give a larger cap%s",
      a->cap, staging, fullest, (int)a->waves, a->waves == 1 ? "" : "s",
      a->given ? ", or a plan with more waves" : " or smaller pages");
}

treadle_status treadle_attempt_judge(const treadle_group *group, treadle_attempt *a) {
  int fullest = 0;
  treadle_status status = compare_digests(group);
  if (status != TREADLE_OK) return status;
  for (int rank = 1; rank < group->size; rank++)
    if (proposal_of(group, rank)->over > proposal_of(group, fullest)->over) fullest = rank;
  int64_t over = proposal_of(group, fullest)->over;
  if (over <= 0) return next_for_staging(group, a);
  if (a->given)
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: with the %d wave%s of the plan that was given, a rank holds more than its bound: "
        "make it with a larger cap or with more waves",
        (int)a->waves, a->waves == 1 ? "" : "s");
  if (a->waves == TREADLE_MAX_WAVES) /* with these cap_min is enough, and the cap is not below it */
    return treadle_fail(TREADLE_PEER, "switch: rank %d has published a plan that cannot be right", fullest);
  a->waves = TREADLE_MAX_WAVES;
  return TREADLE_OK;
}
