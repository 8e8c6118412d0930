/* The table of keys. Defaults are those of MindSpeed-RL 2.3 (mindspeed_rl/config_cls/megatron_config.py) where it has one; where it has
 * none, `help` says where they come from if they are not treadle's own. */
#include "run/config.h"

#include "base/text.h"
#include "run/others.h"

#include <stdio.h>
#include <string.h>

#define TRAINING      "megatron_training"
#define ACTOR         "actor_config"
#define REPLAY        "actor_config.router_replay"
#define MINDSPEED     "MindSpeed-RL"
#define VERL          "verl"
#define OWN           "treadle"
#define RLINF         "RLinf"
#define VERLS_ACTOR   "actor_rollout_ref.actor."
#define VERLS_ROLLOUT "actor_rollout_ref.rollout."
#define RLINFS_MODEL  "model." /* of its section actor */
#define GENERATE      "generate_config"
#define SAMPLING      "generate_config.sampling_config"
#define RLS           "rl_config"
#define REF           "ref_config"
#define CRITICS       "critic_config"
#define VERLS_CRITIC  "critic."
#define REWARDS       "reward_config"
#define VERLS_REWARD  "reward_model."
#define MEGATRON      "megatron"
#define CONVERTOR     "megatron.ckpt_convertor"
#define RL            .rl = true, .alone = true
#define CRITIC        .rl = true, .alone = true, .critic = true
#define REWARD        .rl = true, .alone = true, .reward = true
#define REFERENCE     .rl = true, .alone = true, .reference = true
#define AT(member)    .at = offsetof(treadle_train_settings, member)

/* Limits that no run of today comes near: sums and products of values stay whole. */
#define STEPS  ((double)(INT64_C(1) << 40))
#define TOKENS ((double)(1 << 24))
#define ROWS   ((double)(1 << 24))
#define RANKS  ((double)(1 << 20))
#define SEEDS  ((double)(INT64_C(1) << 53))
#define BYTES  ((double)(INT64_C(1) << 50))

/* clang-format off */
const treadle_train_key treadle_train_keys[TREADLE_TRAIN_KEYS] = {
  {TRAINING, "tokenizer_name_or_path", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder or file of the tokenizer; without it, the model's folder", AT(training.tokenizer_name_or_path), .also = {"actor_rollout_ref.model.tokenizer_path"}},
  {TRAINING, "data_path", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "file with the training rows: one JSON object a line, or one JSON list", AT(training.data_path), .need = TREADLE_NEED_TO_RUN, .also = {"data.train_files"}},
  {TRAINING, "val_path", TREADLE_KEY_TEXT, NULL, "path", OWN, "file with the test rows, in the form of data_path", AT(training.val_path), .also = {"data.val_files"}},
  {TRAINING, "train_iters", TREADLE_KEY_INTEGER, NULL, "steps", MINDSPEED, "number of training steps", AT(training.train_iters), 1, STEPS, .need = TREADLE_NEED_TO_RUN, .also = {"trainer.total_training_steps"}},
  {TRAINING, "global_batch_size", TREADLE_KEY_INTEGER, "64", "rows", MINDSPEED, "number of rows in a step, over all ranks", AT(training.global_batch_size), 1, ROWS, .also = {"data.train_batch_size", "data.rollout_batch_size"}},
  {TRAINING, "seq_length", TREADLE_KEY_INTEGER, NULL, "tokens", MINDSPEED, "maximum number of tokens in a row; without it, 4096 or the model's limit, whichever is smaller", AT(training.seq_length), 2, TOKENS},
  {TRAINING, "save_interval", TREADLE_KEY_INTEGER, "100", "steps", MINDSPEED, "steps from one checkpoint to the next; below 1: one checkpoint at the end", AT(training.save_interval), -1, STEPS, .also = {"trainer.save_freq"}},
  {TRAINING, "test_interval", TREADLE_KEY_INTEGER, "0", "steps", OWN, "steps from one test with val_path to the next; below 1: none on the way (treadle train also tests before the first step and after the last)", AT(training.test_interval), -1, STEPS, .also = {"trainer.test_freq"}},
  {TRAINING, "seed", TREADLE_KEY_INTEGER, "1234", "", MINDSPEED, "seed for random weights and for the order of the rows", AT(training.seed), 0, SEEDS, .also = {"data.seed"}},
  {TRAINING, "no_shuffle", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "true: each epoch takes the rows in the order of the file", AT(training.no_shuffle), .also = {"data.shuffle"}},
  {TRAINING, "bf16", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "true: weights and products are bf16; false: fp32", AT(training.bf16)},
  {TRAINING, "sequence_parallel", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "tensor parallel ranks split the activations between products along the sequence", AT(training.sequence_parallel), .also = {VERLS_ACTOR "megatron.sequence_parallel", RLINFS_MODEL "sequence_parallel"}},
  {TRAINING, "use_distributed_optimizer", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "data parallel ranks split the optimizer's state, as Megatron does", AT(training.use_distributed_optimizer), .also = {VERLS_ACTOR "megatron.use_distributed_optimizer"}},
  {TRAINING, "recompute_granularity", TREADLE_KEY_CHOICE, "none", "", MINDSPEED, "none: keep activations for backward; full: compute each layer again in backward", AT(training.recompute_granularity), .words = {"none", "full"}, .also = {RLINFS_MODEL "recompute_granularity"}},
  {TRAINING, "moe_router_load_balancing_type", TREADLE_KEY_CHOICE, "none", "", MINDSPEED, "aux_loss: routers have a loss that keeps experts evenly loaded, by moe_aux_loss_coeff; seq_aux_loss: of each row by itself", AT(training.moe_router_load_balancing_type), .words = {"none", "aux_loss", "seq_aux_loss"}, .also = {VERLS_ACTOR "megatron.override_transformer_config.moe_router_load_balancing_type", RLINFS_MODEL "moe_router_load_balancing_type"}},
  {TRAINING, "moe_aux_loss_coeff", TREADLE_KEY_REAL, "0", "", MINDSPEED, "coefficient of that loss", AT(training.moe_aux_loss_coeff), 0, 1000, .also = {VERLS_ACTOR "megatron.override_transformer_config.moe_aux_loss_coeff", RLINFS_MODEL "moe_aux_loss_coeff"}},
  {TRAINING, "moe_z_loss_coeff", TREADLE_KEY_REAL, "0", "", "Megatron", "coefficient of the z loss of routers: the mean squared log-sum-exp of their logits", AT(training.moe_z_loss_coeff), 0, 1000, .also = {VERLS_ACTOR "megatron.override_transformer_config.moe_z_loss_coeff"}},
  {TRAINING, "moe_router_enable_expert_bias", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "true: after each step, the biases of routers with sigmoid scores move towards an even load", AT(training.moe_router_enable_expert_bias), .also = {VERLS_ACTOR "megatron.override_transformer_config.moe_router_enable_expert_bias"}},
  {TRAINING, "moe_router_bias_update_rate", TREADLE_KEY_REAL, "0.001", "", "Megatron", "by how much", AT(training.moe_router_bias_update_rate), 0, 1000, .also = {VERLS_ACTOR "megatron.override_transformer_config.moe_router_bias_update_rate", RLINFS_MODEL "moe_router_bias_update_rate"}},
  {TRAINING, "freeze_moe_router", TREADLE_KEY_BOOL, "false", "", VERL, "true: routers keep their weights", AT(training.freeze_moe_router), .also = {VERLS_ACTOR "freeze_moe_router", VERLS_ACTOR "megatron.freeze_moe_router"}},
  {TRAINING, "max_ckpt_to_keep", TREADLE_KEY_INTEGER, "2", "folders", VERL, "number of checkpoints to keep, the newest ones; 0 or null: all", AT(training.max_ckpt_to_keep), 0, ROWS, .also = {"trainer.max_actor_ckpt_to_keep"}, .nothing = "0"},

  {ACTOR, "model", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of a model with its weights, or a config.json, which starts with random weights", AT(actor.model), .need = TREADLE_NEED_TO_PLAN, .alone = true, .also = {"actor_rollout_ref.model.path", "rollout.model_dir"}},
  {ACTOR, "weights", TREADLE_KEY_CHOICE, "auto", "", OWN, "where the model's weights come from. files: its files; random: made up; auto: files for a folder, random for a config.json", AT(actor.weights), .words = {"auto", "files", "random"}, .alone = true},
  {ACTOR, "save", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of the run, for metrics, checkpoints and this configuration", AT(actor.save), .need = TREADLE_NEED_TO_RUN, .also = {"trainer.default_local_dir"}},
  {ACTOR, "strategy", TREADLE_KEY_CHOICE, "megatron", "", VERL, "how ranks split the model, its gradients and its optimizer", AT(actor.strategy), .words = {"megatron", "fsdp2"}, .also = {VERLS_ACTOR "strategy"}},
  {ACTOR, "micro_batch_size", TREADLE_KEY_INTEGER, "1", "rows", MINDSPEED, "number of rows that go through the layers together; not with max_tokens_per_micro", AT(actor.micro_batch_size), 1, ROWS, .also = {VERLS_ACTOR "ppo_micro_batch_size_per_gpu"}},
  {ACTOR, "max_tokens_per_micro", TREADLE_KEY_INTEGER, NULL, "tokens", OWN, "maximum number of tokens that go through the layers together, in place of micro_batch_size", AT(actor.max_tokens_per_micro), 2, TOKENS},
  {ACTOR, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of tensor parallel ranks (tp)", AT(actor.tensor_model_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.tensor_model_parallel_size", VERLS_ACTOR "megatron_config.tensor_parallel_size", RLINFS_MODEL "tensor_model_parallel_size"}},
  {ACTOR, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of pipeline stages (pp)", AT(actor.pipeline_model_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.pipeline_model_parallel_size", VERLS_ACTOR "megatron_config.pipeline_parallel_size", RLINFS_MODEL "pipeline_model_parallel_size"}},
  {ACTOR, "expert_model_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of expert parallel ranks (ep), among which the experts of a layer are spread", AT(actor.expert_model_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.expert_model_parallel_size", VERLS_ACTOR "megatron_config.expert_parallel_size", RLINFS_MODEL "expert_model_parallel_size"}},
  {ACTOR, "expert_tensor_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of ranks that split an expert (etp); without it, as many as split the other matrices (tp)", AT(actor.expert_tensor_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.expert_tensor_parallel_size", RLINFS_MODEL "expert_tensor_parallel_size"}},
  {ACTOR, "moe_tp_extend_ep", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "true: expert parallel ranks are counted in whole tensor parallel groups, ep times tp of them, and no expert is split", AT(actor.moe_tp_extend_ep)},
  {ACTOR, "num_layers_per_virtual_pipeline_stage", TREADLE_KEY_INTEGER, NULL, "layers", MINDSPEED, "number of layers in a chunk of an interleaved pipeline (vpp); needs pp above 1", AT(actor.num_layers_per_virtual_pipeline_stage), 1, RANKS},
  {ACTOR, "context_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of context parallel ranks (cp), which divide the tokens of their rows; attention goes by an all-to-all of heads", AT(actor.context_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.context_parallel_size", RLINFS_MODEL "context_parallel_size"}},
  {ACTOR, "ulysses_sequence_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", VERL, "number of data parallel ranks that take the same rows and divide their tokens (Ulysses); not with context_parallel_size", AT(actor.ulysses_sequence_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "ulysses_sequence_parallel_size"}},
  {ACTOR, "fsdp_size", TREADLE_KEY_INTEGER, "-1", "ranks", VERL, "number of ranks that share one copy of the model (fsdp2); below 1: all ranks", AT(actor.fsdp_size), -1, RANKS, .also = {VERLS_ACTOR "fsdp_config.fsdp_size"}},
  {ACTOR, "offload_policy", TREADLE_KEY_BOOL, "false", "", VERL, "shards are in host memory while no layer uses them (fsdp2)", AT(actor.offload_policy), .also = {VERLS_ACTOR "fsdp_config.offload_policy"}},
  {ACTOR, "exact", TREADLE_KEY_BOOL, "true", "", OWN, "results have the same bits in every layout that has the same micro batches", AT(actor.exact)},
  {ACTOR, "lora_rank", TREADLE_KEY_INTEGER, "0", "", VERL, "LoRA: adapters of this rank train, and the weights do not; 0: the weights train", AT(actor.lora_rank), 0, 1024, .also = {"actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank", "megatron_training.lora_r", "actor_config.lora_r"}},
  {ACTOR, "lora_alpha", TREADLE_KEY_REAL, "16", "", VERL, "LoRA: the product of an adapter is multiplied by lora_alpha / lora_rank", AT(actor.lora_alpha), 0, 1e9, .also = {"actor_rollout_ref.model.lora_alpha"}},
  {ACTOR, "target_modules", TREADLE_KEY_LIST, "all-linear", "", VERL, "LoRA: names of the matrices that have adapters; all-linear: all of layers, but routers and single experts; lm_head: the head", AT(actor.target_modules), .also = {"actor_rollout_ref.model.target_modules", "megatron_training.lora_target_modules", "actor_config.lora_target_modules"}},
  {ACTOR, "lora_adapter_path", TREADLE_KEY_TEXT, NULL, "path", VERL, "LoRA: folder with the adapters to begin with, as peft writes it; without it, A is random and B zero", AT(actor.lora_adapter_path), .also = {"actor_rollout_ref.model.lora_adapter_path", "actor_rollout_ref.model.lora.adapter_path"}},
  {ACTOR, "lora_save_merged", TREADLE_KEY_BOOL, "false", "", OWN, "LoRA: checkpoints have the weights with the adapters in them, too", AT(actor.lora_save_merged)},
  {ACTOR, "lr", TREADLE_KEY_REAL, "1e-6", "", MINDSPEED, "learning rate after the warm-up (default: verl's)", AT(actor.lr), 0, 1000, .also = {VERLS_ACTOR "optim.lr"}},
  {ACTOR, "min_lr", TREADLE_KEY_REAL, "0", "", MINDSPEED, "learning rate at the end of the decay", AT(actor.min_lr), 0, 1000, .also = {VERLS_ACTOR "optim.min_lr"}},
  {ACTOR, "lr_decay_style", TREADLE_KEY_CHOICE, "linear", "", MINDSPEED, "how the learning rate falls from lr to min_lr until the last step", AT(actor.lr_decay_style), .words = {"constant", "linear", "cosine"}, .also = {VERLS_ACTOR "optim.lr_scheduler_type", VERLS_ACTOR "optim.lr_decay_style", VERLS_ACTOR "optim.warmup_style"}},
  {ACTOR, "lr_warmup_fraction", TREADLE_KEY_REAL, "0", "of the steps", MINDSPEED, "share of the steps in which the learning rate rises from 0 to lr", AT(actor.lr_warmup_fraction), 0, 1, .also = {VERLS_ACTOR "optim.lr_warmup_steps_ratio"}},
  {ACTOR, "weight_decay", TREADLE_KEY_REAL, "0.01", "", MINDSPEED, "AdamW's weight decay; tensors with one dimension have none", AT(actor.weight_decay), 0, 1000, .also = {VERLS_ACTOR "optim.weight_decay"}},
  {ACTOR, "adam_beta1", TREADLE_KEY_REAL, "0.9", "", MINDSPEED, "AdamW's beta1", AT(actor.adam_beta1), 0, 1, .below = true},
  {ACTOR, "adam_beta2", TREADLE_KEY_REAL, "0.999", "", MINDSPEED, "AdamW's beta2", AT(actor.adam_beta2), 0, 1, .below = true},
  {ACTOR, "adam_eps", TREADLE_KEY_REAL, "1e-8", "", MINDSPEED, "AdamW's epsilon", AT(actor.adam_eps), 1e-30, 1},
  {ACTOR, "clip_grad", TREADLE_KEY_REAL, "1", "", MINDSPEED, "scale the gradients down to this norm if theirs is larger; 0: never", AT(actor.clip_grad), 0, 1e30, .also = {VERLS_ACTOR "grad_clip", VERLS_ACTOR "optim.clip_grad"}},
  {ACTOR, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "training layout as text (docs/layouts.md), in place of the sizes above", AT(actor.layout)},
  {ACTOR, "adam_betas", TREADLE_KEY_LIST, NULL, "", VERL, "adam_beta1 and adam_beta2, as one list", AT(actor.adam_betas), RL, .also = {VERLS_ACTOR "optim.betas"}},
  {ACTOR, "load", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of a Megatron checkpoint with the first weights; if it has none, the run says so and takes the model's weights", AT(actor.load), RL},

  {REPLAY, "mode", TREADLE_KEY_CHOICE, "disabled", "", VERL, "of models with experts. R3: the generator records which experts each token chose; without actor_config.exact the trainer sends it there, with exact the check compares. R2, without exact: updates send it where the pass of old log-probabilities did", AT(actor.router_replay), RL, .words = {"disabled", "R2", "R3"}, .also = {VERLS_ACTOR "router_replay.mode", VERLS_ACTOR "megatron.router_replay.mode"}},

  {GENERATE, "infer_tensor_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of tensor parallel ranks in generation", AT(generate.infer_tensor_parallel_size), 1, RANKS, RL, .also = {VERLS_ROLLOUT "tensor_model_parallel_size"}},
  {GENERATE, "infer_pipeline_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of pipeline stages in generation", AT(generate.infer_pipeline_parallel_size), 1, RANKS, RL, .also = {VERLS_ROLLOUT "pipeline_model_parallel_size"}},
  {GENERATE, "infer_expert_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "number of expert parallel ranks in generation: 1, or a multiple of infer_tensor_parallel_size", AT(generate.infer_expert_parallel_size), 1, RANKS, RL, .also = {VERLS_ROLLOUT "expert_parallel_size"}},
  {GENERATE, "offload_train_param", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "the training weights leave the device during generation", AT(generate.offload_train_param), RL, .also = {VERLS_ACTOR "fsdp_config.param_offload", VERLS_ACTOR "megatron.param_offload"}},
  {GENERATE, "offload_train_grad", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "the gradients leave the device during generation", AT(generate.offload_train_grad), RL, .also = {VERLS_ACTOR "megatron.grad_offload"}},
  {GENERATE, "offload_train_optimizer", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "the optimizer's state leaves the device during generation", AT(generate.offload_train_optimizer), RL, .also = {VERLS_ACTOR "fsdp_config.optimizer_offload", VERLS_ACTOR "megatron.optimizer_offload"}},
  {GENERATE, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "generation layout as text (docs/layouts.md), in place of the sizes above", AT(generate.layout), RL},
  {GENERATE, "device_memory", TREADLE_KEY_SIZE, "0", "bytes", OWN, "device memory of a rank; 0: as much as the run needs", AT(generate.device_memory), 0, BYTES, RL},
  {GENERATE, "gpu_memory_utilization", TREADLE_KEY_REAL, "0.9", "share", MINDSPEED, "share of device_memory that the run may use", AT(generate.gpu_memory_utilization), 0.001, 1, RL, .also = {VERLS_ROLLOUT "gpu_memory_utilization"}},
  {GENERATE, "kv_memory", TREADLE_KEY_SIZE, "16MiB", "bytes", OWN, "minimum size of the KV cache on a rank; with device_memory it gets all the rest", AT(generate.kv_memory), 1, BYTES, RL},
  {GENERATE, "block_size", TREADLE_KEY_INTEGER, "16", "tokens", "vLLM", "number of tokens in a block of the KV cache", AT(generate.block_size), 1, 4096, RL},
  {GENERATE, "max_num_seqs", TREADLE_KEY_INTEGER, "64", "sequences", MINDSPEED, "maximum number of sequences generated together", AT(generate.max_num_seqs), 1, 65536, RL, .also = {VERLS_ROLLOUT "max_num_seqs"}},
  {GENERATE, "max_model_len", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "maximum number of tokens in a sequence; 0: that of prompt and response together", AT(generate.max_model_len), 0, TOKENS, RL, .also = {VERLS_ROLLOUT "max_model_len"}},
  {GENERATE, "max_num_batched_tokens", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "maximum number of prompt tokens computed in one step; 0: 512", AT(generate.max_num_batched_tokens), 0, TOKENS, RL, .also = {VERLS_ROLLOUT "max_num_batched_tokens"}},
  {SAMPLING, "max_tokens", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "maximum number of tokens in a response; 0: what the longest prompt leaves of seq_length", AT(sampling.max_tokens), 0, TOKENS, RL, .also = {VERLS_ROLLOUT "response_length", "data.max_response_length"}},
  {SAMPLING, "temperature", TREADLE_KEY_REAL, "1", "", MINDSPEED, "logits are divided by this number before drawing, and in training, too", AT(sampling.temperature), 0, 1000, RL, .also = {VERLS_ROLLOUT "temperature"}},
  {SAMPLING, "top_p", TREADLE_KEY_REAL, "1", "", MINDSPEED, "draw from the fewest most probable tokens whose probabilities add up to this number or more", AT(sampling.top_p), 0.000001, 1, RL, .also = {VERLS_ROLLOUT "top_p"}},
  {SAMPLING, "top_k", TREADLE_KEY_INTEGER, "-1", "tokens", MINDSPEED, "draw from this number of most probable tokens; below 1: from all", AT(sampling.top_k), -1, TOKENS, RL, .also = {VERLS_ROLLOUT "top_k"}},
  {SAMPLING, "min_p", TREADLE_KEY_REAL, "0", "", MINDSPEED, "draw from tokens with at least this share of the largest probability", AT(sampling.min_p), 0, 1, RL},
  {SAMPLING, "seed", TREADLE_KEY_INTEGER, NULL, "", MINDSPEED, "seed for the samples; without it, megatron_training.seed", AT(sampling.seed), 0, SEEDS, RL, .also = {VERLS_ROLLOUT "seed"}},
  {SAMPLING, "ignore_eos", TREADLE_KEY_BOOL, "false", "", "vLLM", "true: every response has max_tokens tokens", AT(sampling.ignore_eos), RL, .also = {VERLS_ROLLOUT "ignore_eos"}},

  {RLS, "n_samples_per_prompt", TREADLE_KEY_INTEGER, "1", "samples", MINDSPEED, "number of samples for each prompt", AT(rl.batches.n_samples_per_prompt), 1, ROWS, RL, .also = {VERLS_ROLLOUT "n", "algorithm.group_size"}},
  {RLS, "mini_batch_size", TREADLE_KEY_INTEGER, "0", "prompts", MINDSPEED, "number of prompts in one optimizer step; 0, or more than a step has: all prompts of the step", AT(rl.batches.mini_batch_size), 0, ROWS, RL, .also = {VERLS_ACTOR "ppo_mini_batch_size"}},
  {RLS, "max_prompt_length", TREADLE_KEY_INTEGER, "0", "tokens", VERL, "maximum number of tokens in a prompt; 0: what the response leaves of seq_length", AT(rl.lengths.max_prompt_length), 0, TOKENS, RL, .also = {"data.max_prompt_length", VERLS_ROLLOUT "prompt_length"}},
  {RLS, "epochs", TREADLE_KEY_INTEGER, "1", "", MINDSPEED, "number of times that each sample is trained on", AT(rl.batches.epochs), 1, ROWS, RL, .also = {VERLS_ACTOR "ppo_epochs"}},
  {RLS, "shuffle_mini_batch", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "each epoch puts the samples into mini batches in another order", AT(rl.batches.shuffle_mini_batch), RL, .also = {VERLS_ACTOR "shuffle"}},
  {RLS, "balance_batch", TREADLE_KEY_BOOL, "false", "", VERL, "put the samples of a mini batch in an order in which data parallel ranks have about equal work", AT(rl.batches.balance_batch), RL, .also = {"trainer.balance_batch"}},
  {RLS, "adv_estimator", TREADLE_KEY_CHOICE, "group_norm", "", MINDSPEED, "how rewards become advantages", AT(rl.advantage.estimator), RL, .words = {"group_norm", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae"}, .also = {"algorithm.adv_estimator"}},
  {RLS, "norm_adv_by_std", TREADLE_KEY_BOOL, "true", "", OWN, "with group_norm: divide advantages by the standard deviation of the group", AT(rl.advantage.norm_by_std), RL, .also = {"algorithm.norm_adv_by_std_in_grpo"}},
  {RLS, "gamma", TREADLE_KEY_REAL, "1", "", MINDSPEED, "with reinforce_plus_plus and gae: discount factor of rewards", AT(rl.advantage.gamma), 0, 1, RL, .also = {"algorithm.gamma"}},
  {RLS, "clip_ratio", TREADLE_KEY_REAL, "0.2", "", MINDSPEED, "the ratio of probabilities is clipped to the range from 1 - clip_ratio to 1 + clip_ratio", AT(rl.loss.clip_ratio), 0, 1000, RL, .also = {VERLS_ACTOR "clip_ratio"}},
  {RLS, "clip_higher_enable", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "use clip_ratio_low and clip_ratio_high instead of clip_ratio; verl's and RLinf's names of these two switch it on", AT(rl.loss.clip_higher_enable), RL},
  {RLS, "clip_ratio_low", TREADLE_KEY_REAL, NULL, "", VERL, "with clip_higher_enable: the ratio is at least 1 minus this number; without it, clip_ratio", AT(rl.loss.clip_ratio_low), 0, 1, RL, .also = {VERLS_ACTOR "clip_ratio_low", RLS ".clip_higher_low"}},
  {RLS, "clip_ratio_high", TREADLE_KEY_REAL, NULL, "", VERL, "with clip_higher_enable: the ratio is at most 1 plus this number; without it, clip_ratio", AT(rl.loss.clip_ratio_high), 0, 1000, RL, .also = {VERLS_ACTOR "clip_ratio_high", RLS ".clip_higher_high"}},
  {RLS, "clip_ratio_c", TREADLE_KEY_REAL, "3", "", VERL, "if the advantage is negative, the loss is at most clip_ratio_c times its absolute value", AT(rl.loss.clip_ratio_c), 1, 1e30, RL, .also = {VERLS_ACTOR "clip_ratio_c"}},
  {RLS, "loss_agg_mode", TREADLE_KEY_CHOICE, "token-mean", "", VERL, "how the losses of tokens are added up over a mini batch", AT(rl.loss.agg_mode), RL, .words = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}, .also = {VERLS_ACTOR "loss_agg_mode"}},
  {RLS, "token_level_loss", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "false: sets loss_agg_mode to seq-mean-token-mean", AT(rl.loss.token_level), RL},
  {RLS, "entropy_coeff", TREADLE_KEY_REAL, "0", "", MINDSPEED, "the entropy times this number is subtracted from the loss", AT(rl.loss.entropy_coeff), -1000, 1000, RL, .also = {VERLS_ACTOR "entropy_coeff"}},
  {RLS, "use_kl_loss", TREADLE_KEY_BOOL, "false", "", VERL, "add a KL to the reference to the loss", AT(rl.kl.in_loss), RL, .also = {VERLS_ACTOR "use_kl_loss"}},
  {RLS, "use_kl_in_reward", TREADLE_KEY_BOOL, "false", "", VERL, "subtract a KL to the reference from the rewards of tokens", AT(rl.kl.in_reward), RL, .also = {"algorithm.use_kl_in_reward"}},
  {RLS, "kl_penalty", TREADLE_KEY_CHOICE, "low_var_kl", "", MINDSPEED, "the formula of the KL; with a + after its name, the gradient is that of k2", AT(rl.kl.penalty), RL, .words = {"kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"}, .also = {VERLS_ACTOR "kl_loss_type", "algorithm.kl_penalty"}},
  {RLS, "init_kl_coef", TREADLE_KEY_REAL, "0.01", "", MINDSPEED, "coefficient of the KL at the first step", AT(rl.kl.init_coef), 0, 1000, RL, .also = {VERLS_ACTOR "kl_loss_coef", "algorithm.kl_ctrl.kl_coef"}},
  {RLS, "kl_ctrl_type", TREADLE_KEY_CHOICE, "fixed", "", MINDSPEED, "how the coefficient of the KL changes from step to step", AT(rl.kl.ctrl_type), RL, .words = {"fixed", "adaptive"}, .also = {"algorithm.kl_ctrl.type"}},
  {RLS, "kl_target", TREADLE_KEY_REAL, "100", "", MINDSPEED, "with kl_ctrl_type adaptive: the KL to aim at", AT(rl.kl.target), 1e-30, 1e30, RL, .also = {"algorithm.kl_ctrl.target_kl", RLS ".kl_ctrl_target"}},
  {RLS, "kl_horizon", TREADLE_KEY_REAL, "1000", "samples", MINDSPEED, "with kl_ctrl_type adaptive: number of samples after which the KL should reach kl_target", AT(rl.kl.horizon), 1, 1e30, RL, .also = {"algorithm.kl_ctrl.horizon"}},
  {RLS, "use_dynamic_bsz", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "fill micro batches up to max_tokens_per_micro tokens, which must be given", AT(rl.batches.use_dynamic_bsz), RL, .also = {VERLS_ACTOR "use_dynamic_bsz"}},
  {RLS, "max_packing_token_size", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "with use_dynamic_bsz: maximum number of tokens in a micro batch, if max_tokens_per_micro is not given", AT(rl.batches.max_packing_token_size), 0, TOKENS, RL, .also = {VERLS_ACTOR "ppo_max_token_len_per_gpu", RLS ".update_max_packing_token_size"}},
  {RLS, "rollout_max_tokens", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "with DAPO: maximum length of a response; 0: max_tokens", AT(rl.lengths.rollout_max_tokens), 0, TOKENS, RL, .also = {"reward_model.reward_kwargs.max_resp_len"}},
  {RLS, "overlong_buffer", TREADLE_KEY_INTEGER, "0", "tokens", MINDSPEED, "with DAPO: number of tokens over which the penalty for length rises to its maximum", AT(rl.lengths.overlong_buffer), 0, TOKENS, RL, .also = {"reward_model.overlong_buffer.len", "reward_model.reward_kwargs.overlong_buffer_cfg.len"}},
  {RLS, "overlong_buffer_enable", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "with DAPO: penalise long responses", AT(rl.lengths.overlong_buffer_enable), RL, .also = {"reward_model.overlong_buffer.enable", "reward_model.reward_kwargs.overlong_buffer_cfg.enable"}},
  {RLS, "overlong_buffer_penalty_factor", TREADLE_KEY_REAL, "1", "", MINDSPEED, "with DAPO: the maximum penalty for length", AT(rl.lengths.overlong_buffer_penalty_factor), 0, 1000, RL, .also = {"reward_model.overlong_buffer.penalty_factor", "reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor"}},
  {RLS, "filter_groups_enable", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "with DAPO: leave out groups whose samples all have one score, and draw other groups", AT(rl.filter_groups.enable), RL, .also = {"algorithm.filter_groups.enable"}},
  {RLS, "filter_groups_metric", TREADLE_KEY_TEXT, NULL, "", MINDSPEED, "with DAPO: the metric by which groups are left out; only the score is possible", AT(rl.filter_groups.metric), RL, .also = {"algorithm.filter_groups.metric"}},
  {RLS, "filter_groups_max_batches", TREADLE_KEY_INTEGER, "1", "batches", MINDSPEED, "maximum number of batches drawn for a step; below 1: no maximum, but the run ends if every prompt was tried without success", AT(rl.filter_groups.max_batches), -1, ROWS, RL, .also = {"algorithm.filter_groups.max_num_gen_batches"}},
  {RLS, "filter_groups_train_batch_size", TREADLE_KEY_INTEGER, "0", "prompts", MINDSPEED, "number of groups in a step, chosen from drawn batches of global_batch_size prompts; 0: global_batch_size", AT(rl.filter_groups.train_batch_size), 0, ROWS, RL},
  {RLS, "gen_batch_size", TREADLE_KEY_INTEGER, "0", "prompts", VERL, "with filter_groups_enable: number of prompts drawn together; 0: global_batch_size", AT(rl.filter_groups.gen_batch_size), 0, ROWS, RL, .also = {"data.gen_batch_size"}},
  {RLS, "verifier_function", TREADLE_KEY_LIST, NULL, "", MINDSPEED, "the rewards; a score is their weighted sum (docs/rewards.md)", AT(rl.verifier.function), .need = TREADLE_NEED_TO_RUN, RL},
  {RLS, "verifier_weight", TREADLE_KEY_LIST, NULL, "", MINDSPEED, "weight of each reward; without it, 1 for each", AT(rl.verifier.weight), RL},
  {RLS, "verifier_command", TREADLE_KEY_TEXT, NULL, "", OWN, "the program that the reward command runs", AT(rl.verifier.command), RL},
  {RLS, "verifier_timeout", TREADLE_KEY_REAL, "30", "seconds", MINDSPEED, "if the reward command does not answer for this time, the run ends", AT(rl.verifier.timeout), 0.001, 86400, RL},
  {RLS, "verifier_parallel", TREADLE_KEY_INTEGER, "1", "processes", MINDSPEED, "number of processes of the reward command", AT(rl.verifier.parallel), 1, 1024, RL},
  {RLS, "val_n", TREADLE_KEY_INTEGER, "1", "samples", VERL, "number of samples for each prompt of a test", AT(rl.validation.n), 1, ROWS, RL, .also = {VERLS_ROLLOUT "val_kwargs.n"}},
  {RLS, "val_temperature", TREADLE_KEY_REAL, NULL, "", VERL, "temperature of a test; 0: as with val_greedy; without it, sampling_config.temperature", AT(rl.validation.temperature), 0, 1000, RL, .also = {VERLS_ROLLOUT "val_kwargs.temperature"}},
  {RLS, "val_greedy", TREADLE_KEY_BOOL, "false", "", OWN, "a test takes the most probable token, whatever val_temperature says", AT(rl.validation.greedy), RL, .also = {VERLS_ROLLOUT "val_kwargs.do_sample"}},
  {RLS, "val_top_p", TREADLE_KEY_REAL, NULL, "", VERL, "top_p of a test that is not greedy; without it, sampling_config.top_p", AT(rl.validation.top_p), 0.000001, 1, RL, .also = {VERLS_ROLLOUT "val_kwargs.top_p"}},
  {RLS, "val_top_k", TREADLE_KEY_INTEGER, NULL, "tokens", VERL, "top_k of a test that is not greedy; without it, sampling_config.top_k", AT(rl.validation.top_k), -1, TOKENS, RL, .also = {VERLS_ROLLOUT "val_kwargs.top_k"}},
  {RLS, "val_before_train", TREADLE_KEY_BOOL, "true", "", VERL, "test before the first step, if val_path is given", AT(rl.validation.before_train), RL, .also = {"trainer.val_before_train"}},
  {RLS, "sampling_support", TREADLE_KEY_CHOICE, "kept", "", OWN, "if top_p, top_k or min_p cut: log-probabilities among the tokens that are left (kept), or in the whole vocabulary (full)", AT(rl.logprobs.sampling_support), RL, .words = {"kept", "full"}},
  {RLS, "sampling_support_most", TREADLE_KEY_INTEGER, "1024", "tokens", OWN, "maximum number of tokens that a cut without top_k may leave", AT(rl.logprobs.sampling_support_most), 1, TOKENS, RL},
  {RLS, "exact_check", TREADLE_KEY_INTEGER, "1", "steps", OWN, "steps from one check to the next, which computes the log-probabilities of the samples again; 0: no checks", AT(rl.logprobs.exact_check), 0, STEPS, RL},
  {RLS, "rollout_is", TREADLE_KEY_CHOICE, "token", "", VERL, "without actor_config.exact: token multiplies the loss of each token by its importance, e^(old - generated)", AT(rl.logprobs.rollout_is), RL, .words = {"none", "token"}, .also = {"algorithm.rollout_correction.rollout_is"}},
  {RLS, "rollout_is_threshold", TREADLE_KEY_REAL, "2", "", VERL, "maximum importance of a token, with rollout_is", AT(rl.logprobs.rollout_is_threshold), 1e-30, 1e30, RL, .also = {"algorithm.rollout_correction.rollout_is_threshold"}},
  {RLS, "log_val_generations", TREADLE_KEY_INTEGER, "0", "samples", VERL, "number of samples of a test that are written", AT(rl.validation.log_generations), 0, ROWS, RL, .also = {"trainer.log_val_generations"}},
  {RLS, "dump_rollouts", TREADLE_KEY_TEXT, NULL, "path", OWN, "folder for all samples of all steps", AT(rl.dump_rollouts), RL, .also = {"trainer.rollout_data_dir"}},
  {RLS, "prompt_key", TREADLE_KEY_TEXT, "prompt", "", VERL, "key of the prompt in the data", AT(rl.data.prompt_key), RL, .also = {"data.prompt_key"}},
  {RLS, "answer_key", TREADLE_KEY_TEXT, "answer", "", OWN, "key of the correct answer in the data", AT(rl.data.answer_key), RL},
  {RLS, "data_source_key", TREADLE_KEY_TEXT, "data_source", "", VERL, "key in the data that says where a row comes from", AT(rl.data.data_source_key), RL, .also = {"data.reward_fn_key"}},
  {RLS, "too_long", TREADLE_KEY_CHOICE, "error", "", OWN, "what to do with a prompt that is too long", AT(rl.data.too_long), RL, .words = {"error", "leave_out"}, .also = {"data.filter_overlong_prompts"}},
  {RLS, "no_answer", TREADLE_KEY_CHOICE, "error", "", OWN, "what to do with a prompt without an answer, if a reward needs one", AT(rl.data.no_answer), RL, .words = {"error", "leave_out"}},
  {RLS, "resume_mode", TREADLE_KEY_CHOICE, "disable", "", VERL, "where a run without --resume starts: at step 0, at the newest checkpoint, or at resume_from_path", AT(rl.resume_mode), RL, .words = {"disable", "auto", "resume_path"}, .also = {"trainer.resume_mode"}},
  {RLS, "resume_from_path", TREADLE_KEY_TEXT, NULL, "path", VERL, "with resume_mode resume_path: the checkpoint, a folder global_step_K", AT(rl.resume_from_path), RL, .also = {"trainer.resume_from_path"}},
  {RLS, "normalize_advantages", TREADLE_KEY_BOOL, "false", "", RLINF, "after adv_estimator, shift and scale the advantages of all tokens of a step to mean 0 and deviation 1", AT(rl.advantage.normalize), RL, .also = {"algorithm.normalize_advantages"}},
  {RLS, "early_stop_imp_ratio", TREADLE_KEY_REAL, "0", "", RLINF, "if the mean ratio of a sample is above this number, the run ends, while RLinf drops such micro batches; 0: never", AT(rl.loss.early_stop_imp_ratio), 0, 1e30, RL, .also = {"algorithm.early_stop_imp_ratio"}},
  {RLS, "apply_chat_template", TREADLE_KEY_BOOL, "true", "", RLINF, "true: a prompt that is a text becomes a user's message, if the model has a chat template; false: it stays as it is", AT(rl.data.apply_chat_template), RL, .also = {"data.apply_chat_template"}},
  {RLS, "chat_template_kwargs", TREADLE_KEY_MAP, NULL, "", VERL, "variables of the chat template, such as {enable_thinking: false}", AT(rl.data.chat_template_kwargs), RL, .also = {"data.apply_chat_template_kwargs"}},
  {RLS, "use_integrated_worker", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "true: the reference shares the actor's pool; false: it has its own, and a reward model may have one", AT(resources.use_integrated_worker), RL},
  {RLS, "blocking", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "with several pools: a stage of a step begins when the one before has ended; false: as soon as what it reads is there", AT(resources.blocking), RL},
  {RLS, "actor_rollout_dispatch_size", TREADLE_KEY_INTEGER, "0", "samples", MINDSPEED, "with several pools: number of samples that are drawn before other pools begin to work on them, rounded up to whole prompts; 0: all of a step", AT(rl.batches.rollout_dispatch_size), 0, ROWS, RL},
  {RLS, "staleness", TREADLE_KEY_INTEGER, "0", "steps", OWN, "number of steps by which the weights that generate may be older than those that train: none", AT(rl.batches.staleness), 0, 0, RL},
  {RLS, "guarantee_order", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "stages take rows in their order: they do, whatever this says", AT(resources.guarantee_order), RL},
  {RLS, "timeout", TREADLE_KEY_REAL, "60", "seconds", OWN, "if a process dies or is stopped, also while the run starts, all others have ended within this time; computing has no limit", AT(resources.timeout), 2, 86400, RL},
  {RLS, "lam", TREADLE_KEY_REAL, "1", "", MINDSPEED, "with gae: how far an advantage looks ahead, from the next value alone (0) to all rewards that follow (1)", AT(rl.advantage.lam), 0, 1, CRITIC, .also = {"algorithm.lam"}},
  {RLS, "advantage_whiten", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "with gae: shift and scale the advantages of all tokens of a step to mean 0 and variance 1", AT(rl.advantage.whiten), CRITIC},
  {RLS, "cliprange_value", TREADLE_KEY_REAL, "0.5", "", MINDSPEED, "with gae: how far a value may move from that before the update until its loss is clipped", AT(critic.cliprange_value), 0, 1e30, CRITIC, .also = {VERLS_CRITIC "cliprange_value"}},
  {RLS, "critic_warmup", TREADLE_KEY_INTEGER, "0", "steps", VERL, "with gae: the policy is updated from this step on; before, the critic alone", AT(critic.warmup), 0, STEPS, CRITIC, .also = {"trainer.critic_warmup"}},
  {REF, "model", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of the reference model; without it, the first weights of the policy", AT(rl.kl.ref_model), RL, .also = {"actor_rollout_ref.ref.model.path"}},
  {REF, "strategy", TREADLE_KEY_CHOICE, NULL, "", VERL, "how ranks split the reference; without it, as actor_config", AT(reference.frozen.strategy), REFERENCE, .words = {"megatron", "fsdp2"}},
  {REF, "micro_batch_size", TREADLE_KEY_INTEGER, NULL, "samples", MINDSPEED, "number of samples that go through the layers together; without it, as actor_config", AT(reference.frozen.micro_batch_size), 1, ROWS, REFERENCE},
  {REF, "max_tokens_per_micro", TREADLE_KEY_INTEGER, NULL, "tokens", OWN, "maximum number of tokens that go through the layers together, in place of micro_batch_size", AT(reference.frozen.max_tokens_per_micro), 2, TOKENS, REFERENCE},
  {REF, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of tensor parallel ranks; without any size, all are as actor_config", AT(reference.frozen.tensor_model_parallel_size), 1, RANKS, REFERENCE},
  {REF, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of pipeline stages", AT(reference.frozen.pipeline_model_parallel_size), 1, RANKS, REFERENCE},
  {REF, "num_layers_per_virtual_pipeline_stage", TREADLE_KEY_INTEGER, NULL, "layers", MINDSPEED, "number of layers in a chunk of an interleaved pipeline", AT(reference.frozen.num_layers_per_virtual_pipeline_stage), 1, RANKS, REFERENCE},
  {REF, "fsdp_size", TREADLE_KEY_INTEGER, NULL, "ranks", VERL, "number of ranks that share one copy of the reference (fsdp2); below 1: all ranks", AT(reference.frozen.fsdp_size), -1, RANKS, REFERENCE},
  {REF, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "layout as text (docs/layouts.md), in place of the sizes above", AT(reference.frozen.layout), REFERENCE},
  {REF, "offload_param", TREADLE_KEY_BOOL, "true", "", OWN, "the reference's weights leave the device outside its calls", AT(reference.offload_param), REFERENCE},
  {CRITICS, "model", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of the critic's model; without it, that of the policy; without score.weight, the head starts with zeros", AT(critic.trained.model), CRITIC, .also = {VERLS_CRITIC "model.path"}},
  {CRITICS, "strategy", TREADLE_KEY_CHOICE, NULL, "", VERL, "how ranks split the critic; without it, as actor_config", AT(critic.trained.strategy), CRITIC, .words = {"megatron", "fsdp2"}, .also = {VERLS_CRITIC "strategy"}},
  {CRITICS, "micro_batch_size", TREADLE_KEY_INTEGER, NULL, "samples", MINDSPEED, "number of samples that go through the layers together; without it, as actor_config", AT(critic.trained.micro_batch_size), 1, ROWS, CRITIC, .also = {VERLS_CRITIC "ppo_micro_batch_size_per_gpu"}},
  {CRITICS, "max_tokens_per_micro", TREADLE_KEY_INTEGER, NULL, "tokens", OWN, "maximum number of tokens that go through the layers together, in place of micro_batch_size", AT(critic.trained.max_tokens_per_micro), 2, TOKENS, CRITIC},
  {CRITICS, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of tensor parallel ranks; without any size, all are as actor_config", AT(critic.trained.tensor_model_parallel_size), 1, RANKS, CRITIC, .also = {VERLS_CRITIC "megatron.tensor_model_parallel_size", VERLS_CRITIC "megatron_config.tensor_parallel_size"}},
  {CRITICS, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of pipeline stages", AT(critic.trained.pipeline_model_parallel_size), 1, RANKS, CRITIC, .also = {VERLS_CRITIC "megatron.pipeline_model_parallel_size", VERLS_CRITIC "megatron_config.pipeline_parallel_size"}},
  {CRITICS, "num_layers_per_virtual_pipeline_stage", TREADLE_KEY_INTEGER, NULL, "layers", MINDSPEED, "number of layers in a chunk of an interleaved pipeline", AT(critic.trained.num_layers_per_virtual_pipeline_stage), 1, RANKS, CRITIC},
  {CRITICS, "fsdp_size", TREADLE_KEY_INTEGER, NULL, "ranks", VERL, "number of ranks that share one copy of the critic (fsdp2); below 1: all ranks", AT(critic.trained.fsdp_size), -1, RANKS, CRITIC, .also = {VERLS_CRITIC "model.fsdp_config.fsdp_size", VERLS_CRITIC "fsdp_config.fsdp_size"}},
  {CRITICS, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "training layout as text (docs/layouts.md), in place of the sizes above", AT(critic.trained.layout), CRITIC},
  {CRITICS, "lr", TREADLE_KEY_REAL, "1e-5", "", MINDSPEED, "learning rate after the warm-up (default: verl's)", AT(critic.trained.lr), 0, 1000, CRITIC, .also = {VERLS_CRITIC "optim.lr"}},
  {CRITICS, "min_lr", TREADLE_KEY_REAL, "0", "", MINDSPEED, "learning rate at the end of the decay", AT(critic.trained.min_lr), 0, 1000, CRITIC, .also = {VERLS_CRITIC "optim.min_lr"}},
  {CRITICS, "lr_decay_style", TREADLE_KEY_CHOICE, NULL, "", MINDSPEED, "how the learning rate falls; without it, as actor_config", AT(critic.trained.lr_decay_style), CRITIC, .words = {"constant", "linear", "cosine"}, .also = {VERLS_CRITIC "optim.lr_scheduler_type", VERLS_CRITIC "optim.lr_decay_style", VERLS_CRITIC "optim.warmup_style"}},
  {CRITICS, "lr_warmup_fraction", TREADLE_KEY_REAL, NULL, "of the steps", MINDSPEED, "share of the steps in which the learning rate rises; without it, as actor_config", AT(critic.trained.lr_warmup_fraction), 0, 1, CRITIC, .also = {VERLS_CRITIC "optim.lr_warmup_steps_ratio"}},
  {CRITICS, "weight_decay", TREADLE_KEY_REAL, NULL, "", MINDSPEED, "AdamW's weight decay; without it, as actor_config", AT(critic.trained.weight_decay), 0, 1000, CRITIC, .also = {VERLS_CRITIC "optim.weight_decay"}},
  {CRITICS, "adam_beta1", TREADLE_KEY_REAL, NULL, "", MINDSPEED, "AdamW's beta1; without it, as actor_config", AT(critic.trained.adam_beta1), 0, 1, CRITIC, .below = true},
  {CRITICS, "adam_beta2", TREADLE_KEY_REAL, NULL, "", MINDSPEED, "AdamW's beta2; without it, as actor_config", AT(critic.trained.adam_beta2), 0, 1, CRITIC, .below = true},
  {CRITICS, "clip_grad", TREADLE_KEY_REAL, NULL, "", MINDSPEED, "scale the gradients down to this norm; 0: never; without it, as actor_config", AT(critic.trained.clip_grad), 0, 1e30, CRITIC, .also = {VERLS_CRITIC "grad_clip", VERLS_CRITIC "optim.clip_grad"}},
  {CRITICS, "offload_param", TREADLE_KEY_BOOL, "true", "", OWN, "the critic's weights leave the device outside its calls", AT(critic.offload_param), CRITIC, .also = {VERLS_CRITIC "model.fsdp_config.param_offload", VERLS_CRITIC "fsdp_config.param_offload", VERLS_CRITIC "megatron.param_offload"}},
  {CRITICS, "offload_grad", TREADLE_KEY_BOOL, "true", "", OWN, "the critic's gradients leave the device outside its calls", AT(critic.offload_grad), CRITIC, .also = {VERLS_CRITIC "megatron.grad_offload"}},
  {CRITICS, "offload_optimizer", TREADLE_KEY_BOOL, "true", "", OWN, "the critic's optimizer state leaves the device outside its calls", AT(critic.offload_optimizer), CRITIC, .also = {VERLS_CRITIC "model.fsdp_config.optimizer_offload", VERLS_CRITIC "fsdp_config.optimizer_offload", VERLS_CRITIC "megatron.optimizer_offload"}},
  {REWARDS, "model", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of a reward model, with score.weight of one label and the policy's vocabulary; without the key there is none", AT(reward.scored.model), REWARD, .also = {VERLS_REWARD "model.path", "reward.reward_model.model_path"}},
  {REWARDS, "weight", TREADLE_KEY_REAL, "1", "", OWN, "weight of the model's score in that of a sample, which is its sum with the rewards of verifier_function", AT(reward.weight), -1e30, 1e30, REWARD},
  {REWARDS, "strategy", TREADLE_KEY_CHOICE, NULL, "", VERL, "how ranks split the reward model; without it, as actor_config", AT(reward.scored.strategy), REWARD, .words = {"megatron", "fsdp2"}, .also = {VERLS_REWARD "strategy"}},
  {REWARDS, "micro_batch_size", TREADLE_KEY_INTEGER, NULL, "samples", MINDSPEED, "number of samples that go through the layers together; without it, as actor_config", AT(reward.scored.micro_batch_size), 1, ROWS, REWARD, .also = {VERLS_REWARD "micro_batch_size_per_gpu"}},
  {REWARDS, "max_tokens_per_micro", TREADLE_KEY_INTEGER, NULL, "tokens", OWN, "maximum number of tokens that go through the layers together, in place of micro_batch_size", AT(reward.scored.max_tokens_per_micro), 2, TOKENS, REWARD},
  {REWARDS, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of tensor parallel ranks; without any size, all are as actor_config", AT(reward.scored.tensor_model_parallel_size), 1, RANKS, REWARD, .also = {VERLS_REWARD "megatron.tensor_model_parallel_size"}},
  {REWARDS, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, NULL, "ranks", MINDSPEED, "number of pipeline stages", AT(reward.scored.pipeline_model_parallel_size), 1, RANKS, REWARD, .also = {VERLS_REWARD "megatron.pipeline_model_parallel_size"}},
  {REWARDS, "num_layers_per_virtual_pipeline_stage", TREADLE_KEY_INTEGER, NULL, "layers", MINDSPEED, "number of layers in a chunk of an interleaved pipeline", AT(reward.scored.num_layers_per_virtual_pipeline_stage), 1, RANKS, REWARD},
  {REWARDS, "fsdp_size", TREADLE_KEY_INTEGER, NULL, "ranks", VERL, "number of ranks that share one copy of the reward model (fsdp2); below 1: all ranks", AT(reward.scored.fsdp_size), -1, RANKS, REWARD, .also = {VERLS_REWARD "model.fsdp_config.fsdp_size"}},
  {REWARDS, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "layout as text (docs/layouts.md), in place of the sizes above", AT(reward.scored.layout), REWARD},
  {REWARDS, "offload_param", TREADLE_KEY_BOOL, "true", "", OWN, "the reward model's weights leave the device outside its calls", AT(reward.offload_param), REWARD, .also = {VERLS_REWARD "model.fsdp_config.param_offload", VERLS_REWARD "megatron.param_offload"}},
  {"actor", "checkpoint_load_path", TREADLE_KEY_TEXT, NULL, "path", RLINF, "Megatron checkpoint with the first weights of the policy, in place of the model's", AT(megatron.checkpoint_load_path), RL},
  {MEGATRON, "use_hf_ckpt", TREADLE_KEY_BOOL, "false", "", RLINF, "convert the model for Megatron at the first start; later starts use the result", AT(megatron.use_hf_ckpt), RL},
  {CONVERTOR, "hf_model_path", TREADLE_KEY_TEXT, NULL, "path", RLINF, "the model to convert; without it, actor_config.model", AT(megatron.ckpt_convertor.hf_model_path), RL},
  {CONVERTOR, "save_path", TREADLE_KEY_TEXT, NULL, "path", RLINF, "folder for the converted model", AT(megatron.ckpt_convertor.save_path), RL},
  {CONVERTOR, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, "0", "ranks", RLINF, "number of tensor parallel ranks of the converted model, or of checkpoint_load_path; 0: that of actor_config", AT(megatron.ckpt_convertor.tensor_model_parallel_size), 0, RANKS, RL},
  {CONVERTOR, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, "0", "ranks", RLINF, "number of pipeline stages of the converted model, or of checkpoint_load_path; 0: that of actor_config", AT(megatron.ckpt_convertor.pipeline_model_parallel_size), 0, RANKS, RL},
  {"", "resource_pools", TREADLE_KEY_MAP, NULL, "slots", OWN, "pools by name, each a list of counts of slots, one for each of its nodes, such as {actor: [8, 8], critic: [4]}", AT(resources.resource_pools), RL, .ordered = true},
  {"", "mapping", TREADLE_KEY_MAP, NULL, "", OWN, "which role works in which pool, such as {ActorRollout: actor, Critic: critic}", AT(resources.mapping), RL, .ordered = true},
  {"", "max_colocate_count", TREADLE_KEY_INTEGER, "3", "groups", VERL, "maximum number of worker groups with processes of their own on a slot, on Ray; roles that share a process count once", AT(resources.max_colocate_count), 1, 1024, RL},
  {RLS ".actor_resource", "num_npus", TREADLE_KEY_INTEGER, NULL, "slots", MINDSPEED, "slots of the pool of the actor", AT(resources.actor_npus), 1, RANKS, RL},
  {RLS ".reference_resource", "num_npus", TREADLE_KEY_INTEGER, NULL, "slots", MINDSPEED, "without use_integrated_worker: slots of the pool of the reference", AT(resources.reference_npus), 1, RANKS, RL},
  {RLS ".reward_resource", "num_npus", TREADLE_KEY_INTEGER, NULL, "slots", MINDSPEED, "without use_integrated_worker: slots of the pool of the reward model", AT(resources.reward_npus), 1, RANKS, RL},
  {RLS ".critic_resource", "num_npus", TREADLE_KEY_INTEGER, NULL, "slots", MINDSPEED, "slots of the pool of the critic", AT(resources.critic_npus), 1, RANKS, RL},
  {"trainer", "nnodes", TREADLE_KEY_INTEGER, NULL, "nodes", VERL, "nodes of the one pool that all roles share; without it, 1, if n_gpus_per_node is given", AT(resources.nnodes), 1, RANKS, RL},
  {"trainer", "n_gpus_per_node", TREADLE_KEY_INTEGER, NULL, "slots", VERL, "slots of that pool on each of its nodes; without it, 8, if nnodes is given", AT(resources.n_gpus_per_node), 1, RANKS, RL},
  {"cluster", "component_placement", TREADLE_KEY_MAP, NULL, "slots", RLINF, "which slots each component has, such as {actor: 0-3, rollout: 4-7}", AT(resources.component_placement), RL, .ordered = true},
};
/* clang-format on */

int treadle_train_key_at(size_t at) {
  int i = 0;
  while (treadle_train_keys[i].at != at) i++;
  return i;
}

/* ---- Names ---------------------------------------------------------------------------------------- */

/* Of "section.key", the key, if it stands in that section. */
static const char *key_in(const char *path, const char *section) {
  size_t length = strlen(section);
  if (!length) return path;
  return strncmp(path, section, length) == 0 && path[length] == '.' ? path + length + 1 : NULL;
}

/* MindSpeed-RL reads both sections as one, of which actor_config goes first. */
static const char *key_of_mindspeed(const char *path) {
  const char *key = key_in(path, TRAINING);
  return key ? key : key_in(path, ACTOR);
}

bool treadle_train_key_is_of(const treadle_train_key *key, treadle_train_run run) {
  return run == TREADLE_RUN_RL || (run == TREADLE_RUN_SFT && !key->rl);
}

const char *treadle_train_short_path(const char *path) {
  static const char *const within[] = {"model", "megatron"};
  const char *rest = key_in(path, "actor");
  for (size_t i = 0; rest && i < sizeof within / sizeof *within; i++)
    if (strcmp(rest, within[i]) == 0 || key_in(rest, within[i])) return rest;
  return path;
}

int treadle_train_key_find(const char *path, treadle_train_run run) {
  path = treadle_train_short_path(path);
  const char *shared = key_of_mindspeed(path);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    if (!treadle_train_key_is_of(row, run)) continue;
    const char *key = row->alone ? key_in(path, row->section) : shared;
    if (key && strcmp(key, row->key) == 0) return i;
    for (int j = 0; j < TREADLE_TRAIN_ALSO && row->also[j]; j++)
      if (strcmp(path, row->also[j]) == 0) return i;
  }
  const treadle_key_info *other = run == TREADLE_RUN_RL ? treadle_train_other_find(path) : NULL;
  return other && other->as ? treadle_train_key_find(other->as, run) : -1;
}

int treadle_train_key_above(const char *path, treadle_train_run run, const char **rest_p) {
  char above[512];
  if (run != TREADLE_RUN_RL || strlen(path) >= sizeof above) return -1;
  snprintf(above, sizeof above, "%s", path);
  for (char *dot; (dot = strrchr(above, '.'));) {
    *dot = 0;
    const int key = treadle_train_key_find(above, run);
    *rest_p = path + strlen(above) + 1;
    if (key >= 0) return treadle_train_keys[key].type == TREADLE_KEY_MAP ? key : -1;
  }
  return -1;
}

bool treadle_train_key_is_section(const char *path, treadle_train_run run) {
  path = treadle_train_short_path(path);
  if (strcmp(path, "actor") == 0) return true;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    if (!treadle_train_key_is_of(row, run)) continue;
    if (key_in(row->section, path)) return true;
    if (strcmp(path, row->section) == 0) return true;
    for (int j = 0; j < TREADLE_TRAIN_ALSO && row->also[j]; j++)
      if (key_in(row->also[j], path)) return true;
  }
  return false;
}

/* Is `path` one that a typing error has made of `other`: in the same section, with two other characters at most? */
static bool is_slip(const char *path, const char *other) {
  enum { SHORT = 6, MOST = 2 };
  const char *name = strrchr(path, '.'), *right = strrchr(other, '.');
  if (!name || name - path != right - other || strncmp(path, other, (size_t)(name - path)) != 0)
    return false;
  return strlen(right + 1) >= SHORT && treadle_text_distance(name, right) <= MOST;
}

const char *treadle_train_key_meant(const char *path, treadle_train_run run) {
  path = treadle_train_short_path(path);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    char own[128];
    if (!treadle_train_key_is_of(row, run)) continue;
    snprintf(own, sizeof own, "%s%s%s", row->section, *row->section ? "." : "", row->key);
    if (is_slip(path, own)) return row->key;
    for (int j = 0; j < TREADLE_TRAIN_ALSO && row->also[j]; j++)
      if (is_slip(path, row->also[j])) return strrchr(row->also[j], '.') + 1;
  }
  return NULL;
}
