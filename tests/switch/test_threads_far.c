/* src/switch/far.c, src/transport/link.c: windows that cannot be read in place are fetched; a fetch that fails fails the switch
 * on all ranks.  ctest: label=threads timeout=900 */
#include "switch/scene.h"
#include "test.h"
#include "transport/ranks.h"

#include "base/clock.h"

typedef struct act {
  scene s;
  treadle_switch_options options;
  int64_t failing; /* which fetch; 0: none */
} act;

static void act_init(act *a) {
  *a = (act){0};
  scene_init(&a->s);
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),

                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 60};
}

static int there_and_back(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_TRUE(sw->far.staging != NULL && treadle_far_is(sw, (group->rank + 2) % SCENE_RANKS));
  RANK_TRUE(!treadle_far_is(sw, group->rank));
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) far_fail(a->failing);
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = treadle_switch_to_infer(sw);
  if (a->failing) {
    RANK_TRUE(status == TREADLE_SYSTEM || status == TREADLE_PEER);
    RANK_TRUE(strstr(treadle_error_message(), "the line to rank"));
    RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
    status = treadle_switch_to_infer(sw);
  }
  RANK_OK(status);
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_fetches(void **state) {
  act a;
  (void)state;
  act_init(&a);
  const treadle_link *const links[] = {&far_link, &pair_link};
  for (size_t i = 0; i < TEST_COUNT(links); i++) {
    int64_t before = far_started();
    ranks_link = links[i];
    ranks_as_threads(SCENE_RANKS, 60, i, there_and_back, &a);
    assert_true(far_started() > before + 100);
    assert_int_equal(far_open(), 0);
  }
  scene_release(&a.s);
}

/* keep=host: the train weights stand whenever it happens. */
static void test_fetch_fails(void **state) {
  act a;
  (void)state;
  act_init(&a);
  a.options.keep = TREADLE_KEEP_HOST;
  ranks_link = &far_link;
  for (a.failing = 1; a.failing < 100; a.failing += 14) {
    ranks_as_threads(SCENE_RANKS, 60, (uint64_t)a.failing, there_and_back, &a);
    assert_int_equal(far_open(), 0);
  }
  scene_release(&a.s);
}

/* ---- Waiting ---- */

static treadle_status never(treadle_group *group, treadle_fetch *fetch, bool *done_p) {
  (void)group, (void)fetch;
  *done_p = false;
  return TREADLE_OK;
}

static treadle_status stop(void *context) {
  int *left = context;
  return --*left > 0 ? TREADLE_OK : treadle_fail(TREADLE_PEER, "that is enough");
}

/* A fetch that does not come ends by its limit, by what is watched, and when its rank leaves; each time it is cancelled. */
static int wait_for_nothing(treadle_group *group, void *context) {
  treadle_link slow = far_link;
  char to[8];
  const treadle_part part = {0, 8};
  treadle_fetch fetch = {.rank = 1, .parts = &part, .count = 1, .to = to};
  int looks = 50;
  const treadle_watch watch = {stop, &looks};
  (void)context;
  slow.test = never;
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) {
    group->link = &slow;
    double begin = treadle_clock_seconds();
    RANK_FAILS(TREADLE_TIMEOUT, "a fetch: waited 0.",
               treadle_link_fetch(group, &fetch, NULL, begin + 0.1, "a fetch"));
    RANK_TRUE(treadle_clock_seconds() - begin < 5);
    RANK_FAILS(TREADLE_PEER, "enough", treadle_link_fetch(group, &fetch, &watch, begin + 30, "a fetch"));
  }
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 1) {
    treadle_fail(TREADLE_NO_MEMORY, "rank one is tired");
    treadle_group_fail(group);
    return 0;
  }
  RANK_FAILS(TREADLE_PEER, "rank one is tired",
             treadle_link_fetch(group, &fetch, NULL, treadle_group_deadline(group), "a fetch"));
  RANK_TRUE(far_open() == 0);
  return 0;
}

static void test_wait(void **state) {
  (void)state;
  ranks_link = NULL;
  ranks_as_threads(2, 30, 0, wait_for_nothing, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fetches), cmocka_unit_test(test_fetch_fails),
                                     cmocka_unit_test(test_wait)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
