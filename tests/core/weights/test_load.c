/* Loading and digests against plain loops: every element of every piece is what the checkpoint or the
 * generator says, fills are zero, and a digest tells values, places and tensors apart. */
#include "base/dtype.h"
#include "base/random.h"
#include "memory/value.h"
#include "switch/scene.h"
#include "test.h"
#include "weights/box_elements.h"

#include <jansson.h>
#include <sys/stat.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 48, \"intermediate_size\": 80, \"num_hidden_layers\": 4,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 131,"
    " \"torch_dtype\": \"float32\", \"tie_word_embeddings\": false}";

static treadle_model *make_model(void) {
  json_error_t error;
  treadle_model *model;
  json_t *json = json_loads(config, 0, &error);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("test", json, NULL, &model));
  json_decref(json);
  return model;
}

/* An element of a window as fp32. */
static float value_at(treadle_dtype dtype, const char *at) {
  float value;
  treadle_dtype_convert(&value, TREADLE_FP32, at, dtype, 1);
  return value;
}

/* What a generated element must be, from the words of memory/elements.h alone. */
static float wanted_value(const treadle_tensor *tensor, int64_t index) {
  uint64_t hash =
      treadle_mix64(treadle_hash_text(tensor->name, 0) + (uint64_t)index / 4) >> (index % 4 * 16);
  float value = (float)(128 + (hash & 127)) / 128;
  for (uint64_t e = hash >> 7 & 7; e < 10; e++) value /= 2;
  return hash >> 15 & 1 ? -value : value;
}

/* Calls for each element of each piece: the runs of the layout say which it is. */
static void check_window(const treadle_layout *layout, int64_t rank, const char *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_run *runs;
    size_t count;
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    assert_ok(treadle_layout_runs(layout, rank, s, &runs, &count));
    size_t each = treadle_dtype_bytes(info.dtype);
    for (size_t r = 0; r < count; r++)
      for (int64_t i = 0; i < runs[r].count; i++) {
        const char *at = window + info.offset_bytes + (size_t)(runs[r].local_start + i) * each;
        float wanted = 0;
        if (runs[r].tensor >= 0)
          wanted =
              wanted_value(&layout->model->tensors[runs[r].tensor], runs[r].start + i * runs[r].stride);
        if (value_at(info.dtype, at) != wanted)
          fail_msg("%s rank %d '%s' element %d", layout->text, (int)rank, info.name,
                   (int)(runs[r].local_start + i));
      }
    free(runs);
  }
}

static const char *const texts[] = {"hf",
                                    "megatron:tp=2,pp=2",
                                    "megatron:tp=2,dtype=fp16",
                                    "vllm:tp=4,dtype=bf16",
                                    "vllm:tp=2,pp=2",
                                    "sglang:tp=4,dtype=fp16"};

static void test_generated(void **state) {
  (void)state;
  treadle_model *model = make_model();
  for (size_t t = 0; t < TEST_COUNT(texts); t++) {
    treadle_layout *layout;
    assert_ok(treadle_layout_create(model, texts[t], 4, NULL, &layout));
    for (int64_t rank = 0; rank < 4; rank++) {
      size_t bytes = treadle_layout_window_bytes(layout, rank);
      char *window = malloc(bytes + 1);
      memset(window, 0x55, bytes + 1);
      assert_ok(treadle_layout_load(layout, rank, window));
      assert_int_equal(window[bytes], 0x55);
      check_window(layout, rank, window);
      free(window);
    }
    char nothing;
    assert_refused("no rank 4", treadle_layout_load(layout, 4, &nothing));
    treadle_layout_destroy(layout);
  }
  treadle_model_close(model);
}

/* Values are finite, of both signs, and no two small shifts of the index give the same weights. */
static void test_values(void **state) {
  (void)state;
  uint64_t tensor = treadle_value_tensor("model.layers.0.mlp.up_proj.weight");
  int negative = 0, same[9] = {0};
  for (int64_t i = 0; i < 4096; i++) {
    float value = treadle_bf16_to_float(treadle_value_bf16(tensor, i));
    assert_true(value >= -0.25f && value <= 0.25f && value != 0);
    assert_true(treadle_bf16_to_float(treadle_bf16_of_float(value)) == value);
    assert_true(treadle_fp16_to_float(treadle_fp16_of_float(value)) == value);
    negative += value < 0;
    for (int shift = 1; shift < 9; shift++)
      same[shift] += treadle_value_bf16(tensor, i + shift) == treadle_value_bf16(tensor, i);
  }
  assert_in_range(negative, 1900, 2200);
  for (int shift = 1; shift < 9; shift++) assert_in_range(same[shift], 0, 20);
}

/* From files: the same bytes cut by every layout. */
/* The file of an open model is cut off, by a little and by much: loading says so, and nobody dies of it. */
static void loses_its_end(const treadle_model *model, const char *path) {
  treadle_layout *layout;
  struct stat about;
  assert_int_equal(stat(path, &about), 0);
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, 0));
  const off_t sizes[] = {about.st_size - 1, about.st_size / 2, 0};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    assert_int_equal(truncate(path, sizes[i]), 0);
    assert_fails(TREADLE_DIFFERENT, "model.safetensors: became shorter while it was read",
                 treadle_layout_load(layout, 0, window));
  }
  free(window);
  treadle_layout_destroy(layout);
}

static void test_checkpoint(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[128];
  treadle_model *made = make_model(), *model;
  snprintf(path, sizeof path, "%s/config.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(config, file);
  fclose(file);
  treadle_stored stored[64] = {{0}};
  assert_in_range(made->tensor_count, 1, 64);
  for (int32_t t = 0; t < made->tensor_count; t++) {
    const treadle_tensor *tensor = &made->tensors[t];
    float *data = malloc((size_t)tensor->elems * sizeof *data);
    for (int64_t i = 0; i < tensor->elems; i++) data[i] = wanted_value(tensor, i);
    stored[t] = (treadle_stored){.name = tensor->name,
                                 .dtype = TREADLE_FP32,
                                 .dtype_text = "F32",
                                 .ndim = tensor->ndim,
                                 .elems = tensor->elems,
                                 .data = data,
                                 .bytes = (size_t)tensor->elems * 4};
    for (int d = 0; d < tensor->ndim; d++) stored[t].shape[d] = tensor->shape[d];
  }
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_safetensors_write(path, stored, made->tensor_count));
  assert_ok(treadle_model_open(folder, NULL, &model));
  assert_true(treadle_model_has_weights(model));
  for (size_t t = 0; t < TEST_COUNT(texts); t++) {
    treadle_layout *layout;
    assert_ok(treadle_layout_create(model, texts[t], 4, NULL, &layout));
    for (int64_t rank = 0; rank < 4; rank++) {
      char *window = malloc(treadle_layout_window_bytes(layout, rank) + 1);
      assert_ok(treadle_layout_load(layout, rank, window));
      check_window(layout, rank, window);
      free(window);
    }
    treadle_layout_destroy(layout);
  }
  loses_its_end(model, path);
  for (int32_t t = 0; t < made->tensor_count; t++) free((void *)(uintptr_t)stored[t].data);
  treadle_model_close(model);
  treadle_model_close(made);
  test_remove(folder);
}

/* ---- Digests ---- */

static uint64_t digest_of(treadle_switch *sw) {
  uint64_t digest;
  assert_ok(treadle_switch_digest(sw, &digest));
  return digest;
}

static void test_digest(void **state) {
  (void)state;
  treadle_model *model = make_model();
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  assert_ok(treadle_layout_create(model, "megatron:tp=1", 1, NULL, &train));
  assert_ok(treadle_layout_create(model, "vllm:tp=1", 1, NULL, &infer));
  assert_ok(treadle_group_self(&group));
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options), .page_bytes = 4096};
  assert_ok(treadle_switch_create(group, train, infer, &options, &sw));
  float *window = treadle_switch_train_window(sw);
  assert_ok(treadle_layout_load(train, 0, window));

  uint64_t wanted = 0; /* plain: every element of every tensor */
  for (int32_t t = 0; t < model->tensor_count; t++)
    for (int64_t i = 0; i < model->tensors[t].elems; i++) {
      float value = wanted_value(&model->tensors[t], i);
      uint32_t bits;
      memcpy(&bits, &value, sizeof bits);
      wanted += treadle_value_hash(treadle_value_tensor(model->tensors[t].name), i, bits);
    }
  assert_true(digest_of(sw) == wanted);

  /* One bit, one swap of neighbours, one swap far away: each is seen. Rows of padding are not. */
  int64_t elems = (int64_t)(treadle_layout_window_bytes(train, 0) / sizeof(float));
  treadle_random random = {3};
  for (int i = 0; i < 300; i++) {
    int64_t a = treadle_random_below(&random, elems - 1),
            b = i % 2 ? a + 1 : treadle_random_below(&random, elems);
    float before_a = window[a], before_b = window[b];
    if (before_a == before_b || before_a == 0 || before_b == 0) continue;
    window[a] = before_b;
    window[b] = i % 3 ? before_a : before_b;
    assert_true(digest_of(sw) != wanted);
    window[a] = before_a;
    window[b] = before_b;
  }
  assert_true(digest_of(sw) == wanted);
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  treadle_model_close(model);
}

/* The walk: every element of random boxes once, in canonical order, whatever the strides. */
typedef struct walk_check {
  int64_t expected[4096][2];
  int64_t count, next;
} walk_check;

static void take_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  walk_check *w = context;
  for (int64_t i = 0; i < count; i++, w->next++) {
    assert_int_equal(w->expected[w->next][0], index + i);
    assert_int_equal(w->expected[w->next][1], at + i * step);
  }
}

static void test_walk(void **state) {
  (void)state;
  static walk_check w;
  treadle_random random = {11};
  for (int n = 0; n < 500; n++) {
    treadle_tensor tensor = {.naxes = 1 + (int)treadle_random_below(&random, 5)};
    int64_t start[TREADLE_MAX_AXES], size[TREADLE_MAX_AXES], stride[TREADLE_MAX_AXES], step = 2;
    for (int a = tensor.naxes - 1; a >= 0; a--) {
      tensor.axis[a] = 1 + treadle_random_below(&random, 5);
      size[a] = 1 + treadle_random_below(&random, tensor.axis[a]);
      start[a] = treadle_random_below(&random, tensor.axis[a] - size[a] + 1);
      stride[a] = step;
      step *= size[a] + treadle_random_below(&random, 2);
    }
    w.count = w.next = 0;
    int64_t at[TREADLE_MAX_AXES] = {0};
    for (bool more = true; more; w.count++) {
      int64_t index = 0, offset = 100;
      for (int a = 0; a < tensor.naxes; a++) {
        index = index * tensor.axis[a] + start[a] + at[a];
        offset += at[a] * stride[a];
      }
      w.expected[w.count][0] = index;
      w.expected[w.count][1] = offset;
      int a = tensor.naxes - 1;
      while (a >= 0 && ++at[a] == size[a]) at[a--] = 0;
      more = a >= 0;
    }
    const treadle_elements elements = treadle_elements_of(&tensor, start, size, 100, stride);
    treadle_elements_each(&elements, take_run, &w);
    assert_int_equal(w.next, w.count);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_generated), cmocka_unit_test(test_values), cmocka_unit_test(test_checkpoint),
      cmocka_unit_test(test_digest),    cmocka_unit_test(test_walk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
