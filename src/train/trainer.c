#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "base/sized.h"
#include "memory/limits.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 64, ALIGNMENT = 64, MOST_ROWS = 4096, ROWS_LIMIT = 1 << 20 };

static treadle_status refuse(const treadle_trainer *t, const char *what) {
  return treadle_fail(TREADLE_REFUSED, "%s: training does not take %s yet", t->layout->model->path, what);
}

/* ---- Gradients of the same layout --------------------------------------------------------------------- */

/* The layout's text with dtype=fp32. */
static treadle_status fp32_text(const char *text, char *to, size_t room) {
  size_t at = 0;
  const char *mark = strstr(text, "dtype=");
  if (strlen(text) + sizeof ",dtype=fp32" > room)
    return treadle_fail(TREADLE_REFUSED, "layout '%s' is too long", text);
  if (!mark) {
    snprintf(to, room, "%s%sdtype=fp32", text, strchr(text, ':') ? "," : ":");
    return TREADLE_OK;
  }
  at = (size_t)(mark - text);
  snprintf(to, room, "%.*sdtype=fp32%s", (int)at, text, mark + strcspn(mark, ","));
  return TREADLE_OK;
}

static treadle_status find_grads(treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  treadle_status status = TREADLE_OK;
  t->grads = treadle_arena_alloc_array(&t->arena, (size_t)d->layers, sizeof *t->grads);
  if (!t->grads) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)d->layers);
  for (int32_t l = 0; l < d->layers; l++)
    for (int role = 0; role < TREADLE_ROLES; role++)
      if (d->layer[l].tensor[role] >= 0)
        TRY(treadle_weight_find(t->grad_layout, t->pass->rank, d->layer[l].tensor[role], -1, &t->arena,
                                &t->grads[l].weight[role]));
  TRY(treadle_weight_find(t->grad_layout, t->pass->rank, d->embed, -1, &t->arena, &t->grad_embed));
  TRY(treadle_weight_find(t->grad_layout, t->pass->rank, d->final_norm, -1, &t->arena,
                          &t->grad_final_norm));
  TRY(treadle_weight_find(t->grad_layout, t->pass->rank, d->head, -1, &t->arena, &t->grad_head));
out:
  return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

typedef struct memory { /* that is divided */
  char *base;           /* NULL: it is only counted */
  size_t used;
} memory;

static void *take(memory *m, int64_t count, size_t each) {
  char *at = m->base ? m->base + m->used : NULL;
  m->used += ((size_t)count * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What the products need, the largest of all. */
typedef struct sizes {
  size_t packed;
  int64_t turned;  /* elements */
  int64_t joined;  /* elements */
  int64_t columns; /* of what weights multiply */
  int64_t part;    /* of a norm or bias */
} sizes;

static treadle_status measure_input(treadle_trainer *t, sizes *s, int64_t rows_of_leaf, int64_t leaves,
                                    int64_t columns, int64_t rows) {
  int64_t leaf = treadle_back_leaf(rows_of_leaf);
  treadle_gemm_inner inner = {t->pass->options.dtype, (int32_t)leaf, {0, (int32_t)leaves, (int32_t)leaves}};
  s->turned = larger(s->turned, columns * leaf * leaves);
  s->joined = larger(s->joined, rows * leaf * leaves);
  s->columns = larger(s->columns, columns);
  return treadle_back_measure(t, inner, rows, &s->packed);
}

static treadle_status measure(treadle_trainer *t, sizes *s) {
  const treadle_transformer *d = t->transformer;
  const treadle_pass *p = t->pass;
  int64_t heads = p->heads.count * d->head_dim, keys = p->heads.kv_count * d->head_dim,
          values = p->heads.kv_count * d->value_dim, found = p->heads.count * d->value_dim;
  int64_t vocabulary = (d->vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF;
  int64_t products = (t->rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF;
  treadle_gemm_inner tokens = {
      p->options.dtype, TREADLE_PRODUCT_LEAF, {0, (int32_t)products, (int32_t)products}};
  treadle_status status;
  *s = (sizes){.part = larger(larger(d->hidden, d->intermediate), larger(heads, found))};
  TRY(measure_input(t, s, d->hidden, 1, d->intermediate, t->rows));
  TRY(measure_input(t, s, d->hidden, 1, found, t->rows));
  TRY(measure_input(t, s, 2 * d->intermediate / p->mlp_leaves, p->mlp_leaves, d->hidden, t->rows));
  TRY(measure_input(t, s, (heads + keys + values) / t->key_leaves, t->key_leaves, d->hidden, t->rows));
  TRY(measure_input(t, s, (d->vocabulary + vocabulary - 1) / vocabulary, vocabulary, d->hidden,
                    TREADLE_HEAD_ROWS));
  TRY(treadle_back_measure(t, tokens, TREADLE_WEIGHT_ROWS, &s->packed));
out:
  return status;
}

static void place(treadle_trainer *t, const sizes *s, void *at) {
  const treadle_transformer *d = t->transformer;
  const treadle_pass *p = t->pass;
  treadle_train_buffers *b = &t->buffers;
  const int64_t rows = t->rows, wide = p->buffers.wide_columns, middle = p->buffers.middle_columns;
  const size_t each = treadle_dtype_bytes(p->options.dtype);
  int64_t width = (rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF * TREADLE_PRODUCT_LEAF;
  memory m = {.base = at};
  b->kept = take(&m, d->layers * rows * d->hidden, sizeof(float));
  b->x = take(&m, rows * d->hidden, sizeof(float));
  b->normed = take(&m, rows * d->hidden, sizeof(float));
  b->normed2 = take(&m, rows * d->hidden, sizeof(float));
  b->dnormed = take(&m, rows * d->hidden, sizeof(float));
  b->dx = take(&m, rows * d->hidden, sizeof(float));
  b->qkv = take(&m, rows * wide, sizeof(float));
  b->raw = take(&m, rows * wide, sizeof(float));
  b->dqkv = take(&m, rows * wide, sizeof(float));
  b->gate_up = take(&m, rows * wide, sizeof(float));
  b->found = take(&m, rows * middle, sizeof(float));
  b->middle = take(&m, rows * middle, sizeof(float));
  b->dmiddle = take(&m, rows * middle, sizeof(float));
  b->joined = take(&m, s->joined, sizeof(float));
  b->parts = take(&m, (rows / TREADLE_TOKEN_LEAF + 1) * s->part, sizeof(float));
  b->turned = take(&m, s->turned, each);
  b->turned_x = take(&m, s->columns * width, each);
  b->turned_dy = take(&m, TREADLE_WEIGHT_ROWS * width, sizeof(float));
  b->product = take(&m, TREADLE_WEIGHT_ROWS * s->columns, sizeof(float));
  b->packed = take(&m, (int64_t)s->packed, 1);
  b->scratch_bytes = (treadle_attention_back_bytes(rows, d->head_dim, d->value_dim) + ALIGNMENT - 1) /
                     ALIGNMENT * ALIGNMENT;
  b->scratch = take(&m, p->options.threads, b->scratch_bytes);
  b->tied = d->head == d->embed ? take(&m, d->vocabulary * d->hidden, sizeof(float)) : NULL;
  b->tokens = take(&m, rows, sizeof *b->tokens);
  b->targets = take(&m, rows, sizeof *b->targets);
  b->which = take(&m, rows, sizeof *b->which);
  b->spans = take(&m, rows, sizeof *b->spans);
  b->table = take(&m, t->blocks, sizeof *b->table);
  t->work_bytes = m.used;
}

static treadle_status allocate(void **memory_p, size_t bytes, const char *what) {
  treadle_status status;
  TRY(treadle_limits_ask(bytes, what));
  if (posix_memalign(memory_p, ALIGNMENT, bytes + ALIGNMENT) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s of %zu bytes", what, bytes);
  memset(*memory_p, 0, bytes);
out:
  return status;
}

static treadle_status take_memory(treadle_trainer *t) {
  treadle_pass *p = t->pass;
  void *window = NULL;
  sizes s;
  treadle_status status;
  TRY(measure(t, &s));
  place(t, &s, NULL);
  TRY(allocate(&t->work, t->work_bytes, "activations"));
  place(t, &s, t->work);
  t->weight_bytes = treadle_layout_window_bytes(t->layout, p->rank);
  t->grad_bytes = treadle_layout_window_bytes(t->grad_layout, p->rank);
  TRY(allocate(&window, t->weight_bytes, "weights"));
  t->weights = window;
  TRY(allocate(&window, t->grad_bytes, "gradients"));
  t->window = window;
  TRY(allocate(&t->pass_work, treadle_pass_work_bytes(p) + treadle_pass_packed_bytes(p), "activations"));
  TRY(allocate(&t->cache, (size_t)t->blocks * treadle_pass_block_bytes(p), "keys and values"));
  for (int64_t b = 0; b < t->blocks; b++) t->buffers.table[b] = (int32_t)b;
out:
  return status;
}

/* The head's half of a tied gradient lies in memory of its own. */
static treadle_status part_tied(treadle_trainer *t) {
  treadle_segment *segment;
  if (!t->buffers.tied) return TREADLE_OK;
  segment = treadle_arena_alloc_array(&t->arena, 1, sizeof *segment);
  if (!segment) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  *segment = (treadle_segment){.copy = (const char *)t->buffers.tied,
                               .rows = t->transformer->vocabulary,
                               .stride = t->transformer->hidden};
  t->grad_head.segments = segment;
  t->grad_head.segment_count = 1;
  return TREADLE_OK;
}

/* ---- The whole --------------------------------------------------------------------------------------- */

static int32_t processors(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < 1 ? 1 : count > TREADLE_TEAM_MAX ? TREADLE_TEAM_MAX : count;
}

static treadle_status check(const treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  if (t->layout->ranks != 1) return refuse(t, "several ranks");
  if (d->head_dim > TREADLE_ROPE_WIDTH_MOST) return refuse(t, "heads of more than 1024 values");
  if (d->attention == TREADLE_ATTENTION_MLA) return refuse(t, "latent attention");
  for (int32_t l = 0; l < d->layers; l++)
    if (d->layer[l].sparse) return refuse(t, "experts");
  if (t->pass->copies) return refuse(t, "matrices of several types");
  return TREADLE_OK;
}

static treadle_status fill(treadle_trainer *t, const treadle_trainer_options *o) {
  char text[1024];
  treadle_pass_options pass = {.kernels = o->kernels ? o->kernels : "auto",
                               .fast = o->fast,
                               .most_logits = TREADLE_HEAD_ROWS,
                               .block_tokens = BLOCK_TOKENS};
  treadle_status status;
  if (o->threads < 0 || o->threads > TREADLE_TEAM_MAX)
    REFUSE("threads %d: 1 to %d, or 0", o->threads, TREADLE_TEAM_MAX);
  if (o->most_rows < 0 || o->most_rows > ROWS_LIMIT || o->most_tokens < 0 || o->most_tokens > ROWS_LIMIT)
    REFUSE("most_rows %lld, most_tokens %lld: 1 to %d, or 0", (long long)o->most_rows,
           (long long)o->most_tokens, ROWS_LIMIT);
  TRY(fp32_text(t->layout->text, text, sizeof text));
  TRY(treadle_layout_create(t->layout->model, text, t->layout->ranks, NULL, &t->grad_layout));
  TRY(treadle_transformer_create(t->layout->model, &t->transformer));
  TRY(treadle_replica_find(t->transformer, t->layout, 0, &t->arena, &t->replica));
  treadle_dtype dtype = treadle_layout_dtype(t->layout, &t->layout->model->tensors[t->transformer->embed]);
  t->rows = o->most_rows ? o->most_rows : MOST_ROWS;
  t->blocks = t->rows + t->rows / BLOCK_TOKENS; /* each row may be a sequence of its own */
  pass.dtype = dtype == TREADLE_BF16 ? TREADLE_BF16 : TREADLE_FP32;
  pass.threads = o->threads ? o->threads : processors();
  pass.spin = pass.threads > 1 && pass.threads <= processors();
  pass.most_rows = t->rows;
  pass.most_positions = o->most_tokens ? o->most_tokens : t->rows;
  if (!o->most_tokens && t->transformer->most_positions &&
      t->transformer->most_positions < pass.most_positions)
    pass.most_positions = t->transformer->most_positions;
  TRY(treadle_pass_create(t->transformer, t->layout, &t->replica, 0, &pass, &t->pass));
  TRY(check(t));
  for (int64_t l = 0; l < t->transformer->layers; l++) t->pass->cache_place[l] = 0;
  t->pass->cache_layers = 1; /* backward computes each layer again */
  t->key_leaves = pass.fast ? 1 : treadle_transformer_leaves(t->transformer->kv_heads);
  t->back = treadle_row_back_ops_for(pass.kernels);
  TRY(find_grads(t));
  TRY(take_memory(t));
  TRY(part_tied(t));
  TRY(treadle_token_rows_init(&t->token_rows, t->pass, t->transformer->vocabulary, TREADLE_HEAD_ROWS,
                              false));
out:
  return status;
}

treadle_status treadle_trainer_create(const treadle_layout *layout, const treadle_trainer_options *options,
                                      treadle_trainer **trainer_p) {
  treadle_trainer_options o;
  treadle_trainer *t = NULL;
  treadle_status status;
  TREADLE_NEED(trainer_p);
  *trainer_p = NULL;
  TREADLE_NEED(layout);
  TRY(TREADLE_TAKE(options, &o));
  t = treadle_alloc(sizeof *t);
  if (!t) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  t->layout = layout;
  TRY(fill(t, &o));
  *trainer_p = t;
  t = NULL;
out:
  treadle_trainer_destroy(t);
  return status;
}

void treadle_trainer_destroy(treadle_trainer *t) {
  if (!t) return;
  if (t->pass) treadle_token_rows_release(&t->token_rows);
  treadle_pass_destroy(t->pass);
  treadle_transformer_destroy(t->transformer);
  treadle_layout_destroy(t->grad_layout);
  treadle_arena_release(&t->arena);
  free(t->weights);
  free(t->window);
  free(t->work);
  free(t->pass_work);
  free(t->cache);
  treadle_free(t);
}

treadle_status treadle_trainer_load(treadle_trainer *t) {
  treadle_status status;
  TREADLE_NEED(t);
  const treadle_pass_windows windows = {.weights = t->weights, .cache = t->cache, .work = t->pass_work};
  TRY(treadle_layout_load(t->layout, t->pass->rank, t->weights));
  TRY(treadle_pass_bind(t->pass, &windows));
out:
  return status;
}

const treadle_layout *treadle_trainer_grad_layout(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, NULL);
  return t->grad_layout;
}

float *treadle_trainer_grad_window(const treadle_trainer *t, size_t *bytes_p) {
  if (bytes_p) *bytes_p = t ? t->grad_bytes : 0;
  TREADLE_NEED_OR(t, NULL);
  return (float *)(void *)t->window;
}

size_t treadle_trainer_bytes(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, 0);
  return t->weight_bytes + t->grad_bytes + t->work_bytes + treadle_pass_work_bytes(t->pass) +
         treadle_pass_packed_bytes(t->pass) + (size_t)t->blocks * treadle_pass_block_bytes(t->pass);
}
