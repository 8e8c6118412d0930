/* Boxes of tensors as elements of a window. */
#ifndef TREADLE_WEIGHTS_BOX_ELEMENTS_H
#define TREADLE_WEIGHTS_BOX_ELEMENTS_H

#include "memory/elements.h"
#include "model/model.h"

/* A box of a tensor that lies at byte `offset` with these strides; of one expert where the tensor is stacked by treadle. What
 * the elements are called, and their type, is the caller's to say. */
treadle_elements treadle_elements_of(const treadle_tensor *tensor, const int64_t *start,
                                     const int64_t *size, int64_t offset, const int64_t *stride);
/* The same, with indices of a stack of experts that go on from one expert to the next. */
treadle_elements treadle_elements_of_whole(const treadle_tensor *tensor, const int64_t *start,
                                           const int64_t *size, int64_t offset, const int64_t *stride);

#endif
