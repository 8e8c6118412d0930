/* Latent attention in training, over threads: what is made of weights is made again after a step, so that a trainer goes
 * on as one does that has loaded what it saved; FSDP2 on one rank has the bits of one rank; cuts that no rank can
 * compute with are refused.
 * ctest: label=threads label=kernels */
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "treadle_builtin.h"

enum { ROWS = 3, LENGTH = 40, STEPS = 2 };

static const char *const models[] = {"tests/data/latent/v3", "tests/data/latent/v2"};

typedef struct scene {
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer_options options;
  char folder[64]; /* where its state is saved */
  uint64_t digest; /* of gradients after the steps */
  double nll;
} scene;

static void open_model(scene *s, const char *model) {
  char path[512];
  *s = (scene){.options = {.struct_size = sizeof s->options, .threads = 1, .most_rows = ROWS * LENGTH}};
  snprintf(path, sizeof path, "%s/%s/config.json", TREADLE_SOURCE_DIR, model);
  assert_ok(treadle_model_open(path, NULL, &s->model));
}

static treadle_status fill(treadle_batch **batch_p) {
  int32_t ids[ROWS][LENGTH];
  uint8_t mask[ROWS][LENGTH];
  rows_row rows[ROWS];
  for (int r = 0; r < ROWS; r++) {
    for (int i = 0; i < LENGTH; i++) {
      ids[r][i] = (r * 5 + i * i + i / 3) % 16;
      mask[r][i] = i > 0;
    }
    rows[r] = (rows_row){ids[r], mask[r], LENGTH - (size_t)r * 7, 0};
  }
  return rows_batch(rows, ROWS, batch_p);
}

/* Loss and gradients of this rank's rows, all in one micro batch of each replica. */
static treadle_status look(treadle_trainer *trainer, const treadle_batch *all, double *nll_p,
                           uint64_t *digest_p) {
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = ROWS};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *mine = NULL;
  treadle_status status = treadle_trainer_slice(trainer, all, &forward, NULL, &mine);
  if (!status) status = treadle_trainer_gradients(trainer, mine, &forward, &nll, NULL, &loss);
  if (!status) status = treadle_trainer_digest(trainer, digest_p);
  *nll_p = loss.nll;
  treadle_batch_destroy(mine);
  return status;
}

/* ---- Steps ---- */

static int take_steps(treadle_group *group, void *context) {
  scene *s = context;
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1e-2};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_trainer *trainer, *fresh;
  treadle_batch *batch;
  double first, nll, loaded_nll;
  uint64_t digest, loaded;
  RANK_OK(fill(&batch));
  RANK_OK(treadle_trainer_create(group, s->layout, &s->options, &trainer));
  RANK_OK(treadle_trainer_randomise(trainer, 11));
  RANK_OK(look(trainer, batch, &first, &digest));
  for (int i = 0; i < STEPS; i++) {
    RANK_OK(treadle_trainer_step(trainer, &step, &figures));
    RANK_OK(look(trainer, batch, &nll, &digest));
  }
  RANK_TRUE(nll < first);
  if (group->rank == 0) {
    s->nll = nll;
    s->digest = digest;
  }
  RANK_OK(treadle_trainer_save(trainer, s->folder));
  RANK_OK(treadle_trainer_create(group, s->layout, &s->options, &fresh));
  RANK_OK(treadle_trainer_resume(fresh, s->folder));
  RANK_OK(look(fresh, batch, &loaded_nll, &loaded));
  RANK_TRUE(loaded_nll == nll);
  RANK_TRUE(loaded == digest);
  treadle_trainer_destroy(fresh);
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(batch);
  return 0;
}

static void run_steps(scene *s, const char *layout, int ranks) {
  snprintf(s->folder, sizeof s->folder, "/tmp/treadle-test-XXXXXX");
  assert_non_null(mkdtemp(s->folder));
  assert_ok(treadle_layout_create(s->model, layout, ranks, NULL, &s->layout));
  ranks_as_threads(ranks, 60, 0, take_steps, s);
  treadle_layout_destroy(s->layout);
  test_remove(s->folder);
}

static void goes_on_as_loaded(void **state) {
  (void)state;
  static const struct {
    const char *layout;
    int ranks;
    bool exact; /* one replica: the bits of one rank */
  } cuts[] = {{"hf", 1, true},         {"megatron:tp=2", 2, true},  {"megatron:pp=2", 2, true},
              {"fsdp2:dp=1", 1, true}, {"megatron:tp=1", 2, false}, {"fsdp2:dp=2", 2, false}};
  static const char *const types[] = {"fp32", "bf16"};
  for (size_t i = 0; i < TEST_COUNT(models) * TEST_COUNT(types); i++) {
    uint64_t digest = 0;
    for (size_t c = 0; c < TEST_COUNT(cuts); c++) {
      char text[128];
      scene s;
      open_model(&s, models[i / 2]);
      s.options.optimizer = true;
      s.options.distributed_optimizer = strcmp(cuts[c].layout, "megatron:tp=1") == 0;
      s.options.recompute = c % 2;
      snprintf(text, sizeof text, "%s%cdtype=%s", cuts[c].layout, strchr(cuts[c].layout, ':') ? ',' : ':',
               types[i % 2]);
      run_steps(&s, text, cuts[c].ranks);
      if (c == 0) digest = s.digest;
      if (cuts[c].exact && s.digest != digest) fail_msg("%s, %s: other bits", models[i / 2], text);
      treadle_model_close(s.model);
    }
  }
}

/* ---- Refused ---- */

/* Down projections that ranks have in parts. */
static void cut_down(void **state) {
  (void)state;
  static const char *const layouts[] = {"megatron:tp=2,spec=local",
                                        "megatron:tp=2,mla_down_proj_fusion=on"};
  treadle_trainer_memory memory[2];
  scene s;
  open_model(&s, models[0]);
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    assert_ok(treadle_layout_create(s.model, layouts[i], 2, NULL, &s.layout));
    assert_fails(TREADLE_REFUSED, "rows 0 to 20 are there, 0 to 40 are needed",
                 treadle_trainer_foresee(s.layout, &s.options, memory));
    treadle_layout_destroy(s.layout);
  }
  treadle_model_close(s.model);
}

/* A step before there are weights, of which copies could be made. */
static void steps_first(void **state) {
  (void)state;
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1e-2};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_trainer *trainer;
  treadle_batch *batch;
  double nll;
  uint64_t digest;
  scene s;
  open_model(&s, models[0]);
  s.options.optimizer = true;
  assert_ok(treadle_layout_create(s.model, "hf", 1, NULL, &s.layout));
  assert_ok(treadle_trainer_create(NULL, s.layout, &s.options, &trainer));
  assert_ok(treadle_trainer_step(trainer, &step, &figures));
  assert_ok(treadle_trainer_randomise(trainer, 11));
  assert_ok(fill(&batch));
  assert_ok(look(trainer, batch, &nll, &digest));
  treadle_batch_destroy(batch);
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(s.layout);
  treadle_model_close(s.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on_as_loaded), cmocka_unit_test(cut_down),
                                     cmocka_unit_test(steps_first)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
