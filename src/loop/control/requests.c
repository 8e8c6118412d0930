/* Rows that others have. A request is under way from its sending to its wait; several may be at once. */
#include "control/crew.h"

#include "base/alloc.h"
#include "batch/batch.h"

#include <string.h>

/* ---- The endpoint's thread ---- */

static treadle_crew_request *find(treadle_crew *crew, uint64_t number) {
  treadle_crew_request *r = crew->requests;
  while (r && r->number != number) r = r->next;
  return r;
}

bool treadle_request_take(treadle_crew *crew, treadle_endpoint_letter *letter) {
  bool wanted = false;
  pthread_mutex_lock(&crew->lock);
  treadle_crew_request *r = find(crew, letter->head.number);
  if (r && r->rank == letter->head.rank && !r->came) {
    r->came = letter;
    wanted = true;
    pthread_cond_broadcast(&crew->news);
  }
  pthread_mutex_unlock(&crew->lock);
  if (!wanted) treadle_endpoint_drop(letter); /* who asked has given up meanwhile */
  return true;
}

void treadle_request_lose(treadle_crew *crew, int rank) {
  for (treadle_crew_request *r = crew->requests; r; r = r->next) r->lost = r->lost || r->rank == rank;
}

/* ---- Asking ---- */

void treadle_request_leave(treadle_crew *crew, treadle_crew_request *r) {
  treadle_crew_request **at = &crew->requests;
  if (!r) return;
  pthread_mutex_lock(&crew->lock);
  while (*at != r) at = &(*at)->next;
  *at = r->next;
  pthread_mutex_unlock(&crew->lock);
  treadle_endpoint_drop(r->came);
  treadle_free(r);
}

static void put(treadle_message *m, const treadle_crew_rows *rows) {
  treadle_message_put_int(m, (int64_t)rows->call);
  treadle_message_put_int(m, rows->count_alone ? -1 : (int64_t)rows->count);
  treadle_message_put_bytes(m, rows->rows, rows->count * sizeof *rows->rows);
  treadle_call_put_names(m, rows->names, rows->name_count);
}

treadle_status treadle_request_send(treadle_crew *crew, const treadle_crew_rows *rows,
                                    treadle_crew_request **request_p) {
  treadle_message m = {0};
  treadle_crew_request *r = *request_p = NULL;
  treadle_status status;
  if (rows->rank == crew->group->rank) return TREADLE_OK;
  r = treadle_alloc(sizeof *r);
  put(&m, rows);
  if (!r || m.failed) {
    treadle_free(r);
    treadle_message_release(&m);
    return treadle_fail(TREADLE_NO_MEMORY, "no memory to ask for %zu rows", rows->count);
  }
  *r = (treadle_crew_request){.rank = rows->rank, .number = treadle_crew_number(crew)};
  pthread_mutex_lock(&crew->lock);
  r->next = crew->requests;
  crew->requests = r;
  pthread_mutex_unlock(&crew->lock);
  const treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_FETCH, .number = r->number};
  TRY(treadle_crew_send(crew, rows->rank, head, &m));
  *request_p = r;
  r = NULL;
out:
  treadle_request_leave(crew, r);
  treadle_message_release(&m);
  return status;
}

/* ---- What has come ---- */

static treadle_status read_came(const treadle_crew_request *r, treadle_batch **batch_p) {
  treadle_message m = treadle_crew_read(r->came);
  if (r->came->head.status)
    return treadle_fail((treadle_status)r->came->head.status, "rows of rank %d: %.*s", r->rank,
                        (int)r->came->length, r->came->bytes);
  return treadle_message_batch(&m, batch_p);
}

/* Of this rank itself. */
static treadle_status take_own(treadle_crew *crew, const treadle_crew_rows *rows, treadle_batch **batch_p) {
  treadle_crew_output *output = NULL;
  treadle_batch *chosen = NULL;
  treadle_status status;
  TRY(treadle_outputs_take(crew, rows->call, &output));
  if (rows->count_alone) {
    TRY(treadle_batch_create(treadle_batch_rows(output->batch) - output->padding, batch_p));
    goto out;
  }
  if (rows->names) TRY(treadle_call_select(output->batch, rows->names, rows->name_count, &chosen));
  TRY(treadle_batch_index(chosen ? chosen : output->batch, rows->rows, rows->count, batch_p));
out:
  treadle_batch_destroy(chosen);
  treadle_outputs_give_back(crew, output);
  return status;
}

treadle_status treadle_request_wait(treadle_crew *crew, const treadle_crew_rows *rows,
                                    treadle_crew_request *request, treadle_batch **batch_p) {
  treadle_status status = TREADLE_OK;
  *batch_p = NULL;
  if (!request) return take_own(crew, rows, batch_p);
  pthread_mutex_lock(&crew->lock);
  while (!status && !request->came) {
    if (request->lost) status = treadle_crew_lost(crew, request->rank);
    if (!status) status = treadle_crew_nap(crew, "rows of another rank");
  }
  pthread_mutex_unlock(&crew->lock);
  if (!status) status = read_came(request, batch_p);
  if (!status) crew->books.row_bytes += (int64_t)treadle_call_row_bytes(*batch_p);
  treadle_request_leave(crew, request);
  return status;
}
