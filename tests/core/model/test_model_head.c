/* src/core/model/head.c: models with a score head. What files must have, which ones are refused, where the head lies in layouts, what is
 * saved of it. */
#include "test.h"
#include "train/critic.h"

#include "io/json.h"
#include "model/model.h"

#include <jansson.h>
#include <sys/stat.h>

static const treadle_model_options as_critic = {
    .struct_size = sizeof as_critic, .head = TREADLE_HEAD_SCORE, .score_zeros = true};
static const treadle_model_options as_reward = {.struct_size = sizeof as_reward,
                                                .head = TREADLE_HEAD_SCORE};

/* The tensor's shape as text, "[1, 32]"; "": the model has no such tensor. */
static const char *shape_of(const treadle_model *model, const char *name) {
  static char text[64];
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  text[0] = 0;
  for (int32_t t = 0; t < treadle_model_tensor_count(model); t++) {
    assert_ok(treadle_model_tensor(model, t, &info));
    if (strcmp(info.name, name) != 0) continue;
    assert_null(info.same_as);
    snprintf(text, sizeof text, info.ndim == 1 ? "[%lld]" : "[%lld, %lld]", (long long)info.shape[0],
             (long long)info.shape[1]);
  }
  return text;
}

/* Values of a storage tensor of rank 0; *bytes_p of them. */
static char *values_of(const treadle_layout *layout, const char *name, size_t *bytes_p) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  char *window = calloc(1, treadle_layout_window_bytes(layout, 0) + 1);
  assert_non_null(window);
  assert_ok(treadle_layout_load(layout, 0, window));
  assert_ok(treadle_layout_storage(layout, 0, treadle_layout_find(layout, 0, name), &info));
  *bytes_p = info.bytes;
  memmove(window, window + info.offset_bytes, info.bytes);
  return window;
}

/* ---- Files ------------------------------------------------------------------------------------------------ */

static void tensors(void **state) {
  static const struct {
    critic_head head;
    const char *bias;
    bool zeros;
  } cases[] = {{CRITIC_LM, "", true},
               {CRITIC_SCORE, "", false},
               {CRITIC_SCORE_BIAS, "[1]", false},
               {CRITIC_BOTH, "", false}};
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const char *folder = test_folder();
    treadle_model *model;
    treadle_layout *layout;
    size_t bytes, zeros = 0;
    assert_ok(critic_write(folder, cases[i].head));
    assert_ok(treadle_model_open(folder, &as_critic, &model));
    assert_string_equal(shape_of(model, "score.weight"), "[1, 32]");
    assert_string_equal(shape_of(model, "score.bias"), cases[i].bias);
    assert_string_equal(shape_of(model, "lm_head.weight"), "");
    assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
    char *values = values_of(layout, "score.weight", &bytes);
    assert_int_equal(bytes, 32 * sizeof(float));
    for (size_t b = 0; b < bytes; b++) zeros += values[b] == 0;
    assert_true((zeros == bytes) == cases[i].zeros);
    free(values);
    treadle_layout_destroy(layout);
    treadle_model_close(model);
    if (cases[i].zeros)
      assert_refused(
          "the tensors are not those of family llama; 1 missing or of another shape: score.weight",
          treadle_model_open(folder, &as_reward, &model));
    else
      assert_ok(treadle_model_open(folder, &as_reward, &model));
    treadle_model_close(model);
    test_remove(folder);
  }
}

/* A tied model has no head of its own; its files are bf16, and so are the zeros. */
static void tied(void **state) {
  (void)state;
  treadle_model *model;
  treadle_layout *layout;
  size_t bytes;
  assert_ok(treadle_model_open(TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied", &as_critic, &model));
  assert_int_equal(model->tied_count, 0);
  assert_string_equal(shape_of(model, "lm_head.weight"), "");
  assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
  const treadle_dtype dtype = model->tensors[0].dtype;
  for (int32_t t = 0; t < model->tensor_count; t++) assert_int_equal(model->tensors[t].dtype, dtype);
  free(values_of(layout, "score.weight", &bytes));
  assert_true(bytes > 0);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* ---- What is refused -------------------------------------------------------------------------------------- */

/* config.json of the folder with one key more. */
static void set_key(const char *folder, const char *key, const char *value) {
  char path[200];
  json_t *config;
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_json_load(path, &config));
  json_t *set = json_loads(value, JSON_DECODE_ANY, NULL);
  assert_non_null(set);
  assert_int_equal(json_object_set_new(config, key, set), 0);
  char *text = json_dumps(config, 0);
  test_write(folder, "config.json", text);
  free(text);
  json_decref(config);
}

static void labels(void **state) {
  static const struct {
    const char *key, *value, *part;
  } cases[] = {
      {"num_labels", "2", "num_labels is 2: a score head has one label"},
      {"num_labels", "\"one\"", "num_labels is not a whole number"},
      {"num_labels", "0", "num_labels is 0"},
      {"id2label", "{\"0\": \"bad\", \"1\": \"good\"}", "id2label has 2 labels: a score head has one"},
      {"id2label", "{}", "id2label has 0 labels"},
      {"id2label", "[1]", "id2label is not an object"},
      {"num_labels", "1", NULL},
      {"num_labels", "null", NULL},
      {"id2label", "{\"0\": \"reward\"}", NULL}};
  (void)state;
  treadle_model *model;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const char *folder = test_folder();
    assert_ok(critic_write(folder, CRITIC_SCORE));
    set_key(folder, cases[i].key, cases[i].value);
    if (cases[i].part)
      assert_refused(cases[i].part, treadle_model_open(folder, &as_reward, &model));
    else
      assert_ok(treadle_model_open(folder, &as_reward, &model));
    treadle_model_close(model);
    test_remove(folder);
  }
  const char *folder = test_folder();
  assert_ok(critic_write(folder, CRITIC_TWO_LABELS));
  assert_refused("score.weight is [2, 32] instead of [1, 32]",
                 treadle_model_open(folder, &as_critic, &model));
  test_remove(folder);
}

static void families(void **state) {
  static const char phi[] =
      "{\"model_type\": \"phi3\", \"vocab_size\": 16, \"hidden_size\": 64, \"num_hidden_layers\": 2,"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 64}";
  (void)state;
  const char *folder = test_folder();
  treadle_model *model;
  assert_ok(treadle_model_open(TREADLE_SOURCE_DIR "/tests/golden/models/qwen2moe", &as_critic, &model));
  treadle_model_close(model);
  test_write(folder, "config.json", phi);
  assert_ok(treadle_model_open(folder, NULL, &model));
  treadle_model_close(model);
  assert_refused(
      "the family phi3 has no score head: treadle does not train its models: its file does not say",
      treadle_model_open(folder, &as_critic, &model));
  test_remove(folder);
}

/* A family file without such a head, beside those that are built in. */
static void own_family(void **state) {
  static const char text[] =
      "family: bare\nmodel_types: [bare]\n"
      "dims: {V: vocab_size, H: hidden_size, L: num_hidden_layers}\n"
      "layers: L\n"
      "tensors:\n  - {name: embed.weight, shape: [V, H]}\n  - {name: \"layers.{l}.o.weight\", shape: [H, "
      "H]}\n"
      "engines:\n  vllm:\n    - {name: embed.weight, at: first, of: [embed.weight]}\n"
      "    - {name: \"layers.{l}.o.weight\", of: [\"layers.{l}.o.weight\"]}\n"
      "forward: {model: decoder, embed: embed.weight}\n";
  (void)state;
  const char *folder = test_folder();
  char families[200], config[200];
  treadle_model *model;
  snprintf(families, sizeof families, "%s/families", folder);
  assert_int_equal(mkdir(families, 0777), 0);
  test_write(families, "bare.yaml", text);
  snprintf(
      config, sizeof config, "%s",
      test_write(
          folder, "config.json",
          "{\"model_type\": \"bare\", \"vocab_size\": 8, \"hidden_size\": 4, \"num_hidden_layers\": 1}"));
  treadle_model_options options = {.struct_size = sizeof options, .families = families};
  assert_ok(treadle_model_open(config, &options, &model));
  treadle_model_close(model);
  options.head = TREADLE_HEAD_SCORE;
  assert_refused("the family bare has no score head: its file says no `score` in forward",
                 treadle_model_open(config, &options, &model));
  options.head = (treadle_head)7;
  assert_refused("head", treadle_model_open(config, &options, &model));
  test_remove(folder);
}

/* ---- Layouts ---------------------------------------------------------------------------------------------- */

static int32_t find(const treadle_layout *layout, int64_t rank, const char *name) {
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    if (strcmp(info.name, name) == 0) return s;
  }
  return -1;
}

/* On both ranks of the last stage, whole. */
static void layouts(void **state) {
  (void)state;
  const char *folder = test_folder();
  static const char *const names[] = {"output_layer.weight", "output_layer.bias"};
  static const int64_t elems[] = {32, 1};
  treadle_model *model;
  treadle_layout *layout;
  assert_ok(critic_write(folder, CRITIC_SCORE_BIAS));
  assert_ok(treadle_model_open(folder, &as_reward, &model));
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 4, NULL, &layout));
  for (int64_t rank = 0; rank < 4; rank++)
    for (int i = 0; i < 2; i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      const int32_t storage = find(layout, rank, names[i]);
      assert_true((storage >= 0) == (rank >= 2));
      if (storage < 0) continue;
      assert_ok(treadle_layout_storage(layout, rank, storage, &info));
      assert_int_equal(info.bytes, elems[i] * (int64_t)sizeof(float));
    }
  treadle_layout_destroy(layout);
  static const char *const others[] = {"fsdp:dp=3", "fsdp2:dp=3",  "zero1:dp=3",  "zero3:dp=3",
                                       "vllm:tp=2", "sglang:tp=2", "distopt:tp=2"};
  static const int ranks[] = {3, 3, 3, 3, 2, 2, 4};
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    assert_ok(treadle_layout_create(model, others[i], ranks[i], NULL, &layout));
    treadle_layout_destroy(layout);
  }
  treadle_model_close(model);
  test_remove(folder);
}

/* ---- Saving ----------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *config, const char *key, const char *inner) {
  const json_t *value = json_object_get(config, key);
  return json_string_value(json_is_array(value) ? json_array_get(value, 0) : json_object_get(value, inner));
}

/* What is saved is a critic again, with the same bits, and transformers' class for it. */
static void check_saved(critic_head head, const char *wanted_class) {
  char from[64], to[80], path[120];
  treadle_model *model, *again;
  treadle_layout *layout, *same;
  const treadle_save_options options = TREADLE_INIT(treadle_save_options);
  json_t *config;
  snprintf(from, sizeof from, "%s", test_folder());
  snprintf(to, sizeof to, "%s/saved", from);
  assert_ok(critic_write(from, head));
  assert_ok(treadle_model_open(from, &as_critic, &model));
  assert_ok(treadle_layout_create(model, "megatron:tp=1", 1, NULL, &layout));
  const size_t bytes = treadle_layout_window_bytes(layout, 0);
  char *window = calloc(1, bytes + 1), *other = calloc(1, bytes + 1);
  assert_true(window && other);
  assert_ok(treadle_layout_load(layout, 0, window));
  assert_ok(treadle_layout_save(NULL, layout, window, to, &options));
  assert_ok(treadle_model_open(to, &as_reward, &again));
  assert_ok(treadle_layout_create(again, "megatron:tp=1", 1, NULL, &same));
  assert_int_equal(treadle_layout_window_bytes(same, 0), bytes);
  assert_ok(treadle_layout_load(same, 0, other));
  assert_memory_equal(window, other, bytes);
  snprintf(path, sizeof path, "%s/config.json", to);
  assert_ok(treadle_json_load(path, &config));
  assert_string_equal(text_of(config, "architectures", NULL), wanted_class);
  assert_int_equal(json_integer_value(json_object_get(config, "num_labels")), 1);
  assert_string_equal(text_of(config, "id2label", "0"), "LABEL_0");
  assert_int_equal(json_integer_value(json_object_get(json_object_get(config, "label2id"), "LABEL_0")), 0);
  json_decref(config);
  free(window);
  free(other);
  treadle_layout_destroy(same);
  treadle_layout_destroy(layout);
  treadle_model_close(again);
  treadle_model_close(model);
  test_remove(from);
}

static void saved(void **state) {
  (void)state;
  check_saved(CRITIC_LM, "LlamaForSequenceClassification");
  check_saved(CRITIC_BOTH, "LlamaForSequenceClassification");
  check_saved(CRITIC_SCORE_BIAS, "LlamaForTokenClassification");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tensors),    cmocka_unit_test(tied),
                                     cmocka_unit_test(labels),     cmocka_unit_test(families),
                                     cmocka_unit_test(own_family), cmocka_unit_test(layouts),
                                     cmocka_unit_test(saved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
