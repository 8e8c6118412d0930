/* What calls have made, or why they have failed. Whoever reads an output is one of its users: it goes when it was released and nobody reads it any more.
 *
 * A rank may be asked for rows of a call that it has not ended yet, or that has not even come. Calls come in the order of their numbers. So one that is not
 * here was released, unless it runs, waits for its turn, or has a number above that of the newest one; then who asks waits, too. */
#include "control/crew.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

static treadle_status keep(treadle_crew *crew, const treadle_crew_output *output) {
  treadle_crew_output *one = treadle_alloc(sizeof *one);
  treadle_status status = TREADLE_NO_MEMORY;
  if (!one) return treadle_fail(TREADLE_NO_MEMORY, "no memory for what a call has made");
  *one = *output;
  one->users = 1;
  pthread_mutex_lock(&crew->lock);
  status = treadle_array_push(&crew->outputs, one);
  pthread_mutex_unlock(&crew->lock);
  if (status) treadle_free(one);
  return status;
}

treadle_status treadle_outputs_put(treadle_crew *crew, uint64_t call, treadle_batch *batch,
                                   int64_t padding) {
  return keep(crew, &(treadle_crew_output){.call = call, .batch = batch, .padding = padding});
}

/* Where memory is out, who asks is told that there are no rows; the controller knows more. */
void treadle_outputs_fail(treadle_crew *crew, uint64_t call, treadle_status status) {
  char said[TREADLE_GROUP_MESSAGE];
  snprintf(said, sizeof said, "%s", treadle_error_message());
  char *failure = treadle_alloc_array(strlen(said) + 1, 1);
  if (failure) strcpy(failure, said);
  if (failure && keep(crew, &(treadle_crew_output){.call = call, .status = status, .failure = failure}))
    treadle_free(failure);
  (void)treadle_fail(status, "%s", said);
}

/* Those of the last calls are asked for most. */
static treadle_crew_output **find(const treadle_crew *crew, uint64_t call) {
  for (size_t i = crew->outputs.count; i > 0; i--)
    if (crew->outputs.items[i - 1]->call == call) return &crew->outputs.items[i - 1];
  return NULL;
}

treadle_status treadle_outputs_take(treadle_crew *crew, uint64_t call, treadle_crew_output **output_p) {
  pthread_mutex_lock(&crew->lock);
  treadle_crew_output **at = find(crew, call);
  *output_p = at ? *at : NULL;
  if (at) (*at)->users++;
  pthread_mutex_unlock(&crew->lock);
  if (at && !(*output_p)->failure) return TREADLE_OK;
  if (at) {
    const treadle_status status = treadle_fail((*output_p)->status, "%s", (*output_p)->failure);
    treadle_outputs_give_back(crew, *output_p);
    *output_p = NULL;
    return status;
  }
  REFUSE("rank %d has no rows of call %llu: they were released, or were never there", crew->group->rank,
         (unsigned long long)call);
}

void treadle_outputs_give_back(treadle_crew *crew, treadle_crew_output *output) {
  if (!output) return;
  pthread_mutex_lock(&crew->lock);
  const bool last = --output->users == 0;
  pthread_mutex_unlock(&crew->lock);
  if (!last) return;
  treadle_batch_destroy(output->batch);
  treadle_free(output->failure);
  treadle_free(output);
}

void treadle_outputs_release(treadle_crew *crew, uint64_t call) {
  treadle_crew_output *one = NULL;
  pthread_mutex_lock(&crew->lock);
  treadle_crew_output **at = find(crew, call);
  if (at) {
    one = *at;
    const size_t behind = (size_t)(crew->outputs.items + crew->outputs.count - (at + 1));
    memmove(at, at + 1, behind * sizeof *at);
    crew->outputs.count--;
  }
  pthread_mutex_unlock(&crew->lock);
  treadle_outputs_give_back(crew, one);
}

void treadle_outputs_release_all(treadle_crew *crew) {
  while (crew->outputs.count)
    treadle_outputs_release(crew, crew->outputs.items[crew->outputs.count - 1]->call);
  treadle_array_release(&crew->outputs);
}

/* ---- Serving rows ---- */

static treadle_status check_rows(const treadle_batch *batch, const int64_t *rows, size_t count) {
  const int64_t has = treadle_batch_rows(batch);
  for (size_t i = 0; i < count; i++)
    if (rows[i] < 0 || rows[i] >= has)
      REFUSE("row %lld of %lld is asked for", (long long)rows[i], (long long)has);
  return TREADLE_OK;
}

/* What is asked for; names [TREADLE_CALL_NAMES]. */
static treadle_status read_rows(treadle_message *m, treadle_crew_rows *asked, const char **names) {
  const void *rows;
  int64_t call, count, named;
  treadle_status status;
  *asked = (treadle_crew_rows){0};
  TRY(treadle_message_int(m, "call", &call));
  TRY(treadle_message_int(m, "number of rows", &count));
  const bool count_alone = count == -1;
  if (count_alone) count = 0;
  TRY(treadle_message_array(m, "rows", sizeof(int64_t), (size_t)count, &rows));
  TRY(treadle_call_read_names(m, names, TREADLE_CALL_NAMES, &named));
  *asked = (treadle_crew_rows){.call = (uint64_t)call,
                               .rows = rows,
                               .count = (size_t)count,
                               .count_alone = count_alone,
                               .names = named < 0 ? NULL : names,
                               .name_count = named < 0 ? 0 : (size_t)named};
out:
  return status;
}

/* As many rows, without columns. */
static treadle_status put_count(const treadle_crew_output *output, treadle_message *to) {
  treadle_batch *batch = NULL;
  treadle_status status;
  TRY(treadle_batch_create(treadle_batch_rows(output->batch) - output->padding, &batch));
  treadle_message_put_rows(to, &(treadle_message_rows){.batch = batch});
out:
  treadle_batch_destroy(batch);
  return status;
}

static treadle_status put_rows(treadle_crew *crew, const treadle_crew_rows *asked, treadle_message *to) {
  treadle_crew_output *output = NULL;
  treadle_status status;
  TRY(treadle_outputs_take(crew, asked->call, &output));
  if (asked->count_alone) {
    TRY(put_count(output, to));
    goto out;
  }
  TRY(check_rows(output->batch, asked->rows, asked->count));
  const treadle_message_rows rows = {.batch = output->batch,
                                     .names = asked->names,
                                     .count = asked->name_count,
                                     .rows = asked->rows,
                                     .row_count = asked->count};
  treadle_message_put_rows(to, &rows);
  if (to->failed) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", asked->count);
out:
  treadle_outputs_give_back(crew, output);
  return status;
}

/* The lock is held. */
static bool is_to_come(const treadle_crew *crew, uint64_t call) {
  if (call > crew->called || call == crew->running) return true;
  for (const treadle_endpoint_letter *one = crew->first; one; one = one->next)
    if (one->head.number == call && one->head.frame.type == TREADLE_ENDPOINT_CALL) return true;
  return false;
}

static bool park(treadle_crew *crew, treadle_endpoint_letter *letter, uint64_t call) {
  pthread_mutex_lock(&crew->lock);
  const bool waits = !find(crew, call) && is_to_come(crew, call);
  if (waits) {
    letter->next = crew->parked;
    crew->parked = letter;
  }
  pthread_mutex_unlock(&crew->lock);
  return waits;
}

/* Which call a letter asks for. */
static uint64_t asked_call(treadle_endpoint_letter *letter) {
  treadle_message m = treadle_crew_read(letter);
  int64_t call = 0;
  (void)treadle_message_int(&m, "call", &call);
  return (uint64_t)call;
}

void treadle_outputs_unpark(treadle_crew *crew, uint64_t call) {
  treadle_endpoint_letter *found = NULL;
  pthread_mutex_lock(&crew->lock);
  if (crew->running == call) crew->running = 0;
  for (treadle_endpoint_letter **at = &crew->parked; *at;) {
    treadle_endpoint_letter *one = *at;
    if (asked_call(one) != call) {
      at = &one->next;
      continue;
    }
    *at = one->next;
    one->next = found;
    found = one;
  }
  pthread_mutex_unlock(&crew->lock);
  for (treadle_endpoint_letter *next; found; found = next) {
    next = found->next;
    (void)treadle_outputs_serve(crew, found);
  }
}

bool treadle_outputs_serve(treadle_crew *crew, treadle_endpoint_letter *letter) {
  const char *names[TREADLE_CALL_NAMES];
  treadle_message in = treadle_crew_read(letter), out = {0};
  treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_ROWS, .number = letter->head.number};
  treadle_crew_rows asked;
  treadle_status status = read_rows(&in, &asked, names);
  if (status) {
    treadle_endpoint_drop(letter);
    return false;
  }
  if (park(crew, letter, asked.call)) return true;
  status = put_rows(crew, &asked, &out);
  if (!status) status = treadle_crew_send(crew, letter->head.rank, head, &out);
  head.status = (int32_t)status;
  if (status)
    (void)treadle_endpoint_send_text(crew->endpoint, letter->head.rank, head, treadle_error_message());
  treadle_message_release(&out);
  treadle_endpoint_drop(letter);
  return true;
}
