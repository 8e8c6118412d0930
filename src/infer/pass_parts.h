/* What the files of a forward pass share.
 *
 *   pass.c            the whole: chunks of layers, embedding, logits
 *   pass_weights.c    which parts of which weights this rank has, and whether they go together
 *   pass_product.c    products of rows and weights
 *   pass_attention.c  attention with grouped heads
 *   pass_latent.c     latent attention
 *   pass_mlp.c        the MLP
 *   pass_experts.c    experts
 *   pass_memory.c     activations */
#ifndef TREADLE_INFER_PASS_PARTS_H
#define TREADLE_INFER_PASS_PARTS_H

#include "infer/pass.h"
#include "nn/gemm.h"

enum { TREADLE_PASS_TERMS = 3 /* weights of one product */ };

/* What this rank has of a layer. */
typedef struct treadle_layer_weights {
  treadle_weight weight[TREADLE_ROLES];                  /* no segments: nothing, or it is of experts */
  treadle_weight *expert_gate, *expert_up, *expert_down; /* [experts]; NULL: the layer has none */
} treadle_layer_weights;

/* Heads of attention that this rank computes. */
typedef struct treadle_head_span {
  int64_t first, count;       /* of queries */
  int64_t kv_first, kv_count; /* of keys and values that these need */
} treadle_head_span;

typedef struct treadle_pass_buffers {
  float *x;      /* [rows, hidden]: the residual stream */
  float *normed; /* [rows, hidden] */
  float *wide;   /* [rows, wide_columns]: q, k, v; gate, up */
  float *middle; /* [rows, middle_columns]: what o or down multiplies */
  float *sum;    /* [nodes, rows, hidden]: sums of nodes */
  float *logits; /* [wanted, vocabulary] */
  void *packed;  /* x as a kernel reads it */
  treadle_gemm_segment *segments;
  int64_t wide_columns, middle_columns;
  size_t packed_bytes, segment_room;
} treadle_pass_buffers;

struct treadle_pass {
  const treadle_decoder *decoder;
  const treadle_layout *layout;
  const treadle_replica *replica;
  int64_t rank;
  treadle_pass_options options;
  treadle_team *team;
  treadle_layer_weights *layers; /* [layers] */
  treadle_weight embed, final_norm, head;
  treadle_head_span heads;
  int64_t attention_leaves, mlp_leaves, expert_leaves, shared_leaves; /* of the whole inner dimension */
  const char *window;
  char *cache;
  treadle_pass_buffers buffers;
  size_t work_bytes, packed_weights_bytes;
  treadle_arena arena;
};

/* ---- pass_weights.c ---- */

/* Finds the weights of all layers that the rank has, and its heads. */
treadle_status treadle_pass_find_weights(treadle_pass *pass);

static inline const void *treadle_pass_at(const treadle_pass *pass, const treadle_segment *segment) {
  return pass->window + segment->at;
}

/* ---- pass_product.c ---- */

typedef struct treadle_term {
  const treadle_weight *weight;
  int64_t column; /* of y, of the first row that is here */
} treadle_term;

typedef struct treadle_product {
  const float *x; /* [rows, what the rank has of the inner dimension] */
  int64_t rows, stride;
  int64_t leaves; /* of the whole inner dimension */
  treadle_term terms[TREADLE_PASS_TERMS];
  int terms_count;
  float *y; /* [nodes, rows, ...] */
  int64_t y_stride, node_stride;
} treadle_product;

treadle_status treadle_pass_product(treadle_pass *pass, const treadle_product *product);

#endif
