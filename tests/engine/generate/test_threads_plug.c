/* The engine as that of a switch, over threads: weights that went through a layout for training give the same bits, with alias and
 * without, however params are kept; calls go on after arrows that were taken meanwhile, in their observer or in another thread; work
 * memory is a class of the switch; failures reach all ranks. */
/* ctest: stage=gcc label=threads timeout=600 */
#include "generate/generator.h"
#include "generate/prompts.h"
#include "group/ranks.h"
#include "memory/device_far.h"
#include "switch/switch.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, RANKS = 8, KV_BYTES = 1 << 20 };

static const char lines[] =
    "{\"prompt_token_ids\": [1, 5, 9, 20, 33], \"max_tokens\": 12, \"n\": 2, \"ignore_eos\": true}\n"
    "{\"prompt_token_ids\": [7, 7, 100], \"max_tokens\": 9, \"temperature\": 0.7, \"top_p\": 0.9,"
    " \"ignore_eos\": true}\n"
    "{\"prompt_token_ids\": [1, 5, 9, 20, 34], \"max_tokens\": 15, \"ignore_eos\": true}\n";
static const char texts[] =
    "{\"token_ids\": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]}\n"
    "{\"token_ids\": [11, 12]}\n"
    "{\"token_ids\": [5, 4, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}\n";

static const treadle_generator_options engine_options = {
    .struct_size = sizeof engine_options, .threads = 1, .kv_bytes = KV_BYTES, .prefill_chunk = 8};

typedef struct digests {
  uint64_t generated, scored;
} digests;

typedef struct act {
  const char *folder, *train, *infer;
  treadle_model *model;
  treadle_layout *layouts[2]; /* train, infer */
  treadle_switch_options options;
  bool other_engine; /* made for another layout than the switch's */
  int failing;       /* the rank whose bind fails once; -1: none */
  treadle_group **seconds;
  digests wanted;
} act;

/* ---- One rank ---- */

static digests alone(const treadle_model *model) {
  treadle_layout *layout;
  treadle_generator *engine;
  void *window;
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3};
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  assert_ok(treadle_layout_create(model, "vllm:tp=1", 1, NULL, &layout));
  assert_ok(treadle_generator_create(NULL, layout, &engine_options, &engine));
  size_t bytes = treadle_layout_window_bytes(layout, 0);
  assert_int_equal(posix_memalign(&window, 64, bytes), 0);
  assert_ok(treadle_layout_load(layout, 0, window));
  assert_ok(treadle_generator_bind(engine, window, bytes));
  assert_ok(treadle_generator_generate_lines(engine, lines, sizeof lines - 1, &generate, &generated));
  assert_ok(treadle_generator_score_lines(engine, texts, sizeof texts - 1, NULL, &scored));
  treadle_generator_destroy(engine);
  treadle_layout_destroy(layout);
  free(window);
  return (digests){generated.digest, scored.digest};
}

/* What a rank has. */
typedef struct machine {
  treadle_generator *engine;
  treadle_engine_hooks hooks;
  treadle_switch *sw;
  size_t most[TREADLE_CLASSES], most_sum; /* as the switch's watcher saw them */
  bool fails;                             /* the next bind */
  treadle_engine_hooks wrapped;
} machine;

static void see(void *context, const size_t *bytes, int classes) {
  machine *m = context;
  size_t sum = 0;
  for (int c = 0; c < classes; c++) {
    if (bytes[c] > m->most[c]) m->most[c] = bytes[c];
    sum += bytes[c];
  }
  if (sum > m->most_sum) m->most_sum = sum;
}

static treadle_status bind(void *context, void *window, size_t bytes) {
  machine *m = context;
  bool fails = m->fails;
  m->fails = false;
  return fails ? treadle_fail(TREADLE_REFUSED, "not today")
               : m->wrapped.bind(m->wrapped.context, window, bytes);
}

static treadle_status unbind(void *context) {
  machine *m = context;
  return m->wrapped.unbind(m->wrapped.context);
}

static void attach(void *context, const treadle_switch *sw) {
  machine *m = context;
  m->wrapped.attach(m->wrapped.context, sw);
}

static treadle_status make_engine(treadle_group *group, const act *a, machine *m) {
  treadle_status status;
  *m = (machine){.hooks = TREADLE_INIT(treadle_engine_hooks)};
  TRY(treadle_generator_create(group, a->layouts[a->other_engine ? 0 : 1], &engine_options, &m->engine));
  TRY(treadle_generator_hooks_of(m->engine, &m->hooks));
  m->wrapped = m->hooks;
  m->hooks.context = m;
  m->hooks.bind = bind;
  m->hooks.unbind = unbind;
  m->hooks.attach = attach;
out:
  return status;
}

/* The engine's group, and that of the switch, which may be the same. */
static treadle_status make(treadle_group *group, treadle_group *other, const act *a, machine *m) {
  treadle_switch_options options = a->options;
  treadle_status status;
  TRY(make_engine(group, a, m));
  options.engine = &m->hooks;
  options.watch = see;
  options.watch_context = m;
  TRY(treadle_switch_create(other, a->layouts[0], a->layouts[1], &options, &m->sw));
  TRY(treadle_layout_load(a->layouts[0], treadle_group_rank(group), treadle_switch_train_window(m->sw)));
out:
  return status;
}

static void end(machine *m) {
  treadle_switch_destroy(m->sw);
  treadle_generator_destroy(m->engine);
}

static void act_init(act *a, const char *folder, const char *train, const char *infer, int ranks) {
  char path[512];
  *a = (act){.folder = folder, .train = train, .infer = infer, .failing = -1};
  snprintf(path, sizeof path, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, folder);
  assert_ok(treadle_model_open(path, NULL, &a->model));
  assert_ok(treadle_layout_create(a->model, train, ranks, NULL, &a->layouts[0]));
  assert_ok(treadle_layout_create(a->model, infer, ranks, NULL, &a->layouts[1]));
  a->options = (treadle_switch_options){.struct_size = sizeof a->options,
                                        .page_bytes = PAGE,
                                        .timeout_seconds = 60,
                                        .alias = true,
                                        .kv_bytes = KV_BYTES};
  a->wanted = alone(a->model);
}

static void act_release(act *a) {
  treadle_layout_destroy(a->layouts[0]);
  treadle_layout_destroy(a->layouts[1]);
  treadle_model_close(a->model);
}

/* ---- Bits ---- */

static int check_bits(const act *a, machine *m) {
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3};
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  RANK_OK(treadle_generator_generate_lines(m->engine, lines, sizeof lines - 1, &generate, &generated));
  RANK_TRUE(generated.digest == a->wanted.generated && generated.kv_blocks_leaked == 0);
  RANK_OK(treadle_generator_score_lines(m->engine, texts, sizeof texts - 1, NULL, &scored));
  RANK_TRUE(scored.digest == a->wanted.scored);
  return 0;
}

static int check_memory(machine *m) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  size_t work, kv;
  char *at = treadle_switch_window(m->sw, TREADLE_WORK, &work);
  (void)treadle_switch_window(m->sw, TREADLE_KV, &kv);
  RANK_OK(treadle_generator_get_info(m->engine, &info));
  bool infer = treadle_switch_mode(m->sw) == TREADLE_INFER;
  RANK_TRUE(at && work == info.work_bytes + info.packed_bytes && m->hooks.work_bytes == work);
  RANK_TRUE(treadle_switch_resident(m->sw, TREADLE_WORK) == (infer ? (work + PAGE - 1) / PAGE * PAGE : 0));
  RANK_TRUE(kv >= KV_BYTES / info.kv_block_bytes * info.kv_block_bytes && kv % info.kv_block_bytes == 0);
  RANK_TRUE(!infer || (info.kv_blocks > 0 && (size_t)info.kv_blocks * info.kv_block_bytes <= kv));
  RANK_TRUE(info.version == treadle_switch_version(m->sw));
  RANK_TRUE(m->most_sum <= treadle_switch_pool_bound(m->sw));
  return 0;
}

static int go_round(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  RANK_OK(make(group, group, a, &m));
  RANK_FAILS(TREADLE_STATE, "no weights", treadle_generator_score(m.engine, NULL, 0, NULL));
  RANK_FAILS(TREADLE_STATE, "belongs to a switch", treadle_generator_bind(m.engine, &m, 1));
  RANK_FAILS(TREADLE_STATE, "belongs to a switch", treadle_generator_unbind(m.engine));
  for (int cycle = 0; cycle < 2; cycle++) {
    RANK_OK(treadle_switch_to_infer(m.sw));
    if (check_bits(a, &m) || check_memory(&m)) return 1;
    RANK_OK(treadle_switch_to_train(m.sw));
    if (cycle == 0 && check_memory(&m)) return 1;
  }
  RANK_TRUE(m.most[TREADLE_WORK] > 0 && m.most[TREADLE_KV] > 0);
  end(&m);
  return 0;
}

typedef struct pair {
  const char *folder, *train, *infer;
  int ranks;
} pair;

static const pair pairs[] = {
    {"llama-gqa-llama3rope", "megatron:tp=2,pp=2", "vllm:tp=4", 4},
    {"qwen2-tied", "megatron:tp=2,pp=2", "vllm:tp=2", 4},
    {"qwen2-tied", "fsdp:dp=2", "sglang:tp=2", 2},
    {"qwen2moe", "megatron:tp=2,ep=2,etp=1", "vllm:tp=2,ep=on", 2},
    {"qwen2moe", "megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on", 4}, /* groups */
    {"dsv3-yarn", "megatron:tp=2,pp=2", "vllm:tp=4", 4},
    {"llama-gqa-llama3rope", "hf", "vllm:tp=1", 1},
};

/* Each pair in each way of keeping params. With tp=2 and 4 KiB pages much is aliased. */
static void test_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(pairs); i++)
    for (int how = 0; how < 5; how++) {
      act a;
      act_init(&a, pairs[i].folder, pairs[i].train, pairs[i].infer, pairs[i].ranks);
      a.options.alias = how != 1;
      a.options.keep = how == 2 ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
      a.options.offload_train_param = how == 3 ? TREADLE_OFF : TREADLE_DEFAULT;
      a.options.guard_pages = how == 4;
      ranks_as_threads(pairs[i].ranks, 60, 0, go_round, &a);
      act_release(&a);
    }
}

/* Alias moves storage tensors, or this tests nothing. */
static int is_moved(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  int64_t moved = 0, all;
  int64_t each[RANKS];
  RANK_OK(make(group, group, a, &m));
  for (int32_t i = 0; i < treadle_layout_storage_count(a->layouts[1], treadle_group_rank(group)); i++) {
    treadle_storage_info here = TREADLE_INIT(treadle_storage_info), plain = here;
    RANK_OK(treadle_plan_storage(treadle_switch_plan(m.sw), i, &here));
    RANK_OK(treadle_layout_storage(a->layouts[1], treadle_group_rank(group), i, &plain));
    moved += here.offset_bytes != plain.offset_bytes;
  }
  RANK_OK(treadle_group_gather(group, &moved, sizeof moved, each));
  all = 0;
  for (int i = 0; i < treadle_group_size(group); i++) all += each[i];
  RANK_TRUE(all > 0);
  end(&m);
  return 0;
}

static void test_alias_moves(void **state) {
  (void)state;
  act a;
  act_init(&a, "qwen2-tied", "megatron:tp=2,pp=2", "vllm:tp=2", 4);
  ranks_as_threads(4, 60, 0, is_moved, &a);
  act_release(&a);
}

/* ---- Arrows while a call runs ---- */

typedef struct visit { /* of an observer */
  machine *m;
  int calls, every, arrows;
  treadle_status status;
} visit;

/* Each time after this many steps, training and back: on all ranks after the same step. */
static bool train_between(void *context) {
  visit *v = context;
  if (++v->calls % v->every != 0) return false;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  v->arrows++;
  v->status = treadle_switch_to_train(v->m->sw);
  if (!v->status) v->status = treadle_generator_get_info(v->m->engine, &info);
  if (!v->status && info.kv_blocks_used) v->status = treadle_fail(TREADLE_DIFFERENT, "blocks are in use");
  if (!v->status) v->status = treadle_switch_to_infer(v->m->sw);
  treadle_switch_get_stats(v->m->sw, &stats);
  return v->status != TREADLE_OK;
}

static int interrupt(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  visit v = {.m = &m, .every = 3};
  const treadle_observer observer = {.struct_size = sizeof observer, .context = &v, .stop = train_between};
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3, .observer = &observer};
  treadle_score_lines_options score = {.struct_size = sizeof score, .observer = &observer};
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  RANK_OK(make(group, group, a, &m));
  RANK_OK(treadle_switch_to_infer(m.sw));
  RANK_OK(treadle_generator_generate_lines(m.engine, lines, sizeof lines - 1, &generate, &generated));
  RANK_OK(v.status);
  RANK_TRUE(v.arrows > 3 && treadle_switch_version(m.sw) == (uint64_t)v.arrows + 1);
  RANK_TRUE(generated.digest == a->wanted.generated && generated.kv_blocks_leaked == 0);
  v.calls = v.arrows = 0;
  v.every = 3; /* the longest text takes three steps: it must come to its end */
  RANK_OK(treadle_generator_score_lines(m.engine, texts, sizeof texts - 1, &score, &scored));
  RANK_OK(v.status);
  RANK_TRUE(v.arrows > 0 && scored.digest == a->wanted.scored);
  end(&m);
  return 0;
}

static void test_arrows_in_an_observer(void **state) {
  (void)state;
  for (size_t i = 0; i < 6; i++) {
    act a;
    if (i == 1) continue; /* replicas do not step together */
    act_init(&a, pairs[i].folder, pairs[i].train, pairs[i].infer, pairs[i].ranks);
    a.options.keep = i % 2 ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
    ranks_as_threads(pairs[i].ranks, 60, 0, interrupt, &a);
    act_release(&a);
  }
}

/* Who takes arrows in a thread of its own. */
typedef struct arrows {
  treadle_switch *sw;
  int count;
  treadle_status status;
  char message[512];
} arrows;

static void *take_arrows(void *context) {
  arrows *r = context;
  for (int i = 0; i < r->count && !r->status; i++) {
    r->status = treadle_switch_to_train(r->sw);
    if (!r->status) r->status = treadle_switch_to_infer(r->sw);
  }
  snprintf(r->message, sizeof r->message, "%s", treadle_error_message());
  return NULL;
}

static int interrupt_beside(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  treadle_generate_options generate = {.struct_size = sizeof generate, .seed = 3};
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  pthread_t thread;
  RANK_OK(make(group, a->seconds[treadle_group_rank(group)], a, &m));
  RANK_OK(treadle_switch_to_infer(m.sw));
  arrows beside = {.sw = m.sw, .count = 12};
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = TREADLE_OK;
  if (pthread_create(&thread, NULL, take_arrows, &beside)) return 1;
  for (int done = 0;
       done < 3 && !status;) { /* a call that begins without weights is refused on all ranks */
    status = treadle_generator_generate_lines(m.engine, lines, sizeof lines - 1, &generate, &generated);
    bool begun = status == TREADLE_OK || !strstr(treadle_error_message(), "no weights");
    done += begun;
    if (!begun) status = TREADLE_OK;
  }
  (void)pthread_join(thread, NULL);
  if (beside.status) fprintf(stderr, "arrows: %s\n", beside.message);
  RANK_OK(status);
  RANK_TRUE(beside.status == TREADLE_OK && generated.digest == a->wanted.generated);
  RANK_OK(treadle_generator_score_lines(m.engine, texts, sizeof texts - 1, NULL, &scored));
  RANK_TRUE(scored.digest == a->wanted.scored && generated.kv_blocks_leaked == 0);
  end(&m);
  return 0;
}

/* The same for a batch, of which only the first group has rows: the others wait as long as it goes on. */
static int interrupt_batch(treadle_group *group, void *context) {
  const act *a = context;
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_random random = {1};
  pthread_t thread;
  machine m;
  sampling.max_tokens = 20;
  RANK_OK(make(group, a->seconds[treadle_group_rank(group)], a, &m));
  treadle_batch *own = prompts_draw(&random, m.engine->replica.place.number == 0 ? 4 : 0, true), *out = NULL,
                *before;
  RANK_OK(treadle_switch_to_infer(m.sw));
  RANK_OK(treadle_generator_generate(m.engine, own, &sampling, NULL, &before));
  arrows beside = {.sw = m.sw, .count = 12};
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = TREADLE_OK;
  if (pthread_create(&thread, NULL, take_arrows, &beside)) return 1;
  for (int done = 0; done < 3 && !status;) {
    treadle_batch_destroy(out);
    status = treadle_generator_generate(m.engine, own, &sampling, NULL, &out);
    bool begun = status == TREADLE_OK || !strstr(treadle_error_message(), "no weights");
    done += begun;
    if (!begun) status = TREADLE_OK;
  }
  (void)pthread_join(thread, NULL);
  RANK_OK(status);
  RANK_TRUE(beside.status == TREADLE_OK && !prompts_differ(out, before, 0));
  treadle_batch_destroy(own);
  treadle_batch_destroy(out);
  treadle_batch_destroy(before);
  end(&m);
  return 0;
}

static void test_arrows_beside(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(pairs); i++) {
    act a;
    treadle_group *seconds[RANKS];
    act_init(&a, pairs[i].folder, pairs[i].train, pairs[i].infer, pairs[i].ranks);
    assert_ok(treadle_group_threads(pairs[i].ranks, 60, seconds));
    a.seconds = seconds;
    ranks_as_threads(pairs[i].ranks, 60, 0, interrupt_beside, &a);
    ranks_as_threads(pairs[i].ranks, 60, 0, interrupt_batch, &a);
    for (int r = 0; r < pairs[i].ranks; r++) treadle_group_close(seconds[r]);
    act_release(&a);
  }
}

/* ---- What goes wrong ---- */

/* What computes on the host says so of windows that lie elsewhere; the weights stand. */
static int on_far(treadle_group *group, void *context) {
  const act *a = context;
  const char *part = "the built-in engine needs windows in host memory; these lie on device 'far'";
  machine m;
  treadle_trainer *trainer;
  uint64_t before, after;
  RANK_OK(make(group, group, a, &m));
  RANK_OK(treadle_switch_digest(m.sw, &before));
  RANK_TRUE(treadle_switch_to_infer(m.sw) != TREADLE_OK && strstr(treadle_error_message(), part));
  RANK_TRUE(treadle_switch_mode(m.sw) == TREADLE_INFER);
  RANK_OK(treadle_switch_to_train(m.sw));
  RANK_OK(treadle_switch_digest(m.sw, &after));
  RANK_TRUE(before == after);
  void *window = treadle_switch_train_window(m.sw);
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .params_window = window, .grads_window = window};
  RANK_TRUE(treadle_trainer_create(group, a->layouts[0], &options, &trainer) != TREADLE_OK &&
            strstr(treadle_error_message(),
                   "the built-in trainer needs windows in host memory; these lie on device 'far'"));
  end(&m);
  return 0;
}

static void test_far(void **state) {
  (void)state;
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops));
  for (size_t i = 0; i < TEST_COUNT(pairs); i += 6) {
    act a;
    act_init(&a, pairs[i].folder, pairs[i].train, pairs[i].infer, pairs[i].ranks);
    a.options.memory.kind = TREADLE_MEMORY_CUDA;
    ranks_as_threads(pairs[i].ranks, 60, 0, on_far, &a);
    act_release(&a);
  }
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, NULL));
}

static int budgets(treadle_group *group, void *context) {
  act a = *(const act *)context;
  machine m;
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  RANK_OK(make(group, group, &a, &m));
  RANK_OK(treadle_generator_get_info(m.engine, &info));
  size_t infer;
  (void)treadle_switch_window(m.sw, TREADLE_INFER_PARAMS, &infer);
  RANK_TRUE(treadle_switch_pool_bound(m.sw) >= infer + m.hooks.work_bytes + KV_BYTES / 2);
  end(&m);
  a.options.budget_bytes =
      infer + m.hooks.work_bytes + KV_BYTES / 2; /* enough for a switch, not for the cache */
  treadle_status status = make(group, group, &a, &m);
  RANK_FAILS(TREADLE_REFUSED, "work memory", status);
  RANK_FAILS(TREADLE_REFUSED, "for the KV cache; give at least", status);
  const char *least = strstr(treadle_error_message(), "give at least ");
  char said[32];
  RANK_TRUE(least && sscanf(least, "give at least %31s", said) == 1);
  uint64_t bytes = strtoull(said, NULL, 10), all[RANKS];
  end(&m);
  RANK_OK(treadle_group_gather(group, &bytes, sizeof bytes, all));
  for (int i = 0; i < treadle_group_size(group); i++) bytes = all[i] > bytes ? all[i] : bytes;
  a.options.budget_bytes = bytes + 2 * PAGE; /* of all ranks; the message is of one */
  RANK_OK(make(group, group, &a, &m));
  RANK_OK(treadle_switch_to_infer(m.sw));
  if (check_bits(&a, &m)) return 1;
  RANK_TRUE(m.most_sum <= a.options.budget_bytes &&
            treadle_switch_pool_bound(m.sw) == a.options.budget_bytes);
  end(&m);
  return 0;
}

static void test_budget(void **state) {
  (void)state;
  act a;
  act_init(&a, "llama-gqa-llama3rope", "megatron:tp=2,pp=2", "vllm:tp=4", 4);
  ranks_as_threads(4, 60, 0, budgets, &a);
  act_release(&a);
}

/* One rank's bind fails: no rank has weights, all are back in TRAIN, and the next arrow works. */
static int fail_once(treadle_group *group, void *context) {
  const act *a = context;
  bool me = treadle_group_rank(group) == a->failing;
  machine m;
  RANK_OK(make(group, group, a, &m));
  m.fails = me;
  RANK_FAILS(me ? TREADLE_REFUSED : TREADLE_PEER, "not today", treadle_switch_to_infer(m.sw));
  RANK_TRUE(treadle_switch_mode(m.sw) == TREADLE_TRAIN && treadle_switch_resident(m.sw, TREADLE_WORK) == 0);
  RANK_FAILS(TREADLE_STATE, "no weights", treadle_generator_score(m.engine, NULL, 0, NULL));
  RANK_OK(treadle_switch_to_infer(m.sw));
  if (check_bits(a, &m)) return 1;
  end(&m);
  return 0;
}

static int other_layout(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  RANK_OK(make(group, group, a, &m));
  treadle_status status = treadle_switch_to_infer(m.sw); /* that of this rank, or of one that was faster */
  RANK_FAILS(status == TREADLE_PEER ? status : TREADLE_REFUSED, "is not the infer layout", status);
  RANK_TRUE(treadle_switch_mode(m.sw) == TREADLE_TRAIN);
  end(&m);
  return 0;
}

static void test_bind_fails(void **state) {
  (void)state;
  act a;
  act_init(&a, "llama-gqa-llama3rope", "megatron:tp=2,pp=2", "vllm:tp=4", 4);
  a.options.keep = TREADLE_KEEP_HOST;
  for (a.failing = 0; a.failing < 4; a.failing += 3) ranks_as_threads(4, 60, 0, fail_once, &a);
  act_release(&a);
  act_init(&a, "llama-gqa-llama3rope", "megatron:tp=2", "vllm:tp=2", 2);
  a.options.keep = TREADLE_KEEP_HOST;
  a.other_engine = true;
  ranks_as_threads(2, 60, 0, other_layout, &a);
  act_release(&a);
}

/* The switch is destroyed in the middle of a call, which then ends; and callbacks within a step can take no arrow. */
static bool destroy_it(void *context) {
  machine *m = context;
  treadle_switch_destroy(m->sw);
  m->sw = NULL;
  return false;
}

static treadle_status train_in_a_step(void *context, size_t text, size_t token, const float *logits) {
  machine *m = context;
  (void)text;
  (void)token;
  (void)logits;
  return treadle_switch_to_train(m->sw);
}

static int end_early(treadle_group *group, void *context) {
  const act *a = context;
  machine m;
  const treadle_observer observer = {.struct_size = sizeof observer, .context = &m, .stop = destroy_it};
  treadle_generate_options generate = {.struct_size = sizeof generate, .observer = &observer};
  treadle_score_lines_options score = {
      .struct_size = sizeof score, .logits = train_in_a_step, .context = &m};
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  RANK_OK(make(group, group, a, &m));
  RANK_OK(treadle_switch_to_infer(m.sw));
  RANK_FAILS(TREADLE_STATE, "within a step",
             treadle_generator_score_lines(m.engine, texts, sizeof texts - 1, &score, &scored));
  RANK_OK(treadle_switch_to_infer(m.sw));
  if (check_bits(a, &m)) return 1;
  RANK_FAILS(TREADLE_STATE, "was destroyed",
             treadle_generator_generate_lines(m.engine, lines, sizeof lines - 1, &generate, &generated));
  RANK_TRUE(generated.kv_blocks_leaked == 0);
  end(&m);
  return 0;
}

static void test_end_early(void **state) {
  (void)state;
  act a;
  act_init(&a, "llama-gqa-llama3rope", "hf", "vllm:tp=1", 1);
  ranks_as_threads(1, 60, 0, end_early, &a);
  act_release(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits),
                                     cmocka_unit_test(test_alias_moves),
                                     cmocka_unit_test(test_arrows_in_an_observer),
                                     cmocka_unit_test(test_arrows_beside),
                                     cmocka_unit_test(test_budget),
                                     cmocka_unit_test(test_bind_fails),
                                     cmocka_unit_test(test_end_early),
                                     cmocka_unit_test(test_far)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
