/* Products by libraries, for comparison: OpenBLAS (fp32) and oneDNN (bf16, where its header was there when this was built). Both are
 * opened when they are asked for (Debian: libopenblas0-pthread, libdnnl-dev; tools/install-deps peers). */
#ifndef TREADLE_BENCH_GEMM_PEERS_H
#define TREADLE_BENCH_GEMM_PEERS_H

#include "treadle.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#define BENCH_HAS_DNNL 1
#endif
#endif

/* y[rows, outs] = x[rows, width] * w[outs, width], dense, w at any of many places; x of the type of the weights. */
typedef struct bench_peer_call {
  int64_t rows, width, outs;
  const void *x;
  const char *w;
  float *y;
  void *prepared; /* the peer's own */
} bench_peer_call;

typedef struct bench_peer {
  const char *name, *package;
  treadle_dtype dtype;
  bool (*open)(int32_t threads);
  bool (*prepare)(bench_peer_call *call); /* for its sizes */
  void (*run)(bench_peer_call *call);
  void (*release)(bench_peer_call *call);
} bench_peer;

static void *bench_symbol(void *library, const char *name, void *function_p) {
  void *found = library ? dlsym(library, name) : NULL;
  memcpy(function_p, &found, sizeof found);
  return found;
}

/* ---- OpenBLAS ---- */

typedef void bench_sgemm(int order, int turn_a, int turn_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
static bench_sgemm *bench_cblas_sgemm;

static bool bench_openblas_open(int32_t threads) {
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  void (*set_threads)(int);
  if (!bench_symbol(library, "cblas_sgemm", &bench_cblas_sgemm) ||
      !bench_symbol(library, "openblas_set_num_threads", &set_threads))
    return false;
  set_threads(threads);
  return true;
}

static bool bench_openblas_prepare(bench_peer_call *call) { return (void)call, true; }
static void bench_openblas_release(bench_peer_call *call) { (void)call; }

static void bench_openblas_run(bench_peer_call *c) {
  enum { ROW_MAJOR = 101, AS_IS = 111, TURNED = 112 };
  int m = (int)c->rows, n = (int)c->outs, k = (int)c->width;
  bench_cblas_sgemm(ROW_MAJOR, AS_IS, TURNED, m, n, k, 1, c->x, k, (const float *)(const void *)c->w, k, 0,
                    c->y, n);
}

/* ---- oneDNN ---- */

#ifdef BENCH_HAS_DNNL

static struct {
  __typeof__(dnnl_engine_create) *engine_create;
  __typeof__(dnnl_stream_create) *stream_create;
  __typeof__(dnnl_stream_wait) *stream_wait;
  __typeof__(dnnl_memory_desc_init_by_strides) *desc_by_strides;
  __typeof__(dnnl_matmul_desc_init) *matmul_desc;
  __typeof__(dnnl_primitive_desc_create) *primitive_desc;
  __typeof__(dnnl_primitive_desc_destroy) *primitive_desc_destroy;
  __typeof__(dnnl_primitive_create) *primitive;
  __typeof__(dnnl_primitive_destroy) *primitive_destroy;
  __typeof__(dnnl_primitive_execute) *execute;
  __typeof__(dnnl_memory_create) *memory;
  __typeof__(dnnl_memory_destroy) *memory_destroy;
  __typeof__(dnnl_memory_set_data_handle) *set_data;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
} bench_dnnl;

typedef struct bench_dnnl_product {
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[3]; /* x, w, y */
} bench_dnnl_product;

static bool bench_dnnl_open(int32_t threads) {
  void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  void (*set_threads)(int);
  void *openmp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (bench_symbol(openmp, "omp_set_num_threads", &set_threads)) set_threads(threads);
  return bench_symbol(library, "dnnl_engine_create", &bench_dnnl.engine_create) &&
         bench_symbol(library, "dnnl_stream_create", &bench_dnnl.stream_create) &&
         bench_symbol(library, "dnnl_stream_wait", &bench_dnnl.stream_wait) &&
         bench_symbol(library, "dnnl_memory_desc_init_by_strides", &bench_dnnl.desc_by_strides) &&
         bench_symbol(library, "dnnl_matmul_desc_init", &bench_dnnl.matmul_desc) &&
         bench_symbol(library, "dnnl_primitive_desc_create", &bench_dnnl.primitive_desc) &&
         bench_symbol(library, "dnnl_primitive_desc_destroy", &bench_dnnl.primitive_desc_destroy) &&
         bench_symbol(library, "dnnl_primitive_create", &bench_dnnl.primitive) &&
         bench_symbol(library, "dnnl_primitive_destroy", &bench_dnnl.primitive_destroy) &&
         bench_symbol(library, "dnnl_primitive_execute", &bench_dnnl.execute) &&
         bench_symbol(library, "dnnl_memory_create", &bench_dnnl.memory) &&
         bench_symbol(library, "dnnl_memory_destroy", &bench_dnnl.memory_destroy) &&
         bench_symbol(library, "dnnl_memory_set_data_handle", &bench_dnnl.set_data) &&
         bench_dnnl.engine_create(&bench_dnnl.engine, dnnl_cpu, 0) == dnnl_success &&
         bench_dnnl.stream_create(&bench_dnnl.stream, bench_dnnl.engine, dnnl_stream_default_flags) ==
             dnnl_success;
}

static bool bench_dnnl_prepare(bench_peer_call *c) {
  bench_dnnl_product *p = calloc(1, sizeof *p);
  const int64_t m = c->rows, k = c->width, n = c->outs;
  const dnnl_dims_t sizes[3] = {{m, k}, {k, n}, {m, n}}, strides[3] = {{k, 1}, {1, k}, {n, 1}};
  const dnnl_data_type_t types[3] = {dnnl_bf16, dnnl_bf16, dnnl_f32};
  dnnl_memory_desc_t desc[3];
  dnnl_matmul_desc_t matmul;
  c->prepared = p;
  if (!p) return false;
  for (int i = 0; i < 3; i++)
    if (bench_dnnl.desc_by_strides(&desc[i], 2, sizes[i], types[i], strides[i]) != dnnl_success ||
        bench_dnnl.memory(&p->memory[i], &desc[i], bench_dnnl.engine, DNNL_MEMORY_NONE) != dnnl_success)
      return false;
  return bench_dnnl.matmul_desc(&matmul, &desc[0], &desc[1], NULL, &desc[2]) == dnnl_success &&
         bench_dnnl.primitive_desc(&p->desc, &matmul, NULL, bench_dnnl.engine, NULL) == dnnl_success &&
         bench_dnnl.primitive(&p->primitive, p->desc) == dnnl_success;
}

static void bench_dnnl_run(bench_peer_call *c) {
  bench_dnnl_product *p = c->prepared;
  const dnnl_exec_arg_t arguments[3] = {
      {DNNL_ARG_SRC, p->memory[0]}, {DNNL_ARG_WEIGHTS, p->memory[1]}, {DNNL_ARG_DST, p->memory[2]}};
  void *x, *w;
  memcpy(&x, &c->x, sizeof x);
  memcpy(&w, &c->w, sizeof w);
  bench_dnnl.set_data(p->memory[0], x);
  bench_dnnl.set_data(p->memory[1], w);
  bench_dnnl.set_data(p->memory[2], c->y);
  bench_dnnl.execute(p->primitive, bench_dnnl.stream, 3, arguments);
  bench_dnnl.stream_wait(bench_dnnl.stream);
}

static void bench_dnnl_release(bench_peer_call *c) {
  bench_dnnl_product *p = c->prepared;
  if (!p) return;
  if (p->primitive) bench_dnnl.primitive_destroy(p->primitive);
  if (p->desc) bench_dnnl.primitive_desc_destroy(p->desc);
  for (int i = 0; i < 3; i++)
    if (p->memory[i]) bench_dnnl.memory_destroy(p->memory[i]);
  free(p);
}

#endif

static const bench_peer bench_peers[] = {
    {"openblas", "libopenblas0-pthread", TREADLE_FP32, bench_openblas_open, bench_openblas_prepare,
     bench_openblas_run, bench_openblas_release},
#ifdef BENCH_HAS_DNNL
    {"onednn", "libdnnl2", TREADLE_BF16, bench_dnnl_open, bench_dnnl_prepare, bench_dnnl_run,
     bench_dnnl_release},
#endif
};

#endif
