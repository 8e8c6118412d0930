/* Files of MindSpeed-RL, RLinf and verl, read for what a switch of their runs would be: layouts, ranks, what is offloaded. Variants that are
 * broken are refused by path and line. Whole files are read by tests/cli/test_plan_config.sh, too, which plans what they come to. */
#include "test.h"

#include "run/config_switch.h"
#include "treadle_loop.h"

static treadle_status parse(const char *text, const char *const *overrides, size_t count,
                            treadle_train_config **config_p) {
  return treadle_train_config_parse("run.yaml", text, strlen(text), overrides, count, TREADLE_RUN_SWITCH,
                                    config_p);
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

/* ---- What files come to ------------------------------------------------------------------------------------ */

#define ACTOR    "actor_rollout_ref.actor."
#define ROLLOUT  "actor_rollout_ref.rollout."
#define VERL     ROLLOUT "name: vllm\n"
#define RANKS    "trainer: {nnodes: 1, n_gpus_per_node: 8}\n"
#define MEGATRON ACTOR "strategy: megatron\n" ACTOR "megatron: "
#define APART    "trainer.v1: {trainer_mode: separate_async}\n"
#define SGLANG   ROLLOUT "name: sglang\n"
#define RLINF    "rollout: {rollout_backend: vllm, tensor_parallel_size: 2}\n"
#define PLACES   "cluster:\n  num_nodes: 2\n  component_placement: "
#define MIND     "generate_config: {infer_tensor_parallel_size: 2}\n"
#define NPUS     "rl_config: {actor_resource: {num_npus: 16}}\n"

static const struct {
  const char *text, *train, *infer;
  int64_t ranks, nodes;
  bool is_strided;
} files[] = {
    /* verl: FSDP, */
    {VERL RANKS, "fsdp", "vllm:tp=2", 8, 1, false},
    {VERL, "fsdp", "vllm:tp=2", 0, 0, false},
    {VERL RANKS ACTOR "strategy: fsdp2\n" ACTOR "fsdp_config: {fsdp_size: 4}\n", "fsdp2:dp=4,replicate=2",
     "vllm:tp=2", 8, 1, false},
    {VERL RANKS ACTOR "fsdp_config: {fsdp_size: 1}\n", "fsdp:replicate=8", "vllm:tp=2", 8, 1, false},
    {VERL RANKS ACTOR "fsdp_config: {fsdp_size: 8, model_dtype: bf16, use_orig_params: true}\n",
     "fsdp:orig_params=on,dtype=bf16", "vllm:tp=2", 8, 1, false},
    /* Megatron, */
    {VERL RANKS MEGATRON
     "{tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, "
     "virtual_pipeline_model_parallel_size: 2, context_parallel_size: 2, dtype: bfloat16}\n",
     "megatron:tp=2,pp=2,cp=2,vpp=2,dtype=bf16", "vllm:tp=2", 8, 1, false},
    {VERL RANKS MEGATRON "{tensor_model_parallel_size: 2, expert_model_parallel_size: 4, "
                         "expert_tensor_parallel_size: 1}\n",
     "megatron:tp=2,ep=4,etp=1", "vllm:tp=2", 8, 1, false},
    {VERL RANKS MEGATRON
     "{pipeline_model_parallel_size: 4, override_transformer_config: {num_layers_in_first_pipeline_stage: "
     "1, "
     "num_layers_in_last_pipeline_stage: 5, account_for_loss_in_pipeline_split: true}}\n",
     "megatron:pp=4,first=1,last=5,loss_split=on", "vllm:tp=2", 8, 1, false},
    {VERL RANKS MEGATRON "{pipeline_model_parallel_size: 2, override_transformer_config: "
                         "{pipeline_model_parallel_layout: 'Et*3|t,L'}}\n",
     "megatron:pp=2,layout=\"Et*3|t,L\"", "vllm:tp=2", 8, 1, false},
    /* names, */
    {VERL RANKS MEGATRON "{tensor_model_parallel_size: '${.pipeline_model_parallel_size}', "
                         "pipeline_model_parallel_size: '${..rollout_n}'}\n" ACTOR
                         "rollout_n: ${actor_rollout_ref.rollout.${.key}}\n" ACTOR "key: 'n'\n" ROLLOUT
                         "n: 2\n",
     "megatron:tp=2,pp=2", "vllm:tp=2", 8, 1, false},
    /* engines, */
    {VERL RANKS ROLLOUT "data_parallel_size: 2\n" ROLLOUT "expert_parallel_size: 4\n" ROLLOUT
                        "dtype: auto\n",
     "fsdp", "vllm:tp=2,dp=2,ep=on", 8, 1, false},
    {SGLANG RANKS ROLLOUT "data_parallel_size: 2\n" ROLLOUT "expert_parallel_size: 4\n" ROLLOUT
                          "dtype: float16\n",
     "fsdp", "sglang:tp=4,ep=4,dtype=fp16", 8, 1, false},
    {SGLANG RANKS ROLLOUT "data_parallel_size: 2\n" ROLLOUT
                          "engine_kwargs: {sglang: {enable_dp_attention: true, chunked_prefill_size: 9}}\n",
     "fsdp", "sglang:tp=4,attn_dp=2", 8, 1, false},
    /* nodes of their own. */
    {VERL RANKS APART ROLLOUT "nnodes: 1\n", "fsdp:on=0-7", "vllm:tp=2,on=8-15", 16, 2, false},
    {VERL RANKS APART ROLLOUT "nnodes: 1\n" ROLLOUT "n_gpus_per_node: 4\n", "fsdp:on=0-7",
     "vllm:tp=2,on=8-11", 12, 0, false},
    {VERL RANKS ROLLOUT "nnodes: 1\n", "fsdp", "vllm:tp=2", 8, 1, false},
    /* As its documents have it, */
    {"actor_rollout_ref.ref.strategy: fsdp2\n" ACTOR "strategy: fsdp2\ncritic.strategy: fsdp2\n"
     "reward_model.strategy: fsdp2\n" ACTOR "fsdp_config.offload_policy: True\n",
     "fsdp2", "vllm:tp=2", 0, 0, false},
    {"actor_rollout_ref:\n  actor:\n    strategy: megatron\n    megatron_config: {tensor_parallel_size: 8, "
     "pipeline_parallel_size: 2, expert_parallel_size: 4}\n",
     "megatron:tp=8,pp=2,ep=4", "vllm:tp=2", 0, 0, false},

    /* RLinf */
    {RLINF PLACES "{'actor,rollout,reward': all}\nactor: {model: {tensor_model_parallel_size: 4}}\n",
     "megatron:tp=4", "vllm:tp=2", 0, 2, true},
    {RLINF PLACES "{'actor, rollout': 0-7}\nmodel: {tensor_model_parallel_size: 4, precision: bf16}\n",
     "megatron:tp=4,dtype=bf16", "vllm:tp=2,dtype=bf16", 8, 2, true},
    {RLINF PLACES "{'actor,rollout': 0-7}\nmodel: {tensor_model_parallel_size: 2, precision: fp16}\n"
                  "rollout.model.precision: bf16\n",
     "megatron:tp=2,dtype=fp16", "vllm:tp=2,dtype=bf16", 8, 2, false},
    {RLINF PLACES
     "{actor: '4-5,6-7', rollout: 0-3, inference: 8-9, env: {node_group: robot, placement: 0-99}, "
     "reward: '0-1:0-7'}\n",
     "megatron:on=4-7", "vllm:tp=2,on=0-3", 10, 2, false},
    {RLINF PLACES "\n    actor,rollout:\n      node_group: cluster\n      placement: 2-3\n",
     "megatron:on=2-3", "vllm:tp=2,on=2-3", 4, 2, false},
    {RLINF PLACES "{'actor,rollout': '0-3:0-3,4:4,5-7'}\n", "megatron", "vllm:tp=2", 8, 2, false},
    {"actor: {training_backend: fsdp, fsdp_config: {strategy: fsdp2, sharding_strategy: full_shard}, "
     "model: {precision: fp32}}\nrollout: {model: {precision: bf16}}\n" PLACES "{'actor,rollout': 0}\n",
     "fsdp2:dtype=fp32", "sglang:dtype=bf16", 1, 2, false},
    {"model:\n  precision: 16-mixed\n  tensor_model_parallel_size: 2\nmegatron:\n  use_hf_ckpt: True\n"
     "  ckpt_convertor: {hf_model_path: '${rollout.model_dir}', "
     "tensor_model_parallel_size: '${actor.model.tensor_model_parallel_size}'}\n",
     "megatron:tp=2,dtype=fp16", "sglang:dtype=fp16", 0, 0, true},

    /* MindSpeed-RL */
    {MIND NPUS "actor-config: {tensor-model-parallel-size: 4, pipeline-model-parallel-size: 2}\n",
     "megatron:tp=4,pp=2", "vllm:tp=2", 16, 0, false},
    {MIND
     "actor_config: {tensor_model_parallel_size: 4}\nmegatron_training: {tensor_model_parallel_size: 8, "
     "bf16: true}\n",
     "megatron:tp=4,dtype=bf16", "vllm:tp=2", 0, 0, false},
    {MIND "actor_config: {tensor_model_parallel_size: 2, expert_model_parallel_size: 4, moe_tp_extend_ep: "
          "true, bf16: false}\n",
     "megatron:tp=2,ep=8,etp=1,dtype=fp32", "vllm:tp=2", 0, 0, false},
    {MIND
     "actor_config: {pipeline_model_parallel_size: 2, num_layer_list: '3,5', use_tp_pp_dp_mapping: true, "
     "make_vocab_size_divisible_by: 1}\n",
     "megatron:pp=2,layout=\"Et*3|t*5,L\",order=tp-cp-ep-pp-dp,vocab_divisible_by=1", "vllm:tp=2", 0, 0,
     false},
    {MIND "actor_config: {pipeline_model_parallel_size: 2, num_layer_list: [4, 4], num_layers: 8, "
          "num_layers_per_virtual_pipeline_stage: 2}\n",
     "megatron:pp=2,layout=\"Et*2|t*2|t*2|t*2,L\"", "vllm:tp=2", 0, 0, false},
    {MIND "actor_config: {pipeline_model_parallel_size: 2, num_layers: 8, "
          "num_layers_per_virtual_pipeline_stage: 2}\n",
     "megatron:pp=2,vpp=2", "vllm:tp=2", 0, 0, false},
    {NPUS
     "generate_config: {infer_tensor_parallel_size: 2, infer_expert_parallel_size: 4, dtype: bfloat16}\n",
     "megatron", "vllm:tp=2,dp=4,ep=on,dtype=bf16", 16, 0, false},
    {NPUS "generate_config: {infer_tensor_parallel_size: 4, enable_expert_parallel: true}\n", "megatron",
     "vllm:tp=4,ep=on", 16, 0, false},
    {NPUS "generate_config: {max_num_seqs: 4}\n", "megatron", "vllm:tp=8", 16, 0, false},
    {NPUS "actor_config: {strategy: fsdp2, fsdp_size: 8}\ngenerate_config: {layout: 'sglang:tp=4'}\n",
     "fsdp2:dp=8,replicate=2", "sglang:tp=4", 16, 0, false},
    {MIND "actor_config: {layout: 'megatron:tp=2,first=3,pp=2'}\n", "megatron:tp=2,first=3,pp=2",
     "vllm:tp=2", 0, 0, false},
};

static void layouts(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    treadle_train_config *config;
    if (parse(files[i].text, NULL, 0, &config)) fail_msg("%s: %s", files[i].text, treadle_error_message());
    const treadle_switch_config_info *info = &config->asked->info;
    if (strcmp(info->train, files[i].train) != 0 || strcmp(info->infer, files[i].infer) != 0)
      fail_msg("%s: %s to %s, and not %s to %s", files[i].text, info->train, info->infer, files[i].train,
               files[i].infer);
    if (info->ranks != files[i].ranks || info->nodes != files[i].nodes)
      fail_msg("%s: %d ranks on %d nodes", files[i].text, (int)info->ranks, (int)info->nodes);
    if ((info->rank_map == TREADLE_STRIDED) != files[i].is_strided)
      fail_msg("%s: rank map %d", files[i].text, (int)info->rank_map);
    treadle_train_config_destroy(config);
  }
}

/* ---- Refused ------------------------------------------------------------------------------------------------ */

/* A file of verl's that is right, of which one line is broken. */
#define WHOLE                                                                                              \
  "actor_rollout_ref:\n"                                                                                   \
  "  actor:\n"                                                                                             \
  "    strategy: megatron\n"                                                                               \
  "    megatron: {tensor_model_parallel_size: 2}\n"                                                        \
  "  rollout:\n"                                                                                           \
  "    name: vllm\n"                                                                                       \
  "trainer: {nnodes: 1, n_gpus_per_node: 8}\n"

static const struct {
  const char *text, *message;
} broken[] = {
    {WHOLE "data: {train_btach_size: 3}\n", "run.yaml:8: data.train_btach_size: no key of verl that is "
                                            "known here; did you mean 'train_batch_size'?"},
    {WHOLE "actor_rolout_ref: {a: 1}\n",
     "run.yaml:8: actor_rolout_ref: no key of verl that is known here; did you mean 'actor_rollout_ref'?"},
    {WHOLE "trainer.v2: {mode: 3}\n", "run.yaml:8: trainer.v2: no key of verl that is known here"},
    {WHOLE ROLLOUT "tensor_model_parallel_size: two\n",
     "run.yaml:8: actor_rollout_ref.rollout.tensor_model_parallel_size is 'two', and must be a whole "
     "number from 1"},
    {WHOLE ROLLOUT "tensor_model_parallel_size: 0\n",
     "tensor_model_parallel_size is '0', and must be a whole number"},
    {WHOLE ROLLOUT "tensor_model_parallel_size: 3\n",
     "run.yaml:8: actor_rollout_ref.rollout.tensor_model_parallel_size: tp * dp * pp makes 3, which 8 "
     "ranks are not "
     "a multiple of"},
    {WHOLE ROLLOUT "tensor_model_parallel_size: [2, 4]\n" ROLLOUT "data_parallel_size: {a: 1}\n",
     "run.yaml:8: actor_rollout_ref.rollout.tensor_model_parallel_size is a list, and must be one value"},
    {WHOLE ROLLOUT "data_parallel_size: {a: 1}\n",
     "run.yaml:8: actor_rollout_ref.rollout.data_parallel_size is a map, and must be one value"},
    {WHOLE ROLLOUT "expert_parallel_size: 4\n",
     "run.yaml:8: actor_rollout_ref.rollout.expert_parallel_size is 4, and must be 1 or"},
    {WHOLE ROLLOUT "dtype: int8\n",
     "run.yaml:8: actor_rollout_ref.rollout.dtype is 'int8': a layout has bf16"},
    {WHOLE ROLLOUT "quantization: fp8\n",
     "run.yaml:8: actor_rollout_ref.rollout.quantization: this cannot be done"},
    {WHOLE ROLLOUT "engine_kwargs: {vllm: {enable_eplb: true}}\n",
     "run.yaml:8: actor_rollout_ref.rollout.engine_kwargs.vllm.enable_eplb is 'true': here it can only be "
     "false"},
    {WHOLE ROLLOUT "checkpoint_engine: {update_weights_bucket_megabytes: -1}\n",
     "run.yaml:8: actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes is '-1'"},
    {WHOLE "actor_rollout_ref.model: {lora_rank: 8}\n",
     "run.yaml:8: actor_rollout_ref.model.lora_rank is '8': here it can only be 0"},
    {WHOLE "actor_rollout_ref.model: {path: '${oc.env:HOME}/m'}\n",
     "run.yaml:8: actor_rollout_ref.model.path: ${oc.env:HOME} is of the environment"},
    {WHOLE "trainer.default_local_dir: ${oc.env:HOME,x}/m\n",
     "run.yaml:8: trainer.default_local_dir: ${oc.env:HOME} is of the environment, which is not read"},
    {WHOLE "ray_kwargs:\n  ray_init:\n    dir: [x, '${oc.env:A}']\n",
     "run.yaml:10: ray_kwargs.ray_init.dir: ${oc.env:A} is of the environment"},
    {WHOLE "actor_rollout_ref.model: {path: '${nothing.there}'}\n",
     "run.yaml:8: actor_rollout_ref.model.path: ${nothing.there}: there is no such value"},
    {WHOLE "actor_rollout_ref.model: {path: '${.path}'}\n", "names that lead to names, and do not end"},
    {WHOLE "actor_rollout_ref.model: {path: '${....path}'}\n", "${....path} leads out of the file"},
    {WHOLE "actor_rollout_ref.model: {path: '${now:x}'}\n",
     "run.yaml:8: actor_rollout_ref.model.path: ${now:x} is not"},
    {WHOLE "actor_rollout_ref.model: {path: '\?\?\?'}\n",
     "run.yaml:8: actor_rollout_ref.model.path is \?\?\?"},
    {WHOLE ACTOR "megatron.pipeline_model_parallel_size: 8\n",
     "run.yaml:4: actor_rollout_ref.actor.megatron.tensor_model_parallel_size: tp * pp * cp makes 16"},
    {WHOLE ACTOR "megatron.virtual_pipeline_model_parallel_size: 2\n",
     "run.yaml:8: actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size is 2, and needs pp "
     "above 1"},
    {WHOLE ACTOR "megatron.use_megatron_fsdp: true\n",
     "run.yaml:8: actor_rollout_ref.actor.megatron.use_megatron_fsdp is"},
    {WHOLE ACTOR "megatron.param_offload: maybe\n",
     "run.yaml:8: actor_rollout_ref.actor.megatron.param_offload is 'maybe', and must be true or false"},
    {WHOLE APART,
     "run.yaml:8: trainer.v1.trainer_mode is separate_async, which needs actor_rollout_ref.rollout.nnodes"},
    {WHOLE "defaults: [ppo_trainer]\n",
     "run.yaml:8: defaults has 'ppo_trainer', of which the file takes keys"},
    {WHOLE "actor_config: {lr: 1}\n", "run.yaml:8: actor_config is MindSpeed-RL's, and actor_rollout_ref "
                                      "on line 1 verl's: a file is of one project"},
    {WHOLE "trainer: {a: 1}\n", "run.yaml:8"},
    {WHOLE "data: 3\n", "run.yaml:8: data is a section: it must be a map of keys"},
    {"data: {train_batch_size: 3}\n", "run.yaml:1: has no section of MindSpeed-RL"},
    {"[1, 2]\n", "run.yaml:1: must be a map of sections"},
    {ACTOR "strategy: torchtitan\n",
     "run.yaml:1: actor_rollout_ref.actor.strategy is 'torchtitan': of what it can be"},
    {ROLLOUT "name: trtllm\n", "run.yaml:1: actor_rollout_ref.rollout.name is 'trtllm'"},
    {VERL ACTOR "fsdp_config: {fsdp_size: 4}\n",
     "run.yaml:2: actor_rollout_ref.actor.fsdp_config.fsdp_size is 4: how many"},
    {VERL RANKS ACTOR "fsdp_config: {fsdp_size: 3}\n",
     "run.yaml:3: actor_rollout_ref.actor.fsdp_config.fsdp_size: it makes 3"},
    {VERL RANKS ACTOR "fsdp_config: {fsdp_size: 0}\n", "fsdp_size is 0, and must be -1"},

    {RLINF PLACES "{actor: 0-3, rollout: 2-5}\n",
     "run.yaml:4: cluster.component_placement.rollout: rollout is on 2-5 and actor on 0-3"},
    {RLINF PLACES "{actor: 0-3}\n",
     "run.yaml:4: cluster.component_placement.actor: cluster.component_placement has no"},
    {RLINF PLACES "{actor: all, rollout: 0-3}\n", "all for one of actor and rollout alone"},
    {RLINF PLACES "{'actor,rollout': 0-1-2}\n", "is '0-1-2': a placement is accelerators, as 0-3"},
    {RLINF PLACES "{'actor,rollout': 3-0}\n",
     "run.yaml:4: cluster.component_placement.actor,rollout is '3-0': 3-0 ends before"},
    {RLINF PLACES "{'actor,rollout': '0-1,1-2'}\n", "accelerators must ascend, each named once"},
    {RLINF PLACES "{'actor,rollout': '0-1,3'}\n", "accelerators of actor must be neighbours"},
    {RLINF PLACES "{'actor,rollout': '0-0:0,1-1:2'}\n", "processes must ascend without a gap, from 1 here"},
    {RLINF PLACES "{'actor,rollout': '0-2:0-3'}\n",
     "4 processes on 3 accelerators, of which neither number"},
    {RLINF PLACES "{'actor,rollout': '0-1:0-3'}\n",
     "actor has a process on each of its accelerators, here 4 on 2"},
    {RLINF PLACES "{'actor,rollout': 'all:0-3'}\n", "all accelerators have a process each"},
    {RLINF PLACES "{'actor,rollout': ''}\n", "names no accelerator"},
    {RLINF PLACES "{'actor,rollout': 0-3, actor: 0-3}\n",
     "run.yaml:4: cluster.component_placement.actor: actor has a place already"},
    {RLINF PLACES "{'actor,rollout': {node_group: a800, placement: 0-3}}\n",
     "ranks of a group of nodes are not known"},
    {RLINF PLACES "{'actor,rollout': {ranks: 0-3}}\n", "a placement has node_group and placement"},
    {RLINF PLACES "{'actor,rollout': 0-3, inference: 4-5}\n", "inference has no accelerators of its own"},
    {RLINF PLACES "0-3\n", "run.yaml:4: cluster.component_placement must be a map of components"},
    {RLINF PLACES "{'actor,rollout': 0-2}\n",
     "run.yaml:1: rollout.tensor_parallel_size: tp * pp makes 2, which 3 ranks"},
    {"rollout: {tensor_parallel_size: 3}\nmodel: {tensor_model_parallel_size: 4}\n",
     "run.yaml:1: rollout.tensor_parallel_size is 3, which does not divide"},
    {RLINF "actor: {model: {tensor_model_parallel_siez: 2}}\n",
     "run.yaml:2: actor.model.tensor_model_parallel_siez: no key of RLinf that is known here; did you mean "
     "'tensor_model_parallel_size'?"},
    {RLINF "actor: {fsdp_config: {sharding_strategy: hybrid_shard}}\n",
     "sharding_strategy is 'hybrid_shard'"},
    {RLINF "runner: {task_type: embodied}\n", "run.yaml:2: runner.task_type is 'embodied'"},

    {MIND "actor_config: {num_layers_per_virtual_pipeline_stage: 2, pipeline_model_parallel_size: 2}\n",
     "run.yaml:2: actor_config.num_layers_per_virtual_pipeline_stage: the chunks of a stage follow from "
     "the number of"},
    {MIND "actor_config: {noop_layers: '0,9'}\n",
     "run.yaml:2: actor_config.noop_layers: this cannot be done here"},
    {MIND "actor_config: {num_layer_list: '3,x', pipeline_model_parallel_size: 2}\n",
     "must be the layers of each stage"},
    {MIND "actor_config: {num_layer_list: '3,3,3', pipeline_model_parallel_size: 2}\n",
     "3 stages, and pp=2"},
    {MIND "actor_config: {bf16: true, fp16: true}\n",
     "run.yaml:2: actor_config.fp16: fp16 and bf16 exclude each other"},
    {"generate_config: {infer_expert_parallel_size: 4, data_parallel_size: 2}\n",
     "run.yaml:1: generate_config.infer_expert_parallel_size is 4, and data_parallel_size 2"},
    {MIND "actor_config: {layout: 'megatron:tp'}\n", "run.yaml:2: actor_config.layout: "},
    {"generate_config: {layout: 'vllm:tp=2,tp=2'}\n", "run.yaml:1: generate_config.layout: "},
    {VERL RANKS MEGATRON "{override_transformer_config: {pipeline_model_parallel_layout: 'Et,\"L'}}\n",
     "run.yaml:4: "
     "actor_rollout_ref.actor.megatron.override_transformer_config.pipeline_model_parallel_layout: "},
    {MIND "rl_config: {n_sample_per_prompt: 4}\n", "did you mean 'n_samples_per_prompt'?"},
    {"rl_config: {actor_resource: {num_npus: 12}}\nactor_config: {tensor_model_parallel_size: 8}\n" MIND,
     "run.yaml:2: actor_config.tensor_model_parallel_size: tp * pp * cp makes 8, which 12 ranks"},
};

static void refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(broken); i++) {
    treadle_train_config *config;
    if (parse(broken[i].text, NULL, 0, &config) != TREADLE_REFUSED)
      fail_msg("%s: is not refused", broken[i].text);
    assert_null(config);
    if (!strstr(treadle_error_message(), broken[i].message))
      fail_msg("%s: %s, and not %s", broken[i].text, treadle_error_message(), broken[i].message);
    if (strncmp(treadle_error_message(), "run.yaml:", 9) != 0)
      fail_msg("%s: no file", treadle_error_message());
  }
}

/* All that is wrong in a file is said at once. */
static void refused_together(void **state) {
  (void)state;
  treadle_train_config *config;
  assert_refused(
      "run.yaml: 3 keys are refused:\n"
      "run.yaml:8: data.x: no key of verl",
      parse(WHOLE "data: {x: 1}\n" ROLLOUT "quantization: fp8\n" ROLLOUT "dtype: fp4\n", NULL, 0, &config));
  assert_non_null(
      strstr(treadle_error_message(), "\nrun.yaml:9: actor_rollout_ref.rollout.quantization: "));
  assert_non_null(
      strstr(treadle_error_message(), "\nrun.yaml:10: actor_rollout_ref.rollout.dtype is 'fp4'"));
}

/* ---- Overrides, warnings, other keys -------------------------------------------------------------------------- */

static void overrides(void **state) {
  (void)state;
  static const char *const given[] = {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
                                      "+trainer.nnodes=2", "actor_rollout_ref.rollout.name=sglang",
                                      "actor_rollout_ref.model.path=here", "trainer.nnodes=4"};
  static const char *const elsewhere[] = {"data.train_files=y", "ray_kwargs.a.b=z"};
  static const char *const wrong[] = {"trainer.nnodes=x"};
  static const char *const places[] = {"cluster.component_placement.actor=0-1",
                                       "cluster.component_placement.rollout=4-7"};
  treadle_train_config *config;
  assert_ok(parse(WHOLE "actor_rollout_ref.model: {path: '${oc.env:HOME}'}\n", given, TEST_COUNT(given),
                  &config));
  const treadle_switch_config_info *info = &config->asked->info;
  assert_string_equal(info->train, "megatron:tp=4");
  assert_string_equal(info->infer, "sglang:tp=2");
  assert_string_equal(info->model, "here");
  assert_int_equal(info->ranks, 32);
  treadle_train_config_destroy(config);
  assert_ok(parse(WHOLE "data: {train_files: '${oc.env:X}'}\nray_kwargs: {a: {b: '${oc.env:X}'}}\n",
                  elsewhere, 2, &config));
  treadle_train_config_destroy(config);
  assert_refused("override trainer.nnodes is 'x'", parse(WHOLE, wrong, 1, &config));
  assert_ok(parse(RLINF PLACES "{actor: 0-3, rollout: 2-5}\n", places, 2, &config));
  assert_string_equal(config->asked->info.train, "megatron:on=0-1");
  assert_string_equal(config->asked->info.infer, "vllm:tp=2,on=4-7");
  treadle_train_config_destroy(config);
}

static void warnings(void **state) {
  (void)state;
  treadle_train_config *config;
  assert_ok(parse(WHOLE, NULL, 0, &config));
  assert_int_equal(config->warnings.count, 0);
  treadle_train_config_destroy(config);
  assert_ok(parse(WHOLE "data: {shuffle: false}\nhydra: {dir: '${oc.env:X}'}\n" ACTOR
                        "fsdp_config: {fsdp_size: 2}\n"
                        "critic: {lr: 1, b: {c: 2}}\n",
                  NULL, 0, &config));
  assert_int_equal(config->warnings.count, 1);
  assert_true(is_warned(
      config, "run.yaml: known, and without effect here: data.shuffle (line 8), hydra (line 9), critic"));
  assert_true(is_warned(config, "actor_rollout_ref.actor.fsdp_config.fsdp_size (line 10)"));
  treadle_train_config_destroy(config);
  assert_ok(parse(ROLLOUT "name: \?\?\?\n", NULL, 0, &config));
  assert_true(is_warned(config, "run.yaml:1: actor_rollout_ref.rollout.name is not said: taken as vllm"));
  treadle_train_config_destroy(config);
  assert_ok(parse("generate_config: {n: null}\n", NULL, 0, &config));
  assert_true(is_warned(config, "infer_tensor_parallel_size is not given: 8, as MindSpeed-RL takes it"));
  treadle_train_config_destroy(config);
  assert_ok(parse(MIND "actor_config: {bf16: true}\nmegatron_training: {bf16: false}\n", NULL, 0, &config));
  assert_true(
      is_warned(config, "run.yaml:3: megatron_training.bf16 gives way to actor_config.bf16 on line 2"));
  treadle_train_config_destroy(config);
}

static const struct {
  const char *text, *offload, *model;
  size_t cap;
} others[] = {
    {VERL ACTOR "fsdp_config: {param_offload: true, optimizer_offload: true}\n" ACTOR
                "megatron: {grad_offload: true}\n" ROLLOUT
                "checkpoint_engine: {update_weights_bucket_megabytes: 2048}\n",
     "p-o", NULL, (size_t)2 << 30},
    {VERL MEGATRON "{param_offload: true}\nactor_rollout_ref.model: {path: Qwen/Qwen2.5-7B}\n", "pg-",
     "Qwen/Qwen2.5-7B", 0},
    {VERL ACTOR "fsdp_config: {offload_policy: true}\n", "p-o", NULL, 0},
    {"actor: {enable_offload: true, training_backend: fsdp, model: {model_path: /a}}\nrollout: {model: "
     "{model_path: /b}}\n",
     "pgo", "/a", 0},
    {"actor: {offload_optimizer: true}\nrollout: {model_dir: /c}\n", "--o", "/c", 0},
    {MIND "generate_config.offload_train_grad: true\nactor_config: {model: qwen}\n"
          "megatron_training: {tokenizer_name_or_path: ./q}\n",
     "-g-", "./q", 0},
    {MIND "actor_config: {model: ../models/q}\nmegatron_training: {tokenizer_name_or_path: ./q}\n", "---",
     "../models/q", 0},
};

static void other_keys(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    treadle_train_config *config;
    if (parse(others[i].text, NULL, 0, &config))
      fail_msg("%s: %s", others[i].text, treadle_error_message());
    const treadle_switch_config_info *info = &config->asked->info;
    const char offload[] = {info->offload_params ? 'p' : '-', info->offload_grads ? 'g' : '-',
                            info->offload_optimizer ? 'o' : '-', 0};
    assert_string_equal(offload, others[i].offload);
    assert_string_equal(info->model ? info->model : "", others[i].model ? others[i].model : "");
    assert_int_equal(info->cap_bytes, others[i].cap);
    treadle_train_config_destroy(config);
  }
}

/* The file as the library reads it. */
static void read_file(void **state) {
  (void)state;
  treadle_switch_config *config;
  treadle_switch_config_info info = TREADLE_INIT(treadle_switch_config_info);
  size_t count;
  assert_ok(treadle_switch_config_read(TREADLE_SOURCE_DIR "/tests/data/config/verl-megatron.yaml", NULL, 0,
                                       &config));
  treadle_switch_config_get_info(config, &info);
  assert_string_equal(info.source, "verl");
  assert_string_equal(info.train, "megatron:tp=2,pp=2,first=3,dtype=bf16");
  assert_string_equal(info.infer, "vllm:tp=2,dp=2,dtype=bf16");
  assert_string_equal(info.model, "~/models/tiny");
  assert_int_equal(info.ranks, 16);
  assert_int_equal(info.nodes, 2);
  assert_int_equal(info.cap_bytes, 512 << 20);
  assert_true(info.offload_params && info.offload_grads && info.offload_optimizer);
  assert_non_null(treadle_switch_config_warnings(config, &count));
  assert_int_equal(count, 2);
  treadle_switch_config_destroy(config);
  assert_int_equal(treadle_switch_config_read("/nothing/at/all", NULL, 0, &config), TREADLE_SYSTEM);
  assert_null(config);
  treadle_switch_config_destroy(NULL);
}

static treadle_status use(const char *text) {
  treadle_train_config *config;
  treadle_status status = parse(text, NULL, 0, &config);
  treadle_train_config_destroy(config);
  return status;
}

static void each_allocation(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(use(WHOLE "data: {shuffle: false}\n" ACTOR "fsdp_config: {fsdp_size: 2}\n"));
  TEST_EACH_ALLOCATION(use(RLINF PLACES "{'actor,rollout': 0-3}\nactor: {model: {precision: '${.x}'}}\n"
                                        "actor.model.x: bf16\n"));
  TEST_EACH_ALLOCATION(use(MIND "actor_config: {num_layer_list: [1, 2], pipeline_model_parallel_size: 2, "
                                "bf16: false}\nmegatron_training: {bf16: true}\n"));
  TEST_EACH_ALLOCATION(use(WHOLE "data: {x: 1}\n") == TREADLE_REFUSED ? TREADLE_OK : TREADLE_NO_MEMORY);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layouts),          cmocka_unit_test(refused),
                                     cmocka_unit_test(refused_together), cmocka_unit_test(overrides),
                                     cmocka_unit_test(warnings),         cmocka_unit_test(other_keys),
                                     cmocka_unit_test(read_file),        cmocka_unit_test(each_allocation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
