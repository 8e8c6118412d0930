/* Elements of a tensor in a window: making their values, and hashing them. */
#ifndef TREADLE_MEMORY_ELEMENTS_H
#define TREADLE_MEMORY_ELEMENTS_H

#include "base/dtype.h"
#include "move/move.h"

/* A box of elements in canonical order: axes from slow to fast, weight[ndim - 1] = 1. */
typedef struct treadle_elements {
  uint64_t tensor; /* the number that its name stands for (value.h) */
  treadle_dtype dtype;
  int8_t add;        /* what is stored is the value plus this */
  bool near_one;     /* of a kind whose generated values lie near one */
  int ndim;          /* at least 1 */
  int64_t at, index; /* of the first: byte of the window; canonical and row-major */
  int64_t size[TREADLE_MAX_AXES], stride[TREADLE_MAX_AXES]; /* stride: bytes */
  int64_t weight[TREADLE_MAX_AXES];                         /* by which the index grows */
} treadle_elements;

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
