/* Where a run goes on: which checkpoint, whether the run is the one that saved it; and what a checkpoint has of the run. */
#include "rl/loop.h"

#include "io/json.h"
#include "train/saved_values.h"

#include <string.h>

static treadle_run_start start_of(const treadle_rl_task *task, const treadle_rl_crew *crew) {
  const treadle_rl_options *o = task->options;
  return (treadle_run_start){.run = task->settings->actor.save,
                             .place = TREADLE_RL_PLACE(task, actor.save),
                             .resume = o->resume,
                             .from = o->from,
                             .families = o->families,
                             .observer = crew->leads ? crew->observer : (treadle_observer){0}};
}

treadle_status treadle_rl_find_start(treadle_rl_state *state, const treadle_rl_task *task,
                                     const treadle_rl_crew *crew) {
  const treadle_run_start start = start_of(task, crew);
  return treadle_run_start_find(&start, state->from);
}

treadle_status treadle_rl_check_start(const treadle_rl_state *state, const treadle_rl_task *task,
                                      const treadle_rl_crew *crew) {
  const treadle_run_start start = start_of(task, crew);
  treadle_rl_doing(crew, "the checkpoint's digests");
  return treadle_run_start_check(&start, crew->ranks > 1 ? crew->group : NULL, state->from);
}

static treadle_status read_real(const json_t *root, const char *path, const char *name, double *value_p) {
  const json_t *value = json_object_get(root, name);
  *value_p = json_number_value(value);
  if (json_is_number(value)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a number%s", path, name, treadle_json_note(value));
}

static const char others[] = "its samples would be others";

static treadle_status check_run(const treadle_rl_task *task, const treadle_rl_prompts *prompts,
                                const json_t *root, const char *path) {
  const treadle_train_settings *s = task->settings;
  uint64_t digest, now = treadle_rl_prompts_digest(prompts);
  treadle_status status;
  TRY(treadle_saved_check_same(root, path, "seed", s->training.seed, others));
  TRY(treadle_saved_check_same(root, path, "sampling_seed", s->sampling.seed, others));
  TRY(treadle_saved_check_order(root, path, s->training.no_shuffle, others));
  TRY(treadle_saved_check_same(root, path, "global_batch_size", s->training.global_batch_size, others));
  TRY(treadle_saved_check_same(root, path, "step_prompts", treadle_train_step_prompts(s), others));
  TRY(treadle_saved_check_same(root, path, "n_samples_per_prompt", s->rl.batches.n_samples_per_prompt,
                               others));
  TRY(treadle_saved_digest(root, path, "prompts_digest", &digest));
  if (digest != now)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: the checkpoint has prompts_digest %016llx, this run %016llx: the prompts of %s, or their "
        "tokens, have changed",
        path, (unsigned long long)digest, (unsigned long long)now,
        TREADLE_RL_PLACE(task, training.data_path)));
out:
  return status;
}

static treadle_status read_critic(const json_t *root, const char *path, int64_t *steps_p) {
  if (!json_object_get(root, "critic_steps"))
    return treadle_fail(TREADLE_REFUSED,
                        "%s: 'critic_steps' is missing: the checkpoint has no critic, which this run needs",
                        path);
  return treadle_saved_count(root, path, "critic_steps", steps_p);
}

treadle_status treadle_rl_read_start(treadle_rl_state *state, const treadle_rl_task *task,
                                     const treadle_rl_prompts *prompts) {
  const int64_t step = treadle_train_checkpoint_step_of(state->from);
  char path[PATH_MAX + 16];
  json_t *root = NULL;
  treadle_status status;
  snprintf(path, sizeof path, "%s/data.json", state->from);
  TRY(treadle_json_load(path, &root));
  if (!json_object_get(root, "drawn"))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'drawn' is missing: it is the checkpoint of another kind of run",
                     path));
  TRY(check_run(task, prompts, root, path));
  TRY(treadle_saved_count(root, path, "step", &state->step));
  if (state->step != step)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'step' is %lld in the checkpoint of step %lld", path,
                     (long long)state->step, (long long)step));
  TRY(treadle_saved_count(root, path, "optimizer_steps", &state->optimizer_steps));
  TRY(treadle_saved_count(root, path, "drawn", &state->drawn));
  if (treadle_train_has_critic(task->settings)) TRY(read_critic(root, path, &state->critic_steps));
  TRY(read_real(root, path, "kl_coef", &state->kl_coef));
  TRY(treadle_saved_digest(root, path, "losses_digest", &state->losses_digest));
  state->saved = state->written = state->step;
out:
  json_decref(root);
  return status;
}

/* ---- The controller apart: it makes the folders and names them, and each team fills its own ---- */

static treadle_status save_policy(void *context, const char *folder) {
  treadle_rl *rl = context;
  treadle_status status;
  TRY(treadle_rl_call_save_role(&rl->workers, false, folder));
  TRY(treadle_rl_write_step(rl));
out:
  return status;
}

static treadle_status save_critic(void *context, const char *folder) {
  return treadle_rl_call_save_role(&((treadle_rl *)context)->workers, true, folder);
}

treadle_status treadle_rl_save(treadle_rl *rl, char *path, size_t room) {
  const treadle_train_settings *s = rl->task.settings;
  char data[760], rng[128], critic[48] = "";
  treadle_status status;
  if (treadle_train_has_critic(s))
    snprintf(critic, sizeof critic, "\"critic_steps\": %lld, ", (long long)rl->state.critic_steps);
  snprintf(data, sizeof data,
           "{\"step\": %lld, \"optimizer_steps\": %lld, \"drawn\": %lld, \"prompts_digest\": \"%016llx\", "
           "\"seed\": %lld, "
           "\"sampling_seed\": %lld, \"global_batch_size\": %lld, \"step_prompts\": %lld, "
           "\"n_samples_per_prompt\": %lld, \"no_shuffle\": %d, "
           "%s\"kl_coef\": %.17g, "
           "\"losses_digest\": \"%016llx\"}\n",
           (long long)rl->state.step, (long long)rl->state.optimizer_steps, (long long)rl->state.drawn,
           (unsigned long long)treadle_rl_prompts_digest(rl->data.prompts), (long long)s->training.seed,
           (long long)s->sampling.seed, (long long)s->training.global_batch_size,
           (long long)treadle_train_step_prompts(s), (long long)s->rl.batches.n_samples_per_prompt,
           s->training.no_shuffle, critic, rl->state.kl_coef, (unsigned long long)rl->state.losses_digest);
  snprintf(rng, sizeof rng, "{\"seed\": %lld, \"sampling_seed\": %lld, \"step\": %lld}\n",
           (long long)s->training.seed, (long long)s->sampling.seed, (long long)rl->state.step);
  treadle_train_checkpoint checkpoint = {.run = s->actor.save,
                                         .step = rl->state.step,
                                         .max_to_keep = s->training.max_ckpt_to_keep,
                                         .data = data,
                                         .rng = rng};
  if (rl->teams.apart) {
    checkpoint.save = save_policy;
    checkpoint.save_critic = treadle_train_has_critic(s) ? save_critic : NULL;
    checkpoint.context = rl;
    checkpoint.shared = rl->folders.own.unlocked;
    checkpoint.families = rl->task.options->families;
    TRY(treadle_train_checkpoint_save(NULL, &checkpoint));
  } else
    TRY(treadle_rl_call_save(&rl->workers, &checkpoint));
  rl->state.saved = rl->state.step;
  snprintf(path, room, "%s/global_step_%lld", s->actor.save, (long long)rl->state.step);
out:
  return status;
}
