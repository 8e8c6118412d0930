#include "train/rows.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static treadle_status add_ragged(treadle_batch *batch, const char *name, treadle_column_type type,
                                 const int64_t *offsets, const void *values) {
  treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = type, .offsets = offsets, .data = (void *)values};
  return treadle_batch_add(batch, &column);
}

typedef struct part {
  int64_t *offsets; /* [rows + 1] */
  int32_t *ids;
  uint8_t *mask;
} part;

static void release(part *p) {
  free(p->offsets);
  free(p->ids);
  free(p->mask);
}

/* Prompts, or what follows them. */
static treadle_status take_part(const rows_row *rows, size_t count, bool prompts, part *p) {
  size_t all = 1;
  for (size_t r = 0; r < count; r++) all += rows[r].count;
  *p = (part){calloc(count + 1, sizeof *p->offsets), calloc(all, sizeof *p->ids), calloc(all, 1)};
  if (!p->offsets || !p->ids || !p->mask) return treadle_fail(TREADLE_NO_MEMORY, "no memory for rows");
  for (size_t r = 0; r < count; r++) {
    const size_t first = prompts ? 0 : rows[r].prompt, end = prompts ? rows[r].prompt : rows[r].count;
    const size_t at = (size_t)p->offsets[r];
    memcpy(p->ids + at, rows[r].ids + first, (end - first) * sizeof *p->ids);
    if (rows[r].mask) memcpy(p->mask + at, rows[r].mask + first, end - first);
    p->offsets[r + 1] = (int64_t)(at + end - first);
  }
  return TREADLE_OK;
}

treadle_status rows_batch(const rows_row *rows, size_t count, treadle_batch **batch_p) {
  part prompts = {0}, rest = {0};
  treadle_batch *batch = NULL;
  treadle_status status;
  *batch_p = NULL;
  TRY(take_part(rows, count, true, &prompts));
  TRY(take_part(rows, count, false, &rest));
  TRY(treadle_batch_create((int64_t)count, &batch));
  if (prompts.offsets[count])
    TRY(add_ragged(batch, "prompt_ids", TREADLE_COLUMN_INT32, prompts.offsets, prompts.ids));
  TRY(add_ragged(batch, "ids", TREADLE_COLUMN_INT32, rest.offsets, rest.ids));
  if (count && rows[0].mask) TRY(add_ragged(batch, "mask", TREADLE_COLUMN_UINT8, rest.offsets, rest.mask));
  *batch_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  release(&prompts);
  release(&rest);
  return status;
}

treadle_status rows_add(treadle_batch *batch, const char *name, treadle_column_type type,
                        const void *values) {
  treadle_column ids = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(batch, "ids", &ids));
  TRY(add_ragged(batch, name, type, ids.offsets, values));
out:
  return status;
}

treadle_status rows_add_like(treadle_batch *batch, const treadle_batch *other, const char *name) {
  treadle_column ids = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(other, "ids", &ids));
  TRY(add_ragged(batch, name, TREADLE_COLUMN_FP32, ids.offsets, NULL));
out:
  return status;
}

treadle_status rows_add_reals(treadle_batch *batch, const char *name, const double *values) {
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = name,
                                 .type = TREADLE_COLUMN_FP64,
                                 .width = 1,
                                 .data = (void *)values};
  return treadle_batch_add(batch, &column);
}

treadle_status rows_out(const treadle_batch *batch, treadle_batch **out_p) {
  return treadle_batch_create(treadle_batch_rows(batch), out_p);
}

size_t rows_counted(const treadle_batch *batch, const treadle_batch *out, const char *name, float *values) {
  treadle_column mask = TREADLE_INIT(treadle_column), column = TREADLE_INIT(treadle_column);
  const int64_t rows = treadle_batch_rows(batch);
  size_t count = 0;
  if (treadle_batch_column(out, name, &column) || treadle_batch_column(batch, "mask", &mask)) return 0;
  for (int64_t i = 0; i < column.offsets[rows] - column.offsets[0]; i++)
    if (((const uint8_t *)mask.data)[mask.offsets[0] + i])
      values[count++] = ((const float *)column.data)[column.offsets[0] + i];
  return count;
}

treadle_status rows_logprobs(treadle_trainer *trainer, const treadle_batch *batch,
                             const treadle_forward_options *forward, const void *weights, float *logprobs,
                             float *entropies, size_t *count_p) {
  treadle_batch *out = NULL;
  treadle_status status;
  TRY(rows_out(batch, &out));
  TRY(treadle_trainer_logprobs(trainer, batch, forward, weights, out));
  const size_t count = rows_counted(batch, out, "log_probs", logprobs);
  if (entropies) (void)rows_counted(batch, out, "entropies", entropies);
  if (count_p) *count_p = count;
out:
  treadle_batch_destroy(out);
  return status;
}
