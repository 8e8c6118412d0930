#include "infer/token_rows.h"

#include "base/alloc.h"
#include "nn/exp.h"
#include "nn/rows.h"

#include <math.h>
#include <stdatomic.h>

treadle_status treadle_token_rows_init(treadle_token_rows *rows, treadle_pass *pass, int64_t vocabulary,
                                       int64_t most, bool chooses) {
  size_t threads = (size_t)treadle_team_count(treadle_pass_team(pass));
  treadle_status status = TREADLE_OK;
  *rows = (treadle_token_rows){.pass = pass, .vocabulary = vocabulary};
  rows->items = treadle_alloc_array((size_t)most, sizeof *rows->items);
  if (chooses) rows->samplers = treadle_alloc_array(threads, sizeof *rows->samplers);
  if (!rows->items || (chooses && !rows->samplers))
    return treadle_fail(TREADLE_NO_MEMORY, "no memory to choose %lld tokens", (long long)most);
  for (size_t i = 0; chooses && i < threads; i++)
    TRY(treadle_sampler_create(vocabulary, &rows->samplers[i]));
out:
  return status;
}

void treadle_token_rows_release(treadle_token_rows *rows) {
  size_t threads = rows->samplers ? (size_t)treadle_team_count(treadle_pass_team(rows->pass)) : 0;
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

static treadle_status choose(const treadle_token_rows *rows, int32_t index, treadle_token_row *row) {
  if (!row->sample) return TREADLE_OK;
  return treadle_sample_choose(row->sample, rows->samplers[index], row->logits, &row->token);
}

static void choose_rows(void *context, int32_t index, int32_t threads) {
  choosing *w = context;
  int64_t end = w->count * (index + 1) / threads;
  for (int64_t i = w->count * index / threads; i < end; i++) {
    treadle_token_row *row = &w->rows->items[i];
    float largest;
    double sum;
    row->lse = NAN;
    if (!treadle_row_is_finite(row->logits, w->rows->vocabulary)) continue;
    if (choose(w->rows, index, row) != TREADLE_OK) {
      int64_t first = atomic_load(&w->failed);
      while (i < first && !atomic_compare_exchange_weak(&w->failed, &first, i)) {
      }
      return;
    }
    w->ops->sum_exp(row->logits, w->rows->vocabulary, row->temperature, &largest, &sum);
    row->lse = (double)largest + treadle_log(sum);
  }
}

treadle_status treadle_token_rows_run(treadle_token_rows *rows, int64_t count) {
  choosing w = {.rows = rows, .ops = treadle_row_ops_choose(), .count = count, .failed = count};
  treadle_team_run(treadle_pass_team(rows->pass), choose_rows, &w);
  int64_t failed = atomic_load(&w.failed);
  /* messages are a thread's own: the caller's has to fail itself */
  return failed < count ? choose(rows, 0, &rows->items[failed]) : TREADLE_OK;
}
