/* Tokens, of prompts and answers, that data parallel coordinates have in calls with rows. */
#ifndef TREADLE_RL_COORDINATE_TOKENS_H
#define TREADLE_RL_COORDINATE_TOKENS_H

#include "rl/ledger.h"

typedef struct treadle_rl_tokens {
  int64_t *came;      /* [coordinates] as the engine divides rows as they come */
  int64_t *given;     /* [coordinates] as they were given */
  size_t coordinates; /* 0: no call so far */
} treadle_rl_tokens;

/* Before a call is counted. Refused: other coordinates than those of the calls before. */
treadle_status treadle_rl_tokens_open(treadle_rl_tokens *tokens, size_t coordinates);
/* global_seqlen/..., if there was a call. */
void treadle_rl_tokens_values(const treadle_rl_tokens *tokens, treadle_rl_values *values);
void treadle_rl_tokens_release(treadle_rl_tokens *tokens);

#endif
