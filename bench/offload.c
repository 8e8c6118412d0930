/* mpirun -n N bench_offload [--model-layers L] [--scale-down N] [--device DEVICE] [--rounds R]: how fast classes leave the device and come back.
 *
 * Params, gradients and optimizer state (2, 1 and 1 bytes of a part of 4) all leave, with copies in host memory
 * (keep=host, grads=keep). Each round runs, from barrier to barrier, the largest over ranks counting:
 *   memcpy out   one memcpy of the bytes of each class out of its window, into touched memory with huge pages,
 *                as the twins have; on a CUDA device one copy by the driver, into pinned memory
 *   to host      treadle_switch_to_host: all classes in one go
 *   memcpy in    the same bytes back
 *   from host    treadle_switch_to_train
 *   to infer     of a whole switch, the time in which it copied to the host (offload_seconds): gradients and optimizer
 *                state before the waves, params page by page before the waves that take their pages
 *   to train     of the way back, the time in which it copied from the host (load_seconds)
 * Ratios are to the memcpy of the same round, in bytes a second; printed are medians after two rounds that warm up. Bar:
 * 0.85. What came back is compared with what left, bit by bit, once. */
#include "ranks.h"

#include "memory/host.h"

#include <inttypes.h>

enum { WARM_UP = 2 };
enum { MEMCPY_OUT, TO_HOST, MEMCPY_IN, FROM_HOST, TO_INFER, TO_TRAIN, STEPS };
static const char *const step_names[STEPS] = {"memcpy out", "to host",  "memcpy in",
                                              "from host",  "to infer", "to train"};
static const double bar = 0.85;

typedef struct bench {
  int64_t layers, scale_down, rounds;
  const char *device_text;
  treadle_device device; /* of the windows */
  treadle_group *group;
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_switch *sw;
  char *copy;             /* of all classes */
  size_t bytes;           /* of them */
  double *seconds[STEPS]; /* by round */
  double *rate[STEPS];    /* bytes a second of all ranks */
} bench;

/* ---- Steps ---- */

static void memcpy_out(void *context) {
  bench *b = context;
  char *to = b->copy;
  for (int c = 0; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes;
    const void *window = treadle_switch_window(b->sw, (treadle_class)c, &bytes);
    bench_move(&b->device, to, window, bytes);
    to += bytes;
  }
  MUST(b->device.ops->fence(&b->device));
}

static void memcpy_in(void *context) {
  bench *b = context;
  const char *from = b->copy;
  for (int c = 0; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes;
    void *window = treadle_switch_window(b->sw, (treadle_class)c, &bytes);
    bench_move(&b->device, window, from, bytes);
    from += bytes;
  }
  MUST(b->device.ops->fence(&b->device));
}

static void to_host(void *context) { MUST(treadle_switch_to_host(((bench *)context)->sw)); }
static void to_train(void *context) { MUST(treadle_switch_to_train(((bench *)context)->sw)); }
static void to_infer(void *context) { MUST(treadle_switch_to_infer(((bench *)context)->sw)); }

static void (*const steps[STEPS])(void *context) = {
    [MEMCPY_OUT] = memcpy_out, [TO_HOST] = to_host,   [MEMCPY_IN] = memcpy_in,
    [FROM_HOST] = to_train,    [TO_INFER] = to_infer, [TO_TRAIN] = to_train,
};

static void run_step(bench *b, int step, int64_t round) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  double seconds = bench_time(b->group, steps[step], b), bytes = (double)b->bytes;
  treadle_switch_get_stats(b->sw, &stats);
  if (step == TO_INFER) {
    seconds = bench_largest(b->group, stats.offload_seconds);
    bytes = (double)stats.offloaded_bytes;
  } else if (step == TO_TRAIN) {
    seconds = bench_largest(b->group, stats.load_seconds);
    bytes = (double)stats.loaded_bytes;
  }
  b->seconds[step][round] = seconds;
  b->rate[step][round] = bench_sum(b->group, bytes) / seconds;
}

/* ---- A run ---- */

static void fill(bench *b) {
  uint32_t *words = (uint32_t *)(void *)b->copy;
  MUST(treadle_layout_load(b->train, b->group->rank, treadle_switch_train_window(b->sw)));
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes;
    (void)treadle_switch_window(b->sw, (treadle_class)c, &bytes);
    for (size_t i = 0; i < bytes / sizeof *words; i++) words[i] = (uint32_t)i * 2654435761u + (uint32_t)c;
    MUST(treadle_switch_write(b->sw, (treadle_class)c, 0, bytes, words));
  }
}

static void compare(const bench *b, const char *when) {
  const char *expected = b->copy;
  char message[96];
  for (int c = 0; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes, at;
    (void)treadle_switch_window(b->sw, (treadle_class)c, &bytes);
    MUST(bench_compare(b->sw, (treadle_class)c, expected, bytes, &at));
    snprintf(message, sizeof message, "%s: class %d is not what it was", when, c);
    if (at != SIZE_MAX) bench_give_up(message);
    expected += bytes;
  }
}

static void prepare(bench *b) {
  char train[64], infer[64];
  MUST(treadle_group_mpi(NULL, 60, &b->group));
  MUST(bench_open_device(b->device_text, b->group, &b->device));
  snprintf(train, sizeof train, "megatron:tp=%d", b->group->size);
  snprintf(infer, sizeof infer, "vllm:tp=%d", b->group->size);
  MUST(bench_open_llama(b->layers, b->scale_down, &b->model));
  MUST(treadle_layout_create(b->model, train, b->group->size, NULL, &b->train));
  MUST(treadle_layout_create(b->model, infer, b->group->size, NULL, &b->infer));
  size_t params = treadle_layout_window_bytes(b->train, b->group->rank);
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .grads_bytes = params / 2,
                                          .optimizer_bytes = params / 2,
                                          .offload_train_grad = TREADLE_ON,
                                          .keep_grads = true,
                                          .offload_train_optimizer = TREADLE_ON,
                                          .keep = TREADLE_KEEP_HOST,
                                          .host = true,
                                          .memory = bench_memory_of(&b->device)};
  MUST(treadle_switch_create(b->group, b->train, b->infer, &options, &b->sw));
  b->bytes = params + options.grads_bytes + options.optimizer_bytes;
  if (!(b->copy = treadle_host_pinned(&b->device, b->bytes, "a copy")))
    bench_give_up(treadle_error_message());
  for (int i = 0; i < STEPS; i++) {
    b->seconds[i] = bench_allocate((size_t)(WARM_UP + b->rounds), sizeof **b->seconds);
    b->rate[i] = bench_allocate((size_t)(WARM_UP + b->rounds), sizeof **b->rate);
  }
  fill(b);
}

static void run_rounds(bench *b) {
  for (int64_t round = 0; round < WARM_UP + b->rounds; round++)
    for (int step = 0; step < STEPS; step++) {
      run_step(b, step, round);
      if (round == 0 && (step == FROM_HOST || step == TO_TRAIN)) compare(b, step_names[step]);
    }
}

static void print_table(bench *b) {
  double *ratios = bench_allocate((size_t)b->rounds, sizeof *ratios);
  printf(
      "offload and load, %d ranks, %.0f MB a rank (params, gradients, optimizer state), medians of %" PRId64
      " rounds\n\n",
      b->group->size, 1e-6 * (double)b->bytes, b->rounds);
  printf("  %-10s %8s %8s %12s %14s %8s\n", "", "ms", "GB/s", "over memcpy", "(range)", "bar");
  for (int step = 0; step < STEPS; step++) {
    int base = step == TO_HOST || step == TO_INFER ? MEMCPY_OUT : MEMCPY_IN;
    for (int64_t k = 0; k < b->rounds; k++)
      ratios[k] = b->rate[step][WARM_UP + k] / b->rate[base][WARM_UP + k];
    double ratio = bench_median(ratios, (int)b->rounds); /* sorts */
    double *seconds = bench_allocate((size_t)b->rounds, sizeof *seconds),
           *rates = bench_allocate((size_t)b->rounds, sizeof *rates);
    memcpy(seconds, b->seconds[step] + WARM_UP, (size_t)b->rounds * sizeof *seconds);
    memcpy(rates, b->rate[step] + WARM_UP, (size_t)b->rounds * sizeof *rates);
    printf("  %-10s %8.1f %8.2f", step_names[step], 1e3 * bench_median(seconds, (int)b->rounds),
           1e-9 * bench_median(rates, (int)b->rounds));
    if (step != MEMCPY_OUT && step != MEMCPY_IN)
      printf(" %12.2f %6.2f..%6.2f %8.2f %s", ratio, ratios[0], ratios[b->rounds - 1], bar,
             ratio >= bar ? "met" : "MISSED");
    printf("\n");
    treadle_free(seconds);
    treadle_free(rates);
  }
  treadle_free(ratios);
}

static void release(bench *b) {
  treadle_switch_destroy(b->sw);
  treadle_host_unpinned(&b->device, b->copy, b->bytes);
  treadle_device_close(&b->device);
  treadle_group_close(b->group);
  treadle_layout_destroy(b->infer);
  treadle_layout_destroy(b->train);
  treadle_model_close(b->model);
  for (int i = 0; i < STEPS; i++) {
    treadle_free(b->seconds[i]);
    treadle_free(b->rate[i]);
  }
}

int main(int count, char **texts) {
  bench b = {.layers = 2, .rounds = 5};
  MPI_Init(&count, &texts);
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--model-layers")))
      b.layers = atoi(value);
    else if ((value = bench_option(texts, &i, "--scale-down")))
      b.scale_down = atoi(value);
    else if ((value = bench_option(texts, &i, "--device")))
      b.device_text = value;
    else if ((value = bench_option(texts, &i, "--rounds")))
      b.rounds = atoi(value);
    else
      b.rounds = 0;
  }
  if (b.layers <= 0 || b.scale_down < 0 || b.rounds <= 0) {
    fprintf(stderr,
            "usage: mpirun -n N bench_offload [--model-layers L] [--scale-down N] [--device DEVICE] "
            "[--rounds R]\n");
    MPI_Finalize();
    return 2;
  }
  prepare(&b);
  run_rounds(&b);
  if (b.group->rank == 0) print_table(&b);
  release(&b);
  MPI_Finalize();
  return 0;
}
