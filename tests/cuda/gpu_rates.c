/* How fast the kernels copy: source bytes a second by the device's own clock, beside the faster of the driver's
 * copy between two blocks of memory and a flat copy by the kernel. Medians, after the clock has warmed up. On the
 * stand-in the numbers mean nothing. */
#include "cuda/gpu.h"

#include "base/dtype.h"
#include "memory/device.h"

#include <stdlib.h>

enum { TIMES = 7 };

typedef struct scene {
  gpu *g;
  treadle_device device;
  char *from, *to; /* 2 x bytes; bytes and a little */
  int64_t bytes;   /* of the source */
  double flat;     /* bytes a second: the best that a copy has */
  double least;    /* of all rows, over flat */
  const char *least_name;
} scene;

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* ---- What is measured: work that is asked for, and its source bytes ---- */

typedef struct job job;
struct job {
  void (*ask)(scene *s, const job *j);
  const treadle_work *work;
  int64_t bytes;
};

static void ask_work(scene *s, const job *j) {
  static treadle_written written;
  s->device.ops->run(&s->device, j->work, 0, 1, &written);
}

static void ask_move(scene *s, const job *j) {
  s->device.ops->move(&s->device, s->to, s->from, (size_t)j->bytes);
}

/* Strips of 32 blocks, as a row of 4,096 columns has. */
enum { SIDE = 128, STRIP = 32, MOST_STRIPS = 1024 };

static void ask_blocks(scene *s, const job *j) {
  const int64_t block = SIDE * SIDE;
  const int64_t columns = STRIP * SIDE, count = j->bytes / 2 / block / STRIP;
  static treadle_strip strips[MOST_STRIPS];
  for (int64_t i = 0; i < count && i < MOST_STRIPS; i++) {
    char *values = s->from + i * STRIP * block * 2, *codes = s->to + i * STRIP * block,
         *scales = s->to + s->bytes + i * STRIP * 4;
    strips[i] = (treadle_strip){.values = {values, values, 2 * columns, 2},
                                .codes = {codes, codes, columns, 1},
                                .scales = {scales, scales, 0, 4},
                                .rows = SIDE,
                                .columns = columns,
                                .width = SIDE,
                                .dtype = TREADLE_BF16};
  }
  s->device.ops->blocks(&s->device, strips, (size_t)(count < MOST_STRIPS ? count : MOST_STRIPS));
}

static treadle_status time_once(scene *s, const job *j, double *seconds_p) {
  treadle_status status;
  treadle_device_figures before, after;
  s->device.ops->figures(&s->device, &before);
  j->ask(s, j);
  TRY(s->device.ops->fence(&s->device));
  s->device.ops->figures(&s->device, &after);
  *seconds_p = after.seconds - before.seconds;
out:
  return status;
}

/* Bytes a second. */
static treadle_status rate_of(scene *s, const job *j, double *rate_p) {
  treadle_status status = TREADLE_OK;
  double seconds[TIMES + 1];
  const int times = s->g->is_stand_in ? 3 : TIMES;
  for (int i = -1; i < times; i++) TRY(time_once(s, j, &seconds[i + 1])); /* the first one warms up */
  qsort(seconds + 1, (size_t)times, sizeof *seconds, ascending);
  *rate_p = (double)j->bytes / seconds[1 + times / 2];
out:
  return status;
}

static treadle_status rate_of_op(scene *s, const treadle_op *op, double *rate_p) {
  treadle_status status;
  treadle_work *work = NULL;
  const treadle_paged from = {.base = s->from}, to = {.base = s->to, .into = s->to};
  TRY(s->device.ops->prepare(&s->device, op, &from, &to, 1, &work));
  const job j = {.ask = ask_work,
                 .work = work,
                 .bytes = op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->from_dtype)};
  TRY(rate_of(s, &j, rate_p));
out:
  s->device.ops->work_release(work);
  return status;
}

/* ---- Ops ---- */

/* Rows with gaps become dense: count rows of `row` elements, which begin `stride` bytes from one another. */
static treadle_op op_of_rows(treadle_dtype from, treadle_dtype to, int64_t count, int64_t row,
                             int64_t stride) {
  const int64_t from_each = (int64_t)treadle_dtype_bytes(from), to_each = (int64_t)treadle_dtype_bytes(to);
  return (treadle_op){.ndim = 2,
                      .from_dtype = (uint8_t)from,
                      .to_dtype = (uint8_t)to,
                      .size = {count, row},
                      .from_stride = {stride, from_each},
                      .to_stride = {row * to_each, to_each},
                      .elems = count * row};
}

static treadle_op op_of_transpose(int64_t side) {
  return (treadle_op){.ndim = 2,
                      .from_dtype = TREADLE_BF16,
                      .to_dtype = TREADLE_BF16,
                      .size = {side, side},
                      .from_stride = {2, 2 * side},
                      .to_stride = {2 * side, 2},
                      .elems = side * side};
}

/* ---- The stage ---- */

static void print(scene *s, const char *name, double rate) {
  treadle_json_out_open(&s->g->out, NULL, '{');
  treadle_json_out_text(&s->g->out, "name", name);
  treadle_json_out_real(&s->g->out, "gb_per_second", rate / 1e9);
  if (s->flat > 0) treadle_json_out_real(&s->g->out, "over_flat", rate / s->flat);
  treadle_json_out_close(&s->g->out, '}');
}

static treadle_status say_op(scene *s, const char *name, treadle_op op) {
  treadle_status status;
  double rate;
  TRY(rate_of_op(s, &op, &rate));
  print(s, name, rate);
  if (s->least_name && rate / s->flat > s->least) goto out;
  s->least = rate / s->flat;
  s->least_name = name;
out:
  return status;
}

static treadle_status find_flat(scene *s) {
  treadle_status status;
  double by_driver, by_kernel;
  const job copy = {.ask = ask_move, .bytes = s->bytes};
  const treadle_op flat = op_of_rows(TREADLE_BF16, TREADLE_BF16, 1, s->bytes / 2, s->bytes);
  for (int i = 0; i < (s->g->is_stand_in ? 0 : 100); i++) ask_move(s, &copy); /* warms the clock up */
  TRY(rate_of(s, &copy, &by_driver));
  TRY(rate_of_op(s, &flat, &by_kernel));
  print(s, "flat, by the driver", by_driver);
  print(s, "flat, by the kernel", by_kernel);
  s->flat = by_driver > by_kernel ? by_driver : by_kernel;
out:
  return status;
}

static treadle_status measure(scene *s) {
  static const struct {
    const char *name;
    int64_t bytes;
  } rows[] = {{"rows of 64 bytes", 64},
              {"rows of 192 bytes", 192},
              {"rows of 512 bytes", 512},
              {"rows of 4 KiB", 4 << 10},
              {"rows of 1 MiB", 1 << 20}};
  static const struct {
    const char *name;
    int64_t at;
  } widths[] = {{"rows of 4 KiB, 2 bytes wide", 2},
                {"rows of 4 KiB, 4 bytes wide", 4},
                {"rows of 4 KiB, 8 bytes wide", 8}};
  treadle_status status;
  double rate;
  TRY(find_flat(s));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    TRY(say_op(s, rows[i].name,
               op_of_rows(TREADLE_BF16, TREADLE_BF16, s->bytes / rows[i].bytes, rows[i].bytes / 2,
                          2 * rows[i].bytes)));
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    treadle_op op = op_of_rows(TREADLE_BF16, TREADLE_BF16, s->bytes / 4096, 2048, 4096 + 64);
    op.from = widths[i].at;
    TRY(say_op(s, widths[i].name, op));
  }
  TRY(say_op(s, "fp32 to bf16", op_of_rows(TREADLE_FP32, TREADLE_BF16, s->bytes / 4096, 1024, 4096)));
  TRY(say_op(s, "bf16 to fp32", op_of_rows(TREADLE_BF16, TREADLE_FP32, s->bytes / 8192, 2048, 4096)));
  TRY(say_op(s, "transposed bf16", op_of_transpose(s->g->is_stand_in ? 512 : 8192)));
  const job blocks = {.ask = ask_blocks, .bytes = s->bytes};
  TRY(rate_of(s, &blocks, &rate));
  print(s, "bf16 to fp8 blocks", rate);
out:
  return status;
}

treadle_status gpu_rates(gpu *g) {
  enum { SCALES = 4 * MOST_STRIPS * STRIP };
  treadle_status status;
  scene s = {.g = g, .bytes = g->is_stand_in ? (int64_t)2 << 20 : (int64_t)1 << 30};
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = g->number};
  while (!g->is_stand_in && s.bytes > 16 << 20 && (size_t)s.bytes * 4 > g->left_bytes) s.bytes /= 2;
  TRY(treadle_device_open(&memory, &s.device));
  s.from = s.device.ops->scratch(&s.device, 2 * (size_t)s.bytes);
  s.to = s.device.ops->scratch(&s.device, (size_t)s.bytes + SCALES);
  if (!s.from || !s.to)
    status = treadle_fail(TREADLE_NO_MEMORY, "the device has no %lld MiB", (long long)s.bytes >> 20);
  treadle_json_out_int(&g->out, "source_bytes", s.bytes);
  treadle_json_out_open(&g->out, "rates", '[');
  if (status == TREADLE_OK) status = measure(&s);
  treadle_json_out_close(&g->out, ']');
  treadle_json_out_real(&g->out, "flat_gb_per_second", s.flat / 1e9);
  if (g->is_stand_in)
    gpu_say(g, "the stand-in: rates mean nothing");
  else
    gpu_say(g, "flat %.0f GB/s; least %.2f of that: %s", s.flat / 1e9, s.least, s.least_name);
  s.device.ops->scratch_release(&s.device, s.from);
  s.device.ops->scratch_release(&s.device, s.to);
  treadle_device_close(&s.device);
out:
  return status;
}
