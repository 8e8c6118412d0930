/* What calls have made. Whoever reads an output is one of its users: it goes when it was released and nobody reads it any more. */
#include "control/crew.h"

#include "base/alloc.h"

#include <string.h>

treadle_status treadle_outputs_put(treadle_crew *crew, uint64_t call, treadle_batch *batch) {
  treadle_crew_output *one = treadle_alloc(sizeof *one);
  treadle_status status = TREADLE_NO_MEMORY;
  if (!one) return treadle_fail(TREADLE_NO_MEMORY, "no memory for what a call has made");
  *one = (treadle_crew_output){.call = call, .batch = batch, .users = 1};
  pthread_mutex_lock(&crew->lock);
  status = treadle_array_push(&crew->outputs, one);
  pthread_mutex_unlock(&crew->lock);
  if (status) treadle_free(one);
  return status;
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
  if (at) return TREADLE_OK;
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
  TRY(treadle_message_array(m, "rows", sizeof(int64_t), (size_t)count, &rows));
  TRY(treadle_call_read_names(m, names, TREADLE_CALL_NAMES, &named));
  *asked = (treadle_crew_rows){.call = (uint64_t)call,
                               .rows = rows,
                               .count = (size_t)count,
                               .names = named < 0 ? NULL : names,
                               .name_count = named < 0 ? 0 : (size_t)named};
out:
  return status;
}

static treadle_status put_rows(treadle_crew *crew, const treadle_crew_rows *asked, treadle_message *to) {
  treadle_crew_output *output = NULL;
  treadle_status status;
  TRY(treadle_outputs_take(crew, asked->call, &output));
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
  status = put_rows(crew, &asked, &out);
  if (!status) status = treadle_crew_send(crew, letter->head.rank, head, &out);
  head.status = (int32_t)status;
  if (status)
    (void)treadle_endpoint_send_text(crew->endpoint, letter->head.rank, head, treadle_error_message());
  treadle_message_release(&out);
  treadle_endpoint_drop(letter);
  return true;
}
