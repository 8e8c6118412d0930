/* The columns of a step's samples, which calls hand to ranks. They lie where the batch has its arrays; the prompts
 * alone are copied. */
#include "rl/batch.h"

#include "base/alloc.h"

#include <string.h>

static void keep(void *context) {
  (void)context;
} /* the memory is the batch's, which destroys the columns first */

static treadle_status add(treadle_rl_batch *b, const char *name, treadle_column_type type,
                          const int64_t *offsets, void *data) {
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = name,
                                 .type = type,
                                 .width = offsets ? 0 : 1,
                                 .offsets = offsets,
                                 .data = data,
                                 .release = keep};
  return data ? treadle_batch_add(b->columns, &column) : TREADLE_OK;
}

static treadle_status no_memory(size_t samples) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the columns of %zu samples", samples);
}

/* Offsets of all columns like ids, and of the ids that these were drawn from. */
static treadle_status take_offsets(treadle_rl_batch *b) {
  const size_t samples = b->samples.count;
  treadle_free(b->offsets);
  b->offsets = treadle_alloc_array(3 * (samples + 1), sizeof *b->offsets);
  if (!b->offsets) return no_memory(samples);
  b->kept_offsets = b->offsets + samples + 1;
  b->experts_offsets = b->kept_offsets + samples + 1;
  for (size_t i = 0; i < samples; i++) {
    b->offsets[i] = (int64_t)b->samples.items[i].first;
    b->kept_offsets[i] = (int64_t)b->samples.items[i].kept_first;
    b->experts_offsets[i] = (int64_t)b->samples.items[i].experts_first;
  }
  b->offsets[samples] = (int64_t)b->ids.count;
  b->kept_offsets[samples] = (int64_t)b->kept.count;
  b->experts_offsets[samples] = (int64_t)b->experts.count;
  return TREADLE_OK;
}

static treadle_status add_prompts(treadle_rl_batch *b) {
  const size_t samples = b->samples.count;
  int64_t *offsets = treadle_alloc_array(samples + 1, sizeof *offsets);
  treadle_column column = {
      .struct_size = sizeof column, .name = "prompt_ids", .type = TREADLE_COLUMN_INT32};
  treadle_status status = TREADLE_OK;
  if (!offsets) return no_memory(samples);
  offsets[0] = 0;
  for (size_t i = 0; i < samples; i++) offsets[i + 1] = offsets[i] + b->samples.items[i].prompt->count;
  column.offsets = offsets;
  TRY(treadle_batch_add(b->columns, &column));
  TRY(treadle_batch_column(b->columns, "prompt_ids", &column));
  for (size_t i = 0; i < samples; i++) {
    const treadle_rl_prompt *prompt = b->samples.items[i].prompt;
    memcpy((int32_t *)column.data + offsets[i], prompt->ids, (size_t)prompt->count * sizeof *prompt->ids);
  }
out:
  treadle_free(offsets);
  return status;
}

/* One advantage for all tokens of a sample, if no sample's tokens have different ones. */
static bool by_sample(treadle_rl_batch *b, double *of_samples) {
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    const double *all = b->advantages + s->first;
    of_samples[i] = s->count ? all[0] : 0;
    for (size_t t = 1; t < s->count; t++)
      if (memcmp(&all[t], &all[0], sizeof *all) != 0) return false;
  }
  return true;
}

static treadle_status add_advantages(treadle_rl_batch *b) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = "advantage", .type = TREADLE_COLUMN_FP64, .width = 1};
  treadle_column made = TREADLE_INIT(treadle_column);
  treadle_status status = TREADLE_OK;
  if (!b->advantages) return TREADLE_OK;
  TRY(treadle_batch_add(b->columns, &column));
  TRY(treadle_batch_column(b->columns, column.name, &made));
  if (by_sample(b, made.data)) return TREADLE_OK;
  TRY(treadle_batch_remove(b->columns, column.name));
  TRY(add(b, "advantages", TREADLE_COLUMN_FP64, b->offsets, b->advantages));
out:
  return status;
}

/* Of a reward model. */
static treadle_status add_scores(treadle_rl_batch *b) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = "score", .type = TREADLE_COLUMN_FP64, .width = 1};
  treadle_column made = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_add(b->columns, &column));
  TRY(treadle_batch_column(b->columns, column.name, &made));
  for (size_t i = 0; i < b->samples.count; i++) ((double *)made.data)[i] = b->samples.items[i].model_score;
out:
  return status;
}

void treadle_rl_drop_columns(treadle_rl_batch *b) {
  treadle_batch_destroy(b->columns);
  b->columns = NULL;
}

treadle_status treadle_rl_set_columns(treadle_rl_batch *b) {
  treadle_status status;
  treadle_rl_drop_columns(b);
  TRY(take_offsets(b));
  TRY(treadle_batch_create((int64_t)b->samples.count, &b->columns));
  TRY(add_prompts(b));
  TRY(add(b, "ids", TREADLE_COLUMN_INT32, b->offsets, b->ids.items));
  TRY(add(b, "rollout_log_probs", TREADLE_COLUMN_FP32, b->offsets, b->rollout.items));
  TRY(add(b, "old_log_probs", TREADLE_COLUMN_FP32, b->offsets, b->old));
  TRY(add(b, "ref_log_probs", TREADLE_COLUMN_FP32, b->offsets, b->ref));
  TRY(add(b, "values", TREADLE_COLUMN_FP32, b->offsets, b->values));
  TRY(add(b, "returns", TREADLE_COLUMN_FP32, b->offsets, b->targets));
  if (b->kept_counts.count) {
    TRY(add(b, "kept_counts", TREADLE_COLUMN_INT32, b->offsets, b->kept_counts.items));
    TRY(add(b, "kept", TREADLE_COLUMN_INT32, b->kept_offsets, b->kept.items));
  }
  if (b->experts.count) TRY(add(b, "experts", TREADLE_COLUMN_BYTES, b->experts_offsets, b->experts.items));
  TRY(add_advantages(b));
  TRY(add_scores(b));
out:
  return status;
}
