/* [mpirun -n N] bench_train MODEL [--layout hf:dtype=bf16] [--rows 64] [--tokens 160] [--micro-batch-size 16] [--threads N] [--kernels NAME]
 * [--exact on|off] [--device cpu] [--steps 3] [--lora-rank R]: seconds of the parts of a training step, as one JSON object.
 *
 * Forward is the loss alone, gradients are forward and backward, adamw is the optimizer's step. Each is done once before it is
 * timed, from barrier to barrier; printed are medians over the steps. Tokens are made up, and all of a row after its
 * first count. */
#include "ranks.h"

#include "treadle_builtin.h"

enum { STEPS_MOST = 100, ROWS_MOST = 4096, TOKENS_MOST = 1 << 16 };
enum { FORWARD, GRADIENTS, ADAMW, PARTS };
static const char *const part_names[PARTS] = {"forward", "gradients", "adamw"};

typedef struct bench {
  const char *layout, *kernels, *exact;
  int64_t rows, tokens, micro, threads, steps, lora_rank;
  treadle_trainer *trainer;
  treadle_batch *batch, *mine; /* the rows; those of this rank */
  treadle_forward_options forward;
  double seconds[PARTS][STEPS_MOST];
} bench;

static const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};

static void forward(void *context) {
  bench *b = context;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  MUST(treadle_trainer_loss(b->trainer, b->mine, &b->forward, &nll, &loss));
}

static void gradients(void *context) {
  bench *b = context;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  MUST(treadle_trainer_gradients(b->trainer, b->mine, &b->forward, &nll, NULL, &loss));
}

static void adamw(void *context) {
  bench *b = context;
  const treadle_optimizer_step step = {
      .struct_size = sizeof step, .lr = 1e-5, .weight_decay = 0.1, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  MUST(treadle_trainer_step(b->trainer, &step, &figures));
}

static void (*const parts[PARTS])(void *context) = {forward, gradients, adamw};

static void make_rows(bench *b) {
  int64_t *offsets = bench_allocate((size_t)b->rows + 1, sizeof *offsets);
  treadle_column column = {
      .struct_size = sizeof column, .name = "ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets};
  for (int64_t r = 0; r <= b->rows; r++) offsets[r] = r * b->tokens;
  MUST(treadle_batch_create(b->rows, &b->batch));
  MUST(treadle_batch_add(b->batch, &column));
  MUST(treadle_batch_column(b->batch, "ids", &column));
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t i = 0; i < b->tokens; i++)
      ((int32_t *)column.data)[r * b->tokens + i] = (int32_t)(3 + (r * 37 + i * 101) % 6000);
  treadle_free(offsets);
}

static void read_options(bench *b, int count, char **texts) {
  for (int i = 2; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--layout")))
      b->layout = value;
    else if ((value = bench_option(texts, &i, "--kernels")))
      b->kernels = value;
    else if ((value = bench_option(texts, &i, "--exact")))
      b->exact = value;
    else if ((value = bench_option(texts, &i, "--rows")))
      b->rows = atoll(value);
    else if ((value = bench_option(texts, &i, "--tokens")))
      b->tokens = atoll(value);
    else if ((value = bench_option(texts, &i, "--micro-batch-size")))
      b->micro = atoll(value);
    else if ((value = bench_option(texts, &i, "--threads")))
      b->threads = atoll(value);
    else if ((value = bench_option(texts, &i, "--steps")))
      b->steps = atoll(value);
    else if ((value = bench_option(texts, &i, "--lora-rank")))
      b->lora_rank = atoll(value);
    else if ((value = bench_option(texts, &i, "--device")))
      MUST(bench_need_host(value, "the built-in trainer computes on the host"));
    else
      bench_give_up("unknown option; see bench/train.c");
  }
  if (b->rows < 1 || b->rows > ROWS_MOST || b->tokens < 2 || b->tokens > TOKENS_MOST || b->micro < 1 ||
      b->threads < 1 || b->steps < 1 || b->steps > STEPS_MOST)
    bench_give_up("a number is out of its range; see bench/train.c");
}

static void open_trainer(bench *b, treadle_group *group, const char *folder) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .kernels = b->kernels,
                                           .threads = (int32_t)b->threads,
                                           .fast = strcmp(b->exact, "off") == 0,
                                           .most_rows = b->micro * b->tokens,
                                           .most_tokens = b->tokens,
                                           .optimizer = true,
                                           .distributed_optimizer = !b->lora_rank,
                                           .lora_rank = b->lora_rank,
                                           .most_micro_batches = (int32_t)(b->rows / b->micro + 1)};
  treadle_model *model;
  treadle_layout *layout;
  MUST(treadle_model_open(folder, NULL, &model));
  MUST(treadle_layout_create(model, b->layout, group->size, NULL, &layout));
  MUST(treadle_trainer_create(group, layout, &options, &b->trainer));
  MUST(treadle_trainer_load(b->trainer));
  b->forward = (treadle_forward_options){.struct_size = sizeof b->forward, .micro_batch_size = b->micro};
  MUST(treadle_trainer_slice(b->trainer, b->batch, &b->forward, NULL, &b->mine));
}

static void measure(bench *b, treadle_group *group) {
  for (int64_t step = -1; step < b->steps; step++)
    for (int part = 0; part < PARTS; part++) {
      double seconds = bench_time(group, parts[part], b);
      if (step >= 0) b->seconds[part][step] = seconds;
    }
}

int main(int count, char **texts) {
  static bench b = {.layout = "hf:dtype=bf16",
                    .exact = "on",
                    .rows = 64,
                    .tokens = 160,
                    .micro = 16,
                    .threads = 2,
                    .steps = 3};
  treadle_group *group;
  MPI_Init(&count, &texts);
  if (count < 2) bench_give_up("bench_train MODEL [options]; see bench/train.c");
  read_options(&b, count, texts);
  make_rows(&b);
  MUST(treadle_group_mpi(NULL, 60, &group));
  open_trainer(&b, group, texts[1]);
  measure(&b, group);
  if (group->rank == 0) {
    double step = 0;
    printf("{");
    for (int part = 0; part < PARTS; part++) {
      double median = bench_median(b.seconds[part], (int)b.steps);
      printf("\"%s\": %.4f, ", part_names[part], median);
      if (part != FORWARD) step += median;
    }
    printf("\"tokens_per_second\": %.1f}\n", (double)(b.rows * b.tokens) / step);
  }
  treadle_batch_destroy(b.mine);
  treadle_batch_destroy(b.batch);
  treadle_trainer_destroy(b.trainer);
  treadle_group_close(group);
  MPI_Finalize();
  return 0;
}
