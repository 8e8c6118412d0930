/* Prompts in a batch, and sampling values of a program, as requests of a call. */
#ifndef TREADLE_GENERATE_GENERATE_PROMPTS_H
#define TREADLE_GENERATE_GENERATE_PROMPTS_H

#include "generate/generate_call.h"

/* What a call does with these values. NULL: those of the model. Refused: values out of range. */
treadle_status treadle_generate_take_sampling(treadle_generate_call *call, const treadle_sampling *sampling,
                                              treadle_sampling_values *values_p);
/* A request for each row of a batch. They lie in its memory. Refused, by row: what cannot be answered. */
treadle_status treadle_generate_take_prompts(treadle_generate_call *call, const treadle_batch *prompts,
                                             const treadle_sampling_values *values);

#endif
