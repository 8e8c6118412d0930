/* The matrix of exactness: token ids and log-probabilities of sampled texts are the same bits whatever the batch, the chunks, the blocks,
 * the threads, the memory of the cache, the prefixes and the layout are; scoring them in any layout gives the same bits again. For each
 * kernel of the machine, with dense models, experts and latent attention; temperatures 0.7 and 1, with top-p and without.
 *
 * TREADLE_EXACT is the number of tokens that are generated in each cell (make nightly: 10000). Without it there are a few hundred, and
 * not every kernel meets every model. */
/* ctest: label=threads timeout=300 label=kernels */
#include "base/random.h"
#include "generate/cell.h"
#include "nn/gemm.h"
#include "test.h"

enum { FEW_TOKENS = 260, MIXED = 6 };

/* ---- What is varied ---------------------------------------------------------------------------------- */

static const char model_folder[] = TREADLE_SOURCE_DIR "/tests/golden/models/",
                  more_folder[] = TREADLE_SOURCE_DIR "/../shared/data/golden/models/";

typedef struct subject {
  const char *root, *folder, *dtype; /* NULL: the file's, which is bf16 */
  bool experts;
} subject;

static const subject subjects[] = {
    {model_folder, "llama-gqa-llama3rope", NULL, false},
    {model_folder, "qwen2moe", NULL, true},
    {model_folder, "dsv3-yarn", NULL, true},
    {model_folder, "qwen2-tied", NULL, false},
    {model_folder, "qwen2-tied", "fp32", false},
    {model_folder, "dsv3-yarn", "fp32", true},
    {more_folder, "glm4moe-qknorm", NULL, true},
    {more_folder, "mixtral", NULL, true},
    {more_folder, "dsv2-lite", NULL, true},
    {more_folder, "qwen3moe", NULL, true},
};
enum { EVERY_KERNEL = 3 }; /* this many of them meet every kernel, the others the best one */

/* Layouts, with the ranks that they are for. */
typedef struct cut {
  const char *layout;
  int ranks;
  bool experts; /* for models with experts alone */
  bool few;     /* where time is short, too */
} cut;

static const cut generating[] = {
    {"vllm:tp=2", 2, false, true},         {"vllm:tp=4", 4, false, false},
    {"vllm:tp=1,pp=2", 2, false, true},    {"vllm:tp=2,pp=2", 4, false, false},
    {"vllm:tp=1", 3, false, true}, /* replicas */
    {"vllm:tp=2", 4, false, false},        {"sglang:tp=2", 2, false, false},
    {"sglang:tp=2,pp=2", 4, false, false}, {"vllm:tp=2,ep=on", 2, true, true},
    {"vllm:tp=4,ep=on", 4, true, false},   {"sglang:tp=4,ep=2", 4, true, false},
    {"sglang:tp=4,ep=4", 4, true, false},  {"vllm:tp=2,dp=2,ep=on", 4, true, true}, /* groups */
    {"vllm:dp=4,ep=on", 4, true, false},   {"vllm:tp=2,dp=4,ep=on", 8, true, false},
    {"vllm:dp=2,ep=on", 4, true, false},   {"vllm:tp=2,pp=2,dp=2,ep=on", 8, true, false},
};

static const cut scoring[] = {
    {"hf", 1, false, true},
    {"megatron:tp=1", 1, false, true},
    {"vllm:tp=2", 2, false, false},
    {"sglang:tp=1,pp=2", 2, false, false},
    {"megatron:tp=2", 2, false, true},
    {"megatron:tp=1,pp=2", 2, false, false},
    {"megatron:tp=2,pp=2", 4, false, false},
    {"megatron:tp=2,pp=2,vpp=1", 4, false, false},
    {"megatron:tp=4", 4, false, false},
    {"megatron:tp=2", 4, false, false}, /* data parallel */
    {"megatron:tp=2,ep=2,etp=1", 2, true, true},
    {"megatron:tp=2,ep=4,etp=1", 4, true, false},
    {"megatron:tp=2,ep=2,etp=2", 4, true, false},
    {"megatron:tp=2,etp=1,ep=2,pp=2", 4, true, false},
    {"megatron:tp=1,ep=4", 4, true, false}, /* groups */
    {"vllm:tp=2,dp=2,ep=on", 4, true, true},
};

static const treadle_generator_options ways[] = {
    {.max_batch = 1, .threads = 1},
    {.max_batch = 7, .threads = 1, .prefill_chunk = 16},
    {.max_batch = 64, .threads = 2},
    {.threads = 2, .prefill_chunk = 5, .block_tokens = 32},
    {.threads = 1, .block_tokens = 32, .prefix_cache = TREADLE_OFF},
    {.threads = 1, .block_tokens = 3, .prefill_chunk = 16},
};

/* ---- Requests ---------------------------------------------------------------------------------------- */

/* For this many new tokens: prompts of many lengths; the first half of some is that of others. */
static void make_requests(treadle_builder *lines, int64_t tokens) {
  for (int p = 0; tokens > 0; p++) {
    int n = 1 + p % 2, most = 20 + p % 41;
    tokens -= n * most;
    treadle_builder_add(lines,
                        "{\"max_tokens\": %d, \"n\": %d, \"temperature\": %s, \"top_p\": %s,"
                        " \"logprobs\": 2, \"ignore_eos\": true, \"prompt_token_ids\": [",
                        most, n, p % 3 ? "0.7" : "1", p % 4 ? "0.9" : "1");
    for (int i = 0; i < 5 + 9 * (p % 5); i++)
      treadle_builder_add(lines, "%s%d", i ? ", " : "", i < 20 ? i * 7 % 200 : (i * 13 + p * 31) % 200);
    treadle_builder_add(lines, "]}\n");
  }
  assert_false(lines->failed);
}

/* ---- Cells ------------------------------------------------------------------------------------------- */

typedef struct matrix {
  const subject *subject;
  const char *kernel, *lines;
  char folder[512], layout[128];
  bool whole; /* all cells */
  size_t block_bytes;
  cell_result wanted;
} matrix;

static cell make_cell(matrix *m, const char *layout, int ranks, treadle_generator_options options) {
  snprintf(m->layout, sizeof m->layout, "%s", layout);
  if (m->subject->dtype)
    snprintf(m->layout, sizeof m->layout, "%s%cdtype=%s", layout, strchr(layout, ':') ? ',' : ':',
             m->subject->dtype);
  if (!options.kv_bytes) options.kv_bytes = 4 << 20;
  if (!options.threads) options.threads = 1;
  options.kernels = m->kernel;
  options.experts = m->subject->experts; /* they are part of the answers */
  return (cell){.folder = m->folder, .layout = m->layout, .ranks = ranks, .options = options};
}

static void expect(matrix *m, const cell *c, treadle_generate_figures *figures_p) {
  cell_result r;
  const treadle_generator_options *o = &c->options;
  bool good = cell_generate(c, m->lines, false, &r);
  if (!good || r.figures.digest != m->wanted.figures.digest)
    fail_msg(
        "%s, %s, %s, %d ranks, batch %d, chunk %d, blocks of %d, %d threads, prefixes %s, %zu bytes: %s",
        m->folder, m->kernel, c->layout, c->ranks, o->max_batch, o->prefill_chunk, o->block_tokens,
        o->threads, o->prefix_cache == TREADLE_OFF ? "off" : "on", o->kv_bytes,
        good ? "other bits" : r.message);
  if (m->whole) {
    printf("  %s, %d ranks, batch %d: %.1f s\n", c->layout, c->ranks, o->max_batch, r.figures.seconds);
    fflush(stdout);
  }
  assert_int_equal(r.answers.length, m->wanted.answers.length);
  assert_string_equal(r.answers.text, m->wanted.answers.text);
  if (figures_p) *figures_p = r.figures;
  treadle_builder_release(&r.answers);
}

static void make_wanted(matrix *m) {
  cell c = make_cell(m, "vllm:tp=1", 1, (treadle_generator_options){0});
  if (!cell_generate(&c, m->lines, false, &m->wanted)) fail_msg("%s: %s", m->folder, m->wanted.message);
  assert_true(m->wanted.figures.prefix_hit_tokens > 0);
  m->block_bytes = c.options.kv_bytes / (size_t)m->wanted.info.kv_blocks;
  /* Again, with what the cache has by now. */
  cell_result again;
  if (!cell_generate(&c, m->lines, true, &again)) fail_msg("%s: %s", m->folder, again.message);
  assert_true(again.figures.digest == m->wanted.figures.digest);
  assert_true(again.figures.prefix_hit_tokens > m->wanted.figures.prefix_hit_tokens);
  treadle_builder_release(&again.answers);
}

/* Seven blocks of 16 hold the longest request, and not two of them. */
static treadle_generator_options little(const matrix *m) {
  return (treadle_generator_options){.kv_bytes = 7 * m->block_bytes};
}

static void vary_options(matrix *m) {
  treadle_generate_figures figures;
  for (size_t i = 0; i < TEST_COUNT(ways); i++) {
    cell c = make_cell(m, "vllm:tp=1", 1, ways[i]);
    expect(m, &c, &figures);
    assert_true(ways[i].prefix_cache != TREADLE_OFF || figures.prefix_hit_tokens == 0);
  }
  cell poor = make_cell(m, "vllm:tp=1", 1, little(m));
  expect(m, &poor, &figures);
  assert_true(figures.preemptions > 0);
  if (!m->subject->experts) return;
  poor = make_cell(m, "vllm:dp=2,ep=on", 2, little(m));
  expect(m, &poor, &figures);
  assert_true(figures.preemptions > 0);
}

static bool applies(const matrix *m, const cut *c) {
  return (m->whole || c->few) && (m->subject->experts || !c->experts);
}

static void vary_layouts(matrix *m) {
  for (size_t i = 0; i < TEST_COUNT(generating); i++) {
    if (!applies(m, &generating[i])) continue;
    cell c = make_cell(m, generating[i].layout, generating[i].ranks, (treadle_generator_options){0});
    expect(m, &c, NULL);
  }
}

/* Layouts with options, drawn. */
static void mix(matrix *m) {
  treadle_random random = {.state = m->wanted.figures.digest};
  for (int i = 0; m->whole && i < MIXED; i++) {
    const cut *of = &generating[treadle_random_below(&random, TEST_COUNT(generating))];
    treadle_generator_options options = ways[treadle_random_below(&random, TEST_COUNT(ways))];
    if (!applies(m, of)) continue;
    if (treadle_random_below(&random, 3) == 0 && options.block_tokens == 0)
      options.kv_bytes = 7 * m->block_bytes;
    cell c = make_cell(m, of->layout, of->ranks, options);
    expect(m, &c, NULL);
  }
}

static void score(matrix *m) {
  for (size_t i = 0; i < TEST_COUNT(scoring); i++) {
    if (!applies(m, &scoring[i])) continue;
    treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
    char message[512];
    cell c = make_cell(m, scoring[i].layout, scoring[i].ranks, ways[i % TEST_COUNT(ways)]);
    if (!cell_score(&c, m->wanted.answers.text, &figures, message))
      fail_msg("%s, %s, %s: %s", m->folder, m->kernel, c.layout, message);
    if (figures.different || figures.checked != m->wanted.figures.new_tokens)
      fail_msg("%s, %s, score in %s on %d ranks: %lld of %lld differ, %lld were generated", m->folder,
               m->kernel, c.layout, c.ranks, (long long)figures.different, (long long)figures.checked,
               (long long)m->wanted.figures.new_tokens);
  }
}

static void check(const subject *s, const char *kernel, int64_t tokens, bool whole) {
  treadle_builder lines = {0};
  matrix m = {.subject = s, .kernel = kernel, .whole = whole};
  snprintf(m.folder, sizeof m.folder, "%s%s", s->root, s->folder);
  if (access(m.folder, R_OK) != 0) {
    printf("%s is not there: skipped\n", m.folder);
    return;
  }
  make_requests(&lines, tokens);
  m.lines = lines.text;
  make_wanted(&m);
  vary_options(&m);
  vary_layouts(&m);
  mix(&m);
  score(&m);
  printf("%s%s%s, %s: %lld tokens, digest %016llx\n", s->folder, s->dtype ? ", " : "",
         s->dtype ? s->dtype : "", kernel, (long long)m.wanted.figures.new_tokens,
         (unsigned long long)m.wanted.figures.digest);
  treadle_builder_release(&m.wanted.answers);
  treadle_builder_release(&lines);
}

static void test_matrix(void **state) {
  (void)state;
  const char *asked = getenv("TREADLE_EXACT");
  int64_t tokens = asked ? strtoll(asked, NULL, 10) : TEST_SANITIZED ? FEW_TOKENS / 2 : FEW_TOKENS;
  int32_t best = 0;
  for (int32_t k = 0; treadle_gemm_kernel_at(k); k++) {
    const treadle_gemm_kernel *kernel = treadle_gemm_kernel_at(k);
    if (kernel->lacks()) {
      printf("%s: skipped: %s\n", kernel->name, kernel->lacks());
      continue;
    }
    best = k;
    if (TEST_SANITIZED && !asked && !k) continue;
    /* Where time is short each kernel meets one model; the plain one is slow, more so under a sanitizer. */
    for (size_t i = 0; i < EVERY_KERNEL; i++)
      if (asked || (size_t)k % EVERY_KERNEL == i)
        check(&subjects[i], kernel->name, k || asked ? tokens : tokens / 2, asked);
  }
  if (TEST_SANITIZED && !asked) return;
  for (size_t i = 0; i < TEST_COUNT(subjects); i++)
    if (asked ? i >= EVERY_KERNEL : i < EVERY_KERNEL && (size_t)best % EVERY_KERNEL != i)
      check(&subjects[i], treadle_gemm_kernel_at(best)->name, tokens, asked);
}

/* Layouts of vLLM and SGLang have glm4_moe's routers in fp32, others as the file has them: the same bits. */
static void test_routers(void **state) {
  (void)state;
  static const char *const layouts[] = {"vllm:tp=1,dtype=bf16", "sglang:tp=1,dtype=bf16", "hf:dtype=bf16",
                                        "megatron:tp=1,dtype=bf16"};
  treadle_builder lines = {0};
  uint64_t digest = 0;
  make_requests(&lines, 60);
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    const cell c = {.folder = TREADLE_SOURCE_DIR "/tests/golden/models/glm4moe-qknorm",
                    .layout = layouts[i],
                    .ranks = 1,
                    .options = {.threads = 1, .kv_bytes = 4 << 20}};
    cell_result r;
    if (!cell_generate(&c, lines.text, false, &r)) fail_msg("%s: %s", c.layout, r.message);
    if (i && r.figures.digest != digest) fail_msg("%s: other bits", c.layout);
    digest = r.figures.digest;
    assert_true((r.info.packed_bytes > 0) == (i < 2)); /* a copy of the routers in bf16 */
    treadle_builder_release(&r.answers);
  }
  treadle_builder_release(&lines);
}

/* Fast mode has an order of additions of its own: of the plain kernels, on every processor. Of so small a model, kernels with wide lanes
   may add in one order in both modes. */
static void test_fast(void **state) {
  (void)state;
  treadle_builder lines = {0};
  uint64_t digests[3];
  make_requests(&lines, 60);
  for (int i = 0; i < 3; i++) {
    const cell c = {.folder = TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope",
                    .layout = "vllm:tp=1",
                    .ranks = 1,
                    .options = {.threads = 1, .kv_bytes = 4 << 20, .kernels = "plain", .fast = i > 0}};
    cell_result r;
    if (!cell_generate(&c, lines.text, false, &r)) fail_msg("%s: %s", c.layout, r.message);
    assert_int_equal(r.info.exact, i == 0);
    digests[i] = r.figures.digest;
    treadle_builder_release(&r.answers);
  }
  assert_true(digests[1] != digests[0] && digests[2] == digests[1]);
  treadle_builder_release(&lines);
}

/* Requests that cannot be: refused before anything runs. */
static void test_refused(void **state) {
  (void)state;
  static const char large[] = "{\"prompt_token_ids\": [1], \"max_tokens\": 399}\n",
                    wrong[] = "{\"prompt_token_ids\": [1]}\n{\"prompt_token_ids\": [203]}\n";
  const machine_spec spec = {.folder = TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope",
                             .layout = "vllm:tp=1",
                             .options = {.kv_bytes = 1 << 14, .max_len = 400, .threads = 1}};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  machine m;
  assert_ok(machine_open(&m, &spec));
  assert_refused("it takes",
                 treadle_generator_generate_lines(m.engine, large, sizeof large - 1, NULL, &figures));
  assert_refused("line 2",
                 treadle_generator_generate_lines(m.engine, wrong, sizeof wrong - 1, NULL, &figures));
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_matrix), cmocka_unit_test(test_fast),
                                     cmocka_unit_test(test_routers), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
