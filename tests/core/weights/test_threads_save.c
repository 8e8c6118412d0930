/* Saving: windows of many layouts to a folder whose tensors are those of the model's own files, bit for bit; whole or not at all when a rank
 * is refused, is missing or runs out of memory, or the disk is full. ctest: label=threads timeout=600 */
#include "test.h"
#include "group/ranks.h"

#include "base/dtype.h"
#include "io/safetensors.h"
#include "model/model.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

typedef struct saving {
  const treadle_layout *layout;
  treadle_save_options options;
  char folder[200];
  int missing; /* a rank that does not come; -1: none */
  int refused; /* a rank without a window; -1: none */
  treadle_status wanted;
  const char *part; /* of the message */
} saving;

static int save_rank(treadle_group *group, void *context) {
  const saving *s = context;
  int rank = treadle_group_rank(group);
  size_t bytes = treadle_layout_window_bytes(s->layout, rank);
  char *window = malloc(bytes + 1);
  RANK_TRUE(window != NULL);
  if (rank == s->missing) {
    free(window);
    return 0;
  }
  RANK_OK(treadle_layout_load(s->layout, rank, window));
  treadle_status status =
      treadle_layout_save(group, s->layout, rank == s->refused ? NULL : window, s->folder, &s->options);
  free(window);
  RANK_FAILS(s->wanted, s->part, status);
  return 0;
}

static int count_entries(const char *folder) {
  DIR *listing = opendir(folder);
  int count = -2; /* "." and ".." */
  assert_non_null(listing);
  while (readdir(listing)) count++;
  closedir(listing);
  return count;
}

/* Every tensor of the model, with the same bits or converted to `dtype`, and no other. */
static void check_folder(const treadle_model *model, const char *folder, treadle_dtype dtype) {
  treadle_checkpoint *saved;
  assert_ok(treadle_checkpoint_open(folder, &saved));
  assert_non_null(saved);
  assert_int_equal(saved->count, model->entry_count);
  for (int32_t i = 0; i < saved->count; i++) {
    const treadle_stored *got = &saved->tensors[i];
    const treadle_stored *own = treadle_checkpoint_find(model->checkpoint, got->name);
    assert_non_null(own);
    assert_int_equal(got->ndim, own->ndim);
    assert_memory_equal(got->shape, own->shape, (size_t)own->ndim * sizeof *own->shape);
    assert_int_equal(got->dtype, dtype ? dtype : own->dtype);
    char *wanted = malloc(got->bytes);
    treadle_dtype_convert(wanted, got->dtype, own->data, own->dtype, (size_t)own->elems);
    if (memcmp(got->data, wanted, got->bytes) != 0) fail_msg("%s: '%s' differs", folder, got->name);
    free(wanted);
  }
  treadle_checkpoint_close(saved);
}

static void save_as(const treadle_model *model, const char *text, int ranks,
                    const treadle_save_options *options, const char *folder) {
  saving s = {.options = *options, .missing = -1, .refused = -1};
  treadle_layout *layout;
  snprintf(s.folder, sizeof s.folder, "%s/saved", folder);
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &layout));
  s.layout = layout;
  ranks_as_threads(ranks, 60, 0, save_rank, &s);
  assert_int_equal(count_entries(folder), 1);
  treadle_layout_destroy(layout);
}

static void remove_saved(const char *folder) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s/saved'", folder);
  assert_int_equal(system(command), 0);
}

/* ---- Layouts ---- */

static const struct {
  const char *model, *layout;
  int ranks;
} cases[] = {
    {"llama-gqa-llama3rope", "hf", 1},
    {"llama-gqa-llama3rope", "megatron:tp=2,pp=2", 4},
    {"llama-gqa-llama3rope", "megatron:tp=2", 4},
    {"llama-gqa-llama3rope", "megatron:pp=2,vpp=2", 2},
    {"llama-gqa-llama3rope", "fsdp2:dp=4", 4},
    {"llama-gqa-llama3rope", "fsdp:dp=3", 3},
    {"llama-gqa-llama3rope", "zero3:dp=4", 4},
    {"llama-gqa-llama3rope", "vllm:tp=2", 2},
    {"qwen2-tied", "hf", 1},
    {"qwen2-tied", "megatron:tp=2,pp=2", 4},
    {"qwen2-tied", "distopt:tp=2,dtype=fp32", 4},
    {"qwen2-tied", "fsdp2:dp=4", 4},
    {"qwen2moe", "megatron:ep=2,pp=2", 4},
    {"qwen2moe", "fsdp2:dp=2", 2},
    {"dsv3-yarn", "megatron:pp=2,ep=2", 4},
};

static void test_layouts(void **state) {
  (void)state;
  const char *folder = test_folder();
  for (size_t c = 0; c < TEST_COUNT(cases); c++) {
    treadle_model *model, *again;
    treadle_layout *other;
    char path[200];
    treadle_save_options options = TREADLE_INIT(treadle_save_options);
    snprintf(path, sizeof path, MODELS "%s", cases[c].model);
    assert_ok(treadle_model_open(path, NULL, &model));
    if (c % 2) options.shard_bytes = 100000;
    if (c % 3 == 1) options.dtype = TREADLE_BF16;
    save_as(model, cases[c].layout, cases[c].ranks, &options, folder);
    snprintf(path, sizeof path, "%s/saved", folder);
    treadle_dtype wanted = options.dtype                     ? options.dtype
                           : strstr(cases[c].layout, "fp32") ? TREADLE_FP32
                                                             : TREADLE_DTYPE_NONE;
    check_folder(model, path, wanted);
    assert_ok(treadle_model_open(path, NULL, &again)); /* it is a model, and loads in another layout */
    assert_ok(treadle_layout_create(again, "megatron:tp=2", 2, NULL, &other));
    char *window = malloc(treadle_layout_window_bytes(other, 1));
    assert_ok(treadle_layout_load(other, 1, window));
    free(window);
    treadle_layout_destroy(other);
    treadle_model_close(again);
    treadle_model_close(model);
    remove_saved(folder);
  }
  test_remove(folder);
}

/* Files are dealt by size, and what stands beside the weights is copied; the config says of which type they are. */
static void test_beside(void **state) {
  (void)state;
  const char *folder = test_folder();
  char command[600], path[200];
  treadle_model *model;
  treadle_save_options options = {
      .struct_size = sizeof options, .dtype = TREADLE_FP16, .shard_bytes = 200000};
  snprintf(command, sizeof command,
           "mkdir '%s/own' && cd '%s/own' && cp " MODELS "qwen2-tied/model.safetensors . && "
           "cp " MODELS "qwen2-tied/config.json . && "
           "echo '{}' > tokenizer.json && echo x > .hidden && echo x > optimizer.pt && mkdir folder",
           folder, folder);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/own", folder);
  assert_ok(treadle_model_open(path, NULL, &model));
  treadle_layout *layout;
  assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, 0));
  assert_ok(treadle_layout_load(layout, 0, window));
  snprintf(path, sizeof path, "%s/saved//", folder);
  assert_ok(treadle_layout_save(NULL, layout, window, path, &options));
  check_folder(model, path, TREADLE_FP16);
  snprintf(command, sizeof command,
           "cd '%s/saved' && test ! -e .hidden -a ! -e optimizer.pt -a ! -e folder && cmp tokenizer.json "
           "../own/tokenizer.json && grep -q '\"torch_dtype\": \"float16\"' config.json && "
           "test -e model-00002-of-0000*.safetensors && test ! -e model.safetensors && "
           "test $(ls -s --block-size=1 model-*.safetensors | awk '{s+=$1}END{print s}') -gt 100000 && "
           "for f in model-*.safetensors; do test $(stat -c %%s $f) -lt 220000 || exit 1; done",
           folder);
  assert_int_equal(system(command), 0);
  assert_refused("is saved to", treadle_layout_save(NULL, layout, window, path, &options)); /* not empty */
  check_folder(model, path, TREADLE_FP16);
  remove_saved(folder);
  snprintf(path, sizeof path, "%s/saved", folder);
  assert_int_equal(mkdir(path, 0777), 0); /* empty */
  options = (treadle_save_options){.struct_size = sizeof options, .weights_only = true};
  assert_ok(treadle_layout_save(NULL, layout, window, path, &options));
  assert_int_equal(count_entries(path), 1);
  check_folder(model, path, TREADLE_DTYPE_NONE);
  free(window);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  test_remove(folder);
}

/* ---- Failures ---- */

typedef struct place {
  const char *folder;
  treadle_model *model;
  treadle_layout *layout;
  saving s;
} place;

static void begin(place *p, const char *text, int ranks) {
  memset(p, 0, sizeof *p);
  p->folder = test_folder();
  assert_ok(treadle_model_open(MODELS "llama-gqa-llama3rope", NULL, &p->model));
  assert_ok(treadle_layout_create(p->model, text, ranks, NULL, &p->layout));
  p->s = (saving){
      .layout = p->layout, .options = TREADLE_INIT(treadle_save_options), .missing = -1, .refused = -1};
  snprintf(p->s.folder, sizeof p->s.folder, "%s/saved", p->folder);
}

static void end(place *p) {
  treadle_layout_destroy(p->layout);
  treadle_model_close(p->model);
  test_remove(p->folder);
}

static void test_ranks(void **state) {
  (void)state;
  place p;
  begin(&p, "megatron:tp=2,pp=2", 4);
  p.s.missing = 2;
  p.s.wanted = TREADLE_TIMEOUT;
  p.s.part = "rank 2";
  for (int rank = 0; rank < 3; rank += 2) { /* rank 0 is one as any other */
    p.s.missing = rank;
    p.s.wanted = TREADLE_TIMEOUT;
    p.s.part = rank ? "rank 2" : "rank 0";
    ranks_as_threads(4, 0.3, 0, save_rank, &p.s);
    assert_int_equal(count_entries(p.folder), 0);
  }
  p.s.missing = -1;
  p.s.refused = 3;
  p.s.wanted = TREADLE_REFUSED;
  p.s.part = "rank 3: treadle_layout_save: no window (NULL)";
  ranks_as_threads(4, 60, 0, save_rank, &p.s);
  assert_int_equal(count_entries(p.folder), 0);
  p.s.refused = -1;
  p.s.part = "is for 4 ranks, and the group has 2";
  ranks_as_threads(2, 60, 0, save_rank, &p.s);
  snprintf(p.s.folder, sizeof p.s.folder, "%s/none/saved", p.folder);
  p.s.wanted = TREADLE_SYSTEM;
  p.s.part = "cannot make the folder: No such file or directory";
  ranks_as_threads(4, 60, 0, save_rank, &p.s);
  assert_int_equal(count_entries(p.folder), 0);
  end(&p);
}

static int save_to_two(treadle_group *group, void *context) {
  saving s = *(const saving *)context;
  if (treadle_group_rank(group) == 1) s.folder[strlen(s.folder) - 1] = '1';
  return save_rank(group, &s);
}

static void test_different(void **state) {
  (void)state;
  place p;
  begin(&p, "megatron:tp=2", 2);
  p.s.wanted = TREADLE_DIFFERENT;
  p.s.part = "ranks 0 and 1 save different";
  ranks_as_threads(2, 60, 0, save_to_two, &p.s);
  assert_int_equal(count_entries(p.folder), 0);
  end(&p);
}

static void test_full(void **state) {
  (void)state;
  place p;
  struct rlimit before, few;
  begin(&p, "megatron:tp=2", 2);
  p.s.wanted = TREADLE_SYSTEM;
  p.s.part = "RLIMIT_FSIZE";
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  few = (struct rlimit){10000, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
  ranks_as_threads(2, 60, 0, save_rank, &p.s);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(count_entries(p.folder), 0);
  end(&p);
}

static treadle_status save_alone(place *p, const void *window) {
  return treadle_layout_save(NULL, p->layout, window, p->s.folder, &p->s.options);
}

static void test_memory(void **state) {
  (void)state;
  place p;
  begin(&p, "hf", 1);
  p.s.options.shard_bytes = 100000;
  char *window = malloc(treadle_layout_window_bytes(p.layout, 0));
  assert_ok(treadle_layout_load(p.layout, 0, window));
  TEST_EACH_ALLOCATION(count_entries(p.folder) == 0 ? save_alone(&p, window) : TREADLE_STATE);
  check_folder(p.model, p.s.folder, TREADLE_DTYPE_NONE);
  free(window);
  end(&p);
}

/* One rank of two fails, and so does the other. */
static int save_with_less(treadle_group *group, void *context) {
  const saving *s = context;
  int rank = treadle_group_rank(group);
  char *window = malloc(treadle_layout_window_bytes(s->layout, rank));
  RANK_OK(treadle_layout_load(s->layout, rank, window));
  RANK_OK(treadle_group_barrier(group));
  if (rank == 0) treadle_alloc_fail_at(s->missing);
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = treadle_layout_save(group, s->layout, window, s->folder, &s->options);
  free(window);
  RANK_FAILS(s->wanted, "memory", status);
  return 0;
}

static void test_memory_of_one(void **state) {
  (void)state;
  place p;
  begin(&p, "megatron:tp=2", 2);
  p.s.wanted = TREADLE_NO_MEMORY;
  for (p.s.missing = 1; p.s.missing < 40; p.s.missing += 3) {
    ranks_as_threads(2, 60, 0, save_with_less, &p.s);
    treadle_alloc_fail_at(0);
    assert_int_equal(count_entries(p.folder), 0);
  }
  end(&p);
}

static void test_refused(void **state) {
  (void)state;
  place p;
  treadle_save_options bad = TREADLE_INIT(treadle_save_options);
  char window[1];
  begin(&p, "hf", 1);
  bad.dtype = TREADLE_FP8_E4M3;
  assert_refused("dtype 4", treadle_layout_save(NULL, p.layout, window, p.s.folder, &bad));
  bad.dtype = (treadle_dtype)99;
  assert_refused("dtype 99", treadle_layout_save(NULL, p.layout, window, p.s.folder, &bad));
  bad = (treadle_save_options){.struct_size = sizeof bad, .shard_bytes = SIZE_MAX};
  assert_refused("shard_bytes", treadle_layout_save(NULL, p.layout, window, p.s.folder, &bad));
  assert_refused("no folder", treadle_layout_save(NULL, p.layout, window, NULL, NULL));
  assert_refused("no layout", treadle_layout_save(NULL, NULL, window, p.s.folder, NULL));
  assert_refused("a folder of 1 to", treadle_layout_save(NULL, p.layout, window, "", NULL));
  assert_int_equal(count_entries(p.folder), 0);
  end(&p);
}

/* What a folder could not say of itself. */
static void test_models(void **state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": "
      "2,"
      " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 64%s}";
  static const struct {
    const char *more;
    int64_t scale_down;
    bool weights_only;
    treadle_status wanted;
  } models[] = {{"", 0, false, TREADLE_OK},
                {", \"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [128, 128]}",
                 0, false, TREADLE_REFUSED},
                {", \"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [128, 128]}",
                 0, true, TREADLE_REFUSED},
                {"", 50000, false, TREADLE_REFUSED},
                {"", 50000, true, TREADLE_OK}};
  for (size_t i = 0; i < TEST_COUNT(models); i++) {
    const char *folder = test_folder();
    treadle_model_options options = {.struct_size = sizeof options, .scale_down = models[i].scale_down};
    treadle_save_options save = {.struct_size = sizeof save, .weights_only = models[i].weights_only};
    treadle_model *model;
    treadle_layout *layout;
    char path[200], saved[200];
    snprintf(path, sizeof path, "%s/of-my-own.json", folder);
    snprintf(saved, sizeof saved, "%s/saved", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, config, models[i].more);
    fclose(file);
    assert_ok(treadle_model_open(path, &options, &model));
    assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
    char *window = malloc(treadle_layout_window_bytes(layout, 0));
    assert_ok(treadle_layout_load(layout, 0, window));
    assert_int_equal(treadle_layout_save(NULL, layout, window, saved, &save), models[i].wanted);
    assert_int_equal(count_entries(folder), models[i].wanted ? 1 : 2);
    if (!models[i].wanted) assert_int_equal(count_entries(saved), models[i].weights_only ? 1 : 2);
    free(window);
    treadle_layout_destroy(layout);
    treadle_model_close(model);
    test_remove(folder);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),       cmocka_unit_test(test_beside),  cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_different),     cmocka_unit_test(test_full),    cmocka_unit_test(test_memory),
      cmocka_unit_test(test_memory_of_one), cmocka_unit_test(test_refused), cmocka_unit_test(test_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
