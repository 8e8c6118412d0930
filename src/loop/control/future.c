/* The controller waits for answers; meanwhile its own rank does what it was called to do. An answer is taken in by the thread that waits. */
#include "control/future.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The endpoint's thread ---- */

static treadle_future_answer *answer_of(treadle_future *f, int rank) {
  for (size_t i = 0; f && i < f->count; i++)
    if (f->answers[i].rank == rank) return &f->answers[i];
  return NULL;
}

bool treadle_future_answered(treadle_crew *crew, treadle_endpoint_letter *letter) {
  bool wanted = false;
  pthread_mutex_lock(&crew->lock);
  treadle_future *f = crew->futures;
  while (f && f->number != letter->head.number) f = f->next;
  treadle_future_answer *answer = answer_of(f, letter->head.rank);
  if (answer && !answer->came && !answer->ended) {
    answer->came = letter;
    wanted = true;
    pthread_cond_broadcast(&crew->news);
  }
  pthread_mutex_unlock(&crew->lock);
  if (!wanted) treadle_endpoint_drop(letter); /* of a call that has ended without it */
  return true;
}

void treadle_future_lose(treadle_crew *crew, int rank) {
  for (treadle_future *f = crew->futures; f; f = f->next) {
    treadle_future_answer *answer = answer_of(f, rank);
    if (answer && !answer->came && !answer->ended) answer->lost = true;
  }
}

/* ---- Making ---- */

treadle_status treadle_future_make(treadle_crew *crew, const int32_t *ranks, size_t count, const char *name,
                                   treadle_future **future_p) {
  treadle_future *f = *future_p = treadle_alloc(sizeof *f);
  if (!f) goto no_memory;
  *f = (treadle_future){.crew = crew, .number = treadle_crew_number(crew), .users = 1};
  f->answers = treadle_alloc_array(count, sizeof *f->answers);
  f->name = treadle_alloc_array(strlen(name) + 1, 1);
  if (!f->answers || !f->name) goto no_memory;
  strcpy(f->name, name);
  f->count = count;
  crew->users++;
  for (size_t i = 0; i < count; i++) f->answers[i] = (treadle_future_answer){.rank = ranks[i]};
  pthread_mutex_lock(&crew->lock);
  f->next = crew->futures;
  crew->futures = f;
  pthread_mutex_unlock(&crew->lock);
  return TREADLE_OK;
no_memory:
  if (f) {
    treadle_free(f->answers);
    treadle_free(f->name);
    treadle_free(f);
  }
  *future_p = NULL;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %zu workers", count);
}

treadle_status treadle_future_need(treadle_future *f, treadle_future *const *inputs, size_t count) {
  if (!count) return TREADLE_OK;
  f->inputs = treadle_alloc_array(count, sizeof *f->inputs);
  if (!f->inputs) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a call with %zu futures", count);
  for (size_t i = 0; i < count; i++) {
    f->inputs[i] = inputs[i];
    inputs[i]->users++;
  }
  f->input_count = count;
  return TREADLE_OK;
}

treadle_status treadle_future_content(treadle_message *call, treadle_endpoint_content **content_p) {
  size_t length;
  char *bytes = treadle_message_leave(call, &length);
  *content_p = bytes ? treadle_endpoint_content_of(bytes, length) : NULL;
  return *content_p ? TREADLE_OK
                    : treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %zu bytes", length);
}

/* The endpoint's thread sees this. */
static void end_answer(treadle_future *f, size_t worker, treadle_status status) {
  treadle_future_answer *answer = &f->answers[worker];
  pthread_mutex_lock(&f->crew->lock);
  answer->ended = true;
  answer->status = status;
  answer->came = NULL;
  pthread_mutex_unlock(&f->crew->lock);
}

void treadle_future_skip(treadle_future *f, size_t worker) { end_answer(f, worker, TREADLE_OK); }

/* ---- Answers ---- */

/* How much a failure says: one of the worker's own most, then that it is lost, then what it heard or did not hear of others. */
enum { WEIGHT_OF_LOST = 2 };
static int weight_of(treadle_status status) {
  return status == TREADLE_PEER || status == TREADLE_TIMEOUT || status == TREADLE_CANCELLED ? 1 : 3;
}

/* Keeps the failure that says most; of equal ones, that of the first worker. */
static void note_failure(treadle_future *f, size_t worker, int weight, treadle_status status,
                         const char *message) {
  const treadle_future_answer *answer = &f->answers[worker];
  if (weight < f->weight || (weight == f->weight && worker > f->failed)) return;
  f->weight = weight;
  f->failed = worker;
  f->status = status;
  char which[64] = "";
  if (f->count > 1) snprintf(which, sizeof which, "worker %zu of %zu of ", worker, f->count);
  const int prefix = snprintf(f->message, sizeof f->message, "rank %d (node %d), %s%s: ", answer->rank,
                              treadle_group_node(f->crew->group, answer->rank), which, f->name);
  f->own = (size_t)prefix < sizeof f->message ? (size_t)prefix : 0;
  snprintf(f->message + f->own, sizeof f->message - f->own, "%s", message);
}

void treadle_future_start(treadle_future *f, size_t worker, treadle_endpoint_content *call) {
  treadle_crew *crew = f->crew;
  treadle_future_answer *answer = &f->answers[worker];
  const treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_CALL, .number = f->number};
  const treadle_status status = call ? treadle_endpoint_send(crew->endpoint, answer->rank, head, call)
                                     : treadle_fail(TREADLE_NO_MEMORY, "no memory for the call");
  crew->books.calls++;
  crew->books.message_bytes += call ? (int64_t)call->length : 0;
  if (!status) return;
  if (status != TREADLE_PEER) {
    note_failure(f, worker, weight_of(status), status, treadle_error_message());
    end_answer(f, worker, status);
    return;
  }
  pthread_mutex_lock(&crew->lock);
  answer->lost = true;
  pthread_mutex_unlock(&crew->lock);
}

/* Nothing says which of its rows are padding, if they are not as many as it was given. */
static treadle_status check_padding(const treadle_future *f, size_t worker) {
  treadle_dispatch_share share = {0};
  if (f->dispatch) (void)treadle_dispatch_get_share(f->dispatch, (int32_t)worker, &share);
  const int64_t given = share.rows.end - share.rows.first, made = f->answers[worker].rows;
  if (share.padding && share.collected && made != given)
    REFUSE("it makes %lld rows of %lld, %lld of which are padding", (long long)made, (long long)given,
           (long long)share.padding);
  return TREADLE_OK;
}

static void take_in(treadle_future *f, size_t worker) {
  treadle_future_answer *answer = &f->answers[worker];
  treadle_endpoint_letter *letter = answer->came;
  treadle_message m = treadle_crew_read(letter);
  treadle_status status = (treadle_status)letter->head.status;
  f->crew->books.message_bytes += (int64_t)letter->length;
  answer->said = true;
  if (status)
    (void)treadle_fail(status, "%.*s", (int)letter->length, letter->bytes);
  else
    status = treadle_call_read_answer(&m, &answer->rows, &answer->made, &answer->whole);
  if (!status) status = check_padding(f, worker);
  if (status) note_failure(f, worker, weight_of(status), status, treadle_error_message());
  if (!status && answer->whole) f->crew->books.row_bytes += (int64_t)treadle_call_row_bytes(answer->made);
  end_answer(f, worker, status);
  treadle_endpoint_drop(letter);
}

static void drop_inputs(treadle_future *f);

/* What it was given goes; unless that has not ended either, and is waited for when this call goes. */
static void note_end(treadle_future *f) {
  f->ended = true;
  if (treadle_future_inputs_ended(f)) drop_inputs(f);
}

/* Takes in what there is. Is there nothing to wait for any more? A rank that is lost ends the call, whatever the others do. */
static bool look_at(treadle_future *f) {
  treadle_crew *crew = f->crew;
  char why[TREADLE_GROUP_MESSAGE];
  bool ended = true, any_lost = false;
  for (size_t i = 0; i < f->count && !f->ended; i++) {
    treadle_future_answer *answer = &f->answers[i];
    pthread_mutex_lock(&crew->lock);
    const bool lost = answer->lost && !answer->came && !answer->ended, came = answer->came;
    if (lost) snprintf(why, sizeof why, "%s", crew->lost[answer->rank].why);
    pthread_mutex_unlock(&crew->lock);
    if (came) take_in(f, i);
    if (lost) {
      note_failure(f, i, WEIGHT_OF_LOST, TREADLE_PEER, why[0] ? why : "it cannot be reached");
      end_answer(f, i, TREADLE_PEER);
    }
    ended = ended && answer->ended;
    any_lost = any_lost || lost;
  }
  if (f->late && !f->ended) ended = ended && treadle_future_inputs_ended(f);
  if (f->late && !f->ended && ended) treadle_future_settle(f);
  if ((ended || any_lost) && !f->ended) note_end(f);
  if (!f->ended && !crew->endpoint) {
    f->status = TREADLE_STATE;
    snprintf(f->message, sizeof f->message, "%s: the crew was closed", f->name);
    note_end(f);
  }
  return f->ended;
}

/* The same; a late call also waits for others. As one ends, those go that it was given and nobody else has: then all are looked at again. */
static bool look(treadle_future *f) {
  treadle_future *one = f->late && !f->ended ? f->crew->futures : NULL;
  while (one && !f->ended) {
    const bool ends = !one->ended && look_at(one);
    one = ends ? f->crew->futures : one->next;
  }
  return look_at(f);
}

/* One call of this rank, if there is one. */
static bool serve_own(treadle_crew *crew) {
  pthread_mutex_lock(&crew->lock);
  treadle_endpoint_letter *letter = treadle_crew_next(crew);
  pthread_mutex_unlock(&crew->lock);
  if (!letter) return false;
  treadle_crew_run(crew, letter);
  treadle_endpoint_drop(letter);
  return true;
}

static bool has_answers(const treadle_future *f) {
  for (size_t i = 0; i < f->count && !f->ended; i++)
    if (!f->answers[i].ended && (f->answers[i].came || f->answers[i].lost)) return true;
  return false;
}

static bool has_news(const treadle_future *f) {
  bool news = f->crew->first || has_answers(f);
  for (const treadle_future *one = f->late ? f->crew->futures : NULL; one && !news; one = one->next)
    news = has_answers(one);
  return news;
}

/* Until nothing more comes; or the thread's watcher says so, where that is asked. */
static treadle_status wait_for_end(treadle_future *f, bool asks) {
  treadle_crew *crew = f->crew;
  treadle_status status = TREADLE_OK;
  while (!look(f) && !(status && asks)) {
    if (serve_own(crew)) continue;
    pthread_mutex_lock(&crew->lock);
    if (!has_news(f)) status = treadle_crew_nap(crew, "the workers of a call");
    pthread_mutex_unlock(&crew->lock);
  }
  return f->ended ? TREADLE_OK : status;
}

treadle_status treadle_future_wait(treadle_future *f) {
  treadle_status status;
  TREADLE_NEED(f);
  TRY(wait_for_end(f, true));
  if (f->status) status = treadle_fail(f->status, "%s", f->message);
out:
  return status;
}

treadle_status treadle_future_wait_or_leave(treadle_future *f) {
  const treadle_status status = wait_for_end(f, true);
  if (!f->ended) {
    f->status = status;
    f->own = 0;
    snprintf(f->message, sizeof f->message, "%s", treadle_error_message());
    note_end(f);
  }
  return treadle_future_own_words(f, f->status);
}

treadle_status treadle_future_own_words(const treadle_future *f, treadle_status status) {
  return f && f->status ? treadle_fail(status, "%s", f->message + f->own) : status;
}

bool treadle_future_done(treadle_future *f) {
  TREADLE_NEED_OR(f, false);
  return look(f);
}

/* ---- Rows ---- */

const treadle_batch *treadle_future_made(const treadle_future *f, size_t worker) {
  return f->answers[worker].made;
}

static treadle_dispatch_share share_of(const treadle_future *f, size_t worker) {
  treadle_dispatch_share share = {.runs = true, .collected = true};
  if (f->dispatch) (void)treadle_dispatch_get_share(f->dispatch, (int32_t)worker, &share);
  return share;
}

bool treadle_future_collects(const treadle_future *f, size_t worker) {
  return share_of(f, worker).collected;
}

/* Padding is the last rows of the last workers that have some; as many are cut off what they make. */
static int64_t rows_of(const treadle_future *f, size_t worker) {
  const treadle_dispatch_share share = share_of(f, worker);
  return share.collected ? f->answers[worker].rows - share.padding : 0;
}

treadle_status treadle_future_rows(treadle_future *f, int64_t *rows_p) {
  treadle_status status;
  TREADLE_NEED(rows_p);
  *rows_p = 0;
  TRY(treadle_future_wait(f));
  for (size_t i = 0; i < f->count; i++) *rows_p += rows_of(f, i);
out:
  return status;
}

void treadle_future_place(const treadle_future *f, int64_t row, size_t *worker_p, int64_t *row_p) {
  size_t worker = 0;
  while (row >= rows_of(f, worker)) row -= rows_of(f, worker++);
  *worker_p = worker;
  *row_p = row;
}

/* ---- Its end ---- */

/* What its workers have made goes. */
static void release_rows(treadle_future *f) {
  const treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_RELEASE, .number = f->number};
  for (size_t i = 0; i < f->count && f->crew->endpoint; i++)
    if (f->answers[i].said) /* also a failure is kept there until then */
      (void)treadle_endpoint_send(f->crew->endpoint, f->answers[i].rank, head, NULL);
}

static void end(treadle_future *f) {
  treadle_crew *crew = f->crew;
  treadle_future **at = &crew->futures;
  (void)wait_for_end(f, false);
  drop_inputs(f);
  release_rows(f);
  pthread_mutex_lock(&crew->lock);
  while (*at != f) at = &(*at)->next;
  *at = f->next;
  pthread_mutex_unlock(&crew->lock);
  for (size_t i = 0; i < f->count; i++) {
    treadle_batch_destroy(f->answers[i].made);
    treadle_endpoint_drop(f->answers[i].came);
  }
  treadle_dispatch_destroy(f->dispatch);
  treadle_future_drop_late(f);
  treadle_free(f->answers);
  treadle_free(f->inputs);
  treadle_free(f->name);
  treadle_free(f);
  treadle_crew_leave(crew);
}

static void drop_inputs(treadle_future *f) {
  const size_t count = f->input_count;
  f->input_count = 0;
  for (size_t i = 0; i < count; i++)
    if (--f->inputs[i]->users == 0) end(f->inputs[i]);
}

void treadle_future_drop(treadle_future *f) {
  for (size_t i = 0; i < f->count; i++) end_answer(f, i, TREADLE_CANCELLED);
  treadle_future_destroy(f);
}

void treadle_future_destroy(treadle_future *f) {
  if (f && --f->users == 0) end(f);
}
