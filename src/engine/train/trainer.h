/* A trainer, whole: its parts, and what needs several of them.
 *
 * The forward pass is that of src/engine/pass, function by function, so a token's log-probability has the same bits in training and in
 * scoring. Backward takes the adjoint of each part, last part first, from what forward has kept; or, with recomputation, forward keeps the
 * residual stream before each layer alone, and backward runs the layer again.
 *
 * Each part has a struct and a header of its own. Functions take the smallest part that they need.
 *
 *   trainer.c          the whole: how it is made
 *   plan.c             what it will hold, without making it
 *   windows.h          weights and gradients of this rank
 *     random_weights.c   what a model without weights begins with
 *   back.h             what computes backward
 *     layer.c            a layer forward
 *     activations.c      where what backward needs of a layer lies
 *     back_layer.c       the adjoints of the parts of a layer
 *     back_attend.c      the adjoint of attention itself
 *     latent.c           latent attention, forward and its adjoint
 *     back_experts.c     the adjoint of experts
 *     expert_rows.c      their rows, and from where these come
 *     back_head.c        loss, head, embedding
 *     back_score.c       a score head, and its loss
 *     back_product.c     the two transposed products, by the kernels of forward
 *     back_outer.c       the same in fp32, by outer products
 *     back_paired.c      the same in bf16, by kernels that take pairs of rows
 *     back_sum.c         sums over tokens: gradients of norms and biases
 *     sequence.c         rows of the residual stream, divided among tensor parallel ranks
 *     context.c          tokens of a micro batch, divided among context parallel ranks
 *     back_weights.c     gradients of weights, over the tokens of all of these
 *     context_experts.c  the same of experts, over the rows that chose them
 *   stage.h            this rank's layers, and the rings between stages
 *     pipeline.c         in which order a rank takes micro batches through its layers
 *   ranks.h            the ranks that compute together, and what each of them brings
 *     joined_gradients.c what ranks with other rows or other layers have added up, in one sum
 *     copied_experts.c   experts that several of them have
 *   shards.h           FSDP2: shards, gathered a layer at a time
 *   routers.h          losses of routers, and their biases
 *   adapters.h         LoRA: adapters, which train in place of weights
 *   optimizer.h        AdamW
 *     state.c            its state as a folder
 *   memory.h           the memory that both passes compute in
 *   gradients.h        rows in micro batches, forward and backward */
#ifndef TREADLE_TRAIN_TRAINER_H
#define TREADLE_TRAIN_TRAINER_H

#include "train/adapters.h"
#include "train/back.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/ranks.h"
#include "train/routers.h"
#include "train/shards.h"
#include "train/stage.h"
#include "train/windows.h"
#include "treadle_builtin.h"

struct treadle_trainer {
  treadle_transformer *transformer;
  treadle_replica replica;
  treadle_pass *pass;
  treadle_back back;
  treadle_train_windows windows;
  treadle_train_stage stage;
  treadle_train_ranks ranks;
  treadle_train_routers routers;
  treadle_train_shards *shards;     /* NULL: the layout is not sharded */
  treadle_train_adapters *adapters; /* NULL: the weights are trained */
  treadle_train_optimizer optimizer;
  treadle_train_memory memory;
  bool half_made;                /* gradients: the call that makes them has not ended, or has failed */
  int64_t most_sequences;        /* of a micro batch */
  int64_t data_rank, data_ranks; /* its data parallel coordinate, of this many */
  int32_t ulysses_ranks;         /* as the options have it */
  int64_t *data_rank_of;         /* [ranks of the layout]; NULL: not looked up yet */
  const char *companions;        /* of what is saved */
  treadle_arena arena;
};

/* ---- trainer.c ---- */

/* All of a trainer that needs neither other ranks nor memory of its size. */
treadle_status treadle_train_fill(treadle_trainer *t, const treadle_trainer_options *options, int64_t rank,
                                  bool plans);
/* Weights are there, or have become others. */
treadle_status treadle_train_bind(treadle_trainer *t);
/* Passes compute with these weights, of this layout, until the next bind. */
treadle_status treadle_train_bind_weights(treadle_trainer *t, const void *weights);

/* ---- save_gradients.c ---- */

/* The digest of the weights beside adapters, which have just become others. Nothing to do without adapters. Collective. */
treadle_status treadle_train_find_base(const treadle_train_ranks *ranks, treadle_train_adapters *adapters);

/* ---- plan.c ---- */

/* What a rank holds, with the room of all ranks. */
treadle_trainer_memory treadle_train_holds(const treadle_trainer *t, const treadle_train_room *room);

/* ---- ranks.c ---- */

/* What this rank brings. */
treadle_train_room treadle_train_measure_room(const treadle_back *back, const treadle_train_stage *stage);
/* Bytes of the board of a rank; 0: the layout has one rank. */
uint64_t treadle_train_board_bytes(const treadle_trainer *t, const treadle_train_room *room);
/* Meets the other ranks of the group, which must have the same options. Collective. */
treadle_status treadle_train_meet(treadle_trainer *t);
void treadle_train_leave(treadle_trainer *t);
/* In this rank's share of all gradients, without what other ranks have too: each part. */
typedef void (*treadle_train_visit)(void *context, const float *values, int64_t count);
treadle_status treadle_train_each_own(treadle_trainer *t, treadle_train_visit look, void *context);

/* ---- joined_gradients.c ---- */

/* What all data parallel ranks have added up, in each; and the two halves of a tied gradient become one. Collective. */
treadle_status treadle_train_join_gradients(treadle_trainer *t);

/* ---- copied_experts.c ---- */

/* The gradients of experts of which other ranks of the stage have copies; rooms: elements that a rank brings at once. Collective. */
treadle_status treadle_train_copy_experts(const treadle_back *back, const treadle_pass_board *rooms);

#endif
