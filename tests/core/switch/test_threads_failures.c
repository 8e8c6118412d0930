/* Everything that can go wrong with a switch while all ranks live: planted faults, refusals, memory that is
 * out, ranks that are late. All ranks fail together, nobody hangs, and what they say of the weights is
 * true. ctest: label=threads timeout=900 */
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

#include <time.h>

typedef struct act {
  scene s;
  treadle_switch_options options; /* cap is the smallest unless said */
  treadle_fault fault;
  int rank; /* whose turn it is */
  uint64_t seed;
  treadle_mode modes[SCENE_RANKS];
  treadle_status statuses[SCENE_RANKS];
  bool back; /* the fault is planted on the way back */
} act;

static treadle_status make(treadle_group *group, act *a, treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_switch_create(group, a->s.train, a->s.infer, &a->options, sw_p));
  (*sw_p)->device = *treadle_device_plain();
  TRY(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(*sw_p)));
out:
  return status;
}

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 60};
}

/* ---- Planted faults ---- */

static int spoiled(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  char words[64];
  uint64_t digest;
  RANK_OK(make(group, a, &sw));
  if (a->back) RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_plant(sw, a->fault, a->rank, a->seed));
  RANK_TRUE(sw->carry.plan->waves > 8 && sw->carry.plan->forward.first_reclaim < sw->carry.plan->waves);

  treadle_mode old = treadle_switch_mode(sw);
  treadle_status status = a->back ? treadle_switch_to_train(sw) : treadle_switch_to_infer(sw);
  RANK_TRUE(status == (group->rank == a->rank ? TREADLE_DIFFERENT : TREADLE_PEER));
  const char *message = treadle_error_message();
  snprintf(words, sizeof words, "coverage: rank %d: tensor '", a->rank);
  RANK_TRUE(strstr(message, words) && strstr(message, "in wave "));
  RANK_TRUE(strstr(message, a->fault == TREADLE_FAULT_DROP     ? "was not written ("
                            : a->fault == TREADLE_FAULT_DOUBLE ? "was written 2 times"
                                                               : "was not written at its place"));
  bool lost = treadle_switch_mode(sw) == TREADLE_LOST;
  RANK_TRUE(strstr(message, lost ? "the weights are lost" : "weights stand as they were"));
  a->modes[group->rank] = treadle_switch_mode(sw);
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(a->modes[0] == a->modes[group->rank]);
  if (lost) {
    RANK_FAILS(TREADLE_STATE, "lost", treadle_switch_to_infer(sw));
    RANK_FAILS(TREADLE_STATE, "lost", treadle_switch_to_train(sw));
    RANK_FAILS(TREADLE_STATE, "lost", treadle_switch_digest(sw, &digest));
  } else {
    RANK_TRUE(treadle_switch_mode(sw) == old);
  }
  treadle_switch_destroy(sw);

  RANK_OK(make(group, a, &sw)); /* the group goes on */
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_faults(void **state) {
  act a;
  (void)state;
  act_init(&a);
  for (int i = 0; i < 48; i += test_step(48)) {
    a.fault = (treadle_fault)(TREADLE_FAULT_DROP + i % 3);
    a.rank = i / 3 % SCENE_RANKS;
    a.back = i / 12 % 2;
    a.seed = (uint64_t)i * 7919;
    ranks_as_threads(SCENE_RANKS, 60, (uint64_t)i, spoiled, &a);
  }
  scene_release(&a.s);
}

/* With room for both windows no page is reclaimed: then a failure leaves the weights, and the same switch
 * works at the next try. */
static int spoiled_gently(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  RANK_OK(make(group, a, &sw));
  RANK_TRUE(sw->carry.plan->forward.first_reclaim == sw->carry.plan->waves);
  for (int i = 0; i < 3; i++) {
    RANK_OK(treadle_switch_plant(sw, (treadle_fault)(TREADLE_FAULT_DROP + i), i, a->seed));
    RANK_TRUE(treadle_switch_to_infer(sw) != TREADLE_OK);
    RANK_TRUE(strstr(treadle_error_message(), "the train weights stand as they were"));
    RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && treadle_switch_version(sw) == 0);
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  }
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_TRUE(treadle_switch_version(sw) == 1);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_gentle_faults(void **state) {
  act a;
  (void)state;
  act_init(&a);
  a.options.cap_bytes = 64 << 20;
  for (a.seed = 1; a.seed <= test_seeds(5); a.seed++)
    ranks_as_threads(SCENE_RANKS, 60, a.seed, spoiled_gently, &a);
  scene_release(&a.s);
}

/* ---- Late ranks ---- */

static int late(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  RANK_OK(make(group, a, &sw));
  sw->terms.timeout_seconds = 1;
  if (group->rank == a->rank) { /* so late that the others have given up */
    while (treadle_outcome_check(group, treadle_epoch_now(group) + 1) == TREADLE_OK)
      nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    RANK_FAILS(TREADLE_PEER, "weights stand", treadle_switch_to_infer(sw));
  } else {
    treadle_status status =
        treadle_switch_to_infer(sw); /* one finds out, the others are told or find out too */
    RANK_TRUE(status == TREADLE_TIMEOUT || status == TREADLE_PEER);
    RANK_TRUE(strstr(treadle_error_message(), "the train weights stand"));
  }
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  sw->terms.timeout_seconds = 60;
  RANK_OK(treadle_switch_to_infer(sw)); /* together again */
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_late(void **state) {
  act a;
  (void)state;
  act_init(&a);
  for (a.rank = 0; a.rank < 2; a.rank++) ranks_as_threads(SCENE_RANKS, 60, 0, late, &a);
  scene_release(&a.s);
}

/* ---- Refusals ---- */

static int try_options(treadle_group *group, act *a, treadle_status wanted, const char *part) {
  treadle_switch *sw = NULL;
  RANK_FAILS(wanted, part, treadle_switch_create(group, a->s.train, a->s.infer, &a->options, &sw));
  RANK_TRUE((sw != NULL) == (wanted == TREADLE_OK));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static int refused(treadle_group *group, void *context) {
  act a = *(act *)context;
  int64_t bytes[2] = {0};
  for (int rank = 0; rank < SCENE_RANKS; rank++)
    for (int mode = 0; mode < 2; mode++) {
      int64_t window = (int64_t)treadle_layout_window_bytes(mode ? a.s.infer : a.s.train, rank);
      window = (window + SCENE_PAGE - 1) / SCENE_PAGE * SCENE_PAGE;
      if (window > bytes[0]) bytes[0] = window;
    }
  size_t bound = (size_t)(bytes[0] + a.s.cap_min);
  treadle_switch_options good = a.options;
  int bad = try_options(group, &a, TREADLE_OK, NULL);
  a.options.cap_bytes--;
  bad += try_options(group, &a, TREADLE_REFUSED, "cap_min");
  a.options = good;
  a.options.budget_bytes = bound; /* exactly */
  bad += try_options(group, &a, TREADLE_OK, NULL);
  a.options.budget_bytes = bound - SCENE_PAGE;
  bad += try_options(group, &a, TREADLE_REFUSED, "budget");
  a.options.cap_bytes = 0;
  a.options.budget_bytes = bound;
  bad += try_options(group, &a, TREADLE_OK, NULL);
  a.options.budget_bytes = bound - 1;
  bad += try_options(group, &a, TREADLE_REFUSED, "give at least");
  a.options.budget_bytes = 1;
  bad += try_options(group, &a, TREADLE_REFUSED, "give at least");
  a.options = good;
  a.options.page_bytes = 5000;
  bad += try_options(group, &a, TREADLE_REFUSED, "page size 5000");
  a.options = good;
  if (group->rank == 1) a.options.page_bytes = 8192;
  bad += try_options(group, &a, TREADLE_REFUSED, "different options");
  a.options = good;
  if (group->rank == 2) a.options.page_bytes = 7;
  bad += try_options(group, &a, TREADLE_REFUSED, "rank 2: switch: page size 7");
  a.options = good;
  a.options.memory.kind = TREADLE_MEMORY_CUDA;
  bad += try_options(group, &a, TREADLE_REFUSED, "cuda: ");
  a.options = good;
  if (group->rank == 1) a.options.memory.device = 1;
  bad += try_options(group, &a, TREADLE_REFUSED, "rank 1: memory of kind 'host' has one device, 0");
  a.options = good;
  if (group->rank == 3) a.s.infer = a.s.other;
  bad += try_options(group, &a, TREADLE_REFUSED, NULL);
  return bad;
}

static void test_refusals(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, refused, &a);
  scene_release(&a.s);
}

/* The layouts differ in a way that only the digests show. */
static int other_plan(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  treadle_switch_options options = a->options;
  options.cap_bytes = 0;
  RANK_FAILS(
      TREADLE_REFUSED, "rank 2 has another plan than rank 0",
      treadle_switch_create(group, a->s.train, group->rank == 2 ? a->s.other : a->s.infer, &options, &sw));
  RANK_TRUE(!sw);
  return 0;
}

static void test_digest_mismatch(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, other_plan, &a);
  scene_release(&a.s);
}

static int lossy(treadle_group *group, void *context) {
  act *a = context;
  treadle_layout *train;
  treadle_switch *sw = NULL;
  treadle_switch_options options = a->options;
  options.cap_bytes = 0;
  RANK_OK(treadle_layout_create(a->s.model, "megatron:tp=2,pp=2,dtype=fp32", SCENE_RANKS, NULL, &train));
  RANK_FAILS(TREADLE_REFUSED, "not bit-exact",
             treadle_switch_create(group, train, a->s.infer, &options, &sw));
  options.one_way = true;
  RANK_OK(treadle_switch_create(group, train, a->s.infer, &options, &sw));
  RANK_OK(treadle_layout_load(train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_holds(a->s.infer, group->rank, treadle_switch_infer_window(sw)));
  RANK_FAILS(TREADLE_STATE, "one-way", treadle_switch_to_train(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_layout_destroy(train);
  return 0;
}

static void test_lossy(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, lossy, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_faults),   cmocka_unit_test(test_gentle_faults),   cmocka_unit_test(test_late),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_digest_mismatch), cmocka_unit_test(test_lossy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
