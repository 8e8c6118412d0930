/* The reward model's part of a step: a score of each sample, after it was drawn. A sample without tokens is its prompt alone, and has a score, too. */
#include "rl/reward_model.h"

#include "base/alloc.h"
#include "rl/calls_rows.h"

#include <math.h>

/* Samples from `from` on, all of them. The caller frees c->rows. */
static treadle_status choose(treadle_rl_batch *b, size_t from, treadle_rl_rows_choice *c) {
  *c = (treadle_rl_rows_choice){.batch = b,
                                .rows = treadle_alloc_array(b->samples.count + 1, sizeof *c->rows)};
  if (!c->rows) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", b->samples.count);
  for (size_t i = from; i < b->samples.count; i++) c->rows[c->count++] = (int64_t)i;
  return TREADLE_OK;
}

static treadle_status take_score(treadle_rl_batch *b, int64_t sample, double score, bool *has) {
  treadle_rl_made *s = &b->samples.items[sample];
  char name[TREADLE_RL_NAME];
  if (!isfinite(score)) {
    treadle_rl_name_sample(b, s, name);
    return treadle_fail(TREADLE_REFUSED, "the reward model's score of sample %s is not finite: %g", name,
                        score);
  }
  s->model_score = score;
  *has = true;
  return TREADLE_OK;
}

/* What a rank has found of its rows; ranks with equal rows may all answer. has [c->count]. */
static treadle_status take_answer(const treadle_rl_rows_choice *c, treadle_message *answer, bool *has) {
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_batch *out = NULL;
  int64_t first;
  treadle_status status;
  TRY(treadle_message_int(answer, "first row", &first));
  TRY(treadle_message_batch(answer, &out));
  if (!treadle_batch_has(out, "score")) goto out;
  const int64_t rows = treadle_batch_rows(out);
  TRY(treadle_batch_column(out, "score", &column));
  if (column.type != TREADLE_COLUMN_FP64 || column.offsets || column.width != 1)
    TRY(treadle_fail(TREADLE_REFUSED, "the train engine gives scores of another type than fp64"));
  if (first < 0 || (size_t)first > c->count || (size_t)rows > c->count - (size_t)first)
    TRY(treadle_fail(TREADLE_PEER, "a rank scores rows %lld to %lld of %zu", (long long)first,
                     (long long)(first + rows), c->count));
  for (int64_t r = 0; r < rows; r++)
    TRY(take_score(c->batch, c->rows[first + r], ((const double *)column.data)[r], &has[first + r]));
out:
  treadle_batch_destroy(out);
  return status;
}

static treadle_status take_answers(treadle_rl_workers *workers, const treadle_rl_rows_choice *c) {
  const int ranks = treadle_worker_group_ranks(&workers->group);
  bool *has = treadle_alloc_array(c->count + 1, sizeof *has);
  treadle_status status = TREADLE_OK;
  if (!has) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the scores of %zu rows", c->count));
  for (size_t i = 0; i < c->count; i++) has[i] = false;
  for (int rank = 0; rank < ranks; rank++) {
    treadle_message answer = treadle_worker_group_answer(&workers->group, rank, &workers->out);
    TRY(take_answer(c, &answer, has));
  }
  for (size_t i = 0; i < c->count; i++)
    if (!has[i]) TRY(treadle_fail(TREADLE_REFUSED, "no rank has scored row %zu of %zu", i, c->count));
out:
  treadle_free(has);
  return status;
}

treadle_status treadle_rl_find_rm_scores(treadle_rl_workers *workers,
                                         const treadle_train_settings *settings, treadle_rl_batch *b,
                                         size_t from) {
  static const char *const names[] = {"prompt_ids", "ids"};
  treadle_rl_rows_choice c = {0};
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_reward_model(settings)) return TREADLE_OK;
  TRY(choose(b, from, &c));
  if (!c.count) goto out;
  TRY(treadle_rl_set_columns(b));
  treadle_message_clear(&workers->in);
  TRY(treadle_rl_call_rows(workers, "compute_rm_score", &c, names, sizeof names / sizeof *names));
  TRY(take_answers(workers, &c));
out:
  treadle_rl_drop_columns(b);
  treadle_free(c.rows);
  return status;
}
