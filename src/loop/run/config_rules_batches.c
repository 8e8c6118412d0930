/* What a step of reinforcement learning has: its prompts, the mini batches of its updates, their micro batches, and the schedule over all of them. */
#include "run/config_given.h"

#include "base/text.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

/* Of others' files, which have rows and tokens side by side: use_dynamic_bsz says which of them counts. */
static void settle_packing(treadle_train_config *config) {
  const treadle_config_batches *batches = &config->settings.rl.batches;
  treadle_config_actor *actor = &config->settings.actor;
  if (!batches->use_dynamic_bsz || actor->max_tokens_per_micro || !batches->max_packing_token_size) return;
  actor->max_tokens_per_micro = batches->max_packing_token_size;
  treadle_train_config_follow(config, KEY(actor.max_tokens_per_micro), "by use_dynamic_bsz");
  actor->micro_batch_size = 0;
  treadle_train_config_follow(config, KEY(actor.micro_batch_size), "by use_dynamic_bsz");
  config->sources[KEY(actor.micro_batch_size)].left_out = true;
}

/* Steps of the optimizer can be counted. */
static treadle_status check_steps(const treadle_train_config *config, int64_t mini_batches) {
  const treadle_train_settings *s = &config->settings;
  int64_t steps;
  if (!__builtin_mul_overflow(s->training.train_iters, s->rl.batches.epochs, &steps) &&
      !__builtin_mul_overflow(steps, mini_batches, &steps))
    return TREADLE_OK;
  REFUSE("%s: %s, %lld, times %s, %lld, times %lld mini batches (%s) are too many steps of the optimizer",
         config->file, PLACE(training.train_iters), (long long)s->training.train_iters,
         PLACE(rl.batches.epochs), (long long)s->rl.batches.epochs, (long long)mini_batches,
         PLACE(rl.batches.mini_batch_size));
}

/* Which key says how many prompts a step has. */
static const char *place_of_prompts(const treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  return s->rl.filter_groups.enable && s->rl.filter_groups.train_batch_size > 0
             ? PLACE(rl.filter_groups.train_batch_size)
             : PLACE(training.global_batch_size);
}

/* RLinf says how many mini batches a step has. */
static treadle_status divide_prompts(treadle_train_config *config, int64_t prompts) {
  treadle_config_batches *batches = &config->settings.rl.batches;
  const int64_t count = batches->mini_batch_size;
  if (count && prompts % count != 0)
    REFUSE("%s: %s is %s, which %s, %lld, does not divide", config->file, place_of_prompts(config),
           treadle_text_of_count(prompts, "prompt"), PLACE(rl.batches.mini_batch_size), (long long)count);
  if (count) batches->mini_batch_size = prompts / count;
  treadle_train_config_follow(config, KEY(rl.batches.mini_batch_size), "by algorithm.n_minibatches");
  return TREADLE_OK;
}

/* RLinf's scheduler counts its own iterations. */
static treadle_status settle_schedule(treadle_train_config *config, int64_t mini_batches) {
  treadle_train_settings *s = &config->settings;
  const double iters = config->lr_decay_iters,
               steps = (double)(s->training.train_iters * s->rl.batches.epochs * mini_batches);
  const char *name = config->sources[KEY(actor.lr_warmup_fraction)].name;
  if (iters <= 0 || steps <= 0) return TREADLE_OK;
  if (s->actor.lr_decay_style != TREADLE_DECAY_CONSTANT && iters != steps)
    REFUSE("%s: actor.lr_sched.lr_decay_iters is %g, and the decay ends with the last of the run's %g "
           "steps of the optimizer: say actor.lr_sched.lr_decay_iters=null",
           config->file, iters, steps);
  if (s->actor.lr_warmup_fraction == 0 || !name || strcmp(name, "actor.lr_sched.lr_warmup_fraction") != 0)
    return TREADLE_OK;
  if (s->actor.lr_warmup_fraction * iters >= steps)
    REFUSE(
        "%s: %s, %g, of actor.lr_sched.lr_decay_iters, %g, is all of the run's steps of the optimizer, %g",
        config->file, PLACE(actor.lr_warmup_fraction), s->actor.lr_warmup_fraction, iters, steps);
  s->actor.lr_warmup_fraction *= iters / steps;
  treadle_train_config_follow(config, KEY(actor.lr_warmup_fraction), "of lr_decay_iters");
  return TREADLE_OK;
}

/* Whole prompts. Groups that are left out are known when all samples have scores. */
static treadle_status settle_portions(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  int64_t *size = &config->settings.rl.batches.rollout_dispatch_size;
  const int64_t n = s->rl.batches.n_samples_per_prompt;
  if (!*size) return TREADLE_OK;
  if (s->rl.filter_groups.enable) {
    *size = 0;
    return treadle_train_config_warn_of(
        config, PLACE(rl.batches.rollout_dispatch_size),
        "is not used: with filter_groups_enable samples are drawn together");
  }
  *size += (n - *size % n) % n;
  return TREADLE_OK;
}

/* Prompts of a step of the optimizer. More than a step has are all of it, as in MindSpeed-RL; by verl's name they are refused, as in verl. */
treadle_status treadle_train_config_settle_batches(treadle_train_config *config) {
  treadle_config_batches *batches = &config->settings.rl.batches;
  const treadle_config_actor *actor = &config->settings.actor;
  const int64_t prompts = treadle_train_step_prompts(&config->settings),
                samples = prompts * batches->n_samples_per_prompt;
  const bool is_of_verl = GIVEN(rl.batches.mini_batch_size) &&
                          treadle_given_is_of_verl(config->sources[KEY(rl.batches.mini_batch_size)].name);
  treadle_status status = TREADLE_OK;
  settle_packing(config);
  TRY(settle_portions(config));
  if (GIVEN(rl.batches.mini_batch_size) &&
      strcmp(config->sources[KEY(rl.batches.mini_batch_size)].name, "algorithm.n_minibatches") == 0)
    TRY(divide_prompts(config, prompts));
  if (batches->mini_batch_size > prompts && !is_of_verl)
    TRY(treadle_train_config_warn_of(
        config, PLACE(rl.batches.mini_batch_size),
        "is more than the prompts of a step, which are what it counts: a step has one update"));
  if (!batches->mini_batch_size || (batches->mini_batch_size > prompts && !is_of_verl)) {
    batches->mini_batch_size = prompts;
    treadle_train_config_follow(config, KEY(rl.batches.mini_batch_size), "all prompts of a step");
  }
  if (prompts % batches->mini_batch_size != 0)
    REFUSE("%s: %s is %s, which %s, %lld, does not divide", config->file, place_of_prompts(config),
           treadle_text_of_count(prompts, "prompt"), PLACE(rl.batches.mini_batch_size),
           (long long)batches->mini_batch_size);
  batches->mini_batch_samples = batches->mini_batch_size * batches->n_samples_per_prompt;
  if (actor->micro_batch_size && samples % actor->micro_batch_size != 0 &&
      batches->mini_batch_samples == samples)
    REFUSE("%s: %s times %s is %s, the only mini batch, which %s, %lld, does not divide", config->file,
           place_of_prompts(config), PLACE(rl.batches.n_samples_per_prompt),
           treadle_text_of_count(samples, "sample"), PLACE(actor.micro_batch_size),
           (long long)actor->micro_batch_size);
  if (actor->micro_batch_size && batches->mini_batch_samples % actor->micro_batch_size != 0)
    REFUSE("%s: %s times %s is %s, which %s, %lld, does not divide", config->file,
           PLACE(rl.batches.mini_batch_size), PLACE(rl.batches.n_samples_per_prompt),
           treadle_text_of_count(batches->mini_batch_samples, "sample"), PLACE(actor.micro_batch_size),
           (long long)actor->micro_batch_size);
  if (batches->use_dynamic_bsz && !actor->max_tokens_per_micro)
    REFUSE("%s: %s needs actor_config.max_tokens_per_micro, the tokens of a micro batch", config->file,
           PLACE(rl.batches.use_dynamic_bsz));
  TRY(check_steps(config, prompts / batches->mini_batch_size));
  TRY(settle_schedule(config, prompts / batches->mini_batch_size));
out:
  return status;
}
