/* bench_adam [--mib N] [--runs N] [--threads N]: AdamW over as many elements as fill N MiB, by each set of functions, beside memcpy of
 * as many bytes: for bf16 weights an element's 16 are read and 14 written, and 15 are copied. The best of the runs, in GB/s of bytes read
 * and written. */
#include "bench.h"

#include "base/clock.h"
#include "train/adam.h"

#include <stdio.h>

enum { READ = 16, WRITTEN = 14, RUNS_MOST = 1000, MIB_MOST = 1 << 14 };

typedef struct bench {
  treadle_adam_run run;
  treadle_team *team;
  char *from, *to;
  int runs;
} bench;

static void copy_part(void *context, int32_t index, int32_t count) {
  bench *b = context;
  size_t bytes = (size_t)b->run.count * (READ + WRITTEN) / 2;
  size_t begin = bytes / (size_t)count * (size_t)index, end = bytes / (size_t)count * ((size_t)index + 1);
  memcpy(b->to + begin, b->from + begin, end - begin);
}

static double best_of(bench *b, const treadle_adam_ops *ops) {
  const treadle_adam adam = {0.9, 0.95, 1e-8};
  double best = 1e30;
  for (int i = 0; i < b->runs; i++) {
    const treadle_adam_step step = {i + 1, 1e-4, 0.1, 1};
    const treadle_adam_factors factors = treadle_adam_factors_of(&adam, &step);
    double begin = treadle_clock_seconds();
    if (ops)
      treadle_adam_take(ops, b->team, &factors, &b->run);
    else
      treadle_team_run(b->team, copy_part, b);
    double seconds = treadle_clock_seconds() - begin;
    if (seconds < best) best = seconds;
  }
  return best;
}

static float *values(int64_t count) {
  float *made = malloc((size_t)count * sizeof *made);
  for (int64_t i = 0; made && i < count; i++) made[i] = (float)(i % 1009) / 1009;
  return made;
}

int main(int argc, char **argv) {
  bench b = {.runs = 20};
  int64_t mib = 512;
  int threads = 2, count;
  for (int i = 1; i < argc; i++) {
    const char *value;
    if ((value = bench_option(argv, &i, "--mib")))
      mib = atoll(value);
    else if ((value = bench_option(argv, &i, "--runs")))
      b.runs = atoi(value);
    else if ((value = bench_option(argv, &i, "--threads")))
      threads = atoi(value);
  }
  if (mib < 1 || mib > MIB_MOST || b.runs < 1 || b.runs > RUNS_MOST ||
      treadle_team_create(threads, false, &b.team) != TREADLE_OK) {
    fprintf(stderr, "bench_adam [--mib N] [--runs N] [--threads N]\n");
    return 2;
  }
  b.run.count = mib * (1 << 20) / (READ + 2);
  size_t bytes = (size_t)b.run.count * (READ + WRITTEN);
  b.run = (treadle_adam_run){values(b.run.count),
                             values(b.run.count),
                             values(b.run.count),
                             values(b.run.count),
                             calloc((size_t)b.run.count, 2),
                             TREADLE_BF16,
                             b.run.count};
  b.from = malloc(bytes / 2);
  b.to = malloc(bytes / 2);
  if (!b.run.master || !b.run.exp_avg || !b.run.exp_avg_sq || !b.run.grad || !b.run.weights || !b.from ||
      !b.to)
    return 1;
  memset(b.from, 1, bytes / 2);
  memset(b.to, 2, bytes / 2);
  double copy = best_of(&b, NULL);
  printf("%-8s %6.2f GB/s\n", "memcpy", (double)bytes / copy / 1e9);
  const treadle_adam_ops *const *list = treadle_adam_ops_list(&count);
  for (int k = 0; k < count; k++) {
    if (!list[k]->supported()) continue;
    double seconds = best_of(&b, list[k]);
    printf("%-8s %6.2f GB/s  %5.2f of memcpy  %7.1f M elements/s\n", list[k]->name,
           (double)bytes / seconds / 1e9, copy / seconds, (double)b.run.count / seconds / 1e6);
  }
  treadle_team_destroy(b.team);
  return 0;
}
