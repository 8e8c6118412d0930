/* The facts of others' keys: each row means what it says. One that is heard has a key or a rule, a limited one a limit, one without effect
 * neither; and each path is taken so, in a file of its own. */
#include "test.h"

#include "run/config.h"
#include "run/others.h"

#include <stdlib.h>

static treadle_status parse(const char *text, const char *override, treadle_train_config **config_p) {
  return treadle_train_config_parse("x.yaml", text, strlen(text), &override, override ? 1 : 0,
                                    TREADLE_RUN_RL, config_p);
}

static treadle_status read_override(const char *override, bool *is_named_p) {
  treadle_train_config *config = NULL;
  treadle_status status = parse("rl_config:\n  n_samples_per_prompt: 4\n", override, &config);
  *is_named_p = false;
  for (size_t i = 0; config && i < config->warnings.count; i++)
    *is_named_p = *is_named_p || strstr(config->warnings.items[i], "known, and without effect here: ");
  treadle_train_config_destroy(config);
  return status;
}

static bool has_limit(const char *path) {
  const char *key = strncmp(path, "megatron_training.", 18) == 0 ? path + 18 : NULL;
  for (int i = 0; i < TREADLE_TRAIN_LIMITS; i++)
    if (strcmp(treadle_train_limits[i].path, path) == 0 ||
        (key && strcmp(treadle_train_limits[i].path, key) == 0))
      return true;
  return false;
}

/* Keys that are heard together with others. */
static bool has_rule(const char *path) {
  static const char *const rules[] = {"algorithm.calculate_entropy",
                                      "algorithm.use_reinpp_baseline",
                                      "algorithm.use_valid_token_scale",
                                      "actor.lr_sched.lr_decay_iters",
                                      "algorithm.recompute_logprobs",
                                      "trainer.total_epochs",
                                      "runner.max_epochs",
                                      "reward.reward_scale",
                                      "reward.reward_max_val",
                                      "reward.reward_min_val"};
  for (size_t i = 0; i < TEST_COUNT(rules); i++)
    if (strcmp(rules[i], path) == 0) return true;
  return false;
}

static void check_row(const treadle_key_set *all, const treadle_key_info *row) {
  const int key = treadle_train_key_find(row->path, TREADLE_RUN_RL);
  const bool is_heard = key >= 0 || has_rule(row->path), is_limited = has_limit(row->path);
  /* of two projects with a name, one may have another meaning: verl's critic.enable is not a key of RLinf */
  if (row->effect == TREADLE_EFFECT_HEARD && !is_heard)
    fail_msg("%s: %s is not heard", all->whose, row->path);
  if (row->effect == TREADLE_EFFECT_LIMITED && (!is_limited || is_heard))
    fail_msg("%s: %s has no limit", all->whose, row->path);
  if (row->effect == TREADLE_EFFECT_NONE && (is_heard || is_limited))
    fail_msg("%s: %s has an effect", all->whose, row->path);
  if (row->as && treadle_train_key_find(row->as, TREADLE_RUN_RL) != key)
    fail_msg("%s: %s is not heard as %s", all->whose, row->path, row->as);
  assert_non_null(row->unit);
}

static void rows_are_sound(void **state) {
  (void)state;
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++) {
    const treadle_key_set *all = treadle_train_others_all[i];
    assert_in_range(all->count, 200, 1000);
    for (size_t j = 0; j < all->count; j++) {
      if (j && strcmp(all->rows[j - 1].path, all->rows[j].path) >= 0)
        fail_msg("%s: %s is out of order", all->whose, all->rows[j].path);
      assert_ptr_equal(treadle_train_other_of(all->whose, all->rows[j].path), &all->rows[j]);
      check_row(all, &all->rows[j]);
    }
  }
  assert_null(treadle_train_other_of("nobody", "algorithm.gamma"));
}

/* Sections that others do not have. */
static bool is_own(const char *path) {
  static const char *const sections[] = {"actor_config.", "critic_config.", "ref_config.", "reward_config."};
  bool own = path[0] == '*';
  for (size_t i = 0; i < TEST_COUNT(sections); i++)
    own = own || strncmp(path, sections[i], strlen(sections[i])) == 0;
  return own;
}

/* Every limit, but those of any section, and every other name of a key is a fact, too. */
static void all_are_there(void **state) {
  (void)state;
  for (int i = 0; i < TREADLE_TRAIN_LIMITS; i++) {
    const char *path = treadle_train_limits[i].path;
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s", strchr(path, '.') ? "" : "megatron_training.", path);
    if (!is_own(whole) && !treadle_train_other_find(whole))
      fail_msg("%s has a limit, and is not a fact", whole);
  }
}

/* One without effect is named, and passes; below it, too. What nobody knows is refused. */
static void without_effect(void **state) {
  (void)state;
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++)
    for (size_t j = 0; j < treadle_train_others_all[i]->count; j++) {
      const treadle_key_info *row = &treadle_train_others_all[i]->rows[j];
      char override[256];
      bool is_named;
      if (treadle_train_other_find(row->path)->effect != TREADLE_EFFECT_NONE || !strchr(row->path, '.'))
        continue;
      snprintf(override, sizeof override, "%s=7", row->path);
      assert_ok(read_override(override, &is_named));
      if (!is_named) fail_msg("%s is not named", row->path);
    }
}

static const struct {
  const char *override, *message;
} unknown[] = {
    {"algorithm.never_heard_of=1",
     "override algorithm.never_heard_of: no key of MindSpeed-RL, RLinf, verl or "
     "treadle that is known here; leave it out if it changes no result"},
    {"actor_rollout_ref.actor.clip_ratio_hihg=1", "did you mean 'clip_ratio_high'?"},
    {"actor_rollout_ref.rollout.quantization.method=fp8", "this cannot be done here"},
    {"algorithm.rollout_correction.rollout_token_veto=1",
     "this cannot be done here; of it there are rollout_is"},
    {"actor_rollout_ref.model.override_config.num_hidden_layers=2", "change the config.json"},
    {"actor.model.nothing_like_it=1", "no key of MindSpeed-RL"},
    {"runner.task_type=embodied", "runner.task_type is 'embodied': here it can only be reasoning"},
    {"data.max_prompt_length.x=1", "no key of MindSpeed-RL"},
};

static void unknown_are_refused(void **state) {
  (void)state;
  bool is_named;
  for (size_t i = 0; i < TEST_COUNT(unknown); i++)
    assert_refused(unknown[i].message, read_override(unknown[i].override, &is_named));
}

/* A map of nulls is nothing, as null is. */
static void maps_of_nothing(void **state) {
  (void)state;
  treadle_train_config *config;
  assert_ok(parse(
      "rl_config: {n_samples_per_prompt: 4}\nactor_rollout_ref: {rollout: {quantization: {method: null, "
      "more: {a: ~}}}}\ndata: {apply_chat_template_kwargs: {}}\n",
      NULL, &config));
  assert_null(treadle_train_config_settings(config)->rl.data.chat_template_kwargs);
  treadle_train_config_destroy(config);
  assert_refused("actor_rollout_ref.rollout.quantization: this cannot be done here",
                 parse("actor_rollout_ref: {rollout: {quantization: {method: fp8}}}\n", NULL, &config));
}

/* A name that another value refers to is not a key, and has an effect. */
static void names_of_the_file(void **state) {
  (void)state;
  static const char text[] = "trainer:\n  steps_of_mine: 7\n  other: 8\nmegatron_training:\n  train_iters: "
                             "${trainer.steps_of_mine}\n  seed: '${oc.select:trainer.other,3}'\n"
                             "rl_config:\n  n_samples_per_prompt: 4\n";
  treadle_train_config *config;
  assert_ok(parse(text, "trainer.steps_of_mine=9", &config));
  assert_int_equal(treadle_train_config_settings(config)->training.train_iters, 9);
  assert_int_equal(treadle_train_config_settings(config)->training.seed, 8);
  assert_int_equal(config->warnings.count, 0);
  treadle_train_config_destroy(config);
  assert_refused("trainer.steps_of_mime: no key", parse(text, "trainer.steps_of_mime=9", &config));
}

/* All of them, in one message, each with its line. */
static void in_one_message(void **state) {
  (void)state;
  static const char text[] =
      "rl_config:\n  n_samples_per_prompt: 4\n  clip_ratio: much\nalgorithm:\n  adv_type: gae\n"
      "  loss_type: embodied\n  something: 1\ncritic:\n  use_critic_model: True\n";
  static const char *const parts[] = {
      "x.yaml: 6 keys are refused:\n",
      "\nx.yaml:6: algorithm.loss_type is 'embodied': here it can only be actor; the loss of a policy",
      "\nx.yaml:7: algorithm.something: no key of",
      "\nx.yaml:9: critic.use_critic_model is 'True': here it can only be false",
      "\noverride actor_rollout_ref.model.exclude_modules: this cannot be done here; say actor_config.target_modules",
      "\nx.yaml:3: rl_config.clip_ratio is 'much', and must be a number",
      "\nx.yaml: algorithm.adv_type is 'gae', and keys of RLinf's critic are not read here"};
  treadle_train_config *config;
  assert_refused(parts[0], parse(text, "actor_rollout_ref.model.exclude_modules=8", &config));
  for (size_t i = 0; i < TEST_COUNT(parts); i++)
    if (!strstr(treadle_error_message(), parts[i]))
      fail_msg("no '%s' in: %s", parts[i], treadle_error_message());
}

/* A list of more than a kilobyte keeps its middle. */
static void long_lists(void **state) {
  (void)state;
  char text[8192] = "algorithm:\n";
  treadle_train_config *config;
  for (int i = 0; i < 60; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "  unknown_name_number_%d: 1\n", i);
  assert_refused("x.yaml: 60 keys are refused:", parse(text, NULL, &config));
  for (int i = 0; i < 60; i++) {
    char name[64];
    snprintf(name, sizeof name, "unknown_name_number_%d:", i);
    assert_non_null(strstr(treadle_error_message(), name));
  }
}

/* ---- Hydra ---- */

static const struct {
  const char *override, *message;
} hydra[] = {
    {"+rl_config.gamma=0.5", NULL},
    {"++rl_config.gamma=0.5", NULL},
    {"+data.apply_chat_template_kwargs.enable_thinking=false", NULL},
    {"++actor_rollout_ref.actor.clip_ratio_high=0.3", NULL},
    {"+actor_rollout_ref.rollout.quantization.method=fp8", "this cannot be done here"},
    {"~rl_config.gamma",
     "override '~rl_config.gamma': a key cannot be taken away; say rl_config.gamma=null"},
    {"~algorithm.gamma=1", "a key cannot be taken away"},
    {"model_engine=megatron", "chooses a file of a group"},
    {"algorithm=grpo", "--cfg job --resolve"},
    {"actor@actor_rollout_ref.actor=megatron_actor", "--cfg job --resolve"},
    {"hydra/job_logging=stdout", "--cfg job --resolve"},
    {"+=1", "expected section.key=value"},
};

static void as_hydra_has_it(void **state) {
  (void)state;
  bool is_named;
  for (size_t i = 0; i < TEST_COUNT(hydra); i++)
    if (hydra[i].message)
      assert_refused(hydra[i].message, read_override(hydra[i].override, &is_named));
    else
      assert_ok(read_override(hydra[i].override, &is_named));
}

static const struct {
  const char *lines, *message;
} defaults[] = {
    {"defaults:\n  - _self_\n  - override hydra/job_logging: stdout\n", NULL},
    {"defaults:\n  - model:\n      - qwen25_7b\n", NULL},
    {"defaults:\n  - ../hybrid_engines/fsdp@actor.fsdp_config\n", NULL},
    {"defaults:\n  - _self_\n  - actor@actor_rollout_ref.actor: dp_actor\n",
     "x.yaml:3: defaults has 'actor@actor_rollout_ref.actor', of which the file takes keys of another "
     "file; write "
     "what it comes to with --cfg job --resolve"},
    {"defaults:\n  - training_backend/fsdp\n", "x.yaml:2: defaults has 'training_backend/fsdp'"},
    {"defaults: [ppo_trainer]\n", "defaults has 'ppo_trainer'"},
    {"defaults: 1\n", "x.yaml:1: defaults must be a list of files"},
};

static void lists_of_defaults(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(defaults); i++) {
    treadle_train_config *config = NULL;
    char text[512];
    snprintf(text, sizeof text, "%srl_config: {n_samples_per_prompt: 4}\n", defaults[i].lines);
    if (defaults[i].message)
      assert_refused(defaults[i].message, parse(text, NULL, &config));
    else
      assert_ok(parse(text, NULL, &config));
    treadle_train_config_destroy(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_sound),  cmocka_unit_test(all_are_there),
      cmocka_unit_test(without_effect),  cmocka_unit_test(unknown_are_refused),
      cmocka_unit_test(in_one_message),  cmocka_unit_test(names_of_the_file),
      cmocka_unit_test(maps_of_nothing), cmocka_unit_test(long_lists),
      cmocka_unit_test(as_hydra_has_it), cmocka_unit_test(lists_of_defaults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
