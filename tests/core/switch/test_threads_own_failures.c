/* Own tensors that cannot be, and switches over own tensors that fail: each refusal names rank and tensor; after a failure own train
 * tensors are as they were, and the next switch succeeds. ctest: label=threads timeout=900 */
#include "base/alloc.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include <sys/mman.h>

enum { VICTIM = 2, PAGES = 64 * SCENE_PAGE };

typedef struct act act;
typedef void (*spoiler)(act *a, own_memory own[2], treadle_switch_options *options);

struct act {
  scene s;
  own_choice train, infer;
  treadle_switch_options options;
  spoiler spoil;     /* on rank VICTIM */
  const char *words; /* of the refusal */
  char *page;        /* of memory that spoilers may use */
  treadle_injection injection;
  treadle_fault fault;
  uint64_t seed;
  size_t staging; /* that a cap must have */
  treadle_group *second[SCENE_RANKS];
  treadle_status statuses[SCENE_RANKS];
};

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->train = a->infer = OWN_ALL;
  a->options = (treadle_switch_options){
      .struct_size = sizeof(treadle_switch_options), .page_bytes = SCENE_PAGE, .timeout_seconds = 60};
}

static void own_init(const act *a, int rank, own_memory own[2], treadle_switch_options *options) {
  own_make(&own[0], a->s.train, a->s.infer, a->s.train, rank, a->train, 1);
  own_make(&own[1], a->s.train, a->s.infer, a->s.infer, rank, a->infer, 2);
  *options = a->options;
  options->own_train = own[0].tensors;
  options->own_train_count = own[0].count;
  options->own_infer = own[1].tensors;
  options->own_infer_count = own[1].count;
}

static int make(const act *a, treadle_group *group, own_memory own[2], treadle_switch **sw_p) {
  treadle_switch_options options;
  size_t bytes = treadle_layout_window_bytes(a->s.train, group->rank);
  own_init(a, group->rank, own, &options);
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, sw_p));
  (*sw_p)->device = *treadle_device_plain();
  char *window = calloc(bytes + 1, 1);
  RANK_OK(treadle_layout_load(a->s.train, group->rank, window));
  RANK_OK(treadle_switch_write(*sw_p, TREADLE_PARAMS, 0, bytes, window));
  free(window);
  return 0;
}

static int end(treadle_group *group, treadle_switch *sw, own_memory own[2]) {
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(own_surrounds(&own[0]) && own_surrounds(&own[1]));
  own_release(&own[0]);
  own_release(&own[1]);
  return 0;
}

static bool is_right(const act *a, const treadle_switch *sw, treadle_class which) {
  const treadle_layout *layout = which == TREADLE_PARAMS ? a->s.train : a->s.infer;
  char *wanted = calloc(treadle_layout_window_bytes(layout, sw->group->rank) + 1, 1);
  bool right = wanted && treadle_layout_load(layout, sw->group->rank, wanted) == TREADLE_OK &&
               own_holds(sw, which, wanted);
  free(wanted);
  return right;
}

/* ---- Refusals ---- */

static int refused(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch_options options;
  treadle_switch *sw;
  own_init(a, group->rank, own, &options);
  if (group->rank == VICTIM) a->spoil(a, own, &options);
  RANK_FAILS(TREADLE_REFUSED, a->words,
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_TRUE(sw == NULL);
  if (group->rank != VICTIM) RANK_TRUE(own_surrounds(&own[0]) && own_surrounds(&own[1]));
  own_release(&own[0]);
  own_release(&own[1]);
  return 0;
}

static void twice(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a;
  options->own_train_count = 2;
  own[0].tensors[1] = own[0].tensors[0];
}
static void size(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[1].tensors[3].bytes++;
}
static void askew(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[0].tensors[3].memory = (char *)own[0].tensors[3].memory + 1;
}
static void nowhere(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[0].tensors[3].memory = NULL;
}
static void gone(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)options;
  mprotect(a->page, PAGES, PROT_NONE);
  own[0].tensors[3].memory = a->page;
}
static void constant(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)options;
  mprotect(a->page, PAGES, PROT_READ);
  own[1].tensors[3].memory = a->page;
}
static void missing(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[1].tensors[3].memory = (char *)0x200000; /* where programs are no more */
}
static void overlapping(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[1].tensors[0].memory = own[0].tensors[1].memory;
}
static void no_number(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)options;
  own[1].tensors[1].storage = 1000;
}
static void too_many(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own;
  options->own_infer_count = 1000;
}
static void no_array(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own;
  options->own_infer = NULL;
}
static void leaves(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own;
  options->offload_train_param = TREADLE_ON;
}
static void hosted(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own;
  options->host = true;
}
static void kept(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own;
  options->keep = TREADLE_KEEP_HOST;
}
static void nothing(act *a, own_memory own[2], treadle_switch_options *options) {
  (void)a, (void)own, (void)options;
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    spoiler spoil;
    const char *words;
    own_choice train, infer;
  } cases[] = {
      {twice, "rank 2: own train tensor 'decoder", OWN_ALL, OWN_ALL},
      {twice, "' is given twice", OWN_ALL, OWN_NO},
      {size, "rank 2: own infer tensor 'model", OWN_ALL, OWN_ALL},
      {size, " bytes, and its memory ", OWN_NO, OWN_ALL},
      {askew, "is not aligned to its elements of 2 bytes", OWN_ALL, OWN_NO},
      {nowhere, "is not a range of memory", OWN_ALL, OWN_NO},
      {gone, "that memory may not be written", OWN_ALL, OWN_NO},
      {constant, "that memory may not be written", OWN_ALL, OWN_ALL},
      {missing, "not all of that memory is there", OWN_ALL, OWN_ALL},
      {overlapping, "overlaps own ", OWN_ALL, OWN_ALL},
      {no_number, "rank 2: own infer tensor number 1000", OWN_ALL, OWN_ALL},
      {too_many, "rank 2: 1000 own infer tensors", OWN_ALL, OWN_ALL},
      {no_array, "and no array of them", OWN_ALL, OWN_ALL},
      {leaves, "rank 2 wants params to leave", OWN_ALL, OWN_ALL},
      {leaves, "rank 0 has ", OWN_ONE_RANK, OWN_NO},
      {hosted, "rank 2 wants mode host", OWN_ALL, OWN_ALL},
      {kept, "rank 2 wants params to be kept in host memory", OWN_ALL, OWN_ALL},
      {nothing, "cannot be what keeps the training weights", OWN_NO, OWN_ALL},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    act a;
    act_init(&a);
    a.spoil = cases[i].spoil;
    a.words = cases[i].words;
    a.train = cases[i].train;
    a.infer = cases[i].infer;
    if (a.train == OWN_NO && a.spoil != nothing) a.options.offload_train_param = TREADLE_OFF;
    a.page = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(a.page != MAP_FAILED);
    ranks_as_threads(SCENE_RANKS, 100, i, refused, &a);
    munmap(a.page, PAGES);
    scene_release(&a.s);
  }
}

/* ---- The cap ---- */

/* One byte less than staging takes with the most waves is refused, with that number; so much does. */
static int capped(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch_options options;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  own_init(a, group->rank, own, &options);
  options.cap_bytes = 1;
  RANK_FAILS(TREADLE_REFUSED, "bytes of staging in which rank",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  const char *number = strstr(treadle_error_message(), "less than the ");
  RANK_TRUE(number && strstr(treadle_error_message(), "in 4096 waves"));
  size_t least = strtoull(number + strlen("less than the "), NULL, 10);
  options.cap_bytes = least - 1;
  RANK_FAILS(TREADLE_REFUSED, "bytes of staging",
             treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  own_release(&own[0]);
  own_release(&own[1]);
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) a->options.cap_bytes = least;
  RANK_OK(treadle_group_barrier(group));
  if (make(a, group, own, &sw)) return 1;
  for (int i = 0; i < 2; i++) {
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(is_right(a, sw, TREADLE_INFER_PARAMS) && is_right(a, sw, TREADLE_PARAMS));
    RANK_OK(treadle_switch_to_train(sw));
  }
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.peak_bytes <= least && treadle_switch_bound(sw) == least); /* all of it is staging */
  RANK_TRUE(stats.pool_bytes == stats.peak_bytes);
  return end(group, sw, own);
}

static void test_cap(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 3; seed++) {
    act a;
    act_init(&a);
    ranks_as_threads(SCENE_RANKS, 100, seed, capped, &a);
    scene_release(&a.s);
  }
}

/* ---- Failures ---- */

static int failing(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch *sw;
  if (make(a, group, own, &sw)) return 1;
  bool mine = group->rank == VICTIM;
  if (a->fault) RANK_OK(treadle_switch_plant(sw, a->fault, VICTIM, a->seed));
  if (mine && !a->fault) RANK_OK(treadle_switch_inject(sw, a->injection));
  treadle_status status = treadle_switch_to_infer(sw);
  RANK_TRUE(status == (!mine                                        ? TREADLE_PEER
                       : a->fault                                   ? TREADLE_DIFFERENT
                       : a->injection.what == TREADLE_INJECT_CANCEL ? TREADLE_CANCELLED
                                                                    : TREADLE_NO_MEMORY));
  RANK_TRUE(strstr(treadle_error_message(), "the train weights stand as they were"));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && is_right(a, sw, TREADLE_PARAMS));
  RANK_TRUE(treadle_switch_resident(sw, TREADLE_WORK) == 0 &&
            treadle_switch_resident(sw, TREADLE_INFER_PARAMS) == 0);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(is_right(a, sw, TREADLE_INFER_PARAMS) && is_right(a, sw, TREADLE_PARAMS));
  RANK_OK(treadle_switch_to_train(sw));
  return end(group, sw, own);
}

static void test_failures(void **state) {
  (void)state;
  static const treadle_injection_type whats[] = {TREADLE_INJECT_ENOMEM, TREADLE_INJECT_CANCEL};
  static const treadle_fault faults[] = {TREADLE_FAULT_DROP, TREADLE_FAULT_DOUBLE, TREADLE_FAULT_MISPLACE};
  for (uint64_t seed = 0; seed < test_seeds(12); seed++) {
    act a;
    act_init(&a);
    a.options.cap_bytes = 64 * SCENE_PAGE;
    a.seed = seed;
    if (seed % 2) a.train = OWN_SOME;
    if (seed % 2) a.options.offload_train_param = TREADLE_OFF;
    a.fault = seed % 5 < 3 ? faults[seed % 3] : TREADLE_FAULT_NONE;
    a.injection =
        (treadle_injection){.what = whats[seed % 2], .point = TREADLE_AT_WAVE, .wave = (int32_t)seed * 3};
    ranks_as_threads(SCENE_RANKS, 100, seed, failing, &a);
    scene_release(&a.s);
  }
}

/* Memory that is gone is found before anything is written, by its name; and registered memory may not lie there. */
static int unmapped(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch *sw;
  treadle_switch_options options;
  own_init(a, group->rank, own, &options);
  bool mine = group->rank == VICTIM;
  size_t bytes = (own[1].tensors[0].bytes + SCENE_PAGE - 1) / SCENE_PAGE * SCENE_PAGE;
  char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  RANK_TRUE(pages != MAP_FAILED);
  own[1].tensors[0].memory = pages;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_FAILS(TREADLE_REFUSED, "overlap own infer tensor '",
             treadle_switch_register(sw, TREADLE_GRADS, 0, pages, 64));
  RANK_FAILS(TREADLE_REFUSED, "has own train tensors",
             treadle_switch_register(sw, TREADLE_PARAMS, 0, a->page, 64));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_to_train(sw));
  if (mine) munmap(pages, bytes);
  RANK_FAILS(mine ? TREADLE_STATE : TREADLE_PEER, "that memory is not there any more",
             treadle_switch_to_infer(sw));
  RANK_TRUE(strstr(treadle_error_message(), "own infer tensor '") &&
            treadle_switch_mode(sw) == TREADLE_TRAIN);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  if (!mine) munmap(pages, bytes);
  own_release(&own[0]);
  own_release(&own[1]);
  return 0;
}

static void test_unmapped(void **state) {
  (void)state;
  act a;
  act_init(&a);
  a.page = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ranks_as_threads(SCENE_RANKS, 100, 1, unmapped, &a);
  munmap(a.page, PAGES);
  scene_release(&a.s);
}

/* The n-th allocation of all threads fails: all ranks fail with it, or none needed it. */
static int starving(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch_options options;
  bool last = false;
  own_init(a, group->rank, own, &options);
  for (long n = 1; !last; n = n < 60 ? n + 1 : n + n / 10) {
    treadle_switch *sw = NULL;
    RANK_OK(treadle_group_barrier(group));
    long before = treadle_alloc_count();
    RANK_OK(treadle_group_barrier(group));
    if (group->rank == 0) treadle_alloc_fail_at(n);
    RANK_OK(treadle_group_barrier(group));
    a->statuses[group->rank] = treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw);
    RANK_OK(treadle_group_barrier(group));
    long used = treadle_alloc_count() - before;
    RANK_OK(treadle_group_barrier(group));
    if (group->rank == 0) treadle_alloc_fail_at(0);
    RANK_OK(treadle_group_barrier(group));
    treadle_status status = a->statuses[0];
    RANK_TRUE(a->statuses[group->rank] == status && (sw != NULL) == (status == TREADLE_OK));
    RANK_TRUE(status == TREADLE_OK || status == TREADLE_NO_MEMORY);
    last = status == TREADLE_OK && used < n;
    if (status == TREADLE_OK) RANK_OK(treadle_switch_to_infer(sw));
    RANK_OK(treadle_group_barrier(group));
    treadle_switch_destroy(sw);
  }
  own_release(&own[0]);
  own_release(&own[1]);
  return 0;
}

static void test_starving(void **state) {
  (void)state;
  act a;
  act_init(&a);
  a.options.cap_bytes = 32 * SCENE_PAGE;
  ranks_as_threads(SCENE_RANKS, 60, 0, starving, &a);
  scene_release(&a.s);
}

/* ---- Another group, guarded pages, addresses ---- */

static int moving(treadle_group *group, void *context) {
  act *a = context;
  own_memory own[2];
  treadle_switch *sw;
  size_t bytes;
  if (make(a, group, own, &sw)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_rejoin(sw, a->second[group->rank]));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_OK(treadle_switch_trim(sw));
  for (int i = 0; i < 3; i++) {
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(is_right(a, sw, TREADLE_INFER_PARAMS) && is_right(a, sw, TREADLE_PARAMS));
    RANK_OK(treadle_switch_to_forward(sw));
    RANK_OK(treadle_switch_to_train(sw));
  }
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < own[side].count; i++) {
      const treadle_own_tensor *tensor = &own[side].tensors[i];
      RANK_TRUE(treadle_switch_tensor(sw, side ? TREADLE_INFER_PARAMS : TREADLE_PARAMS, tensor->storage,
                                      &bytes) == tensor->memory);
      RANK_TRUE(bytes == tensor->bytes);
    }
  return end(a->second[group->rank], sw, own);
}

static void test_moving(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    act a;
    act_init(&a);
    a.options.guard_pages = i % 2;
    a.options.cap_bytes = 32 * SCENE_PAGE;
    if (i >= 2) a.train = OWN_SOME;
    if (i >= 2) a.infer = OWN_SOME;
    a.options.offload_train_param = TREADLE_OFF;
    assert_ok(treadle_group_threads(SCENE_RANKS, 60, a.second));
    ranks_as_threads(SCENE_RANKS, 100, (uint64_t)i, moving, &a);
    for (int rank = 0; rank < SCENE_RANKS; rank++) treadle_group_close(a.second[rank]);
    scene_release(&a.s);
  }
}

/* ---- Far ---- */

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_cap),
                                     cmocka_unit_test(test_failures), cmocka_unit_test(test_unmapped),
                                     cmocka_unit_test(test_moving),   cmocka_unit_test(test_starving)};
  const struct CMUnitTest over_nodes[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_failures),
                                          cmocka_unit_test(test_unmapped)};
  return cmocka_run_group_tests(tests, NULL, NULL) + RANKS_OVER_NODES(over_nodes);
}
