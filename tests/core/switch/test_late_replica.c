/* An engine replica that comes later, and gets the present version in full, between processes. Trainers have their weights, and the first replica its
 * engine's memory, all the time.
 *
 *   grown      a larger group, and a new switch over the same own train tensors. The old replica serves its version by the old switch until the new
 *              one has brought it the present version.
 *   replaced   a new process in the place of a replica that died, in a new group: the others rejoin with the switch that they have
 *
 * ctest: timeout=120 */
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include <signal.h>

enum { TRAINERS = 2, VICTIM = 3, LATE = 4 };

typedef struct act {
  scene s;
  treadle_layout *train[2], *infer[2]; /* of the first group, and of the second one */
} act;

typedef struct life {
  int rank;
  treadle_group *group;
  treadle_switch *sw;
  own_memory own;
  int binds, unbinds;
} life;

static treadle_status bind(void *context, void *window, size_t bytes) {
  (void)window, (void)bytes;
  ((life *)context)->binds++;
  return TREADLE_OK;
}

static treadle_status unbind(void *context) {
  ((life *)context)->unbinds++;
  return TREADLE_OK;
}

/* own: of trainers, their tensors; NULL: params lie in the window. */
static treadle_status make(life *l, const treadle_layout *train, const treadle_layout *infer,
                           const own_memory *own) {
  const treadle_engine_hooks engine = {
      .struct_size = sizeof engine, .context = l, .bind = bind, .unbind = unbind};
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60,
                                          .offload_train_param = TREADLE_OFF,
                                          .engine = &engine,
                                          .own_train = own ? own->tensors : NULL,
                                          .own_train_count = own ? own->count : 0,
                                          .double_infer = true};
  l->binds = l->unbinds = 0;
  return treadle_switch_create(l->group, train, infer, &options, &l->sw);
}

/* Params become those of a version. */
static treadle_status train(const life *l, int version) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = l->sw->layouts[TREADLE_TRAIN];
  size_t bytes = treadle_layout_window_bytes(layout, l->rank);
  uint8_t *copy = malloc(bytes + 1);
  TRY(treadle_layout_load(layout, l->rank, copy));
  TRY(scene_turn(layout, l->rank, copy, version));
  TRY(treadle_switch_write(l->sw, TREADLE_PARAMS, 0, bytes, copy));
out:
  free(copy);
  return status;
}

static bool infers(const treadle_switch *sw, int version) {
  return scene_holds_version(sw->layouts[TREADLE_INFER], sw->group->rank, treadle_switch_infer_window(sw),
                             version);
}

static int update(life *l, int version) {
  RANK_OK(treadle_group_barrier(l->group));
  RANK_OK(train(l, version));
  RANK_OK(treadle_switch_update(l->sw));
  RANK_TRUE(infers(l->sw, version));
  return 0;
}

/* ---- A larger group ---- */

static int grow(const char *name, int rank, int size, void *context) {
  act *a = context;
  life first = {.rank = rank}, second = {.rank = rank};
  char larger[200];
  bool trains = rank < TRAINERS;
  own_memory own = {0};
  if (trains) own_make(&own, a->train[0], a->infer[0], a->train[0], rank, OWN_ALL, 3);
  if (rank < size - 1) { /* the last one is not there yet */
    RANK_OK(treadle_group_open(name, rank, size - 1, 60, &first.group));
    RANK_OK(make(&first, a->train[0], a->infer[0], trains ? &own : NULL));
    RANK_OK(train(&first, 0));
    RANK_OK(treadle_switch_to_infer(first.sw));
    for (int v = 1; v <= 3; v++)
      if (update(&first, v)) return 1;
  }
  snprintf(larger, sizeof larger, "%slarger", name);
  RANK_OK(treadle_group_open(larger, rank, size, 60, &second.group));
  RANK_OK(make(&second, a->train[1], a->infer[1], trains ? &own : NULL));
  if (trains) RANK_OK(train(&second, 4)); /* the same tensors, which go on */
  if (rank < size - 1) RANK_TRUE(infers(first.sw, 3) && first.binds == first.unbinds + 1);
  RANK_OK(treadle_switch_to_infer(second.sw));
  RANK_TRUE(infers(second.sw, 4) && second.binds == 1);
  if (rank < size - 1) { /* and the old replica has both until here */
    RANK_TRUE(infers(first.sw, 3) && treadle_switch_version(first.sw) == 4);
    RANK_OK(treadle_group_barrier(first.group));
    treadle_switch_destroy(first.sw);
    treadle_group_close(first.group);
  }
  for (int v = 5; v <= 6; v++)
    if (update(&second, v)) return 1;
  RANK_OK(treadle_group_barrier(second.group));
  treadle_switch_destroy(second.sw);
  treadle_group_close(second.group);
  if (trains) {
    RANK_TRUE(own_surrounds(&own));
    own_release(&own);
  }
  return 0;
}

static void act_init(act *a) {
  scene_init(&a->s);
  for (int i = 0; i < 2; i++) {
    assert_ok(treadle_layout_create(a->s.model, "megatron:tp=2,on=0-1", 3 + i, NULL, &a->train[i]));
    assert_ok(
        treadle_layout_create(a->s.model, i ? "vllm:on=2-3" : "vllm:on=2", 3 + i, NULL, &a->infer[i]));
  }
}

static void act_release(act *a) {
  for (int i = 0; i < 2; i++) {
    treadle_layout_destroy(a->train[i]);
    treadle_layout_destroy(a->infer[i]);
  }
  scene_release(&a->s);
}

static void test_grown(void **state) {
  (void)state;
  act a;
  int results[SCENE_RANKS];
  act_init(&a);
  ranks_as_processes(SCENE_RANKS, 100, grow, &a, results);
  for (int rank = 0; rank < SCENE_RANKS; rank++) assert_int_equal(results[rank], 0);
  act_release(&a);
}

/* ---- The place of one that died ---- */

/* The second set of pages is the present one then, on those that were there; and the first one on the late one. */
static int replace(const char *name, int process, int size, void *context) {
  act *a = context;
  life l = {.rank = process == LATE ? VICTIM : process};
  treadle_group *old = NULL;
  char again[200];
  snprintf(again, sizeof again, "%sagain", name);
  (void)size;
  if (process != LATE) {
    RANK_OK(treadle_group_open(name, l.rank, SCENE_RANKS, 60, &l.group));
    RANK_OK(make(&l, a->train[1], a->infer[1], NULL));
    RANK_OK(train(&l, 0));
    RANK_OK(treadle_switch_to_infer(l.sw));
    if (update(&l, 1)) return 1;
    RANK_OK(treadle_group_barrier(l.group));
    if (process == VICTIM) raise(SIGKILL);
    RANK_TRUE(treadle_switch_update(l.sw) != TREADLE_OK);
    RANK_TRUE(treadle_switch_is_valid(l.sw) && infers(l.sw, 1)); /* the old version, bound */
    RANK_TRUE(treadle_switch_version(l.sw) == 2 && l.binds == l.unbinds + 1);
    old = l.group;
  }
  RANK_OK(treadle_group_open(again, l.rank, SCENE_RANKS, 60, &l.group));
  if (process == LATE)
    RANK_OK(make(&l, a->train[1], a->infer[1], NULL));
  else
    RANK_OK(treadle_switch_rejoin(l.sw, l.group));
  if (old) treadle_group_close(old);
  RANK_TRUE(treadle_switch_mode(l.sw) == TREADLE_TRAIN && treadle_switch_version(l.sw) == 2);
  RANK_OK(train(&l, 2));
  RANK_OK(treadle_switch_to_infer(l.sw));
  RANK_TRUE(infers(l.sw, 2) && treadle_switch_version(l.sw) == 3 && l.binds == l.unbinds + 1);
  for (int v = 3; v <= 5; v++)
    if (update(&l, v)) return 1;
  RANK_OK(treadle_group_barrier(l.group));
  treadle_switch_destroy(l.sw);
  treadle_group_close(l.group);
  return 0;
}

static void test_replaced(void **state) {
  (void)state;
  act a;
  int results[LATE + 1];
  act_init(&a);
  ranks_as_processes(LATE + 1, 100, replace, &a, results);
  for (int process = 0; process <= LATE; process++)
    assert_int_equal(results[process], process == VICTIM ? 128 + SIGKILL : 0);
  act_release(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grown), cmocka_unit_test(test_replaced)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
