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
  treadle_batch *came = NULL;
  treadle_status status = TREADLE_OK;
  if (!rows)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)answer->rows));
  for (int64_t i = 0; i < answer->rows; i++) rows[i] = i;
  TRY(treadle_request_send(f->crew, &asked, &request));
  TRY(treadle_request_wait(f->crew, &asked, request, &came));
  TRY(treadle_batch_union(came, answer->made));
  if (names) /* one that is not there is refused */
    TRY(treadle_batch_select(came, names, count, batch_p));
  else {
    *batch_p = came;
    came = NULL;
  }
out:
  treadle_batch_destroy(came);
  treadle_free(rows);
  return status;
}

static treadle_status take_of(treadle_future *f, size_t worker, const char *const *names, size_t count,
                              treadle_batch **batch_p) {
  const treadle_future_answer *answer = &f->answers[worker];
  treadle_status status;
  *batch_p = NULL;
  if (!answer->made) REFUSE("worker %zu of %zu of %s did not run it", worker, f->count, f->name);
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

/* ---- What comes back ---- */

/* Of all workers from which results are collected: results [count], NULL for the others. */
static treadle_status take_results(treadle_future *f, const char *const *names, size_t count,
                                   treadle_batch ***results_p) {
  treadle_status status;
  *results_p = NULL;
  TRY(treadle_future_wait(f));
  *results_p = treadle_alloc_array(f->count, sizeof(**results_p));
  if (!*results_p) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %zu workers", f->count));
  for (size_t i = 0; i < f->count; i++)
    if (treadle_future_collects(f, i)) TRY(take_of(f, i, names, count, &(*results_p)[i]));
out:
  return status;
}

static void drop_results(const treadle_future *f, treadle_batch **results) {
  for (size_t i = 0; results && i < f->count; i++) treadle_batch_destroy(results[i]);
  treadle_free(results);
}

/* A call that was divided by the caller, by_worker, has one batch. */
static treadle_status collect(const treadle_future *f, treadle_batch **results, treadle_batch **collected,
                              int32_t *count_p) {
  treadle_status status;
  if (f->dispatch)
    return treadle_dispatch_collect(f->dispatch, (const treadle_batch *const *)results, collected, count_p);
  status = treadle_batch_concat((const treadle_batch *const *)results, f->count, &collected[0]);
  *count_p = !status;
  return status;
}

static bool is_list(const treadle_future *f) {
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  if (f->dispatch) (void)treadle_dispatch_get_info(f->dispatch, &info);
  return info.list;
}

treadle_status treadle_future_take(treadle_future *f, const char *const *names, size_t count,
                                   treadle_batch **batch_p) {
  treadle_batch **results = NULL, **collected = NULL;
  int32_t made = 0;
  treadle_status status;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(f);
  TRY(check_names(names, count));
  if (is_list(f))
    REFUSE("treadle_future_take: the results of %s are a list: treadle_future_take_list", f->name);
  TRY(take_results(f, names, count, &results));
  collected = treadle_alloc_array(f->count, sizeof *collected);
  if (!collected) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %zu workers", f->count));
  TRY(collect(f, results, collected, &made));
  if (made != 1) REFUSE("treadle_future_take: the results of %s are %d batches", f->name, made);
  *batch_p = collected[0];
  made = 0;
out:
  for (int32_t i = 0; i < made; i++) treadle_batch_destroy(collected[i]);
  treadle_free(collected);
  drop_results(f, results);
  return status;
}

treadle_status treadle_future_take_list(treadle_future *f, treadle_batch **batches, size_t *count_p) {
  treadle_batch **results = NULL;
  treadle_status status;
  TREADLE_NEED(count_p);
  *count_p = 0;
  TREADLE_NEED(batches);
  TREADLE_NEED(f);
  TRY(take_results(f, NULL, 0, &results));
  for (size_t i = 0; i < f->count; i++) {
    if (!results[i]) continue;
    batches[(*count_p)++] = results[i];
    results[i] = NULL;
  }
out:
  drop_results(f, results);
  return status;
}
