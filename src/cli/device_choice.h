/* --device: which memory the windows of a command lie in. */
#ifndef TREADLE_CLI_DEVICE_CHOICE_H
#define TREADLE_CLI_DEVICE_CHOICE_H

#include "treadle.h"

/* "cpu", "cuda", "cuda:1", "auto"; NULL: cpu. Without a number, CUDA devices are taken in turn by the ranks of a machine, also where it
 * has several nodes; group NULL: one rank. auto is cpu where there is no CUDA device. Collective. */
treadle_status treadle_device_choose(const char *text, treadle_group *group, treadle_memory *memory_p);
/* The same of a command that does without the device: is it a CUDA device's memory? */
treadle_status treadle_device_is_cuda(const char *text, bool *cuda_p);

#endif
