#include "control/crew.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/thread_watch.h"

#include <stdio.h>
#include <string.h>

static const double SILENCE = 60; /* seconds, where the caller gives none */

/* ---- Waiting ---- */

treadle_status treadle_crew_nap(treadle_crew *crew, const char *doing) {
  static const double SLICE = 0.1; /* from one look at the thread's watcher to the next */
  const struct timespec end = treadle_clock_timespec(treadle_clock_seconds() + SLICE);
  (void)pthread_cond_timedwait(&crew->news, &crew->lock, &end);
  return treadle_thread_ask(doing);
}

treadle_status treadle_crew_lost(const treadle_crew *crew, int rank) {
  const treadle_crew_loss *loss = &crew->lost[rank];
  if (!loss->order) return TREADLE_OK;
  return treadle_fail(TREADLE_PEER, "rank %d (node %d) is lost: %s", rank,
                      treadle_group_node(crew->group, rank), loss->why);
}

bool treadle_crew_goes_on(void *crew, const char *doing, int64_t done, int64_t total) {
  (void)doing, (void)done, (void)total;
  return !atomic_load(&((treadle_crew *)crew)->over);
}

/* The first of those that have died, or of those that have said why they left. */
static const treadle_crew_loss *first_lost(const treadle_crew *crew, bool died) {
  const treadle_crew_loss *first = NULL;
  for (int rank = 0; rank < crew->group->size; rank++) {
    const treadle_crew_loss *one = &crew->lost[rank];
    if (!one->order || one->left == died || (one->left && !one->status)) continue;
    if (!first || one->order < first->order) first = one;
  }
  return first;
}

bool treadle_crew_find_lost(treadle_crew *crew, treadle_crew_loss *loss_p) {
  const double end = treadle_clock_seconds() + 1; /* its end is seen by others first, perhaps */
  const treadle_crew_loss *found;
  pthread_mutex_lock(&crew->lock);
  while (!(found = first_lost(crew, true)) && treadle_clock_seconds() < end)
    (void)treadle_crew_nap(crew, "news of lost ranks");
  if (!found) found = first_lost(crew, false);
  if (found) *loss_p = *found;
  pthread_mutex_unlock(&crew->lock);
  return found;
}

treadle_status treadle_crew_hear_end(treadle_crew *crew, bool *lost_p, treadle_crew_loss *loss_p) {
  const double end = treadle_clock_seconds() + 2; /* it may look for the cause itself */
  pthread_mutex_lock(&crew->lock);
  while (!crew->end && !crew->lost->order && treadle_clock_seconds() < end)
    (void)treadle_crew_nap(crew, "the end of the run");
  const treadle_status status = crew->end ? treadle_fail(crew->end, "%s", crew->end_message) : TREADLE_OK;
  *lost_p = !status && crew->lost->order;
  if (*lost_p) *loss_p = *crew->lost;
  pthread_mutex_unlock(&crew->lock);
  return status;
}

/* ---- Messages ---- */

static void hold(void *letter) { (void)treadle_endpoint_share(letter); }
static void drop(void *letter) { treadle_endpoint_drop(letter); }

treadle_message treadle_crew_read(treadle_endpoint_letter *letter) {
  return (treadle_message){
      .given = letter->bytes, .length = letter->length, .hold = hold, .release = drop, .holder = letter};
}

treadle_status treadle_crew_send(treadle_crew *crew, int rank, treadle_endpoint_head head,
                                 treadle_message *m) {
  size_t length;
  char *bytes = treadle_message_leave(m, &length);
  treadle_endpoint_content *content = bytes ? treadle_endpoint_content_of(bytes, length) : NULL;
  if (!content) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a message to rank %d", rank);
  const treadle_status status = treadle_endpoint_send(crew->endpoint, rank, head, content);
  treadle_endpoint_content_drop(content);
  return status;
}

/* ---- What comes: in the endpoint's thread ---- */

/* Calls and the end of the run come in one row. */
static bool put_call(treadle_crew *crew, treadle_endpoint_letter *letter) {
  pthread_mutex_lock(&crew->lock);
  if (letter->head.frame.type == TREADLE_ENDPOINT_END && letter->head.status) {
    crew->end = (treadle_status)letter->head.status;
    snprintf(crew->end_message, sizeof crew->end_message, "%.*s", (int)letter->length, letter->bytes);
    atomic_store(&crew->over, true);
  }
  if (letter->head.frame.type == TREADLE_ENDPOINT_CALL) crew->called = letter->head.number;
  *crew->last = letter;
  crew->last = &letter->next;
  pthread_cond_broadcast(&crew->news);
  pthread_mutex_unlock(&crew->lock);
  return true;
}

static bool release_call(treadle_crew *crew, treadle_endpoint_letter *letter) {
  treadle_outputs_release(crew, letter->head.number);
  treadle_endpoint_drop(letter);
  return true;
}

static bool refuse(treadle_endpoint_letter *letter) {
  treadle_endpoint_drop(letter);
  return false;
}

static bool take(void *context, treadle_endpoint_letter *letter) {
  treadle_crew *crew = context;
  const bool by_controller = letter->head.rank == 0;
  switch ((treadle_endpoint_word)letter->head.frame.type) {
  case TREADLE_ENDPOINT_CALL:
  case TREADLE_ENDPOINT_END: return by_controller ? put_call(crew, letter) : refuse(letter);
  case TREADLE_ENDPOINT_RELEASE: return by_controller ? release_call(crew, letter) : refuse(letter);
  case TREADLE_ENDPOINT_ANSWER: return treadle_future_answered(crew, letter);
  case TREADLE_ENDPOINT_FETCH: return treadle_outputs_serve(crew, letter);
  case TREADLE_ENDPOINT_ROWS: return treadle_request_take(crew, letter);
  default: return refuse(letter);
  }
}

static void lose(void *context, int rank, const treadle_endpoint_loss *how) {
  treadle_crew *crew = context;
  treadle_crew_loss *loss = &crew->lost[rank];
  pthread_mutex_lock(&crew->lock);
  loss->order = ++crew->lost_count;
  loss->left = how->left;
  loss->status = how->status;
  snprintf(loss->why, sizeof loss->why, "%s", how->why);
  if (rank == 0 || crew->group->rank == 0) atomic_store(&crew->over, true); /* who is told so finds why */
  treadle_request_lose(crew, rank);
  treadle_future_lose(crew, rank);
  pthread_cond_broadcast(&crew->news);
  pthread_mutex_unlock(&crew->lock);
}

/* ---- Its life ---- */

static treadle_status check_class(const treadle_worker_class *classes, size_t i) {
  const treadle_worker_class *c = &classes[i];
  if (!c->name || !c->name[0]) REFUSE("treadle_crew_open: class %zu has no name", i);
  for (size_t k = 0; k < i; k++)
    if (strcmp(classes[k].name, c->name) == 0)
      REFUSE("treadle_crew_open: classes %zu and %zu are both named '%s'", k, i, c->name);
  if (c->method_count && !c->methods) return treadle_refuse_null("treadle_crew_open", "classes->methods");
  for (size_t m = 0; m < c->method_count; m++) {
    if (!c->methods[m].name || !c->methods[m].function)
      REFUSE("treadle_crew_open: method %zu of class '%s' has no %s", m, c->name,
             c->methods[m].name ? "function" : "name");
    for (size_t k = 0; k < m; k++)
      if (strcmp(c->methods[k].name, c->methods[m].name) == 0)
        REFUSE("treadle_crew_open: class '%s' has two methods '%s'", c->name, c->methods[m].name);
  }
  return TREADLE_OK;
}

static treadle_status check(const treadle_worker_class *classes, size_t count,
                            const treadle_crew_options *options) {
  treadle_status status = TREADLE_OK;
  if (!classes && count) return treadle_refuse_null("treadle_crew_open", "classes");
  for (size_t i = 0; i < count; i++) TRY(check_class(classes, i));
  if (options->timeout_seconds != 0)
    TRY(treadle_check_seconds("treadle_crew_open", "timeout_seconds", options->timeout_seconds));
out:
  return status;
}

static treadle_status make(treadle_group *group, treadle_crew **crew_p) {
  pthread_condattr_t how;
  treadle_crew *crew = *crew_p = treadle_alloc(sizeof *crew);
  if (!crew) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a crew");
  crew->group = group;
  crew->users = 1;
  crew->last = &crew->first;
  pthread_mutex_init(&crew->lock, NULL);
  pthread_condattr_init(&how);
  pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
  pthread_cond_init(&crew->news, &how);
  pthread_condattr_destroy(&how);
  crew->lost = treadle_alloc_array((size_t)group->size, sizeof *crew->lost);
  if (!crew->lost) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a crew of %d ranks", group->size);
  for (int rank = 0; rank < group->size; rank++) crew->lost[rank].rank = rank;
  return TREADLE_OK;
}

static void drop_letters(treadle_endpoint_letter *one) {
  for (treadle_endpoint_letter *next; one; one = next) {
    next = one->next;
    treadle_endpoint_drop(one);
  }
}

static void release(treadle_crew *crew) {
  if (!crew) return;
  drop_letters(crew->first);
  drop_letters(crew->parked);
  treadle_outputs_release_all(crew);
  pthread_cond_destroy(&crew->news);
  pthread_mutex_destroy(&crew->lock);
  treadle_free(crew->lost);
  treadle_free(crew);
}

treadle_status treadle_crew_open(treadle_group *group, const treadle_worker_class *classes, size_t count,
                                 const treadle_crew_options *options, treadle_crew **crew_p) {
  treadle_crew_options o;
  treadle_crew *crew = NULL;
  treadle_status status;
  TREADLE_NEED(crew_p);
  *crew_p = NULL;
  TREADLE_NEED(group);
  status = TREADLE_TAKE(options, &o);
  if (!status) status = check(classes, count, &o);
  if (!status) status = make(group, &crew);
  TRY(treadle_group_agree_on(group, status, &(treadle_group_call){.name = "treadle_crew_open"}));
  crew->options = o;
  crew->classes = classes;
  crew->class_count = count;
  TRY(treadle_endpoint_open(
      group,
      &(treadle_endpoint_options){.limit = o.timeout_seconds > 0 ? o.timeout_seconds : SILENCE,
                                  .take = take,
                                  .lost = lose,
                                  .context = crew},
      &crew->endpoint));
  *crew_p = crew;
  crew = NULL;
out:
  release(crew);
  return status;
}

void treadle_crew_end(treadle_crew *crew, treadle_status status) {
  TREADLE_NEED_ONLY(crew);
  if (status && !treadle_status_is_failure(status))
    status = treadle_fail(TREADLE_STATE, "treadle_crew_end: %d is not a status", (int)status);
  snprintf(crew->failed, sizeof crew->failed, "%s", status ? treadle_error_message() : "");
  crew->failure = status;
  const treadle_endpoint_head end = {.frame.type = TREADLE_ENDPOINT_END, .status = (int32_t)status};
  for (int rank = 1; crew->group->rank == 0 && rank < crew->group->size; rank++)
    (void)treadle_endpoint_send_text(crew->endpoint, rank, end, crew->failed);
  crew->ended = true;
  if (status) (void)treadle_fail(status, "%s", crew->failed);
}

void treadle_crew_close(treadle_crew *crew) {
  if (!crew) return;
  if (!crew->ended) treadle_crew_end(crew, TREADLE_OK);
  treadle_crew_drop_members(crew);
  treadle_endpoint_close(crew->endpoint, crew->failure, crew->failed);
  crew->endpoint = NULL;
  treadle_crew_leave(crew);
}

void treadle_crew_leave(treadle_crew *crew) {
  if (--crew->users == 0) release(crew);
}

treadle_status treadle_crew_check_open(const treadle_crew *crew, const char *function) {
  if (crew->endpoint) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "%s: the crew was closed", function);
}

void treadle_crew_get_books(const treadle_crew *crew, treadle_crew_books *books_p) {
  TREADLE_NEED_ONLY(crew);
  TREADLE_NEED_ONLY(books_p);
  *books_p = crew->books;
}
