/* A training engine of one's own around treadle: gradients and optimizer state live in windows of the pool and leave the
 * device while an inference engine serves; params have a copy in host memory; log-probabilities are taken in mode FORWARD.
 *
 *   mpirun -n 4 example_training_engine DIR|config.json megatron:tp=4 vllm:tp=2      (bf16 parameters) */
#include <treadle.h>

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* After a failed switch no MPI call: the others are told by treadle. With keep=host the training state stands in mode
 * TRAIN then, so this is where a program would save it. */
#define MUST(call)                                                                                         \
  do {                                                                                                     \
    if (call) {                                                                                            \
      fprintf(stderr, "rank %d: %s\n", rank, treadle_error_message());                                     \
      _exit(1);                                                                                            \
    }                                                                                                      \
  } while (0)

/* ---- The inference engine: it keeps an address between bind and unbind ---- */

typedef struct engine {
  const unsigned char *weights;
  size_t bytes;
} engine;

static treadle_status bind_engine(void *context, void *infer_window, size_t bytes) {
  *(engine *)context = (engine){infer_window, bytes};
  return TREADLE_OK; /* anything else undoes the switch on all ranks */
}

static treadle_status unbind_engine(void *context) {
  *(engine *)context = (engine){NULL, 0};
  return TREADLE_OK;
}

/* ---- The trainer: bf16 params; for each element an fp32 gradient, master weight and moment ---- */

typedef struct trainer {
  uint16_t *params; /* [elems] */
  float *grads;     /* [elems] */
  float *masters;   /* [elems], then as many moments */
  size_t elems;
} trainer;

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void train_step(trainer *t, int step) {
  float *moments = t->masters + t->elems;
  for (size_t i = 0; i < t->elems; i++) t->grads[i] = 1e-3f * (float)((int)(i + (size_t)step) % 7 - 3);
  for (size_t i = 0; i < t->elems; i++) {
    moments[i] = 0.9f * moments[i] + t->grads[i];
    t->masters[i] -= 0.1f * moments[i];
    t->params[i] = to_bf16(t->masters[i]);
  }
}

/* How many params are not what their master weights say: what a switch must not change. */
static size_t count_wrong(const trainer *t) {
  size_t wrong = 0;
  for (size_t i = 0; i < t->elems; i++) wrong += t->params[i] != to_bf16(t->masters[i]);
  return wrong;
}

/* Elements of this rank's train window, which must be bf16 without gaps; 0 when it is not. */
static size_t count_elems(const treadle_layout *train, int rank) {
  size_t bytes = treadle_layout_window_bytes(train, rank), sum = 0;
  for (int32_t i = 0; i < treadle_layout_storage_count(train, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (treadle_layout_storage(train, rank, i, &info) || info.dtype != TREADLE_BF16) return 0;
    sum += info.bytes;
  }
  return sum <= bytes ? bytes / 2 : 0; /* what is between tensors is trained, too, and means nothing */
}

int main(int count, char **texts) {
  int rank, size;
  MPI_Init(&count, &texts);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (count != 4) {
    if (rank == 0) fprintf(stderr, "usage: mpirun -n N %s DIR|config.json TRAIN INFER\n", texts[0]);
    MPI_Finalize();
    return 2;
  }
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  MUST(treadle_model_open(texts[1], NULL, &model));
  MUST(treadle_layout_create(model, texts[2], size, NULL, &train));
  MUST(treadle_layout_create(model, texts[3], size, NULL, &infer));
  MUST(treadle_group_mpi(NULL, 60, &group));

  engine serving = {NULL, 0};
  const treadle_engine_hooks hooks = {.struct_size = sizeof(treadle_engine_hooks),
                                      .context = &serving,
                                      .bind = bind_engine,
                                      .unbind = unbind_engine};
  trainer t = {.elems = count_elems(train, rank)};
  const treadle_switch_options options = {
      .struct_size = sizeof(treadle_switch_options),
      .page_bytes = 64 << 10,
      .grads_bytes = t.elems * sizeof(float),
      .optimizer_bytes = 2 * t.elems * sizeof(float),
      .offload_train_grad = TREADLE_ON,      /* dropped: they are used up before a switch */
      .offload_train_optimizer = TREADLE_ON, /* to host memory */
      .keep = TREADLE_KEEP_HOST,             /* params, too: any failure leaves them as they were */
      .kv_block_bytes = 16 << 10,            /* the cache gets what is free */
      .alias = true,
      .engine = &hooks,
  };
  MUST(treadle_switch_create(group, train, infer, &options, &sw));

  /* The addresses of windows never change. They hold zeros, and mode is TRAIN. */
  t.params = treadle_switch_window(sw, TREADLE_PARAMS, NULL);
  t.grads = treadle_switch_window(sw, TREADLE_GRADS, NULL);
  t.masters = treadle_switch_window(sw, TREADLE_OPTIMIZER, NULL);
  MUST(treadle_layout_load(train, rank, t.params));
  for (size_t i = 0; i < t.elems; i++) t.masters[i] = from_bf16(t.params[i]);

  size_t wrong = 0;
  for (int step = 0; step < 3; step++) {
    treadle_switch_accumulate(sw, true); /* from here to the end of the step no switch to INFER */
    train_step(&t, step);
    treadle_switch_accumulate(sw, false);

    MUST(treadle_switch_to_infer(sw)); /* ends with bind_engine on every rank */
    treadle_storage_info info =
        TREADLE_INIT(treadle_storage_info); /* alias moves tensors: their places are the plan's to say */
    MUST(treadle_plan_storage(treadle_switch_plan(sw), 0, &info));
    if (rank == 0)
      printf("version %llu: %s at byte %zu of %zu, beside a KV cache of %zu bytes\n",
             (unsigned long long)treadle_switch_version(sw), info.name, info.offset_bytes, serving.bytes,
             treadle_switch_resident(sw, TREADLE_KV));

    MUST(treadle_switch_to_forward(sw)); /* begins with unbind_engine; params may be read */
    float sum = 0;
    for (size_t i = 0; i < t.elems; i += 1001) sum += from_bf16(t.params[i]);
    if (rank == 0 && step == 2) printf("a sum of params in mode forward: %g\n", (double)sum);

    MUST(treadle_switch_to_train(sw)); /* optimizer state is back; gradients mean nothing */
    wrong += count_wrong(&t);
  }
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  if (rank == 0)
    printf("%zu params differ from their masters; %zu bytes of host memory, a pool of %zu\n", wrong,
           stats.host_bytes, stats.pool_bytes);

  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  MPI_Finalize();
  return wrong != 0;
}
