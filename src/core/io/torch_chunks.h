/* Do the chunks of a global tensor fill it? */
#ifndef TREADLE_IO_TORCH_CHUNKS_H
#define TREADLE_IO_TORCH_CHUNKS_H

#include "io/torch_dist.h"

/* The chunks lie in the tensor, none overlaps another, and together they have all of its elements. */
treadle_status treadle_torch_check_chunks(const char *what, const treadle_dist_tensor *tensor);

#endif
