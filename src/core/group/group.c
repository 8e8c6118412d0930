/* What all types of groups have in common, made of waiting (group_wait.c): leaving, barrier, gather.
 *
 *   1. A word of a line is written by its owner only (but for `waiters`, a count of others), and words that are
 *      waited for only grow.
 *   2. A wait ends: the word came, what is watched beside it ended it, the rank left or died, or the time is over.
 *   3. A rank that leaves says so in its line before it goes, and says why if it failed. */
#include "group/group.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/thread_watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t treadle_control_bytes(int size) {
  return sizeof(treadle_control) + (size_t)size * sizeof(treadle_rank_line);
}

treadle_status treadle_group_make(const treadle_group_ops *ops, int rank, int size, double timeout_seconds,
                                  treadle_control *control, void *state, treadle_group **group_p) {
  *group_p = NULL;
  treadle_group *group = treadle_alloc(sizeof *group);
  if (!group) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  *group = (treadle_group){.ops = ops,
                           .link = ops->link,
                           .rank = rank,
                           .size = size,
                           .timeout_seconds = timeout_seconds,
                           .control = control,
                           .state = state};
  *group_p = group;
  return TREADLE_OK;
}

static treadle_status call_ranks(treadle_group *group, const int32_t *numbers) {
  treadle_free(group->called);
  group->called = treadle_alloc_array((size_t)group->size, sizeof *group->called);
  if (!group->called)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %d ranks", group->size);
  memcpy(group->called, numbers, (size_t)group->size * sizeof *numbers);
  return TREADLE_OK;
}

treadle_status treadle_group_call_ranks(treadle_group *group, const int32_t *numbers) {
  int32_t near[TREADLE_GROUP_MAX];
  int count = 0;
  treadle_status status;
  TRY(call_ranks(group, numbers));
  if (!group->near || group->near == group) return TREADLE_OK;
  for (int rank = 0; rank < group->size; rank++)
    if (treadle_group_is_near(group, rank)) near[count++] = numbers[rank];
  TRY(call_ranks(group->near, near));
out:
  return status;
}

int treadle_group_rank(const treadle_group *group) {
  TREADLE_NEED_OR(group, -1);
  return group->rank;
}

int treadle_group_size(const treadle_group *group) {
  TREADLE_NEED_OR(group, -1);
  return group->size;
}

treadle_rank_line *treadle_group_line(treadle_group *group) { return &group->control->lines[group->rank]; }

void treadle_group_cut(treadle_group *group) { atomic_store(&group->control->cut, 1); }

int treadle_group_node(const treadle_group *group, int rank) {
  TREADLE_NEED_OR(group, -1);
  if (rank >= 0 && rank < group->size) return group->nodes ? (int)group->nodes->of[rank] : 0;
  treadle_fail(TREADLE_REFUSED, "treadle_group_node: rank %d is none of the %d", rank, group->size);
  return -1;
}

void treadle_group_limit(treadle_group *group, double seconds) {
  double ms = seconds * 1e3;
  group->timeout_seconds = seconds;
  if (group->nodes)
    atomic_store(&group->control->limit_ms, ms < UINT32_MAX ? (uint32_t)ms + 1 : UINT32_MAX);
}

/* ---- Leaving ---- */

static void leave(treadle_group *group, uint32_t how) {
  treadle_rank_line *line = treadle_group_line(group);
  if (atomic_load(&line->left) == TREADLE_LEFT_NOT) {
    if (how == TREADLE_LEFT_FAILED)
      snprintf(line->left_message, sizeof line->left_message, "%s", treadle_error_message());
    atomic_store(&line->left, how);
  }
  treadle_group_ring_all(group);
}

void treadle_group_fail(treadle_group *group) { leave(group, TREADLE_LEFT_FAILED); }

void treadle_group_close(treadle_group *group) {
  if (!group) return;
  leave(group, TREADLE_LEFT_CLOSED);
  group->ops->destroy(group);
  treadle_free(group->called);
  treadle_free(group);
}

/* ---- Barrier and gather ---- */

static treadle_status arrive(treadle_group *group, const char *what) {
  treadle_status status = treadle_group_check_rank(group, group->rank, what);
  if (status != TREADLE_OK) return status; /* who left does not come back */
  treadle_group_publish(group, &treadle_group_line(group)->arrived, ++group->barriers);
  return TREADLE_OK;
}

/* At the barrier at which this rank has arrived. */
static treadle_status wait_for(treadle_group *group, int rank, const treadle_watch *watch, double deadline,
                               const char *what) {
  return treadle_group_wait(group, rank, &group->control->lines[rank].arrived, group->barriers, watch,
                            deadline, what);
}

static treadle_status wait_for_all(treadle_group *group, const treadle_watch *watch, const char *what) {
  double deadline = treadle_group_deadline(group);
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < group->size; rank++) TRY(wait_for(group, rank, watch, deadline, what));
out:
  return status;
}

treadle_status treadle_group_meet(treadle_group *group, const treadle_watch *watch, const char *what) {
  treadle_status status;
  TRY(arrive(group, what));
  TRY(wait_for_all(group, watch, what));
out:
  return status;
}

/* Whoever calls a function that waits may have somebody who watches. */
static treadle_status ask_thread(void *doing) { return treadle_thread_ask(doing); }

treadle_status treadle_group_barrier(treadle_group *group) {
  TREADLE_NEED(group);
  static char doing[] = "barrier";
  treadle_status status = treadle_group_meet(group, &(treadle_watch){ask_thread, doing}, doing);
  if (status != TREADLE_OK) treadle_group_fail(group);
  return status;
}

/* A payload is overwritten two generations later: by then every rank has arrived at the barrier between,
 * and so is done with it. Not so if that barrier failed: then this rank has left, and writes no more. */
treadle_status treadle_group_say(treadle_group *group, const void *mine, size_t bytes) {
  treadle_status status = TREADLE_OK;
  static char doing[] = "gather";
  if (bytes > TREADLE_GROUP_PAYLOAD)
    return treadle_fail(TREADLE_REFUSED, "gather: %zu bytes a rank, at most %d will do", bytes,
                        TREADLE_GROUP_PAYLOAD);
  TRY(treadle_group_check_rank(group, group->rank, doing));
  if (bytes > 0) memcpy(treadle_group_words(group), mine, bytes);
  TRY(treadle_group_meet(group, &(treadle_watch){ask_thread, doing}, doing));
out:
  if (status != TREADLE_OK) treadle_group_fail(group);
  return status;
}

treadle_status treadle_group_say_rest(treadle_group *group, const char *start, char *text, size_t size) {
  treadle_status status = TREADLE_OK;
  char rest[100] = "";
  if (!group) return TREADLE_OK;
  if (group->rank == 0) strcpy(rest, text + strlen(start));
  TRY(treadle_group_say(group, rest, sizeof rest));
  snprintf(text, size, "%s%s", start, (const char *)treadle_group_said(group, 0));
out:
  return status;
}

treadle_status treadle_group_listen(treadle_group *group, int speaker, const char *what) {
  static char doing[] = "a rank that may speak";
  const treadle_watch own = {ask_thread, doing}, *watch = treadle_thread_is_watched() ? &own : NULL;
  treadle_status status;
  TRY(arrive(group, what));
  TRY(wait_for(group, speaker, watch, INFINITY, what));
  TRY(wait_for_all(group, watch, what));
out:
  if (status != TREADLE_OK) treadle_group_fail(group);
  return status;
}

void *treadle_group_words(treadle_group *group) {
  return treadle_group_line(group)->payload[(group->barriers + 1) & 1];
}

const void *treadle_group_said(const treadle_group *group, int rank) {
  return group->control->lines[rank].payload[group->barriers & 1];
}

treadle_status treadle_group_gather(treadle_group *group, const void *mine, size_t bytes, void *all) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(group);
  if (bytes > 0) {
    TREADLE_NEED(mine);
    TREADLE_NEED(all);
  }
  TRY(treadle_group_say(group, mine, bytes));
  for (int rank = 0; rank < group->size && bytes > 0; rank++)
    memcpy((char *)all + (size_t)rank * bytes, treadle_group_said(group, rank), bytes);
out:
  return status;
}

/* ---- Last words ---- */

treadle_status treadle_group_last_words(treadle_group *group, const void *words, size_t bytes) {
  TREADLE_NEED(group);
  if (bytes > 0) TREADLE_NEED(words);
  if (bytes > TREADLE_GROUP_PAYLOAD)
    return treadle_fail(TREADLE_REFUSED, "treadle_group_last_words: %zu bytes; at most %d", bytes,
                        TREADLE_GROUP_PAYLOAD);
  treadle_rank_line *line = treadle_group_line(group);
  if (bytes > 0) memcpy(line->payload[0], words, bytes);
  treadle_group_publish(group, &line->last_words, 1);
  return TREADLE_OK;
}

int treadle_group_process(const treadle_group *group, int rank) {
  TREADLE_NEED_OR(group, -1);
  if (rank >= 0 && rank < group->size) return (int)atomic_load(&group->control->lines[rank].pid);
  treadle_fail(TREADLE_REFUSED, "treadle_group_process: rank %d is none of the %d", rank, group->size);
  return -1;
}
