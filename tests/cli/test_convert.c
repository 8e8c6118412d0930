/* treadle convert: round trips byte for byte, files against a direct cut, figures. */
#include "cli/conversion.h"

#include "base/crc.h"

#include "io/torch.h"
#include "layout/layout.h"
#include "model/model.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#define SIZES                                                                                              \
  "\"vocab_size\": 100, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
static const char tied[] =
    "{\"model_type\": \"llama\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"tie_word_embeddings\": true}";
static const char untied[] =
    "{\"model_type\": \"qwen2\", \"dtype\": \"float32\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"tie_word_embeddings\": false}";
static const char half[] = "{\"model_type\": \"qwen3\", \"dtype\": \"float16\", " SIZES
                           "\"num_key_value_heads\": 4, \"num_hidden_layers\": 4, \"head_dim\": 16}";
static const char experts[] =
    "{\"model_type\": \"qwen3_moe\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"head_dim\": 8, "
    "\"moe_intermediate_size\": 16, \"num_experts\": 8, \"num_experts_per_tok\": 2, "
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []}";
static const char mixture[] = "{\"model_type\": \"mixtral\", \"dtype\": \"bfloat16\", " SIZES
                              "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, "
                              "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}";
static const char latent[] =
    "{\"model_type\": \"deepseek_v3\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 4, \"num_hidden_layers\": 3, \"moe_intermediate_size\": 16, "
    "\"n_routed_experts\": 8, "
    "\"n_shared_experts\": 1, \"q_lora_rank\": 16, \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, "
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, "
    "\"n_group\": 2, "
    "\"num_experts_per_tok\": 2, \"num_nextn_predict_layers\": 1, \"topk_method\": \"noaux_tc\"}";

/* ---- Round trips ------------------------------------------------------------------------------- */

static const struct {
  const char *config, *layouts[7];
  int shards;
  bool copies;
} trips[] = {
    {tied,
     {"megatron:tp=2,pp=2", "megatron:pp=2,vpp=2", "megatron", "torch_dist", "torch_dist:spec=local"},
     0,
     true},
    {untied,
     {"megatron:tp=4,pp=2", "megatron:first=1,pp=2", "megatron:tp=2,spec=local",
      "torch_dist:padded_vocab_size=1000"},
     3,
     false},
    {half, {"megatron:tp=2,pp=4", "megatron:vocab_divisible_by=1", "torch_dist"}, 2, true},
    {experts,
     {"megatron:tp=2,pp=2,ep=2", "megatron:tp=2,ep=4,etp=1", "megatron:pp=2,vpp=2,ep=8",
      "megatron:tp=2,ep=2,experts=sequential", "torch_dist"},
     2,
     false},
    {mixture,
     {"megatron:tp=2,experts=legacy", "megatron:tp=2,pp=2,ep=4,etp=1,experts=legacy",
      "megatron:tp=2,ep=2,experts=stacked", "torch_dist"},
     0,
     false},
    {latent,
     {"megatron:tp=2,pp=2,ep=2,last=1", "megatron:tp=4,ep=2,etp=1", "megatron:mla_down_proj_fusion=on",
      "torch_dist"},
     2,
     true},
};

static void there_and_back(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(trips); i++) {
    conversion_make("hf", trips[i].config, trips[i].shards, trips[i].copies);
    for (int k = 0; k < 7 && trips[i].layouts[k]; k++) {
      conversion_run("hf", trips[i].layouts[k], "hf", "there");
      conversion_run(trips[i].layouts[k], "hf", "there", "back");
      if (conversion_shell("diff -r '%s' '%s' >&2", conversion_at("hf"), conversion_at("back")))
        fail_msg("%s: %s and back", trips[i].config, trips[i].layouts[k]);
    }
  }
}

/* "hf" to a layout and back, the same in each file. */
static void comes_back(const char *layout) {
  conversion_run("hf", layout, "hf", "there");
  conversion_run(layout, "hf", "there", "back");
  conversion_same("hf", "back");
}

/* Experts that the files have stacked come back so. */
static void stacked_experts(void **state) {
  (void)state;
  static const char *const configs[] = {"moe", "latent", "gdn"};
  for (size_t i = 0; i < TEST_COUNT(configs); i++) {
    conversion_remove("hf");
    command_result result =
        command_run("make-model '%s' --model %s/tests/data/convert/%s.json --scale-down 1 --experts packed",
                    conversion_at("hf"), TREADLE_SOURCE_DIR, configs[i]);
    assert_int_equal(result.exit_status, 0);
    command_release(&result);
    comes_back("megatron:tp=2,ep=2");
  }
}

/* Megatron has the norms of linear attention less 1, in which small values are rounded: the originals come back all the
 * same, and what was trained meanwhile counts. */
static const uint16_t small_values[] = {0x3e9a, 0x2000}; /* bf16: 0.3, 1e-19 */

static void make_small_norms(const char *from, const char *to) {
  char path[300];
  treadle_checkpoint *checkpoint = conversion_open(from);
  treadle_safetensors_writer *writer;
  conversion_remove(to);
  assert_int_equal(conversion_shell("mkdir '%s'; cp '%s'/config.json '%s'", conversion_at(to),
                                    conversion_at(from), conversion_at(to)),
                   0);
  snprintf(path, sizeof path, "%s/model.safetensors", conversion_at(to));
  assert_ok(treadle_safetensors_create(path, checkpoint->tensors, checkpoint->count, NULL, &writer));
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *tensor = &checkpoint->tensors[i];
    bool norm = strstr(tensor->name, "linear_attn.norm.weight");
    assert_true(!norm || tensor->bytes == sizeof small_values);
    assert_ok(treadle_safetensors_append(writer, norm ? (const void *)small_values : tensor->data,
                                         tensor->bytes));
  }
  assert_ok(treadle_safetensors_finish(writer));
  treadle_safetensors_writer_destroy(writer);
  treadle_checkpoint_close(checkpoint);
}

/* The directory of the archive says another CRC-32 of an entry. */
static void say_sum(int fd, const treadle_torch *torch, const treadle_torch_entry *entry) {
  enum { CENTRAL_BYTES = 46, CRC_AT = 16 };
  const char *image = torch->image;
  const uint32_t crc = treadle_crc32(0, entry->data, entry->bytes); /* the mapping is the file */
  const size_t length = strlen(entry->name);
  for (size_t at = torch->bytes - CENTRAL_BYTES - length; at > 0; at--)
    if (memcmp(image + at, "PK\1\2", 4) == 0 &&
        memcmp(image + at + CENTRAL_BYTES, entry->name, length) == 0)
      assert_int_equal(pwrite(fd, &crc, sizeof crc, (off_t)at + CRC_AT), sizeof crc);
}

/* Writes 2.0 as the first value of a tensor in an archive of bf16. */
static void train(const char *folder, const char *name, bool sums) {
  static const uint16_t two = 0x4000;
  const treadle_torch_options options = {.entry = "model"};
  char path[300];
  treadle_torch *torch;
  snprintf(path, sizeof path, "%s/release/mp_rank_00/model_optim_rng.pt", conversion_at(folder));
  assert_ok(treadle_torch_open(path, &options, &torch));
  int32_t i = 0;
  while (i < torch->count && strcmp(torch->tensors[i].name, name) != 0) i++;
  assert_true(i < torch->count);
  int fd = open(path, O_WRONLY);
  off_t at = (const char *)torch->tensors[i].data - (const char *)torch->image;
  assert_int_equal(pwrite(fd, &two, sizeof two, at), sizeof two);
  if (sums) say_sum(fd, torch, &torch->tensors[i].storage);
  close(fd);
  treadle_torch_close(torch);
}

static void offsets(void **state) {
  (void)state;
  conversion_remove("made");
  command_result result = command_run("make-model '%s' --model %s/tests/data/convert/gdn.json",
                                      conversion_at("made"), TREADLE_SOURCE_DIR);
  command_expect(&result, 0, "", 0);
  command_release(&result);
  make_small_norms("made", "hf");
  comes_back("megatron:tp=2");
  conversion_run("megatron:tp=2", "megatron:dtype=fp32,pp=2", "there", "other");
  conversion_run("megatron:dtype=fp32,pp=2", "hf", "other", "back");
  conversion_same("hf", "back");
  conversion_run("hf", "megatron", "hf", "there");
  train("there", "decoder.layers.0.self_attention.out_norm.weight", false);
  conversion_remove("back");
  conversion_refused(2, "has decoder.layers.0.self_attention.out_norm.weight and is damaged", "megatron",
                     "hf", "there", "back");
  conversion_remove("back");
  train("there", "decoder.layers.0.self_attention.out_norm.weight", true);
  conversion_run("megatron", "hf", "there", "back");
  treadle_checkpoint *checkpoint = conversion_open("back");
  const uint16_t *norm = conversion_find(checkpoint, "model.layers.0.linear_attn.norm", ".weight")->data;
  assert_int_equal(norm[0], 0x4040); /* 3.0 */
  assert_int_equal(norm[1], 0);      /* -1 + 1 */
  treadle_checkpoint_close(checkpoint);
}

/* By way of another layout, and with the types of training in between. */
static void by_other_ways(void **state) {
  (void)state;
  conversion_make("hf", experts, 2, false);
  conversion_run("hf", "megatron:tp=2,ep=2", "hf", "a");
  conversion_run("megatron:tp=2,ep=2", "megatron:pp=4,ep=4", "a", "b");
  conversion_run("megatron:pp=4,ep=4", "hf", "b", "back");
  conversion_same("hf", "back");
  conversion_run("hf", "megatron:pp=2,dtype=fp32", "hf", "a");
  conversion_run("megatron:pp=2,dtype=fp32", "hf", "a", "back");
  conversion_same("hf", "back");
  conversion_run("hf", "hf:dtype=fp32", "hf", "wide");
  conversion_run("hf", "hf:dtype=bf16", "wide", "back");
  assert_int_equal(conversion_shell("for f in '%s'/*.safetensors; do cmp $f '%s'/${f##*/} || exit 1; done",
                                    conversion_at("hf"), conversion_at("back")),
                   0);
  /* A model that is known by its config alone gets files of treadle's own. */
  command_result result =
      command_run("convert --from megatron:pp=2,dtype=fp32 --to hf --model %s/config.json %s %s",
                  conversion_at("hf"), conversion_at("a"), conversion_at("own"));
  command_expect(&result, 0, "", 0);
  command_release(&result);
  result = command_run("family check %s", conversion_at("own"));
  command_expect(&result, 0, "", 0);
  command_release(&result);
}

/* What torch would open is what the layout says, byte for byte. */
static void files_are_cut_directly(void **state) {
  (void)state;
  const char *text = "megatron:tp=2,pp=2,ep=2";
  conversion_make("hf", experts, 0, false);
  conversion_run("hf", text, "hf", "there");
  treadle_model *model;
  treadle_layout *layout;
  assert_ok(treadle_model_open(conversion_at("hf"), NULL, &model));
  assert_ok(treadle_layout_create(model, text, 8, NULL, &layout));
  for (int64_t rank = 0; rank < 8; rank++) {
    int64_t tp, pp, ep;
    char path[300];
    treadle_torch *torch;
    const treadle_torch_options options = {.entry = "model", .check_crc = true};
    assert_ok(treadle_layout_coordinate(layout, rank, "tp", &tp));
    assert_ok(treadle_layout_coordinate(layout, rank, "pp", &pp));
    assert_ok(treadle_layout_coordinate(layout, rank, "ep", &ep));
    snprintf(path, sizeof path, "%s/release/mp_rank_%02d_%03d_%03d/model_optim_rng.pt",
             conversion_at("there"), (int)tp, (int)pp, (int)ep);
    assert_ok(treadle_torch_open(path, &options, &torch));
    char *window = calloc(1, treadle_layout_window_bytes(layout, rank));
    assert_ok(treadle_layout_load(layout, rank, window));
    assert_int_equal(torch->count, treadle_layout_storage_count(layout, rank));
    for (int32_t i = 0; i < torch->count; i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(layout, rank, i, &info));
      assert_string_equal(torch->tensors[i].name, info.name);
      assert_string_equal(torch->tensors[i].entry, "model");
      assert_int_equal(torch->tensors[i].bytes, info.bytes);
      assert_memory_equal(torch->tensors[i].data, window + info.offset_bytes, info.bytes);
    }
    free(window);
    treadle_torch_close(torch);
  }
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* Makes the largest size that this process ever had large: its children must not count it as theirs. */
static void grow(size_t bytes) {
  volatile char *memory = malloc(bytes);
  assert_non_null(memory);
  for (size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
  free((void *)memory);
}

static void json_has_its_keys(void **state) {
  (void)state;
  static const char *const keys[] = {"seconds",        "bytes_read", "bytes_written",
                                     "peak_rss_bytes", "tensors",    "resumed"};
  conversion_make("hf", tied, 0, false);
  conversion_remove("there");
  char arguments[600];
  snprintf(arguments, sizeof arguments, "convert --from hf --to megatron:tp=2 %s %s", conversion_at("hf"),
           conversion_at("there"));
  enum { GROWN = 256 << 20 };
  grow(GROWN);
  json_t *root = command_json(0, 0, arguments);
  assert_int_equal(json_object_size(root), TEST_COUNT(keys));
  for (size_t i = 0; i < TEST_COUNT(keys); i++) assert_non_null(json_object_get(root, keys[i]));
  assert_int_equal(json_integer_value(json_object_get(root, "resumed")), 0);
  assert_true(json_integer_value(json_object_get(root, "bytes_written")) > 0);
  assert_in_range(json_integer_value(json_object_get(root, "peak_rss_bytes")), 1, GROWN - 1);
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back),
                                     cmocka_unit_test(stacked_experts),
                                     cmocka_unit_test(offsets),
                                     cmocka_unit_test(by_other_ways),
                                     cmocka_unit_test(files_are_cut_directly),
                                     cmocka_unit_test(json_has_its_keys)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
