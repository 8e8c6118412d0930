/* A switch between the ranks of an MPI launcher.
 *
 *   mpirun -n 4 example_switch_mpi DIR|config.json megatron:tp=4 vllm:tp=2 */
#include <treadle.h>

#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

/* After a failed switch no MPI call: the others are told by treadle, and the launcher ends the job. */
#define MUST(call)                                                                                         \
  do {                                                                                                     \
    if (call) {                                                                                            \
      fprintf(stderr, "rank %d: %s\n", rank, treadle_error_message());                                     \
      _exit(1);                                                                                            \
    }                                                                                                      \
  } while (0)

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
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options), .page_bytes = 64 << 10};
  MUST(treadle_switch_create(group, train, infer, &options, &sw));
  MUST(treadle_layout_load(train, rank, treadle_switch_train_window(sw)));

  for (int step = 0; step < 3; step++) {
    /* ... a training step writes the train window ... */
    treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
    MUST(treadle_switch_to_infer(sw));
    treadle_switch_get_stats(sw, &stats);
    /* ... generation reads the infer window ... */
    if (rank == 0)
      printf("version %llu: %zu bytes, %zu of them from other ranks, in %.3f ms\n",
             (unsigned long long)treadle_switch_version(sw), stats.copied_bytes, stats.pulled_bytes,
             1e3 * stats.seconds);
    MUST(treadle_switch_to_train(sw));
  }

  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  MPI_Finalize();
  return 0;
}
