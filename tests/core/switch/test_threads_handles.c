/* Holds and the ranks of a switch: whose window is held, all of them refuse, with the state as it was and no engine unbound; a cancelled arrow;
 * the way back alone; and readers that hold at random moments while the ranks switch under random delays, who find the bytes of the version
 * that they hold. ctest: label=threads timeout=900 */
#include "attach/handle.h"
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

#include "base/clock.h"
#include "base/random.h"
#include "treadle_attach.h"
#include "treadle_testing.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

typedef struct act {
  scene s;
  treadle_switch_options options;
  int held; /* the rank whose window is held */
  treadle_attached *attached;
  uint64_t version;
  char handles[SCENE_RANKS][TREADLE_HANDLE_BYTES];
  size_t bytes[SCENE_RANKS];
  treadle_group *others[SCENE_RANKS]; /* another group of theirs */
  _Atomic int unbinds;
} act;

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  (void)context, (void)window, (void)bytes;
  return TREADLE_OK;
}

static treadle_status unbind_engine(void *context) {
  act *a = context;
  a->unbinds++;
  return TREADLE_OK;
}

static void act_init(act *a, treadle_keep keep) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->options = (treadle_switch_options){.struct_size = sizeof a->options,
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 30,
                                        .keep = keep};
}

static int make(treadle_group *group, act *a, treadle_switch **sw_p) {
  const treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = a, .bind = bind_engine, .unbind = unbind_engine};
  treadle_switch_options options = a->options;
  options.engine = &hooks;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, sw_p));
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(*sw_p)));
  return 0;
}

/* In mode INFER, as it was. */
static int check_stands(treadle_group *group, treadle_switch *sw, const act *a, uint64_t digest) {
  uint64_t after;
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_switch_version(sw) == 1);
  RANK_TRUE(a->unbinds == 0);
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_digest(sw, &after));
  RANK_TRUE(after == digest);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

/* ---- All refuse ---- */

static int refuse_together(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  uint64_t digest;
  bool holder = group->rank == a->held;
  if (make(group, a, &sw)) return 1;
  if (holder) {
    RANK_OK(
        treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[0], sizeof a->handles[0], &a->bytes[0]));
    RANK_OK(treadle_attach(a->handles[0], a->bytes[0], 10, &a->attached));
  }
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (holder) RANK_OK(treadle_attached_hold(a->attached, &a->version));
  RANK_OK(treadle_group_barrier(group));
  sw->terms.timeout_seconds = 0.3;
  for (int i = 0; i < 2; i++) {
    treadle_mode aim = i ? TREADLE_FORWARD : TREADLE_TRAIN;
    treadle_status status =
        aim == TREADLE_TRAIN ? treadle_switch_to_train(sw) : treadle_switch_to_forward(sw);
    RANK_FAILS(holder ? TREADLE_TIMEOUT : TREADLE_PEER, "has held version 1", status);
    if (check_stands(group, sw, a, digest)) return 1;
    if (holder) RANK_TRUE(treadle_attached_is_valid(a->attached));
    RANK_OK(treadle_group_barrier(group));
  }
  sw->terms.timeout_seconds = 30;
  if (holder) RANK_OK(treadle_attached_release(a->attached, a->version));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_TRUE(a->unbinds > 0);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_to_train(sw)); /* and again, with nobody there */
  treadle_switch_destroy(sw);
  if (holder) treadle_detach(a->attached);
  return 0;
}

static void test_refuse_together(void **state) {
  (void)state;
  for (int keep = TREADLE_KEEP_INFER; keep <= TREADLE_KEEP_HOST; keep++)
    for (int held = 0; held < SCENE_RANKS; held += 3) {
      act a;
      act_init(&a, (treadle_keep)keep);
      a.held = held;
      ranks_as_threads(SCENE_RANKS, 30, 77 + (uint64_t)held, refuse_together, &a);
      scene_release(&a.s);
    }
}

/* ---- Cancelled while it waits ---- */

static int cancel_wait(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  uint64_t digest;
  bool holder = group->rank == a->held;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (holder) {
    RANK_OK(
        treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[0], sizeof a->handles[0], &a->bytes[0]));
    RANK_OK(treadle_attach(a->handles[0], a->bytes[0], 10, &a->attached));
    RANK_OK(treadle_attached_hold(a->attached, &a->version));
  }
  RANK_OK(treadle_group_barrier(group));
  double begin = treadle_clock_seconds();
  RANK_OK(treadle_switch_start(sw, TREADLE_TRAIN));
  if (holder) {
    while (treadle_attached_is_valid(a->attached)) sched_yield();
    RANK_OK(treadle_switch_cancel(sw));
  }
  RANK_FAILS(holder ? TREADLE_CANCELLED : TREADLE_PEER, "cancelled", treadle_switch_wait(sw));
  RANK_TRUE(treadle_clock_seconds() - begin < 10);
  if (check_stands(group, sw, a, digest)) return 1;
  treadle_switch_destroy(sw);
  if (holder) treadle_detach(a->attached);
  return 0;
}

static void test_cancel(void **state) {
  act a;
  (void)state;
  act_init(&a, TREADLE_KEEP_INFER);
  a.held = 2;
  ranks_as_threads(SCENE_RANKS, 30, 99, cancel_wait, &a);
  scene_release(&a.s);
}

/* ---- The way back that each rank takes alone ---- */

static int go_back_alone(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  treadle_attached *attached;
  uint64_t version;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[group->rank], sizeof a->handles[0],
                                &a->bytes[group->rank]));
  RANK_OK(treadle_attach(a->handles[group->rank], a->bytes[group->rank], 10, &attached));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_attached_hold(attached, &version));
  sw->terms.timeout_seconds = 0.2;
  RANK_FAILS(TREADLE_TIMEOUT, "has held version 1", treadle_switch_return(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_attached_is_valid(attached) &&
            scene_infers(sw));
  RANK_OK(treadle_attached_release(attached, version));
  RANK_OK(treadle_switch_return(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && !treadle_attached_is_valid(attached));
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_detach(attached);
  return 0;
}

static void test_return(void **state) {
  act a;
  (void)state;
  act_init(&a, TREADLE_KEEP_HOST);
  ranks_as_threads(SCENE_RANKS, 30, 0, go_back_alone, &a);
  scene_release(&a.s);
}

/* ---- Another group ---- */

static int rejoin_held(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  treadle_attached *attached;
  uint64_t version, digest;
  int rank = group->rank;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[rank], sizeof a->handles[0],
                                &a->bytes[rank]));
  RANK_OK(treadle_attach(a->handles[rank], a->bytes[rank], 10, &attached));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (rank == a->held) RANK_OK(treadle_attached_hold(attached, &version));
  RANK_OK(treadle_switch_rejoin(sw, a->others[rank])); /* all in INFER: the window stays, held or not */
  RANK_TRUE(treadle_attached_is_valid(attached) && treadle_attached_version(attached) == 1);
  if (check_stands(a->others[rank], sw, a, digest)) return 1;
  if (rank == a->held) RANK_OK(treadle_attached_release(attached, version));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(treadle_attached_is_valid(attached) && treadle_attached_version(attached) == 2);
  RANK_OK(treadle_attached_hold(attached, &version)); /* by the sheet of before */
  RANK_TRUE(version == 2 && scene_infers(sw));
  size_t bytes;
  const void *window = treadle_attached_window(attached, &bytes);
  RANK_TRUE(memcmp(window, treadle_switch_infer_window(sw), bytes) == 0);
  RANK_OK(treadle_group_barrier(a->others[rank]));
  treadle_switch_destroy(sw);
  treadle_detach(attached);
  return 0;
}

static void test_rejoin(void **state) {
  act a;
  (void)state;
  act_init(&a, TREADLE_KEEP_HOST);
  a.held = 1;
  assert_ok(treadle_group_threads(SCENE_RANKS, 30, a.others));
  ranks_as_threads(SCENE_RANKS, 30, 3, rejoin_held, &a);
  for (int rank = 0; rank < SCENE_RANKS; rank++) treadle_group_close(a.others[rank]);
  scene_release(&a.s);
}

/* ---- A bind that fails undoes a version that nobody was shown ---- */

static treadle_status bind_not(void *context, void *window, size_t bytes) {
  (void)window, (void)bytes;
  return treadle_attached_is_valid(context) ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no room");
}

static int fail_to_bind(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[group->rank], sizeof a->handles[0],
                                &a->bytes[group->rank]));
  treadle_attached *attached;
  RANK_OK(treadle_attach(a->handles[group->rank], a->bytes[group->rank], 10, &attached));
  if (group->rank == 1) {
    sw->engine.hooks.bind = bind_not;
    sw->engine.hooks.context = attached;
  }
  treadle_status status = treadle_switch_to_infer(sw);
  RANK_FAILS(group->rank == 1 ? TREADLE_NO_MEMORY : TREADLE_PEER, "no room", status);
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && !treadle_attached_is_valid(attached));
  sw->engine.hooks.bind = bind_engine;
  sw->engine.hooks.context = a;
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(treadle_attached_is_valid(attached));
  RANK_TRUE(treadle_attached_version(attached) == treadle_switch_version(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_detach(attached);
  return 0;
}

static void test_bind_fails(void **state) {
  act a;
  (void)state;
  act_init(&a, TREADLE_KEEP_HOST);
  ranks_as_threads(SCENE_RANKS, 30, 5, fail_to_bind, &a);
  scene_release(&a.s);
}

/* ---- At random moments ---- */

enum { CYCLES = 40 };

typedef struct readings {
  act a;
  _Atomic int ready, tried, over;
  _Atomic long held, missed, wrong;
} readings;

typedef struct watcher {
  readings *r;
  int rank;
  pthread_t id;
  treadle_random random;
} watcher;

/* The values of a version: each rank fills its train window with one byte, so that all data of an infer window is that
 * byte, and fills are 0. */
static unsigned char byte_of(uint64_t version) { return (unsigned char)(1 + version % 100); }

static bool has_only(const unsigned char *window, size_t bytes, unsigned char value) {
  size_t data = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (window[i] != value && window[i] != 0) return false;
    data += window[i] == value;
  }
  return data > bytes / 2;
}

static void *watch_versions(void *of) {
  watcher *w = of;
  readings *r = w->r;
  treadle_attached *attached;
  size_t bytes;
  while (atomic_load(&r->ready) < SCENE_RANKS) sched_yield();
  const bool is_there =
      treadle_attach(r->a.handles[w->rank], r->a.bytes[w->rank], 20, &attached) == TREADLE_OK;
  if (!is_there) atomic_fetch_add(&r->wrong, 1);
  atomic_fetch_add(&r->tried, 1);
  if (!is_there) return NULL;
  const unsigned char *window = treadle_attached_window(attached, &bytes);
  while (!atomic_load(&r->over)) {
    uint64_t version;
    if (treadle_attached_hold(attached, &version) != TREADLE_OK) {
      atomic_fetch_add(&r->missed, 1);
      (void)treadle_attached_wait(attached, 1, 1e-3, NULL, NULL);
      continue;
    }
    if (!has_only(window, bytes, byte_of(version))) atomic_fetch_add(&r->wrong, 1);
    if (treadle_random_next(&w->random) % 4 == 0)
      nanosleep(&(struct timespec){.tv_nsec = (long)(treadle_random_next(&w->random) >> 32) % 2000000},
                NULL);
    if (!has_only(window, bytes, byte_of(version))) atomic_fetch_add(&r->wrong, 1);
    if (treadle_attached_release(attached, version) != TREADLE_OK) atomic_fetch_add(&r->wrong, 1);
    atomic_fetch_add(&r->held, 1);
  }
  treadle_detach(attached);
  return NULL;
}

static int cycle(treadle_group *group, void *context) {
  readings *r = context;
  act *a = &r->a;
  treadle_switch *sw = NULL;
  size_t bytes;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_handle(sw, TREADLE_INFER_PARAMS, a->handles[group->rank], sizeof a->handles[0],
                                &a->bytes[group->rank]));
  atomic_fetch_add(&r->ready, 1);
  while (atomic_load(&r->tried) < SCENE_RANKS)
    sched_yield(); /* else all could be over before somebody looks */
  char *window = treadle_switch_window(sw, TREADLE_PARAMS, &bytes);
  for (uint64_t version = 1; version <= (uint64_t)test_seeds(CYCLES); version++) {
    memset(window, byte_of(version), bytes);
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(treadle_switch_version(sw) == version);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    RANK_OK(treadle_switch_to_train(sw));
  }
  RANK_OK(treadle_group_barrier(group));
  atomic_store(&r->over, 1);
  treadle_switch_destroy(sw);
  return 0;
}

static void test_random_moments(void **state) {
  (void)state;
  for (int keep = TREADLE_KEEP_INFER; keep <= TREADLE_KEEP_HOST; keep++) {
    readings r;
    watcher watchers[SCENE_RANKS];
    memset(&r, 0, sizeof r);
    act_init(&r.a, (treadle_keep)keep);
    for (int i = 0; i < SCENE_RANKS; i++) {
      watchers[i] = (watcher){.r = &r, .rank = i, .random = {.state = 4711 + (uint64_t)i}};
      assert_int_equal(pthread_create(&watchers[i].id, NULL, watch_versions, &watchers[i]), 0);
    }
    ranks_as_threads(SCENE_RANKS, 60, 31 + (uint64_t)keep, cycle, &r);
    for (int i = 0; i < SCENE_RANKS; i++) pthread_join(watchers[i].id, NULL);
    print_message("%ld holds, %ld at a bad time\n", r.held, r.missed);
    assert_int_equal(r.wrong, 0);
    assert_true(r.held > 0 && r.missed > 0);
    scene_release(&r.a.s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refuse_together), cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_return),          cmocka_unit_test(test_rejoin),
      cmocka_unit_test(test_bind_fails),      cmocka_unit_test(test_random_moments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
