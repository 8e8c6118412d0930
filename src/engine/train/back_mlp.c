/* The adjoint of a gated MLP: y = down(silu(gate(x)) * up(x)).
 *
 * Order of additions of the product for the gradient of x: in the leaves of down, of each the columns of gate and then those of up. */
#include "train/back_mlp.h"

#include "train/back_sum.h"
#include "train/context_experts.h"
#include "train/ranks.h"

treadle_leaf_range treadle_back_down_leaves(const treadle_back_gated *mlp) {
  return treadle_pass_leaves(mlp->weights.down, mlp->weights.leaves);
}

treadle_status treadle_back_down(const treadle_back *back, const treadle_back_gated *mlp, int64_t rows) {
  const int64_t hidden = back->transformer->hidden;
  const treadle_back_term down = {mlp->weights.down, mlp->dy, hidden, hidden};
  return treadle_back_through(back, &down, rows, back->buffers.dmiddle, mlp->weights.down->column_count);
}

typedef struct activation {
  const treadle_back *back;
  float *gate_up;
  int64_t rows, inner;
} activation;

/* gate_up becomes its gradient; buffers.middle is what down multiplied. */
static void back_activation(void *context, int32_t index, int32_t count) {
  const activation *w = context;
  int64_t inner = w->inner, end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *gate = w->gate_up + r * 2 * inner;
    w->back->ops->silu(gate, gate + inner, w->back->buffers.middle + r * inner,
                       w->back->buffers.dmiddle + r * inner, gate, gate + inner, inner);
  }
}

static treadle_status back_bias(const treadle_back *back, const treadle_weight *grad, const float *dy,
                                int64_t stride, int64_t rows) {
  return grad ? treadle_back_bias(back, grad, dy, stride, rows) : TREADLE_OK;
}

enum { GATE, UP, DOWN };

/* `count` weights from `first` on, which multiplied the same rows. */
static treadle_status back_weights(const treadle_back *back, const treadle_back_gated *mlp,
                                   const treadle_back_rows *x, const treadle_back_term *terms, int first,
                                   int count) {
  const treadle_weight *const grads[] = {mlp->gate, mlp->up, mlp->down};
  if (mlp->roles) return treadle_back_weights(back, mlp->layer, x, terms, mlp->roles + first, count);
  return treadle_back_expert_weights(back, x, terms, grads + first, count);
}

treadle_status treadle_back_gate_up(const treadle_back *back, const treadle_back_gated *mlp, int64_t rows,
                                    treadle_back_term both_p[2]) {
  const treadle_gated *w = &mlp->weights;
  const int64_t hidden = back->transformer->hidden, inner = w->down->column_count,
                share = mlp->all / w->leaves;
  const treadle_back_term down = {w->down, mlp->dy, hidden, hidden};
  const treadle_back_rows middle = {back->buffers.middle, inner, inner, rows},
                          normed = {mlp->x, hidden, hidden, rows};
  activation a = {.back = back, .gate_up = mlp->gate_up, .rows = rows, .inner = inner};
  treadle_status status;
  both_p[0] = (treadle_back_term){w->gate, mlp->gate_up, 2 * inner, share};
  both_p[1] = (treadle_back_term){w->up, mlp->gate_up + inner, 2 * inner, share};
  treadle_pass_share(back->pass, back_activation, &a, rows * inner);
  TRY(back_weights(back, mlp, &middle, &down, DOWN, 1));
  TRY(back_bias(back, mlp->down_bias, mlp->dy, hidden, rows));
  TRY(back_weights(back, mlp, &normed, both_p, GATE, 2));
  TRY(back_bias(back, mlp->gate_bias, both_p[0].dy, 2 * inner, rows));
  TRY(back_bias(back, mlp->up_bias, both_p[1].dy, 2 * inner, rows));
out:
  return status;
}

treadle_status treadle_back_mlp(const treadle_back *back, int32_t layer, int64_t rows,
                                const treadle_train_activations *kept) {
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const treadle_role roles[] = {TREADLE_ROLE_GATE, TREADLE_ROLE_UP, TREADLE_ROLE_DOWN};
  const treadle_back_gated mlp = {.weights = treadle_pass_mlp_of(back->pass, layer),
                                  .layer = layer,
                                  .roles = roles,
                                  .gate_bias = &grad[TREADLE_ROLE_GATE_BIAS],
                                  .up_bias = &grad[TREADLE_ROLE_UP_BIAS],
                                  .down_bias = &grad[TREADLE_ROLE_DOWN_BIAS],
                                  .all = back->transformer->intermediate,
                                  .x = back->buffers.normed2,
                                  .dy = back->buffers.dx,
                                  .gate_up = kept->gate_up};
  const treadle_back_norm_rows norm = {.norm = &weight[TREADLE_ROLE_MLP_NORM],
                                       .grad = &grad[TREADLE_ROLE_MLP_NORM],
                                       .x = kept->middle_x,
                                       .dy = back->buffers.dnormed,
                                       .dx = back->buffers.dx,
                                       .rows = rows};
  treadle_back_term both[2];
  treadle_status status;
  TRY(treadle_back_down(back, &mlp, rows));
  TRY(treadle_back_gate_up(back, &mlp, rows, both));
  TRY(treadle_back_normed(back, both, 2, treadle_back_down_leaves(&mlp),
                          back->pass->ranks.speaks[layer].mlp, rows));
  TRY(treadle_back_norm(back, &norm));
out:
  return status;
}
