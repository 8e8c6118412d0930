/* undo_bytes: own infer tensors get back what they held when an arrow to INFER or an update fails, at whichever wave, and with the rest of
 * the window the old version is there; too few bytes are refused. ctest: label=threads timeout=600 */
#include "group/ranks.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"

enum { VICTIM = 2, MARK = 0x5a };

typedef struct act {
  scene s;
  own_choice infer;
  treadle_injection injection;
  treadle_fault fault;
  uint64_t seed;
  bool whole; /* the rest of the window is kept, too */
} act;

static void act_init(act *a, own_choice infer, bool whole) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->infer = infer;
  a->whole = whole;
}

static size_t own_bytes(const own_memory *own) {
  size_t sum = 0;
  for (size_t i = 0; i < own->count; i++) sum += own->tensors[i].bytes;
  return sum;
}

/* All that the tensors of this rank's infer window have. */
static size_t window_bytes(const act *a, int rank) {
  size_t sum = 0;
  for (int32_t i = 0; i < treadle_layout_storage_count(a->s.infer, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(a->s.infer, rank, i, &info));
    sum += info.bytes;
  }
  return sum;
}

static treadle_switch_options options_of(const act *a, const own_memory *own, int rank) {
  return (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                  .page_bytes = SCENE_PAGE,
                                  .cap_bytes = 64 * SCENE_PAGE,
                                  .timeout_seconds = 60,
                                  .offload_train_param = TREADLE_OFF,
                                  .own_infer = own->tensors,
                                  .own_infer_count = own->count,
                                  .undo_bytes = a->whole ? window_bytes(a, rank) : own_bytes(own)};
}

/* Params of a version. */
static int write_version(const act *a, treadle_switch *sw, int version) {
  const size_t bytes = treadle_layout_window_bytes(a->s.train, sw->group->rank);
  char *window = scene_expected(a->s.train, NULL, sw->group->rank);
  RANK_TRUE(window);
  RANK_OK(scene_turn(a->s.train, sw->group->rank, (uint8_t *)window, version));
  RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, window));
  free(window);
  return 0;
}

/* Own tensors, and with `rest` all others of the infer window, are those of a version. */
static bool holds_version(const act *a, treadle_switch *sw, int version, bool rest) {
  const int rank = sw->group->rank;
  char *wanted = scene_expected(a->s.infer, NULL, rank);
  bool right = wanted && scene_turn(a->s.infer, rank, (uint8_t *)wanted, version) == TREADLE_OK;
  const treadle_own_spans *own = &sw->carry.own.spans[TREADLE_INFER];
  for (size_t i = 0; right && i < own->count; i++)
    right = memcmp(own->items[i].memory, wanted + own->items[i].offset, (size_t)own->items[i].bytes) == 0;
  if (right && rest) right = own_holds(sw, TREADLE_INFER_PARAMS, wanted);
  free(wanted);
  return right;
}

/* An arrow that fails on VICTIM, as planned. */
static int fails(const act *a, treadle_switch *sw, treadle_status (*arrow)(treadle_switch *)) {
  const bool mine = sw->group->rank == VICTIM;
  if (a->fault) RANK_OK(treadle_switch_plant(sw, a->fault, VICTIM, a->seed));
  if (mine && !a->fault) RANK_OK(treadle_switch_inject(sw, a->injection));
  const treadle_status status = arrow(sw);
  RANK_TRUE(status == (!mine                                        ? TREADLE_PEER
                       : a->fault                                   ? TREADLE_DIFFERENT
                       : a->injection.what == TREADLE_INJECT_CANCEL ? TREADLE_CANCELLED
                                                                    : TREADLE_NO_MEMORY));
  return 0;
}

static int failing(treadle_group *group, void *context) {
  act *a = context;
  own_memory own;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  own_make(&own, a->s.train, a->s.infer, a->s.infer, group->rank, a->infer, a->seed);
  for (size_t i = 0; i < own.count; i++) memset(own.tensors[i].memory, MARK, own.tensors[i].bytes);
  const treadle_switch_options options = options_of(a, &own, group->rank);
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.host_bytes == options.undo_bytes);
  if (write_version(a, sw, 0) || fails(a, sw, treadle_switch_to_infer)) return 1;
  for (size_t i = 0; i < own.count; i++)
    for (size_t k = 0; k < own.tensors[i].bytes; k++)
      RANK_TRUE(((const char *)own.tensors[i].memory)[k] == MARK);
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(holds_version(a, sw, 0, true) && treadle_switch_is_valid(sw));

  if (write_version(a, sw, 1) || fails(a, sw, treadle_switch_update)) return 1;
  RANK_TRUE(holds_version(a, sw, 0, a->whole));
  RANK_TRUE(treadle_switch_version(sw) == 1);
  if (a->whole) RANK_TRUE(treadle_switch_is_valid(sw));
  if (a->whole) RANK_TRUE(strstr(treadle_error_message(), "the infer weights stand as they were"));
  RANK_OK(treadle_switch_update(sw));
  RANK_TRUE(holds_version(a, sw, 1, true) && treadle_switch_version(sw) == 2);
  RANK_OK(treadle_switch_to_train(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(own_surrounds(&own));
  own_release(&own);
  return 0;
}

static void test_failures(void **state) {
  (void)state;
  static const treadle_injection_type whats[] = {TREADLE_INJECT_ENOMEM, TREADLE_INJECT_CANCEL};
  static const treadle_fault faults[] = {TREADLE_FAULT_DROP, TREADLE_FAULT_DOUBLE, TREADLE_FAULT_MISPLACE};
  static const own_choice choices[] = {OWN_ALL, OWN_SOME, OWN_ONE_RANK, OWN_SOME};
  for (uint64_t seed = 0; seed < test_seeds(12); seed++) {
    act a;
    act_init(&a, choices[seed % 4], seed % 4 != 3);
    a.seed = seed;
    a.fault = seed % 3 == 2 ? faults[seed / 3 % 3] : TREADLE_FAULT_NONE;
    a.injection =
        (treadle_injection){.what = whats[seed % 2], .point = TREADLE_AT_WAVE, .wave = (int32_t)seed * 3};
    ranks_as_threads(SCENE_RANKS, 100, seed, failing, &a);
    scene_release(&a.s);
  }
}

/* ---- A bind that fails ---- */

static treadle_status bind_fails(void *context, void *window, size_t bytes) {
  (void)context, (void)window, (void)bytes;
  return treadle_error_set(TREADLE_STATE, "this engine does not bind");
}

static int binding(treadle_group *group, void *context) {
  act *a = context;
  own_memory own;
  treadle_switch *sw;
  own_make(&own, a->s.train, a->s.infer, a->s.infer, group->rank, a->infer, a->seed);
  for (size_t i = 0; i < own.count; i++) memset(own.tensors[i].memory, MARK, own.tensors[i].bytes);
  const treadle_engine_hooks hooks = {.struct_size = sizeof hooks,
                                      .bind = group->rank == VICTIM ? bind_fails : NULL};
  treadle_switch_options options = options_of(a, &own, group->rank);
  options.engine = &hooks;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  if (write_version(a, sw, 0)) return 1;
  RANK_FAILS(group->rank == VICTIM ? TREADLE_STATE : TREADLE_PEER, "this engine does not bind",
             treadle_switch_to_infer(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  for (size_t i = 0; i < own.count; i++)
    for (size_t k = 0; k < own.tensors[i].bytes; k++)
      RANK_TRUE(((const char *)own.tensors[i].memory)[k] == MARK);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(own_surrounds(&own));
  own_release(&own);
  return 0;
}

static void test_bind(void **state) {
  (void)state;
  act a;
  act_init(&a, OWN_ALL, false);
  ranks_as_threads(SCENE_RANKS, 100, 1, binding, &a);
  scene_release(&a.s);
}

/* ---- Refusals ---- */

static int refused(treadle_group *group, void *context) {
  act *a = context;
  own_memory own;
  treadle_switch *sw;
  char words[120];
  own_make(&own, a->s.train, a->s.infer, a->s.infer, group->rank, a->infer, 1);
  treadle_switch_options options = options_of(a, &own, group->rank);
  snprintf(words, sizeof words, "undo_bytes is %zu, and its own infer tensors have %zu bytes",
           options.undo_bytes - 1, options.undo_bytes);
  if (group->rank == VICTIM) options.undo_bytes--;
  RANK_FAILS(TREADLE_REFUSED, group->rank == VICTIM ? words : "rank 2: undo_bytes is ",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  options = options_of(a, &own, group->rank);
  options.own_infer = NULL;
  options.own_infer_count = 0;
  options.double_infer = true;
  RANK_FAILS(TREADLE_REFUSED, "with double_infer the old version stays as it is: leave out one",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  options.double_infer = false;
  options.undo_bytes = 1;
  RANK_FAILS(TREADLE_REFUSED, "undo_bytes is 1, and would keep nothing",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  own_release(&own);
  return 0;
}

static void test_refusals(void **state) {
  (void)state;
  act a;
  act_init(&a, OWN_ALL, false);
  ranks_as_threads(SCENE_RANKS, 100, 1, refused, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures), cmocka_unit_test(test_bind),
                                     cmocka_unit_test(test_refusals)};
  const struct CMUnitTest over_nodes[] = {cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL) + RANKS_OVER_NODES(over_nodes);
}
