/* Losses of one rank: "ppo" is a loss of a caller's with its formula, bit for bit, where a row has more tokens than
 * there are logits at once, too; batches and losses that are refused, each by its name, row and numbers, after which the
 * trainer goes on; micro batches that a column of the batch makes. What tokens were drawn from: test_threads_kept.c. Ranks: test_threads_losses.c. */
#include "test.h"
#include "train/loss_batch.h"

#include "base/status.h"
#include "train/trainer.h"

#include <float.h>
#include <math.h>

enum { LONG = 900, SHORT = 20 };

typedef struct scene {
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
} scene;

static void open_scene(scene *s, const char *layout) {
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .threads = 2, .most_rows = 1024, .optimizer = true};
  assert_ok(treadle_model_open(TREADLE_SOURCE_DIR "/examples/sequence/config.json", NULL, &s->model));
  assert_ok(treadle_layout_create(s->model, layout, 1, NULL, &s->layout));
  assert_ok(treadle_trainer_create(NULL, s->layout, &options, &s->trainer));
  assert_ok(treadle_trainer_randomise(s->trainer, 5));
}

static void close_scene(scene *s) {
  treadle_trainer_destroy(s->trainer);
  treadle_layout_destroy(s->layout);
  treadle_model_close(s->model);
}

/* ---- The formula ------------------------------------------------------------------------------------------ */

/* A "ppo" of the caller's. */
typedef struct own {
  const treadle_loss_options *ppo;
  const treadle_batch *batch;
  int64_t tokens, rows; /* that count; with some */
  int64_t longest;      /* tokens of a row that count */
} own;

static const void *values_of(const own *o, const char *name, treadle_column *column) {
  *column = TREADLE_INIT(treadle_column);
  return treadle_batch_column(o->batch, name, column) ? NULL : column->data;
}

static double weight_of(const own *o, int64_t count) {
  const char *name = o->ppo->aggregation ? o->ppo->aggregation : "token-mean";
  if (strcmp(name, "token-mean") == 0) return 1 / (double)o->tokens;
  if (strcmp(name, "seq-mean-token-sum") == 0) return 1 / (double)o->rows;
  if (strcmp(name, "seq-mean-token-mean") == 0) return 1 / (double)o->rows / (double)count;
  return 1 / (double)o->rows / o->ppo->norm_length;
}

static double hold(double value, double least, double most) { return fmin(fmax(value, least), most); }

/* pg of a token, and its slope. */
static double pg_of(const treadle_loss_options *p, double difference, double a, double *slope_p) {
  const double ratio = exp(hold(difference, -20, 20)), plain = -a * ratio,
               clipped = -a * hold(ratio, 1 - p->clip_low, 1 + p->clip_high);
  *slope_p = clipped > plain ? 0 : -a * ratio;
  const double pg = fmax(plain, clipped);
  if (a >= 0 || pg <= -a * p->clip_c) return pg;
  *slope_p = 0;
  return -a * p->clip_c;
}

static treadle_status own_ppo(void *context, const treadle_loss_row *row) {
  own *o = context;
  const treadle_loss_options *p = o->ppo;
  treadle_column ids, some;
  const uint8_t *mask = values_of(o, "mask", &ids);
  const float *old = values_of(o, "old_log_probs", &some), *ref = values_of(o, "ref_log_probs", &some),
              *rollout = values_of(o, "rollout_log_probs", &some);
  const double *one = values_of(o, "advantage", &some), *many = values_of(o, "advantages", &some),
               weight = weight_of(o, row->count);
  int64_t i = 0;
  if (row->count > o->longest) o->longest = row->count;
  for (int64_t at = ids.offsets[row->row]; at < ids.offsets[row->row + 1]; at++) {
    double slope, kl = 0, kl_slope = 0, importance = 1;
    if (!mask[at]) continue;
    const double logprob = (double)row->log_probs[i], d = logprob - (double)ref[at];
    double pg = pg_of(p, logprob - (double)old[at], many ? many[at] : one[row->row], &slope);
    if (p->importance_cap > 0)
      importance = fmin(exp((double)old[at] - (double)rollout[at]), p->importance_cap);
    if (p->kl) kl = strcmp(p->kl, "mse") == 0 ? 0.5 * d * d : d;
    if (p->kl) kl_slope = strcmp(p->kl, "mse") == 0 ? d : 1;
    row->losses[i] =
        (pg * importance - p->entropy_coeff * (double)row->entropies[i] + p->kl_coef * kl) * weight;
    row->by_log_prob[i] = weight * (slope * importance + p->kl_coef * kl_slope);
    row->by_entropy[i] = -weight * p->entropy_coeff;
    i++;
  }
  return i == row->count ? TREADLE_OK : treadle_fail(TREADLE_DIFFERENT, "row %lld", (long long)row->row);
}

/* Tokens that count, and rows with some. */
static void count(own *o) {
  treadle_column ids;
  const uint8_t *mask = values_of(o, "mask", &ids);
  for (int r = 0; r < LOSS_ROWS; r++) {
    int64_t some = 0;
    for (int64_t at = ids.offsets[r]; at < ids.offsets[r + 1]; at++) some += mask[at];
    o->tokens += some;
    o->rows += some > 0;
  }
}

static void check_own(const char *layout, size_t longest) {
  scene s;
  open_scene(&s, layout);
  for (int l = 1; l < LOSS_LOSSES; l++) {
    own o = {.ppo = &loss_options[l]};
    treadle_batch *batch;
    const treadle_forward_options forward = loss_forward(o.ppo);
    const treadle_loss_options mine = {.struct_size = sizeof mine, .of_row = own_ppo, .context = &o};
    treadle_loss wanted = TREADLE_INIT(treadle_loss), got = TREADLE_INIT(treadle_loss);
    uint64_t wanted_digest, digest;
    assert_ok(loss_batch(longest, l == LOSS_LOSSES - 1, &batch));
    o.batch = batch;
    count(&o);
    assert_ok(treadle_trainer_gradients(s.trainer, batch, &forward, o.ppo, NULL, &wanted));
    assert_ok(treadle_trainer_digest(s.trainer, &wanted_digest));
    assert_ok(treadle_trainer_gradients(s.trainer, batch, &forward, &mine, NULL, &got));
    assert_ok(treadle_trainer_digest(s.trainer, &digest));
    assert_true(digest == wanted_digest && got.loss == wanted.loss && got.nll == wanted.nll);
    assert_true(got.tokens == o.tokens && wanted.tokens == o.tokens);
    assert_true(wanted.clipfrac > 0 && wanted.clipfrac_lower > 0);
    assert_true(longest == SHORT || o.longest > TREADLE_HEAD_ROWS);
    assert_ok(treadle_trainer_loss(s.trainer, batch, &forward, &mine, &got));
    assert_true(got.loss == wanted.loss);
    treadle_batch_destroy(batch);
  }
  close_scene(&s);
}

static void ppo_as_own(void **state) {
  (void)state;
  check_own("hf:dtype=fp32", SHORT);
  check_own("hf:dtype=bf16", SHORT);
  check_own("hf:dtype=fp32", LONG);
}

static void remove_column(treadle_batch *batch, const char *name) {
  assert_ok(treadle_batch_remove(batch, name));
}

static treadle_status find(const scene *s, const treadle_batch *batch,
                           const treadle_forward_options *forward, const treadle_loss_options *loss) {
  treadle_loss found = TREADLE_INIT(treadle_loss);
  return treadle_trainer_gradients(s->trainer, batch, forward, loss, NULL, &found);
}

/* ---- Micro batches by a column --------------------------------------------------------------------------- */

static void add_micro_batches(treadle_batch *batch, const int64_t *numbers) {
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = "micro_batch",
                                 .type = TREADLE_COLUMN_INT64,
                                 .width = 1,
                                 .data = (void *)numbers};
  assert_ok(treadle_batch_add(batch, &column));
}

static uint64_t digest_of(const scene *s, const treadle_batch *batch,
                          const treadle_forward_options *forward) {
  treadle_loss found = TREADLE_INIT(treadle_loss);
  uint64_t digest = 0;
  assert_ok(treadle_trainer_gradients(s->trainer, batch, forward, &loss_options[1], NULL, &found));
  assert_ok(treadle_trainer_digest(s->trainer, &digest));
  return digest;
}

/* Gradients have the bits of their micro batches: those of the column are those that the options make alone. */
static void column_of_micro_batches(void **state) {
  (void)state;
  static const int64_t by_three[LOSS_ROWS] = {7, 7, 7, -1, -1, -1, 7, 7, 7, 8},
                       all[LOSS_ROWS] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, uneven[LOSS_ROWS] = {0, 1, 1};
  treadle_forward_options forward = loss_forward(&loss_options[1]), tokens = forward;
  treadle_batch *batch;
  scene s;
  open_scene(&s, "hf:dtype=fp32");
  assert_ok(loss_batch(SHORT, false, &batch));
  const uint64_t three = digest_of(&s, batch, &forward);
  forward.micro_batch_size = LOSS_ROWS;
  const uint64_t ten = digest_of(&s, batch, &forward);
  assert_true(three != ten);
  tokens.micro_batch_size = 0;
  tokens.max_tokens_per_micro = 100;
  add_micro_batches(batch, by_three);
  assert_true(digest_of(&s, batch, &tokens) == three);
  assert_true(digest_of(&s, batch, &forward) == three);
  remove_column(batch, "micro_batch");
  add_micro_batches(batch, all);
  assert_true(digest_of(&s, batch, &tokens) == ten);
  tokens.max_tokens_per_micro = 52;
  assert_refused("rows 0 to 9, micro_batch 5, have 81 tokens; at most 52 (max_tokens_per_micro)",
                 find(&s, batch, &tokens, &loss_options[1]));
  remove_column(batch, "micro_batch");
  add_micro_batches(batch, uneven); /* 5; 24; 52 */
  assert_true(digest_of(&s, batch, &tokens) != ten);
  tokens.max_tokens_per_micro = 51;
  assert_refused("rows 3 to 9, micro_batch 0, have 52 tokens; at most 51 (max_tokens_per_micro)",
                 find(&s, batch, &tokens, &loss_options[1]));
  forward.micro_batch_size = 6;
  assert_refused("rows 3 to 9, micro_batch 0, are 7; at most 6 (micro_batch_size)",
                 find(&s, batch, &forward, &loss_options[1]));
  treadle_batch_destroy(batch);
  close_scene(&s);
}

/* ---- What is refused -------------------------------------------------------------------------------------- */

static void no_ids(treadle_batch *b) { remove_column(b, "ids"); }
static void no_advantage(treadle_batch *b) { remove_column(b, "advantage"); }
static void no_ref(treadle_batch *b) { remove_column(b, "ref_log_probs"); }
static void no_rollout(treadle_batch *b) { remove_column(b, "rollout_log_probs"); }
static void no_old(treadle_batch *b) {
  no_rollout(b);
  remove_column(b, "old_log_probs");
}

static void retype(treadle_batch *b, const char *name, treadle_column_type type) {
  remove_column(b, name);
  assert_ok(rows_add(b, name, type, NULL));
}

static void wide_mask(treadle_batch *b) { retype(b, "mask", TREADLE_COLUMN_INT64); }
static void wide_old(treadle_batch *b) { retype(b, "old_log_probs", TREADLE_COLUMN_FP64); }
static void narrow_advantages(treadle_batch *b) {
  assert_ok(rows_add(b, "advantages", TREADLE_COLUMN_FP32, NULL));
}

static void wide_ids(treadle_batch *b) {
  treadle_column mask = TREADLE_INIT(treadle_column);
  remove_column(b, "ids");
  assert_ok(treadle_batch_column(b, "mask", &mask));
  const treadle_column ids = {
      .struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT64, .offsets = mask.offsets};
  assert_ok(treadle_batch_add(b, &ids));
}

static void one_id(treadle_batch *b) {
  remove_column(b, "ids");
  const treadle_column ids = {
      .struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT32, .width = 1};
  assert_ok(treadle_batch_add(b, &ids));
}

static void real_micro_batch(treadle_batch *b) {
  static const double numbers[LOSS_ROWS] = {0};
  assert_ok(rows_add_reals(b, "micro_batch", numbers));
}

static void ragged_advantage(treadle_batch *b) { retype(b, "advantage", TREADLE_COLUMN_FP64); }

/* Row 1 has one value more than ids. */
static void lengthen(treadle_batch *b, const char *name, treadle_column_type type) {
  treadle_column ids = TREADLE_INIT(treadle_column);
  int64_t offsets[LOSS_ROWS + 1];
  assert_ok(treadle_batch_column(b, "ids", &ids));
  for (int r = 0; r <= LOSS_ROWS; r++) offsets[r] = ids.offsets[r] + (r > 1);
  const treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = type, .offsets = offsets};
  remove_column(b, name);
  assert_ok(treadle_batch_add(b, &column));
}

static void other_mask(treadle_batch *b) { lengthen(b, "mask", TREADLE_COLUMN_UINT8); }
static void other_ref(treadle_batch *b) { lengthen(b, "ref_log_probs", TREADLE_COLUMN_FP32); }

static void odd_mask(treadle_batch *b) {
  treadle_column mask = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(b, "mask", &mask));
  ((uint8_t *)mask.data)[mask.offsets[2] + 1] = 2;
}

static void no_number(treadle_batch *b) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(b, "advantage", &column));
  ((double *)column.data)[3] = NAN;
}

static void infinite(treadle_batch *b, const char *name) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(b, name, &column));
  for (int64_t i = column.offsets[0]; i < column.offsets[LOSS_ROWS]; i++)
    ((float *)column.data)[i] = -INFINITY;
}

static void infinite_old(treadle_batch *b) { infinite(b, "old_log_probs"); }
static void infinite_ref(treadle_batch *b) { infinite(b, "ref_log_probs"); }
static void infinite_rollout(treadle_batch *b) { infinite(b, "rollout_log_probs"); }

/* "ppo", which needs all columns, of a batch that was spoilt. */
static const struct wrong_batch {
  void (*spoil)(treadle_batch *batch);
  const char *text;
} wrong_batches[] = {
    {no_ids, "the batch has no column 'ids'"},
    {wide_ids, "column 'ids' is ragged int64: ragged int32 is needed"},
    {one_id, "column 'ids' is int32: ragged int32 is needed"},
    {wide_mask, "column 'mask' is ragged int64: ragged uint8 is needed"},
    {wide_old, "column 'old_log_probs' is ragged fp64: ragged fp32 is needed"},
    {narrow_advantages, "column 'advantages' is ragged fp32: ragged fp64 is needed"},
    {ragged_advantage, "column 'advantage' is ragged fp64: fp64 is needed"},
    {real_micro_batch, "column 'micro_batch' is fp64: int64 is needed"},
    {other_mask, "row 1: 2 of mask, and 1 ids"},
    {odd_mask, "row 2: mask[1] is 2; 0 or 1"},
    {other_ref, "row 1: 2 of ref_log_probs, and 1 ids"},
    {no_advantage, "loss 'ppo': the batch has neither a column 'advantage' nor 'advantages'"},
    {no_ref, "loss 'ppo': the batch has no column 'ref_log_probs'"},
    {no_old, "loss 'ppo': the batch has no column 'rollout_log_probs'"},
    {no_rollout, "loss 'ppo': the batch has no column 'rollout_log_probs'"},
    {no_number, "row 3: loss 'ppo' of token 3 is "},
    {infinite_old, ", old -inf, "},
    {infinite_ref, ", ref -inf, "},
    {infinite_rollout, ", rollout -inf, "},
};

/* What is not 0 or NULL takes the place of what loss_options[2] has. */
static const struct wrong_loss {
  treadle_loss_options loss;
  const char *text;
} wrong_losses[] = {
    {{.name = "pp0"}, "loss 'pp0': nll, ppo or value; a loss of one's own has of_row and no name"},
    {{.kl = "kk"}, "loss: kl 'kk': "},
    {{.aggregation = "mean"}, "loss: aggregation 'mean': token-mean, "},
    {{.aggregation = "seq-mean-token-sum-norm"},
     "seq-mean-token-sum-norm needs a norm_length above 0, not 0"},
    {{.clip_low = -0.5}, "loss: clip_low is -0.5: 0 at least"},
    {{.clip_c = 0.9}, "loss: clip_c is 0.9: 1 at least, and infinity for no second clip"},
    {{.importance_cap = -1}, "loss: importance_cap is -1: 0 at least"},
    {{.kl_coef = INFINITY}, "loss: entropy_coeff is 0.01, kl_coef inf: finite numbers"},
    {{.name = "nll"}, "loss 'nll' is of logits as they are: without temperature, entropies"},
};

static treadle_loss_options spoilt(const treadle_loss_options *by) {
  treadle_loss_options l = loss_options[2];
  if (by->name) l.name = by->name;
  if (by->kl) l.kl = by->kl;
  if (by->aggregation) l.aggregation = by->aggregation;
  if (by->clip_low != 0) l.clip_low = by->clip_low;
  if (by->clip_c != 0) l.clip_c = by->clip_c;
  if (by->importance_cap != 0) l.importance_cap = by->importance_cap;
  if (by->kl_coef != 0) l.kl_coef = by->kl_coef;
  return l;
}

static void refused_batches(void **state) {
  (void)state;
  treadle_loss_options ppo = loss_options[2];
  const treadle_forward_options forward = loss_forward(&ppo);
  treadle_batch *batch;
  scene s;
  ppo.importance_cap = 2; /* which reads rollout_log_probs */
  open_scene(&s, "hf:dtype=fp32");
  for (size_t i = 0; i < TEST_COUNT(wrong_batches); i++) {
    assert_ok(loss_batch(SHORT, false, &batch));
    assert_ok(find(&s, batch, &forward, &ppo));
    wrong_batches[i].spoil(batch);
    assert_refused(wrong_batches[i].text, find(&s, batch, &forward, &ppo));
    treadle_batch_destroy(batch);
  }
  close_scene(&s);
}

static void refused_losses(void **state) {
  (void)state;
  treadle_forward_options forward = loss_forward(&loss_options[2]);
  treadle_batch *batch;
  scene s;
  open_scene(&s, "hf:dtype=fp32");
  assert_ok(loss_batch(SHORT, false, &batch));
  for (size_t i = 0; i < TEST_COUNT(wrong_losses); i++) {
    const treadle_loss_options loss = spoilt(&wrong_losses[i].loss);
    assert_refused(wrong_losses[i].text, find(&s, batch, &forward, &loss));
  }
  forward.entropies = false;
  assert_refused("loss 'ppo': entropy_coeff is 0.01, and entropies are not asked for",
                 find(&s, batch, &forward, &loss_options[2]));
  forward.temperature = 0;
  assert_ok(find(&s, batch, &forward, &loss_options[0]));
  forward.never = (const int32_t[]){7};
  forward.never_count = 1;
  assert_refused("loss 'nll' is of logits as they are", find(&s, batch, &forward, &loss_options[0]));
  treadle_batch_destroy(batch);
  close_scene(&s);
}

/* Which value of row 1 is not finite; or the call fails. */
typedef enum nothing { NO_LOSS, NO_SLOPE, NO_ENTROPY, FAILS, RETURNS_5 } nothing;

static treadle_status give_nan(void *context, const treadle_loss_row *row) {
  const nothing which = *(const nothing *)context;
  if (row->row != 1) return TREADLE_OK;
  if (which == FAILS) return treadle_fail(TREADLE_DIFFERENT, "the caller does not like row 1");
  if (which == RETURNS_5) return (treadle_status)5;
  double *const values[] = {row->losses, row->by_log_prob, row->by_entropy};
  values[which][0] = which == NO_SLOPE ? -INFINITY : NAN;
  return TREADLE_OK;
}

static treadle_status give_huge(void *context, const treadle_loss_row *row) {
  (void)context;
  for (int64_t i = 0; i < row->count; i++) row->losses[i] = DBL_MAX;
  return TREADLE_OK;
}

static void refused_values(void **state) {
  (void)state;
  static const char *const texts[] = {"row 1: of_row gives for token 3 a loss of nan with slopes 0 and 0",
                                      "row 1: of_row gives for token 3 a loss of 0 with slopes -inf and 0",
                                      "row 1: of_row gives for token 3 a loss of 0 with slopes 0 and nan"};
  const treadle_forward_options forward = loss_forward(&loss_options[2]);
  nothing which;
  const treadle_loss_options mine = {.struct_size = sizeof mine, .of_row = give_nan, .context = &which};
  treadle_batch *batch;
  scene s;
  open_scene(&s, "hf:dtype=fp32");
  assert_ok(loss_batch(SHORT, false, &batch));
  for (which = NO_LOSS; which < FAILS; which++)
    assert_refused(texts[which], find(&s, batch, &forward, &mine));
  assert_fails(TREADLE_DIFFERENT, "the caller does not like row 1", find(&s, batch, &forward, &mine));
  which = RETURNS_5;
  assert_refused("row 1: of_row returns 5, which is not a treadle_status",
                 find(&s, batch, &forward, &mine));
  const treadle_loss_options huge = {.struct_size = sizeof huge, .of_row = give_huge};
  assert_refused("the loss of all rows is inf", find(&s, batch, &forward, &huge));
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1e-3};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  assert_fails(TREADLE_STATE, "gradients failed", treadle_trainer_step(s.trainer, &step, &figures));
  assert_ok(find(&s, batch, &forward, &loss_options[2]));
  assert_ok(treadle_trainer_step(s.trainer, &step, &figures));
  treadle_batch_destroy(batch);
  close_scene(&s);
}

static void refused_out(void **state) {
  (void)state;
  const treadle_forward_options forward = loss_forward(&loss_options[1]);
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_batch *batch, *out, *less;
  float values[100], again[100];
  scene s;
  open_scene(&s, "hf:dtype=fp32");
  assert_ok(loss_batch(SHORT, false, &batch));
  assert_ok(rows_out(batch, &out));
  assert_ok(treadle_batch_create(2, &less));
  assert_refused("out has 2 rows, the batch 10",
                 treadle_trainer_logprobs(s.trainer, batch, &forward, NULL, less));
  assert_refused("out has 2 rows, the batch 10",
                 treadle_trainer_gradients(s.trainer, batch, &forward, &loss_options[1], less, &found));
  assert_ok(treadle_trainer_logprobs(s.trainer, batch, &forward, NULL, out));
  const size_t count = rows_counted(batch, out, "log_probs", values);
  assert_refused("log_probs", treadle_trainer_logprobs(s.trainer, batch, &forward, NULL, out));
  assert_refused("log_probs",
                 treadle_trainer_gradients(s.trainer, batch, &forward, &loss_options[1], out, &found));
  assert_int_equal(rows_counted(batch, out, "log_probs", again), count);
  assert_memory_equal(again, values, count * sizeof *values);
  remove_column(out, "log_probs");
  assert_refused("entropies", treadle_trainer_logprobs(s.trainer, batch, &forward, NULL, out));
  treadle_batch_destroy(batch);
  treadle_batch_destroy(out);
  treadle_batch_destroy(less);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ppo_as_own),      cmocka_unit_test(column_of_micro_batches),
      cmocka_unit_test(refused_batches), cmocka_unit_test(refused_losses),
      cmocka_unit_test(refused_values),  cmocka_unit_test(refused_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
