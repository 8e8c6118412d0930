/* bench_board [--runs N] [--json]: what it costs that the ranks of an engine work together.
 *
 * For 2, 4 and 8 processes: a meeting of all; the processor time of a meeting after each rank has worked for 100 us, of all ranks
 * together and without the work; and sums of several sizes, each rank with one of the nodes, which it writes anew each time. A sum
 * is added once by every rank for itself, and once divided among the ranks. Medians of the runs, on rank 0. */
#include "processes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "nn/exchange.h"

#include <stdio.h>

enum { WORKED = 1000, SHAPES = 5, LEAVES = 8 };
static const double WORK = 100e-6, RUN = 0.05; /* seconds */

static const struct {
  int64_t rows, columns;
} shapes[SHAPES] = {{1, 768}, {1, 4096}, {16, 1024}, {64, 1024}, {512, 1024}};

typedef struct bench {
  treadle_group *group;
  treadle_board_set *set;
  treadle_exchange *exchange;
  float *sum;
  int64_t rows, columns;
  int runs;
} bench;

typedef struct result {
  bench_size size;
  double meeting, beside;              /* microseconds; of processor time */
  double all[SHAPES], divided[SHAPES]; /* microseconds */
} result;

typedef treadle_status (*step)(bench *b);

static treadle_status meet(bench *b) { return treadle_board_meet(b->set, "meeting"); }

static treadle_status work(bench *b) {
  double end = treadle_clock_processor_seconds() + WORK;
  while (treadle_clock_processor_seconds() < end) {
  }
  return meet(b);
}

static treadle_status sum(bench *b) {
  const treadle_leaf_range mine = {b->group->rank * LEAVES / b->group->size, LEAVES / b->group->size,
                                   LEAVES};
  memset(treadle_exchange_room(b->exchange), 0x3c, (size_t)(b->rows * b->columns) * sizeof(float));
  return treadle_parallel_sum(b->exchange, mine, b->rows, b->columns, b->sum, "sum");
}

/* Microseconds of a step. All ranks take as many. */
static treadle_status measure(bench *b, step s, double *result_p) {
  treadle_status status = TREADLE_OK;
  double seconds[BENCH_MAX_RUNS];
  int64_t count = 1, times[8];
  for (int run = -1; run < b->runs; run++) {
    TRY(treadle_group_barrier(b->group));
    double begin = treadle_clock_seconds();
    for (int64_t i = 0; i < count; i++) TRY(s(b));
    double used = treadle_clock_seconds() - begin;
    if (run >= 0) {
      seconds[run] = used / (double)count;
      continue;
    }
    int64_t mine = (int64_t)(RUN / used) + 1; /* the first is for touching, and tells how many */
    TRY(treadle_group_gather(b->group, &mine, sizeof mine, times));
    count = times[0] < 5000 ? times[0] : 5000;
  }
  *result_p = bench_median(seconds, b->runs) * 1e6;
out:
  return status;
}

/* Processor time that all ranks take beside their work, microseconds a meeting. */
static treadle_status measure_beside(bench *b, double *result_p) {
  treadle_status status = TREADLE_OK;
  double used = -treadle_clock_process_seconds(), all[8], more = 0;
  for (int i = 0; i < WORKED; i++) TRY(work(b));
  used += treadle_clock_process_seconds();
  TRY(treadle_group_gather(b->group, &used, sizeof used, all));
  for (int rank = 0; rank < b->group->size; rank++) more += all[rank] / WORKED - WORK;
  *result_p = more * 1e6;
out:
  return status;
}

static treadle_status measure_all(bench *b, result *r) {
  treadle_status status = TREADLE_OK;
  TRY(measure(b, meet, &r->meeting));
  TRY(measure_beside(b, &r->beside));
  for (int i = 0; i < SHAPES; i++) {
    b->rows = shapes[i].rows;
    b->columns = shapes[i].columns;
    b->exchange->divide = INT64_MAX;
    TRY(measure(b, sum, &r->all[i]));
    b->exchange->divide = 0;
    TRY(measure(b, sum, &r->divided[i]));
  }
out:
  return status;
}

static treadle_status run_rank(const char *name, int rank, void *context) {
  result *r = context;
  treadle_status status = TREADLE_OK;
  treadle_board *board = NULL;
  uint64_t elems = (uint64_t)(shapes[SHAPES - 1].rows * shapes[SHAPES - 1].columns);
  bench b = {.runs = r->size.runs, .sum = treadle_alloc_array(elems, sizeof(float))};
  if (!b.sum) return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  TRY(treadle_group_open(name, rank, r->size.ranks, 60, &b.group));
  TRY(treadle_board_create(b.group, treadle_exchange_memory(elems), &board));
  TRY(treadle_board_split(board, 0, &b.set));
  TRY(treadle_exchange_create(b.set, 0, elems, &b.exchange));
  TRY(measure_all(&b, r));
out:
  treadle_exchange_destroy(b.exchange);
  treadle_board_destroy(board);
  treadle_group_close(b.group);
  treadle_free(b.sum);
  if (status != TREADLE_OK) fprintf(stderr, "bench_board: %s\n", treadle_error_message());
  return status;
}

/* ---- What is printed ---- */

static double rate(int shape, double microseconds) {
  return (double)(shapes[shape].rows * shapes[shape].columns) * sizeof(float) / microseconds / 1e3;
}

static void print_table(const result *r) {
  printf("%d ranks: a meeting %.1f us; after work, of processor time %.1f us\n", r->size.ranks, r->meeting,
         r->beside);
  for (int i = 0; i < SHAPES; i++)
    printf("  sum %4d x %4d: each all %9.1f us %7.3f GB/s, divided %9.1f us %7.3f GB/s\n",
           (int)shapes[i].rows, (int)shapes[i].columns, r->all[i], rate(i, r->all[i]), r->divided[i],
           rate(i, r->divided[i]));
}

static void print_json(const result *r) {
  printf("  {\"ranks\": %d, \"meeting_us\": %.2f, \"meeting_after_work_processor_us\": %.2f, \"sums\": [",
         r->size.ranks, r->meeting, r->beside);
  for (int i = 0; i < SHAPES; i++)
    printf("%s\n    {\"rows\": %d, \"columns\": %d, \"each_all_us\": %.2f, \"divided_us\": %.2f, "
           "\"each_all_gbs\": %.4f, \"divided_gbs\": %.4f}",
           i ? "," : "", (int)shapes[i].rows, (int)shapes[i].columns, r->all[i], r->divided[i],
           rate(i, r->all[i]), rate(i, r->divided[i]));
  printf("]}");
}

static void print(const void *measured, bool json) { json ? print_json(measured) : print_table(measured); }

int main(int count, char **texts) {
  result r = {.size = {.runs = 7}};
  return bench_by_ranks(count, texts, "board", run_rank, &r, print);
}
