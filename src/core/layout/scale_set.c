/* The set of blocks whose scales were counted. */
#include "layout/scale_set.h"

#include <string.h>

treadle_status treadle_scale_set_start(treadle_scale_set *scale_set, const treadle_blocks *blocks) {
  size_t bytes = (size_t)(blocks->experts * blocks->down * blocks->across);
  if (bytes > scale_set->capacity) {
    treadle_scale_set_release(scale_set);
    scale_set->blocks = treadle_alloc(bytes);
    if (!scale_set->blocks) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
    scale_set->capacity = bytes;
  }
  if (scale_set->high) memset(scale_set->blocks + scale_set->low, 0, scale_set->high - scale_set->low);
  scale_set->low = scale_set->high = 0;
  return TREADLE_OK;
}

void treadle_scale_set_release(treadle_scale_set *scale_set) {
  treadle_free(scale_set->blocks);
  *scale_set = (treadle_scale_set){0};
}

/* The first of some blocks, and how many they are. */
static uint8_t *row_of(const treadle_scale_set *scale_set, const treadle_blocks *b, int64_t expert,
                       int64_t down, int64_t column, int64_t columns, int64_t *count_p) {
  int64_t first = column / b->wide;
  *count_p = (column + columns - 1) / b->wide + 1 - first;
  return scale_set->blocks + (expert * b->down + down) * b->across + first;
}

int64_t treadle_scale_set_fresh(const treadle_scale_set *scale_set, const treadle_blocks *blocks,
                                int64_t expert, int64_t down, int64_t column, int64_t columns) {
  int64_t count, fresh = 0;
  const uint8_t *row = row_of(scale_set, blocks, expert, down, column, columns, &count);
  for (int64_t i = 0; i < count; i++) fresh += !row[i];
  return fresh;
}

int64_t treadle_scale_set_add(treadle_scale_set *scale_set, const treadle_blocks *blocks, int64_t expert,
                              int64_t down, int64_t column, int64_t columns) {
  int64_t count, fresh = 0;
  uint8_t *row = row_of(scale_set, blocks, expert, down, column, columns, &count);
  size_t first = (size_t)(row - scale_set->blocks), end = first + (size_t)count;
  if (!scale_set->high || first < scale_set->low) scale_set->low = first;
  if (end > scale_set->high) scale_set->high = end;
  for (int64_t i = 0; i < count; i++) {
    fresh += !row[i];
    row[i] = 1;
  }
  return fresh;
}

bool treadle_scale_set_equal(const treadle_scale_set *scale_set, const treadle_blocks *blocks,
                             int64_t expert, int64_t down, int64_t other, int64_t column, int64_t columns) {
  int64_t count;
  const uint8_t *row = row_of(scale_set, blocks, expert, down, column, columns, &count);
  return memcmp(row, row_of(scale_set, blocks, expert, other, column, columns, &count), (size_t)count) == 0;
}

int64_t treadle_scale_set_add_box(treadle_scale_set *scale_set, const treadle_blocks *b,
                                  const treadle_box *box) {
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
    fresh += treadle_scale_set_add(scale_set, b, b->first_row ? at[0] : 0, row / b->high, column, length);
    int a = last_column - 1;
    for (; a >= 0; a--) {
      at[a] += a == b->first_column - 1 ? b->high - row % b->high : 1;
      if (at[a] < box->start[a] + box->size[a]) break;
      at[a] = box->start[a];
    }
    if (a < 0) return fresh;
  }
}
