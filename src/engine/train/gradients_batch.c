/* The columns of a batch, as rows of tokens. Nothing is copied: rows point into the columns. */
#include "train/gradients.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <string.h>

/* ---- Columns ---------------------------------------------------------------------------------------------- */

static const char *const type_names[] = {"int32", "int64", "fp32", "fp64", "bf16",
                                         "uint8", "bool",  "text", "bytes"};

/* Does the batch have the column? Refused: another type, and rows of another form. */
static treadle_status find(const treadle_batch *batch, const char *name, treadle_column_type type,
                           bool ragged, treadle_column *column_p, bool *has_p) {
  treadle_status status;
  *column_p = TREADLE_INIT(treadle_column);
  *has_p = treadle_batch_has(batch, name);
  if (!*has_p) return TREADLE_OK;
  TRY(treadle_batch_column(batch, name, column_p));
  if (column_p->type != type || !column_p->offsets == ragged || (!ragged && column_p->width != 1))
    REFUSE("column '%s' is %s%s: %s%s is needed", name, column_p->offsets ? "ragged " : "",
           type_names[column_p->type], ragged ? "ragged " : "", type_names[type]);
out:
  return status;
}

/* A ragged column with as many values in each row as ids. *data_p: its first value; NULL: it is not there. */
static treadle_status find_like_ids(const treadle_batch *batch, const treadle_column *ids, const char *name,
                                    treadle_column_type type, size_t bytes, const void **data_p) {
  const int64_t rows = treadle_batch_rows(batch);
  treadle_column column;
  bool has;
  treadle_status status;
  *data_p = NULL;
  TRY(find(batch, name, type, true, &column, &has));
  if (!has) return TREADLE_OK;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t values = column.offsets[r + 1] - column.offsets[r];
    if (values != ids->offsets[r + 1] - ids->offsets[r])
      REFUSE("row %lld: %lld of %s, and %lld ids", (long long)r, (long long)values, name,
             (long long)(ids->offsets[r + 1] - ids->offsets[r]));
  }
  *data_p = (const char *)column.data + (size_t)column.offsets[0] * bytes;
out:
  return status;
}

typedef struct wanted {
  const char *name;
  bool read;   /* else nobody looks at it */
  bool needed; /* else it may be absent */
  treadle_column_type type;
  size_t bytes;
  const void **data_p;
} wanted;

/* The columns like ids that this work reads. */
static treadle_status find_values(treadle_train_work *w, const treadle_batch *batch,
                                  const treadle_column *ids, const uint8_t **mask_p) {
  treadle_train_values *v = &w->values;
  const void *mask = NULL, *old, *ref, *rollout, *advantages, *counts, *values, *returns;
  const bool ppo = w->loss == TREADLE_LOSS_PPO, critic = w->loss == TREADLE_LOSS_VALUE;
  const bool masks = w->find != TREADLE_FIND_SCORES, cuts = w->find == TREADLE_FIND_LOGPROBS;
  const bool has_old = treadle_batch_has(batch, "old_log_probs"),
             by_token = treadle_batch_has(batch, "advantages");
  const wanted columns[] = {{"mask", masks, false, TREADLE_COLUMN_UINT8, 1, &mask},
                            {"kept_counts", cuts, false, TREADLE_COLUMN_INT32, 4, &counts},
                            {"old_log_probs", ppo && has_old, true, TREADLE_COLUMN_FP32, 4, &old},
                            {"rollout_log_probs", ppo && (!has_old || w->ppo.importance_cap > 0), true,
                             TREADLE_COLUMN_FP32, 4, &rollout},
                            {"ref_log_probs", ppo && w->ppo.use_kl, true, TREADLE_COLUMN_FP32, 4, &ref},
                            {"advantages", ppo && by_token, true, TREADLE_COLUMN_FP64, 8, &advantages},
                            {"values", critic, true, TREADLE_COLUMN_FP32, 4, &values},
                            {"returns", critic, true, TREADLE_COLUMN_FP32, 4, &returns}};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    const wanted *c = &columns[i];
    *c->data_p = NULL;
    if (!c->read) continue;
    TRY(find_like_ids(batch, ids, c->name, c->type, c->bytes, c->data_p));
    if (c->needed && !*c->data_p)
      REFUSE("loss '%s': the batch has no column '%s'", w->options.name, c->name);
  }
  *mask_p = mask;
  *v = (treadle_train_values){.old = old ? old : rollout,
                              .ref = ref,
                              .rollout = rollout,
                              .old_values = values,
                              .returns = returns,
                              .advantages = advantages,
                              .kept_counts = counts};
out:
  return status;
}

static treadle_status find_advantage(treadle_train_work *w, const treadle_batch *batch) {
  treadle_column column;
  bool has;
  treadle_status status;
  if (w->loss != TREADLE_LOSS_PPO || w->values.advantages) return TREADLE_OK;
  TRY(find(batch, "advantage", TREADLE_COLUMN_FP64, false, &column, &has));
  if (!has) REFUSE("loss 'ppo': the batch has neither a column 'advantage' nor 'advantages'");
  w->values.advantage = column.data;
out:
  return status;
}

/* In which micro batch each row goes. */
static treadle_status find_micro_batches(treadle_train_work *w, const treadle_batch *batch) {
  treadle_column column;
  bool has;
  treadle_status status;
  TRY(find(batch, "micro_batch", TREADLE_COLUMN_INT64, false, &column, &has));
  if (has) w->values.micro_batch = column.data;
out:
  return status;
}

/* ---- Rows ------------------------------------------------------------------------------------------------- */

static bool same_prompt(const treadle_train_row *a, const treadle_train_row *b) {
  return a->prompt_count == b->prompt_count &&
         memcmp(a->prompt, b->prompt, (size_t)b->prompt_count * sizeof *b->prompt) == 0;
}

static void make_rows(treadle_train_work *w, const treadle_column *prompts, const treadle_column *ids,
                      const uint8_t *mask) {
  const int32_t *all = ids->data, *asked = prompts->data;
  for (size_t r = 0; r < w->count; r++) {
    treadle_train_row *row = &w->rows[r];
    const int64_t count = ids->offsets[r + 1] - ids->offsets[r];
    *row = (treadle_train_row){.ids = all + ids->offsets[r], .first = w->ids, .number = w->counted};
    if (mask) row->mask = mask + w->ids;
    if (prompts->offsets) {
      row->prompt = asked + prompts->offsets[r];
      row->prompt_count = prompts->offsets[r + 1] - prompts->offsets[r];
    }
    row->count = row->prompt_count + count;
    if (r && row->prompt_count && same_prompt(row - 1, row)) row->shared = row->prompt_count;
    if (w->find == TREADLE_FIND_SCORES)
      w->counted++; /* its last token */
    else
      for (int64_t i = 0; i < row->count; i++) w->counted += treadle_train_counts(row, i);
    w->ids += count;
  }
}

/* Where the ids are that each token was drawn from. Refused: counts that are not those of the ids. */
static treadle_status take_kept(treadle_train_work *w, const treadle_batch *batch) {
  const int32_t *counts = w->values.kept_counts;
  int64_t at = 0, number = 0;
  treadle_column kept;
  bool has;
  treadle_status status;
  if (w->find != TREADLE_FIND_LOGPROBS) return TREADLE_OK;
  TRY(find(batch, "kept", TREADLE_COLUMN_INT32, true, &kept, &has));
  if (!has != !counts)
    REFUSE("the batch has '%s' alone, of kept_counts and kept", has ? "kept" : "kept_counts");
  if (!has) return TREADLE_OK;
  w->kept_first = treadle_alloc_array((size_t)w->counted + 1, sizeof *w->kept_first);
  if (!w->kept_first)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for what %lld tokens were drawn from",
                     (long long)w->counted));
  w->values.kept = (const int32_t *)kept.data + kept.offsets[0];
  for (size_t r = 0; r < w->count; r++) {
    const treadle_train_row *row = &w->rows[r];
    const int64_t end = kept.offsets[r + 1] - kept.offsets[0];
    for (int64_t i = row->prompt_count; i < row->count; i++) {
      const int32_t count = counts[row->first + i - row->prompt_count];
      if (count < 0 || count > end - at)
        REFUSE("row %zu: kept_counts[%lld] is %d, and %lld ids are left in kept", r,
               (long long)(i - row->prompt_count), count, (long long)(end - at));
      if (treadle_train_counts(row, i)) w->kept_first[number++] = at;
      at += count;
    }
    if (at != end)
      REFUSE("row %zu: kept has %lld ids more than kept_counts says", r, (long long)(end - at));
  }
out:
  return status;
}

treadle_status treadle_train_take_batch(treadle_train_work *w, const treadle_batch *batch) {
  treadle_column ids, prompts;
  bool has_ids, has_prompts;
  const uint8_t *mask = NULL;
  treadle_status status;
  TRY(find(batch, "ids", TREADLE_COLUMN_INT32, true, &ids, &has_ids));
  if (!has_ids) REFUSE("the batch has no column 'ids'");
  TRY(find(batch, "prompt_ids", TREADLE_COLUMN_INT32, true, &prompts, &has_prompts));
  TRY(find_values(w, batch, &ids, &mask));
  TRY(find_advantage(w, batch));
  TRY(find_micro_batches(w, batch));
  w->count = (size_t)treadle_batch_rows(batch);
  w->rows = treadle_alloc_array(w->count + 1, sizeof *w->rows);
  if (!w->rows) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", w->count));
  make_rows(w, &prompts, &ids, mask);
  TRY(take_kept(w, batch));
out:
  return status;
}

void treadle_train_release_work(treadle_train_work *w) {
  treadle_train_release_choices(&w->choices);
  treadle_free(w->rows);
  treadle_free(w->logprobs);
  treadle_free(w->kept_first);
  treadle_free(w->terms);
  treadle_free(w->value_terms);
  treadle_free(w->own);
}

/* ---- Back -------------------------------------------------------------------------------------------------- */

treadle_status treadle_train_give(const treadle_train_work *w, const char *name, const float *values,
                                  const treadle_batch *batch, treadle_batch *out) {
  treadle_column ids = TREADLE_INIT(treadle_column), column;
  treadle_status status;
  TRY(treadle_batch_column(batch, "ids", &ids));
  column = (treadle_column){
      .struct_size = sizeof column, .name = name, .type = TREADLE_COLUMN_FP32, .offsets = ids.offsets};
  TRY(treadle_batch_add(out, &column));
  TRY(treadle_batch_column(out, name, &column));
  float *to = (float *)column.data + column.offsets[0];
  for (size_t r = 0; r < w->count; r++) {
    const treadle_train_row *row = &w->rows[r];
    int64_t number = row->number;
    for (int64_t i = row->prompt_count; i < row->count; i++)
      if (treadle_train_counts(row, i)) to[row->first + i - row->prompt_count] = values[number++];
  }
out:
  return status;
}

treadle_status treadle_train_give_scores(const treadle_train_work *w, treadle_batch *out) {
  treadle_column column = {
      .struct_size = sizeof column, .name = "score", .type = TREADLE_COLUMN_FP64, .width = 1};
  treadle_status status;
  TRY(treadle_batch_add(out, &column));
  TRY(treadle_batch_column(out, "score", &column));
  for (size_t r = 0; r < w->count; r++) ((double *)column.data)[r] = (double)w->logprobs[r];
out:
  return status;
}
