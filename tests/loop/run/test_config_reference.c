/* Keys of a reference: which runs have one with a pool of its own, what it has from the actor, where they are without effect, and what is refused. */
#include "test.h"

#include "run/config.h"

#include <stdlib.h>
#include <string.h>

#define KL    "rl_config: {use_kl_loss: true, n_samples_per_prompt: 2}\n"
#define NO_KL "rl_config: {n_samples_per_prompt: 2}\n"
#define APART                                                                                              \
  "resource_pools: {policy: [4], ref: [2]}\nmapping: {ActorRollout: policy, RefPolicy: ref}\n" KL
#define TOGETHER "resource_pools: {policy: [4]}\nmapping: {ActorRollout: policy, RefPolicy: policy}\n" KL
#define REF      "ref_config:\n"

static treadle_status parse(const char *text, treadle_train_config **config_p) {
  return treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_RL, config_p);
}

static treadle_train_config *read_ok(const char *text) {
  treadle_train_config *config;
  assert_ok(parse(text, &config));
  return config;
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

/* ---- Which runs ---- */

static const struct {
  const char *text;
  bool apart;
} pools[] = {
    {KL, false},
    {APART, true},
    {TOGETHER, false},
    {"resource_pools: {policy: [4], ref: [2]}\nmapping: {ActorRollout: policy, RefPolicy: ref}\n" NO_KL,
     false},
    {"resource_pools: {a: [4], b: [2]}\nmapping: {Actor: a, Rollout: b, RefPolicy: a}\n" KL, true},
    {"resource_pools: {a: [4], b: [2]}\nmapping: {Actor: a, Rollout: a, Critic: b, RefPolicy: a}\n" KL,
     false},
    {"resource_pools: {a: [4], b: [2]}\nmapping: {Actor: a, Rollout: b, RefPolicy: b}\n" KL, true},
    {"resource_pools: {a: [4], b: [2]}\nmapping: {ActorRollout: a, Critic: b, RefPolicy: b}\n" KL, true},
    {"rl_config: {use_kl_loss: true, n_samples_per_prompt: 2, use_integrated_worker: false, "
     "actor_resource: {num_npus: 4}, reference_resource: {num_npus: 2}}\n",
     true},
    {"rl_config: {use_kl_loss: true, n_samples_per_prompt: 2, actor_resource: {num_npus: 4}}\n", false},
    {"trainer: {n_gpus_per_node: 4}\n" KL, false},
};

static void test_pools(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(pools); i++) {
    treadle_train_config *config = read_ok(pools[i].text);
    assert_true(config->has_reference_apart == pools[i].apart);
    treadle_train_config_destroy(config);
  }
}

/* ---- What it has from the actor ---- */

static void test_defaults(void **state) {
  (void)state;
  char *text;
  treadle_train_config *config = read_ok(APART "actor_config: {micro_batch_size: 8, exact: false}\n");
  const treadle_config_reference *reference = &treadle_train_config_settings(config)->reference;
  assert_true(reference->offload_param && !reference->frozen.exact);
  assert_int_equal(reference->frozen.micro_batch_size, 8);
  assert_ok(treadle_train_config_text(config, &text));
  assert_non_null(strstr(text, "\nref_config:\n  model:"));
  assert_non_null(strstr(text, "\n  offload_param:"));
  free(text);
  treadle_train_config_destroy(config);
}

static const struct {
  const char *lines, *layout;
} layouts[] = {
    {"", "megatron:tp=2,pp=2,dtype=bf16"},
    {"  tensor_model_parallel_size: 4\n", "megatron:tp=4,dtype=bf16"},
    {"  strategy: fsdp2\n", "fsdp2:dp=4,dtype=bf16"},
    {"  strategy: fsdp2\n  fsdp_size: 2\n", "fsdp2:dp=2,replicate=2,dtype=bf16"},
    {"  layout: megatron:pp=2\n", "megatron:pp=2,dtype=bf16"},
};

/* Read from its own text, it is divided in the same way. */
static void test_layouts(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    char file[1024], layout[128], *text;
    snprintf(file, sizeof file,
             APART "actor_config:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n" REF
                   "  offload_param: false\n%s",
             layouts[i].lines);
    treadle_train_config *config = read_ok(file), *again;
    assert_ok(treadle_train_config_layout(config, TREADLE_PART_REFERENCE, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    assert_ok(treadle_train_config_text(config, &text));
    again = read_ok(text);
    assert_true(again->has_reference_apart);
    assert_false(treadle_train_config_settings(again)->reference.offload_param);
    assert_ok(treadle_train_config_layout(again, TREADLE_PART_REFERENCE, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    free(text);
    treadle_train_config_destroy(config);
    treadle_train_config_destroy(again);
  }
}

/* It goes forward with all samples of a step: it has no mini batches that its micro batches must divide. */
static void test_micro_batches(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(APART REF "  micro_batch_size: 3\n");
  assert_int_equal(treadle_train_config_settings(config)->reference.frozen.micro_batch_size, 3);
  treadle_train_config_destroy(config);
}

/* ---- Without effect ---- */

static const struct {
  const char *text, *warning;
} warned[] = {
    {TOGETHER REF "  tensor_model_parallel_size: 2\n",
     "ref_config.tensor_model_parallel_size (line 5) has no effect: the reference is in the policy's pool"},
    {KL REF "  micro_batch_size: 2\n",
     "ref_config.micro_batch_size (line 3) has no effect: the reference is in the policy's pool"},
    {NO_KL REF "  offload_param: false\n",
     "ref_config.offload_param (line 3) has no effect without use_kl_loss or use_kl_in_reward"},
    {APART REF "  lr: 1e-5\n", "ref_config.lr is without effect: a reference goes forward only"},
    {APART REF "  do_sample: false\n", "ref_config.do_sample is without effect"},
};

/* The resolved text has nothing of keys that say nothing here. */
static void test_without(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(warned); i++) {
    char *text;
    treadle_train_config *config = read_ok(warned[i].text);
    assert_true(is_warned(config, warned[i].warning));
    assert_ok(treadle_train_config_text(config, &text));
    const char *ref = strstr(text, "\nref_config:"), *next = ref ? strstr(ref + 1, "\n\n") : NULL;
    assert_true(ref && next);
    assert_true((strstr(ref, "offload_param") < next && strstr(ref, "offload_param")) ==
                config->has_reference_apart);
    free(text);
    treadle_train_config_destroy(config);
  }
}

/* ---- Refused ---- */

static const struct {
  const char *text, *message;
} refused[] = {
    {APART REF "  micro_bach_size: 1\n", "ref_config.micro_bach_size: there is no such key"},
    {TOGETHER REF "  micro_bach_size: 1\n", "ref_config.micro_bach_size: there is no such key"},
    {APART REF "  micro_batch_size: x\n", "ref_config.micro_batch_size is 'x', and must be"},
    {APART REF "  bf16: false\n", "a reference has this from the actor"},
    {APART REF "  load: there\n", "a reference has this from the actor"},
    {APART REF "  context_parallel_size: 2\n", "ref_config.context_parallel_size is '2': here it"},
    {APART REF "  micro_batch_size: 2\n  max_tokens_per_micro: 9\n", "exclude each other"},
    {APART REF "  strategy: fsdp2\n  tensor_model_parallel_size: 2\n", "is of Megatron, and ref_config."},
    {APART REF "  layout: megatron:tp=2\n  tensor_model_parallel_size: 2\n", "exclude each other"},
    {APART REF "  layout: vllm:tp=2\n", "a layout to train in is megatron, fsdp2"},
};

static void test_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(refused); i++) {
    treadle_train_config *config;
    assert_refused(refused[i].message, parse(refused[i].text, &config));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pools),   cmocka_unit_test(test_defaults),
                                     cmocka_unit_test(test_layouts), cmocka_unit_test(test_micro_batches),
                                     cmocka_unit_test(test_without), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
