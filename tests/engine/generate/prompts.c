#include "generate/prompts.h"

#include "test.h"

static treadle_column column_of(const treadle_batch *batch, const char *name) {
  treadle_column column = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(batch, name, &column)) abort();
  return column;
}

treadle_batch *prompts_draw(treadle_random *random, int64_t rows, bool seeds) {
  int64_t *offsets = calloc((size_t)rows + 1, sizeof *offsets),
          *seed = calloc((size_t)rows + 1, sizeof *seed);
  int32_t *ids = calloc((size_t)rows * PROMPTS_LONGEST + 1, sizeof *ids);
  treadle_batch *batch;
  assert_true(offsets && seed && ids);
  for (int64_t r = 0; r < rows; r++) {
    offsets[r + 1] = offsets[r] + treadle_random_between(random, 1, PROMPTS_LONGEST);
    seed[r] = treadle_random_below(random, 1000);
  }
  for (int64_t i = 0; i < offsets[rows]; i++)
    ids[i] = (int32_t)treadle_random_below(random, PROMPTS_VOCABULARY);
  const treadle_column of_ids = {.struct_size = sizeof of_ids,
                                 .name = "prompt_ids",
                                 .type = TREADLE_COLUMN_INT32,
                                 .offsets = offsets,
                                 .data = ids},
                       of_seeds = {.struct_size = sizeof of_seeds,
                                   .name = "seed",
                                   .type = TREADLE_COLUMN_INT64,
                                   .data = seed};
  assert_ok(treadle_batch_create(rows, &batch));
  assert_ok(treadle_batch_add(batch, &of_ids));
  if (seeds) assert_ok(treadle_batch_add(batch, &of_seeds));
  free(offsets);
  free(seed);
  free(ids);
  return batch;
}

treadle_batch *prompts_of(int64_t rows, treadle_column column) {
  treadle_batch *batch;
  column.struct_size = sizeof column;
  assert_ok(treadle_batch_create(rows, &batch));
  assert_ok(treadle_batch_add(batch, &column));
  return batch;
}

const int32_t *prompts_ids(const treadle_batch *batch, const char *name, int64_t row, int64_t *count_p) {
  const treadle_column column = column_of(batch, name);
  *count_p = column.offsets[row + 1] - column.offsets[row];
  return (const int32_t *)column.data + column.offsets[row];
}

/* Where the values of a row lie, and how many bytes they are. */
static const char *bytes_of(const treadle_column *column, int64_t row, size_t *bytes_p) {
  static const size_t each[] = {
      [TREADLE_COLUMN_INT32] = 4, [TREADLE_COLUMN_INT64] = 8, [TREADLE_COLUMN_FP32] = 4,
      [TREADLE_COLUMN_FP64] = 8,  [TREADLE_COLUMN_BF16] = 2,  [TREADLE_COLUMN_UINT8] = 1,
      [TREADLE_COLUMN_BOOL] = 1,  [TREADLE_COLUMN_TEXT] = 1,  [TREADLE_COLUMN_BYTES] = 1};
  int64_t from = column->offsets ? column->offsets[row] : row * column->width,
          to = column->offsets ? column->offsets[row + 1] : from + column->width;
  *bytes_p = (size_t)(to - from) * each[column->type];
  return (const char *)column->data + (size_t)from * each[column->type];
}

static bool are_equal(const treadle_column *a, int64_t row, const treadle_column *b, int64_t other) {
  size_t bytes, theirs;
  const char *own = bytes_of(a, row, &bytes), *wanted = bytes_of(b, other, &theirs);
  return bytes == theirs && memcmp(own, wanted, bytes) == 0;
}

const char *prompts_differ(const treadle_batch *own, const treadle_batch *all, int64_t first) {
  if (treadle_batch_column_count(own) != treadle_batch_column_count(all)) return "the number of columns";
  for (int32_t c = 0; c < treadle_batch_column_count(own); c++) {
    treadle_column mine = TREADLE_INIT(treadle_column), theirs = TREADLE_INIT(treadle_column);
    if (treadle_batch_column_at(own, c, &mine)) abort();
    if (treadle_batch_column(all, mine.name, &theirs)) return mine.name;
    if (mine.type != theirs.type || mine.width != theirs.width) return mine.name;
    for (int64_t r = 0; r < treadle_batch_rows(own) && strcmp(mine.name, "version") != 0; r++)
      if (!are_equal(&mine, r, &theirs, first + r)) return mine.name;
  }
  return NULL;
}
