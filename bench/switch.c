/* mpirun -n 4 bench_switch [--model-layers N] [--scale-down N] [--train LAYOUT] [--infer LAYOUT] [--device DEVICE] [--rounds N] [--json]:
 * a switch beside other ways to make the same bytes, in one run.
 *
 * Each round runs, from barrier to barrier, the largest over ranks counting:
 *   switch     treadle_switch_to_infer
 *   memcpy     one memcpy of the rank's infer bytes into its infer window, from touched memory that holds
 *              the same bytes: what the memory of this machine can do
 *   to train   treadle_switch_to_train
 *   alltoallw  MPI_Alltoallw with derived types: the copies that the switch makes, in one call, from plain
 *              buffer to plain buffer, no element more, and without a bound on memory
 *   allgather  MPI_Allgather of each storage tensor, then the own part is cut out of the full tensor: how
 *              the frameworks do it
 * so that the ratios of a round are of the same minute. Two rounds warm up; printed are medians of the
 * others, for ratios the medians of each round's ratio. The four destinations are compared once, bit by
 * bit, with treadle_layout_load.
 *
 * On a CUDA device memcpy is the fastest flat copy there (treadle_switch_flat_copy), and MPI's ways, which are for
 * memory of the host, are left out.
 *
 * The model has the shapes of Llama-3.2-1B with 8 layers, 0.75 B parameters made by a hash. Bars: at least
 * 0.85 of memcpy, 1.3 times MPI_Alltoallw, 2 times MPI_Allgather and cut. A missed bar is printed; the exit
 * status is 1 only when something fails or differs. */
#include "ranks.h"

#include "base/dtype.h"
#include "plan/one_rank.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <limits.h>

enum { WARM_UP = 2, PAGE = 2 << 20 };

enum { SWITCH, MEMCPY, TO_TRAIN, ALLTOALLW, ALLGATHER, STEPS };
static const char *const step_names[STEPS] = {"switch", "memcpy", "to_train", "alltoallw", "allgather"};
static const double bars[STEPS] = {[MEMCPY] = 0.85, [ALLTOALLW] = 1.3, [ALLGATHER] = 2.0}; /* 0: none */

typedef struct options {
  int64_t layers, rounds;
  int64_t scale_down;
  const char *train, *infer, *device;
  bool json;
} options;

static const options usual = {.layers = 8, .rounds = 5, .train = "megatron:tp=4", .infer = "vllm:tp=2"};

typedef struct bench {
  options options;
  bool usual; /* the model and the pair that the bars are for */
  int rank, size;
  treadle_group *group;
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_device device; /* of the windows */
  treadle_switch *sw;
  size_t train_bytes, infer_bytes; /* of this rank's windows */
  char *train_buffer, *infer_buffer;
  treadle_plan **plans; /* of all ranks, in one wave: for the other ways */
  /* MPI_Alltoallw: a type for each peer, one element of it or none. */
  MPI_Datatype *send_types, *receive_types;
  int *send_counts, *receive_counts, *offsets;
  /* MPI_Allgather and cut. */
  bool gathers; /* false: the train layout has stages, and ranks hold different tensors */
  MPI_Comm tp_group;
  int *slots;             /* by rank: its place in its tp_group */
  char *gathered;         /* the full tensor: shards in order of slots */
  double *seconds[STEPS]; /* by round */
} bench;

/* ---- Plain copies ---- */

/* A box, dimension d and faster. */
static void copy_box(const treadle_op *op, int d, char *to, const char *from) {
  size_t each = treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  bool dense =
      op->to_stride[op->ndim - 1] == (int64_t)each && op->from_stride[op->ndim - 1] == (int64_t)each;
  if (d == op->ndim) {
    memcpy(to, from, each);
  } else if (d == op->ndim - 1 && dense) {
    memcpy(to, from, (size_t)op->size[d] * each);
  } else {
    for (int64_t i = 0; i < op->size[d]; i++)
      copy_box(op, d + 1, to + i * op->to_stride[d], from + i * op->from_stride[d]);
  }
}

static const treadle_op_array *ops_of(const bench *b, int rank) { return &b->plans[rank]->forward.ops; }

static bool is_local(const treadle_op *op) { return op->source < 0 || op->twin; }

/* Padding, and second copies of a tensor. */
static void copy_local(const bench *b) {
  const treadle_op_array *ops = ops_of(b, b->rank);
  for (size_t i = 0; i < ops->count; i++) {
    const treadle_op *op = &ops->items[i];
    if (op->source < 0)
      memset(b->infer_buffer + op->to, 0, (size_t)(op->elems * op->to_stride[0]));
    else if (op->twin)
      copy_box(op, 0, b->infer_buffer + op->to, b->infer_buffer + op->from);
  }
}

/* ---- MPI_Alltoallw ---- */

/* What `to` gets from `from`, as one type over the train window, or over the infer window. */
static bool make_type(const bench *b, int from, int to, bool of_train, MPI_Datatype *type_p) {
  const treadle_op_array *ops = ops_of(b, to);
  MPI_Datatype *types = bench_allocate(ops->count, sizeof *types);
  MPI_Aint *offsets = bench_allocate(ops->count, sizeof *offsets);
  int *ones = bench_allocate(ops->count, sizeof *ones), count = 0;
  for (size_t i = 0; i < ops->count; i++) {
    const treadle_op *op = &ops->items[i];
    if (op->source != from || is_local(op)) continue;
    if (op->from_dtype != op->to_dtype)
      bench_give_up("MPI_Alltoallw does not convert: layouts of one dtype, please");
    MPI_Datatype type, slower;
    MPI_Type_dup(op->to_dtype == TREADLE_FP32 ? MPI_UINT32_T : MPI_UINT16_T, &type);
    for (int d = op->ndim - 1; d >= 0; d--) { /* what MPI_Type_create_subarray does, with any stride */
      if (op->size[d] > INT_MAX)
        bench_give_up("MPI_Alltoallw: a dimension of a tensor is too large for an int");
      MPI_Type_create_hvector((int)op->size[d], 1, of_train ? op->from_stride[d] : op->to_stride[d], type,
                              &slower);
      MPI_Type_free(&type);
      type = slower;
    }
    types[count] = type;
    offsets[count] = of_train ? op->from : op->to;
    ones[count++] = 1;
  }
  *type_p = MPI_BYTE;
  if (count > 0) {
    MPI_Type_create_struct(count, ones, offsets, types, type_p);
    MPI_Type_commit(type_p);
  }
  for (int i = 0; i < count; i++) MPI_Type_free(&types[i]);
  treadle_free(types);
  treadle_free(offsets);
  treadle_free(ones);
  return count > 0;
}

static void prepare_alltoallw(bench *b) {
  size_t size = (size_t)b->size;
  b->send_types = bench_allocate(size, sizeof *b->send_types);
  b->receive_types = bench_allocate(size, sizeof *b->receive_types);
  b->send_counts = bench_allocate(size, sizeof *b->send_counts);
  b->receive_counts = bench_allocate(size, sizeof *b->receive_counts);
  b->offsets = bench_allocate(size, sizeof *b->offsets);
  for (int peer = 0; peer < b->size; peer++) {
    b->offsets[peer] = 0;
    b->send_counts[peer] = make_type(b, b->rank, peer, true, &b->send_types[peer]);
    b->receive_counts[peer] = make_type(b, peer, b->rank, false, &b->receive_types[peer]);
  }
}

static void run_alltoallw(void *of) {
  bench *b = of;
  MPI_Alltoallw(b->train_buffer, b->send_counts, b->offsets, b->send_types, b->infer_buffer,
                b->receive_counts, b->offsets, b->receive_types, MPI_COMM_WORLD);
  copy_local(b);
}

/* ---- MPI_Allgather and cut ---- */

static const treadle_storage *storages_of(const bench *b, int64_t rank, int32_t *count_p) {
  return treadle_layout_storages(b->train, rank, count_p);
}

/* Has the rank all of its tensors? Then nobody gathers it. */
static bool is_whole(const bench *b, const treadle_storage *storage) {
  int64_t bytes = 0;
  for (int i = 0; i < storage->nparts; i++)
    bytes += b->model->tensors[storage->parts[i]].elems * (int64_t)treadle_dtype_bytes(storage->dtype);
  return bytes == storage->bytes;
}

static bool have_equal_windows(const bench *b) {
  int32_t count, others;
  const treadle_storage *mine = storages_of(b, b->rank, &count);
  for (int rank = 0; rank < b->size; rank++) {
    const treadle_storage *theirs = storages_of(b, rank, &others);
    if (others != count) return false;
    for (int32_t i = 0; i < count; i++)
      if (mine[i].offset != theirs[i].offset || mine[i].parts[0] != theirs[i].parts[0]) return false;
  }
  return true;
}

static void prepare_allgather(bench *b) {
  int64_t replica = 0, largest = 0;
  int32_t count;
  int members, slot;
  b->gathers = have_equal_windows(b);
  if (!b->gathers) return;
  if (treadle_layout_coordinate(b->train, b->rank, "dp", &replica)) replica = 0; /* a layout without dp */
  MPI_Comm_split(MPI_COMM_WORLD, (int)replica, b->rank, &b->tp_group);
  MPI_Comm_size(b->tp_group, &members);
  MPI_Comm_rank(b->tp_group, &slot);
  b->slots = bench_allocate((size_t)b->size, sizeof *b->slots);
  MPI_Allgather(&slot, 1, MPI_INT, b->slots, 1, MPI_INT, MPI_COMM_WORLD);
  const treadle_storage *storages = storages_of(b, b->rank, &count);
  for (int32_t i = 0; i < count; i++) {
    if (storages[i].bytes > INT_MAX) bench_give_up("MPI_Allgather: a tensor is too large for an int");
    if (!is_whole(b, &storages[i]) && storages[i].bytes > largest) largest = storages[i].bytes;
  }
  b->gathered = bench_allocate((size_t)largest * (size_t)members, 1);
}

static void run_allgather(void *of) {
  bench *b = of;
  int32_t count;
  const treadle_storage *storages = storages_of(b, b->rank, &count);
  const treadle_op_array *ops = ops_of(b, b->rank);
  for (int32_t k = 0; k < count; k++) {
    const treadle_storage *storage = &storages[k];
    const char *shard = b->train_buffer + storage->offset;
    bool whole = is_whole(b, storage);
    if (!whole)
      MPI_Allgather(shard, (int)storage->bytes, MPI_BYTE, b->gathered, (int)storage->bytes, MPI_BYTE,
                    b->tp_group);
    for (size_t i = 0; i < ops->count; i++) {
      const treadle_op *op = &ops->items[i];
      int64_t at = op->from - storage->offset; /* windows are equal: the source's offset is ours */
      if (is_local(op) || at < 0 || at >= storage->bytes) continue;
      const char *from = whole ? shard : b->gathered + b->slots[op->source] * storage->bytes;
      copy_box(op, 0, b->infer_buffer + op->to, from + at);
    }
  }
  copy_local(b);
}

/* ---- The switch and memcpy ---- */

static void run_switch(void *of) { MUST(treadle_switch_to_infer(((bench *)of)->sw)); }
static void run_to_train(void *of) { MUST(treadle_switch_to_train(((bench *)of)->sw)); }

static void run_memcpy(void *of) {
  bench *b = of;
  memcpy(treadle_switch_infer_window(b->sw), b->infer_buffer, b->infer_bytes);
}

/* MPI's ways read and write memory of the host. */
static bool is_left_out(const bench *b, int step) {
  return (step == ALLGATHER && !b->gathers) || (step >= ALLTOALLW && !treadle_device_is_host(&b->device));
}

static void (*const steps[STEPS])(void *of) = {
    [SWITCH] = run_switch,       [MEMCPY] = run_memcpy,       [TO_TRAIN] = run_to_train,
    [ALLTOALLW] = run_alltoallw, [ALLGATHER] = run_allgather,
};

/* ---- A run ---- */

static _Noreturn void differs(int step, size_t at) {
  char message[128];
  snprintf(message, sizeof message, "%s: byte %zu of the infer window differs", step_names[step], at);
  bench_give_up(message);
}

/* Each way, once, into noise. Leaves the right bytes in infer_buffer. */
static void check_others(bench *b) {
  char *expected = bench_allocate(b->infer_bytes, 1);
  MUST(treadle_layout_load(b->infer, b->rank, expected));
  for (int step = ALLTOALLW; step <= ALLGATHER; step++) {
    if (is_left_out(b, step)) continue;
    memset(b->infer_buffer, 0x5a, b->infer_bytes);
    steps[step](b);
    for (size_t at = 0; at < b->infer_bytes; at++)
      if (b->infer_buffer[at] != expected[at]) differs(step, at);
  }
  memcpy(b->infer_buffer, expected, b->infer_bytes);
  treadle_free(expected);
}

static void check_switch(bench *b) {
  size_t at;
  MUST(bench_compare(b->sw, TREADLE_INFER_PARAMS, b->infer_buffer, b->infer_bytes, &at));
  if (at != SIZE_MAX) differs(SWITCH, at);
}

static void prepare(bench *b) {
  MUST(bench_open_llama(b->options.layers, b->options.scale_down, &b->model));
  MUST(treadle_layout_create(b->model, b->options.train, b->size, NULL, &b->train));
  MUST(treadle_layout_create(b->model, b->options.infer, b->size, NULL, &b->infer));
  MUST(treadle_group_mpi(NULL, 60, &b->group));
  MUST(bench_open_device(b->options.device, b->group, &b->device));
  b->train_bytes = treadle_layout_window_bytes(b->train, b->rank);
  b->infer_bytes = treadle_layout_window_bytes(b->infer, b->rank);
  b->train_buffer = bench_allocate(b->train_bytes, 1);
  b->infer_buffer = bench_allocate(b->infer_bytes, 1);
  b->plans = bench_allocate((size_t)b->size, sizeof *b->plans);
  for (int rank = 0; rank < b->size; rank++)
    MUST(one_rank_plan(b->train, b->infer, rank, PAGE, 1, 0, &b->plans[rank]));
  for (int i = 0; i < STEPS; i++)
    b->seconds[i] = bench_allocate((size_t)(WARM_UP + b->options.rounds), sizeof *b->seconds[i]);
  MUST(treadle_layout_load(b->train, b->rank, b->train_buffer));
  prepare_alltoallw(b);
  prepare_allgather(b);
  check_others(b);
  const treadle_switch_options there = {.struct_size = sizeof there, .memory = bench_memory_of(&b->device)};
  MUST(treadle_switch_create(b->group, b->train, b->infer, &there, &b->sw));
  if (b->train_bytes > 0)
    MUST(treadle_switch_write(b->sw, TREADLE_PARAMS, 0, b->train_bytes, b->train_buffer));
  MUST(treadle_switch_filled(b->sw));
}

static double time_step(bench *b, int step) {
  double seconds;
  if (step != MEMCPY || treadle_device_is_host(&b->device)) return bench_time(b->group, steps[step], b);
  MUST(treadle_group_barrier(b->group));
  MUST(treadle_switch_flat_copy(b->sw, b->infer_bytes, &seconds));
  return bench_largest(b->group, seconds);
}

static void run_rounds(bench *b) {
  for (int64_t round = 0; round < WARM_UP + b->options.rounds; round++)
    for (int step = 0; step < STEPS; step++) {
      if (is_left_out(b, step)) continue;
      b->seconds[step][round] = time_step(b, step);
      if (step == SWITCH && round == 0) check_switch(b);
    }
}

static void release(bench *b) {
  treadle_switch_destroy(b->sw);
  treadle_device_close(&b->device);
  treadle_group_close(b->group);
  for (int rank = 0; rank < b->size; rank++) {
    if (b->send_counts[rank]) MPI_Type_free(&b->send_types[rank]);
    if (b->receive_counts[rank]) MPI_Type_free(&b->receive_types[rank]);
    treadle_plan_destroy(b->plans[rank]);
  }
  if (b->gathers) MPI_Comm_free(&b->tp_group);
  treadle_layout_destroy(b->infer);
  treadle_layout_destroy(b->train);
  treadle_model_close(b->model);
  void *memory[] = {b->train_buffer, b->infer_buffer,   b->plans,   b->send_types, b->receive_types,
                    b->send_counts,  b->receive_counts, b->offsets, b->slots,      b->gathered};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) treadle_free(memory[i]);
  for (int i = 0; i < STEPS; i++) treadle_free(b->seconds[i]);
}

/* ---- The report ---- */

typedef struct result {
  double seconds, rate; /* medians; rate: this way's time over the switch's in the same round, */
  double least, most;   /* and its range over the rounds */
} result;

static void summarise(bench *b, result *results) {
  int64_t rounds = b->options.rounds;
  double *rates = bench_allocate((size_t)rounds, sizeof *rates);
  for (int i = STEPS - 1; i >= 0; i--) { /* the switch last: medians sort */
    for (int64_t k = 0; k < rounds; k++)
      rates[k] = b->seconds[i][WARM_UP + k] / b->seconds[SWITCH][WARM_UP + k];
    results[i].rate = bench_median(rates, (int)rounds); /* sorts */
    results[i].least = rates[0];
    results[i].most = rates[rounds - 1];
    results[i].seconds = bench_median(b->seconds[i] + WARM_UP, (int)rounds);
  }
  treadle_free(rates);
}

static int64_t all_bytes(const bench *b, const treadle_layout *layout) {
  int64_t bytes = 0;
  for (int rank = 0; rank < b->size; rank++) bytes += (int64_t)treadle_layout_window_bytes(layout, rank);
  return bytes;
}

static void print_table(const bench *b, const result *results) {
  double gigabytes = 1e-9 * (double)all_bytes(b, b->infer);
  printf("%s to %s, %d ranks, %.2f B parameters, %.2f GB of infer bytes, medians of %" PRId64 " rounds\n\n",
         b->options.train, b->options.infer, b->size, 1e-9 * (double)treadle_model_elems(b->model),
         gigabytes, b->options.rounds);
  printf("  %-10s %8s %8s %14s %14s %8s\n", "", "ms", "GB/s", "switch over it", "(range)",
         b->usual ? "bar" : "");
  for (int i = 0; i < STEPS; i++) {
    if (is_left_out(b, i)) continue;
    const result *r = &results[i];
    double moved = i == TO_TRAIN ? 1e-9 * (double)all_bytes(b, b->train) : gigabytes;
    printf("  %-10s %8.1f %8.2f", step_names[i], 1e3 * r->seconds, moved / r->seconds);
    if (bars[i] > 0) printf(" %14.2f %6.2f..%6.2f", r->rate, r->least, r->most);
    if (bars[i] > 0 && b->usual) printf(" %8.2f %s", bars[i], r->rate >= bars[i] ? "met" : "MISSED");
    printf("\n");
  }
  if (is_left_out(b, ALLTOALLW))
    printf("  alltoallw and allgather are left out: they are for memory of the host\n");
  else if (!b->gathers)
    printf("  allgather is left out: ranks of the train layout hold different tensors\n");
}

static void print_json(const bench *b, const result *results) {
  double gigabytes = 1e-9 * (double)all_bytes(b, b->infer);
  printf("{\n  \"ranks\": %d, \"rounds\": %" PRId64 ", \"device\": \"%s\", \"infer_bytes\": %" PRId64,
         b->size, b->options.rounds, b->device.ops->name, all_bytes(b, b->infer));
  for (int i = 0; i < STEPS; i++) {
    if (is_left_out(b, i)) continue;
    const char *name = step_names[i];
    printf(",\n  \"%s_seconds\": %.6f", name, results[i].seconds);
    if (i != TO_TRAIN) printf(", \"%s_gb_per_second\": %.3f", name, gigabytes / results[i].seconds);
    if (bars[i] > 0) printf(", \"rate_over_%s\": %.4f", name, results[i].rate);
  }
  printf("\n}\n");
}

static bool read_options(int count, char **texts, options *o) {
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--model-layers")))
      o->layers = atoi(value);
    else if ((value = bench_option(texts, &i, "--scale-down")))
      o->scale_down = atoi(value);
    else if ((value = bench_option(texts, &i, "--rounds")))
      o->rounds = atoi(value);
    else if ((value = bench_option(texts, &i, "--train")))
      o->train = value;
    else if ((value = bench_option(texts, &i, "--infer")))
      o->infer = value;
    else if ((value = bench_option(texts, &i, "--device")))
      o->device = value;
    else if (strcmp(texts[i], "--json") == 0)
      o->json = true;
    else
      return false;
  }
  return o->layers > 0 && o->scale_down >= 0 && o->rounds > 0;
}

int main(int count, char **texts) {
  bench b = {.options = usual};
  MPI_Init(&count, &texts);
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &b.size);
  if (!read_options(count, texts, &b.options)) {
    if (b.rank == 0)
      fprintf(stderr,
              "usage: mpirun -n N bench_switch [--model-layers N] [--scale-down N] [--train LAYOUT] "
              "[--infer LAYOUT] [--device DEVICE] [--rounds N] [--json]\n");
    MPI_Finalize();
    return 2;
  }
  prepare(&b);
  b.usual = b.size == 4 && b.options.layers == usual.layers && b.options.scale_down == 0 &&
            strcmp(b.options.train, usual.train) == 0 && strcmp(b.options.infer, usual.infer) == 0 &&
            treadle_device_is_host(&b.device);
  run_rounds(&b);
  if (b.rank == 0) {
    result results[STEPS];
    summarise(&b, results);
    if (b.options.json)
      print_json(&b, results);
    else
      print_table(&b, results);
  }
  release(&b);
  MPI_Finalize();
  return 0;
}
