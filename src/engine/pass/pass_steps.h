/* What the files of a forward pass share.
 *
 *   pass.c            the whole: chunks of layers, embedding, logits
 *   pass_weights.c    which parts of which weights this rank has, and whether they go together
 *   pass_setup.c      positions, attention, routing, the cache
 *   pass_product.c    products of rows and weights
 *   pass_attention.c  attention with grouped heads
 *   pass_gather.c     q, k and v that lie on other ranks than their heads
 *   pass_latent.c     latent attention
 *   pass_context.h    rows of a step divided among context parallel ranks
 *   pass_attend.c     what both have in common: rows of queries and the cache
 *   pass_sum.c        sums of leaves, of this rank and the others
 *   pass_mlp.c        the MLP
 *   pass_experts.c    experts
 *   pass_ranks.c      the ranks that compute together, and what each of them brings
 *   pass_parallel.c   what they bring together
 *   pass_memory.c     activations */
#ifndef TREADLE_PASS_PASS_STEPS_H
#define TREADLE_PASS_PASS_STEPS_H

#include "nn/attention.h"
#include "nn/gemm.h"
#include "nn/leaf_tree.h"
#include "nn/parallel.h"
#include "nn/rope.h"
#include "nn/router.h"
#include "nn/rows.h"
#include "pass/pass.h"
#include "pass/pass_context.h"

enum { TREADLE_PASS_TERMS = 3 /* weights of one product */ };
#define TREADLE_LATENT_EPS 1e-6f /* of the two norms inside of latent attention, whatever the config's is */

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
  float *x;               /* [rows, hidden]: the residual stream */
  float *normed;          /* [rows, hidden] */
  float *wide;            /* [rows, wide_columns]: q, k, v; gate, up */
  float *middle;          /* [rows, middle_columns]: what o or down multiplies */
  float *all_wide;        /* [all rows, all_wide_columns]: q, k, v of this context parallel rank's heads */
  float *all_middle;      /* [all rows, all_middle_columns]: what they have found */
  float *sum;             /* [nodes, rows, hidden]: sums of nodes */
  float *logits;          /* [wanted, vocabulary] */
  void *packed;           /* x as a kernel reads it */
  float *latent_queries;  /* [rows, heads, latent + rope] */
  float *latent_found;    /* [rows, heads, latent] */
  char *scratch;          /* of attention, for each thread */
  float *slots;           /* [rows, top, hidden]: results of experts, complete */
  float *gathered;        /* [rows, hidden]: rows of one expert */
  int64_t *places;        /* [rows]: their slots */
  float *scores;          /* [threads, 3, experts] */
  float *shared_scale;    /* [rows] */
  float *shared;          /* [rows, hidden]: of the shared expert */
  treadle_routed *routed; /* [rows, top] */
  treadle_gemm_segment *segments;
  int64_t wide_columns, middle_columns, all_wide_columns, all_middle_columns, nodes, expert_nodes;
  int64_t scratch_bytes; /* of a thread */
  size_t packed_bytes, head_packed_bytes /* of a thread, within packed */, segment_room;
} treadle_pass_buffers;

/* Of a layer: does no rank of the stage before this one have the same part? */
typedef struct treadle_pass_speaks {
  bool attention, mlp, shared;
} treadle_pass_speaks;

/* A node of the leaves of an expert: node `number` of those that a rank of the stage brings. */
typedef struct treadle_expert_node {
  int32_t member, number;
  treadle_leaf_node node;
} treadle_expert_node;

/* Columns of q, k and v that another rank of the stage computes and this one needs, or this one itself. */
typedef struct treadle_head_copy {
  int32_t member;
  int64_t from, to, count; /* columns of what the member brings, and of buffers.wide */
} treadle_head_copy;

/* Where ranks have other rows of q, k and v than their heads need: Megatron's with more tensor parallel ranks than key and value
 * heads. */
typedef struct treadle_head_gather {
  int64_t columns; /* that a rank brings; 0: every rank has what it needs */
  int32_t copy_count;
  treadle_head_copy *copies;
} treadle_head_gather;

/* The other ranks of the replica. The ranks that have the same layers are a stage. */
typedef struct treadle_pass_ranks {
  treadle_board *board; /* NULL, as all of it: this rank is alone */
  treadle_board_set *all, *stage;
  treadle_exchange *within, *across; /* of the stage, of all; NULL: the replica is this rank */
  treadle_weight *embed;             /* [ranks of the stage] rows of the embedding */
  treadle_pass_speaks *speaks;       /* [layers] */
  bool speaks_head;
  treadle_head_gather gather;
  bool *brings; /* [experts] this rank's results of the expert are used */
  treadle_expert_node *
      *expert_nodes;          /* [experts][expert_node_count] together all leaves, each once, in order */
  int32_t *expert_node_count; /* [experts] */
} treadle_pass_ranks;

/* A copy of a matrix in the type of the pass: all rows and columns that are here, without gaps. */
typedef struct treadle_pass_copy {
  treadle_weight *weight;
  const treadle_segment *from; /* [from_count] in the window */
  treadle_segment *whole;      /* [from_count] the same rows in the copy */
  treadle_dtype dtype;         /* in the window */
  int32_t from_count;
  size_t bytes;
  char *to;
  struct treadle_pass_copy *next;
} treadle_pass_copy;

struct treadle_pass {
  const treadle_transformer *transformer;
  const treadle_layout *layout;
  const treadle_replica *replica;
  int64_t rank;
  treadle_pass_options options;
  char kernels[72]; /* what options.kernels points to; no name is as long */
  treadle_team *team;
  const treadle_row_ops *row_ops;
  treadle_layer_weights *layers; /* [layers] */
  treadle_weight embed, final_norm, head;
  treadle_head_span heads;
  treadle_rope rope;
  treadle_kv_shape kv;
  treadle_attention_spec attention;
  const treadle_attention_ops *attention_ops;
  int32_t *cache_place; /* [layers]: which one of this rank's layers */
  int64_t cache_layers;
  treadle_router router;
  float *router_bias;        /* [layers, experts]; NULL: there is none */
  char **latent_copies;      /* [layers]; NULL: not of latent attention */
  treadle_pass_copy *copies; /* a list; NULL: all matrices are of the pass's type */
  int64_t attention_leaves, mlp_leaves, expert_leaves, shared_leaves; /* of the whole inner dimension */
  const char *window;
  const int64_t *shift; /* [storage tensors]; NULL: all lie where the layout says */
  char *cache;
  treadle_pass_buffers buffers;
  treadle_pass_ranks ranks;
  treadle_pass_context context;
  size_t work_bytes, packed_weights_bytes;
  char kernels_used[96]; /* "amx, avx512": each that a product of this rank is done by */
  treadle_arena arena;
};

/* Work on rows, of this many values: of all threads, or of the caller alone where it is done before another thread begins. A part does its
 * share of the rows whatever the number of parts is. */
static inline void treadle_pass_share(const treadle_pass *pass, treadle_team_part part, void *context,
                                      int64_t values) {
  enum { FEW = 4096 };
  if (values <= FEW)
    part(context, 0, 1);
  else
    treadle_team_run(pass->team, part, context);
}

/* ---- pass.c ---- */

/* buffers.x: the embedding of a step's rows. */
treadle_status treadle_pass_embed(treadle_pass *pass, const treadle_pass_step *step);
/* buffers.normed: row i of row which[i] (NULL: i) of buffers.x. */
void treadle_pass_norm(treadle_pass *pass, const treadle_weight *norm, const int32_t *which, int64_t rows);
/* buffers.x, through a layer. */
treadle_status treadle_pass_layer(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);

/* ---- pass_weights.c ---- */

/* The heads that go with a part of o, whose columns they are. */
treadle_head_span treadle_pass_heads_of(const treadle_transformer *transformer, const treadle_weight *o);
/* Finds the weights of all layers that the rank has, and its heads. */
treadle_status treadle_pass_find_weights(treadle_pass *pass);

/* The leaves that the rank has of an inner dimension of this many. */
static inline treadle_leaf_range treadle_pass_leaves(const treadle_weight *weight, int64_t leaves) {
  int64_t leaf = weight->columns / leaves;
  return (treadle_leaf_range){.first = (int32_t)(weight->first_column / leaf),
                              .leaves = (int32_t)(weight->column_count / leaf),
                              .all = (int32_t)leaves};
}

static inline const void *treadle_pass_at(const treadle_pass *pass, const treadle_segment *segment) {
  const char *base = segment->copy ? segment->copy : pass->window;
  return base + segment->at + (pass->shift && !segment->copy ? pass->shift[segment->storage] : 0);
}

/* ---- pass_copies.c ---- */

/* Matrices of another type than the pass computes in: copies, which are filled each time weights are bound. */
treadle_status treadle_pass_take_copies(treadle_pass *pass);
void treadle_pass_place_copy(treadle_pass_copy *copy, char *to);
void treadle_pass_fill_copies(treadle_pass *pass);

/* ---- pass_setup.c ---- */

treadle_status treadle_pass_set_up(treadle_pass *pass);
/* Takes the router's biases from the window. */
void treadle_pass_copy_bias(treadle_pass *pass);

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
  bool gated; /* the first term is multiplied by silu of the second */
} treadle_product;

/* Can the products with these two, which have one leaf, be one that is gated? */
bool treadle_pass_can_gate(const treadle_pass *pass, const treadle_weight *weight,
                           const treadle_weight *gates);

treadle_status treadle_pass_product(treadle_pass *pass, const treadle_product *product);

/* ---- pass_sum.c ---- */

/* Adds a vector that lies in segments to a row. */
void treadle_pass_add_bias(const treadle_pass *pass, float *row, const treadle_weight *bias);

/* The end of a product whose inner dimension a mesh may cut: x += the sum of all leaves + bias, for all rows. This rank's sums are in
 * buffers.sum, and `weight` says of which leaves. */
treadle_status treadle_pass_add_sum(treadle_pass *pass, const treadle_weight *weight, int64_t leaves,
                                    const treadle_weight *bias, bool speaks, int64_t rows);

/* ---- pass_ranks.c ---- */

bool treadle_pass_has_chunk(const treadle_pass *pass, int32_t chunk);
/* Does no rank of the stage before this one have the same part of the tensor? After the ranks have met. */
treadle_status treadle_pass_is_first(treadle_pass *pass, int32_t tensor, const treadle_weight *mine,
                                     bool *first_p);
/* Refuses ranks that cannot do their part of the layers. */
treadle_status treadle_pass_check_stage(const treadle_pass *pass);

/* ---- pass_parallel.c ---- */

/* buffers.sum: from the sums of this rank's leaves to those of all. */
treadle_status treadle_pass_sum(treadle_pass *pass, const treadle_weight *weight, int64_t leaves,
                                bool speaks, int64_t rows);
/* buffers.x: rows of the embedding that this rank has, to all rows. */
treadle_status treadle_pass_gather_rows(treadle_pass *pass, const int32_t *tokens, int64_t rows);
/* buffers.x, from the ranks of a chunk to those of the next one. */
treadle_status treadle_pass_hand_over(treadle_pass *pass, int32_t chunk, int64_t rows);
/* From columns of logits, in the room of `across`, to buffers.logits. */
treadle_status treadle_pass_gather_logits(treadle_pass *pass, int64_t rows);
/* Where the experts leave their results, [nodes, rows * top, hidden]; then all ranks meet. */
float *treadle_pass_expert_room(treadle_pass *pass);
treadle_status treadle_pass_bring_experts(treadle_pass *pass, int64_t rows);
/* Then: what an expert made in place `place` of this many, [hidden]. Any thread, a place each. */
const float *treadle_pass_expert_slot(const treadle_pass *pass, int32_t expert, int64_t place,
                                      int64_t places);

/* ---- pass_mlp.c ---- */

typedef struct treadle_gated { /* the matrices of an MLP, of an expert, of the shared expert */
  const treadle_weight *gate, *up, *down, *gate_bias, *up_bias; /* no segments, or NULL: there is no bias */
  int64_t leaves;
} treadle_gated;

/* y [nodes, rows, hidden] = the sums of this rank's leaves, of x [rows, hidden]. */
treadle_status treadle_pass_gated(treadle_pass *pass, const treadle_gated *mlp, const float *x,
                                  int64_t rows, float *y, int64_t node_stride);
/* The first half of it, where gate and up are wanted: buffers.wide has both, with their biases, side by side, and buffers.middle
 * silu(gate) * up. */
treadle_status treadle_pass_gate_up(treadle_pass *pass, const treadle_gated *mlp, const float *x,
                                    int64_t rows);
treadle_gated treadle_pass_mlp_of(const treadle_pass *pass, int32_t layer);
/* The second half: from buffers.middle into the residual stream. */
treadle_status treadle_pass_down(treadle_pass *pass, int32_t layer, int64_t rows);
/* Of all rows of a step, from buffers.normed into the residual stream. */
treadle_status treadle_pass_mlp(treadle_pass *pass, int32_t layer, int64_t rows);

/* ---- pass_attention.c ---- */

treadle_status treadle_pass_attention(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Its halves: q, k and v of all rows into buffers.wide; then all that follows, where buffers.wide gets q, k and v as they are
 * compared, and buffers.middle what o multiplies. */
treadle_status treadle_pass_project(treadle_pass *pass, int32_t layer, int64_t rows);
treadle_status treadle_pass_attend_rows(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);

/* ---- pass_gather.c ---- */

/* Finds who has the rows of q, k and v that the heads of this rank need. */
treadle_status treadle_pass_find_heads(treadle_pass *pass);
/* Columns of q, k and v that this rank computes. */
int64_t treadle_pass_head_columns(const treadle_pass *pass);
/* buffers.wide: q, k and v of this rank's heads, with their biases, out of what all ranks of the stage compute. */
treadle_status treadle_pass_gather_heads(treadle_pass *pass, int32_t layer, int64_t rows);

/* ---- pass_latent.c ---- */

treadle_status treadle_pass_latent(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Makes the copies of weights, which are in the window now. */
treadle_status treadle_pass_copy_latent(treadle_pass *pass);

/* ---- pass_attend.c ---- */

typedef struct treadle_attention_view {
  const float *queries; /* [rows, heads, key dim] */
  float *out;           /* [rows, heads, value dim] */
  int64_t query_stride, out_stride;
} treadle_attention_view;

treadle_kv_blocks treadle_pass_blocks(const treadle_pass *pass, int32_t layer,
                                      const treadle_pass_span *stretch);
void treadle_pass_attend(treadle_pass *pass, int32_t layer, const treadle_pass_step *step,
                         const treadle_attention_view *view);
/* The end of attention: x += o times what the heads have found, which is in buffers.middle. */
treadle_status treadle_pass_add_heads(treadle_pass *pass, int32_t layer, int64_t rows);

/* ---- pass_experts.c ---- */

treadle_status treadle_pass_experts(treadle_pass *pass, int32_t layer, int64_t rows);

/* ---- pass_memory.c ---- */

/* How much memory activations and copies of weights take; then: where they lie in it. */
treadle_status treadle_pass_measure(treadle_pass *pass);
void treadle_pass_place(treadle_pass *pass, void *memory);

#endif
