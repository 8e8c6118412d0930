/* The memory of activations, one behind the other: the largest of what any layer needs. Then copies of weights. */
#include "pass/pass_steps.h"

#include "base/dtype.h"
#include "base/larger.h"

#include <stdio.h>
#include <string.h>

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
                                      int64_t rows, bool fine) {
  const treadle_gemm_kernel *kernel;
  treadle_status status;
  if (!weight || !weight->segment_count) return TREADLE_OK;
  treadle_gemm_inner inner = {.dtype = weight->dtype,
                              .leaf = (int32_t)(weight->columns / leaves),
                              .range = treadle_pass_leaves(weight, leaves),
                              .fine = fine};
  TRY(treadle_gemm_choose(p->options.kernels, inner.dtype, inner.leaf, &kernel));
  note_kernel(p, kernel);
  size_t bytes = kernel->packed_bytes(inner, rows);
  if (bytes > p->buffers.packed_bytes) p->buffers.packed_bytes = bytes;
  p->buffers.nodes = treadle_larger(p->buffers.nodes, treadle_leaf_nodes(inner.range, NULL));
  p->buffers.segment_room += (size_t)weight->segment_count; /* more than any one product has */
out:
  return status;
}

/* The same of products head by head, of which each thread does one at a time. */
static treadle_status measure_heads(treadle_pass *p, int64_t inner) {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_inner one = {
      .dtype = p->options.dtype, .leaf = (int32_t)inner, .range = {0, 1, 1}, .fine = true};
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

static bool is_fine(const treadle_pass *p, treadle_role role) {
  return p->transformer->attention == TREADLE_ATTENTION_MLA &&
         (role == TREADLE_ROLE_KV_DOWN || role == TREADLE_ROLE_Q_DOWN || role == TREADLE_ROLE_Q);
}

static treadle_status measure_layer(treadle_pass *p, int32_t number) {
  const treadle_layer_weights *w = &p->layers[number];
  const treadle_transformer *d = p->transformer;
  treadle_pass_buffers *b = &p->buffers;
  int64_t rows = p->options.most_rows, block = rows < TREADLE_EXPERT_ROWS ? rows : TREADLE_EXPERT_ROWS;
  treadle_status status = TREADLE_OK;
  if (!w->weight[TREADLE_ROLE_O].segment_count) return TREADLE_OK;
  for (int role = 0; role < TREADLE_ROLES; role++)
    if (w->weight[role].columns > 1)
      TRY(measure_product(p, &w->weight[role], leaves_of(p, (treadle_role)role), rows,
                          is_fine(p, (treadle_role)role)));
  b->wide_columns = treadle_larger(b->wide_columns, 2 * w->weight[TREADLE_ROLE_DOWN].column_count);
  b->wide_columns = treadle_larger(b->wide_columns, 2 * w->weight[TREADLE_ROLE_SHARED_DOWN].column_count);
  b->middle_columns = treadle_larger(b->middle_columns, w->weight[TREADLE_ROLE_DOWN].column_count);
  b->middle_columns = treadle_larger(b->middle_columns, w->weight[TREADLE_ROLE_SHARED_DOWN].column_count);
  b->middle_columns = treadle_larger(b->middle_columns, w->weight[TREADLE_ROLE_O].column_count);
  b->wide_columns = treadle_larger(b->wide_columns, p->heads.count * d->head_dim +
                                                        p->heads.kv_count * (d->head_dim + d->value_dim));
  if (d->attention == TREADLE_ATTENTION_MLA) {
    b->wide_columns =
        treadle_larger(b->wide_columns, p->heads.count * d->head_dim + d->latent_dim + d->rope_dim);
    b->middle_columns = treadle_larger(b->middle_columns, w->weight[TREADLE_ROLE_Q_DOWN].row_count);
    TRY(measure_heads(p, d->nope_dim));
    TRY(measure_heads(p, d->latent_dim));
  }
  if (w->expert_down) b->wide_columns = treadle_larger(b->wide_columns, d->routing.experts);
  int64_t held = 0;
  for (int64_t e = 0; w->expert_down && e < d->routing.experts; e++) {
    held += w->expert_down[e].segment_count > 0;
    TRY(measure_product(p, &w->expert_gate[e], 1, block, false));
    TRY(measure_product(p, &w->expert_down[e], p->expert_leaves, block, false));
    b->expert_nodes =
        treadle_larger(b->expert_nodes,
                       treadle_leaf_nodes(treadle_pass_leaves(&w->expert_down[e], p->expert_leaves), NULL));
    b->wide_columns = treadle_larger(b->wide_columns, 2 * w->expert_down[e].column_count);
    b->middle_columns = treadle_larger(b->middle_columns, w->expert_down[e].column_count);
  }
  b->held = treadle_larger(b->held, held);
out:
  return status;
}

typedef struct memory { /* that is divided */
  char *base;           /* NULL: it is only counted */
  size_t used;
} memory;

static void *take(memory *m, int64_t count, size_t each) {
  char *at = m->base ? m->base + m->used : NULL;
  m->used += ((size_t)count * each + 63) / 64 * 64;
  return at;
}

static void place_copies(treadle_pass *p, memory *m) {
  const treadle_transformer *d = p->transformer;
  size_t each = treadle_dtype_bytes(p->options.dtype);
  char *last = NULL;
  bool shared = false; /* weights of layers take turns, and so do their copies */
  for (int32_t l = 0; l < d->layers && d->attention == TREADLE_ATTENTION_MLA; l++) {
    if (!p->layers[l].weight[TREADLE_ROLE_O].segment_count) continue;
    if (!shared) last = take(m, p->heads.count * d->latent_dim * d->nope_dim, each);
    p->latent_copies[l] = last;
    shared = p->options.layer_by_layer;
  }
  for (treadle_pass_copy *copy = p->copies; copy; copy = copy->next)
    treadle_pass_place_copy(copy, take(m, (int64_t)copy->bytes, 1));
}

void treadle_pass_place(treadle_pass *p, void *at) {
  const treadle_transformer *d = p->transformer;
  treadle_pass_buffers *b = &p->buffers;
  int64_t rows = p->options.most_rows;
  memory m = {.base = at};
  b->x = take(&m, rows * d->hidden, sizeof(float));
  b->normed = take(&m, rows * d->hidden, sizeof(float));
  b->wide = take(&m, rows * b->wide_columns, sizeof(float));
  b->middle = take(&m, rows * b->middle_columns, sizeof(float));
  if (p->context.ranks > 1) {
    b->all_wide_columns = treadle_context_heads_of(p).columns;
    b->all_middle_columns = p->attention.heads * d->value_dim;
    b->all_wide = take(&m, p->options.most_all_rows * b->all_wide_columns, sizeof(float));
    b->all_middle = take(&m, p->options.most_all_rows * b->all_middle_columns, sizeof(float));
  }
  b->sum = take(&m, b->nodes * rows * d->hidden, sizeof(float));
  b->logits = d->head < 0 ? NULL : take(&m, p->options.most_logits * d->vocabulary, sizeof(float));
  b->packed = take(&m, (int64_t)b->packed_bytes, 1);
  b->scratch = take(&m, b->scratch_bytes * p->options.threads, 1);
  if (d->attention == TREADLE_ATTENTION_MLA) {
    b->latent_queries = take(&m, rows * p->heads.count * (d->latent_dim + d->rope_dim), sizeof(float));
    b->latent_found = take(&m, rows * p->heads.count * d->latent_dim, sizeof(float));
  }
  if (d->routing.experts) {
    const bool groups = p->replica->group_count > 1;
    b->slots = take(&m, rows * (groups ? d->hidden : d->routing.top * (d->hidden + 1)), sizeof(float));
    b->gathered =
        take(&m, (rows < TREADLE_EXPERT_ROWS ? rows : TREADLE_EXPERT_ROWS) * d->hidden, sizeof(float));
    const int64_t round = groups ? treadle_pass_round_rows(p) : 0;
    b->places = take(&m, (groups ? round : rows) * d->routing.top, sizeof *b->places);
    b->brought = groups ? take(&m, round, sizeof(*b->brought)) : NULL;
    b->turns = groups ? take(&m, round * d->routing.top, sizeof *b->turns) : NULL;
    b->expert_begin = take(&m, d->routing.experts + 1, sizeof *b->expert_begin);
    b->scores = take(&m, p->options.threads * 3 * d->routing.experts, sizeof(float));
    b->shared = take(&m, rows * d->hidden, sizeof(float));
    b->shared_scale = take(&m, rows, sizeof(float));
    b->routed = take(&m, rows * d->routing.top, sizeof *b->routed);
  }
  b->segments = take(&m, (int64_t)b->segment_room, sizeof *b->segments);
  p->work_bytes = m.used;
  place_copies(p, &m);
  p->packed_weights_bytes = m.used - p->work_bytes;
}

treadle_status treadle_pass_measure(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  treadle_pass_buffers *b = &p->buffers;
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; l < d->layers; l++) TRY(measure_layer(p, l));
  TRY(measure_product(p, &p->head, 1, p->options.most_logits, false));
  if (b->head_packed_bytes * (size_t)p->options.threads > b->packed_bytes)
    b->packed_bytes = b->head_packed_bytes * (size_t)p->options.threads;
  treadle_pass_place(p, NULL);
out:
  return status;
}
