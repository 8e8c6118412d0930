/* The experts that a generator records: those that the router chose, of each token and layer, whatever the cache shares. The routers'
 * biases are set so that each layer has a choice of its own, which is known. */
#include "test.h"

#include "base/status.h"
#include "generate/machine.h"
#include "generate/prompts.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER TREADLE_SOURCE_DIR "/tests/golden/models/dsv3-yarn"

enum { DENSE = 1, SPARSE = 3, EXPERTS = 8, TOP = 2, ANSWERS = 2, BLOCK = 4 };

static machine_spec spec_of(bool records) {
  return (machine_spec){.folder = FOLDER,
                        .layout = "vllm:tp=1",
                        .options = {.threads = 1,
                                    .kv_bytes = 1 << 18,
                                    .prefill_chunk = 8,
                                    .block_tokens = BLOCK,
                                    .experts = records}};
}

/* Layer l chooses the two experts of group l. */
static void set_biases(machine *m) {
  int set = 0;
  for (int32_t i = 0; i < treadle_layout_storage_count(m->layout, 0); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    int layer;
    assert_ok(treadle_layout_storage(m->layout, 0, i, &info));
    if (!strstr(info.name, "e_score_correction_bias")) continue;
    assert_int_equal(sscanf(info.name, "model.layers.%d.", &layer), 1);
    assert_int_equal(info.dtype, TREADLE_FP32);
    float *bias = (float *)(void *)(m->window + info.offset_bytes);
    for (int e = 0; e < EXPERTS; e++) bias[e] = e / TOP == layer ? 100.0f : 0.0f;
    set++;
  }
  assert_int_equal(set, SPARSE);
  assert_ok(treadle_generator_bind(m->engine, m->window, m->window_bytes));
}

static const unsigned char *experts_of(const treadle_batch *answers, int64_t row, int64_t *bytes_p) {
  treadle_column c = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(answers, "experts", &c));
  assert_int_equal(c.type, TREADLE_COLUMN_BYTES);
  *bytes_p = c.offsets[row + 1] - c.offsets[row];
  return (const unsigned char *)c.data + c.offsets[row];
}

static treadle_batch *generate(machine *m, const treadle_batch *prompts) {
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *answers;
  sampling.n = ANSWERS;
  sampling.max_tokens = 7;
  assert_ok(treadle_generator_generate(m->engine, prompts, &sampling, NULL, &answers));
  return answers;
}

static void test_known_choice(void **state) {
  (void)state;
  const machine_spec spec = spec_of(true);
  treadle_random random = {5};
  treadle_batch *prompts = prompts_draw(&random, 5, true), *answers, *again;
  machine m;
  assert_ok(machine_open(&m, &spec));
  set_biases(&m);
  answers = generate(&m, prompts);
  again = generate(&m, prompts); /* most blocks of the prompts are there */
  for (int64_t row = 0; row < treadle_batch_rows(answers); row++) {
    int64_t prompt, made, bytes;
    (void)prompts_ids(prompts, "prompt_ids", row / ANSWERS, &prompt);
    (void)prompts_ids(answers, "ids", row, &made);
    const unsigned char *found = experts_of(answers, row, &bytes);
    assert_int_equal(bytes, (prompt + made - 1) * SPARSE * TOP * 2);
    for (int64_t i = 0; i < bytes / 2; i++) {
      int64_t layer = DENSE + i / TOP % SPARSE;
      assert_int_equal(found[2 * i] + 256 * found[2 * i + 1], layer * TOP + i % TOP);
    }
  }
  assert_null(prompts_differ(again, answers, 0));
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(answers);
  treadle_batch_destroy(again);
  machine_close(&m);
}

/* ---- Scoring ---- */

typedef struct heard {
  const treadle_batch *answers;
  int64_t texts;
} heard;

/* Text t is the answer of row t, behind its prompt. */
static treadle_status hear(void *context, size_t text, const uint8_t *experts, size_t bytes) {
  heard *h = context;
  int64_t wanted;
  const unsigned char *of = experts_of(h->answers, (int64_t)text, &wanted);
  h->texts++;
  if ((int64_t)bytes == wanted && memcmp(experts, of, bytes) == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_DIFFERENT, "text %zu: other experts", text);
}

static void test_scored(void **state) {
  (void)state;
  enum { ROWS = 3, MOST = 64 };
  const machine_spec spec = spec_of(true);
  treadle_random random = {6};
  treadle_batch *prompts = prompts_draw(&random, ROWS, true), *answers;
  treadle_score_text texts[ROWS * ANSWERS];
  int32_t ids[ROWS * ANSWERS][MOST];
  machine m;
  assert_ok(machine_open(&m, &spec));
  answers = generate(&m, prompts);
  for (int64_t row = 0; row < ROWS * ANSWERS; row++) {
    int64_t before, made;
    const int32_t *prompt = prompts_ids(prompts, "prompt_ids", row / ANSWERS, &before);
    const int32_t *answer = prompts_ids(answers, "ids", row, &made);
    assert_true(before + made <= MOST);
    memcpy(ids[row], prompt, (size_t)before * sizeof *prompt);
    memcpy(ids[row] + before, answer, (size_t)made * sizeof *answer);
    texts[row] = (treadle_score_text){ids[row], (size_t)(before + made)};
  }
  heard h = {.answers = answers};
  const treadle_score_options options = {.struct_size = sizeof options, .experts = hear, .context = &h};
  assert_ok(treadle_generator_score(m.engine, texts, ROWS * ANSWERS, &options));
  assert_int_equal(h.texts, ROWS * ANSWERS);
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(answers);
  machine_close(&m);
}

/* Without being asked, no column and no memory. */
static void test_off(void **state) {
  (void)state;
  treadle_generator_info with = TREADLE_INIT(treadle_generator_info), without = with;
  treadle_random random = {5};
  treadle_batch *prompts = prompts_draw(&random, 2, true), *answers;
  machine_spec spec = spec_of(true);
  machine m;
  assert_ok(machine_open(&m, &spec));
  assert_ok(treadle_generator_get_info(m.engine, &with));
  machine_close(&m);
  spec = spec_of(false);
  assert_ok(machine_open(&m, &spec));
  assert_ok(treadle_generator_get_info(m.engine, &without));
  assert_int_equal(with.kv_block_bytes - without.kv_block_bytes, (BLOCK * SPARSE * TOP * 2 + 63) / 64 * 64);
  answers = generate(&m, prompts);
  assert_false(treadle_batch_has(answers, "experts"));
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(answers);
  machine_close(&m);
}

static void test_refused(void **state) {
  (void)state;
  machine_spec spec = spec_of(true);
  machine m;
  spec.folder = TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied";
  assert_refused("the model has no experts to record", machine_open(&m, &spec));
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_choice), cmocka_unit_test(test_scored),
                                     cmocka_unit_test(test_off), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
