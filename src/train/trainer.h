/* What the files of the training engine share.
 *
 * The forward pass is that of src/infer, function by function, so a token's log-probability has the same bits in training and in
 * scoring. Of each layer the residual stream before it is kept; backward runs the layer again and then takes the adjoint of each part, last
 * part first.
 *
 *   trainer.c        the weights, their gradients, and the memory that both passes compute in
 *   gradients.c      rows in micro batches, forward and backward
 *   back_layer.c     the adjoints of the parts of a layer
 *   back_head.c      loss, head, embedding
 *   back_product.c   the two transposed products
 *   back_sum.c       sums over tokens: gradients of norms and biases
 *
 * Gradients are fp32, in a window of the same layout as the weights with dtype=fp32. */
#ifndef TREADLE_TRAIN_TRAINER_H
#define TREADLE_TRAIN_TRAINER_H

#include "infer/pass_parts.h"
#include "infer/token_rows.h"
#include "nn/attention_back.h"
#include "nn/rows_back.h"
#include "treadle_engine.h"

enum {
  TREADLE_TOKEN_LEAF = 64,    /* tokens that norms and biases add up together */
  TREADLE_PRODUCT_LEAF = 512, /* and at most so many that products do */
  TREADLE_HEAD_LEAF = 128,    /* columns of the vocabulary */
  TREADLE_HEAD_ROWS = 512,    /* tokens whose logits are there at once */
  TREADLE_WEIGHT_ROWS = 256,  /* rows of a weight's gradient that are computed at once */
};

/* Memory of a step, for `rows` tokens. */
typedef struct treadle_train_buffers {
  float *kept; /* [layers + 1, rows, hidden]: the residual stream before each layer, and behind the last */
  float *x, *normed, *normed2; /* [rows, hidden] */
  float *qkv, *raw, *dqkv;     /* [rows, wide_columns]; raw: before norms of heads and rotation */
  float *gate_up, *found, *middle,
      *dmiddle;               /* [rows, wide_columns], then three of [rows, middle_columns] */
  float *joined;              /* [rows, joined_columns]: gradients in the order of leaves */
  float *dnormed, *dx;        /* [rows, hidden] */
  float *parts;               /* [leaves of tokens, part_columns] */
  char *turned;               /* a weight, columns as rows */
  char *turned_x;             /* [columns, tokens] */
  float *turned_dy, *product; /* [TREADLE_WEIGHT_ROWS, tokens], [TREADLE_WEIGHT_ROWS, columns] */
  void *packed;
  char *scratch; /* of attention, for each thread */
  float *tied;   /* the head's half of a tied gradient, [vocabulary, hidden]; NULL: it is not tied */
  int32_t *tokens, *targets, *which;
  treadle_pass_span *spans;
  int32_t *table;
  size_t scratch_bytes; /* of a thread */
  int64_t joined_columns, part_columns;
} treadle_train_buffers;

struct treadle_trainer {
  const treadle_layout *layout;
  treadle_layout *grad_layout;
  treadle_transformer *transformer;
  treadle_replica replica;
  treadle_pass *pass;
  const treadle_row_back_ops *back;
  treadle_layer_weights *grads; /* [layers] where the gradients of each weight lie */
  treadle_weight grad_embed, grad_final_norm, grad_head;
  treadle_token_rows token_rows;
  treadle_train_buffers buffers;
  int64_t rows;       /* of a micro batch, at most */
  int64_t blocks;     /* of keys and values, for that many rows */
  int64_t key_leaves; /* that q, k and v have in the product for the gradient of their input */
  char *weights;      /* windows */
  char *window;       /* of gradients */
  void *work, *pass_work, *cache;
  size_t weight_bytes, grad_bytes, work_bytes;
  treadle_arena arena;
};

/* A micro batch as the passes see it. */
typedef struct treadle_train_step {
  treadle_pass_step step;
  int64_t counted;        /* tokens that the loss counts */
  const int32_t *which;   /* [counted] their rows: of the token before */
  const int32_t *targets; /* [counted] */
  float scale;            /* of the loss: 1 over the counted tokens of all rows */
} treadle_train_step;

/* ---- back_product.c ---- */

/* Gradients of rows of a weight: dy [rows, what is here of the weight's rows]. */
typedef struct treadle_back_term {
  const treadle_weight *weight;
  const float *dy;
  int64_t stride;
} treadle_back_term;

/* dx [rows, columns of the weights] = the sum over all terms of dy times the weight. The inner dimension is that of `leaves` leaves, of each
 * of which every term has its share, one behind the other. */
treadle_status treadle_back_input(treadle_trainer *t, const treadle_back_term *terms, int count,
                                  int64_t leaves, int64_t rows, float *dx, int64_t stride);
/* Brings x [rows, columns] into the form that the next gradients of weights need. */
void treadle_back_take_rows(treadle_trainer *t, const float *x, int64_t stride, int64_t columns,
                            int64_t rows);
/* The gradient of a weight that multiplied these rows: grad += dy^T x. */
treadle_status treadle_back_weight(treadle_trainer *t, const treadle_back_term *term,
                                   const treadle_weight *grad, int64_t rows);
/* Bytes of packed rows for a product with this inner dimension: *packed_p becomes the larger of both. */
treadle_status treadle_back_measure(treadle_trainer *t, treadle_gemm_inner inner, int64_t rows,
                                    size_t *packed_p);
/* A leaf of so many elements with the zeros that follow it. */
static inline int64_t treadle_back_leaf(int64_t elements) { return (elements + 31) / 32 * 32; }
int64_t treadle_back_tokens(int64_t rows,
                            int32_t *leaf_p); /* `rows` in leaves, all together; how large one is */

/* A row of a weight's gradient. */
float *treadle_trainer_grad(const treadle_trainer *t, const treadle_weight *grad, int64_t row);

/* ---- back_sum.c ---- */

/* grad [columns] += the sum of rows of dy. */
void treadle_back_bias(treadle_trainer *t, const treadle_weight *grad, const float *dy, int64_t stride,
                       int64_t rows);
/* Of a norm over rows of hidden: dx of row which[i] (NULL: i) += what follows from row i of dy; and the norm's gradient. */
typedef struct treadle_back_norm_rows {
  const treadle_weight *norm, *grad;
  const float *x, *dy; /* x: of the same rows as dx */
  float *dx;
  const int32_t *which;
  int64_t rows;
} treadle_back_norm_rows;
void treadle_back_norm(treadle_trainer *t, const treadle_back_norm_rows *rows);
/* Of heads: dy becomes the gradient of what was normed, in place. */
typedef struct treadle_back_heads {
  const treadle_weight *norm, *grad;
  const float *x; /* [rows, heads, dim] before the norm */
  float *dy;
  int64_t stride, heads, dim, rows;
} treadle_back_heads;
void treadle_back_norm_heads(treadle_trainer *t, const treadle_back_heads *heads);

/* ---- back_layer.c ---- */

/* buffers.dx: from the gradient of what layer `layer` gave to that of what it was given, kept[layer]. */
treadle_status treadle_back_layer(treadle_trainer *t, int32_t layer, const treadle_pass_step *step);

/* ---- back_head.c ---- */

/* Loss of a micro batch whose rows went through all layers: adds -log p in the order of rows; buffers.dx becomes its gradient. */
treadle_status treadle_back_head(treadle_trainer *t, const treadle_train_step *batch, double *nll_p);
void treadle_back_embed(treadle_trainer *t, const treadle_pass_step *step);
/* The two halves of a tied gradient become one. */
void treadle_back_tie(treadle_trainer *t);

#endif
