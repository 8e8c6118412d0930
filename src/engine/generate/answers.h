/* What generate and score write: lines of JSON, and the digest over them.
 *
 * A log-probability has 9 significant digits, which name its fp32 bits: equal text is equal bits, and reading gives the same. The
 * digest depends on token ids and the bits of log-probabilities, in the order of the answers. */
#ifndef TREADLE_GENERATE_ANSWERS_H
#define TREADLE_GENERATE_ANSWERS_H

#include "base/text.h"
#include "generate/requests.h"
#include "generate/sample.h"

/* {"id": .., "index": .., "prompt_token_ids": [..], "token_ids": [..], "text": "..", "logprobs": [..], "top_logprobs": [[[id, logprob],
 * ..], ..] or null, "finish_reason": .., "stop_reason": .., "version": ..} and a newline; where experts are recorded, "experts": [[[..], ..],
 * ..], too: of each token, in each layer. Memory that is out: builder->failed. */
void treadle_answer_add(treadle_builder *builder, const treadle_request_id *id,
                        const treadle_sample *sample, int64_t version);
/* A text that was scored. */
typedef struct treadle_score_logprobs {
  const int32_t *tokens; /* [count] */
  int64_t count;
  const float *logprobs;            /* [count - 1] of all but the first */
  const treadle_token_logprob *top; /* [count - 1, top_count] in the places of these tokens */
  int64_t top_count;                /* 0: none are asked for */
  const char *experts;              /* treadle_answer_add_experts; NULL, "": none are recorded */
} treadle_score_logprobs;

/* {"id": .., "token_ids": [..], "logprobs": [null, ..], "top_logprobs": [null, [[id, logprob], ..], ..], "sum": ..}; top_logprobs only
 * where they are asked for, and experts behind them where they are recorded. sum is in double. */
void treadle_answer_add_score(treadle_builder *builder, const treadle_request_id *id,
                              const treadle_score_logprobs *answer);

/* ", \"experts\": [[[..], ..], ..]": of each token, in each layer; experts [bytes] as treadle_pass_read_record gives them, top of a layer. */
void treadle_answer_add_experts(treadle_builder *builder, const unsigned char *experts, size_t bytes,
                                size_t layers, size_t top);

/* One value as JSON: "-0.25", "-1.17549435e-38"; null where it is not finite. */
enum { TREADLE_FLOAT_TEXT = 24 };
void treadle_float_text(float value, char text_p[TREADLE_FLOAT_TEXT]);

/* Begins with 0. */
uint64_t treadle_answer_digest(uint64_t digest, const int32_t *tokens, int64_t token_count,
                               const float *logprobs, int64_t logprob_count);

#endif
