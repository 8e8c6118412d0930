/* bench_copy [--mib N] [--runs N]: the copy kernel against one long memcpy of the same bytes.
 *
 * For each shape, three copies take turns: one memcpy of all bytes, the op by the plain mover (memcpy a row
 * or page) and the op by the streaming mover. Printed is the rate of memcpy, and the rate of each mover
 * over it (medians); first with one process, then with two at once, which is what a switch does on a
 * machine with two memory-bound processors. Both windows lie in touched memory and are seen through page
 * tables in which no two pages are neighbours, as in a switch that reclaims: the plain mover then copies at
 * most a page at a time. */
#include "bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "memory/copy.h"
#include "memory/pool.h"
#include "group/group.h"

#include <stdio.h>
#include <sys/wait.h>

enum { PAGE_SHIFT = 21, PAGE = 1 << PAGE_SHIFT, MAX_RUNS = 101 };

typedef struct shape { /* rows of bytes and the steps from row to row */
  const char *name;
  int64_t row, from_step, to_step, skew; /* skew: bytes off a cache line on both sides */
} shape;

static const shape shapes[] = {
    {"2 MiB runs", PAGE, PAGE, PAGE, 0},
    {"4 KiB rows to 8 KiB", 4096, 4096, 8192, 0},
    {"2 KiB rows to 4 KiB", 2048, 2048, 4096, 0},
    {"1 KiB rows to 2 KiB", 1024, 1024, 2048, 0},
    {"4 KiB rows of 8 KiB", 4096, 8192, 4096, 0},
    {"2 KiB rows of 4 KiB", 2048, 4096, 2048, 0},
    {"1 KiB rows of 2 KiB", 1024, 2048, 1024, 0},
    {"512 B rows of 1 KiB", 512, 1024, 512, 0},
    {"256 B rows of 512 B", 256, 512, 256, 0},
    {"1 KiB of 4 KiB to 2 KiB", 1024, 4096, 2048, 0},
    {"2 MiB runs, 2 bytes off", PAGE - 64, PAGE, PAGE, 2},
    {"1000 B rows, 2 bytes off", 1000, 1000, 2000, 2},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct bench {
  treadle_group *group;
  char *from, *to;
  const int32_t *table;
  int64_t bytes; /* of each side */
  int runs;
} bench;

/* As many rows as fit on both sides. */
static treadle_op make_op(const shape *s, int64_t bytes) {
  int64_t step = s->from_step > s->to_step ? s->from_step : s->to_step;
  treadle_op op = {
      .ndim = 2, .from_dtype = TREADLE_BF16, .to_dtype = TREADLE_BF16, .from = s->skew, .to = s->skew};
  op.size[0] = bytes / step;
  op.size[1] = s->row / 2;
  op.from_stride[0] = s->from_step;
  op.to_stride[0] = s->to_step;
  op.from_stride[1] = op.to_stride[1] = 2;
  op.elems = op.size[0] * op.size[1];
  return op;
}

static treadle_status time_one(const bench *b, const treadle_op *op, int mover, double *seconds_p) {
  treadle_status status = TREADLE_OK;
  const treadle_paged from = {.base = b->from, .table = b->table, .page_shift = PAGE_SHIFT};
  const treadle_paged to = {.base = b->to, .into = b->to, .table = b->table, .page_shift = PAGE_SHIFT};
  TRY(treadle_group_barrier(b->group));
  double begin = treadle_clock_seconds();
  if (mover < 0)
    memcpy(b->to, b->from, (size_t)op->elems * 2);
  else
    treadle_copy_op(op, &from, &to, (treadle_mover)mover);
  treadle_copy_fence();
  *seconds_p = treadle_clock_seconds() - begin;
  TRY(treadle_group_barrier(b->group));
out:
  return status;
}

static treadle_status run_shape(const bench *b, const shape *s) {
  treadle_status status = TREADLE_OK;
  double seconds[3][MAX_RUNS], median[3];
  const treadle_op op = make_op(s, b->bytes);
  for (int run = 0; run < b->runs; run++)
    for (int mover = -1; mover <= TREADLE_MOVER_STREAM; mover++)
      TRY(time_one(b, &op, treadle_copy_choose() < (treadle_mover)mover && mover > 0 ? 0 : mover,
                   &seconds[mover + 1][run]));
  for (int i = 0; i < 3; i++) median[i] = bench_median(seconds[i], b->runs);
  if (b->group->rank == 0)
    printf("  %-26s %6.2f GB/s %8.3f %8.3f\n", s->name, (double)op.elems * 2 / median[0] / 1e9,
           median[0] / median[1], median[0] / median[2]);
  fflush(stdout);
out:
  return status;
}

static treadle_status run_process(const char *name, int rank, int size, int64_t bytes, int runs) {
  treadle_status status = TREADLE_OK;
  treadle_pool *pools[2] = {NULL, NULL};
  int32_t pages = (int32_t)(bytes / PAGE);
  int32_t *table = treadle_alloc_array((size_t)pages, sizeof *table);
  bench b = {.table = table, .bytes = bytes, .runs = runs};
  if (!table) return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  for (int32_t i = 0; i < pages; i++) table[i] = pages - 1 - i;
  TRY(treadle_group_open(name, rank, size, 60, &b.group));
  for (int i = 0; i < 2; i++) TRY(treadle_pool_create(pages, PAGE, bytes, &pools[i]));
  b.from = treadle_pool_base(pools[0]);
  b.to = treadle_pool_base(pools[1]);
  memset(b.from, 1, (size_t)bytes);
  memset(b.to, 2, (size_t)bytes);
  if (rank == 0)
    printf("%d process%s: a shape, one long memcpy, and over it: rows by memcpy, rows streamed\n", size,
           size > 1 ? "es at once" : "");
  for (int i = 0; i < SHAPES; i++) TRY(run_shape(&b, &shapes[i]));
out:
  for (int i = 0; i < 2; i++) treadle_pool_destroy(pools[i]);
  treadle_group_close(b.group);
  treadle_free(table);
  if (status != TREADLE_OK) fprintf(stderr, "bench_copy: %s\n", treadle_error_message());
  return status;
}

int main(int count, char **texts) {
  int64_t mib = 768;
  int runs = 9, bad = 0;
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--mib")))
      mib = strtoll(value, NULL, 10);
    else if ((value = bench_option(texts, &i, "--runs")))
      runs = atoi(value);
    else
      return fprintf(stderr, "usage: bench_copy [--mib N] [--runs N]\n"), 2;
  }
  if (mib < 64 || mib > 1 << 20 || runs < 1 || runs > MAX_RUNS)
    return fprintf(stderr, "bench_copy: --mib from 64, --runs from 1 to %d\n", MAX_RUNS), 2;
  for (int size = 1; size <= 2; size++) {
    char name[32];
    snprintf(name, sizeof name, "benchcopy%dx%d", (int)getpid(), size);
    fflush(NULL);
    pid_t child = size > 1 ? fork() : -1;
    if (child == 0) _exit(run_process(name, 1, size, mib << 20, runs) != TREADLE_OK);
    bad |= run_process(name, 0, size, mib << 20, runs) != TREADLE_OK;
    if (child > 0 && waitpid(child, NULL, 0) < 0) bad = 1;
  }
  return bad;
}
