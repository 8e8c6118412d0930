/* q, k and v that lie on other ranks than their heads. Megatron cuts the rows of a query group evenly, even among more ranks than there
 * are groups; o is cut by heads. So a rank computes the columns whose rows it has, all ranks of the stage bring theirs, and
 * each takes those of its heads. Elsewhere every rank has what its heads need, and nothing is brought. */
#include "pass/pass_steps.h"

#include <string.h>

static const treadle_role roles[] = {TREADLE_ROLE_Q, TREADLE_ROLE_K, TREADLE_ROLE_V};
static const treadle_role biases[] = {TREADLE_ROLE_Q_BIAS, TREADLE_ROLE_K_BIAS, TREADLE_ROLE_V_BIAS};
enum { PARTS = 3 };

/* A rank's rows of q, k and v, and which its heads need. */
typedef struct rows_of {
  treadle_weight weight[PARTS];
  int64_t first[PARTS], count[PARTS];
} rows_of;

static int32_t first_layer(const treadle_pass *p) {
  int32_t l = 0;
  while (!p->layers[l].weight[TREADLE_ROLE_O].segment_count) l++;
  return l;
}

static treadle_status find_rows(treadle_pass *p, int member, rows_of *r) {
  const treadle_transformer *d = p->transformer;
  const int32_t *tensor = d->layer[first_layer(p)].tensor;
  int64_t rank = p->ranks.stage->ranks[member];
  treadle_weight o;
  treadle_status status;
  TRY(treadle_weight_find(p->layout, rank, tensor[TREADLE_ROLE_O], -1, &p->arena, &o));
  treadle_head_span heads = treadle_pass_heads_of(d, &o);
  for (int i = 0; i < PARTS; i++) {
    TRY(treadle_weight_find(p->layout, rank, tensor[roles[i]], -1, &p->arena, &r->weight[i]));
    r->first[i] = (i ? heads.kv_first : heads.first) * d->head_dim;
    r->count[i] = (i ? heads.kv_count : heads.count) * d->head_dim;
    const treadle_weight *w = &r->weight[i];
    if (w->segment_count && (w->row_count != w->end_row - w->first_row || w->column_count != w->columns))
      return treadle_fail(TREADLE_REFUSED,
                          "%s on rank %lld of %s: the engine takes rows that follow each other, whole",
                          d->model->tensors[tensor[roles[i]]].name, (long long)rank, p->layout->text);
  }
out:
  return status;
}

static bool has_own(const rows_of *r) {
  for (int i = 0; i < PARTS; i++)
    if (r->weight[i].first_row != r->first[i] || r->weight[i].row_count != r->count[i]) return false;
  return true;
}

int64_t treadle_pass_head_columns(const treadle_pass *pass) {
  int64_t columns = 0;
  for (int i = 0; i < PARTS; i++) columns += pass->layers[first_layer(pass)].weight[roles[i]].row_count;
  return columns;
}

bool treadle_pass_has_heads(const treadle_pass *p) {
  const int64_t dim = p->transformer->head_dim;
  rows_of own = {.first = {p->heads.first * dim, p->heads.kv_first * dim, p->heads.kv_first * dim},
                 .count = {p->heads.count * dim, p->heads.kv_count * dim, p->heads.kv_count * dim}};
  if (p->transformer->attention != TREADLE_ATTENTION_GQA) return true;
  for (int i = 0; i < PARTS; i++) own.weight[i] = p->layers[first_layer(p)].weight[roles[i]];
  return has_own(&own);
}

/* Part i of what this rank's heads need, out of the rows of the first ranks that have them. */
static treadle_status find_copies(treadle_pass *p, const rows_of *all, const rows_of *mine, int i,
                                  int64_t to) {
  treadle_head_gather *g = &p->ranks.gather;
  int64_t end = mine->first[i] + mine->count[i];
  for (int64_t row = mine->first[i]; row < end;) {
    int m = 0;
    while (m < p->ranks.stage->count &&
           !(row >= all[m].weight[i].first_row && row < all[m].weight[i].end_row))
      m++;
    if (m == p->ranks.stage->count)
      return treadle_fail(
          TREADLE_REFUSED, "layout '%s': no rank of the stage has row %lld of %s", p->layout->text,
          (long long)row,
          p->transformer->model->tensors[p->transformer->layer[first_layer(p)].tensor[roles[i]]].name);
    const treadle_weight *w = &all[m].weight[i];
    int64_t until = w->end_row < end ? w->end_row : end, from = row - w->first_row;
    for (int k = 0; k < i; k++) from += all[m].weight[k].row_count;
    g->copies[g->copy_count++] =
        (treadle_head_copy){.member = m, .from = from, .to = to, .count = until - row};
    to += until - row;
    row = until;
  }
  return TREADLE_OK;
}

treadle_status treadle_pass_find_heads(treadle_pass *p) {
  treadle_head_gather *g = &p->ranks.gather;
  int count = p->ranks.stage->count;
  bool all_have = true;
  int64_t columns = 0, to = 0;
  treadle_status status = TREADLE_OK;
  if (p->transformer->attention != TREADLE_ATTENTION_GQA) return TREADLE_OK;
  rows_of *all = treadle_arena_alloc_array(&p->arena, (size_t)count, sizeof *all);
  g->copies = treadle_arena_alloc_array(&p->arena, (size_t)count * PARTS, sizeof *g->copies);
  if (!all || !g->copies)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the heads of %d ranks", count);
  for (int m = 0; m < count; m++) {
    int64_t theirs = 0;
    TRY(find_rows(p, m, &all[m]));
    all_have = all_have && has_own(&all[m]);
    for (int i = 0; i < PARTS; i++) theirs += all[m].weight[i].row_count;
    if (theirs > columns) columns = theirs;
  }
  if (all_have) goto out;
  g->columns = columns;
  for (int i = 0; i < PARTS; i++) {
    TRY(find_copies(p, all, &all[p->ranks.stage->index], i, to));
    to += all[p->ranks.stage->index].count[i];
  }
out:
  return status;
}

/* ---- A layer ------------------------------------------------------------------------------------------ */

typedef struct gathering {
  treadle_pass *pass;
  const treadle_weight *weight; /* of the layer, by role */
  float *room;
  int64_t rows;
} gathering;

static void add_biases(void *context, int32_t index, int32_t count) {
  const gathering *w = context;
  const treadle_pass *p = w->pass;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *at = w->room + r * p->ranks.gather.columns;
    for (int i = 0; i < PARTS; at += w->weight[roles[i++]].row_count)
      treadle_pass_add_bias(p, at, &w->weight[biases[i]]);
  }
}

static void take_rows(void *context, int32_t index, int32_t count) {
  const gathering *w = context;
  const treadle_pass *p = w->pass;
  const treadle_head_gather *g = &p->ranks.gather;
  int64_t end = w->rows * (index + 1) / count, others;
  for (int64_t r = w->rows * index / count; r < end; r++)
    for (int32_t c = 0; c < g->copy_count; c++) {
      const treadle_head_copy *copy = &g->copies[c];
      const float *from = treadle_parallel_slot(p->ranks.within, copy->member, &others);
      memcpy(p->buffers.wide + r * p->buffers.wide_columns + copy->to, from + r * g->columns + copy->from,
             (size_t)copy->count * sizeof *from);
    }
}

treadle_status treadle_pass_gather_heads(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_pass_ranks *r = &p->ranks;
  const treadle_weight *weight = p->layers[layer].weight;
  gathering w = {.pass = p, .weight = weight, .room = treadle_exchange_room(r->within), .rows = rows};
  const treadle_exchange_part part =
      treadle_exchange_slot(r->stage->count, r->stage->index, true, rows, r->gather.columns);
  treadle_product in = {.x = p->buffers.normed,
                        .rows = rows,
                        .stride = p->transformer->hidden,
                        .leaves = 1,
                        .y = w.room,
                        .y_stride = r->gather.columns};
  treadle_status status;
  for (int64_t i = 0, column = 0; i < PARTS; column += weight[roles[i++]].row_count)
    if (weight[roles[i]].segment_count)
      in.terms[in.terms_count++] = (treadle_term){&weight[roles[i]], column};
  if (in.terms_count) TRY(treadle_pass_product(p, &in));
  treadle_team_run(p->team, add_biases, &w);
  TRY(treadle_parallel_slots(r->within, &part, "q, k and v"));
  treadle_team_run(p->team, take_rows, &w);
out:
  return status;
}
