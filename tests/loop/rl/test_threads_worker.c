/* The methods of a worker (loop_worker.c) over toys, on two ranks: whichever allocation of whichever rank fails, the call fails on all ranks, and
 * the same call made again is as good as if nothing had been.
 * ctest: label=threads */
#include "control/tiny.h"
#include "control/toy.h"
#include "group/ranks.h"
#include "test.h"

#include "rl/loop.h"

enum { RANKS = 2, SAMPLES = 3, TOKENS = 4000, ATTEMPTS = 300 };

typedef struct scene {
  treadle_model *model;
  treadle_layout *train, *infer;
} scene;

static void open_scene(scene *s) {
  s->model = tiny_open();
  assert_ok(treadle_layout_create(s->model, "megatron:tp=2,vocab_divisible_by=1", RANKS, NULL, &s->train));
  assert_ok(treadle_layout_create(s->model, "vllm:tp=2", RANKS, NULL, &s->infer));
}

static void close_scene(scene *s) {
  treadle_layout_destroy(s->train);
  treadle_layout_destroy(s->infer);
  treadle_model_close(s->model);
}

/* ---- A rank ---- */

typedef struct rank {
  toy toy;
  treadle_rl rl;
  treadle_train_settings settings;
  treadle_rl_options options;
} rank;

/* Values that a text of nine digits, or of JSON, would not keep: a zero with a sign, the least of all, payloads. */
static float odd_value(size_t number) {
  static const uint32_t odd[] = {0x80000000, 0x00000001, 0x80000001, 0x7fc12345, 0xbf7fffff};
  const uint32_t bits = odd[number % TEST_COUNT(odd)];
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static treadle_status open_rank(const scene *s, treadle_group *group, rank *r) {
  const treadle_trainer_options trainer = {
      .struct_size = sizeof trainer, .threads = 1, .most_rows = 32, .optimizer = true};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .reference = s->train,
                                         .page_bytes = 4096,
                                         .kv_bytes = 10 * TOY_BLOCK,
                                         .open_train = toy_open_train,
                                         .train_context = &r->toy,
                                         .open_infer = toy_open_infer,
                                         .infer_context = &r->toy};
  treadle_status status;
  *r = (rank){
      .toy = {.rollout = odd_value},
      .settings = {.actor.micro_batch_size = 1, .sampling = {.temperature = 1, .top_p = 1, .top_k = -1}}};
  r->rl = (treadle_rl){.crew = {.group = group, .rank = treadle_group_rank(group), .ranks = RANKS},
                       .task = {.settings = &r->settings, .options = &r->options}};
  TRY(treadle_actor_create(group, s->train, s->infer, &options, &r->rl.actor));
  TRY(treadle_actor_randomise(r->rl.actor, 1));
  TRY(treadle_actor_load_reference(r->rl.actor));
  treadle_rl_open_workers(&r->rl.workers, group, &r->rl);
out:
  return status;
}

static void close_rank(rank *r) {
  treadle_actor_destroy(r->rl.actor);
  treadle_rl_workers_release(&r->rl.workers);
}

/* ---- Calls of rank 0, with samples whose tokens a message has no room for at first ---- */

static int32_t prompt_ids[] = {3, 1, 4};
static const treadle_rl_prompt prompt = {.ids = prompt_ids, .count = TEST_COUNT(prompt_ids)};
static const int64_t all_samples[SAMPLES] = {0, 1, 2};

typedef struct samples {
  treadle_rl_made made[SAMPLES];
  int32_t ids[SAMPLES * TOKENS];
  float rollout[SAMPLES * TOKENS], logprobs[SAMPLES * TOKENS], entropies[SAMPLES * TOKENS];
  double advantages[SAMPLES * TOKENS];
  treadle_batch *prompts;
  treadle_rl_batch batch;
} samples;

/* Each is its own number, after zeros. */
static treadle_status make_prompts(treadle_batch **prompts_p) {
  static const int64_t offsets[] = {0, TOKENS, 2 * TOKENS, 3 * TOKENS};
  const treadle_column ids = {
      .struct_size = sizeof ids, .name = "prompt_ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets};
  treadle_column made = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_create(SAMPLES, prompts_p));
  TRY(treadle_batch_add(*prompts_p, &ids));
  TRY(treadle_batch_column(*prompts_p, "prompt_ids", &made));
  for (int32_t i = 0; i < SAMPLES; i++) ((int32_t *)made.data)[offsets[i + 1] - 1] = i;
out:
  return status;
}

static treadle_status fill(samples *s) {
  treadle_status status;
  memset(s, 0, sizeof *s);
  TRY(make_prompts(&s->prompts));
  for (size_t i = 0; i < SAMPLES; i++)
    s->made[i] = (treadle_rl_made){.prompt = &prompt, .first = i * TOKENS, .count = TOKENS};
  s->batch.samples.items = s->made;
  s->batch.samples.count = SAMPLES;
  s->batch.ids.items = s->ids;
  s->batch.ids.count = TEST_COUNT(s->ids);
  for (size_t i = 0; i < TEST_COUNT(s->rollout); i++) s->rollout[i] = odd_value(i);
  s->batch.rollout.items = s->rollout;
  s->batch.advantages = s->advantages;
  TRY(treadle_rl_set_columns(&s->batch));
out:
  return status;
}

static void empty(samples *s) {
  treadle_batch_destroy(s->prompts);
  treadle_batch_destroy(s->batch.columns);
  treadle_free(s->batch.offsets);
}

static treadle_rl_rows rows_of(samples *s) {
  return (treadle_rl_rows){.batch = &s->batch, .samples = all_samples, .count = SAMPLES};
}

static treadle_status log_probs(treadle_rl_workers *w, samples *s) {
  const treadle_rl_rows rows = rows_of(s);
  return treadle_rl_call_logprobs(w, &rows, false, s->logprobs, s->entropies);
}

static treadle_status ref_log_probs(treadle_rl_workers *w, samples *s) {
  const treadle_rl_rows rows = rows_of(s);
  return treadle_rl_call_logprobs(w, &rows, true, s->logprobs, NULL);
}

static treadle_status update(treadle_rl_workers *w, samples *s) {
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  const treadle_rl_update u = {.rows = rows_of(s),
                               .step = {.struct_size = sizeof u.step, .lr = 1},
                               .logprobs = s->logprobs,
                               .entropies = s->entropies};
  return treadle_rl_call_update(w, &u, &figures);
}

/* More answers each time, so that memory is taken for them. */
static treadle_status generate(treadle_rl_workers *w, samples *s) {
  static int64_t n;
  n = n < 10000 ? n + 100 : n;
  const treadle_rl_sampling sampling = {.n = n, .temperature = 1, .top_p = 1};
  treadle_rl_answers answers = {0};
  int64_t number = 0;
  treadle_status status;
  TRY(treadle_rl_call_generate(w, NULL, s->prompts, &sampling, &answers));
  for (size_t p = 0; p < answers.count; p++) {
    treadle_column ids = TREADLE_INIT(treadle_column);
    const int64_t rows = treadle_batch_rows(answers.parts[p]);
    TRY(treadle_batch_column(answers.parts[p], "ids", &ids));
    if (ids.offsets[rows] - ids.offsets[0] != rows)
      TRY(treadle_fail(TREADLE_DIFFERENT, "%lld ids", (long long)(ids.offsets[rows] - ids.offsets[0])));
    for (int64_t i = 0; i < rows; i++, number++)
      if (((const int32_t *)ids.data)[ids.offsets[0] + i] != number / n)
        TRY(treadle_fail(TREADLE_DIFFERENT, "answer %lld is to another prompt", (long long)number));
  }
  if (number != SAMPLES * n) status = treadle_fail(TREADLE_DIFFERENT, "%lld answers", (long long)number);
out:
  treadle_rl_answers_release(&answers);
  return status;
}

static treadle_status digest(treadle_rl_workers *w, samples *s) {
  uint64_t value;
  (void)s;
  return treadle_rl_call_digest(w, &value);
}

static treadle_status gauges(treadle_rl_workers *w, samples *s) {
  treadle_rl_gauges value;
  (void)s;
  return treadle_rl_call_gauges(w, &value);
}

typedef treadle_status (*call_of)(treadle_rl_workers *w, samples *s);
static const struct {
  const char *name;
  call_of call;
} calls[] = {{"generate", generate},           {"update", update}, {"log_probs", log_probs},
             {"ref_log_probs", ref_log_probs}, {"digest", digest}, {"gauges", gauges}};

/* Messages have room from one call to the next: this one makes all ranks take it anew. */
static void forget_room(treadle_rl_workers *w) {
  treadle_message_release(&w->in);
  treadle_message_release(&w->out);
}

static int starve(treadle_rl_workers *w, samples *s, call_of call) {
  for (long n = 1; n <= ATTEMPTS; n++) {
    RANK_OK(call(w, s)); /* and so it is in the mode that it needs */
    forget_room(w);
    const long before = treadle_alloc_count();
    treadle_alloc_fail_at(n);
    const treadle_status status = call(w, s);
    const bool failed = treadle_alloc_count() - before >= n;
    treadle_alloc_fail_at(0);
    RANK_TRUE(status == (failed ? TREADLE_NO_MEMORY : TREADLE_OK));
    RANK_OK(call(w, s));
    if (!failed) return 0;
  }
  return 1;
}

static int lead(rank *r, samples *s) {
  for (size_t i = 0; i < TEST_COUNT(calls); i++)
    if (starve(&r->rl.workers, s, calls[i].call)) {
      fprintf(stderr, "of %s\n", calls[i].name);
      return 1;
    }
  RANK_OK(treadle_worker_group_end(&r->rl.workers.group, TREADLE_OK));
  return 0;
}

static int work(treadle_group *group, void *context) {
  samples *s = NULL;
  rank r;
  int result = 0;
  RANK_OK(open_rank(context, group, &r));
  if (r.rl.crew.rank == 0) {
    s = malloc(sizeof *s);
    RANK_TRUE(s != NULL);
    RANK_OK(fill(s));
    result = lead(&r, s);
    empty(s);
    if (result) treadle_group_fail(group); /* the others do not wait */
  } else {
    RANK_OK(treadle_worker_group_serve(&r.rl.workers.group));
  }
  close_rank(&r);
  free(s);
  return result;
}

static void test_no_memory(void **state) {
  scene s = {0};
  (void)state;
  open_scene(&s);
  ranks_as_threads(RANKS, 30, 0, work, &s);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
