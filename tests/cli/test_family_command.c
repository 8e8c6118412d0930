/* `treadle family check`, --scale-down and make-model as processes: exit statuses, names on standard error, and files of
 * every family, with experts in both forms, that load as what they were made from.
 * ctest: label=mpi timeout=600 */
#include "cli/command.h"

#include "io/file.h"
#include "model/model.h"
#include "test.h"

#include <jansson.h>
#include <sys/stat.h>

static const char CONFIG[] =
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"intermediate_size\": 8,"
    " \"num_experts\": 1, \"moe_intermediate_size\": 8}";
static const char LIST[] = "model.embed_tokens.weight\tBF16\t64x16\n"
                           "model.layers.0.self_attn.q_proj.weight\tBF16\t16x16\n"
                           "model.layers.0.self_attn.k_proj.weight\tBF16\t8x16\n"
                           "model.layers.0.self_attn.v_proj.weight\tBF16\t8x16\n"
                           "model.layers.0.self_attn.o_proj.weight\tBF16\t16x16\n"
                           "model.layers.0.self_attn.q_norm.weight\tBF16\t8\n"
                           "model.layers.0.self_attn.k_norm.weight\tBF16\t8\n"
                           "model.layers.0.mlp.experts.0.gate_proj.weight\tBF16\t8x16\n"
                           "model.layers.0.mlp.experts.0.up_proj.weight\tBF16\t8x16\n"
                           "model.layers.0.mlp.experts.0.down_proj.weight\tBF16\t16x8\n"
                           "model.layers.0.mlp.gate.weight\tBF16\t1x16\n"
                           "model.layers.0.input_layernorm.weight\tBF16\t16\n"
                           "model.layers.0.post_attention_layernorm.weight\tBF16\t16\n"
                           "model.norm.weight\tBF16\t16\n"
                           "lm_head.weight\tBF16\t64x16\n";

static const char *write_file(const char *name, const char *text) {
  static char path[200];
  snprintf(path, sizeof path, "%s/%s", command_folder(), name);
  assert_ok(treadle_file_write(path, text, strlen(text)));
  return path;
}

/* Checks a list with the config: the exit status, and words on standard error or, with status 0, output. */
static void check_list(const char *list, const char *more, int exit_status, const char *words) {
  write_file("config.json", CONFIG);
  write_file("list.tsv", list);
  command_result result = command_run("family check %s/list.tsv --model %s/config.json %s",
                                      command_folder(), command_folder(), more);
  assert_int_equal(result.exit_status, exit_status);
  if (!strstr(exit_status ? result.err : result.out, words))
    fail_msg("no '%s' in: %s%s", words, result.out, result.err);
  command_release(&result);
}

static void lists(void **state) {
  (void)state;
  char text[4000];
  check_list(LIST, "", 0, "15 names in the files, with shapes: all as the family says");
  snprintf(text, sizeof text, "%smodel.extra\tBF16\t2\n", LIST);
  check_list(text, "", 1, "left over: model.extra\n");
  check_list(strchr(LIST, '\n') + 1, "", 1, "missing or of another shape: model.embed_tokens.weight\n");
  snprintf(text, sizeof text, "%.*slm_head.weight\tI64\t64x16\n", (int)(strstr(LIST, "lm_head") - LIST),
           LIST);
  check_list(text, "", 1,
             "missing or of another shape: lm_head.weight is of type I64, which cannot be moved\n");
  snprintf(text, sizeof text, "%sx BF16 2\n", LIST);
  check_list(text, "", 2, "list.tsv: line 16: is not name, dtype and shape with a tab between them");
  check_list(LIST, "--scale-down 1", 2, "--scale-down makes another model");
  command_result result = command_run("family check %s/list.tsv", command_folder());
  command_expect(&result, 2, "a list of tensors needs --model config.json", 1);
  command_release(&result);
  write_file("config.json", "{\"model_type\": \"qwen3_mow\"}");
  result = command_run("family check %s/config.json", command_folder());
  command_expect(&result, 2, "the nearest is 'qwen3_moe'", 1);
  command_release(&result);
}

static void show(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int exit_status;
    const char *words;
  } rows[] = {
      {"family show qwen3", 0, "# Qwen3, dense"},
      {"family show qwen3 --expanded", 0, "\n  - {name: L.self_attn.q_norm.weight, shape: [hd]}\n"},
      {"family show qwen4 --expanded", 2, "did you mean 'qwen2'"},
      {"family list --expanded", 2, "--expanded is for family show; family list does not take it"},
      {"family check x --expanded", 2, "--expanded is for family show; family check does not take it"},
  };
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    command_result result = command_run("%s", rows[i].line);
    assert_int_equal(result.exit_status, rows[i].exit_status);
    if (!strstr(rows[i].exit_status ? result.err : result.out, rows[i].words))
      fail_msg("%s: no '%s' in: %s%s", rows[i].line, rows[i].words, result.out, result.err);
    command_release(&result);
  }
}

/* A model_type that nobody knows, with names of qwen3_moe: a draft, which then covers the list. */
static void new_family(void **state) {
  (void)state;
  char config[sizeof CONFIG], path[200];
  struct stat found;
  memcpy(config, CONFIG, sizeof CONFIG);
  memcpy(strstr(config, "qwen3_moe"), "qwen3_loo", strlen("qwen3_loo"));
  write_file("list.tsv", LIST);
  write_file("config.json", config);
  snprintf(path, sizeof path, "%s/drafts", command_folder());
  assert_int_equal(mkdir(path, 0777), 0);
  command_result result = command_run("family new %s/list.tsv --model %s -o %s/x.yaml", command_folder(),
                                      command_folder(), path);
  command_expect(&result, 0, "family qwen3_moe says all of it: only the model_type is new\n", 1);
  assert_string_equal(result.out, "");
  command_release(&result);
  result = command_run("family check %s/list.tsv --model %s --families %s", command_folder(),
                       command_folder(), path);
  command_expect(&result, 0, "drafts/x.yaml line 6: the rules of the engines are those of qwen3_moe", 1);
  command_expect(&result, 0, "warning: to say: ", 1);
  command_release(&result);
  char words[600];
  snprintf(words, sizeof words, "family check %s/list.tsv --model %s --families %s", command_folder(),
           command_folder(), path);
  json_t *root = command_json(0, 0, words);
  assert_int_equal(json_array_size(json_object_get(root, "to_say")), 1);
  assert_int_equal(json_array_size(json_object_get(root, "missing")), 0);
  assert_int_equal(json_integer_value(json_object_get(root, "names")), 15);
  json_decref(root);
  result = command_run("inspect %s/config.json --families %s", command_folder(), path);
  command_expect(&result, 0, "drafts/x.yaml is not finished, 1 point of to_say is open: treadle family", 1);
  command_release(&result);
  result = command_run("family list --families %s", path);
  assert_non_null(strstr(result.out, "; not finished: 1 to say\n"));
  command_release(&result);
  result = command_run("family show qwen3_loo --families %s --expanded", path);
  assert_non_null(strstr(result.out, "\nto_say:\n  - \"the rules of the engines are those of qwen3_moe"));
  command_release(&result);
  result = command_run("family new %s/list.tsv --model %s --families %s", command_folder(),
                       command_folder(), path);
  command_expect(&result, 0, "", 0);
  assert_non_null(strstr(result.out, "family qwen3_loo covers it: 15 names"));
  command_release(&result);
  result = command_run("family new %s/list.tsv --model %s --json", command_folder(), command_folder());
  command_expect(&result, 0, "", 0);
  root = json_loads(result.out, 0, NULL);
  assert_string_equal(json_string_value(json_object_get(root, "like")), "qwen3_moe");
  assert_true(json_is_true(json_object_get(root, "same")));
  assert_int_equal(json_array_size(json_object_get(root, "to_say")), 1);
  assert_non_null(strstr(json_string_value(json_object_get(root, "text")), "extends: qwen3_moe\n"));
  json_decref(root);
  command_release(&result);
  /* nothing is written of what is refused */
  result = command_run("family new %s/config.json -o %s/y.yaml", command_folder(), path);
  command_expect(&result, 2, "there is no list of tensors here", 1);
  command_release(&result);
  result = command_run("family new %s/list.tsv --model %s -o %s/no/y.yaml", command_folder(),
                       command_folder(), path);
  command_expect(&result, 2, "no/y.yaml", 1);
  command_release(&result);
  snprintf(path, sizeof path, "%s/drafts/y.yaml", command_folder());
  assert_int_equal(stat(path, &found), -1);
  result = command_run("family list --like llama");
  command_expect(&result, 2, "--like is for family new; family list does not take it", 1);
  command_release(&result);
}

static void scale_down(void **state) {
  (void)state;
  static const char *const commands[] = {
      "family check %s/big.json", "inspect %s/big.json",
      "plan --model %s/big.json --from megatron:tp=2 --to vllm:tp=2 --ranks 2",
      "layout --model %s/big.json --layout megatron:tp=2 --ranks 2 --rank 0",
      "switch --model %s/big.json --train megatron:tp=1 --infer vllm:tp=1 --check"};
  write_file(
      "big.json",
      "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 2048, \"num_hidden_layers\": 16,"
      " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 8192}");
  for (size_t i = 0; i < TEST_COUNT(commands); i++) {
    char line[300];
    snprintf(line, sizeof line, "%s --scale-down 8", commands[i]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    command_result result = command_run(line, command_folder());
#pragma GCC diagnostic pop
    command_expect(&result, 0, "scaled down to at most 8 million parameters: num_hidden_layers=4 ", 1);
    command_release(&result);
  }
  command_result result = command_run("inspect %s/big.json --scale-down 0", command_folder());
  command_expect(&result, 2, "--scale-down is '0', and must be a whole number from 1", 1);
  command_release(&result);
  result = command_run("inspect %s/big.json --scale-down 9223372036855", command_folder());
  command_expect(&result, 2, "--scale-down is 9223372036855 million parameters, more than 2^63", 1);
  command_release(&result);
}

/* ---- Files of every family --------------------------------------------------------------------- */

static void *load(const char *path, const char *text, size_t *bytes_p) {
  treadle_model *model;
  treadle_layout *layout;
  assert_ok(treadle_model_open(path, NULL, &model));
  assert_ok(treadle_layout_create(model, text, 1, NULL, &layout));
  *bytes_p = treadle_layout_window_bytes(layout, 0);
  void *window = calloc(1, *bytes_p + 1); /* between tensors lies nothing */
  assert_ok(treadle_layout_load(layout, 0, window));
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return window;
}

/* The config alone gives the same values as the files, whose experts are single or stacked. */
static void check_family(const char *family) {
  static const char *const forms[] = {"single", "packed"};
  static const char *const texts[] = {"hf", "vllm:tp=1"};
  for (int form = 0; form < 2; form++) {
    char path[200], config[220];
    snprintf(path, sizeof path, "%s/%s-%s", command_folder(), family, forms[form]);
    snprintf(config, sizeof config, "%s/config.json", path);
    command_result result =
        command_run("make-model %s --family %s --layers 4 --hidden 128 --vocab 96 --experts %s", path,
                    family, forms[form]);
    command_expect(&result, 0, "", 0);
    command_release(&result);
    result = command_run("family check %s", path);
    command_expect(&result, 0, "", 0);
    command_release(&result);
    for (size_t t = 0; t < TEST_COUNT(texts); t++) {
      size_t made_bytes, bytes;
      void *made = load(config, texts[t], &made_bytes), *window = load(path, texts[t], &bytes);
      assert_int_equal(bytes, made_bytes);
      if (memcmp(made, window, bytes) != 0)
        fail_msg("%s with experts %s, %s: other values", family, forms[form], texts[t]);
      free(made);
      free(window);
    }
  }
}

static void families(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family **all;
  int32_t count;
  assert_ok(treadle_family_all(NULL, &arena, &all, &count));
  for (int32_t i = 0; i < count; i++) check_family(all[i]->name);
  treadle_arena_release(&arena);
}

/* Switches of files over ranks, in many waves: stacked experts; padding behind rows and columns of each expert, and of minus
 * infinity; a table of integers; tensors whose shape differs by layer. */
static void switches(void **state) {
  (void)state;
  static const char *const rows[][3] = {{"deepseek_v3-packed", "megatron:tp=2,ep=2,etp=1", "vllm:tp=2"},
                                        {"kimi_k3-single", "fsdp2:dp=2", "vllm:tp=2"},
                                        {"kimi_k3-single", "hf:root=0", "sglang:tp=2,ep=2"},
                                        {"deepseek_v4-single", "fsdp2:dp=2", "vllm:tp=2,ep=on"},
                                        {"deepseek_v4-single", "zero3:dp=2", "sglang:tp=2,attn_dp=2"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    command_result result = command_launch(2,
                                           "switch --model %s/%s --train %s --infer %s --check --cycles 1 "
                                           "--page-size 4KiB --cap 1MiB --alias off",
                                           command_folder(), rows[i][0], rows[i][1], rows[i][2]);
    if (result.exit_status != 0)
      fail_msg("%s, %s to %s: %s", rows[i][0], rows[i][1], rows[i][2], result.err);
    command_release(&result);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lists),      cmocka_unit_test(show),
                                     cmocka_unit_test(new_family), cmocka_unit_test(scale_down),
                                     cmocka_unit_test(families),   cmocka_unit_test(switches)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
