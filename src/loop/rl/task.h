/* What a run is to do. */
#ifndef TREADLE_RL_TASK_H
#define TREADLE_RL_TASK_H

#include "run/config.h"
#include "treadle_loop.h"

/* "rl_config.epochs (line 9)" */
#define TREADLE_RL_PLACE(task, member) treadle_train_config_place((task)->config, TREADLE_KEY_OF(member))

/* All of it is the caller's. */
typedef struct treadle_rl_task {
  const treadle_train_config *config;
  const treadle_train_settings *settings; /* those of the configuration */
  const treadle_rl_options *options;
  bool plans; /* only memory is wanted */
} treadle_rl_task;

static inline bool treadle_rl_uses_kl(const treadle_train_settings *s) {
  return s->rl.kl.in_loss || s->rl.kl.in_reward;
}

/* Steps of the optimizer that a run takes: mini batches of all epochs of all steps. */
static inline int64_t treadle_rl_optimizer_steps(const treadle_train_settings *s) {
  const int64_t samples = treadle_train_step_prompts(s) * s->rl.batches.n_samples_per_prompt;
  const int64_t mini = s->rl.batches.mini_batch_samples > 0 ? s->rl.batches.mini_batch_samples : samples;
  return s->training.train_iters * s->rl.batches.epochs * ((samples + mini - 1) / mini);
}

#endif
