/* src/core/model/weights.c and treadle_model_open: real checkpoints, and small ones written here, each
 * with one thing wrong. */
#include "test.h"

#include "io/file.h"
#include "io/json.h"
#include "model/model.h"
#include "model/stored.h"

#define SHARED TREADLE_SOURCE_DIR "/../shared/data"

#define SKIP_WITHOUT(path)                                                                                 \
  if (!treadle_file_exists(path)) {                                                                        \
    print_message("skipped: %s is not there\n", path);                                                     \
    skip();                                                                                                \
  }

static const char *config_text(bool tied) {
  static char text[400];
  snprintf(text, sizeof text,
           "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 4, \"num_hidden_layers\": 1,"
           "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6,"
           "\"torch_dtype\": \"float32\", \"tie_word_embeddings\": %s}",
           tied ? "true" : "false");
  return text;
}

enum { MAX_STORED = 32 };

/* A small checkpoint in memory, bf16; tests change it before it is written. */
typedef struct store {
  treadle_stored tensors[MAX_STORED];
  int32_t count;
  uint16_t data[4096], other[4096];
} store;

static treadle_stored *stored(store *s, const char *name) {
  for (int32_t i = 0; i < s->count; i++)
    if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static treadle_stored *add(store *s, const char *name, int64_t rows, int64_t cols) {
  treadle_stored *tensor = &s->tensors[s->count++];
  *tensor = (treadle_stored){.name = name, .dtype = TREADLE_BF16, .ndim = cols ? 2 : 1, .data = s->data};
  tensor->shape[0] = rows;
  tensor->shape[1] = cols;
  return tensor;
}

static void take_away(store *s, const char *name) { *stored(s, name) = s->tensors[--s->count]; }

static store *good(void) {
  static store s;
  s.count = 0;
  for (int i = 0; i < 4096; i++) s.data[i] = s.other[i] = (uint16_t)(i * 31 + 7);
  add(&s, "model.embed_tokens.weight", 8, 4);
  add(&s, "model.layers.0.self_attn.q_proj.weight", 4, 4);
  add(&s, "model.layers.0.self_attn.k_proj.weight", 2, 4);
  add(&s, "model.layers.0.self_attn.v_proj.weight", 2, 4);
  add(&s, "model.layers.0.self_attn.o_proj.weight", 4, 4);
  add(&s, "model.layers.0.mlp.gate_proj.weight", 6, 4);
  add(&s, "model.layers.0.mlp.up_proj.weight", 6, 4);
  add(&s, "model.layers.0.mlp.down_proj.weight", 4, 6);
  add(&s, "model.layers.0.input_layernorm.weight", 4, 0);
  add(&s, "model.layers.0.post_attention_layernorm.weight", 4, 0);
  add(&s, "model.norm.weight", 4, 0);
  return &s;
}

/* Writes the store with a config and opens the folder. */
static treadle_status open_store(store *s, bool tied, treadle_model **model_p) {
  char path[200];
  const char *folder = test_folder();
  for (int32_t i = 0; i < s->count; i++) { /* what the writer may look at */
    treadle_stored *t = &s->tensors[i];
    t->elems = t->shape[0] * (t->ndim == 2 ? t->shape[1] : 1);
    t->bytes = (size_t)t->elems * (t->dtype == TREADLE_FP32 ? 4 : 2);
    t->dtype_text = t->dtype == TREADLE_FP32 ? "F32" : "BF16";
  }
  test_write(folder, "config.json", config_text(tied));
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_safetensors_write(path, s->tensors, s->count));
  treadle_status status = treadle_model_open(folder, NULL, model_p);
  test_remove(folder);
  return status;
}

static void a_small_checkpoint(void **state) {
  (void)state;
  treadle_model *model;
  store *s = good();
  add(s, "lm_head.weight", 8, 4);
  stored(s, "model.norm.weight")->dtype = TREADLE_FP32; /* each tensor has its own */
  assert_ok(open_store(s, false, &model));
  assert_true(treadle_model_has_weights(model));
  assert_int_equal(treadle_model_bytes(model), 2 * treadle_model_elems(model) + 2 * 4);
  const treadle_tensor *norm =
      &model->tensors[treadle_hash_map_get(&model->by_name, "model.norm.weight", -1)];
  assert_int_equal(norm->dtype, TREADLE_FP32);
  assert_int_equal(model->tensors[0].dtype, TREADLE_BF16);
  treadle_model_close(model);
}

static void differences(void **state) {
  (void)state;
  treadle_model *model;
  assert_refused("the tensors are not those of family llama; 1 missing or of another shape: lm_head.weight",
                 open_store(good(), false, &model));

  store *s = good();
  add(s, "model.extra.weight", 2, 2);
  add(s, "model.layers.0.self_attn.rotary_emb.inv_freq", 2, 0);
  assert_refused("; 1 left over: model.extra.weight", open_store(s, true, &model));
  assert_null(strstr(treadle_error_message(), "inv_freq"));

  s = good();
  stored(s, "model.norm.weight")->shape[0] = 5;
  assert_refused("1 missing or of another shape: model.norm.weight is [5] instead of [4]",
                 open_store(s, true, &model));
  s = good();
  stored(s, "model.layers.0.mlp.down_proj.weight")->ndim = 1;
  assert_refused("down_proj.weight is [4] instead of [4, 6]", open_store(s, true, &model));

  s = good();
  for (int i = 0; i < 10; i++) s->tensors[i].name += 6; /* without "model." */
  assert_refused("; 10 missing or of another shape: model.embed_tokens.weight, ",
                 open_store(s, true, &model));
  assert_non_null(strstr(treadle_error_message(), ", ...; 10 left over: embed_tokens.weight, "));
}

static void inv_freq(void **state) {
  (void)state;
  treadle_model *model;
  store *s = good();
  add(s, "model.layers.0.self_attn.rotary_emb.inv_freq", 2, 0);
  assert_ok(open_store(s, true, &model));
  assert_int_equal(model->tensor_count, 11);
  treadle_model_close(model);
}

static void tied_copies(void **state) {
  (void)state;
  treadle_model *model;
  store *s = good();
  assert_ok(open_store(s, true, &model)); /* no copy */
  treadle_model_close(model);
  add(s, "lm_head.weight", 8, 4)->data = s->other;
  assert_ok(open_store(s, true, &model)); /* an equal one */
  assert_int_equal(model->tied_count, 1);
  treadle_model_close(model);

  s->other[31] ^= 1;
  assert_refused(
      "lm_head.weight is tied to model.embed_tokens.weight by the config, but is stored with other "
      "values",
      open_store(s, true, &model));
  assert_ok(open_store(s, false, &model));
  treadle_model_close(model);
  stored(s, "lm_head.weight")->dtype = TREADLE_FP32;
  assert_refused("is stored with another type", open_store(s, true, &model));
  s = good();
  add(s, "lm_head.weight", 4, 8);
  assert_refused("is stored with another shape", open_store(s, true, &model));
  take_away(s, "model.embed_tokens.weight");
  assert_refused("missing or of another shape: model.embed_tokens.weight", open_store(s, true, &model));
}

/* A file of one tensor of a type that nobody moves. */
static void other_types(void **state) {
  (void)state;
  static const char header[] =
      "{\"model.norm.weight\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  char path[200], image[200];
  treadle_model *model;
  uint64_t length = sizeof header - 1;
  const char *folder = test_folder();
  memcpy(image, &length, 8);
  memcpy(image + 8, header, length);
  memset(image + 8 + length, 0, 4);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_file_write(path, image, 8 + length + 4));
  test_write(folder, "config.json", config_text(true));
  assert_refused("tensor model.norm.weight is of type F8_E5M2; F32, BF16, F16 and F8_E4M3 can be moved",
                 treadle_model_open(folder, NULL, &model));
  test_remove(folder);
}

static void paths(void **state) {
  (void)state;
  char path[200];
  treadle_model *model;
  const char *folder = test_folder();
  assert_refused("config.json is missing in this folder", treadle_model_open(folder, NULL, &model));
  test_write(folder, "config.json", config_text(true));
  assert_ok(treadle_model_open(folder, NULL, &model));
  assert_false(treadle_model_has_weights(model));
  assert_int_equal(treadle_model_weights(model), TREADLE_WEIGHTS_NONE);
  assert_refused("has no weights: neither model.safetensors nor shards with an index; it has no file that "
                 "may hold weights",
                 treadle_model_need_weights(model));
  treadle_model_close(model);

  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_model_open(path, NULL, &model));
  assert_int_equal(treadle_model_weights(model), TREADLE_WEIGHTS_RANDOM);
  assert_ok(treadle_model_need_weights(model));
  treadle_model_close(model);

  treadle_model_options of_weights = {.struct_size = sizeof of_weights, .weights = TREADLE_WEIGHTS_FILES};
  assert_refused("weights are to come from files", treadle_model_open(path, &of_weights, &model));
  assert_refused("has no weights: neither", treadle_model_open(folder, &of_weights, &model));
  assert_null(model);
  of_weights.weights = TREADLE_WEIGHTS_RANDOM;
  assert_ok(treadle_model_open(folder, &of_weights, &model));
  assert_int_equal(treadle_model_weights(model), TREADLE_WEIGHTS_RANDOM);
  treadle_model_close(model);
  treadle_model_options options = {.struct_size = sizeof(treadle_model_options),
                                   .families = TREADLE_SOURCE_DIR "/families"};
  assert_ok(treadle_model_open(path, &options, &model));
  treadle_model_close(model);

  test_write(folder, "notes.txt", "x");
  snprintf(path, sizeof path, "%s/notes.txt", folder);
  assert_refused("a model is a folder with config.json, or a .json file",
                 treadle_model_open(path, NULL, &model));
  assert_refused("there is no such file", treadle_model_open("/nowhere/config.json", NULL, &model));

  test_write(folder, "model.safetensors.index.json",
             "{\"weight_map\": {\"model.norm.weight\": \"model-00001-of-00001.safetensors\"}}");
  assert_true(treadle_model_open(folder, NULL, &model) != TREADLE_OK);
  assert_non_null(strstr(treadle_error_message(), "model-00001-of-00001.safetensors"));
  test_write(folder, "config.json", "{");
  assert_refused("config.json: line 1", treadle_model_open(folder, NULL, &model));
  test_remove(folder);
}

/* ---- Others' files ----------------------------------------------------------------------------- */

static void compare_index(const char *folder, int tensors) {
  char path[400];
  treadle_model *model;
  treadle_checkpoint *checkpoint;
  treadle_arena arena = {0};
  treadle_files files = {0};
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_model_open(path, NULL, &model));
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
  assert_ok(treadle_checkpoint_open_index(path, &checkpoint));
  assert_int_equal(checkpoint->count, tensors);
  assert_ok(treadle_files_match(model, checkpoint, &arena, &files));
  assert_int_equal(files.missing_count, 0);
  assert_int_equal(files.left_over_count, 0);
  treadle_files_release(&files);

  /* One layer more, and its tensors are missing. */
  json_t *config = json_deep_copy(model->config);
  json_object_set_new(config, "num_hidden_layers", json_integer(model->layers + 1));
  int32_t layer_tensors = model->tensor_count / model->layers; /* those outside are fewer */
  treadle_model_close(model);
  assert_ok(treadle_model_from_config("more", config, NULL, &model));
  files = (treadle_files){0};
  assert_ok(treadle_files_match(model, checkpoint, &arena, &files));
  assert_int_equal(files.missing_count, layer_tensors);
  snprintf(path, sizeof path, "model.layers.%d.self_attn.q_proj.weight\n", model->layers - 1);
  assert_ptr_equal(strstr(files.missing.text, path), files.missing.text);
  assert_int_equal(files.left_over_count, 0);
  treadle_files_release(&files);
  json_decref(config);
  treadle_model_close(model);
  treadle_checkpoint_close(checkpoint);
  treadle_arena_release(&arena);
}

static void indices(void **state) {
  (void)state;
  SKIP_WITHOUT(SHARED "/indices");
  compare_index(SHARED "/indices/Qwen3-4B_merged", 11 * 36 + 2);
  compare_index(SHARED "/indices/cogito-v1-qwen-14B_(Qwen2.5-14B)", 12 * 48 + 3);
  compare_index(SHARED "/smollm2-135m-meta", 9 * 30 + 2);
}

static void real_checkpoints(void **state) {
  (void)state;
  static const struct {
    const char *folder;
    treadle_dtype dtype;
    int tensors;
    int64_t elems;
  } rows[] = {/* the config says float16, the file has BF16 */
              {SHARED "/minimind2-small", TREADLE_BF16, 9 * 8 + 2, 25829888},
              {SHARED "/stories260K/hf", TREADLE_FP32, 9 * 5 + 2, 260032}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_model *model;
    SKIP_WITHOUT(rows[i].folder);
    assert_ok(treadle_model_open(rows[i].folder, NULL, &model));
    assert_true(treadle_model_has_weights(model));
    assert_int_equal(model->tensor_count, rows[i].tensors);
    assert_int_equal(treadle_model_elems(model), rows[i].elems);
    assert_int_equal(model->tensors[0].dtype, rows[i].dtype);
    treadle_model_close(model);
  }
}

static treadle_status open_and_close(const char *folder) {
  treadle_model *model;
  const treadle_model_options options = {.struct_size = sizeof(treadle_model_options), .families = folder};
  treadle_status status = treadle_model_open(folder, &options, &model);
  if (status == TREADLE_OK) treadle_model_close(model);
  return status;
}

static void without_memory(void **state) {
  (void)state;
  char path[200];
  store *s = good();
  treadle_model *model;
  assert_ok(open_store(s, true, &model)); /* fills in the sizes */
  treadle_model_close(model);
  const char *folder = test_folder();
  test_write(folder, "config.json", config_text(true));
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_safetensors_write(path, s->tensors, s->count));
  test_copy_family(folder, "llama");
  TEST_EACH_ALLOCATION(open_and_close(folder));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_checkpoint),
                                     cmocka_unit_test(differences),
                                     cmocka_unit_test(inv_freq),
                                     cmocka_unit_test(tied_copies),
                                     cmocka_unit_test(other_types),
                                     cmocka_unit_test(paths),
                                     cmocka_unit_test(indices),
                                     cmocka_unit_test(real_checkpoints),
                                     cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
