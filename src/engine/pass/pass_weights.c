/* Which parts of which weights this rank has, and whether they go together: what it computes of an inner dimension must be what its part
 * of the next matrix multiplies, and must begin and end between leaves. */
#include "pass/pass_steps.h"

static treadle_status refuse_cut(const treadle_pass *p, int32_t tensor, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s on rank %lld of %s: %s",
                      p->transformer->model->tensors[tensor].name, (long long)p->rank, p->layout->text,
                      why);
}

/* What the rank has of the inner dimension of a matrix that a mesh may cut: whole leaves. */
static treadle_status check_leaves(const treadle_pass *p, int32_t tensor, const treadle_weight *weight,
                                   int64_t leaves) {
  int64_t leaf = weight->columns / leaves;
  if (weight->first_column % leaf == 0 && weight->column_count % leaf == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s on rank %lld of %s: columns %lld to %lld are no whole leaves of %lld; exact mode "
                      "takes cuts of the %lld columns into 1 to 8 equal parts",
                      p->transformer->model->tensors[tensor].name, (long long)p->rank, p->layout->text,
                      (long long)weight->first_column,
                      (long long)(weight->first_column + weight->column_count), (long long)leaf,
                      (long long)weight->columns);
}

/* Rows [first, first + count), all of them, and of each all columns. */
static treadle_status check_rows(const treadle_pass *p, int32_t tensor, const treadle_weight *weight,
                                 int64_t first, int64_t count) {
  if (weight->first_column != 0 || weight->column_count != weight->columns)
    return refuse_cut(p, tensor, "the engine does not compute a cut of its columns");
  if (weight->first_row == first && weight->row_count == count && weight->end_row == first + count)
    return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s on rank %lld of %s: rows %lld to %lld are there, %lld to %lld are needed",
                      p->transformer->model->tensors[tensor].name, (long long)p->rank, p->layout->text,
                      (long long)weight->first_row, (long long)weight->end_row, (long long)first,
                      (long long)(first + count));
}

static treadle_status check_role(const treadle_pass *p, const treadle_transformer_layer *layer,
                                 const treadle_layer_weights *w, treadle_role role, int64_t first,
                                 int64_t count) {
  int32_t tensor = layer->tensor[role];
  return tensor < 0 ? TREADLE_OK : check_rows(p, tensor, &w->weight[role], first, count);
}

treadle_head_span treadle_pass_heads_of(const treadle_transformer *d, const treadle_weight *o) {
  int64_t group = d->heads / d->kv_heads;
  treadle_head_span span = {.first = o->first_column / d->value_dim,
                            .count = o->column_count / d->value_dim};
  span.kv_first = span.first / group;
  span.kv_count = (span.first + span.count - 1) / group - span.kv_first + 1;
  return span;
}

static treadle_status check_attention(treadle_pass *p, const treadle_transformer_layer *layer,
                                      const treadle_layer_weights *w) {
  const treadle_transformer *d = p->transformer;
  int32_t o = layer->tensor[TREADLE_ROLE_O];
  treadle_status status;
  TRY(check_leaves(p, o, &w->weight[TREADLE_ROLE_O], p->attention_leaves));
  treadle_head_span heads = treadle_pass_heads_of(d, &w->weight[TREADLE_ROLE_O]);
  if (p->heads.count && (heads.first != p->heads.first || heads.count != p->heads.count))
    return refuse_cut(p, o, "layers have different heads");
  p->heads = heads;
  int64_t wide = heads.count * d->head_dim, q = heads.first * d->head_dim;
  if (d->attention == TREADLE_ATTENTION_MLA) {
    int64_t each = d->nope_dim + d->value_dim;
    TRY(check_role(p, layer, w, TREADLE_ROLE_Q_DOWN, 0, w->weight[TREADLE_ROLE_Q_DOWN].rows));
    TRY(check_role(p, layer, w, TREADLE_ROLE_KV_DOWN, 0, d->latent_dim + d->rope_dim));
    TRY(check_role(p, layer, w, TREADLE_ROLE_Q, q, wide));
    TRY(check_role(p, layer, w, TREADLE_ROLE_Q_UP, q, wide));
    TRY(check_role(p, layer, w, TREADLE_ROLE_KV_UP, heads.first * each, heads.count * each));
    if (w->weight[TREADLE_ROLE_KV_UP].segment_count != 1)
      status = refuse_cut(p, layer->tensor[TREADLE_ROLE_KV_UP], "the engine takes its rows in one stretch");
    goto out;
  }
  if (p->replica->rank_count > 1) goto out; /* other ranks may have them: pass_gather.c */
  int64_t k = heads.kv_first * d->head_dim, narrow = heads.kv_count * d->head_dim;
  TRY(check_role(p, layer, w, TREADLE_ROLE_Q, q, wide));
  TRY(check_role(p, layer, w, TREADLE_ROLE_Q_BIAS, q, wide));
  TRY(check_role(p, layer, w, TREADLE_ROLE_K, k, narrow));
  TRY(check_role(p, layer, w, TREADLE_ROLE_K_BIAS, k, narrow));
  TRY(check_role(p, layer, w, TREADLE_ROLE_V, k, narrow));
  TRY(check_role(p, layer, w, TREADLE_ROLE_V_BIAS, k, narrow));
out:
  return status;
}

/* gate and up have the rows that down multiplies. */
static treadle_status check_mlp(const treadle_pass *p, const treadle_transformer_layer *layer,
                                const treadle_layer_weights *w) {
  const treadle_weight *down = &w->weight[TREADLE_ROLE_DOWN];
  treadle_status status;
  TRY(check_leaves(p, layer->tensor[TREADLE_ROLE_DOWN], down, p->mlp_leaves));
  TRY(check_role(p, layer, w, TREADLE_ROLE_GATE, down->first_column, down->column_count));
  TRY(check_role(p, layer, w, TREADLE_ROLE_UP, down->first_column, down->column_count));
  TRY(check_role(p, layer, w, TREADLE_ROLE_GATE_BIAS, down->first_column, down->column_count));
  TRY(check_role(p, layer, w, TREADLE_ROLE_UP_BIAS, down->first_column, down->column_count));
out:
  return status;
}

static treadle_status check_experts(const treadle_pass *p, const treadle_transformer_layer *layer,
                                    const treadle_layer_weights *w) {
  const treadle_weight *shared = &w->weight[TREADLE_ROLE_SHARED_DOWN];
  treadle_status status = TREADLE_OK;
  for (int64_t e = 0; e < p->transformer->routing.experts; e++) {
    const treadle_weight *down = &w->expert_down[e];
    if (!down->segment_count) continue;
    TRY(check_leaves(p, layer->tensor[TREADLE_ROLE_EXPERT_DOWN], down, p->expert_leaves));
    TRY(check_rows(p, layer->tensor[TREADLE_ROLE_EXPERT_GATE], &w->expert_gate[e], down->first_column,
                   down->column_count));
    TRY(check_rows(p, layer->tensor[TREADLE_ROLE_EXPERT_UP], &w->expert_up[e], down->first_column,
                   down->column_count));
  }
  if (layer->tensor[TREADLE_ROLE_SHARED_DOWN] < 0) goto out;
  TRY(check_leaves(p, layer->tensor[TREADLE_ROLE_SHARED_DOWN], shared, p->shared_leaves));
  TRY(check_role(p, layer, w, TREADLE_ROLE_SHARED_GATE, shared->first_column, shared->column_count));
  TRY(check_role(p, layer, w, TREADLE_ROLE_SHARED_UP, shared->first_column, shared->column_count));
out:
  return status;
}

/* ---- Finding ---------------------------------------------------------------------------------------- */

static bool is_of_experts(treadle_role role) {
  return role == TREADLE_ROLE_EXPERT_GATE || role == TREADLE_ROLE_EXPERT_UP ||
         role == TREADLE_ROLE_EXPERT_DOWN;
}

static treadle_status find_experts(const treadle_transformer *d, const treadle_layout *layout, int64_t rank,
                                   int32_t tensor, treadle_arena *arena, treadle_weight **weights_p) {
  const int64_t experts = d->routing.experts;
  treadle_status status = TREADLE_OK;
  *weights_p = treadle_arena_alloc_array(arena, (size_t)experts, sizeof **weights_p);
  if (!*weights_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld experts", (long long)experts);
  for (int64_t e = 0; e < experts; e++)
    TRY(treadle_weight_find(layout, rank, tensor, e, arena, &(*weights_p)[e]));
out:
  return status;
}

treadle_status treadle_layer_weights_find(const treadle_transformer *d, const treadle_layout *layout,
                                          int64_t rank, int32_t layer, treadle_arena *arena,
                                          treadle_layer_weights *w) {
  const int32_t *tensor = d->layer[layer].tensor;
  treadle_status status = TREADLE_OK;
  for (int role = 0; role < TREADLE_ROLES; role++)
    if (tensor[role] >= 0 && !is_of_experts((treadle_role)role))
      TRY(treadle_weight_find(layout, rank, tensor[role], -1, arena, &w->weight[role]));
  if (!d->layer[layer].sparse) return TREADLE_OK;
  TRY(find_experts(d, layout, rank, tensor[TREADLE_ROLE_EXPERT_GATE], arena, &w->expert_gate));
  TRY(find_experts(d, layout, rank, tensor[TREADLE_ROLE_EXPERT_UP], arena, &w->expert_up));
  TRY(find_experts(d, layout, rank, tensor[TREADLE_ROLE_EXPERT_DOWN], arena, &w->expert_down));
out:
  return status;
}

static treadle_status find_layer(treadle_pass *p, int32_t number) {
  const treadle_transformer_layer *layer = &p->transformer->layer[number];
  treadle_layer_weights *w = &p->layers[number];
  treadle_status status;
  TRY(treadle_layer_weights_find(p->transformer, p->layout, p->rank, number, &p->arena, w));
  TRY(check_attention(p, layer, w));
  if (layer->sparse)
    TRY(check_experts(p, layer, w));
  else
    TRY(check_mlp(p, layer, w));
out:
  return status;
}

/* Of the inner dimensions that a mesh may cut. Fast mode has one where nothing is cut. */
static void choose_leaves(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  bool one = p->options.fast && p->replica->rank_count == 1;
  p->attention_leaves = one ? 1 : treadle_transformer_leaves(d->heads);
  p->mlp_leaves = one || !d->intermediate ? 1 : treadle_transformer_leaves(d->intermediate);
  p->expert_leaves =
      one || !d->expert_intermediate ? 1 : treadle_transformer_leaves(d->expert_intermediate);
  p->shared_leaves =
      one || !d->shared_intermediate ? 1 : treadle_transformer_leaves(d->shared_intermediate);
}

treadle_status treadle_pass_find_weights(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  const treadle_replica *r = p->replica;
  treadle_rank_bits mine = (treadle_rank_bits)1 << r->position;
  treadle_status status = TREADLE_OK;
  choose_leaves(p);
  p->layers = treadle_arena_alloc_array(&p->arena, (size_t)d->layers, sizeof *p->layers);
  p->ranks.speaks = treadle_arena_alloc_array(&p->arena, (size_t)d->layers, sizeof *p->ranks.speaks);
  if (!p->layers || !p->ranks.speaks)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)d->layers);
  for (int32_t c = 0; c < r->chunk_count; c++)
    for (int32_t l = r->chunks[c].first_layer; (r->chunks[c].ranks & mine) && l < r->chunks[c].end_layer;
         l++)
      TRY(find_layer(p, l));
  TRY(treadle_weight_find(p->layout, p->rank, d->embed, -1, &p->arena, &p->embed));
  TRY(treadle_weight_find(p->layout, p->rank, d->final_norm, -1, &p->arena, &p->final_norm));
  if (d->head >= 0) TRY(treadle_weight_find(p->layout, p->rank, d->head, -1, &p->arena, &p->head));
out:
  return status;
}
