/* What computes backward on a rank: the pass whose weights it goes back through, where each gradient lies, and the memory in between.
 *
 *   back.h           the struct
 *   layer.h          a layer, forward with what is kept of it, and backward
 *   back_head.h      loss, head, embedding
 *   back_score.h     loss and head of a critic
 *   back_product.h   the two transposed products
 *   back_sum.h       sums over tokens
 *   sequence.h       rows of the residual stream, divided among tensor parallel ranks */
#ifndef TREADLE_TRAIN_BACK_H
#define TREADLE_TRAIN_BACK_H

#include "nn/outer.h"
#include "nn/rows_back.h"
#include "pass/lse_rows.h"
#include "pass/pass_steps.h"

enum {
  TREADLE_TOKEN_LEAF = 64,    /* tokens that norms and biases add up together */
  TREADLE_PRODUCT_LEAF = 512, /* and at most this many that products do */
  TREADLE_HEAD_LEAF = 128,    /* columns of the vocabulary */
  TREADLE_HEAD_ROWS = 512,    /* tokens whose logits are there at once */
  TREADLE_WEIGHT_ROWS = 256,  /* rows of a weight's gradient that are computed at once */
};

/* Columns that this rank has. */
typedef struct treadle_train_columns {
  int64_t keys, values, qkv; /* where keys and values begin beside the queries; all of them */
  int64_t found, inner;      /* what o and down multiply */
  int64_t vocabulary;        /* of logits */
} treadle_train_columns;

/* A token that counts: its row in the batch, its place in that, and its number among all that count. */
typedef struct treadle_train_place {
  size_t row, token, number;
} treadle_train_place;

/* A row of logits while its loss is worked out. */
typedef struct treadle_train_slopes {
  double by_logprob, by_entropy, entropy;
} treadle_train_slopes;

/* Memory of a step, for `rows` tokens. */
typedef struct treadle_train_buffers {
  float *kept; /* [layers of this rank, kept micro batches] of kept_each values */
  /* [kept micro batches, rows, hidden]: the stream after the last layer; NULL: another rank has that layer */
  float *out;
  float *again;                /* a layer that is computed again */
  float *x, *normed, *normed2; /* [rows, hidden] */
  float *dqkv;                 /* [rows, qkv] */
  float *middle, *dmiddle;     /* [rows, inner]; dmiddle: the larger of inner and found */
  float *joined;               /* [rows, joined_columns]: gradients in the order of leaves */
  float *dnormed, *dx;         /* [rows, hidden] */
  float *parts;                /* [leaves of tokens, part_columns] */
  float *head_parts;           /* [heads, head_dim]: gradients of the norms of heads */
  char *turned;                /* a weight, columns as rows */
  char *turned_x;              /* [columns, tokens] */
  float *turned_dy, *product;  /* [TREADLE_WEIGHT_ROWS, tokens], [TREADLE_WEIGHT_ROWS, columns] */
  void *packed;
  const void **pointers; /* to rows that are packed */
  float *outer;          /* of back_outer.c, for each thread */
  int64_t outer_each;    /* values of a thread */
  char *scratch;         /* of attention, for each thread */
  /* [rows of the head here, hidden]: the head's half of a tied gradient; NULL: it is not tied, or another rank has it */
  float *tied;
  float *score; /* [hidden]: the weight of a score head in fp32; NULL: another head */
  int32_t *tokens, *targets, *which;
  treadle_train_place *places; /* of a policy's tokens */
  treadle_pass_span *spans;
  int32_t *table;
  size_t scratch_bytes; /* of a thread */
} treadle_train_buffers;

/* What a rank has of a score head: all of it, where it has the last layer, or nothing. */
typedef struct treadle_score_head {
  treadle_weight weight, grad_weight; /* [1, hidden] */
  treadle_weight bias, grad_bias;     /* [1] */
} treadle_score_head;

struct treadle_train_adapters;

typedef struct treadle_back {
  treadle_pass *pass; /* has the weights, the threads, and the other ranks of the stage */
  const treadle_transformer *transformer;
  const treadle_row_back_ops *ops;
  const treadle_outer_ops *outer;          /* NULL: products are those of back_product.c */
  bool pairs;                              /* or those of back_paired.c */
  struct treadle_train_adapters *adapters; /* which are trained, and weights are not; NULL: weights are */
  treadle_layer_weights *grads;            /* [layers] where the gradients of each weight lie in `window` */
  treadle_weight grad_embed, grad_final_norm, grad_head;
  treadle_score_head score;
  char *window; /* where gradients are added up: the window of gradients, or that of a unit of shards */
  treadle_exchange *logits; /* of the stage; NULL: this rank has all columns */
  treadle_train_columns width;
  treadle_train_buffers buffers;
  int64_t rows;                  /* of a micro batch, at most */
  int64_t own_rows;              /* of these, at most, whose residual stream this rank keeps */
  int64_t key_leaves;            /* of the inner dimension: keys and values together with their queries */
  int64_t head_leaves;           /* of the vocabulary */
  int64_t kept_each, kept_count; /* values of a layer; micro batches */
  bool keeps_all;                /* layers are not computed again */
  bool sequence_parallel;
  treadle_lse_row lse_rows[TREADLE_HEAD_ROWS];
  treadle_train_slopes slopes[TREADLE_HEAD_ROWS];
  float by_value[TREADLE_HEAD_ROWS]; /* derivatives of the loss by values */
} treadle_back;

static inline bool treadle_is_there(const treadle_weight *weight) { return weight->segment_count > 0; }

#endif
