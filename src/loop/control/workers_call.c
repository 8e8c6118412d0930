/* Calls of methods: which rows each worker gets, and where it finds those that other ranks have. */
#include "control/workers.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"

/* ---- Rows of a call ---- */

static treadle_status check_list(const treadle_workers *w, const treadle_class_method *method,
                                 const treadle_call_input *in) {
  if (!in->list) return TREADLE_OK;
  if (method->dispatch != TREADLE_DISPATCH_ALL_TO_ALL && method->dispatch != TREADLE_DISPATCH_DP_COMPUTE)
    REFUSE(
        "treadle_workers_call: a list of batches goes to methods of ALL_TO_ALL and DP_COMPUTE; '%.64s' is "
        "neither",
        method->name);
  if (in->list_count != w->count)
    REFUSE("treadle_workers_call: a list of %zu batches for %zu workers", in->list_count, w->count);
  for (size_t i = 0; i < in->list_count; i++)
    if (!in->list[i]) return treadle_refuse_null("treadle_workers_call", "input->list");
  if (in->batch || in->future_count || in->rows || in->by_worker)
    REFUSE("treadle_workers_call: a list of batches goes without a batch, futures, rows and by_worker");
  return TREADLE_OK;
}

static treadle_status check_input(const treadle_workers *w, const treadle_call_input *in) {
  if (in->list_count && !in->list) return treadle_refuse_null("treadle_workers_call", "input->list");
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

treadle_status treadle_call_choose(const treadle_call_input *in, int64_t has,
                                   const treadle_dispatch_info *info, treadle_call_choice *c) {
  const size_t all = (size_t)(c->count + info->padding);
  c->rows = treadle_alloc_array(all + 1, sizeof *c->rows);
  c->room = treadle_alloc_array(all + 1, sizeof *c->room);
  if (!c->rows || !c->room)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %zu rows", all);
  for (int64_t i = 0; i < c->count; i++) {
    c->rows[i] = in->rows ? in->rows[i] : i;
    if (c->rows[i] < 0 || (has >= 0 && c->rows[i] >= has))
      REFUSE("treadle_workers_call: row %lld of %lld is asked for", (long long)c->rows[i], (long long)has);
  }
  for (int64_t i = 0; i < info->padding; i++) c->rows[c->count + i] = c->rows[info->pad_row];
  return TREADLE_OK;
}

/* ---- Who gets which ---- */

/* One batch that all methods take; a list where there are several; and in front of it a function, where its meta names one. */
treadle_status treadle_workers_divide(const treadle_workers *w, const treadle_class_method *method,
                                      const treadle_call_input *in, int64_t count,
                                      treadle_dispatch **dispatch_p) {
  const bool function = in->batch && treadle_batch_meta(in->batch, "function");
  const treadle_dispatch_argument arguments[] = {{TREADLE_ARGUMENT_FUNCTION, 0},
                                                 {in->list ? TREADLE_ARGUMENT_LIST : TREADLE_ARGUMENT_BATCH,
                                                  in->list ? (int64_t)in->list_count : count}};
  return treadle_call_divide(method, (int32_t)w->count, w->meshes, arguments + !function,
                             1 + (size_t)function, dispatch_p);
}

/* By the caller. */
treadle_status treadle_workers_check_ranges(const treadle_workers *w, const treadle_row_range *by_worker,
                                            int64_t count) {
  for (size_t i = 0; i < w->count; i++)
    if (by_worker[i].first < 0 || by_worker[i].end < by_worker[i].first || by_worker[i].end > count)
      REFUSE("treadle_workers_call: worker %zu gets rows %lld to %lld of %lld", i,
             (long long)by_worker[i].first, (long long)by_worker[i].end, (long long)count);
  return TREADLE_OK;
}

treadle_call_given treadle_call_given_to(const treadle_future *f, const treadle_call_input *in,
                                         size_t worker, int64_t count) {
  treadle_call_given g = {.batch = in->batch, .rows = {0, count}, .runs = true};
  treadle_dispatch_share share;
  if (in->by_worker) g.rows = in->by_worker[worker];
  if (!f->dispatch) return g;
  (void)treadle_dispatch_get_share(f->dispatch, (int32_t)worker, &share);
  g.runs = share.runs;
  if (in->list) {
    g.batch = in->list[worker];
    g.rows = (treadle_row_range){0, treadle_batch_rows(g.batch)};
  } else if (!share.whole)
    g.rows = share.rows;
  return g;
}

/* ---- Calling ---- */

static void put_part(treadle_message *m, const treadle_future *f, size_t worker, const int64_t *rows,
                     int64_t count) {
  treadle_message_put_int(m, f->answers[worker].rank);
  treadle_message_put_int(m, (int64_t)f->number);
  treadle_message_put_int(m, count);
  treadle_message_put_bytes(m, rows, (size_t)count * sizeof *rows);
}

/* Columns without rows, of the first worker that has some. */
static void put_no_rows(treadle_message *m, const treadle_future *f) {
  size_t worker = 0;
  while (worker < f->count && !(f->answers[worker].made && treadle_future_collects(f, worker))) worker++;
  treadle_message_put_int(m, worker < f->count);
  if (worker < f->count) put_part(m, f, worker, NULL, 0);
}

/* The rows of a future: runs of neighbours of one worker. room: numbers [count]. */
static void put_source(treadle_message *m, const treadle_future *f, const int64_t *rows, int64_t count,
                       int64_t *room) {
  int64_t parts = 0, run = 0;
  if (!count) {
    put_no_rows(m, f);
    return;
  }
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
      if (pass) put_part(m, f, worker, room, run);
    }
  }
}

/* Gives the bytes of rows in it. */
static size_t put_call(const treadle_workers *w, const char *method, const treadle_call_input *in,
                       const treadle_call_given *g, const int64_t *rows, int64_t *room,
                       treadle_message *m) {
  const int64_t count = g->rows.end - g->rows.first, *own = in->list ? NULL : rows + g->rows.first;
  treadle_message_clear(m);
  treadle_call_put_head(
      m, &(treadle_call_head){.kind = TREADLE_CALL_METHOD, .workers = w->number, .name = method});
  const size_t bytes = treadle_call_put_batch(m, g->batch, own, (size_t)count);
  treadle_call_put_names(m, in->columns, in->column_count);
  treadle_message_put_int(m, (int64_t)in->future_count);
  for (size_t i = 0; i < in->future_count; i++) put_source(m, in->futures[i], own, count, room);
  return bytes;
}

/* rows [count, and padding]. A message that several workers get is made once. */
static void send_all(const treadle_workers *w, const char *method, const treadle_call_input *in,
                     const treadle_call_choice *rows, treadle_future *f) {
  treadle_endpoint_content *content = NULL;
  treadle_message call = {0};
  treadle_call_given last = {0};
  size_t bytes = 0;
  for (size_t i = 0; i < w->count; i++) {
    const treadle_call_given g = treadle_call_given_to(f, in, i, rows->count);
    if (!g.runs) {
      treadle_future_skip(f, i);
      continue;
    }
    if (!content || g.batch != last.batch || memcmp(&g.rows, &last.rows, sizeof g.rows) != 0) {
      treadle_endpoint_content_drop(content);
      bytes = put_call(w, method, in, &g, rows->rows, rows->room, &call);
      (void)treadle_future_content(&call, &content);
    }
    last = g;
    w->crew->books.row_bytes += content ? (int64_t)bytes : 0;
    treadle_future_start(f, i, content);
  }
  treadle_endpoint_content_drop(content);
  treadle_message_release(&call);
}

static treadle_status start(treadle_workers *w, const treadle_class_method *method,
                            const treadle_call_input *in, treadle_future *f) {
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  treadle_call_choice rows = {0};
  int64_t has = 0;
  treadle_status status;
  TRY(count_rows(in, &has));
  rows.count = in->rows ? (int64_t)in->row_count : has;
  if (in->by_worker)
    TRY(treadle_workers_check_ranges(w, in->by_worker, rows.count));
  else {
    TRY(treadle_workers_divide(w, method, in, rows.count, &f->dispatch));
    TRY(treadle_dispatch_get_info(f->dispatch, &info));
  }
  TRY(treadle_call_choose(in, has, &info, &rows));
  TRY(treadle_future_need(f, in->futures, in->future_count));
  send_all(w, method->name, in, &rows, f);
out:
  treadle_free(rows.rows);
  treadle_free(rows.room);
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
  TRY(check_list(w, method, &in));
  treadle_workers_name(w, method_name, name);
  TRY(treadle_future_make(w->crew, w->ranks, w->count, name, &f));
  status = treadle_call_is_late(method, &in) ? treadle_workers_start_late(w, method, &in, f)
                                             : start(w, method, &in, f);
  if (status) {
    treadle_future_drop(f);
    return status;
  }
  if (method->blocking) status = treadle_future_wait(f);
  if (status)
    treadle_future_destroy(f);
  else
    *future_p = f;
out:
  return status;
}
