/* Training and serving on the same devices: treadle's own trainer works in the windows of a switch. Gradients and the optimizer's state leave
 * the device while an inference engine serves, params have a copy in host memory, and the loss of the new weights is taken in mode FORWARD.
 * Another trainer does the same with a treadle_train_engine of its own.
 *
 *   mpirun -n 4 example_training_engine DIR|config.json megatron:tp=2,pp=2 vllm:tp=2 */
#include <treadle.h>
#include <treadle_loop.h>

#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { ROWS = 8, TOKENS = 24, STEPS = 3, RANKS_MOST = 64 };

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

typedef struct server {
  const unsigned char *weights;
  size_t bytes;
} server;

static treadle_status bind_server(void *context, void *infer_window, size_t bytes) {
  *(server *)context = (server){infer_window, bytes};
  return TREADLE_OK; /* anything else undoes the switch on all ranks */
}

static treadle_status unbind_server(void *context) {
  *(server *)context = (server){NULL, 0};
  return TREADLE_OK;
}

/* ---- Rows to train on: numbers that count on ---- */

static treadle_batch *make_rows(int rank) {
  treadle_batch *rows;
  int64_t offsets[ROWS + 1];
  treadle_column ids = {
      .struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets};
  for (int r = 0; r <= ROWS; r++) offsets[r] = (int64_t)r * TOKENS;
  MUST(treadle_batch_create(ROWS, &rows));
  MUST(treadle_batch_add(rows, &ids)); /* zeros, which are written where they lie */
  MUST(treadle_batch_column(rows, "ids", &ids));
  for (int i = 0; i < ROWS * TOKENS; i++)
    ((int32_t *)ids.data)[i] = 1 + (3 * (i / TOKENS) + i % TOKENS) % 40;
  return rows;
}

int main(int count, char **texts) {
  int rank, size, different = 0;
  MPI_Init(&count, &texts);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (count != 4 || size > RANKS_MOST) {
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

  treadle_trainer_options training = {
      .struct_size = sizeof training, .optimizer = true, .most_rows = ROWS * TOKENS, .most_tokens = TOKENS};
  treadle_trainer_memory memory[RANKS_MOST]; /* what the windows of each rank must hold */
  MUST(treadle_trainer_foresee(train, &training, memory));
  server serving = {NULL, 0};
  const treadle_engine_hooks hooks = {.struct_size = sizeof(treadle_engine_hooks),
                                      .context = &serving,
                                      .bind = bind_server,
                                      .unbind = unbind_server};
  const treadle_switch_options options = {
      .struct_size = sizeof(treadle_switch_options),
      .page_bytes = 64 << 10,
      .grads_bytes = memory[rank].grads,
      .optimizer_bytes = memory[rank].optimizer,
      .offload_train_grad = TREADLE_ON,      /* dropped: they are used up before a switch */
      .offload_train_optimizer = TREADLE_ON, /* to host memory */
      .keep = TREADLE_KEEP_HOST,             /* params, too: any failure leaves them as they were */
      .kv_block_bytes = 16 << 10,            /* the cache gets what is free */
      .alias = true,
      .engine = &hooks,
  };
  MUST(treadle_switch_create(group, train, infer, &options, &sw));

  /* The addresses of windows never change. They hold zeros, and mode is TRAIN. */
  treadle_train_engine trainer = TREADLE_INIT(treadle_train_engine);
  training.params_window = treadle_switch_window(sw, TREADLE_PARAMS, NULL);
  training.grads_window = treadle_switch_window(sw, TREADLE_GRADS, NULL);
  training.optimizer_window = treadle_switch_window(sw, TREADLE_OPTIMIZER, NULL);
  MUST(treadle_trainer_open_engine(NULL, group, train, &training, &trainer));
  MUST(trainer.randomise(trainer.engine, 1)); /* or load, for the weights of a folder */

  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 2};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  const treadle_optimizer_step adamw = {.struct_size = sizeof adamw, .lr = 1e-3, .clip_grad = 1};
  treadle_batch *rows = make_rows(rank), *mine; /* data parallel ranks divide them, as coordinate_of says */
  MUST(treadle_trainer_slice(trainer.engine, rows, &forward, NULL, &mine));
  for (int step = 0; step < STEPS; step++) {
    treadle_loss after = TREADLE_INIT(treadle_loss);
    treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
    uint64_t trained, served, back;
    treadle_switch_accumulate(sw, true); /* until the step is taken no switch to INFER */
    MUST(trainer.update(trainer.engine, mine, &forward, &nll, &adamw, NULL, &figures));
    treadle_switch_accumulate(sw, false);
    MUST(trainer.weights_digest(trainer.engine, &trained));

    MUST(treadle_switch_to_infer(sw)); /* ends with bind_server on every rank */
    MUST(treadle_switch_digest(sw, &served));
    if (rank == 0)
      printf("version %llu: loss %.5f, norm %.4f; %zu bytes are served beside a KV cache of %zu bytes\n",
             (unsigned long long)treadle_switch_version(sw), figures.loss.nll / (double)figures.loss.tokens,
             figures.grad_norm, serving.bytes, treadle_switch_resident(sw, TREADLE_KV));

    MUST(treadle_switch_to_forward(sw)); /* begins with unbind_server; params may be read */
    MUST(trainer.loss(trainer.engine, mine, &forward, &nll, &after));
    if (rank == 0) printf("  in mode forward the loss is %.5f\n", after.nll / (double)after.tokens);

    MUST(treadle_switch_to_train(sw)); /* optimizer state is back; gradients mean nothing */
    MUST(trainer.weights_digest(trainer.engine, &back));
    different += trained != served || trained != back;
  }
  if (rank == 0) printf("%d digests differ\n", different);

  treadle_batch_destroy(mine);
  treadle_batch_destroy(rows);
  trainer.close(trainer.engine);
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  MPI_Finalize();
  return different != 0;
}
