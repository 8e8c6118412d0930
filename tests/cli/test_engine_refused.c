/* `treadle generate` and `treadle score` with a model, a tokenizer or memory that will not do: exit status 2, the words that say why, and
 * no answer. */
#include "cli/command.h"
#include "cli/engine_folder.h"
#include "io/safetensors.h"
#include "test.h"
#include "token/text_files.h"

static const char *model;

static int setup(void **state) {
  (void)state;
  model = engine_folder("llama-gqa-llama3rope");
  return 0;
}

static void expect(const char *words, const char *arguments) {
  command_result result = command_run("%s", arguments);
  command_expect(&result, 2, words, 1);
  assert_string_equal(result.out, "");
  command_release(&result);
}

/* Puts a file of its own in the place of the link. */
static void replace(const char *name, const char *bytes, size_t count) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", model, name);
  unlink(path);
  text_write(model, name, bytes, count);
}

static void not_a_number(void **state) {
  (void)state;
  char path[200], arguments[400];
  treadle_checkpoint *file;
  snprintf(path, sizeof path, "%s/model.safetensors", model);
  assert_ok(treadle_checkpoint_open(path, &file));
  const treadle_stored *tensor = treadle_checkpoint_find(file, "model.layers.0.mlp.up_proj.weight");
  assert_non_null(tensor);
  FILE *whole = fopen(path, "rb");
  assert_non_null(whole);
  assert_int_equal(fseek(whole, 0, SEEK_END), 0);
  size_t bytes = (size_t)ftell(whole), at = bytes - file->total_bytes + tensor->begin;
  char *copy = malloc(bytes);
  rewind(whole);
  assert_true(copy && fread(copy, 1, bytes, whole) == bytes);
  fclose(whole);
  treadle_checkpoint_close(file);
  memcpy(copy + at, "\xc0\x7f", 2);
  replace("model.safetensors", copy, bytes);
  free(copy);
  snprintf(arguments, sizeof arguments, "generate --model %s --prompt Hi --max-new-tokens 3", model);
  expect("model.layers.0.mlp.up_proj.weight has a value that is NaN or infinite", arguments);
  text_write(command_folder(), "in.jsonl", "{\"text\": \"Hi\"}\n", 15);
  snprintf(arguments, sizeof arguments, "score --model %s --file %s/in.jsonl", model, command_folder());
  expect("model.layers.0.mlp.up_proj.weight has a value that is NaN or infinite", arguments);
  model = engine_folder("llama-gqa-llama3rope");
}

static void another_tokenizer(void **state) {
  (void)state;
  static const char other[] =
      "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"H\": 0, \"i\": 999}, \"merges\": []}}";
  char arguments[400];
  text_write(command_folder(), "other.json", other, sizeof other - 1);
  snprintf(arguments, sizeof arguments, "generate --model %s --prompt Hi --tokenizer %s/other.json", model,
           command_folder());
  expect("the tokenizer has 1000 ids, the model a vocabulary of 203", arguments);
}

static void little_memory(void **state) {
  (void)state;
  char arguments[400];
  snprintf(arguments, sizeof arguments, "generate --model %s --prompt Hi --kv-memory 1KiB", model);
  expect("is less than one block of 16 tokens, which has", arguments);
  snprintf(arguments, sizeof arguments,
           "generate --model %s --prompt Hi --kv-memory 40KiB --max-new-tokens 1000", model);
  expect("it takes", arguments);
}

static void endless_template(void **state) {
  (void)state;
  static const char text[] =
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  char arguments[400];
  replace("chat_template.jinja", text, sizeof text - 1);
  snprintf(arguments, sizeof arguments, "generate --model %s --prompt Hi --chat", model);
  expect("the template takes more than", arguments);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(not_a_number), cmocka_unit_test(another_tokenizer),
                                     cmocka_unit_test(little_memory), cmocka_unit_test(endless_template)};
  return cmocka_run_group_tests(tests, setup, command_teardown);
}
