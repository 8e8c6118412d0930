#include "train/loss_batch.h"

#include "base/random.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define PPO                                                                                                \
  .struct_size = sizeof(treadle_loss_options), .name = "ppo", .clip_low = 0.2, .clip_high = 0.3,           \
  .clip_c = 1.5

const treadle_loss_options loss_options[LOSS_LOSSES] = {
    {.struct_size = sizeof(treadle_loss_options), .name = "nll"},
    {PPO},
    {PPO, .aggregation = "seq-mean-token-mean", .entropy_coeff = 0.01, .kl = "kl", .kl_coef = 0.1},
    {PPO, .aggregation = "seq-mean-token-sum", .kl = "mse", .kl_coef = 0.2, .importance_cap = 1.1},
    {PPO, .aggregation = "seq-mean-token-sum-norm", .norm_length = 20, .importance_cap = 2},
};

treadle_forward_options loss_forward(const treadle_loss_options *loss) {
  const bool nll = loss->name && strcmp(loss->name, "nll") == 0;
  return (treadle_forward_options){.struct_size = sizeof(treadle_forward_options),
                                   .micro_batch_size = 3,
                                   .temperature = nll ? 0 : 1.3,
                                   .entropies = !nll};
}

static double unit(treadle_random *random) {
  return (double)(treadle_random_next(random) >> 40) / (double)(1 << 24);
}

/* A column fp32 like ids, about -2.7, as log-probabilities of 16 ids are. */
static treadle_status add_logprobs(treadle_batch *batch, const char *name, size_t count,
                                   treadle_random *random) {
  float *values = calloc(count + 1, sizeof *values);
  treadle_status status;
  if (!values) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu values", count);
  for (size_t i = 0; i < count; i++) values[i] = (float)(2 * unit(random) - 3.7);
  TRY(rows_add(batch, name, TREADLE_COLUMN_FP32, values));
out:
  free(values);
  return status;
}

static treadle_status add_advantages(treadle_batch *batch, size_t count, bool by_token,
                                     treadle_random *random) {
  double *values = calloc(count + LOSS_ROWS, sizeof *values);
  treadle_status status;
  if (!values) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu values", count);
  for (size_t i = 0; i < count + LOSS_ROWS; i++) values[i] = 4 * unit(random) - 2;
  TRY(by_token ? rows_add(batch, "advantages", TREADLE_COLUMN_FP64, values)
               : rows_add_reals(batch, "advantage", values));
out:
  free(values);
  return status;
}

static void fill(rows_row *rows, int32_t *ids, uint8_t *mask, size_t longest, treadle_random *random) {
  static const size_t lengths[LOSS_ROWS] = {5, 4, 0, 9, 6, 5, 8, 7, 5, 12};
  enum { PROMPT = 3 };
  for (int r = 0; r < LOSS_ROWS; r++) {
    const size_t count = lengths[r] ? lengths[r] : longest;
    rows[r] = (rows_row){ids, mask, count, PROMPT};
    for (size_t i = 0; i < count; i++) {
      ids[i] = (int32_t)treadle_random_below(random, LOSS_VOCABULARY);
      mask[i] = r != 5 && i >= PROMPT && (i == PROMPT || treadle_random_below(random, 4));
    }
    if (r == 4) memcpy(ids, rows[3].ids, PROMPT * sizeof *ids);
    ids += count;
    mask += count;
  }
}

treadle_status loss_batch(size_t longest, bool by_token, treadle_batch **batch_p) {
  treadle_random random = {20261129};
  int32_t *ids = calloc(longest + 100, sizeof *ids);
  uint8_t *mask = calloc(longest + 100, 1);
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_batch *batch = NULL;
  rows_row rows[LOSS_ROWS];
  treadle_status status = TREADLE_OK;
  *batch_p = NULL;
  if (!ids || !mask) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for rows"));
  fill(rows, ids, mask, longest, &random);
  TRY(rows_batch(rows, LOSS_ROWS, &batch));
  TRY(treadle_batch_column(batch, "ids", &column));
  const size_t count = (size_t)column.offsets[LOSS_ROWS];
  TRY(add_logprobs(batch, "old_log_probs", count, &random));
  TRY(add_logprobs(batch, "rollout_log_probs", count, &random));
  TRY(add_logprobs(batch, "ref_log_probs", count, &random));
  TRY(add_advantages(batch, count, by_token, &random));
  *batch_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  free(ids);
  free(mask);
  return status;
}
