/* A worker knows engines as tables alone: over toys (toy.h) it makes them in the order in which memory is counted rightly, calls what a mode needs
 * and no more, refuses a wrong order by both modes, and passes on what a function says that fails, after which nothing is lost.
 * ctest: label=threads */
#include "control/tiny.h"
#include "control/toy.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

enum { PAGE = 4096, KV_BLOCKS = 50, RANKS = 2 };

typedef struct scene {
  treadle_model *model;
  treadle_layout *train, *infer; /* train: of the reference, too */
  treadle_keep keep;
} scene;

static void open_scene(scene *s, int ranks) {
  *s = (scene){0};
  s->model = tiny_open();
  assert_ok(treadle_layout_create(s->model, ranks > 1 ? "megatron:tp=2,vocab_divisible_by=1" : "hf", ranks,
                                  NULL, &s->train));
  assert_ok(treadle_layout_create(s->model, ranks > 1 ? "vllm:tp=2" : "vllm:tp=1", ranks, NULL, &s->infer));
}

static void close_scene(scene *s) {
  treadle_layout_destroy(s->train);
  treadle_layout_destroy(s->infer);
  treadle_model_close(s->model);
}

/* ---- The worker of a rank ---- */

typedef struct worker {
  toy toy;
  treadle_actor *actor;
  bool kv_beside_train; /* the switch told of a KV cache and of state of training at once */
  size_t kv_most;
} worker;

static void see(void *context, const size_t *bytes, int classes) {
  worker *w = context;
  (void)classes;
  if (!bytes[TREADLE_KV]) return;
  w->kv_most = bytes[TREADLE_KV];
  if (bytes[TREADLE_PARAMS] || bytes[TREADLE_GRADS] || bytes[TREADLE_OPTIMIZER] ||
      bytes[TREADLE_TRAIN_WORK])
    w->kv_beside_train = true;
}

static treadle_status make(const scene *s, treadle_group *group, worker *w) {
  const treadle_trainer_options trainer = {
      .struct_size = sizeof trainer, .threads = 1, .most_rows = 32, .optimizer = true};
  const treadle_observer books = {.struct_size = sizeof books, .context = w, .memory = see};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .reference = s->train,
                                         .keep = s->keep,
                                         .page_bytes = PAGE,
                                         .kv_bytes = KV_BLOCKS * TOY_BLOCK,
                                         .open_train = toy_open_train,
                                         .train_context = &w->toy,
                                         .open_infer = toy_open_infer,
                                         .infer_context = &w->toy,
                                         .observer = &books};
  return treadle_actor_create(group, s->train, s->infer, &options, &w->actor);
}

/* ---- Calls, of which it matters which functions they lead to ---- */

static const int32_t ids[] = {3, 1, 4, 1, 5};
static const uint8_t mask[] = {0, 0, 1, 1, 1};
static const rows_row row = {ids, mask, TEST_COUNT(ids), 2};
static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};

/* The log-probability of its answer to the prompt. */
static treadle_status generate(treadle_actor *actor, float *logprob_p) {
  treadle_batch *prompts = NULL, *answers = NULL;
  treadle_column logprobs = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(rows_batch(&row, 1, &prompts));
  TRY(treadle_actor_generate_sequences(actor, prompts, NULL, NULL, &answers));
  TRY(treadle_batch_column(answers, "rollout_log_probs", &logprobs));
  *logprob_p = *(const float *)logprobs.data;
out:
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(answers);
  return status;
}

static treadle_status compute(treadle_actor *actor, bool reference, float *sum_p) {
  treadle_batch *batch = NULL, *out = NULL;
  float logprobs[TEST_COUNT(ids)] = {0};
  treadle_status status;
  TRY(rows_batch(&row, 1, &batch));
  TRY(rows_out(batch, &out));
  TRY(reference ? treadle_actor_compute_ref_log_prob(actor, batch, &forward, out)
                : treadle_actor_compute_log_prob(actor, batch, &forward, out));
  (void)rows_counted(batch, out, "log_probs", logprobs);
  *sum_p = logprobs[0];
out:
  treadle_batch_destroy(batch);
  treadle_batch_destroy(out);
  return status;
}

static treadle_status log_prob(treadle_actor *actor, float *sum_p) { return compute(actor, false, sum_p); }

static treadle_status ref_log_prob(treadle_actor *actor, float *sum_p) {
  return compute(actor, true, sum_p);
}

/* Of this rank's rows: all of them. */
static treadle_status update(treadle_actor *actor) {
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_row_range range;
  treadle_batch *batch = NULL, *mine = NULL;
  treadle_status status;
  TRY(rows_batch(&row, 1, &batch));
  TRY(treadle_actor_slice(actor, batch, &forward, &range, &mine));
  if (range.first != 0 || range.end != 1)
    TRY(treadle_fail(TREADLE_DIFFERENT, "rows %lld to %lld", (long long)range.first, (long long)range.end));
  TRY(treadle_actor_update(actor, mine, &forward, &nll, &step, NULL, &figures));
out:
  treadle_batch_destroy(batch);
  treadle_batch_destroy(mine);
  return status;
}

/* The call is good, and these functions were called since the last look. */
#define LEADS_TO(wanted, call)                                                                             \
  do {                                                                                                     \
    RANK_OK(call);                                                                                         \
    if (were_others(&w.toy, wanted, #call, __LINE__)) return 1;                                            \
  } while (0)
/* The call is refused with the words, and leads to no function. */
#define LEADS_TO_STATE(words, call)                                                                        \
  do {                                                                                                     \
    RANK_FAILS(TREADLE_STATE, words, call);                                                                \
    if (were_others(&w.toy, "", #call, __LINE__)) return 1;                                                \
  } while (0)

static bool were_others(toy *t, const char *wanted, const char *call, int line) {
  bool same = strcmp(t->calls, wanted) == 0;
  if (!same) fprintf(stderr, "%s:%d: %s\n  wanted%s\n  got   %s\n", __FILE__, line, call, wanted, t->calls);
  t->calls[0] = 0;
  return !same;
}

/* ---- Order, laziness ---- */

static int go_round(treadle_group *group, void *context) {
  const scene *s = context;
  worker w = {0};
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  uint64_t digest;
  float generated, logprob, reference;
  LEADS_TO(" open_infer hooks attach open_train", make(s, group, &w));
  LEADS_TO_STATE("generate_sequences: the worker has no weights", generate(w.actor, &generated));
  LEADS_TO_STATE("the worker has no weights", treadle_actor_enter(w.actor, TREADLE_INFER));
  LEADS_TO_STATE("its weights were not loaded", (treadle_actor_randomise(w.actor, 1), w.toy.calls[0] = 0,
                                                 ref_log_prob(w.actor, &reference)));

  LEADS_TO(" load", treadle_actor_load(w.actor));
  LEADS_TO("", treadle_actor_load_reference(w.actor));
  LEADS_TO(" weights_digest", treadle_actor_weights_digest(w.actor, &digest));
  LEADS_TO(" logprobs", log_prob(w.actor, &logprob)); /* where it is */
  RANK_TRUE(logprob == toy_logprob(digest));

  LEADS_TO(" bind generate", generate(w.actor, &generated));
  RANK_TRUE(treadle_group_size(group) > 1 || generated == toy_logprob(digest));
  LEADS_TO(" generate", generate(w.actor, &generated));
  RANK_TRUE(!w.toy.train_was_there && !w.kv_beside_train && w.kv_most >= KV_BLOCKS * TOY_BLOCK);
  RANK_OK(treadle_actor_get_info(w.actor, &info));
  RANK_TRUE(info.mode == TREADLE_INFER && info.version == 1 && info.kv_blocks >= KV_BLOCKS);

  LEADS_TO(" unbind rebind logprobs", log_prob(w.actor, &logprob));
  LEADS_TO(" logprobs", log_prob(w.actor, &logprob));
  RANK_TRUE(logprob == toy_logprob(digest));
  LEADS_TO(" logprobs(reference)", ref_log_prob(w.actor, &reference));
  RANK_TRUE(reference == logprob);
  LEADS_TO(" rebind update", update(w.actor));
  LEADS_TO(" update", update(w.actor));
  LEADS_TO(" logprobs", log_prob(w.actor, &logprob));
  RANK_TRUE(logprob == toy_logprob(w.toy.sum) && w.toy.sum != digest);
  LEADS_TO(" save", treadle_actor_save(w.actor, "here"));
  RANK_TRUE(strcmp(w.toy.saved, "here") == 0);
  LEADS_TO(" bind unbind rebind logprobs(reference)",
           ref_log_prob(w.actor, &reference)); /* by way of INFER */
  RANK_TRUE(reference == toy_logprob(digest));
  LEADS_TO(" bind generate", generate(w.actor, &generated)); /* by way of TRAIN */
  LEADS_TO(" unbind rebind resume", treadle_actor_resume(w.actor, "there"));
  LEADS_TO(" bind generate", generate(w.actor, &generated));
  RANK_TRUE(!w.toy.train_was_there && !w.kv_beside_train);
  treadle_actor_destroy(w.actor);
  RANK_TRUE(w.toy.open == 0 && w.toy.sw == NULL);
  return 0;
}

/* Between enter and exit. */
static int stay(treadle_group *group, void *context) {
  const scene *s = context;
  worker w = {0};
  float generated, logprob;
  RANK_OK(make(s, group, &w));
  RANK_OK(treadle_actor_randomise(w.actor, 2));
  RANK_OK(treadle_actor_load_reference(w.actor));
  w.toy.calls[0] = 0;
  LEADS_TO_STATE(
      "to exit train mode, the worker must have entered it: it stays in none, and is in train mode",
      treadle_actor_exit(w.actor, TREADLE_TRAIN));
  LEADS_TO(" bind", treadle_actor_enter(w.actor, TREADLE_INFER));
  LEADS_TO("", treadle_actor_enter(w.actor, TREADLE_INFER));
  LEADS_TO(" generate", generate(w.actor, &generated));
  LEADS_TO_STATE("to enter train mode, the worker must first exit infer mode",
                 treadle_actor_enter(w.actor, TREADLE_TRAIN));
  LEADS_TO_STATE("to exit forward mode, the worker must have entered it: it stays in infer mode",
                 treadle_actor_exit(w.actor, TREADLE_FORWARD));
  LEADS_TO_STATE("compute_log_prob needs forward mode, and the worker stays in infer mode",
                 log_prob(w.actor, &logprob));
  LEADS_TO_STATE("update needs train mode, and the worker stays in infer mode", update(w.actor));
  LEADS_TO_STATE("save needs train mode, and the worker stays in infer mode",
                 treadle_actor_save(w.actor, "nowhere"));
  LEADS_TO("", treadle_actor_exit(w.actor, TREADLE_INFER));
  LEADS_TO_STATE("it stays in none, and is in infer mode", treadle_actor_exit(w.actor, TREADLE_INFER));

  LEADS_TO(" unbind rebind", treadle_actor_enter(w.actor, TREADLE_FORWARD));
  LEADS_TO("", treadle_actor_enter(w.actor, TREADLE_FORWARD));
  LEADS_TO(" logprobs", log_prob(w.actor, &logprob));
  LEADS_TO_STATE("generate_sequences needs infer mode, and the worker stays in forward mode",
                 generate(w.actor, &generated));
  LEADS_TO("", treadle_actor_exit(w.actor, TREADLE_FORWARD));
  LEADS_TO(" rebind", treadle_actor_enter(w.actor, TREADLE_TRAIN));
  LEADS_TO("", treadle_actor_enter(w.actor, TREADLE_TRAIN));
  LEADS_TO(" logprobs", log_prob(w.actor, &logprob));
  LEADS_TO_STATE("compute_ref_log_prob needs forward mode, and the worker stays in train mode",
                 ref_log_prob(w.actor, &logprob));
  LEADS_TO(" update", update(w.actor));
  LEADS_TO("", treadle_actor_exit(w.actor, TREADLE_TRAIN));
  RANK_FAILS(TREADLE_REFUSED, "host mode is not one to enter: train, forward and infer are",
             treadle_actor_enter(w.actor, TREADLE_HOST));
  treadle_actor_destroy(w.actor);
  return 0;
}

/* ---- Memory ---- */

/* The n-th allocation of all ranks fails while they make their workers, for each n: no worker is made on any rank, and the group goes on. */
static int starve(treadle_group *group, void *context) {
  const scene *s = context;
  bool last = false;
  for (long n = 1; !last; n += n < 40 ? 1 : n / 8) {
    worker w = {0};
    int made[RANKS] = {0}, mine;
    RANK_OK(treadle_group_barrier(group));
    const long before = treadle_alloc_count();
    RANK_OK(treadle_group_barrier(group));
    if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(n);
    RANK_OK(treadle_group_barrier(group));
    const treadle_status status = make(s, group, &w);
    RANK_OK(treadle_group_barrier(group));
    last = treadle_alloc_count() - before < n;
    RANK_OK(treadle_group_barrier(group));
    if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(0);
    mine = w.actor != NULL;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, made));
    for (int rank = 0; rank < treadle_group_size(group); rank++) RANK_TRUE(made[rank] == mine);
    RANK_TRUE(mine == (status == TREADLE_OK) && (mine || !last));
    treadle_actor_destroy(w.actor);
  }
  return 0;
}

/* ---- Functions that fail ---- */

static treadle_status call_generate(treadle_actor *actor) {
  float generated;
  return generate(actor, &generated);
}

static treadle_status call_log_prob(treadle_actor *actor) {
  float sum;
  return log_prob(actor, &sum);
}

static treadle_status call_ref_log_prob(treadle_actor *actor) {
  float sum;
  return ref_log_prob(actor, &sum);
}

static treadle_status call_save(treadle_actor *actor) { return treadle_actor_save(actor, "here"); }

static treadle_status call_digest(treadle_actor *actor) {
  uint64_t digest;
  return treadle_actor_weights_digest(actor, &digest);
}

/* A function that fails, the call that leads to it, and the one before it. */
static const struct failure {
  const char *function;
  treadle_status (*before)(treadle_actor *actor);
  treadle_status (*call)(treadle_actor *actor);
} failures[] = {
    {"bind", update, call_generate},
    {"generate", update, call_generate},
    {"unbind", call_generate, call_log_prob},
    {"unbind", call_generate, update},
    {"rebind", call_generate, call_log_prob},
    {"rebind", call_generate, update},
    {"rebind", call_ref_log_prob, update},
    {"rebind", call_generate, call_ref_log_prob},
    {"logprobs", call_generate, call_log_prob},
    {"logprobs", update, call_log_prob},
    {"logprobs(reference)", call_generate, call_ref_log_prob},
    {"update", call_generate, update},
    {"save", call_generate, call_save},
    {"weights_digest", call_generate, call_digest},
};

static int fail_at(treadle_group *group, worker *w, const struct failure *f) {
  const bool here = treadle_group_rank(group) == treadle_group_size(group) - 1;
  char words[64];
  RANK_OK(f->before(w->actor));
  if (here) w->toy.fails = f->function;
  snprintf(words, sizeof words, "the toy's %s does not want to", f->function);
  RANK_FAILS(TREADLE_SYSTEM, words, f->call(w->actor));
  RANK_TRUE(w->toy.fails == NULL);
  return 0;
}

/* The last rank's function alone fails. All ranks hear of it; what comes then, the same call or another one, is as if nothing had been, and the
 * toys find all that they had. */
static int fail_once(treadle_group *group, void *context) {
  const scene *s = context;
  worker w = {0};
  float generated;
  RANK_OK(make(s, group, &w));
  RANK_OK(treadle_actor_randomise(w.actor, 3));
  RANK_OK(treadle_actor_load_reference(w.actor));
  for (size_t i = 0; i < TEST_COUNT(failures); i++)
    for (int way = 0; way < 3; way++) {
      if (fail_at(group, &w, &failures[i])) {
        fprintf(stderr, "of %s, way %d\n", failures[i].function, way);
        return 1;
      }
      if (way == 1) RANK_OK(generate(w.actor, &generated));
      if (way == 2) RANK_OK(log_prob(w.actor, &(float){0}));
      RANK_OK(failures[i].call(w.actor));
      RANK_OK(call_digest(w.actor));
      RANK_OK(generate(w.actor, &generated));
      RANK_TRUE(treadle_group_size(group) > 1 || generated == toy_logprob(w.toy.sum));
      RANK_OK(update(w.actor));
    }
  treadle_actor_destroy(w.actor);
  RANK_TRUE(w.toy.open == 0);
  return 0;
}

/* Weights that could not be read are none, until they could. */
static int fail_to_load(treadle_group *group, void *context) {
  const scene *s = context;
  const bool here = treadle_group_rank(group) == treadle_group_size(group) - 1;
  static const char *const names[] = {"load", "randomise", "resume"};
  worker w = {0};
  float generated;
  RANK_OK(make(s, group, &w));
  for (int i = 0; i < 3; i++) {
    if (here) w.toy.fails = names[i];
    treadle_status status = i == 0   ? treadle_actor_load(w.actor)
                            : i == 1 ? treadle_actor_randomise(w.actor, 4)
                                     : treadle_actor_resume(w.actor, "there");
    RANK_FAILS(TREADLE_SYSTEM, "does not want to", status);
    RANK_FAILS(TREADLE_STATE, "the worker has no weights", generate(w.actor, &generated));
    RANK_FAILS(TREADLE_STATE, "the worker has no weights", update(w.actor));
    RANK_OK(treadle_actor_load(w.actor));
    RANK_OK(generate(w.actor, &generated));
  }
  treadle_actor_destroy(w.actor);
  return 0;
}

/* A worker that cannot be made: what was open is closed. */
static int fail_to_open(treadle_group *group, void *context) {
  const scene *s = context;
  const bool here = treadle_group_rank(group) == treadle_group_size(group) - 1;
  static const struct {
    const char *fails, *lacks, *words;
    treadle_status status;
  } cases[] = {{"open_infer", NULL, "the toy's open_infer does not want to", TREADLE_SYSTEM},
               {"hooks", NULL, "the toy's hooks does not want to", TREADLE_SYSTEM},
               {"open_train", NULL, "the toy's open_train does not want to", TREADLE_SYSTEM},
               {NULL, "generate", "the infer engine's table lacks generate", TREADLE_REFUSED},
               {NULL, "update", "the train engine's table lacks update", TREADLE_REFUSED}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    worker w = {.toy.fails = here ? cases[i].fails : NULL, .toy.lacks = here ? cases[i].lacks : NULL};
    RANK_FAILS(cases[i].status, cases[i].words, make(s, group, &w));
    RANK_TRUE(w.actor == NULL && w.toy.open == 0 && w.toy.sw == NULL);
  }
  return 0;
}

/* ---- On one rank and on two, with both ways to keep the weights ---- */

static void run(ranks_body body) {
  for (int ranks = 1; ranks <= RANKS; ranks++)
    for (int keep = TREADLE_KEEP_INFER; keep <= TREADLE_KEEP_HOST; keep++) {
      scene s;
      open_scene(&s, ranks);
      s.keep = (treadle_keep)keep;
      ranks_as_threads(ranks, 60, 0, body, &s);
      close_scene(&s);
    }
}

static void test_order(void **state) {
  (void)state;
  run(go_round);
}

static void test_stay(void **state) {
  (void)state;
  run(stay);
}

static void test_failures(void **state) {
  (void)state;
  run(fail_once);
  run(fail_to_load);
  run(fail_to_open);
}

static void test_no_memory(void **state) {
  (void)state;
  run(starve);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_stay),
                                     cmocka_unit_test(test_failures), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
