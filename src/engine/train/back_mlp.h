/* The adjoint of a gated MLP: that of a layer, its shared expert, or one of its experts. */
#ifndef TREADLE_TRAIN_BACK_MLP_H
#define TREADLE_TRAIN_BACK_MLP_H

#include "train/back_product.h"
#include "train/layer.h"

/* An MLP, and where its gradients go. */
typedef struct treadle_back_gated {
  treadle_gated weights;
  int32_t layer;
  const treadle_role *roles; /* of gate, up and down in the layer; NULL: it is an expert */
  const treadle_weight *gate, *up,
      *down; /* gradients of an expert, or the shares of this context parallel rank */
  const treadle_weight *gate_bias, *up_bias, *down_bias; /* the same; NULL: there is no bias */
  int64_t all;                                           /* columns of down on all ranks */
  const float *x, *dy;                                   /* [rows, hidden] */
  float *gate_up; /* [rows, 2 * columns of down here] as forward had them; becomes their gradients */
} treadle_back_gated;

/* buffers.dmiddle [rows, columns of down here] = dy times down. */
treadle_status treadle_back_down(const treadle_back *back, const treadle_back_gated *mlp, int64_t rows);
/* From there, where it may have been scaled with dy: gradients of all weights, and *both_p what gate and up multiply dx by. buffers.middle
 * has room for what down multiplied. */
treadle_status treadle_back_gate_up(const treadle_back *back, const treadle_back_gated *mlp, int64_t rows,
                                    treadle_back_term both_p[2]);
/* The leaves of down that this rank has. */
treadle_leaf_range treadle_back_down_leaves(const treadle_back_gated *mlp);

/* buffers.dx: of the MLP of a layer without experts. */
treadle_status treadle_back_mlp(const treadle_back *back, int32_t layer, int64_t rows,
                                const treadle_train_activations *kept);

#endif
