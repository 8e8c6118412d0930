/* `treadle generate` and `treadle score` with --train: the weights go through a layout for training and a switch, and the results are the
 * same bits. */
/* ctest: label=mpi timeout=300 */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "test.h"

static const char *model;

static const char requests[] =
    "{\"prompt_token_ids\": [1, 5, 9, 20, 33], \"max_tokens\": 12, \"n\": 2, \"ignore_eos\": true}\n"
    "{\"prompt_token_ids\": [7, 7, 100], \"max_tokens\": 9, \"temperature\": 0.7, \"ignore_eos\": true}\n";

/* The answers, and what --json says. */
typedef struct outcome {
  char answers[1 << 16];
  json_t *json;
} outcome;

static void run(outcome *r, int ranks, const char *command, const char *in, const char *options) {
  const char *out = command_path("out.jsonl");
  char arguments[600];
  snprintf(arguments, sizeof arguments, "%s --model %s --file %s --out %s --kv-memory 2MiB %s", command,
           model, command_path(in), out, options);
  r->json = command_json(ranks, 0, arguments);
  FILE *file = fopen(out, "r");
  assert_non_null(file);
  size_t bytes = fread(r->answers, 1, sizeof r->answers - 1, file);
  assert_true(bytes > 0 && bytes < sizeof r->answers - 1);
  r->answers[bytes] = 0;
  fclose(file);
}

static void same(const outcome *a, const outcome *b, const char *what) {
  static const char *const keys[] = {"digest", "dtype", "exact", "kernels"};
  if (strcmp(a->answers, b->answers) != 0)
    fail_msg("%s: other answers:\n%s%s", what, a->answers, b->answers);
  for (size_t i = 0; i < TEST_COUNT(keys); i++)
    if (!json_equal(json_object_get(a->json, keys[i]), json_object_get(b->json, keys[i])))
      fail_msg("%s: another %s", what, keys[i]);
}

typedef struct pair {
  const char *folder, *train, *infer;
  int ranks;
} pair;

static void check_pair(const pair *p) {
  static outcome plain, trained;
  char layout[100], both[200];
  model = engine_folder(p->folder);
  command_write("in.jsonl", requests);
  snprintf(layout, sizeof layout, "--layout %s", p->infer);
  snprintf(both, sizeof both, "%s --train %s", layout, p->train);
  run(&plain, p->ranks, "generate", "in.jsonl", layout);
  run(&trained, p->ranks, "generate", "in.jsonl", both);
  same(&plain, &trained, p->train);
  assert_true(json_object_size(plain.json) == json_object_size(trained.json));
  assert_true(command_number(trained.json, "version") == 1);
  assert_true(command_number(trained.json, "work_bytes") == command_number(plain.json, "work_bytes"));
  assert_true(command_number(trained.json, "kv_blocks") >= command_number(plain.json, "kv_blocks"));
  assert_true(command_number(trained.json, "kv_blocks_leaked") == 0);
  command_write("answers.jsonl", plain.answers);
  json_decref(plain.json);
  json_decref(trained.json);
  snprintf(both, sizeof both, "%s --train %s --check", layout, p->train);
  run(&plain, p->ranks, "score", "answers.jsonl", layout);
  run(&trained, p->ranks, "score", "answers.jsonl", both);
  same(&plain, &trained, p->train);
  assert_true(command_number(trained.json, "checked") > 20 &&
              command_number(trained.json, "different") == 0);
  json_decref(plain.json);
  json_decref(trained.json);
}

static void test_pairs(void **state) {
  (void)state;
  static const pair pairs[] = {{"llama-gqa-llama3rope", "hf", "vllm:tp=1", 0},
                               {"llama-gqa-llama3rope", "megatron:tp=2,pp=2", "vllm:tp=4", 4},
                               {"qwen2-tied", "megatron:tp=2,pp=2", "vllm:tp=2", 4}, /* two replicas */
                               {"qwen2moe", "megatron:tp=2,ep=2,etp=1", "vllm:tp=2,ep=on", 2},
                               {"dsv3-yarn", "fsdp:dp=2", "sglang:tp=2", 2}};
  for (size_t i = 0; i < TEST_COUNT(pairs); i++) check_pair(&pairs[i]);
}

/* Without --layout: vllm:tp=1 and hf. Masters in fp32 become bf16 in the switch. */
static void test_defaults(void **state) {
  (void)state;
  static outcome plain, trained;
  model = engine_folder("qwen2-tied");
  command_write("in.jsonl", requests);
  run(&plain, 0, "generate", "in.jsonl", "--layout vllm:tp=1,dtype=bf16");
  run(&trained, 0, "generate", "in.jsonl",
      "--layout vllm:tp=1,dtype=bf16 --train megatron:tp=1,dtype=fp32");
  same(&plain, &trained, "masters in fp32");
  command_write("answers.jsonl", trained.answers);
  json_decref(plain.json);
  json_decref(trained.json);
  run(&plain, 0, "score", "answers.jsonl", "");
  run(&trained, 0, "score", "answers.jsonl", "--train megatron:tp=1");
  same(&plain, &trained, "score");
  json_decref(plain.json);
  json_decref(trained.json);
}

/* Whatever goes wrong is said once, and nothing is written. */
static void test_refused(void **state) {
  (void)state;
  static const struct {
    int ranks;
    const char *options, *words;
  } cases[] = {
      {0, "--train megatron:tp=3", "megatron:tp=3"},
      {0, "--train nothing", "no type 'nothing'"},
      {4, "--train megatron:tp=8 --layout vllm:tp=4", "megatron:tp=8"},
      {2, "--train megatron:tp=2 --layout vllm:tp=2 --kv-memory 1TiB --block-tokens 4096 --max-len 64",
       "with less --kv-memory it takes less"},
  };
  model = engine_folder("qwen2-tied");
  command_write("in.jsonl", requests);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const char *out = command_path("never");
    command_result result =
        cases[i].ranks ? command_launch(cases[i].ranks, "generate --model %s --file %s --out %s %s", model,
                                        command_path("in.jsonl"), out, cases[i].options)
                       : command_run("generate --model %s --file %s --out %s %s", model,
                                     command_path("in.jsonl"), out, cases[i].options);
    command_expect(&result, 2, cases[i].words, 1);
    assert_true(access(out, F_OK) != 0);
    command_release(&result);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_defaults),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
