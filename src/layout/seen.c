/* Blocks that were seen. */
#include "layout/seen.h"

#include <string.h>

treadle_status treadle_seen_start(treadle_seen *seen, const treadle_blocks *blocks) {
  size_t bytes = (size_t)(blocks->experts * blocks->down * blocks->across);
  if (bytes > seen->capacity) {
    treadle_seen_release(seen);
    seen->blocks = treadle_alloc(bytes);
    if (!seen->blocks) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
    seen->capacity = bytes;
  }
  if (seen->high) memset(seen->blocks + seen->low, 0, seen->high - seen->low);
  seen->low = seen->high = 0;
  return TREADLE_OK;
}

void treadle_seen_release(treadle_seen *seen) {
  treadle_free(seen->blocks);
  *seen = (treadle_seen){0};
}

/* The first of some blocks, and how many they are. */
static uint8_t *row_of(const treadle_seen *seen, const treadle_blocks *b, int64_t expert, int64_t down,
                       int64_t column, int64_t columns, int64_t *count_p) {
  int64_t first = column / b->wide;
  *count_p = (column + columns - 1) / b->wide + 1 - first;
  return seen->blocks + (expert * b->down + down) * b->across + first;
}

int64_t treadle_seen_fresh(const treadle_seen *seen, const treadle_blocks *blocks, int64_t expert,
                           int64_t down, int64_t column, int64_t columns) {
  int64_t count, fresh = 0;
  const uint8_t *row = row_of(seen, blocks, expert, down, column, columns, &count);
  for (int64_t i = 0; i < count; i++) fresh += !row[i];
  return fresh;
}

int64_t treadle_seen_add(treadle_seen *seen, const treadle_blocks *blocks, int64_t expert, int64_t down,
                         int64_t column, int64_t columns) {
  int64_t count, fresh = 0;
  uint8_t *row = row_of(seen, blocks, expert, down, column, columns, &count);
  size_t first = (size_t)(row - seen->blocks), end = first + (size_t)count;
  if (!seen->high || first < seen->low) seen->low = first;
  if (end > seen->high) seen->high = end;
  for (int64_t i = 0; i < count; i++) {
    fresh += !row[i];
    row[i] = 1;
  }
  return fresh;
}

bool treadle_seen_alike(const treadle_seen *seen, const treadle_blocks *blocks, int64_t expert,
                        int64_t down, int64_t other, int64_t column, int64_t columns) {
  int64_t count;
  const uint8_t *row = row_of(seen, blocks, expert, down, column, columns, &count);
  return memcmp(row, row_of(seen, blocks, expert, other, column, columns, &count), (size_t)count) == 0;
}

int64_t treadle_seen_add_box(treadle_seen *seen, const treadle_blocks *b, const treadle_box *box) {
  int axes = b->tensor->naxes, last_column = axes - 1;
  int64_t at[TREADLE_MAX_AXES], fresh = 0, length = 1;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) at[a] = box->start[a];
  while (last_column > b->first_column && box->size[last_column] == b->tensor->axis[last_column])
    last_column--; /* columns that follow one another: steps of this axis and whole ones of those behind it */
  length = box->size[last_column] * b->weight[last_column];
  for (;;) { /* the last row axis goes by blocks */
    int64_t row = 0, column = 0;
    for (int a = b->first_row; a < axes; a++)
      *(a < b->first_column ? &row : &column) += at[a] * b->weight[a];
    fresh += treadle_seen_add(seen, b, b->first_row ? at[0] : 0, row / b->high, column, length);
    int a = last_column - 1;
    for (; a >= 0; a--) {
      at[a] += a == b->first_column - 1 ? b->high - row % b->high : 1;
      if (at[a] < box->start[a] + box->size[a]) break;
      at[a] = box->start[a];
    }
    if (a < 0) return fresh;
  }
}
