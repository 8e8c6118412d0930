/* treadle convert: what is refused. */
#include "cli/conversion.h"

#include "io/torch.h"
#include "test.h"

#include <fcntl.h>

#define SIZES                                                                                              \
  "\"vocab_size\": 100, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
static const char tied[] =
    "{\"model_type\": \"llama\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"tie_word_embeddings\": true}";
static const char experts[] =
    "{\"model_type\": \"qwen3_moe\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"head_dim\": 8, "
    "\"moe_intermediate_size\": 16, \"num_experts\": 8, \"num_experts_per_tok\": 2, "
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []}";

/* Changes the first byte of a tensor in a file. */
static void spoil(const char *path, const char *name) {
  const treadle_torch_options options = {.entry = "model"};
  treadle_torch *torch;
  assert_ok(treadle_torch_open(path, &options, &torch));
  for (int32_t i = 0; i < torch->count; i++)
    if (strcmp(torch->tensors[i].name, name) == 0) {
      const unsigned char *byte = torch->tensors[i].data;
      unsigned char other = *byte ^ 1;
      int fd = open(path, O_WRONLY);
      assert_int_equal(pwrite(fd, &other, 1, byte - (const unsigned char *)torch->image), 1);
      close(fd);
      treadle_torch_close(torch);
      return;
    }
  fail_msg("%s has no %s", path, name);
}

static void copies_must_agree(void **state) {
  (void)state;
  conversion_make("hf", experts, 0, false);
  static const char *const names[] = {"decoder.layers.1.self_attention.linear_qkv.layer_norm_weight",
                                      "decoder.layers.1.self_attention.linear_qkv.weight"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char path[300];
    conversion_remove("back");
    conversion_run("hf", "megatron:tp=2,ep=2", "hf", "there");
    snprintf(path, sizeof path, "%s/release/mp_rank_01_001/model_optim_rng.pt", conversion_at("there"));
    spoil(path, names[i]);
    conversion_refused(2, names[i], "megatron:tp=2,ep=2", "hf", "there", "back");
    assert_int_not_equal(access(conversion_at("back"), F_OK), 0);
  }
}

static void refusals(void **state) {
  (void)state;
  conversion_make("hf", experts, 0, false);
  conversion_make("dense", tied, 0, false);
  conversion_run("hf", "megatron:tp=2,ep=2", "hf", "there");
  conversion_remove("result");
  conversion_refused(2, "there is no such file", "hf", "megatron", "none", "result");
  conversion_refused(2, "are read as hf, megatron or torch_dist", "vllm:tp=2", "hf", "hf", "result");
  conversion_refused(2, "are written as hf, megatron or torch_dist", "hf", "vllm:tp=2", "hf", "result");
  conversion_refused(2, "not divisible by ep=3", "hf", "megatron:ep=3", "hf", "result");
  conversion_refused(2, "has no experts", "hf", "megatron:ep=2", "dense", "result");
  conversion_refused(2, "has 4 folders mp_rank_*, and megatron:tp=2 has 2", "megatron:tp=2", "hf", "there",
                     "result");
  conversion_refused(2, "has 4 folders mp_rank_*, and megatron:tp=4,ep=2 has 8", "megatron:tp=4,ep=2", "hf",
                     "there", "result");
  conversion_refused(2, "dtype=bf16", "megatron:tp=2,ep=2,dtype=fp32", "hf", "there", "result");
  conversion_refused(2, "padded_vocab_size", "megatron:tp=2,ep=2,vocab_divisible_by=1", "hf", "there",
                     "result");
  conversion_refused(2, "which the layout has there", "megatron:tp=2,ep=2,spec=local", "hf", "there",
                     "result");
  conversion_refused(2, "ranks 0 and 1 hold different parts", "hf", "megatron:etp=2,tp=1", "hf", "result");
  conversion_refused(2, "has no quantization_config", "hf", "hf:dtype=fp8", "hf", "result");
  conversion_refused(2, "there is no model", "megatron", "hf", "dense", "result");
  conversion_refused(2, ".metadata: cannot open", "torch_dist", "hf", "there", "result");
  assert_int_equal(
      conversion_shell("rm '%s/release/mp_rank_01_001/model_optim_rng.pt'", conversion_at("there")), 0);
  conversion_refused(2, "mp_rank_01_001/model_optim_rng.pt", "megatron:tp=2,ep=2", "hf", "there", "result");
  assert_int_equal(
      conversion_shell("mkdir '%s'; touch '%s/mine'", conversion_at("result"), conversion_at("result")), 0);
  conversion_refused(2, "is not empty (it has mine)", "hf", "megatron", "hf", "result");
}

/* An archive that is cut off, one whose pickle would run something, one that is none: none of them is run or read. */
static void archives_that_are_none(void **state) {
  (void)state;
  static const struct {
    const char *command, *words;
  } cases[] = {
      {"truncate -s 2000 '%s'", "model_optim_rng.pt"},
      {"cp " TREADLE_SOURCE_DIR "/tests/data/torch/evil_inside.pt '%s'", "posix.system"},
      {"echo no archive >'%s'", "model_optim_rng.pt"},
      {": >'%s'", "model_optim_rng.pt"},
  };
  conversion_make("hf", experts, 0, false);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char path[300];
    conversion_remove("back");
    conversion_run("hf", "megatron:tp=2,ep=2", "hf", "there");
    snprintf(path, sizeof path, "%s/release/mp_rank_01_001/model_optim_rng.pt", conversion_at("there"));
    char command[600];
    snprintf(command, sizeof command, cases[i].command, path);
    assert_int_equal(conversion_shell("%s", command), 0);
    conversion_refused(2, cases[i].words, "megatron:tp=2,ep=2", "hf", "there", "back");
    assert_int_not_equal(access(conversion_at("back"), F_OK), 0);
    assert_int_not_equal(access("treadle-was-here", F_OK), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_must_agree), cmocka_unit_test(refusals),
                                     cmocka_unit_test(archives_that_are_none)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
