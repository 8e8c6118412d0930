/* treadle switch under a launcher: the JSON, the checks, what is refused and said once.
 * ctest: label=mpi timeout=600 */
#include "cli/command.h"

#include "test.h"

static const char *model;

static int make_model(void **state) {
  (void)state;
  model = command_model("--layers 4 --hidden 256 --vocab 1000");
  return 0;
}

static json_t *switch_json(int ranks, const char *rest) {
  char arguments[512];
  snprintf(arguments, sizeof arguments, "switch --model %s %s", model, rest);
  return command_json(ranks, 0, arguments);
}

static void json_has_its_keys(void **state) {
  (void)state;
  static const char *const keys[] = {"cycles",         "seconds_to_infer", "seconds_to_train",
                                     "memcpy_seconds", "rate_over_memcpy", "offload_seconds",
                                     "load_seconds",   "infer_bytes",      "copied_bytes",
                                     "aliased_bytes",  "moved_bytes",      "lower_bound_bytes",
                                     "ratio",          "peak_bytes",       "peak_bound_bytes",
                                     "check",          "digest",           "residency",
                                     "staged_bytes",   "weights_source",   "device",
                                     "copy_seconds",   "kernel_launches",  "waves_in_flight",
                                     "table_bytes",    "slab_bytes"};
  json_t *root =
      switch_json(4, "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --page-size 64KiB --check --cycles 3");
  assert_int_equal(json_object_size(root), TEST_COUNT(keys));
  for (size_t i = 0; i < TEST_COUNT(keys); i++) assert_non_null(json_object_get(root, keys[i]));
  assert_string_equal(json_string_value(json_object_get(root, "check")), "pass");
  assert_true(command_number(root, "ratio") == 1);
  assert_true(command_number(root, "moved_bytes") > 0);
  assert_true(command_number(root, "seconds_to_infer") > 0 && command_number(root, "seconds_to_train") > 0);
  assert_true(command_number(root, "rate_over_memcpy") > 0 && command_number(root, "memcpy_seconds") > 0);
  assert_true(command_number(root, "peak_bytes") <= command_number(root, "peak_bound_bytes"));

  /* plan says the same beforehand. */
  char arguments[256];
  snprintf(arguments, sizeof arguments,
           "plan --model %s --from megatron:tp=2,pp=2 --to vllm:tp=4 --ranks 4 --page-size 64KiB", model);
  json_t *plan = command_json(0, 0, arguments);
  assert_true(command_number(plan, "moved_bytes") == command_number(root, "moved_bytes"));
  assert_true(command_number(plan, "lower_bound_bytes") == command_number(root, "lower_bound_bytes"));
  assert_true(command_number(plan, "infer_bytes") == command_number(root, "infer_bytes"));
  assert_true(command_number(plan, "copied_bytes") == command_number(root, "copied_bytes"));
  assert_true(command_number(plan, "aliased_bytes") == command_number(root, "aliased_bytes"));
  assert_true(command_number(plan, "peak_bytes") == command_number(root, "peak_bytes"));
  assert_true(command_number(plan, "peak_bound_bytes") == command_number(root, "peak_bound_bytes"));
  json_decref(plan);
  json_decref(root);
}

/* The digest is that of the values, in whatever layouts; and of a config.json alone, that of its hash. */
static void digest_is_of_the_values(void **state) {
  (void)state;
  char arguments[256], digest[32] = "";
  static const struct {
    int ranks;
    const char *pair;
  } cases[] = {{1, "--train hf --infer vllm --cycles 1"},
               {2, "--train megatron:pp=2 --infer sglang:tp=2 --cycles 1 --page-size 4KiB"},
               {3, "--train hf:root=1 --infer vllm --cycles 1 --check"},
               {2, "--train megatron:tp=2 --infer hf:root=1 --cycles 2 --check=prove"}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    json_t *root = switch_json(cases[i].ranks, cases[i].pair);
    const char *now = json_string_value(json_object_get(root, "digest"));
    if (i > 0) assert_string_equal(now, digest);
    snprintf(digest, sizeof digest, "%s", now);
    json_decref(root);
  }
  snprintf(arguments, sizeof arguments,
           "switch --model %s/config.json --train hf --infer vllm --cycles 0 --check", model);
  json_t *root = command_json(2, 0, arguments);
  assert_string_equal(json_string_value(json_object_get(root, "digest")),
                      digest); /* as make-model made it */
  assert_true(json_is_null(json_object_get(root, "seconds_to_train")));
  json_decref(root);
}

static void text_ends_with_pass(void **state) {
  (void)state;
  command_result result = command_launch(
      4,
      "switch --model %s --train megatron:tp=4 --infer vllm:tp=2 --check=prove --page-size 4KiB --cycles 1",
      model);
  command_expect(&result, 0, "", 0);
  static const char *const words[] = {"was dropped; caught: ", "was doubled; caught: ",
                                      "was misplaced; caught: ", "\nPASS\n", "every byte compared"};
  for (size_t i = 0; i < TEST_COUNT(words); i++)
    if (!strstr(result.out, words[i])) fail_msg("no '%s' in\n%s", words[i], result.out);
  command_release(&result);
}

/* Rows of fp8 blocks are spoiled too, with as many waves as it takes for one of them to be wrong. */
static void faults_of_blocks_are_caught(void **state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"qwen3\", \"vocab_size\": 96, \"hidden_size\": 128, \"num_hidden_layers\": 2, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, "
      "\"intermediate_size\": 256, \"torch_dtype\": \"bfloat16\", \"quantization_config\": "
      "{\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32]}}";
  char path[160];
  snprintf(path, sizeof path, "%s/blocks.json", command_folder());
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(config, file);
  assert_int_equal(fclose(file), 0);
  command_result result =
      command_launch(2,
                     "switch --model %s --train megatron:tp=2 --infer vllm:tp=2 --check=prove --page-size "
                     "4KiB --cap 256KiB --cycles 0",
                     path);
  command_expect(&result, 0, "", 0);
  static const char *const words[] = {
      "was dropped; caught: ", "was left out; caught: coverage: ",
      "was made in a wrong wave; caught: coverage: ", "was given a wrong scale; caught: ", "\nPASS\n"};
  for (size_t i = 0; i < TEST_COUNT(words); i++)
    if (!strstr(result.out, words[i])) fail_msg("no '%s' in\n%s", words[i], result.out);
  command_release(&result);
}

/* With a budget of exactly the bound it runs, with one page less it is refused before anything moves. */
static void budget_is_kept(void **state) {
  (void)state;
  char rest[256];
  const char *pair =
      "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --page-size 64KiB --cycles 1 --check --budget";
  snprintf(rest, sizeof rest,
           "plan --model %s --from megatron:tp=2,pp=2 --to vllm:tp=4 --ranks 4 --page-size 64KiB "
           "--budget 1GiB",
           model);
  json_t *plan = command_json(0, 0, rest);
  int64_t least = json_integer_value(json_object_get(plan, "budget_min"));
  json_decref(plan);
  snprintf(rest, sizeof rest, "%s %lld", pair, (long long)least);
  json_t *root = switch_json(4, rest);
  assert_true(command_number(root, "peak_bytes") <= (double)least);
  json_decref(root);
  command_result result =
      command_launch(4, "switch --model %s %s %lld", model, pair, (long long)least - (64 << 10));
  command_expect(&result, 2, "budget", 1);
  assert_string_equal(result.out, "");
  command_release(&result);
}

static void refused_once_for_all(void **state) {
  (void)state;
  static const struct {
    const char *rest, *words;
  } cases[] = {
      {"--model %M --train megatron:tp=3 --infer vllm", "not divisible"},
      {"--model %M --train megatron:tp=2 --infer vllm:tp=2 --cap 1", "cap_min"},
      {"--model %M --train hf --infer vllm --budget 4KiB", "budget"},
      {"--model %M --train hf:dtype=fp32 --infer vllm:dtype=bf16", "not bit-exact"},
      {"--model %M/none --train hf --infer vllm", "no such file"},
      {"--model %M --train hf --infer vllm --page-size 3KiB", "page size"},
      {"--model %M --train hf", "--infer LAYOUT is missing"},
      {"--model %M --train hf --infer vllm --cycle 3", "did you mean --cycles"},
      {"--model %M --train hf --infer vllm --timeout 0", "--timeout"},
      {"--model %M --train hf --infer vllm --check=proof", "did you mean prove"},
      {"--model %M --train hf --infer vllm --own none --own both", "--own is given twice"},
      {"--model %M --train hf --infer vllm --own all", "--own has no value 'all'"},
      {"--model %M --train megatron:tp=4 --infer vllm:tp=4 --own both --keep host", "own train tensors"},
      {"--model %M --train megatron:tp=4 --infer vllm:tp=4 --own train --offload params",
       "own train tensors"},
      {"--model %M --train hf --infer vllm --update 2 --offload params,grads",
       "leave params out of --offload"},
      {"--model %M --train hf --infer vllm --update 2 --keep host", "keep=host copies params that leave"},
      {"--model %M --train hf --infer vllm --delta on", "--delta on is for updates: give --update N, too"},
      {"--model %M --train hf --infer vllm --double on",
       "--double on is for updates: give --update N, too"},
      {"--model %M --train hf --infer vllm --update 1 --double on --handle-file /tmp/x",
       "--handle-file shows one version alone"},
      {"--model %M --train hf --infer vllm --update 1 --double on --own infer", "rank 0: own infer tensor"},
      {"--model %M --train hf --infer vllm --changed 1", "--changed is for updates: give --update N, too"},
      {"--model %M --train hf --infer vllm --update 1 --changed 1.5",
       "--changed is '1.5', and must be a number from 0 to 1"},
      {"--model %M --train hf:on=0-4 --infer vllm", "rank 4 is not one of 4"},
      {"--model %M --train megatron:tp=2,on=0-2 --infer vllm", "the 3 ranks of on are not divisible by"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char rest[512] = "";
    for (const char *at = cases[i].rest; *at; at++) {
      size_t length = strlen(rest);
      if (strncmp(at, "%M", 2) == 0)
        snprintf(rest + length, sizeof rest - length, "%s", model), at++;
      else
        snprintf(rest + length, sizeof rest - length, "%c", *at);
    }
    command_result result = command_launch(4, "switch %s", rest);
    command_expect(&result, 2, cases[i].words, 1);
    command_expect(&result, 2, "treadle switch: ", 1);
    assert_string_equal(result.out, "");
    command_release(&result);
  }
}

/* Trainer and engine on ranks of their own, on some of both, on all; updates in mode INFER, also where values are cast. */
static void some_ranks_and_updates(void **state) {
  (void)state;
  static const struct {
    int ranks;
    const char *pair;
    int updates;
  } cases[] = {
      {4, "--train megatron:tp=2,on=0-1 --infer vllm:tp=2,on=2-3 --cycles 2 --update 3", 3},
      {4, "--train fsdp2:on=0-2 --infer vllm:tp=2,on=1-2 --cycles 1 --update 2 --offload grads --forward",
       2},
      {4, "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --cycles 1 --update 1 --offload none", 1},
      {4, "--train megatron:tp=2,on=0-1 --infer vllm:tp=2,on=2-3 --cycles 2 --update 3 --double on", 3},
      {4,
       "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --cycles 2 --update 2 --double on --offload "
       "grads,optimizer "
       "--own train",
       2},
      {3, "--train hf:dtype=fp32,on=1 --infer vllm:tp=2,dtype=bf16,on='\"0,2\"' --cycles 0 --update 3", 3},
      {4, "--train megatron:tp=2,on=0-1 --infer vllm:tp=2,on=1-2 --cycles 2 --offload params,optimizer", 0},
      {3, "--train zero3:on=0-1 --infer sglang:on=2 --cycles 1 --keep host", 0},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char rest[300];
    snprintf(rest, sizeof rest, "%s --page-size 64KiB --check", cases[i].pair);
    json_t *root = switch_json(cases[i].ranks, rest);
    assert_string_equal(json_string_value(json_object_get(root, "check")), "pass");
    assert_true(command_number(root, "ratio") == 1 && command_number(root, "moved_bytes") > 0);
    assert_true(command_number(root, "peak_bytes") <= command_number(root, "peak_bound_bytes"));
    bool doubled = strstr(rest, "--double on") != NULL;
    assert_true((json_object_get(root, "served_bytes") != NULL) == doubled);
    if (doubled)
      assert_true(command_number(root, "unbound_seconds") < command_number(root, "seconds_to_update"));
    assert_true((json_object_get(root, "updates") != NULL) == (cases[i].updates > 0));
    if (cases[i].updates) {
      assert_int_equal(command_number(root, "updates"), cases[i].updates);
      assert_true(command_number(root, "seconds_to_update") > 0);
    }
    json_decref(root);
  }
}

/* A pair that loses bits on the way back goes one way. */
static void one_way_may_lose_bits(void **state) {
  (void)state;
  json_t *root = switch_json(2, "--train hf:dtype=fp32 --infer vllm:tp=2,dtype=bf16 --cycles 0 --check");
  assert_string_equal(json_string_value(json_object_get(root, "check")), "pass");
  json_decref(root);
}

/* Families whose layers have other sizes or other tensors by turns, through every pair of these layouts and back. */
static void layers_that_differ(void **state) {
  (void)state;
  static const struct {
    const char *family, *infer[3];
  } rows[] = {
      {"gemma4_text", {"vllm:tp=4", "vllm:tp=2,pp=2", "vllm:tp=2,dp=2,ep=on"}},
      {"mimo_v2_flash", {"vllm:tp=4", "sglang:tp=2,pp=2", "sglang:tp=4,attn_dp=2,ep=2"}},
      {"llama4_text", {"vllm:tp=4", "sglang:tp=4,ep=2", "sglang:tp=4,attn_dp=2"}},
  };
  static const char *const train[] = {"fsdp:dp=4", "zero3:dp=4", "fsdp2:dp=4"};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[300], arguments[700];
    snprintf(path, sizeof path, "%s/%s", command_folder(), rows[i].family);
    command_result made =
        command_run("make-model %s --family %s --layers 4 --hidden 256 --vocab 500", path, rows[i].family);
    command_expect(&made, 0, "treadle", 0);
    command_release(&made);
    for (size_t k = 0; k < TEST_COUNT(train); k++) {
      snprintf(arguments, sizeof arguments,
               "switch --model %s --train %s --infer %s --page-size 4KiB --cap 2MiB --cycles 1 --check",
               path, train[k], rows[i].infer[k]);
      json_t *root = command_json(4, 0, arguments);
      assert_string_equal(json_string_value(json_object_get(root, "check")), "pass");
      assert_true(command_number(root, "ratio") == 1);
      json_decref(root);
    }
  }
}

/* Weights in memory of each rank's own, against the digest of the same weights in windows. */
static void own_tensors_are_switched_in_place(void **state) {
  (void)state;
  static const char pair[] =
      "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --page-size 4KiB --cycles 2 --check";
  static const struct {
    const char *own;
    bool stages, params, infer; /* are some of these on the device in mode INFER? */
  } cases[] = {
      {"--own train --cap 256KiB", true, false, true},
      {"--own infer", false, true, false},
      {"--own both", true, false, false},
      {"--own infer --keep host", false, false, false},
      {"--own both --cap 56KiB --offload grads=keep,optimizer", true, false, false},
  };
  char rest[256];
  json_t *plain = switch_json(4, pair);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    snprintf(rest, sizeof rest, "%s %s", pair, cases[i].own);
    json_t *root = switch_json(4, rest), *row = json_array_get(json_object_get(root, "residency"), 0);
    assert_string_equal(json_string_value(json_object_get(root, "check")), "pass");
    assert_string_equal(json_string_value(json_object_get(root, "digest")),
                        json_string_value(json_object_get(plain, "digest")));
    assert_true((command_number(root, "staged_bytes") > 0) == cases[i].stages);
    assert_true(command_number(root, "moved_bytes") == command_number(plain, "moved_bytes"));
    assert_true(command_number(root, "staged_bytes") <= command_number(root, "moved_bytes"));
    assert_true(command_number(root, "peak_bytes") <= command_number(root, "peak_bound_bytes"));
    assert_string_equal(json_string_value(json_object_get(row, "after")), "infer");
    assert_true((command_number(row, "params") > 0) == cases[i].params);
    assert_true((command_number(row, "infer") > 0) == cases[i].infer);
    json_decref(root);
  }
  json_decref(plain);
}

static void own_tensors_are_proved(void **state) {
  (void)state;
  command_result result =
      command_launch(4,
                     "switch --model %s --train megatron:tp=2,pp=2 --infer vllm:tp=4 --page-size 4KiB "
                     "--cycles 1 --own both --check=prove",
                     model);
  command_expect(&result, 0, "", 0);
  static const char *const words[] = {
      "was dropped; caught: ", "was misplaced; caught: ", "own tensors of all ranks: ", "\nPASS\n"};
  for (size_t i = 0; i < TEST_COUNT(words); i++)
    if (!strstr(result.out, words[i])) fail_msg("no '%s' in\n%s", words[i], result.out);
  command_release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_tensors_are_switched_in_place),
      cmocka_unit_test(own_tensors_are_proved),
      cmocka_unit_test(layers_that_differ),
      cmocka_unit_test(json_has_its_keys),
      cmocka_unit_test(digest_is_of_the_values),
      cmocka_unit_test(text_ends_with_pass),
      cmocka_unit_test(faults_of_blocks_are_caught),
      cmocka_unit_test(budget_is_kept),
      cmocka_unit_test(refused_once_for_all),
      cmocka_unit_test(one_way_may_lose_bits),
      cmocka_unit_test(some_ranks_and_updates),
  };
  return cmocka_run_group_tests(tests, make_model, command_teardown);
}
