/* Updates of which the next version lies beside the present one (double_infer): the engine has the old bytes until all ranks have proved the new
 * ones, at the same addresses; a failure at any moment leaves the old version, and bound unless engines were being unbound. Bits as
 * without. On one node, and over nodes. ctest: stage=gcc label=threads timeout=600 */
#include "group/ranks.h"
#include "seeds.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "treadle_attach.h"

enum { GRADS = 9000, OPTIMIZER = 30000, KV_BLOCK = 3000, VERSIONS = 5, NOBODY = -1 };

static const struct {
  const char *train, *infer;
} pairs[] = {{"megatron:tp=2,on=0-1", "vllm:tp=2,on=2-3"},
             {"megatron:tp=2,pp=2", "vllm:tp=4"},
             {"fsdp2:on=1-2", "vllm:on=\"0,2\""}, /* rank 3 has nothing */
             {"megatron:tp=4", "sglang:tp=2,on=2-3"}};

typedef struct act {
  scene s;
  treadle_layout *train, *infer;
  treadle_switch_options options;
  treadle_fault fault; /* of `rank` */
  treadle_injection injection;
  int rank;
  bool owns;                          /* train tensors lie in memory of their own */
  int will_not_bind, will_not_unbind; /* ranks; NOBODY */
  bool cancels;                       /* in the unbind of `rank` */
  _Atomic bool fails;                 /* the engines, now */
  uint64_t digests[VERSIONS + 1];     /* of the versions without double_infer */
} act;

/* An engine, and what it has seen. */
typedef struct engine {
  act *a;
  int rank, binds, unbinds, looks;
  const treadle_switch *sw;
  const char *window;
  char *served; /* the bytes of the version that it has */
  size_t bytes;
  bool bad; /* the window was not what was served, or moved */
} engine;

static bool is_bound(const engine *e) { return e->binds > e->unbinds; }

static void look(engine *e) {
  if (!is_bound(e)) return;
  e->looks++;
  e->bad = e->bad || (e->bytes && memcmp(e->window, e->served, e->bytes) != 0);
}

static treadle_status bind(void *context, void *window, size_t bytes) {
  engine *e = context;
  if (e->a->fails && e->a->will_not_bind == e->rank)
    return treadle_fail(TREADLE_REFUSED, "this engine will not bind");
  e->binds++;
  e->bad = e->bad || (e->window && e->window != window);
  e->window = window;
  e->bytes = bytes;
  e->served = realloc(e->served, bytes + 1);
  if (bytes) memcpy(e->served, window, bytes);
  return TREADLE_OK;
}

static treadle_status unbind(void *context) {
  engine *e = context;
  look(e);
  if (e->a->fails && e->a->will_not_unbind == e->rank)
    return treadle_fail(TREADLE_REFUSED, "this engine will not unbind");
  if (e->a->fails && e->a->cancels && e->a->rank == e->rank)
    (void)treadle_switch_cancel((treadle_switch *)(uintptr_t)e->sw);
  e->unbinds++;
  return TREADLE_OK;
}

static void attach(void *context, const treadle_switch *sw) { ((engine *)context)->sw = sw; }

/* After each wave, among others. */
static void watch(void *context, const size_t *bytes, int classes) {
  (void)bytes, (void)classes;
  look(context);
}

/* For many waves; over nodes each costs messages. */
static size_t cap_of(void) { return ranks_nodes ? 128 << 10 : 32 << 10; }

static void act_init(act *a, size_t pair) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].train, SCENE_RANKS, NULL, &a->train));
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].infer, SCENE_RANKS, NULL, &a->infer));
  a->will_not_bind = a->will_not_unbind = NOBODY;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .kv_block_bytes = KV_BLOCK,
                                        .offload_train_param = TREADLE_OFF,
                                        .double_infer = true};
}

static void act_release(act *a) {
  treadle_layout_destroy(a->train);
  treadle_layout_destroy(a->infer);
  scene_release(&a->s);
}

static treadle_status make(treadle_group *group, act *a, engine *e, own_memory *own,
                           treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  *e = (engine){.a = a, .rank = group->rank};
  const treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = e, .bind = bind, .unbind = unbind, .attach = attach};
  treadle_switch_options options = a->options;
  options.engine = &hooks;
  options.watch = watch;
  options.watch_context = e;
  if (a->owns) {
    own_make(own, a->train, a->infer, a->train, group->rank, OWN_ALL, 7);
    options.own_train = own->tensors;
    options.own_train_count = own->count;
  }
  TRY(treadle_switch_create(group, a->train, a->infer, &options, sw_p));
out:
  return status;
}

/* All bytes of params, wherever they lie, become those of another version. */
static treadle_status step(treadle_switch *sw, int from, int to) {
  treadle_status status = TREADLE_OK;
  size_t bytes = treadle_layout_window_bytes(sw->layouts[TREADLE_TRAIN], sw->group->rank);
  uint8_t *copy = malloc(bytes + 1);
  TRY(treadle_layout_load(sw->layouts[TREADLE_TRAIN], sw->group->rank, copy));
  (void)from;
  TRY(scene_turn(sw->layouts[TREADLE_TRAIN], sw->group->rank, copy, to));
  TRY(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, copy));
out:
  free(copy);
  return status;
}

static bool infers(const treadle_switch *sw, int version) {
  return scene_holds_version(sw->layouts[TREADLE_INFER], sw->group->rank, treadle_switch_infer_window(sw),
                             version);
}

static int end(treadle_group *group, treadle_switch *sw, engine *e, own_memory *own) {
  RANK_TRUE(!e->bad);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(e->served);
  if (e->a->owns) {
    RANK_TRUE(own_surrounds(own));
    own_release(own);
  }
  return 0;
}

/* ---- Versions ---- */

static int check_memory(const treadle_switch *sw) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  size_t infer = (size_t)(sw->carry.plan->to_pages * SCENE_PAGE),
         sets = sw->terms.options.double_infer ? 2 : 1;
  RANK_TRUE(treadle_switch_resident(sw, TREADLE_INFER_PARAMS) == infer);
  RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(sw) &&
            stats.pool_bytes <= treadle_switch_pool_bound(sw));
  RANK_TRUE(stats.peak_bytes >= treadle_switch_resident(sw, TREADLE_PARAMS) + sets * infer);
  RANK_TRUE(stats.unbound_seconds > 0 && stats.unbound_seconds <= stats.seconds);
  return 0;
}

static int versions(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  own_memory own;
  uint64_t digest;
  size_t kv_bytes;
  RANK_OK(make(group, a, &e, &own, &sw));
  RANK_OK(step(sw, 0, 0));
  treadle_switch_noise(sw, 3);
  RANK_OK(treadle_switch_to_infer(sw));
  char *kv = treadle_switch_window(sw, TREADLE_KV, &kv_bytes);
  if (kv_bytes) memset(kv, 77, kv_bytes);
  for (int v = 1; v <= VERSIONS; v++) {
    RANK_TRUE(infers(sw, v - 1) && treadle_switch_is_valid(sw));
    RANK_OK(treadle_group_barrier(group));
    RANK_OK(step(sw, v - 1, v));
    int looks = e.looks;
    if ((group->rank + v) % 2) {
      RANK_OK(treadle_switch_update(sw));
    } else {
      RANK_OK(treadle_switch_start_update(sw));
      if (a->options.double_infer) RANK_TRUE(treadle_switch_is_valid(sw));
      RANK_OK(treadle_switch_wait(sw));
    }
    RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_switch_version(sw) == (uint64_t)v + 1);
    RANK_TRUE(infers(sw, v) && treadle_switch_is_valid(sw));
    RANK_TRUE(e.binds == v + 1 && e.unbinds == v);
    if (a->options.double_infer) RANK_TRUE(e.looks >= looks + sw->carry.plan->waves);
    if (check_memory(sw)) return 1;
    for (size_t i = 0; i < kv_bytes; i++) RANK_TRUE(kv[i] == 77);
    RANK_OK(treadle_switch_digest(sw, &digest));
    if (!a->options.double_infer && group->rank == 0) a->digests[v] = digest;
    RANK_TRUE(!a->options.double_infer || digest == a->digests[v]);
    if (v == 3) { /* the other set is the present one now: it is written by a switch, too */
      RANK_OK(treadle_switch_to_train(sw));
      RANK_OK(treadle_group_barrier(group));
      treadle_switch_noise(sw, 4);
      RANK_OK(treadle_switch_to_infer(sw));
      RANK_TRUE(infers(sw, v));
      if (kv_bytes) memset(kv, 77, kv_bytes);
      RANK_TRUE(e.binds == v + 2 && e.unbinds == v + 1);
      e.binds--, e.unbinds--;
      sw->version--;
    }
  }
  return end(group, sw, &e, &own);
}

static void play_versions(size_t pair, bool owns, bool guarded, size_t cap) {
  act a;
  act_init(&a, pair);
  a.owns = owns;
  a.options.guard_pages = guarded;
  a.options.cap_bytes = cap;
  if (guarded) a.options.offload_train_grad = a.options.offload_train_optimizer = TREADLE_ON;
  for (int doubled = 0; doubled < 2; doubled++) {
    a.options.double_infer = doubled;
    ranks_as_threads(SCENE_RANKS, 60, guarded ? 31 + pair : 0, versions, &a);
  }
  act_release(&a);
}

/* Changes are of the version that lies beside the one that is written. */
static void play_delta(size_t pair) {
  act a;
  act_init(&a, pair);
  a.options.delta = true;
  for (int doubled = 0; doubled < 2; doubled++) {
    a.options.double_infer = doubled;
    ranks_as_threads(SCENE_RANKS, 60, 0, versions, &a);
  }
  act_release(&a);
}

static void test_versions(void **state) {
  (void)state;
  for (size_t pair = 0; pair < TEST_COUNT(pairs); pair += ranks_nodes ? (size_t)test_step(4) : 1)
    for (int guarded = 0; guarded < (ranks_nodes ? 1 : 2); guarded++)
      play_versions(pair, false, guarded, cap_of());
  if (ranks_nodes) play_delta(1);
  if (!ranks_nodes) play_versions(1, true, false, 0); /* staging: in place, on one node */
}

/* ---- Failures ---- */

/* How engines and window are after a failure, on all ranks alike. */
static int look_at_rest(treadle_switch *sw, engine *e, const char *message, bool bound) {
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_switch_is_valid(sw));
  RANK_TRUE(treadle_switch_version(sw) == 1 && infers(sw, 0));
  RANK_TRUE(strstr(message, "the infer weights stand as they were"));
  RANK_TRUE(sw->engine.bound == bound && (!bound || (e->binds == 1 && e->unbinds == 0)));
  return 0;
}

static int fails(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  own_memory own;
  uint64_t digest;
  bool at_unbind = a->will_not_unbind != NOBODY || a->cancels;
  bool at_bind = a->will_not_bind != NOBODY || (!a->fault && a->injection.point == TREADLE_AT_BIND);
  RANK_OK(make(group, a, &e, &own, &sw));
  RANK_OK(step(sw, 0, 0));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(step(sw, 0, 1));
  if (a->fault)
    RANK_OK(treadle_switch_plant(sw, a->fault, a->rank, 5));
  else if (group->rank == a->rank)
    RANK_OK(treadle_switch_inject(sw, a->injection));
  if (group->rank == 0) a->fails = true;
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(treadle_switch_update(sw) != TREADLE_OK);
  char message[1024];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) a->fails = false;
  RANK_OK(treadle_group_barrier(group));
  if (at_bind) { /* the version is there, and nothing is bound */
    RANK_TRUE(strstr(message, "the mode is infer, and nothing is bound"));
    RANK_TRUE(treadle_switch_version(sw) == 2 && treadle_switch_is_valid(sw) && infers(sw, 1));
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(treadle_switch_version(sw) == 2 && is_bound(&e));
    return end(group, sw, &e, &own);
  }
  if (look_at_rest(sw, &e, message, !at_unbind)) return 1;
  RANK_OK(treadle_switch_digest(sw, &digest));
  RANK_OK(treadle_group_barrier(group));
  if (at_unbind && a->rank % 2) { /* the old version is bound again, or the next one at once */
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(is_bound(&e) && treadle_switch_version(sw) == 1 && infers(sw, 0));
  }
  treadle_switch_noise(sw, 5);
  RANK_OK(treadle_switch_update(sw));
  RANK_TRUE(treadle_switch_version(sw) == 2 && infers(sw, 1) && is_bound(&e));
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(step(sw, 1, 2));
  RANK_OK(treadle_switch_update(sw));
  RANK_TRUE(treadle_switch_version(sw) == 3 && infers(sw, 2));
  RANK_OK(treadle_switch_to_train(sw));
  return end(group, sw, &e, &own);
}

static void test_planted(void **state) {
  (void)state;
  static const int engine_of[] = {2, 1, 2, 3}; /* by pair: a rank with copies */
  if (ranks_nodes) return;                     /* there copies come in messages */
  for (size_t pair = 0; pair < TEST_COUNT(pairs); pair += (size_t)test_step(TEST_COUNT(pairs)))
    for (int fault = TREADLE_FAULT_DROP; fault <= TREADLE_FAULT_MISPLACE; fault++) {
      act a;
      act_init(&a, pair);
      a.fault = (treadle_fault)fault;
      a.rank = engine_of[pair];
      ranks_as_threads(SCENE_RANKS, 60, 0, fails, &a);
      act_release(&a);
    }
}

static void play_injected(size_t pair, treadle_injection injection, int rank) {
  act a;
  act_init(&a, pair);
  a.options.cap_bytes = cap_of();
  a.injection = injection;
  a.rank = rank;
  ranks_as_threads(SCENE_RANKS, 60, (uint64_t)injection.wave + 1, fails, &a);
  act_release(&a);
}

static void test_injected(void **state) {
  (void)state;
  static const treadle_injection_type types[] = {TREADLE_INJECT_ENOMEM, TREADLE_INJECT_CANCEL};
  static const treadle_injection_point points[] = {TREADLE_AT_ENTRY, TREADLE_AT_COMMIT, TREADLE_AT_BIND};
  for (size_t t = 0; t < TEST_COUNT(types); t++) {
    for (size_t p = 0; p < TEST_COUNT(points); p += ranks_nodes ? (size_t)test_step(3) : 1)
      play_injected(t, (treadle_injection){types[t], points[p], 0}, 2 + (int)p % 2);
    for (int32_t wave = 0; wave < 12; wave += test_step(ranks_nodes ? 12 : 4))
      play_injected(1 - t, (treadle_injection){types[t], TREADLE_AT_WAVE, wave}, 2 + wave % 2);
  }
}

static void test_refusing_engines(void **state) {
  (void)state;
  for (int rank = 0; rank < SCENE_RANKS; rank += ranks_nodes ? test_step(4) : 1)
    for (int how = 0; how < 3; how++) {
      act a;
      act_init(&a, 1);
      a.rank = rank;
      if (how == 0) a.will_not_bind = rank;
      if (how == 1) a.will_not_unbind = rank;
      a.cancels = how == 2;
      ranks_as_threads(SCENE_RANKS, 60, 0, fails, &a);
      act_release(&a);
    }
}

/* ---- What is refused ---- */

typedef struct refusal {
  act a;
  const char *why;
  bool own_infer, single; /* single: rank 1 asks for one version */
  size_t least;           /* the budget that would do */
} refusal;

static int refused(treadle_group *group, void *context) {
  refusal *r = context;
  treadle_switch *sw;
  own_memory own = {0};
  treadle_switch_options options = r->a.options;
  if (r->single && group->rank == 1) options.double_infer = false;
  if (r->own_infer) {
    own_make(&own, r->a.train, r->a.infer, r->a.infer, group->rank, OWN_ONE_RANK, 1);
    options.own_infer = own.tensors;
    options.own_infer_count = own.count;
  }
  treadle_status status = treadle_switch_create(group, r->a.train, r->a.infer, &options, &sw);
  RANK_TRUE(status == TREADLE_REFUSED && !sw);
  if (!strstr(treadle_error_message(), r->why)) fprintf(stderr, "%s\n", treadle_error_message());
  RANK_TRUE(strstr(treadle_error_message(), r->why));
  if (r->own_infer) own_release(&own);
  return 0;
}

static int handle_refused(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  own_memory own;
  char handle[512];
  size_t bytes;
  RANK_OK(make(group, a, &e, &own, &sw));
  RANK_FAILS(TREADLE_REFUSED, "(double_infer)",
             treadle_switch_handle(sw, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  RANK_OK(treadle_group_barrier(group));
  return end(group, sw, &e, &own);
}

static void test_refused(void **state) {
  (void)state;
  static const char *const whys[] = {"params that leave the device have none", "with alias pages hold both",
                                     "rank 0: own infer tensor '", "were given different options"};
  for (size_t i = 0; i < TEST_COUNT(whys); i++) {
    refusal r = {.why = whys[i]};
    if (ranks_nodes && (i == 1 || i == 2))
      continue; /* refused already, or taken back, by what nodes need */
    act_init(&r.a, 1);
    if (i == 0) r.a.options.offload_train_param = TREADLE_ON;
    r.a.options.alias = i == 1;
    r.own_infer = i == 2;
    r.single = i == 3;
    ranks_as_threads(SCENE_RANKS, 60, 0, refused, &r);
    act_release(&r.a);
  }
  act a;
  act_init(&a, 1);
  ranks_as_threads(SCENE_RANKS, 60, 0, handle_refused, &a);
  act_release(&a);
}

/* The bound is the least budget; with less it is refused, and the message says that one version would fit. */
static size_t bound_of_all;

static int ask_bound(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  size_t mine, all[SCENE_RANKS];
  RANK_OK(treadle_switch_create(group, a->train, a->infer, &a->options, &sw));
  mine = treadle_switch_bound(sw);
  RANK_OK(treadle_group_gather(group, &mine, sizeof mine, all));
  if (group->rank == 0)
    for (int rank = 0; rank < SCENE_RANKS; rank++)
      if (all[rank] > bound_of_all) bound_of_all = all[rank];
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_budget(void **state) {
  (void)state;
  refusal r = {
      .why =
          "one version of the infer params at a time (double_infer off, --double off) would make it fit"};
  if (ranks_nodes) return; /* there the bound has messages, too */
  act_init(&r.a, 1);
  r.a.options.kv_block_bytes = r.a.options.grads_bytes = r.a.options.optimizer_bytes = 0;
  r.a.options.cap_bytes = SCENE_PAGE;
  bound_of_all = 0;
  ranks_as_threads(SCENE_RANKS, 60, 0, ask_bound, &r.a);
  r.a.options.budget_bytes = bound_of_all;
  ranks_as_threads(SCENE_RANKS, 60, 0, ask_bound, &r.a);
  r.a.options.budget_bytes = bound_of_all - 2 * SCENE_PAGE;
  ranks_as_threads(SCENE_RANKS, 60, 0, refused, &r);
  act_release(&r.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions), cmocka_unit_test(test_planted),
      cmocka_unit_test(test_injected), cmocka_unit_test(test_refusing_engines),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_budget)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + RANKS_OVER_NODES(tests);
}
