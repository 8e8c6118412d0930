/* Values that a layout stores with an offset (Megatron's zero-centred norms: w - 1) are rounded there, and would not come
 * back as they were. So a conversion to Megatron keeps the originals in hf/carried.safetensors, and one from there takes
 * an original in place of the stored values as long as these are what the original gives: training changes them. */
#ifndef TREADLE_CONVERT_KEPT_H
#define TREADLE_CONVERT_KEPT_H

#include "convert/source.h"
#include "convert/target.h"

/* Marks the tensors of the model's own files that `target`, Megatron's, is to keep. */
treadle_status treadle_kept_mark(treadle_target *target);

/* Turns the place of a tensor's values with an offset into that of the originals, where they are known and the same. */
treadle_status treadle_kept_take(treadle_source *source, int32_t tensor, treadle_file_box *place);

#endif
