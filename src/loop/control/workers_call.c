/* Calls of methods: which rows each worker gets, and where it finds those that other ranks have. */
#include "control/workers.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"

/* ---- Rows of a call ---- */

static treadle_status check_input(const treadle_workers *w, const treadle_call_input *in) {
  if (in->future_count && !in->futures)
    return treadle_refuse_null("treadle_workers_call", "input->futures");
  if (in->column_count && !in->columns)
    return treadle_refuse_null("treadle_workers_call", "input->columns");
  if (in->row_count && !in->rows) return treadle_refuse_null("treadle_workers_call", "input->rows");
  if (in->column_count > TREADLE_CALL_NAMES)
    REFUSE("treadle_workers_call: %zu columns; %d at most are named", in->column_count,
           (int)TREADLE_CALL_NAMES);
  for (size_t i = 0; i < in->future_count; i++) {
    if (!in->futures[i]) return treadle_refuse_null("treadle_workers_call", "input->futures");
    if (in->futures[i]->crew != w->crew) REFUSE("treadle_workers_call: future %zu is of another crew", i);
  }
  return TREADLE_OK;
}

/* How many rows all that is given has. */
static treadle_status count_rows(const treadle_call_input *in, int64_t *rows_p) {
  int64_t rows = in->batch ? treadle_batch_rows(in->batch) : -1, one;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < in->future_count; i++) {
    TRY(treadle_future_rows(in->futures[i], &one));
    if (rows >= 0 && rows != one)
      REFUSE("expecting all arg share same length: %s has %lld rows, and what was given before it has %lld",
             in->futures[i]->name, (long long)one, (long long)rows);
    rows = one;
  }
  *rows_p = rows < 0 ? 0 : rows;
out:
  return status;
}

/* The numbers of the rows that are given, which stay the caller's; or all, of memory that is *own_p then. */
static treadle_status choose_rows(const treadle_call_input *in, int64_t has, const int64_t **rows_p,
                                  int64_t **own_p, int64_t *count_p) {
  *own_p = NULL;
  *rows_p = in->rows;
  *count_p = in->rows ? (int64_t)in->row_count : has;
  for (size_t i = 0; in->rows && i < in->row_count; i++)
    if (in->rows[i] < 0 || in->rows[i] >= has)
      REFUSE("treadle_workers_call: row %lld of %lld is asked for", (long long)in->rows[i], (long long)has);
  if (in->rows) return TREADLE_OK;
  *own_p = treadle_alloc_array((size_t)has + 1, sizeof **own_p);
  if (!*own_p)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)has);
  for (int64_t i = 0; i < has; i++) (*own_p)[i] = i;
  *rows_p = *own_p;
  return TREADLE_OK;
}

static treadle_status divide(const treadle_workers *w, const treadle_class_method *method,
                             const treadle_call_input *in, int64_t count, treadle_row_range *by_worker) {
  const int64_t workers = (int64_t)w->count;
  if (!in->by_worker && method->dispatch == TREADLE_DISPATCH_DP_COMPUTE_PROTO && count % workers)
    REFUSE("only support equal chunk: %lld rows, %lld workers", (long long)count, (long long)workers);
  for (int64_t i = 0; i < workers; i++) {
    by_worker[i] = (treadle_row_range){0, count};
    if (method->dispatch == TREADLE_DISPATCH_DP_COMPUTE_PROTO)
      by_worker[i] = (treadle_row_range){count / workers * i, count / workers * (i + 1)};
    if (in->by_worker) by_worker[i] = in->by_worker[i];
    if (by_worker[i].first < 0 || by_worker[i].end < by_worker[i].first || by_worker[i].end > count)
      REFUSE("treadle_workers_call: worker %lld gets rows %lld to %lld of %lld", (long long)i,
             (long long)by_worker[i].first, (long long)by_worker[i].end, (long long)count);
  }
  return TREADLE_OK;
}

/* ---- Calling ---- */

/* The rows of a future: runs of neighbours of one worker. room: numbers [count]. */
static void put_source(treadle_message *m, const treadle_future *f, const int64_t *rows, int64_t count,
                       int64_t *room) {
  int64_t parts = 0, run = 0;
  for (int pass = 0; pass < 2; pass++) { /* how many there are, and then they */
    if (pass) treadle_message_put_int(m, parts);
    for (int64_t i = 0; i < count; i += run) {
      size_t worker, other;
      treadle_future_place(f, rows[i], &worker, &room[0]);
      for (run = 1; i + run < count; run++) {
        treadle_future_place(f, rows[i + run], &other, &room[run]);
        if (other != worker) break;
      }
      parts += !pass;
      if (!pass) continue;
      treadle_message_put_int(m, f->answers[worker].rank);
      treadle_message_put_int(m, (int64_t)f->number);
      treadle_message_put_int(m, run);
      treadle_message_put_bytes(m, room, (size_t)run * sizeof *room);
    }
  }
}

static void put_call(const treadle_workers *w, const char *method, const treadle_call_input *in,
                     const int64_t *rows, int64_t count, int64_t *room, treadle_message *m) {
  treadle_message_clear(m);
  treadle_call_put_head(
      m, &(treadle_call_head){.kind = TREADLE_CALL_METHOD, .workers = w->number, .name = method});
  treadle_call_put_batch(m, in->batch, rows, (size_t)count);
  treadle_call_put_names(m, in->columns, in->column_count);
  treadle_message_put_int(m, (int64_t)in->future_count);
  for (size_t i = 0; i < in->future_count; i++) put_source(m, in->futures[i], rows, count, room);
}

static treadle_status start(treadle_workers *w, const treadle_class_method *method,
                            const treadle_call_input *in, treadle_future *f) {
  treadle_row_range *by_worker = treadle_alloc_array(w->count, sizeof *by_worker);
  treadle_message call = {0};
  treadle_endpoint_content *content = NULL;
  const int64_t *rows;
  int64_t has = 0, count, *own = NULL, *room = NULL;
  treadle_status status = TREADLE_OK;
  if (!by_worker) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %zu workers", w->count));
  TRY(count_rows(in, &has));
  TRY(choose_rows(in, has, &rows, &own, &count));
  TRY(divide(w, method, in, count, by_worker));
  room = treadle_alloc_array((size_t)count + 1, sizeof *room);
  if (!room)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)count));
  TRY(treadle_future_need(f, in->futures, in->future_count));
  for (size_t i = 0; i < w->count; i++) {
    const treadle_row_range r = by_worker[i];
    const bool same = i > 0 && r.first == by_worker[i - 1].first && r.end == by_worker[i - 1].end;
    if (!same) {
      treadle_endpoint_content_drop(content);
      put_call(w, method->name, in, rows + r.first, r.end - r.first, room, &call);
      (void)treadle_future_content(&call, &content);
    }
    treadle_future_start(f, i, content);
  }
out:
  treadle_endpoint_content_drop(content);
  treadle_message_release(&call);
  treadle_free(by_worker);
  treadle_free(room);
  treadle_free(own);
  return status;
}

treadle_status treadle_workers_call(treadle_workers *w, const char *method_name,
                                    const treadle_call_input *input, treadle_future **future_p) {
  treadle_call_input in;
  treadle_future *f = NULL;
  char name[TREADLE_WORKERS_NAME];
  treadle_status status;
  TREADLE_NEED(future_p);
  *future_p = NULL;
  TREADLE_NEED(w);
  TREADLE_NEED(method_name);
  TRY(treadle_crew_check_open(w->crew, __func__));
  TRY(TREADLE_TAKE(input, &in));
  TRY(check_input(w, &in));
  const treadle_class_method *method = treadle_class_find(w->class, method_name);
  if (!method) REFUSE("class '%.64s' has no method '%.64s'", w->class->name, method_name);
  treadle_workers_name(w, method_name, name);
  TRY(treadle_future_make(w->crew, w->ranks, w->count, name, &f));
  TRY(start(w, method, &in, f));
  *future_p = f;
  f = NULL;
out:
  if (f) treadle_future_drop(f);
  return status;
}
