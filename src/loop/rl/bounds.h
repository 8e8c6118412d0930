/* How long texts are at most, and which ids their tokens have. */
#ifndef TREADLE_RL_BOUNDS_H
#define TREADLE_RL_BOUNDS_H

#include "rl/batch.h"
#include "rl/crew.h"
#include "rl/task.h"
#include "run/run_text.h"
#include "train/ppo.h"

typedef struct treadle_rl_bounds {
  int64_t prompt_most, response_most; /* tokens */
  int64_t vocabulary;
  int64_t experts_top, record_bytes; /* experts of a token in a layer; bytes of its record. 0: the model has no experts */
  /* [never_count] ids that no token is, ascending: those without a token, and ends that are ignored. Of all ranks. */
  int32_t *never;
  size_t never_count;
} treadle_rl_bounds;

void treadle_rl_bounds_release(treadle_rl_bounds *bounds);

/* loop_open.c: tokens of prompts and responses, at most, and the vocabulary: of a model, which is that of model_path, and
 * what settings say. */
treadle_status treadle_rl_find_lengths(treadle_rl_bounds *bounds, const treadle_rl_task *task,
                                       const treadle_run_text *text, const char *model_path,
                                       const treadle_model *model);

/* loop_update.c: the loss of a step, with the KL's coefficient. */
treadle_loss_options treadle_rl_loss_of(const treadle_train_settings *settings,
                                        const treadle_rl_bounds *bounds, double kl_coef);

/* Where bits are not promised, tokens of an update go to the experts that were recorded. */
static inline bool treadle_rl_replays(const treadle_train_settings *settings) {
  return settings->actor.router_replay != TREADLE_REPLAY_DISABLED && !settings->actor.exact;
}
/* By the trainer, in its pass of old log-probabilities; else by the generator. */
static inline bool treadle_rl_trainer_records(const treadle_train_settings *settings) {
  return settings->actor.router_replay == TREADLE_REPLAY_R2;
}

/* ---- loop_kept.c ---- */

/* Finds bounds->never, by the tokenizer, where there is one, and the vocabulary. ends: the model whose ends are ignored;
 * NULL: none are. */
treadle_status treadle_rl_find_never(treadle_rl_bounds *bounds, const treadle_tokenizer *tokenizer,
                                     const treadle_model *ends);
/* Says what is never drawn, and what a cut keeps at most. */
void treadle_rl_note_never(const treadle_rl_bounds *bounds, const treadle_run_text *text,
                           const treadle_rl_crew *crew);
void treadle_rl_note_kept(const treadle_rl_bounds *bounds, const treadle_rl_task *task,
                          const treadle_rl_crew *crew);
/* Are log-probabilities of what a cut leaves? */
bool treadle_rl_keeps(const treadle_rl_bounds *bounds, const treadle_train_settings *settings);
/* Bytes of a step's ids on a rank, at most; 0: none are kept. */
size_t treadle_rl_kept_bytes(const treadle_rl_bounds *bounds, const treadle_train_settings *settings);
/* The ids of a sample that is new in the batch, after the present ones, as a message has them. Refused: other ids
 * than a cut leaves. */
treadle_status treadle_rl_take_kept(const treadle_rl_bounds *bounds, const treadle_train_settings *settings,
                                    treadle_rl_batch *batch, treadle_rl_made *made, const int32_t *counts,
                                    const int32_t *ids, size_t count);

#endif
