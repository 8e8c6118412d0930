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

/* What the next samples lie in, and room for their prompts. */
static treadle_status keep(treadle_rl_batch *b, const treadle_batch *in, const treadle_batch **kept_p,
                           treadle_rl_prompt **prompts_p) {
  static const char *const names[] = {"prompt_ids", "ids", "kept_counts", "kept"};
  const size_t count = (size_t)treadle_batch_rows(in), width = treadle_batch_has(in, "kept_counts") ? 4 : 2;
  treadle_rl_prompt *prompts = treadle_alloc_array(count + 1, sizeof *prompts);
  treadle_batch *kept = NULL;
  treadle_status status = TREADLE_OK;
  if (!prompts) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", count));
  TRY(treadle_array_push(&b->brought_prompts, prompts));
  *prompts_p = prompts;
  prompts = NULL;
  TRY(treadle_batch_select(in, names, width, &kept));
  TRY(treadle_array_push(&b->brought, kept));
  *kept_p = kept;
  kept = NULL;
out:
  treadle_batch_destroy(kept);
  treadle_free(prompts);
  return status;
}

/* Has another role of this pool brought them for itself before? */
static bool have_come(const treadle_rl_batch *b, const treadle_column *ids, size_t count, size_t from) {
  bool come = from < b->samples.count && from + count == b->samples.count;
  for (size_t i = 0; come && i < count; i++) {
    const treadle_rl_made *made = &b->samples.items[from + i];
    come =
        (int64_t)made->count == ids->offsets[i + 1] - ids->offsets[i] &&
        (!made->count || !memcmp(b->ids.items + made->first, (const int32_t *)ids->data + ids->offsets[i],
                                 made->count * sizeof *b->ids.items));
  }
  return come;
}

treadle_status treadle_rl_take_drawn(treadle_rl_batch *b, const treadle_batch *in, int64_t each,
                                     size_t from) {
  const size_t count = (size_t)treadle_batch_rows(in);
  const treadle_batch *brought;
  treadle_rl_prompt *own;
  treadle_column prompts, ids, counts, kept;
  treadle_status status;
  if (from == 0) treadle_rl_batch_clear(b);
  TRY(find_ids(in, "ids", &ids));
  if (have_come(b, &ids, count, from)) goto out;
  if (from != b->samples.count)
    return treadle_fail(TREADLE_PEER, "samples from %zu on come behind %zu", from, b->samples.count);
  treadle_rl_drop_columns(b);
  TRY(keep(b, in, &brought, &own));
  const bool keeps = treadle_batch_has(brought, "kept_counts");
  if (keeps) TRY(find_ids(brought, "kept_counts", &counts));
  if (keeps) TRY(find_ids(brought, "kept", &kept));
  TRY(find_ids(brought, "prompt_ids", &prompts));
  TRY(find_ids(brought, "ids", &ids));
  for (size_t i = 0; i < count; i++) {
    const int32_t *tokens = (const int32_t *)ids.data + ids.offsets[i];
    const int64_t number = (int64_t)(from + i);
    own[i] = (treadle_rl_prompt){.ids = (int32_t *)prompts.data + prompts.offsets[i],
                                 .count = prompts.offsets[i + 1] - prompts.offsets[i]};
    treadle_rl_made made = {.prompt = &own[i],
                            .group = number / each,
                            .index = number % each,
                            .first = b->ids.count,
                            .count = (size_t)(ids.offsets[i + 1] - ids.offsets[i])};
    if (keeps) TRY(take_kept(b, &counts, &kept, i, &made));
    TRY(treadle_array_push(&b->samples, made));
    for (size_t t = 0; t < made.count; t++) TRY(treadle_array_push(&b->ids, tokens[t]));
  }
out:
  return status;
}

/* A value of each token of samples from `from` on. */
static treadle_status take_values(const treadle_rl_batch *b, const treadle_column *column, size_t rows,
                                  size_t from, float **to) {
  treadle_status status;
  for (size_t i = 0; i < rows; i++)
    if (column->type != TREADLE_COLUMN_FP32 || !column->offsets ||
        column->offsets[i + 1] - column->offsets[i] != (int64_t)b->samples.items[from + i].count)
      return treadle_fail(TREADLE_PEER, "column '%s' has other values of sample %zu than one a token",
                          column->name, from + i);
  TRY(treadle_rl_grow_values(b, from, column->name, to));
  for (size_t i = 0; i < rows; i++)
    memcpy(*to + b->samples.items[from + i].first, (const float *)column->data + column->offsets[i],
           b->samples.items[from + i].count * sizeof **to);
out:
  return status;
}

static treadle_status take_scores(treadle_rl_batch *b, const treadle_column *column, size_t rows,
                                  size_t from) {
  if (column->type != TREADLE_COLUMN_FP64 || column->offsets || column->width != 1)
    return treadle_fail(TREADLE_PEER, "column '%s' is not fp64, one a sample", column->name);
  for (size_t i = 0; i < rows; i++)
    b->samples.items[from + i].model_score = ((const double *)column->data)[i];
  return TREADLE_OK;
}

/* Columns of which these samples are found. */
static const char *const found[] = {"values", "ref_log_probs", "returns", "score"};
enum { FOUND = sizeof found / sizeof *found };

treadle_status treadle_rl_take_columns(treadle_rl_batch *b, const treadle_batch *in, size_t from) {
  float **const to[FOUND] = {&b->values, &b->ref, &b->targets, NULL}; /* NULL: of samples */
  const size_t rows = (size_t)treadle_batch_rows(in);
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < FOUND; i++) {
    if (!treadle_batch_has(in, found[i])) continue;
    if (from > b->samples.count || rows > b->samples.count - from)
      TRY(treadle_fail(TREADLE_PEER, "columns of samples %zu to %zu come, and there are %zu", from,
                       from + rows, b->samples.count));
    TRY(treadle_batch_column(in, found[i], &column));
    TRY(to[i] ? take_values(b, &column, rows, from, to[i]) : take_scores(b, &column, rows, from));
  }
out:
  return status;
}
