/* The life of the memory: what lies on the device in each mode for each combination of flags, by the books and by the
 * pool's file; training state that goes and comes for ten cycles; engines that do not bind; wrong orders.
 * ctest: stage=gcc label=threads timeout=900 */
#include "group/ranks.h"
#include "plan/one_rank.h"
#include "switch/scene.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { GRADS = 40000, OPTIMIZER = 120001, KV_BLOCK = 6000 };

typedef struct act {
  scene s;
  treadle_switch_options options;
  treadle_layout *infer; /* of the two of the scene */
  int64_t cap_min;
  int turn; /* which engine fails, or which case */
  size_t peak_bound[SCENE_RANKS];
} act;

static void set_infer(act *a, treadle_layout *infer) {
  a->infer = infer;
  a->cap_min = 0;
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    int64_t cap_min;
    assert_ok(one_rank_cap_min(a->s.train, infer, rank, SCENE_PAGE, &cap_min));
    if (cap_min > a->cap_min) a->cap_min = cap_min;
  }
  a->options.cap_bytes = (size_t)a->cap_min;
}

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  set_infer(a, a->s.infer);
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->cap_min,
                                        .timeout_seconds = 60,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .kv_block_bytes = KV_BLOCK};
}

/* Flags by the bits of `combination`; the others of what is kept and how. */
static void set_flags(treadle_switch_options *o, int combination, bool host_keep, bool keep_grads) {
  o->offload_train_param = combination & 1 ? TREADLE_ON : TREADLE_OFF;
  o->offload_train_grad = combination & 2 ? TREADLE_ON : TREADLE_OFF;
  o->offload_train_optimizer = combination & 4 ? TREADLE_ON : TREADLE_OFF;
  o->keep = combination & 1 && host_keep ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
  o->keep_grads = combination & 2 && keep_grads;
}

static size_t in_pages(size_t bytes) { return (bytes + SCENE_PAGE - 1) / SCENE_PAGE * SCENE_PAGE; }

/* ---- Residency ---- */

/* What the table says of a mode. */
static int check_residency(treadle_switch *sw, const treadle_switch_options *o) {
  treadle_mode mode = treadle_switch_mode(sw);
  bool leaves[3] = {o->offload_train_param == TREADLE_ON, o->offload_train_grad == TREADLE_ON,
                    o->offload_train_optimizer == TREADLE_ON};
  size_t sum = 0, bytes;
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    bool here = false;
    switch (mode) {
    case TREADLE_TRAIN: here = c <= TREADLE_OPTIMIZER; break;
    case TREADLE_FORWARD: here = c == TREADLE_PARAMS || (c <= TREADLE_OPTIMIZER && !leaves[c]); break;
    case TREADLE_INFER: here = c > TREADLE_OPTIMIZER || !leaves[c]; break;
    case TREADLE_HOST:
    case TREADLE_LOST: break;
    }
    (void)treadle_switch_window(sw, (treadle_class)c, &bytes);
    size_t resident = treadle_switch_resident(sw, (treadle_class)c);
    size_t wanted = here ? in_pages(bytes) : 0;
    if (here && c == TREADLE_INFER_PARAMS && !leaves[TREADLE_PARAMS])
      wanted -= (size_t)(sw->carry.plan->arrangement.pages * SCENE_PAGE); /* counted with params */
    if (resident != wanted)
      fprintf(stderr, "mode %s, class %d: %zu bytes on the device, its window has %zu\n",
              treadle_mode_text(mode), c, resident, bytes);
    RANK_TRUE(resident == wanted);
    sum += resident;
    const volatile char *window = treadle_switch_window(sw, (treadle_class)c, NULL);
    for (size_t at = 0; at < resident; at += 4096) (void)window[at]; /* what was given back comes again */
  }
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_OK(treadle_switch_trim(sw));
  treadle_switch_get_stats(sw, &stats);
  if (stats.pool_bytes != sum)
    fprintf(stderr, "mode %s: the file holds %zu bytes, the classes %zu\n", treadle_mode_text(mode),
            stats.pool_bytes, sum);
  RANK_TRUE(stats.pool_bytes == sum); /* the system's own word */
  return 0;
}

/* The largest window and what is kept, from the layouts alone. */
static size_t bound_of(const act *a, int rank, int combination) {
  size_t params = in_pages(treadle_layout_window_bytes(a->s.train, rank)),
         infer = in_pages(treadle_layout_window_bytes(a->infer, rank));
  size_t kept = (combination & 2 ? 0 : in_pages(GRADS)) + (combination & 4 ? 0 : in_pages(OPTIMIZER));
  if (combination & 1) return kept + (params > infer ? params : infer) + (size_t)a->cap_min;
  return kept + params + infer + (size_t)a->cap_min;
}

static int live_through(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  size_t host_bytes = 0, kv;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  (void)treadle_switch_window(sw, TREADLE_KV, &kv);
  RANK_TRUE(!a->options.alias || sw->carry.plan->arrangement.pages > 0);
  RANK_TRUE(kv % KV_BLOCK == 0 && (kv > 0 || a->options.budget_bytes == 0));
  for (int cycle = 0; cycle < 3; cycle++) {
    if (check_residency(sw, &a->options)) return 1;
    if (a->options.host && cycle != 1) {
      RANK_OK(treadle_switch_to_host(sw));
      if (check_residency(sw, &a->options)) return 1;
      RANK_FAILS(TREADLE_STATE, "host", treadle_switch_digest(sw, &(uint64_t){0}));
    }
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(treadle_switch_version(sw) == (uint64_t)cycle + 1);
    if (check_residency(sw, &a->options)) return 1;
    RANK_TRUE(scene_infers(sw));
    if (kv > 0) memset(treadle_switch_window(sw, TREADLE_KV, NULL), 0x77, kv); /* it is nobody else's */
    RANK_TRUE(scene_infers(sw));
    RANK_FAILS(TREADLE_STATE, "from mode infer there is no way to host", treadle_switch_to_host(sw));
    if (cycle > 0) {
      RANK_OK(treadle_switch_to_forward(sw));
      if (check_residency(sw, &a->options)) return 1;
      RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
      RANK_FAILS(TREADLE_STATE, "from mode forward there is no way to infer", treadle_switch_to_infer(sw));
      if (a->options.host) RANK_OK(treadle_switch_to_host(sw));
      if (a->options.host && check_residency(sw, &a->options)) return 1;
    } else {
      RANK_OK(treadle_switch_to_train(sw));
    }
    RANK_OK(treadle_switch_to_train(sw));
    RANK_FAILS(TREADLE_STATE, "from mode train there is no way to forward", treadle_switch_to_forward(sw));
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(cycle == 0 || stats.host_bytes == host_bytes);
    host_bytes = stats.host_bytes;
    RANK_TRUE(stats.peak_bytes > 0 && stats.peak_bytes <= a->peak_bound[group->rank]);
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void try_residency(bool alias) {
  act a;
  act_init(&a);
  a.options.alias = alias;
  if (alias) set_infer(&a, a.s.alike);
  for (int combination = 0; combination < 8; combination++)
    for (int how = combination % test_step(2); how < 8; how += test_step(2)) {
      if (!(combination & 1) && (how & 1)) continue; /* keep=host of what stays: refused */
      set_flags(&a.options, combination, how & 1, how & 2);
      a.options.host = how & 4;
      a.options.guard_pages = how == 3 || how == 5;
      a.options.budget_bytes = 0;
      for (int rank = 0; rank < SCENE_RANKS; rank++) {
        a.peak_bound[rank] = bound_of(&a, rank, combination);
        size_t room = bound_of(&a, rank, 0) + 10 * SCENE_PAGE; /* for any */
        if (how >= 4 && room > a.options.budget_bytes) a.options.budget_bytes = room;
      }
      ranks_as_threads(SCENE_RANKS, 60, 0, live_through, &a);
    }
  scene_release(&a.s);
}

static void test_residency(void **state) {
  (void)state;
  try_residency(false);
}

static void test_residency_alias(void **state) {
  (void)state;
  try_residency(true);
}

/* ---- Ten cycles of training ---- */

/* An optimizer step that copies of a value take alike, and that leaves padding zero. */
static void step(uint16_t *params, size_t count, uint32_t *grads, size_t grads_count, uint32_t *optimizer,
                 size_t optimizer_count, uint32_t number) {
  for (size_t i = 0; i < grads_count; i++) grads[i] = (uint32_t)i * 2654435761u + number;
  for (size_t i = 0; i < optimizer_count; i++)
    optimizer[i] = optimizer[i] * 1664525u + grads[i % grads_count] + number;
  for (size_t i = 0; i < count; i++) params[i] = (uint16_t)(params[i] * (2 * number + 3));
}

static bool storages_equal(const treadle_layout *layout, int rank, const char *a, const char *b) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    if (treadle_layout_storage(layout, rank, i, &info)) return false;
    if (info.bytes && memcmp(a + info.offset_bytes, b + info.offset_bytes, info.bytes) != 0) return false;
  }
  return true;
}

static int train(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats), second = stats;
  int rank = group->rank;
  size_t bytes = treadle_layout_window_bytes(a->s.train, rank);
  char *params = calloc(bytes + 4, 1);
  uint32_t *grads = calloc(GRADS, 1), *optimizer = calloc(OPTIMIZER + 3, 1);
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, rank, treadle_switch_train_window(sw)));
  memcpy(params, treadle_switch_train_window(sw), bytes);
  for (uint32_t cycle = 0; cycle < 10; cycle++) {
    void *own = treadle_switch_train_window(sw);
    uint32_t *own_grads = treadle_switch_window(sw, TREADLE_GRADS, NULL),
             *own_optimizer = treadle_switch_window(sw, TREADLE_OPTIMIZER, NULL);
    step((uint16_t *)(void *)params, bytes / 2, grads, GRADS / 4, optimizer, OPTIMIZER / 4, cycle);
    step(own, bytes / 2, own_grads, GRADS / 4, own_optimizer, OPTIMIZER / 4, cycle);
    RANK_OK(treadle_switch_to_infer(sw));
    if (cycle % 3 != 2) RANK_OK(treadle_switch_to_forward(sw));
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(storages_equal(a->s.train, rank, own, params));
    RANK_TRUE(memcmp(own_optimizer, optimizer, OPTIMIZER / 4 * 4) == 0);
    bool grads_stay = a->options.offload_train_grad != TREADLE_ON || a->options.keep_grads;
    RANK_TRUE(!grads_stay || memcmp(own_grads, grads, GRADS) == 0);
    treadle_switch_get_stats(sw, &stats);
    if (cycle == 1) second = stats;
  }
  RANK_TRUE(stats.pool_bytes == second.pool_bytes && stats.host_bytes == second.host_bytes);
  RANK_TRUE(stats.peak_bytes == second.peak_bytes);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(params);
  free(grads);
  free(optimizer);
  return 0;
}

static void test_ten_cycles(void **state) {
  act a;
  (void)state;
  act_init(&a);
  for (int combination = 0; combination < 8; combination++)
    for (int how = combination % test_step(2); how < 8; how += test_step(2)) {
      if (!(combination & 1) && (how & 1)) continue;
      a.options.alias = how & 4;
      set_infer(&a, how & 4 ? a.s.alike : a.s.infer);
      set_flags(&a.options, combination, how & 1, how & 2);
      ranks_as_threads(SCENE_RANKS, 60, 0, train, &a);
    }
  scene_release(&a.s);
}

/* ---- Engines ---- */

typedef struct engine {
  int bound, unbound, fail_bind, fail_unbind; /* fail: how many of the next ones */
  const void *window;
  treadle_switch *sw; /* may not be called from here */
  bool let_in;        /* but was */
} engine;

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  engine *e = context;
  if (e->fail_bind > 0) {
    e->fail_bind--;
    return treadle_fail(TREADLE_SYSTEM, "no");
  }
  if (e->sw && treadle_switch_to_train(e->sw) != TREADLE_STATE) e->let_in = true;
  e->bound++;
  e->window = bytes > 0 ? window : NULL;
  return TREADLE_OK;
}

static treadle_status unbind_engine(void *context) {
  engine *e = context;
  if (e->fail_unbind > 0) {
    e->fail_unbind--;
    return TREADLE_REFUSED;
  }
  e->unbound++;
  return TREADLE_OK;
}

static int use_engines(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  engine e = {0};
  treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = &e, .bind = bind_engine, .unbind = unbind_engine};
  treadle_switch_options options = a->options;
  bool fails = group->rank == a->turn, host = options.keep == TREADLE_KEEP_HOST;
  options.engine = group->rank == 3 && a->turn != 3 ? NULL : &hooks; /* one may have none */
  bool has = options.engine;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));

  e.sw = sw;
  e.fail_bind = fails;
  RANK_FAILS(fails ? TREADLE_SYSTEM : TREADLE_PEER, "bind of version 1 failed",
             treadle_switch_to_infer(sw));
  RANK_TRUE(e.bound == e.unbound); /* nobody is bound */
  RANK_TRUE(treadle_switch_mode(sw) == (host ? TREADLE_TRAIN : TREADLE_INFER));
  if (host) RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  if (!host) RANK_TRUE(strstr(treadle_error_message(), "nothing is bound"));
  RANK_OK(treadle_switch_to_infer(sw)); /* again: to bind alone, or all of it */
  RANK_TRUE(e.bound == e.unbound + has && (!has || e.window == treadle_switch_infer_window(sw)));
  RANK_TRUE(scene_infers(sw));
  RANK_TRUE(!e.let_in && treadle_switch_mode(sw) == TREADLE_INFER);
  RANK_OK(treadle_switch_to_infer(sw)); /* does nothing */
  RANK_TRUE(e.bound == e.unbound + has);

  e.fail_unbind = fails;
  RANK_FAILS(fails ? TREADLE_REFUSED : TREADLE_PEER, "unbind failed", treadle_switch_to_train(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER);
  if (options.guard_pages) RANK_OK(treadle_switch_to_infer(sw)); /* some bind again first */
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(e.bound == e.unbound);
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_engines(void **state) {
  act a;
  (void)state;
  act_init(&a);
  for (a.turn = 0; a.turn < SCENE_RANKS; a.turn++)
    for (int keep = 0; keep < 2; keep++) {
      set_flags(&a.options, 7, keep, keep);
      a.options.guard_pages = a.turn % 2;
      ranks_as_threads(SCENE_RANKS, 60, 0, use_engines, &a);
    }
  scene_release(&a.s);
}

/* ---- Failures that a twin undoes ---- */

static int fail_and_stand(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  uint64_t digest, again;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  uint32_t *optimizer = treadle_switch_window(sw, TREADLE_OPTIMIZER, NULL);
  for (uint32_t i = 0; i < OPTIMIZER / 4; i++) optimizer[i] = i * 2654435761u + (uint32_t)group->rank;
  RANK_OK(treadle_switch_digest(sw, &digest));
  treadle_mode old = a->turn % 2 ? TREADLE_HOST : TREADLE_TRAIN;
  const treadle_injection_point points[] = {TREADLE_AT_ENTRY, TREADLE_AT_OFFLOAD, TREADLE_AT_WAVE,
                                            TREADLE_AT_WAVE,  TREADLE_AT_WAVE,    TREADLE_AT_COMMIT};
  for (int i = 0; i < 6; i++) {
    if (old == TREADLE_HOST) RANK_OK(treadle_switch_to_host(sw));
    if (group->rank == (a->turn + i) % SCENE_RANKS)
      treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_ENOMEM, points[i],
                                                    i == 2   ? 0
                                                    : i == 3 ? 9
                                                             : 99999});
    treadle_status status = treadle_switch_to_infer(sw);
    RANK_TRUE(status == TREADLE_NO_MEMORY || status == TREADLE_PEER);
    RANK_TRUE(strstr(treadle_error_message(), "memory is out at") &&
              strstr(treadle_error_message(), "stand as they were"));
    RANK_TRUE(treadle_switch_mode(sw) == old && treadle_switch_version(sw) == 0);
    if (check_residency(sw, &a->options)) return 1;
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
    for (uint32_t k = 0; k < OPTIMIZER / 4; k++)
      RANK_TRUE(optimizer[k] == k * 2654435761u + (uint32_t)group->rank);
    RANK_OK(treadle_switch_digest(sw, &again));
    RANK_TRUE(again == digest);
  }
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_rollback(void **state) {
  act a;
  (void)state;
  act_init(&a);
  a.options.host = true;
  for (a.turn = 0; a.turn < 4; a.turn++) {
    a.options.alias = a.turn % 3 == 0;
    set_infer(&a, a.options.alias ? a.s.alike : a.s.infer);
    set_flags(&a.options, a.turn < 2 ? 7 : 5, true, false);
    a.options.guard_pages = a.turn == 1;
    ranks_as_threads(SCENE_RANKS, 60, 0, fail_and_stand, &a);
  }
  scene_release(&a.s);
}

/* ---- Outside of windows ---- */

enum { OUTSIDE = 3 * SCENE_PAGE + 100 };

/* Of rank 1 alone: its cache is as much smaller, and no other one. */
static int lie_outside(treadle_group *group, void *context) {
  const act *a = context;
  treadle_switch_options o = a->options;
  treadle_switch *sw = NULL;
  size_t all, rest;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  (void)treadle_switch_window(sw, TREADLE_KV, &all);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  if (group->rank == 1) o.outside_bytes = OUTSIDE;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  (void)treadle_switch_window(sw, TREADLE_KV, &rest);
  if (group->rank == 1)
    RANK_TRUE(all >= rest + OUTSIDE && all - rest <= OUTSIDE + SCENE_PAGE + 2 * KV_BLOCK);
  else
    RANK_TRUE(all == rest);
  RANK_TRUE(treadle_switch_pool_bound(sw) <= o.budget_bytes - o.outside_bytes);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  if (group->rank == 1) o.outside_bytes = o.budget_bytes;
  RANK_FAILS(TREADLE_REFUSED, "the budget of", treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  return 0;
}

static void test_outside(void **state) {
  act a;
  (void)state;
  act_init(&a);
  set_infer(&a, a.s.infer);
  set_flags(&a.options, 7, true, false);
  a.options.kv_block_bytes = KV_BLOCK;
  a.options.budget_bytes = 1 << 22;
  ranks_as_threads(SCENE_RANKS, 60, 0, lie_outside, &a);
  scene_release(&a.s);
}

/* ---- Refusals ---- */

static int refuse(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw = NULL;
  treadle_switch_options o = a->options;
  o.keep_grads = true;
  RANK_FAILS(TREADLE_REFUSED, "keep_grads", treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  o = a->options;
  o.keep = TREADLE_KEEP_HOST;
  o.offload_train_param = TREADLE_OFF;
  RANK_FAILS(TREADLE_REFUSED, "keep=host", treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  o = a->options;
  if (group->rank == 2) o.keep = TREADLE_KEEP_HOST;
  RANK_FAILS(TREADLE_REFUSED, "different options",
             treadle_switch_create(group, a->s.train, a->infer, &o, &sw));

  size_t largest = 0, training = 0; /* nothing leaves but params */
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    size_t bound = bound_of(a, rank, 1) - (size_t)a->cap_min;
    size_t trains =
        in_pages(treadle_layout_window_bytes(a->s.train, rank)) + in_pages(GRADS) + in_pages(OPTIMIZER);
    if (bound > largest) largest = bound;
    if (trains > training) training = trains;
  }
  o = a->options;
  o.budget_bytes = training - 1;
  RANK_FAILS(TREADLE_REFUSED, "whatever is offloaded",
             treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  o.budget_bytes = largest + (size_t)a->cap_min - 1;
  RANK_FAILS(TREADLE_REFUSED, "--offload grads) would make it fit",
             treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  o.budget_bytes = largest + (size_t)a->cap_min + 5;
  o.cap_bytes = (size_t)a->cap_min + 2 * SCENE_PAGE;
  RANK_FAILS(TREADLE_REFUSED, "a cap of", treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  RANK_TRUE(strstr(treadle_error_message(), "would make it fit"));

  o = a->options;
  const treadle_engine_hooks transformer = {.struct_size = sizeof(treadle_engine_hooks),
                                            .transforms = true};
  o.engine = &transformer;
  o.alias = true;
  RANK_FAILS(TREADLE_REFUSED, "transforms the weights",
             treadle_switch_create(group, a->s.train, a->s.alike, &o, &sw));
  o.keep = TREADLE_KEEP_HOST;
  o.cap_bytes = 0;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.alike, &o, &sw));
  RANK_TRUE(!sw->space.tables.aliased && sw->carry.plan->arrangement.pages == 0);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);

  o = a->options;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &o, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_FAILS(TREADLE_STATE, "without host memory", treadle_switch_to_host(sw));
  treadle_switch_accumulate(sw, true);
  RANK_FAILS(TREADLE_STATE, "being accumulated", treadle_switch_to_infer(sw));
  treadle_switch_accumulate(sw, false);
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  RANK_OK(treadle_helm_take(sw->helm, "another thread"));
  RANK_FAILS(TREADLE_STATE, "a switch is running", treadle_switch_to_infer(sw));
  RANK_FAILS(TREADLE_STATE, "a switch is running", treadle_switch_trim(sw));
  treadle_helm_leave(sw->helm);
  RANK_OK(treadle_switch_to_infer(sw));

  RANK_OK(treadle_group_barrier(group)); /* some go another way */
  treadle_status status = group->rank == 1 ? treadle_switch_to_forward(sw) : treadle_switch_to_train(sw);
  RANK_TRUE(status == TREADLE_STATE || status == TREADLE_PEER);
  RANK_TRUE(strstr(treadle_error_message(), "the same arrows"));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER);
  RANK_OK(treadle_switch_to_forward(sw));
  if (group->rank != 1) RANK_OK(treadle_switch_to_train(sw)); /* forgotten by one */
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_refusals(void **state) {
  act a;
  (void)state;
  act_init(&a);
  ranks_as_threads(SCENE_RANKS, 60, 0, refuse, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_residency),  cmocka_unit_test(test_residency_alias),
      cmocka_unit_test(test_ten_cycles), cmocka_unit_test(test_engines),
      cmocka_unit_test(test_rollback),   cmocka_unit_test(test_outside),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
