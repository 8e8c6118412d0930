/* Bad input for the engine: what the model, its weights, its tokenizer, requests and memory cannot be, each with the message that says
 * so. Nothing of it gives an answer. */
/* ctest: stage=asan label=threads */
#include "cli/command.h"
#include "cli/engine_folder.h"
#include "generate/machine.h"
#include "group/ranks.h"
#include "io/json.h"
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

#include <math.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

static const char request[] =
    "{\"prompt_token_ids\": [1, 5, 9], \"max_tokens\": 4, \"ignore_eos\": true}\n";

static machine open_machine(const char *folder, treadle_generator_options options) {
  machine m;
  if (!options.threads) options.threads = 1;
  if (!options.kv_bytes) options.kv_bytes = 1 << 20;
  const machine_spec spec = {.folder = folder, .layout = "vllm:tp=1", .options = options};
  assert_ok(machine_open(&m, &spec));
  return m;
}

typedef struct answers {
  int count;
  char last[4096];
} answers;

static treadle_status count_answer(void *context, const char *line, size_t bytes) {
  answers *a = context;
  a->count++;
  snprintf(a->last, sizeof a->last, "%.*s", (int)bytes, line);
  return TREADLE_OK;
}

static treadle_status generate(const machine *m, const char *lines, const treadle_tokenizer *tokenizer,
                               const treadle_chat *chat, answers *answers_p) {
  const treadle_generate_options options = {.struct_size = sizeof options,
                                            .tokenizer = tokenizer,
                                            .chat = chat,
                                            .answer = count_answer,
                                            .context = answers_p};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  *answers_p = (answers){0};
  treadle_status status =
      treadle_generator_generate_lines(m->engine, lines, strlen(lines), &options, &figures);
  assert_int_equal(figures.kv_blocks_leaked, 0);
  return status;
}

/* ---- Configs ------------------------------------------------------------------------------------------ */

/* A folder with the config of a golden model, one field of it changed, and its weights. */
static const char *changed_folder(const char *golden, const char *field, const char *value) {
  static char path[32];
  char from[400], to[400], *text;
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%.31s", folder);
  snprintf(from, sizeof from, MODELS "%s/config.json", golden);
  json_t *config = json_load_file(from, 0, NULL);
  assert_non_null(config);
  json_t *changed = json_loads(value, JSON_DECODE_ANY, NULL);
  assert_non_null(changed);
  if (strcmp(field, "rope_scaling") == 0) json_object_del(config, "rope_parameters");
  assert_int_equal(json_object_set_new(config, field, changed), 0);
  text = json_dumps(config, 0);
  text_write(path, "config.json", text, strlen(text));
  free(text);
  json_decref(config);
  snprintf(from, sizeof from, MODELS "%s/model.safetensors", golden);
  snprintf(to, sizeof to, "%s/model.safetensors", path);
  assert_int_equal(symlink(from, to), 0);
  return path;
}

static void refuses_configs(void **state) {
  (void)state;
  static const struct {
    const char *golden, *field, *value, *message;
  } cases[] = {
      {"llama-gqa-llama3rope", "rope_scaling", "{\"rope_type\": \"spiral\", \"factor\": 2}", "spiral"},
      {"llama-gqa-llama3rope", "rope_scaling", "{\"rope_type\": \"linear\"}", "factor is missing"},
      {"llama-gqa-llama3rope", "rope_scaling", "{\"rope_type\": \"llama3\", \"turns\": 2}",
       "turns is not known"},
      {"llama-gqa-llama3rope", "hidden_act", "\"gelu\"", "hidden_act is 'gelu'"},
      {"llama-gqa-llama3rope", "sliding_window", "64", "sliding_window"},
      {"llama-gqa-llama3rope", "rms_norm_eps", "\"small\"",
       "rms_norm_eps is \"small\", not a number above 0"},
      {"dsv3-yarn", "scoring_func", "\"softmax\"", "scoring_func is 'softmax'"},
      {"dsv3-yarn", "topk_method", "\"by_lot\"", "topk_method is 'by_lot'"},
      {"dsv3-yarn", "topk_group", "9", "cannot be chosen"},
      {"qwen2moe", "topk_method", "\"by_lot\"", "topk_method is 'by_lot'"},
      {"qwen2moe", "num_experts_per_tok", "99", "cannot be chosen"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const char *folder = changed_folder(cases[i].golden, cases[i].field, cases[i].value);
    const machine_spec spec = {
        .folder = folder, .layout = "vllm:tp=1", .options = {.threads = 1, .kv_bytes = 1 << 20}};
    machine m;
    assert_refused(cases[i].message, machine_open(&m, &spec));
    machine_close(&m);
    test_remove(folder);
  }
}

/* ---- Weights ------------------------------------------------------------------------------------------ */

/* Writes a bf16 value over element `element` of the storage that has this tensor. */
static void poke(const machine *m, int64_t rank, const char *tensor, int64_t element, uint16_t value) {
  for (int32_t s = 0; s < treadle_layout_storage_count(m->layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(m->layout, rank, s, &info));
    treadle_run *runs;
    size_t count;
    assert_ok(treadle_layout_runs(m->layout, rank, s, &runs, &count));
    for (size_t i = 0; i < count; i++) {
      treadle_tensor_info of = TREADLE_INIT(treadle_tensor_info);
      if (runs[i].tensor < 0) continue;
      assert_ok(treadle_model_tensor(m->model, runs[i].tensor, &of));
      if (strcmp(of.name, tensor) != 0 || element >= runs[i].count) continue;
      size_t each = info.dtype == TREADLE_FP32 ? 4 : 2; /* the upper half of fp32 is a bf16 */
      memset(m->window + info.offset_bytes + (size_t)(runs[i].local_start + element) * each, 0, each);
      memcpy(m->window + info.offset_bytes + (size_t)(runs[i].local_start + element) * each + each - 2,
             &value, 2);
      free(runs);
      return;
    }
    free(runs);
  }
  fail_msg("nothing is %s", tensor);
}

/* Log-probabilities of a text: their digest. */
static treadle_status score(const machine *m, uint64_t *digest_p) {
  static const char text[] = "{\"token_ids\": [1, 5, 9, 30, 77, 150, 2, 2, 91, 64, 33, 12]}\n";
  treadle_score_lines_options options = TREADLE_INIT(treadle_score_lines_options);
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  treadle_status status = treadle_generator_bind(m->engine, m->window, m->window_bytes);
  if (!status) status = treadle_generator_score_lines(m->engine, text, sizeof text - 1, &options, &figures);
  *digest_p = figures.digest;
  return status;
}

/* Every tensor of a model, one after the other: NaN or infinity in it is refused by its name, or has no part in the answer at all. */
static void names_weights(void **state) {
  (void)state;
  static const uint16_t values[] = {0x7fc0, 0x7f80, 0xff80}; /* NaN, infinity, -infinity */
  static const char *const models[] = {"llama-gqa-llama3rope", "qwen2-tied", "qwen2moe", "dsv3-yarn"};
  for (size_t i = 0; i < TEST_COUNT(models); i++) {
    char folder[300];
    uint64_t clean, digest;
    int named = 0, unused = 0;
    snprintf(folder, sizeof folder, MODELS "%s", models[i]);
    machine m = open_machine(folder, (treadle_generator_options){0});
    assert_ok(score(&m, &clean));
    char *window = malloc(m.window_bytes);
    assert_non_null(window);
    memcpy(window, m.window, m.window_bytes);
    for (int32_t t = 0; t < treadle_model_tensor_count(m.model); t++) {
      treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
      assert_ok(treadle_model_tensor(m.model, t, &info));
      for (size_t v = 0; v < TEST_COUNT(values) && !info.same_as; v++) {
        poke(&m, 0, info.name, 3, values[v]);
        treadle_status status = score(&m, &digest);
        if (status ? status != TREADLE_REFUSED || !strstr(treadle_error_message(), info.name)
                   : digest != clean)
          fail_msg("%s, %s, value %zu: %s", models[i], info.name, v,
                   status ? treadle_error_message() : "another answer, and no word");
        named += status != TREADLE_OK;
        unused += status == TREADLE_OK;
        memcpy(m.window, window, m.window_bytes);
      }
    }
    printf("%s: %d named, %d have no part\n", models[i], named, unused);
    assert_true(named > 20);
    free(window);
    machine_close(&m);
  }
}

static void stops_generating(void **state) {
  (void)state;
  machine m = open_machine(MODELS "llama-gqa-llama3rope", (treadle_generator_options){0});
  answers got;
  assert_ok(generate(&m, request, NULL, NULL, &got));
  assert_int_equal(got.count, 1);
  poke(&m, 0, "model.layers.1.mlp.down_proj.weight", 3, 0x7fc0);
  assert_ok(treadle_generator_bind(m.engine, m.window, m.window_bytes));
  assert_refused("model.layers.1.mlp.down_proj.weight", generate(&m, request, NULL, NULL, &got));
  assert_int_equal(got.count, 0);
  machine_close(&m);
}

/* Of two ranks one has the weight: it says the name, the other says that it is another's. */
static int run_rank(treadle_group *group, void *context) {
  const machine_spec spec = {.folder = MODELS "llama-gqa-llama3rope",
                             .layout = "vllm:tp=2",
                             .group = group,
                             .options = {.threads = 1, .kv_bytes = 1 << 20}};
  int rank = treadle_group_rank(group);
  answers got;
  machine m;
  (void)context;
  RANK_OK(machine_open(&m, &spec));
  if (rank == 1) poke(&m, 1, "model.layers.1.mlp.down_proj.weight", 3, 0x7fc0);
  RANK_OK(treadle_generator_bind(m.engine, m.window, m.window_bytes));
  RANK_FAILS(TREADLE_REFUSED,
             rank == 1 ? "model.layers.1.mlp.down_proj.weight" : "a weight of another rank",
             generate(&m, request, NULL, NULL, &got));
  RANK_TRUE(got.count == 0);
  machine_close(&m);
  return 0;
}

static void names_weights_of_ranks(void **state) {
  (void)state;
  ranks_as_threads(2, 60, 0, run_rank, NULL);
}

/* ---- Tokenizers, templates ---------------------------------------------------------------------------- */

static void refuses_tokenizers(void **state) {
  (void)state;
  static const char other[] = "{'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 203}, 'merges': []}}",
                    lacks[] = "{'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1}, 'merges': []}}",
                    prompt[] = "{\"prompt\": \"z\"}\n", text[] = "{\"text\": \"a\"}\n",
                    good[] = "{\"prompt\": \"ab\", \"max_tokens\": 30, \"temperature\": 9}\n";
  machine m = open_machine(MODELS "llama-gqa-llama3rope", (treadle_generator_options){0});
  treadle_tokenizer *large = text_must_open(other), *small = text_must_open(lacks);
  const treadle_score_lines_options score = {.struct_size = sizeof score, .tokenizer = large};
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  answers got;
  assert_refused("the tokenizer has 204 ids, the model a vocabulary of 203",
                 generate(&m, request, large, NULL, &got));
  assert_refused("the tokenizer has 204 ids",
                 treadle_generator_score_lines(m.engine, text, sizeof text - 1, &score, &figures));
  assert_refused("line 1: prompt is empty", generate(&m, prompt, small, NULL, &got)); /* no piece of it */
  assert_ok(generate(&m, good, small, NULL, &got)); /* most ids of the model have no text */
  assert_int_equal(got.count, 1);
  assert_non_null(strstr(got.last, "\"text\": \""));
  treadle_tokenizer_close(large);
  treadle_tokenizer_close(small);
  machine_close(&m);
}

static void refuses_endless_templates(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {{"{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}"
                "{% endfor %}{% endfor %}{% endfor %}",
                "line 1: the template takes more than"},
               {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "line 1"},
               {"{{ 'abcdefgh' * 100000000 }}", "line 1"}};
  static const char talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n";
  const char *folder = engine_folder("llama-gqa-llama3rope");
  machine m = open_machine(folder, (treadle_generator_options){0});
  treadle_tokenizer *tokenizer;
  answers got;
  assert_ok(treadle_tokenizer_open(folder, &tokenizer));
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char path[200];
    treadle_chat *chat;
    text_write(folder, "endless.jinja", cases[i].text, strlen(cases[i].text));
    snprintf(path, sizeof path, "%s/endless.jinja", folder);
    assert_ok(treadle_chat_open(path, &chat));
    assert_refused(cases[i].message, generate(&m, talk, tokenizer, chat, &got));
    assert_int_equal(got.count, 0);
    treadle_chat_close(chat);
  }
  treadle_tokenizer_close(tokenizer);
  machine_close(&m);
}

/* ---- Requests and memory ------------------------------------------------------------------------------ */

static void refuses_requests(void **state) {
  (void)state;
  static const struct {
    const char *line, *message;
  } cases[] = {
      {"{\"prompt_token_ids\": []}", "line 1: prompt_token_ids is empty"},
      {"{\"prompt_token_ids\": [203]}",
       "line 1: prompt_token_ids: 203 is not in the vocabulary of 203 tokens"},
      {"{\"prompt_token_ids\": [-1]}", "line 1: prompt_token_ids"},
      {"{\"prompt_token_ids\": [1, 2, 3, 4, 5, 6, 7, 8]}", "it must not be longer than 8"},
      {"{\"prompt_token_ids\": [1], \"stop_token_ids\": [500]}", "stop_token_ids"},
      {"{\"prompt_token_ids\": [1], \"temperature\": -1}", "temperature"},
      {"{\"prompt_token_ids\": [1], \"top_p\": 2}", "top_p"},
      {"{\"prompt_token_ids\": [1], \"n\": 0}", "line 1: n "},
      {"{\"prompt_token_ids\": [1], \"best_of\": 2}", "best_of"},
      {"{\"prompt\": \"Hi\"}", "there is no tokenizer"},
      {"{\"prompt\": \"\xff\"}", "line 1"},
      {"", "has no requests"},
  };
  machine m = open_machine(MODELS "llama-gqa-llama3rope", (treadle_generator_options){.max_len = 8});
  answers got;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    assert_refused(cases[i].message, generate(&m, cases[i].line, NULL, NULL, &got));
    assert_int_equal(got.count, 0);
  }
  machine_close(&m);
}

/* Less memory than a block, or than one request, says how much it takes; with that it runs. */
static void says_how_much_memory(void **state) {
  (void)state;
  const machine_spec none = {.folder = MODELS "llama-gqa-llama3rope",
                             .layout = "vllm:tp=1",
                             .options = {.threads = 1, .kv_bytes = 100}};
  static const char large[] = "{\"prompt_token_ids\": [1], \"max_tokens\": 100, \"ignore_eos\": true}\n";
  static const int32_t ids[64] = {1};
  const treadle_score_text text = {ids, 64};
  size_t bytes = 0;
  machine m;
  answers got;
  assert_refused("which has", machine_open(&m, &none));
  assert_int_equal(sscanf(strstr(treadle_error_message(), "which has"), "which has %zu bytes", &bytes), 1);
  machine_close(&m);
  m = open_machine(MODELS "llama-gqa-llama3rope", (treadle_generator_options){.kv_bytes = bytes});
  assert_refused("it takes", treadle_generator_score(m.engine, &text, 1, NULL));
  assert_refused("line 1: 101 tokens are 7 blocks", generate(&m, large, NULL, NULL, &got));
  assert_int_equal(sscanf(strstr(treadle_error_message(), "it takes"), "it takes %zu bytes", &bytes), 1);
  machine_close(&m);
  m = open_machine(MODELS "llama-gqa-llama3rope", (treadle_generator_options){.kv_bytes = bytes});
  assert_ok(generate(&m, large, NULL, NULL, &got));
  assert_int_equal(got.count, 1);
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_configs),    cmocka_unit_test(names_weights),
      cmocka_unit_test(stops_generating),   cmocka_unit_test(names_weights_of_ranks),
      cmocka_unit_test(refuses_tokenizers), cmocka_unit_test(refuses_endless_templates),
      cmocka_unit_test(refuses_requests),   cmocka_unit_test(says_how_much_memory)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
