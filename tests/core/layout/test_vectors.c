/* The vectors of docs/rules.md (12, 2.1, 2.2, 2.4, 2.5, 3), asked by treadle_layout_runs
 * as a user would. */
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

static treadle_layout *create(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  if (treadle_layout_create(model, text, ranks, NULL, &layout) != TREADLE_OK)
    fail_msg("%s on %" PRId64 " ranks: %s", text, ranks, treadle_error_message());
  return layout;
}

/* ---- Rows of fused tensors (docs/rules.md 12) ---- */

static int32_t storage_of(const treadle_layout *layout, int64_t rank, const char *name) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    if (strcmp(info.name, name) == 0) return s;
  }
  fail_msg("%s: rank %" PRId64 " has no %s", layout->text, rank, name);
  return -1;
}

/* The letter of docs/rules.md 12: the first of q_proj, k_proj, gate_proj, ...; "." is padding. */
static char letter_of(const treadle_model *model, int32_t tensor) {
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  if (tensor < 0) return '.';
  assert_ok(treadle_model_tensor(model, tensor, &info));
  const char *letter = strstr(info.name, "_proj");
  while (letter[-1] != '.') letter--;
  return *letter;
}

/* "q0 q1 k0": the rows of a storage tensor in order, each a whole row of a Hugging Face tensor. */
static const char *rows_of(const treadle_model *model, const treadle_layout *layout, int64_t rank,
                           const char *name) {
  static char text[1024];
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t count;
  int32_t storage = storage_of(layout, rank, name);
  assert_ok(treadle_layout_storage(layout, rank, storage, &info));
  assert_ok(treadle_layout_runs(layout, rank, storage, &runs, &count));
  int64_t columns = info.ndim > 1 ? info.shape[1] : 1, next = 0;
  char *end = text;
  *end = 0;
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(runs[i].local_start, next);
    next += runs[i].count;
    for (int64_t k = 0; k < runs[i].count; k++) {
      int64_t local = runs[i].local_start + k, index = runs[i].start + k * runs[i].stride;
      if (runs[i].tensor >= 0) assert_int_equal(index % columns, local % columns);
      if (local % columns == 0)
        end += sprintf(end, "%s%c%" PRId64, local ? " " : "", letter_of(model, runs[i].tensor),
                       index / columns);
    }
  }
  assert_int_equal(next, info.shape[0] * columns);
  free(runs);
  return text;
}

typedef struct rows_vector {
  const char *layout, *name;
  int64_t ranks;
  const char *rows[4];
} rows_vector;

static void fused_rows(void **state) {
  (void)state;
  static const char *const m_qkv = "decoder.layers.0.self_attention.linear_qkv.weight",
                           *const e_qkv = "model.layers.0.self_attn.qkv_proj.weight";
  const rows_vector vectors[] = {
      {"megatron", m_qkv, 1, {"q0 q1 q2 q3 k0 k1 v0 v1 q4 q5 q6 q7 k2 k3 v2 v3"}},
      {"megatron:tp=2", m_qkv, 2, {"q0 q1 q2 q3 k0 k1 v0 v1", "q4 q5 q6 q7 k2 k3 v2 v3"}},
      {"megatron:tp=4", m_qkv, 4, {"q0 q1 q2 q3", "k0 k1 v0 v1", "q4 q5 q6 q7", "k2 k3 v2 v3"}},
      {"vllm", e_qkv, 1, {"q0 q1 q2 q3 q4 q5 q6 q7 k0 k1 k2 k3 v0 v1 v2 v3"}},
      {"vllm:tp=2", e_qkv, 2, {"q0 q1 q2 q3 k0 k1 v0 v1", "q4 q5 q6 q7 k2 k3 v2 v3"}},
      {"vllm:tp=4",
       e_qkv,
       4,
       {"q0 q1 k0 k1 v0 v1", "q2 q3 k0 k1 v0 v1", "q4 q5 k2 k3 v2 v3", "q6 q7 k2 k3 v2 v3"}},
      {"sglang:tp=4",
       e_qkv,
       4,
       {"q0 q1 k0 k1 v0 v1", "q2 q3 k0 k1 v0 v1", "q4 q5 k2 k3 v2 v3", "q6 q7 k2 k3 v2 v3"}},
      {"megatron:tp=2", "decoder.layers.0.mlp.linear_fc1.weight", 2, {"g0 g1 u0 u1", "g2 g3 u2 u3"}},
      {"vllm:tp=2", "model.layers.0.mlp.gate_up_proj.weight", 2, {"g0 g1 u0 u1", "g2 g3 u2 u3"}},
      {"vllm:tp=4", "model.layers.0.mlp.gate_up_proj.weight", 4, {"g0 u0", "g1 u1", "g2 u2", "g3 u3"}},
  };
  for (int64_t hidden = 3; hidden <= 5; hidden += 2) {
    small_config config = {.V = 64, .H = hidden, .nh = 4, .ng = 2, .hd = 2, .I = 4};
    treadle_model *model = small_model(&config);
    for (size_t i = 0; i < TEST_COUNT(vectors); i++) {
      treadle_layout *layout = create(model, vectors[i].layout, vectors[i].ranks);
      for (int64_t r = 0; r < vectors[i].ranks; r++)
        assert_string_equal(rows_of(model, layout, r, vectors[i].name), vectors[i].rows[r]);
      treadle_layout_destroy(layout);
    }
    treadle_model_close(model);
  }
}

/* Biases follow their weights (qwen2 has them in q, k and v). */
static void fused_biases(void **state) {
  (void)state;
  static const small_config config = {.type = "qwen2", .V = 64, .H = 3, .nh = 4, .ng = 2, .hd = 2, .I = 4};
  treadle_model *model = small_model(&config);
  treadle_layout *megatron = create(model, "megatron:tp=4", 4), *vllm = create(model, "vllm:tp=4", 4);
  assert_string_equal(rows_of(model, megatron, 3, "decoder.layers.0.self_attention.linear_qkv.bias"),
                      "k2 k3 v2 v3");
  assert_string_equal(rows_of(model, vllm, 1, "model.layers.0.self_attn.qkv_proj.bias"),
                      "q2 q3 k0 k1 v0 v1");
  treadle_layout_destroy(megatron);
  treadle_layout_destroy(vllm);
  treadle_model_close(model);
}

/* Columns: row-parallel tensors have strided runs, one a row. */
static void columns(void **state) {
  (void)state;
  static const small_config config = {.V = 64, .H = 3, .nh = 4, .ng = 2, .hd = 2, .I = 4};
  treadle_model *model = small_model(&config);
  treadle_layout *layout = create(model, "megatron:tp=2", 2);
  treadle_run *runs;
  size_t count;
  assert_ok(treadle_layout_runs(layout, 1, storage_of(layout, 1, "decoder.layers.0.mlp.linear_fc2.weight"),
                                &runs, &count));
  assert_int_equal(count, 3); /* [3, 4] cut to [3, 2] */
  for (int64_t i = 0; i < 3; i++) {
    assert_int_equal(runs[i].tensor, small_tensor(model, "model.layers.0.mlp.down_proj.weight"));
    assert_int_equal(runs[i].local_start, i * 2);
    assert_int_equal(runs[i].start, i * 4 + 2);
    assert_int_equal(runs[i].stride, 1);
    assert_int_equal(runs[i].count, 2);
  }
  free(runs);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* ---- Vocabulary padding (docs/rules.md 3) ---- */

typedef struct vocabulary {
  int64_t rows, divisible;
  int64_t megatron[5]; /* tp 1, 2, 4, 8, 16 */
  int64_t engines;     /* a multiple of 64 */
} vocabulary;

static const vocabulary vocabularies[] = {
    {151936, 128, {151936, 152064, 152064, 152576, 153600}, 151936},
    {152064, 128, {152064, 152064, 152064, 152576, 153600}, 152064},
    {128256, 128, {128256, 128256, 128512, 129024, 129024}, 128256},
    {129280, 1280, {129280, 130560, 133120, 133120, 143360}, 129280},
    {129280, 128, {129280, 129280, 129536, 130048, 131072}, 129280},
    {201088, 128, {201088, 201088 + 128, 201216, 201728, 202752}, 201088},
    {49152, 128, {49152, 49152, 49152, 49152, 49152}, 49152},
    {151552, 128, {151552, 151552, 151552, 151552, 151552}, 151552},
    {163840, 128, {163840, 163840, 163840, 163840, 163840}, 163840},
    {102400, 128, {102400, 102400, 102400, 102400, 102400}, 102400},
};

/* The padded rows of all ranks; real rows come first, in order, and zeros follow. */
static int64_t padded(const treadle_model *model, const char *text, int64_t tp, const char *name) {
  treadle_layout *layout = create(model, text, tp);
  int64_t rows = 0, real = 0, all = model->tensors[0].shape[0];
  for (int64_t r = 0; r < tp; r++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs;
    size_t count;
    int32_t storage = storage_of(layout, r, name);
    assert_ok(treadle_layout_storage(layout, r, storage, &info));
    assert_ok(treadle_layout_runs(layout, r, storage, &runs, &count));
    assert_true(count >= 1 && count <= 2);
    for (size_t i = 0; i < count; i++) {
      if (runs[i].tensor >= 0) {
        assert_int_equal(runs[i].start, real);
        real += runs[i].count;
      } else {
        assert_int_equal(real, all);
      }
    }
    rows += info.shape[0];
    assert_int_equal(rows, (r + 1) * info.shape[0]); /* the same on every rank */
    free(runs);
  }
  assert_int_equal(real, all);
  treadle_layout_destroy(layout);
  return rows;
}

static void padded_vocabularies(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(vocabularies); i++) {
    const vocabulary *v = &vocabularies[i];
    small_config config = {.V = v->rows, .H = 1, .nh = 16, .ng = 16, .hd = 1, .I = 16};
    treadle_model *model = small_model(&config);
    for (int k = 0; k < 5; k++) {
      char text[64];
      snprintf(text, sizeof text, "megatron:tp=%d,vocab_divisible_by=%" PRId64, 1 << k, v->divisible);
      assert_int_equal(padded(model, text, 1 << k, "embedding.word_embeddings.weight"), v->megatron[k]);
      assert_int_equal(padded(model, text, 1 << k, "output_layer.weight"), v->megatron[k]);
    }
    assert_int_equal(padded(model, "vllm:tp=2", 2, "model.embed_tokens.weight"), v->engines);
    assert_int_equal(padded(model, "sglang:tp=4", 4, "lm_head.weight"), v->engines);
    treadle_model_close(model);
  }
}

/* docs/rules.md 3: where ceil64(V) does not divide, SGLang pads to 64 * tp and vLLM refuses. */
static void vocabularies_that_do_not_divide(void **state) {
  (void)state;
  static const struct { int64_t rows, tp, sglang; } cases[] = {{320, 3, 384}, {100, 6, 384}, {200, 5, 320}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    small_config config = {.V = cases[i].rows, .H = 1, .nh = 30, .ng = 30, .hd = 1, .I = 30};
    treadle_model *model = small_model(&config);
    treadle_layout *layout;
    char text[32];
    snprintf(text, sizeof text, "sglang:tp=%" PRId64, cases[i].tp);
    assert_int_equal(padded(model, text, cases[i].tp, "model.embed_tokens.weight"), cases[i].sglang);
    snprintf(text, sizeof text, "vllm:tp=%" PRId64, cases[i].tp);
    if (cases[i].rows != 200)
      assert_refused("padded vocabulary", treadle_layout_create(model, text, cases[i].tp, NULL, &layout));
    treadle_model_close(model);
  }
}

/* ---- Stages (docs/rules.md 2.1, 2.2, 2.4, 2.5) ---- */

typedef struct stages_vector {
  int64_t layers, pp;
  const char *text;
  const char *stages; /* ranges by stage, a comma between its chunks; "-" where a chunk has none */
} stages_vector;

static const stages_vector stages_vectors[] = {
    /* Megatron, 2.1 */
    {8, 2, "megatron:pp=2,vpp=2", "0-1,4-5 2-3,6-7"},
    {14, 4, "megatron:pp=4,embedding_split=on,loss_split=on", "0-2 3-6 7-10 11-13"},
    {30, 4, "megatron:pp=4,vpp=2,embedding_split=on,loss_split=on",
     "0-2,15-18 3-6,19-22 7-10,23-26 11-14,27-29"},
    {61, 4, "megatron:pp=4,first=13", "0-12 13-28 29-44 45-60"},
    {8, 4, "megatron:pp=4", "0-1 2-3 4-5 6-7"},
    {9, 2, "megatron:pp=2,last=3", "0-5 6-8"},                        /* 2.1 */
    {10, 2, "megatron:pp=2,first=4,last=6,vpp=2", "0-1,5-6 2-4,7-9"}, /* Megatron fails here */
    {12, 4, "megatron:pp=4,first=2,last=2,vpp=2",
     "0-0,6-6 1-2,7-8 3-4,9-10 5-5,11-11"}, /* the closed form */
    {7, 2, "megatron:pp=2,embedding_split=on", "0-2 3-6"},
    {7, 2, "megatron:pp=2,loss_split=on", "0-3 4-6"},
    /* layout strings, 2.2 */
    {4, 2, "megatron:pp=2,layout=Ettt|tL", "0-2 3-3"},
    {3, 2, "megatron:pp=2,layout=Et||tt|L", "0-0,1-2 -,-"},
    {4, 2, "megatron:pp=2,layout=|Ett|tt|L", "-,2-3 0-1,-"},
    {4, 2, "megatron:pp=2,layout=Ett|tt|L|", "0-1,- 2-3,-"},
    {9, 5, "megatron:pp=5,layout=\"Ettt|(tt|)*3,L\"", "0-2 3-4 5-6 7-8 -"},
    {8, 3, "megatron:pp=3,layout=Ett|tttt|ttL", "0-1 2-5 6-7"}, /* MindSpeed's list [2,4,2] */
    {28, 3, "megatron:pp=3,layout=\"Et*9|t*10|t*9,L\"", "0-8 9-18 19-27"},
    {36, 5, "megatron:pp=5,first=6,last=6", "0-5 6-13 14-21 22-29 30-35"},
    {32, 6, "megatron:pp=6,first=4,last=4", "0-3 4-9 10-15 16-21 22-27 28-31"},
    /* vLLM, 2.4 */
    {61, 4, "vllm:pp=4", "0-14 15-29 30-45 46-60"},
    {62, 4, "vllm:pp=4", "0-14 15-30 31-46 47-61"},
    {63, 4, "vllm:pp=4", "0-15 16-31 32-47 48-62"},
    {61, 2, "vllm:pp=2", "0-30 31-60"},
    {2, 3, "vllm:pp=3", "0-0 1-1 -"},
    {5, 8, "vllm:pp=8", "- - 0-0 1-1 2-2 3-3 4-4 -"},
    {5, 3, "vllm:pp=3,partition=\"4,0,1\"", "0-3 - 4-4"},
    /* SGLang, 2.5 */
    {61, 4, "sglang:pp=4", "0-14 15-29 30-44 45-60"},
    {62, 4, "sglang:pp=4", "0-14 15-29 30-45 46-61"},
    {63, 4, "sglang:pp=4", "0-14 15-30 31-46 47-62"},
    {5, 3, "sglang:pp=3,partition=\"1,2,2\"", "0-0 1-2 3-4"},
};

/* The layers of one chunk as "first-last", from the tensors that its storage holds; in Megatron the names
 * count from 0 in every chunk, in the engines they keep the layer's own number. */
static char *add_chunk(char *end, const treadle_model *model, const treadle_layout *layout, int64_t rank,
                       int32_t chunk, bool local) {
  int64_t first = -1, last = -1;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
    treadle_run *runs;
    size_t count;
    char number[32];
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    if (info.chunk != chunk) continue;
    assert_ok(treadle_layout_runs(layout, rank, s, &runs, &count));
    assert_ok(treadle_model_tensor(model, runs[0].tensor, &tensor));
    free(runs);
    if (tensor.layer < 0) continue;
    if (first < 0)
      first = tensor.layer;
    else
      assert_true(tensor.layer == last || tensor.layer == last + 1);
    last = tensor.layer;
    snprintf(number, sizeof number, ".layers.%" PRId64 ".", local ? last - first : last);
    if (!strstr(info.name, number))
      fail_msg("%s: layer %" PRId64 " is named %s", layout->text, last, info.name);
  }
  return first < 0 ? end + sprintf(end, "-") : end + sprintf(end, "%" PRId64 "-%" PRId64, first, last);
}

static void layers_of_stages(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(stages_vectors); i++) {
    const stages_vector *vector = &stages_vectors[i];
    small_config config = {.V = 2, .L = vector->layers};
    treadle_model *model = small_model(&config);
    treadle_layout *layout = create(model, vector->text, vector->pp);
    char text[1024], *end = text;
    int32_t chunks = 1;
    for (const char *at = vector->stages; *at && *at != ' '; at++) chunks += *at == ',';
    for (int64_t p = 0; p < vector->pp; p++)
      for (int32_t v = 0; v < chunks; v++) {
        if (end > text && v < chunks) *end++ = v ? ',' : ' ';
        end = add_chunk(end, model, layout, p, v, vector->text[0] == 'm');
      }
    *end = 0;
    if (strcmp(text, vector->stages) != 0)
      print_error("%s of %" PRId64 " layers: %s\n", vector->text, vector->layers, text);
    assert_string_equal(text, vector->stages);
    treadle_layout_destroy(layout);
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fused_rows),
      cmocka_unit_test(fused_biases),
      cmocka_unit_test(columns),
      cmocka_unit_test(padded_vocabularies),
      cmocka_unit_test(vocabularies_that_do_not_divide),
      cmocka_unit_test(layers_of_stages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
