/* All-to-all between rows and heads, TREADLE_CONTEXT_ROWS rows of each rank at a time. A rank writes what it has, and
 * each reads what it wants in place: one way, columns of all the rows at hand; the other way, the rows that are its
 * own, of which the sender has some columns.
 *
 * A step of 0 rows on a rank takes part like any other: all ranks make as many meetings as the one with the most rows
 * needs. */
#include "base/larger.h"
#include "pass/pass_steps.h"

#include <string.h>

/* ---- Rows ---------------------------------------------------------------------------------------------- */

static int64_t leaves_of(int64_t rows) { return (rows + TREADLE_CONTEXT_LEAF - 1) / TREADLE_CONTEXT_LEAF; }

treadle_row_range treadle_context_span(int64_t rows, int32_t ranks, int32_t index) {
  const int64_t leaves = leaves_of(rows);
  treadle_row_range span = {leaves * index / ranks * TREADLE_CONTEXT_LEAF,
                            leaves * (index + 1) / ranks * TREADLE_CONTEXT_LEAF};
  if (span.first > rows) span.first = rows;
  if (span.end > rows) span.end = rows;
  return span;
}

int64_t treadle_context_most(int64_t rows, int32_t ranks) {
  return ranks > 1 ? (leaves_of(rows) + ranks - 1) / ranks * TREADLE_CONTEXT_LEAF : rows;
}

int64_t treadle_context_all_rows(const treadle_pass_step *step) {
  int64_t rows = 0;
  for (int32_t s = 0; s < step->stretch_count; s++) rows += step->stretches[s].rows;
  return rows;
}

/* ---- Heads --------------------------------------------------------------------------------------------- */

int64_t treadle_context_kv_heads(const treadle_pass *p) {
  return treadle_larger(p->heads.kv_count / p->context.ranks, 1);
}

treadle_context_heads treadle_context_heads_of(const treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  const int64_t keys = p->heads.count / p->context.ranks * d->head_dim, kv = treadle_context_kv_heads(p);
  return (treadle_context_heads){
      .keys = keys, .values = keys + kv * d->head_dim, .columns = keys + kv * (d->head_dim + d->value_dim)};
}

treadle_status treadle_context_check_heads(const treadle_pass *p) {
  const int32_t ranks = p->context.ranks;
  const treadle_transformer *d = p->transformer;
  if (ranks == 1) return TREADLE_OK;
  if (d->attention == TREADLE_ATTENTION_MLA)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: latent attention does not go with context parallel ranks (%d)", d->model->path,
                        ranks);
  const bool repeats = p->options.fast && ranks % p->heads.kv_count == 0;
  if (p->heads.count % ranks == 0 && (p->heads.kv_count % ranks == 0 || repeats)) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "%s: %d context parallel (Ulysses) ranks divide the heads among them, and a rank has %lld "
      "query heads and %lld key and value heads, of %lld and %lld; take a number that divides both, or, with "
      "exact: false, one that divides query heads and is a multiple of the others, which are repeated",
      d->model->path, ranks, (long long)p->heads.count, (long long)p->heads.kv_count, (long long)d->heads,
      (long long)d->kv_heads);
}

/* Columns that go together from one form of a row to the other. Of `shares` in a whole row, from `own` on, each rank has one; several
 * have the same if there are fewer than ranks. */
typedef struct column_run {
  int64_t own, all, count, shares;
} column_run;

enum { RUNS = 3 };

typedef struct column_runs {
  column_run runs[RUNS];
  int count;
  int64_t own, all; /* columns of a whole row; of one with this rank's heads */
} column_runs;

/* Where a rank's share begins in a whole row; is it the first with this share? */
static int64_t begin_of(const column_run *run, int32_t member, int32_t ranks) {
  return run->own + member * run->shares / ranks * run->count;
}

static bool is_first(const column_run *run, int32_t member, int32_t ranks) {
  return member == 0 || begin_of(run, member, ranks) != begin_of(run, member - 1, ranks);
}

static column_runs columns_of_heads(const treadle_pass *p) {
  const treadle_context_heads mine = treadle_context_heads_of(p);
  const int64_t ranks = p->context.ranks, shares = p->heads.kv_count / treadle_context_kv_heads(p),
                queries = mine.keys, keys = mine.values - mine.keys, values = mine.columns - mine.values;
  return (column_runs){.runs = {{0, 0, queries, ranks},
                                {ranks * queries, mine.keys, keys, shares},
                                {ranks * queries + shares * keys, mine.values, values, shares}},
                       .count = 3,
                       .own = ranks * queries + shares * (keys + values),
                       .all = mine.columns};
}

static column_runs columns_of_found(const treadle_pass *p) {
  const int64_t all = p->attention.heads * p->transformer->value_dim, ranks = p->context.ranks;
  return (column_runs){.runs = {{0, 0, all, ranks}}, .count = 1, .own = ranks * all, .all = all};
}

int64_t treadle_context_room(const treadle_pass *p) {
  const int64_t rows = treadle_context_most(p->options.most_all_rows, p->context.ranks);
  const int64_t all = treadle_larger(columns_of_heads(p).all, columns_of_found(p).all);
  return (rows < TREADLE_CONTEXT_ROWS ? rows : TREADLE_CONTEXT_ROWS) * p->context.ranks * all;
}

/* ---- All-to-all ---------------------------------------------------------------------------------------- */

typedef struct exchanging {
  const treadle_pass *pass;
  column_runs columns;
  int64_t rows, first, most; /* of the step; which rows of each rank are brought, of at most this many */
  const float *own_from, *all_from;
  float *own_to, *all_to;
  int64_t own_columns;
} exchanging;

/* The rows of a member that are brought now, in the step. */
static treadle_row_range rows_now(const exchanging *w, int32_t member) {
  treadle_row_range span = treadle_context_span(w->rows, w->pass->context.ranks, member);
  if (span.end > span.first + w->first + w->most) span.end = span.first + w->first + w->most;
  span.first += w->first;
  if (span.first > span.end) span.first = span.end;
  return span;
}

static treadle_status meet(const exchanging *w, int64_t rows, int64_t row_columns) {
  const treadle_pass_context *c = &w->pass->context;
  const treadle_exchange_part part = treadle_exchange_slot(c->ranks, c->index, true, rows, row_columns);
  return treadle_parallel_slots(c->exchange, &part, "rows and heads of context parallel ranks");
}

/* A thread copies some rows of each member. */
static void take_columns(void *context, int32_t index, int32_t count) {
  const exchanging *w = context;
  const treadle_pass_context *c = &w->pass->context;
  const int64_t row_columns = w->columns.own;
  for (int32_t m = 0; m < c->ranks; m++) {
    const treadle_row_range span = rows_now(w, m);
    const int64_t rows = span.end - span.first;
    int64_t theirs;
    const float *from = treadle_parallel_slot(c->exchange, m, &theirs);
    for (int64_t r = rows * index / count; r < rows * (index + 1) / count; r++)
      for (int i = 0; i < w->columns.count; i++) {
        const column_run *run = &w->columns.runs[i];
        memcpy(w->all_to + (span.first + r) * w->columns.all + run->all,
               from + r * row_columns + begin_of(run, c->index, c->ranks),
               (size_t)run->count * sizeof *from);
      }
  }
}

static treadle_status spread(exchanging *w) {
  const treadle_pass_context *c = &w->pass->context;
  const int64_t begin = treadle_context_span(w->rows, c->ranks, c->index).first,
                row_columns = w->columns.own;
  treadle_status status = TREADLE_OK;
  for (w->first = 0; w->first < treadle_context_most(w->rows, c->ranks); w->first += w->most) {
    const treadle_row_range span = rows_now(w, c->index);
    float *room = treadle_exchange_room(c->exchange);
    for (int64_t r = span.first; r < span.end; r++)
      memcpy(room + (r - span.first) * row_columns, w->own_from + (r - begin) * w->own_columns,
             (size_t)row_columns * sizeof *room);
    TRY(meet(w, span.end - span.first, row_columns));
    treadle_team_run(w->pass->team, take_columns, w);
  }
out:
  return status;
}

/* What ranks with the same share have becomes its sum. */
static void join_columns(const treadle_pass *p, const column_run *run, int32_t member, float *to,
                         const float *from) {
  if (is_first(run, member, p->context.ranks))
    memcpy(to, from, (size_t)run->count * sizeof *to);
  else
    p->row_ops->add(to, from, TREADLE_FP32, run->count);
}

/* Rows that a member wants begin at `most` rows behind those of the member before. */
static void take_rows(void *context, int32_t index, int32_t count) {
  const exchanging *w = context;
  const treadle_pass_context *c = &w->pass->context;
  const treadle_row_range span = rows_now(w, c->index);
  const int64_t begin = treadle_context_span(w->rows, c->ranks, c->index).first,
                rows = span.end - span.first;
  for (int32_t m = 0; m < c->ranks; m++) {
    int64_t theirs;
    const float *from =
        treadle_parallel_slot(c->exchange, m, &theirs) + c->index * w->most * w->columns.all;
    for (int64_t r = rows * index / count; r < rows * (index + 1) / count; r++)
      for (int i = 0; i < w->columns.count; i++) {
        const column_run *run = &w->columns.runs[i];
        join_columns(w->pass, run, m,
                     w->own_to + (span.first - begin + r) * w->own_columns + begin_of(run, m, c->ranks),
                     from + r * w->columns.all + run->all);
      }
  }
}

static treadle_status collect(exchanging *w) {
  const treadle_pass_context *c = &w->pass->context;
  treadle_status status = TREADLE_OK;
  for (w->first = 0; w->first < treadle_context_most(w->rows, c->ranks); w->first += w->most) {
    float *room = treadle_exchange_room(c->exchange);
    for (int32_t m = 0; m < c->ranks; m++) {
      const treadle_row_range span = rows_now(w, m);
      memcpy(room + m * w->most * w->columns.all, w->all_from + span.first * w->columns.all,
             (size_t)((span.end - span.first) * w->columns.all) * sizeof *room);
    }
    TRY(meet(w, c->ranks * w->most, w->columns.all));
    treadle_team_run(w->pass->team, take_rows, w);
  }
out:
  return status;
}

static exchanging exchanging_of(const treadle_pass *p, const treadle_pass_step *step, column_runs columns,
                                int64_t own_columns) {
  exchanging w = {
      .pass = p, .columns = columns, .rows = treadle_context_all_rows(step), .own_columns = own_columns};
  w.most = treadle_context_most(w.rows, p->context.ranks);
  if (w.most > TREADLE_CONTEXT_ROWS) w.most = TREADLE_CONTEXT_ROWS;
  return w;
}

treadle_status treadle_context_spread_heads(const treadle_pass *p, const treadle_pass_step *step,
                                            const float *own, int64_t own_columns, float *all) {
  exchanging w = exchanging_of(p, step, columns_of_heads(p), own_columns);
  w.own_from = own;
  w.all_to = all;
  return spread(&w);
}

treadle_status treadle_context_collect_heads(const treadle_pass *p, const treadle_pass_step *step,
                                             const float *all, float *own, int64_t own_columns) {
  exchanging w = exchanging_of(p, step, columns_of_heads(p), own_columns);
  w.all_from = all;
  w.own_to = own;
  return collect(&w);
}

treadle_status treadle_context_spread_found(const treadle_pass *p, const treadle_pass_step *step,
                                            const float *own, int64_t own_columns, float *all) {
  exchanging w = exchanging_of(p, step, columns_of_found(p), own_columns);
  w.own_from = own;
  w.all_to = all;
  return spread(&w);
}

treadle_status treadle_context_collect_found(const treadle_pass *p, const treadle_pass_step *step,
                                             const float *all, float *own, int64_t own_columns) {
  exchanging w = exchanging_of(p, step, columns_of_found(p), own_columns);
  w.all_from = all;
  w.own_to = own;
  return collect(&w);
}
