/* Answers of a foreign engine that are not as the table says are refused by row and column, on all ranks, and the worker
 * goes on generating.
 * ctest: label=threads */
#include "control/tiny.h"
#include "control/toy.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include <math.h>

enum { PROMPTS = 2, N = 2, ANSWERS = PROMPTS * N };

/* ---- What is wrong with them ---- */

static treadle_status give_none(treadle_batch **answers_p) {
  treadle_batch_destroy(*answers_p);
  *answers_p = NULL;
  return TREADLE_OK;
}

static treadle_status take_rows(treadle_batch **answers_p, size_t count) {
  static const int64_t rows[] = {0, 1, 2, 3, 0};
  treadle_batch *made;
  treadle_status status = treadle_batch_index(*answers_p, rows, count, &made);
  if (status) return status;
  treadle_batch_destroy(*answers_p);
  *answers_p = made;
  return TREADLE_OK;
}

static treadle_status lose_row(treadle_batch **answers_p) { return take_rows(answers_p, ANSWERS - 1); }
static treadle_status add_row(treadle_batch **answers_p) { return take_rows(answers_p, ANSWERS + 1); }
static treadle_status lose_rows(treadle_batch **answers_p) { return take_rows(answers_p, 0); }

static treadle_status lose_ids(treadle_batch **answers_p) {
  return treadle_batch_remove(*answers_p, "ids");
}

static treadle_status lose_logprobs(treadle_batch **answers_p) {
  return treadle_batch_remove(*answers_p, "rollout_log_probs");
}

static treadle_status lose_finish(treadle_batch **answers_p) {
  return treadle_batch_remove(*answers_p, "finish");
}

/* Another column of this name. */
static treadle_status replace(treadle_batch *answers, const char *name, treadle_column_type type,
                              const int64_t *offsets) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = type, .width = !offsets, .offsets = offsets};
  treadle_status status = treadle_batch_remove(answers, name);
  return status ? status : treadle_batch_add(answers, &column);
}

static const int64_t each[ANSWERS + 1] = {0, 1, 2, 3, 4}, fewer[ANSWERS + 1] = {0, 1, 2, 2, 3},
                                    more[ANSWERS + 1] = {0, 2, 3, 4, 5};

static treadle_status long_ids(treadle_batch **answers_p) {
  return replace(*answers_p, "ids", TREADLE_COLUMN_INT64, each);
}

static treadle_status one_id(treadle_batch **answers_p) {
  return replace(*answers_p, "ids", TREADLE_COLUMN_INT32, NULL);
}

static treadle_status double_logprobs(treadle_batch **answers_p) {
  return replace(*answers_p, "rollout_log_probs", TREADLE_COLUMN_FP64, each);
}

static treadle_status bytes_of_finish(treadle_batch **answers_p) {
  return replace(*answers_p, "finish", TREADLE_COLUMN_BYTES, each);
}

static treadle_status fewer_logprobs(treadle_batch **answers_p) {
  return replace(*answers_p, "rollout_log_probs", TREADLE_COLUMN_FP32, fewer);
}

static treadle_status more_logprobs(treadle_batch **answers_p) {
  return replace(*answers_p, "rollout_log_probs", TREADLE_COLUMN_FP32, more);
}

static treadle_status set_logprob(treadle_batch *answers, int64_t row, float value) {
  treadle_column logprobs = TREADLE_INIT(treadle_column);
  treadle_status status = treadle_batch_column(answers, "rollout_log_probs", &logprobs);
  if (!status) ((float *)logprobs.data)[logprobs.offsets[row]] = value;
  return status;
}

static treadle_status give_nan(treadle_batch **answers_p) { return set_logprob(*answers_p, 1, NAN); }
static treadle_status give_inf(treadle_batch **answers_p) { return set_logprob(*answers_p, 3, -INFINITY); }
static treadle_status give_likelier(treadle_batch **answers_p) { return set_logprob(*answers_p, 2, 0.5F); }

static treadle_status give_no_id(treadle_batch **answers_p) {
  treadle_column ids = TREADLE_INIT(treadle_column);
  treadle_status status = treadle_batch_column(*answers_p, "ids", &ids);
  if (!status) ((int32_t *)ids.data)[ids.offsets[1]] = -1;
  return status;
}

static treadle_status abort_one(treadle_batch **answers_p) {
  static const char *const texts[ANSWERS] = {"stop", "length", "abort", "stop"};
  treadle_status status = treadle_batch_remove(*answers_p, "finish");
  return status ? status : treadle_batch_add_texts(*answers_p, "finish", texts, NULL);
}

static treadle_status odd_finish(treadle_batch **answers_p) {
  static const char *const texts[ANSWERS] = {"\x1b[2J", "length", "stop", "stop"};
  treadle_status status = treadle_batch_remove(*answers_p, "finish");
  return status ? status : treadle_batch_add_texts(*answers_p, "finish", texts, NULL);
}

static const struct {
  treadle_status (*spoil)(treadle_batch **answers_p);
  const char *words;
} cases[] = {
    {give_none, "the infer engine gives no answers (NULL)"},
    {lose_row, "the infer engine gives 3 answers: 2 to each of 2 prompts are wanted"},
    {add_row, "the infer engine gives 5 answers: 2 to each of 2 prompts are wanted"},
    {lose_rows, "the infer engine gives 0 answers"},
    {lose_ids, "the infer engine's answers have no column 'ids'"},
    {lose_logprobs, "the infer engine's answers have no column 'rollout_log_probs'"},
    {lose_finish, "the infer engine's answers have no column 'finish'"},
    {long_ids, "the infer engine's answers have a column 'ids' of ragged int64: ragged int32 is needed"},
    {one_id, "the infer engine's answers have a column 'ids' of int32: ragged int32 is needed"},
    {double_logprobs, "have a column 'rollout_log_probs' of ragged fp64: ragged fp32 is needed"},
    {bytes_of_finish,
     "the infer engine's answers have a column 'finish' of ragged bytes: ragged text is needed"},
    {fewer_logprobs, "row 2 of the infer engine's answers has 1 ids, and rollout_log_probs of 0"},
    {more_logprobs, "row 0 of the infer engine's answers has 1 ids, and rollout_log_probs of 2"},
    {give_nan, "row 1 of the infer engine's answers: rollout_log_probs[0] is nan"},
    {give_inf, "row 3 of the infer engine's answers: rollout_log_probs[0] is -inf"},
    {give_likelier, "row 2 of the infer engine's answers: rollout_log_probs[0] is 0.5; the logarithm"},
    {give_no_id, "row 1 of the infer engine's answers: ids[0] is -1"},
    {odd_finish, "row 0 of the infer engine's answers: finish is '\\x1b[2J': stop or length"},
    {abort_one, "row 2 of the infer engine's answers: finish is 'abort': stop or length"},
};

/* ---- Through the worker ---- */

typedef struct scene {
  treadle_model *model;
  treadle_layout *train, *infer;
} scene;

static treadle_status generate(treadle_actor *actor) {
  static const int32_t ids[] = {3, 1, 4};
  static const rows_row rows[PROMPTS] = {{ids, NULL, 3, 3}, {ids, NULL, 2, 2}};
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *prompts = NULL, *answers = NULL;
  treadle_column made = TREADLE_INIT(treadle_column);
  treadle_status status;
  sampling.n = N;
  TRY(rows_batch(rows, PROMPTS, &prompts));
  TRY(treadle_actor_generate_sequences(actor, prompts, &sampling, NULL, &answers));
  TRY(treadle_batch_column(answers, "ids", &made));
  for (int i = 0; i < ANSWERS; i++)
    if (((const int32_t *)made.data)[i] != (i < N ? 4 : 1))
      TRY(treadle_fail(TREADLE_DIFFERENT, "answer %d is to another prompt", i));
out:
  if (status && answers) status = treadle_fail(TREADLE_DIFFERENT, "there are answers after a failure");
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(answers);
  return status;
}

/* The last rank's answers alone are bad. */
static int answer(treadle_group *group, void *context) {
  const scene *s = context;
  const bool here = treadle_group_rank(group) == treadle_group_size(group) - 1;
  const treadle_trainer_options trainer = {
      .struct_size = sizeof trainer, .threads = 1, .most_rows = 32, .optimizer = true};
  toy engines = {0};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .page_bytes = 4096,
                                         .kv_bytes = 10 * TOY_BLOCK,
                                         .open_train = toy_open_train,
                                         .train_context = &engines,
                                         .open_infer = toy_open_infer,
                                         .infer_context = &engines};
  treadle_actor *actor;
  RANK_OK(treadle_actor_create(group, s->train, s->infer, &options, &actor));
  RANK_OK(treadle_actor_randomise(actor, 1));
  RANK_OK(generate(actor));
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    if (here) engines.spoil = cases[i].spoil;
    RANK_FAILS(TREADLE_REFUSED, cases[i].words, generate(actor));
    RANK_TRUE(engines.spoil == NULL);
    RANK_OK(generate(actor));
  }
  treadle_actor_destroy(actor);
  RANK_TRUE(engines.open == 0);
  return 0;
}

static void run(const char *train, const char *infer, int ranks) {
  scene s = {.model = tiny_open()};
  assert_ok(treadle_layout_create(s.model, train, ranks, NULL, &s.train));
  assert_ok(treadle_layout_create(s.model, infer, ranks, NULL, &s.infer));
  ranks_as_threads(ranks, 60, 0, answer, &s);
  treadle_layout_destroy(s.train);
  treadle_layout_destroy(s.infer);
  treadle_model_close(s.model);
}

static void test_one_rank(void **state) {
  (void)state;
  run("hf", "vllm:tp=1", 1);
}

/* Of one replica, and of two. */
static void test_two_ranks(void **state) {
  (void)state;
  run("megatron:tp=2,vocab_divisible_by=1", "vllm:tp=2", 2);
  run("megatron:tp=2,vocab_divisible_by=1", "vllm:tp=1", 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank), cmocka_unit_test(test_two_ranks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
