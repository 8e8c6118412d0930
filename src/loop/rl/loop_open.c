/* What a configuration names, opened: models, layouts, the worker; prompts and rewards are in loop_data.c. Nothing is written here. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/text.h"
#include "convert/values.h"
#include "generate/generator.h"
#include "group/group.h"
#include "io/file.h"
#include "io/folder.h"
#include "layout/layout.h"
#include "model/notes.h"
#include "pass/replica.h"
#include "pass/transformer.h"
#include "run/checkpoint_room.h"
#include "run/dropout.h"
#include "token/tokenizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_MOST = 4096, BATCHES_MOST = 1 << 20 };

treadle_status treadle_rl_agree(const treadle_rl *rl, treadle_status status) {
  return rl->group && rl->ranks > 1 ? treadle_group_agree(rl->group, status) : status;
}

treadle_status treadle_rl_tell(const treadle_rl *rl, int64_t *number) {
  treadle_status status;
  if (!rl->group || rl->ranks == 1) return TREADLE_OK;
  int64_t *all = treadle_alloc_array((size_t)rl->ranks, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", rl->ranks);
  TRY(treadle_group_gather(rl->group, number, sizeof *number, all));
  *number = all[0];
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_share(const treadle_rl *rl, void *figures, size_t bytes) {
  if (!rl->group || rl->ranks == 1) return TREADLE_OK;
  treadle_status status = treadle_group_say(rl->group, figures, bytes);
  if (!status) memcpy(figures, treadle_group_said(rl->group, 0), bytes);
  return status;
}

void treadle_rl_doing(const treadle_rl *rl, const char *what) {
  if (rl->rank == 0) treadle_observe_progress(&rl->observer, what, 0, 0);
}

void treadle_rl_note(const treadle_rl *rl, const char *format, ...) {
  char line[PATH_MAX + 200];
  va_list values;
  if (rl->rank > 0) return;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  treadle_observe_note(&rl->observer, false, line);
}

/* ---- Models and layouts ---------------------------------------------------------------------------------------- */

/* "vllm:tp=2,pp=2" where no layout is given. */
static void infer_text(const treadle_rl *rl, char *text, size_t room) {
  const treadle_train_settings *s = rl->settings;
  if (s->generate.layout)
    snprintf(text, room, "%s", s->generate.layout);
  else
    snprintf(text, room, "vllm:tp=%lld", (long long)s->generate.infer_tensor_parallel_size);
  if (!s->generate.layout && s->generate.infer_pipeline_parallel_size > 1)
    snprintf(text + strlen(text), room - strlen(text), ",pp=%lld",
             (long long)s->generate.infer_pipeline_parallel_size);
  if (!strstr(text, "dtype="))
    snprintf(text + strlen(text), room - strlen(text), "%sdtype=%s", strchr(text, ':') ? "," : ":",
             s->training.bf16 ? "bf16" : "fp32");
}

/* Of a reference of its own: the message names its key. */
static treadle_status say_reference(const treadle_rl *rl, treadle_status status) {
  return rl->settings->rl.kl.ref_model ? treadle_refused_at(TREADLE_RL_PLACE(rl, rl.kl.ref_model), status)
                                       : status;
}

static void close_layouts(treadle_rl *rl) {
  treadle_layout_destroy(rl->train);
  treadle_layout_destroy(rl->infer);
  treadle_layout_destroy(rl->reference);
  rl->train = rl->infer = rl->reference = NULL;
}

treadle_status treadle_rl_open_layouts(treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  char text[1024];
  treadle_status status;
  close_layouts(rl);
  TRY(treadle_train_config_layout(rl->config, TREADLE_PART_PARAMS, rl->model->layers, rl->ranks, text,
                                  sizeof text));
  TRY(treadle_layout_create(rl->model, text, rl->ranks, NULL, &rl->train));
  if (treadle_rl_uses_kl(s))
    TRY(say_reference(rl, treadle_layout_create(rl->reference_model ? rl->reference_model : rl->model, text,
                                                rl->ranks, NULL, &rl->reference)));
  infer_text(rl, text, sizeof text);
  TRY(treadle_layout_create(rl->model, text, rl->ranks, NULL, &rl->infer));
out:
  return status;
}

/* A mere name of a model ("qwen25-7b"), as MindSpeed-RL's files have it, stands for the folder of the tokenizer, and this is said: the name
 * may as well be a path that was mistyped. */
static bool names_tokenizer(const treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  return s->training.tokenizer_name_or_path && !strchr(s->actor.model, '/') &&
         !treadle_file_exists(s->actor.model);
}

/* The folder has weights of its own, where the run needs some and is not told to make them up. */
static treadle_status check_named(treadle_rl *rl, bool needs) {
  const treadle_train_settings *s = rl->settings;
  if (needs && s->actor.weights != TREADLE_WEIGHTS_RANDOM &&
      treadle_model_weights(rl->model) != TREADLE_WEIGHTS_FILES)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: there is no file or folder %s, and that of tokenizer_name_or_path, %s, which "
                        "stands for a model that is a mere name, has no weights: name the model's folder",
                        TREADLE_RL_PLACE(rl, actor.model), s->actor.model, rl->model_path);
  char line[PATH_MAX + 300];
  snprintf(line, sizeof line,
           "%s: there is no file or folder %s: the model is that of tokenizer_name_or_path, %s",
           TREADLE_RL_PLACE(rl, actor.model), s->actor.model, rl->model_path);
  treadle_rl_warn(rl, line);
  return TREADLE_OK;
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

/* One without files has the weights that the policy begins with, and these have to be made up as well. */
static treadle_status open_reference(treadle_rl *rl, const treadle_model_options *options) {
  const char *path = rl->settings->rl.kl.ref_model;
  treadle_status status;
  TRY(treadle_model_open(path, options, &rl->reference_model));
  treadle_model_tell(rl->reference_model, warn, rl);
  if (rl->plans) return TREADLE_OK;
  TRY(treadle_model_need_weights(rl->reference_model));
  if (treadle_model_weights(rl->reference_model) == TREADLE_WEIGHTS_RANDOM &&
      treadle_model_weights(rl->model) != TREADLE_WEIGHTS_RANDOM)
    status = treadle_fail(
        TREADLE_REFUSED,
        "%s is a config.json, without weights: name the folder that has them, or leave the key "
        "out, and the reference is what the policy begins with",
        path);
out:
  return status;
}

static treadle_status open_models(treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  treadle_model_options options = {.struct_size = sizeof options,
                                   .families = rl->options->families,
                                   .weights = (treadle_weights)s->actor.weights};
  const bool elsewhere =
      rl->from[0] || s->megatron.use_hf_ckpt || s->megatron.checkpoint_load_path || s->actor.load;
  const bool named = !rl->model_path[0] && names_tokenizer(rl);
  treadle_status status;
  if (!rl->model_path[0])
    snprintf(rl->model_path, sizeof rl->model_path, "%s",
             named ? s->training.tokenizer_name_or_path : s->actor.model);
  TRY(treadle_model_open(rl->model_path, &options, &rl->opened));
  rl->model = rl->opened;
  treadle_model_tell(rl->model, warn, rl);
  TRY(treadle_train_tell_dropout(rl->model, warn, rl));
  if (named) TRY(check_named(rl, !rl->plans && !elsewhere));
  if (!rl->plans && !elsewhere) TRY(treadle_model_need_weights(rl->model));
  options.weights = TREADLE_WEIGHTS_NONE;
  if (s->rl.kl.ref_model && treadle_rl_uses_kl(s)) TRY(say_reference(rl, open_reference(rl, &options)));
  TRY(treadle_rl_open_layouts(rl));
out:
  return status;
}

treadle_status treadle_rl_open_text(treadle_rl *rl) {
  const char *path = rl->settings->training.tokenizer_name_or_path;
  bool must = path != NULL;
  char folder[PATH_MAX];
  treadle_status status;
  snprintf(folder, sizeof folder, "%s", must ? path : rl->model_path);
  char *slash = strrchr(folder, '/');
  size_t length = strlen(folder);
  if (!must && length > 5 && strcmp(folder + length - 5, ".json") == 0) {
    if (slash)
      *slash = 0;
    else
      strcpy(folder, ".");
  }
  snprintf(rl->companions, sizeof rl->companions, "%s", folder);
  status = must ? treadle_tokenizer_open(folder, &rl->tokenizer)
                : treadle_tokenizer_open_if_there(folder, &rl->tokenizer);
  if (status || !rl->tokenizer) return status;
  if (treadle_file_is_folder(folder)) status = treadle_folder_check_companions(folder);
  return status ? status : treadle_chat_find(folder, &rl->chat);
}

/* ---- Lengths ----------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_find_lengths(treadle_rl *rl, const treadle_model *model) {
  const treadle_train_settings *s = rl->settings;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(model, &d));
  int64_t all = s->training.seq_length;
  rl->vocabulary = d->vocabulary;
  if (all && d->most_positions && all > d->most_positions)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %lld tokens, and the model takes %lld",
                     TREADLE_RL_PLACE(rl, training.seq_length), (long long)all,
                     (long long)d->most_positions));
  if (!all)
    all = d->most_positions && d->most_positions < SEQUENCE_MOST ? d->most_positions : SEQUENCE_MOST;
  rl->response_most = s->sampling.max_tokens            ? s->sampling.max_tokens
                      : s->rl.lengths.max_prompt_length ? all - s->rl.lengths.max_prompt_length
                                                        : all / 2;
  rl->prompt_most =
      s->rl.lengths.max_prompt_length ? s->rl.lengths.max_prompt_length : all - rl->response_most;
  if (!s->training.seq_length) all = rl->prompt_most + rl->response_most;
  if (rl->response_most < 1 || rl->prompt_most < 1 || rl->prompt_most + rl->response_most > all ||
      (d->most_positions && all > d->most_positions))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "prompts of %lld and responses of %s (%s) are more than the %lld of a sequence (%s)",
                     (long long)rl->prompt_most, treadle_text_of_count(rl->response_most, "token"),
                     TREADLE_RL_PLACE(rl, sampling.max_tokens),
                     (long long)(d->most_positions && all > d->most_positions ? d->most_positions : all),
                     TREADLE_RL_PLACE(rl, training.seq_length)));
  if (rl->config) TRY(treadle_train_config_check_lengths(rl->config, rl->prompt_most, rl->response_most));
  if (rl->tokenizer && treadle_tokenizer_own_count(rl->tokenizer) > d->vocabulary)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "the tokenizer of %s has %d ids, the model of %s a vocabulary of %lld: it is another model's",
        rl->companions, treadle_tokenizer_own_count(rl->tokenizer), rl->model_path,
        (long long)d->vocabulary));
  TRY(treadle_defaults_check(d, rl->tokenizer, true));
out:
  treadle_transformer_destroy(d);
  return status;
}

/* ---- The worker -------------------------------------------------------------------------------------------------- */

static treadle_status find_replicas(const treadle_rl *rl, int64_t *dp_p) {
  treadle_arena arena = {0};
  treadle_transformer *d = NULL;
  treadle_replica replica;
  treadle_status status = TREADLE_OK;
  *dp_p = rl->ranks;
  if (rl->settings->actor.strategy == TREADLE_STRATEGY_FSDP2) return TREADLE_OK;
  TRY(treadle_transformer_create(rl->model, &d));
  TRY(treadle_replica_find(d, rl->train, 0, &arena, &replica));
  *dp_p = replica.count;
out:
  treadle_transformer_destroy(d);
  treadle_arena_release(&arena);
  return status;
}

/* Micro batches of a replica, at most: of a mini batch, and of all samples where log-probabilities are computed, which keep nothing. */
static treadle_status count_batches(const treadle_rl *rl, int32_t *most_p, bool *fewer_p) {
  const treadle_train_settings *s = rl->settings;
  int64_t dp, samples = treadle_train_step_prompts(s) * s->rl.batches.n_samples_per_prompt;
  int64_t mini = s->rl.batches.mini_batch_samples > 0 ? s->rl.batches.mini_batch_samples : samples, count;
  treadle_status status;
  TRY(find_replicas(rl, &dp));
  count =
      s->actor.micro_batch_size ? (mini + s->actor.micro_batch_size - 1) / s->actor.micro_batch_size : mini;
  *fewer_p = !s->actor.micro_batch_size || count % dp != 0;
  count = (count + dp - 1) / dp;
  if (count > BATCHES_MOST)
    TRY(treadle_fail(
        TREADLE_REFUSED, "%s: %lld micro batches on each of %lld data parallel ranks; at most %d",
        TREADLE_RL_PLACE(rl, training.global_batch_size), (long long)count, (long long)dp, BATCHES_MOST));
  *most_p = (int32_t)count;
out:
  return status;
}

static treadle_choice choice(bool on) { return on ? TREADLE_ON : TREADLE_OFF; }

treadle_status treadle_rl_actor_options(const treadle_rl *rl, treadle_trainer_options *trainer,
                                        treadle_generator_options *engine, treadle_actor_options *to) {
  const treadle_train_settings *s = rl->settings;
  const treadle_config_generate *g = &s->generate;
  const int64_t length = rl->prompt_most + rl->response_most;
  int32_t most_micro_batches;
  treadle_status status;
  bool fewer;
  TRY(count_batches(rl, &most_micro_batches, &fewer));
  *trainer = (treadle_trainer_options){
      .struct_size = sizeof *trainer,
      .kernels = rl->options->kernels,
      .threads = rl->options->threads,
      .fast = !s->actor.exact,
      .most_tokens = length,
      .most_rows = s->actor.max_tokens_per_micro ? s->actor.max_tokens_per_micro
                                                 : s->actor.micro_batch_size * length,
      .companions = rl->tokenizer && treadle_file_is_folder(rl->companions) ? rl->companions : NULL,
      .recompute = s->training.recompute_granularity == TREADLE_RECOMPUTE_FULL,
      .sequence_parallel = s->training.sequence_parallel,
      .optimizer = true,
      .distributed_optimizer = s->training.use_distributed_optimizer,
      .offload_policy = s->actor.offload_policy,
      .adam_beta1 = s->actor.adam_beta1,
      .adam_beta2 = s->actor.adam_beta2,
      .adam_eps = s->actor.adam_eps,
      .most_sequences = s->actor.micro_batch_size,
      .most_micro_batches = most_micro_batches,
      .fewer_micro_batches = fewer};
  *engine = (treadle_generator_options){
      .struct_size = sizeof *engine,
      .kernels = rl->options->kernels,
      .threads = rl->options->threads,
      .fast = !s->actor.exact,
      .max_batch = (int32_t)g->max_num_seqs,
      .prefill_chunk = g->max_num_batched_tokens > 0 ? (int32_t)g->max_num_batched_tokens : 0,
      .block_tokens = (int32_t)g->block_size,
      .max_len = g->max_model_len > 0 ? g->max_model_len : length};
  *to = (treadle_actor_options){.struct_size = sizeof *to,
                                .trainer = trainer,
                                .engine = engine,
                                .reference = rl->reference,
                                .offload_train_param = choice(g->offload_train_param),
                                .offload_train_grad = choice(g->offload_train_grad),
                                .offload_train_optimizer = choice(g->offload_train_optimizer),
                                .keep = TREADLE_KEEP_HOST,
                                .page_bytes = treadle_rl_page_bytes(rl->model),
                                .cap_bytes = 0,
                                .kv_bytes = g->kv_memory,
                                .budget_bytes =
                                    (size_t)((double)g->device_memory * g->gpu_memory_utilization),
                                .timeout_seconds = 600,
                                .open_train = rl->options->open_train,
                                .train_context = rl->options->train_context,
                                .open_infer = rl->options->open_infer,
                                .infer_context = rl->options->infer_context};
out:
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_open_inputs(treadle_rl *rl) {
  treadle_status status;
  TRY(treadle_train_config_need(rl->config, rl->plans));
  rl->kl_coef = rl->settings->rl.kl.init_coef;
  TRY(open_models(rl));
  TRY(treadle_rl_check_exact(rl));
  TRY(treadle_rl_open_text(rl));
  TRY(treadle_rl_find_lengths(rl, rl->model));
  TRY(treadle_rl_find_never(rl, rl->settings->sampling.ignore_eos ? rl->model : NULL));
  treadle_rl_note_never(rl);
  treadle_rl_note_kept(rl);
  if (rl->plans) return TREADLE_OK;
  TRY(treadle_rl_open_data(rl));
  if (rl->from[0] && rl->rank == 0) TRY(treadle_rl_read_start(rl));
  if (rl->rank == 0 && rl->step < rl->settings->training.train_iters && !rl->options->open_train)
    TRY(treadle_train_check_room(rl->config, rl->model));
out:
  return status;
}

treadle_status treadle_rl_open(treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  treadle_actor_options options;
  treadle_status status;
  rl->saved = -1;
  rl->val_first = rl->val_last = NAN;
  rl->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->actor.lr_decay_style,
                                       .lr = s->actor.lr,
                                       .min_lr = s->actor.min_lr,
                                       .warmup_fraction = s->actor.lr_warmup_fraction,
                                       .steps = treadle_rl_optimizer_steps(s)};
  TRY(treadle_rl_agree(rl, treadle_rl_find_start(rl)));
  if (rl->from[0]) TRY(treadle_rl_check_start(rl));
  TRY(treadle_rl_agree(rl, treadle_as_refusal(treadle_rl_open_inputs(rl))));
  treadle_rl_doing(rl, "the forecast of memory");
  TRY(treadle_rl_agree(rl, rl->rank == 0 ? treadle_rl_predict(rl, NULL) : TREADLE_OK));
  TRY(treadle_rl_agree(rl, treadle_rl_actor_options(rl, &trainer, &engine, &options)));
  TRY(treadle_rl_open_values(rl));
  options.reference = rl->reference; /* layouts are made anew with other values */
  TRY(treadle_rl_agree(rl, treadle_rl_check_weights(rl)));
  const treadle_observer books = {
      .struct_size = sizeof books, .context = rl, .memory = rl->rank == 0 ? treadle_rl_note_moment : NULL};
  options.observer = &books;
  TRY(treadle_actor_create(rl->group, rl->train, rl->infer, &options, &rl->actor));
  TRY(treadle_rl_fill_weights(rl));
  rl->workers = (treadle_worker_group){
      .group = rl->ranks > 1 ? rl->group : NULL, .methods = treadle_rl_methods, .worker = rl};
out:
  return status;
}

void treadle_rl_close(treadle_rl *rl) {
  treadle_free(rl->never);
  treadle_metrics_close(rl->metrics);
  treadle_rl_sample_log_close(rl->sample_log);
  for (int i = 0; i < rl->reward_count; i++) treadle_reward_destroy(rl->rewards[i]);
  treadle_rl_batch_release(&rl->batch);
  treadle_message_release(&rl->in);
  treadle_message_release(&rl->out);
  treadle_worker_group_release(&rl->workers);
  treadle_array_release(&rl->judged);
  treadle_arena_release(&rl->judged_texts);
  treadle_array_release(&rl->totals.seconds);
  treadle_array_release(&rl->totals.rewards);
  treadle_array_release(&rl->moments);
  treadle_array_release(&rl->values);
  treadle_arena_release(&rl->names);
  treadle_actor_destroy(rl->actor);
  treadle_train_order_release(&rl->order);
  treadle_rl_prompts_destroy(rl->prompts);
  treadle_rl_prompts_destroy(rl->tests);
  treadle_chat_close(rl->chat);
  treadle_tokenizer_close(rl->tokenizer);
  close_layouts(rl);
  treadle_values_close(rl->start_values);
  treadle_model_close(rl->opened);
  treadle_model_close(rl->reference_model);
}
