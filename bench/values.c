/* bench_values [--mib N] [--device cpu] [--runs N]: copies that change values or turn planes, against one long memcpy.
 *
 * Each case and a memcpy take turns. Printed is the rate of the case in bytes read and written a second of
 * processor time, and that over memcpy's (medians): 1 is as fast as memory allows. Both windows lie in touched memory and are seen
 * through page tables in which no two pages are neighbours, as in bench_copy. */
#include "bench.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "memory/copy.h"
#include "memory/pool.h"
#include "memory/quantise.h"

#include <stdio.h>
#include <time.h>

enum { PAGE_SHIFT = 21, PAGE = 1 << PAGE_SHIFT, MAX_RUNS = 101 };

typedef struct bench {
  char *from, *to;
  const int32_t *table;
  int64_t bytes; /* of each side */
  int runs;
} bench;

typedef void action(const bench *b, const void *context);

static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds_of(const bench *b, action *work, const void *context) {
  double begin = processor_seconds();
  work(b, context);
  treadle_copy_fence();
  return processor_seconds() - begin;
}

static void copy_all(const bench *b, const void *context) {
  (void)context;
  memcpy(b->to, b->from, (size_t)b->bytes);
}

/* `moved` bytes are read and written by the work. */
static void measure(const bench *b, const char *name, action *work, const void *context, int64_t moved) {
  double seconds[MAX_RUNS], all[MAX_RUNS], over[MAX_RUNS];
  seconds_of(b, work, context);
  for (int run = 0; run < b->runs; run++) {
    all[run] = seconds_of(b, copy_all, NULL);
    seconds[run] = seconds_of(b, work, context);
    over[run] = all[run] / (2.0 * (double)b->bytes) / (seconds[run] / (double)moved);
  }
  printf("  %-34s %6.2f GB/s %7.2f\n", name, (double)moved / bench_median(seconds, b->runs) / 1e9,
         bench_median(over, b->runs));
  fflush(stdout);
}

/* ---- Ops ---- */

typedef struct run_ops {
  treadle_op op;
  treadle_mover mover;
  int64_t times, from_step, to_step; /* the op again and again, each time that much further on */
} run_ops;

static void run_op(const bench *b, const void *context) {
  const run_ops *r = context;
  const treadle_paged from = {.base = b->from, .table = b->table, .page_shift = PAGE_SHIFT};
  const treadle_paged to = {.base = b->to, .into = b->to, .table = b->table, .page_shift = PAGE_SHIFT};
  treadle_op op = r->op;
  for (int64_t i = 0; i < r->times; i++) {
    treadle_copy_op(&op, &from, &to, r->mover);
    op.from += r->from_step;
    op.to += r->to_step;
  }
}

static void measure_ops(const bench *b, const char *name, run_ops *r) {
  int64_t each = (int64_t)(treadle_dtype_bytes((treadle_dtype)r->op.from_dtype) +
                           treadle_dtype_bytes((treadle_dtype)r->op.to_dtype));
  r->op.elems = 1;
  for (int d = 0; d < r->op.ndim; d++) r->op.elems *= r->op.size[d];
  for (int mover = 0; mover <= (int)treadle_copy_choose(); mover++) {
    char text[64];
    r->mover = (treadle_mover)mover;
    snprintf(text, sizeof text, "%s%s", name, mover ? "" : ", plain");
    measure(b, text, run_op, r, r->times * r->op.elems * each);
  }
}

static void measure_cast(const bench *b, treadle_dtype from, treadle_dtype to, int add) {
  int64_t from_bytes = (int64_t)treadle_dtype_bytes(from), to_bytes = (int64_t)treadle_dtype_bytes(to);
  run_ops r = {.op = {.from_dtype = (uint8_t)from, .to_dtype = (uint8_t)to, .add = (int8_t)add, .ndim = 1},
               .times = 1};
  char name[64];
  r.op.size[0] = b->bytes / (from_bytes > to_bytes ? from_bytes : to_bytes);
  r.op.from_stride[0] = from_bytes;
  r.op.to_stride[0] = to_bytes;
  snprintf(name, sizeof name, "%s to %s%s", treadle_dtype_name(from), treadle_dtype_name(to),
           add ? ", 1 added" : "");
  measure_ops(b, name, &r);
}

/* [rows, columns] of source elements `step` apart becomes [columns, rows]. */
static void measure_turn(const bench *b, int64_t rows, int64_t columns, int64_t step, treadle_dtype from,
                         treadle_dtype to) {
  int64_t from_bytes = (int64_t)treadle_dtype_bytes(from), to_bytes = (int64_t)treadle_dtype_bytes(to);
  run_ops r = {.op = {.from_dtype = (uint8_t)from, .to_dtype = (uint8_t)to, .ndim = 2}};
  char name[64];
  r.op.size[0] = rows;
  r.op.size[1] = columns;
  r.op.from_stride[0] = columns * step * from_bytes;
  r.op.from_stride[1] = step * from_bytes;
  r.op.to_stride[0] = to_bytes;
  r.op.to_stride[1] = rows * to_bytes;
  r.from_step = rows * columns * step * from_bytes;
  r.to_step = rows * columns * to_bytes;
  r.times = b->bytes / (r.from_step > r.to_step ? r.from_step : r.to_step);
  snprintf(name, sizeof name, "[%d x %d]%s %s to %s", (int)rows, (int)columns, step > 1 ? ", each 2nd" : "",
           treadle_dtype_name(from), treadle_dtype_name(to));
  measure_ops(b, name, &r);
}

/* Every second value, as of interleaved gate and up. */
static void measure_second(const bench *b) {
  run_ops r = {.op = {.from_dtype = TREADLE_BF16, .to_dtype = TREADLE_BF16, .ndim = 1}, .times = 1};
  r.op.size[0] = b->bytes / 4;
  r.op.from_stride[0] = 4;
  r.op.to_stride[0] = 2;
  measure_ops(b, "bf16, each 2nd value", &r);
}

/* ---- Blocks of fp8 ---- */

typedef struct blocks {
  treadle_dtype dtype; /* of the values */
  int64_t rows;        /* of 2,048 values, in the contiguous windows */
  bool back;           /* to values */
} blocks;

static void run_blocks(const bench *b, const void *context) {
  enum { SIDE = TREADLE_BLOCK_ROW_SIDE, WIDTH = 2048 };
  const blocks *q = context;
  int64_t each = (int64_t)treadle_dtype_bytes(q->dtype);
  for (int64_t row = 0; row < q->rows; row += SIDE)
    for (int64_t column = 0; column < WIDTH; column += SIDE) {
      float scale = 0.01f;
      int64_t at = row * WIDTH + column;
      treadle_matrix values =
          treadle_matrix_of((q->back ? b->to : b->from) + at * each, WIDTH * each, each);
      treadle_matrix codes = treadle_matrix_of((q->back ? b->from : b->to) + at, WIDTH, 1);
      if (q->back)
        treadle_dequantise_block(values, q->dtype, codes, scale, SIDE, SIDE, treadle_copy_choose());
      else
        treadle_quantise_block(codes, &scale, values, q->dtype, SIDE, SIDE, treadle_copy_choose());
    }
}

static void measure_blocks(const bench *b) {
  for (int back = 0; back < 2; back++)
    for (int dtype = TREADLE_FP32; dtype <= TREADLE_BF16; dtype++) {
      blocks q = {.dtype = (treadle_dtype)dtype, .back = back};
      int64_t each = (int64_t)treadle_dtype_bytes(q.dtype);
      char name[64];
      q.rows = b->bytes / 2048 / each / 128 * 128;
      snprintf(name, sizeof name, "%s %s fp8 blocks", treadle_dtype_name(q.dtype), back ? "from" : "to");
      measure(b, name, run_blocks, &q, q.rows * 2048 * (each + 1));
    }
}

static void measure_all(const bench *b) {
  printf("a case, bytes read and written, and that over one long memcpy\n");
  for (int from = TREADLE_FP32; from <= TREADLE_FP8_E4M3; from++)
    for (int to = TREADLE_FP32; to <= TREADLE_FP8_E4M3; to++)
      if (from != to) measure_cast(b, (treadle_dtype)from, (treadle_dtype)to, 0);
  measure_cast(b, TREADLE_BF16, TREADLE_BF16, 1);
  measure_cast(b, TREADLE_FP32, TREADLE_BF16, 1);
  measure_turn(b, 1536, 2048, 1, TREADLE_BF16, TREADLE_BF16);
  measure_turn(b, 2880, 2880, 1, TREADLE_BF16, TREADLE_BF16);
  measure_turn(b, 2880, 2880, 2, TREADLE_BF16, TREADLE_BF16);
  measure_turn(b, 512, 128, 1, TREADLE_BF16, TREADLE_BF16);
  measure_turn(b, 1536, 2048, 1, TREADLE_FP32, TREADLE_FP32);
  measure_turn(b, 1536, 2048, 1, TREADLE_FP32, TREADLE_BF16);
  measure_turn(b, 1536, 2048, 1, TREADLE_FP8_E4M3, TREADLE_FP8_E4M3);
  measure_second(b);
  measure_blocks(b);
}

int main(int count, char **texts) {
  treadle_status status = TREADLE_OK;
  treadle_pool *pools[2] = {NULL, NULL};
  int64_t mib = 384;
  int32_t *table = NULL;
  const char *device = NULL;
  bench b = {.runs = 5};
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--mib")))
      mib = strtoll(value, NULL, 10);
    else if ((value = bench_option(texts, &i, "--runs")))
      b.runs = atoi(value);
    else if ((value = bench_option(texts, &i, "--device")))
      device = value;
    else
      return fprintf(stderr, "usage: bench_values [--mib N] [--device cpu] [--runs N]\n"), 2;
  }
  if (mib < 64 || mib > 1 << 20 || b.runs < 1 || b.runs > MAX_RUNS)
    return fprintf(stderr, "bench_values: --mib from 64, --runs from 1 to %d\n", MAX_RUNS), 2;
  TRY(bench_need_host(device, "these copies are the processor's; those of a device are measured by "
                              "tools/gpu-check --only rates"));
  const int32_t pages = (int32_t)((mib << 20) / PAGE);
  table = treadle_alloc_array((size_t)pages, sizeof *table);
  if (!table) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory is out"));
  for (int32_t i = 0; i < pages; i++) table[i] = pages - 1 - i;
  b.table = table;
  b.bytes = (int64_t)pages * PAGE;
  for (int i = 0; i < 2; i++) TRY(treadle_pool_create(pages, PAGE, b.bytes, &pools[i]));
  b.from = treadle_pool_base(pools[0]);
  b.to = treadle_pool_base(pools[1]);
  for (int64_t i = 0; i < b.bytes; i++)
    b.from[i] = (char)(i % 2 ? 0x3c : i * 37 >> 3); /* no NaN in any type */
  memset(b.to, 2, (size_t)b.bytes);
  measure_all(&b);
out:
  for (int i = 0; i < 2; i++) treadle_pool_destroy(pools[i]);
  treadle_free(table);
  if (status != TREADLE_OK) fprintf(stderr, "bench_values: %s\n", treadle_error_message());
  return status != TREADLE_OK;
}
