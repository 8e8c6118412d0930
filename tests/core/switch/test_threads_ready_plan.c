/* Plans that were made before and are given to the switch: it runs that very one, or says why it cannot. ctest: label=threads */
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

typedef struct act {
  scene s;
  treadle_plan_options plan;      /* of all ranks; waves are those of a switch unless said */
  treadle_switch_options options; /* without a plan */
} act;

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->plan = (treadle_plan_options){.struct_size = sizeof a->plan,
                                   .page_bytes = SCENE_PAGE,
                                   .cap_bytes = (size_t)a->s.cap_min + 65536,
                                   .waves = 40};
  a->options =
      (treadle_switch_options){.struct_size = sizeof(treadle_switch_options), .timeout_seconds = 60};
}

static bool same_ops(const treadle_direction *a, const treadle_direction *b) {
  return a->ops.count == b->ops.count &&
         (a->ops.count == 0 ||
          memcmp(a->ops.items, b->ops.items, a->ops.count * sizeof *a->ops.items) == 0);
}

/* Makes the switch with a plan of these options, and destroys both. NULL: it works, through a cycle. */
static int try_plan(treadle_group *group, const act *a, const treadle_layout *const layouts[2], int rank,
                    const char *part) {
  treadle_plan *plan;
  treadle_switch *sw = NULL;
  treadle_switch_options options = a->options;
  RANK_OK(treadle_plan_create(layouts[0], layouts[1], rank, &a->plan, &plan));
  options.plan = plan;
  RANK_FAILS(part ? TREADLE_REFUSED : TREADLE_OK, part,
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_TRUE((sw == NULL) == (part != NULL));
  if (sw) {
    RANK_TRUE(sw->carry.plan != plan && sw->carry.plan->digest == plan->digest &&
              sw->carry.plan->waves == plan->waves);
    RANK_TRUE(a->plan.alias ||
              (same_ops(&sw->carry.plan->forward, &plan->forward) &&
               same_ops(&sw->carry.plan->back, &plan->back))); /* alias places peers' windows */
    treadle_plan_destroy(plan);
    plan = NULL; /* it may go */
    RANK_OK(treadle_switch_rejoin(sw, group));
    RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(scene_infers(sw));
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_plan_destroy(plan);
  return 0;
}

static int works(treadle_group *group, void *context) {
  act a = *(act *)context;
  treadle_layout *train, *infer;
  const treadle_layout *const same[2] = {a.s.train, a.s.infer};
  if (try_plan(group, &a, same, group->rank, NULL)) return 1;
  a.plan.waves = 0; /* the cap is larger than cap_min of all ranks, so they choose alike */
  a.options.page_bytes = SCENE_PAGE;
  a.options.cap_bytes = a.plan.cap_bytes;
  if (try_plan(group, &a, same, group->rank, NULL)) return 1;
  a.plan.keep_params = true;
  a.options.offload_train_param = TREADLE_OFF;
  if (try_plan(group, &a, same, group->rank, NULL)) return 1;
  a.plan.alias = a.options.alias = true;
  if (try_plan(group, &a, same, group->rank, NULL)) return 1;
  RANK_OK(treadle_layout_create(a.s.model, treadle_layout_text(a.s.train), SCENE_RANKS, NULL, &train));
  RANK_OK(treadle_layout_create(a.s.model, treadle_layout_text(a.s.infer), SCENE_RANKS, NULL, &infer));
  const treadle_layout *const alike[2] = {train, infer}; /* other objects that say the same */
  if (try_plan(group, &a, alike, group->rank, NULL)) return 1;
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  return 0;
}

static void test_works(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, works, &a);
  scene_release(&a.s);
}

static int refused(treadle_group *group, void *context) {
  const act good = *(act *)context;
  const treadle_layout *const same[2] = {good.s.train, good.s.infer};
  const treadle_layout *const other[2] = {good.s.train, good.s.other};
  act a = good;
  int next = (group->rank + 1) % SCENE_RANKS, bad = 0;
  bad += try_plan(group, &a, same, next,
                  "rank 0: switch: the plan that was given is of rank 1, this is rank 0");
  bad += try_plan(group, &a, other, group->rank, "to 'vllm:tp=2', the switch from");
  a.options.page_bytes = 2 * SCENE_PAGE;
  bad += try_plan(group, &a, same, group->rank, "page_bytes is 8192, and the plan that was given has 4096");
  a = good;
  a.options.cap_bytes = a.plan.cap_bytes + 1;
  bad += try_plan(group, &a, same, group->rank, "cap_bytes is");
  a = good;
  a.options.alias = true;
  bad += try_plan(group, &a, same, group->rank, "made without alias, the switch with it");
  a = good;
  a.plan.alias = true;
  bad += try_plan(group, &a, same, group->rank, "made with alias, the switch without it");
  a = good;
  a.options.offload_train_param = TREADLE_OFF;
  bad += try_plan(group, &a, same, group->rank,
                  "params leave the device (keep_params), in the switch they stay");
  a = good;
  a.plan.keep_params = true;
  bad += try_plan(group, &a, same, group->rank, "params stay on the device (keep_params)");
  a = good;
  a.plan.waves += group->rank == 2;
  bad += try_plan(group, &a, same, group->rank, "the waves of a plan");
  a = good;
  a.plan.cap_bytes += (size_t)(group->rank == 1) * SCENE_PAGE;
  bad += try_plan(group, &a, same, group->rank, "different options (page size, cap");
  a = good;
  a.plan.waves = 1;
  bad += try_plan(group, &a, same, group->rank, "with the 1 wave of the plan that was given");
  a = good;
  a.options.budget_bytes = 1;
  bad += try_plan(group, &a, same, group->rank, "the budget of 1 bytes is too small");
  return bad;
}

static void test_refusals(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, refused, &a);
  scene_release(&a.s);
}

/* One rank has none. */
static int alone(treadle_group *group, void *context) {
  act *a = context;
  treadle_plan *plan;
  treadle_switch *sw = NULL;
  treadle_switch_options options = a->options;
  RANK_OK(treadle_plan_create(a->s.train, a->s.infer, group->rank, &a->plan, &plan));
  if (group->rank != 3) options.plan = plan;
  options.page_bytes = SCENE_PAGE;
  options.cap_bytes = a->plan.cap_bytes;
  RANK_FAILS(TREADLE_REFUSED, "the waves of a plan",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_plan_destroy(plan);
  return 0;
}

static void test_alone(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, alone, &a);
  scene_release(&a.s);
}

/* A plan that is not what its layouts give. */
static int forged(treadle_group *group, void *context) {
  act *a = context;
  treadle_plan *plan;
  treadle_switch *sw = NULL;
  treadle_switch_options options = a->options;
  RANK_OK(treadle_plan_create(a->s.train, a->s.infer, group->rank, &a->plan, &plan));
  plan->back.coverage += group->rank == 1;
  options.plan = plan;
  RANK_FAILS(TREADLE_DIFFERENT, "rank 1: the plan of digest",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_plan_destroy(plan);
  return 0;
}

static void test_forged(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, forged, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_works),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_alone),
      cmocka_unit_test(test_forged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
