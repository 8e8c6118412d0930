/* One of the n samples of a request while it grows: what the choice of its next token depends on besides the logits, what was
 * generated, and whether it has ended. It outlives preemption: nothing of it depends on the KV cache.
 *
 * For each new token:
 *
 *   treadle_sample_choose(sample, sampler, logits, &token);
 *   treadle_sample_take(sample, token, logprob, top, top_count);
 *   if (!sample->last_is_end) {                 the text of an end token is not part of the text
 *     text = what the tokenizer's stream gives for it;
 *     treadle_sample_add_text(sample, text, count);
 *   }
 *   if (sample->finish) ...                     at the end the stream's rest is added in the same way
 *
 * Ends, in vLLM's order: an end token or stop id, max_tokens, a stop text, which counts even where max_tokens is reached with it.
 * Before min_tokens nothing but max_tokens ends a sample, and end tokens and stop ids are banned. */
#ifndef TREADLE_GENERATE_SAMPLE_H
#define TREADLE_GENERATE_SAMPLE_H

#include "base/array.h"
#include "base/text.h"
#include "generate/sampler.h"
#include "pass/logprob.h"

typedef enum treadle_finish {
  TREADLE_FINISH_NONE,
  TREADLE_FINISH_STOP,
  TREADLE_FINISH_LENGTH
} treadle_finish;

/* What a sample begins with; all of it outlives the sample. */
typedef struct treadle_sample_spec {
  const treadle_sampling_values *sampling;
  const treadle_eos *eos;
  const int32_t *prompt; /* [prompt_count] */
  int64_t prompt_count;
  int64_t seed;         /* treadle_request_seed */
  int64_t index;        /* from 0 to n - 1 */
  int64_t most_tokens;  /* new ones: what the model's length leaves; max_tokens where that is less */
  const int32_t *never; /* [never_count] ids that are not drawn, and have no part in log-probabilities */
  int64_t never_count;
  bool drawn;        /* log-probabilities are of the distribution that a token was drawn from */
  int64_t most_kept; /* then: this many ids does a cut without top_k leave; 0: any number */
} treadle_sample_spec;

typedef struct treadle_sample {
  treadle_sample_spec spec;
  treadle_token_counts counts;
  TREADLE_ARRAY(int32_t) tokens;            /* new ones, the end token too */
  TREADLE_ARRAY(float) logprobs;            /* of each of them */
  TREADLE_ARRAY(treadle_token_logprob) top; /* top_count of each */
  int64_t top_count;
  TREADLE_ARRAY(int32_t)
  kept_counts;                   /* of each token, where it was drawn from a cut: how many ids there were */
  TREADLE_ARRAY(int32_t) kept;   /* and which, of one token after the other */
  TREADLE_ARRAY(int32_t) banned; /* while there are fewer than min_tokens */
  treadle_builder text;          /* cut before a stop text */
  unsigned char *experts; /* [expert_bytes] at the end, where they are recorded: treadle_pass_read_record */
  size_t expert_bytes;    /* of all tokens of prompt and answer but the last one */
  int64_t expert_layers, expert_top;
  treadle_finish finish;
  bool last_is_end;  /* the last token is an end token or stop id that has ended it */
  int32_t stop_id;   /* stop_reason: an id, or -1 */
  int32_t stop_text; /* stop_reason: number in sampling->stop, or -1 */
} treadle_sample;

treadle_status treadle_sample_init(treadle_sample *sample, const treadle_sample_spec *spec);
void treadle_sample_release(treadle_sample *sample); /* a zeroed one too */

/* logits: [vocabulary of the sampler], of the position behind the last token. */
treadle_status treadle_sample_choose(const treadle_sample *sample, treadle_sampler *sampler,
                                     const float *logits, int32_t *token_p);
/* The same, and what is left of the row: candidates_p lies in the sampler until its next call. Not of a greedy
 * sample. */
treadle_status treadle_sample_draw(const treadle_sample *sample, treadle_sampler *sampler,
                                   const float *logits, int32_t *token_p, treadle_candidates *candidates_p);
/* Takes out of a row of logits what the next token cannot be without a cut: `never`, and, of what is drawn, ends before
 * min_tokens. */
void treadle_sample_leave_out(const treadle_sample *sample, float *logits, int64_t vocabulary,
                              float temperature);
/* Before treadle_sample_take: the ids that the token was drawn from, where that is to be known. */
treadle_status treadle_sample_keep(treadle_sample *sample, const int32_t *ids, size_t count);
/* top: [top_count], the same count each time; 0 where none are asked for. */
treadle_status treadle_sample_take(treadle_sample *sample, int32_t token, float logprob,
                                   const treadle_token_logprob *top, int64_t top_count);
treadle_status treadle_sample_add_text(treadle_sample *sample, const char *text, size_t count);

#endif
