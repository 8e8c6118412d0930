/* treadle convert with MXFP4 files: read as bf16, never written. What is written is compared, element by element, with
 * the formula of the format, written out here. */
#include "cli/conversion.h"

#include "base/random.h"
#include "test.h"

#include <math.h>

static const char mxfp4[] =
    "{\"model_type\": \"gpt_oss\", \"dtype\": \"bfloat16\", \"quantization_config\": {\"quant_method\": "
    "\"mxfp4\"}, \"vocab_size\": 32, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 8, \"intermediate_size\": 96, "
    "\"num_local_experts\": 4}";

static float of_mxfp4(const treadle_stored *blocks, const treadle_stored *scales, int64_t at) {
  static const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  uint8_t byte = ((const uint8_t *)blocks->data)[at / 2];
  return ldexpf(values[at % 2 ? byte >> 4 : byte & 15], ((const uint8_t *)scales->data)[at / 32] - 127);
}

static uint16_t to_bf16(float value) { /* to the nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Replaces [E, in, out] by blocks [E, out, in / 32, 16] and scales [E, out, in / 32] of any values. */
static void add_coded(treadle_stored *list, int32_t *count, const treadle_stored *plain,
                      treadle_random *random) {
  for (int i = 0; i < 2; i++) {
    treadle_stored *coded = &list[(*count)++];
    *coded = (treadle_stored){.dtype_text = "U8",
                              .ndim = 4 - i,
                              .shape = {plain->shape[0], plain->shape[2], plain->shape[1] / 32, i ? 0 : 16},
                              .bytes = (size_t)plain->elems / (i ? 32 : 2)};
    char *name = malloc(strlen(plain->name) + 8);
    uint8_t *data = malloc(coded->bytes);
    sprintf(name, "%s%s", plain->name, i ? "_scales" : "_blocks");
    for (size_t b = 0; b < coded->bytes; b++)
      data[b] = (uint8_t)(i ? 100 + treadle_random_below(random, 50) : treadle_random_below(random, 256));
    coded->name = name;
    coded->data = data;
  }
}

static void make_mxfp4(const char *name) {
  treadle_stored list[100];
  treadle_random random = {11};
  char path[300];
  int32_t count = 0;
  conversion_make("plain", mxfp4, 0, false);
  conversion_remove(name);
  assert_int_equal(conversion_shell("mkdir '%s'; cp '%s'/*.json '%s'", conversion_at(name),
                                    conversion_at("plain"), conversion_at(name)),
                   0);
  treadle_checkpoint *plain = conversion_open("plain");
  for (int32_t i = 0; i < plain->count; i++) {
    const char *end = strrchr(plain->tensors[i].name, '.');
    if (strcmp(end, ".gate_up_proj") == 0 || strcmp(end, ".down_proj") == 0)
      add_coded(list, &count, &plain->tensors[i], &random);
    else
      list[count++] = plain->tensors[i];
  }
  snprintf(path, sizeof path, "%s/model.safetensors", conversion_at(name));
  assert_ok(treadle_safetensors_write(path, list, count));
  for (int32_t i = 0; i < count; i++) {
    if (strcmp(list[i].dtype_text, "U8") != 0) continue;
    free((void *)(uintptr_t)list[i].name);
    free((void *)(uintptr_t)list[i].data);
  }
  treadle_checkpoint_close(plain);
}

/* MXFP4 is read as bf16, transposed, under the name of what it means; it is not written. */
static void mxfp4_becomes_bf16(void **state) {
  (void)state;
  make_mxfp4("hf");
  conversion_run("hf", "hf", "hf", "cast");
  conversion_unquantised(mxfp4, "cast");
  treadle_checkpoint *hf = conversion_open("hf"), *cast = conversion_open("cast");
  int coded = 0;
  for (int32_t i = 0; i < cast->count; i++) {
    const treadle_stored *stored = &cast->tensors[i],
                         *blocks = conversion_find(hf, stored->name, "_blocks"),
                         *scales = conversion_find(hf, stored->name, "_scales");
    assert_string_equal(stored->dtype_text, "BF16");
    if (!blocks) {
      assert_memory_equal(stored->data, conversion_find(hf, stored->name, "")->data, stored->bytes);
      continue;
    }
    const int64_t in = stored->shape[1], out = stored->shape[2];
    coded++;
    for (int64_t e = 0; e < stored->elems; e++) {
      int64_t expert = e / (in * out), i_ = e / out % in, o = e % out;
      float value = of_mxfp4(blocks, scales, (expert * out + o) * in + i_);
      if (((const uint16_t *)stored->data)[e] != to_bf16(value))
        fail_msg("%s: element %lld", stored->name, (long long)e);
    }
  }
  assert_int_equal(coded, 4);
  assert_int_equal(cast->count + coded, hf->count);
  treadle_checkpoint_close(hf);
  treadle_checkpoint_close(cast);
  conversion_run("hf", "megatron:tp=2,pp=2,ep=4,etp=1", "hf", "there");
  conversion_run("megatron:tp=2,pp=2,ep=4,etp=1", "hf", "there", "back");
  conversion_same("cast", "back");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mxfp4_becomes_bf16)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
