/* Who may touch what: forked children read and write pages of every window in every mode, and die where they should; what
 * peers read of pages that were reclaimed. ctest: stage=gcc label=threads timeout=900 */
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { GRADS = 40000, OPTIMIZER = 30000, KV_BLOCK = 3000, PATTERN = 0xa5 };

typedef struct act {
  scene s;
  treadle_layout *infer;
  treadle_switch_options options;
  int turn; /* the rank that forks, or fails */
  treadle_switch *switches[SCENE_RANKS];
} act;

static void act_init(act *a, bool alias, bool guard) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->infer = alias ? a->s.alike : a->s.infer;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .alias = alias,
                                        .guard_pages = guard,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .kv_block_bytes = KV_BLOCK};
}

static int make(treadle_group *group, act *a, treadle_switch **sw_p) {
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, sw_p));
  (*sw_p)->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(*sw_p)));
  a->switches[group->rank] = *sw_p;
  return 0;
}

/* ---- Touching ---- */

typedef enum right { NOTHING = 0, READ, READ_WRITE, BROKEN } right;

/* Does a child that does this live? The byte stays what it is. */
static bool survives(volatile char *at, bool writes, bool *broken) {
  int how = 0;
  pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGSEGV, SIG_DFL);
    char value = *at;
    if (writes) *at = value;
    _exit(0);
  }
  if (child < 0 || waitpid(child, &how, 0) != child) *broken = true;
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV) return false;
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) *broken = true;
  return true;
}

static right right_to(void *at) {
  bool broken = false, reads = survives(at, false, &broken), writes = reads && survives(at, true, &broken);
  return broken ? BROKEN : writes ? READ_WRITE : reads ? READ : NOTHING;
}

/* What the header says of it. */
static right right_of(const treadle_switch *sw, treadle_class which, bool shared) {
  treadle_mode mode = treadle_switch_mode(sw);
  bool training = (int)which < TREADLE_TRAIN_CLASSES, leaves = training && sw->terms.leaves[which];
  if (!sw->terms.options.guard_pages) { /* shared pages, and with them all of params that have left */
    if (which == TREADLE_PARAMS && leaves && sw->space.tables.aliased && mode == TREADLE_INFER) return READ;
    if (shared && which == TREADLE_INFER_PARAMS) return READ;
    return shared && mode == TREADLE_INFER ? READ : READ_WRITE;
  }
  switch (mode) {
  case TREADLE_TRAIN: return training ? READ_WRITE : NOTHING;
  case TREADLE_FORWARD: return which == TREADLE_PARAMS ? READ : training && !leaves ? READ_WRITE : NOTHING;
  case TREADLE_INFER: return leaves ? NOTHING : shared ? READ : READ_WRITE;
  case TREADLE_HOST:
  case TREADLE_LOST: break;
  }
  return NOTHING;
}

/* The first page of a window that both windows share, or do not; -1: none. */
static int64_t page_of(const treadle_switch *sw, treadle_class which, bool shared) {
  for (int64_t i = 0; i < sw->space.tables.pages[which]; i++)
    if ((sw->space.tables.aliased && sw->space.tables.aliased[sw->space.tables.page[which][i]]) == shared) return i;
  return -1;
}

static int check_rights(const act *a, treadle_switch *sw) {
  static const char *const names[] = {"nothing", "reading", "reading and writing", "something else"};
  for (int c = 0; c < TREADLE_CLASSES && sw->group->rank == a->turn; c++)
    for (int shared = 0; shared < 2; shared++) {
      int64_t page = page_of(sw, (treadle_class)c, shared);
      if (page < 0) continue;
      RANK_TRUE(!shared || c == TREADLE_PARAMS || c == TREADLE_INFER_PARAMS);
      right got =
          right_to((char *)treadle_switch_window(sw, (treadle_class)c, NULL) + page * SCENE_PAGE + 5);
      right wanted = right_of(sw, (treadle_class)c, shared);
      if (got != wanted)
        fprintf(stderr, "mode %s, class %d, page %d, %s: %s goes, and not %s\n",
                treadle_mode_text(treadle_switch_mode(sw)), c, (int)page, shared ? "shared" : "its own",
                names[got], names[wanted]);
      RANK_TRUE(got == wanted);
    }
  RANK_OK(treadle_group_barrier(sw->group));
  return 0;
}

static int touch(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  if (make(group, a, &sw)) return 1;
  RANK_TRUE(!a->options.alias || page_of(sw, TREADLE_PARAMS, true) >= 0);
  RANK_TRUE(page_of(sw, TREADLE_PARAMS, false) >= 0 && page_of(sw, TREADLE_KV, false) >= 0);
  if (check_rights(a, sw)) return 1;
  if (a->options.host) RANK_OK(treadle_switch_to_host(sw));
  if (check_rights(a, sw)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  if (check_rights(a, sw)) return 1;
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_forward(sw));
  if (check_rights(a, sw)) return 1;
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_train(sw));
  if (check_rights(a, sw)) return 1;
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) { /* all of it can be written again */
    volatile char *window = treadle_switch_window(sw, (treadle_class)c, NULL);
    for (int64_t i = 0; i < sw->space.tables.pages[c]; i++) window[i * SCENE_PAGE] = window[i * SCENE_PAGE];
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

/* The bits of `combination` are the flags; params stay or leave, with a twin or without. */
static void try_rights(bool alias, bool guard) {
  act a;
  act_init(&a, alias, guard);
  for (int combination = 0; combination < 8; combination++) {
    treadle_switch_options *o = &a.options;
    o->offload_train_param = combination & 1 ? TREADLE_ON : TREADLE_OFF;
    o->offload_train_grad = combination & 2 ? TREADLE_ON : TREADLE_OFF;
    o->offload_train_optimizer = combination & 4 ? TREADLE_ON : TREADLE_OFF;
    o->keep = (combination & 3) == 3 ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
    o->host = combination != 5;
    size_t room = 0;
    for (int rank = 0; rank < SCENE_RANKS; rank++) {
      size_t windows =
          treadle_layout_window_bytes(a.s.train, rank) + treadle_layout_window_bytes(a.infer, rank);
      if (windows > room) room = windows;
    }
    o->budget_bytes = room + GRADS + OPTIMIZER + 400 * SCENE_PAGE; /* there is a KV cache in any case */
    a.turn = combination % SCENE_RANKS;
    ranks_as_threads(SCENE_RANKS, 60, 0, touch, &a);
  }
  scene_release(&a.s);
}

static void test_guard(void **state) {
  (void)state;
  try_rights(false, true);
}

static void test_guard_alias(void **state) {
  (void)state;
  try_rights(true, true);
}

/* What both windows share is guarded without the option, too. */
static void test_alias_alone(void **state) {
  (void)state;
  try_rights(true, false);
}

/* ---- Late readers ---- */

/* Pages of a peer's window, through this rank's mapping: how many hold the pattern, which must be those that are
 * nobody's. */
static int count_spoiled(const act *a, const treadle_switch *sw, int peer, treadle_mode side,
                         int64_t *count_p) {
  const treadle_switch *owner = a->switches[peer];
  treadle_class which = treadle_class_of(side);
  for (int64_t i = 0; i < owner->space.tables.pages[which]; i++) {
    const unsigned char *page =
        (const unsigned char *)treadle_paged_address(&sw->carry.views[side][peer], i * SCENE_PAGE);
    bool is_nobodys = owner->books.owner[owner->space.tables.page[which][i]] == TREADLE_NOBODY,
         spoiled = true;
    for (int k = 0; k < SCENE_PAGE; k++) spoiled = spoiled && page[k] == PATTERN;
    RANK_TRUE(spoiled == is_nobodys);
    *count_p += spoiled;
  }
  return 0;
}

static int read_late(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  if (make(group, a, &sw)) return 1;
  for (int cycle = 0; cycle < 2; cycle++) {
    int64_t of_train = 0, of_infer = 0;
    for (int side = 0; side < 2; side++) {
      if (side == 0) RANK_OK(treadle_switch_to_infer(sw));
      if (side == 1) RANK_OK(treadle_switch_to_train(sw));
      RANK_OK(treadle_group_barrier(group)); /* all have done what follows the commit */
      for (int peer = 0; peer < SCENE_RANKS; peer++)
        if (count_spoiled(a, sw, peer, side == 0 ? TREADLE_TRAIN : TREADLE_INFER,
                          side == 0 ? &of_train : &of_infer))
          return 1;
      RANK_OK(treadle_group_barrier(group));
    }
    RANK_TRUE(of_train > 0 && of_infer > 0);
  }
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_late_readers(void **state) {
  (void)state;
  for (int alias = 0; alias < 2; alias++) {
    act a;
    act_init(&a, alias, true);
    a.options.kv_block_bytes = 0;
    a.options.cap_bytes = alias ? 0 : (size_t)a.s.cap_min;
    ranks_as_threads(SCENE_RANKS, 60, 0, read_late, &a);
    scene_release(&a.s);
  }
}

/* A rank that reclaims without waiting, while another is late: it is refused before a page is spoiled, and with a twin all
 * stands as it was. */
static int reclaim_early(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  uint64_t digest, again;
  if (make(group, a, &sw)) return 1;
  RANK_OK(treadle_switch_digest(sw, &digest));
  RANK_OK(treadle_switch_plant(sw, TREADLE_FAULT_EARLY, a->turn, 1));
  if (group->rank == (a->turn + 1) % SCENE_RANKS)
    treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_SLOW, TREADLE_AT_WAVE, 0});
  treadle_status status = treadle_switch_to_infer(sw);
  RANK_TRUE(status == (group->rank == a->turn ? TREADLE_DIFFERENT : TREADLE_PEER));
  RANK_TRUE(strstr(treadle_error_message(), "reclaimed early"));
  RANK_TRUE(strstr(treadle_error_message(), "stand as they were"));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  RANK_OK(treadle_switch_digest(sw, &again));
  RANK_TRUE(again == digest && scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_digest(sw, &again));
  RANK_TRUE(again == digest && scene_infers(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_reclaim_early(void **state) {
  act a;
  (void)state;
  act_init(&a, false, true);
  a.options.cap_bytes = (size_t)a.s.cap_min;
  a.options.keep = TREADLE_KEEP_HOST;
  for (a.turn = 0; a.turn < SCENE_RANKS; a.turn++) ranks_as_threads(SCENE_RANKS, 60, 0, reclaim_early, &a);
  scene_release(&a.s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_guard), cmocka_unit_test(test_guard_alias), cmocka_unit_test(test_alias_alone),
      cmocka_unit_test(test_late_readers), cmocka_unit_test(test_reclaim_early)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
