/* Experts of context parallel ranks. Each rank takes its own rows through them. An expert's gradients are sums over the
 * rows of all ranks that chose it, in blocks of TREADLE_EXPERT_ROWS in the order of tokens: all ranks go through all
 * blocks, each with those rows of the block that are its own, and bring them together where the block's sum is made.
 * Alone, a rank has all rows, and so it has where experts are spread over these ranks (expert_rows.h). */
#ifndef TREADLE_TRAIN_CONTEXT_EXPERTS_H
#define TREADLE_TRAIN_CONTEXT_EXPERTS_H

#include "train/back_product.h"

/* After treadle_pass_list_places. *begin_p [experts + 1]: as buffers.expert_begin, of the choices of all ranks. */
treadle_status treadle_context_count_choices(const treadle_back *back, const int64_t **begin_p);
/* Then, as treadle_pass_each_block: blocks of the rows of all ranks, of which this one may have none. rows: own ones. */
treadle_status treadle_context_each_block(const treadle_back *back, int32_t layer, int64_t rows,
                                          treadle_expert_work work, void *context);
/* grads += dy^T x of a block, for this rank's shares of the gradients. x and terms have this rank's rows of it. */
treadle_status treadle_back_expert_weights(const treadle_back *back, const treadle_back_rows *x,
                                           const treadle_back_term *terms,
                                           const treadle_weight *const *grads, int count);
/* *loss += the losses of all rows, of which this rank has the first `rows` of buffers.experts.row_losses. */
treadle_status treadle_context_add_losses(const treadle_back *back, int64_t rows, double *loss);

#endif
