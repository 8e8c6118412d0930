/* Columns of a step's samples that come from the rank of another pool. */
#include "rl/batch.h"

#include "base/alloc.h"

#include <string.h>

static treadle_status find_ids(const treadle_batch *in, const char *name, treadle_column *column) {
  treadle_status status;
  *column = TREADLE_INIT(treadle_column);
  TRY(treadle_batch_column(in, name, column));
  if (column->type != TREADLE_COLUMN_INT32 || !column->offsets)
    status = treadle_fail(TREADLE_PEER, "column '%s' of samples is not ragged int32", name);
out:
  return status;
}

/* The ids that a sample's tokens were drawn from. */
static treadle_status take_kept(treadle_rl_batch *b, const treadle_column *counts,
                                const treadle_column *kept, size_t row, treadle_rl_made *made) {
  const int32_t *count = (const int32_t *)counts->data + counts->offsets[row],
                *ids = (const int32_t *)kept->data + kept->offsets[row];
  int64_t all = 0;
  treadle_status status = TREADLE_OK;
  made->kept_first = b->kept.count;
  made->kept_count = (size_t)(kept->offsets[row + 1] - kept->offsets[row]);
  if (counts->offsets[row + 1] - counts->offsets[row] != (int64_t)made->count)
    return treadle_fail(TREADLE_PEER, "sample %zu has %zu tokens, and kept_counts of others", row,
                        made->count);
  for (size_t t = 0; t < made->count; t++) {
    all += count[t] > 0 ? count[t] : INT32_MAX;
    TRY(treadle_array_push(&b->kept_counts, count[t]));
  }
  if (all != (int64_t)made->kept_count)
    TRY(treadle_fail(TREADLE_PEER, "sample %zu has %zu kept ids, and counts of %lld", row, made->kept_count,
                     (long long)all));
  for (size_t i = 0; i < made->kept_count; i++) TRY(treadle_array_push(&b->kept, ids[i]));
out:
  return status;
}

treadle_status treadle_rl_take_drawn(treadle_rl_batch *b, const treadle_batch *in, int64_t each) {
  static const char *const names[] = {"prompt_ids", "ids", "kept_counts", "kept"};
  const size_t count = (size_t)treadle_batch_rows(in);
  const bool keeps = treadle_batch_has(in, "kept_counts");
  treadle_column prompts, ids, counts, kept;
  treadle_status status;
  treadle_rl_batch_clear(b);
  TRY(treadle_batch_select(in, names, keeps ? 4 : 2, &b->brought));
  if (keeps) TRY(find_ids(b->brought, "kept_counts", &counts));
  if (keeps) TRY(find_ids(b->brought, "kept", &kept));
  TRY(find_ids(b->brought, "prompt_ids", &prompts));
  TRY(find_ids(b->brought, "ids", &ids));
  b->brought_prompts = treadle_alloc_array(count + 1, sizeof *b->brought_prompts);
  if (!b->brought_prompts) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", count));
  for (size_t i = 0; i < count; i++) {
    b->brought_prompts[i] = (treadle_rl_prompt){.ids = (int32_t *)prompts.data + prompts.offsets[i],
                                                .count = prompts.offsets[i + 1] - prompts.offsets[i]};
    treadle_rl_made made = {.prompt = &b->brought_prompts[i],
                            .group = (int64_t)i / each,
                            .index = (int64_t)i % each,
                            .first = (size_t)ids.offsets[i],
                            .count = (size_t)(ids.offsets[i + 1] - ids.offsets[i])};
    if (keeps) TRY(take_kept(b, &counts, &kept, i, &made));
    TRY(treadle_array_push(&b->samples, made));
    for (size_t t = 0; t < made.count; t++)
      TRY(treadle_array_push(&b->ids, ((const int32_t *)ids.data)[made.first + t]));
  }
out:
  return status;
}

/* A value of each token. */
static treadle_status take_values(const treadle_rl_batch *b, const treadle_column *from, float **to) {
  const size_t samples = b->samples.count;
  for (size_t i = 0; i < samples; i++)
    if (from->type != TREADLE_COLUMN_FP32 || !from->offsets ||
        from->offsets[i + 1] - from->offsets[i] != (int64_t)b->samples.items[i].count)
      return treadle_fail(TREADLE_PEER, "column '%s' has other values of sample %zu than one a token",
                          from->name, i);
  treadle_free(*to);
  *to = treadle_rl_values_of(b);
  if (!*to) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", from->name);
  for (size_t i = 0; i < samples; i++)
    memcpy(*to + b->samples.items[i].first, (const float *)from->data + from->offsets[i],
           b->samples.items[i].count * sizeof **to);
  return TREADLE_OK;
}

static treadle_status take_scores(treadle_rl_batch *b, const treadle_column *from) {
  if (from->type != TREADLE_COLUMN_FP64 || from->offsets || from->width != 1)
    return treadle_fail(TREADLE_PEER, "column '%s' is not fp64, one a sample", from->name);
  for (size_t i = 0; i < b->samples.count; i++)
    b->samples.items[i].model_score = ((const double *)from->data)[i];
  return TREADLE_OK;
}

static treadle_status check_rows(const treadle_rl_batch *b, const treadle_batch *in) {
  if (treadle_batch_rows(in) == (int64_t)b->samples.count) return TREADLE_OK;
  return treadle_fail(TREADLE_PEER, "columns of %lld samples come for %zu",
                      (long long)treadle_batch_rows(in), b->samples.count);
}

treadle_status treadle_rl_take_columns(treadle_rl_batch *b, const treadle_batch *in) {
  const struct {
    const char *name;
    float **to;
  } of_tokens[] = {{"values", &b->values}, {"ref_log_probs", &b->ref}, {"returns", &b->targets}};
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++) {
    if (!treadle_batch_has(in, of_tokens[i].name)) continue;
    TRY(treadle_batch_column(in, of_tokens[i].name, &column));
    TRY(check_rows(b, in));
    TRY(take_values(b, &column, of_tokens[i].to));
  }
  if (treadle_batch_has(in, "score")) {
    TRY(treadle_batch_column(in, "score", &column));
    TRY(check_rows(b, in));
    TRY(take_scores(b, &column));
  }
out:
  return status;
}
