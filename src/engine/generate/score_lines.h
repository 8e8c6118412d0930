/* Lines of JSON as texts to score: log-probabilities of given tokens. Read, checked and refused as requests are.
 *
 * A line has
 *
 *   text, messages or token_ids   one of them; token_ids with `logprobs` is what score wrote: one for each token, the first null
 *   prompt_token_ids, token_ids   what generate wrote: `logprobs` are those of token_ids; `text` is not looked at
 *
 * and may have the other keys that score and generate write: id, index, sum, top_logprobs, experts, finish_reason, stop_reason,
 * version. */
#ifndef TREADLE_GENERATE_SCORE_LINES_H
#define TREADLE_GENERATE_SCORE_LINES_H

#include "generate/requests.h"

typedef struct treadle_score_line {
  int64_t line, number;
  treadle_request_id id;
  treadle_request_input input; /* tokens: prompt and new ones in one */
  /* To compare with: logprobs[i] is that of tokens[first + i]. NULL: the line has none. */
  const float *logprobs;
  int64_t first, logprob_count;
} treadle_score_line;

typedef struct treadle_score_lines {
  TREADLE_ARRAY(treadle_score_line) items;
  treadle_arena arena;
} treadle_score_lines;

/* spec->sampling is not used. Ended by release, whatever is returned. */
treadle_status treadle_score_lines_parse(const treadle_requests_spec *spec, const char *text, size_t count,
                                         treadle_score_lines *lines_p);
void treadle_score_lines_release(treadle_score_lines *lines);

#endif
