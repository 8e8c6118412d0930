/* treadle convert with fp8 files that have a scale for each block. What is written is compared, element by element, with
 * the formulas of the format, written out here. */
#include "cli/conversion.h"

#include "base/random.h"
#include "io/file.h"
#include "io/json.h"
#include "test.h"

#include <fcntl.h>
#include <math.h>

/* Widths that are no multiples of 128, so that the last blocks are smaller. */
static const char fp8[] =
    "{\n  \"model_type\": \"deepseek_v3\",\n  \"rms_norm_eps\": 1e-06,\n  \"dtype\": \"bfloat16\",\n"
    "  \"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
    "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]},\n"
    "  \"vocab_size\": 100, \"hidden_size\": 192, \"num_attention_heads\": 4, \"intermediate_size\": 160, "
    "\"num_key_value_heads\": 4, \"num_hidden_layers\": 3, \"moe_intermediate_size\": 144, "
    "\"n_routed_experts\": 4, \"n_shared_experts\": 1, \"q_lora_rank\": 136, \"kv_lora_rank\": 40, "
    "\"qk_nope_head_dim\": 24, \"qk_rope_head_dim\": 8, \"v_head_dim\": 24, \"first_k_dense_replace\": 1, "
    "\"moe_layer_freq\": 1, \"n_group\": 2, \"num_experts_per_tok\": 2, \"num_nextn_predict_layers\": 1, "
    "\"topk_method\": \"noaux_tc\"}\n";
static const char *const ways[] = {"megatron:tp=2,pp=2,last=1,ep=2", "megatron:tp=4,ep=2,etp=1"};

/* ---- The formulas ------------------------------------------------------------------------------ */

static float of_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bf16(float value) { /* to the nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_e4m3(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  float value = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
  return code & 0x80 ? -value : value;
}

/* Is none of the other codes closer? */
static bool is_nearest(uint8_t code, float value) {
  static float values[256];
  if (values[1] == 0)
    for (int other = 0; other < 256; other++) values[other] = of_e4m3((uint8_t)other);
  for (int other = 0; other < 256; other++)
    if ((other & 127) != 127 && fabsf(values[other] - value) < fabsf(values[code] - value)) return false;
  return true;
}

/* ---- Folders ----------------------------------------------------------------------------------- */

static float scale_of(const treadle_stored *weight, const treadle_stored *scales, int64_t at) {
  int64_t row = at / weight->shape[1], column = at % weight->shape[1];
  return ((const float *)scales->data)[row / 128 * scales->shape[1] + column / 128];
}

/* Overwrites all scales with numbers of many bits. */
static void scatter_scales(const char *name) {
  treadle_checkpoint *checkpoint = conversion_open(name);
  treadle_random random = {7};
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *stored = &checkpoint->tensors[i];
    if (!strstr(stored->name, "_scale_inv")) continue;
    int fd = open(checkpoint->files[stored->file], O_WRONLY);
    int64_t at = 8 + (int64_t)treadle_checkpoint_header(checkpoint, stored->file).length;
    for (int64_t e = 0; e < stored->elems; e++) {
      float scale = 0.001F * (float)(1 + treadle_random_below(&random, 1000003)) / 1000;
      assert_int_equal(pwrite(fd, &scale, sizeof scale, at + (int64_t)stored->begin + e * 4), sizeof scale);
    }
    close(fd);
  }
  treadle_checkpoint_close(checkpoint);
}

static json_t *load_json(const char *folder, const char *name) {
  char path[300];
  json_t *root;
  snprintf(path, sizeof path, "%s/%s", conversion_at(folder), name);
  assert_ok(treadle_json_load(path, &root));
  return root;
}

/* The index names just what is there, file by file, and its bytes. */
static void check_index(const char *name) {
  treadle_checkpoint *checkpoint = conversion_open(name); /* refuses names too many or too few */
  json_t *index = load_json(name, "model.safetensors.index.json");
  json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
  assert_int_equal(json_object_size(json_object_get(index, "weight_map")), checkpoint->count);
  assert_int_equal(json_integer_value(total), checkpoint->total_bytes);
  json_decref(index);
  treadle_checkpoint_close(checkpoint);
}

/* ---- fp8 --------------------------------------------------------------------------------------- */

/* Each tensor of `decoded` is what the files of `coded` mean, as bf16, and none is missing. */
static void check_decoded(const char *coded, const char *decoded) {
  treadle_checkpoint *from = conversion_open(coded), *to = conversion_open(decoded);
  int32_t scales_seen = 0;
  for (int32_t i = 0; i < from->count; i++) {
    const treadle_stored *a = &from->tensors[i], *scales = conversion_find(from, a->name, "_scale_inv");
    const treadle_stored *b = conversion_find(to, a->name, "");
    if (strstr(a->name, "_scale_inv")) {
      scales_seen++;
      assert_null(b);
      continue;
    }
    assert_non_null(b);
    assert_string_equal(b->dtype_text, scales ? "BF16" : a->dtype_text);
    if (!scales) assert_memory_equal(a->data, b->data, a->bytes);
    for (int64_t e = 0; scales && e < a->elems; e++)
      if (((const uint16_t *)b->data)[e] !=
          to_bf16(of_e4m3(((const uint8_t *)a->data)[e]) * scale_of(a, scales, e)))
        fail_msg("%s: element %lld", a->name, (long long)e);
  }
  assert_true(scales_seen > 0);
  assert_int_equal(to->count, from->count - scales_seen);
  treadle_checkpoint_close(from);
  treadle_checkpoint_close(to);
}

/* Codes and scales are made of these values as DeepSeek's weight_quant does it. */
static void check_quantised(const treadle_stored *values, const treadle_stored *codes,
                            const treadle_stored *scales) {
  const int64_t rows = values->shape[0], columns = values->shape[1];
  for (int64_t r = 0; r < rows; r += 128)
    for (int64_t c = 0; c < columns; c += 128) {
      float largest = 0, scale = scale_of(codes, scales, r * columns + c);
      for (int64_t i = r; i < r + 128 && i < rows; i++)
        for (int64_t k = c; k < c + 128 && k < columns; k++)
          largest = fmaxf(largest, fabsf(of_bf16(((const uint16_t *)values->data)[i * columns + k])));
      if (scale != (largest > 0 ? largest / 448 : 1))
        fail_msg("%s: scale at %d, %d", codes->name, (int)r, (int)c);
      for (int64_t i = r; i < r + 128 && i < rows; i++)
        for (int64_t k = c; k < c + 128 && k < columns; k++)
          if (!is_nearest(((const uint8_t *)codes->data)[i * columns + k],
                          of_bf16(((const uint16_t *)values->data)[i * columns + k]) / scale))
            fail_msg("%s: code at %d, %d", codes->name, (int)i, (int)k);
    }
}

/* fp8 files come back as bf16: straight, and by way of Megatron. */
static void fp8_becomes_bf16(void **state) {
  (void)state;
  conversion_make("hf", fp8, 2, true);
  scatter_scales("hf");
  conversion_run("hf", "hf:dtype=bf16", "hf", "cast");
  check_decoded("hf", "cast");
  check_index("cast");
  conversion_unquantised(fp8, "cast");
  for (size_t i = 0; i < TEST_COUNT(ways); i++) {
    conversion_run("hf", ways[i], "hf", "there");
    conversion_run(ways[i], "hf", "there", "back");
    conversion_same("cast", "back");
  }
}

/* Values that were fp8 once are so again with dtype=fp8, all files alike; others are quantised, block by block. */
static void fp8_is_made(void **state) {
  (void)state;
  conversion_make("hf", fp8, 2, true);
  for (size_t i = 0; i < TEST_COUNT(ways); i++) {
    conversion_run("hf", ways[i], "hf", "there");
    conversion_run(ways[i], "hf:dtype=fp8", "there", "back");
    conversion_same("hf", "back");
  }
  scatter_scales("hf");
  conversion_run("hf", ways[0], "hf", "there");
  conversion_run(ways[0], "hf", "there", "cast");
  conversion_run(ways[0], "hf:dtype=fp8", "there", "back");
  treadle_checkpoint *cast = conversion_open("cast"), *back = conversion_open("back");
  for (int32_t i = 0; i < cast->count; i++) {
    const treadle_stored *scales = conversion_find(back, cast->tensors[i].name, "_scale_inv");
    const treadle_stored *codes = conversion_find(back, cast->tensors[i].name, "");
    if (scales) check_quantised(&cast->tensors[i], codes, scales);
  }
  treadle_checkpoint_close(cast);
  treadle_checkpoint_close(back);
}

static void same_tensors(const char *one, const char *other) {
  treadle_checkpoint *a = conversion_open(one), *b = conversion_open(other);
  assert_int_equal(a->count, b->count);
  for (int32_t i = 0; i < a->count; i++) {
    assert_string_equal(a->tensors[i].name, b->tensors[i].name);
    assert_string_equal(a->tensors[i].dtype_text, b->tensors[i].dtype_text);
    assert_memory_equal(a->tensors[i].data, b->tensors[i].data, a->tensors[i].bytes);
  }
  treadle_checkpoint_close(a);
  treadle_checkpoint_close(b);
}

/* Files of bf16 whose config.json speaks of fp8: scales are new in them, behind their weights. */
static void fp8_of_bf16_files(void **state) {
  (void)state;
  conversion_make("hf", fp8, 2, true);
  conversion_run("hf", "hf:dtype=bf16", "hf", "cast");
  assert_int_equal(conversion_shell("cp '%s/config.json' '%s'", conversion_at("hf"), conversion_at("cast")),
                   0);
  conversion_run("hf", "hf", "cast", "back");
  conversion_same("cast", "back");
  conversion_run("hf", "hf:dtype=fp8", "cast", "back");
  same_tensors("hf", "back");
  check_index("back");
}

/* Without the names of the model's own files, treadle makes files of its own: scales stand behind their weights. */
static void fp8_of_a_config_alone(void **state) {
  (void)state;
  conversion_make("hf", fp8, 0, false);
  conversion_run("hf", ways[0], "hf", "there");
  for (int coded = 0; coded < 2; coded++) {
    conversion_remove("own");
    command_result result = command_run("convert --from %s --to hf%s --model %s/config.json %s %s", ways[0],
                                        coded ? ":dtype=fp8" : "", conversion_at("hf"),
                                        conversion_at("there"), conversion_at("own"));
    command_expect(&result, 0, "", 0);
    command_release(&result);
    if (!coded) {
      check_decoded("hf", "own");
      conversion_unquantised(fp8, "own");
      continue;
    }
    same_tensors("hf", "own");
  }
}

/* fp8 stays fp8 between files of Hugging Face, byte for byte, whatever its scales. */
static void fp8_is_taken_over(void **state) {
  (void)state;
  conversion_make("hf", fp8, 3, true);
  scatter_scales("hf");
  conversion_run("hf", "hf", "hf", "back");
  conversion_same("hf", "back");
  conversion_run("hf", "hf:dtype=fp8", "hf", "back");
  conversion_same("hf", "back");
}

/* ---- Bad input --------------------------------------------------------------------------------- */

/* Writes a checkpoint anew without its first scales, or with their shape changed. */
static void spoil_scales(const char *name, bool missing) {
  char path[300], *config;
  size_t length;
  treadle_checkpoint *whole = conversion_open("hf");
  treadle_stored *list = calloc((size_t)whole->count, sizeof *list);
  int32_t count = 0;
  bool done = false;
  for (int32_t i = 0; i < whole->count; i++) {
    bool spoilt = !done && strstr(whole->tensors[i].name, "_scale_inv");
    done |= spoilt;
    if (spoilt && missing) continue;
    list[count++] = whole->tensors[i];
    if (spoilt) list[count - 1].shape[0] *= list[count - 1].shape[1], list[count - 1].shape[1] = 1;
  }
  conversion_remove(name);
  assert_int_equal(conversion_shell("mkdir '%s'", conversion_at(name)), 0);
  snprintf(path, sizeof path, "%s/model.safetensors", conversion_at(name));
  assert_ok(treadle_safetensors_write(path, list, count));
  snprintf(path, sizeof path, "%s/config.json", conversion_at("hf"));
  assert_ok(treadle_file_read(path, 1 << 16, &config, &length));
  snprintf(path, sizeof path, "%s/config.json", conversion_at(name));
  assert_ok(treadle_file_write(path, config, length));
  treadle_free(config);
  treadle_checkpoint_close(whole);
  free(list);
}

static void scales_must_be_there_and_fit(void **state) {
  (void)state;
  conversion_make("hf", fp8, 0, false);
  conversion_remove("there");
  spoil_scales("bad", true);
  conversion_refused(2, "model.layers.0.mlp.down_proj.weight_scale_inv", "hf", ways[0], "bad", "there");
  spoil_scales("bad", false);
  conversion_refused(2, "model.layers.0.mlp.down_proj.weight_scale_inv is [4, 1] instead of [2, 2]", "hf",
                     ways[0], "bad", "there");
  assert_int_not_equal(access(conversion_at("there"), F_OK), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fp8_becomes_bf16),  cmocka_unit_test(fp8_is_made),
      cmocka_unit_test(fp8_of_bf16_files), cmocka_unit_test(fp8_of_a_config_alone),
      cmocka_unit_test(fp8_is_taken_over), cmocka_unit_test(scales_must_be_there_and_fit),
  };
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
