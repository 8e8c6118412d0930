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

treadle_context_heads treadle_context_heads_of(const treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  const int64_t keys = p->heads.count / p->context.ranks * d->head_dim,
                kv = p->heads.kv_count / p->context.ranks;
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
  if (p->heads.kv_count % ranks == 0 && p->heads.count % ranks == 0) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "%s: %d context parallel (Ulysses) ranks divide the heads among them, and a rank has %lld "
      "query heads and %lld key and value heads, of %lld and %lld; take a number that divides both",
      d->model->path, ranks, (long long)p->heads.count, (long long)p->heads.kv_count, (long long)d->heads,
      (long long)d->kv_heads);
}

/* Columns that go together from one form of a row to the other; of member m they begin at `own` + m * count. */
typedef struct column_run {
  int64_t own, all, count;
} column_run;

enum { RUNS = 3 };

typedef struct column_runs {
  column_run runs[RUNS];
  int count;
  int64_t all; /* columns of a row with this rank's heads */
} column_runs;

static column_runs columns_of_heads(const treadle_pass *p) {
  const treadle_context_heads mine = treadle_context_heads_of(p);
  const int64_t ranks = p->context.ranks;
  return (column_runs){.runs = {{0, 0, mine.keys},
                                {ranks * mine.keys, mine.keys, mine.values - mine.keys},
                                {ranks * mine.values, mine.values, mine.columns - mine.values}},
                       .count = 3,
                       .all = mine.columns};
}

static column_runs columns_of_found(const treadle_pass *p) {
  const int64_t all = p->attention.heads * p->transformer->value_dim;
  return (column_runs){.runs = {{0, 0, all}}, .count = 1, .all = all};
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
  const int64_t row_columns = w->columns.all * c->ranks;
  for (int32_t m = 0; m < c->ranks; m++) {
    const treadle_row_range span = rows_now(w, m);
    const int64_t rows = span.end - span.first;
    int64_t theirs;
    const float *from = treadle_parallel_slot(c->exchange, m, &theirs);
    for (int64_t r = rows * index / count; r < rows * (index + 1) / count; r++)
      for (int i = 0; i < w->columns.count; i++) {
        const column_run *run = &w->columns.runs[i];
        memcpy(w->all_to + (span.first + r) * w->columns.all + run->all,
               from + r * row_columns + run->own + c->index * run->count,
               (size_t)run->count * sizeof *from);
      }
  }
}

static treadle_status spread(exchanging *w) {
  const treadle_pass_context *c = &w->pass->context;
  const int64_t begin = treadle_context_span(w->rows, c->ranks, c->index).first,
                row_columns = w->columns.all * c->ranks;
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
        memcpy(w->own_to + (span.first - begin + r) * w->own_columns + run->own + m * run->count,
               from + r * w->columns.all + run->all, (size_t)run->count * sizeof *from);
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
