/* The MLP: down(silu(gate(x)) * up(x)). gate and up share the rows; what the rank has of them is what its part of down multiplies. */
#include "pass/pass_steps.h"

typedef struct activate {
  treadle_pass *pass;
  int64_t rows, count;
  const treadle_weight *gate_bias, *up_bias;
} activate;

static void activate_rows(void *context, int32_t index, int32_t threads) {
  const activate *a = context;
  const treadle_pass_buffers *b = &a->pass->buffers;
  const treadle_row_ops *ops = a->pass->row_ops;
  int64_t begin = a->rows * index / threads, end = a->rows * (index + 1) / threads;
  for (int64_t r = begin; r < end; r++) {
    float *gate = b->wide + r * b->wide_columns, *up = gate + a->count;
    treadle_pass_add_bias(a->pass, gate, a->gate_bias);
    treadle_pass_add_bias(a->pass, up, a->up_bias);
    ops->silu(b->middle + r * b->middle_columns, gate, up, a->count);
  }
}

static bool is_there(const treadle_weight *bias) { return bias && bias->segment_count; }

treadle_status treadle_pass_gate_up(treadle_pass *pass, const treadle_gated *mlp, const float *x,
                                    int64_t rows) {
  treadle_pass_buffers *b = &pass->buffers;
  int64_t count = mlp->down->column_count;
  activate a = {
      .pass = pass, .rows = rows, .count = count, .gate_bias = mlp->gate_bias, .up_bias = mlp->up_bias};
  treadle_product in = {.x = x,
                        .rows = rows,
                        .stride = pass->transformer->hidden,
                        .leaves = 1,
                        .terms = {{mlp->gate, 0}, {mlp->up, count}},
                        .terms_count = 2,
                        .y = b->wide,
                        .y_stride = b->wide_columns};
  treadle_status status;
  TRY(treadle_pass_product(pass, &in));
  treadle_team_run(pass->team, activate_rows, &a);
out:
  return status;
}

treadle_status treadle_pass_multiply_down(treadle_pass *pass, const treadle_gated *mlp, int64_t rows,
                                          float *y, int64_t node_stride) {
  const treadle_product out = {.x = pass->buffers.middle,
                               .rows = rows,
                               .stride = pass->buffers.middle_columns,
                               .leaves = mlp->leaves,
                               .terms = {{mlp->down, 0}},
                               .terms_count = 1,
                               .y = y,
                               .y_stride = pass->transformer->hidden,
                               .node_stride = node_stride};
  return treadle_pass_product(pass, &out);
}

treadle_status treadle_pass_gated(treadle_pass *pass, const treadle_gated *mlp, const float *x,
                                  int64_t rows, float *y, int64_t node_stride) {
  treadle_pass_buffers *b = &pass->buffers;
  int64_t hidden = pass->transformer->hidden;
  const treadle_product gated = {.x = x,
                                 .rows = rows,
                                 .stride = hidden,
                                 .leaves = 1,
                                 .terms = {{mlp->up, 0}, {mlp->gate, 0}},
                                 .terms_count = 2,
                                 .y = b->middle,
                                 .y_stride = b->middle_columns,
                                 .gated = true};
  treadle_status status;
  if (is_there(mlp->gate_bias) || is_there(mlp->up_bias) ||
      !treadle_pass_can_gate(pass, mlp->up, mlp->gate)) {
    TRY(treadle_pass_gate_up(pass, mlp, x, rows));
  } else {
    TRY(treadle_pass_product(pass, &gated));
  }
  TRY(treadle_pass_multiply_down(pass, mlp, rows, y, node_stride));
out:
  return status;
}

treadle_gated treadle_pass_mlp_of(const treadle_pass *pass, int32_t number) {
  const treadle_layer_weights *w = &pass->layers[number];
  return (treadle_gated){.gate = &w->weight[TREADLE_ROLE_GATE],
                         .up = &w->weight[TREADLE_ROLE_UP],
                         .down = &w->weight[TREADLE_ROLE_DOWN],
                         .gate_bias = &w->weight[TREADLE_ROLE_GATE_BIAS],
                         .up_bias = &w->weight[TREADLE_ROLE_UP_BIAS],
                         .leaves = pass->mlp_leaves};
}

static treadle_status add_down(treadle_pass *pass, int32_t number, int64_t rows) {
  const treadle_layer_weights *w = &pass->layers[number];
  return treadle_pass_add_sum(pass, &w->weight[TREADLE_ROLE_DOWN], pass->mlp_leaves,
                              &w->weight[TREADLE_ROLE_DOWN_BIAS], pass->ranks.speaks[number].mlp, rows);
}

treadle_status treadle_pass_down(treadle_pass *pass, int32_t number, int64_t rows) {
  treadle_gated mlp = treadle_pass_mlp_of(pass, number);
  treadle_status status;
  TRY(treadle_pass_multiply_down(pass, &mlp, rows, pass->buffers.sum, rows * pass->transformer->hidden));
  TRY(add_down(pass, number, rows));
out:
  return status;
}

treadle_status treadle_pass_mlp(treadle_pass *pass, int32_t number, int64_t rows) {
  treadle_gated mlp = treadle_pass_mlp_of(pass, number);
  treadle_status status;
  if (!pass->ranks.within || pass->ranks.speaks[number].mlp)
    TRY(treadle_pass_gated(pass, &mlp, pass->buffers.normed, rows, pass->buffers.sum,
                           rows * pass->transformer->hidden));
  TRY(add_down(pass, number, rows));
out:
  return status;
}
