/* treadle convert: round trips byte for byte, files against a direct cut, kills, and what is refused.
 * ctest: timeout=600 */
#include "cli/conversion.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "io/torch.h"
#include "layout/layout.h"
#include "model/model.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

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
static const char latent[] =
    "{\"model_type\": \"deepseek_v3\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 4, \"num_hidden_layers\": 3, \"moe_intermediate_size\": 16, "
    "\"n_routed_experts\": 8, "
    "\"n_shared_experts\": 1, \"q_lora_rank\": 16, \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, "
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, "
    "\"n_group\": 2, "
    "\"num_experts_per_tok\": 2, \"num_nextn_predict_layers\": 1, \"topk_method\": \"noaux_tc\"}";
static const char long_one[] =
    "{\"model_type\": \"qwen3\", \"dtype\": \"bfloat16\", \"vocab_size\": 4000, "
    "\"hidden_size\": 512, \"num_attention_heads\": 8, \"intermediate_size\": 1408, "
    "\"num_key_value_heads\": 4, \"num_hidden_layers\": 8, \"head_dim\": 64}";

/* ---- Round trips ------------------------------------------------------------------------------- */

static const struct {
  const char *config, *layouts[6];
  int shards;
  bool copies;
} trips[] = {
    {tied, {"megatron:tp=2,pp=2", "megatron:pp=2,vpp=2", "megatron"}, 0, true},
    {untied, {"megatron:tp=4,pp=2", "megatron:first=1,pp=2", "megatron:tp=2,spec=local"}, 3, false},
    {half, {"megatron:tp=2,pp=4", "megatron:vocab_divisible_by=1"}, 2, true},
    {experts,
     {"megatron:tp=2,pp=2,ep=2", "megatron:tp=2,ep=4,etp=1", "megatron:pp=2,vpp=2,ep=8",
      "megatron:tp=2,ep=2,experts=sequential"},
     2,
     false},
    {latent,
     {"megatron:tp=2,pp=2,ep=2,last=1", "megatron:tp=4,ep=2,etp=1", "megatron:mla_down_proj_fusion=on"},
     2,
     true},
};

static void there_and_back(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(trips); i++) {
    conversion_make("hf", trips[i].config, trips[i].shards, trips[i].copies);
    for (int k = 0; k < 6 && trips[i].layouts[k]; k++) {
      conversion_run("hf", trips[i].layouts[k], "hf", "there");
      conversion_run(trips[i].layouts[k], "hf", "there", "back");
      if (conversion_shell("diff -r '%s' '%s' >&2", conversion_at("hf"), conversion_at("back")))
        fail_msg("%s: %s and back", trips[i].config, trips[i].layouts[k]);
    }
  }
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
    conversion_run("hf", "megatron:tp=2,ep=2", "hf", "there");
    conversion_run("megatron:tp=2,ep=2", "hf", "there", "back");
    conversion_same("hf", "back");
  }
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
  assert_ok(treadle_layout_create(model, text, 8, &layout));
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
      treadle_storage_info info;
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

static void json_has_its_keys(void **state) {
  (void)state;
  static const char *const keys[] = {"seconds",        "bytes_read", "bytes_written",
                                     "peak_rss_bytes", "tensors",    "resumed"};
  conversion_make("hf", tied, 0, false);
  conversion_remove("there");
  char arguments[600];
  snprintf(arguments, sizeof arguments, "convert --from hf --to megatron:tp=2 %s %s", conversion_at("hf"),
           conversion_at("there"));
  json_t *root = command_json(0, 0, arguments);
  assert_int_equal(json_object_size(root), TEST_COUNT(keys));
  for (size_t i = 0; i < TEST_COUNT(keys); i++) assert_non_null(json_object_get(root, keys[i]));
  assert_int_equal(json_integer_value(json_object_get(root, "resumed")), 0);
  assert_true(json_integer_value(json_object_get(root, "bytes_written")) > 0);
  json_decref(root);
}

/* ---- Kills ------------------------------------------------------------------------------------- */

/* Bytes and whole files below a folder. */
static void measure(const char *folder, int64_t *bytes, int *files) {
  DIR *listing = opendir(folder);
  if (!listing) return;
  for (struct dirent *entry; (entry = readdir(listing));) {
    char path[600];
    struct stat about;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (lstat(path, &about)) continue;
    if (S_ISDIR(about.st_mode)) measure(path, bytes, files);
    if (S_ISREG(about.st_mode)) *bytes += about.st_size;
    if (strcmp(entry->d_name, "model_optim_rng.pt") == 0) ++*files;
  }
  closedir(listing);
}

/* Starts a conversion and kills it when the folder holds so many bytes and files. True: it was killed, false: it had
 * ended, well. */
static bool run_and_kill(const char *in, const char *out, int64_t bytes, int files) {
  const char *command = getenv("TREADLE");
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    execl(command, command, "convert", "--from", "hf", "--to", "megatron:tp=4,pp=2", in, out, (char *)NULL);
    _exit(127);
  }
  int ended;
  while (waitpid(pid, &ended, WNOHANG) == 0) {
    int64_t have_bytes = 0;
    int have_files = 0;
    measure(out, &have_bytes, &have_files);
    if (have_bytes >= bytes && have_files >= files) {
      kill(pid, SIGKILL);
      assert_int_equal(waitpid(pid, &ended, 0), pid);
      if (WIFSIGNALED(ended)) return true;
      break;
    }
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
  }
  assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  return false;
}

static void killed_and_taken_up(void **state) {
  (void)state;
  enum { KILLS = 20 };
  if (!getenv("TREADLE")) skip();
  conversion_make("hf", long_one, 2, false);
  conversion_run("hf", "megatron:tp=4,pp=2", "hf", "whole");
  int64_t bytes = 0;
  int files = 0;
  measure(conversion_at("whole"), &bytes, &files);
  conversion_remove("there");
  char in[256], out[256];
  snprintf(in, sizeof in, "%s", conversion_at("hf"));
  snprintf(out, sizeof out, "%s", conversion_at("there"));
  bool going = true;
  uint64_t seed = 88172645463325252u; /* xorshift: moments that look random and are the same in each run */
  for (int k = 0; k < KILLS && going; k++) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    going = run_and_kill(in, out, bytes * k / KILLS + (int64_t)(seed % (uint64_t)(bytes / KILLS)), 0);
  }
  int there_files = 0;
  int64_t there_bytes = 0;
  measure(out, &there_bytes, &there_files);
  if (going) {
    char arguments[700];
    snprintf(arguments, sizeof arguments, "convert --from hf --to megatron:tp=4,pp=2 %s %s", in, out);
    json_t *root = command_json(0, 0, arguments);
    assert_int_equal(json_integer_value(json_object_get(root, "resumed")), there_files);
    json_decref(root);
  }
  assert_int_equal(conversion_shell("diff -r '%s' '%s' >&2", conversion_at("whole"), out), 0);
}

/* Other inputs do not take up what these began; nor does the folder of another one count as new. */
static void only_its_own(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  conversion_make("hf", long_one, 0, false);
  conversion_make("other", tied, 0, false);
  conversion_remove("there");
  char in[256], out[256];
  snprintf(in, sizeof in, "%s", conversion_at("hf"));
  snprintf(out, sizeof out, "%s", conversion_at("there"));
  if (run_and_kill(in, out, 1 << 20, 0)) {
    conversion_refused(2, "of other files or layouts", "hf", "megatron:tp=4,pp=2", "other", "there");
    conversion_refused(2, "of other files or layouts", "hf", "megatron:tp=2", "hf", "there");
  }
  conversion_run("hf", "megatron:tp=2", "hf", "there");
  conversion_refused(2, "is not empty", "hf", "megatron:tp=2", "hf", "there");
}

/* ---- Refusals and failures --------------------------------------------------------------------- */

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
  conversion_refused(2, "are written as hf or megatron", "hf", "vllm:tp=2", "hf", "result");
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

/* Files may not grow beyond a limit, as on a disk that fills up: nothing half stays, and the next run goes on. */
static void a_disk_fills_up(void **state) {
  (void)state;
  conversion_make("hf", long_one, 0, false);
  conversion_remove("there");
  const char *command = getenv("TREADLE");
  if (!command) skip();
  char run[1200];
  snprintf(run, sizeof run, "'%s' convert --from hf --to megatron:pp=2 '%s' '%s'", command,
           conversion_at("hf"), conversion_at("there"));
  assert_int_equal(conversion_shell("trap '' XFSZ; ulimit -f 4000; %s 2>'%s'", run, conversion_at("said")),
                   1);
  assert_int_equal(conversion_shell("grep -q 'cannot write' '%s'", conversion_at("said")), 0);
  assert_int_equal(
      conversion_shell("! find '%s' -name '*.tmp' -o -name '*.pt' | grep -q .", conversion_at("there")), 0);
  assert_int_equal(conversion_shell("%s >/dev/null", run), 0);
  conversion_run("megatron:pp=2", "hf", "there", "back");
  conversion_same("hf", "back");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(there_and_back),    cmocka_unit_test(stacked_experts),
      cmocka_unit_test(by_other_ways),     cmocka_unit_test(files_are_cut_directly),
      cmocka_unit_test(json_has_its_keys), cmocka_unit_test(killed_and_taken_up),
      cmocka_unit_test(only_its_own),      cmocka_unit_test(copies_must_agree),
      cmocka_unit_test(refusals),          cmocka_unit_test(a_disk_fills_up),
  };
  return cmocka_run_group_tests(tests, NULL, conversion_end);
}
