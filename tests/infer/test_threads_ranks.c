/* Ranks that compute together give the bits of one rank: tensor parallel layouts over threads, more ranks than key and value heads too. */
/* ctest: label=threads timeout=300 */
#include "test.h"

#include "transport/group.h"

#include <pthread.h>

static const char lines[] =
    "{\"prompt_token_ids\": [1, 5, 9, 20, 33], \"max_tokens\": 12, \"n\": 2, \"ignore_eos\": true}\n"
    "{\"prompt_token_ids\": [7, 7, 100], \"max_tokens\": 9, \"temperature\": 0.7, \"top_p\": 0.9,"
    " \"ignore_eos\": true}\n";

typedef struct one_rank {
  treadle_group *group; /* NULL: alone */
  const char *folder, *layout;
  int rank, ranks;
  treadle_status status;
  char message[512];
  uint64_t digest;
} one_rank;

static treadle_status run(one_rank *r) {
  char path[512];
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  treadle_engine *engine = NULL;
  char *window = NULL;
  treadle_engine_options options = {
      .struct_size = sizeof options, .threads = 1, .kv_bytes = 1 << 20, .prefill_chunk = 8};
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_status status;
  snprintf(path, sizeof path, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, r->folder);
  TRY(treadle_model_open(path, NULL, &model));
  TRY(treadle_layout_create(model, r->layout, r->ranks, NULL, &layout));
  TRY(treadle_engine_create(r->group, layout, &options, &engine));
  size_t bytes = treadle_layout_window_bytes(layout, r->rank);
  if (posix_memalign((void **)&window, 64, bytes)) return TREADLE_NO_MEMORY;
  TRY(treadle_layout_load(layout, r->rank, window));
  TRY(treadle_engine_bind(engine, window, bytes));
  TRY(treadle_engine_generate(engine, lines, sizeof lines - 1, &generate, &figures));
  r->digest = figures.digest;
out:
  snprintf(r->message, sizeof r->message, "%s", status ? treadle_error_message() : "");
  treadle_engine_destroy(engine);
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

static void test_ranks(void **state) {
  (void)state;
  static const char *const folders[] = {"llama-gqa-llama3rope", "qwen2-tied"};
  static const struct {
    const char *layout;
    int ranks;
  } cuts[] = {{"vllm:tp=2", 2}, {"vllm:tp=4", 4}, {"sglang:tp=2", 2}, {"vllm:tp=8", 8}};
  for (size_t f = 0; f < TEST_COUNT(folders); f++) {
    one_rank alone = {.folder = folders[f], .layout = "vllm:tp=1", .ranks = 1}, all[8];
    if (run(&alone)) fail_msg("%s", alone.message);
    for (size_t c = 0; c < TEST_COUNT(cuts); c++) {
      run_ranks(folders[f], cuts[c].layout, cuts[c].ranks, all);
      for (int i = 0; i < cuts[c].ranks; i++) {
        if (all[i].status) fail_msg("%s, %s, rank %d: %s", folders[f], cuts[c].layout, i, all[i].message);
        if (all[i].digest != alone.digest)
          fail_msg("%s, %s, rank %d: other bits", folders[f], cuts[c].layout, i);
      }
    }
  }
}

/* What several ranks cannot do yet is refused on all of them, by name. */
static void test_refused(void **state) {
  (void)state;
  one_rank all[8];
  run_ranks("llama-gqa-llama3rope", "vllm:tp=1,pp=2", 2, all);
  for (int i = 0; i < 2; i++)
    assert_true(all[i].status == TREADLE_REFUSED && strstr(all[i].message, "pipeline"));
  run_ranks("qwen2moe", "vllm:tp=2", 2, all);
  for (int i = 0; i < 2; i++)
    assert_true(all[i].status == TREADLE_REFUSED && strstr(all[i].message, "experts"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
