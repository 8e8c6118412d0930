/* The rows of an expert in backward: which they are, where they come from, and where what follows from them goes. They
 * lie on this rank, whose expert it is or which has a part of it, and it is done with each block alone; or experts are
 * spread over context parallel ranks, as over the groups of pass/pass_groups.c: then all rows come to the ranks of their
 * experts, and the results go back. */
#ifndef TREADLE_TRAIN_EXPERT_ROWS_H
#define TREADLE_TRAIN_EXPERT_ROWS_H

#include "train/layer.h"

/* Own rows of a micro batch, after treadle_pass_list_places: `work` is called with all of them at once, or, where ranks
 * give each other theirs, for each round of these. */
treadle_status treadle_expert_rows_rounds(const treadle_back *back, int32_t layer, int64_t rows,
                                          treadle_group_work work, void *context);
/* Other ranks are given buffers.normed2, dx and the choices, if they need them. */
treadle_status treadle_expert_rows_begin(const treadle_back *back, const treadle_routed *routed);
/* Then: experts that this rank answers for, ascending, block by block. */
treadle_status treadle_expert_rows_each(const treadle_back *back, int32_t layer, int64_t rows,
                                        treadle_expert_work work, void *context);

/* Of a block: x, to buffers.gathered of the pass; the gradients of what experts gave, to buffers.experts.dy; and what
 * the expert's results were weighted with, weights [count]. */
void treadle_expert_rows_take(const treadle_back *back, const treadle_routed *routed,
                              const treadle_expert_rows *block, float *weights);
/* Derivatives by weights: of node n and row i, to[n * node_stride + (at ? at[i] : i)]. */
typedef struct treadle_expert_slopes {
  float *to;
  int64_t node_stride;
  const int64_t *at;
} treadle_expert_slopes;
treadle_expert_slopes treadle_expert_rows_slopes(const treadle_back *back,
                                                 const treadle_expert_rows *block);
/* Gradients of x, of buffers.sum of the pass [nodes, count, hidden]. */
void treadle_expert_rows_give(const treadle_back *back, const treadle_expert_rows *block);

/* After all blocks: ranks show each other what they have given. */
treadle_status treadle_expert_rows_show(const treadle_back *back, int64_t rows);
/* Then, with treadle_pass_expert_result: gradients of x, and derivatives by weights. */
treadle_expert_results treadle_expert_rows_gradients(const treadle_back *back, int64_t rows);
treadle_expert_results treadle_expert_rows_by_weight(const treadle_back *back, int64_t rows);

#endif
