/* Updates between nodes of which only what has changed travels: every bit is right, and so is the number of bytes, over many updates, for
 * pairs that cast and engines that transform; what a failure leaves behind, and what is refused. ctest: label=threads timeout=600 */
#include "group/ranks.h"
#include "seeds.h"
#include "switch/changes.h"
#include "switch/scene.h"
#include "test.h"

enum { STEPS = 100, FEW = 8, MANY = CHANGES_MANY };

static const struct {
  const char *train, *infer;
  bool digests; /* of both layouts are the same */
} pairs[] = {{"megatron:tp=2,on=0-1", "vllm:tp=4", true},
             {"megatron:tp=2,pp=2", "vllm:tp=4", true},
             {"megatron:tp=2,on=0-1", "vllm:tp=2,on=2-3", true},
             {"megatron:tp=2,pp=2,dtype=fp32", "vllm:tp=4", true},
             {"megatron:tp=2,pp=2", "vllm:tp=4,dtype=fp32", true},
             {"fsdp2:on=1-2", "sglang:tp=2,on=\"0,3\"", true}};

typedef struct act {
  scene s;
  treadle_layout *train, *infer;
  treadle_switch_options options;
  bool transforms;
  int steps;
  uint32_t changed;            /* of a million elements, in each step */
  double least, most;          /* bytes over those without delta, in each update but the first */
  treadle_injection injection; /* of `rank` */
  int rank;
  _Atomic size_t dense[STEPS + 1], delta[STEPS + 1];
  _Atomic bool differs;
} act;

typedef struct player { /* a rank */
  act *a;
  treadle_switch *sw;
  uint8_t *wanted; /* the infer window, by the layout alone */
} player;

static void act_init(act *a, size_t pair) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].train, SCENE_RANKS, NULL, &a->train));
  assert_ok(treadle_layout_create(a->s.model, pairs[pair].infer, SCENE_RANKS, NULL, &a->infer));
  a->steps = FEW;
  a->changed = MANY / 100;
  a->most = 1.01;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .delta = true,
                                        .offload_train_param = TREADLE_OFF};
}

static void act_release(act *a) {
  treadle_layout_destroy(a->train);
  treadle_layout_destroy(a->infer);
  scene_release(&a->s);
}

/* ---- The engine ---- */

static bool is_right(const player *p) { return changes_are_there(p->sw, p->wanted); }

/* Before an engine that transforms does so. */
static treadle_status bind(void *context, void *window, size_t bytes) {
  player *p = context;
  if (p->a->transforms && p->sw && !is_right(p)) p->a->differs = true;
  if (p->a->transforms && bytes > 0) memset(window, 0x5a, bytes);
  return TREADLE_OK;
}

/* ---- A rank ---- */

static treadle_status start(treadle_group *group, act *a, player *p) {
  treadle_status status = TREADLE_OK;
  int rank = group->rank;
  *p = (player){.a = a, .wanted = calloc(treadle_layout_window_bytes(a->infer, rank) + 1, 1)};
  const treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = p, .bind = bind, .transforms = a->transforms};
  treadle_switch_options options = a->options;
  options.engine = &hooks;
  TRY(treadle_switch_create(group, a->train, a->infer, &options, &p->sw));
  if (treadle_switch_train_window(p->sw))
    TRY(treadle_layout_load(a->train, rank, treadle_switch_train_window(p->sw)));
  TRY(treadle_layout_load(a->infer, rank, p->wanted));
  TRY(treadle_group_barrier(group));
  TRY(treadle_switch_to_infer(p->sw));
out:
  return status;
}

static int train(player *p, int step) {
  int rank = p->sw->group->rank;
  RANK_OK(treadle_group_barrier(p->sw->group));
  if (treadle_switch_train_window(p->sw))
    RANK_OK(changes_make(p->a->train, rank, treadle_switch_train_window(p->sw), step, p->a->changed));
  RANK_OK(changes_make(p->a->infer, rank, p->wanted, step, p->a->changed));
  return 0;
}

static int end(player *p) {
  RANK_OK(treadle_group_barrier(p->sw->group));
  treadle_switch_destroy(p->sw);
  free(p->wanted);
  return 0;
}

/* Adds up what all ranks have sent in the last switch, under that number. */
static int add(player *p, int number, size_t *dense_p, size_t *delta_p) {
  act *a = p->a;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(p->sw, &stats);
  a->dense[number] += stats.dense_bytes;
  a->delta[number] += stats.delta_bytes;
  RANK_OK(treadle_group_barrier(p->sw->group));
  *dense_p = a->dense[number];
  *delta_p = a->delta[number];
  return 0;
}

static int updates(treadle_group *group, void *context) {
  act *a = context;
  player p;
  size_t dense, delta;
  uint64_t in, out;
  bool several = treadle_group_node_count(group) > 1;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_OK(start(group, a, &p));
  if (add(&p, 0, &dense, &delta)) return 1;
  RANK_TRUE(dense == delta && (dense > 0) == several);
  for (int step = 1; step <= a->steps; step++) {
    if (train(&p, step)) return 1;
    RANK_OK(treadle_switch_update(p.sw));
    RANK_TRUE(a->transforms ? !a->differs : is_right(&p));
    if (add(&p, step, &dense, &delta)) return 1;
    RANK_TRUE((dense > 0) == several);
    if ((double)delta > a->most * (double)dense || (double)delta < a->least * (double)dense)
      fprintf(stderr, "step %d: %zu bytes of %zu\n", step, delta, dense);
    RANK_TRUE((double)delta <= a->most * (double)dense && (double)delta >= a->least * (double)dense);
    treadle_switch_get_stats(p.sw, &stats);
    RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(p.sw));
    RANK_TRUE((stats.host_bytes > 0) == several);
    RANK_TRUE(stats.pulled_bytes == (size_t)p.sw->carry.plan->forward.moved_bytes);
  }
  if (!a->transforms) {
    RANK_OK(treadle_switch_digest(p.sw, &in));
    RANK_OK(treadle_switch_to_train(p.sw));
    RANK_OK(treadle_switch_digest(p.sw, &out));
    RANK_TRUE(in == out);
  }
  return end(&p);
}

/* Of whose bytes none are too many, and none too few. */
typedef struct bar {
  uint32_t changed;
  double least, most;
  int steps;
  size_t cap;
  bool transforms;
} bar;

static void play(size_t pair, const bar *b) {
  act *a = malloc(sizeof *a);
  assert_non_null(a);
  act_init(a, pair);
  a->changed = b->changed;
  a->least = b->least;
  a->most = b->most;
  a->steps = b->steps;
  a->transforms = b->transforms;
  a->options.cap_bytes = b->cap;
  ranks_as_threads(SCENE_RANKS, 60, 0, updates, a);
  act_release(a);
  free(a);
}

static void test_bytes(void **state) {
  (void)state;
  static const bar bars[] = {
      {.changed = 0, .most = 0.0015, .steps = FEW}, /* heads alone, of messages of 45 KB */
      {.changed = MANY / 100, .least = 0.005, .most = 0.05, .steps = STEPS},
      {.changed = MANY, .least = 0.98, .most = 1.01, .steps = FEW}};
  for (size_t pair = 0; pair < 2; pair += (size_t)test_step(2))
    for (size_t i = 0; i < TEST_COUNT(bars); i++) play(pair, &bars[i]);
}

/* Messages of every length, few and many. */
static void test_pairs(void **state) {
  (void)state;
  static const bar bars[] = {{.changed = MANY / 100, .most = 0.05, .steps = FEW},
                             {.changed = MANY / 100, .most = 1.01, .steps = FEW, .cap = 40 << 10}};
  for (size_t pair = 2; pair < TEST_COUNT(pairs); pair++)
    for (size_t i = 0; i < TEST_COUNT(bars); i += (size_t)test_step(2)) play(pair, &bars[i]);
}

static void test_transforms(void **state) {
  (void)state;
  for (size_t pair = 1; pair < 3; pair++)
    play(pair, &(bar){.changed = MANY / 100, .most = 0.05, .steps = FEW, .transforms = true});
}

static void test_one_node(void **state) {
  (void)state;
  int (*nodes)(int rank) = ranks_nodes;
  ranks_nodes = NULL;
  play(1, &(bar){.changed = MANY / 100, .steps = FEW});
  ranks_nodes = nodes;
}

/* ---- Failures ---- */

typedef enum travel { CHANGES, ALL_OF_ONE, ANY } travel;

/* An update goes well; what of it travels: changes alone, all that this one rank sends, or whatever. */
static int goes_on(player *p, int step, travel what, int one) {
  size_t dense, delta;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  if (train(p, step)) return 1;
  RANK_OK(treadle_switch_update(p->sw));
  RANK_TRUE(is_right(p) && treadle_switch_is_valid(p->sw));
  if (add(p, step, &dense, &delta)) return 1;
  RANK_TRUE(what != CHANGES || 2 * delta < dense);
  treadle_switch_get_stats(p->sw, &stats);
  if (what == ALL_OF_ONE && p->sw->group->rank == one) RANK_TRUE(stats.dense_bytes == stats.delta_bytes);
  return 0;
}

static int fails(treadle_group *group, void *context) {
  act *a = context;
  player p;
  size_t dense, delta;
  RANK_OK(start(group, a, &p));
  if (goes_on(&p, 1, CHANGES, 0) || train(&p, 2)) return 1;
  if (group->rank == a->rank) RANK_OK(treadle_switch_inject(p.sw, a->injection));
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(treadle_switch_update(p.sw) != TREADLE_OK);
  RANK_TRUE(treadle_switch_mode(p.sw) == TREADLE_INFER && treadle_switch_version(p.sw) == 2);
  if (a->injection.what == TREADLE_INJECT_FLIP)
    RANK_TRUE(strstr(treadle_error_message(), "a message of ") &&
              strstr(treadle_error_message(), "in wave "));
  /* Who had not begun has its base yet, and uses it with others that have theirs. */
  if (goes_on(&p, 3, a->injection.point == TREADLE_AT_ENTRY ? ANY : ALL_OF_ONE, a->rank)) return 1;
  if (goes_on(&p, 4, CHANGES, 0)) return 1;
  /* Out of mode INFER nothing is known of the window any more. */
  RANK_OK(treadle_switch_to_train(p.sw));
  if (train(&p, 5)) return 1;
  RANK_OK(treadle_switch_to_infer(p.sw));
  RANK_TRUE(is_right(&p));
  if (add(&p, 5, &dense, &delta)) return 1;
  RANK_TRUE(dense == delta);
  return goes_on(&p, 6, CHANGES, 0) ? 1 : end(&p);
}

static void test_failures(void **state) {
  (void)state;
  static const treadle_injection injections[] = {
      {TREADLE_INJECT_ENOMEM, TREADLE_AT_ENTRY, 0},  {TREADLE_INJECT_ENOMEM, TREADLE_AT_WAVE, 0},
      {TREADLE_INJECT_ENOMEM, TREADLE_AT_WAVE, 4},   {TREADLE_INJECT_CANCEL, TREADLE_AT_WAVE, 2},
      {TREADLE_INJECT_ENOMEM, TREADLE_AT_COMMIT, 0}, {TREADLE_INJECT_FLIP, TREADLE_AT_WAVE, 0}};
  for (size_t i = 0; i < TEST_COUNT(injections); i += (size_t)test_step(3))
    for (size_t pair = 1; pair < 5; pair += 3) {
      act *a = malloc(sizeof *a);
      assert_non_null(a);
      act_init(a, pair);
      a->injection = injections[i];
      a->rank = 1;
      a->options.cap_bytes = 128 << 10;
      ranks_as_threads(SCENE_RANKS, 60, i, fails, a);
      act_release(a);
      free(a);
    }
}

/* A byte of the infer window, which came from another node, is written in between. */
static int written(treadle_group *group, void *context) {
  act *a = context;
  player p;
  uint8_t byte;
  bool here = group->rank == a->rank;
  RANK_OK(start(group, a, &p));
  if (goes_on(&p, 1, CHANGES, 0)) return 1;
  if (here) {
    RANK_TRUE(p.sw->carry.net.in[TREADLE_INFER].traffic.message_count > 0);
    size_t at = (size_t)p.sw->carry.net.in[TREADLE_INFER].traffic.parcels[0].op.to;
    RANK_OK(treadle_switch_read(p.sw, TREADLE_INFER_PARAMS, at, 1, &byte));
    byte ^= 1;
    RANK_OK(treadle_switch_write(p.sw, TREADLE_INFER_PARAMS, at, 1, &byte));
  }
  if (train(&p, 2)) return 1;
  RANK_FAILS(TREADLE_PEER, "has changes of other bytes than this rank holds", treadle_switch_update(p.sw));
  RANK_TRUE(!treadle_switch_is_valid(p.sw));
  return goes_on(&p, 3, ALL_OF_ONE, a->rank) || goes_on(&p, 4, CHANGES, 0) ? 1 : end(&p);
}

static void test_written(void **state) {
  (void)state;
  act *a = malloc(sizeof *a);
  assert_non_null(a);
  act_init(a, 1);
  a->changed = MANY / 1000; /* so that it is not sent anew */
  a->rank = 2;
  ranks_as_threads(SCENE_RANKS, 60, 0, written, a);
  act_release(a);
  free(a);
}

/* ---- What is refused ---- */

static int refused(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_options options = a->options;
  options.offload_train_param = TREADLE_DEFAULT;
  RANK_FAILS(TREADLE_REFUSED, "overwrites its source: params leave the device in mode infer",
             treadle_switch_create(group, a->train, a->infer, &options, &sw));
  options = a->options;
  options.delta = group->rank != 2;
  RANK_FAILS(TREADLE_REFUSED, "were given different options (page size, cap, budget, one_way, alias, delta",
             treadle_switch_create(group, a->train, a->infer, &options, &sw));
  return 0;
}

static void test_refused(void **state) {
  (void)state;
  act *a = malloc(sizeof *a);
  assert_non_null(a);
  act_init(a, 1);
  ranks_as_threads(SCENE_RANKS, 60, 0, refused, a);
  act_release(a);
  free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes),      cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_transforms), cmocka_unit_test(test_one_node),
                                     cmocka_unit_test(test_failures),   cmocka_unit_test(test_written),
                                     cmocka_unit_test(test_refused)};
  return RANKS_OVER_NODES(tests);
}
