/* A critic on one rank: values, scores and the loss "value" are those of a twin that computes in double (critic.h), its gradients those of
 * finite differences; bits do not depend on micro batches, shared prompts and threads; a value is the score of the row that ends before
 * the token; steps make the loss smaller; what is refused. Ranks: test_threads_values.c. */
#include "test.h"
#include "train/critic.h"

#include "train/trainer.h"
#include "train/value.h"

#include <float.h>
#include <math.h>

enum { SHORT = 20, LONG = 900, VALUES_MOST = 2048 };

typedef struct scene {
  const char *folder;
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
} scene;

static void open_scene(scene *s, critic_head head, const char *layout) {
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .threads = 2, .most_rows = 1024, .optimizer = true};
  s->folder = test_folder();
  assert_ok(critic_write(s->folder, head));
  assert_ok(critic_open(s->folder, true, &s->model));
  assert_ok(treadle_layout_create(s->model, layout, 1, NULL, &s->layout));
  assert_ok(treadle_trainer_create(NULL, s->layout, &options, &s->trainer));
  assert_ok(treadle_trainer_load(s->trainer));
}

static void close_scene(scene *s) {
  treadle_trainer_destroy(s->trainer);
  treadle_layout_destroy(s->layout);
  treadle_model_close(s->model);
  test_remove(s->folder);
}

static const treadle_forward_options by_three = {.struct_size = sizeof by_three, .micro_batch_size = 3};
static const treadle_loss_options clipped = {
    .struct_size = sizeof clipped, .name = "value", .clip_value = 0.5};

/* All values of a column. */
static size_t column_of(const treadle_batch *batch, const char *name, float *to) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, name, &column));
  assert_int_equal(column.type, TREADLE_COLUMN_FP32);
  const int64_t rows = treadle_batch_rows(batch), first = column.offsets[0];
  const size_t count = (size_t)(column.offsets[rows] - first);
  assert_true(count <= VALUES_MOST);
  memcpy(to, (const float *)column.data + first, count * sizeof *to);
  return count;
}

static size_t values_of(const scene *s, const treadle_batch *batch, const treadle_forward_options *forward,
                        float *to) {
  treadle_batch *out;
  assert_ok(rows_out(batch, &out));
  assert_ok(treadle_trainer_values(s->trainer, batch, forward, out));
  const size_t count = column_of(out, "values", to);
  treadle_batch_destroy(out);
  return count;
}

static void scores_of(const scene *s, const treadle_batch *batch, const treadle_forward_options *forward,
                      double *to) {
  treadle_batch *out;
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(rows_out(batch, &out));
  assert_ok(treadle_trainer_scores(s->trainer, batch, forward, out));
  assert_ok(treadle_batch_column(out, "score", &column));
  assert_true(column.type == TREADLE_COLUMN_FP64 && !column.offsets && column.width == 1);
  memcpy(to, column.data, (size_t)treadle_batch_rows(batch) * sizeof *to);
  treadle_batch_destroy(out);
}

/* ---- The twin --------------------------------------------------------------------------------------------- */

static void check_values(critic_head head, const char *layout, size_t longest, double bound) {
  static float got[VALUES_MOST];
  static double wanted[VALUES_MOST];
  double scores[LOSS_ROWS], far = 0, size = 0;
  scene s;
  critic_twin twin;
  treadle_batch *batch;
  open_scene(&s, head, layout);
  critic_twin_open(&twin, s.folder);
  assert_ok(critic_batch(longest, &batch));
  critic_twin_values(&twin, batch, wanted);
  const size_t count = values_of(&s, batch, &by_three, got);
  for (size_t i = 0; i < count; i++) {
    assert_true((wanted[i] == 0) == (got[i] == 0)); /* tokens that do not count */
    far = fmax(far, fabs((double)got[i] - wanted[i]));
    size = fmax(size, fabs(wanted[i]));
  }
  assert_true(size > 0.3 && far <= bound * size);
  scores_of(&s, batch, &by_three, scores);
  treadle_column prompts = TREADLE_INIT(treadle_column), ids = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, "prompt_ids", &prompts));
  assert_ok(treadle_batch_column(batch, "ids", &ids));
  for (int r = 0; r < LOSS_ROWS; r++) {
    static int32_t row[1024];
    static double heads[1024];
    const size_t prompt = (size_t)(prompts.offsets[r + 1] - prompts.offsets[r]),
                 rest = (size_t)(ids.offsets[r + 1] - ids.offsets[r]);
    memcpy(row, (const int32_t *)prompts.data + prompts.offsets[r], prompt * sizeof *row);
    memcpy(row + prompt, (const int32_t *)ids.data + ids.offsets[r], rest * sizeof *row);
    critic_twin_run(&twin, row, prompt + rest, heads);
    assert_true(fabs(scores[r] - heads[prompt + rest - 1]) <= bound * size);
  }
  treadle_batch_destroy(batch);
  critic_twin_close(&twin);
  close_scene(&s);
}

static void values_of_twin(void **state) {
  (void)state;
  check_values(CRITIC_SCORE, "hf:dtype=fp32", SHORT, 1e-5);
  check_values(CRITIC_SCORE_BIAS, "megatron:dtype=fp32", SHORT, 1e-5);
  check_values(CRITIC_BOTH, "hf:dtype=fp32", LONG, 1e-5);
  check_values(CRITIC_SCORE_BIAS, "hf:dtype=bf16", SHORT, 3e-2);
}

/* ---- Loss and gradients ----------------------------------------------------------------------------------- */

/* Some elements of each tensor against finite differences of the twin's loss. */
static void check_gradients(const scene *s, critic_twin *twin, const treadle_batch *batch,
                            const treadle_loss_options *loss) {
  enum { SAMPLES = 3 };
  const float *window = treadle_trainer_grad_window(s->trainer, NULL);
  const double step = 1e-5;
  for (int t = 0; t < twin->count; t++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    const int32_t storage = treadle_layout_find(s->layout, 0, twin->names[t]);
    double norm = 0;
    assert_true(storage >= 0);
    assert_ok(treadle_layout_storage(s->layout, 0, storage, &info));
    const float *got = window + info.offset_bytes / 4;
    for (int64_t i = 0; i < twin->counts[t]; i++) norm += (double)got[i] * (double)got[i];
    for (int64_t k = 0; k < SAMPLES; k++) {
      const int64_t i = (twin->counts[t] - 1) * k / (SAMPLES - 1);
      double *weight = &twin->weights[t][i], was = *weight;
      *weight = was + step;
      const double above = critic_twin_loss(twin, batch, loss);
      *weight = was - step;
      const double below = critic_twin_loss(twin, batch, loss);
      *weight = was;
      const double wanted = (above - below) / (2 * step);
      if (!(fabs((double)got[i] - wanted) <= 1e-4 * sqrt(norm) + 1e-7))
        fail_msg("%s[%lld]: gradient %.9g, by differences %.9g (norm %g)", twin->names[t], (long long)i,
                 (double)got[i], wanted, sqrt(norm));
    }
    assert_true(norm > 0);
  }
}

static void loss_of_twin(void **state) {
  (void)state;
  static const treadle_loss_options losses[] = {
      {.struct_size = sizeof clipped, .name = "value", .clip_value = 0.5},
      {.struct_size = sizeof clipped, .name = "value", .clip_value = INFINITY},
      {.struct_size = sizeof clipped,
       .name = "value",
       .clip_value = 0.2,
       .aggregation = "seq-mean-token-sum"},
      {.struct_size = sizeof clipped,
       .name = "value",
       .clip_value = 0,
       .aggregation = "seq-mean-token-mean"},
      {.struct_size = sizeof clipped,
       .name = "value",
       .clip_value = 1,
       .aggregation = "seq-mean-token-sum-norm",
       .norm_length = 7}};
  static float before[VALUES_MOST], again[VALUES_MOST];
  scene s;
  critic_twin twin;
  treadle_batch *batch;
  open_scene(&s, CRITIC_SCORE_BIAS, "hf:dtype=fp32");
  critic_twin_open(&twin, s.folder);
  assert_ok(critic_batch(SHORT, &batch));
  const size_t count = values_of(&s, batch, &by_three, before);
  for (size_t l = 0; l < TEST_COUNT(losses); l++) {
    treadle_loss trained = TREADLE_INIT(treadle_loss), found = TREADLE_INIT(treadle_loss);
    treadle_batch *out;
    const double wanted = critic_twin_loss(&twin, batch, &losses[l]);
    double mean = 0;
    assert_ok(rows_out(batch, &out));
    assert_ok(treadle_trainer_gradients(s.trainer, batch, &by_three, &losses[l], out, &trained));
    assert_ok(treadle_trainer_loss(s.trainer, batch, &by_three, &losses[l], &found));
    assert_memory_equal(&trained, &found, sizeof found);
    assert_true(fabs(trained.loss - wanted) <= 1e-5 * wanted && trained.vf_loss == trained.loss);
    assert_true(trained.nll == 0 && trained.pg_loss == 0 && trained.clipfrac == 0);
    assert_true(isinf(losses[l].clip_value) ? trained.vf_clipfrac == 0
                                            : trained.vf_clipfrac > 0 && trained.vf_clipfrac < 1);
    for (size_t i = 0; i < count; i++) mean += (double)before[i];
    assert_true(fabs(trained.vpred_mean - mean / (double)trained.tokens) <= 1e-12);
    assert_int_equal(column_of(out, "values", again), count);
    assert_memory_equal(before, again, count * sizeof *again);
    assert_false(treadle_batch_has(out, "log_probs"));
    treadle_batch_destroy(out);
    check_gradients(&s, &twin, batch, &losses[l]);
  }
  treadle_batch_destroy(batch);
  critic_twin_close(&twin);
  close_scene(&s);
}

/* Numbers of verl's tests. */
static void of_token(void **state) {
  (void)state;
  const treadle_value_loss loss = {.clip = 0.5};
  const struct {
    treadle_value_token token;
    double loss, by_value;
    bool clipped;
  } cases[] = {{{1, 0.2, 0, 1}, 0.5, 1, false},        {{1, 0.2, 2, 1}, 0.845, 0, true},
               {{1, 0.2, 2, 0.25}, 0.21125, 0, true},  {{-1, 0.2, 0, 2}, 1, -2, false},
               {{0.5, 0.2, 2, 1}, 1.125, -1.5, false}, {{-1, 0.2, -3, 1}, 3.645, 0, true}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_value_term term;
    treadle_value_of_token(&loss, &cases[i].token, &term);
    assert_true(fabs(term.loss - cases[i].loss) <= 1e-15 && term.by_value == cases[i].by_value &&
                term.clipped == cases[i].clipped);
  }
}

/* ---- Bits ------------------------------------------------------------------------------------------------- */

/* A batch of one row: a row of another one, cut before a token. */
static void cut_row(const treadle_batch *batch, int row, int64_t rest, treadle_batch **cut_p) {
  static int32_t ids[64];
  treadle_column prompts = TREADLE_INIT(treadle_column), of_ids = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, "prompt_ids", &prompts));
  assert_ok(treadle_batch_column(batch, "ids", &of_ids));
  const size_t prompt = (size_t)(prompts.offsets[row + 1] - prompts.offsets[row]);
  memcpy(ids, (const int32_t *)prompts.data + prompts.offsets[row], prompt * sizeof *ids);
  memcpy(ids + prompt, (const int32_t *)of_ids.data + of_ids.offsets[row], (size_t)rest * sizeof *ids);
  const rows_row one = {ids, NULL, prompt + (size_t)rest, rest ? prompt : 0};
  assert_ok(rows_batch(&one, 1, cut_p));
}

static void same_bits(void **state) {
  (void)state;
  static const treadle_forward_options forwards[] = {
      {.struct_size = sizeof by_three, .micro_batch_size = 1},
      {.struct_size = sizeof by_three, .micro_batch_size = 10},
      {.struct_size = sizeof by_three, .max_tokens_per_micro = 30, .temperature = 0.7}};
  static float wanted[VALUES_MOST], got[VALUES_MOST];
  double scores[LOSS_ROWS], again[LOSS_ROWS];
  scene s;
  treadle_batch *batch;
  treadle_column ids = TREADLE_INIT(treadle_column), mask = TREADLE_INIT(treadle_column);
  treadle_loss loss = TREADLE_INIT(treadle_loss), other = TREADLE_INIT(treadle_loss);
  open_scene(&s, CRITIC_SCORE_BIAS, "hf:dtype=fp32");
  assert_ok(critic_batch(SHORT, &batch));
  const size_t count = values_of(&s, batch, &by_three, wanted);
  scores_of(&s, batch, &by_three, scores);
  assert_ok(treadle_trainer_loss(s.trainer, batch, &by_three, &clipped, &loss));
  for (size_t f = 0; f < TEST_COUNT(forwards); f++) {
    assert_int_equal(values_of(&s, batch, &forwards[f], got), count);
    assert_memory_equal(got, wanted, count * sizeof *got);
    scores_of(&s, batch, &forwards[f], again);
    assert_memory_equal(again, scores, sizeof scores);
    assert_ok(treadle_trainer_loss(s.trainer, batch, &forwards[f], &clipped, &other));
    assert_memory_equal(&other, &loss, sizeof loss);
  }
  assert_ok(treadle_batch_column(batch, "ids", &ids));
  assert_ok(treadle_batch_column(batch, "mask", &mask));
  for (int r = 0; r < LOSS_ROWS; r++)
    for (int64_t i = ids.offsets[r]; i < ids.offsets[r + 1]; i++) {
      treadle_batch *cut;
      double score;
      if (!((const uint8_t *)mask.data)[i]) continue;
      cut_row(batch, r, i - ids.offsets[r], &cut);
      scores_of(&s, cut, &by_three, &score);
      assert_true(score == (double)wanted[i]);
      treadle_batch_destroy(cut);
    }
  treadle_batch_destroy(batch);
  close_scene(&s);
}

/* One token is a row that can be scored; prompts alone, equal or not, are rows, too. */
static void short_rows(void **state) {
  (void)state;
  static const int32_t ids[] = {3, 7, 7, 3};
  const rows_row rows[] = {{ids, NULL, 1, 0}, {ids, NULL, 2, 2}, {ids, NULL, 2, 2}, {ids, NULL, 3, 2}};
  double heads[4], scores[4];
  scene s;
  critic_twin twin;
  treadle_batch *batch;
  open_scene(&s, CRITIC_SCORE, "hf:dtype=fp32");
  critic_twin_open(&twin, s.folder);
  assert_ok(rows_batch(rows, 4, &batch));
  scores_of(&s, batch, &by_three, scores);
  critic_twin_run(&twin, ids, 4, heads);
  for (int r = 0; r < 4; r++)
    assert_true(fabs(scores[r] - heads[rows[r].count - 1]) <= 1e-5 * fmax(1, fabs(heads[2])));
  assert_true(scores[1] == scores[2]);
  treadle_batch_destroy(batch);
  critic_twin_close(&twin);
  close_scene(&s);
}

/* ---- Steps ------------------------------------------------------------------------------------------------ */

/* A language model begins with zeros; then values come near to returns. */
static void steps(void **state) {
  (void)state;
  static float values[VALUES_MOST];
  const treadle_loss_options plain = {.struct_size = sizeof plain, .name = "value", .clip_value = INFINITY};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.02, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_train_engine engine = TREADLE_INIT(treadle_train_engine);
  treadle_loss found = TREADLE_INIT(treadle_loss);
  scene s;
  treadle_batch *batch, *out;
  double first = 0;
  open_scene(&s, CRITIC_LM, "hf:dtype=fp32");
  treadle_trainer_destroy(s.trainer);
  s.trainer = NULL;
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .threads = 1, .most_rows = 200, .optimizer = true};
  assert_ok(treadle_trainer_open_engine(NULL, NULL, s.layout, &options, &engine));
  assert_ok(engine.load(engine.engine));
  assert_ok(critic_batch(SHORT, &batch));
  assert_ok(rows_out(batch, &out));
  assert_ok(engine.values(engine.engine, batch, &by_three, out));
  for (size_t i = column_of(out, "values", values); i-- > 0;) assert_true(values[i] == 0);
  treadle_batch_destroy(out);
  for (int i = 0; i < 20; i++) {
    assert_ok(rows_out(batch, &out));
    assert_ok(engine.update(engine.engine, batch, &by_three, &plain, &step, out, &figures));
    assert_true(treadle_batch_has(out, "values") && figures.grad_norm > 0 && !figures.skipped);
    if (i == 0) first = figures.loss.vf_loss;
    treadle_batch_destroy(out);
  }
  assert_ok(engine.loss(engine.engine, batch, &by_three, &plain, &found));
  assert_true(found.loss < 0.5 * first);
  assert_ok(rows_out(batch, &out));
  assert_ok(engine.scores(engine.engine, batch, &by_three, out));
  assert_true(treadle_batch_has(out, "score"));
  treadle_batch_destroy(out);
  treadle_batch_destroy(batch);
  engine.close(engine.engine);
  close_scene(&s);
}

/* ---- What is refused -------------------------------------------------------------------------------------- */

static treadle_status own_loss(void *context, const treadle_loss_row *row) {
  (void)context;
  (void)row;
  return TREADLE_OK;
}

/* Adapters are of language models: those of its layers, and one of a head that it has not. */
static void no_adapters(void **state) {
  (void)state;
  static const char *const modules[][2] = {
      {"all-linear", "adapters are of language models, and this one has a score head"},
      {"q_proj,lm_head", "has a score head in place of lm_head, and adapters are of language models"}};
  scene s;
  open_scene(&s, CRITIC_BOTH, "hf:dtype=fp32");
  for (size_t i = 0; i < TEST_COUNT(modules); i++) {
    const treadle_trainer_options options = {
        .struct_size = sizeof options, .threads = 1, .lora_rank = 2, .lora_modules = modules[i][0]};
    treadle_trainer *trainer;
    assert_refused(modules[i][1], treadle_trainer_create(NULL, s.layout, &options, &trainer));
  }
  close_scene(&s);
}

static void other_head(void **state) {
  (void)state;
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"},
                             ppo = {.struct_size = sizeof ppo, .name = "ppo", .clip_c = 3},
                             own = {.struct_size = sizeof own, .of_row = own_loss};
  const treadle_trainer_options options = {.struct_size = sizeof options, .threads = 1, .most_rows = 200};
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *lm;
  treadle_generator *generator;
  treadle_batch *batch, *out;
  scene s;
  open_scene(&s, CRITIC_BOTH, "hf:dtype=fp32");
  assert_ok(critic_batch(SHORT, &batch));
  assert_ok(rows_out(batch, &out));
  assert_refused("loss nll: ", treadle_trainer_loss(s.trainer, batch, &by_three, &nll, &found));
  assert_refused("has a score head (score.weight): it gives values and scores, and trains by loss value",
                 treadle_trainer_gradients(s.trainer, batch, &by_three, &ppo, NULL, &found));
  assert_refused("loss of one's own: ", treadle_trainer_loss(s.trainer, batch, &by_three, &own, &found));
  assert_refused("log-probabilities: ", treadle_trainer_logprobs(s.trainer, batch, &by_three, NULL, out));
  assert_refused("has no logits to generate", treadle_generator_create(NULL, s.layout, NULL, &generator));
  treadle_model_options as_lm = TREADLE_INIT(treadle_model_options);
  assert_refused("1 left over: score.weight", treadle_model_open(s.folder, &as_lm, &model));
  assert_ok(critic_write(s.folder, CRITIC_LM));
  assert_ok(treadle_model_open(s.folder, &as_lm, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &lm));
  assert_ok(treadle_trainer_load(lm));
  assert_refused("loss value: ", treadle_trainer_loss(lm, batch, &by_three, &clipped, &found));
  assert_refused("values: ", treadle_trainer_values(lm, batch, &by_three, out));
  assert_refused("has the head of a language model (lm_head.weight): it gives log-probabilities",
                 treadle_trainer_scores(lm, batch, &by_three, out));
  assert_int_equal(treadle_batch_column_count(out), 0);
  treadle_trainer_destroy(lm);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  treadle_batch_destroy(out);
  treadle_batch_destroy(batch);
  close_scene(&s);
}

static void set_value(treadle_batch *batch, const char *name, float value) {
  treadle_column column = TREADLE_INIT(treadle_column), mask = TREADLE_INIT(treadle_column);
  int64_t i = 0;
  assert_ok(treadle_batch_column(batch, name, &column));
  assert_ok(treadle_batch_column(batch, "mask", &mask));
  while (!((const uint8_t *)mask.data)[i]) i++;
  ((float *)column.data)[i] = value;
}

static void wrong_batches(void **state) {
  (void)state;
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_loss_options loss = clipped;
  treadle_forward_options forward = by_three;
  treadle_batch *batch, *out;
  scene s;
  open_scene(&s, CRITIC_SCORE, "hf:dtype=fp32");
  assert_ok(critic_batch(SHORT, &batch));
  assert_ok(rows_out(batch, &out));
  assert_ok(treadle_batch_rename(batch, "values", "other"));
  assert_refused("loss 'value': the batch has no column 'values'",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  assert_ok(treadle_batch_rename(batch, "other", "values"));
  assert_ok(treadle_batch_rename(batch, "returns", "other"));
  assert_refused("loss 'value': the batch has no column 'returns'",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  assert_ok(rows_add(batch, "returns", TREADLE_COLUMN_FP64, NULL));
  assert_refused("column 'returns' is ragged fp64: ragged fp32 is needed",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  assert_ok(treadle_batch_remove(batch, "returns"));
  assert_ok(treadle_batch_rename(batch, "other", "returns"));
  loss.clip_value = -1;
  assert_refused("loss 'value': clip_value is -1: 0 at least",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  loss.clip_value = NAN;
  assert_refused("clip_value is", treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  loss = clipped;
  loss.aggregation = "mean";
  assert_refused("loss: aggregation 'mean'",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  loss.aggregation = "seq-mean-token-sum-norm";
  assert_refused("needs a norm_length above 0",
                 treadle_trainer_loss(s.trainer, batch, &by_three, &loss, &found));
  forward.entropies = true;
  assert_refused("entropies are of log-probabilities, and a score head gives none",
                 treadle_trainer_values(s.trainer, batch, &forward, out));
  forward.entropies = false;
  forward.micro_batch_size = 0;
  assert_refused("micro batches of 0 rows", treadle_trainer_scores(s.trainer, batch, &forward, out));
  set_value(batch, "returns", INFINITY);
  assert_refused("row 0: loss 'value' of token",
                 treadle_trainer_gradients(s.trainer, batch, &by_three, &clipped, NULL, &found));
  set_value(batch, "returns", 1);
  set_value(batch, "values", NAN);
  assert_refused("row 0: loss 'value' of token",
                 treadle_trainer_gradients(s.trainer, batch, &by_three, &clipped, NULL, &found));
  set_value(batch, "values", 1);
  assert_ok(treadle_trainer_gradients(s.trainer, batch, &by_three, &clipped, NULL, &found));
  assert_ok(treadle_trainer_values(s.trainer, batch, &by_three, out));
  assert_refused("out has a column 'values' already",
                 treadle_trainer_values(s.trainer, batch, &by_three, out));
  treadle_batch_destroy(out);
  treadle_batch_destroy(batch);
  close_scene(&s);
}

/* Of what tokens were drawn from, nothing is read. */
static void draws_are_ignored(void **state) {
  (void)state;
  static float wanted[VALUES_MOST], got[VALUES_MOST];
  static const int32_t never[] = {1, 2};
  const treadle_forward_options cold = {.struct_size = sizeof cold,
                                        .micro_batch_size = 3,
                                        .temperature = 0.3,
                                        .never = never,
                                        .never_count = 2};
  treadle_batch *batch;
  scene s;
  open_scene(&s, CRITIC_SCORE, "hf:dtype=fp32");
  assert_ok(critic_batch(SHORT, &batch));
  const size_t count = values_of(&s, batch, &by_three, wanted);
  assert_ok(rows_add(batch, "kept", TREADLE_COLUMN_INT32, NULL)); /* without kept_counts */
  assert_int_equal(values_of(&s, batch, &cold, got), count);
  assert_memory_equal(got, wanted, count * sizeof *got);
  treadle_batch_destroy(batch);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_of_twin), cmocka_unit_test(loss_of_twin),
                                     cmocka_unit_test(of_token),       cmocka_unit_test(same_bits),
                                     cmocka_unit_test(short_rows),     cmocka_unit_test(steps),
                                     cmocka_unit_test(other_head),     cmocka_unit_test(no_adapters),
                                     cmocka_unit_test(wrong_batches),  cmocka_unit_test(draws_are_ignored)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
