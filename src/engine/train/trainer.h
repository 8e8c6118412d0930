/* What the files of the training engine share.
 *
 * The forward pass is that of src/engine/pass, function by function, so a token's log-probability has the same bits in training and in
 * scoring. Backward takes the adjoint of each part, last part first, from what forward has kept; or, with recomputation, forward keeps the
 * residual stream before each layer alone, and backward runs the layer again.
 *
 *   trainer.c        the whole: what there is to it, and how it is made
 *   memory.c         the memory that both passes compute in
 *   ranks.c          the ranks that compute together, and what each of them brings
 *   shards.c         FSDP2: shards, gathered a layer at a time
 *   pipeline.c       in which order a rank takes micro batches through its layers
 *   gradients*.c     rows in micro batches, forward and backward (gradients.h)
 *   layer.c          a layer forward, and what is kept of it
 *   sequence.c       rows of the residual stream, divided among tensor parallel ranks
 *   back_layer.c     the adjoints of the parts of a layer
 *   back_head.c      loss, head, embedding
 *   back_product.c   the two transposed products, by the kernels of forward
 *   back_outer.c     the same in fp32, by outer products
 *   back_paired.c    the same in bf16, by kernels that take pairs of rows
 *   back_sum.c       sums over tokens: gradients of norms and biases
 *   optimizer.c      AdamW
 *   random_weights.c what a model without weights begins with
 *
 * Gradients are fp32, in a window of the same layout as the weights with dtype=fp32. */
#ifndef TREADLE_TRAIN_TRAINER_H
#define TREADLE_TRAIN_TRAINER_H

#include "nn/attention_back.h"
#include "nn/outer.h"
#include "nn/rows_back.h"
#include "pass/lse_rows.h"
#include "pass/pass_steps.h"
#include "train/adam.h"
#include "train/pipeline.h"
#include "treadle_builtin.h"

enum {
  TREADLE_TOKEN_LEAF = 64,    /* tokens that norms and biases add up together */
  TREADLE_PRODUCT_LEAF = 512, /* and at most this many that products do */
  TREADLE_HEAD_LEAF = 128,    /* columns of the vocabulary */
  TREADLE_HEAD_ROWS = 512,    /* tokens whose logits are there at once */
  TREADLE_WEIGHT_ROWS = 256,  /* rows of a weight's gradient that are computed at once */
  TREADLE_TRAIN_CHUNKS = 30,  /* of layers, in a pipeline */
  TREADLE_TRAIN_MEMORIES = 8,
};

/* Columns that this rank has. */
typedef struct treadle_train_columns {
  int64_t keys, values, qkv; /* where keys and values begin beside the queries; all of them */
  int64_t found, inner;      /* what o and down multiply */
  int64_t vocabulary;        /* of logits */
} treadle_train_columns;

/* What backward needs of a layer, of one micro batch. */
typedef struct treadle_train_activations {
  float *x;         /* [own rows, hidden]: the residual stream before the layer */
  float *middle_x;  /* [own rows, hidden]: between its halves */
  float *qkv, *raw; /* [rows, qkv]; raw: before norms of heads and rotation, where there are such norms */
  float *found;     /* [rows, found] */
  float *gate_up;   /* [rows, 2 * inner] */
} treadle_train_activations;

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
  float *
      out; /* [kept micro batches, rows, hidden]: the stream behind the last layer; NULL: another rank has that */
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
  float *
      tied; /* the head's half of a tied gradient, [rows of the head here, hidden]; NULL: it is not tied, or
                  * another rank has it */
  int32_t *tokens, *targets, *which;
  treadle_train_place *places; /* of a policy's tokens */
  treadle_pass_span *spans;
  int32_t *table;
  size_t scratch_bytes; /* of a thread */
} treadle_train_buffers;

/* A chunk of this rank's layers, and the ways that its rows take. NULL: it is the first, or the last. */
typedef struct treadle_train_chunk {
  int32_t number, first_layer, end_layer;
  int32_t place; /* of its first layer among this rank's */
  treadle_ring *from_before, *to_next, *from_next, *to_before;
} treadle_train_chunk;

/* Elements that a rank brings at once; all ranks use the largest. */
typedef struct treadle_train_room {
  treadle_pass_board pass;
  uint64_t logits, pieces, rows; /* of the stage's logits; of windows; of a ring's slot */
  int64_t slots;                 /* of a ring */
  int64_t chunks;                /* of a rank */
} treadle_train_room;

/* Whom this rank computes with. All NULL: it is alone. */
typedef struct treadle_train_ranks {
  treadle_group *group;
  treadle_board *board;
  treadle_exchange *logits; /* of the stage */
  treadle_exchange
      *replicas;          /* the ranks of other replicas with the same part; NULL: there is one replica */
  treadle_exchange *ends; /* the two stages that have halves of a tied gradient */
  treadle_train_room room;
  size_t board_bytes;
} treadle_train_ranks;

/* State of this rank's share of the window of gradients, element by element. */
typedef struct treadle_train_optimizer {
  const treadle_adam_ops *ops;
  float *master, *exp_avg,
      *exp_avg_sq; /* master: NULL: weights are fp32; exp_avg: NULL: there is no optimizer */
  double beta1, beta2, eps;
  int64_t steps; /* taken */
  bool wanted, distributed;
  size_t bytes;
} treadle_train_optimizer;

typedef struct treadle_train_shards treadle_train_shards;

struct treadle_trainer {
  const treadle_layout *layout;
  treadle_layout *grad_layout;
  treadle_transformer *transformer;
  treadle_replica replica;
  treadle_pass *pass;
  const treadle_row_back_ops *back;
  const treadle_outer_ops *outer; /* NULL: products are those of back_product.c */
  bool pairs;                     /* or those of back_paired.c */
  treadle_layer_weights *grads;   /* [layers] where the gradients of each weight lie */
  treadle_weight grad_embed, grad_final_norm, grad_head;
  treadle_train_columns width;
  treadle_train_buffers buffers;
  treadle_train_ranks ranks;
  treadle_train_optimizer optimizer;
  treadle_pipeline pipeline; /* micro_batches: of the largest step there is memory for */
  treadle_train_chunk chunks[TREADLE_TRAIN_CHUNKS];
  int32_t stage, chunk_count; /* of the pipeline; of this rank */
  int32_t stage_ranks;        /* that share this rank's layers */
  int64_t rows;               /* of a micro batch, at most */
  int64_t most_sequences;     /* of a micro batch */
  int64_t blocks;             /* of keys and values, for that many rows */
  int64_t key_leaves,
      head_leaves; /* of inner dimensions: keys and values together with their queries; the vocabulary */
  int64_t slots;   /* rows that may wait between two chunks */
  int64_t kept_each, kept_count; /* values of a layer; micro batches */
  bool keeps_all;                /* layers are not computed again */
  bool sequence_parallel;
  int64_t rank;                  /* of the layout */
  int64_t data_rank, data_ranks; /* its data parallel coordinate, of this many */
  int64_t *data_rank_of;         /* [ranks of the layout]; NULL: not looked up yet */
  treadle_train_shards *shards;  /* NULL: the layout is not sharded */
  char *weights;                 /* windows */
  char *window;      /* where gradients are added up: grad_window, or that of a unit of shards */
  char *grad_window; /* of gradients */
  void *work, *pass_work, *cache;
  void *taken[TREADLE_TRAIN_MEMORIES]; /* all memory but the board */
  int taken_count;
  size_t taken_bytes, host_bytes; /* host_bytes: of them, not of the device */
  bool offloads, given;           /* given: windows are the caller's */
  const char *companions;         /* of what is saved */
  size_t weight_bytes, grad_bytes, work_bytes,
      forward_bytes; /* forward_bytes: of work, for a pass that keeps nothing */
  treadle_lse_row lse_rows[TREADLE_HEAD_ROWS];
  treadle_train_slopes slopes[TREADLE_HEAD_ROWS];
  treadle_arena arena;
};

/* A micro batch as the passes see it. */
typedef struct treadle_train_step {
  treadle_pass_step step;
  int64_t counted;                   /* tokens that the loss counts */
  const int32_t *which;              /* [counted] their rows: of the token before */
  const int32_t *targets;            /* [counted] */
  const treadle_train_place *places; /* [counted] */
  struct treadle_train_work *work;   /* whose it is (gradients.h) */
} treadle_train_step;

static inline bool treadle_is_there(const treadle_weight *weight) { return weight->segment_count > 0; }
/* Has any layer norms of heads? */
bool treadle_train_norms_heads(const treadle_trainer *t);

/* ---- trainer.c ---- */

/* Weights are there, or have become others. */
treadle_status treadle_train_bind(treadle_trainer *t);
/* Passes compute with these weights, of this layout, until the next bind. */
treadle_status treadle_train_bind_weights(treadle_trainer *t, const void *weights);
/* Refused: an element of this rank's weights that is infinite or no number, by its tensor. */
treadle_status treadle_train_check_weights(const treadle_trainer *t);

/* All of a trainer that needs neither other ranks nor memory of its size. */
treadle_status treadle_train_fill(treadle_trainer *t, const treadle_trainer_options *options, int64_t rank,
                                  bool plans);

/* ---- plan.c ---- */

/* What a rank holds, with the room of all ranks. */
treadle_trainer_memory treadle_train_memory(const treadle_trainer *t, const treadle_train_room *room);

/* ---- memory.c ---- */

/* Sizes of all buffers: work_bytes. */
treadle_status treadle_train_measure(treadle_trainer *t);
void treadle_train_measure_optimizer(treadle_trainer *t); /* of its replica's share */
/* Takes the memory that was measured. */
treadle_status treadle_train_allocate(treadle_trainer *t);
void treadle_train_free(treadle_trainer *t);
/* Of a layer of this rank and a micro batch. */
treadle_train_activations treadle_train_activations_of(const treadle_trainer *t,
                                                       const treadle_train_chunk *chunk, int32_t layer,
                                                       int32_t micro_batch);
treadle_train_activations treadle_train_again(const treadle_trainer *t);
float *treadle_train_out(const treadle_trainer *t, int32_t micro_batch);

/* ---- ranks.c ---- */

/* Finds this rank's chunks, and how many micro batches it keeps. */
treadle_status treadle_train_find_chunks(treadle_trainer *t);
/* The largest of both. */
void treadle_train_join_room(treadle_train_room *room, const treadle_train_room *other);
treadle_train_room treadle_train_measure_room(const treadle_trainer *t);
/* Bytes of the board of a rank; 0: the layout has one rank. */
uint64_t treadle_train_board_bytes(const treadle_trainer *t, const treadle_train_room *room);
/* Meets the other ranks of the group, which must have the same options. Collective. */
treadle_status treadle_train_meet(treadle_trainer *t);
void treadle_train_leave(treadle_trainer *t);
/* dx [rows, hidden] = the sum of all ranks' leaves; those of this rank are where treadle_train_room_of says, [nodes, rows, hidden]. */
float *treadle_train_room_of(const treadle_trainer *t, float *dx);
treadle_status treadle_train_sum(treadle_trainer *t, treadle_leaf_range leaves, int64_t rows, float *dx);
/* What all replicas have added up, in each; and the two halves of a tied gradient become one. */
treadle_status treadle_train_join_gradients(treadle_trainer *t);
/* All ranks of the group learn of a failure, at once. */
void treadle_train_tell(treadle_trainer *t, treadle_status status);
treadle_status treadle_train_agree(treadle_trainer *t, treadle_status status);
/* In this rank's share of all gradients, without what other ranks have too: each part. */
typedef void (*treadle_train_visit)(void *context, const float *values, int64_t count);
treadle_status treadle_train_each_own(treadle_trainer *t, treadle_train_visit look, void *context);

/* ---- sequence.c ---- */

typedef struct treadle_row_span {
  int64_t begin, end;
} treadle_row_span;

/* Of the residual stream of a micro batch of `rows` rows, those that this rank keeps; all, where rows are not divided. */
treadle_row_span treadle_train_own_rows(const treadle_trainer *t, int64_t rows);
bool treadle_train_divides_rows(const treadle_trainer *t);
/* How many a rank keeps, at most, of `ranks` tensor parallel ones. */
int64_t treadle_train_most_own_rows(const treadle_trainer *t, int64_t ranks);
/* From own rows [own rows, hidden] to all of them, [rows, hidden]. */
treadle_status treadle_train_gather_rows(treadle_trainer *t, const float *own, int64_t rows, float *to,
                                         const char *what);
/* buffers.parts: from this rank's leaves of tokens to all, [leaves, columns]. */
treadle_status treadle_train_gather_leaves(treadle_trainer *t, int64_t rows, int64_t columns);

/* ---- shards.c ---- */

bool treadle_train_is_sharded(const treadle_layout *layout);
/* Finds the shards; *whole_p: the layout that is computed in. */
treadle_status treadle_train_open_shards(treadle_trainer *t, bool plans, const treadle_layout **whole_p);
void treadle_train_close_shards(treadle_trainer *t);
const treadle_layout *treadle_train_whole_grads(const treadle_trainer *t);
/* Weights and gradients lie in the place of their unit. */
treadle_status treadle_train_place_shards(treadle_trainer *t);
/* Of the largest unit; 0: nothing is sharded. */
int64_t treadle_train_unit_bytes(const treadle_trainer *t, treadle_dtype dtype);
void treadle_train_place_gathered(treadle_trainer *t, char *gathered, float *sum);
char *treadle_train_gathered(const treadle_trainer *t);
int64_t treadle_train_shard_block(void); /* elements of `sum` */
uint64_t treadle_train_shard_board(const treadle_trainer *t);
treadle_status treadle_train_join_shards(treadle_trainer *t);
/* A unit is a layer, by its number, or one of these. */
int32_t treadle_train_unit_embed(const treadle_trainer *t);
int32_t treadle_train_unit_head(const treadle_trainer *t);
/* Its weights are gathered. Nothing to do, as for all that follows, where nothing is sharded. */
void treadle_train_need(treadle_trainer *t, int32_t unit);
void treadle_train_forget_unit(treadle_trainer *t); /* weights have changed */
/* All ranks gather out of these from now on, once all have shown theirs. */
void treadle_train_show_shards(treadle_trainer *t, const void *weights);
/* Around its backward: gradients begin at 0; then all ranks add up their shards. */
void treadle_train_begin_unit(treadle_trainer *t, int32_t unit);
treadle_status treadle_train_end_unit(treadle_trainer *t, int32_t unit);
/* A micro batch that this rank does not have. */
treadle_status treadle_train_idle_batch(treadle_trainer *t);
/* Does this rank answer for its shard, or one of another copy of the model? */
bool treadle_train_answers(const treadle_trainer *t);

/* ---- optimizer.c ---- */

/* Elements of the window of gradients whose state a replica's rank has. */
treadle_row_span treadle_train_share(const treadle_trainer *t, int64_t replica);
/* Masters, from the window of gradients, which holds their values. */
void treadle_train_take_master(treadle_trainer *t);
/* No step was taken. */
void treadle_train_reset_optimizer(treadle_trainer *t);

/* ---- random_weights.c ---- */

/* Fills the window of weights; with masters of their own, that of gradients with the same values in fp32. */
treadle_status treadle_train_randomise(treadle_trainer *t, uint64_t seed);

/* ---- layer.c ---- */

/* buffers.x of the pass, through a layer; what backward needs is kept. */
treadle_status treadle_train_forward(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept);
/* What backward needs beside: *kept_p is whole, and buffers.normed and normed2 are as they were. */
treadle_status treadle_train_prepare(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     treadle_train_activations *kept_p);

/* ---- back_product.c ---- */

/* Gradients of rows of a weight: dy [rows, what is here of the weight's rows]. */
typedef struct treadle_back_term {
  const treadle_weight *weight;
  const float *dy;
  int64_t stride;
  int64_t share; /* of the weight's rows that a leaf has; of the last one maybe less */
} treadle_back_term;

/* dx [nodes, rows, columns of the weights] = the sum over all terms of dy times the weight. The inner dimension is that of leaves, of each of
 * which every term has its share, one behind the other. */
typedef struct treadle_back_inputs {
  const treadle_back_term *terms;
  int count;
  treadle_leaf_range leaves;
  int64_t rows;
  float *dx;
  int64_t stride;
} treadle_back_inputs;
treadle_status treadle_back_input(treadle_trainer *t, const treadle_back_inputs *inputs);
/* Brings x [rows, columns] into the form that the next gradients of weights need. */
treadle_status treadle_back_take_rows(treadle_trainer *t, const float *x, int64_t stride, int64_t columns,
                                      int64_t rows);
/* The gradient of a weight that multiplied these rows: grad += dy^T x. */
treadle_status treadle_back_weight(treadle_trainer *t, const treadle_back_term *term,
                                   const treadle_weight *grad, int64_t rows);
/* Bytes of packed rows for a product with this inner dimension: *packed_p becomes the larger of both. */
treadle_status treadle_back_measure(treadle_trainer *t, treadle_gemm_inner inner, int64_t rows,
                                    size_t *packed_p);
/* A leaf of this many elements with the zeros that follow it. */
static inline int64_t treadle_back_leaf(int64_t elements) { return (elements + 31) / 32 * 32; }
int64_t treadle_back_tokens(int64_t rows,
                            int32_t *leaf_p); /* `rows` in leaves, all together; how large one is */

/* A row of a weight's gradient. */
float *treadle_trainer_grad(const treadle_trainer *t, const treadle_weight *grad, int64_t row);

/* Row `row` of those that are here. */
const char *treadle_back_weight_row(const treadle_pass *pass, const treadle_weight *weight, int64_t row);

/* The rows of a gradient from `row` on that follow each other: how many, and how far apart. */
float *treadle_trainer_grad_run(const treadle_trainer *t, const treadle_weight *grad, int64_t row,
                                int64_t *rows_p, int64_t *stride_p);

/* ---- back_paired.c ---- */

/* As treadle_back_input, _take_rows and _weight, where t->pairs. */
treadle_status treadle_paired_input(treadle_trainer *t, const treadle_back_inputs *inputs);
treadle_status treadle_paired_take_rows(treadle_trainer *t, const float *x, int64_t stride, int64_t columns,
                                        int64_t rows);
treadle_status treadle_paired_weight(treadle_trainer *t, const treadle_back_term *term,
                                     const treadle_weight *grad, int64_t rows);
/* Is there a kernel for it? */
bool treadle_paired_can(const treadle_trainer *t);
/* Bytes of what is packed, `columns` of it: *packed_p becomes the larger of both. */
treadle_status treadle_paired_measure(const treadle_trainer *t, treadle_gemm_inner inner, int64_t columns,
                                      size_t *packed_p);

/* ---- back_outer.c ---- */

/* As treadle_back_input, _take_rows and _weight, where t->outer is there. */
void treadle_outer_input(treadle_trainer *t, const treadle_back_inputs *inputs);
void treadle_outer_take_rows(treadle_trainer *t, const float *x, int64_t stride, int64_t columns,
                             int64_t rows);
void treadle_outer_weight(treadle_trainer *t, const treadle_back_term *term, const treadle_weight *grad,
                          int64_t rows);
/* Values for a product with this inner dimension: of packed weights, and of a thread's rows. Both become the larger. */
void treadle_outer_measure(const treadle_trainer *t, int64_t inner, int64_t columns, int64_t *panels_p,
                           int64_t *block_p);

/* ---- back_sum.c ---- */

/* grad [columns] += the sum of rows of dy. */
void treadle_back_bias(treadle_trainer *t, const treadle_weight *grad, const float *dy, int64_t stride,
                       int64_t rows);
/* Of a norm over rows of hidden: dx of row which[i] (NULL: i) += what follows from row i of dy; and the norm's gradient. which may have a
 * row more than once. */
typedef struct treadle_back_norm_rows {
  const treadle_weight *norm, *grad;
  const float *x, *dy;
  float *dx;
  const int32_t *which; /* NULL: x has this rank's own rows, dx all of them; else x has all */
  float *apart;         /* of which: room for [rows, hidden] */
  int64_t rows;
} treadle_back_norm_rows;
treadle_status treadle_back_norm(treadle_trainer *t, const treadle_back_norm_rows *rows);
/* Of heads: dy becomes the gradient of what was normed, in place. The norm's gradient is a sum over tokens for each head, and then over the
 * heads of all ranks, one after the other. */
typedef struct treadle_back_heads {
  const treadle_weight *norm, *grad;
  const float *x; /* [rows, heads, dim] before the norm */
  float *dy;
  int64_t stride, heads, dim, rows;
  int64_t first, all; /* of the heads of all ranks */
} treadle_back_heads;
treadle_status treadle_back_norm_heads(treadle_trainer *t, const treadle_back_heads *heads);

/* ---- back_layer.c ---- */

/* buffers.dx: from the gradient of what layer `layer` gave to that of what it was given. */
treadle_status treadle_back_layer(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                  treadle_train_activations kept);

/* ---- back_head.c ---- */

/* Loss of a micro batch whose rows went through all layers, x [rows, hidden]: log-probabilities, and what the work adds
 * up of them, in the order of rows; buffers.dx becomes its gradient. */
treadle_status treadle_back_head(treadle_trainer *t, const treadle_train_step *batch, float *x);
/* The loss alone; which is of no use to backward. */
treadle_status treadle_back_loss(treadle_trainer *t, const treadle_train_step *batch, float *x);
void treadle_back_embed(treadle_trainer *t, const treadle_pass_step *step);
/* The two halves of a tied gradient become one, where this rank has both. */
void treadle_back_tie(treadle_trainer *t);

#endif
