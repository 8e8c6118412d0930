/* Models for cases that say nothing but sizes, and the Hugging Face config of a Megatron config. */
#include "golden_support/golden_parts.h"

#include <string.h>

void golden_llama(golden_case *c, int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t head_dim, int64_t mlp, bool tied) {
  c->config = json_pack("{ss, ss, sI, sI, sI, sI, sI, sI, sI, sb}", "model_type", "llama", "torch_dtype",
                        "bfloat16", "vocab_size", (json_int_t)vocabulary, "hidden_size", (json_int_t)hidden,
                        "num_hidden_layers", (json_int_t)layers, "num_attention_heads", (json_int_t)heads,
                        "num_key_value_heads", (json_int_t)heads, "head_dim", (json_int_t)head_dim,
                        "intermediate_size", (json_int_t)mlp, "tie_word_embeddings", tied);
}

static void set_int(json_t *config, const char *key, int64_t value) {
  json_object_set_new(config, key, json_integer((json_int_t)value));
}

static void set_text(json_t *config, const char *key, const char *value) {
  json_object_set_new(config, key, json_string(value));
}

/* There are as many heads as tp cuts. The vocabulary divides by 64 * heads, and the width of experts, shared ones
 * among them, by heads as well as by 3 and 32. */
void golden_experts(golden_case *c, int64_t layers, int64_t heads, int64_t experts, int64_t groups) {
  int64_t width = 96;
  while (width % heads != 0) width += 96;
  golden_llama(c, 64 * heads, 4, layers, heads, 2, width, false);
  set_int(c->config, "moe_intermediate_size", width);
  set_int(c->config, "num_experts_per_tok", 2);
  if (groups == 0) {
    set_text(c->config, "model_type", "qwen3_moe");
    set_int(c->config, "num_experts", experts);
    set_int(c->config, "decoder_sparse_step", 1);
    json_object_set_new(c->config, "mlp_only_layers", json_array());
    return;
  }
  static const struct {
    const char *key;
    int64_t value;
  } rows[] = {{"q_lora_rank", 2},           {"kv_lora_rank", 4},   {"qk_nope_head_dim", 2},
              {"qk_rope_head_dim", 2},      {"v_head_dim", 2},     {"n_shared_experts", 1},
              {"first_k_dense_replace", 0}, {"moe_layer_freq", 1}, {"num_nextn_predict_layers", 0}};
  set_text(c->config, "model_type", "deepseek_v3");
  set_text(c->config, "topk_method", "noaux_tc");
  json_object_del(c->config, "head_dim");
  set_int(c->config, "n_routed_experts", experts);
  set_int(c->config, "n_group", groups);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) set_int(c->config, rows[i].key, rows[i].value);
}

/* No public family is dense with grouped heads and MTP layers. glm4_moe is when the dense layers at its
 * beginning are all there are. */
static void become_dense_mtp(json_t *config, int64_t layers, int64_t mtp) {
  set_text(config, "model_type", "glm4_moe");
  set_int(config, "first_k_dense_replace", layers + mtp);
  set_int(config, "num_nextn_predict_layers", mtp);
  set_int(config, "n_routed_experts", 2);
  set_int(config, "n_shared_experts", 1);
  set_int(config, "num_experts_per_tok", 1);
  set_int(config, "moe_intermediate_size", golden_int(config, "intermediate_size", 1));
}

void golden_dense_mtp(golden_case *c, int64_t layers, int64_t mtp, bool tied) {
  golden_llama(c, 64, 4, layers, 2, 2, 4, tied);
  become_dense_mtp(c->config, layers, mtp);
  json_object_set_new(c->config, "attention_bias", json_false());
  json_object_set_new(c->config, "use_qk_norm", json_false());
}

/* ---- Megatron's configs -------------------------------------------------------------------------- */

/* Numbers that have the same meaning in both; several names where families differ. */
static const struct {
  const char *megatron, *hf;
} numbers[] = {{"num_layers", "num_hidden_layers"},
               {"hidden_size", "hidden_size"},
               {"num_attention_heads", "num_attention_heads"},
               {"num_query_groups", "num_key_value_heads"},
               {"kv_channels", "head_dim"},
               {"ffn_hidden_size", "intermediate_size"},
               {"vocab_size", "vocab_size"},
               {"num_moe_experts", "num_experts"},
               {"num_moe_experts", "num_local_experts"},
               {"num_moe_experts", "n_routed_experts"},
               {"moe_router_topk", "num_experts_per_tok"},
               {"moe_ffn_hidden_size", "moe_intermediate_size"},
               {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"},
               {"mtp_num_layers", "num_nextn_predict_layers"},
               {"mtp_num_layers", "mtp_num_hidden_layers"},
               {"linear_attention_freq", "full_attention_interval"},
               {"linear_conv_kernel_dim", "linear_conv_kernel_dim"},
               {"linear_key_head_dim", "linear_key_head_dim"},
               {"linear_value_head_dim", "linear_value_head_dim"},
               {"linear_num_key_heads", "linear_num_key_heads"},
               {"linear_num_value_heads", "linear_num_value_heads"},
               {"q_lora_rank", "q_lora_rank"},
               {"kv_lora_rank", "kv_lora_rank"},
               {"qk_head_dim", "qk_nope_head_dim"},
               {"qk_pos_emb_head_dim", "qk_rope_head_dim"},
               {"v_head_dim", "v_head_dim"}};

/* What chooses the family, what is one of its rules anyway, and what changes no weight. */
static const char *const others[] = {"tied",
                                     "mla",
                                     "add_qkv_bias",
                                     "add_bias_linear",
                                     "qk_layernorm",
                                     "softmax_type",
                                     "attention_output_gate",
                                     "layernorm_zero_centered_gamma",
                                     "experimental_attention_variant",
                                     "moe_layer_freq",
                                     "moe_shared_expert_gate",
                                     "moe_router_enable_expert_bias",
                                     "moe_router_score_function",
                                     "moe_grouped_gemm",
                                     "moe_use_legacy_grouped_gemm"};

static bool is_known(const char *key) {
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (strcmp(numbers[i].megatron, key) == 0) return true;
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (strcmp(others[i], key) == 0) return true;
  }
  return false;
}

static bool is_on(const json_t *megatron, const char *key) {
  return json_is_true(json_object_get(megatron, key));
}

static const char *family_of(const json_t *megatron) {
  bool biased = is_on(megatron, "add_qkv_bias"), normed = is_on(megatron, "qk_layernorm");
  if (json_object_get(megatron, "experimental_attention_variant")) return "qwen3_next";
  if (json_object_get(megatron, "mla"))
    return is_on(megatron, "moe_router_enable_expert_bias") ? "deepseek_v3" : "deepseek_v2";
  if (!json_object_get(megatron, "num_moe_experts")) return biased ? "qwen2" : normed ? "qwen3" : "llama";
  if (is_on(megatron, "add_bias_linear")) return "gpt_oss";
  if (is_on(megatron, "moe_router_enable_expert_bias")) return "glm4_moe";
  return biased ? "qwen2_moe" : normed ? "qwen3_moe" : "mixtral";
}

bool golden_config_of_megatron(golden_case *c, const json_t *megatron) {
  const json_t *mla = json_object_get(megatron, "mla"), *freq = json_object_get(megatron, "moe_layer_freq");
  const char *key, *family = family_of(megatron);
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)megatron, key, value) {
    if (!is_known(key)) {
      golden_differ(c, "nobody knows Megatron's %s", key);
      return false;
    }
  }
  c->config = json_pack("{ss, ss, sb, sb, sb, si, s[]}", "model_type", family, "torch_dtype", "float32",
                        "tie_word_embeddings", is_on(megatron, "tied"), "attention_bias",
                        is_on(megatron, "add_qkv_bias"), "use_qk_norm", is_on(megatron, "qk_layernorm"),
                        "decoder_sparse_step", 1, "mlp_only_layers");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    json_t *number = json_object_get(megatron, numbers[i].megatron);
    if (!number) number = json_object_get(mla, numbers[i].megatron);
    if (number) json_object_set(c->config, numbers[i].hf, number);
  }
  if (!json_object_get(c->config, "num_nextn_predict_layers"))
    set_int(c->config, "num_nextn_predict_layers", 0);
  if (!json_object_get(c->config, "q_lora_rank"))
    json_object_set_new(c->config, "q_lora_rank", json_null());
  if (mla) json_object_del(c->config, "head_dim");
  int64_t dense = 0, width = golden_int(megatron, "moe_ffn_hidden_size", 1);
  while (json_array_size(freq) > (size_t)dense && golden_at(freq, (size_t)dense) == 0) dense++;
  for (size_t l = 0; l < json_array_size(freq); l++)
    if (golden_at(freq, l) == 0)
      json_array_append_new(json_object_get(c->config, "mlp_only_layers"), json_integer((json_int_t)l));
  set_int(c->config, "first_k_dense_replace", dense);
  set_int(c->config, "moe_layer_freq", 1);
  set_int(c->config, "n_shared_experts",
          golden_int(megatron, "moe_shared_expert_intermediate_size", 0) / width);
  if (strcmp(family, "deepseek_v3") == 0) set_text(c->config, "topk_method", "noaux_tc");
  if (strcmp(family, "mixtral") == 0 || strcmp(family, "gpt_oss") == 0)
    set_int(c->config, "intermediate_size", width);
  if (strcmp(family, "qwen3") == 0 && json_object_get(megatron, "mtp_num_layers"))
    become_dense_mtp(c->config, golden_int(megatron, "num_layers", 0),
                     golden_int(megatron, "mtp_num_layers", 0));
  return true;
}
