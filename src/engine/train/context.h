/* Context parallel ranks in training (pass/pass_context.h): they have the same weights and the same rows of a batch,
 * and of the tokens of a micro batch each has its own.
 *
 * Gradients of weights are sums over tokens, in leaves that do not know of ranks. So a leaf's rows come to all of
 * these ranks, a few leaves at a time, and each adds up its share of the rows of every gradient, over all tokens, in
 * the order of one rank; the rest of its window is 0. Sums for norms and biases, and those of the head's few tokens,
 * are added by the first rank. In the end the windows of all are one sum, in which every element is one rank's and
 * zeros of the others: it has the bits of one rank. */
#ifndef TREADLE_TRAIN_CONTEXT_H
#define TREADLE_TRAIN_CONTEXT_H

#include "train/back.h"
#include "train/back_product.h"

/* ---- Ranks ---- */

/* A rank's data parallel coordinate; and which of the ranks with that coordinate and the same weights it is, of how
 * many. */
typedef struct treadle_context_rank {
  int64_t data_rank, data_ranks;
  int32_t ranks, index;
} treadle_context_rank;

/* ulysses: what the trainer's options say. replica: of the rank; NULL: the layout is sharded. It is divided into groups
 * where ranks with rows of their own, context parallel or data parallel ones, have different experts. Refused: both
 * ways to divide tokens at once, and numbers that do not divide the ranks. */
treadle_status treadle_context_place(const treadle_layout *layout, int32_t ulysses,
                                     treadle_replica *replica, int64_t rank,
                                     treadle_context_rank *place_p);
/* Rows of a micro batch of `rows` for which a rank has memory: its own, and those that the head takes at once. */
int64_t treadle_context_most_rows(int64_t rows, int32_t ranks);
/* The first of them, or alone. */
static inline bool treadle_context_is_first(const treadle_back *back) { return back->context.index == 0; }
/* A micro batch of `rows` rows is at hand: of all context parallel ranks; of data parallel ones that share experts, this
 * rank's, and they say theirs. */
treadle_status treadle_context_begin(treadle_back *back, int64_t rows);
/* Which rows of it are this rank's. */
treadle_row_range treadle_context_own(const treadle_back *back);

/* ---- Sizes ---- */

/* Columns that a row brings for the gradients of weights, at most. */
int64_t treadle_context_columns(const treadle_back *back);
/* And those of them that a rank needs of a leaf: what weights multiplied, and its shares of the others. */
int64_t treadle_context_leaf_columns(const treadle_back *back);
/* Values of a leaf's gradients of weights, and how many such sums wait at a time, at most; 0: ranks is 1. */
int64_t treadle_context_leaf_values(const treadle_back *back);
int64_t treadle_context_most_sums(const treadle_back *back);
/* Elements that a rank brings at once to the others; and of the last stage, for logits and sums over them. 0: ranks
 * is 1. */
uint64_t treadle_context_most_room(const treadle_back *back);
uint64_t treadle_context_head_room(const treadle_back *back);

/* ---- Shares ---- */

/* The shares of gradients, once these have their places; and the rows of the head that this rank computes. */
treadle_status treadle_context_find_shares(treadle_back *back, treadle_arena *arena);
/* Are experts spread over ranks with rows of their own, context parallel or data parallel ones? Then a rank that has an
 * expert takes all rows through it that chose it. */
static inline bool treadle_context_spreads_experts(const treadle_back *back) {
  return back->pass->ranks.groups.set;
}
/* Are there data parallel ranks among them? Then a replica is several groups, with rows of their own. */
static inline bool treadle_context_has_data_groups(const treadle_back *back) {
  return back->context.ranks == 1 && back->pass->replica->group_count > 1;
}
/* Do several ranks have shares of the gradient of an expert? */
static inline bool treadle_context_shares_experts(const treadle_back *back) {
  return back->context.ranks > 1 && !back->pass->ranks.groups.set;
}
/* Where this rank adds up gradients of a layer's experts: its shares, or all. */
static inline const treadle_layer_weights *treadle_context_expert_grads(const treadle_back *back,
                                                                        int32_t layer) {
  return treadle_context_shares_experts(back) ? &back->context.grads[layer] : &back->grads[layer];
}
/* Of `rows`, those that this rank adds up. */
treadle_row_range treadle_context_share(const treadle_back *back, int64_t rows);

/* ---- Rows of all ranks ---- */

/* All ranks bring matrices, of their own numbers of rows, which lie in the room. */
treadle_status treadle_context_meet(const treadle_back *back, int64_t rows, int64_t columns,
                                    const char *what);

/* A matrix [own rows, columns]. */
typedef struct treadle_context_matrix {
  const float *at;
  int64_t stride, columns;
} treadle_context_matrix;

/* Brings rows [from, to) of the micro batch, those of all matrices side by side: a row has `columns` values, all
 * together. */
treadle_status treadle_context_bring(const treadle_back *back, treadle_row_range rows,
                                     const treadle_context_matrix *matrices, int count, const char *what);
/* Then: row `row`, and how many lie behind each other from there, itself one of them. */
const float *treadle_context_row(const treadle_back *back, treadle_row_range rows, int64_t row,
                                 int64_t *run_p);
/* buffers.head_x: rows which[i] of x [own rows, hidden], of all ranks. */
treadle_status treadle_context_take_rows(const treadle_back *back, const float *x, const int32_t *which,
                                         int64_t rows);

#endif
