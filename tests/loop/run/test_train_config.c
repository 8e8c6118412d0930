/* The configuration of training: each rule once, values and defaults, overrides, names that do nothing, the text that is read again, and
 * layouts. docs/training.md has the table of the code. */
#include "test.h"

#include "base/utf8.h"
#include "io/json.h"
#include "run/config.h"

#include <math.h>

static treadle_status parse(const char *text, const char *const *overrides, size_t count,
                            treadle_train_config **config_p) {
  return treadle_train_config_parse("sft.yaml", text, strlen(text), overrides, count, TREADLE_RUN_SFT,
                                    config_p);
}

static treadle_train_config *read_ok(const char *text) {
  treadle_train_config *config;
  assert_ok(parse(text, NULL, 0, &config));
  return config;
}

/* ---- Values --------------------------------------------------------------------------------------------- */

static void defaults(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("actor_config:\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_null(s->actor.model);
  assert_null(s->actor.layout);
  assert_int_equal(s->training.train_iters, 0);
  assert_int_equal(s->training.seq_length, 0);
  assert_int_equal(s->training.global_batch_size, 64);
  assert_int_equal(s->actor.micro_batch_size, 1);
  assert_int_equal(s->training.seed, 1234);
  assert_int_equal(s->actor.fsdp_size, -1);
  assert_true(s->training.bf16 && s->actor.exact && !s->training.sequence_parallel &&
              !s->training.use_distributed_optimizer);
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_LINEAR);
  assert_int_equal(s->actor.strategy, TREADLE_STRATEGY_MEGATRON);
  assert_int_equal(s->training.recompute_granularity, TREADLE_RECOMPUTE_NONE);
  assert_true(s->actor.lr == 1e-6 && s->actor.adam_beta2 == 0.999 && s->actor.adam_eps == 1e-8 &&
              s->actor.clip_grad == 1);
  assert_int_equal(config->warnings.count, 0);
  treadle_train_config_destroy(config);
}

/* A file with a value of its own for every key, of both sections. */
static const char every_key[] = "megatron_training:\n"
                                "  tokenizer_name_or_path: ./tok\n"
                                "  data_path: 'train: it.jsonl'\n"
                                "  val_path: test.jsonl\n"
                                "  train_iters: 1000\n"
                                "  global_batch_size: 32\n"
                                "  seq_length: 2048\n"
                                "  save_interval: 200\n"
                                "  test_interval: 50\n"
                                "  seed: 42\n"
                                "  bf16: False\n"
                                "  sequence_parallel: true\n"
                                "  use_distributed_optimizer: True\n"
                                "  recompute_granularity: full\n"
                                "  max_ckpt_to_keep: 3\n"
                                "actor_config:\n"
                                "  model: ./model\n"
                                "  save: ./run\n"
                                "  strategy: megatron\n"
                                "  micro_batch_size: 2\n"
                                "  tensor_model_parallel_size: 4\n"
                                "  pipeline_model_parallel_size: 2\n"
                                "  num_layers_per_virtual_pipeline_stage: 3\n"
                                "  exact: false\n"
                                "  lr: 3.3e-5\n"
                                "  min_lr: 1e-7\n"
                                "  lr_decay_style: cosine\n"
                                "  lr_warmup_fraction: 0.1\n"
                                "  weight_decay: 0.123456789012345678\n"
                                "  adam_beta1: 0.8\n"
                                "  adam_beta2: 0.95\n"
                                "  adam_eps: 1e-5\n"
                                "  clip_grad: 0\n";

static void values(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(every_key);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->training.tokenizer_name_or_path, "./tok");
  assert_string_equal(s->training.data_path, "train: it.jsonl");
  assert_string_equal(s->training.val_path, "test.jsonl");
  assert_string_equal(s->actor.model, "./model");
  assert_string_equal(s->actor.save, "./run");
  assert_int_equal(s->training.train_iters, 1000);
  assert_int_equal(s->training.global_batch_size, 32);
  assert_int_equal(s->training.seq_length, 2048);
  assert_int_equal(s->training.save_interval, 200);
  assert_int_equal(s->training.test_interval, 50);
  assert_int_equal(s->training.seed, 42);
  assert_true(!s->training.bf16 && s->training.sequence_parallel && s->training.use_distributed_optimizer &&
              !s->actor.exact);
  assert_int_equal(s->training.recompute_granularity, TREADLE_RECOMPUTE_FULL);
  assert_int_equal(s->training.max_ckpt_to_keep, 3);
  assert_int_equal(s->actor.micro_batch_size, 2);
  assert_int_equal(s->actor.tensor_model_parallel_size, 4);
  assert_int_equal(s->actor.pipeline_model_parallel_size, 2);
  assert_int_equal(s->actor.num_layers_per_virtual_pipeline_stage, 3);
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_COSINE);
  assert_true(s->actor.lr == 3.3e-5 && s->actor.min_lr == 1e-7 && s->actor.lr_warmup_fraction == 0.1);
  assert_true(s->actor.weight_decay == 0.123456789012345678 && s->actor.adam_beta1 == 0.8 &&
              s->actor.adam_beta2 == 0.95);
  assert_true(s->actor.adam_eps == 1e-5 && s->actor.clip_grad == 0);
  assert_ok(treadle_train_config_need(config, false));
  treadle_train_config_destroy(config);
}

static void overrides_go_first(void **state) {
  (void)state;
  static const char *const overrides[] = {"actor_config.lr=0.5", "megatron_training.data_path=a=b",
                                          "megatron_training.min-lr=0.25", "actor_config.clip_grad=null",
                                          "actor_config.save=~"};
  treadle_train_config *config;
  assert_ok(parse("megatron_training:\n  data_path: other\nactor_config:\n  lr: 1e-3\n  clip_grad: 9\n"
                  "  save: x\n  weight_decay: null\n",
                  overrides, TEST_COUNT(overrides), &config));
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->actor.lr == 0.5 && s->actor.min_lr == 0.25 && s->actor.clip_grad == 1 &&
              s->actor.weight_decay == 0.01);
  assert_string_equal(s->training.data_path, "a=b");
  assert_null(s->actor.save);
  treadle_train_config_destroy(config);
}

/* ---- What is refused ----------------------------------------------------------------------------------- */

/* Lines below are keys of actor_config unless they begin with a section. */
static const struct {
  const char *lines, *override, *message;
} wrong[] = {
    /* files and names */
    {"- 1\n", NULL, "sft.yaml:1: must be a map of sections"},
    {"actor_config: 5\n", NULL, "sft.yaml:1: actor_config is a section: it must be a map of keys"},
    {"actor_config:\n  lr: 1\n  lr: 2\n", NULL, "sft.yaml:3: key 'lr' stands on line 2 already"},
    {"lrr: 1\n", NULL, "sft.yaml:2: actor_config.lrr: there is no such key; did you mean 'lr'?"},
    {"use_flash_atn: 1\n", NULL, "did you mean 'use_flash_attn'?"},
    {"something_of_its_own: 1\n", NULL, "there is no such key; treadle sft --help-config has all"},
    {"actor_confg:\n  lr: 1\n", NULL,
     "sft.yaml:1: actor_confg: there is no such section; did you mean 'actor_config'?"},
    {"lr: 1\n", "clip_grad=1",
     "override clip_grad: there is no such section; did you mean actor_config.clip_grad?"},
    {"megatron_training:\n  models: x\n", NULL, "did you mean 'model'?"},
    {"generate_config.x: 1\nmegatron_traning.lr: 1\n", NULL, "there is no such section"},
    {"min_lr: 0\n  min-lr: 0\n", NULL,
     "sft.yaml:3: actor_config.min_lr: actor_config.min_lr on line 2 says the same"},
    {"actor_config:\n  strategy: fsdp2\nactor_rollout_ref:\n  actor:\n    strategy: fsdp2\n", NULL,
     "sft.yaml:5: actor_rollout_ref.actor.strategy: actor_config.strategy on line 2 says the same"},
    {"lr: 1\n", "actor_config.lr", "override 'actor_config.lr': expected section.key=value"},
    {"lr: 1\n", "=1", "expected section.key=value"},
    {"lr: 1\n", "actor_config.lr=\xff", "is not UTF-8"},
    {"lr: 1\n", "actor_config.beta=1", "override actor_config.beta: there is no such key"},
    /* types and ranges */
    {"exact: 1\n", NULL, "sft.yaml:2: actor_config.exact is '1', and must be one of true|false"},
    {"seed: 0o17\n", NULL, "sft.yaml:2: actor_config.seed is '0o17', and must be a whole number"},
    {"seed: 08\n", NULL, "sft.yaml:2: actor_config.seed is '08', and must be a whole number"},
    {"exact: y\n", NULL, "must be one of true|false"},
    {"lr: fast\n", NULL, "sft.yaml:2: actor_config.lr is 'fast', and must be a number, 0 to 1000"},
    {"lr: -1e-6\n", NULL, "a number, 0 to 1000"},
    {"lr: .inf\n", NULL, "a number, 0 to 1000"},
    {"lr: .nan\n", NULL, "a number, 0 to 1000"},
    {"lr: 08\n", NULL, "a number, 0 to 1000"},
    {"lr: 1e999\n", NULL, "a number, 0 to 1000"},
    {"lr: [1]\n", NULL, "sft.yaml:2: actor_config.lr is a list, and must be a real"},
    {"micro_batch_size: {a: 1}\n", NULL, "actor_config.micro_batch_size is a map, and must be an integer"},
    {"micro_batch_size: 0\n", NULL, "must be a whole number, 1 to 16777216"},
    {"micro_batch_size: 1.0\n", NULL, "must be a whole number, 1 to 16777216"},
    {"micro_batch_size: 9223372036854775808\n", NULL, "must be a whole number"},
    {"adam_beta1: 1\n", NULL, "must be a number, 0 to below 1"},
    {"adam_eps: 0\n", NULL, "must be a number, 1e-30 to 1"},
    {"lr_warmup_fraction: 1.5\n", NULL, "must be a number, 0 to 1"},
    {"lr_decay_style: cosin\n", NULL, "must be one of constant|linear|cosine; did you mean cosine?"},
    {"megatron_training:\n  recompute_granularity: selective\n", NULL, "must be one of none|full"},
    {"strategy: fsdp\n", NULL, "did you mean fsdp2?"},
    {"model: ${a.b}\n", NULL, "sft.yaml:2: actor_config.model: ${a.b}: there is no such value"},
    {"lr: 1\n", "actor_config.lr=x", "override actor_config.lr is 'x', and must be a number"},
    /* what treadle does in one way */
    {"hidden_dropout: [0.1]\n", NULL, "is not a single value: here it can only be 0"},
    {"num_layer_list: 1,2\n", NULL, "actor_config.num_layer_list: this cannot be done here; leave it out"},
    {"hidden_dropout: 0.1\n", NULL, "here it can only be 0"},
    {"megatron_training:\n  fp16: true\n", NULL, "here it can only be false"},
    /* rules of several keys */
    {"micro_batch_size: 3\n", NULL, "actor_config.micro_batch_size (line 2), 3, does not divide"},
    {"micro_batch_size: 2\n  max_tokens_per_micro: 64\n", NULL,
     "actor_config.micro_batch_size (line 2) and actor_config.max_tokens_per_micro (line 3) exclude each "
     "other"},
    {"max_tokens_per_micro: 64\n  seq_length: 65\n", NULL,
     "actor_config.max_tokens_per_micro (line 2) is 64: a row of actor_config.seq_length (line 3), 65, "
     "does not fit"},
    {"lr: 1e-4\n  min_lr: 1e-3\n", NULL,
     "actor_config.min_lr (line 3) is 0.001, more than actor_config.lr (line 2), which is 0.0001"},
    {"min_lr: 1e-3\n", "actor_config.lr=1e-5", "which is 1e-05"},
    {"test_interval: 5\n", NULL, "actor_config.test_interval (line 2) is 5, and there is no val_path"},
    {"layout: megatron:tp=2\n", "actor_config.tensor_model_parallel_size=2",
     "actor_config.tensor_model_parallel_size (override) and actor_config.layout (line 2) exclude each "
     "other"},
    {"layout: megatron\n  pipeline_model_parallel_size: 1\n", NULL, "exclude each other"},
    {"layout: megatron\n  num_layers_per_virtual_pipeline_stage: 1\n", NULL, "exclude each other"},
    {"layout: fsdp2\n  fsdp_size: 2\n", NULL, "exclude each other"},
    {"layout: vllm:tp=2\n", NULL,
     "'vllm:tp=2': a layout to train in is megatron, fsdp2, or hf on one rank"},
    {"layout: 'megatron:tp'\n", NULL,
     "sft.yaml: actor_config.layout (line 2): layout 'megatron:tp': expected key=value"},
    {"layout: 'megatron:tp=x'\n", NULL, "tp=x is not a whole number"},
    {"layout: fsdp2\n  strategy: megatron\n", NULL,
     "actor_config.strategy (line 3) is megatron, and actor_config.layout (line 2) is 'fsdp2'"},
    {"layout: 'megatron:dtype=fp16'\n", NULL, "training is in bf16 or fp32"},
    {"layout: 'megatron:dtype=fp32'\n  bf16: true\n", NULL, "actor_config.bf16 (line 3) is true, and"},
    {"strategy: fsdp2\n  tensor_model_parallel_size: 2\n", NULL,
     "actor_config.tensor_model_parallel_size (line 3) is of Megatron, and actor_config.strategy (line 2) "
     "is fsdp2"},
    {"strategy: fsdp2\n  pipeline_model_parallel_size: 2\n", NULL, "is of Megatron"},
    {"strategy: fsdp2\n  num_layers_per_virtual_pipeline_stage: 2\n", NULL, "is of Megatron"},
    {"strategy: fsdp2\n  use_distributed_optimizer: true\n", NULL, "is of Megatron"},
    {"layout: fsdp2:dp=2\n  use_distributed_optimizer: true\n", NULL,
     "actor_config.strategy (by layout) is fsdp2"},
    {"strategy: fsdp2\n  context_parallel_size: 2\n", NULL, "is of Megatron"},
    {"layout: megatron:cp=2\n  context_parallel_size: 2\n", NULL, "exclude each other"},
    {"ulysses_sequence_parallel_size: 4\n  context_parallel_size: 2\n", NULL,
     "actor_config.ulysses_sequence_parallel_size (line 2), 4, and actor_config.context_parallel_size "
     "(line 3), "
     "which has 2 context parallel ranks, exclude each other"},
    {"ulysses_sequence_parallel_size: 2\n  layout: megatron:cp=4\n", NULL,
     "and actor_config.layout (line 3), which has 4 context parallel ranks, exclude each other"},
    {"fsdp_size: 2\n", NULL,
     "actor_config.fsdp_size (line 2) is of fsdp2, and actor_config.strategy (default) is megatron"},
    {"offload_policy: true\n", NULL, "actor_config.offload_policy (line 2) is of fsdp2"},
    {"num_layers_per_virtual_pipeline_stage: 2\n", NULL, "needs pipeline_model_parallel_size above 1"},
};

static bool has_section(const char *lines) {
  const char *colon = strchr(lines, ':');
  return *lines == '-' || strncmp(lines, "actor_confi", 11) == 0 ||
         strncmp(lines, "actor_confg", 11) == 0 || strncmp(lines, "megatron_tr", 11) == 0 ||
         (colon && memchr(lines, '.', (size_t)(colon - lines)));
}

static void refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    char text[512];
    treadle_train_config *config = (void *)text;
    snprintf(text, sizeof text, "%s%s", has_section(wrong[i].lines) ? "" : "actor_config:\n  ",
             wrong[i].lines);
    assert_refused(wrong[i].message, parse(text, &wrong[i].override, wrong[i].override != NULL, &config));
    assert_null(config);
  }
}

static void overrides_twice(void **state) {
  (void)state;
  static const char *const twice[] = {"actor_config.lr=1", "megatron_training.lr=2"};
  treadle_train_config *config;
  assert_refused("override megatron_training.lr is given twice, the first time as actor_config.lr",
                 parse("actor_config:\n", twice, 2, &config));
}

static void what_is_needed(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("actor_config:\n");
  assert_refused("sft.yaml: these are needed, and not given: megatron_training.data_path, "
                 "megatron_training.train_iters, actor_config.model, actor_config.save",
                 treadle_train_config_need(config, false));
  assert_refused("not given: actor_config.model", treadle_train_config_need(config, true));
  treadle_train_config_destroy(config);
  config = read_ok("actor_config:\n  model: x\n");
  assert_ok(treadle_train_config_need(config, true));
  treadle_train_config_destroy(config);
}

/* ---- What is taken with a warning ------------------------------------------------------------------------ */

static void known_names(void **state) {
  (void)state;
  static const char *const overrides[] = {"rl_config.gamma=1"};
  treadle_train_config *config;
  size_t count;
  assert_ok(parse("defaults:\n  - model:\n      - qwen25_7b\n"
                  "megatron_training:\n  model: qwen25_7b\n  use_flash_attn: true\n  bf16: true\n"
                  "  expert_model_parallel_size: 1\n  num_layer_list: null\n  hidden_dropout: 0.0\n"
                  "actor_config:\n  no_load_optim: true\n  use_tp_pp_dp_mapping: False\n"
                  "generate_config:\n  sampling_config: {top_p: 1}\n",
                  overrides, 1, &config));
  const char *const *warnings = treadle_train_config_warnings(config, &count);
  assert_int_equal(count, 1);
  assert_string_equal(
      warnings[0], "sft.yaml: known, and without effect here: defaults (line 1), megatron_training.model "
                   "(line 5), megatron_training.use_flash_attn (line 6), actor_config.no_load_optim (line "
                   "12), generate_config (line 14), rl_config.gamma");
  treadle_train_config_destroy(config);
}

static void actor_goes_first(void **state) {
  (void)state;
  for (int turned = 0; turned < 2; turned++) {
    treadle_train_config *config = read_ok(
        turned
            ? "actor_config:\n  lr: 2\n  min-lr: 1\nmegatron_training:\n  lr: 1\n  micro_batch_size: 4\n"
            : "megatron_training:\n  lr: 1\n  micro_batch_size: 4\nactor_config:\n  lr: 2\n  min-lr: 1\n");
    const treadle_train_settings *s = treadle_train_config_settings(config);
    assert_true(s->actor.lr == 2 && s->actor.min_lr == 1 && s->actor.micro_batch_size == 4);
    assert_int_equal(config->warnings.count, 1);
    assert_string_equal(config->warnings.items[0],
                        turned ? "sft.yaml:5: megatron_training.lr gives way to actor_config.lr on line 2"
                               : "sft.yaml:2: megatron_training.lr gives way to actor_config.lr on line 5");
    treadle_train_config_destroy(config);
  }
}

static void settled_by_rules(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(
      "megatron_training:\n  sequence_parallel: true\nactor_config:\n  max_tokens_per_micro: 512\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_false(s->training.sequence_parallel);
  assert_int_equal(s->actor.micro_batch_size, 0);
  assert_int_equal(config->warnings.count, 1);
  assert_non_null(
      strstr(config->warnings.items[0], "megatron_training.sequence_parallel (line 2) has no effect"));
  treadle_train_config_destroy(config);
  config = read_ok("actor_config:\n  layout: 'megatron:tp=2,dtype=fp32'\n  sequence_parallel: true\n");
  s = treadle_train_config_settings(config);
  assert_true(s->training.sequence_parallel && !s->training.bf16);
  treadle_train_config_destroy(config);
  config = read_ok("actor_config:\n  layout: fsdp2\n  offload_policy: true\n");
  assert_int_equal(treadle_train_config_settings(config)->actor.strategy, TREADLE_STRATEGY_FSDP2);
  treadle_train_config_destroy(config);
}

/* verl's names, as paths and as trees; all else of its sections does nothing. */
static void names_of_verl(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("actor_rollout_ref.ref.strategy: fsdp2\n"
                                         "actor_rollout_ref.actor.strategy: fsdp2\n"
                                         "actor_rollout_ref.actor.fsdp_config.offload_policy: True\n"
                                         "data:\n  train_files: x.jsonl\n  shuffle: false\n  image_key: z\n"
                                         "trainer:\n  save_freq: -1\n  _target_: y\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_int_equal(s->actor.strategy, TREADLE_STRATEGY_FSDP2);
  assert_true(s->actor.offload_policy);
  assert_string_equal(s->training.data_path, "x.jsonl");
  assert_int_equal(s->training.save_interval, -1);
  assert_true(s->training.no_shuffle);
  assert_int_equal(config->warnings.count, 1);
  assert_non_null(strstr(config->warnings.items[0],
                         ": actor_rollout_ref.ref.strategy (line 1), data.image_key "
                         "(line 7), trainer._target_ (line 10)"));
  treadle_train_config_destroy(config);
}

/* ---- Names in values --------------------------------------------------------------------------------- */

static const char tree[] =
    "env:\n  folder: runs/${env.number}\n  number: ${runner.number}\n  empty: null\n  ten: 10\n  off: "
    "off\n  list: [1]\n  beside: ${.ten}\n  key: ten\n  where: save\n  env: env\n"
    "  many: ${env.more}${env.more}\n  more: ${env.most}${env.most}\n  most: ${env.many}\n"
    "data.dotted:\n  key: with points\nrunner: {number: six}\n";

static const struct {
  const char *model, *becomes; /* NULL: not given */
} named[] = {
    {"plain", "plain"},
    {"${env.folder}", "runs/seven"},
    {"${env.folder}/model", "runs/seven/model"},
    {"x${env.number}y${env.number}z", "xsevenysevenz"},
    {"${oc.select:env.number,other}", "seven"},
    {"${oc.select:env.nothing,other}", "other"},
    {"${oc.select:env.empty, other}", "other"},
    {"${oc.select:env.nothing}", NULL},
    {"${env.empty}", NULL},
    {"${data.dotted.key}", "with points"},
    {"${oc.select:env.nothing,${env.number}}", "seven"},
    {"${oc.select:env.nothing,${oc.select:env.nothing,${env.folder}}}/x", "runs/seven/x"},
    {"${subtract:${env.ten}, 3}", "7"},
    {"a${multiply:${subtract:${env.ten},4},${env.ten}}b", "a60b"},
    {"${int_div:7,2}", "3"},
    {"${.save}/x", "runs/x"},
    {"${..env.ten}", "10"},
    {"${oc.select:.nothing,${.save}}", "runs"},
    {"${env.beside}", "10"},
    {"${env.${env.key}}", "10"},
    {"${.${env.where}}", "runs"},
    {"${not:${env.off}}", "true"},
};

static const struct {
  const char *model, *message;
} badly_named[] = {
    {"a${env.empty}", "sft.yaml:2: actor_config.model: 'a${env.empty}': a part of it is null"},
    {"${env.nothing}", "sft.yaml:2: actor_config.model: ${env.nothing}: there is no such value"},
    {"${env}", "${env} is not a single value"},
    {"${env.list}", "${env.list} is not a single value"},
    {"${}", "there is no such value"},
    {"${", "a ${ is not closed"},
    {"${oc.select:env.nothing,${env.number}", "a ${ is not closed"},
    {"${oc.env:HOME}",
     "${oc.env:HOME} is of the environment, which is not read; give the value of HOME itself"},
    {"${oc.env:HOME,/x}", "give the value of HOME itself, in the file or as an override"},
    {"${oc.${env.env}:HOME}", "${oc.env:HOME} is of the environment"},
    {"${.folder}", "${.folder}: there is no such value"},
    {"${...a}", "${...a} leads out of the file"},
    {"${..}", "${..} leads out of the file"},
    {"${.model}", "names that lead to names, and do not end"},
    {"${now:%Y}", "${now:%Y} is not looked up; ${a.b} and ${oc.select:a.b,x} are"},
    {"${add:1,2}", "is not looked up"},
    {"${subtract:1}", "subtract needs two numbers"},
    {"${subtract:1,x}", "subtract of '1' and 'x', which are no whole numbers"},
    {"${int_div:1,0}", "int_div of 1 and 0 cannot be computed"},
    {"${multiply:9223372036854775807,2}", "cannot be computed"},
    {"${not:seven}", "not of 'seven', which is neither true nor false"},
    {"${actor_config.model}", "names that lead to names, and do not end"},
    {"${env.many}", "names that lead to names, and do not end"},
};

static treadle_status read_named(const char *model, treadle_train_config **config_p) {
  static const char *const overrides[] = {"runner.number=seven"};
  char text[1024];
  snprintf(text, sizeof text, "actor_config:\n  model: \"%s\"\n  save: runs\n%s", model, tree);
  return parse(text, overrides, 1, config_p);
}

static void names_in_values(void **state) {
  (void)state;
  treadle_train_config *config;
  for (size_t i = 0; i < TEST_COUNT(named); i++) {
    assert_ok(read_named(named[i].model, &config));
    const char *model = treadle_train_config_settings(config)->actor.model;
    if (named[i].becomes)
      assert_string_equal(model, named[i].becomes);
    else
      assert_null(model);
    treadle_train_config_destroy(config);
  }
  for (size_t i = 0; i < TEST_COUNT(badly_named); i++)
    assert_refused(badly_named[i].message, read_named(badly_named[i].model, &config));
}

/* ---- Documents ------------------------------------------------------------------------------------------ */

/* Each block of YAML of a document; returns how many. */
static int read_blocks(const char *name, void (*check)(const char *name, const char *block)) {
  char path[256];
  int count = 0;
  snprintf(path, sizeof path, TREADLE_SOURCE_DIR "/../shared/documents/%s", name);
  FILE *file = fopen(path, "r");
  if (!file) {
    printf("%s: is not there: skipped\n", path);
    return 0;
  }
  char line[4096], block[16384] = "";
  bool inside = false;
  while (fgets(line, sizeof line, file)) {
    if (inside && strncmp(line, "```", 3) == 0) {
      check(name, block);
      inside = false;
      count++;
    } else if (inside) {
      assert_true(strlen(block) + strlen(line) < sizeof block);
      strcat(block, line);
    } else if (strncmp(line, "```yaml", 7) == 0) {
      inside = true;
      *block = 0;
    }
  }
  fclose(file);
  assert_in_range(count, 1, 100);
  return count;
}

static void check_mindspeed(const char *name, const char *block) {
  treadle_train_config *config = read_ok(block);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_int_equal(s->actor.tensor_model_parallel_size, 4);
  assert_int_equal(s->actor.pipeline_model_parallel_size, name[1] == '0' ? 2 : 1);
  assert_int_equal(config->warnings.count, 1);
  assert_non_null(strstr(config->warnings.items[0], ": generate_config (line "));
  treadle_train_config_destroy(config);
}

static void check_verl(const char *name, const char *block) {
  (void)name;
  treadle_train_config *config;
  if (strncmp(block, "actor:", 6) == 0) return;
  assert_ok(parse(block, NULL, 0, &config));
  assert_true(treadle_train_config_is_given(config, TREADLE_KEY_OF(actor.strategy)));
  if (strstr(block, "tensor_parallel_size: 8"))
    assert_int_equal(treadle_train_config_settings(config)->actor.tensor_model_parallel_size, 8);
  treadle_train_config_destroy(config);
}

static void documents(void **state) {
  (void)state;
  read_blocks("S0_mindspeed_rl_resharding.md", check_mindspeed);
  read_blocks("S1_mindspeed_rl_hybrid_actor.md", check_mindspeed);
  read_blocks("S4_verl_distributed_training.md", check_verl);
}

/* ---- Written and read ------------------------------------------------------------------------------------ */

static void assert_same_settings(const treadle_train_settings *a, const treadle_train_settings *b) {
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *key = &treadle_train_keys[i];
    const char *x = (const char *)a + key->at, *y = (const char *)b + key->at;
    size_t bytes = key->type == TREADLE_KEY_BOOL ? sizeof(bool) : key->type == TREADLE_KEY_CHOICE ? 4 : 8;
    if (key->type == TREADLE_KEY_TEXT) {
      const char *s = *(const char *const *)x, *t = *(const char *const *)y;
      if (!s != !t || (s && strcmp(s, t) != 0)) fail_msg("%s: '%s' and '%s'", key->key, s, t);
    } else if (key->type == TREADLE_KEY_LIST) {
      const treadle_train_list *s = (const void *)x, *t = (const void *)y;
      assert_int_equal(s->count, t->count);
      for (size_t n = 0; n < s->count; n++) assert_string_equal(s->items[n], t->items[n]);
    } else if (memcmp(x, y, bytes) != 0) {
      fail_msg("%s has other bits", key->key);
    }
  }
}

static void written_and_read(const char *text, const char *const *overrides, size_t count) {
  treadle_train_config *config, *again;
  char *whole, *second;
  assert_ok(parse(text, overrides, count, &config));
  assert_ok(treadle_train_config_text(config, &whole));
  assert_ok(parse(whole, NULL, 0, &again));
  assert_same_settings(treadle_train_config_settings(config), treadle_train_config_settings(again));
  assert_int_equal(again->warnings.count, 0);
  assert_ok(treadle_train_config_text(again, &second));
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++)
    if (!treadle_train_keys[i].rl) assert_non_null(strstr(whole, treadle_train_keys[i].key));
  treadle_train_config_destroy(config);
  treadle_train_config_destroy(again);
  free(whole);
  free(second);
}

static void round_trips(void **state) {
  (void)state;
  static const char *const odd[] = {"actor_config.model=a \"b\" # c: [d]",
                                    "actor_config.save=\x01\n\xc3\xa4",
                                    "actor_config.lr=0.1234567890123456789", "actor_config.min_lr=5e-324"};
  written_and_read("actor_config:\n", NULL, 0);
  written_and_read(every_key, NULL, 0);
  written_and_read("megatron_training: {}\n", odd, TEST_COUNT(odd));
  written_and_read("actor_config:\n  max_tokens_per_micro: 77\n  sequence_parallel: true\n", NULL, 0);
  written_and_read("actor_config:\n  layout: 'megatron:tp=2,layout=\"Et|tL\",dtype=fp32'\n"
                   "  sequence_parallel: true\n  use_distributed_optimizer: true\n",
                   NULL, 0);
  written_and_read("actor_config:\n  layout: fsdp2:dp=4\n  offload_policy: true\n", NULL, 0);
  written_and_read("actor_config:\n  strategy: fsdp2\n  fsdp_size: 4\n", NULL, 0);
}

static void sources_are_said(void **state) {
  (void)state;
  static const char *const overrides[] = {"actor_config.lr=1"};
  treadle_train_config *config;
  char *text;
  assert_ok(parse("actor_config:\n  layout: hf\n  save: x\n", overrides, 1, &config));
  assert_ok(treadle_train_config_text(config, &text));
  assert_non_null(
      strstr(text, "  save:                                     x                           # line 3\n"));
  assert_non_null(
      strstr(text, "  lr:                                       1                           # override\n"));
  assert_non_null(strstr(
      text, "  fsdp_size:                                null                        # by layout\n"));
  assert_non_null(
      strstr(text, "  adam_eps:                                 1e-08                       # default\n"));
  treadle_train_config_destroy(config);
  free(text);
}

/* ---- Layouts ---------------------------------------------------------------------------------------------- */

static const struct {
  const char *lines;
  int64_t layers, ranks;
  const char *params, *masters; /* of params NULL: refused with the words of masters */
} layouts[] = {
    {"lr: 1", 4, 1, "megatron:dtype=bf16", "megatron:dtype=fp32"},
    {"bf16: false", 4, 2, "megatron:dtype=fp32", "megatron:dtype=fp32"},
    {"tensor_model_parallel_size: 2", 4, 8, "megatron:tp=2,dtype=bf16", "megatron:tp=2,dtype=fp32"},
    {"pipeline_model_parallel_size: 2\n  use_distributed_optimizer: true", 4, 4, "megatron:pp=2,dtype=bf16",
     "distopt:pp=2,dtype=fp32"},
    {"pipeline_model_parallel_size: 2\n  num_layers_per_virtual_pipeline_stage: 1", 8, 2,
     "megatron:pp=2,vpp=4,dtype=bf16", "megatron:pp=2,vpp=4,dtype=fp32"},
    {"pipeline_model_parallel_size: 2\n  num_layers_per_virtual_pipeline_stage: 4", 8, 2,
     "megatron:pp=2,dtype=bf16", "megatron:pp=2,dtype=fp32"},
    {"tensor_model_parallel_size: 2\n  context_parallel_size: 2\n  use_distributed_optimizer: true", 4, 8,
     "megatron:tp=2,cp=2,dtype=bf16", "distopt:tp=2,cp=2,dtype=fp32"},
    {"context_parallel_size: 3", 4, 8, NULL,
     "times actor_config.context_parallel_size (line 2), 3, does not divide"},
    {"strategy: fsdp2\n  ulysses_sequence_parallel_size: 2", 4, 4, "fsdp2:dp=4,dtype=bf16",
     "fsdp2:dp=4,dtype=fp32"},
    {"strategy: fsdp2", 4, 4, "fsdp2:dp=4,dtype=bf16", "fsdp2:dp=4,dtype=fp32"},
    {"strategy: fsdp2", 4, 1, "fsdp2:dtype=bf16", "fsdp2:dtype=fp32"},
    {"strategy: fsdp2\n  fsdp_size: 2", 4, 8, "fsdp2:dp=2,replicate=4,dtype=bf16",
     "fsdp2:dp=2,replicate=4,dtype=fp32"},
    {"layout: hf", 4, 1, "hf:dtype=bf16", "hf:dtype=fp32"},
    {"layout: megatron:tp=2,dtype=fp32,pp=2", 4, 4, "megatron:tp=2,pp=2,dtype=fp32",
     "megatron:tp=2,pp=2,dtype=fp32"},
    {"layout: 'megatron:pp=2,layout=\"Et,t|ttL\"'\n  use_distributed_optimizer: true", 4, 2,
     "megatron:pp=2,layout=\"Et,t|ttL\",dtype=bf16", "distopt:pp=2,layout=\"Et,t|ttL\",dtype=fp32"},
    {"tensor_model_parallel_size: 3", 4, 8, NULL,
     "sft.yaml: the run has 8 ranks, which actor_config.tensor_model_parallel_size (line 2), 3, times "
     "actor_config.pipeline_model_parallel_size (default), 1"},
    {"strategy: fsdp2\n  fsdp_size: 3", 4, 8, NULL,
     "8 ranks are not divided by actor_config.fsdp_size (line 3), 3"},
    {"pipeline_model_parallel_size: 2\n  num_layers_per_virtual_pipeline_stage: 3", 8, 2, NULL,
     "8 layers are not divided by"},
};

static void layout_texts(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    char file[256], text[128];
    snprintf(file, sizeof file, "actor_config:\n  %s\n", layouts[i].lines);
    treadle_train_config *config = read_ok(file);
    int64_t layers = layouts[i].layers, ranks = layouts[i].ranks;
    if (layouts[i].params) {
      assert_ok(treadle_train_config_layout(config, TREADLE_PART_PARAMS, layers, ranks, text, sizeof text));
      assert_string_equal(text, layouts[i].params);
      assert_ok(
          treadle_train_config_layout(config, TREADLE_PART_MASTERS, layers, ranks, text, sizeof text));
      assert_string_equal(text, layouts[i].masters);
    } else {
      assert_refused(layouts[i].masters, treadle_train_config_layout(config, TREADLE_PART_PARAMS, layers,
                                                                     ranks, text, sizeof text));
    }
    assert_refused("", treadle_train_config_layout(config, TREADLE_PART_PARAMS, layers, ranks, text, 8));
    treadle_train_config_destroy(config);
  }
}

static void micro_batches(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("megatron_training:\n  global_batch_size: 24\nactor_config:\n"
                                         "  micro_batch_size: 2\n  pipeline_model_parallel_size: 2\n"
                                         "  num_layers_per_virtual_pipeline_stage: 1\n");
  int64_t count;
  assert_ok(treadle_train_config_micro_batches(config, 3, 2, &count));
  assert_int_equal(count, 4);
  assert_refused(
      "megatron_training.global_batch_size (line 2) is 24 rows, which 5 data parallel ranks do not",
      treadle_train_config_micro_batches(config, 5, 2, &count));
  assert_refused("24 rows, 3 on each of 8", treadle_train_config_micro_batches(config, 8, 2, &count));
  assert_refused("the micro batches of a rank, 3, are not divided by "
                 "actor_config.pipeline_model_parallel_size (line 5), 2",
                 treadle_train_config_micro_batches(config, 4, 2, &count));
  treadle_train_config_destroy(config);
  config = read_ok("actor_config:\n  max_tokens_per_micro: 512\n");
  assert_ok(treadle_train_config_micro_batches(config, 2, 1, &count));
  assert_int_equal(count, 0);
  treadle_train_config_destroy(config);
}

/* ---- The table ---------------------------------------------------------------------------------------------- */

/* Every default is a value that its key takes. */
static void table_is_sound(void **state) {
  (void)state;
  treadle_train_settings s;
  treadle_arena arena = {0};
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *key = &treadle_train_keys[i];
    const treadle_train_limit *limit;
    char path[128];
    assert_ok(treadle_train_key_read(key, key->key, NULL, &arena, &s));
    assert_int_equal(treadle_train_key_at(key->at), i);
    snprintf(path, sizeof path, "%s%s%s", key->section, *key->section ? "." : "", key->key);
    assert_int_equal(treadle_train_key_find(path, TREADLE_RUN_RL), i);
    assert_true(key->alone || treadle_train_known_key(path, TREADLE_RUN_RL, &limit) == TREADLE_KNOWN_NOT);
    for (int j = 0; j < TREADLE_TRAIN_ALSO && key->also[j]; j++)
      assert_int_equal(treadle_train_key_find(key->also[j], TREADLE_RUN_RL), i);
    assert_true(*key->help && !strpbrk(key->help, "\"\\|") && key->unit && key->whose);
  }
  treadle_arena_release(&arena);
}

static void help(void **state) {
  (void)state;
  char *text, *json;
  json_t *root;
  assert_ok(treadle_train_config_help(false, &text));
  assert_ok(treadle_train_config_help(true, &json));
  assert_ok(treadle_json_parse("help", json, strlen(json), &root));
  json_t *keys = json_object_get(root, "keys");
  size_t count = 0;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    if (!treadle_train_key_is_of(&treadle_train_keys[i], TREADLE_RUN_SFT)) continue;
    count++;
    char begin[64];
    snprintf(begin, sizeof begin, "\n  %s ", treadle_train_keys[i].key);
    assert_non_null(strstr(text, begin));
    assert_string_equal(json_string_value(json_object_get(json_array_get(keys, (size_t)i), "key")),
                        treadle_train_keys[i].key);
  }
  assert_true(strncmp(text, "megatron_training\n", 18) == 0);
  assert_non_null(strstr(text, "\n\nactor_config\n"));
  json_decref(root);
  free(text);
  free(json);
}

/* One line of docs/training.md. */
static void document_row(char *to, size_t room, const treadle_train_key *key) {
  char allowed[TREADLE_KEY_TEXT_BYTES], type[TREADLE_KEY_TEXT_BYTES] = "";
  treadle_train_key_allowed(allowed, key);
  if (key->type == TREADLE_KEY_CHOICE)
    for (int i = 0; key->words[i]; i++)
      snprintf(type + strlen(type), sizeof type - strlen(type), "%s`%s`", i ? ", " : "", key->words[i]);
  else
    snprintf(type, sizeof type, "%s", treadle_train_key_type_text(key));
  bool number = key->type == TREADLE_KEY_INTEGER || key->type == TREADLE_KEY_REAL;
  snprintf(to, room, "| `%s` | %s%s%s | %s | %s | %s | %s |\n", key->key, type, number ? ", " : "",
           number ? allowed : "",
           key->otherwise ? key->otherwise
           : key->need    ? "needed"
                          : "none",
           key->unit, key->whose, key->help);
}

static void check_document(const char *path, bool rl) {
  char text[1 << 16], row[512];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t bytes = fread(text, 1, sizeof text - 1, file), rows = 0, missing = 0, keys = 0;
  fclose(file);
  text[bytes] = 0;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    if (treadle_train_keys[i].rl != rl) continue;
    keys++;
    document_row(row, sizeof row, &treadle_train_keys[i]);
    if (strstr(text, row)) continue;
    printf("%s lacks: %s", path, row);
    missing++;
  }
  for (const char *at = text; (at = strstr(at, "\n| `")); at++) rows++;
  assert_int_equal(missing, 0);
  assert_int_equal(rows, keys);
}

/* docs/grpo-keys.md has a line for each default that is another one in the project whose name the key has. */
static void their_defaults(void **state) {
  (void)state;
  char text[1 << 16], row[512];
  FILE *file = fopen(TREADLE_SOURCE_DIR "/docs/grpo-keys.md", "r");
  assert_non_null(file);
  size_t bytes = fread(text, 1, sizeof text - 1, file), missing = 0, rows = 0, keys = 0;
  fclose(file);
  text[bytes] = 0;
  char *table = strstr(text, "\n## Defaults of others\n");
  assert_non_null(table);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *key = &treadle_train_keys[i];
    const char *theirs = treadle_train_key_theirs(key);
    if (!theirs) continue;
    keys++;
    snprintf(row, sizeof row, "\n| %s.%s | %s | %s | %s |\n", key->section, key->key,
             key->otherwise ? key->otherwise : "none", theirs, key->whose);
    if (strstr(table, row)) continue;
    printf("docs/grpo-keys.md lacks: %s", row + 1);
    missing++;
  }
  char *end = strstr(table + 1, "\n## ");
  for (char *at = table; (at = strstr(at, "\n| ")) && (!end || at < end); at++) rows++;
  assert_int_equal(missing, 0);
  assert_int_equal(rows, keys + 1);
}

static void as_documented(void **state) {
  (void)state;
  check_document(TREADLE_SOURCE_DIR "/docs/training.md", false);
  check_document(TREADLE_SOURCE_DIR "/docs/grpo-keys.md", true);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static treadle_status use(const char *text) {
  static const char *const overrides[] = {"actor_config.lr=1", "rl_config.gamma=1"};
  treadle_train_config *config;
  char layout[128], *whole = NULL;
  treadle_status status;
  TRY(parse(text, overrides, 2, &config));
  status = treadle_train_config_text(config, &whole);
  if (!status)
    status = treadle_train_config_layout(config, TREADLE_PART_MASTERS, 12, 8, layout, sizeof layout);
  free(whole);
  treadle_train_config_destroy(config);
out:
  return status;
}

static void each_allocation(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(use(every_key));
  TEST_EACH_ALLOCATION(
      use("trainer: {x: folder}\nactor_config:\n  save: a/${trainer.x}\n  model: ${trainer.x}\n"));
  TEST_EACH_ALLOCATION(use("megatron_training:\n  lr: 2\n  sequence_parallel: true\n  use_flash_attn: 1\n"
                           "actor_config:\n  lr: 1\n  layout: megatron:pp=2\n"));
}

static void files(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[128], *help;
  treadle_train_config *config;
  snprintf(path, sizeof path, "%s/sft.yaml", folder);
  assert_fails(TREADLE_SYSTEM, "sft.yaml", treadle_train_config_read(path, NULL, 0, &config));
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs("actor_config:\n  lr: x\n", file);
  fclose(file);
  char message[256];
  snprintf(message, sizeof message, "%s:2: actor_config.lr is 'x'", path);
  assert_refused(message, treadle_train_config_read(path, NULL, 0, &config));
  assert_null(config);
  TEST_EACH_ALLOCATION((treadle_train_config_help(true, &help) == TREADLE_OK ? (free(help), TREADLE_OK)
                                                                             : TREADLE_NO_MEMORY));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),           cmocka_unit_test(values),
      cmocka_unit_test(overrides_go_first), cmocka_unit_test(refusals),
      cmocka_unit_test(overrides_twice),    cmocka_unit_test(what_is_needed),
      cmocka_unit_test(known_names),        cmocka_unit_test(actor_goes_first),
      cmocka_unit_test(settled_by_rules),   cmocka_unit_test(names_of_verl),
      cmocka_unit_test(names_in_values),    cmocka_unit_test(documents),
      cmocka_unit_test(round_trips),        cmocka_unit_test(sources_are_said),
      cmocka_unit_test(layout_texts),       cmocka_unit_test(micro_batches),
      cmocka_unit_test(table_is_sound),     cmocka_unit_test(help),
      cmocka_unit_test(as_documented),      cmocka_unit_test(their_defaults),
      cmocka_unit_test(each_allocation),    cmocka_unit_test(files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
