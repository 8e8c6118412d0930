/* mpirun -n 4 bench_own [--model-layers N] [--scale-down N] [--train LAYOUT] [--infer LAYOUT] [--device DEVICE] [--rounds N] [--json]:
 * a switch over own tensors on both sides, each tensor in memory of its own.
 *
 * Each round runs, from barrier to barrier, the largest over ranks counting:
 *   own       treadle_switch_to_infer over own train and own infer tensors
 *   windows   the same of a switch over windows, whose params stay
 *   memcpy    one memcpy for each own infer tensor, from touched memory that holds the same bytes; on a CUDA device one
 *             copy by the driver
 *
 * so that the ratios of a round are of the same minute. Two rounds warm up; printed are medians of the others, for ratios the medians of
 * each round's ratio. What both switches have written is compared once, tensor by tensor.
 *
 * The model has the shapes of Llama-3.2-1B with 8 layers, 0.75 B parameters made by a hash. */
#include "ranks.h"

#include <inttypes.h>

enum { WARM_UP = 2 };
enum { OWN, WINDOWS, MEMCPY, STEPS };
static const char *const step_names[STEPS] = {"own", "windows", "memcpy"};

typedef struct tensors { /* of one layout */
  treadle_own_tensor *items;
  size_t count;
} tensors;

typedef struct bench {
  int64_t layers, scale_down, rounds;
  const char *train_text, *infer_text, *device_text;
  bool json;
  int rank, size;
  treadle_group *group;
  treadle_device device; /* of windows and own tensors */
  treadle_model *model;
  treadle_layout *train, *infer;
  tensors own_train, own_infer, copies; /* copies: what memcpy reads */
  treadle_switch *own, *windows;
  size_t infer_bytes, staged_bytes; /* of all ranks */
  double *seconds[STEPS];           /* by round */
} bench;

static void *make_memory(bench *b, size_t bytes) {
  void *memory = b->device.ops->scratch(&b->device, bytes);
  if (!memory) bench_give_up("memory is out");
  b->device.ops->fill(&b->device, memory, 1, bytes); /* touched */
  return memory;
}

static tensors make_tensors(bench *b, const treadle_layout *layout) {
  const int rank = b->rank;
  int32_t count = treadle_layout_storage_count(layout, rank);
  tensors made = {bench_allocate((size_t)count, sizeof *made.items), (size_t)count};
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    MUST(treadle_layout_storage(layout, rank, i, &info));
    made.items[i] = (treadle_own_tensor){i, make_memory(b, info.bytes), info.bytes};
  }
  return made;
}

static void release_tensors(bench *b, tensors *made) {
  for (size_t i = 0; i < made->count; i++)
    b->device.ops->scratch_release(&b->device, made->items[i].memory);
  treadle_free(made->items);
}

static void prepare(bench *b) {
  MUST(bench_open_llama(b->layers, b->scale_down, &b->model));
  MUST(treadle_layout_create(b->model, b->train_text, b->size, NULL, &b->train));
  MUST(treadle_layout_create(b->model, b->infer_text, b->size, NULL, &b->infer));
  MUST(treadle_group_mpi(NULL, 60, &b->group));
  MUST(bench_open_device(b->device_text, b->group, &b->device));
  b->own_train = make_tensors(b, b->train);
  b->own_infer = make_tensors(b, b->infer);
  b->copies = make_tensors(b, b->infer);
  const treadle_switch_options own = {.struct_size = sizeof own,
                                      .own_train = b->own_train.items,
                                      .own_train_count = b->own_train.count,
                                      .own_infer = b->own_infer.items,
                                      .own_infer_count = b->own_infer.count,
                                      .memory = bench_memory_of(&b->device)},
                               windows = {.struct_size = sizeof windows,
                                          .offload_train_param = TREADLE_OFF,
                                          .memory = bench_memory_of(&b->device)};
  MUST(treadle_switch_create(b->group, b->train, b->infer, &own, &b->own));
  MUST(treadle_switch_create(b->group, b->train, b->infer, &windows, &b->windows));
  char *window = treadle_switch_train_window(b->windows);
  MUST(treadle_layout_load(b->train, b->rank, window));
  for (size_t i = 0; i < b->own_train.count; i++) {
    const treadle_own_tensor *tensor = &b->own_train.items[i];
    bench_move(&b->device, tensor->memory,
               treadle_switch_tensor(b->windows, TREADLE_PARAMS, tensor->storage, NULL), tensor->bytes);
  }
  MUST(b->device.ops->fence(&b->device));
  for (int i = 0; i < STEPS; i++)
    b->seconds[i] = bench_allocate((size_t)(WARM_UP + b->rounds), sizeof *b->seconds[i]);
}

static void run_own(void *of) { MUST(treadle_switch_to_infer(((bench *)of)->own)); }
static void run_windows(void *of) { MUST(treadle_switch_to_infer(((bench *)of)->windows)); }
static void run_memcpy(void *of) {
  const bench *b = of;
  for (size_t i = 0; i < b->copies.count; i++)
    bench_move(&b->device, b->own_infer.items[i].memory, b->copies.items[i].memory,
               b->copies.items[i].bytes);
  MUST(b->device.ops->fence(&b->device));
}

/* What a tensor holds, in memory of the host that the caller frees. */
static char *read_tensor(bench *b, const void *tensor, size_t bytes) {
  char *read = bench_allocate(bytes, 1);
  bench_move(&b->device, read, tensor, bytes);
  MUST(b->device.ops->fence(&b->device));
  return read;
}

static void (*const steps[STEPS])(void *of) = {
    [OWN] = run_own, [WINDOWS] = run_windows, [MEMCPY] = run_memcpy};

/* What the switch over own tensors has written against what is in the windows; kept as what memcpy reads. */
static void compare(bench *b) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  for (size_t i = 0; i < b->own_infer.count; i++) {
    const treadle_own_tensor *tensor = &b->own_infer.items[i];
    const void *window = treadle_switch_tensor(b->windows, TREADLE_INFER_PARAMS, tensor->storage, NULL);
    char *found = read_tensor(b, tensor->memory, tensor->bytes),
         *wanted = read_tensor(b, window, tensor->bytes);
    if (memcmp(found, wanted, tensor->bytes) != 0) bench_give_up("own tensors differ from the windows");
    treadle_free(found);
    treadle_free(wanted);
    bench_move(&b->device, b->copies.items[i].memory, tensor->memory, tensor->bytes);
  }
  MUST(b->device.ops->fence(&b->device));
  treadle_switch_get_stats(b->own, &stats);
  size_t mine[2] = {treadle_layout_window_bytes(b->infer, b->rank), stats.staged_bytes};
  size_t *all = bench_allocate((size_t)b->size * 2, sizeof *all);
  MUST(treadle_group_gather(b->group, mine, sizeof mine, all));
  for (int rank = 0; rank < b->size; rank++) {
    b->infer_bytes += all[2 * rank];
    b->staged_bytes += all[2 * rank + 1];
  }
  treadle_free(all);
}

static void run_rounds(bench *b) {
  for (int64_t round = 0; round < WARM_UP + b->rounds; round++) {
    for (int step = 0; step < MEMCPY; step++)
      b->seconds[step][round] = bench_time(b->group, steps[step], b);
    if (round == 0) compare(b);
    b->seconds[MEMCPY][round] = bench_time(b->group, run_memcpy, b);
    MUST(treadle_switch_to_train(b->own));
    MUST(treadle_switch_to_train(b->windows));
  }
}

static void report(const bench *b) {
  double *rates = bench_allocate((size_t)b->rounds, sizeof *rates),
         gigabytes = 1e-9 * (double)b->infer_bytes;
  double rate[STEPS], median[STEPS];
  for (int i = STEPS - 1; i >= 0; i--) { /* own last: medians sort */
    for (int64_t k = 0; k < b->rounds; k++)
      rates[k] = b->seconds[i][WARM_UP + k] / b->seconds[OWN][WARM_UP + k];
    rate[i] = bench_median(rates, (int)b->rounds);
    median[i] = bench_median(b->seconds[i] + WARM_UP, (int)b->rounds);
  }
  treadle_free(rates);
  if (b->json) {
    printf("{\n  \"ranks\": %d, \"rounds\": %" PRId64 ", \"infer_bytes\": %zu, \"staged_bytes\": %zu",
           b->size, b->rounds, b->infer_bytes, b->staged_bytes);
    for (int i = 0; i < STEPS; i++)
      printf(",\n  \"%s_seconds\": %.6f, \"%s_gb_per_second\": %.3f, \"own_rate_over_%s\": %.4f",
             step_names[i], median[i], step_names[i], gigabytes / median[i], step_names[i], rate[i]);
    printf("\n}\n");
    return;
  }
  printf("%s to %s, %d ranks, %.2f GB of infer bytes, %.2f GB staged, medians of %" PRId64 " rounds\n\n",
         b->train_text, b->infer_text, b->size, gigabytes, 1e-9 * (double)b->staged_bytes, b->rounds);
  printf("  %-10s %8s %8s %12s\n", "", "ms", "GB/s", "own over it");
  for (int i = 0; i < STEPS; i++)
    printf("  %-10s %8.1f %8.2f %12.2f\n", step_names[i], 1e3 * median[i], gigabytes / median[i], rate[i]);
}

static bool read_options(int count, char **texts, bench *b) {
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--model-layers")))
      b->layers = atoi(value);
    else if ((value = bench_option(texts, &i, "--scale-down")))
      b->scale_down = atoi(value);
    else if ((value = bench_option(texts, &i, "--device")))
      b->device_text = value;
    else if ((value = bench_option(texts, &i, "--rounds")))
      b->rounds = atoi(value);
    else if ((value = bench_option(texts, &i, "--train")))
      b->train_text = value;
    else if ((value = bench_option(texts, &i, "--infer")))
      b->infer_text = value;
    else if (strcmp(texts[i], "--json") == 0)
      b->json = true;
    else
      return false;
  }
  return b->layers > 0 && b->scale_down >= 0 && b->rounds > 0;
}

int main(int count, char **texts) {
  bench b = {.layers = 8, .rounds = 5, .train_text = "megatron:tp=4", .infer_text = "vllm:tp=2"};
  MPI_Init(&count, &texts);
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &b.size);
  if (!read_options(count, texts, &b)) {
    if (b.rank == 0)
      fprintf(stderr, "usage: mpirun -n N bench_own [--model-layers N] [--scale-down N] [--train LAYOUT] "
                      "[--infer LAYOUT] "
                      "[--device DEVICE] [--rounds N] [--json]\n");
    MPI_Finalize();
    return 2;
  }
  prepare(&b);
  run_rounds(&b);
  if (b.rank == 0) report(&b);
  MUST(treadle_group_barrier(b.group));
  treadle_switch_destroy(b.own);
  treadle_switch_destroy(b.windows);
  treadle_group_close(b.group);
  release_tensors(&b, &b.own_train);
  release_tensors(&b, &b.own_infer);
  release_tensors(&b, &b.copies);
  treadle_device_close(&b.device);
  for (int i = 0; i < STEPS; i++) treadle_free(b.seconds[i]);
  treadle_layout_destroy(b.infer);
  treadle_layout_destroy(b.train);
  treadle_model_close(b.model);
  MPI_Finalize();
  return 0;
}
