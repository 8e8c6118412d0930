/* Context parallel: ranks with the same weights divide the rows of a step. Whatever treats a row by itself is done
 * where the row is. Attention needs all rows of a sequence: q, k and v go to the rank that has their heads, all rows
 * of these heads are compared there, and what they have found comes back (DeepSpeed-Ulysses; cp_comm_type a2a of
 * Megatron). What a head finds for a row depends on neither, so it has the bits of one rank.
 *
 * Rows are divided between leaves of TREADLE_CONTEXT_LEAF: in order, to each rank as many leaves as to the others or
 * one more. A rank may have none. */
#ifndef TREADLE_PASS_PASS_CONTEXT_H
#define TREADLE_PASS_PASS_CONTEXT_H

#include "nn/parallel.h"
#include "pass/pass.h"

enum {
  TREADLE_CONTEXT_LEAF = 64,  /* rows */
  TREADLE_CONTEXT_ROWS = 512, /* that a rank brings at once, at most */
};

/* ranks 1: this rank has all rows. The exchange comes from whoever makes the pass. */
typedef struct treadle_pass_context {
  int32_t ranks, index;
  treadle_exchange *exchange;
} treadle_pass_context;

/* Of `rows` rows, those of a rank. */
treadle_row_range treadle_context_span(int64_t rows, int32_t ranks, int32_t index);
/* How many a rank has at most. */
int64_t treadle_context_most(int64_t rows, int32_t ranks);
/* Rows of a step on all ranks. */
int64_t treadle_context_all_rows(const treadle_pass_step *step);

/* Key and value heads that this rank compares with: its share, or one, which other ranks have, too. */
int64_t treadle_context_kv_heads(const treadle_pass *pass);
/* Columns of q, k and v of the heads that this rank attends with; without context parallel ranks, all of its heads. */
typedef struct treadle_context_heads {
  int64_t keys, values, columns; /* where keys and values begin; all of them */
} treadle_context_heads;
treadle_context_heads treadle_context_heads_of(const treadle_pass *pass);
/* Refuses heads that the ranks do not divide, and latent attention. Key and value heads may be fewer than ranks if additions need not
 * be in the order of one rank. */
treadle_status treadle_context_check_heads(const treadle_pass *pass);

/* Elements that a rank brings at once to what follows. */
int64_t treadle_context_room(const treadle_pass *pass);

/* From q, k and v of all heads, own [step->rows, own_columns], to those of this rank's heads, all [all rows, columns
 * of treadle_context_heads_of]. All ranks. */
treadle_status treadle_context_spread_heads(const treadle_pass *pass, const treadle_pass_step *step,
                                            const float *own, int64_t own_columns, float *all);
/* The way back: its adjoint. What ranks with the same head have is added up. */
treadle_status treadle_context_collect_heads(const treadle_pass *pass, const treadle_pass_step *step,
                                             const float *all, float *own, int64_t own_columns);
/* The same of what heads have found. */
treadle_status treadle_context_spread_found(const treadle_pass *pass, const treadle_pass_step *step,
                                            const float *own, int64_t own_columns, float *all);
treadle_status treadle_context_collect_found(const treadle_pass *pass, const treadle_pass_step *step,
                                             const float *all, float *own, int64_t own_columns);

#endif
