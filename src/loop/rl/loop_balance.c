/* Rows of a call, in an order in which data parallel coordinates have about equal work (control/balance_rows.h).
 *
 * Which rank has which coordinate is what the engine says of rows that give each coordinate some: as many micro batches as there are ranks. An engine
 * whose coordinates do not take rows one behind the other gets them as they come. */
#include "rl/calls_rows.h"

#include "base/alloc.h"
#include "control/balance_rows.h"
#include "rl/coordinate_tokens.h"

typedef struct balanced {
  const treadle_rl_workers *workers;
  const treadle_rl_rows_choice *c;
  const treadle_rl_rows_shares *shares;
  size_t ranks, coordinates; /* coordinates: 0: they are not known */
  int64_t *of;               /* [ranks] the coordinate of each; -1: it takes no rows */
  treadle_row_range *ranges; /* [coordinates] */
} balanced;

/* ---- Coordinates ------------------------------------------------------------------------------------------ */

/* Coordinates by what their ranks take of `rows`: ranges that are equal, or follow each other, and have all rows. end_of [rows]: zeros. */
static void number_ranks(balanced *b, const treadle_row_range *by_rank, int64_t *end_of, int64_t rows) {
  size_t ranges = 0, count = 0;
  for (size_t rank = 0; rank < b->ranks; rank++) {
    const treadle_row_range *r = &by_rank[rank];
    if (r->first == r->end) continue;
    if (end_of[r->first] && end_of[r->first] != r->end) return;
    ranges += !end_of[r->first];
    end_of[r->first] = r->end;
  }
  for (int64_t at = 0; at < rows; count++) { /* now: which coordinate begins here */
    const int64_t end = end_of[at];
    if (!end) return;
    end_of[at] = (int64_t)count;
    at = end;
  }
  if (count != ranges) return;
  for (size_t rank = 0; rank < b->ranks; rank++)
    b->of[rank] = by_rank[rank].first == by_rank[rank].end ? -1 : end_of[by_rank[rank].first];
  b->coordinates = count;
}

static treadle_status find_coordinates(balanced *b) {
  const treadle_rl_workers *w = b->workers;
  const int64_t each = b->shares->forward.micro_batch_size ? b->shares->forward.micro_batch_size : 1,
                rows = (int64_t)b->ranks * each;
  int64_t *lengths = treadle_alloc_array(2 * (size_t)rows, sizeof *lengths);
  treadle_row_range *by_rank = treadle_alloc_array(b->ranks, sizeof *by_rank);
  treadle_forward_options forward; /* those of the call */
  treadle_status status = TREADLE_OK;
  if (!lengths || !by_rank)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the coordinates of %zu ranks", b->ranks));
  for (int64_t i = 0; i < rows; i++)
    lengths[i] = b->shares->forward.max_tokens_per_micro ? b->shares->forward.max_tokens_per_micro : 1;
  TRY(w->divide(w->group.worker, b->shares->method, lengths, rows, by_rank, &forward));
  number_ranks(b, by_rank, lengths + rows, rows);
out:
  treadle_free(lengths);
  treadle_free(by_rank);
  return status;
}

/* ranges: those of by_rank. Coordinates are not known if these do not follow each other. */
static void take_ranges(balanced *b, const treadle_row_range *by_rank) {
  int64_t at = 0;
  bool follow = true;
  for (size_t rank = 0; rank < b->ranks; rank++)
    if (b->of[rank] >= 0) b->ranges[b->of[rank]] = by_rank[rank];
  for (size_t i = 0; i < b->coordinates; at = b->ranges[i].end, i++)
    follow = follow && b->ranges[i].first == at;
  if (!follow || at != (int64_t)b->c->count) b->coordinates = 0;
}

/* ---- Order ------------------------------------------------------------------------------------------------ */

/* micro_batches: by place in c->rows. */
static treadle_status add_column(const treadle_rl_rows_choice *c, const int64_t *micro_batches) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = "micro_batch", .type = TREADLE_COLUMN_INT64, .width = 1};
  treadle_column made = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_add(c->batch->columns, &column));
  TRY(treadle_batch_column(c->batch->columns, column.name, &made));
  for (size_t i = 0; i < c->count; i++) ((int64_t *)made.data)[c->rows[i]] = micro_batches[i];
out:
  return status;
}

/* ranges follow counts; c->rows follow `order`. */
static treadle_status reorder(balanced *b, int64_t *order, bool *forms_p) {
  const treadle_rl_rows_choice *c = b->c;
  int64_t *counts = treadle_alloc_array(b->coordinates, sizeof *counts), at = 0,
          *micro_batches = treadle_alloc_array(c->count, sizeof *micro_batches),
          *rows = treadle_alloc_array(c->count, sizeof *rows);
  const treadle_balance_call call = {.lengths = b->shares->lengths,
                                     .rows = c->count,
                                     .coordinates = b->coordinates,
                                     .counts = counts,
                                     .max_tokens = b->shares->forward.max_tokens_per_micro};
  treadle_status status = TREADLE_OK;
  if (!counts || !micro_batches || !rows)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the order of %zu rows", c->count));
  for (size_t i = 0; i < b->coordinates; i++) counts[i] = b->ranges[i].end - b->ranges[i].first;
  if (call.max_tokens) treadle_balance_even_counts(c->count, b->coordinates, counts);
  TRY(treadle_balance_call_rows(&call, order, micro_batches));
  for (size_t i = 0; i < c->count; i++) rows[i] = c->rows[order[i]];
  for (size_t i = 0; i < c->count; i++) c->rows[i] = rows[i];
  for (size_t i = 0; i < b->coordinates; at += counts[i], i++)
    b->ranges[i] = (treadle_row_range){at, at + counts[i]};
  if (call.max_tokens) TRY(add_column(c, micro_batches));
  *forms_p = call.max_tokens > 0;
out:
  treadle_free(counts);
  treadle_free(micro_batches);
  treadle_free(rows);
  return status;
}

/* tokens [coordinates]; order NULL: as they come. */
static void add_tokens(const balanced *b, const int64_t *order, int64_t *tokens) {
  for (size_t c = 0; c < b->coordinates; c++)
    for (int64_t i = b->ranges[c].first; i < b->ranges[c].end; i++)
      tokens[c] += b->shares->lengths[order ? order[i] : i];
}

/* ---- All -------------------------------------------------------------------------------------------------- */

/* One micro batch is one coordinate's. */
static bool is_one_micro_batch(const balanced *b) {
  return b->shares->forward.micro_batch_size && b->shares->forward.micro_batch_size >= (int64_t)b->c->count;
}

static treadle_status balance(balanced *b, int64_t *order, bool *forms_p) {
  treadle_row_range *by_rank = b->shares->by_rank;
  treadle_rl_tokens *tokens = b->workers->tokens;
  bool ordered = false;
  treadle_status status;
  TRY(find_coordinates(b));
  take_ranges(b, by_rank);
  if (!b->coordinates) goto out;
  if (tokens) TRY(treadle_rl_tokens_open(tokens, b->coordinates));
  if (tokens) add_tokens(b, NULL, tokens->came);
  if (b->workers->balances && b->coordinates > 1) {
    TRY(reorder(b, order, forms_p));
    for (size_t rank = 0; rank < b->ranks; rank++)
      if (b->of[rank] >= 0) by_rank[rank] = b->ranges[b->of[rank]];
    ordered = true;
  }
  if (tokens) add_tokens(b, ordered ? order : NULL, tokens->given);
out:
  return status;
}

treadle_status treadle_rl_balance(const treadle_rl_workers *workers, const treadle_rl_rows_choice *c,
                                  const treadle_rl_rows_shares *shares, bool *forms_p) {
  balanced b = {.workers = workers,
                .c = c,
                .shares = shares,
                .ranks = (size_t)treadle_worker_group_ranks(&workers->group)};
  int64_t *order = NULL;
  treadle_status status = TREADLE_OK;
  *forms_p = false;
  if (!workers->tokens && (!workers->balances || is_one_micro_batch(&b))) return TREADLE_OK;
  b.of = treadle_alloc_array(b.ranks, sizeof *b.of);
  b.ranges = treadle_alloc_array(b.ranks, sizeof *b.ranges); /* no more coordinates than ranks */
  order = treadle_alloc_array(c->count, sizeof *order);
  if (!b.of || !b.ranges || !order)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the order of %zu rows", c->count));
  TRY(balance(&b, order, forms_p));
out:
  treadle_free(b.of);
  treadle_free(b.ranges);
  treadle_free(order);
  return status;
}
