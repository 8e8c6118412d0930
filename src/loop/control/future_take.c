/* The controller takes what workers have made: out of their answers, or from where it is. */
#include "control/future.h"

#include "base/alloc.h"
#include "base/argument.h"

static treadle_status check_names(const char *const *names, size_t count) {
  if (!names && count) return treadle_refuse_null("treadle_future_take", "names");
  if (count > TREADLE_CALL_NAMES)
    REFUSE("treadle_future_take: %zu columns; %d at most are named", count, (int)TREADLE_CALL_NAMES);
  for (size_t i = 0; i < count; i++)
    if (!names[i]) REFUSE("treadle_future_take: name %zu of %zu is NULL", i, count);
  return TREADLE_OK;
}

/* Rows of a worker that its answer did not bring, and the meta that it did. */
static treadle_status fetch(treadle_future *f, const treadle_future_answer *answer,
                            const char *const *names, size_t count, treadle_batch **batch_p) {
  int64_t *rows = treadle_alloc_array((size_t)answer->rows + 1, sizeof *rows);
  treadle_crew_rows asked = {.rank = answer->rank,
                             .call = f->number,
                             .rows = rows,
                             .count = (size_t)answer->rows,
                             .names = names,
                             .name_count = count};
  treadle_crew_request *request;
  treadle_status status = TREADLE_OK;
  if (!rows)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)answer->rows));
  for (int64_t i = 0; i < answer->rows; i++) rows[i] = i;
  TRY(treadle_request_send(f->crew, &asked, &request));
  TRY(treadle_request_wait(f->crew, &asked, request, batch_p));
  TRY(treadle_batch_union(*batch_p, answer->made));
out:
  treadle_free(rows);
  return status;
}

static treadle_status take_of(treadle_future *f, size_t worker, const char *const *names, size_t count,
                              treadle_batch **batch_p) {
  const treadle_future_answer *answer = &f->answers[worker];
  treadle_status status;
  *batch_p = NULL;
  if (!answer->whole) TRY(treadle_crew_check_open(f->crew, "treadle_future_take"));
  if (!answer->whole)
    TRY(fetch(f, answer, names, count, batch_p));
  else if (names)
    TRY(treadle_batch_select(answer->made, names, count, batch_p));
  else
    TRY(treadle_batch_slice(answer->made, 0, answer->rows, batch_p));
out:
  if (status) {
    treadle_batch_destroy(*batch_p);
    *batch_p = NULL;
    (void)treadle_fail_in(status, "worker %zu of %zu of %s: ", worker, f->count, f->name);
  }
  return status;
}

treadle_status treadle_future_take_of(treadle_future *f, int64_t worker, const char *const *names,
                                      size_t count, treadle_batch **batch_p) {
  treadle_status status;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(f);
  TRY(check_names(names, count));
  if (worker < 0 || (size_t)worker >= f->count)
    REFUSE("treadle_future_take_of: worker %lld of %zu", (long long)worker, f->count);
  TRY(treadle_future_wait(f));
  TRY(take_of(f, (size_t)worker, names, count, batch_p));
out:
  return status;
}

treadle_status treadle_future_take(treadle_future *f, const char *const *names, size_t count,
                                   treadle_batch **batch_p) {
  treadle_batch **parts = NULL;
  treadle_status status;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(f);
  TRY(check_names(names, count));
  TRY(treadle_future_wait(f));
  parts = treadle_alloc_array(f->count, sizeof *parts);
  if (!parts) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %zu workers", f->count));
  for (size_t i = 0; i < f->count; i++) TRY(take_of(f, i, names, count, &parts[i]));
  if (f->count > 1)
    TRY(treadle_batch_concat((const treadle_batch *const *)parts, f->count, batch_p));
  else {
    *batch_p = parts[0];
    parts[0] = NULL;
  }
out:
  for (size_t i = 0; parts && i < f->count; i++) treadle_batch_destroy(parts[i]);
  treadle_free(parts);
  return status;
}
