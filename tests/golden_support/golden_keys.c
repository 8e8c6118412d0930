/* Megatron's checkpoint keys: which Hugging Face elements stand behind a piece of sharded_state_dict (docs/rules.md
 * 7.9). The keys are the same whatever the storage, so the local spec, grouped and sequential
 * experts and legacy GroupedMLP all come through the same table. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

/* A key without its prefix of layer and without the number of an expert, which `*` stands for on the other
 * side, and its tensor in a decoder layer; a name that begins with '=' is outside of layers. Where `second`
 * is given, the lower half of the rows is of the second tensor. Of several rows the first whose tensor the
 * model has is meant. */
static const struct {
  const char *key, *hf, *second;
  int add;
} sources[] = {
    {"embedding.word_embeddings.weight", "=model.embed_tokens.weight", NULL, 0},
    {"decoder.final_layernorm.weight", "=model.norm.weight", NULL, 0},
    {"output_layer.weight", "=lm_head.weight", NULL, 0},
    {"input_layernorm.weight", "input_layernorm.weight", NULL, 0},
    {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight", NULL, 0},
    {"self_attention.in_proj.layer_norm_weight", "input_layernorm.weight", NULL, 0},
    {"self_attention.linear_proj.weight", "self_attn.o_proj.weight", NULL, 0},
    {"self_attention.linear_proj.bias", "self_attn.o_proj.bias", NULL, 0},
    {"self_attention.core_attention.softmax_offset", "self_attn.sinks", NULL, 0},
    {"self_attention.q_layernorm.weight", "self_attn.q_norm.weight", NULL, 0},
    {"self_attention.q_layernorm.weight", "self_attn.q_a_layernorm.weight", NULL, 0},
    {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight", NULL, 0},
    {"self_attention.kv_layernorm.weight", "self_attn.kv_a_layernorm.weight", NULL, 0},
    {"self_attention.linear_q_proj.weight", "self_attn.q_proj.weight", NULL, 0},
    {"self_attention.linear_q_down_proj.weight", "self_attn.q_a_proj.weight", NULL, 0},
    {"self_attention.linear_q_up_proj.layer_norm_weight", "self_attn.q_a_layernorm.weight", NULL, 0},
    {"self_attention.linear_q_up_proj.weight", "self_attn.q_b_proj.weight", NULL, 0},
    {"self_attention.linear_kv_down_proj.weight", "self_attn.kv_a_proj_with_mqa.weight", NULL, 0},
    {"self_attention.linear_kv_up_proj.layer_norm_weight", "self_attn.kv_a_layernorm.weight", NULL, 0},
    {"self_attention.linear_kv_up_proj.weight", "self_attn.kv_b_proj.weight", NULL, 0},
    {"self_attention.A_log", "linear_attn.A_log", NULL, 0},
    {"self_attention.dt_bias", "linear_attn.dt_bias", NULL, 0},
    {"self_attention.out_norm.weight", "linear_attn.norm.weight", NULL, -1}, /* zero-centred there */
    {"self_attention.out_proj.weight", "linear_attn.out_proj.weight", NULL, 0},
    {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight", NULL, 0},
    {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight", NULL, 0},
    {"mlp.linear_fc1.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", 0},
    {"mlp.linear_fc2.weight", "mlp.down_proj.weight", NULL, 0},
    {"mlp.router.weight", "mlp.gate.weight", NULL, 0},
    {"mlp.router.weight", "block_sparse_moe.gate.weight", NULL, 0},
    {"mlp.router.weight", "mlp.router.weight", NULL, 0},
    {"mlp.router.bias", "mlp.router.bias", NULL, 0},
    {"mlp.router.expert_bias", "mlp.gate.e_score_correction_bias", NULL, 0},
    {"mlp.experts.linear_fc1.weight", "mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight", 0},
    {"mlp.experts.linear_fc1.weight", "block_sparse_moe.experts.*.w1.weight",
     "block_sparse_moe.experts.*.w3.weight", 0},
    {"mlp.experts.linear_fc1.weight_w", "mlp.experts.*.gate_proj.weight", NULL, 0}, /* singleton shards */
    {"mlp.experts.linear_fc1.weight_w", "block_sparse_moe.experts.*.w1.weight", NULL, 0},
    {"mlp.experts.linear_fc1.weight_v", "mlp.experts.*.up_proj.weight", NULL, 0},
    {"mlp.experts.linear_fc1.weight_v", "block_sparse_moe.experts.*.w3.weight", NULL, 0},
    {"mlp.experts.linear_fc2.weight", "mlp.experts.*.down_proj.weight", NULL, 0},
    {"mlp.experts.linear_fc2.weight", "block_sparse_moe.experts.*.w2.weight", NULL, 0},
    {"mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.gate_proj.weight",
     "mlp.shared_experts.up_proj.weight", 0},
    {"mlp.shared_experts.linear_fc1.weight", "mlp.shared_expert.gate_proj.weight",
     "mlp.shared_expert.up_proj.weight", 0},
    {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_experts.down_proj.weight", NULL, 0},
    {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_expert.down_proj.weight", NULL, 0},
    {"mlp.shared_experts.gate_weight", "mlp.shared_expert_gate.weight", NULL, 0},
    {"enorm.weight", "enorm.weight", NULL, 0}, /* of MTP layers, as the rest */
    {"hnorm.weight", "hnorm.weight", NULL, 0},
    {"eh_proj.weight", "eh_proj.weight", NULL, 0},
    {"final_layernorm.weight", "shared_head.norm.weight", NULL, 0},
    {"enorm.weight", "=mtp.pre_fc_norm_embedding.weight", NULL, 0}, /* where MTP is a model of its own */
    {"hnorm.weight", "=mtp.pre_fc_norm_hidden.weight", NULL, 0},
    {"eh_proj.weight", "=mtp.fc.weight", NULL, 0},
    {"final_layernorm.weight", "=mtp.norm.weight", NULL, 0},
};

/* A place in a global tensor: its key as in the table, the layer (-1: none), the expert, the row of `rows`. */
typedef struct key_row {
  const char *key;
  int64_t layer, expert, row, rows;
} key_row;

/* Where a row begins in Hugging Face's tensor, and how far apart its elements are. */
typedef struct hf_row {
  int32_t tensor; /* the subject's number, -1: the model has none */
  int64_t start, stride, cols;
  int8_t add;
} hf_row;

/* The number of a tensor of the layer; `*` in its name is the expert. */
static int32_t find_source(const golden_case *c, const key_row *at, const char *prefix, int64_t layer,
                           const char *hf) {
  char name[256], *out = name;
  if (*hf == '=') {
    hf++;
  } else {
    out += sprintf(out, "%s%lld.", prefix, (long long)layer);
  }
  for (; *hf && out < name + sizeof name - 24; hf++)
    out += *hf == '*' ? sprintf(out, "%lld", (long long)at->expert) : sprintf(out, "%c", *hf);
  return c->subject->find(c->layout, name);
}

/* Row `row` of a tensor of the layer. MTP layers stand behind the others or apart (qwen3_next). */
static hf_row row_of(const golden_case *c, const key_row *at, const char *hf, int64_t row) {
  int64_t layers = golden_int(c->config, "num_hidden_layers", 0);
  hf_row source = {.tensor = find_source(c, at, "model.layers.", at->layer, hf), .stride = 1, .cols = 1};
  if (source.tensor < 0 && at->layer >= layers)
    source.tensor = find_source(c, at, "mtp.layers.", at->layer - layers, hf);
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  if (source.tensor < 0 || !c->subject->tensor(c->layout, source.tensor, &info))
    return (hf_row){.tensor = -1};
  source.cols = info.elems / info.shape[0];
  source.start = row * source.cols;
  return source;
}

/* linear_qkv: groups of q query heads, with gates q gate heads, a key head and a value head. With gates
 * Hugging Face's q_proj has query and gate rows by turns, head by head. */
static bool is_qkv(const golden_case *c, const key_row *at, hf_row *source_p) {
  static const char *const start = "self_attention.linear_qkv.";
  const char *end = at->key + strlen(start);
  if (strncmp(at->key, start, strlen(start)) != 0 || strncmp(end, "layer_norm", 10) == 0) return false;
  int64_t hd = golden_int(c->config, "head_dim", 1), ng = golden_int(c->config, "num_key_value_heads", 1);
  int64_t q = golden_int(c->config, "num_attention_heads", 1) / ng;
  int64_t gates = at->rows == ng * (2 * q + 2) * hd ? 2 : 1;
  int64_t block = (gates * q + 2) * hd, g = at->row / block, o = at->row % block, row = g * hd + o % hd;
  char part = o < gates * q * hd ? 'q' : o < (gates * q + 1) * hd ? 'k' : 'v', name[160];
  if (part == 'q') {
    int64_t gate = o / (q * hd), head = g * q + o % (q * hd) / hd;
    row = (head * gates + gate) * hd + o % hd;
  }
  snprintf(name, sizeof name, "self_attn.%c_proj.%s", part, end);
  *source_p = row_of(c, at, name, row);
  return true;
}

/* in_proj.weight.SECTION and conv1d.weight.SECTION of linear attention. Hugging Face has a block for each key
 * head: query, key, its value heads, their z; and another tensor with beta and alpha. */
static bool is_linear_attention(const golden_case *c, const key_row *at, hf_row *source_p) {
  static const char *const sections[] = {"query", "key", "value", "z", "beta", "alpha"};
  const char *section = strrchr(at->key, '.') + 1;
  bool conv = strncmp(at->key, "self_attention.conv1d.weight.", 29) == 0;
  int s = 0;
  if (!conv && strncmp(at->key, "self_attention.in_proj.weight.", 30) != 0) return false;
  while (s < 5 && strcmp(sections[s], section) != 0) s++;
  int64_t nk = golden_int(c->config, "linear_num_key_heads", 1),
          dk = golden_int(c->config, "linear_key_head_dim", 1);
  int64_t r = golden_int(c->config, "linear_num_value_heads", 1) / nk,
          dv = golden_int(c->config, "linear_value_head_dim", 1);
  if (conv) {
    *source_p = row_of(c, at, "linear_attn.conv1d.weight", s * nk * dk + at->row);
    return true;
  }
  int64_t width = s < 2 ? dk : s < 4 ? r * dv : r; /* of a key head in this section */
  int64_t before = s < 2 ? s * dk : s < 4 ? 2 * dk + (s - 2) * r * dv : (s - 4) * r;
  int64_t block = s < 4 ? 2 * dk + 2 * r * dv : 2 * r;
  *source_p = row_of(c, at, s < 4 ? "linear_attn.in_proj_qkvz.weight" : "linear_attn.in_proj_ba.weight",
                     at->row / width * block + before + at->row % width);
  return true;
}

/* Experts stacked and transposed, with gate and up by turns (gpt_oss). */
static bool is_packed(const golden_case *c, const key_row *at, hf_row *source_p) {
  static const char *const keys[] = {"mlp.experts.linear_fc1.weight", "mlp.experts.linear_fc1.bias",
                                     "mlp.experts.linear_fc2.weight", "mlp.experts.linear_fc2.bias"};
  static const char *const names[] = {"mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias",
                                      "mlp.experts.down_proj", "mlp.experts.down_proj_bias"};
  int k = 0;
  while (k < 4 && strcmp(keys[k], at->key) != 0) k++;
  hf_row source = k < 4 ? row_of(c, at, names[k], at->expert) : (hf_row){.tensor = -1};
  if (source.tensor < 0) return false;
  source.cols = source.cols / at->rows;
  source.stride = at->rows;
  source.start += k >= 2 ? at->row : at->row * 2 % at->rows + (at->row >= at->rows / 2);
  *source_p = source;
  return true;
}

static hf_row source_of(const golden_case *c, const key_row *at) {
  hf_row source = {.tensor = -1};
  if (is_qkv(c, at, &source) || is_linear_attention(c, at, &source) || is_packed(c, at, &source))
    return source;
  for (size_t i = 0; i < sizeof sources / sizeof *sources && source.tensor < 0; i++) {
    if (strcmp(sources[i].key, at->key) != 0) continue;
    bool second = sources[i].second && at->row >= at->rows / 2;
    source = row_of(c, at, second ? sources[i].second : sources[i].hf,
                    second ? at->row - at->rows / 2 : at->row);
    source.add = (int8_t)sources[i].add;
  }
  return source;
}

/* Takes the prefix and the numbers of layer and expert out of a key. The row's layer and expert are -1 where
 * the key does not say them; then they are axes. */
static void split_key(const golden_case *c, const char *key, char *rest, size_t room, key_row *at) {
  char *end = (char *)(uintptr_t)key;
  *at = (key_row){.key = rest, .layer = -1, .expert = -1};
  bool decoder = strncmp(key, "decoder.layers.", 15) == 0, mtp = strncmp(key, "mtp.layers.", 11) == 0;
  if (decoder || mtp) {
    key += decoder ? 15 : 11;
    int64_t layer = strtoll(key, &end, 10);
    if (end > key) {
      at->layer = layer + (mtp ? golden_int(c->config, "num_hidden_layers", 0) : 0);
      key = end + 1;
    }
    if (mtp && strncmp(key, "transformer_layer.", 18) == 0) key += 18;
  }
  static const char *const experts = "mlp.experts.experts.";
  if (strncmp(key, experts, strlen(experts)) == 0) {
    key += strlen(experts);
    int64_t expert = strtoll(key, &end, 10);
    if (end > key) {
      at->expert = expert;
      key = end + 1;
    }
    snprintf(rest, room, "mlp.experts.%s", key);
  } else {
    snprintf(rest, room, "%s", key);
  }
}

/* An axis of the global tensor: the part of it that the piece has, and its stride in the local tensor. */
typedef struct axis {
  int64_t offset, size, stride, whole;
} axis;

/* [tensor, key, global_shape, global_offset, local_shape, fragments, replica_id, prepended axes,
 * flattened_range, first element in the local tensor, strides in the local tensor, ...]. The axes are: layer,
 * where the key does not say it; expert, likewise; row; and none, one or (conv1d) two for the columns. */
golden_verdict golden_read_piece(const golden_case *c, const json_t *piece, golden_expected *tensor) {
  const char *key = json_string_value(json_array_get(piece, 1));
  size_t prepended = (size_t)golden_at(piece, 7), count = json_array_size(json_array_get(piece, 2));
  axis axes[8] = {{0}};
  for (size_t a = 0; a < count && a < 8; a++) {
    axes[a] = (axis){.offset = golden_at(json_array_get(piece, 3), a),
                     .size = 1,
                     .whole = golden_at(json_array_get(piece, 2), a)};
    if (a < prepended) continue;
    axes[a].size = golden_at(json_array_get(piece, 4), a - prepended);
    axes[a].stride = golden_at(json_array_get(piece, 10), a - prepended);
  }
  char rest[128];
  key_row at;
  split_key(c, key, rest, sizeof rest, &at);
  const axis one = {.size = 1, .whole = 1};
  size_t next = 0;
  if (strncmp(key, "decoder.layers.", 15) == 0 && at.layer < 0) at.layer = axes[next++].offset;
  axis expert = at.expert < 0 && strncmp(rest, "mlp.experts.", 12) == 0 ? axes[next++] : one;
  axis row = axes[next++], col = next < count ? axes[count - 1] : one;
  if (at.expert >= 0) expert.offset = at.expert;
  at.rows = row.whole;
  for (int64_t i = 0; i < expert.size * row.size; i++) {
    at.expert = expert.offset + i / row.size;
    at.row = row.offset + i % row.size;
    hf_row source = source_of(c, &at);
    if (source.tensor < 0)
      return golden_differ(c, "%s: the model has nothing for key %s", tensor->name, key);
    if (source.cols != col.whole)
      return golden_differ(c, "%s: a row of %lld columns, the model's has %lld", tensor->name,
                           (long long)col.whole, (long long)source.cols);
    bool together = col.stride == 1 || col.size == 1;
    for (int64_t k = 0; k < (together ? 1 : col.size); k++)
      golden_runs_add(&tensor->runs,
                      (treadle_run){.local_start = golden_at(piece, 9) + i / row.size * expert.stride +
                                                   i % row.size * row.stride + k * col.stride,
                                    .tensor = source.tensor,
                                    .start = source.start + (col.offset + k) * source.stride,
                                    .stride = source.stride,
                                    .count = together ? col.size : 1,
                                    .add = source.add});
  }
  tensor->has_runs = true;
  return GOLDEN_EQUAL;
}
