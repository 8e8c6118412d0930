/* A switch beside its caller: it is started, the caller looks how far it is, and may change its mind.
 *
 *   mpirun -n 4 example_start_and_cancel DIR|config.json TRAIN INFER
 *
 * Each rank starts the same arrow. The first time the last rank cancels it, on demand of nobody else: the others hear of it from
 * their own arrow, and all have their training weights as they were (keep=host). The second time nobody does. */
#include <treadle_tools.h>

#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks;

/* A failure ends this rank. The others learn of it and fail, too. */
static void must(treadle_status status) {
  if (status == TREADLE_OK) return;
  fprintf(stderr, "rank %d: %s\n", rank, treadle_error_message());
  _exit(1);
}

/* How much of the inference window is there, in bytes that are copied or filled. */
static void show(const treadle_switch *sw) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_plan_info plan = TREADLE_INIT(treadle_plan_info);
  treadle_switch_get_stats(sw, &stats);
  treadle_plan_get_info(treadle_switch_plan(sw), &plan);
  size_t all = plan.infer_bytes - plan.aliased_bytes, there = stats.copied_bytes + stats.filled_bytes;
  if (rank == 0) printf("%3d %%\n", all ? (int)(100.0 * (double)there / (double)all) : 100);
}

/* Goes to infer mode. A caller would go on with work of its own in the loop, and may use MPI: the switch does not. The one who
 * changes its mind does so before the others have started, which is certainly in time. */
static treadle_status go(treadle_switch *sw, int who_cancels) {
  bool done = false;
  if (who_cancels >= 0 && who_cancels != rank) MPI_Barrier(MPI_COMM_WORLD);
  must(treadle_switch_start(sw, TREADLE_INFER));
  if (who_cancels == rank) {
    must(treadle_switch_cancel(sw));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  while (!done) {
    must(treadle_switch_test(sw, &done));
    show(sw);
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
  }
  return treadle_switch_wait(sw); /* how it went, and the message if it went wrong */
}

int main(int count, char **texts) {
  MPI_Init(&count, &texts);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (count < 4) {
    if (rank == 0) fprintf(stderr, "usage: %s DIR|config.json TRAIN INFER\n", texts[0]);
    MPI_Finalize();
    return 2;
  }
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_plan *plan;
  treadle_group *group;
  treadle_switch *sw;
  must(treadle_model_open(texts[1], NULL, &model));
  must(treadle_layout_create(model, texts[2], ranks, NULL, &train));
  must(treadle_layout_create(model, texts[3], ranks, NULL, &infer));
  must(treadle_group_mpi(NULL, 60, &group));

  /* A report over all ranks settles cap and waves; the plan with them can be looked at, and is the one that runs. */
  treadle_report *report;
  treadle_report_info figures = TREADLE_INIT(treadle_report_info);
  treadle_report_options asked = TREADLE_INIT(treadle_report_options);
  asked.page_bytes = 65536;
  must(treadle_report_create(train, infer, &asked, &report));
  treadle_report_get_info(report, &figures);
  treadle_report_destroy(report);
  treadle_plan_options plan_options = TREADLE_INIT(treadle_plan_options);
  plan_options.page_bytes = figures.page_bytes;
  plan_options.cap_bytes = figures.cap_bytes;
  plan_options.waves = figures.waves;
  must(treadle_plan_create(train, infer, rank, &plan_options, &plan));
  if (rank == 0) printf("%d waves of pages of %zu bytes\n", figures.waves, figures.page_bytes);

  treadle_switch_options options = TREADLE_INIT(treadle_switch_options);
  options.plan = plan;
  options.keep = TREADLE_KEEP_HOST;
  must(treadle_switch_create(group, train, infer, &options, &sw));
  treadle_plan_destroy(plan); /* the switch does not need it any more */
  must(treadle_layout_load(train, rank, treadle_switch_train_window(sw)));
  uint64_t before, between, after;
  must(treadle_switch_digest(sw, &before));

  treadle_status status = go(sw, ranks - 1);
  if (status != (rank == ranks - 1 ? TREADLE_CANCELLED : TREADLE_PEER)) must(status);
  printf("rank %d: %s\n", rank, treadle_error_message());
  must(treadle_switch_digest(sw, &between));

  must(go(sw, -1));
  must(treadle_switch_digest(sw, &after));
  if (rank == 0)
    printf("version %llu, %s\n", (unsigned long long)treadle_switch_version(sw),
           before == between && between == after ? "the same weights" : "DIFFERENT");

  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  MPI_Finalize();
  return before != between || between != after;
}
