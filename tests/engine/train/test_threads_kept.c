/* What is scored is what was drawn: with top_p, top_k, min_p and several of them, and with ids that are never drawn, on
 * one rank and on two. Tokens are drawn as often as their log-probabilities say (chi-square); these are the trainer's
 * bits; over the ids that were kept e^logprob adds up to 1. TREADLE_FULL=1: every mesh with every model and cut, and 20
 * contexts, of 50,000 draws where the first model is on one rank. ctest: stage=gcc label=threads timeout=300 */
#include "generate/machine.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "base/arena.h"
#include "base/array.h"
#include "treadle_builtin.h"

#include <jansson.h>
#include <math.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

enum { PROMPT = 5, SAMPLES = 8, LENGTH = 16, MOST = 24 };

typedef struct mesh {
  const char *train, *infer;
  int ranks;
} mesh;

typedef struct cut {
  double temperature, top_p, min_p;
  int top_k;
  bool never; /* every seventh id is */
} cut;

static const char *const models[] = {MODELS "llama-gqa-llama3rope", MODELS "qwen2-tied",
                                     TREADLE_SOURCE_DIR "/examples/sequence/policy"};
static const mesh meshes[] = {{"hf:dtype=fp32", "vllm:tp=1,dtype=fp32", 1},
                              {"megatron:tp=2,dtype=bf16", "vllm:tp=2,dtype=bf16", 2},
                              {"megatron:pp=2,dtype=fp32", "vllm:pp=2,dtype=fp32", 2},
                              {"megatron:cp=2,dtype=bf16", "vllm:tp=2,dtype=bf16", 2}};
static const cut cuts[] = {{1, 0.8, 0, -1, false}, {1.3, 1, 0, 5, true},      {0.7, 1, 0.1, -1, false},
                           {1, 0.8, 0, 5, false},  {1.2, 0.9, 0.05, 9, true}, {1, 0.8, 0.1, -1, true},
                           {1, 1, 0, -1, true}};

static bool full(void) { return getenv("TREADLE_FULL") != NULL; }
static int contexts(void) { return full() ? 20 : 3; }

typedef struct scene {
  const char *folder;
  const mesh *mesh;
  const cut *cut;
  int draws; /* of each context */
  machine m;
  treadle_trainer *trainer;
  int64_t vocabulary, *compared;
  TREADLE_ARRAY(int32_t) never;
  /* What was generated: of each sample where its tokens begin, and of each token where its ids do. */
  TREADLE_ARRAY(size_t) first;
  TREADLE_ARRAY(int32_t) tokens;
  TREADLE_ARRAY(float) logprobs;
  TREADLE_ARRAY(size_t) kept_first;
  TREADLE_ARRAY(int32_t) kept;
} scene;

static treadle_status take_kept(void *context, const int32_t *counts, size_t tokens, const int32_t *ids,
                                size_t count) {
  scene *s = context;
  size_t at = 0;
  treadle_status status = TREADLE_OK;
  for (size_t t = 0; t < tokens; t++) {
    TRY(treadle_array_push(&s->kept_first, s->kept.count));
    for (int32_t i = 0; i < counts[t]; i++) TRY(treadle_array_push(&s->kept, ids[at++]));
  }
  if (at != count) status = treadle_fail(TREADLE_DIFFERENT, "%zu ids, and counts of %zu", count, at);
out:
  return status;
}

static treadle_status take_answer(void *context, const char *line, size_t bytes) {
  scene *s = context;
  json_t *answer = json_loadb(line, bytes, 0, NULL);
  const json_t *ids = json_object_get(answer, "token_ids"), *values = json_object_get(answer, "logprobs");
  treadle_status status;
  TRY(treadle_array_push(&s->first, s->tokens.count));
  for (size_t i = 0; i < json_array_size(ids); i++) {
    TRY(treadle_array_push(&s->tokens, (int32_t)json_integer_value(json_array_get(ids, i))));
    TRY(treadle_array_push(&s->logprobs, (float)json_number_value(json_array_get(values, i))));
  }
out:
  json_decref(answer);
  return status;
}

static bool is_cut(const scene *s) { return s->cut->top_k > 0 || s->cut->top_p < 1 || s->cut->min_p > 0; }

static int32_t prompt_id(const scene *s, int context, int place) {
  return (int32_t)((context * 31 + place * 17 + 5) % s->vocabulary);
}

/* `n` samples of each context. */
static treadle_status generate(scene *s, int n, int length) {
  char sampling[200], *lines = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&lines, &bytes);
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_generate_options options = {.struct_size = sizeof options,
                                      .sampling = sampling,
                                      .answer = take_answer,
                                      .context = s,
                                      .never = s->never.items,
                                      .never_count = s->never.count,
                                      .drawn = true,
                                      .most_kept = MOST,
                                      .kept = take_kept};
  treadle_status status;
  s->first.count = s->tokens.count = s->logprobs.count = s->kept_first.count = s->kept.count = 0;
  snprintf(sampling, sizeof sampling,
           "{\"temperature\": %g, \"top_p\": %g, \"min_p\": %g, \"top_k\": %d, \"repetition_penalty\": 1}",
           s->cut->temperature, s->cut->top_p, s->cut->min_p, s->cut->top_k);
  for (int c = 0; c < contexts(); c++) {
    fprintf(file, "{\"prompt_token_ids\": [");
    for (int i = 0; i < PROMPT; i++) fprintf(file, i ? ", %d" : "%d", prompt_id(s, c, i));
    fprintf(file, "], \"n\": %d, \"seed\": %d, \"max_tokens\": %d}\n", n, 77 + c, length);
  }
  fclose(file);
  TRY(treadle_generator_generate_lines(s->m.engine, lines, bytes, &options, &figures));
  TRY(treadle_array_push(&s->first, s->tokens.count));
  if (is_cut(s)) TRY(treadle_array_push(&s->kept_first, s->kept.count));
out:
  free(lines);
  return status;
}

/* ---- The trainer's side ---- */

typedef struct rows {
  TREADLE_ARRAY(rows_row) items;
  TREADLE_ARRAY(int32_t) counts; /* of ids that each token of the batch was drawn from */
  TREADLE_ARRAY(int32_t) kept;
  TREADLE_ARRAY(int64_t) kept_first; /* of each row; and the end */
  treadle_arena arena;
} rows;

/* A context, and tokens behind it that count. The ids that they were drawn from begin with those of token `number` of
 * what was generated. */
static treadle_status add_row(const scene *s, rows *r, int context, const int32_t *tokens, size_t count,
                              size_t number) {
  int32_t *ids = treadle_arena_alloc_array(&r->arena, PROMPT + count, sizeof *ids);
  uint8_t *mask = treadle_arena_alloc_array(&r->arena, PROMPT + count, 1);
  treadle_status status;
  if (!ids || !mask) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a row");
  for (int i = 0; i < PROMPT; i++) ids[i] = prompt_id(s, context, i);
  memset(mask, 0, PROMPT);
  memset(mask + PROMPT, 1, count);
  memcpy(ids + PROMPT, tokens, count * sizeof *ids);
  TRY(treadle_array_push(&r->items, ((rows_row){ids, mask, PROMPT + count, PROMPT})));
  TRY(treadle_array_push(&r->kept_first, (int64_t)r->kept.count));
  for (size_t t = number; t < number + count && is_cut(s); t++) {
    const size_t first = s->kept_first.items[t], end = s->kept_first.items[t + 1];
    TRY(treadle_array_push(&r->counts, (int32_t)(end - first)));
    for (size_t i = first; i < end; i++) TRY(treadle_array_push(&r->kept, s->kept.items[i]));
  }
out:
  return status;
}

/* *count_p: of log-probabilities, 0 on a rank that is given none. */
static treadle_status score(const scene *s, rows *r, float *logprobs, size_t *count_p) {
  const treadle_forward_options forward = {.struct_size = sizeof forward,
                                           .micro_batch_size = SAMPLES,
                                           .temperature = s->cut->temperature,
                                           .never = s->never.items,
                                           .never_count = s->never.count};
  treadle_batch *batch = NULL;
  treadle_status status;
  TRY(treadle_array_push(&r->kept_first, (int64_t)r->kept.count));
  TRY(rows_batch(r->items.items, r->items.count, &batch));
  if (is_cut(s)) {
    const treadle_column kept = {.struct_size = sizeof kept,
                                 .name = "kept",
                                 .type = TREADLE_COLUMN_INT32,
                                 .offsets = r->kept_first.items,
                                 .data = r->kept.items};
    TRY(rows_add(batch, "kept_counts", TREADLE_COLUMN_INT32, r->counts.items));
    TRY(treadle_batch_add(batch, &kept));
  }
  TRY(rows_logprobs(s->trainer, batch, &forward, NULL, logprobs, NULL, count_p));
out:
  treadle_batch_destroy(batch);
  return status;
}

static void release(rows *r) {
  treadle_array_release(&r->items);
  treadle_array_release(&r->counts);
  treadle_array_release(&r->kept);
  treadle_array_release(&r->kept_first);
  treadle_arena_release(&r->arena);
}

/* ---- What is checked ---- */

/* Long samples: the trainer's log-probabilities are the generator's bits. */
static int same_bits(scene *s, int64_t *compared_p) {
  rows r = {0};
  size_t given;
  RANK_OK(generate(s, SAMPLES, LENGTH));
  for (size_t i = 0; i + 1 < s->first.count; i++) {
    const size_t first = s->first.items[i], end = s->first.items[i + 1];
    RANK_OK(add_row(s, &r, (int)(i / SAMPLES), s->tokens.items + first, end - first, first));
  }
  float *logprobs = calloc(s->tokens.count + 1, sizeof *logprobs);
  RANK_TRUE(logprobs && s->tokens.count > 0);
  RANK_OK(score(s, &r, logprobs, &given));
  RANK_TRUE(given == 0 || given == s->tokens.count);
  for (size_t t = 0; t < s->tokens.count; t++) {
    RANK_TRUE(!given || memcmp(&logprobs[t], &s->logprobs.items[t], sizeof(float)) == 0);
    for (size_t i = 0; i < s->never.count; i++) RANK_TRUE(s->tokens.items[t] != s->never.items[i]);
    RANK_TRUE(!is_cut(s) || s->kept_first.items[t + 1] - s->kept_first.items[t] <=
                                (size_t)(s->cut->top_k > 0 ? s->cut->top_k : MOST));
  }
  *compared_p = (int64_t)given;
  free(logprobs);
  release(&r);
  return 0;
}

/* How many deviations a chi-square is above what it should be (Wilson and Hilferty). */
static double deviations(double chi, int freedom) {
  const double part = 2.0 / (9 * freedom);
  return freedom ? (cbrt(chi / freedom) - (1 - part)) / sqrt(part) : 0;
}

/* ids: of a context; what is rarer than five times goes together. */
static int is_drawn_so(const scene *s, int context, const int32_t *ids, const float *logprobs,
                       size_t count) {
  double chi = 0, sum = 0, rare = 0;
  int64_t seen_rare = 0, seen_all = 0;
  int freedom = -1;
  for (size_t i = 0; i < count; i++) {
    const double p = exp((double)logprobs[i]), wanted = p * s->draws;
    int64_t seen = 0;
    for (int k = 0; k < s->draws; k++) seen += s->tokens.items[context * s->draws + k] == ids[i];
    sum += p;
    seen_all += seen;
    rare += wanted < 5 ? wanted : 0;
    seen_rare += wanted < 5 ? seen : 0;
    if (wanted < 5) continue;
    chi += ((double)seen - wanted) * ((double)seen - wanted) / wanted;
    freedom++;
  }
  if (rare >= 5) chi += ((double)seen_rare - rare) * ((double)seen_rare - rare) / rare;
  freedom += rare >= 5;
  if (fabs(sum - 1) > 1e-5 || seen_all != s->draws || deviations(chi, freedom) > 4.5) {
    fprintf(stderr,
            "%s, %s, context %d: e^logprob of %zu ids adds up to %.9g, %lld of %d draws are of them, "
            "chi-square %g of %d\n",
            s->folder, s->mesh->infer, context, count, sum, (long long)seen_all, s->draws, chi, freedom);
    return 1;
  }
  return 0;
}

/* The first tokens of many samples of a context, and the trainer's log-probabilities of every id that they were drawn
 * from. */
static int as_often(scene *s) {
  RANK_OK(generate(s, s->draws, 1));
  RANK_TRUE(s->tokens.count == (size_t)(contexts() * s->draws));
  for (int c = 0; c < contexts(); c++) {
    rows r = {0};
    TREADLE_ARRAY(int32_t) ids = {0};
    const size_t token = (size_t)(c * s->draws);
    size_t given;
    const size_t first = is_cut(s) ? s->kept_first.items[token] : 0,
                 end = is_cut(s) ? s->kept_first.items[token + 1] : 0;
    for (size_t i = first; i < end; i++) RANK_OK(treadle_array_push(&ids, s->kept.items[i]));
    for (int32_t id = 0; !is_cut(s) && id < s->vocabulary; id++)
      if (id % 7 != 3) RANK_OK(treadle_array_push(&ids, id));
    float *logprobs = calloc(ids.count + 1, sizeof *logprobs);
    RANK_TRUE(logprobs && ids.count);
    for (size_t i = 0; i < ids.count; i++) RANK_OK(add_row(s, &r, c, &ids.items[i], 1, token));
    RANK_OK(score(s, &r, logprobs, &given));
    RANK_TRUE(given == 0 || given == ids.count);
    RANK_TRUE(!given || is_drawn_so(s, c, ids.items, logprobs, ids.count) == 0);
    free(logprobs);
    treadle_array_release(&ids);
    release(&r);
  }
  return 0;
}

static int run_rank(treadle_group *group, void *context) {
  scene s = *(const scene *)context;
  const bool alone = s.mesh->ranks == 1;
  const machine_spec spec = {.folder = s.folder,
                             .layout = s.mesh->infer,
                             .group = alone ? NULL : group,
                             .options = {.threads = 1}};
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = SAMPLES * (PROMPT + LENGTH),
                                           .most_sequences = SAMPLES,
                                           .most_micro_batches = 1};
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  treadle_layout *layout;
  int64_t compared = 0;
  RANK_OK(machine_open(&s.m, &spec));
  RANK_OK(treadle_generator_get_info(s.m.engine, &info));
  s.vocabulary = info.vocabulary;
  for (int32_t id = 3; s.cut->never && id < s.vocabulary; id += 7)
    RANK_OK(treadle_array_push(&s.never, id));
  RANK_OK(treadle_layout_create(s.m.model, s.mesh->train, s.mesh->ranks, NULL, &layout));
  RANK_OK(treadle_trainer_create(spec.group, layout, &options, &s.trainer));
  RANK_OK(treadle_trainer_load(s.trainer));
  RANK_TRUE(same_bits(&s, &compared) == 0);
  RANK_TRUE(as_often(&s) == 0);
  if (compared) *s.compared += compared; /* one rank's */
  treadle_trainer_destroy(s.trainer);
  treadle_layout_destroy(layout);
  machine_close(&s.m);
  treadle_array_release(&s.never);
  treadle_array_release(&s.first);
  treadle_array_release(&s.tokens);
  treadle_array_release(&s.logprobs);
  treadle_array_release(&s.kept_first);
  treadle_array_release(&s.kept);
  return 0;
}

/* Each model with each cut, on one of the meshes by turns. */
static void drawn(void **state) {
  (void)state;
  int64_t compared = 0;
  for (size_t i = 0; i < TEST_COUNT(models); i++)
    for (size_t c = 0; c < TEST_COUNT(cuts); c++)
      for (size_t m = 0; m < TEST_COUNT(meshes); m++) {
        scene s = {.folder = models[i],
                   .mesh = &meshes[m],
                   .cut = &cuts[c],
                   .draws = full() && !i && !m ? 50000 : 1000,
                   .compared = &compared};
        const int64_t before = compared;
        if (!full() && (i + c) % TEST_COUNT(meshes) != m) continue;
        if (s.mesh->ranks == 1)
          assert_int_equal(run_rank(NULL, &s), 0);
        else
          ranks_as_threads(s.mesh->ranks, 60, 0, run_rank, &s);
        assert_true(compared > before);
      }
  printf("%lld log-probabilities are the same bits\n", (long long)compared);
}

/* ---- Refusals ---- */

typedef struct wrong {
  const char *sampling, *text;
} wrong;

static void refused_requests(void **state) {
  (void)state;
  static const wrong wrongs[] = {
      {"{\"temperature\": 9e-6}", "temperature is 9e-06"},
      {"{\"repetition_penalty\": 1.1}", "repetition_penalty 1.1"},
      {"{\"presence_penalty\": 0.5}", "presence_penalty 0.5"},
      {"{\"frequency_penalty\": -1}", "frequency_penalty -1"},
      {"{\"logprobs\": 2}", "logprobs is 2"},
  };
  static const char line[] = "{\"prompt_token_ids\": [1, 2]}\n";
  const machine_spec spec = {.folder = models[2], .layout = "hf", .options = {.threads = 1}};
  machine m;
  assert_ok(machine_open(&m, &spec));
  for (size_t i = 0; i < TEST_COUNT(wrongs); i++) {
    const treadle_generate_options options = {
        .struct_size = sizeof options, .sampling = wrongs[i].sampling, .drawn = true};
    treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
    assert_refused(wrongs[i].text,
                   treadle_generator_generate_lines(m.engine, line, strlen(line), &options, &figures));
  }
  machine_close(&m);
}

/* What tokens were drawn from, as it may not be. */
static const struct wrong_kept {
  int32_t counts[2], kept[4];
  int64_t kept_count;
  const char *text; /* NULL: it may */
} wrong_kepts[] = {
    {{3, 1}, {0, 3, 9, 4}, 4, NULL},
    {{3, 1}, {3, 0, 9, 4}, 4, "row 0: the ids that token 2 was drawn from do not ascend"},
    {{2, 1}, {3, 99, 4}, 3, "are not of the vocabulary"},
    {{3, 1}, {0, 5, 9, 4}, 4, "row 0: token 2 is 3, which is none of the ids"},
    {{3, -1}, {0, 3, 9}, 3, "row 0: kept_counts[1] is -1, and 0 ids are left in kept"},
    {{3, 2}, {0, 3, 9, 4}, 4, "row 0: kept_counts[1] is 2, and 1 ids are left in kept"},
    {{2, 1}, {0, 3, 4, 5}, 4, "row 0: kept has 1 ids more than kept_counts says"},
};

/* Both columns, or one of them. */
static treadle_status score_kept(treadle_trainer *trainer, const struct wrong_kept *k, bool counts,
                                 bool kept, float *logprobs) {
  static const int32_t ids[] = {1, 2, 3, 4};
  static const uint8_t mask[] = {0, 0, 1, 1};
  const rows_row row = {ids, mask, 4, 2};
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  const int64_t offsets[] = {0, k->kept_count};
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = "kept",
                                 .type = TREADLE_COLUMN_INT32,
                                 .offsets = offsets,
                                 .data = (void *)k->kept};
  treadle_batch *batch;
  assert_ok(rows_batch(&row, 1, &batch));
  if (counts) assert_ok(rows_add(batch, "kept_counts", TREADLE_COLUMN_INT32, k->counts));
  if (kept) assert_ok(treadle_batch_add(batch, &column));
  treadle_status status = rows_logprobs(trainer, batch, &forward, NULL, logprobs, NULL, NULL);
  treadle_batch_destroy(batch);
  return status;
}

static void refused_kept(void **state) {
  (void)state;
  static const int32_t ids[] = {1, 2, 3, 4}, never[] = {0, 3, 9};
  static const uint8_t mask[] = {0, 0, 1, 1};
  const rows_row row = {ids, mask, 4, 2};
  const machine_spec spec = {.folder = models[2], .layout = "hf", .options = {.threads = 1}};
  const treadle_trainer_options options = {.struct_size = sizeof options, .threads = 1, .most_rows = 8};
  const treadle_forward_options forward = {
      .struct_size = sizeof forward, .micro_batch_size = 1, .never = never, .never_count = 3};
  treadle_trainer *trainer;
  treadle_batch *batch;
  float logprobs[2];
  machine m;
  assert_ok(machine_open(&m, &spec));
  assert_ok(treadle_trainer_create(NULL, m.layout, &options, &trainer));
  assert_ok(treadle_trainer_load(trainer));
  for (size_t i = 0; i < TEST_COUNT(wrong_kepts); i++) {
    const struct wrong_kept *k = &wrong_kepts[i];
    if (k->text) assert_refused(k->text, score_kept(trainer, k, true, true, logprobs));
    if (k->text) continue;
    assert_ok(score_kept(trainer, k, true, true, logprobs));
    assert_true(logprobs[1] == 0); /* the only one */
  }
  assert_refused("the batch has 'kept' alone, of kept_counts and kept",
                 score_kept(trainer, &wrong_kepts[0], false, true, logprobs));
  assert_refused("the batch has 'kept_counts' alone, of kept_counts and kept",
                 score_kept(trainer, &wrong_kepts[0], true, false, logprobs));
  assert_ok(rows_batch(&row, 1, &batch));
  assert_refused("row 0: token 2 is 3, which is none",
                 rows_logprobs(trainer, batch, &forward, NULL, logprobs, NULL, NULL));
  treadle_batch_destroy(batch);
  treadle_trainer_destroy(trainer);
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(refused_requests),
                                     cmocka_unit_test(refused_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
