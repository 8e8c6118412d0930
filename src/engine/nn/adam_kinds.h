/* The sets of AdamW (nn/adam.h), one file each. */
#ifndef TREADLE_NN_ADAM_KINDS_H
#define TREADLE_NN_ADAM_KINDS_H

#include "nn/adam.h"

extern const treadle_adam_ops treadle_adam_plain, treadle_adam_avx2, treadle_adam_avx512;

#endif
