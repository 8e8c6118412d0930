/* [mpirun -n N] bench_train MODEL [--layout hf:dtype=bf16] [--rows 64] [--tokens 160] [--micro-batch-size 16] [--threads N] [--kernels NAME]
 * [--exact on|off] [--device cpu] [--steps 3]: seconds of the parts of a training step, as one JSON object.
 *
 * Forward is the loss alone, gradients are forward and backward, adamw is the optimizer's step. Each is done once before it is
 * timed, from barrier to barrier; printed are medians over the steps. Rows are of made-up tokens, all of which count. */
#include "ranks.h"

#include "treadle_builtin.h"

enum { STEPS_MOST = 100, ROWS_MOST = 4096, TOKENS_MOST = 1 << 16 };
enum { FORWARD, GRADIENTS, ADAMW, PARTS };
static const char *const part_names[PARTS] = {"forward", "gradients", "adamw"};

typedef struct bench {
  const char *layout, *kernels, *exact;
  int64_t rows, tokens, micro, threads, steps;
  treadle_train_engine engine;
  treadle_train_batch batch;
  double seconds[PARTS][STEPS_MOST];
} bench;

static void forward(void *context) {
  bench *b = context;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  MUST(b->engine.loss(b->engine.engine, &b->batch, &loss));
}

static void gradients(void *context) {
  bench *b = context;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  MUST(b->engine.gradients(b->engine.engine, &b->batch, &loss));
}

static void adamw(void *context) {
  bench *b = context;
  const treadle_optimizer_step step = {
      .struct_size = sizeof step, .lr = 1e-5, .weight_decay = 0.1, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  MUST(b->engine.step(b->engine.engine, &step, &figures));
}

static void (*const parts[PARTS])(void *context) = {forward, gradients, adamw};

static void make_rows(bench *b) {
  treadle_train_row *rows = bench_allocate((size_t)b->rows, sizeof *rows);
  int32_t *ids = bench_allocate((size_t)(b->rows * b->tokens), sizeof *ids);
  uint8_t *mask = bench_allocate((size_t)b->tokens, 1);
  for (int64_t i = 0; i < b->tokens; i++) mask[i] = i > 0;
  for (int64_t r = 0; r < b->rows; r++) {
    for (int64_t i = 0; i < b->tokens; i++)
      ids[r * b->tokens + i] = (int32_t)(3 + (r * 37 + i * 101) % 6000);
    rows[r] = (treadle_train_row){ids + r * b->tokens, mask, (size_t)b->tokens};
  }
  b->batch = (treadle_train_batch){.struct_size = sizeof b->batch,
                                   .rows = rows,
                                   .count = (size_t)b->rows,
                                   .micro_batch_size = (size_t)b->micro};
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
    else if ((value = bench_option(texts, &i, "--device")))
      MUST(bench_need_host(value, "the built-in trainer computes on the host"));
    else
      bench_give_up("unknown option; see bench/train.c");
  }
  if (b->rows < 1 || b->rows > ROWS_MOST || b->tokens < 2 || b->tokens > TOKENS_MOST || b->micro < 1 ||
      b->threads < 1 || b->steps < 1 || b->steps > STEPS_MOST)
    bench_give_up("a number is out of its range; see bench/train.c");
}

static void open_engine(bench *b, treadle_group *group, const char *folder) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .kernels = b->kernels,
                                           .threads = (int32_t)b->threads,
                                           .fast = strcmp(b->exact, "off") == 0,
                                           .most_rows = b->micro * b->tokens,
                                           .most_tokens = b->tokens,
                                           .optimizer = true,
                                           .distributed_optimizer = true,
                                           .most_micro_batches = (int32_t)(b->rows / b->micro + 1)};
  treadle_model *model;
  treadle_layout *layout;
  MUST(treadle_model_open(folder, NULL, &model));
  MUST(treadle_layout_create(model, b->layout, group->size, NULL, &layout));
  b->engine.struct_size = sizeof b->engine;
  MUST(treadle_trainer_open_engine(NULL, group, layout, &options, &b->engine));
  MUST(b->engine.load(b->engine.engine));
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
  open_engine(&b, group, texts[1]);
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
  b.engine.close(b.engine.engine);
  treadle_group_close(group);
  MPI_Finalize();
  return 0;
}
