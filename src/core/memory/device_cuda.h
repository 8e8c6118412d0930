/* The table of CUDA devices. */
#ifndef TREADLE_MEMORY_DEVICE_CUDA_H
#define TREADLE_MEMORY_DEVICE_CUDA_H

#include "treadle_device.h"

#include <stdint.h>

extern const treadle_device_ops treadle_cuda_ops;

/* The number in this process of the card that has this id (treadle_device_room). Refused: this process sees no such card. */
treadle_status treadle_cuda_find(uint64_t id, int *number_p);
/* Refused: there is no peer access, by which the first card would read memory of the other one. */
treadle_status treadle_cuda_reaches(int number, int other);

#endif
