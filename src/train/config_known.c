/* Names of other keys. What MindSpeed-RL 2.3 has in its two sections for Megatron, and does nothing here: mostly switches of its kernels,
 * and sizes of the model, which come from the model's own config.json. What may only say what treadle does anyway is in config_limits.c. */
#include "train/config.h"

#include <stdlib.h>
#include <string.h>

static const char *const ignored[] = {
    "accumulate_allreduce_grads_in_fp32",
    "add_qkv_bias",
    "ai_framework",
    "algorithm",
    "attention_bias",
    "attention_mask_type",
    "attention_softmax_in_fp32",
    "beta_fast",
    "beta_slow",
    "coc_fused_kernel",
    "coc_mode",
    "coc_parallel_num",
    "context_parallel_algo",
    "dataloader_type",
    "dataset_additional_keys",
    "ddp_bucket_size",
    "disable_bias_linear",
    "distributed_backend",
    "do_sample",
    "dpo_loss_type",
    "enable_high_availability",
    "eval_interval",
    "eval_iters",
    "ffn_hidden_size",
    "finetune",
    "first_k_dense_replace",
    "full_shuffle_instruction_dataset",
    "gemm_gradient_accumulation_fusion",
    "group_query_attention",
    "hidden_size",
    "high_freq_factor",
    "init_method_std",
    "initial_loss_scale",
    "is_instruction_dataset",
    "is_pairwise_dataset",
    "kv_channels",
    "kv_lora_rank",
    "load",
    "load_checkpoint_loosely",
    "log_interval",
    "log_throughput",
    "lora_alpha",
    "lora_ckpt_filter",
    "lora_fusion",
    "lora_r",
    "low_freq_factor",
    "make_vocab_size_divisible_by",
    "max_position_embeddings",
    "mm_model",
    "moe_alltoall_overlap_comm",
    "moe_aux_loss_coeff",
    "moe_ffn_hidden_size",
    "moe_grouped_gemm",
    "moe_intermediate_size",
    "moe_layer_freq",
    "moe_permutation_async_comm",
    "moe_router_enable_expert_bias",
    "moe_router_group_topk",
    "moe_router_load_balancing_type",
    "moe_router_num_groups",
    "moe_router_score_function",
    "moe_router_topk",
    "moe_router_topk_scaling_factor",
    "moe_token_dispatcher_type",
    "multi_head_latent_attention",
    "multi_latent_attention",
    "n_group",
    "n_shared_experts",
    "no_bias_dropout_fusion",
    "no_check_for_nan_in_loss_and_grad",
    "no_gradient_accumulation_fusion",
    "no_load_optim",
    "no_load_rng",
    "no_masked_softmax_fusion",
    "no_pad_to_seq_lengths",
    "no_save_optim",
    "no_save_rng",
    "no_shared_storage",
    "norm_epsilon",
    "norm_topk_prob",
    "normalization",
    "npu_deterministic",
    "num_attention_heads",
    "num_experts",
    "num_layers",
    "num_query_groups",
    "num_workers",
    "original_max_position_embeddings",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "pad_to_multiple_of",
    "padded_vocab_size",
    "position_embedding_type",
    "prompt_type",
    "prompt_type_path",
    "q_lora_rank",
    "qk_head_dim",
    "qk_layernorm",
    "qk_nope_head_dim",
    "qk_pos_emb_head_dim",
    "qk_rope_head_dim",
    "recompute_activation_function",
    "recompute_method",
    "recompute_num_layers",
    "ref_model",
    "refer_model_iter",
    "reset_attention_mask",
    "reset_position_ids",
    "reuse_fp32_param",
    "rope_scaling_beta_fast",
    "rope_scaling_beta_slow",
    "rope_scaling_factor",
    "rope_scaling_mscale",
    "rope_scaling_mscale_all_dim",
    "rope_scaling_original_max_position_embeddings",
    "rope_scaling_type",
    "rotary_base",
    "routed_scaling_factor",
    "seq_aux",
    "shape_order",
    "spec",
    "split",
    "stage",
    "swap_attention",
    "swap_optimizer",
    "swiglu",
    "tokenizer_not_use_fast",
    "tokenizer_padding_side",
    "tokenizer_type",
    "topk_group",
    "transformer_impl",
    "untie_embeddings_and_output_weights",
    "use_ascend_coc",
    "use_cp_send_recv_overlap",
    "use_flash_attn",
    "use_fused_moe_token_permute_and_unpermute",
    "use_fused_ring_attention_update",
    "use_fused_rmsnorm",
    "use_fused_rotary_pos_emb",
    "use_fused_swiglu",
    "use_kv_cache",
    "use_mc2",
    "use_mcore_models",
    "use_rotary_position_embeddings",
    "v_head_dim",
    "variable_seq_lengths",
    "vocab_extra_ids",
};
enum { IGNORED = sizeof ignored / sizeof *ignored };

/* MindSpeed-RL's and verl's in generate_config and rl_config, of reinforcement learning. */
static const char *const ignored_rl[] = {
    "actor_dynamic_max_batch_size",
    "actor_forward_micro_batch_size",
    "actor_image_embeds_dispatch_size",
    "actor_logprob_dispatch_size",
    "actor_max_packing_token_size",
    "actor_resource",
    "actor_rollout_dispatch_size",
    "actor_update_dispatch_size",
    "adv_dispatch_size",
    "advantage_whiten",
    "ascend_scheduler_config_enabled",
    "async_engine",
    "balance_batch",
    "blocking",
    "bucket_size",
    "cliprange_value",
    "colocate_actor_and_vit",
    "colocate_actor_ref",
    "critic_resource",
    "critic_update_dispatch_size",
    "critic_value_dispatch_size",
    "data_parallel_size",
    "data_strategy",
    "dataset_additional_keys",
    "detokenize",
    "distributed_executor_backend",
    "dynamic_max_batch_size",
    "dynamic_sampling_dispatch_size",
    "enable_expert_parallel",
    "enable_prefix_caching",
    "enable_sleep_mode",
    "enforce_eager",
    "eplb_token_collects",
    "eplb_token_save_path",
    "expert_map_path",
    "guarantee_order",
    "hccl_buffersize",
    "infer_data_parallel_size",
    "integrated_mode_config",
    "kl_dispatch_size",
    "kl_horizon_steps",
    "lam",
    "limit_mm_image_per_prompt",
    "limit_mm_video_per_prompt",
    "load_format",
    "log_max_throughput",
    "logprobs",
    "max_parallel_calls",
    "max_tool_calls",
    "max_tool_response_length",
    "max_total_response_length",
    "num_cpus_for_local_task",
    "num_cpus_for_placement_group",
    "num_samples_per_step",
    "num_scheduler_steps",
    "numeral_format",
    "offload_infer_param",
    "prefetch",
    "ref_dispatch_size",
    "ref_dynamic_max_batch_size",
    "ref_forward_micro_batch_size",
    "ref_max_packing_token_size",
    "reference_resource",
    "require_max_age_all_finished",
    "reuse_image_embeds",
    "reward_dispatch_size",
    "reward_resource",
    "runtime_env_path",
    "spawn",
    "swanlab_exp_name",
    "swanlab_mode",
    "swanlab_project",
    "swanlab_save_dir",
    "tokenizer_name_or_path",
    "tool_config_path",
    "tool_parser_format",
    "tool_response_truncate_side",
    "torchair_graph",
    "tp_split_expert",
    "transfer_queue_data_shard_num",
    "transfer_queue_data_shard_port_base",
    "trust_remote_code",
    "update_dynamic_max_batch_size",
    "use_dp_batch_balance",
    "use_integrated_worker",
    "use_remove_padding",
    "use_swanlab",
    "use_tensorboard",
    "use_tqdm",
    "use_wandb",
    "vit_forward_micro_batch_size",
    "vit_resource",
    "vllm_config",
    "wandb_exp_name",
    "wandb_project",
    "wandb_save_dir",
    "zmq_communication",
};
enum { IGNORED_RL = sizeof ignored_rl / sizeof *ignored_rl };

/* Of verl's sections, in which whatever is no key does nothing: keys that are no slip of the pen, though another key is near. */
static const char *const ignored_paths[] = {
    "algorithm.rollout_correction.rollout_rs_threshold", /* of rollout_rs, which is refused */
};

/* Sections of MindSpeed-RL, of verl (with Hydra's own) and of RLinf. */
static const char *const sections[] = {
    "defaults",
    "generate_config",
    "rl_config",
    "ref_config",
    "reward_config",
    "critic_config",
    "vit_config",
    "profiler_config",
    "msprobe_config",
    "model",

    "_target_",
    "actor_rollout_ref",
    "algorithm",
    "critic",
    "custom_reward_function",
    "data",
    "distillation",
    "global_profiler",
    "hydra",
    "ray_init",
    "ray_kwargs",
    "reward",
    "reward_manager",
    "reward_model",
    "sandbox_fusion",
    "skip",
    "trainer",
    "transfer_queue",

    "actor",
    "cluster",
    "env",
    "fsdp",
    "inference",
    "megatron",
    "rollout",
    "runner",
};
enum { SECTIONS = sizeof sections / sizeof *sections };

static int by_name(const void *name, const void *row) { return strcmp(name, *(const char *const *)row); }

/* In a section that is wholly known: what is no key of it must be one of others'. */
static treadle_train_name_type known_in_rl(const char *path) {
  const char *key = strrchr(path, '.');
  if (!key || (strncmp(path, "generate_config.", 16) != 0 && strncmp(path, "rl_config.", 10) != 0))
    return TREADLE_KNOWN_NOT;
  return bsearch(key + 1, ignored_rl, IGNORED_RL, sizeof *ignored_rl, by_name) ? TREADLE_KNOWN_IGNORED
                                                                               : TREADLE_KNOWN_NOT;
}

treadle_train_name_type treadle_train_known_key(const char *path, treadle_train_run run,
                                                const treadle_train_limit **limit_p) {
  const char *dot = strchr(path, '.'), *key = dot ? dot + 1 : path;
  bool training = strncmp(path, "megatron_training.", 18) == 0;
  *limit_p = NULL;
  if (strcmp(strrchr(path, '.') ? strrchr(path, '.') + 1 : path, "_target_") == 0)
    return TREADLE_KNOWN_IGNORED;
  for (size_t i = 0; run == TREADLE_RUN_RL && i < sizeof ignored_paths / sizeof *ignored_paths; i++)
    if (strcmp(path, ignored_paths[i]) == 0) return TREADLE_KNOWN_IGNORED;
  *limit_p = treadle_train_limit_find(path, run);
  if (*limit_p) return TREADLE_KNOWN_ONLY;
  if (run == TREADLE_RUN_RL && !training && strncmp(path, "actor_config.", 13) != 0)
    return known_in_rl(path);
  if (!training && strncmp(path, "actor_config.", 13) != 0) return TREADLE_KNOWN_NOT;
  if (training && strcmp(key, "model") == 0) return TREADLE_KNOWN_IGNORED;
  return bsearch(key, ignored, IGNORED, sizeof *ignored, by_name) ? TREADLE_KNOWN_IGNORED
                                                                  : TREADLE_KNOWN_NOT;
}

bool treadle_train_known_section(const char *name, treadle_train_run run) {
  if (run == TREADLE_RUN_RL && (strcmp(name, "generate_config") == 0 || strcmp(name, "rl_config") == 0))
    return false;
  for (int i = 0; i < SECTIONS; i++)
    if (strcmp(name, sections[i]) == 0) return true;
  return false;
}

const char *treadle_train_key_nearest(const char *name, treadle_train_run run) {
  enum { SHORT = 6 };
  const char *names[TREADLE_TRAIN_KEYS + TREADLE_TRAIN_LIMITS + IGNORED + 1];
  const size_t length = strlen(name);
  int count = 0;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++)
    if (treadle_train_key_is_of(&treadle_train_keys[i], run)) names[count++] = treadle_train_keys[i].key;
  for (int i = 0; i < TREADLE_TRAIN_LIMITS; i++)
    if (!strchr(treadle_train_limits[i].path, '.')) names[count++] = treadle_train_limits[i].path;
  for (int i = 0; i < IGNORED; i++) names[count++] = ignored[i];
  names[count] = NULL;
  for (int i = 0; i < count && length >= SHORT; i++) /* a name that was cut short */
    if (strncmp(names[i], name, length) == 0 && names[i][length] == '_') return names[i];
  return treadle_nearest_name(name, names);
}

const char *treadle_train_section_nearest(const char *name) {
  const char *names[SECTIONS + 3] = {"megatron_training", "actor_config"};
  memcpy(names + 2, sections, sizeof sections);
  names[SECTIONS + 2] = NULL;
  return treadle_nearest_name(name, names);
}
