/* Calls that are given what has not been made yet. Their message has, behind the rows that the controller gives:
 *
 *   which columns of the others are wanted, and how many rows there must be
 *   the numbers of the worker's rows, where they are known; else which worker it is, by which it divides the rows itself
 *   for each call that makes others: its number, and the workers whose rows come back
 *
 * A method with a function of the caller's for its dispatch waits: that function may be the controller's alone. */
#include "control/workers.h"

#include "base/alloc.h"

#include <string.h>

bool treadle_call_is_late(const treadle_class_method *method, const treadle_call_input *in) {
  bool late = false;
  for (size_t i = 0; i < in->future_count; i++) late = !treadle_future_done(in->futures[i]) || late;
  return late && (in->by_worker || method->dispatch != TREADLE_DISPATCH_CUSTOM);
}

/* ---- The message ---- */

/* In place of the numbers: those from `first` on. */
static void put_range(treadle_message *m, treadle_row_range range) {
  const int64_t count = range.end - range.first;
  treadle_message_put_int(m, count * (int64_t)sizeof range.first);
  char *to = treadle_message_grow(m, (size_t)count * sizeof range.first);
  for (int64_t i = 0, row = range.first; to && i < count; i++, row++)
    memcpy(to + (size_t)i * sizeof row, &row, sizeof row);
}

/* rows: NULL if nobody chose any, and nobody knows how many there are. */
static void put_division(treadle_message *m, const treadle_workers *w, const treadle_future *f,
                         size_t worker, const treadle_call_given *g, const int64_t *rows) {
  const int64_t count = g->rows.end - g->rows.first;
  treadle_message_put_int(m, f->late->has);
  treadle_message_put_int(m, f->late->divides ? -1 : count);
  if (f->late->divides) {
    treadle_message_put_int(m, (int64_t)worker);
    treadle_message_put_int(m, (int64_t)w->count);
    treadle_call_put_mesh(m, f->late->method, w->meshes);
  } else if (rows)
    treadle_message_put_bytes(m, rows + g->rows.first, (size_t)count * sizeof *rows);
  else
    put_range(m, g->rows);
}

/* A rank that has divided rows itself knows of its padding. */
static void put_source(treadle_message *m, const treadle_future *f) {
  treadle_late_worker *workers = treadle_alloc_array(f->count, sizeof *workers);
  treadle_dispatch_share share = {0};
  size_t count = 0;
  if (!workers) m->failed = true;
  for (size_t i = 0; workers && i < f->count; i++) {
    if (!treadle_future_collects(f, i)) continue;
    if (f->dispatch) (void)treadle_dispatch_get_share(f->dispatch, (int32_t)i, &share);
    const bool known = f->late && f->late->divides;
    workers[count++] = (treadle_late_worker){f->answers[i].rank, known ? 0 : share.padding};
  }
  treadle_message_put_int(m, (int64_t)f->number);
  treadle_message_put_bytes(m, f->name, strlen(f->name) + 1);
  treadle_message_put_int(m, (int64_t)count);
  treadle_message_put_bytes(m, workers, count * sizeof *workers);
  treadle_free(workers);
}

/* Gives the bytes of rows in it. */
static size_t put_call(treadle_message *m, const treadle_workers *w, const treadle_call_input *in,
                       const treadle_future *f, size_t worker, const treadle_call_given *g,
                       const int64_t *rows) {
  const int64_t count = g->batch ? g->rows.end - g->rows.first : 0;
  treadle_message_clear(m);
  treadle_call_put_head(
      m,
      &(treadle_call_head){.kind = TREADLE_CALL_LATE, .workers = w->number, .name = f->late->method->name});
  const size_t bytes =
      treadle_call_put_batch(m, g->batch, g->batch ? rows + g->rows.first : NULL, (size_t)count);
  treadle_call_put_names(m, in->columns, in->column_count);
  put_division(m, w, f, worker, g, rows);
  treadle_message_put_int(m, (int64_t)in->future_count);
  for (size_t i = 0; i < in->future_count; i++) put_source(m, in->futures[i]);
  return bytes;
}

static void send_all(treadle_workers *w, const treadle_call_input *in, const treadle_call_choice *rows,
                     treadle_future *f) {
  treadle_endpoint_content *content;
  treadle_message call = {0};
  for (size_t i = 0; i < w->count; i++) {
    const treadle_call_given g = treadle_call_given_to(f, in, i, rows->count);
    if (!g.runs) {
      treadle_future_skip(f, i);
      continue;
    }
    const size_t bytes = put_call(&call, w, in, f, i, &g, rows->rows);
    if (!treadle_future_content(&call, &content)) w->crew->books.row_bytes += (int64_t)bytes;
    treadle_future_start(f, i, content);
    treadle_endpoint_content_drop(content);
  }
  treadle_message_release(&call);
}

/* ---- Starting ---- */

/* One that has failed on a rank fails the call: some of its ranks may not even have been told. */
static treadle_status check_inputs(const treadle_call_input *in) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < in->future_count; i++)
    if (in->futures[i]->weight) TRY(treadle_future_wait(in->futures[i]));
out:
  return status;
}

/* One more than the largest number of a row; ranges are of the numbers, if there are any. */
static int64_t find_needs(const treadle_workers *w, const treadle_call_input *in) {
  int64_t needs = 0;
  for (size_t i = 0; in->rows && i < in->row_count; i++)
    if (in->rows[i] >= needs) needs = in->rows[i] + 1;
  for (size_t i = 0; in->by_worker && !in->rows && i < w->count; i++)
    if (in->by_worker[i].end > needs) needs = in->by_worker[i].end;
  return needs;
}

static treadle_status note_late(const treadle_workers *w, const treadle_class_method *method,
                                const treadle_call_input *in, treadle_future *f) {
  treadle_message m = {0};
  treadle_status status = TREADLE_OK;
  f->late = treadle_alloc(sizeof *f->late);
  if (!f->late) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %zu workers", w->count);
  *f->late = (treadle_future_late){.method = method,
                                   .has = in->batch ? treadle_batch_rows(in->batch) : -1,
                                   .needs = find_needs(w, in),
                                   .divides = !in->batch && !in->rows && !in->by_worker};
  if (!f->late->divides) return TREADLE_OK;
  treadle_call_put_mesh(&m, method, w->meshes);
  if (m.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a mesh of %zu workers", w->count));
  TRY(treadle_call_read_mesh(&m, method, (int32_t)w->count, &f->late->meshes));
out:
  treadle_message_release(&m);
  return status;
}

treadle_status treadle_workers_start_late(treadle_workers *w, const treadle_class_method *method,
                                          const treadle_call_input *in, treadle_future *f) {
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  treadle_call_choice rows = {0};
  treadle_status status;
  TRY(check_inputs(in));
  const int64_t has = in->batch ? treadle_batch_rows(in->batch) : -1,
                count = in->rows ? (int64_t)in->row_count : has;
  if (in->by_worker)
    TRY(treadle_workers_check_ranges(w, in->by_worker, count < 0 ? INT64_MAX : count));
  else {
    TRY(treadle_workers_divide(w, method, in, count < 0 ? 0 : count, &f->dispatch));
    TRY(treadle_dispatch_get_info(f->dispatch, &info));
  }
  TRY(note_late(w, method, in, f));
  rows.count = count < 0 ? 0 : count;
  if (count >= 0) TRY(treadle_call_choose(in, has, &info, &rows));
  TRY(treadle_future_need(f, in->futures, in->future_count));
  send_all(w, in, &rows, f);
out:
  treadle_free(rows.rows);
  treadle_free(rows.room);
  return status;
}
