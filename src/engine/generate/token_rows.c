#include "generate/token_rows.h"

#include "base/alloc.h"
#include "base/finite.h"
#include "pass/kept.h"
#include "pass/lse_rows.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

treadle_status treadle_token_rows_init(treadle_token_rows *rows, treadle_pass *pass, int64_t vocabulary,
                                       int64_t most) {
  size_t threads = (size_t)treadle_team_count(treadle_pass_team(pass));
  treadle_status status = TREADLE_OK;
  *rows = (treadle_token_rows){.pass = pass, .vocabulary = vocabulary, .most = most};
  rows->items = treadle_alloc_array((size_t)most, sizeof *rows->items);
  rows->samplers = treadle_alloc_array(threads, sizeof *rows->samplers);
  if (!rows->items || !rows->samplers)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory to choose %lld tokens", (long long)most);
  for (size_t i = 0; i < threads; i++) TRY(treadle_sampler_create(vocabulary, &rows->samplers[i]));
out:
  return status;
}

treadle_status treadle_token_rows_draw(treadle_token_rows *rows) {
  const size_t threads = (size_t)treadle_team_count(treadle_pass_team(rows->pass));
  rows->drawn = treadle_alloc_array(threads, sizeof *rows->drawn);
  for (size_t i = 0; rows->drawn && i < threads; i++) {
    rows->drawn[i] = treadle_alloc_array((size_t)rows->vocabulary, sizeof **rows->drawn);
    if (!rows->drawn[i]) break;
    if (i == threads - 1) return TREADLE_OK;
  }
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for rows of %lld logits", (long long)rows->vocabulary);
}

void treadle_token_rows_release(treadle_token_rows *rows) {
  size_t threads = rows->samplers ? (size_t)treadle_team_count(treadle_pass_team(rows->pass)) : 0;
  for (size_t i = 0; rows->drawn && i < threads; i++) treadle_free(rows->drawn[i]);
  for (int64_t i = 0; rows->items && i < rows->most; i++) treadle_array_release(&rows->items[i].kept);
  treadle_free(rows->drawn);
  for (size_t i = 0; i < threads; i++) treadle_sampler_destroy(rows->samplers[i]);
  treadle_free(rows->samplers);
  treadle_free(rows->items);
  *rows = (treadle_token_rows){0};
}

typedef struct choosing {
  const treadle_token_rows *rows;
  const treadle_row_ops *ops;
  int64_t count;
  _Atomic int64_t failed; /* the first row that did; `count`: none */
} choosing;

/* The token, and of a cut the ids that it was drawn from. */
static treadle_status draw(const treadle_token_rows *rows, int32_t index, treadle_token_row *row) {
  treadle_candidates left;
  treadle_status status;
  row->kept.count = 0;
  TRY(treadle_sample_draw(row->sample, rows->samplers[index], row->logits, &row->token, &left));
  if (!treadle_sampling_cuts(row->sample->spec.sampling, rows->vocabulary)) return TREADLE_OK;
  for (int64_t i = 0; i < left.count; i++) TRY(treadle_array_push(&row->kept, left.ids[i]));
out:
  return status;
}

static bool is_drawn(const treadle_token_row *row) { return row->sample->spec.drawn; }

/* The row of what log-probabilities are of. */
static const float *scored_row(const treadle_token_rows *rows, int32_t index,
                               const treadle_token_row *row) {
  if (!row->sample->spec.drawn && !row->sample->spec.never_count) return row->logits;
  float *logits = rows->drawn[index];
  memcpy(logits, row->logits, (size_t)rows->vocabulary * sizeof *logits);
  if (is_drawn(row) && row->kept.count)
    treadle_kept_leave(logits, rows->vocabulary, row->kept.items, row->kept.count, row->temperature);
  else
    treadle_sample_leave_out(row->sample, logits, rows->vocabulary, row->temperature);
  return logits;
}

static treadle_status choose(const treadle_token_rows *rows, int32_t index, treadle_token_row *row) {
  if (is_drawn(row)) return draw(rows, index, row);
  return treadle_sample_choose(row->sample, rows->samplers[index], row->logits, &row->token);
}

static void choose_rows(void *context, int32_t index, int32_t threads) {
  choosing *w = context;
  int64_t end = w->count * (index + 1) / threads;
  for (int64_t i = w->count * index / threads; i < end; i++) {
    treadle_token_row *row = &w->rows->items[i];
    row->lse = NAN;
    if (!treadle_row_is_finite(row->logits, w->rows->vocabulary)) continue;
    if (choose(w->rows, index, row) != TREADLE_OK) {
      int64_t first = atomic_load(&w->failed);
      while (i < first && !atomic_compare_exchange_weak(&w->failed, &first, i)) {
      }
      return;
    }
    const float *logits = scored_row(w->rows, index, row);
    row->lse = treadle_lse_of(w->ops, logits, w->rows->vocabulary, row->temperature);
  }
}

treadle_status treadle_token_rows_run(treadle_token_rows *rows, int64_t count) {
  choosing w = {.rows = rows, .ops = treadle_row_ops_choose(), .count = count, .failed = count};
  treadle_team_run(treadle_pass_team(rows->pass), choose_rows, &w);
  int64_t failed = atomic_load(&w.failed);
  if (failed == count) return TREADLE_OK;
  /* messages are a thread's own: the caller's has to fail itself; memory that was out may be there again */
  const treadle_status status = choose(rows, 0, &rows->items[failed]);
  if (status && status != TREADLE_NO_MEMORY) return status;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory to choose %lld tokens", (long long)count);
}
