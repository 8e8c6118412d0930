/* What a configuration names, opened: models, layouts, the worker; prompts and rewards are in loop_data.c. Nothing is written here. */
#include "rl/memory.h"

#include "base/alloc.h"
#include "base/text.h"
#include "convert/values.h"
#include "generate/generator.h"
#include "io/file.h"
#include "io/folder.h"
#include "layout/layout.h"
#include "model/notes.h"
#include "pass/transformer.h"
#include "rl/role.h"
#include "run/checkpoint_room.h"
#include "run/dropout.h"
#include "token/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_MOST = 4096 };

/* ---- Models and layouts ---------------------------------------------------------------------------------------- */

/* "vllm:tp=2,pp=2,dp=2,ep=on" where no layout is given: experts are divided among tp ranks of dp data parallel ones. */
static void infer_text(const treadle_train_settings *s, char *text, size_t room) {
  const int64_t tp = s->generate.infer_tensor_parallel_size, ep = s->generate.infer_expert_parallel_size;
  if (s->generate.layout)
    snprintf(text, room, "%s", s->generate.layout);
  else
    snprintf(text, room, "vllm:tp=%lld", (long long)tp);
  if (!s->generate.layout && s->generate.infer_pipeline_parallel_size > 1)
    snprintf(text + strlen(text), room - strlen(text), ",pp=%lld",
             (long long)s->generate.infer_pipeline_parallel_size);
  if (!s->generate.layout && ep > tp)
    snprintf(text + strlen(text), room - strlen(text), ",dp=%lld", (long long)(ep / tp));
  if (!s->generate.layout && ep > 1) snprintf(text + strlen(text), room - strlen(text), ",ep=on");
  if (!strstr(text, "dtype="))
    snprintf(text + strlen(text), room - strlen(text), "%sdtype=%s", strchr(text, ':') ? "," : ":",
             s->training.bf16 ? "bf16" : "fp32");
}

/* Of a reference of its own: the message names its key. */
static treadle_status say_reference(const treadle_rl_task *task, treadle_status status) {
  return task->settings->rl.kl.ref_model
             ? treadle_refused_at(TREADLE_RL_PLACE(task, rl.kl.ref_model), status)
             : status;
}

static void close_layouts(treadle_rl_models *models) {
  treadle_layout_destroy(models->train);
  treadle_layout_destroy(models->infer);
  treadle_layout_destroy(models->reference);
  treadle_layout_destroy(models->of_trainer);
  models->train = models->infer = models->reference = models->of_trainer = NULL;
}

/* On these ranks alone, of those of the group. */
static void add_ranks(char *text, size_t room, int first, int end) {
  const size_t length = strlen(text);
  snprintf(text + length, room - length, "%son=%d-%d", strchr(text, ':') ? "," : ":", first, end - 1);
}

/* Does the generator's layout fit on its own ranks? Said by its key, and without the ranks before them. */
static treadle_status check_infer(const treadle_rl_task *task, const treadle_model *model, int ranks) {
  const treadle_train_settings *s = task->settings;
  treadle_layout *alone = NULL;
  char text[1024];
  infer_text(s, text, sizeof text);
  const treadle_status status = treadle_layout_create(model, text, ranks, NULL, &alone);
  treadle_layout_destroy(alone);
  return treadle_refused_at(s->generate.layout
                                ? TREADLE_RL_PLACE(task, generate.layout)
                                : TREADLE_RL_PLACE(task, generate.infer_tensor_parallel_size),
                            status);
}

/* Where Rollout has a pool of its own, its ranks stand behind those that train. */
static treadle_status open_apart(treadle_rl_models *models, const treadle_rl_task *task, int trainers,
                                 int ranks) {
  char text[1024];
  treadle_status status;
  TRY(treadle_train_config_layout(task->config, TREADLE_PART_PARAMS, models->model->layers, trainers, text,
                                  sizeof text));
  TRY(treadle_layout_create(models->model, text, trainers, NULL, &models->of_trainer));
  TRY(check_infer(task, models->model, ranks - trainers));
  add_ranks(text, sizeof text, 0, trainers);
  TRY(treadle_layout_create(models->model, text, ranks, NULL, &models->train));
  infer_text(task->settings, text, sizeof text);
  add_ranks(text, sizeof text, trainers, ranks);
  TRY(treadle_layout_create(models->model, text, ranks, NULL, &models->infer));
out:
  return status;
}

treadle_status treadle_rl_open_layouts(treadle_rl_models *models, const treadle_rl_task *task,
                                       const treadle_rl_crew *crew) {
  const treadle_train_settings *s = task->settings;
  const int ranks = crew->policy_ranks;
  char text[1024];
  treadle_status status;
  close_layouts(models);
  if (crew->rollout_ranks) return open_apart(models, task, ranks - crew->rollout_ranks, ranks);
  TRY(treadle_train_config_layout(task->config, TREADLE_PART_PARAMS, models->model->layers, ranks, text,
                                  sizeof text));
  TRY(treadle_layout_create(models->model, text, ranks, NULL, &models->train));
  const bool base =
      s->actor.lora_rank && !models->reference_model; /* the reference is the base of the adapters */
  if (treadle_rl_uses_kl(s) && !task->config->has_reference_apart && !base)
    TRY(say_reference(
        task, treadle_layout_create(models->reference_model ? models->reference_model : models->model, text,
                                    ranks, NULL, &models->reference)));
  infer_text(task->settings, text, sizeof text);
  TRY(treadle_layout_create(models->model, text, ranks, NULL, &models->infer));
out:
  return status;
}

/* A mere name of a model ("qwen25-7b"), as MindSpeed-RL's files have it, stands for the folder of the tokenizer, and this is said: the name
 * may as well be a path that was mistyped. */
static bool names_tokenizer(const treadle_train_settings *s) {
  return s->training.tokenizer_name_or_path && !strchr(s->actor.model, '/') &&
         !treadle_file_exists(s->actor.model);
}

/* The folder has weights of its own, where the run needs some and is not told to make them up. */
static treadle_status check_named(const treadle_rl_models *models, const treadle_rl_task *task,
                                  const treadle_rl_crew *crew, bool needs) {
  const treadle_train_settings *s = task->settings;
  if (needs && s->actor.weights != TREADLE_WEIGHTS_RANDOM &&
      treadle_model_weights(models->model) != TREADLE_WEIGHTS_FILES)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: there is no file or folder %s, and that of tokenizer_name_or_path, %s, which "
                        "stands for a model that is a mere name, has no weights: name the model's folder",
                        TREADLE_RL_PLACE(task, actor.model), s->actor.model, models->path);
  char line[PATH_MAX + 300];
  snprintf(line, sizeof line,
           "%s: there is no file or folder %s: the model is that of tokenizer_name_or_path, %s",
           TREADLE_RL_PLACE(task, actor.model), s->actor.model, models->path);
  treadle_rl_warn(crew, line);
  return TREADLE_OK;
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

/* One without files has the weights that the policy begins with, and these have to be made up as well. */
static treadle_status open_reference(treadle_rl_models *models, const treadle_rl_task *task,
                                     treadle_rl_crew *crew, const treadle_model_options *options) {
  const char *path = task->settings->rl.kl.ref_model;
  treadle_status status;
  TRY(treadle_model_open(path, options, &models->reference_model));
  treadle_model_tell(models->reference_model, warn, crew);
  if (task->plans) return TREADLE_OK;
  TRY(treadle_model_need_weights(models->reference_model));
  if (treadle_model_weights(models->reference_model) == TREADLE_WEIGHTS_RANDOM &&
      treadle_model_weights(models->model) != TREADLE_WEIGHTS_RANDOM)
    status = treadle_fail(
        TREADLE_REFUSED,
        "%s is a config.json, without weights: name the folder that has them, or leave the key "
        "out, and the reference is what the policy begins with",
        path);
out:
  return status;
}

static treadle_status open_policy(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  treadle_model_options options = {.struct_size = sizeof options,
                                   .families = rl->task.options->families,
                                   .weights = (treadle_weights)s->actor.weights};
  const bool elsewhere =
      rl->state.from[0] || s->megatron.use_hf_ckpt || s->megatron.checkpoint_load_path || s->actor.load;
  const bool named = !rl->models.path[0] && names_tokenizer(rl->task.settings);
  treadle_status status;
  if (!rl->models.path[0])
    snprintf(rl->models.path, sizeof rl->models.path, "%s",
             named ? s->training.tokenizer_name_or_path : s->actor.model);
  TRY(treadle_model_open(rl->models.path, &options, &rl->models.opened));
  rl->models.model = rl->models.opened;
  treadle_model_tell(rl->models.model, warn, &rl->crew);
  TRY(treadle_train_tell_dropout(rl->models.model, warn, &rl->crew));
  if (named) TRY(check_named(&rl->models, &rl->task, &rl->crew, !rl->task.plans && !elsewhere));
  if (!rl->task.plans && !elsewhere) TRY(treadle_model_need_weights(rl->models.model));
out:
  return status;
}

static treadle_status open_models(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  treadle_model_options options = {.struct_size = sizeof options,
                                   .families = rl->task.options->families,
                                   .weights = TREADLE_WEIGHTS_NONE};
  treadle_status status;
  TRY(open_policy(rl));
  if (s->rl.kl.ref_model && treadle_rl_uses_kl(s))
    TRY(say_reference(&rl->task, open_reference(&rl->models, &rl->task, &rl->crew, &options)));
  TRY(treadle_rl_open_layouts(&rl->models, &rl->task, &rl->crew));
  TRY(treadle_rl_critic_open(&rl->critic, &rl->task, &rl->crew, &rl->models));
  TRY(treadle_rl_reward_model_open(&rl->reward_model, &rl->task, &rl->crew, &rl->models));
  TRY(treadle_rl_reference_open(&rl->reference, &rl->task, &rl->crew, &rl->models));
out:
  return status;
}

/* ---- Lengths ----------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_find_lengths(treadle_rl_bounds *bounds, const treadle_rl_task *task,
                                       const treadle_run_text *text, const char *model_path,
                                       const treadle_model *model) {
  const treadle_train_settings *s = task->settings;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(model, &d));
  const treadle_config_routers routers = {model_path, d->routing.experts, d->routing.sigmoid};
  TRY(treadle_train_config_check_routers(task->config, &routers));
  TRY(treadle_train_config_check_lora(task->config, model));
  int64_t all = s->training.seq_length;
  bounds->vocabulary = d->vocabulary;
  bounds->experts_top = d->routing.top;
  bounds->record_bytes = treadle_transformer_record_bytes(d);
  if (s->actor.router_replay != TREADLE_REPLAY_DISABLED && !bounds->record_bytes)
    TRY(treadle_fail(TREADLE_REFUSED, "%s is %s: the model of %s has no experts to record",
                     TREADLE_RL_PLACE(task, actor.router_replay),
                     treadle_rl_trainer_records(s) ? "R2" : "R3", model_path));
  if (all && d->most_positions && all > d->most_positions)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %lld tokens, and the model takes %lld",
                     TREADLE_RL_PLACE(task, training.seq_length), (long long)all,
                     (long long)d->most_positions));
  if (!all)
    all = d->most_positions && d->most_positions < SEQUENCE_MOST ? d->most_positions : SEQUENCE_MOST;
  bounds->response_most = s->sampling.max_tokens            ? s->sampling.max_tokens
                          : s->rl.lengths.max_prompt_length ? all - s->rl.lengths.max_prompt_length
                                                            : all / 2;
  bounds->prompt_most =
      s->rl.lengths.max_prompt_length ? s->rl.lengths.max_prompt_length : all - bounds->response_most;
  if (!s->training.seq_length) all = bounds->prompt_most + bounds->response_most;
  if (bounds->response_most < 1 || bounds->prompt_most < 1 ||
      bounds->prompt_most + bounds->response_most > all || (d->most_positions && all > d->most_positions))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "prompts of %lld and responses of %s (%s) are more than the %lld of a sequence (%s)",
                     (long long)bounds->prompt_most, treadle_text_of_count(bounds->response_most, "token"),
                     TREADLE_RL_PLACE(task, sampling.max_tokens),
                     (long long)(d->most_positions && all > d->most_positions ? d->most_positions : all),
                     TREADLE_RL_PLACE(task, training.seq_length)));
  if (task->config)
    TRY(treadle_train_config_check_lengths(task->config, bounds->prompt_most, bounds->response_most));
  if (text->tokenizer && treadle_tokenizer_own_count(text->tokenizer) > d->vocabulary)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "the tokenizer of %s has %d ids, the model of %s a vocabulary of %lld: it is another model's",
        text->companions, treadle_tokenizer_own_count(text->tokenizer), model_path,
        (long long)d->vocabulary));
  TRY(treadle_defaults_check(d, text->tokenizer, true));
out:
  treadle_transformer_destroy(d);
  return status;
}

/* ---- The worker -------------------------------------------------------------------------------------------------- */

static treadle_choice choice(bool on) { return on ? TREADLE_ON : TREADLE_OFF; }

treadle_status treadle_rl_actor_options(const treadle_rl_forecast *f, treadle_trainer_options *trainer,
                                        treadle_generator_options *engine, treadle_actor_options *to) {
  const treadle_train_settings *s = f->task.settings;
  const treadle_config_generate *g = &s->generate;
  const int64_t length = f->bounds->prompt_most + f->bounds->response_most;
  const size_t budget = treadle_rl_room(s);
  size_t beside = 0, scores = 0; /* what a critic and a reward model have at rest */
  const treadle_layout *trainer_layout = f->models->of_trainer ? f->models->of_trainer : f->models->train;
  const treadle_rl_role policy = {f->models->model, trainer_layout, &s->actor};
  treadle_status status;
  TRY(treadle_rl_trainer_options(&policy, &f->task, f->bounds, f->text, trainer));
  if (budget && treadle_rl_teams_share(f->teams, TREADLE_POOL_ROLE_CRITIC))
    TRY(treadle_rl_critic_resting(f->critic, &f->task, f->bounds, f->text, &beside));
  if (budget && treadle_rl_teams_share(f->teams, TREADLE_POOL_ROLE_REWARD_MODEL))
    TRY(treadle_rl_reward_model_resting(f->reward_model, &f->task, f->bounds, f->text, &scores));
  beside += scores;
  *engine = (treadle_generator_options){
      .struct_size = sizeof *engine,
      .kernels = f->task.options->kernels,
      .threads = f->task.options->threads,
      .fast = !s->actor.exact,
      .experts = s->actor.router_replay == TREADLE_REPLAY_R3,
      .max_batch = (int32_t)g->max_num_seqs,
      .prefill_chunk = g->max_num_batched_tokens > 0 ? (int32_t)g->max_num_batched_tokens : 0,
      .block_tokens = (int32_t)g->block_size,
      .max_len = g->max_model_len > 0 ? g->max_model_len : length};
  *to = (treadle_actor_options){.struct_size = sizeof *to,
                                .trainer = trainer,
                                .engine = engine,
                                .reference = f->models->reference,
                                .offload_train_param = choice(g->offload_train_param),
                                .offload_train_grad = choice(g->offload_train_grad),
                                .offload_train_optimizer = choice(g->offload_train_optimizer),
                                .keep = TREADLE_KEEP_HOST,
                                .page_bytes = treadle_rl_page_bytes(f->models->model),
                                .cap_bytes = 0,
                                .kv_bytes = g->kv_memory,
                                .budget_bytes = budget > beside ? budget - beside
                                                : budget        ? 1
                                                                : 0,
                                .timeout_seconds = 600,
                                .open_train = f->task.options->open_train,
                                .train_context = f->task.options->train_context,
                                .open_infer = f->task.options->open_infer,
                                .infer_context = f->task.options->infer_context};
out:
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_open_lengths(treadle_rl *rl) {
  treadle_status status;
  TRY(open_policy(rl));
  TRY(treadle_run_text_open(rl->task.settings->training.tokenizer_name_or_path, rl->models.path,
                            &rl->text));
  TRY(treadle_rl_find_lengths(&rl->bounds, &rl->task, &rl->text, rl->models.path, rl->models.model));
out:
  return status;
}

treadle_status treadle_rl_open_inputs(treadle_rl *rl) {
  treadle_status status;
  TRY(treadle_train_config_need(rl->task.config, rl->task.plans));
  rl->state.kl_coef = rl->task.settings->rl.kl.init_coef;
  TRY(open_models(rl));
  TRY(treadle_rl_check_exact(&rl->models, &rl->task));
  TRY(treadle_run_text_open(rl->task.settings->training.tokenizer_name_or_path, rl->models.path,
                            &rl->text));
  TRY(treadle_rl_find_lengths(&rl->bounds, &rl->task, &rl->text, rl->models.path, rl->models.model));
  TRY(treadle_rl_find_never(&rl->bounds, rl->text.tokenizer,
                            rl->task.settings->sampling.ignore_eos ? rl->models.model : NULL));
  treadle_rl_note_never(&rl->bounds, &rl->text, &rl->crew);
  treadle_rl_note_kept(&rl->bounds, &rl->task, &rl->crew);
  if (rl->task.plans) return TREADLE_OK;
  TRY(treadle_rl_open_data(rl));
  if (rl->state.from[0] && rl->crew.leads)
    TRY(treadle_rl_read_start(&rl->state, &rl->task, rl->data.prompts));
  if (rl->crew.leads && rl->state.step < rl->task.settings->training.train_iters &&
      !rl->task.options->open_train)
    TRY(treadle_train_check_room(rl->task.config, rl->models.model, rl->critic.model));
out:
  return status;
}

/* From here on: until now each was made, and went to rest. */
static void count_roles(treadle_tenant *const roles[3], treadle_actor_books *books) {
  for (int i = 0; i < 3; i++)
    if (roles[i]) treadle_tenant_count_in(roles[i], books);
}

/* What this rank works in, with its weights. Collective in its team. */
static treadle_status open_roles(treadle_rl *rl, treadle_actor_options *options) {
  const treadle_observer books = {.struct_size = sizeof books,
                                  .context = rl,
                                  .memory =
                                      rl->crew.leads && !rl->teams.apart ? treadle_rl_note_moment : NULL};
  treadle_status status = TREADLE_OK;
  options->observer = &books;
  if (rl->teams.works[TREADLE_POOL_ROLE_CRITIC])
    TRY(treadle_rl_critic_create(&rl->critic, &rl->task, &rl->bounds, &rl->text, &rl->beside,
                                 rl->state.from));
  if (rl->teams.works[TREADLE_POOL_ROLE_REWARD_MODEL])
    TRY(treadle_rl_reward_model_create(&rl->reward_model, &rl->task, &rl->bounds, &rl->text, &rl->beside));
  if (rl->task.config->has_reference_apart && rl->teams.works[TREADLE_POOL_ROLE_REF_POLICY])
    TRY(treadle_rl_reference_create(&rl->reference, &rl->task, &rl->bounds, &rl->text, &rl->beside));
  if (rl->teams.works[TREADLE_POOL_ROLE_ACTOR_ROLLOUT])
    TRY(treadle_actor_create(rl->crew.group, rl->models.train, rl->models.infer, options, &rl->actor));
  treadle_tenant *const roles[] = {rl->critic.role, rl->reward_model.role, rl->reference.role};
  count_roles(roles, rl->actor ? &rl->actor->books : &rl->books);
  if (!rl->actor) goto out;
  treadle_rl_doing(&rl->crew, "the weights");
  TRY(treadle_rl_fill_weights(rl->actor, &rl->models, rl->state.from, rl->task.settings->training.seed));
out:
  return status;
}

/* The digests of a checkpoint are looked at by all ranks together; apart, by the controller. */
static treadle_status check_start(const treadle_rl_state *state, const treadle_rl_task *task,
                                  const treadle_rl_crew *whole, const treadle_rl_crew *crew, bool apart) {
  if (!state->from[0]) return TREADLE_OK;
  if (!apart) return treadle_rl_check_start(state, task, crew);
  return treadle_rl_agree(whole, crew->leads ? treadle_rl_check_start(state, task, crew) : TREADLE_OK);
}

static void begin_stage(void *run, const char *said) { treadle_rl_stage(run, said); }

static treadle_rl_stages stages_of(treadle_rl *rl) {
  return (treadle_rl_stages){.settings = rl->task.settings,
                             .teams = &rl->teams,
                             .state = &rl->state,
                             .ledger = &rl->ledger,
                             .batch = &rl->batch,
                             .tests = &rl->tests,
                             .stopped = &rl->stopped,
                             .processes = rl->whole.ranks,
                             .work = treadle_rl_stage_work,
                             .begin = begin_stage,
                             .run = rl};
}

treadle_status treadle_rl_open(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  const treadle_rl_crew *whole = &rl->whole;
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  treadle_actor_options options;
  treadle_status status;
  rl->state.saved = -1;
  rl->ledger.totals.val_first = rl->ledger.totals.val_last = NAN;
  rl->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->actor.lr_decay_style,
                                       .lr = s->actor.lr,
                                       .min_lr = s->actor.min_lr,
                                       .warmup_fraction = s->actor.lr_warmup_fraction,
                                       .steps = treadle_rl_optimizer_steps(s)};
  TRY(treadle_rl_agree(whole, treadle_rl_find_start(&rl->state, &rl->task, &rl->crew)));
  TRY(check_start(&rl->state, &rl->task, whole, &rl->crew, rl->teams.apart));
  TRY(treadle_rl_agree(whole, treadle_as_refusal(treadle_rl_open_inputs(rl))));
  treadle_rl_doing(&rl->crew, "the forecast of memory");
  const treadle_rl_forecast forecast = treadle_rl_forecast_of(rl);
  TRY(treadle_rl_agree(whole,
                       rl->crew.leads ? treadle_rl_predict(&forecast, NULL, &rl->predicted) : TREADLE_OK));
  TRY(treadle_rl_agree(whole, treadle_rl_actor_options(&forecast, &trainer, &engine, &options)));
  TRY(treadle_rl_open_values(rl));
  options.reference = rl->models.reference; /* layouts are made anew with other values */
  TRY(treadle_rl_agree(whole, treadle_rl_reference_check(&rl->reference, &rl->task)));
  TRY(treadle_rl_agree(whole, treadle_rl_check_weights(&rl->models, &rl->crew, rl->state.from)));
  TRY(treadle_rl_agree(whole, open_roles(rl, &options)));
  rl->stages = stages_of(rl);
  if (s->rl.batches.rollout_dispatch_size && !treadle_rl_portion_of(&rl->stages))
    treadle_rl_note(whole, "%s is not used: no other pool works on samples while others are drawn",
                    TREADLE_RL_PLACE(&rl->task, rl.batches.rollout_dispatch_size));
  treadle_rl_open_workers(&rl->workers, rl->crew.ranks > 1 ? rl->crew.group : NULL, rl);
  treadle_rl_teams_open(&rl->teams, whole, &rl->workers, &rl->stages);
out:
  return status;
}

void treadle_rl_models_close(treadle_rl_models *models) {
  close_layouts(models);
  treadle_values_close(models->start_values);
  treadle_model_close(models->opened);
  treadle_model_close(models->reference_model);
}

/* The files are closed before anything that they are written from. */
void treadle_rl_close(treadle_rl *rl) {
  treadle_rl_bounds_release(&rl->bounds);
  treadle_rl_ledger_close(&rl->ledger);
  treadle_rl_rewards_release(&rl->rewards); /* they read the batch */
  treadle_rl_batch_release(&rl->batch);
  treadle_rl_batch_release(&rl->tests);
  treadle_rl_workers_release(&rl->workers);
  treadle_rl_critic_close(&rl->critic); /* it counts with the actor, as does the next */
  treadle_rl_reward_model_close(&rl->reward_model);
  treadle_rl_reference_close(&rl->reference);
  treadle_actor_destroy(rl->actor);
  treadle_rl_data_close(&rl->data);
  treadle_run_text_close(&rl->text);
  treadle_rl_models_close(&rl->models);
  treadle_rl_teams_close(&rl->teams);
}
