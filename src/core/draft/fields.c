/* Fields of the config. Configs have one thing under several names; the table has those that people use. */
#include "draft/draft.h"

#include "family/expr.h"
#include "model/config.h"

#include <string.h>

enum { MOST_SAME = 20 };

/* One thing by several names; families know it by the first. */
static const char *const same_fields[][MOST_SAME] = {
    {"hidden_size", "n_embd", "d_model", "dim", "model_dim", "embedding_size", "embed_dim", "n_embed",
     "emb_dim", "embedding_dim", "d_embed", "hidden_units"},
    {"vocab_size", "n_vocab", "padded_vocab_size", "num_tokens", "vocabulary_size", "n_words", "vocabulary",
     "n_tokens"},
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "depth", "n_blocks",
     "num_blocks", "num_transformer_layers", "n_decoder_layers"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "num_query_heads",
     "n_q_heads", "num_q_heads", "num_attn_heads", "attn_heads", "n_attention_heads", "num_head"},
    {"num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv", "num_query_groups", "kv_heads",
     "n_kv_head", "multi_query_group_num", "n_query_groups", "num_kv_head", "n_key_value_heads",
     "num_kv_groups", "n_kv_groups"},
    {"head_dim", "kv_channels", "head_size", "d_head", "attention_head_dim", "dim_head", "d_kv",
     "dim_per_head", "attn_head_dim", "attention_head_size"},
    {"intermediate_size",
     "ffn_dim",
     "ffn_hidden_size",
     "n_inner",
     "d_ff",
     "mlp_dim",
     "inner_dim",
     "feed_forward_size",
     "ffn_size",
     "hidden_dim",
     "mlp_hidden_size",
     "d_ffn",
     "n_ffn",
     "d_mlp",
     "mlp_hidden_dim",
     "mlp_size",
     "feedforward_dim",
     "dim_ff",
     "feed_forward_dim",
     "ffn_intermediate_size"},
    {"num_experts", "n_routed_experts", "num_local_experts", "n_experts", "moe_num_experts",
     "num_routed_experts", "num_moe_experts", "ffn_num_experts", "moe_num_routed_experts"},
    {"moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_dim",
     "expert_ffn_hidden_size", "d_expert", "expert_hidden_size", "d_ffn_expert", "expert_ffn_dim",
     "moe_ffn_dim", "moe_d_ff", "moe_hidden_size", "expert_size"},
    {"n_shared_experts", "num_shared_experts", "n_shared", "num_shared_expert", "moe_num_shared_experts"},
    {"shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size"},
    {"first_k_dense_replace", "n_dense_layers", "num_dense_layers", "first_moe_layer", "n_dense_first"},
    {"tie_word_embeddings", "tie_embeddings", "tied_embeddings", "share_embeddings", "weight_tying",
     "share_input_output_embeddings", "tie_lm_head", "share_embedding", "tie_weights"},
    {"attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "use_bias", "attn_bias"},
    {"mlp_bias", "ffn_bias", "use_mlp_bias"},
    {"use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm"},
    {"num_nextn_predict_layers", "num_mtp_layers", "n_mtp_layers", "mtp_num_layers"},
};

bool treadle_draft_field(const treadle_draft *d, const char *name, int64_t *value_p) {
  const json_t *configs[] = {d->inner, d->config};
  bool found = false;
  for (int i = 0; i < 2 && !found; i++)
    if (configs[i] && treadle_config_number(configs[i], name, value_p, &found) != TREADLE_OK) found = false;
  return found;
}

bool treadle_draft_has_field(const treadle_draft *d, const char *name) {
  const json_t *field = json_object_get(d->inner, name);
  if (!field || json_is_null(field)) field = json_object_get(d->config, name);
  return field && !json_is_null(field);
}

const char *treadle_draft_other_field(const treadle_draft *d, const char *name) {
  if (treadle_draft_has_field(d, name)) return name;
  for (size_t i = 0; i < sizeof same_fields / sizeof *same_fields; i++) {
    bool here = false;
    for (int k = 0; k < MOST_SAME && same_fields[i][k]; k++) here |= strcmp(same_fields[i][k], name) == 0;
    for (int k = 0; here && k < MOST_SAME && same_fields[i][k]; k++)
      if (treadle_draft_has_field(d, same_fields[i][k])) return same_fields[i][k];
  }
  return NULL;
}

static bool is_used(const treadle_draft *d, const char *field) {
  for (size_t i = 0; i < d->dims->count; i++)
    if (treadle_expr_names(d->dims->items[i]->text, field)) return true;
  return false;
}

int treadle_draft_fields_of(const treadle_draft *d, int64_t value, const char **field_p) {
  const char *key;
  json_t *field;
  int free_count = 0, count = 0;
  const char *first = NULL, *first_free = NULL;
  json_object_foreach(d->inner, key, field) {
    if (!json_is_integer(field) || json_integer_value(field) != value || !treadle_expr_is_name(key))
      continue;
    if (strstr(key, "token") || strstr(key, "position")) continue; /* no sizes of weights */
    if (!count++) first = key;
    if (!is_used(d, key) && !free_count++) first_free = key;
  }
  *field_p = free_count ? first_free : first;
  return free_count ? free_count : count;
}
