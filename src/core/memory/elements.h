/* Elements of a tensor in a window: making their values, and hashing them. */
#ifndef TREADLE_MEMORY_ELEMENTS_H
#define TREADLE_MEMORY_ELEMENTS_H

#include "base/dtype.h"
#include "treadle_device.h"

/* Calls `visit` for each run of elements whose canonical indices follow each other: element i of the run
 * has index `index` + i and lies at byte `at` + i * step. */
typedef void (*treadle_elements_visit)(void *context, int64_t index, int64_t at, int64_t step,
                                       int64_t count);
void treadle_elements_each(const treadle_elements *elements, treadle_elements_visit visit, void *context);

/* Generated values (value.h), in memory of the host. */
void treadle_elements_generate(const treadle_elements *elements, void *window);
/* The sum over the elements of the hash of tensor, index and value. */
uint64_t treadle_elements_hash(const treadle_elements *elements, const void *window);

#endif
