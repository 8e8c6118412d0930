#include "control/tiny.h"

#include "test.h"

#include "io/file.h"

#include <string.h>

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,\n"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 512, \"hidden_act\": "
    "\"silu\",\n"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"initializer_range\": 0.2,\n"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 1}\n";

static const char with_experts[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_size\": 64,\n"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"head_dim\": 16,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 512, \"hidden_act\": "
    "\"silu\",\n"
    " \"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, \"norm_topk_prob\": "
    "true,\n"
    " \"decoder_sparse_step\": 1, \"mlp_only_layers\": [],\n"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"initializer_range\": 0.2,\n"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 1}\n";

static treadle_model *open_config(const char *text) {
  const char *folder = test_folder();
  char path[128];
  treadle_model *model;
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_file_write(path, text, strlen(text)));
  assert_ok(treadle_model_open(path, NULL, &model));
  test_remove(folder);
  return model;
}

treadle_model *tiny_open(void) { return open_config(config); }
treadle_model *tiny_open_experts(void) { return open_config(with_experts); }
