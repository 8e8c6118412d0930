/* bench_rows [--kinds NAME] [--case TEXT] [--device cpu] [--runs N] [--json]: row operations, writing of the cache and attention (src/engine/nn), by each
 * kind of vectors that the machine has; those whose name has TEXT.
 *
 * Operations and writing: values a second of one thread, and microseconds of a call; everything is in a near cache. Attention: the
 * operations that a causal row needs, two for each value of key and value and head, without masked ones, a second. Times are processor
 * time of one thread; the best of the runs, since others may use the machine. */
#include "bench.h"

#include "base/alloc.h"
#include "base/random.h"
#include "nn/attention.h"
#include "nn/rows.h"

#include <stdio.h>
#include <time.h>

enum { WIDTH_MAX = 160000, RUNS_MAX = 1000 };

typedef struct bench {
  const char *kinds, *text; /* NULL: all */
  const char *device;
  int runs;
  bool json;
  float *x, *y, *z; /* [WIDTH_MAX] */
  int printed;
} bench;

static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct measured {
  const char *part, *name, *kind;
  double seconds, work; /* of a call; values or operations */
} measured;

static void print(bench *b, const measured *m) {
  const char *unit = strcmp(m->part, "attention") == 0 ? "gflops" : "gvalues";
  if (b->json)
    printf("%s\n  {\"part\": \"%s\", \"name\": \"%s\", \"kind\": \"%s\", \"microseconds\": %.3f, \"%s\": "
           "%.2f}",
           b->printed++ ? "," : "[", m->part, m->name, m->kind, m->seconds * 1e6, unit,
           m->work / m->seconds / 1e9);
  else
    printf("  %-28s %-8s %10.2f us %8.2f %s\n", m->name, m->kind, m->seconds * 1e6,
           m->work / m->seconds / 1e9, unit);
  fflush(stdout);
}

static bool wanted(const bench *b, const char *name, const char *kind) {
  return (!b->kinds || strcmp(b->kinds, kind) == 0) && (!b->text || strstr(name, b->text));
}

typedef void action(const void *context);

/* Seconds of a call: the best of the runs, each of enough calls to take some milliseconds. */
static double best_of(const bench *b, action *call, const void *context) {
  double best = 1e9;
  int calls = 1;
  for (int run = 0; run < b->runs;) {
    double begin = processor_seconds();
    for (int i = 0; i < calls; i++) call(context);
    double seconds = processor_seconds() - begin;
    if (seconds < 0.004 && calls < 1 << 20) {
      calls *= 2;
      continue;
    }
    best = seconds / calls < best ? seconds / calls : best;
    run++;
  }
  return best;
}

/* ---- Operations on a row ---- */

typedef struct row_job {
  const bench *b;
  const treadle_row_ops *ops;
  int64_t count;
} row_job;

static void norm(const void *c) {
  const row_job *j = c;
  j->ops->norm(j->b->z, j->b->x, j->b->y, TREADLE_BF16, j->count, 1e-5f);
}
static void add(const void *c) {
  const row_job *j = c;
  j->ops->add(j->b->z, j->b->x, TREADLE_FP32, j->count);
}
static void add_scaled(const void *c) {
  const row_job *j = c;
  j->ops->add_scaled(j->b->z, j->b->x, 0.1f, j->count);
}
static void silu(const void *c) {
  const row_job *j = c;
  j->ops->silu(j->b->z, j->b->x, j->b->y, j->count);
}
static void widen(const void *c) {
  const row_job *j = c;
  j->ops->widen(j->b->z, j->b->x, TREADLE_BF16, j->count);
}
static void narrow(const void *c) {
  const row_job *j = c;
  j->ops->narrow(j->b->z, TREADLE_BF16, j->b->x, j->count);
}
static void sum_exp(const void *c) {
  const row_job *j = c;
  double sum;
  j->ops->sum_exp(j->b->x, j->count, 1.0f, j->b->z, &sum);
}
static void sum_exp_heated(const void *c) {
  const row_job *j = c;
  double sum;
  j->ops->sum_exp(j->b->x, j->count, 0.7f, j->b->z, &sum);
}
static void softmax(const void *c) {
  const row_job *j = c;
  j->ops->softmax(j->b->z, j->b->x, j->count);
}
static void halves(const void *c) {
  const row_job *j = c;
  j->ops->rotate_halves(j->b->z, j->b->x, j->b->y, j->count / 2);
}
static void neighbours(const void *c) {
  const row_job *j = c;
  j->ops->rotate_neighbours(j->b->z, j->b->x, j->b->y, j->count / 2);
}

static const struct {
  const char *name;
  action *call;
  int64_t count;
} row_cases[] = {
    {"norm 512", norm, 512},
    {"add 512", add, 512},
    {"add_scaled 512", add_scaled, 512},
    {"silu 1408", silu, 1408},
    {"widen 512", widen, 512},
    {"narrow 1408", narrow, 1408},
    {"sum_exp 6400", sum_exp, 6400},
    {"sum_exp 6400 at 0.7", sum_exp_heated, 6400},
    {"sum_exp 151936", sum_exp, 151936},
    {"softmax 64", softmax, 64},
    {"rotate_halves 64", halves, 64},
    {"rotate_neighbours 64", neighbours, 64},
};

static void measure_rows(bench *b) {
  int kinds;
  const treadle_row_ops *const *list = treadle_row_ops_list(&kinds);
  if (!b->json) printf("Operations on a row\n");
  for (size_t i = 0; i < sizeof row_cases / sizeof *row_cases; i++)
    for (int kind = 0; kind < kinds; kind++) {
      if (!list[kind]->supported() || !wanted(b, row_cases[i].name, list[kind]->name)) continue;
      row_job job = {b, list[kind], row_cases[i].count};
      memset(b->z, 0, WIDTH_MAX * sizeof *b->z);
      print(b, &(measured){"rows", row_cases[i].name, list[kind]->name, best_of(b, row_cases[i].call, &job),
                           (double)row_cases[i].count});
    }
}

/* ---- Attention ---- */

typedef struct attention_case {
  const char *name;
  int64_t heads, kv_heads, key_dim, value_dim, position, count;
  treadle_dtype dtype;
  bool shared;
} attention_case;

static const attention_case attention_cases[] = {
    {"score 256, 8/2 x 64", 8, 2, 64, 64, 0, 256, TREADLE_BF16, false},
    {"score 256, 8/2 x 64 fp32", 8, 2, 64, 64, 0, 256, TREADLE_FP32, false},
    {"prefill 512, 8/2 x 128", 8, 2, 128, 128, 0, 512, TREADLE_BF16, false},
    {"prefill 512, 8/8 x 64", 8, 8, 64, 64, 0, 512, TREADLE_BF16, false},
    {"prefill 16 at 2048, 8/2 x 64", 8, 2, 64, 64, 2048, 16, TREADLE_BF16, false},
    {"decode at 160, 8/2 x 64", 8, 2, 64, 64, 160, 1, TREADLE_BF16, false},
    {"decode at 2048, 8/2 x 64", 8, 2, 64, 64, 2048, 1, TREADLE_BF16, false},
    {"decode at 16383, 8/2 x 64", 8, 2, 64, 64, 16383, 1, TREADLE_BF16, false},
    {"decode at 2048, 8/2 x 128", 8, 2, 128, 128, 2048, 1, TREADLE_BF16, false},
    {"decode at 2048, 8/8 x 64", 8, 8, 64, 64, 2048, 1, TREADLE_BF16, false},
    {"MLA prefill 256, 16 x 576", 16, 1, 576, 512, 0, 256, TREADLE_BF16, true},
    {"MLA decode at 2048, 16 x 576", 16, 1, 576, 512, 2048, 1, TREADLE_BF16, true},
};

typedef struct attention_job {
  const treadle_attention_ops *ops;
  treadle_attention_spec spec;
  treadle_attention_rows rows;
  treadle_kv_rows written;
  void *scratch;
} attention_job;

static void attend(const void *c) {
  const attention_job *j = c;
  j->ops->run(&j->spec, &j->rows, 0, j->rows.count * j->spec.kv.heads, j->scratch);
}

static void write_tokens(const void *c) {
  const attention_job *j = c;
  treadle_kv_write(&j->spec.kv, &j->rows.blocks, &j->written);
}

static void *aligned(int64_t bytes) { return aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64); }

static void fill(float *values, int64_t count) {
  treadle_random random = {7};
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)treadle_random_between(&random, -1000, 1000) / 500.0f;
}

static void measure_kinds(bench *b, const attention_case *a, attention_job *job) {
  int kinds;
  const treadle_attention_ops *const *list = treadle_attention_ops_list(&kinds);
  double seen = (double)a->count * ((double)a->position + 0.5 * (double)(a->count + 1));
  for (int kind = 0; kind < kinds; kind++) {
    if (!list[kind]->supported() || !wanted(b, a->name, list[kind]->name)) continue;
    job->ops = list[kind];
    print(b, &(measured){"attention", a->name, list[kind]->name, best_of(b, attend, job),
                         2.0 * seen * (double)(a->heads * (a->key_dim + a->value_dim))});
  }
}

static treadle_status measure_attention(bench *b, const attention_case *a) {
  treadle_status status = TREADLE_OK;
  enum { TOKENS = 16 };
  if (b->text && !strstr(a->name, b->text)) return TREADLE_OK;
  int64_t tokens = a->position + a->count, blocks = (tokens + TOKENS - 1) / TOKENS;
  attention_job job = {.spec = {.kv = {a->kv_heads, a->key_dim, a->value_dim, TOKENS, a->dtype, a->shared},
                                .heads = a->heads,
                                .scale = 0.1f}};
  int64_t query_width = a->heads * a->key_dim, key_width = a->kv_heads * a->key_dim,
          value_width = a->kv_heads * a->value_dim;
  int64_t stride = treadle_kv_block_bytes(&job.spec.kv);
  int32_t *table = aligned(blocks * 4);
  char *cache = aligned(blocks * stride);
  float *queries = aligned(a->count * query_width * 4),
        *out = aligned(a->count * a->heads * a->value_dim * 4), *keys = aligned(tokens * key_width * 4);
  job.scratch = aligned(treadle_attention_scratch_bytes(&job.spec));
  if (!table || !cache || !queries || !out || !keys || !job.scratch)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", a->name));
  for (int32_t i = 0; i < blocks; i++) table[i] = (int32_t)(blocks - 1) - i;
  fill(queries, a->count * query_width);
  fill(keys, tokens * key_width);
  job.rows = (treadle_attention_rows){.queries = queries,
                                      .out = out,
                                      .query_stride = query_width,
                                      .out_stride = a->heads * a->value_dim,
                                      .blocks = {cache, stride, table},
                                      .position = a->position,
                                      .count = a->count};
  job.written = (treadle_kv_rows){keys, keys, key_width, value_width, 0, tokens};
  write_tokens(&job);
  measure_kinds(b, a, &job);
  job.written = (treadle_kv_rows){keys, keys, key_width, value_width, a->position, a->count};
  char name[64];
  snprintf(name, sizeof name, "  and writing %d token%s", (int)a->count, a->count == 1 ? "" : "s");
  print(b, &(measured){"cache", name, "", best_of(b, write_tokens, &job),
                       (double)(a->count * (key_width + (a->shared ? 0 : value_width)))});
out:
  free(table), free(cache), free(queries), free(out), free(keys), free(job.scratch);
  return status;
}

static treadle_status measure_all(bench *b) {
  treadle_status status = TREADLE_OK;
  measure_rows(b);
  if (!b->json) printf("Attention, heads/key-value heads x dimension\n");
  for (size_t i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++)
    TRY(measure_attention(b, &attention_cases[i]));
  if (b->json) printf("\n]\n");
out:
  return status;
}

static bool read_option(bench *b, char **texts, int *at) {
  const char *value;
  if (strcmp(texts[*at], "--json") == 0) return b->json = true;
  if ((value = bench_option(texts, at, "--kinds"))) return b->kinds = value, true;
  if ((value = bench_option(texts, at, "--case"))) return b->text = value, true;
  if ((value = bench_option(texts, at, "--device"))) return b->device = value, true;
  if ((value = bench_option(texts, at, "--runs")))
    return (b->runs = atoi(value)) > 0 && b->runs <= RUNS_MAX;
  return false;
}

int main(int count, char **texts) {
  treadle_status status = TREADLE_OK;
  bench b = {.runs = 5};
  for (int i = 1; i < count; i++)
    if (!read_option(&b, texts, &i))
      return fprintf(stderr, "usage: bench_rows [--kinds plain|avx2|avx512] [--case TEXT] [--device cpu] "
                             "[--runs N] [--json]\n"),
             2;
  TRY(bench_need_host(b.device, "the built-in engine, whose rows these are, computes on the host"));
  b.x = treadle_alloc_array(3 * WIDTH_MAX, sizeof *b.x);
  if (!b.x) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for rows"));
  b.y = b.x + WIDTH_MAX;
  b.z = b.y + WIDTH_MAX;
  fill(b.x, 2 * WIDTH_MAX);
  TRY(measure_all(&b));
out:
  if (status != TREADLE_OK) fprintf(stderr, "bench_rows: %s\n", treadle_error_message());
  treadle_free(b.x);
  return status != TREADLE_OK;
}
