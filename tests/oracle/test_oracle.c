/* The oracle held against docs/rules.md: toy vectors, stage tables, HybridFlow's figure 8, and the cases of
 * tests/golden. The golden checkers are told to ask the oracle instead of the library.
 * ctest: label=search */
#include "test.h"

#include "golden_support/golden.h"
#include "oracle/oracle.h"

/* ---- Help ------------------------------------------------------------------------------------ */

static oracle_model *model_of(const char *config) {
  char why[200] = "";
  json_t *json = json_loads(config, 0, NULL);
  oracle_model *model = json ? oracle_model_new(json, why) : NULL;
  if (!model) fail_msg("%s: %s", config, why);
  json_decref(json);
  return model;
}

static oracle_layout *layout_of(const oracle_model *model, const char *text, int64_t ranks,
                                int64_t strides) {
  char why[200] = "";
  oracle_layout *layout = oracle_layout_new(model, text, ranks, strides, why);
  if (!layout) fail_msg("%s on %d ranks: %s", text, (int)ranks, why);
  return layout;
}

static void refuses(const oracle_model *model, const char *text, int64_t ranks, int64_t strides,
                    const char *part) {
  char why[200] = "";
  oracle_layout *layout = oracle_layout_new(model, text, ranks, strides, why);
  if (layout || !strstr(why, part))
    fail_msg("%s on %d ranks: '%s', wanted '%s'", text, (int)ranks, why, part);
}

/* The letter of a weight: q for "model.layers.0.self_attn.q_proj.weight". */
static char letter_of(const char *name) {
  const char *at = strrchr(name, '.');
  while (at > name && at[-1] != '.') at--;
  return *at;
}

/* The rows of a tensor as "q0 q1 k0 v0 g0 u0 e0", by the letter of the weight; "-": padding. A row comes
 * from one row. */
static void rows_are(const oracle_layout *layout, int64_t rank, const char *name, const char *wanted) {
  const oracle_storage *s = oracle_layout_find(layout, rank, 0, name);
  assert_non_null(s);
  char text[256] = "";
  size_t length = 0;
  for (int64_t row = 0; row < s->shape[0]; row++) {
    int32_t tensor = s->tensor[row * s->shape[1]];
    if (row > 0) text[length++] = ' ';
    if (tensor == ORACLE_PADDING) {
      text[length++] = '-';
      continue;
    }
    const oracle_tensor *hf = &layout->model->tensors[tensor];
    int64_t first = s->index[row * s->shape[1]];
    assert_int_equal(first % hf->shape[1], 0);
    for (int64_t col = 0; col < s->shape[1]; col++) {
      assert_int_equal(s->tensor[row * s->shape[1] + col], tensor);
      assert_int_equal(s->index[row * s->shape[1] + col], first + col);
    }
    length += (size_t)snprintf(text + length, sizeof text - length, "%c%d", letter_of(hf->name),
                               (int)(first / hf->shape[1]));
  }
  assert_string_equal(text, wanted);
}

/* ---- Rules 12: toy vectors ------------------------------------------------------------------- */

#define TOY                                                                                                \
  "{\"model_type\": \"llama\", \"vocab_size\": 66, \"hidden_size\": 8, \"num_hidden_layers\": 1, "         \
  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 2, \"intermediate_size\": 4}"

static void toy_megatron(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY);
  static const char *const qkv = "decoder.layers.0.self_attention.linear_qkv.weight";
  oracle_layout *tp1 = layout_of(model, "megatron", 1, 1);
  rows_are(tp1, 0, qkv, "q0 q1 q2 q3 k0 k1 v0 v1 q4 q5 q6 q7 k2 k3 v2 v3");
  rows_are(tp1, 0, "decoder.layers.0.mlp.linear_fc1.weight", "g0 g1 g2 g3 u0 u1 u2 u3");
  oracle_layout *tp2 = layout_of(model, "megatron:tp=2", 2, 1);
  rows_are(tp2, 0, qkv, "q0 q1 q2 q3 k0 k1 v0 v1");
  rows_are(tp2, 1, qkv, "q4 q5 q6 q7 k2 k3 v2 v3");
  rows_are(tp2, 0, "decoder.layers.0.mlp.linear_fc1.weight", "g0 g1 u0 u1");
  rows_are(tp2, 1, "decoder.layers.0.mlp.linear_fc1.weight", "g2 g3 u2 u3");
  oracle_layout *tp4 = layout_of(model, "megatron:tp=4,vocab_divisible_by=17", 4, 1);
  rows_are(tp4, 0, qkv, "q0 q1 q2 q3");
  rows_are(tp4, 1, qkv, "k0 k1 v0 v1");
  rows_are(tp4, 2, qkv, "q4 q5 q6 q7");
  rows_are(tp4, 3, qkv, "k2 k3 v2 v3");
  rows_are(tp4, 3, "embedding.word_embeddings.weight",
           "e51 e52 e53 e54 e55 e56 e57 e58 e59 e60 e61 e62 e63 e64 e65 - -");
  const oracle_storage *o =
      oracle_layout_find(tp4, 1, 0, "decoder.layers.0.self_attention.linear_proj.weight");
  assert_int_equal(o->shape[1], 2);
  assert_int_equal(o->index[0], 2); /* row 0, columns 2 and 3 of 8 */
  assert_int_equal(o->index[3], 8 + 3);
  oracle_layout_free(tp1);
  oracle_layout_free(tp2);
  oracle_layout_free(tp4);
  oracle_model_free(model);
}

static void toy_engines(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY);
  static const char *const qkv = "model.layers.0.self_attn.qkv_proj.weight";
  static const char *const types[] = {"vllm", "sglang"};
  for (int i = 0; i < 2; i++) {
    char text[32];
    oracle_layout *tp1 = layout_of(model, types[i], 1, 1);
    rows_are(tp1, 0, qkv, "q0 q1 q2 q3 q4 q5 q6 q7 k0 k1 k2 k3 v0 v1 v2 v3");
    snprintf(text, sizeof text, "%s:tp=2", types[i]);
    oracle_layout *tp2 = layout_of(model, text, 2, 1);
    rows_are(tp2, 0, qkv, "q0 q1 q2 q3 k0 k1 v0 v1");
    rows_are(tp2, 1, qkv, "q4 q5 q6 q7 k2 k3 v2 v3");
    rows_are(tp2, 1, "model.layers.0.mlp.gate_up_proj.weight", "g2 g3 u2 u3");
    snprintf(text, sizeof text, "%s:tp=4", types[i]);
    oracle_layout *tp4 = layout_of(model, text, 4, 1);
    rows_are(tp4, 0, qkv, "q0 q1 k0 k1 v0 v1");
    rows_are(tp4, 1, qkv, "q2 q3 k0 k1 v0 v1");
    rows_are(tp4, 2, qkv, "q4 q5 k2 k3 v2 v3");
    rows_are(tp4, 3, qkv, "q6 q7 k2 k3 v2 v3");
    assert_int_equal(oracle_layout_find(tp4, 3, 0, "lm_head.weight")->shape[0], 32);
    oracle_layout_free(tp1);
    oracle_layout_free(tp2);
    oracle_layout_free(tp4);
  }
  oracle_model_free(model);
}

/* ---- The same for experts, linear attention and flat layouts ------------------------------------ */

/* Elements of a tensor as "name[index]" of the file, in row-major order, "-" for padding. */
static void elements_are(const oracle_layout *layout, int64_t rank, const char *name, const char *wanted) {
  const oracle_storage *s = oracle_layout_find(layout, rank, 0, name);
  assert_non_null(s);
  char text[512] = "";
  size_t length = 0;
  for (int64_t i = 0; i < s->elems; i++) {
    if (i > 0) text[length++] = ' ';
    const char *hf = s->tensor[i] < 0 ? "-" : layout->model->tensors[s->tensor[i]].name;
    if (strncmp(hf, "model.layers.0.", 15) == 0) hf += 15;
    length += (size_t)snprintf(text + length, sizeof text - length, "%s", hf);
    if (s->tensor[i] >= 0)
      length += (size_t)snprintf(text + length, sizeof text - length, "[%d]", (int)s->index[i]);
  }
  assert_string_equal(text, wanted);
}

/* Rules 12: nh 2, ng 1, hd 2; rows 0 to 7 of q_proj are q, gate of head 0, q, gate of head 1. And linear
 * attention: nk 2, nv 4, dk 1, dv 2, hidden 1. */
#define TOY_NEXT                                                                                           \
  "{\"model_type\": \"qwen3_next\", \"vocab_size\": 64, \"hidden_size\": 1, \"num_hidden_layers\": 2, "    \
  "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 2, \"intermediate_size\": 2, "    \
  "\"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "           \
  "\"linear_key_head_dim\": 1, \"linear_value_head_dim\": 2, \"linear_conv_kernel_dim\": 1, "              \
  "\"num_experts\": 8, \"moe_intermediate_size\": 2, \"shared_expert_intermediate_size\": 2}"

static void toy_linear_attention(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY_NEXT);
  static const char *const in_proj = "decoder.layers.0.self_attention.in_proj.weight";
  oracle_layout *tp1 = layout_of(model, "megatron", 1, 1), *tp2 = layout_of(model, "megatron:tp=2", 2, 1);
  rows_are(tp1, 0, "decoder.layers.1.self_attention.linear_qkv.weight",
           "q0 q1 q4 q5 q2 q3 q6 q7 k0 k1 v0 v1");
  static const int x[] = {0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15, 6, 7, 8, 9, 16, 17, 18, 19};
  static const int y[] = {0, 1, 4, 5, 2, 3, 6, 7};
  const oracle_storage *s = oracle_layout_find(tp1, 0, 0, in_proj);
  int32_t qkvz = oracle_model_find(model, "model.layers.0.linear_attn.in_proj_qkvz.weight");
  int32_t ba = oracle_model_find(model, "model.layers.0.linear_attn.in_proj_ba.weight");
  assert_int_equal(s->elems, 28);
  for (int i = 0; i < 28; i++) {
    assert_int_equal(s->tensor[i], i < 20 ? qkvz : ba);
    assert_int_equal(s->index[i], i < 20 ? x[i] : y[i - 20]);
  }
  for (int t = 0; t < 2; t++) { /* one key head per rank is already in section order */
    s = oracle_layout_find(tp2, t, 0, in_proj);
    assert_int_equal(s->elems, 14);
    for (int i = 0; i < 14; i++) assert_int_equal(s->index[i], i < 10 ? 10 * t + i : 4 * t + i - 10);
  }
  assert_int_equal(oracle_layout_find(tp1, 0, 0, "decoder.layers.0.self_attention.out_norm.weight")->add,
                   -1);
  elements_are(tp2, 1, "decoder.layers.0.self_attention.conv1d.weight",
               "linear_attn.conv1d.weight[1] linear_attn.conv1d.weight[3] linear_attn.conv1d.weight[8] "
               "linear_attn.conv1d.weight[9] linear_attn.conv1d.weight[10] linear_attn.conv1d.weight[11]");
  oracle_layout_free(tp1);
  oracle_layout_free(tp2);
  oracle_model_free(model);
}

/* The experts of each rank, by a tensor stacked over local experts. */
static void experts_are(const oracle_model *model, const char *text, int64_t ranks, const char *tensor,
                        const char *wanted) {
  oracle_layout *layout = layout_of(model, text, ranks, 1);
  char found[256] = "";
  size_t length = 0;
  for (int64_t r = 0; r < ranks; r++) {
    const oracle_storage *s = oracle_layout_find(layout, r, 0, tensor);
    assert_non_null(s);
    if (r > 0) length += (size_t)snprintf(found + length, sizeof found - length, " /");
    for (int64_t i = 0; i < s->shape[0]; i++) {
      const char *name = model->tensors[s->tensor[i * s->shape[1] * s->shape[2]]].name;
      int expert = -1;
      if (sscanf(name, "model.layers.0.mlp.experts.%d.", &expert) != 1) expert = 99; /* the shared one */
      length += (size_t)snprintf(found + length, sizeof found - length, length ? " %d" : "%d", expert);
    }
  }
  assert_string_equal(found, wanted);
  oracle_layout_free(layout);
}

static oracle_model *model_with_experts(const char *type, int experts) {
  char config[600];
  snprintf(
      config, sizeof config,
      "{\"model_type\": \"%s\", \"vocab_size\": 64, \"hidden_size\": 2, \"num_hidden_layers\": 1, "
      "\"num_attention_heads\": 4, \"head_dim\": 2, \"intermediate_size\": 4, \"num_experts\": %d, "
      "\"n_routed_experts\": %d, \"moe_intermediate_size\": 4, \"shared_expert_intermediate_size\": 4, "
      "\"n_shared_experts\": 1, \"first_k_dense_replace\": 0, \"n_group\": 2, \"q_lora_rank\": null, "
      "\"kv_lora_rank\": 2, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 2, \"v_head_dim\": 2}",
      type, experts, experts);
  return model_of(config);
}

/* Rules 6.2, 6.3, 12. */
static void where_experts_are(void **state) {
  (void)state;
  static const char *const vllm = "model.layers.0.mlp.experts.routed_experts.w13_weight";
  static const char *const sglang = "model.layers.0.mlp.experts.w13_weight";
  oracle_model *ten = model_with_experts("qwen3_moe", 10), *eight = model_with_experts("qwen3_moe", 8);
  oracle_model *grouped = model_with_experts("deepseek_v3", 8), *gated = model_with_experts("qwen2_moe", 8);
  experts_are(eight, "megatron:ep=4,experts=stacked", 4, "decoder.layers.0.mlp.experts.linear_fc1.weight",
              "0 1 / 2 3 / 4 5 / 6 7");
  experts_are(ten, "vllm:tp=4,ep=on", 4, vllm, "0 1 2 / 3 4 5 / 6 7 / 8 9");
  experts_are(grouped, "vllm:tp=4,ep=on,placement=round_robin", 4, vllm, "0 4 / 1 5 / 2 6 / 3 7");
  experts_are(grouped, "vllm:tp=2,dp=2,ep=on,placement=round_robin", 4, vllm, "0 1 / 2 3 / 4 5 / 6 7");
  experts_are(eight, "vllm:tp=4,ep=on,placement=round_robin", 4, vllm, "0 1 / 2 3 / 4 5 / 6 7");
  experts_are(grouped, "vllm:tp=4,ep=on,redundant=4", 4, vllm, "0 1 2 / 3 4 5 / 6 7 0 / 1 2 3");
  experts_are(gated, "vllm:tp=4,ep=on,redundant=4", 4, vllm, "0 1 / 2 3 / 4 5 / 6 7");
  experts_are(eight, "vllm:tp=4,ep=on,names=old", 4, sglang, "0 1 / 2 3 / 4 5 / 6 7");
  experts_are(grouped, "sglang:tp=2,ep=2,redundant=4", 2, sglang, "0 1 2 3 4 5 / 6 7 0 1 2 3");
  experts_are(grouped, "sglang:tp=2,ep=2,shared_fusion=on", 2, sglang, "0 1 2 3 99 / 4 5 6 7 99");
  experts_are(grouped, "sglang:tp=2,a2a=deepep", 2, sglang, "0 1 2 3 / 4 5 6 7");

  char text[256];
  const char *folder = test_folder();
  const char *path =
      test_write(folder, "map.json", "{\"physical_to_logical_map\": [[7, 6, 5, 4, 3, 2, 1, 0, 0, 7]]}");
  snprintf(text, sizeof text, "sglang:tp=2,ep=2,redundant=2,map=@%s", path);
  experts_are(eight, text, 2, sglang, "7 6 5 4 3 / 2 1 0 0 7");
  refuses(ten, text, 2, 1, "slots");
  snprintf(text, sizeof text, "vllm:tp=2,ep=on,redundant=2,map=@%s", path);
  experts_are(eight, text, 2, vllm, "7 6 5 4 3 / 2 1 0 0 7");
  test_remove(folder);

  refuses(eight, "megatron:ep=3", 3, 1, "experts");
  refuses(eight, "megatron:etp=8", 8, 1, "rows of experts");
  refuses(eight, "vllm:tp=2,redundant=2", 2, 1, "ep=on");
  refuses(eight, "vllm:tp=2,ep=on,redundant=1", 2, 1, "9 experts on 2");
  refuses(ten, "vllm:tp=4,ep=on,redundant=0", 4, 1, "10 experts on 4");
  refuses(ten, "sglang:tp=4,ep=4", 4, 1, "experts");
  refuses(eight, "sglang:tp=4,moe_dp=2,ep=2", 4, 1, "attn_cp");
  oracle_model_free(ten);
  oracle_model_free(eight);
  oracle_model_free(grouped);
  oracle_model_free(gated);
}

/* Rules 10.1, 10.2, 10.4: V 3, H 2 and MLP 9; norms of 2, embedding and head of 6 elements. */
#define TOY_FLAT                                                                                           \
  "{\"model_type\": \"llama\", \"vocab_size\": 3, \"hidden_size\": 2, \"num_hidden_layers\": 1, "          \
  "\"num_attention_heads\": 1, \"head_dim\": 2, \"intermediate_size\": 9, \"torch_dtype\": \"float32\"}"

static void toy_flat(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY_FLAT);
  oracle_layout *packed = layout_of(model, "fsdp:dp=4", 4, 1);
  oracle_layout *aligned = layout_of(model, "fsdp:dp=4,orig_params=on", 4, 1);
  /* the root unit: 6 + 2 + 6 = 14 elements, 4 for each rank; aligned to 4: 0..6, 8..10, 12..18 */
  elements_are(packed, 1, "_flat_param",
               "model.embed_tokens.weight[4] model.embed_tokens.weight[5] model.norm.weight[0] "
               "model.norm.weight[1]");
  elements_are(packed, 3, "_flat_param", "lm_head.weight[4] lm_head.weight[5] - -");
  elements_are(aligned, 1, "_flat_param",
               "model.embed_tokens.weight[5] - - model.norm.weight[0] model.norm.weight[1]");
  elements_are(aligned, 2, "_flat_param", "- - lm_head.weight[0] lm_head.weight[1] lm_head.weight[2]");
  oracle_layout_free(packed);
  oracle_layout_free(aligned);

  /* rules 10.2: 9 rows, dp 2, tp 2: the cut by tp comes first */
  oracle_layout *both = layout_of(model, "fsdp2:dp=2,tp=2", 4, 1);
  static const char *const rows[] = {"g0 g1 g2", "g5 g6", "g3 g4", "g7 g8"};
  for (int64_t r = 0; r < 4; r++) rows_are(both, r, "model.layers.0.mlp.gate_proj.weight", rows[r]);
  const oracle_storage *down = oracle_layout_find(both, 3, 0, "model.layers.0.mlp.down_proj.weight");
  assert_int_equal(down->shape[0], 1);
  assert_int_equal(down->shape[1], 4);
  assert_int_equal(down->index[0], 9 + 5); /* row 1, columns 5 to 8 */
  oracle_layout_free(both);

  oracle_layout *zero3 = layout_of(model, "zero3:dp=4", 4, 1),
                *zero1 = layout_of(model, "zero1:dp=4", 4, 1);
  elements_are(zero3, 2, "lm_head.weight", "lm_head.weight[4] lm_head.weight[5]");
  elements_are(zero3, 3, "lm_head.weight", "- -");
  assert_int_equal(zero1->rank[0].count, 1);
  assert_int_equal(zero1->rank[0].storages[0].elems, (model->elems + 7) / 8 * 8 / 4);
  oracle_layout_free(zero3);
  oracle_layout_free(zero1);
  refuses(model, "fsdp:dp=3", 4, 1, "ranks");
  refuses(model, "zero4:dp=4", 4, 1, "unknown kind");
  oracle_model_free(model);
}

/* Rules 10.5: embedding 640 elements (tied, two stages: a bucket of its own) behind all of a layer. */
static void toy_distopt(void **state) {
  (void)state;
  oracle_model *model =
      model_of("{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 16, "
               "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
               "\"intermediate_size\": 24, \"tie_word_embeddings\": true}");
  oracle_layout *layout = layout_of(model, "distopt:pp=2,padded_vocab_size=40", 4, 1);
  const oracle_storage *s = oracle_layout_find(layout, 0, 0, "buffers.0");
  assert_non_null(s);
  assert_int_equal(s->elems, 2688 / 2); /* tests/golden, dist_optimizer_ranges_te case 7 */
  int32_t down = oracle_model_find(model, "model.layers.0.mlp.down_proj.weight");
  int32_t gate = oracle_model_find(model, "model.layers.0.mlp.gate_proj.weight");
  for (int i = 0; i < 384; i++) assert_int_equal(s->tensor[i], down);
  for (int i = 384; i < 768; i++) assert_int_equal(s->tensor[i], gate);
  for (int i = 0; i < 320; i++) { /* half of the second bucket */
    assert_int_equal(s->tensor[1024 + i], 0);
    assert_int_equal(s->index[1024 + i], i);
  }
  oracle_layout_free(layout);
  oracle_model_free(model);
}

/* ---- Rules 2: stages ------------------------------------------------------------------------- */

/* The layers of each (stage, chunk) as "0-3 / 4-7", chunks of stage 0 first; "x": none. */
static void stages_are(int layers, const char *text, int64_t pp, const char *wanted) {
  char config[256], found[256] = "";
  snprintf(config, sizeof config,
           "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 1, \"num_hidden_layers\": %d, "
           "\"num_attention_heads\": 1, \"intermediate_size\": 1}",
           layers);
  oracle_model *model = model_of(config);
  oracle_layout *layout = layout_of(model, text, pp, 1);
  size_t length = 0;
  for (int64_t p = 0; p < pp; p++) {
    int chunks = 1;
    for (int i = 0; i < layout->rank[p].count; i++) {
      if (layout->rank[p].storages[i].chunk >= chunks) chunks = layout->rank[p].storages[i].chunk + 1;
    }
    for (int v = 0; v < chunks; v++) {
      int first = -1, last = -1;
      for (int i = 0; i < layout->rank[p].count; i++) {
        const oracle_storage *s = &layout->rank[p].storages[i];
        int layer = s->chunk == v ? model->tensors[s->tensor[0]].layer : -1;
        if (layer >= 0 && first < 0) first = layer;
        if (layer >= 0) last = layer;
      }
      if (length > 0) length += (size_t)snprintf(found + length, sizeof found - length, " / ");
      if (first < 0) {
        length += (size_t)snprintf(found + length, sizeof found - length, "x");
      } else {
        length += (size_t)snprintf(found + length, sizeof found - length, "%d-%d", first, last);
      }
    }
  }
  assert_string_equal(found, wanted);
  oracle_layout_free(layout);
  oracle_model_free(model);
}

static void stage_tables(void **state) {
  (void)state;
  stages_are(8, "megatron:pp=2,vpp=2", 2, "0-1 / 4-5 / 2-3 / 6-7");
  stages_are(14, "megatron:pp=4,embedding_split=on,loss_split=on", 4, "0-2 / 3-6 / 7-10 / 11-13");
  stages_are(30, "megatron:pp=4,vpp=2,embedding_split=on,loss_split=on", 4,
             "0-2 / 15-18 / 3-6 / 19-22 / 7-10 / 23-26 / 11-14 / 27-29");
  stages_are(61, "megatron:pp=4,first=13", 4, "0-12 / 13-28 / 29-44 / 45-60");
  stages_are(7, "megatron:pp=2,layout=\"Ettt|(t|)*2,ttL\"", 2, "0-2 / 4-4 / 3-3 / 5-6");
  stages_are(61, "vllm:pp=4", 4, "0-14 / 15-29 / 30-45 / 46-60");
  stages_are(62, "vllm:pp=4", 4, "0-14 / 15-30 / 31-46 / 47-61");
  stages_are(63, "vllm:pp=4", 4, "0-15 / 16-31 / 32-47 / 48-62");
  stages_are(61, "vllm:pp=2", 2, "0-30 / 31-60");
  stages_are(2, "vllm:pp=3", 3, "0-0 / 1-1 / x");
  stages_are(6, "vllm:pp=2,partition=\"0, 6\"", 2, "x / 0-5");
  stages_are(61, "sglang:pp=4", 4, "0-14 / 15-29 / 30-44 / 45-60");
  stages_are(62, "sglang:pp=4", 4, "0-14 / 15-29 / 30-45 / 46-61");
  stages_are(63, "sglang:pp=4", 4, "0-14 / 15-30 / 31-46 / 47-62");
}

static void impossible_layouts(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY); /* one layer, 4 heads, 2 KV heads, MLP 4 */
  static const struct {
    const char *text;
    int64_t ranks, strides;
    const char *part;
  } rows[] = {{"megatron:tp=3", 3, 1, "heads"},
              {"megatron:tp=2", 3, 1, "ranks"},
              {"megatron:tp=2,dp=2", 8, 1, "ranks"},
              {"megatron:tp=8", 8, 1, "heads"},
              {"megatron:pp=2", 2, 1, "divide by pp"},
              {"megatron:vpp=2", 1, 1, "vpp without pp"},
              {"megatron:padded_vocab_size=65", 1, 1, "padded_vocab_size"},
              {"megatron:tp=2,padded_vocab_size=67", 2, 1, "padded_vocab_size"},
              {"megatron:pp=2,layout=\"Et|m|L\"", 2, 1, "MTP"},
              {"megatron:pp=2,layout=\"E|tL", 2, 1, "quote"},
              {"megatron:layout=\"E|tL\"", 1, 1, "stages"},
              {"megatron:pp=2,cp=2,order=tp-cp-pp-dp,layout=\"Et|L\"", 4, 1, "does not end in pp"},
              {"megatron:tp=2,order=pp-dp", 2, 1, "lacks tp"},
              {"megatron:ep=2", 2, 1, "no experts"},
              {"megatron:banana=2", 2, 1, "unknown option banana"},
              {"megatron:tp=2", 2, 2, "rank map"},
              {"vllm:tp=2,ep=on", 2, 1, "no experts"},
              {"vllm:tp=2", 3, 1, "ranks"},
              {"vllm:tp=2", 6, 2, "stride"},
              {"vllm:pp=2,partition=\"1\"", 2, 1, "partition"},
              {"sglang:tp=4,attn_dp=3", 4, 1, "attn_dp"},
              {"sglang:pp=2", 2, 1, "more than the 1 layers"},
              {"hf:root=2", 2, 1, "root"},
              {"deepspeed:dp=2", 2, 1, "unknown kind"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++)
    refuses(model, rows[i].text, rows[i].ranks, rows[i].strides, rows[i].part);
  oracle_model_free(model);
}

/* ---- Rank maps and the lower bound ----------------------------------------------------------- */

static void strided_places(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY);
  oracle_layout *layout = layout_of(model, "vllm:tp=2", 8, 2);
  /* HybridFlow figure 8, ranks from 1: generation groups [1,3] [2,4] [5,7] [6,8]. */
  static const int64_t tp[] = {0, 0, 1, 1, 0, 0, 1, 1};
  for (int64_t r = 0; r < 8; r++) assert_int_equal(oracle_layout_coordinate(layout, r, "tp"), tp[r]);
  oracle_layout_free(layout);
  oracle_model_free(model);
}

/* Conformance T1: train tp 4, dp 2 and generate with tp 2 on 8 ranks. Where every tensor is cut, a rank
 * gets a quarter of the model; on consecutive ranks the mean is 0.375. Norms are everywhere and do not
 * count. */
static void hybridflow_figure_8(void **state) {
  (void)state;
  oracle_model *model =
      model_of("{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 8, "
               "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
               "\"head_dim\": 2, \"intermediate_size\": 24}");
  int64_t cut = 0;
  for (int32_t i = 0; i < model->tensor_count; i++)
    cut += model->tensors[i].ndim == 2 ? model->tensors[i].elems : 0;
  oracle_layout *train = layout_of(model, "megatron:tp=4", 8, 1);
  oracle_layout *strided = layout_of(model, "vllm:tp=2", 8, 2),
                *contiguous = layout_of(model, "vllm:tp=2", 8, 1);
  static const int64_t quarters[] = {1, 2, 2, 1,
                                     1, 2, 2, 1}; /* ranks 2, 3, 6, 7 of 1..8 hold nothing they need */
  for (int64_t r = 0; r < 8; r++) {
    assert_int_equal(4 * oracle_inbound(train, strided, r), cut);
    assert_int_equal(4 * oracle_inbound(train, contiguous, r), quarters[r] * cut);
  }
  assert_int_equal(8 * oracle_inbound_total(train, contiguous), 3 * 8 * cut); /* 0.375 a rank */
  oracle_layout_free(train);
  oracle_layout_free(strided);
  oracle_layout_free(contiguous);
  oracle_model_free(model);
}

static void bounds_by_hand(void **state) {
  (void)state;
  oracle_model *model = model_of(TOY);
  oracle_layout *all = layout_of(model, "hf", 4, 1), *root = layout_of(model, "hf:root=1", 4, 1);
  oracle_layout *tp2 = layout_of(model, "megatron:tp=2", 4, 1), *tp4 = layout_of(model, "vllm:tp=4", 4, 1);
  for (int64_t r = 0; r < 4; r++) {
    assert_int_equal(oracle_held(all, r), model->elems);
    assert_int_equal(oracle_held(root, r), r == 1 ? model->elems : 0);
    assert_int_equal(oracle_inbound(all, tp2, r), 0);
    assert_int_equal(oracle_inbound(tp2, tp2, r), 0);
    assert_int_equal(oracle_inbound(root, all, r), r == 1 ? 0 : model->elems);
    assert_int_equal(oracle_inbound(root, tp4, r), r == 1 ? 0 : oracle_held(tp4, r));
    assert_int_equal(oracle_inbound(tp2, all, r), model->elems - oracle_held(tp2, r));
  }
  /* tp4 of the engine: 66 words padded to 128, so ranks 0 to 2 have 32, 32 and 2 words, and rank 3 none. */
  int64_t norms = 3 * 8,
          layer = (2 * 8 + 4 * 8) + 8 * 2 + (2 * 8 + 8); /* qkv 2 + 2 + 2 rows; o; gate, up, down */
  static const int64_t words[] = {32, 32, 2, 0};
  for (int64_t r = 0; r < 4; r++) assert_int_equal(oracle_held(tp4, r), norms + layer + 2 * words[r] * 8);
  oracle_layout_free(all);
  oracle_layout_free(root);
  oracle_layout_free(tp2);
  oracle_layout_free(tp4);
  oracle_model_free(model);
}

/* A tied head is the embedding: one canonical tensor, held once however often it is stored. */
static void tied_counts_once(void **state) {
  (void)state;
  oracle_model *model =
      model_of("{\"model_type\": \"qwen2\", \"vocab_size\": 128, \"hidden_size\": 8, "
               "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 8, "
               "\"tie_word_embeddings\": true}");
  assert_int_equal(oracle_model_find(model, "lm_head.weight"), 0);
  oracle_layout *train = layout_of(model, "megatron:pp=2", 2, 1),
                *infer = layout_of(model, "sglang:pp=2", 2, 1);
  assert_non_null(oracle_layout_find(train, 1, 0, "output_layer.weight"));
  assert_non_null(oracle_layout_find(infer, 1, 0, "lm_head.weight"));
  assert_int_equal(oracle_inbound_total(train, infer), 0);
  assert_int_equal(oracle_held(train, 0) + oracle_held(train, 1), model->elems + 128 * 8);
  assert_true(oracle_value(model, 0, 1) != oracle_value(model, 1, 1));
  oracle_layout_free(train);
  oracle_layout_free(infer);
  oracle_model_free(model);
}

/* Together the ranks hold every canonical element; MTP layers are no part of what FSDP and ZeRO cut. */
static void covers(const oracle_model *model, const oracle_layout *layout, bool without_mtp) {
  bool *held = calloc((size_t)model->elems, sizeof *held);
  assert_non_null(held);
  for (int64_t r = 0; r < layout->ranks; r++) {
    for (int s = 0; s < layout->rank[r].count; s++) {
      const oracle_storage *storage = &layout->rank[r].storages[s];
      for (int64_t e = 0; e < storage->elems; e++) {
        if (storage->tensor[e] != ORACLE_PADDING)
          held[model->tensors[storage->tensor[e]].first + storage->index[e]] = true;
      }
    }
  }
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const oracle_tensor *tensor = &model->tensors[i];
    if (without_mtp && (tensor->layer >= model->L || strncmp(tensor->name, "mtp.", 4) == 0)) continue;
    for (int64_t e = 0; e < tensor->elems; e++) {
      if (!held[tensor->first + e]) fail_msg("%s: nobody has %s[%d]", model->type, tensor->name, (int)e);
    }
  }
  free(held);
}

static void everything_is_somewhere(void **state) {
  (void)state;
  static const char *const types[] = {"llama",       "smollm3",    "qwen2",        "qwen3",
                                      "gemma3_text", "mixtral",    "qwen2_moe",    "qwen3_moe",
                                      "deepseek_v2", "kimi_k2",    "deepseek_v3",  "glm4_moe",
                                      "gpt_oss",     "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
  static const struct {
    const char *text;
    int64_t ranks, strides;
  } rows[] = {
      {"hf", 2, 1},
      {"hf:root=1", 2, 1},
      {"megatron:tp=2,pp=2,vpp=2,cp=2,etp=1", 16, 1},
      {"megatron:tp=3,pp=2,order=cp-dp-tp-pp,spec=local,etp=1", 12, 1},
      {"megatron:tp=6,dp=1,padded_vocab_size=102,etp=1", 6, 1},
      {"vllm:tp=2,pp=2,dp=2,pcp=2", 32, 2},
      {"vllm:pp=5", 5, 1},
      {"sglang:tp=6,attn_dp=3", 12, 1},
      {"sglang:tp=12,attn_cp=2", 12, 1},
      {"fsdp:dp=3,replicate=2", 6, 1},
      {"fsdp:orig_params=on,wrap=none", 5, 1},
      {"fsdp2:dp=7", 7, 1},
      {"zero2:dp=5", 5, 1},
      {"zero3:dp=5", 5, 1},
  };
  for (size_t k = 0; k < 2 * TEST_COUNT(types); k++) {
    char config[1200];
    snprintf(config, sizeof config,
             "{\"model_type\": \"%s\", \"vocab_size\": 101, \"hidden_size\": 24, \"num_hidden_layers\": 4, "
             "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"head_dim\": 2, "
             "\"intermediate_size\": 48, \"attention_bias\": %s, \"mlp_bias\": %s, "
             "\"tie_word_embeddings\": %s, \"num_local_experts\": 12, \"num_experts\": 12, "
             "\"n_routed_experts\": 12, \"moe_intermediate_size\": 24, \"n_shared_experts\": 1, "
             "\"shared_expert_intermediate_size\": 12, \"first_k_dense_replace\": 1, \"q_lora_rank\": 12, "
             "\"kv_lora_rank\": 6, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 6, \"v_head_dim\": 2, "
             "\"num_nextn_predict_layers\": 1, \"mtp_num_hidden_layers\": 1, \"linear_num_key_heads\": 12, "
             "\"linear_num_value_heads\": 12, \"linear_key_head_dim\": 2, \"linear_value_head_dim\": 1, "
             "\"linear_conv_kernel_dim\": 2, \"use_qk_norm\": true}",
             types[k / 2], k < 4 || strcmp(types[k / 2], "gpt_oss") == 0 ? "true" : "false",
             k > 0 ? "true" : "false", /* SGLang's Llama has none */
             k % 2 || strcmp(types[k / 2], "gemma3_text") == 0 ? "true" : "false"); /* Gemma's is always */
    oracle_model *model = model_of(config);
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
      char text[128];
      bool is_flat = strncmp(rows[i].text, "fsdp", 4) == 0 || strncmp(rows[i].text, "zero", 4) == 0;
      snprintf(text, sizeof text, "%s", rows[i].text);
      char *etp = strstr(text, ",etp=1");
      if (etp && !model->E) *etp = 0;
      if (strncmp(text, "sglang", 6) == 0 && k % 2 && strcmp(types[k / 2], "llama") == 0) continue;
      if (strstr(text, "pp=5") && (model->gated || model->E))
        continue; /* most of these take no empty stage */
      oracle_layout *layout = layout_of(model, text, rows[i].ranks, rows[i].strides);
      if (strncmp(text, "zero2", 5) != 0 || !model->correction_bias) covers(model, layout, is_flat);
      oracle_layout_free(layout);
    }
    oracle_model_free(model);
  }
}

/* ---- The oracle as the subject of the golden checks ------------------------------------------ */

typedef struct subject {
  oracle_model *model;
  oracle_layout *layout;
} subject;

static char subject_why[200];

static void subject_close(void *opened) {
  subject *s = opened;
  oracle_layout_free(s->layout);
  oracle_model_free(s->model);
  free(s);
}

static void *subject_open(json_t *config, const char *text, int64_t ranks) {
  subject *s = calloc(1, sizeof *s);
  assert_non_null(s);
  s->model = oracle_model_new(config, subject_why);
  if (s->model) s->layout = oracle_layout_new(s->model, text, ranks, 1, subject_why);
  if (s->layout) return s;
  subject_close(s);
  return NULL;
}

static const char *subject_reason(void) { return subject_why; }

static int32_t subject_tensor_count(const void *opened) {
  return ((const subject *)opened)->model->tensor_count;
}

static bool subject_tensor(const void *opened, int32_t number, treadle_tensor_info *info_p) {
  const oracle_tensor *tensor = &((const subject *)opened)->model->tensors[number];
  *info_p = (treadle_tensor_info){.struct_size = sizeof *info_p,
                                  .name = tensor->name,
                                  .ndim = tensor->ndim,
                                  .elems = tensor->elems,
                                  .layer = tensor->layer};
  for (int i = 0; i < tensor->ndim; i++) info_p->shape[i] = tensor->shape[i];
  return true;
}

static int32_t subject_find(const void *opened, const char *name) {
  return oracle_model_find(((const subject *)opened)->model, name);
}

static int32_t subject_storage_count(const void *opened, int64_t rank) {
  return ((const subject *)opened)->layout->rank[rank].count;
}

static bool subject_storage(const void *opened, int64_t rank, int32_t number,
                            treadle_storage_info *info_p) {
  const oracle_storage *storage = &((const subject *)opened)->layout->rank[rank].storages[number];
  *info_p =
      (treadle_storage_info){.chunk = storage->chunk, .ndim = storage->ndim, .derived = storage->derived};
  snprintf(info_p->name, sizeof info_p->name, "%s", storage->name);
  for (int i = 0; i < storage->ndim; i++) info_p->shape[i] = storage->shape[i];
  return true;
}

/* Elements gathered to runs: each goes on as long as it can. */
static bool subject_runs(const void *opened, int64_t rank, int32_t number, treadle_run **runs_p,
                         size_t *count_p) {
  const oracle_storage *s = &((const subject *)opened)->layout->rank[rank].storages[number];
  treadle_run *runs = calloc((size_t)s->elems + 1, sizeof *runs);
  assert_non_null(runs);
  size_t count = 0;
  for (int64_t e = 0; e < s->elems;) {
    treadle_run run = {.local_start = e, .tensor = s->tensor[e], .start = s->index[e], .stride = 1};
    if (e + 1 < s->elems && s->tensor[e + 1] == run.tensor) run.stride = s->index[e + 1] - run.start;
    if (run.tensor == ORACLE_PADDING) run.stride = 0;
    if (run.tensor != ORACLE_PADDING) run.add = (int8_t)s->add;
    while (e < s->elems && s->tensor[e] == run.tensor &&
           s->index[e] == run.start + run.count * run.stride) {
      e++;
      run.count++;
    }
    runs[count++] = run;
  }
  *runs_p = runs;
  *count_p = count;
  return true;
}

static bool subject_coordinate(const void *opened, int64_t rank, const char *dimension, int64_t *index_p) {
  *index_p = oracle_layout_coordinate(((const subject *)opened)->layout, rank, dimension);
  return *index_p >= 0;
}

static const golden_subject oracle_subject = {.name = "oracle",
                                              .max_elems = 200000,
                                              .open = subject_open,
                                              .reason = subject_reason,
                                              .close = subject_close,
                                              .tensor_count = subject_tensor_count,
                                              .tensor = subject_tensor,
                                              .find = subject_find,
                                              .storage_count = subject_storage_count,
                                              .storage = subject_storage,
                                              .runs = subject_runs,
                                              .coordinate = subject_coordinate};

/* Nothing different. Large vocabularies are left out. */
static void agrees_with_golden(void **state) {
  (void)state;
  static const struct {
    const char *file;
    int equal, refused;
  } rows[] = {{"megatron_hf_map.json.gz", 21, 0},
              {"megatron_hf_map_bridge.json.gz", 12, 0},
              {"megatron_params.json.gz", 42, 10},
              {"megatron_params_te.json.gz", 46, 10},
              {"megatron_layers.json", 62, 32},
              {"megatron_ranks.json", 41, 21},
              {"megatron_vocab.json", 263, 0},
              {"vllm_params.json.gz", 85, 14},
              {"vllm_params_more.json.gz", 18, 3},
              {"vllm_params_mtp.json.gz", 4, 0},
              {"../golden_more/vllm_params_edges.json.gz", 11, 17},
              {"sglang_params.json.gz", 92, 13},
              {"sglang_params_more.json.gz", 16, 3},
              {"sglang_params_mtp.json.gz", 4, 0},
              {"vllm_pp.json", 188, 2},
              {"sglang_pp.json", 159, 31},
              {"vllm_ranks.json", 15, 0},
              {"sglang_ranks.json", 17, 3},
              {"vllm_vocab.json", 97, 12},
              {"sglang_vocab.json", 94, 0},
              {"vllm_experts.json", 81, 1},
              {"sglang_experts.json", 14, 2}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[512];
    golden_counts counts;
    snprintf(path, sizeof path, "%s/tests/golden/%s", TREADLE_SOURCE_DIR, rows[i].file);
    assert_true(golden_check_file(path, &oracle_subject, stderr, &counts));
    print_message("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", rows[i].file,
                  counts.cases, counts.equal, counts.refused, counts.skipped, counts.different);
    assert_int_equal(counts.different, 0);
    assert_int_equal(counts.equal, rows[i].equal);
    assert_int_equal(counts.refused, rows[i].refused);
  }
}

/* The checkers see what is wrong: a subject that errs in one way at a time. */
static enum { WRONG_START, WRONG_STRIDE, WRONG_FILL, WRONG_NAME, WRONG_COORDINATE } wrong;

static bool wrong_runs(const void *opened, int64_t rank, int32_t number, treadle_run **runs_p,
                       size_t *count_p) {
  bool good = subject_runs(opened, rank, number, runs_p, count_p);
  treadle_run *last = &(*runs_p)[*count_p - 1];
  if (wrong == WRONG_START) last->start++;
  if (wrong == WRONG_STRIDE) last->stride++;
  if (wrong == WRONG_FILL && last->tensor == ORACLE_PADDING) last->tensor = 0;
  return good;
}

static bool wrong_storage(const void *opened, int64_t rank, int32_t number, treadle_storage_info *info_p) {
  bool good = subject_storage(opened, rank, number, info_p);
  if (wrong == WRONG_NAME && strcmp(info_p->name, "model.norm.weight") == 0) info_p->name[0] = 'M';
  return good;
}

static bool wrong_coordinate(const void *opened, int64_t rank, const char *dimension, int64_t *index_p) {
  bool good = subject_coordinate(opened, rank, dimension, index_p);
  if (wrong == WRONG_COORDINATE && strcmp(dimension, "pp") == 0) (*index_p)++;
  return good;
}

static void errors_are_seen(void **state) {
  (void)state;
  golden_subject liar = oracle_subject;
  liar.runs = wrong_runs;
  liar.storage = wrong_storage;
  liar.coordinate = wrong_coordinate;
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  static const struct {
    const char *file;
    int wrong, different;
  } rows[] = {{"vllm_params.json.gz", WRONG_START, 31},     {"vllm_params.json.gz", WRONG_STRIDE, 31},
              {"vllm_params.json.gz", WRONG_FILL, 28},      {"vllm_params.json.gz", WRONG_NAME, 31},
              {"megatron_hf_map.json.gz", WRONG_START, 12}, {"megatron_params.json.gz", WRONG_STRIDE, 19},
              {"vllm_ranks.json", WRONG_COORDINATE, 15},    {"sglang_ranks.json", WRONG_COORDINATE, 17},
              {"sglang_vocab.json", WRONG_FILL, 50},        {"megatron_vocab.json", WRONG_STRIDE, 150}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[512];
    golden_counts counts;
    wrong = rows[i].wrong;
    snprintf(path, sizeof path, "%s/tests/golden/%s", TREADLE_SOURCE_DIR, rows[i].file);
    assert_true(golden_check_file(path, &liar, nowhere, &counts));
    if (counts.different < rows[i].different)
      fail_msg("%s, error %d: %d seen", rows[i].file, (int)wrong, counts.different);
  }
  fclose(nowhere);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(toy_megatron),
                                     cmocka_unit_test(toy_engines),
                                     cmocka_unit_test(toy_linear_attention),
                                     cmocka_unit_test(where_experts_are),
                                     cmocka_unit_test(toy_flat),
                                     cmocka_unit_test(toy_distopt),
                                     cmocka_unit_test(stage_tables),
                                     cmocka_unit_test(impossible_layouts),
                                     cmocka_unit_test(strided_places),
                                     cmocka_unit_test(hybridflow_figure_8),
                                     cmocka_unit_test(bounds_by_hand),
                                     cmocka_unit_test(tied_counts_once),
                                     cmocka_unit_test(everything_is_somewhere),
                                     cmocka_unit_test(agrees_with_golden),
                                     cmocka_unit_test(errors_are_seen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
