/* Reading coded values of a checkpoint: MXFP4, and fp8 with block scales, as bf16. */
#ifndef TREADLE_WEIGHTS_DECODE_H
#define TREADLE_WEIGHTS_DECODE_H

#include "memory/device.h"
#include "model/stored.h"

/* Decodes a coded place of a tensor and copies it to `window`. The op says where to and as what: its `to`, to_stride
 * and types but from_dtype, in axes of the tensor; what it says of the source is not looked at. */
treadle_status treadle_decode_place(const treadle_stored_box *place, const treadle_op *op,
                                    const treadle_device *device, char *window);

#endif
