/* What computes backward on a rank: the pass whose weights it goes back through, where each gradient lies, and the memory in between.
 *
 *   back.h           the struct
 *   layer.h          a layer, forward with what is kept of it, and backward
 *   latent.h         the attention of a layer, where it is latent
 *   back_attend.h    attention itself
 *   back_head.h      loss, head, embedding
 *   back_score.h     loss and head of a critic
 *   back_product.h   the two transposed products
 *   back_mlp.h       a gated MLP backward
 *   back_experts.h   experts backward
 *   back_sum.h       sums over tokens
 *   sequence.h       rows of the residual stream, divided among tensor parallel ranks
 *   context.h        tokens of a micro batch, divided among context parallel ranks
 *   context_experts.h  their experts */
#ifndef TREADLE_TRAIN_BACK_H
#define TREADLE_TRAIN_BACK_H

#include "nn/outer.h"
#include "nn/rows_back.h"
#include "pass/lse_rows.h"
#include "pass/pass_steps.h"

enum {
  TREADLE_TOKEN_LEAF = TREADLE_CONTEXT_LEAF, /* tokens that norms and biases add up together */
  TREADLE_PRODUCT_LEAF = 512,                /* and at most this many that products do */
  TREADLE_HEAD_LEAF = 128,                   /* columns of the vocabulary */
  TREADLE_HEAD_ROWS = 512,                   /* tokens whose logits are there at once */
  TREADLE_WEIGHT_ROWS = 256,                 /* rows of a weight's gradient that are computed at once */
};

/* Columns that this rank has. Latent attention has one key beside the queries: the latent, which is also the value, and
 * the part by position. */
typedef struct treadle_train_columns {
  int64_t keys, values, qkv;  /* where keys and values begin beside the queries; all of them */
  int64_t found;              /* what o multiplies */
  int64_t narrow, latent;     /* latent attention: of narrow queries; of what heads find of the latent */
  int64_t mlp, shared, inner; /* what down multiplies, of an MLP, of a shared expert; the larger of both */
  int64_t expert;             /* of an expert */
  int64_t vocabulary;         /* of logits */
} treadle_train_columns;

/* A token that counts: its row in the batch, its place in that, and its number among all that count. */
typedef struct treadle_train_place {
  size_t row, token, number;
} treadle_train_place;

/* A row of logits while its loss is worked out. */
typedef struct treadle_train_slopes {
  double by_logprob, by_entropy, entropy;
} treadle_train_slopes;

/* Of latent attention. */
typedef struct treadle_train_latent_buffers {
  float *narrow, *dnarrow; /* [rows, narrow] */
  float *dlatent;          /* [leaves of o, rows, key + latent]: gradients of keys, and of values */
  float *dkeys;            /* [rows, latent + rope] */
} treadle_train_latent_buffers;

/* Of experts. */
typedef struct treadle_train_expert_buffers {
  float *dy, *gate_up; /* of a block of an expert's rows: [hidden], [2 * expert] */
  double *row_losses;  /* [rows]: of the router */
  float *by_shared;    /* [rows]: derivatives by the gate of the shared expert */
} treadle_train_expert_buffers;

/* Memory of a step, for `rows` tokens. */
typedef struct treadle_train_buffers {
  float *kept; /* [layers of this rank, kept micro batches] of kept_each values */
  /* [kept micro batches, rows, hidden]: the stream after the last layer; NULL: another rank has that layer */
  float *out;
  float *again;                /* a layer that is computed again */
  float *x, *normed, *normed2; /* [rows, hidden] */
  float *dqkv;                 /* [rows, qkv] */
  float *middle,
      *dmiddle; /* [rows, inner]; dmiddle: the larger of inner and found; both: of a block of an expert's rows */
  float *joined;       /* [rows, joined_columns]: gradients in the order of leaves */
  float *dnormed, *dx; /* [rows, hidden] */
  treadle_train_latent_buffers latent;
  treadle_train_expert_buffers experts;
  float *parts;               /* [leaves of tokens, part_columns] */
  float *head_parts;          /* [heads, head_dim]: gradients of the norms of heads */
  char *turned;               /* a weight, columns as rows */
  char *turned_x;             /* [columns, tokens] */
  float *turned_dy, *product; /* [TREADLE_WEIGHT_ROWS, tokens], [TREADLE_WEIGHT_ROWS, columns] */
  void *packed;
  const void **pointers; /* to rows that are packed */
  float *outer;          /* of back_outer.c, for each thread */
  int64_t outer_each;    /* values of a thread */
  char *scratch;         /* of attention, for each thread */
  float *
      apart; /* gradients that lie outside of the window: `tied`, then those of leaves of tokens (back_weights.c) */
  /* [rows of the head here, hidden]: the head's half of a tied gradient; NULL: it is not tied, or another rank has it */
  float *tied;
  int64_t apart_leaves,
      apart_each; /* of context parallel ranks: where those of leaves begin; values of one */
  float *leaf;    /* [TREADLE_PRODUCT_LEAF, what a row brings]: a leaf of rows of several ranks */
  float *head_x;  /* [TREADLE_HEAD_ROWS, hidden]: rows of all ranks before the last norm */
  float *score;   /* [hidden]: the weight of a score head in fp32; NULL: another head */
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

/* How the rows of all context parallel ranks choose among a layer's experts (context_experts.h). */
typedef struct treadle_train_choices {
  int64_t *before; /* [experts] rows of the ranks before this one that chose it */
  int64_t *begin;  /* [experts + 1] choices of the experts before it, of all ranks */
} treadle_train_choices;

/* Context parallel ranks divide the tokens of a micro batch (context.h). ranks 1: this rank has all of its own. */
typedef struct treadle_train_context {
  int32_t ranks, index;
  int64_t rows, now; /* of a micro batch, on all ranks: at most; of the one at hand */
  treadle_layer_weights
      *grads; /* [layers] the rows of each gradient that this rank adds up; NULL: ranks is 1 */
  treadle_train_choices choices;
} treadle_train_context;

typedef struct treadle_back {
  treadle_pass *pass; /* has the weights, the threads, and the other ranks of the stage */
  const treadle_transformer *transformer;
  const treadle_row_back_ops *ops;
  const treadle_outer_ops *outer;          /* NULL: products are those of back_product.c */
  bool pairs;                              /* or those of back_paired.c */
  struct treadle_train_adapters *adapters; /* which are trained, and weights are not; NULL: weights are */
  treadle_layer_weights *grads;            /* [layers] where the gradients of each weight lie in `window` */
  treadle_weight grad_embed, grad_final_norm, grad_head;
  treadle_train_context context;
  treadle_weight own_head, own_grad_head; /* the rows of the head whose logits are this rank's */
  treadle_score_head score;
  struct treadle_train_routers *routers;
  char *window; /* where gradients are added up: the window of gradients, or that of a unit of shards */
  treadle_exchange *logits;    /* of the stage; NULL: this rank has all columns */
  treadle_exchange *head_sums; /* the same, of sums over columns */
  treadle_train_columns width,
      attended; /* attended: of the heads that this context parallel rank compares */
  treadle_train_buffers buffers;
  int64_t rows;                  /* of a micro batch, at most; of context parallel ranks, this one's */
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
