/* The library's engine as golden files of models ask it: what it gives for tokens, in fp32 and bf16. */
#ifndef TREADLE_TESTS_GOLDEN_ENGINE_H
#define TREADLE_TESTS_GOLDEN_ENGINE_H

#include "generate/machine.h"
#include "golden_support/golden_recording.h"

typedef struct golden_tokens {
  int32_t *ids;
  size_t count;
} golden_tokens;

/* Puts the ids of a list after the present ones. */
void golden_tokens_add(golden_tokens *tokens, const json_t *list);

typedef enum golden_opened { GOLDEN_OPENED, GOLDEN_NOT_COMPUTED, GOLDEN_NOT_OPENED } golden_opened;

/* An engine of the model in a folder. A family that the engine does not compute is not a difference; all else that is refused is.
 * Ended by machine_close, whatever is returned; the message is treadle's. */
golden_opened golden_engine_open(machine *m, const char *folder, const char *dtype);

/* The logits behind each token, in order. */
treadle_status golden_engine_score(machine *m, const golden_tokens *tokens,
                                   treadle_status (*row)(void *context, size_t text, size_t token,
                                                         const float *logits),
                                   void *context);
/* Goes on greedily for `count` tokens, or to an end token if `ends`. Ids of `banned` (may be NULL) and, where it is not empty, end tokens
 * are not chosen. The ids are put behind those of out_p. */
typedef struct golden_greedy {
  const golden_tokens *prompt;
  size_t count;
  const json_t *banned;
  bool ends;
} golden_greedy;
treadle_status golden_engine_generate(machine *m, const golden_greedy *greedy, golden_tokens *out_p);

double golden_log_sum(const float *logits, int64_t count); /* ln sum e^logit */
int64_t golden_best(const float *logits, int64_t count,
                    const json_t *banned); /* the lowest id among equals */

#endif
