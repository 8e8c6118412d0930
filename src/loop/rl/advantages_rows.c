/* Advantages of the rows of a batch, as columns; and learning rates: pieces of a loop of one's own. */
#include "rl/advantages.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "run/schedule.h"
#include "treadle_loop.h"

#include <math.h>
#include <string.h>

/* ---- Advantages ---------------------------------------------------------------------------------------------- */

static treadle_status find_estimator(const char *name, treadle_rl_estimator *estimator_p) {
  static const char *const names[] = {
      "group_norm", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae"};
  const size_t count = sizeof names / sizeof *names;
  size_t i = 0;
  if (!name) name = names[0];
  while (i < count && strcmp(names[i], name) != 0) i++;
  if (i == count)
    REFUSE(
        "estimator '%s': group_norm, grpo, rloo, reinforce_plus_plus, reinforce_plus_plus_baseline or gae",
        treadle_text_shown(name));
  *estimator_p = (treadle_rl_estimator)i;
  return TREADLE_OK;
}

static treadle_status find(const treadle_batch *batch, const char *name, treadle_column_type type,
                           bool ragged, treadle_column *column_p) {
  treadle_status status;
  *column_p = TREADLE_INIT(treadle_column);
  TRY(treadle_batch_column(batch, name, column_p));
  if (column_p->type != type || !column_p->offsets == ragged || (!ragged && column_p->width != 1))
    REFUSE("column '%s' is of another type", name);
out:
  return status;
}

/* What an estimator sees, and what it gives. */
typedef struct estimate {
  int64_t rows;
  size_t *first;                              /* [rows + 1] */
  double *token_rewards, *by_token, *returns; /* [tokens] */
  double *of_rows;                            /* [rows] */
} estimate;

static void release(estimate *e) {
  treadle_free(e->first);
  treadle_free(e->token_rewards);
  treadle_free(e->by_token);
  treadle_free(e->returns);
  treadle_free(e->of_rows);
}

static treadle_status take_memory(estimate *e, const treadle_column *ids, const double *rewards) {
  const size_t rows = (size_t)e->rows, tokens = (size_t)(ids->offsets[rows] - ids->offsets[0]);
  e->first = treadle_alloc_array(rows + 1, sizeof *e->first);
  e->token_rewards = treadle_alloc_array(tokens + 1, sizeof *e->token_rewards);
  e->by_token = treadle_alloc_array(tokens + 1, sizeof *e->by_token);
  e->returns = treadle_alloc_array(tokens + 1, sizeof *e->returns);
  e->of_rows = treadle_alloc_array(rows + 1, sizeof *e->of_rows);
  if (!e->first || !e->token_rewards || !e->by_token || !e->returns || !e->of_rows)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for advantages of %zu rows", rows);
  memset(e->token_rewards, 0, (tokens + 1) * sizeof *e->token_rewards);
  for (size_t r = 0; r <= rows; r++) e->first[r] = (size_t)(ids->offsets[r] - ids->offsets[0]);
  for (size_t r = 0; r < rows; r++)
    if (e->first[r + 1] > e->first[r]) e->token_rewards[e->first[r + 1] - 1] = rewards[r];
  return TREADLE_OK;
}

/* Values of rows, one for each of their tokens. */
static treadle_status find_values(const treadle_batch *batch, const treadle_column *ids,
                                  const float **values_p) {
  treadle_column values;
  treadle_status status;
  TRY(find(batch, "values", TREADLE_COLUMN_FP32, true, &values));
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++) {
    const int64_t tokens = ids->offsets[r + 1] - ids->offsets[r],
                  count = values.offsets[r + 1] - values.offsets[r];
    if (count != tokens)
      REFUSE("row %lld: column 'values' has %lld, and the row %lld tokens", (long long)r, (long long)count,
             (long long)tokens);
  }
  *values_p = (const float *)values.data + values.offsets[0];
out:
  return status;
}

static treadle_status check_groups(const int64_t *groups, int64_t rows) {
  for (int64_t r = 0; r < rows; r++)
    if (groups[r] < 0 || groups[r] >= rows)
      REFUSE("row %lld: group is %lld: 0 to %lld, the rows less 1", (long long)r, (long long)groups[r],
             (long long)rows - 1);
  return TREADLE_OK;
}

/* One for each row, unless tokens of a row have different ones. */
static bool take_first(size_t rows, const size_t *first, const double *by_token, double *of_rows) {
  for (size_t r = 0; r < rows; r++) {
    of_rows[r] = first[r + 1] > first[r] ? by_token[first[r]] : 0;
    for (size_t t = first[r]; t < first[r + 1]; t++)
      if (memcmp(&by_token[t], &of_rows[r], sizeof *of_rows) != 0) return false;
  }
  return true;
}

static treadle_status add_by_token(treadle_batch *batch, const estimate *e, const char *name,
                                   treadle_column_type type, void *data) {
  treadle_column column = {.struct_size = sizeof column, .name = name, .type = type, .data = data};
  int64_t *offsets = treadle_alloc_array((size_t)e->rows + 1, sizeof *offsets);
  treadle_status status;
  if (!offsets) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", name);
  for (int64_t r = 0; r <= e->rows; r++) offsets[r] = (int64_t)e->first[r];
  column.offsets = offsets;
  status = treadle_batch_add(batch, &column);
  treadle_free(offsets);
  return status;
}

/* What a value loss reads: as fp32. */
static treadle_status add_returns(treadle_batch *batch, const estimate *e) {
  const size_t tokens = e->first[e->rows];
  float *returns = treadle_alloc_array(tokens + 1, sizeof *returns);
  treadle_status status;
  if (!returns) return treadle_fail(TREADLE_NO_MEMORY, "no memory for returns");
  for (size_t t = 0; t < tokens; t++) returns[t] = (float)e->returns[t];
  status = add_by_token(batch, e, "returns", TREADLE_COLUMN_FP32, returns);
  treadle_free(returns);
  return status;
}

static treadle_status add(treadle_batch *batch, const estimate *e, bool with_returns) {
  const bool by_row = take_first((size_t)e->rows, e->first, e->by_token, e->of_rows);
  const char *name = by_row ? "advantage" : "advantages";
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = name,
                                 .type = TREADLE_COLUMN_FP64,
                                 .width = 1,
                                 .data = e->of_rows};
  treadle_status status;
  TRY(by_row ? treadle_batch_add(batch, &column)
             : add_by_token(batch, e, name, TREADLE_COLUMN_FP64, e->by_token));
  status = with_returns ? add_returns(batch, e) : TREADLE_OK;
  if (status) (void)treadle_batch_remove(batch, name); /* all of it, or nothing */
out:
  return status;
}

treadle_status treadle_advantages(treadle_batch *batch, const treadle_advantage_options *options) {
  treadle_advantage_options o;
  treadle_column ids, group, reward;
  treadle_rl_estimator_options with = {0};
  const float *values = NULL;
  estimate e = {0};
  treadle_status status;
  TREADLE_NEED(batch);
  TRY(TREADLE_TAKE(options, &o));
  TRY(find_estimator(o.estimator, &with.estimator));
  if (!(o.gamma >= 0 && o.gamma <= 1)) REFUSE("gamma %g: 0 to 1, and 0 means 1", o.gamma);
  if (!(o.lam >= 0 && o.lam <= 1)) REFUSE("lam %g: 0 to 1, and 0 means 1", o.lam);
  with.by_std = with.whiten = !o.keep_scale;
  with.gamma = o.gamma != 0 ? o.gamma : 1;
  with.lam = o.lam != 0 ? o.lam : 1;
  TRY(find(batch, "ids", TREADLE_COLUMN_INT32, true, &ids));
  TRY(find(batch, "group", TREADLE_COLUMN_INT64, false, &group));
  TRY(find(batch, treadle_batch_has(batch, "reward") ? "reward" : "score", TREADLE_COLUMN_FP64, false,
           &reward));
  if (with.estimator == TREADLE_RL_GAE) TRY(find_values(batch, &ids, &values));
  e.rows = treadle_batch_rows(batch);
  TRY(check_groups(group.data, e.rows));
  TRY(take_memory(&e, &ids, reward.data));
  const treadle_rl_scored scored = {.samples = (size_t)e.rows,
                                    .group = group.data,
                                    .first = e.first,
                                    .token_rewards = e.token_rewards,
                                    .scores = reward.data,
                                    .values = values};
  TRY(treadle_rl_advantages(&with, &scored, e.by_token, e.returns, e.of_rows));
  TRY(add(batch, &e, with.estimator == TREADLE_RL_GAE));
out:
  release(&e);
  return status;
}

/* ---- The learning rate --------------------------------------------------------------------------------------- */

static bool is_rate(double value) { return isfinite(value) && value >= 0; }

treadle_status treadle_learning_rate(const treadle_lr_options *options, int64_t done, double *lr_p) {
  treadle_lr_options o;
  treadle_lr_schedule schedule = {0};
  treadle_status status;
  TREADLE_NEED(options);
  TREADLE_NEED(lr_p);
  TRY(TREADLE_TAKE(options, &o));
  if (!treadle_lr_style_parse(o.style ? o.style : "constant", &schedule.style))
    REFUSE("style '%s': constant, linear or cosine", treadle_text_shown(o.style));
  if (!is_rate(o.lr) || !is_rate(o.min_lr) || !(o.warmup_fraction >= 0 && o.warmup_fraction < 1))
    REFUSE("lr %g, min_lr %g, warmup_fraction %g: finite, 0 at least, and the fraction below 1", o.lr,
           o.min_lr, o.warmup_fraction);
  if (o.steps < 1 || done < 0)
    REFUSE("%lld steps, of which %lld are done", (long long)o.steps, (long long)done);
  schedule.lr = o.lr;
  schedule.min_lr = o.min_lr;
  schedule.warmup_fraction = o.warmup_fraction;
  schedule.steps = o.steps;
  *lr_p = treadle_schedule_lr(&schedule, done);
out:
  return status;
}
