/* The samples of a step, or of a test. */
#ifndef TREADLE_RL_BATCH_H
#define TREADLE_RL_BATCH_H

#include "base/array.h"
#include "rl/prompts.h"
#include "run/config.h"
#include "treadle_engine.h"

enum { TREADLE_RL_NAME = 72 };

/* A completion of a prompt. Tokens are in the arrays of the batch, from `first` on. */
typedef struct treadle_rl_made {
  const treadle_rl_prompt *prompt;
  int64_t group;                 /* number of its prompt in the step */
  int64_t index;                 /* of the sample */
  size_t first, count;           /* of its tokens */
  size_t kept_first, kept_count; /* of the ids that they were drawn from */
  size_t experts_first, experts_bytes; /* of the record of the experts that prompt and completion chose */
  char *text;                    /* [bytes] and a 0 */
  size_t bytes;
  bool cut;             /* at the largest length */
  double model_score;   /* of the reward model; 0: there is none */
  double at_tokens;     /* the part of the score that its tokens have got by themselves (batch->scored) */
  double score, reward; /* reward: with penalties of the length and the KL */
  double advantage;
  int64_t mini_batch;
} treadle_rl_made;

/* The samples of a step. Their tokens lie one behind the other. */
typedef struct treadle_rl_batch {
  TREADLE_ARRAY(treadle_rl_made) samples; /* groups one behind the other */
  int64_t step, groups;
  int64_t left_out;           /* groups that have gone, since their samples score alike */
  bool tests;                 /* it is not trained on: of a test behind that step */
  TREADLE_ARRAY(int32_t) ids; /* of all tokens, and so all that follows */
  TREADLE_ARRAY(float) rollout;
  /* Where what is drawn is cut, and log-probabilities are of that: of each token how many ids there were, and which;
   * else empty. */
  TREADLE_ARRAY(int32_t) kept_counts;
  TREADLE_ARRAY(int32_t) kept;
  TREADLE_ARRAY(uint8_t) experts; /* where they are recorded, else empty */
  int64_t experts_top;            /* of a token in a layer */
  bool awaits_experts;            /* there is room for them, which the pass of old log-probabilities fills */
  /* What rewards give each token, times their weights; empty where none does, so far. */
  TREADLE_ARRAY(double) scored;
  float *old, *ref; /* NULL: not computed; and so the next two */
  float *updated;   /* log-probabilities as the last update of each sample has found them */
  int64_t *differing; /* [samples] tokens that the trainer would have sent to other experts; NULL: nobody has looked */
  float *entropies; /* after the update: those that actor/entropy is made of */
  double *rewards, *advantages, *returns;
  float *values, *targets; /* of a critic, before its update; and the returns, as its loss reads them */
  treadle_batch
      *columns; /* what ranks get of it, a row for each sample, on the same memory; NULL: not yet */
  int64_t *offsets, *kept_offsets, *experts_offsets; /* [samples + 1] of these columns, in one array */
  /* Where the samples are another rank's: what they lie in, and their prompts, portion by portion. */
  TREADLE_ARRAY(treadle_batch *) brought;
  TREADLE_ARRAY(treadle_rl_prompt *) brought_prompts;
} treadle_rl_batch;

/* ---- loop_draw.c ---- */

/* "STEP-PROMPT-SAMPLE", of a test "test-STEP-PROMPT-SAMPLE": what rewards and files call it. */
void treadle_rl_name_sample(const treadle_rl_batch *batch, const treadle_rl_made *sample,
                            char to[TREADLE_RL_NAME]);
void treadle_rl_batch_clear(treadle_rl_batch *batch);
void treadle_rl_batch_release(treadle_rl_batch *batch);

/* loop_columns.c: the columns that the batch has by now: prompt_ids, ids, rollout_log_probs, and what else was computed. They go before samples come
 * or leave. */
treadle_status treadle_rl_set_columns(treadle_rl_batch *batch);
void treadle_rl_drop_columns(treadle_rl_batch *batch);

/* ---- loop_brought.c ---- */

/* Samples, which are only what their columns prompt_ids, ids, kept_counts and kept say, `each` of a prompt. Those from 0 on are in place of what it
 * has; others follow what it has, or are its last ones already. */
treadle_status treadle_rl_take_drawn(treadle_rl_batch *batch, const treadle_batch *in, int64_t each,
                                     size_t from);
/* What another rank has found of samples from `from` on: values, ref_log_probs, returns, score, as far as it has them. */
treadle_status treadle_rl_take_columns(treadle_rl_batch *batch, const treadle_batch *in, size_t from);

/* ---- loop_exact.c ---- */

/* Are the trainer's log-probabilities compared with the generator's in this step? */
bool treadle_rl_check_is_due(const treadle_train_settings *settings, const treadle_rl_batch *batch);
/* Where the first mini batch has all samples, its own pass forward is the trainer's with the weights that generated: no other one is needed. */
bool treadle_rl_update_checks(const treadle_train_settings *settings, const treadle_rl_batch *batch);
/* A value of each token: zeros. NULL: there is no memory. */
float *treadle_rl_values_of(const treadle_rl_batch *batch);
/* Room for values of all tokens, of which those before sample `from` stay. what: in messages. */
treadle_status treadle_rl_grow_values(const treadle_rl_batch *batch, size_t from, const char *what,
                                      float **values_p);
/* Room for the trainer's log-probabilities and entropies. */
treadle_status treadle_rl_take_old(treadle_rl_batch *batch);
/* Where experts are recorded, room for what the trainer says of them. */
treadle_status treadle_rl_take_differing(treadle_rl_batch *batch);

#endif
