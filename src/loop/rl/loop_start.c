/* Where a run goes on: which checkpoint, whether the run is the one that saved it; and what a checkpoint has of the run. */
#include "rl/loop.h"

#include "io/json.h"
#include "train/saved_values.h"

#include <string.h>

static treadle_run_start start_of(const treadle_rl *rl) {
  const treadle_rl_options *o = rl->options;
  return (treadle_run_start){.run = rl->settings->actor.save,
                             .place = TREADLE_RL_PLACE(rl, actor.save),
                             .resume = o->resume,
                             .from = o->from,
                             .families = o->families,
                             .observer = rl->rank == 0 ? rl->observer : (treadle_observer){0}};
}

treadle_status treadle_rl_find_start(treadle_rl *rl) {
  const treadle_run_start start = start_of(rl);
  return treadle_run_start_find(&start, rl->from);
}

treadle_status treadle_rl_check_start(treadle_rl *rl) {
  const treadle_run_start start = start_of(rl);
  treadle_rl_doing(rl, "the checkpoint's digests");
  return treadle_run_start_check(&start, rl->ranks > 1 ? rl->group : NULL, rl->from);
}

static treadle_status read_real(const json_t *root, const char *path, const char *name, double *value_p) {
  const json_t *value = json_object_get(root, name);
  *value_p = json_number_value(value);
  if (json_is_number(value)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a number%s", path, name, treadle_json_note(value));
}

static const char others[] = "its samples would be others";

static treadle_status check_run(const treadle_rl *rl, const json_t *root, const char *path) {
  const treadle_train_settings *s = rl->settings;
  uint64_t digest, now = treadle_rl_prompts_digest(rl->prompts);
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
        TREADLE_RL_PLACE(rl, training.data_path)));
out:
  return status;
}

treadle_status treadle_rl_read_start(treadle_rl *rl) {
  const int64_t step = treadle_train_checkpoint_step_of(rl->from);
  char path[PATH_MAX + 16];
  json_t *root = NULL;
  treadle_status status;
  snprintf(path, sizeof path, "%s/data.json", rl->from);
  TRY(treadle_json_load(path, &root));
  if (!json_object_get(root, "drawn"))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'drawn' is missing: it is the checkpoint of another kind of run",
                     path));
  TRY(check_run(rl, root, path));
  TRY(treadle_saved_count(root, path, "step", &rl->step));
  if (rl->step != step)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'step' is %lld in the checkpoint of step %lld", path,
                     (long long)rl->step, (long long)step));
  TRY(treadle_saved_count(root, path, "optimizer_steps", &rl->optimizer_steps));
  TRY(treadle_saved_count(root, path, "drawn", &rl->drawn));
  TRY(read_real(root, path, "kl_coef", &rl->kl_coef));
  TRY(treadle_saved_digest(root, path, "losses_digest", &rl->losses_digest));
  rl->saved = rl->written = rl->step;
out:
  json_decref(root);
  return status;
}

treadle_status treadle_rl_save(treadle_rl *rl, char *path, size_t room) {
  const treadle_train_settings *s = rl->settings;
  char data[700], rng[128];
  treadle_status status;
  snprintf(data, sizeof data,
           "{\"step\": %lld, \"optimizer_steps\": %lld, \"drawn\": %lld, \"prompts_digest\": \"%016llx\", "
           "\"seed\": %lld, "
           "\"sampling_seed\": %lld, \"global_batch_size\": %lld, \"step_prompts\": %lld, "
           "\"n_samples_per_prompt\": %lld, \"no_shuffle\": %d, "
           "\"kl_coef\": %.17g, "
           "\"losses_digest\": \"%016llx\"}\n",
           (long long)rl->step, (long long)rl->optimizer_steps, (long long)rl->drawn,
           (unsigned long long)treadle_rl_prompts_digest(rl->prompts), (long long)s->training.seed,
           (long long)s->sampling.seed, (long long)s->training.global_batch_size,
           (long long)treadle_train_step_prompts(s), (long long)s->rl.batches.n_samples_per_prompt,
           s->training.no_shuffle, rl->kl_coef, (unsigned long long)rl->losses_digest);
  snprintf(rng, sizeof rng, "{\"seed\": %lld, \"sampling_seed\": %lld, \"step\": %lld}\n",
           (long long)s->training.seed, (long long)s->sampling.seed, (long long)rl->step);
  const treadle_train_checkpoint checkpoint = {.run = s->actor.save,
                                               .step = rl->step,
                                               .max_to_keep = s->training.max_ckpt_to_keep,
                                               .data = data,
                                               .rng = rng};
  TRY(treadle_rl_call_save(rl, &checkpoint));
  rl->saved = rl->step;
  snprintf(path, room, "%s/global_step_%lld", s->actor.save, (long long)rl->step);
out:
  return status;
}
