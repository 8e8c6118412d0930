/* Models of real configs have the published numbers of elements, each canonical one once (docs/rules.md 11),
 * and real indices and lists of parameters are theirs. Skipped where the data is not there. */
#include "test.h"

#include "io/file.h"
#include "io/json.h"
#include "model/stored.h"

#define SHARED TREADLE_SOURCE_DIR "/../shared/data"

#define SKIP_WITHOUT(path)                                                                                 \
  if (!treadle_file_exists(path)) {                                                                        \
    print_message("skipped: %s is not there\n", path);                                                     \
    skip();                                                                                                \
  }

/* with_copies: the file with its second names, 0 where it has none or the number is not published. */
static const struct row {
  const char *file;
  int64_t elems, with_copies;
} rows[] = {
    {"Qwen--Qwen2.5-1.5B", 1543714304, 0},
    {"Qwen--Qwen2.5-7B", 7615616512, 0},
    {"Qwen--Qwen2.5-32B", 32763876352, 0},
    {"Qwen--Qwen2.5-72B", 72706203648, 0},
    {"Qwen--Qwen3-0.6B", 596049920, 751632384},
    {"Qwen--Qwen3-1.7B", 1720574976, 2031739904},
    {"Qwen--Qwen3-8B", 8190735360, 0},
    {"Qwen--Qwen3-32B", 32762123264, 0},
    {"Qwen--Qwen3-32B-FP8", 32762123264, 0},
    {"Qwen--Qwen3-30B-A3B", 30532122624, 0},
    {"Qwen--Qwen3-30B-A3B-FP8", 30532122624, 0},
    {"Qwen--Qwen3-235B-A22B-FP8", 235093634560, 0},
    {"Qwen--Qwen3.5-35B-A3B", 35505251456, 0},
    {"meta-llama--Meta-Llama-3.1-8B", 8030261248, 0},
    {"meta-llama--Meta-Llama-3.1-70B", 70553706496, 0},
    {"mistralai--Mixtral-8x7B-v0.1", 46702792704, 0},
    {"deepseek-ai--DeepSeek-V3", 671026419200 + 11610068224, 684489845504},
    {"deepseek-ai--DeepSeek-R1", 671026419200 + 11610068224, 684489845504},
    {"openai--gpt-oss-120b", 116829156672, 0},
    {"openai--gpt-oss-20b", 20914757184, 0},
    {"zai-org--GLM-4.7-FP8", 356785898816, 358337791296},
};

static int64_t elems_with_copies(const treadle_model *model) {
  int64_t elems = treadle_model_elems(model);
  for (int32_t i = 0; i < model->tied_count; i++) elems += model->tensors[model->tied[i].tensor].elems;
  return elems;
}

static void totals(void **state) {
  (void)state;
  SKIP_WITHOUT(SHARED "/configs");
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[400];
    json_t *config;
    treadle_model *model;
    snprintf(path, sizeof path, "%s/configs/%s.config.json", SHARED, rows[i].file);
    assert_ok(treadle_json_load(path, &config));
    if (strncmp(rows[i].file, "zai-org", 7) == 0) { /* fields that this file lacks */
      json_object_set_new(config, "attention_bias", json_true());
      json_object_set_new(config, "use_qk_norm", json_true());
      json_object_set_new(config, "num_nextn_predict_layers", json_integer(1));
    }
    assert_ok(treadle_model_from_config(path, config, NULL, &model));
    if (treadle_model_elems(model) != rows[i].elems ||
        (rows[i].with_copies && elems_with_copies(model) != rows[i].with_copies))
      fail_msg("%s has %lld elements, %lld with copies", rows[i].file,
               (long long)treadle_model_elems(model), (long long)elems_with_copies(model));
    treadle_model_close(model);
    json_decref(config);
  }
}

/* Nothing is missing and nothing left over. */
static void check_files(const char *config_path, treadle_checkpoint *checkpoint, int32_t names,
                        int32_t carried, int32_t scales) {
  json_t *config;
  treadle_model *model;
  treadle_arena arena = {0};
  treadle_files files = {0};
  assert_ok(treadle_json_load(config_path, &config));
  assert_ok(treadle_model_for_files(config_path, config, NULL, checkpoint, &model));
  assert_ok(treadle_files_match(model, checkpoint, &arena, &files));
  assert_string_equal(files.missing.text ? files.missing.text : "", "");
  assert_string_equal(files.left_over.text ? files.left_over.text : "", "");
  assert_int_equal(checkpoint->count, names);
  assert_int_equal(files.carried_count, carried);
  assert_int_equal(files.scale_count, scales);
  treadle_files_release(&files);
  treadle_arena_release(&arena);
  treadle_model_close(model);
  treadle_checkpoint_close(checkpoint);
  json_decref(config);
}

static void indices(void **state) {
  (void)state;
  static const struct {
    const char *folder;
    int32_t names, carried;
  } folders[] = {{"DeepSeek-OCR", 2711, 477},
                 {"Mixtral-8x7B-v0.1", 995, 0},
                 {"Qwen3-4B_merged", 398, 0},
                 {"Qwen3-VL-30B-A3B", 882, 351},
                 {"cogito-v1-qwen-14B_(Qwen2.5-14B)", 579, 0}};
  SKIP_WITHOUT(SHARED "/indices");
  for (size_t i = 0; i < TEST_COUNT(folders); i++) {
    char index[400], config[400];
    treadle_checkpoint *checkpoint;
    snprintf(index, sizeof index, "%s/indices/%s/model.safetensors.index.json", SHARED, folders[i].folder);
    snprintf(config, sizeof config, "%s/indices/%s/config.json", SHARED, folders[i].folder);
    assert_ok(treadle_checkpoint_open_index(index, &checkpoint));
    check_files(config, checkpoint, folders[i].names, folders[i].carried, 0);
  }
}

static void lists(void **state) {
  (void)state;
  static const struct {
    const char *list, *config;
    int32_t names, scales;
  } files[] = {{"DeepSeek-V3_fp8_with_mtp", "deepseek-ai--DeepSeek-V3", 91991, 45808},
               {"Llama-3.1-70B_bf16", "meta-llama--Meta-Llama-3.1-70B", 723, 0},
               {"Qwen3-30B-A3B_bf16", "Qwen--Qwen3-30B-A3B", 18867, 0}};
  SKIP_WITHOUT(SHARED "/param_lists");
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    char list[400], config[400];
    treadle_checkpoint *checkpoint;
    snprintf(list, sizeof list, "%s/param_lists/%s.tsv.gz", SHARED, files[i].list);
    snprintf(config, sizeof config, "%s/configs/%s.config.json", SHARED, files[i].config);
    assert_ok(treadle_checkpoint_open_list(list, &checkpoint));
    check_files(config, checkpoint, files[i].names, 0, files[i].scales);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(totals), cmocka_unit_test(indices),
                                     cmocka_unit_test(lists)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
