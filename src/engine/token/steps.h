/* What tokenizer.json gives as one step or as a Sequence of steps: normalizers, decoders. */
#ifndef TREADLE_TOKEN_STEPS_H
#define TREADLE_TOKEN_STEPS_H

#include "base/status.h"

#include <jansson.h>

typedef struct treadle_step_reader {
  const char *list; /* the field of a Sequence that has its steps */
  /* Reads a step of this type, and adds it to `steps`. */
  treadle_status (*read_step)(const json_t *json, const char *type, void *steps);
  void *steps;
} treadle_step_reader;

/* Reads all steps, in order; NULL or null has none. Sequences may be nested. */
treadle_status treadle_steps_read(const json_t *json, const treadle_step_reader *reader);

#endif
