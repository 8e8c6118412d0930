/* mpirun -n N bench_alias [--shapes qwen3-30b-a3b|qwen2.5-7b] [--model-layers L] [--vocab V] [--scale-down N] [--device DEVICE]
 * [--rounds R]: switches with shared pages beside switches that copy, in one run.
 *
 * qwen3-30b-a3b is megatron:tp=1,ep=N to vllm:tp=1,dp=N,ep=on, qwen2.5-7b megatron:tp=N to vllm:tp=N. Widths and pages (2 MiB)
 * are those of the models; layers are few, and the vocabulary of the first is an eighth, or else the embeddings, which every
 * rank has and shares whole, would be most of it. Four types of switch, each made, run and destroyed in turn so that
 * one fits the memory at a time:
 *
 *      alias off | on,  keep=infer | host
 *
 * Printed are medians over all rounds (one more warms up) of the time from barrier to barrier, to INFER and
 * back to TRAIN, and what share of the infer bytes was copied. Bars: with keep=infer a switch to INFER at least 2 times
 * as fast with alias as without (qwen3-30b-a3b); copied at most 0.25 of the infer bytes there, and 0.15 with qwen2.5-7b.
 * The digest of the weights must be the same everywhere. A missed bar is printed; the exit status is 1 only when
 * something fails or differs. */
#include "ranks.h"

#include <inttypes.h>

enum { KINDS = 4, PAGE = 2 << 20 };

static const struct type {
  const char *words;
  bool alias;
  treadle_keep keep;
} types[KINDS] = {{"alias off, keep=infer", false, TREADLE_KEEP_INFER},
                  {"alias on,  keep=infer", true, TREADLE_KEEP_INFER},
                  {"alias off, keep=host", false, TREADLE_KEEP_HOST},
                  {"alias on,  keep=host", true, TREADLE_KEEP_HOST}};
enum { PLAIN_INFER, ALIAS_INFER, PLAIN_HOST, ALIAS_HOST };

typedef struct shapes {
  const char *name, *config; /* config: with vocabulary and layers */
  const char *train, *infer; /* with the number of ranks */
  int64_t layers, vocab;
  double copied_bar, speed_bar; /* 0: none */
} shapes;

static const shapes all_shapes[] = {
    {"qwen3-30b-a3b",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": %" PRId64 ", \"hidden_size\": 2048, "
     "\"intermediate_size\": 6144, \"moe_intermediate_size\": 768, \"num_experts\": 128, "
     "\"num_experts_per_tok\": 8, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
     "\"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
     "\"head_dim\": 128, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
     "megatron:tp=1,ep=%d", "vllm:tp=1,dp=%d,ep=on", 2, 151936 / 8, 0.25, 2.0},
    {"qwen2.5-7b",
     "{\"model_type\": \"qwen2\", \"vocab_size\": %" PRId64 ", \"hidden_size\": 3584, "
     "\"intermediate_size\": 18944, \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": 28, "
     "\"num_key_value_heads\": 4, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
     "megatron:tp=%d", "vllm:tp=%d", 1, 152064, 0.15, 0},
};

typedef struct bench {
  shapes shapes;
  int64_t rounds, scale_down;
  const char *device;
  treadle_memory memory; /* of the windows */
  treadle_group *group;
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_switch *sw;
  double *to_infer[KINDS], *to_train[KINDS];                  /* [rounds] */
  double infer_bytes, copied_bytes[KINDS], host_bytes[KINDS]; /* of all ranks */
  uint64_t digest;                                            /* 0: not yet known */
} bench;

static void to_infer(void *context) { MUST(treadle_switch_to_infer(((bench *)context)->sw)); }
static void to_train(void *context) { MUST(treadle_switch_to_train(((bench *)context)->sw)); }

/* The weights are what they were in all modes and types so far. */
static void check(bench *b, const struct type *type) {
  uint64_t digest;
  char message[96];
  MUST(treadle_switch_digest(b->sw, &digest));
  if (b->digest == 0) b->digest = digest;
  snprintf(message, sizeof message, "%s: in mode %s the weights are others", type->words,
           treadle_mode_text(treadle_switch_mode(b->sw)));
  if (b->digest != digest) bench_give_up(message);
}

static void run_kind(bench *b, int k) {
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .alias = types[k].alias,
                                          .keep = types[k].keep,
                                          .page_bytes = PAGE,
                                          .memory = b->memory};
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  MUST(treadle_switch_create(b->group, b->train, b->infer, &options, &b->sw));
  MUST(treadle_layout_load(b->train, b->group->rank, treadle_switch_train_window(b->sw)));
  if (k == 0) check(b, &types[k]);
  for (int64_t round = -1; round < b->rounds; round++) { /* -1: warms up */
    double there = bench_time(b->group, to_infer, b);
    treadle_switch_get_stats(b->sw, &stats);
    if (round < 0) check(b, &types[k]);
    double back = bench_time(b->group, to_train, b);
    if (round < 0) continue;
    b->to_infer[k][round] = there;
    b->to_train[k][round] = back;
  }
  check(b, &types[k]);
  b->copied_bytes[k] = bench_sum(b->group, (double)stats.copied_bytes);
  b->host_bytes[k] = bench_sum(b->group, (double)stats.host_bytes);
  treadle_switch_destroy(b->sw);
}

static void prepare(bench *b) {
  char config[1024], train[64], infer[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(config, sizeof config, b->shapes.config, b->shapes.vocab, b->shapes.layers);
  snprintf(train, sizeof train, b->shapes.train, b->group->size);
  snprintf(infer, sizeof infer, b->shapes.infer, b->group->size);
#pragma GCC diagnostic pop
  MUST(bench_open_model(config, b->scale_down, &b->model));
  MUST(treadle_layout_create(b->model, train, b->group->size, NULL, &b->train));
  MUST(treadle_layout_create(b->model, infer, b->group->size, NULL, &b->infer));
  b->infer_bytes = bench_sum(b->group, (double)treadle_layout_window_bytes(b->infer, b->group->rank));
  for (int k = 0; k < KINDS; k++) {
    b->to_infer[k] = bench_allocate((size_t)(b->rounds), sizeof **b->to_infer);
    b->to_train[k] = bench_allocate((size_t)(b->rounds), sizeof **b->to_train);
  }
  if (b->group->rank == 0)
    printf("%s with %" PRId64 " layers and a vocabulary of %" PRId64
           ", %s to %s, %d ranks, %.2f GB of infer "
           "bytes, medians of %d rounds\n\n",
           b->shapes.name, b->shapes.layers, b->shapes.vocab, train, infer, b->group->size,
           1e-9 * b->infer_bytes, (int)b->rounds);
}

static void print_bar(const char *words, double value, double bar, bool met) {
  printf("  %-56s %8.4f", words, value);
  if (bar > 0) printf("   bar %.2f %s", bar, met ? "met" : "MISSED");
  printf("\n");
}

static void print_table(const bench *b) {
  double there[KINDS], back[KINDS];
  printf("  %-22s %12s %12s %10s %12s\n", "", "to infer, ms", "to train, ms", "copied", "in host, GB");
  for (int k = 0; k < KINDS; k++) {
    there[k] = bench_median(b->to_infer[k], (int)b->rounds);
    back[k] = bench_median(b->to_train[k], (int)b->rounds);
    printf("  %-22s %12.1f %12.1f %10.4f %12.2f\n", types[k].words, 1e3 * there[k], 1e3 * back[k],
           b->copied_bytes[k] / b->infer_bytes, 1e-9 * b->host_bytes[k]);
  }
  double copied = b->copied_bytes[ALIAS_INFER] / b->infer_bytes,
         gain = there[PLAIN_INFER] / there[ALIAS_INFER];
  printf("\n");
  print_bar("share of infer bytes that is copied with alias", copied, b->shapes.copied_bar,
            copied <= b->shapes.copied_bar);
  print_bar("to infer: time without alias over time with it", gain, b->shapes.speed_bar,
            gain >= b->shapes.speed_bar);
  print_bar("to train: time with keep=infer over keep=host, alias off",
            back[PLAIN_INFER] / back[PLAIN_HOST], 0, true);
  print_bar("to train: time with keep=infer over keep=host, alias on", back[ALIAS_INFER] / back[ALIAS_HOST],
            0, true);
}

static bool read_options(int count, char **texts, bench *b) {
  const char *name = all_shapes[0].name;
  int64_t layers = 0, vocab = 0;
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--shapes")))
      name = value;
    else if ((value = bench_option(texts, &i, "--model-layers")))
      layers = atoi(value);
    else if ((value = bench_option(texts, &i, "--vocab")))
      vocab = atoi(value);
    else if ((value = bench_option(texts, &i, "--scale-down")))
      b->scale_down = atoi(value);
    else if ((value = bench_option(texts, &i, "--device")))
      b->device = value;
    else if ((value = bench_option(texts, &i, "--rounds")))
      b->rounds = atoi(value);
    else
      return false;
  }
  for (size_t i = 0; i < sizeof all_shapes / sizeof all_shapes[0]; i++)
    if (strcmp(name, all_shapes[i].name) == 0) b->shapes = all_shapes[i];
  if (layers > 0) b->shapes.layers = layers;
  if (vocab > 0) b->shapes.vocab = vocab;
  return b->shapes.name && b->rounds > 0 && b->scale_down >= 0;
}

int main(int count, char **texts) {
  bench b = {.rounds = 7};
  MPI_Init(&count, &texts);
  if (!read_options(count, texts, &b)) {
    fprintf(stderr, "usage: mpirun -n N bench_alias [--shapes qwen3-30b-a3b|qwen2.5-7b] [--model-layers L] "
                    "[--vocab V] [--scale-down N] [--device DEVICE] [--rounds R]\n");
    MPI_Finalize();
    return 2;
  }
  MUST(treadle_group_mpi(NULL, 60, &b.group));
  MUST(treadle_device_choose(b.device, b.group, &b.memory));
  prepare(&b);
  for (int k = 0; k < KINDS; k++) run_kind(&b, k);
  if (b.group->rank == 0) print_table(&b);
  treadle_group_close(b.group);
  treadle_layout_destroy(b.infer);
  treadle_layout_destroy(b.train);
  treadle_model_close(b.model);
  for (int k = 0; k < KINDS; k++) {
    treadle_free(b.to_infer[k]);
    treadle_free(b.to_train[k]);
  }
  MPI_Finalize();
  return 0;
}
