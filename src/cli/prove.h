/* treadle switch --check=prove: copies and fp8 blocks spoiled on purpose, which must be caught. */
#ifndef TREADLE_CLI_PROVE_H
#define TREADLE_CLI_PROVE_H

#include "cli/session.h"

typedef struct treadle_prove_input {
  treadle_session *session;
  const treadle_layout *train, *infer;
  const treadle_switch_options *options;
  size_t cap_min_bytes; /* the largest of all ranks, without alias */
  const treadle_model *model;
  const void *infer_copy; /* what the infer window must hold */
  uint64_t digest;        /* of the weights */
  FILE *file;             /* where rank 0 says what caught each fault */
} treadle_prove_input;

/* For each type of fault: a fresh switch, loaded, with one copy of one rank dropped, doubled or misplaced, or fp8
 * blocks of one rank left out, made in a wrong wave, or of a wrong scale. The switch to infer must fail on every rank,
 * and not be bound; a wrong scale must be found in the window. TREADLE_DIFFERENT when a fault went through. Collective. */
treadle_status treadle_prove_faults(const treadle_prove_input *input);

#endif
