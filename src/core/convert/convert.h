/* Converting a checkpoint: a plan between files.
 *
 * Files are ranks of a layout: Hugging Face's are one rank of hf, Megatron's those of the smallest world in which every
 * (tp, pp, ep) is there. Each file that is written is filled from the source's files in the order of its bytes, a few
 * MiB at a time, so memory does not depend on the model. A run that was killed is taken up where it stopped: files stand
 * under their names when they are whole.
 *
 * Several processes share a conversion: each writes files rank, rank + ranks, ... Its functions are those of treadle_tools.h. */
#ifndef TREADLE_CONVERT_CONVERT_H
#define TREADLE_CONVERT_CONVERT_H

#include "treadle_tools.h"

/* In the place of treadle_convert_finish, on rank 0: with everything in it, and its origin (origin.h), the folder takes
 * another name, at which there is nothing or an empty folder. The lock goes with it. The name is the caller's, to the
 * close. A folder with an origin and without a journal is whole, under whichever name. */
treadle_status treadle_convert_finish_as(treadle_convert *convert, const char *name);

#endif
