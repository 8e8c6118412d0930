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
 *   pass_groups.c     experts of ranks whose groups have other rows
 *   pass_record.c     the experts that tokens chose, kept in the cache
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

enum {
  TREADLE_PASS_TERMS = 3,   /* weights of one product */
  TREADLE_EXPERT_ROWS = 512 /* of an expert, that are computed at once */
};
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
  float *x;              /* [rows, hidden]: the residual stream */
  float *normed;         /* [rows, hidden] */
  float *wide;           /* [rows, wide_columns]: q, k, v; gate, up */
  float *middle;         /* [rows, middle_columns]: what o or down multiplies */
  float *all_wide;       /* [all rows, all_wide_columns]: q, k, v of this context parallel rank's heads */
  float *all_middle;     /* [all rows, all_middle_columns]: what they have found */
  float *sum;            /* [nodes, rows, hidden]: sums of nodes */
  float *logits;         /* [wanted, vocabulary] */
  void *packed;          /* x as a kernel reads it */
  float *latent_queries; /* [rows, heads, latent + rope] */
  float *latent_found;   /* [rows, heads, latent] */
  char *scratch;         /* of attention, for each thread */
  float *
      slots; /* [rows, top, hidden]: results of experts; behind them [rows, top] for backward. With groups [rows, hidden] */
  float *gathered; /* [expert rows, hidden]: rows of one expert */
  int64_t *
      places; /* [rows * top]: slots of each expert together, ascending; with groups [round rows * top]: rows */
  int64_t *expert_begin;  /* [experts + 1]: where the slots of an expert begin in places */
  int64_t held;           /* experts of a layer, at most */
  const float **brought;  /* [round rows] with groups, of a round: what treadle_pass_bring_rows says */
  int64_t *turns;         /* [round rows, top] which one of its expert's rows it is */
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

/* Groups with rows of their own. The ranks of a stage in all groups bring each expert its rows, and get its results. The rows of all
 * groups, one group's after the other's, go in rounds of as many as a pass takes. Where groups are context parallel ranks, a round has
 * the rows of all. */
typedef struct treadle_pass_groups {
  treadle_board_set *set;      /* NULL, as all of it: there is one group */
  treadle_exchange *exchange;  /* of the set */
  int count, own;              /* groups; this rank's */
  int *group, *place, *shares; /* [ranks of the set] its group, which rank of it, of how many */
  int64_t *begin;              /* [count + 1] where the rows of each begin, in the present step */
  int64_t *chosen,
      *first; /* [experts] rows of the round that chose it, and where they are in buffers.places */
  int64_t *
      *start; /* [experts][expert_node_count] where a node's results begin, in rows of its rank's room */
  int64_t *filled;    /* [ranks of the set] rows of its room */
  int64_t round, end; /* rows of all groups that this round has */
} treadle_pass_groups;

/* The other ranks of its group. The ranks that have the same layers are a stage. */
typedef struct treadle_pass_ranks {
  treadle_board *board; /* NULL, as all of it: this rank is alone */
  treadle_board_set *all, *stage;
  treadle_exchange *within, *across; /* of the stage, of all; NULL: they are this rank */
  treadle_pass_groups groups;
  treadle_weight *embed;       /* [ranks of the stage] rows of the embedding */
  treadle_pass_speaks *speaks; /* [layers] */
  bool speaks_head;
  treadle_head_gather gather;
  bool *brings; /* [experts] this rank's results of the expert are used */
  treadle_expert_node *
      *expert_nodes;          /* [experts][expert_node_count] together all leaves, each once, in order */
  int32_t *expert_node_count; /* [experts] */
  int32_t *
      expert_source; /* [experts] the member whose results are used of the part that this rank has; -1: it has none */
  bool *expert_copied; /* [experts] some rank of the stage has a part whose results are another one's */
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
/* What a rank of a layout has of a layer. */
treadle_status treadle_layer_weights_find(const treadle_transformer *transformer,
                                          const treadle_layout *layout, int64_t rank, int32_t layer,
                                          treadle_arena *arena, treadle_layer_weights *weights);
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
  bool fine;  /* x is not rounded (nn/gemm.h) */
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
/* Where the experts leave their results, [nodes, places, hidden]; then all ranks meet, with this many rows of hidden. */
float *treadle_pass_expert_room(treadle_pass *pass);
treadle_status treadle_pass_bring_experts(treadle_pass *pass, int64_t rows);
/* Then: what an expert made in a place, [each]. Any thread, a place each. With groups, where results begin is known for
 * each expert; `at` not 0: they are behind those of hidden values. */
typedef struct treadle_expert_results {
  int64_t at, own;      /* where they begin in the room, [nodes, places, each], and in buffers.slots */
  int64_t each, places; /* values of a place; places */
} treadle_expert_results;
const float *treadle_pass_expert_result(const treadle_pass *pass, const treadle_expert_results *results,
                                        int32_t expert, int64_t place);
/* What all nodes of an expert add up to, from their values, [expert_node_count][columns]: one node's own, or `to`. */
const float *treadle_pass_combine_nodes(const treadle_pass *pass, int32_t expert,
                                        const float *const *values, int64_t columns, float *to);

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
/* Then: y [nodes, rows, hidden], of buffers.middle. */
treadle_status treadle_pass_multiply_down(treadle_pass *pass, const treadle_gated *mlp, int64_t rows,
                                          float *y, int64_t node_stride);
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
/* Has this rank the rows of q, k and v that its heads need? */
bool treadle_pass_has_heads(const treadle_pass *pass);
/* buffers.wide: q, k and v of this rank's heads, with their biases, out of what all ranks of the stage compute. */
treadle_status treadle_pass_gather_heads(treadle_pass *pass, int32_t layer, int64_t rows);

/* ---- pass_latent.c ---- */

treadle_status treadle_pass_latent(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Its three parts. _down: from buffers.normed, the latent and the key's part by position go behind the queries in
 * buffers.wide; narrow queries go into buffers.middle, and a layer without them has its queries in buffers.wide.
 * _up: from narrow queries, which are normed in place, to queries. _attend does the rest: buffers.wide then has queries
 * and keys as they are compared, buffers.latent_found what each head finds, buffers.middle what o multiplies. */
treadle_status treadle_pass_latent_down(treadle_pass *pass, int32_t layer, int64_t rows);
treadle_status treadle_pass_latent_up(treadle_pass *pass, int32_t layer, int64_t rows);
treadle_status treadle_pass_latent_attend(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Norms narrow queries in buffers.middle, where the layer has them. */
void treadle_pass_norm_narrow(treadle_pass *pass, int32_t layer, int64_t rows);
/* Makes buffers.latent_queries from the queries in buffers.wide once more; and the adjoint: from gradients in
 * buffers.latent_queries to those of the queries' parts without position, in buffers.wide. */
treadle_status treadle_pass_latent_queries(treadle_pass *pass, int32_t layer, int64_t rows);
treadle_status treadle_pass_latent_queries_back(treadle_pass *pass, int32_t layer, int64_t rows);
/* Copies a layer's weights for queries from the window, where the layer has latent attention. */
void treadle_pass_copy_latent(treadle_pass *pass, int32_t layer);

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

treadle_status treadle_pass_experts(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Its end, of rows from `first` on: what their experts and the shared one have made, into the residual stream. */
void treadle_pass_add_slots(treadle_pass *pass, int32_t layer, int64_t first, int64_t rows);

/* ---- pass_groups.c ---- */

/* The ranks of the stage in all groups, and what each brings. */
treadle_status treadle_pass_join_groups(treadle_pass *pass, int32_t stage, const treadle_pass_board *room);
/* Elements that a rank brings at once; rows of a round, at most. */
int64_t treadle_pass_measure_groups(const treadle_pass *pass);
static inline int64_t treadle_pass_round_rows(const treadle_pass *pass) {
  return pass->context.ranks > 1 ? pass->options.most_all_rows : pass->options.most_rows;
}
/* Of context parallel ranks that are groups: `rows` rows of all are divided among them from now on. */
void treadle_pass_divide_rows(treadle_pass *pass, int64_t rows);
/* Of this group's rows, which are routed, and of all others, as often as needed. */
treadle_status treadle_pass_run_groups(treadle_pass *pass, int32_t layer);
/* treadle_pass_expert_result, of several groups; until the next one of the same row. */
const float *treadle_pass_group_slot(const treadle_pass *pass, const treadle_expert_results *results,
                                     int32_t expert, int64_t place);

/* Its parts, of which all groups go through the same. Of each round: which of its own rows it has, maybe none. */
typedef treadle_status (*treadle_group_work)(void *context, int32_t layer, const treadle_row_range *own);
treadle_status treadle_pass_each_round(treadle_pass *pass, int32_t layer, treadle_group_work work,
                                       void *context);
/* What a group has of its rows; dy: the gradients of what its experts gave, or NULL. */
typedef struct treadle_group_rows {
  const float *x, *dy;
  const treadle_routed *routed;
} treadle_group_rows;
/* buffers.brought, of all rows of a round: x and the numbers of experts; with dy, then this and the weights of experts. */
treadle_status treadle_pass_bring_rows(treadle_pass *pass, const treadle_group_rows *own);
/* Then: the rows of each expert, buffers.places from groups.first[expert] on, and where its results will be. */
void treadle_pass_place_rows(treadle_pass *pass);
/* Where results of this rank begin that brings an expert, in rows of its room. */
int64_t treadle_pass_group_start(const treadle_pass *pass, int32_t expert);
/* Ranks show each other their results, `rows` rows of hidden. */
treadle_status treadle_pass_show_results(const treadle_pass *pass, int64_t rows);

/* ---- pass_record.c ---- */

/* A token's experts of a layer [top], as they are recorded; and one of them. */
static inline int32_t treadle_pass_recorded(const unsigned char *record, int64_t k) {
  return record[2 * k] + 256 * record[2 * k + 1];
}
void treadle_pass_write_choice(const treadle_routed *routed, int64_t top, unsigned char *to);
/* Notes the experts of a layer, of a step's rows, which are routed. */
void treadle_pass_record(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* Then, of all layers: the ranks of each stage bring theirs to those of the others. */
treadle_status treadle_pass_share_record(treadle_pass *pass, const treadle_pass_step *step);
/* Elements that a rank brings at once. */
int64_t treadle_pass_measure_record(const treadle_pass *pass);
/* Of a block of the cache: bytes behind keys and values. */
int64_t treadle_pass_record_room(const treadle_pass *pass);

/* Its parts. How a layer routes; buffers.routed and, in buffers.wide, the router's logits, from buffers.normed. */
treadle_router treadle_pass_router(const treadle_pass *pass, int32_t layer);
treadle_status treadle_pass_route(treadle_pass *pass, int32_t layer, const treadle_pass_step *step);
/* buffers.shared_scale: the logits of the shared expert's gate, where it has one; then, from this rank's sums in buffers.sum, buffers.shared. */
treadle_status treadle_pass_scale_shared(treadle_pass *pass, int32_t layer, int64_t rows);
treadle_status treadle_pass_sum_shared(treadle_pass *pass, int32_t layer, int64_t rows);
float treadle_pass_shared_scale(float logit);
treadle_gated treadle_pass_shared_of(const treadle_pass *pass, int32_t layer);
/* By buffers.routed: experts, and what they and the shared one found into the residual stream; buffers.normed is gone. */
treadle_status treadle_pass_run_experts(treadle_pass *pass, int32_t layer, int64_t rows);

/* A block of the rows of one expert: the slots that they go to, of a step's `of` rows. */
typedef struct treadle_expert_rows {
  int32_t expert;
  const int64_t *places; /* [count] */
  int64_t count, of;
  int64_t nodes; /* of leaves, that this rank has of its result */
} treadle_expert_rows;

typedef treadle_status (*treadle_expert_work)(void *context, int32_t layer,
                                              const treadle_expert_rows *rows);
/* buffers.places and expert_begin, from [rows, top] choices. */
void treadle_pass_list_places(treadle_pass *pass, const treadle_routed *routed, int64_t rows);
/* Then: all rows of an expert, of a step's `rows`. */
treadle_expert_rows treadle_pass_rows_of(const treadle_pass *pass, int32_t layer, int32_t expert,
                                         int64_t rows);
/* And experts that this rank answers for, ascending, block by block. */
treadle_status treadle_pass_each_block(treadle_pass *pass, int32_t layer, int64_t rows,
                                       treadle_expert_work work, void *context);
/* Does this rank answer for an expert, or for its part of one? */
bool treadle_pass_brings(const treadle_pass *pass, int32_t layer, int32_t expert);
treadle_gated treadle_pass_expert_of(const treadle_pass *pass, int32_t layer, int32_t expert);
/* to [count, hidden]: the tokens' rows of `from`; then, from results [nodes, count, hidden] to the slots of `to`, [nodes, of * top, hidden]. */
void treadle_pass_gather_places(const treadle_pass *pass, const int64_t *places, int64_t count,
                                const float *from, float *to);
void treadle_pass_scatter_places(const treadle_pass *pass, const treadle_expert_rows *rows,
                                 const float *from, float *to);

/* ---- pass_memory.c ---- */

/* How much memory activations and copies of weights take; then: where they lie in it. */
treadle_status treadle_pass_measure(treadle_pass *pass);
void treadle_pass_place(treadle_pass *pass, void *memory);

#endif
