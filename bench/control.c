/* bench_control [--runs N] [--json], or mpirun -n 5 bench_control --mpi: a controller and 2, 4 and 8 workers, each a process (include/treadle_control.h).
 *
 * 1,000 calls of a method that does nothing, to all workers, one after another, each waited for. Rows: a batch of 64 MiB is divided among the
 * workers, which give it back, and the controller takes it; beside memcpy of as many bytes, both ways. With --mpi the ranks are those of
 * mpirun, and MPI_Scatterv and MPI_Gatherv move as many bytes between the same processes. Medians of the runs. */
#include "processes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "treadle_control.h"

#include <mpi.h>

enum { CALLS = 1000, ROWS = 8192, VALUES = 2048 };

typedef struct result {
  bench_size size;
  double calls, rows, copy; /* seconds */
} result;

static treadle_status do_nothing(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker, (void)in, (void)out_p;
  return TREADLE_OK;
}

static treadle_status give_back(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker;
  return treadle_batch_slice(in, 0, treadle_batch_rows(in), out_p);
}

static const treadle_class_method methods[] = {
    {.name = "nothing", .function = do_nothing, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "give_back", .function = give_back, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO}};
static const treadle_worker_class classes[] = {
    {.struct_size = sizeof *classes, .name = "bench", .methods = methods, .method_count = 2}};

static treadle_status measure_calls(treadle_workers *w, int runs, double *seconds_p) {
  double seconds[BENCH_MAX_RUNS];
  treadle_future *f;
  treadle_status status = TREADLE_OK;
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    for (int i = 0; i < CALLS; i++) {
      TRY(treadle_workers_call(w, "nothing", NULL, &f));
      status = treadle_future_wait(f);
      treadle_future_destroy(f);
      TRY(status);
    }
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  *seconds_p = bench_median(seconds, runs);
out:
  return status;
}

static treadle_status move_rows(treadle_workers *w, const treadle_batch *batch) {
  const treadle_call_input in = {.struct_size = sizeof in, .batch = batch};
  treadle_future *f;
  treadle_batch *back = NULL;
  treadle_status status;
  TRY(treadle_workers_call(w, "give_back", &in, &f));
  status = treadle_future_take(f, NULL, 0, &back);
  if (!status && treadle_batch_rows(back) != ROWS) status = TREADLE_DIFFERENT;
  treadle_batch_destroy(back);
  treadle_future_destroy(f);
out:
  return status;
}

static treadle_status measure_rows(treadle_workers *w, int runs, result *r) {
  double seconds[BENCH_MAX_RUNS], copies[BENCH_MAX_RUNS];
  treadle_column c = {
      .struct_size = sizeof c, .name = "values", .type = TREADLE_COLUMN_FP32, .width = VALUES};
  treadle_batch *batch = NULL;
  char *room = treadle_alloc_array((size_t)ROWS * VALUES, sizeof(float));
  treadle_status status;
  TRY(treadle_batch_create(ROWS, &batch));
  TRY(treadle_batch_add(batch, &c));
  TRY(treadle_batch_column(batch, "values", &c));
  memset(c.data, 0x3c, (size_t)ROWS * VALUES * sizeof(float));
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    TRY(move_rows(w, batch));
    double end = treadle_clock_seconds();
    memcpy(room, c.data, (size_t)ROWS * VALUES * sizeof(float));
    memcpy(c.data, room, (size_t)ROWS * VALUES * sizeof(float));
    if (run >= 0) seconds[run] = end - begin;
    if (run >= 0) copies[run] = treadle_clock_seconds() - end;
  }
  r->rows = bench_median(seconds, runs);
  r->copy = bench_median(copies, runs);
out:
  treadle_batch_destroy(batch);
  treadle_free(room);
  return status;
}

static treadle_status control(treadle_crew *crew, result *r) {
  int32_t ranks[BENCH_MAX_RANKS];
  treadle_workers *w = NULL;
  treadle_status status;
  for (int i = 0; i < r->size.ranks; i++) ranks[i] = i + 1;
  TRY(treadle_workers_create(crew, ranks, (size_t)r->size.ranks, "bench", NULL, &w));
  TRY(measure_calls(w, r->size.runs, &r->calls));
  TRY(measure_rows(w, r->size.runs, r));
out:
  treadle_workers_destroy(w);
  treadle_crew_end(crew, status);
  return status;
}

/* ---- Beside MPI ---- */

/* rank 0 has all rows, and none of its own. */
static double measure_mpi(int rank, int workers, int runs) {
  const int each = ROWS * VALUES / workers;
  double seconds[BENCH_MAX_RUNS];
  int counts[BENCH_MAX_RANKS + 1] = {0}, places[BENCH_MAX_RANKS + 1] = {0};
  float *all = rank ? NULL : treadle_alloc_array((size_t)ROWS * VALUES, sizeof *all);
  float *mine = treadle_alloc_array((size_t)each, sizeof *mine);
  for (int i = 0; i < workers; i++) {
    counts[i + 1] = each;
    places[i + 1] = i * each;
  }
  for (int run = -1; run < runs; run++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = treadle_clock_seconds();
    MPI_Scatterv(all, counts, places, MPI_FLOAT, mine, rank ? each : 0, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Gatherv(mine, rank ? each : 0, MPI_FLOAT, all, counts, places, MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  treadle_free(all);
  treadle_free(mine);
  return bench_median(seconds, runs);
}

static treadle_status run_mpi(result *r) {
  treadle_group *group = NULL;
  treadle_crew *crew = NULL;
  treadle_status status;
  MPI_Init(NULL, NULL);
  TRY(treadle_group_mpi(NULL, 60, &group));
  const int rank = treadle_group_rank(group);
  r->size.ranks = treadle_group_size(group) - 1;
  TRY(treadle_crew_open(group, classes, 1, NULL, &crew));
  TRY(rank == 0 ? control(crew, r) : treadle_crew_serve(crew));
  treadle_crew_close(crew);
  crew = NULL;
  const double seconds = measure_mpi(rank, r->size.ranks, r->size.runs);
  if (rank == 0)
    printf(
        "%d workers: 64 MiB of rows there and back %.1f ms, MPI_Scatterv and MPI_Gatherv of them %.1f ms, "
        "memcpy %.1f ms: %.2f of MPI\n",
        r->size.ranks, r->rows * 1e3, seconds * 1e3, r->copy * 1e3, seconds / r->rows);
out:
  if (status) fprintf(stderr, "bench_control: %s\n", treadle_error_message());
  treadle_crew_close(crew);
  treadle_group_close(group);
  MPI_Finalize();
  return status;
}

/* ---- Processes ---- */

static treadle_status run_rank(const char *name, int rank, void *context) {
  result *r = context;
  treadle_group *group = NULL;
  treadle_crew *crew = NULL;
  treadle_status status;
  TRY(treadle_group_open(name, rank, r->size.ranks + 1, 60, &group));
  TRY(treadle_crew_open(group, classes, 1, NULL, &crew));
  TRY(rank == 0 ? control(crew, r) : treadle_crew_serve(crew));
out:
  if (status) fprintf(stderr, "bench_control: %s\n", treadle_error_message());
  treadle_crew_close(crew);
  treadle_group_close(group);
  return status;
}

static void print(const void *measured, bool json) {
  const result *r = measured;
  printf(json
             ? "  {\"workers\": %d, \"calls_1000_ms\": %.1f, \"rows_64_mib_ms\": %.1f, \"memcpy_ms\": %.1f}"
             : "%d workers: 1,000 empty calls %.0f ms; 64 MiB of rows there and back %.1f ms, memcpy of "
               "them %.1f ms\n",
         r->size.ranks, r->calls * 1e3, r->rows * 1e3, r->copy * 1e3);
}

int main(int count, char **texts) {
  result r = {.size = {.runs = 7, .more = 1}};
  if (count == 2 && strcmp(texts[1], "--mpi") == 0) return run_mpi(&r) != TREADLE_OK;
  return bench_by_ranks(count, texts, "control", run_rank, &r, print);
}
