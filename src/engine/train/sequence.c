/* Sequence parallel: of the residual stream, whose rows the tensor parallel ranks would all have, each keeps its own, and goes backward
 * through norms with these alone. Rows are divided between leaves of tokens, so sums over tokens do not see it. What multiplies matrices is
 * brought together first. */
#include "train/sequence.h"

#include <string.h>

static int64_t leaves_of(int64_t rows) { return (rows + TREADLE_TOKEN_LEAF - 1) / TREADLE_TOKEN_LEAF; }

static treadle_row_range rows_of(const treadle_back *back, int64_t rows, int member) {
  return treadle_context_span(rows, back->pass->ranks.stage->count, member);
}

bool treadle_train_divides_rows(const treadle_back *back) {
  return back->sequence_parallel && back->pass->ranks.within;
}

treadle_row_range treadle_train_own_rows(const treadle_back *back, int64_t rows) {
  if (!treadle_train_divides_rows(back)) return (treadle_row_range){0, rows};
  return rows_of(back, rows, back->pass->ranks.stage->index);
}

int64_t treadle_train_most_own_rows(const treadle_back *back, int64_t ranks) {
  return back->sequence_parallel ? treadle_context_most(back->rows, (int32_t)ranks) : back->rows;
}

treadle_status treadle_train_gather_rows(const treadle_back *back, const float *own, int64_t rows,
                                         float *to, const char *what) {
  treadle_exchange *within = back->pass->ranks.within;
  const treadle_board_set *stage = back->pass->ranks.stage;
  const treadle_row_range mine = treadle_train_own_rows(back, rows);
  const int64_t hidden = back->transformer->hidden;
  const treadle_exchange_part part =
      treadle_exchange_slot(stage->count, stage->index, true, mine.end - mine.first, hidden);
  int64_t theirs;
  treadle_status status;
  memcpy(treadle_exchange_room(within), own, (size_t)((mine.end - mine.first) * hidden) * sizeof *own);
  TRY(treadle_parallel_slots(within, &part, what));
  for (int m = 0; m < stage->count; m++) {
    const float *from = treadle_parallel_slot(within, m, &theirs);
    memcpy(to + rows_of(back, rows, m).first * hidden, from, (size_t)(theirs * hidden) * sizeof *to);
  }
out:
  return status;
}

treadle_status treadle_train_gather_leaves(const treadle_back *back, int64_t rows, int64_t columns) {
  treadle_exchange *within = back->pass->ranks.within;
  const treadle_row_range mine = treadle_train_own_rows(back, rows);
  const treadle_exchange_part part = {.of = leaves_of(rows),
                                      .first = leaves_of(mine.first),
                                      .end = leaves_of(mine.end),
                                      .rows = 1,
                                      .columns = columns};
  float *parts = back->buffers.parts;
  int64_t one;
  treadle_status status;
  memcpy(treadle_exchange_room(within), parts + part.first * columns,
         (size_t)((part.end - part.first) * columns) * sizeof *parts);
  TRY(treadle_parallel_slots(within, &part, "gradients of norms"));
  for (int64_t leaf = 0; leaf < part.of; leaf++)
    memcpy(parts + leaf * columns, treadle_parallel_slot(within, leaf, &one),
           (size_t)columns * sizeof *parts);
out:
  return status;
}
