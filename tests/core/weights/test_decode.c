/* src/core/weights/decode.c and loading from files in every form: each element of a window is what the formulas of the
 * formats, written out here, say of the file. */
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "layout/layout.h"

#include <jansson.h>

#include <math.h>

enum { MOST = 64 };

/* A checkpoint that is made here. */
typedef struct files {
  treadle_stored tensors[MOST];
  int32_t count;
  void *data[MOST];
} files;

static void *add(files *f, const char *name, const char *type, size_t each, int ndim,
                 const int64_t *shape) {
  treadle_stored *stored = &f->tensors[f->count];
  *stored = (treadle_stored){.name = strdup(name), .dtype_text = type, .ndim = ndim, .elems = 1};
  for (int d = 0; d < ndim; d++) {
    stored->shape[d] = shape[d];
    stored->elems *= shape[d];
  }
  (void)treadle_dtype_parse(type, &stored->dtype);
  stored->bytes = (size_t)stored->elems * each;
  stored->data = f->data[f->count++] = malloc(stored->bytes);
  return (void *)(uintptr_t)stored->data;
}

static void fill(void *data, size_t bytes, uint64_t seed) {
  treadle_random random = {seed};
  for (size_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = (uint8_t)treadle_random_below(&random, 256);
}

/* The canonical tensors of a model but `without`, as bf16 of random values. */
static void add_others(files *f, const treadle_model *model, const char *const *without) {
  int32_t count = treadle_model_tensor_count(model);
  for (int32_t i = 0; i < count; i++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    bool left_out = false;
    assert_ok(treadle_model_tensor(model, i, &info));
    for (int w = 0; without[w]; w++) left_out = left_out || strstr(info.name, without[w]);
    if (left_out) continue;
    uint16_t *data = add(f, info.name, "BF16", 2, info.ndim, info.shape);
    for (int64_t e = 0; e < info.elems; e++) data[e] = treadle_bf16_of_float((float)(e % 97) - 48);
  }
}

/* Opens what was written with a config. */
static treadle_model *open_files(files *f, const char *config) {
  char path[200];
  treadle_model *model;
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_file_write(path, config, strlen(config)));
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_safetensors_write(path, f->tensors, f->count));
  assert_ok(treadle_model_open(folder, NULL, &model));
  test_remove(folder);
  for (int32_t i = 0; i < f->count; i++) free((void *)(uintptr_t)f->tensors[i].name);
  return model;
}

static void release(files *f) {
  for (int32_t i = 0; i < f->count; i++) free(f->data[i]);
}

/* A storage tensor of rank 0 in a layout, as a copy. */
static uint16_t *load(const treadle_model *model, const char *text, const char *name, int64_t elems) {
  treadle_layout *layout;
  uint16_t *copy = NULL;
  assert_ok(treadle_layout_create(model, text, 2, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, 0));
  assert_ok(treadle_layout_load(layout, 0, window));
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, 0) && !copy; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, 0, i, &info));
    if (strcmp(info.name, name) != 0) continue;
    assert_int_equal(info.dtype, TREADLE_BF16);
    assert_int_equal(info.bytes, elems * 2);
    copy = malloc(info.bytes);
    memcpy(copy, window + info.offset_bytes, info.bytes);
  }
  if (!copy) fail_msg("%s has no %s", text, name);
  free(window);
  treadle_layout_destroy(layout);
  return copy;
}

static treadle_model *model_of(const char *config) {
  json_error_t error;
  json_t *json = json_loads(config, 0, &error);
  treadle_model *model;
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  json_decref(json);
  return model;
}

/* ---- MXFP4 ------------------------------------------------------------------------------------- */

static const char GPT_OSS[] =
    "{\"model_type\": \"gpt_oss\", \"vocab_size\": 32, \"hidden_size\": 64, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 8, \"intermediate_size\": 96,"
    " \"num_local_experts\": 3, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}";

/* Value of [e, out, in] of blocks [3, outs, ins / 32, 16]. */
static float mxfp4_value(const uint8_t *blocks, const uint8_t *scales, int64_t row, int64_t in,
                         int64_t ins) {
  static const float codes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  uint8_t byte = blocks[(row * (ins / 32) + in / 32) * 16 + in % 32 / 2];
  return ldexpf(codes[in % 2 ? byte >> 4 : byte & 15], scales[row * (ins / 32) + in / 32] - 127);
}

static void mxfp4(void **state) {
  (void)state;
  files f = {.count = 0};
  enum { E = 3, H = 64, I = 96 };
  treadle_model *config = model_of(GPT_OSS);
  add_others(&f, config, (const char *const[]){"gate_up_proj", "down_proj", NULL});
  treadle_model_close(config);
  uint8_t *up_blocks = add(&f, "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", 1, 4,
                           (int64_t[]){E, 2 * I, H / 32, 16});
  uint8_t *up_scales =
      add(&f, "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", 1, 3, (int64_t[]){E, 2 * I, H / 32});
  uint8_t *down_blocks =
      add(&f, "model.layers.0.mlp.experts.down_proj_blocks", "U8", 1, 4, (int64_t[]){E, H, I / 32, 16});
  uint8_t *down_scales =
      add(&f, "model.layers.0.mlp.experts.down_proj_scales", "U8", 1, 3, (int64_t[]){E, H, I / 32});
  fill(up_blocks, E * 2 * I * H / 2, 1);
  fill(down_blocks, E * H * I / 2, 2);
  for (int i = 0; i < E * 2 * I * H / 32; i++) up_scales[i] = (uint8_t)(100 + i % 50);
  for (int i = 0; i < E * H * I / 32; i++) down_scales[i] = (uint8_t)(110 + i % 30);
  uint16_t *bias =
      add(&f, "model.layers.0.mlp.experts.gate_up_proj_bias", "BF16", 2, 2, (int64_t[]){E, 2 * I});
  uint16_t *down_bias =
      add(&f, "model.layers.0.mlp.experts.down_proj_bias", "BF16", 2, 2, (int64_t[]){E, H});
  memset(bias, 0, E * 2 * I * 2);
  memset(down_bias, 0, E * H * 2);
  treadle_model *model = open_files(&f, GPT_OSS);

  uint16_t *up =
      load(model, "hf", "model.layers.0.mlp.experts.gate_up_proj", E * H * 2 * I);       /* [E, H, 2I] */
  uint16_t *down = load(model, "hf", "model.layers.0.mlp.experts.down_proj", E * I * H); /* [E, I, H] */
  for (int64_t e = 0; e < E; e++)
    for (int64_t h = 0; h < H; h++) {
      for (int64_t o = 0; o < 2 * I; o++)
        assert_int_equal(up[(e * H + h) * 2 * I + o],
                         treadle_bf16_of_float(mxfp4_value(up_blocks, up_scales, e * 2 * I + o, h, H)));
      for (int64_t i = 0; i < I; i++)
        assert_int_equal(down[(e * I + i) * H + h],
                         treadle_bf16_of_float(mxfp4_value(down_blocks, down_scales, e * H + h, i, I)));
    }
  /* vLLM: rows [gate, up] interleaved, [E, 2I / tp, H]; rank 0 has the first half of the rows. */
  uint16_t *half =
      load(model, "vllm:tp=2", "model.layers.0.mlp.experts.routed_experts.w13_weight", E * I * H);
  for (int64_t e = 0; e < E; e++)
    for (int64_t o = 0; o < I; o++)
      for (int64_t h = 0; h < H; h++)
        assert_int_equal(half[(e * I + o) * H + h], up[(e * H + h) * 2 * I + o]);
  free(half);
  free(up);
  free(down);
  treadle_model_close(model);
  release(&f);
}

/* ---- fp8 --------------------------------------------------------------------------------------- */

static const char QWEN[] =
    "{\"model_type\": \"qwen3\", \"vocab_size\": 32, \"hidden_size\": 200, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 8, \"intermediate_size\": 150,"
    " \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": true}";

static void fp8(void **state) {
  (void)state;
  files f = {.count = 0};
  enum { H = 200, I = 150 };
  treadle_model *config = model_of(QWEN);
  add_others(&f, config, (const char *const[]){"mlp.down_proj", NULL});
  treadle_model_close(config);
  uint8_t *codes = add(&f, "model.layers.0.mlp.down_proj.weight", "F8_E4M3", 1, 2, (int64_t[]){H, I});
  float *scales = add(&f, "model.layers.0.mlp.down_proj.weight_scale_inv", "F32", 4, 2, (int64_t[]){2, 2});
  for (int i = 0; i < H * I; i++) codes[i] = (uint8_t)(i * 7 % 127 + i % 2 * 128);
  for (int i = 0; i < 4; i++) scales[i] = 0.37F + (float)i;
  treadle_model *model = open_files(&f, QWEN);
  uint16_t *down = load(model, "megatron:tp=2", "decoder.layers.0.mlp.linear_fc2.weight", H * I / 2);
  for (int64_t r = 0; r < H; r++)
    for (int64_t c = 0; c < I / 2; c++)
      assert_int_equal(down[r * (I / 2) + c], treadle_bf16_of_float(treadle_fp8_to_float(codes[r * I + c]) *
                                                                    scales[r / 128 * 2 + c / 128]));
  free(down);
  treadle_model_close(model);
  release(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mxfp4), cmocka_unit_test(fp8)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
