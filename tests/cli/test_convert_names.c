/* treadle convert: names that meet, that lead elsewhere, or that are treadle's own; configs that speak of more than the files
 * hold. Nothing is written. */
#include "cli/conversion.h"

#include "test.h"

static const char experts[] =
    "{\"model_type\": \"qwen3_moe\", \"dtype\": \"bfloat16\", \"vocab_size\": 100, \"hidden_size\": 32, "
    "\"num_attention_heads\": 4, \"intermediate_size\": 48, "
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"head_dim\": 8, "
    "\"moe_intermediate_size\": 16, \"num_experts\": 8, \"num_experts_per_tok\": 2, "
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []}";

static int begin(void **state) {
  (void)state;
  if (!getenv("TREADLE")) return 0;
  conversion_make("hf", experts, 2, false);
  conversion_run("hf", "megatron", "hf", "megatron");
  return 0;
}

/* The second shard of the list gets another name. */
static void shard_lists(void **state) {
  (void)state;
  static const struct {
    const char *name, *words;
  } cases[] = {
      {"model-00001-of-00002.safetensors", "shards 0 and 1 are both called"},
      {"config.json", "'config.json' would be written twice: as file 2 of the weights and as the config"},
      {"tokenizer.json", "'tokenizer.json' would be written twice: as file 2 of the weights and as "},
      {"model.safetensors.index.json", "would be written twice: as file 2 of the weights and as the index"},
      {"treadle-convert.json", "is called 'treadle-convert.json', as treadle"},
      {"treadle-convert.lock", "is called 'treadle-convert.lock', as treadle"},
      {"treadle.lock", "is called 'treadle.lock', as treadle"},
      {"treadle-convert.0.done", "is called 'treadle-convert.0.done', as treadle"},
      {"..\\/elsewhere", "shard 1 lacks its file"},
      {"\\/tmp\\/elsewhere", "shard 1 lacks its file"},
      {"..", "shard 1 lacks its file"},
  };
  if (!getenv("TREADLE")) skip();
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    conversion_remove("in");
    conversion_remove("result");
    assert_int_equal(conversion_shell("cp -r '%s' '%s' && sed -i 's/model-00002-of-00002.safetensors/%s/' "
                                      "'%s/hf/treadle-shards.json'",
                                      conversion_at("megatron"), conversion_at("in"), cases[i].name,
                                      conversion_at("in")),
                     0);
    conversion_refused(2, cases[i].words, "megatron", "hf", "in", "result");
    assert_int_not_equal(access(conversion_at("result"), F_OK), 0);
  }
}

/* Nor does an index lead out of its folder, and a shard of an odd name is not a companion. */
static void indices(void **state) {
  (void)state;
  static const struct {
    const char *name, *words;
  } cases[] = {{"..\\/x", "is not a plain file name"}, {"treadle-convert.lock", "as treadle"}};
  if (!getenv("TREADLE")) skip();
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    conversion_remove("in");
    conversion_remove("result");
    assert_int_equal(
        conversion_shell(
            "cp -r '%s' '%s' && cd '%s' && sed -i 's/model-00002-of-00002.safetensors/%s/' *.index.json && "
            "mv model-00002-of-00002.safetensors $(echo '%s' | tr -d '\\\\')",
            conversion_at("hf"), conversion_at("in"), conversion_at("in"), cases[i].name, cases[i].name),
        0);
    conversion_refused(2, cases[i].words, "hf", "hf", "in", "result");
    assert_int_not_equal(access(conversion_at("result"), F_OK), 0);
  }
  conversion_remove("in");
  assert_int_equal(
      conversion_shell(
          "cp -r '%s' '%s' && cd '%s' && sed -i 's/model-00002-of-00002.safetensors/odd/' *.index.json "
          "&& mv model-00002-of-00002.safetensors odd",
          conversion_at("hf"), conversion_at("in"), conversion_at("in")),
      0);
  conversion_run("hf", "hf", "in", "result");
  conversion_same("in", "result");
}

/* Where a link, a folder or a pipe has the name of a file of the result by then, it stays. */
static void no_plain_files(void **state) {
  (void)state;
  static const char *const makers[] = {"ln -s /dev/null", "mkdir", "mkfifo"};
  static const char *const names[] = {"model-00001-of-00002.safetensors", "config.json", "treadle.lock"};
  if (!getenv("TREADLE")) skip();
  for (size_t i = 0; i < TEST_COUNT(makers) * TEST_COUNT(names); i++) {
    const char *name = names[i / TEST_COUNT(makers)];
    char path[600], command[700];
    conversion_remove("result");
    assert_int_equal(conversion_shell("mkdir '%s'", conversion_at("result")), 0);
    snprintf(path, sizeof path, "%s/%s", conversion_at("result"), name);
    snprintf(command, sizeof command, "%s '%s'", makers[i % TEST_COUNT(makers)], path);
    assert_int_equal(conversion_shell("%s", command), 0);
    int status = conversion_wait(conversion_start("hf", "hf", "hf", "result", "said"));
    assert_int_equal(status, 2);
    assert_int_equal(conversion_shell("test -f '%s' && ! test -L '%s'", path, path), 1);
  }
}

#if TEST_SANITIZED
#define MEMORY_LIMIT "" /* its shadow takes terabytes of addresses */
#else
#define MEMORY_LIMIT "ulimit -v 300000;"
#endif

/* A million experts in a config beside files of a few: refused before they have names. */
static void more_than_the_files_hold(void **state) {
  (void)state;
  static const char *const counts[] = {"100000", "1000000", "1099511627776"};
  if (!getenv("TREADLE")) skip();
  for (size_t i = 0; i < TEST_COUNT(counts); i++) {
    conversion_remove("in");
    conversion_remove("result");
    assert_int_equal(
        conversion_shell(
            "cp -r '%s' '%s' && sed -i 's/\"num_experts\": 8/\"num_experts\": %s/' '%s/hf/config.json'",
            conversion_at("megatron"), conversion_at("in"), counts[i], conversion_at("in")),
        0);
    char command[900];
    snprintf(command, sizeof command, "%s '%s' convert --from megatron --to hf '%s' '%s' 2>'%s'",
             MEMORY_LIMIT, getenv("TREADLE"), conversion_at("in"), conversion_at("result"),
             conversion_at("said"));
    assert_int_equal(conversion_shell("%s", command), 2);
    assert_true(conversion_said("said", i == 0 ? "has more than files of" : "config.json"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shard_lists), cmocka_unit_test(indices),
                                     cmocka_unit_test(no_plain_files),
                                     cmocka_unit_test(more_than_the_files_hold)};
  return cmocka_run_group_tests(tests, begin, command_teardown);
}
