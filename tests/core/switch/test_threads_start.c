/* Arrows that are started, tested, waited for and cancelled: what is refused meanwhile, who hears what, and what a cancelled
 * switch leaves, at every point where one can be cancelled and at a thousand random moments. ctest: label=threads timeout=600 */
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include "base/random.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { GRADS = 40000, OPTIMIZER = 120001, ROUNDS = 125 };

typedef struct act {
  scene s;
  treadle_switch_options options;
  treadle_injection injection; /* of `rank` */
  int rank;
  bool back;
  uint64_t seed;
  treadle_status statuses[SCENE_RANKS];
  treadle_mode modes[SCENE_RANKS];
  uint64_t digest;
  _Atomic int cancels, arrivals; /* cancels that came in time; arrows that were taken */
  _Atomic int losses;
} act;

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 60,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .offload_train_optimizer = TREADLE_ON,
                                        .keep = TREADLE_KEEP_HOST,
                                        .host = true};
}

static treadle_status make(treadle_group *group, const act *a, const treadle_engine_hooks *engine,
                           treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  treadle_switch_options options = a->options;
  options.engine = engine;
  size_t bytes;
  TRY(treadle_switch_create(group, a->s.train, a->s.infer, &options, sw_p));
  TRY(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(*sw_p)));
  char *optimizer = treadle_switch_window(*sw_p, TREADLE_OPTIMIZER, &bytes);
  for (size_t i = 0; i < bytes; i++) optimizer[i] = (char)(i * 7 + (size_t)group->rank);
out:
  return status;
}

/* In mode TRAIN: is all of the training state what it was? */
static bool is_intact(treadle_switch *sw, const act *a) {
  size_t bytes, wrong = 0;
  const char *optimizer = treadle_switch_window(sw, TREADLE_OPTIMIZER, &bytes);
  for (size_t i = 0; i < bytes; i++) wrong += optimizer[i] != (char)(i * 7 + (size_t)sw->group->rank);
  return wrong == 0 && scene_holds(a->s.train, sw->group->rank, treadle_switch_train_window(sw));
}

static treadle_status go(treadle_switch *sw, bool started, treadle_mode mode) {
  treadle_status status = TREADLE_OK;
  if (!started) return mode == TREADLE_INFER ? treadle_switch_to_infer(sw) : treadle_switch_to_train(sw);
  TRY(treadle_switch_start(sw, mode));
  status = treadle_switch_wait(sw);
out:
  return status;
}

static void pause_for(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

/* ---- What may be called meanwhile ---- */

typedef struct engine {
  treadle_switch *sw;
  pthread_t thread;
  _Atomic int called, go_on;
  int bad;
} engine;

/* Within a started arrow: it holds the arrow up until it may go on. */
static int call_from_within(engine *e) {
  treadle_switch *sw = e->sw;
  bool done = true;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_FAILS(TREADLE_STATE, "a switch is running", treadle_switch_start(sw, TREADLE_TRAIN));
  RANK_FAILS(TREADLE_STATE, "a switch is running", treadle_switch_to_train(sw));
  RANK_FAILS(TREADLE_STATE, "would wait for itself", treadle_switch_wait(sw));
  RANK_OK(treadle_switch_test(sw, &done));
  RANK_TRUE(!done);
  treadle_switch_destroy(sw);
  RANK_TRUE(strstr(treadle_error_message(), "destroy: a switch is running"));
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.copied_bytes > 0 && treadle_switch_mode(sw) == TREADLE_INFER);
  return 0;
}

static treadle_status bind_slowly(void *context, void *window, size_t bytes) {
  engine *e = context;
  (void)window, (void)bytes;
  e->thread = pthread_self();
  e->bad = call_from_within(e);
  atomic_store(&e->called, 1);
  while (!atomic_load(&e->go_on)) pause_for(100000);
  return TREADLE_OK;
}

static int call_beside(treadle_switch *sw, treadle_group *group) {
  uint64_t digest, sums[1];
  bool done = true;
  RANK_OK(treadle_switch_test(sw, &done));
  RANK_TRUE(!done);
  RANK_FAILS(TREADLE_STATE, "that to infer was started", treadle_switch_start(sw, TREADLE_TRAIN));
  RANK_FAILS(TREADLE_STATE, "switch to train: a switch is running", treadle_switch_to_train(sw));
  RANK_FAILS(TREADLE_STATE, "a switch is running", treadle_switch_to_infer(sw));
  RANK_FAILS(TREADLE_STATE, "trim: a switch is running", treadle_switch_trim(sw));
  RANK_FAILS(TREADLE_STATE, "digest: a switch is running", treadle_switch_digest(sw, &digest));
  RANK_FAILS(TREADLE_STATE, "digest: a switch is running", treadle_switch_digest_entries(sw, 0, sums));
  RANK_FAILS(TREADLE_STATE, "rejoin: a switch is running", treadle_switch_rejoin(sw, group));
  RANK_FAILS(TREADLE_STATE, "return: a switch is running", treadle_switch_return(sw));
  RANK_FAILS(TREADLE_STATE, "plant: a switch is running",
             treadle_switch_plant(sw, TREADLE_FAULT_DROP, group->rank, 0));
  RANK_FAILS(TREADLE_STATE, "inject: a switch is running",
             treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_ENOMEM, TREADLE_AT_WAVE, 0}));
  RANK_FAILS(TREADLE_STATE, "register: a switch is running",
             treadle_switch_register(sw, TREADLE_GRADS, 0, sums, sizeof sums));
  treadle_switch_accumulate(sw, true);
  RANK_TRUE(strstr(treadle_error_message(), "accumulate: a switch is running") && !sw->accumulating);
  treadle_switch_noise(sw, 1);
  RANK_TRUE(strstr(treadle_error_message(), "noise: a switch is running"));
  return 0;
}

static int meanwhile(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  bool done = true;
  engine e = {0};
  const treadle_engine_hooks hooks = {.struct_size = sizeof hooks, .context = &e, .bind = bind_slowly};
  RANK_OK(make(group, a, &hooks, &sw));
  e.sw = sw;
  RANK_FAILS(TREADLE_STATE, "no switch was started", treadle_switch_wait(sw));
  RANK_FAILS(TREADLE_STATE, "no switch was started", treadle_switch_test(sw, &done));
  RANK_TRUE(!done);
  RANK_FAILS(TREADLE_STATE, "no switch is under way", treadle_switch_cancel(sw));
  RANK_FAILS(TREADLE_REFUSED, "none to go to", treadle_switch_start(sw, TREADLE_LOST));
  RANK_FAILS(TREADLE_STATE, "there is no way to forward", treadle_switch_start(sw, TREADLE_FORWARD));
  RANK_OK(treadle_switch_start(sw, TREADLE_TRAIN)); /* it is there */
  RANK_OK(treadle_switch_wait(sw));

  RANK_OK(treadle_switch_start(sw, TREADLE_INFER));
  while (!atomic_load(&e.called)) pause_for(100000);
  if (call_beside(sw, group)) return 1;
  atomic_store(&e.go_on, 1);
  for (done = false; !done; pause_for(100000)) RANK_OK(treadle_switch_test(sw, &done));
  RANK_FAILS(TREADLE_STATE, "wait for it", treadle_switch_cancel(sw));
  RANK_FAILS(TREADLE_STATE, "was started, and has ended", treadle_switch_to_train(sw));
  RANK_OK(treadle_switch_wait(sw));
  RANK_TRUE(!e.bad && !pthread_equal(e.thread, pthread_self()));
  RANK_FAILS(TREADLE_STATE, "no switch was started", treadle_switch_wait(sw));
  RANK_FAILS(TREADLE_STATE, "no switch is under way", treadle_switch_cancel(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && treadle_switch_version(sw) == 1);
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_OK(go(sw, group->rank % 2, TREADLE_TRAIN)); /* some start it, some call it */
  RANK_TRUE(is_intact(sw, a));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_meanwhile(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, meanwhile, &a);
  scene_release(&a.s);
}

/* ---- Hooks of a call are called in the caller's thread, and may cancel ---- */

static treadle_status note_thread(void *context, void *window, size_t bytes) {
  engine *e = context;
  (void)window, (void)bytes;
  e->thread = pthread_self();
  if (atomic_load(&e->go_on)) return TREADLE_OK;
  e->bad = treadle_switch_cancel(e->sw) != TREADLE_OK || treadle_switch_cancel(e->sw) != TREADLE_OK;
  return TREADLE_OK;
}

static int from_hook(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e = {.go_on = group->rank != a->rank};
  const treadle_engine_hooks hooks = {.struct_size = sizeof hooks, .context = &e, .bind = note_thread};
  RANK_OK(make(group, a, &hooks, &sw));
  e.sw = sw;
  treadle_status status = treadle_switch_to_infer(sw);
  RANK_TRUE(status == (group->rank == a->rank ? TREADLE_CANCELLED : TREADLE_PEER));
  RANK_TRUE(strstr(treadle_error_message(), "the switch was cancelled on rank 2"));
  RANK_TRUE(strstr(treadle_error_message(), "the train weights stand as they were"));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && is_intact(sw, a));
  atomic_store(&e.go_on, 1);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(!e.bad && pthread_equal(e.thread, pthread_self()));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_from_hook(void **state) {
  act a;
  (void)state;
  act_init(&a);
  a.rank = 2;
  ranks_as_threads(SCENE_RANKS, 60, 0, from_hook, &a);
  scene_release(&a.s);
}

/* ---- The message of a failure ---- */

static int spoiled(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  RANK_OK(make(group, a, NULL, &sw));
  RANK_OK(treadle_switch_plant(sw, TREADLE_FAULT_DROP, 1, a->seed));
  RANK_OK(treadle_switch_start(sw, TREADLE_INFER));
  RANK_FAILS(group->rank == 1 ? TREADLE_DIFFERENT : TREADLE_PEER, "coverage: rank 1: tensor '",
             treadle_switch_wait(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && is_intact(sw, a));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_message(void **state) {
  act a;
  (void)state;
  act_init(&a);
  for (a.seed = 0; a.seed < 3; a.seed++) ranks_as_threads(SCENE_RANKS, 60, 0, spoiled, &a);
  scene_release(&a.s);
}

/* ---- Cancelled at every point ---- */

static treadle_status bind_well(void *context, void *window, size_t bytes) {
  (void)context, (void)window, (void)bytes;
  return TREADLE_OK;
}
static treadle_status unbind_well(void *context) {
  (void)context;
  return TREADLE_OK;
}
static const treadle_engine_hooks well = {
    .struct_size = sizeof(treadle_engine_hooks), .bind = bind_well, .unbind = unbind_well};

/* What stands after a cancelled arrow is what the header says, and the ranks go on from there. */
static int look_and_go_on(treadle_switch *sw, act *a, treadle_mode old) {
  treadle_group *group = sw->group;
  treadle_mode mode = treadle_switch_mode(sw);
  bool kept = a->options.keep == TREADLE_KEEP_HOST;
  uint64_t digest;
  char stands[64];
  snprintf(stands, sizeof stands, "the %s weights stand as they were", treadle_mode_text(mode));
  const char *message = treadle_error_message();
  RANK_TRUE(strstr(message, "the switch was cancelled on rank"));
  RANK_TRUE(strstr(message, mode == TREADLE_LOST ? "the weights are lost" : stands) ||
            (mode == TREADLE_INFER && strstr(message, "nothing is bound")));
  a->modes[group->rank] = mode;
  RANK_OK(treadle_group_barrier(group));
  for (int rank = 0; rank < SCENE_RANKS; rank++) RANK_TRUE(a->modes[rank] == mode);
  RANK_TRUE(mode == TREADLE_LOST ? !kept : mode == old || mode == TREADLE_INFER);
  if (mode == TREADLE_LOST) {
    atomic_fetch_add(&a->losses, group->rank == 0);
    return 0;
  }
  RANK_OK(treadle_switch_digest(sw, &digest));
  RANK_TRUE(digest == a->digest);
  if (mode == TREADLE_TRAIN) RANK_TRUE(is_intact(sw, a));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(is_intact(sw, a));
  return 0;
}

static bool is_too_late(const treadle_injection *injection) {
  return injection->point == TREADLE_AT_KV || injection->point == TREADLE_AT_LOAD;
}

static int cancelled(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_mode old = a->back ? TREADLE_INFER : TREADLE_TRAIN, aim = a->back ? TREADLE_TRAIN : TREADLE_INFER;
  uint64_t digest;
  RANK_OK(make(group, a, &well, &sw));
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (group->rank == 0) a->digest = digest;
  if (a->back) RANK_OK(treadle_switch_to_infer(sw));
  if (group->rank == a->rank) RANK_OK(treadle_switch_inject(sw, a->injection));
  treadle_status status = go(sw, (a->rank + group->rank) % 2, aim);
  if (is_too_late(&a->injection)) {
    RANK_TRUE(status == TREADLE_OK && treadle_switch_mode(sw) == aim);
    RANK_OK(treadle_switch_digest(sw, &digest));
    RANK_TRUE(digest == a->digest);
  } else {
    RANK_TRUE(status == (group->rank == a->rank ? TREADLE_CANCELLED : TREADLE_PEER));
    if (look_and_go_on(sw, a, old)) return 1;
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void cancel_at(act *a, treadle_injection_point point, int32_t wave) {
  a->injection = (treadle_injection){TREADLE_INJECT_CANCEL, point, wave};
  a->rank = (a->rank + 1) % SCENE_RANKS;
  ranks_as_threads(SCENE_RANKS, 60, 0, cancelled, a);
}

static void test_every_point(void **state) {
  static const treadle_injection_point there[] = {TREADLE_AT_ENTRY, TREADLE_AT_OFFLOAD,   TREADLE_AT_COMMIT,
                                                  TREADLE_AT_BIND,  TREADLE_AT_COMMITTED, TREADLE_AT_KV},
                                       back[] = {TREADLE_AT_ENTRY, TREADLE_AT_COMMIT, TREADLE_AT_LOAD};
  act a;
  (void)state;
  act_init(&a);
  a.options.cap_bytes = (size_t)a.s.cap_min + 256 * 1024; /* few waves */
  const int32_t waves = treadle_plan_waves(a.s.train, a.s.infer, SCENE_PAGE, (int64_t)a.options.cap_bytes);
  assert_in_range(waves, 3, 20);
  for (int keep = 0; keep < 2; keep++) {
    a.options.keep = keep ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
    a.back = false;
    for (size_t i = 0; i < TEST_COUNT(there); i++) cancel_at(&a, there[i], 0);
    for (int32_t wave = 0; wave < waves; wave++) cancel_at(&a, TREADLE_AT_WAVE, wave);
    a.back = true;
    for (size_t i = 0; i < TEST_COUNT(back); i++) cancel_at(&a, back[i], 0);
    for (int32_t wave = 0; !keep && wave < waves; wave++) cancel_at(&a, TREADLE_AT_WAVE, wave);
    assert_int_equal(atomic_load(&a.losses) > 0, !keep); /* the last waves reclaim */
    atomic_store(&a.losses, 0);
  }
  scene_release(&a.s);
}

/* ---- Cancelled at random ---- */

/* One or several ranks cancel, after some time, what all have started or called. */
static treadle_status cancel_soon(treadle_switch *sw, treadle_random *mine, treadle_mode aim,
                                  bool cancels) {
  treadle_status status = TREADLE_OK;
  if (!cancels) return go(sw, treadle_random_below(mine, 2), aim);
  TRY(treadle_switch_start(sw, aim));
  bool ended =
      treadle_random_below(mine, 8) > 0; /* else it is too late for certain, however slow this machine is */
  if (ended) pause_for((long)treadle_random_below(mine, 1L << treadle_random_between(mine, 1, 26)));
  while (!ended) {
    TRY(treadle_switch_test(sw, &ended));
    pause_for(50000);
  }
  status = treadle_switch_cancel(sw);
  if (status != TREADLE_OK && !strstr(treadle_error_message(), "it has ended")) return status;
  status = treadle_switch_wait(sw);
out:
  return status;
}

static int judge(const act *a, int rank, treadle_mode aim, treadle_switch *sw, treadle_mode old) {
  bool all_well = true;
  for (int r = 0; r < SCENE_RANKS; r++) all_well = all_well && a->statuses[r] == TREADLE_OK;
  for (int r = 0; r < SCENE_RANKS; r++) {
    treadle_status status = a->statuses[r];
    RANK_TRUE(all_well || status == TREADLE_CANCELLED || status == TREADLE_PEER);
  }
  RANK_TRUE(treadle_switch_mode(sw) == (all_well ? aim : old));
  RANK_TRUE(a->modes[rank] == a->modes[0]);
  return 0;
}

static int at_random(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_random common = {a->seed}, mine = {a->seed ^ (uint64_t)(group->rank + 1) << 32};
  uint64_t first, digest;
  int rounds = (int)test_seeds(ROUNDS), in_time = 0, arrived = 0;
  RANK_OK(make(group, a, treadle_random_below(&common, 2) ? &well : NULL, &sw));
  RANK_OK(treadle_switch_digest(sw, &first));
  for (int round = 0; round < rounds; round++) {
    int who = (int)treadle_random_below(&common, SCENE_RANKS);
    bool both = treadle_random_below(&common, 5) == 0;
    treadle_mode old = treadle_switch_mode(sw), aim = old == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
    RANK_OK(treadle_group_barrier(group));
    treadle_status status = cancel_soon(sw, &mine, aim, group->rank == who || (both && group->rank == 0));
    a->statuses[group->rank] = status;
    a->modes[group->rank] = treadle_switch_mode(sw);
    RANK_OK(treadle_group_barrier(group));
    if (judge(a, group->rank, aim, sw, old)) return 1;
    in_time += status == TREADLE_CANCELLED;
    arrived += status == TREADLE_OK;
    RANK_OK(treadle_switch_digest(sw, &digest));
    RANK_TRUE(digest == first);
    if (round % 8 == 0 && treadle_switch_mode(sw) == TREADLE_TRAIN) RANK_TRUE(is_intact(sw, a));
  }
  atomic_fetch_add(&a->cancels, in_time);
  if (group->rank == 0) atomic_fetch_add(&a->arrivals, arrived);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_at_random(void **state) {
  act a;
  int arrows = 4 * (int)test_seeds(ROUNDS);
  (void)state;
  act_init(&a);
  for (a.seed = 20251; a.seed < 20255; a.seed++) ranks_as_threads(SCENE_RANKS, 60, a.seed, at_random, &a);
  print_message("%d cancels in %d arrows came in time; %d arrows were taken\n", atomic_load(&a.cancels),
                arrows, atomic_load(&a.arrivals));
  assert_true(atomic_load(&a.cancels) >= arrows / 20 && atomic_load(&a.arrivals) >= arrows / 50);
  scene_release(&a.s);
}

/* ---- Local arrows, and the end ---- */

static int local(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  RANK_OK(make(group, a, NULL, &sw));
  for (int i = 0; i < 30; i++) {
    RANK_OK(treadle_switch_start(sw, TREADLE_HOST));
    if (i % 3 == 1) sched_yield();
    treadle_status said = i % 3 == 2 ? TREADLE_OK : treadle_switch_cancel(sw);
    RANK_TRUE(said == TREADLE_OK || said == TREADLE_STATE);
    treadle_status status = treadle_switch_wait(sw);
    RANK_TRUE(status == TREADLE_OK || status == TREADLE_CANCELLED);
    RANK_TRUE(treadle_switch_mode(sw) == (status == TREADLE_OK ? TREADLE_HOST : TREADLE_TRAIN));
    if (status != TREADLE_OK) RANK_TRUE(strstr(treadle_error_message(), "the train weights stand"));
    if (status == TREADLE_OK) RANK_OK(go(sw, true, TREADLE_TRAIN));
    RANK_TRUE(is_intact(sw, a));
  }
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_OK(treadle_group_barrier(group));

  if (group->rank == 3) { /* ended while it runs: the others are told */
    RANK_OK(treadle_switch_start(sw, TREADLE_TRAIN));
    treadle_switch_destroy(sw);
    return 0;
  }
  treadle_status status = treadle_switch_to_train(sw);
  RANK_TRUE(status == TREADLE_OK || status == TREADLE_PEER);
  treadle_switch_destroy(sw);
  return 0;
}

static void test_local(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, local, &a);
  scene_release(&a.s);
}

/* ---- Who reads meanwhile ---- */

typedef struct reader {
  const treadle_switch *sw;
  size_t copied, filled; /* of a whole switch */
  _Atomic bool end;
  int reads, bad;
} reader;

static void *read_on(void *context) {
  reader *r = context;
  uint64_t version = 0;
  while (!atomic_load(&r->end)) {
    treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
    treadle_switch_get_stats(r->sw, &stats);
    treadle_mode mode = treadle_switch_mode(r->sw);
    uint64_t now = treadle_switch_version(r->sw);
    r->bad += mode != TREADLE_TRAIN && mode != TREADLE_INFER;
    r->bad += now < version || stats.copied_bytes > r->copied || stats.filled_bytes > r->filled;
    r->bad += stats.pulled_bytes > stats.copied_bytes || !(stats.wait_seconds >= 0);
    r->bad +=
        treadle_switch_plan(r->sw) == NULL || treadle_switch_window(r->sw, TREADLE_PARAMS, NULL) == NULL;
    version = now;
    r->reads++;
  }
  return NULL;
}

static int watched(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  pthread_t thread;
  RANK_OK(make(group, a, &well, &sw));
  RANK_OK(treadle_switch_to_infer(sw));
  treadle_switch_get_stats(sw, &stats);
  reader r = {.sw = sw, .copied = stats.copied_bytes, .filled = stats.filled_bytes};
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(pthread_create(&thread, NULL, read_on, &r) == 0);
  for (int cycle = 0; cycle < 20; cycle++) {
    RANK_OK(go(sw, cycle % 2, TREADLE_INFER));
    RANK_OK(go(sw, cycle % 3 == 0, TREADLE_TRAIN));
  }
  atomic_store(&r.end, true);
  pthread_join(thread, NULL);
  RANK_TRUE(r.bad == 0 && r.reads > 0);
  RANK_TRUE(treadle_switch_version(sw) == 21);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_readers(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, watched, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_meanwhile),   cmocka_unit_test(test_from_hook), cmocka_unit_test(test_message),
      cmocka_unit_test(test_every_point), cmocka_unit_test(test_at_random), cmocka_unit_test(test_local),
      cmocka_unit_test(test_readers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
