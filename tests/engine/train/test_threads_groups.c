/* Data parallel ranks with different experts, over threads: a step leaves the same weights on all of them, whoever has the optimizer's state;
 * what is saved goes on in the same layout and in others; and a rank has its share of the state, of experts among those that have the same ones.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "treadle_builtin.h"

#include <sys/stat.h>

enum { ROWS = 5, LENGTH = 30, STEPS = 2, RANKS_MOST = 8 };

static const char *const models[] = {"tests/golden/models/qwen2moe", "tests/golden/models/dsv3-yarn"};

typedef struct scene {
  treadle_layout *layout;
  treadle_trainer_options options;
  const char *folder; /* of the state after the steps */
  bool resumes;       /* it is there; else it is made */
  uint64_t weights, gradients;
} scene;

static treadle_status fill(treadle_batch **batch_p) {
  int32_t ids[ROWS][LENGTH];
  uint8_t mask[ROWS][LENGTH];
  rows_row rows[ROWS];
  for (int r = 0; r < ROWS; r++) {
    for (int i = 0; i < LENGTH; i++) {
      ids[r][i] = (r * 41 + i * i + i / 3) % 200;
      mask[r][i] = i > 0;
    }
    rows[r] = (rows_row){ids[r], mask[r], LENGTH - (size_t)r * 4, 0};
  }
  return rows_batch(rows, ROWS, batch_p);
}

static treadle_status find_gradients(treadle_trainer *trainer, const treadle_batch *all) {
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *mine = NULL;
  treadle_status status = treadle_trainer_slice(trainer, all, &forward, NULL, &mine);
  if (!status) status = treadle_trainer_gradients(trainer, mine, &forward, &nll, NULL, &loss);
  treadle_batch_destroy(mine);
  return status;
}

/* Steps, or the state after them; then one more. */
static int go(treadle_group *group, void *context) {
  scene *s = context;
  const treadle_optimizer_step step = {
      .struct_size = sizeof step, .lr = 1e-2, .weight_decay = 0.1, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_trainer *trainer;
  treadle_batch *batch;
  uint64_t weights, gradients;
  RANK_OK(fill(&batch));
  RANK_OK(treadle_trainer_create(group, s->layout, &s->options, &trainer));
  if (s->resumes) RANK_OK(treadle_trainer_resume(trainer, s->folder));
  if (!s->resumes) RANK_OK(treadle_trainer_load(trainer));
  for (int i = 0; !s->resumes && i < STEPS; i++) {
    RANK_OK(find_gradients(trainer, batch));
    RANK_OK(treadle_trainer_step(trainer, &step, &figures));
  }
  if (!s->resumes) RANK_OK(treadle_trainer_save(trainer, s->folder));
  RANK_OK(find_gradients(trainer, batch));
  RANK_OK(treadle_trainer_digest(trainer, &gradients));
  RANK_OK(treadle_trainer_step(trainer, &step, &figures));
  RANK_OK(treadle_trainer_weights_digest(trainer, &weights));
  if (group->rank == 0) {
    s->weights = weights;
    s->gradients = gradients;
  }
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(batch);
  return 0;
}

/* Bytes of gradients that are of single experts, or of the rest. */
static void count_bytes(const treadle_layout *layout, int64_t rank, size_t *dense_p, size_t *experts_p) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  *dense_p = *experts_p = 0;
  for (int32_t i = 0; treadle_layout_storage(layout, rank, i, &info) == TREADLE_OK; i++)
    *(strstr(info.name, ".experts.") && !strstr(info.name, "shared") ? experts_p : dense_p) +=
        info.bytes / (info.dtype == TREADLE_BF16 ? 2 : 4) * sizeof(float);
}

static const struct {
  const char *layout;
  int ranks;
  size_t dp, expert_dp;
} cuts[] = {{"megatron:ep=2", 2, 2, 1},
            {"megatron:tp=2,ep=4,etp=1", 4, 2, 1},
            {"megatron:ep=2", 4, 4, 2},
            {"megatron:pp=2,ep=2,experts=sequential", 4, 2, 1},
            {"megatron:tp=2,pp=2,ep=2,etp=2", 8, 2, 1}};

typedef struct subject {
  treadle_model *model;
  const char *name, *dtype;
  treadle_trainer_options options;
} subject;

/* Two moments, and masters beside bf16. Shares begin at whole lines of 64 bytes. */
static void check_shares(const subject *of, const treadle_layout *layout, size_t c) {
  const size_t states = strcmp(of->dtype, "bf16") ? 2 : 3, lines = states * 2 * 64;
  treadle_trainer_memory memory[RANKS_MOST];
  assert_ok(treadle_trainer_foresee(layout, &of->options, memory));
  for (int r = 0; r < cuts[c].ranks; r++) {
    size_t dense, experts;
    count_bytes(layout, r, &dense, &experts);
    const size_t wanted = states * (dense / cuts[c].dp + experts / cuts[c].expert_dp);
    assert_true(dense > 0 && experts > 0);
    assert_true(memory[r].optimizer + lines >= wanted && memory[r].optimizer <= wanted + lines);
  }
}

static scene run(const subject *of, const char *layout, int ranks, const char *folder, bool resumes) {
  scene s = {.options = of->options, .folder = folder, .resumes = resumes};
  char text[128];
  snprintf(text, sizeof text, "%s%cdtype=%s", layout, strchr(layout, ':') ? ',' : ':', of->dtype);
  assert_ok(treadle_layout_create(of->model, text, ranks, NULL, &s.layout));
  ranks_as_threads(ranks, 60, 0, go, &s);
  for (size_t c = 0; of->options.distributed_optimizer && c < TEST_COUNT(cuts); c++)
    if (layout == cuts[c].layout && ranks == cuts[c].ranks) check_shares(of, s.layout, c);
  treadle_layout_destroy(s.layout);
  s.layout = NULL;
  return s;
}

static void check_cut(subject *of, size_t c) {
  const char *layout = cuts[c].layout;
  char folder[] = "/tmp/treadle-test-XXXXXX", whole_folder[64], share_folder[64];
  assert_non_null(mkdtemp(folder));
  snprintf(whole_folder, sizeof whole_folder, "%s/whole", folder);
  snprintf(share_folder, sizeof share_folder, "%s/shares", folder);
  assert_int_equal(mkdir(whole_folder, 0777) | mkdir(share_folder, 0777), 0);
  of->options.distributed_optimizer = false;
  const scene whole = run(of, layout, cuts[c].ranks, whole_folder, false);
  of->options.distributed_optimizer = true;
  const scene shares = run(of, layout, cuts[c].ranks, share_folder, false);
  if (shares.weights != whole.weights || shares.gradients != whole.gradients)
    fail_msg("%s, %s: shares of the optimizer give other bits", of->name, layout);
  const scene again = run(of, layout, cuts[c].ranks, share_folder, true);
  if (again.weights != whole.weights || again.gradients != whole.gradients)
    fail_msg("%s, %s: what was saved goes on with other bits", of->name, layout);
  /* in layouts with one order of additions */
  assert_true(run(of, "hf", 1, share_folder, true).weights ==
              run(of, "megatron:pp=2", 2, whole_folder, true).weights);
  test_remove(folder);
}

static void check_steps(const char *name, const char *dtype) {
  char path[512];
  subject of = {.name = name, .dtype = dtype};
  of.options = (treadle_trainer_options){
      .struct_size = sizeof of.options, .threads = 1, .most_rows = LENGTH, .optimizer = true};
  if (strstr(name, "dsv3")) of.options.expert_bias_rate = 1e-3;
  snprintf(path, sizeof path, "%s/%s", TREADLE_SOURCE_DIR, name);
  assert_ok(treadle_model_open(path, NULL, &of.model));
  for (size_t c = 0; c < TEST_COUNT(cuts); c++) check_cut(&of, c);
  treadle_model_close(of.model);
}

static void steps_leave_the_same_weights(void **state) {
  (void)state;
  check_steps(models[0], "fp32");
  check_steps(models[1], "bf16");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_leave_the_same_weights)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
