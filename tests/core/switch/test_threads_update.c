/* Updates: mode INFER goes to the next version while params stay, on the same ranks, on others, on some of both. What is refused, what a
 * failure leaves behind at each moment, and how the next update repairs it. ctest: label=threads timeout=600 */
#include "group/ranks.h"
#include "seeds.h"
#include "switch/scene.h"
#include "test.h"

enum { GRADS = 9000, OPTIMIZER = 30000, KV_BLOCK = 3000, VERSIONS = 5 };

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
  bool valid[SCENE_RANKS];
  int binds[SCENE_RANKS], unbinds[SCENE_RANKS];
  int wanted;           /* a rank whose bind is to fail, or (less SCENE_RANKS) unbind; -1: none */
  _Atomic int refusing; /* the same while it fails */
} act;

static void act_init(act *a, size_t pair) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].train, SCENE_RANKS, NULL, &a->train));
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].infer, SCENE_RANKS, NULL, &a->infer));
  a->wanted = -1;
  a->refusing = -1;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .kv_block_bytes = KV_BLOCK,
                                        .offload_train_param = TREADLE_OFF};
}

static void act_release(act *a) {
  treadle_layout_destroy(a->train);
  treadle_layout_destroy(a->infer);
  scene_release(&a->s);
}

/* ---- Values by version ---- */

static bool infers(treadle_switch *sw, int version) {
  return scene_holds_version(sw->layouts[TREADLE_INFER], sw->group->rank, treadle_switch_infer_window(sw),
                             version);
}

static bool trains(treadle_switch *sw, int version) {
  return scene_holds_version(sw->layouts[TREADLE_TRAIN], sw->group->rank, treadle_switch_train_window(sw),
                             version);
}

/* A step of the trainer, in mode INFER or not. */
static int step(treadle_switch *sw, int from, int to) {
  size_t bytes;
  RANK_OK(
      scene_turn(sw->layouts[TREADLE_TRAIN], sw->group->rank, treadle_switch_train_window(sw), from ^ to));
  char *optimizer = treadle_switch_window(sw, TREADLE_OPTIMIZER, &bytes);
  memset(optimizer, to, bytes);
  return 0;
}

/* ---- The engine ---- */

typedef struct engine {
  act *a;
  int rank;
} engine;

static treadle_status bind(void *context, void *window, size_t bytes) {
  engine *e = context;
  (void)window, (void)bytes;
  if (e->a->refusing == e->rank) return treadle_fail(TREADLE_REFUSED, "this engine will not bind");
  e->a->binds[e->rank]++;
  return TREADLE_OK;
}

static treadle_status unbind(void *context) {
  engine *e = context;
  if (e->a->refusing == e->rank + SCENE_RANKS)
    return treadle_fail(TREADLE_REFUSED, "this engine will not unbind");
  e->a->unbinds[e->rank]++;
  return TREADLE_OK;
}

static treadle_status make(treadle_group *group, act *a, engine *e, treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  *e = (engine){a, group->rank};
  a->binds[group->rank] = a->unbinds[group->rank] = 0;
  const treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = e, .bind = bind, .unbind = unbind};
  treadle_switch_options options = a->options;
  options.engine = &hooks;
  TRY(treadle_switch_create(group, a->train, a->infer, &options, sw_p));
  if (treadle_switch_train_window(*sw_p))
    TRY(treadle_layout_load(a->train, group->rank, treadle_switch_train_window(*sw_p)));
  TRY(treadle_switch_to_infer(*sw_p));
out:
  return status;
}

static int end(treadle_group *group, treadle_switch *sw) {
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

/* ---- Versions ---- */

static int versions(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  size_t kv_bytes;
  uint64_t digest, before = 0;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_OK(make(group, a, &e, &sw));
  char *kv = treadle_switch_window(sw, TREADLE_KV, &kv_bytes);
  if (kv_bytes) memset(kv, 77, kv_bytes);
  for (int v = 1; v <= VERSIONS; v++) {
    RANK_TRUE(infers(sw, v - 1) && treadle_switch_is_valid(sw));
    RANK_OK(treadle_group_barrier(group));
    if (step(sw, v - 1, v)) return 1;
    if ((group->rank + v) % 2) {
      RANK_OK(treadle_switch_update(sw));
    } else {
      RANK_OK(treadle_switch_start_update(sw));
      RANK_OK(treadle_switch_wait(sw));
    }
    RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_switch_version(sw) == (uint64_t)v + 1);
    RANK_TRUE(infers(sw, v) && trains(sw, v) && treadle_switch_is_valid(sw));
    RANK_TRUE(a->binds[group->rank] == v + 1 && a->unbinds[group->rank] == v);
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(stats.pulled_bytes == (size_t)sw->carry.plan->forward.moved_bytes);
    RANK_TRUE(stats.copied_bytes + stats.filled_bytes == (size_t)sw->carry.plan->forward.written_bytes);
    RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(sw));
    for (size_t i = 0; i < kv_bytes; i++) RANK_TRUE(kv[i] == 77);
    RANK_OK(treadle_switch_digest(sw, &digest));
    RANK_TRUE(digest != before);
    before = digest;
  }
  RANK_OK(treadle_group_barrier(group));
  if (step(sw, VERSIONS, 99)) return 1;
  RANK_OK(treadle_switch_to_forward(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(trains(sw, 99)); /* what was trained in mode INFER */
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(infers(sw, 99));
  return end(group, sw);
}

static void test_versions(void **state) {
  (void)state;
  for (size_t pair = 0; pair < TEST_COUNT(pairs); pair++)
    for (int guarded = 0; guarded < 2; guarded++) {
      act a;
      act_init(&a, pair);
      a.options.guard_pages = guarded;
      if (guarded) a.options.host = true;
      ranks_as_threads(SCENE_RANKS, 60, guarded ? 31 + pair : 0, versions, &a);
      act_release(&a);
    }
}

/* Params in the caller's own memory are read there by each update, and are left alone by the way back. */
static int registered(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  RANK_OK(make(group, a, &e, &sw));
  RANK_OK(treadle_switch_to_train(sw));
  size_t bytes = treadle_layout_window_bytes(a->train, group->rank);
  uint8_t *own = aligned_alloc(64, (bytes + 64) / 64 * 64);
  RANK_TRUE(own);
  if (bytes) {
    memcpy(own, treadle_switch_train_window(sw), bytes);
    RANK_OK(treadle_switch_register(sw, TREADLE_PARAMS, 0, own, bytes));
    memset(treadle_switch_train_window(sw), 1, bytes);
  }
  RANK_OK(treadle_switch_to_infer(sw));
  for (int v = 1; v <= VERSIONS; v++) {
    RANK_OK(treadle_group_barrier(group));
    RANK_OK(scene_turn(a->train, group->rank, own, (v - 1) ^ v));
    RANK_OK(treadle_switch_update(sw));
    RANK_TRUE(infers(sw, v) && scene_holds_version(a->train, group->rank, own, v));
  }
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(scene_turn(a->train, group->rank, own, VERSIONS ^ 99));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds_version(a->train, group->rank, own, 99));
  if (end(group, sw)) return 1;
  free(own);
  return 0;
}

static void test_registered(void **state) {
  (void)state;
  for (size_t pair = 0; pair < TEST_COUNT(pairs); pair++) {
    act a;
    act_init(&a, pair);
    ranks_as_threads(SCENE_RANKS, 60, 0, registered, &a);
    act_release(&a);
  }
}

/* ---- What is refused ---- */

static int refused(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  const char *why = a->options.alias ? "shares pages between both layouts (alias)"
                    : a->options.offload_train_param != TREADLE_OFF
                        ? "params leave the device in mode infer"
                        : NULL;
  RANK_OK(make(group, a, &e, &sw));
  if (why) {
    RANK_FAILS(TREADLE_STATE, why, treadle_switch_update(sw));
    RANK_FAILS(TREADLE_STATE, why, treadle_switch_start_update(sw));
    RANK_FAILS(TREADLE_STATE, "no switch was started", treadle_switch_wait(sw));
    RANK_TRUE(scene_infers(sw) && treadle_switch_version(sw) == 1);
    return end(group, sw);
  }
  /* One binds again while the others update: not the same way. */
  sw->engine.bound = false;
  treadle_status status = group->rank == 1 ? treadle_switch_to_infer(sw) : treadle_switch_update(sw);
  RANK_TRUE(status == TREADLE_STATE || status == TREADLE_PEER);
  RANK_TRUE(strstr(treadle_error_message(), "all ranks must take the same arrows"));
  RANK_TRUE(strstr(treadle_error_message(), "on its way to the next version"));
  RANK_TRUE(treadle_switch_is_valid(sw) && infers(sw, 0) && treadle_switch_version(sw) == 1);
  RANK_OK(treadle_switch_update(sw));
  RANK_TRUE(treadle_switch_version(sw) == 2);
  RANK_OK(treadle_switch_to_train(sw));
  RANK_FAILS(TREADLE_STATE, "the mode is train, and only mode infer has a next version",
             treadle_switch_update(sw));
  RANK_FAILS(TREADLE_STATE, "the mode is train", treadle_switch_start_update(sw));
  return end(group, sw);
}

static void test_refused(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    act a;
    act_init(&a, 1);
    if (i == 1) a.options.alias = true;
    if (i > 1) a.options.offload_train_param = TREADLE_DEFAULT;
    if (i == 3) a.options.keep = TREADLE_KEEP_HOST;
    ranks_as_threads(SCENE_RANKS, 60, 0, refused, &a);
    act_release(&a);
  }
}

/* ---- Failures ---- */

/* The ranks agree on what a failure has left; an old version that stands is whole. */
static int look_at_rest(treadle_group *group, act *a, treadle_switch *sw, int version) {
  uint64_t digest;
  char byte;
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && trains(sw, version + 1));
  bool valid = a->valid[group->rank] = treadle_switch_is_valid(sw);
  RANK_OK(treadle_group_barrier(group));
  for (int rank = 0; rank < group->size; rank++) RANK_TRUE(a->valid[rank] == valid);
  RANK_TRUE(treadle_switch_version(sw) == (uint64_t)version + 1);
  if (valid) {
    RANK_TRUE(infers(sw, version));
  } else {
    RANK_FAILS(TREADLE_STATE, "the infer window holds no version", treadle_switch_digest(sw, &digest));
    bool stuck = a->wanted == group->rank + SCENE_RANKS; /* it would not unbind */
    RANK_TRUE(a->binds[group->rank] == a->unbinds[group->rank] + stuck);
    if (treadle_switch_infer_window(sw))
      RANK_FAILS(TREADLE_STATE, "closed", treadle_switch_read(sw, TREADLE_INFER_PARAMS, 0, 1, &byte));
  }
  return 0;
}

static int fails(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e;
  int refusing = a->wanted;
  RANK_OK(make(group, a, &e, &sw));
  RANK_OK(treadle_group_barrier(group));
  if (step(sw, 0, 1)) return 1;
  if (a->fault) {
    RANK_OK(treadle_switch_plant(sw, a->fault, a->rank, 5));
  } else if (group->rank == a->rank && refusing < 0) {
    RANK_OK(treadle_switch_inject(sw, a->injection));
  }
  if (group->rank == 0) a->refusing = refusing;
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(treadle_switch_update(sw) != TREADLE_OK);
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) a->refusing = -1;
  bool bind_failed =
      refusing >= 0 ? refusing < SCENE_RANKS : !a->fault && a->injection.point == TREADLE_AT_BIND;
  if (bind_failed) { /* the version is there, and nothing is bound */
    RANK_TRUE(strstr(treadle_error_message(), "the mode is infer, and nothing is bound"));
    RANK_TRUE(treadle_switch_version(sw) == 2 && treadle_switch_is_valid(sw) && infers(sw, 1));
    RANK_OK(treadle_group_barrier(group));
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(treadle_switch_version(sw) == 2 && a->binds[group->rank] == a->unbinds[group->rank] + 1);
    return end(group, sw);
  }
  if (look_at_rest(group, a, sw, 0)) return 1;
  if (a->fault) RANK_TRUE(!a->valid[0]); /* found at the end of the waves */
  bool by_mode = !a->valid[0] && a->rank % 2;
  RANK_OK(by_mode ? treadle_switch_to_infer(sw) : treadle_switch_update(sw));
  RANK_TRUE(treadle_switch_version(sw) == 2 && treadle_switch_is_valid(sw) && infers(sw, 1));
  RANK_TRUE(a->binds[group->rank] == a->unbinds[group->rank] + 1);
  /* And from a window without a version there is a way to TRAIN. */
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(treadle_switch_plant(sw, TREADLE_FAULT_DROP, a->rank, 1));
  RANK_TRUE(treadle_switch_update(sw) != TREADLE_OK && !treadle_switch_is_valid(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(treadle_switch_is_valid(sw) && trains(sw, 1));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(infers(sw, 1) && treadle_switch_version(sw) == 3);
  return end(group, sw);
}

static void test_planted(void **state) {
  (void)state;
  static const int engine_of[] = {2, 1, 2, 3}; /* by pair: a rank with copies */
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

static void test_injected(void **state) {
  (void)state;
  static const treadle_injection_type types[] = {TREADLE_INJECT_ENOMEM, TREADLE_INJECT_CANCEL};
  static const treadle_injection_point points[] = {TREADLE_AT_ENTRY, TREADLE_AT_WAVE, TREADLE_AT_COMMIT,
                                                   TREADLE_AT_BIND};
  for (size_t pair = 0; pair < 2; pair += (size_t)test_step(2))
    for (size_t t = 0; t < TEST_COUNT(types); t++)
      for (size_t p = 0; p < TEST_COUNT(points); p++)
        for (int32_t wave = 0; wave < (points[p] == TREADLE_AT_WAVE ? 9 : 1); wave += 4) {
          act a;
          act_init(&a, pair);
          a.options.cap_bytes = 32 << 10; /* for many waves */
          a.injection = (treadle_injection){types[t], points[p], wave};
          a.rank = pair ? 1 : 2 + (int)p % 2;
          ranks_as_threads(SCENE_RANKS, 60, p, fails, &a);
          act_release(&a);
        }
}

static void test_refusing_engines(void **state) {
  (void)state;
  for (int refusing = 0; refusing < 2 * SCENE_RANKS; refusing += 3) {
    act a;
    act_init(&a, 1);
    a.wanted = refusing;
    a.rank = 2;
    ranks_as_threads(SCENE_RANKS, 60, 0, fails, &a);
    act_release(&a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions), cmocka_unit_test(test_registered),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_planted),
      cmocka_unit_test(test_injected), cmocka_unit_test(test_refusing_engines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
