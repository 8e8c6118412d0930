/* Cutting ops into what the kernels of a CUDA device take: boxes, and items of boxes (kernel_cuda.h). */
#ifndef TREADLE_MEMORY_CUT_CUDA_H
#define TREADLE_MEMORY_CUT_CUDA_H

#include "memory/kernel_cuda.h"
#include "treadle_device.h"

enum { TREADLE_CUDA_BOXES = 6 }; /* the most that an op becomes */

/* Makes boxes [TREADLE_CUDA_BOXES] of an op, and says how many. 0: the op has no element, and no item counts its mark.
 * Of the views, `at` does not matter; from: NULL for a fill. The boxes write different bytes, all of the op's, and may
 * be run in any order. The widths of their units follow from the addresses in the views, from strides and page sizes,
 * as they are now: another base needs other boxes. */
int treadle_cuda_cut(const treadle_op *op, const treadle_cuda_view *from, const treadle_cuda_view *to,
                     treadle_cuda_box *boxes);

/* The items of a box, whose own number among the boxes of a launch is `number`; 0 <= i < treadle_cuda_item_count. They
 * write different bytes. The counts of all items of an op add up to its bytes and to its mark. */
int64_t treadle_cuda_item_count(const treadle_cuda_box *box);
treadle_cuda_item treadle_cuda_item_of(const treadle_cuda_box *box, uint32_t number, int64_t i);

#endif
