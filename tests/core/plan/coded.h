/* What fp8 blocks must hold while a pair is played: every quantised tensor at the three moments of a play, by plain
 * loops over whole tensors. Nothing of src/core/layout, src/core/plan or memory/quantise.h is used. */
#ifndef TREADLE_TESTS_CODED_H
#define TREADLE_TESTS_CODED_H

#include "plan/pairs.h"

typedef struct coded { /* one tensor at one moment */
  float *values;       /* [rows, columns]; of codes: what they are worth in fp32 */
  uint8_t *codes;      /* NULL: the tensor lies in values */
  float *scales;       /* [ceil(rows / high), ceil(columns / wide)] */
} coded;

enum { CODED_MOMENTS = 3 }; /* before; after the way there; after the way back */

typedef struct coded_truth {
  coded *tensors[CODED_MOMENTS]; /* by tensor of the oracle */
} coded_truth;

/* The value of an element before, in the type of the source; given by the caller. */
typedef float (*coded_value)(const pair *p, int32_t tensor, int64_t index);

/* Codes of a source are random, but for NaN; other sources hold `value`. */
void coded_make(const pair *p, coded_value value, coded_truth *truth);
void coded_release(const pair *p, coded_truth *truth);

/* The bits of an element of a quantised tensor, in this type, or of scales. */
void coded_bits(const pair *p, const coded_truth *truth, int moment, int32_t tensor, int64_t index,
                treadle_dtype dtype, void *bits);

#endif
