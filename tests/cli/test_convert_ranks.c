/* treadle convert under a launcher: processes share the files, the result is the same.
 * ctest: label=mpi timeout=300 */
#include "cli/command.h"
#include "cli/made.h"

#include "test.h"

static void processes_share_the_files(void **state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"qwen3\", \"dtype\": \"bfloat16\", \"vocab_size\": 100, "
      "\"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
      "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"head_dim\": 8}";
  const made_options options = {.shards = 3};
  char hf[128], command[512];
  snprintf(hf, sizeof hf, "%s/hf", command_folder());
  made_checkpoint(hf, config, &options);
  snprintf(command, sizeof command, "convert --from hf --to megatron:tp=2,pp=2 %s %s/there", hf,
           command_folder());
  json_t *root = command_json(3, 0, command);
  assert_true(json_integer_value(json_object_get(root, "bytes_written")) > 0);
  assert_int_equal(json_integer_value(json_object_get(root, "resumed")), 0);
  json_decref(root);
  snprintf(command, sizeof command, "convert --from megatron:tp=2,pp=2 --to hf %s/there %s/back",
           command_folder(), command_folder());
  json_decref(command_json(2, 0, command));
  snprintf(command, sizeof command, "diff -r %s %s/back >&2", hf, command_folder());
  assert_int_equal(system(command), 0);
  command_result result = command_launch(2, "convert --from megatron:tp=2,pp=2 --to hf %s/there %s/back",
                                         command_folder(), command_folder());
  command_expect(&result, 2, "is not empty", 1);
  command_release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(processes_share_the_files)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
