/* bench_gemm [--kernels NAME] [--rows M,..] [--dtype bf16|fp32] [--threads N] [--shape NAME] [--mib N] [--runs N] [--json]:
 * products of src/engine/nn/gemm.h at the shapes of minimind2-small, by each kernel of the machine and by libraries (gemm_peers.h).
 *
 * Weights are copies of the shape's, --mib in all, read one after the other, so that none is in a near cache when it is read.
 * Printed for each shape, number of rows of x and kernel: floating-point operations a second, bytes of weights a second, and those
 * over the rate of a plain read of the same bytes by the same threads. Times are processor time with one thread, else wall time; the
 * best of the runs, since others may use the machine. Kernels' packing of x is part of the time, libraries' is not. */
#include "bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/team.h"
#include "gemm_peers.h"
#include "nn/gemm.h"

#include <stdio.h>

enum {
  ROWS_MAX = 4096,
  WIDTH_MAX = 1408,
  OUTS_MAX = 6400,
  MIB_MAX = 1 << 14,
  RUNS_MAX = 1000,
  LIST_MAX = 16
};

typedef struct shape {
  const char *name;
  int32_t leaf, leaves;
  int64_t outs;
} shape;

static const shape shapes[] = {
    {"qkv", 512, 1, 768},
    {"gate_up", 512, 1, 2816},
    {"down", 176, 8, 512},
    {"lm_head", 512, 1, OUTS_MAX},
};

typedef struct bench {
  const char *kernels, *shape, *dtype; /* NULL: all */
  int64_t rows[LIST_MAX], mib;
  int32_t threads, runs;
  bool json;
  char *weights;
  void *x, *packed; /* x twice: fp32, bf16 */
  float *y;
  treadle_team *team;
  int printed;
} bench;

/* One thing that is measured: `turn` does it with a copy of the weights. */
typedef struct job {
  bench *b;
  const shape *shape;
  const char *name;
  treadle_dtype dtype;
  int64_t rows, width, bytes /* of a copy */, copies;
  void (*turn)(struct job *job, const char *weights);
  const treadle_gemm_kernel *kernel;
  treadle_gemm_source source;
  treadle_gemm_product product;
  treadle_gemm_segment segment;
  const bench_peer *peer;
  bench_peer_call call;
} job;

static double now(const bench *b) {
  return b->threads == 1 ? treadle_clock_processor_seconds() : treadle_clock_seconds();
}

/* ---- Reading alone ---- */

typedef struct reading {
  const char *bytes;
  int64_t count;
  uint64_t sums[TREADLE_TEAM_MAX];
} reading;

typedef uint64_t word __attribute__((vector_size(16)));

static void read_part(void *context, int32_t index, int32_t count) {
  enum {
    LINE = 4,
    AHEAD = 16 * LINE
  }; /* words; so far on is asked for, which is faster than the processor's own guess */
  reading *r = context;
  const word *words = (const word *)(const void *)r->bytes;
  int64_t lines = r->count / (int64_t)sizeof(word) / LINE, end = lines * (index + 1) / count;
  word a = {0}, b = {0}, c = {0}, d = {0};
  for (int64_t line = lines * index / count; line < end; line++) {
    const word *at = words + line * LINE;
    __builtin_prefetch(at + AHEAD);
    a += at[0];
    b += at[1];
    c += at[2];
    d += at[3];
  }
  a += b + c + d;
  r->sums[index] = a[0] + a[1];
}

static double read_seconds(job *j) {
  reading r = {.bytes = j->b->weights, .count = j->bytes * j->copies};
  double best = 1e9;
  for (int32_t run = 0; run < j->b->runs; run++) {
    double begin = now(j->b);
    treadle_team_run(j->b->team, read_part, &r);
    double seconds = now(j->b) - begin;
    if (seconds < best) best = seconds;
  }
  return best / (double)j->copies;
}

/* ---- Kernels and libraries ---- */

static void pack_part(void *context, int32_t index, int32_t count) {
  job *j = context;
  j->kernel->pack(&j->source, j->b->packed, index, count);
}

static void run_part(void *context, int32_t index, int32_t count) {
  job *j = context;
  j->kernel->run(&j->product, index, count);
}

static void turn_kernel(job *j, const char *weights) {
  j->segment.weights = weights;
  treadle_team_run(j->b->team, pack_part, j);
  treadle_team_run(j->b->team, run_part, j);
}

static void turn_peer(job *j, const char *weights) {
  j->call.w = weights;
  j->peer->run(&j->call);
}

static void print(const job *j, double seconds, double read) {
  bench *b = j->b;
  double gflops = 2e-9 * (double)(j->rows * j->width * j->shape->outs) / seconds;
  double gbytes = 1e-9 * (double)j->bytes / seconds, share = read / seconds;
  if (b->json)
    printf(
        "%s\n  {\"shape\": \"%s\", \"dtype\": \"%s\", \"kernels\": \"%s\", \"threads\": %d, \"rows\": %d, "
        "\"gflops\": %.1f, \"gbytes\": %.2f, \"of_read\": %.3f}",
        b->printed++ ? "," : "[", j->shape->name, treadle_dtype_name(j->dtype), j->name, (int)b->threads,
        (int)j->rows, gflops, gbytes, share);
  else
    printf("%-8s %-4s %5d rows  %-9s %8.1f GF/s %7.2f GB/s %6.2f of reading\n", j->shape->name,
           treadle_dtype_name(j->dtype), (int)j->rows, j->name, gflops, gbytes, share);
  fflush(stdout);
}

static void measure(job *j) {
  double best = 1e9;
  /* Where all copies would take long, some are enough. */
  int64_t copies = (j->b->mib << 20) / j->bytes, enough = 1 + (int64_t)(1 << 28) / j->bytes * 64 / j->rows;
  j->copies = copies < enough ? copies : enough;
  for (int32_t run = 0; run < j->b->runs; run++) {
    double begin = now(j->b);
    for (int64_t copy = 0; copy < j->copies; copy++) j->turn(j, j->b->weights + copy * j->bytes);
    double seconds = now(j->b) - begin;
    if (seconds < best) best = seconds;
  }
  print(j, best / (double)j->copies, read_seconds(j));
}

static void measure_kernel(job *j, const treadle_gemm_kernel *kernel) {
  bench *b = j->b;
  if (kernel->lacks() || !kernel->takes(j->dtype, j->shape->leaf)) return;
  if (b->kernels && strcmp(b->kernels, kernel->name) != 0) return;
  int32_t leaves = j->shape->leaves;
  j->kernel = kernel;
  j->name = kernel->name;
  j->turn = turn_kernel;
  j->segment = (treadle_gemm_segment){.rows = j->shape->outs, .stride = j->width};
  j->source = (treadle_gemm_source){
      .inner = {.dtype = j->dtype, .leaf = j->shape->leaf, .range = {.leaves = leaves, .all = leaves}},
      .x = b->x,
      .rows = j->rows,
      .stride = j->width};
  j->product = (treadle_gemm_product){.inner = j->source.inner,
                                      .packed = b->packed,
                                      .rows = j->rows,
                                      .segments = &j->segment,
                                      .count = 1,
                                      .y = b->y,
                                      .stride = j->shape->outs};
  measure(j);
}

static void measure_peer(job *j, const bench_peer *peer) {
  bench *b = j->b;
  if (peer->dtype != j->dtype || (b->kernels && strcmp(b->kernels, peer->name) != 0)) return;
  j->peer = peer;
  j->name = peer->name;
  j->turn = turn_peer;
  j->call =
      (bench_peer_call){.rows = j->rows, .width = j->width, .outs = j->shape->outs, .x = b->x, .y = b->y};
  if (!peer->open(b->threads))
    fprintf(stderr, "%s is not there (Debian: %s)\n", peer->name, peer->package);
  else if (!peer->prepare(&j->call))
    fprintf(stderr, "%s has no product of %s here\n", peer->name, treadle_dtype_name(j->dtype));
  else
    measure(j);
  if (j->call.prepared) peer->release(&j->call);
}

static void measure_shape(bench *b, const shape *s, treadle_dtype dtype, int64_t rows) {
  const treadle_gemm_kernel *kernel;
  job j = {.b = b, .shape = s, .dtype = dtype, .rows = rows, .width = (int64_t)s->leaf * s->leaves};
  j.bytes = j.width * s->outs * (int64_t)treadle_dtype_bytes(dtype);
  for (int32_t i = 0; (kernel = treadle_gemm_kernel_at(i)); i++) measure_kernel(&j, kernel);
  for (size_t i = 0; i < sizeof bench_peers / sizeof *bench_peers; i++) measure_peer(&j, &bench_peers[i]);
}

static void measure_all(bench *b) {
  static const treadle_dtype dtypes[] = {TREADLE_BF16, TREADLE_FP32};
  for (int d = 0; d < 2; d++) {
    if (b->dtype && strcmp(b->dtype, treadle_dtype_name(dtypes[d])) != 0) continue;
    uint16_t *halves = b->x;
    for (int64_t i = 0; dtypes[d] == TREADLE_BF16 && i < (b->mib << 19); i++)
      memcpy(b->weights + 2 * i, &halves[i % 4096 * 2 + 1], sizeof *halves);
    for (int64_t i = 0; dtypes[d] == TREADLE_FP32 && i < (b->mib << 18); i++)
      memcpy(b->weights + 4 * i, &halves[i % 4096 * 2], sizeof(float));
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
      for (int i = 0; b->rows[i]; i++)
        if (!b->shape || strcmp(b->shape, shapes[s].name) == 0)
          measure_shape(b, &shapes[s], dtypes[d], b->rows[i]);
  }
  if (b->json) printf("%s]\n", b->printed ? "\n" : "[");
}

static treadle_status make(bench *b) {
  treadle_status status = TREADLE_OK;
  treadle_random random = {1};
  size_t values = (size_t)ROWS_MAX * WIDTH_MAX;
  TRY(treadle_team_create(b->threads, true, &b->team));
  b->x = aligned_alloc(64, values * sizeof(float));
  b->packed = aligned_alloc(64, values * sizeof(float) * 2);
  b->y = aligned_alloc(64, (size_t)ROWS_MAX * OUTS_MAX * sizeof(float));
  b->weights = aligned_alloc(1 << 21, (size_t)b->mib << 20);
  if (!b->x || !b->packed || !b->y || !b->weights) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory is out"));
  float *x = b->x;
  for (size_t i = 0; i < values; i++) x[i] = (float)treadle_random_between(&random, -1000, 1000) * 1e-3f;
  memset(b->y, 0, (size_t)ROWS_MAX * OUTS_MAX * sizeof(float));
out:
  return status;
}

static bool read_rows(bench *b, const char *text) {
  int count = 0;
  for (; *text && count < LIST_MAX - 1; count++) {
    char *end;
    b->rows[count] = strtoll(text, &end, 10);
    if (end == text || b->rows[count] < 1 || b->rows[count] > ROWS_MAX) return false;
    text = *end == ',' ? end + 1 : end;
  }
  b->rows[count] = 0;
  return *text == 0;
}

static bool read_option(bench *b, char **texts, int *at) {
  const char *value;
  if (strcmp(texts[*at], "--json") == 0) return b->json = true;
  if ((value = bench_option(texts, at, "--kernels"))) return b->kernels = value, true;
  if ((value = bench_option(texts, at, "--shape"))) return b->shape = value, true;
  if ((value = bench_option(texts, at, "--dtype"))) return b->dtype = value, true;
  if ((value = bench_option(texts, at, "--rows"))) return read_rows(b, value);
  if ((value = bench_option(texts, at, "--threads")))
    return (b->threads = atoi(value)) > 0 && b->threads <= TREADLE_TEAM_MAX;
  if ((value = bench_option(texts, at, "--mib"))) return (b->mib = atoi(value)) >= 32 && b->mib <= MIB_MAX;
  if ((value = bench_option(texts, at, "--runs")))
    return (b->runs = atoi(value)) > 0 && b->runs <= RUNS_MAX;
  return false;
}

int main(int count, char **texts) {
  treadle_status status = TREADLE_OK;
  bench b = {.rows = {1, 16, 64, 512, 2048}, .threads = 1, .runs = 7, .mib = 512};
  for (int i = 1; i < count; i++)
    if (!read_option(&b, texts, &i))
      return fprintf(stderr, "usage: bench_gemm [--kernels NAME] [--rows M,..] [--dtype bf16|fp32] "
                             "[--threads N] [--shape NAME] [--mib N] [--runs N] [--json]\n"),
             2;
  TRY(make(&b));
  measure_all(&b);
out:
  treadle_team_destroy(b.team);
  free(b.x);
  free(b.packed);
  free(b.y);
  free(b.weights);
  if (status != TREADLE_OK) fprintf(stderr, "bench_gemm: %s\n", treadle_error_message());
  return status != TREADLE_OK;
}
