/* Ranks that compute together give the bits of one rank, over threads: tensor parallel, with more ranks than key and value heads too,
 * pipeline stages, virtual ones, experts over ranks. */
/* ctest: label=threads timeout=300 */
#include "test.h"

#include "group/group.h"
#include "treadle_builtin.h"

#include <pthread.h>

static const char lines[] =
    "{\"prompt_token_ids\": [1, 5, 9, 20, 33], \"max_tokens\": 12, \"n\": 2, \"ignore_eos\": true}\n"
    "{\"prompt_token_ids\": [7, 7, 100], \"max_tokens\": 9, \"temperature\": 0.7, \"top_p\": 0.9,"
    " \"ignore_eos\": true}\n";

static const char texts[] = "{\"token_ids\": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]}\n"
                            "{\"token_ids\": [11, 12]}\n";

typedef struct one_rank {
  treadle_group *group; /* NULL: alone */
  const char *folder, *layout;
  int rank, ranks;
  int32_t chunk; /* 0: 8 */
  treadle_status status;
  char message[512];
  uint64_t digest, scored;
} one_rank;

static treadle_status run(one_rank *r) {
  char path[512];
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  treadle_generator *engine = NULL;
  char *window = NULL;
  treadle_generator_options options = {.struct_size = sizeof options,
                                       .threads = 1,
                                       .kv_bytes = 1 << 20,
                                       .prefill_chunk = r->chunk ? r->chunk : 8};
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_score_lines_options score = TREADLE_INIT(treadle_score_lines_options);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  treadle_status status;
  snprintf(path, sizeof path, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, r->folder);
  TRY(treadle_model_open(path, NULL, &model));
  TRY(treadle_layout_create(model, r->layout, r->ranks, NULL, &layout));
  TRY(treadle_generator_create(r->group, layout, &options, &engine));
  size_t bytes = treadle_layout_window_bytes(layout, r->rank);
  if (posix_memalign((void **)&window, 64, bytes)) return TREADLE_NO_MEMORY;
  TRY(treadle_layout_load(layout, r->rank, window));
  TRY(treadle_generator_bind(engine, window, bytes));
  TRY(treadle_generator_generate_lines(engine, lines, sizeof lines - 1, &generate, &figures));
  r->digest = figures.digest;
  TRY(treadle_generator_score_lines(engine, texts, sizeof texts - 1, &score, &scored));
  r->scored = scored.digest;
out:
  snprintf(r->message, sizeof r->message, "%s", status ? treadle_error_message() : "");
  treadle_generator_destroy(engine);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  free(window);
  return status;
}

static void *start(void *context) {
  one_rank *r = context;
  r->status = run(r);
  return NULL;
}

static void run_ranks(const char *folder, const char *layout, int ranks, one_rank *all) {
  treadle_group *groups[8] = {NULL};
  pthread_t threads[8];
  assert_ok(treadle_group_threads(ranks, 60, groups));
  for (int i = 0; i < ranks; i++) {
    all[i] = (one_rank){.group = groups[i], .folder = folder, .layout = layout, .rank = i, .ranks = ranks};
    assert_int_equal(pthread_create(&threads[i], NULL, start, &all[i]), 0);
  }
  for (int i = 0; i < ranks; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < ranks; i++) treadle_group_close(groups[i]);
}

/* Layouts by family; each with the ranks that it is for. */
typedef struct cut {
  const char *layout;
  int ranks;
} cut;

static void check_cuts(const char *const *folders, size_t folder_count, const cut *cuts, size_t cut_count) {
  for (size_t f = 0; f < folder_count; f++) {
    one_rank alone = {.folder = folders[f], .layout = "vllm:tp=1", .ranks = 1}, all[8];
    if (run(&alone)) fail_msg("%s", alone.message);
    for (size_t c = 0; c < cut_count; c++) {
      run_ranks(folders[f], cuts[c].layout, cuts[c].ranks, all);
      for (int i = 0; i < cuts[c].ranks; i++) {
        if (all[i].status) fail_msg("%s, %s, rank %d: %s", folders[f], cuts[c].layout, i, all[i].message);
        if (all[i].digest != alone.digest || all[i].scored != alone.scored)
          fail_msg("%s, %s, rank %d: other bits", folders[f], cuts[c].layout, i);
      }
    }
  }
}

static void test_dense(void **state) {
  (void)state;
  static const char *const folders[] = {"llama-gqa-llama3rope", "qwen2-tied"};
  static const cut cuts[] = {{"vllm:tp=2", 2},
                             {"vllm:tp=4", 4},
                             {"sglang:tp=2", 2},
                             {"vllm:tp=8", 8},
                             {"vllm:tp=1", 3},
                             {"vllm:tp=2", 4},
                             {"sglang:tp=2,pp=2", 8},
                             {"megatron:tp=2", 4},
                             {"vllm:tp=1,pp=2", 2},
                             {"vllm:tp=2,pp=4", 8},
                             {"sglang:tp=2,pp=2", 4},
                             {"megatron:tp=2,pp=2", 4},
                             {"megatron:tp=2,pp=2,vpp=2", 4},
                             {"megatron:tp=2,pp=2,vpp=1", 4},
                             {"megatron:tp=4", 4},
                             {"megatron:tp=4,pp=2", 8},
                             {"megatron:tp=8", 8},
                             {"megatron:tp=1,pp=4", 4}};
  check_cuts(folders, TEST_COUNT(folders), cuts, TEST_COUNT(cuts));
}

static void test_experts(void **state) {
  (void)state;
  static const char *const folders[] = {"qwen2moe", "dsv3-yarn"};
  static const cut cuts[] = {{"vllm:tp=2", 2},
                             {"vllm:tp=4", 4},
                             {"vllm:tp=2,ep=on", 2},
                             {"vllm:tp=4,ep=on", 4},
                             {"vllm:tp=2,pp=2,ep=on", 4},
                             {"sglang:tp=4,ep=2", 4},
                             {"sglang:tp=4,ep=4", 4},
                             {"megatron:tp=2,ep=2,etp=1", 2},
                             {"megatron:tp=2,ep=4,etp=1", 4},
                             {"megatron:tp=2,ep=2,etp=2", 4},
                             {"megatron:tp=1,pp=2,ep=2", 4},
                             {"megatron:tp=2,etp=1,ep=2,pp=2", 4},
                             {"vllm:dp=2,ep=on", 2},
                             {"vllm:tp=2,dp=2,ep=on", 4},
                             {"vllm:tp=2,dp=2,ep=on", 8},
                             {"vllm:dp=4,ep=on", 4},
                             {"vllm:tp=2,pp=2,dp=2,ep=on", 8}};
  check_cuts(folders, TEST_COUNT(folders), cuts, TEST_COUNT(cuts));
}

/* Layouts that the engine does not compute in are refused on all ranks, by name. */
static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *layout;
    int ranks;
    const char *says;
  } cases[] = {{"vllm:dp=2", 2, "dp=2: the engine has no data-parallel attention without ep=on"},
               {"sglang:tp=2,attn_dp=2", 2, "attn_dp=2: the engine has no data-parallel attention"},
               {"megatron:cp=2", 2, "context parallelism"},
               {"fsdp2", 2, "vllm, sglang, hf and megatron"},
               {"zero3", 2, "vllm, sglang, hf and megatron"}};
  for (size_t c = 0; c < TEST_COUNT(cases); c++) {
    one_rank all[8];
    run_ranks("qwen2moe", cases[c].layout, cases[c].ranks, all);
    for (int i = 0; i < cases[c].ranks; i++)
      if (all[i].status != TREADLE_REFUSED || !strstr(all[i].message, cases[c].says))
        fail_msg("%s, rank %d: %d %s", cases[c].layout, i, all[i].status, all[i].message);
  }
}

/* Ranks with other options would make other steps: refused on all of them. */
static void test_options_differ(void **state) {
  (void)state;
  one_rank all[2];
  treadle_group *groups[2];
  pthread_t threads[2];
  assert_ok(treadle_group_threads(2, 60, groups));
  for (int i = 0; i < 2; i++) {
    all[i] = (one_rank){.group = groups[i],
                        .folder = "qwen2-tied",
                        .layout = "vllm:tp=2",
                        .rank = i,
                        .ranks = 2,
                        .chunk = 8 + i};
    assert_int_equal(pthread_create(&threads[i], NULL, start, &all[i]), 0);
  }
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < 2; i++) treadle_group_close(groups[i]);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(all[i].status, TREADLE_REFUSED);
    assert_non_null(strstr(all[i].message, "has prefill_chunk"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_experts),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_options_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
