/* Agreeing: all ranks fared well, and were given what they must have alike. One meeting. */
#include "group/group.h"

#include "base/argument.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 48 };

/* Of each verdict another word: what a rank has said at another meeting, or in another kind of one, is not taken for a verdict. */
static const uint64_t AGREES = 0x7665726469637400;

typedef struct verdict {
  uint64_t meeting; /* AGREES + the number of barriers */
  int32_t status, count;
  int64_t level;
  uint64_t object;
  char message[TREADLE_GROUP_MESSAGE];
  char call[NAME]; /* empty: any */
  struct {
    int64_t among;
    uint64_t hash;
  } alike[TREADLE_GROUP_ALIKE];
} verdict;

static const verdict *said(const treadle_group *group, int rank) { return treadle_group_said(group, rank); }

static treadle_status check_meeting(const treadle_group *group, uint64_t meeting) {
  for (int rank = 0; rank < group->size; rank++)
    if (said(group, rank)->meeting != meeting)
      return treadle_fail(
          TREADLE_REFUSED,
          "rank %d has come to a barrier or a gather, where others agree on a call: ranks make the same "
          "calls, in the same order",
          treadle_group_called(group, rank));
  return TREADLE_OK;
}

/* The rank whose failure is everybody's: the first, of those that failed for a reason of their own, if any did. -1: none has failed. */
static int find_first(const treadle_group *group) {
  int first = -1;
  for (int rank = 0; rank < group->size; rank++) {
    const int32_t status = said(group, rank)->status;
    if (status == TREADLE_OK) continue;
    if (first < 0 || (said(group, first)->status == TREADLE_PEER && status != TREADLE_PEER)) first = rank;
  }
  return first;
}

static treadle_status fail_as(const treadle_group *group, int first) {
  const verdict *worst = said(group, first);
  char name[32];
  int same = 0;
  snprintf(name, sizeof name, "rank %d: ", treadle_group_called(group, first));
  if (strncmp(worst->message, name, strlen(name)) == 0) name[0] = 0; /* it has it already */
  for (int rank = 0; rank < group->size; rank++)
    same += said(group, rank)->status == worst->status &&
            strcmp(said(group, rank)->message, worst->message) == 0;
  if (same == group->size) return treadle_fail((treadle_status)worst->status, "%s", worst->message);
  return treadle_fail((treadle_status)worst->status, "%s%s", name, worst->message);
}

static treadle_status compare_calls(const treadle_group *group) {
  const verdict *one = said(group, 0);
  for (int rank = 1; rank < group->size; rank++) {
    const verdict *other = said(group, rank);
    if (strcmp(one->call, other->call) != 0 || one->count != other->count)
      return treadle_fail(
          TREADLE_REFUSED,
          "rank %d is in %s, and rank %d in %s: ranks make the same calls, in the same order",
          treadle_group_called(group, 0), one->call[0] ? one->call : "another call",
          treadle_group_called(group, rank), other->call[0] ? other->call : "another call");
    if (one->object != other->object)
      return treadle_fail(TREADLE_REFUSED, "ranks %d and %d are in %s of two different objects",
                          treadle_group_called(group, 0), treadle_group_called(group, rank), one->call);
  }
  return TREADLE_OK;
}

/* The first rank with that number. */
static int first_among(const treadle_group *group, int i, int64_t among) {
  int rank = 0;
  while (said(group, rank)->alike[i].among != among) rank++;
  return rank;
}

static treadle_status compare_alike(const treadle_group *group, const treadle_group_call *call) {
  for (int i = 0; i < call->count; i++)
    for (int rank = 1; rank < group->size; rank++) {
      const verdict *other = said(group, rank);
      const int one = first_among(group, i, other->alike[i].among);
      if (said(group, one)->alike[i].hash != other->alike[i].hash)
        return treadle_fail(TREADLE_REFUSED, "%s: ranks %d and %d must be given the same %s, and were not",
                            call->name, treadle_group_called(group, one), treadle_group_called(group, rank),
                            call->alike[i].what);
    }
  return TREADLE_OK;
}

treadle_status treadle_group_agree_on(treadle_group *group, treadle_status mine,
                                      const treadle_group_call *call) {
  verdict own = {.meeting = AGREES + group->barriers + 1, .status = mine};
  treadle_status status;
  if (mine != TREADLE_OK) snprintf(own.message, sizeof own.message, "%s", treadle_error_message());
  if (call) snprintf(own.call, sizeof own.call, "%s", call->name);
  own.count = call ? call->count : 0;
  own.level = call ? call->level : 0;
  own.object = call ? call->object : 0;
  for (int i = 0; i < own.count; i++) {
    own.alike[i].among = call->alike[i].among;
    own.alike[i].hash = call->alike[i].hash;
  }
  TRY(treadle_group_say(group, &own, sizeof own));
  TRY(check_meeting(group, own.meeting));
  const int first = find_first(group);
  if (first >= 0) return fail_as(group, first);
  TRY(compare_calls(group));
  if (call) TRY(compare_alike(group, call));
out:
  return status;
}

treadle_status treadle_group_agree(treadle_group *group, treadle_status mine) {
  return treadle_group_agree_on(group, mine, NULL);
}

uint64_t treadle_group_number(treadle_group *group) { return ++group->objects; }

int64_t treadle_group_least_level(const treadle_group *group) {
  int64_t least = said(group, 0)->level;
  for (int rank = 1; rank < group->size; rank++)
    if (said(group, rank)->level < least) least = said(group, rank)->level;
  return least;
}

treadle_status treadle_group_refuse(treadle_group *group, treadle_status status, const char *message) {
  TREADLE_NEED(group);
  TREADLE_NEED(message);
  if (!treadle_status_is_failure(status))
    REFUSE("treadle_group_refuse: status %d: that of a failure is needed", (int)status);
  return treadle_group_agree(group, treadle_fail(status, "%s", message));
}
