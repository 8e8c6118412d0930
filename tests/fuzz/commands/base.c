/* What the fuzzer begins with. */
#include "commands/base.h"

#include "cli/cli.h"
#include "cli/engine_folder.h"
#include "cli/made.h"
#include "io/json.h"
#include "io/safetensors.h"

#include <err.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

const char *const fuzz_recorded[FUZZ_RECORDED] = {"moe", "latent", "gdn"};

enum { MOST_ELEMS = 5000 };

/* `treadle convert` in a process of its own, in the present folder, from in to out; files longer than `limit` fail. */
static int convert(const char *to, const char *out, rlim_t limit) {
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) err(3, "fork");
  if (child == 0) {
    const char *texts[] = {"treadle", "convert", "--from", "hf", "--to", to, "in", out, NULL};
    const struct rlimit most = {limit, limit};
    signal(SIGXFSZ, SIG_IGN);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(3);
    setrlimit(RLIMIT_FSIZE, &most);
    _exit(treadle_main(8, (char **)(uintptr_t)texts));
  }
  int how;
  if (waitpid(child, &how, 0) != child || !WIFEXITED(how)) errx(3, "a conversion to %s died", to);
  return WEXITSTATUS(how);
}

static void make_conversions(treadle_random *random, fuzz_model *model) {
  static const char *const types[] = {"megatron", "megatron", "hf"};
  char why[200], to[DRAW_TEXT];
  json_t *config = json_loads(model->config, 0, NULL);
  oracle_model *oracle = oracle_model_new(config, why);
  if (!oracle) errx(3, "%s", why);
  for (int tries = 0; tries < 6 && !*model->megatron; tries++) {
    draw_layout(random, oracle, "megatron", treadle_random_between(random, 1, 4), to);
    if (convert(to, "megatron", RLIM_INFINITY) == 0)
      strcpy(model->megatron, to);
    else
      fuzz_folder_remove("megatron");
  }
  for (int tries = 0; tries < 8 && !*model->stopped_to; tries++) {
    const char *type = FUZZ_PICK(random, types);
    draw_layout(random, oracle, type, type[0] == 'h' ? 1 : 4, to);
    int status = convert(to, "stopped", (rlim_t)treadle_random_between(random, 300, 9000));
    if (status && fuzz_exists("stopped/treadle-convert.json"))
      strcpy(model->stopped_to, to);
    else
      fuzz_folder_remove("stopped");
  }
  oracle_model_free(oracle);
  json_decref(config);
}

/* All tensors whole on rank 0, or cut by their first dimension over some ranks. */
static void make_pieces(const treadle_checkpoint *checkpoint, int64_t ranks, const char *path) {
  json_t *list = json_array(), *root = json_pack("{s:o}", "pieces", list);
  for (int32_t t = 0; t < checkpoint->count; t++) {
    const treadle_stored *stored = &checkpoint->tensors[t];
    int64_t parts = stored->ndim && stored->shape[0] % ranks == 0 ? ranks : 1;
    for (int64_t r = 0; r < parts; r++) {
      json_t *shape = json_array(), *start = json_array(), *stride = json_array();
      for (int d = 0; d < stored->ndim; d++) {
        json_int_t step = 1;
        for (int e = d + 1; e < stored->ndim; e++) step *= stored->shape[e];
        json_array_append_new(shape, json_integer(stored->shape[d] / (d ? 1 : parts)));
        json_array_append_new(start, json_integer(d ? 0 : stored->shape[0] / parts * r));
        json_array_append_new(stride, json_integer(step));
      }
      json_t *piece = json_pack("{s:I, s:s, s:O, s:s, s:o, s:o, s:i, s:o}", "rank", (json_int_t)r,
                                "storage", stored->name, "shape", shape, "tensor", stored->name, "start",
                                start, "size", shape, "offset", 0, "stride", stride);
      json_array_append_new(list, piece);
    }
  }
  if (json_dump_file(root, path, JSON_INDENT(1))) err(3, "%s", path);
  json_decref(root);
}

/* All tensors by their first dimension over a mesh of all ranks; one mesh more, and a placement for each. */
static void make_placements(const treadle_checkpoint *checkpoint, int64_t ranks, const char *path) {
  json_t *names = json_array();
  for (int32_t t = 0; t < checkpoint->count; t++)
    json_array_append_new(names, json_string(checkpoint->tensors[t].name));
  json_t *root =
      json_pack("{s:[{s:[I]}, {s:[i,i], s:i}], s:[{s:o, s:i, s:s}]}", "meshes", "shape", (json_int_t)ranks,
                "shape", 1, 1, "first", 0, "tensors", "tensor", names, "mesh", 0, "placements", "S0");
  if (!root || json_dump_file(root, path, JSON_INDENT(1))) err(3, "%s", path);
  json_decref(root);
}

static void make_list(const treadle_checkpoint *checkpoint) {
  fuzz_bytes text = {0};
  for (int32_t t = 0; t < checkpoint->count; t++) {
    const treadle_stored *stored = &checkpoint->tensors[t];
    fuzz_bytes_add(&text, "%s\t%s\t", stored->name, stored->dtype_text);
    for (int d = 0; d < stored->ndim; d++)
      fuzz_bytes_add(&text, "%s%lld", d ? "x" : "", (long long)stored->shape[d]);
    fuzz_bytes_add(&text, "\n");
  }
  fuzz_file_replace("list.tsv", text.at, text.count);
  gzFile file = gzopen("list.tsv.gz", "wb1");
  if (!file || gzwrite(file, text.at, (unsigned)text.count) != (int)text.count || gzclose(file) != Z_OK)
    errx(3, "list.tsv.gz");
  fuzz_bytes_release(&text);
}

static void make_model(treadle_random *random, fuzz_model *model, int number) {
  const made_options options = {.shards = (int)treadle_random_below(random, 4), .copies = number % 2};
  treadle_checkpoint *checkpoint;
  snprintf(model->folder, sizeof model->folder, "model%02d", number);
  draw_config(random, number % 18, MOST_ELEMS, model->config);
  fuzz_folder_make(model->folder);
  if (chdir(model->folder)) err(3, "%s", model->folder);
  made_checkpoint("in", model->config, &options);
  fuzz_file_replace("config.json", model->config, strlen(model->config));
  make_conversions(random, model);
  if (treadle_checkpoint_open("in", &checkpoint)) errx(3, "%s", treadle_error_message());
  make_pieces(checkpoint, 1, "pieces1.json");
  make_pieces(checkpoint, 2, "pieces2.json");
  make_placements(checkpoint, 1, "placements1.json");
  make_placements(checkpoint, 2, "placements2.json");
  make_list(checkpoint);
  treadle_checkpoint_close(checkpoint);
  if (chdir("..")) err(3, "..");
}

/* The golden models of tests/golden/models. */
static void make_engine(fuzz_base *base, int number) {
  static const char *const golden[FUZZ_ENGINES] = {"llama-gqa-llama3rope", "qwen2-tied", "glm4moe-qknorm",
                                                   "qwen2moe", "dsv3-yarn"};
  static const char sampling[] =
      "{\"temperature\": 0.8, \"top_k\": 20, \"eos_token_id\": [2, 5], \"max_new_tokens\": 12}";
  char path[FUZZ_PATH];
  snprintf(path, sizeof path, "%s/engine%d", base->path, number);
  engine_folder_make(path, golden[number]);
  strcpy(base->engines[number], path);
  snprintf(path, sizeof path, "engine%d/generation_config.json", number);
  if (number % 2) fuzz_file_replace(path, sampling, sizeof sampling - 1);
}

static void find_configs(fuzz_base *base) {
  static const char folder[] = TREADLE_SOURCE_DIR "/../shared/data/configs";
  fuzz_files files;
  fuzz_folder_list(folder, false, &files);
  for (int i = 0; i < files.count && base->config_count < FUZZ_CONFIGS; i++)
    if (strstr(files.names[i], ".config.json"))
      snprintf(base->configs[base->config_count++], FUZZ_PATH, "%s/%s", folder, files.names[i]);
}

void fuzz_base_make(fuzz_base *base, const char *path) {
  treadle_random random = {20261122};
  snprintf(base->path, sizeof base->path, "%s", path);
  fuzz_folder_make(path);
  if (chdir(path)) err(3, "%s", path);
  for (int i = 0; i < FUZZ_MODELS; i++) make_model(&random, &base->models[i], i);
  for (int i = 0; i < FUZZ_ENGINES; i++) make_engine(base, i);
  fuzz_folder_link(TREADLE_SOURCE_DIR "/families", "families");
  fuzz_folder_link(TREADLE_SOURCE_DIR "/tests/data/convert", "recorded");
  find_configs(base);
}
