/* Latent attention (pass/pass_latent.c) in a layer: forward with what is kept of it, and its adjoint. */
#ifndef TREADLE_TRAIN_LATENT_H
#define TREADLE_TRAIN_LATENT_H

#include "train/layer.h"

/* From buffers.normed of the pass into its residual stream; buffers.wide is kept->qkv. */
treadle_status treadle_train_latent(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                    const treadle_train_activations *kept);
/* From buffers.dx, of what attention gave, to buffers.dnormed. */
treadle_status treadle_back_latent(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                   const treadle_train_activations *kept);
/* Elements that this rank brings of a micro batch to the sums of its stage. */
int64_t treadle_back_latent_room(const treadle_back *back);

#endif
