/* Prompts and sampling values that are refused: each by its row or its name, before the first step, and nothing is left behind. */
#include "base/status.h"
#include "generate/machine.h"
#include "generate/prompts.h"
#include "test.h"

#include <math.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

enum { MAX_LEN = 64 };

static machine open_machine(const char *folder) {
  machine m;
  const machine_spec spec = {.folder = folder,
                             .layout = "vllm:tp=1",
                             .options = {.threads = 1, .kv_bytes = 1 << 20, .max_len = MAX_LEN}};
  assert_ok(machine_open(&m, &spec));
  return m;
}

static void refuse(const machine *m, const char *part, treadle_batch *prompts,
                   const treadle_sampling *sampling) {
  treadle_batch *out = prompts; /* anything but NULL */
  assert_refused(part, treadle_generator_generate(m->engine, prompts, sampling, NULL, &out));
  assert_null(out);
}

static void test_refused_prompts(void **state) {
  (void)state;
  static int64_t offsets[] = {0, 2, 4, 5}, gap[] = {0, 2, 2, 5}, whole[] = {0, MAX_LEN};
  static int32_t good[MAX_LEN] = {1, 2, 3, 4, 5}, high[] = {1, 2, 3, 203, 5}, low[] = {1, 2, 3, -4, 5};
  static float reals[5];
  static const struct {
    const char *part;
    treadle_column column;
  } cases[] = {
      {"prompts: the batch has no column 'prompt_ids'", {.name = "x", .data = good}},
      {"it has 'prompt_id'", {.name = "prompt_id", .data = good}},
      {"prompts: column 'prompt_ids' is int32 of width 1; it must be ragged int32",
       {.name = "prompt_ids", .data = good}},
      {"prompts: column 'prompt_ids' is ragged fp32; it must be ragged int32",
       {.name = "prompt_ids", .type = TREADLE_COLUMN_FP32, .offsets = offsets, .data = reals}},
      {"prompts: row 1: prompt_ids is empty", {.name = "prompt_ids", .offsets = gap, .data = good}},
      {"prompts: row 1: prompt_ids: 203 is not in the vocabulary of 203 tokens",
       {.name = "prompt_ids", .offsets = offsets, .data = high}},
      {"prompts: row 1: prompt_ids: -4 is not in the vocabulary of 203 tokens",
       {.name = "prompt_ids", .offsets = offsets, .data = low}},
  };
  treadle_column seeds = {
      .struct_size = sizeof seeds, .name = "seed", .type = TREADLE_COLUMN_FP64, .width = 2};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *batch;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    batch = prompts_of(3, cases[i].column);
    refuse(&m, cases[i].part, batch, NULL);
    treadle_batch_destroy(batch);
  }
  batch = prompts_of(1, (treadle_column){.name = "prompt_ids", .offsets = whole, .data = good});
  refuse(&m, "prompts: row 0: prompt_ids has 64 tokens; with a new one it must not be longer than 64",
         batch, NULL);
  treadle_batch_destroy(batch);
  batch = prompts_of(3, (treadle_column){.name = "prompt_ids", .offsets = offsets, .data = good});
  assert_ok(treadle_batch_add(batch, &seeds));
  refuse(&m, "prompts: column 'seed' is fp64 of width 2; it must be int64 of width 1", batch, NULL);
  treadle_batch_destroy(batch);
  machine_close(&m);
}

static void test_too_many(void **state) {
  (void)state;
  enum { MOST = 1 << 20 };
  int64_t *offsets = calloc(MOST + 2, sizeof *offsets);
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  machine m = open_machine(MODELS "qwen2-tied");
  assert_non_null(offsets);
  treadle_batch *batch = prompts_of(MOST + 1, (treadle_column){.name = "prompt_ids", .offsets = offsets});
  refuse(&m, "prompts: 1048577 rows; the limit is 1048576", batch, NULL);
  treadle_batch_destroy(batch);
  batch = prompts_of(257, (treadle_column){.name = "prompt_ids", .offsets = offsets});
  sampling.n = 65536;
  refuse(&m, "prompts: 257 rows with n=65536 each; the limit is 16777216", batch, &sampling);
  treadle_batch_destroy(batch);
  free(offsets);
  machine_close(&m);
}

static void test_no_room(void **state) {
  (void)state;
  machine m;
  treadle_random random = {1};
  const machine_spec spec = {.folder = MODELS "qwen2-tied",
                             .layout = "vllm:tp=1",
                             .options = {.threads = 1, .kv_bytes = 1 << 15, .max_len = 500}};
  treadle_batch *prompts = prompts_draw(&random, 2, false);
  assert_ok(machine_open(&m, &spec));
  refuse(&m, "blocks of the KV cache", prompts, NULL);
  refuse(&m, "prompts: row 0: ", prompts, NULL);
  treadle_batch_destroy(prompts);
  machine_close(&m);
}

#define SAMPLING(...)                                                                                      \
  {                                                                                                        \
    .struct_size = sizeof(treadle_sampling), .temperature = 1, .top_p = 1, .repetition_penalty = 1,        \
    .n = 1, .max_tokens = 12, __VA_ARGS__                                                                  \
  }

static void test_refused_sampling(void **state) {
  (void)state;
  static const int32_t beyond[] = {1, 203}, below[] = {-1};
  static int32_t many[1025];
  const struct {
    const char *part;
    treadle_sampling sampling;
  } cases[] = {
      {"sampling: temperature must be finite", SAMPLING(.seed = 1)}, /* NaN, below */
      {"sampling: top_p must be finite", SAMPLING(.seed = 2)},
      {"sampling: min_p must be in [0, 1], got 2", SAMPLING(.min_p = 2)},
      {"sampling: top_k must be 0 (disable), or at least 1, got -2", SAMPLING(.top_k = -2)},
      {"sampling: min_tokens must be less than or equal to max_tokens=12, got 13",
       SAMPLING(.min_tokens = 13)},
      {"sampling: stop_token_id_count is 1, and stop_token_ids is NULL",
       SAMPLING(.stop_token_id_count = 1)},
      {"sampling: stop_token_ids has 1025 items; the limit is 1024",
       SAMPLING(.stop_token_ids = many, .stop_token_id_count = 1025)},
      {"sampling: stop_token_ids: 203 is not in the vocabulary of 203 tokens",
       SAMPLING(.stop_token_ids = beyond, .stop_token_id_count = 2)},
      {"sampling: stop_token_ids: -1 is not a token",
       SAMPLING(.stop_token_ids = below, .stop_token_id_count = 1)},
      {"never_count is 2, and never is NULL", SAMPLING(.never_count = 2)},
      {"sampling: never[1] is 203, which is not in the vocabulary of 203 tokens",
       SAMPLING(.never = beyond, .never_count = 2)},
      {"sampling: never[0] is -1", SAMPLING(.never = below, .never_count = 1)},
      {"most_kept is -1", SAMPLING(.most_kept = -1)},
      {"logprobs_of", SAMPLING(.logprobs_of = (treadle_logprobs_of)3)},
      {"presence_penalty 1", SAMPLING(.logprobs_of = TREADLE_LOGPROBS_DRAWN, .presence_penalty = 1)},
  };
  treadle_random random = {1};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *prompts = prompts_draw(&random, 2, true), *none = prompts_draw(&random, 0, true), *out;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_sampling s = cases[i].sampling;
    if (i == 0) s.temperature = (double)NAN;
    if (i == 1) s.top_p = (double)INFINITY;
    refuse(&m, cases[i].part, prompts, &s);
    refuse(&m, cases[i].part, none, &s);
  }
  treadle_sampling s = TREADLE_SAMPLING_INIT;
  s.temperature = 0;
  s.logprobs_of = TREADLE_LOGPROBS_DRAWN;
  refuse(&m, "temperature is 0", prompts, &s);
  s = TREADLE_SAMPLING_INIT;
  s.n = 0;
  refuse(&m, "sampling: n must be at least 1, got 0", prompts, &s);
  assert_ok(treadle_generator_generate(m.engine, prompts, NULL, NULL, &out)); /* nothing is left behind */
  treadle_batch_destroy(out);
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(none);
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_prompts),
                                     cmocka_unit_test(test_too_many), cmocka_unit_test(test_no_room),
                                     cmocka_unit_test(test_refused_sampling)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
