/* The adjoint of experts (pass/pass_experts.c). Of an expert's rows what gate and up gave is computed again, block by block, from the choices
 * that forward has kept: so memory does not depend on which experts were chosen.
 *
 * Order of additions. The derivative by the weight of a token's expert is the product of dy times down with what down multiplied: in the
 * leaves of down, within a leaf by lanes (nn/rows_back.h). The gradient of an expert's weight: its rows in the order of tokens, in blocks of
 * TREADLE_EXPERT_ROWS, one after the other. The gradient of the layer's normed input: of the shared expert, then of the token's
 * experts in ascending order, then of the router and the shared expert's gate. */
#include "train/back_experts.h"

#include "nn/router_back.h"
#include "train/back_mlp.h"
#include "train/back_sum.h"
#include "train/context.h"
#include "train/context_experts.h"
#include "train/expert_rows.h"
#include "train/ranks.h"
#include "train/routers.h"

#include <string.h>

typedef struct experts {
  const treadle_back *back;
  const treadle_train_activations *kept;
  int32_t layer;
  int64_t rows;
  treadle_row_range round; /* those of them that are at hand */
  treadle_router_losses losses;
} experts;

/* ---- Derivatives by weights of experts -------------------------------------------------------------------- */

/* Rows of t and h [rows, columns of the leaves]: each node of their product, to by[n * node_stride + at[i]]; at NULL: i. */
typedef struct dots {
  const treadle_back *back;
  const float *t, *h;
  treadle_leaf_range leaves;
  int64_t rows, columns, node_stride;
  const int64_t *at;
  float *by;
} dots;

static void dot_row(const dots *w, int64_t row, float *by) {
  const int64_t leaf = w->columns / w->leaves.leaves;
  float sums[TREADLE_LEAF_HEIGHT_MAX + 1];
  int top = 0;
  for (int32_t l = 0; l < w->leaves.leaves; l++) {
    const int64_t at = row * w->columns + l * leaf;
    treadle_leaf_step step = treadle_leaf_step_of(w->leaves, w->leaves.first + l);
    sums[top] = w->back->ops->sum_products(w->t + at, w->h + at, leaf);
    for (; step.merges > 0; step.merges--, top--) sums[top - 1] = sums[top - 1] + sums[top];
    if (!step.ends) {
      top++;
      continue;
    }
    *by = sums[top];
    by += w->node_stride;
  }
}

static void dot_rows(void *context, int32_t index, int32_t count) {
  const dots *w = context;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) dot_row(w, r, w->by + (w->at ? w->at[r] : r));
}

/* t and dy [rows, ...] become those of what the token's weight has multiplied. */
typedef struct scaling {
  const treadle_back *back;
  float *t, *dy;
  const float *by; /* [rows] */
  int64_t rows, columns;
} scaling;

static void scale_values(float *values, float scale, int64_t count) {
  for (int64_t i = 0; i < count; i++) values[i] = values[i] * scale;
}

static void scale_rows(void *context, int32_t index, int32_t count) {
  const scaling *w = context;
  const int64_t hidden = w->back->transformer->hidden, end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    scale_values(w->t + r * w->columns, w->by[r], w->columns);
    scale_values(w->dy + r * hidden, w->by[r], hidden);
  }
}

/* ---- Experts of this rank ----------------------------------------------------------------------------------- */

static treadle_back_gated expert_of(const experts *w, int32_t expert) {
  const treadle_back *back = w->back;
  const treadle_layer_weights *grads = treadle_context_expert_grads(back, w->layer);
  return (treadle_back_gated){.weights = treadle_pass_expert_of(back->pass, w->layer, expert),
                              .gate = grads->expert_gate ? &grads->expert_gate[expert] : NULL,
                              .up = grads->expert_up ? &grads->expert_up[expert] : NULL,
                              .down = grads->expert_down ? &grads->expert_down[expert] : NULL,
                              .all = back->transformer->expert_intermediate,
                              .x = back->pass->buffers.gathered,
                              .dy = back->buffers.experts.dy,
                              .gate_up = back->buffers.experts.gate_up};
}

/* What gate and up give of a block's rows, again; and dy times down. */
static treadle_status prepare_block(const experts *w, const treadle_back_gated *mlp,
                                    const treadle_expert_rows *block) {
  const treadle_back *back = w->back;
  treadle_pass_buffers *b = &back->pass->buffers;
  const treadle_pass_buffers own = *b;
  const int64_t inner = mlp->weights.down->column_count;
  treadle_status status;
  b->wide = mlp->gate_up;
  b->wide_columns = 2 * inner;
  b->middle = back->buffers.middle;
  b->middle_columns = inner;
  status = treadle_pass_gate_up(back->pass, &mlp->weights, b->gathered, block->count);
  *b = own;
  TRY(status);
  TRY(treadle_back_down(back, mlp, block->count));
out:
  return status;
}

static treadle_status back_block(void *context, int32_t layer, const treadle_expert_rows *block) {
  const experts *w = context;
  const treadle_back *back = w->back;
  const treadle_back_gated mlp = expert_of(w, block->expert);
  const treadle_expert_slopes by = treadle_expert_rows_slopes(back, block);
  const int64_t inner = mlp.weights.down->column_count, hidden = back->transformer->hidden;
  float weights[TREADLE_EXPERT_ROWS];
  dots by_weight = {.back = back,
                    .t = back->buffers.dmiddle,
                    .h = back->buffers.middle,
                    .leaves = treadle_back_down_leaves(&mlp),
                    .rows = block->count,
                    .columns = inner,
                    .node_stride = by.node_stride,
                    .at = by.at,
                    .by = by.to};
  scaling scale = {.back = back,
                   .t = back->buffers.dmiddle,
                   .dy = back->buffers.experts.dy,
                   .by = weights,
                   .rows = block->count,
                   .columns = inner};
  treadle_back_term both[2];
  treadle_back_inputs inputs = {.terms = both,
                                .count = 2,
                                .leaves = by_weight.leaves,
                                .rows = block->count,
                                .dx = back->pass->buffers.sum,
                                .stride = hidden};
  treadle_status status;
  (void)layer;
  if (!block->count) return treadle_back_gate_up(back, &mlp, 0, both); /* rows of other ranks alone */
  treadle_expert_rows_take(back, w->kept->routed, block, weights);
  TRY(prepare_block(w, &mlp, block));
  treadle_pass_share(back->pass, dot_rows, &by_weight, block->count * inner);
  treadle_pass_share(back->pass, scale_rows, &scale, block->count * hidden);
  TRY(treadle_back_gate_up(back, &mlp, block->count, both));
  TRY(treadle_back_input(back, &inputs));
  treadle_expert_rows_give(back, block);
out:
  return status;
}

/* ---- The shared expert ---------------------------------------------------------------------------------------- */

/* From derivatives by the scale, [rows] in buffers.experts.by_shared, to those by its logit; and dy of each row is scaled. */
typedef struct gating {
  const experts *of;
  float *dy; /* [rows, hidden] */
} gating;

static void gate_rows(void *context, int32_t index, int32_t count) {
  const gating *w = context;
  const treadle_back *back = w->of->back;
  const int64_t hidden = back->transformer->hidden, end = w->of->rows * (index + 1) / count,
                inner = back->pass->layers[w->of->layer].weight[TREADLE_ROLE_SHARED_DOWN].column_count;
  for (int64_t r = w->of->rows * index / count; r < end; r++) {
    const float scale = treadle_pass_shared_scale(w->of->kept->shared_scale[r]);
    back->buffers.experts.by_shared[r] = back->buffers.experts.by_shared[r] * (scale * (1 - scale));
    memcpy(w->dy + r * hidden, back->buffers.dx + r * hidden, (size_t)hidden * sizeof *w->dy);
    scale_values(w->dy + r * hidden, scale, hidden);
    scale_values(back->buffers.dmiddle + r * inner, scale, inner);
  }
}

static void activate_rows(void *context, int32_t index, int32_t count) {
  const experts *w = context;
  const treadle_back *back = w->back;
  const int64_t inner = back->pass->layers[w->layer].weight[TREADLE_ROLE_SHARED_DOWN].column_count,
                end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    const float *gate = w->kept->gate_up + r * 2 * inner;
    back->pass->row_ops->silu(back->buffers.middle + r * inner, gate, gate + inner, inner);
  }
}

/* The gate of the shared expert: buffers.experts.by_shared, and dy in *dy. */
static treadle_status back_gate(experts *w, const treadle_back_gated *mlp, float *dy) {
  const treadle_back *back = w->back;
  treadle_exchange *within = back->pass->ranks.within;
  treadle_leaf_range leaves = treadle_back_down_leaves(mlp);
  dots by_scale = {.back = back,
                   .t = back->buffers.dmiddle,
                   .h = back->buffers.middle,
                   .leaves = leaves,
                   .rows = w->rows,
                   .columns = mlp->weights.down->column_count,
                   .node_stride = w->rows,
                   .by = within ? treadle_exchange_room(within) : back->buffers.experts.by_shared};
  gating gate = {.of = w, .dy = dy};
  treadle_status status = TREADLE_OK;
  treadle_team_run(back->pass->team, activate_rows, w);
  treadle_team_run(back->pass->team, dot_rows, &by_scale);
  if (!back->pass->ranks.speaks[w->layer].shared) leaves.leaves = 0;
  if (within)
    TRY(treadle_parallel_sum(within, leaves, w->rows, 1, back->buffers.experts.by_shared,
                             "gradients of the shared expert's gate"));
  treadle_team_run(back->pass->team, gate_rows, &gate);
out:
  return status;
}

/* buffers.dnormed: what the shared expert gives; zero where there is none. */
static treadle_status back_shared(experts *w) {
  const treadle_back *back = w->back;
  const int64_t hidden = back->transformer->hidden;
  const treadle_role roles[] = {TREADLE_ROLE_SHARED_GATE, TREADLE_ROLE_SHARED_UP, TREADLE_ROLE_SHARED_DOWN};
  float *dy = back->pass->buffers.normed; /* which backward has no other use of */
  treadle_back_gated mlp = {.weights = treadle_pass_shared_of(back->pass, w->layer),
                            .layer = w->layer,
                            .roles = roles,
                            .all = back->transformer->shared_intermediate,
                            .x = back->buffers.normed2,
                            .dy = back->buffers.dx,
                            .gate_up = w->kept->gate_up};
  treadle_back_term both[2];
  treadle_status status = TREADLE_OK;
  memset(back->buffers.dnormed, 0, (size_t)(w->rows * hidden) * sizeof(float));
  if (!treadle_transformer_shares(back->transformer, w->layer)) return TREADLE_OK;
  TRY(treadle_back_down(back, &mlp, w->rows));
  if (treadle_is_there(&back->pass->layers[w->layer].weight[TREADLE_ROLE_SHARED_SCALE])) {
    TRY(back_gate(w, &mlp, dy));
    mlp.dy = dy;
  }
  TRY(treadle_back_gate_up(back, &mlp, w->rows, both));
  TRY(treadle_back_normed(back, both, 2, treadle_back_down_leaves(&mlp),
                          back->pass->ranks.speaks[w->layer].shared, w->rows));
out:
  return status;
}

/* ---- The router ------------------------------------------------------------------------------------------------- */

/* A token's experts: dnormed += what each gives, and the router's logits become their gradients. */
static void join_rows(void *context, int32_t index, int32_t count) {
  const experts *w = context;
  const treadle_back *back = w->back;
  treadle_pass *p = back->pass;
  const treadle_router router = treadle_pass_router(p, w->layer);
  const int64_t top = router.top_k, hidden = p->transformer->hidden, all = router.experts,
                first = w->round.first, rows = w->round.end - w->round.first,
                end = first + rows * (index + 1) / count;
  const treadle_expert_results gradients = treadle_expert_rows_gradients(back, w->rows),
                               weights = treadle_expert_rows_by_weight(back, w->rows);
  float by_weight[TREADLE_ROUTER_MAX_CHOSEN], *scores = p->buffers.scores + index * 3 * all;
  for (int64_t row = first + rows * index / count; row < end; row++) {
    const treadle_routed *routed = w->kept->routed + row * top;
    float *logits = w->kept->router_logits + row * all;
    for (int64_t k = 0; k < top; k++) {
      const int64_t place = row * top + k;
      p->row_ops->add(back->buffers.dnormed + row * hidden,
                      treadle_pass_expert_result(p, &gradients, routed[k].expert, place), TREADLE_FP32,
                      hidden);
      by_weight[k] = *treadle_pass_expert_result(p, &weights, routed[k].expert, place);
    }
    const treadle_router_token token = {routed, by_weight,
                                        treadle_train_routers_at(back->routers, w->losses, row)};
    back->buffers.experts.row_losses[row] =
        treadle_router_back(&router, p->row_ops, &token, logits, scores);
  }
}

static void add_rows(void *context, int32_t index, int32_t count) {
  const experts *w = context;
  const int64_t hidden = w->back->transformer->hidden, first = w->rows * index / count,
                end = w->rows * (index + 1) / count;
  w->back->pass->row_ops->add(w->back->buffers.dnormed + first * hidden,
                              w->back->pass->buffers.normed + first * hidden, TREADLE_FP32,
                              (end - first) * hidden);
}

/* The matrices that give logits of the router, and of the shared expert's gate. All ranks have all of them. */
static treadle_status back_router(experts *w) {
  const treadle_back *back = w->back;
  const treadle_weight *weight = back->pass->layers[w->layer].weight;
  const int64_t hidden = back->transformer->hidden, all = back->transformer->routing.experts;
  const treadle_role roles[] = {TREADLE_ROLE_ROUTER, TREADLE_ROLE_SHARED_SCALE};
  const treadle_back_rows normed = {back->buffers.normed2, hidden, hidden, w->rows};
  const treadle_back_term terms[] = {
      {&weight[TREADLE_ROLE_ROUTER], w->kept->router_logits, all, all},
      {&weight[TREADLE_ROLE_SHARED_SCALE], back->buffers.experts.by_shared, 1, 1},
  };
  const bool scaled = treadle_is_there(&weight[TREADLE_ROLE_SHARED_SCALE]);
  const int first = back->routers->frozen ? 1 : 0, end = scaled ? 2 : 1;
  const treadle_back_inputs inputs = {.terms = terms,
                                      .count = end,
                                      .leaves = {0, 1, 1},
                                      .rows = w->rows,
                                      .dx = back->pass->buffers.normed,
                                      .stride = hidden};
  treadle_status status;
  if (first < end)
    TRY(treadle_back_weights(back, w->layer, &normed, terms + first, roles + first, end - first));
  TRY(treadle_back_input(back, &inputs));
  treadle_team_run(back->pass->team, add_rows, w);
out:
  return status;
}

static treadle_status back_round(void *context, int32_t layer, const treadle_row_range *own) {
  experts *w = context;
  treadle_status status;
  w->round = *own;
  TRY(treadle_expert_rows_begin(w->back, w->kept->routed));
  TRY(treadle_expert_rows_each(w->back, layer, w->rows, back_block, w));
  TRY(treadle_expert_rows_show(w->back, w->rows));
  if (own->end > own->first) treadle_team_run(w->back->pass->team, join_rows, w);
out:
  return status;
}

treadle_status treadle_back_experts_of_others(const treadle_back *back, int32_t layer) {
  static const treadle_train_activations none = {0};
  experts w = {.back = back, .kept = &none, .layer = layer};
  return treadle_expert_rows_rounds(back, layer, 0, back_round, &w);
}

treadle_status treadle_back_experts(const treadle_back *back, int32_t layer, int64_t rows,
                                    const treadle_train_activations *kept) {
  treadle_pass *p = back->pass;
  experts w = {.back = back, .kept = kept, .layer = layer, .rows = rows};
  const treadle_back_norm_rows norm = {.norm = &p->layers[layer].weight[TREADLE_ROLE_MLP_NORM],
                                       .grad = &back->grads[layer].weight[TREADLE_ROLE_MLP_NORM],
                                       .x = kept->middle_x,
                                       .dy = back->buffers.dnormed,
                                       .dx = back->buffers.dx,
                                       .rows = rows};
  const int64_t *begin;
  treadle_status status;
  TRY(back_shared(&w));
  treadle_pass_list_places(p, kept->routed, rows);
  TRY(treadle_context_count_choices(back, &begin));
  w.losses = treadle_train_routers_of(back->routers, layer, begin, kept->routed);
  TRY(treadle_expert_rows_rounds(back, layer, rows, back_round, &w));
  TRY(treadle_context_add_losses(back, rows, &back->routers->losses[layer]));
  TRY(back_router(&w));
  TRY(treadle_back_norm(back, &norm));
out:
  return status;
}
