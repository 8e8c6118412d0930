/* Converting a checkpoint: a plan between files.
 *
 * Files are ranks of a layout: Hugging Face's are one rank of hf, Megatron's those of the smallest world in which every
 * (tp, pp, ep) is there. Each file that is written is filled from the source's files in the order of its bytes, a few
 * MiB at a time, so memory does not depend on the model. A run that was killed is taken up where it stopped: files stand
 * under their names when they are whole.
 *
 * Several processes share a conversion: each writes files rank, rank + ranks, ... Its functions are those of treadle.h. */
#ifndef TREADLE_CONVERT_CONVERT_H
#define TREADLE_CONVERT_CONVERT_H

#include "treadle.h"

#endif
