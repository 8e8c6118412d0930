/* What a trainer of the run is opened with. */
#include "rl/role.h"

#include "base/text.h"
#include "io/file.h"
#include "layout/layout.h"
#include "pass/replica.h"
#include "pass/transformer.h"
#include "train/context.h"

enum { BATCHES_MOST = 1 << 20 };

static int32_t ulysses_ranks(const treadle_rl_role *role) {
  return (int32_t)role->config->ulysses_sequence_parallel_size;
}

static treadle_status find_replicas(const treadle_rl_role *role, int64_t *dp_p) {
  const bool sharded = role->config->strategy == TREADLE_STRATEGY_FSDP2;
  treadle_context_rank place;
  treadle_arena arena = {0};
  treadle_transformer *d = NULL;
  treadle_replica replica;
  treadle_status status = TREADLE_OK;
  if (!sharded) TRY(treadle_transformer_create(role->model, &d));
  if (!sharded) TRY(treadle_replica_find(d, role->layout, 0, &arena, &replica));
  TRY(treadle_context_place(role->layout, ulysses_ranks(role), sharded ? NULL : &replica, 0, &place));
  *dp_p = place.data_ranks;
out:
  treadle_transformer_destroy(d);
  treadle_arena_release(&arena);
  return status;
}

/* Micro batches of a replica, at most: of a mini batch, and of all samples where log-probabilities are computed, which keep nothing. */
static treadle_status count_batches(const treadle_rl_role *role, const treadle_rl_task *task,
                                    int32_t *most_p, bool *fewer_p) {
  const treadle_train_settings *s = task->settings;
  int64_t dp, samples = treadle_train_step_prompts(s) * s->rl.batches.n_samples_per_prompt;
  int64_t mini = s->rl.batches.mini_batch_samples > 0 ? s->rl.batches.mini_batch_samples : samples, count;
  treadle_status status;
  TRY(find_replicas(role, &dp));
  count = role->config->micro_batch_size
              ? (mini + role->config->micro_batch_size - 1) / role->config->micro_batch_size
              : mini;
  *fewer_p = !role->config->micro_batch_size || count % dp != 0;
  count = (count + dp - 1) / dp;
  if (count > BATCHES_MOST)
    TRY(treadle_fail(
        TREADLE_REFUSED, "%s: %lld micro batches on each of %lld data parallel ranks; at most %d",
        TREADLE_RL_PLACE(task, training.global_batch_size), (long long)count, (long long)dp, BATCHES_MOST));
  *most_p = (int32_t)count;
out:
  return status;
}

treadle_status treadle_rl_trainer_options(const treadle_rl_role *role, const treadle_rl_task *task,
                                          const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                          treadle_trainer_options *to) {
  const treadle_train_settings *s = task->settings;
  const int64_t length = bounds->prompt_most + bounds->response_most;
  int32_t most_micro_batches;
  treadle_status status;
  bool fewer;
  TRY(count_batches(role, task, &most_micro_batches, &fewer));
  *to = (treadle_trainer_options){
      .struct_size = sizeof *to,
      .kernels = task->options->kernels,
      .threads = task->options->threads,
      .fast = !role->config->exact,
      .most_tokens = length,
      .most_rows = role->config->max_tokens_per_micro ? role->config->max_tokens_per_micro
                                                      : role->config->micro_batch_size * length,
      .companions = text->tokenizer && treadle_file_is_folder(text->companions) ? text->companions : NULL,
      .recompute = s->training.recompute_granularity == TREADLE_RECOMPUTE_FULL,
      .sequence_parallel = s->training.sequence_parallel,
      .optimizer = true,
      .distributed_optimizer = s->training.use_distributed_optimizer,
      .aux_loss_coeff = treadle_train_config_aux_loss(s),
      .seq_aux_loss = treadle_train_config_by_sequence(s),
      .z_loss_coeff = s->training.moe_z_loss_coeff,
      .expert_bias_rate = treadle_train_config_bias_rate(s),
      .freeze_routers = s->training.freeze_moe_router,
      .offload_policy = role->config->offload_policy,
      .adam_beta1 = role->config->adam_beta1,
      .adam_beta2 = role->config->adam_beta2,
      .adam_eps = role->config->adam_eps,
      .most_sequences = role->config->micro_batch_size,
      .most_micro_batches = most_micro_batches,
      .fewer_micro_batches = fewer,
      .ulysses_ranks = ulysses_ranks(role)};
  if (role->config == &s->actor) treadle_train_lora_options(s, to);
out:
  return status;
}

treadle_forward_options treadle_rl_forward_of(const treadle_config_actor *config,
                                              const treadle_train_settings *s,
                                              const treadle_rl_bounds *bounds, bool entropies) {
  return (treadle_forward_options){.struct_size = sizeof(treadle_forward_options),
                                   .micro_batch_size = config->micro_batch_size,
                                   .max_tokens_per_micro = config->max_tokens_per_micro,
                                   .temperature = s->sampling.temperature,
                                   .entropies = entropies,
                                   .never = bounds->never,
                                   .never_count = bounds->never_count};
}
