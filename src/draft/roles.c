/* What a tensor is, by the words of its name. The tables have the words of checkpoints that people publish; a name of none of
 * these words has no role, and is paired by hand. */
#include "draft/draft.h"

#include <string.h>

typedef struct role_word {
  const char *word; /* the last part of the name without .weight or .bias; several parts with dots */
  treadle_role role;
} role_word;

static const role_word of_attention[] = {{"q_proj", TREADLE_IS_Q},
                                         {"wq", TREADLE_IS_Q},
                                         {"query", TREADLE_IS_Q},
                                         {"query_proj", TREADLE_IS_Q},
                                         {"q_lin", TREADLE_IS_Q},
                                         {"to_q", TREADLE_IS_Q},
                                         {"q", TREADLE_IS_Q},
                                         {"k_proj", TREADLE_IS_K},
                                         {"wk", TREADLE_IS_K},
                                         {"key", TREADLE_IS_K},
                                         {"key_proj", TREADLE_IS_K},
                                         {"k_lin", TREADLE_IS_K},
                                         {"to_k", TREADLE_IS_K},
                                         {"k", TREADLE_IS_K},
                                         {"v_proj", TREADLE_IS_V},
                                         {"wv", TREADLE_IS_V},
                                         {"value", TREADLE_IS_V},
                                         {"value_proj", TREADLE_IS_V},
                                         {"v_lin", TREADLE_IS_V},
                                         {"to_v", TREADLE_IS_V},
                                         {"v", TREADLE_IS_V},
                                         {"o_proj", TREADLE_IS_O},
                                         {"wo", TREADLE_IS_O},
                                         {"out_proj", TREADLE_IS_O},
                                         {"dense", TREADLE_IS_O},
                                         {"output", TREADLE_IS_O},
                                         {"output_proj", TREADLE_IS_O},
                                         {"c_proj", TREADLE_IS_O},
                                         {"to_out", TREADLE_IS_O},
                                         {"proj", TREADLE_IS_O},
                                         {"out", TREADLE_IS_O},
                                         {"o", TREADLE_IS_O},
                                         {"out_lin", TREADLE_IS_O},
                                         {"q_norm", TREADLE_IS_Q_NORM},
                                         {"query_norm", TREADLE_IS_Q_NORM},
                                         {"q_layernorm", TREADLE_IS_Q_NORM},
                                         {"norm_q", TREADLE_IS_Q_NORM},
                                         {"query_layernorm", TREADLE_IS_Q_NORM},
                                         {"ln_q", TREADLE_IS_Q_NORM},
                                         {"q_ln", TREADLE_IS_Q_NORM},
                                         {"k_norm", TREADLE_IS_K_NORM},
                                         {"key_norm", TREADLE_IS_K_NORM},
                                         {"norm_k", TREADLE_IS_K_NORM},
                                         {"k_layernorm", TREADLE_IS_K_NORM},
                                         {"ln_k", TREADLE_IS_K_NORM},
                                         {"key_layernorm", TREADLE_IS_K_NORM},
                                         {"k_ln", TREADLE_IS_K_NORM},
                                         {"qkv_proj", TREADLE_IS_QKV},
                                         {"qkv", TREADLE_IS_QKV},
                                         {"wqkv", TREADLE_IS_QKV},
                                         {"Wqkv", TREADLE_IS_QKV},
                                         {"c_attn", TREADLE_IS_QKV},
                                         {"in_proj", TREADLE_IS_QKV},
                                         {"query_key_value", TREADLE_IS_QKV},
                                         {"linear_qkv", TREADLE_IS_QKV},
                                         {NULL, TREADLE_ROLE_UNKNOWN}};

static const role_word of_mlp[] = {{"gate_proj", TREADLE_IS_GATE},
                                   {"w1", TREADLE_IS_GATE},
                                   {"wi_0", TREADLE_IS_GATE},
                                   {"gate_linear", TREADLE_IS_GATE},
                                   {"linear_gate", TREADLE_IS_GATE},
                                   {"w_gate", TREADLE_IS_GATE},
                                   {"gate_lin", TREADLE_IS_GATE},
                                   {"up_proj", TREADLE_IS_UP},
                                   {"w3", TREADLE_IS_UP},
                                   {"wi_1", TREADLE_IS_UP},
                                   {"up", TREADLE_IS_UP},
                                   {"linear_up", TREADLE_IS_UP},
                                   {"up_linear", TREADLE_IS_UP},
                                   {"w_up", TREADLE_IS_UP},
                                   {"up_lin", TREADLE_IS_UP},
                                   {"down_proj", TREADLE_IS_DOWN},
                                   {"w2", TREADLE_IS_DOWN},
                                   {"wo", TREADLE_IS_DOWN},
                                   {"down", TREADLE_IS_DOWN},
                                   {"c_proj", TREADLE_IS_DOWN},
                                   {"fc2", TREADLE_IS_DOWN},
                                   {"dense_4h_to_h", TREADLE_IS_DOWN},
                                   {"linear_down", TREADLE_IS_DOWN},
                                   {"down_linear", TREADLE_IS_DOWN},
                                   {"w_down", TREADLE_IS_DOWN},
                                   {"down_lin", TREADLE_IS_DOWN},
                                   {"out_proj", TREADLE_IS_DOWN},
                                   {"gate_up_proj", TREADLE_IS_GATE_UP},
                                   {"gate_up", TREADLE_IS_GATE_UP},
                                   {"w13", TREADLE_IS_GATE_UP},
                                   {"wi", TREADLE_IS_GATE_UP},
                                   {"dense_h_to_4h", TREADLE_IS_GATE_UP},
                                   {"router", TREADLE_IS_ROUTER},
                                   {"gate.wg", TREADLE_IS_ROUTER},
                                   {"router.layer", TREADLE_IS_ROUTER},
                                   {"router.gate", TREADLE_IS_ROUTER},
                                   {"classifier", TREADLE_IS_ROUTER},
                                   {NULL, TREADLE_ROLE_UNKNOWN}};

static const role_word of_layer[] = {{"input_layernorm", TREADLE_IS_NORM_BEFORE},
                                     {"ln_1", TREADLE_IS_NORM_BEFORE},
                                     {"ln1", TREADLE_IS_NORM_BEFORE},
                                     {"norm1", TREADLE_IS_NORM_BEFORE},
                                     {"norm_1", TREADLE_IS_NORM_BEFORE},
                                     {"attention_norm", TREADLE_IS_NORM_BEFORE},
                                     {"attn_norm", TREADLE_IS_NORM_BEFORE},
                                     {"pre_attn_norm", TREADLE_IS_NORM_BEFORE},
                                     {"pre_attention_norm", TREADLE_IS_NORM_BEFORE},
                                     {"pre_attention_layernorm", TREADLE_IS_NORM_BEFORE},
                                     {"input_norm", TREADLE_IS_NORM_BEFORE},
                                     {"attn_ln", TREADLE_IS_NORM_BEFORE},
                                     {"post_attention_layernorm", TREADLE_IS_NORM_BETWEEN},
                                     {"ln_2", TREADLE_IS_NORM_BETWEEN},
                                     {"ln2", TREADLE_IS_NORM_BETWEEN},
                                     {"norm2", TREADLE_IS_NORM_BETWEEN},
                                     {"norm_2", TREADLE_IS_NORM_BETWEEN},
                                     {"ffn_norm", TREADLE_IS_NORM_BETWEEN},
                                     {"mlp_norm", TREADLE_IS_NORM_BETWEEN},
                                     {"pre_mlp_norm", TREADLE_IS_NORM_BETWEEN},
                                     {"pre_mlp_layernorm", TREADLE_IS_NORM_BETWEEN},
                                     {"pre_ffn_norm", TREADLE_IS_NORM_BETWEEN},
                                     {"pre_feedforward_layernorm", TREADLE_IS_NORM_BETWEEN},
                                     {"mlp_ln", TREADLE_IS_NORM_BETWEEN},
                                     {NULL, TREADLE_ROLE_UNKNOWN}};

static const role_word of_model[] = {{"embed_tokens", TREADLE_IS_EMBEDDING},
                                     {"wte", TREADLE_IS_EMBEDDING},
                                     {"tok_embeddings", TREADLE_IS_EMBEDDING},
                                     {"token_embedding", TREADLE_IS_EMBEDDING},
                                     {"token_embeddings", TREADLE_IS_EMBEDDING},
                                     {"word_embeddings", TREADLE_IS_EMBEDDING},
                                     {"word_embedding", TREADLE_IS_EMBEDDING},
                                     {"embedding", TREADLE_IS_EMBEDDING},
                                     {"embeddings", TREADLE_IS_EMBEDDING},
                                     {"embed", TREADLE_IS_EMBEDDING},
                                     {"embed_in", TREADLE_IS_EMBEDDING},
                                     {"tokens", TREADLE_IS_EMBEDDING},
                                     {"lm_head", TREADLE_IS_HEAD},
                                     {"output", TREADLE_IS_HEAD},
                                     {"head", TREADLE_IS_HEAD},
                                     {"embed_out", TREADLE_IS_HEAD},
                                     {"output_layer", TREADLE_IS_HEAD},
                                     {"unembed", TREADLE_IS_HEAD},
                                     {"unembedding", TREADLE_IS_HEAD},
                                     {"norm", TREADLE_IS_FINAL_NORM},
                                     {"ln_f", TREADLE_IS_FINAL_NORM},
                                     {"norm_f", TREADLE_IS_FINAL_NORM},
                                     {"final_norm", TREADLE_IS_FINAL_NORM},
                                     {"final_layernorm", TREADLE_IS_FINAL_NORM},
                                     {"final_layer_norm", TREADLE_IS_FINAL_NORM},
                                     {"ln_out", TREADLE_IS_FINAL_NORM},
                                     {"output_norm", TREADLE_IS_FINAL_NORM},
                                     {NULL, TREADLE_ROLE_UNKNOWN}};

enum { IS_BIAS = 1 << 10, OF_EXPERTS = 1 << 11, OF_SHARED = 1 << 12 };

/* The role of a name that ends with one of the words, behind a dot. */
static treadle_role look_up(const role_word *words, const char *name, size_t length) {
  for (; words->word; words++) {
    size_t size = strlen(words->word);
    if (size > length || strncmp(name + length - size, words->word, size) != 0) continue;
    if (size == length || name[length - size - 1] == '.') return words->role;
  }
  return TREADLE_ROLE_UNKNOWN;
}

static bool has(const char *name, const char *const *words) {
  while (*words && !strstr(name, *words)) words++;
  return *words != NULL;
}

int32_t treadle_draft_role(const char *rest, bool in_layer, bool by_expert, bool has_experts) {
  static const char *const attention[] = {"attn", "attention", "mha.", "sa.", NULL},
                           *const mlp[] = {"mlp",  "ffn",  "feed_forward", "feedforward", "ff.",
                                           "moe.", "moe_", "expert",       NULL},
                           *const shared[] = {"shared", NULL};
  size_t length = strlen(rest);
  int32_t flags = by_expert ? OF_EXPERTS : 0;
  treadle_role role = TREADLE_ROLE_UNKNOWN;
  const char *last = strrchr(rest, '.');
  if (last && strcmp(last, ".bias") == 0) flags |= IS_BIAS;
  if (last && (strcmp(last, ".weight") == 0 || strcmp(last, ".bias") == 0)) length = (size_t)(last - rest);
  if (!in_layer) {
    role = look_up(of_model, rest, length);
  } else {
    role = look_up(of_layer, rest, length);
    if (!role && has(rest, mlp)) role = look_up(of_mlp, rest, length);
    if (!role && has(rest, mlp) && !by_expert && length > 4 && strncmp(rest + length - 5, ".gate", 5) == 0)
      role = has_experts && !has(rest, shared) ? TREADLE_IS_ROUTER : TREADLE_IS_GATE;
    if (!role && by_expert && length > 4 && strncmp(rest + length - 5, ".gate", 5) == 0)
      role = TREADLE_IS_GATE;
    if (!role && has(rest, attention)) role = look_up(of_attention, rest, length);
    if (has(rest, shared)) flags |= OF_SHARED;
  }
  return role ? (int32_t)role | flags : 0;
}
