/* Models of fp8 blocks. */
#include "switch/block_models.h"
#include "test.h"
#include "weights/load.h"

#include <jansson.h>

static const char latent[] =
    "{'model_type': 'deepseek_v3', 'vocab_size': 96, 'hidden_size': 72, 'num_hidden_layers': 2, "
    "'num_attention_heads': 4, 'q_lora_rank': 32, 'kv_lora_rank': 32, 'qk_nope_head_dim': 16, "
    "'qk_rope_head_dim': 8, "
    "'v_head_dim': 16, 'intermediate_size': 96, 'moe_intermediate_size': 32, 'n_routed_experts': 8, "
    "'n_shared_experts': 1, 'first_k_dense_replace': 1, 'n_group': 2, 'num_nextn_predict_layers': 1, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [16, "
    "16]}}";

/* vLLM cuts 96 rows of an expert inside of blocks of 32. */
static const char finer[] =
    "{'model_type': 'qwen3_moe', 'vocab_size': 80, 'hidden_size': 64, 'num_hidden_layers': 2, "
    "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 32, 'moe_intermediate_size': 96, "
    "'num_experts': 4, 'intermediate_size': 128, 'decoder_sparse_step': 1, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [32, "
    "32]}}";

/* Matrices of heads are one block each, which lies transposed in what is derived of it; and vLLM holds an indexer's keys as values,
 * beside weights that have no scales. */
static const char square[] =
    "{'model_type': 'deepseek_v32', 'vocab_size': 96, 'hidden_size': 64, 'num_hidden_layers': 2, "
    "'num_attention_heads': 4, 'q_lora_rank': 32, 'kv_lora_rank': 16, 'qk_nope_head_dim': 16, "
    "'qk_rope_head_dim': 16, 'v_head_dim': 16, 'index_n_heads': 2, 'index_head_dim': 16, "
    "'intermediate_size': 128, 'moe_intermediate_size': 32, 'n_routed_experts': 4, "
    "'n_shared_experts': 1, 'first_k_dense_replace': 1, 'n_group': 1, 'num_nextn_predict_layers': 0, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [16, "
    "16]}}";

treadle_model *block_model_make(block_model which) {
  static const char *const configs[] = {
      [BLOCK_MODEL_LATENT] = latent, [BLOCK_MODEL_FINER] = finer, [BLOCK_MODEL_SQUARE] = square};
  char text[1000];
  treadle_model *model;
  snprintf(text, sizeof text, "%s", configs[which]);
  for (char *c = text; *c; c++)
    if (*c == '\'') *c = '"';
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  json_decref(json);
  return model;
}

bool block_model_holds(const treadle_layout *layout, const treadle_layout *source, int rank,
                       const char *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  bool same = true;
  char *wanted = calloc(treadle_layout_window_bytes(layout, rank) + 1, 1);
  if (!wanted ||
      treadle_layout_load_from(layout, source, rank, NULL, treadle_device_host(), wanted) != TREADLE_OK)
    abort();
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank) && same; i++) {
    if (treadle_layout_storage(layout, rank, i, &info) != TREADLE_OK) abort();
    same =
        info.bytes == 0 || memcmp(window + info.offset_bytes, wanted + info.offset_bytes, info.bytes) == 0;
    if (!same)
      fprintf(stderr, "rank %d: '%s' of '%s' is not what it should be\n", rank, info.name, layout->text);
  }
  free(wanted);
  return same;
}
