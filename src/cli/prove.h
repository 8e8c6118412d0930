/* treadle switch --check=prove: copies spoiled on purpose, which must be caught. */
#ifndef TREADLE_CLI_PROVE_H
#define TREADLE_CLI_PROVE_H

#include "cli/session.h"

typedef struct treadle_prove_input {
  treadle_session *session;
  const treadle_layout *train, *infer;
  const treadle_switch_options *options;
  uint64_t digest; /* of the weights */
  FILE *file;      /* where rank 0 says what caught each fault */
} treadle_prove_input;

/* For each kind of fault: a fresh switch, loaded, with one copy of one rank dropped, doubled or misplaced.
 * The switch to infer must fail on every rank, and not be bound. TREADLE_DIFFERENT when a fault went
 * through. Collective. */
treadle_status treadle_prove_faults(const treadle_prove_input *input);

#endif
