/* The adjoint of the experts of a layer. */
#ifndef TREADLE_TRAIN_BACK_EXPERTS_H
#define TREADLE_TRAIN_BACK_EXPERTS_H

#include "train/layer.h"

/* buffers.dx: of a layer with experts. */
treadle_status treadle_back_experts(const treadle_back *back, int32_t layer, int64_t rows,
                                    const treadle_train_activations *kept);
/* This rank has no rows of the micro batch, but experts that rows of other ranks have chosen. */
treadle_status treadle_back_experts_of_others(const treadle_back *back, int32_t layer);

#endif
