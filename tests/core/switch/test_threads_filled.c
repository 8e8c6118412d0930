/* src/core/weights/filled.c in a switch: params that nobody has filled do not go to INFER or FORWARD, are not digested and not saved, on any rank; and
 * each way to fill them counts. ctest: label=threads timeout=300 */
#include "base/alloc.h"
#include "base/random.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"
#include "treadle_testing.h"

#include <sys/mman.h>

enum { VICTIM = 2 };

/* How the victim's params are filled. */
typedef enum way {
  BY_LOAD,
  BY_BYTES,
  BY_FILLED,
  BY_TENSORS,
  BY_REGISTER,
  BY_OWN,
  BY_PARTS,
  BY_ALLOWING,
  WAYS
} way;

typedef struct act {
  scene s;
  way how;
  treadle_switch_options options;
  treadle_status statuses[SCENE_RANKS];
  char messages[SCENE_RANKS][TREADLE_GROUP_MESSAGE];
} act;

static void act_init(act *a, way how) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->how = how;
  a->options = (treadle_switch_options){
      .struct_size = sizeof(treadle_switch_options), .page_bytes = SCENE_PAGE, .timeout_seconds = 60};
}

/* The name of the victim's first tensor, in the message of its refusal. */
static const char *first_name(const act *a) {
  static _Thread_local char name[256];
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  (void)treadle_layout_storage(a->s.train, VICTIM, 0, &info);
  snprintf(name, sizeof name, "'%.200s'", info.name);
  return name;
}

/* ---- Refused ---- */

static int refuse(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  uint64_t digest;
  treadle_switch_options options = a->options;
  options.host = true;
  options.keep = TREADLE_KEEP_HOST;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  sw->device = *treadle_device_plain();
  void *window = treadle_switch_train_window(sw);
  if (group->rank != VICTIM) RANK_OK(treadle_layout_load(a->s.train, group->rank, window));
  /* All ranks are told, with the names, and stay in mode TRAIN. */
  RANK_TRUE(treadle_switch_to_infer(sw) != TREADLE_OK);
  RANK_TRUE(strstr(treadle_error_message(), "were never given values") &&
            strstr(treadle_error_message(), first_name(a)));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && treadle_switch_version(sw) == 0);
  RANK_TRUE(treadle_switch_digest(sw, &digest) != TREADLE_OK);
  RANK_TRUE(strstr(treadle_error_message(), first_name(a)) != NULL);
  RANK_TRUE(treadle_layout_save(group, a->s.train, window, "/tmp/treadle-never-written", NULL) !=
            TREADLE_OK);
  RANK_TRUE(strstr(treadle_error_message(), first_name(a)) != NULL);
  /* The window may move as it is, and is then still not given. */
  RANK_OK(treadle_switch_to_host(sw));
  treadle_status forward = treadle_switch_to_forward(sw);
  RANK_TRUE((forward == TREADLE_REFUSED) == (group->rank == VICTIM));
  RANK_TRUE(group->rank == VICTIM || treadle_switch_to_host(sw) == TREADLE_OK);
  RANK_TRUE(treadle_switch_to_infer(sw) != TREADLE_OK && treadle_switch_mode(sw) == TREADLE_HOST);
  RANK_OK(treadle_switch_to_train(sw));
  if (group->rank == VICTIM) RANK_OK(treadle_layout_load(a->s.train, group->rank, window));
  for (int cycle = 0; cycle < 3; cycle++) { /* once is enough */
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(scene_infers(sw));
    RANK_OK(cycle == 1 ? treadle_switch_to_forward(sw) : TREADLE_OK);
    RANK_OK(treadle_switch_to_train(sw));
    if (cycle == 0) RANK_OK(treadle_switch_to_host(sw));
  }
  RANK_OK(treadle_switch_digest(sw, &digest));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_refused(void **state) {
  act a;
  (void)state;
  act_init(&a, BY_LOAD);
  ranks_as_threads(SCENE_RANKS, 60, 0, refuse, &a);
  scene_release(&a.s);
}

/* ---- Each way to fill them ---- */

static int write_all(const act *a, int rank, char *to) {
  RANK_OK(treadle_layout_load(a->s.train, rank, to));
  return 0;
}

/* The victim's; its values are in `values`. */
static int fill(const act *a, treadle_switch *sw, const char *values, size_t bytes, char **registered_p) {
  const int rank = sw->group->rank;
  char *window = treadle_switch_train_window(sw);
  const int32_t count = treadle_layout_storage_count(a->s.train, rank);
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  switch (a->how) {
  case BY_LOAD:
    RANK_OK(treadle_layout_load_weights(a->s.train, rank, TREADLE_WEIGHTS_RANDOM, window));
    break;
  case BY_BYTES: RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, values)); break;
  case BY_FILLED:
    memcpy(window, values, bytes);
    RANK_OK(treadle_switch_filled(sw));
    break;
  case BY_TENSORS: /* all but the last, and then that one */
    memcpy(window, values, bytes);
    for (int32_t i = 0; i < count - 1; i++) RANK_OK(treadle_switch_tensor_filled(sw, i));
    RANK_FAILS(TREADLE_REFUSED, "1 of", treadle_filled_check(sw->filled, "it"));
    RANK_FAILS(TREADLE_REFUSED, "is none of the", treadle_switch_tensor_filled(sw, count));
    RANK_FAILS(TREADLE_REFUSED, "is none of the", treadle_switch_tensor_filled(sw, -1));
    RANK_OK(treadle_switch_tensor_filled(sw, count - 1));
    break;
  case BY_REGISTER:
    *registered_p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANK_TRUE(*registered_p != MAP_FAILED);
    memcpy(*registered_p, values, bytes);
    RANK_OK(treadle_switch_register(sw, TREADLE_PARAMS, 0, *registered_p, bytes));
    break;
  case BY_PARTS: /* whole storage tensors count, others not */
    for (int32_t i = 0; i < count; i++) {
      RANK_OK(treadle_layout_storage(a->s.train, rank, i, &info));
      if (info.bytes < 2) continue;
      RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, info.offset_bytes, info.bytes - 1,
                                   values + info.offset_bytes));
    }
    RANK_FAILS(TREADLE_REFUSED, "were never given values", treadle_filled_check(sw->filled, "it"));
    RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, values));
    break;
  default: break;
  }
  return 0;
}

static int fill_and_go(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  own_memory own = {0};
  treadle_switch_options options = a->options;
  const size_t bytes = treadle_layout_window_bytes(a->s.train, group->rank);
  char *values = calloc(bytes + 1, 1), *registered = NULL;
  RANK_TRUE(values != NULL);
  if (write_all(a, group->rank, values)) return 1;
  if (a->how == BY_OWN) {
    own_make(&own, a->s.train, a->s.infer, a->s.train, group->rank, OWN_ALL, 1);
    options.own_train = own.tensors;
    options.own_train_count = own.count;
  }
  options.allow_unfilled = a->how == BY_ALLOWING && group->rank == VICTIM;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  sw->device = *treadle_device_plain();
  if (a->how != BY_OWN && group->rank != VICTIM)
    RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  if (group->rank == VICTIM && fill(a, sw, values, bytes, &registered)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  if (a->how != BY_ALLOWING && a->how != BY_OWN) RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  if (a->how == BY_OWN) own_release(&own);
  if (registered) munmap(registered, bytes + 1);
  free(values);
  return 0;
}

static void test_ways(void **state) {
  act a;
  (void)state;
  for (way how = 0; how < WAYS; how++) {
    act_init(&a, how);
    ranks_as_threads(SCENE_RANKS, 60, 0, fill_and_go, &a);
    scene_release(&a.s);
  }
}

/* ---- Own tensors of a part: the rest is asked for ---- */

static int own_part(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  own_memory own;
  treadle_switch_options options = a->options;
  own_make(&own, a->s.train, a->s.infer, a->s.train, group->rank, OWN_SOME, 1);
  options.own_train = own.tensors;
  options.own_train_count = own.count;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  sw->device = *treadle_device_plain();
  RANK_TRUE(treadle_switch_to_infer(sw) != TREADLE_OK);
  RANK_TRUE(strstr(treadle_error_message(), "were never given values") != NULL);
  RANK_OK(treadle_switch_filled(sw));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_update(sw)); /* updates ask, too, and once is enough */
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  own_release(&own);
  return 0;
}

static void test_own_part(void **state) {
  act a;
  (void)state;
  act_init(&a, BY_OWN);
  ranks_as_threads(SCENE_RANKS, 60, 0, own_part, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_ways),
                                     cmocka_unit_test(test_own_part)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
