/* The table of keys. Defaults are those of MindSpeed-RL 2.3 (mindspeed_rl/config_cls/megatron_config.py) where it has one; where it has
 * none, `help` says where they come from if they are not treadle's own. */
#include "train/config.h"

#include <string.h>

#define TRAINING    "megatron_training"
#define ACTOR       "actor_config"
#define MINDSPEED   "MindSpeed-RL"
#define VERL        "verl"
#define OWN         "treadle"
#define VERLS_ACTOR "actor_rollout_ref.actor."
#define AT(member)  .at = offsetof(treadle_train_settings, member)

/* Limits that no run of today comes near: sums and products of values stay whole. */
#define STEPS  ((double)(INT64_C(1) << 40))
#define TOKENS ((double)(1 << 24))
#define ROWS   ((double)(1 << 24))
#define RANKS  ((double)(1 << 20))
#define SEEDS  ((double)(INT64_C(1) << 53))

/* clang-format off */
const treadle_train_key treadle_train_keys[TREADLE_TRAIN_KEYS] = {
  {TRAINING, "tokenizer_name_or_path", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder or file of the tokenizer; without it, the model's folder", AT(tokenizer_name_or_path), .also = {"actor_rollout_ref.model.tokenizer_path"}},
  {TRAINING, "data_path", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "rows to train on: lines of JSON, or one JSON list", AT(data_path), .need = TREADLE_NEED_TO_RUN, .also = {"data.train_files"}},
  {TRAINING, "val_path", TREADLE_KEY_TEXT, NULL, "path", OWN, "rows to test with", AT(val_path), .also = {"data.val_files"}},
  {TRAINING, "train_iters", TREADLE_KEY_INTEGER, NULL, "steps", MINDSPEED, "steps of the optimizer", AT(train_iters), 1, STEPS, .need = TREADLE_NEED_TO_RUN, .also = {"trainer.total_training_steps"}},
  {TRAINING, "global_batch_size", TREADLE_KEY_INTEGER, "64", "rows", MINDSPEED, "rows of a step, over all ranks", AT(global_batch_size), 1, ROWS, .also = {"data.train_batch_size"}},
  {TRAINING, "seq_length", TREADLE_KEY_INTEGER, NULL, "tokens", MINDSPEED, "of a row, at most; without it, the smaller of 4096 and what the model takes", AT(seq_length), 2, TOKENS},
  {TRAINING, "save_interval", TREADLE_KEY_INTEGER, "0", "steps", MINDSPEED, "from checkpoint to checkpoint; below 1: one at the end", AT(save_interval), -1, STEPS, .also = {"trainer.save_freq"}},
  {TRAINING, "test_interval", TREADLE_KEY_INTEGER, "0", "steps", OWN, "from test to test, with the rows of val_path; below 1: none", AT(test_interval), -1, STEPS, .also = {"trainer.test_freq"}},
  {TRAINING, "seed", TREADLE_KEY_INTEGER, "1234", "", MINDSPEED, "of random weights and of the order of rows", AT(seed), 0, SEEDS},
  {TRAINING, "bf16", TREADLE_KEY_BOOL, "true", "", MINDSPEED, "weights and products in bf16, else in fp32", AT(bf16)},
  {TRAINING, "sequence_parallel", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "tensor parallel ranks have parts of a sequence between products", AT(sequence_parallel), .also = {VERLS_ACTOR "megatron.sequence_parallel"}},
  {TRAINING, "use_distributed_optimizer", TREADLE_KEY_BOOL, "false", "", MINDSPEED, "data parallel ranks divide the optimizer's state, as Megatron does", AT(use_distributed_optimizer), .also = {VERLS_ACTOR "megatron.use_distributed_optimizer"}},
  {TRAINING, "recompute_granularity", TREADLE_KEY_CHOICE, "none", "", MINDSPEED, "activations are kept, or computed again, a layer at a time, on the way back", AT(recompute_granularity), .words = {"none", "full"}},
  {TRAINING, "max_ckpt_to_keep", TREADLE_KEY_INTEGER, "0", "folders", VERL, "of checkpoints, the newest; 0: all", AT(max_ckpt_to_keep), 0, ROWS, .also = {"trainer.max_actor_ckpt_to_keep"}},

  {ACTOR, "model", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of a model, or a config.json, which begins with random weights", AT(model), .need = TREADLE_NEED_TO_PLAN, .alone = true, .also = {"actor_rollout_ref.model.path"}},
  {ACTOR, "save", TREADLE_KEY_TEXT, NULL, "path", MINDSPEED, "folder of the run: metrics, checkpoints, this configuration", AT(save), .need = TREADLE_NEED_TO_RUN, .also = {"trainer.default_local_dir"}},
  {ACTOR, "strategy", TREADLE_KEY_CHOICE, "megatron", "", VERL, "how ranks divide the model, its gradients and its optimizer", AT(strategy), .words = {"megatron", "fsdp2"}, .also = {VERLS_ACTOR "strategy"}},
  {ACTOR, "micro_batch_size", TREADLE_KEY_INTEGER, "1", "rows", MINDSPEED, "that go through the layers together; not with max_tokens_per_micro", AT(micro_batch_size), 1, ROWS},
  {ACTOR, "max_tokens_per_micro", TREADLE_KEY_INTEGER, NULL, "tokens", OWN, "of rows that go through the layers together, in place of a number of rows", AT(max_tokens_per_micro), 2, TOKENS},
  {ACTOR, "tensor_model_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "of tensor parallelism (tp)", AT(tensor_model_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.tensor_model_parallel_size", VERLS_ACTOR "megatron_config.tensor_parallel_size"}},
  {ACTOR, "pipeline_model_parallel_size", TREADLE_KEY_INTEGER, "1", "ranks", MINDSPEED, "stages of the pipeline (pp)", AT(pipeline_model_parallel_size), 1, RANKS, .also = {VERLS_ACTOR "megatron.pipeline_model_parallel_size", VERLS_ACTOR "megatron_config.pipeline_parallel_size"}},
  {ACTOR, "num_layers_per_virtual_pipeline_stage", TREADLE_KEY_INTEGER, NULL, "layers", MINDSPEED, "of a chunk, for interleaved stages (vpp); needs pp above 1", AT(num_layers_per_virtual_pipeline_stage), 1, RANKS},
  {ACTOR, "fsdp_size", TREADLE_KEY_INTEGER, "-1", "ranks", VERL, "that share one copy of the model (fsdp2); below 1: all", AT(fsdp_size), -1, RANKS, .also = {VERLS_ACTOR "fsdp_config.fsdp_size"}},
  {ACTOR, "offload_policy", TREADLE_KEY_BOOL, "false", "", VERL, "shards lie in host memory while a layer does not use them (fsdp2)", AT(offload_policy), .also = {VERLS_ACTOR "fsdp_config.offload_policy"}},
  {ACTOR, "exact", TREADLE_KEY_BOOL, "true", "", OWN, "the same bits in every layout that has the same micro batches", AT(exact)},
  {ACTOR, "lr", TREADLE_KEY_REAL, "1e-6", "", MINDSPEED, "learning rate after the warm-up (default: verl's)", AT(lr), 0, 1000, .also = {VERLS_ACTOR "optim.lr"}},
  {ACTOR, "min_lr", TREADLE_KEY_REAL, "0", "", MINDSPEED, "where the decay ends", AT(min_lr), 0, 1000},
  {ACTOR, "lr_decay_style", TREADLE_KEY_CHOICE, "linear", "", MINDSPEED, "from lr to min_lr at the last step", AT(lr_decay_style), .words = {"constant", "linear", "cosine"}},
  {ACTOR, "lr_warmup_fraction", TREADLE_KEY_REAL, "0", "of the steps", MINDSPEED, "in which the learning rate rises from 0 to lr", AT(lr_warmup_fraction), 0, 1},
  {ACTOR, "weight_decay", TREADLE_KEY_REAL, "0.01", "", MINDSPEED, "AdamW's; not of tensors with one dimension", AT(weight_decay), 0, 1000, .also = {VERLS_ACTOR "optim.weight_decay"}},
  {ACTOR, "adam_beta1", TREADLE_KEY_REAL, "0.9", "", MINDSPEED, "AdamW's", AT(adam_beta1), 0, 1, .below = true},
  {ACTOR, "adam_beta2", TREADLE_KEY_REAL, "0.999", "", MINDSPEED, "AdamW's", AT(adam_beta2), 0, 1, .below = true},
  {ACTOR, "adam_eps", TREADLE_KEY_REAL, "1e-8", "", MINDSPEED, "AdamW's", AT(adam_eps), 1e-30, 1},
  {ACTOR, "clip_grad", TREADLE_KEY_REAL, "1", "", MINDSPEED, "gradients are scaled down to this norm; 0: never", AT(clip_grad), 0, 1e30, .also = {VERLS_ACTOR "grad_clip"}},
  {ACTOR, "layout", TREADLE_KEY_TEXT, NULL, "", OWN, "text of a layout (docs/layouts.md), in place of the sizes above", AT(layout)},
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
  return strncmp(path, section, length) == 0 && path[length] == '.' ? path + length + 1 : NULL;
}

/* MindSpeed-RL reads both sections as one, of which actor_config goes first. */
static const char *key_of_mindspeed(const char *path) {
  const char *key = key_in(path, TRAINING);
  return key ? key : key_in(path, ACTOR);
}

int treadle_train_key_find(const char *path) {
  const char *shared = key_of_mindspeed(path);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    const char *key = row->alone ? key_in(path, row->section) : shared;
    if (key && strcmp(key, row->key) == 0) return i;
    for (int j = 0; j < 2 && row->also[j]; j++)
      if (strcmp(path, row->also[j]) == 0) return i;
  }
  return -1;
}

bool treadle_train_key_is_section(const char *path) {
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    if (strcmp(path, row->section) == 0) return true;
    for (int j = 0; j < 2 && row->also[j]; j++)
      if (key_in(row->also[j], path)) return true;
  }
  return false;
}
