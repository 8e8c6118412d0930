/* bench_delta [--mib N] [--device cpu] [--runs N]: deltas (src/core/move/delta.h) of N MiB of values (64), in blocks of 1 MiB and of 512 bytes, by the
 * size of an element and the share of elements that have changed, each by itself at random, or in clusters of 64.
 *
 * Bytes are those of the deltas over those of the values. GB/s are bytes of values over the processor time of one thread, the best of
 * the runs; in the first lines are those of memcmp of the same bytes, and of memcpy. */
#include "bench.h"

#include "base/random.h"
#include "move/delta.h"

#include <stdio.h>
#include <time.h>

enum { CLUSTER = 64 };

typedef struct bench {
  int runs;
  size_t bytes, block, each; /* of values, all and of a block; of an element */
  uint8_t *old, *now, *values, *deltas;
  size_t *lengths; /* of deltas, which lie as far apart as treadle_delta_most() says */
} bench;

static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void change(bench *b, double share, size_t cluster) {
  treadle_random random = {1};
  uint64_t below = (uint64_t)(share * 1e6 + 0.5);
  memcpy(b->now, b->old, b->bytes);
  for (size_t i = 0; i < b->bytes; i += cluster * b->each)
    if (treadle_random_next(&random) % 1000000 < below)
      for (size_t at = i; at < i + cluster * b->each; at += b->each)
        b->now[at] ^= (uint8_t)(1 + treadle_random_next(&random) % 255);
}

static void write_all(bench *b) {
  size_t count = b->block / b->each, most = treadle_delta_most(count, b->each);
  for (size_t i = 0, at = 0; at < b->bytes; i++, at += b->block)
    b->lengths[i] = treadle_delta_write(b->old + at, b->now + at, count, b->each, b->deltas + i * most);
}

static void apply_all(bench *b) {
  size_t count = b->block / b->each, most = treadle_delta_most(count, b->each);
  for (size_t i = 0, at = 0; at < b->bytes; i++, at += b->block)
    if (treadle_delta_apply(b->deltas + i * most, b->lengths[i], count, b->each, b->values + at))
      fprintf(stderr, "%s\n", treadle_error_message());
}

static void compare(bench *b) {
  if (memcmp(b->old, b->now, b->bytes) != 0) abort();
}

static void copy(bench *b) { memcpy(b->values, b->old, b->bytes); }

static double speed(bench *b, void (*call)(bench *)) {
  double best = 1e9;
  for (int run = 0; run < b->runs; run++) {
    double begin = processor_seconds();
    call(b);
    double seconds = processor_seconds() - begin;
    if (seconds < best) best = seconds;
  }
  return (double)b->bytes / best / 1e9;
}

static void measure(bench *b, double share, size_t cluster) {
  size_t bytes = 0;
  change(b, share, cluster);
  double written = speed(b, write_all);
  memcpy(b->values, b->old, b->bytes);
  double applied = speed(b, apply_all);
  if (memcmp(b->values, b->now, b->bytes) != 0) abort();
  for (size_t i = 0; i < b->bytes / b->block; i++) bytes += b->lengths[i];
  printf("%7zu %4zu %9s %6.1f %% %9.6f %8.2f %8.2f\n", b->block, b->each,
         cluster > 1 ? "clusters" : "random", 100 * share, (double)bytes / (double)b->bytes, written,
         applied);
  fflush(stdout);
}

static void measure_all(bench *b) {
  static const double shares[] = {0, 0.001, 0.01, 0.1, 0.5, 0.9, 1};
  static const size_t blocks[] = {1 << 20, 512};
  treadle_random random = {2};
  for (size_t i = 0; i < b->bytes; i++) b->old[i] = (uint8_t)treadle_random_next(&random);
  memcpy(b->now, b->old, b->bytes);
  b->block = b->bytes;
  printf("memcmp %.2f GB/s, memcpy %.2f GB/s\n", speed(b, compare), speed(b, copy));
  printf("  block each   changed            bytes    write    apply\n");
  for (size_t block = 0; block < 2; block++)
    for (size_t each = 1; each <= 4; each *= 2)
      for (size_t cluster = 1; cluster <= CLUSTER; cluster += CLUSTER - 1)
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
          if (cluster > 1 && (shares[s] == 0 || shares[s] == 1)) continue;
          b->block = blocks[block];
          b->each = each;
          measure(b, shares[s], cluster);
        }
}

int main(int argc, char **argv) {
  bench b = {.runs = 5, .bytes = 64 << 20};
  const char *device = NULL;
  for (int i = 1; i < argc; i++) {
    const char *value;
    if ((value = bench_option(argv, &i, "--mib"))) {
      b.bytes = (size_t)atoi(value) << 20;
    } else if ((value = bench_option(argv, &i, "--runs"))) {
      b.runs = atoi(value);
    } else if ((value = bench_option(argv, &i, "--device"))) {
      device = value;
    } else {
      fprintf(stderr, "usage: bench_delta [--mib N] [--device cpu] [--runs N]\n");
      return 2;
    }
  }
  if (bench_need_host(device, "deltas are made and applied by the processor, in memory of the host")) {
    fprintf(stderr, "bench_delta: %s\n", treadle_error_message());
    return 1;
  }
  b.old = malloc(b.bytes);
  b.now = malloc(b.bytes);
  b.values = malloc(b.bytes);
  b.deltas = malloc(b.bytes + b.bytes / 512);
  b.lengths = malloc(b.bytes / 512 * sizeof *b.lengths);
  if (b.old && b.now && b.values && b.deltas && b.lengths) measure_all(&b);
  free(b.lengths);
  free(b.deltas);
  free(b.values);
  free(b.now);
  free(b.old);
  return 0;
}
