/* The memory of activations, taken at once: the largest of what any layer needs. */
#include "infer/pass_parts.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string.h>

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Is the name one of the list's? */
static bool is_listed(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == 0 || at[length] == ',')) return true;
  return false;
}

/* A kernel that products of this rank are done by. */
static void note_kernel(treadle_pass *p, const treadle_gemm_kernel *kernel) {
  size_t length = strlen(p->kernels_used);
  if (!is_listed(p->kernels_used, kernel->name))
    snprintf(p->kernels_used + length, sizeof p->kernels_used - length, "%s%s", length ? ", " : "",
             kernel->name);
}

/* Bytes of packed rows for a product of this weight. */
static treadle_status measure_product(treadle_pass *p, const treadle_weight *weight, int64_t leaves,
                                      int64_t rows) {
  const treadle_gemm_kernel *kernel;
  treadle_status status;
  if (!weight || !weight->segment_count) return TREADLE_OK;
  treadle_gemm_inner inner = {.dtype = weight->dtype,
                              .leaf = (int32_t)(weight->columns / leaves),
                              .range = treadle_pass_leaves(weight, leaves)};
  TRY(treadle_gemm_choose(p->options.kernels, inner.dtype, inner.leaf, &kernel));
  note_kernel(p, kernel);
  size_t bytes = kernel->packed_bytes(inner, rows);
  if (bytes > p->buffers.packed_bytes) p->buffers.packed_bytes = bytes;
  p->buffers.nodes = larger(p->buffers.nodes, treadle_leaf_nodes(inner.range, NULL));
  p->buffers.segment_room += (size_t)weight->segment_count; /* more than any one product has */
out:
  return status;
}

/* The same of products head by head, of which each thread does one at a time. */
static treadle_status measure_heads(treadle_pass *p, int64_t inner) {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_inner one = {.dtype = p->options.dtype, .leaf = (int32_t)inner, .range = {0, 1, 1}};
  treadle_status status;
  TRY(treadle_gemm_choose(p->options.kernels, one.dtype, one.leaf, &kernel));
  note_kernel(p, kernel);
  size_t bytes = (kernel->packed_bytes(one, p->options.most_rows) + 63) / 64 * 64;
  if (bytes > p->buffers.head_packed_bytes) p->buffers.head_packed_bytes = bytes;
out:
  return status;
}

static int64_t leaves_of(const treadle_pass *p, treadle_role role) {
  return role == TREADLE_ROLE_O             ? p->attention_leaves
         : role == TREADLE_ROLE_DOWN        ? p->mlp_leaves
         : role == TREADLE_ROLE_SHARED_DOWN ? p->shared_leaves
                                            : 1;
}

static treadle_status measure_layer(treadle_pass *p, int32_t number) {
  const treadle_layer_weights *w = &p->layers[number];
  const treadle_transformer *d = p->transformer;
  treadle_pass_buffers *b = &p->buffers;
  int64_t rows = p->options.most_rows;
  treadle_status status = TREADLE_OK;
  if (!w->weight[TREADLE_ROLE_O].segment_count) return TREADLE_OK;
  for (int role = 0; role < TREADLE_ROLES; role++)
    if (w->weight[role].columns > 1)
      TRY(measure_product(p, &w->weight[role], leaves_of(p, (treadle_role)role), rows));
  b->wide_columns = larger(b->wide_columns, 2 * w->weight[TREADLE_ROLE_DOWN].column_count);
  b->wide_columns = larger(b->wide_columns, 2 * w->weight[TREADLE_ROLE_SHARED_DOWN].column_count);
  b->middle_columns = larger(b->middle_columns, w->weight[TREADLE_ROLE_DOWN].column_count);
  b->middle_columns = larger(b->middle_columns, w->weight[TREADLE_ROLE_SHARED_DOWN].column_count);
  b->middle_columns = larger(b->middle_columns, w->weight[TREADLE_ROLE_O].column_count);
  b->wide_columns = larger(b->wide_columns,
                           p->heads.count * d->head_dim + p->heads.kv_count * (d->head_dim + d->value_dim));
  if (d->attention == TREADLE_ATTENTION_MLA) {
    b->wide_columns = larger(b->wide_columns, p->heads.count * d->head_dim + d->latent_dim + d->rope_dim);
    b->middle_columns = larger(b->middle_columns, w->weight[TREADLE_ROLE_Q_DOWN].row_count);
    TRY(measure_heads(p, d->nope_dim));
    TRY(measure_heads(p, d->latent_dim));
  }
  if (w->expert_down) b->wide_columns = larger(b->wide_columns, d->routing.experts);
  for (int64_t e = 0; w->expert_down && e < d->routing.experts; e++) {
    TRY(measure_product(p, &w->expert_gate[e], 1, rows));
    TRY(measure_product(p, &w->expert_down[e], p->expert_leaves, rows));
    b->expert_nodes =
        larger(b->expert_nodes,
               treadle_leaf_nodes(treadle_pass_leaves(&w->expert_down[e], p->expert_leaves), NULL));
    b->wide_columns = larger(b->wide_columns, 2 * w->expert_down[e].column_count);
    b->middle_columns = larger(b->middle_columns, w->expert_down[e].column_count);
  }
out:
  return status;
}

/* Zeros, 64-byte aligned; *status turns bad where memory is out. */
static void *take(treadle_pass *p, int64_t count, size_t each, treadle_status *status) {
  size_t bytes = ((size_t)count * each + 63) / 64 * 64;
  void *memory = NULL;
  if (*status != TREADLE_OK) return NULL;
  if (posix_memalign(&memory, 64, bytes ? bytes : 64) != 0) {
    *status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu bytes of activations", bytes);
    return NULL;
  }
  memset(memory, 0, bytes); /* its pages are there before the first step */
  p->work_bytes += bytes;
  return memory;
}

treadle_status treadle_pass_take_memory(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  treadle_pass_buffers *b = &p->buffers;
  int64_t rows = p->options.most_rows;
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; l < d->layers; l++) TRY(measure_layer(p, l));
  TRY(measure_product(p, &p->head, 1, p->options.most_logits));
  b->x = take(p, rows * d->hidden, sizeof(float), &status);
  b->normed = take(p, rows * d->hidden, sizeof(float), &status);
  b->wide = take(p, rows * b->wide_columns, sizeof(float), &status);
  b->middle = take(p, rows * b->middle_columns, sizeof(float), &status);
  b->sum = take(p, b->nodes * rows * d->hidden, sizeof(float), &status);
  b->logits = take(p, p->options.most_logits * d->vocabulary, sizeof(float), &status);
  if (b->head_packed_bytes * (size_t)p->options.threads > b->packed_bytes)
    b->packed_bytes = b->head_packed_bytes * (size_t)p->options.threads;
  b->packed = take(p, (int64_t)b->packed_bytes, 1, &status);
  b->scratch = take(p, b->scratch_bytes * p->options.threads, 1, &status);
  if (d->attention == TREADLE_ATTENTION_MLA) {
    b->latent_queries =
        take(p, rows * p->heads.count * (d->latent_dim + d->rope_dim), sizeof(float), &status);
    b->latent_found = take(p, rows * p->heads.count * d->latent_dim, sizeof(float), &status);
  }
  if (d->routing.experts) {
    b->slots = take(p, rows * d->routing.top * d->hidden, sizeof(float), &status);
    b->gathered = take(p, rows * d->hidden, sizeof(float), &status);
    b->places = take(p, rows, sizeof *b->places, &status);
    b->scores = take(p, p->options.threads * 3 * d->routing.experts, sizeof(float), &status);
    b->shared = take(p, rows * d->hidden, sizeof(float), &status);
    b->shared_scale = take(p, rows, sizeof(float), &status);
    b->routed = take(p, rows * d->routing.top, sizeof *b->routed, &status);
  }
  b->segments = take(p, (int64_t)b->segment_room, sizeof *b->segments, &status);
out:
  return status;
}

void treadle_pass_free_memory(treadle_pass *p) {
  treadle_pass_buffers *b = &p->buffers;
  free(b->x);
  free(b->normed);
  free(b->wide);
  free(b->middle);
  free(b->sum);
  free(b->logits);
  free(b->packed);
  free(b->segments);
  free(b->scratch);
  free(b->latent_queries);
  free(b->latent_found);
  free(b->slots);
  free(b->gathered);
  free(b->places);
  free(b->scores);
  free(b->shared);
  free(b->shared_scale);
  free(b->routed);
}
