/* bench_calls [--runs N] [--json]: a call of rank 0's that hands an update to all ranks (control/worker_group.h).
 *
 * 2,048 samples of 500 tokens: ids, log-probabilities by three policies, advantages and weights, 32 bytes a token. 2, 4 and 8 processes; each
 * adds up its share of every array, as data parallel ranks read their rows. Medians of the runs on rank 0, beside memcpy of as many bytes. */
#include "processes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "control/worker_group.h"

#include <stdio.h>

enum { SAMPLES = 2048, TOKENS = SAMPLES * 500, ARRAYS = 6 };
static const size_t sizes[ARRAYS] = {sizeof(int32_t), sizeof(float),  sizeof(float),
                                     sizeof(float),   sizeof(double), sizeof(double)};

typedef struct result {
  bench_size size;
  double call, nothing, copy; /* seconds: of an update, of a call without values, of memcpy */
} result;

typedef struct worker {
  treadle_group *group;
  uint64_t sum;
} worker;

/* This rank's share of each array. */
static treadle_status add_up(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  treadle_status status = TREADLE_OK;
  const int rank = treadle_group_rank(w->group), ranks = treadle_group_size(w->group);
  (void)out;
  for (int a = 0; a < ARRAYS; a++) {
    const void *items;
    TRY(treadle_message_array(in, "values", sizes[a], TOKENS, &items));
    const size_t words = TOKENS * sizes[a] / sizeof(uint64_t) / (size_t)ranks;
    const uint64_t *from = (const uint64_t *)items + words * (size_t)rank;
    for (size_t i = 0; i < words; i++) w->sum += from[i];
  }
out:
  return status;
}

static treadle_status do_nothing(void *context, treadle_message *in, treadle_message *out) {
  (void)context;
  (void)in;
  (void)out;
  return TREADLE_OK;
}

static const treadle_worker_method methods[] = {{"update", add_up}, {"nothing", do_nothing}, {NULL, NULL}};

static treadle_status measure(treadle_worker_group *workers, const char *method, treadle_message *in,
                              int runs, double *seconds_p) {
  treadle_status status = TREADLE_OK;
  treadle_message out = {0};
  double seconds[BENCH_MAX_RUNS];
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    TRY(treadle_worker_group_call(workers, method, in, &out));
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  *seconds_p = bench_median(seconds, runs);
out:
  treadle_message_release(&out);
  return status;
}

static treadle_status measure_copy(const treadle_message *in, int runs, double *seconds_p) {
  double seconds[BENCH_MAX_RUNS];
  char *to = treadle_alloc_array(in->length, 1);
  if (!to) return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    memcpy(to, in->bytes, in->length);
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  treadle_free(to);
  *seconds_p = bench_median(seconds, runs);
  return TREADLE_OK;
}

static treadle_status measure_all(treadle_worker_group *workers, result *r) {
  treadle_status status = TREADLE_OK;
  treadle_message in = {0}, nothing = {0};
  for (int a = 0; a < ARRAYS; a++) {
    treadle_message_put_int(&in, (int64_t)(TOKENS * sizes[a]));
    char *to = treadle_message_grow(&in, TOKENS * sizes[a]);
    if (to) memset(to, 0x3c, TOKENS * sizes[a]);
  }
  TRY(measure_copy(&in, r->size.runs, &r->copy));
  TRY(measure(workers, "update", &in, r->size.runs, &r->call));
  TRY(measure(workers, "nothing", &nothing, r->size.runs, &r->nothing));
out:
  status = treadle_worker_group_end(workers, status);
  treadle_message_release(&in);
  treadle_message_release(&nothing);
  return status;
}

static treadle_status run_rank(const char *name, int rank, void *context) {
  result *r = context;
  treadle_status status = TREADLE_OK;
  worker w = {0};
  treadle_worker_group workers = {.methods = methods, .worker = &w};
  TRY(treadle_group_open(name, rank, r->size.ranks, 60, &w.group));
  workers.group = w.group;
  TRY(rank == 0 ? measure_all(&workers, r) : treadle_worker_group_serve(&workers));
out:
  treadle_worker_group_release(&workers);
  treadle_group_close(w.group);
  if (status != TREADLE_OK) fprintf(stderr, "bench_calls: %s\n", treadle_error_message());
  return status;
}

static void print(const void *measured, bool json) {
  const result *r = measured;
  printf(json
             ? "  {\"ranks\": %d, \"update_ms\": %.3f, \"nothing_ms\": %.3f, \"memcpy_ms\": %.3f}"
             : "%d ranks: an update %.2f ms, a call without values %.3f ms, memcpy of the update %.2f ms\n",
         r->size.ranks, r->call * 1e3, r->nothing * 1e3, r->copy * 1e3);
}

int main(int count, char **texts) {
  result r = {.size = {.runs = 7}};
  return bench_by_ranks(count, texts, "calls", run_rank, &r, print);
}
