/* A rank that does not get what it needs to make a switch: shared memory is full, addresses are limited, descriptors, the n-th
 * mapping or the n-th allocation are refused. Creation then fails on all ranks, with the reason, at once; nothing is left
 * behind, and when there is enough again they make it together.
 * ctest: timeout=300 */
#include "switch/faults.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { GRADS = 40000, OPTIMIZER = 120001, MESSAGE = 600, AT_ONCE = 5 /* seconds */ };

typedef enum shortage {
  SHORT_FILE = 0,
  SHORT_ADDRESSES,
  SHORT_MAPPINGS,
  SHORT_DESCRIPTORS,
  SHORT_ALLOCATIONS
} shortage;

typedef struct seen { /* by rank, in memory that all processes share */
  int statuses[SCENE_RANKS], again[SCENE_RANKS], leaks[SCENE_RANKS];
  double seconds[SCENE_RANKS];
  char messages[SCENE_RANKS][MESSAGE];
} seen;

typedef struct act {
  scene s;
  seen *seen;
  treadle_switch_options options;
  shortage what;
  int rank;  /* which falls short */
  long room; /* how much it has, or which request is refused */
} act;

/* ---- Shortages ---- */

static long full_at; /* the n-th file that is to get its pages does not; 0: all do */

/* In place of the C library's. */
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  if (full_at > 0 && --full_at == 0) {
    errno = ENOSPC;
    return -1;
  }
  return (int)syscall(SYS_fallocate, descriptor, mode, offset, bytes);
}

#if !TEST_SANITIZED
static long unmapped_at; /* the n-th mapping that is asked for is refused; 0: none is */

void *mmap(void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  if (unmapped_at > 0 && --unmapped_at == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, descriptor, offset);
}
#else
static long unmapped_at; /* mappings are the sanitizer's */
#endif

static void limit(int what, rlim_t value) {
  struct rlimit both;
  if (getrlimit(what, &both) != 0) return;
  both.rlim_cur = value < both.rlim_max ? value : both.rlim_max;
  (void)setrlimit(what, &both);
}

static rlim_t addresses_used(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void begin_shortage(const act *a) {
  int next = dup(0);
  if (next >= 0) close(next);
  if (a->what == SHORT_FILE) full_at = a->room;
  if (a->what == SHORT_ADDRESSES) limit(RLIMIT_AS, addresses_used() + (rlim_t)a->room);
  if (a->what == SHORT_MAPPINGS) unmapped_at = a->room;
  if (a->what == SHORT_DESCRIPTORS) limit(RLIMIT_NOFILE, (rlim_t)(next + a->room));
  if (a->what == SHORT_ALLOCATIONS) treadle_alloc_fail_at(a->room);
}

static void end_shortage(void) {
  full_at = unmapped_at = 0;
  limit(RLIMIT_AS, RLIM_INFINITY);
  limit(RLIMIT_NOFILE, 1024);
  treadle_alloc_fail_at(0);
}

/* ---- A rank ---- */

static int go_there_and_back(const act *a, treadle_group *group) {
  treadle_switch *sw;
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &a->options, &sw));
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static int live(const char *name, int rank, int size, void *context) {
  act *a = context;
  treadle_group *group;
  treadle_switch *sw = NULL;
  char again[80];
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  RANK_OK(treadle_group_barrier(group));
  double begin = treadle_clock_seconds();
  if (rank == a->rank) begin_shortage(a);
  a->seen->statuses[rank] = treadle_switch_create(group, a->s.train, a->s.infer, &a->options, &sw);
  end_shortage();
  a->seen->seconds[rank] = treadle_clock_seconds() - begin;
  if (a->seen->statuses[rank] != TREADLE_OK)
    snprintf(a->seen->messages[rank], MESSAGE, "%s", treadle_error_message());
  if (sw) RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  snprintf(again, sizeof again, "%sagain", name);
  RANK_OK(treadle_group_open(again, rank, size, 60, &group));
  if (go_there_and_back(a, group)) return 1;
  treadle_group_close(group);
  a->seen->leaks[rank] = fault_leaks();
  a->seen->again[rank] = true;
  return 0;
}

/* ---- All of them ---- */

/* Is it the reason, on the rank that falls short? The others have it from there. */
static bool is_reason(int status) {
  return status == TREADLE_NO_MEMORY || status == TREADLE_SYSTEM || status == TREADLE_PEER;
}

/* One attempt; true when creation was refused. */
static bool is_refused(act *a) {
  int results[SCENE_RANKS];
  memset(a->seen, 0, sizeof *a->seen);
  ranks_as_processes(SCENE_RANKS, 100, live, a, results);
  const seen *s = a->seen;
  bool refused = s->statuses[0] != TREADLE_OK;
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    bool good = results[rank] == 0 && s->again[rank] && s->leaks[rank] == 0 && s->seconds[rank] < AT_ONCE;
    good = good && (s->statuses[rank] != TREADLE_OK) == refused;
    good = good && (!refused || (is_reason(s->statuses[rank]) && s->messages[rank][0]));
    if (!good)
      fail_msg(
          "shortage %d of rank %d, room %ld: rank %d ended with %d after %.1f s, status %d, leaks %d: %s",
          (int)a->what, a->rank, a->room, rank, results[rank], s->seconds[rank], s->statuses[rank],
          s->leaks[rank], s->messages[rank]);
  }
  return refused;
}

static bool says(const act *a, const char *words) {
  for (int rank = 0; rank < SCENE_RANKS; rank++)
    if (!strstr(a->seen->messages[rank], words)) return false;
  return true;
}

static void act_init(act *a, shortage what) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->what = what;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 60,
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .offload_train_optimizer = TREADLE_ON,
                                        .keep = TREADLE_KEEP_HOST};
  a->seen = mmap(NULL, sizeof *a->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(a->seen != MAP_FAILED);
}

static void act_release(act *a) {
  munmap(a->seen, sizeof *a->seen);
  scene_release(&a->s);
}

/* Pools and page tables lie in shared memory. */
static void test_full_file(void **state) {
  act a;
  (void)state;
  act_init(&a, SHORT_FILE);
  for (a.rank = 0; a.rank < SCENE_RANKS; a.rank++)
    for (a.room = 1; a.room <= 3; a.room++) {
      assert_true(is_refused(&a) == (a.room <= 2));
      assert_true(a.room > 2 || says(&a, "No space left on device"));
    }
  act_release(&a);
}

/* And the control block of a group. */
static int open_without_memory(const char *name, int rank, int size, void *context) {
  treadle_group *group = NULL;
  (void)context;
  full_at = rank == 0;
  treadle_status status = treadle_group_open(name, rank, size, 2, &group);
  RANK_TRUE(status != TREADLE_OK && !group && fault_leaks() == 0);
  RANK_TRUE(rank > 0 || strstr(treadle_error_message(), "No space left on device"));
  return 0;
}

static void test_full_control_block(void **state) {
  int results[SCENE_RANKS];
  (void)state;
  ranks_as_processes(SCENE_RANKS, 30, open_without_memory, NULL, results);
  for (int rank = 0; rank < SCENE_RANKS; rank++) assert_int_equal(results[rank], 0);
}

static void test_descriptors(void **state) {
  act a;
  int refused = 0;
  (void)state;
  act_init(&a, SHORT_DESCRIPTORS);
  for (a.rank = 0; a.rank < SCENE_RANKS; a.rank += 2)
    for (a.room = 0; a.room == 0 || is_refused(&a); a.room++) refused++;
  assert_true(refused > 4);
  act_release(&a);
}

static void test_allocations(void **state) {
  act a;
  int refused = 0;
  (void)state;
  act_init(&a, SHORT_ALLOCATIONS);
  for (a.rank = 1; a.rank < SCENE_RANKS; a.rank += 2)
    for (a.room = 1; is_refused(&a); a.room += 1 + a.room / 4) refused++;
  assert_true(refused > 10);
  act_release(&a);
}

/* From none to as many as all take: nothing is begun that would not fit. */
static void test_addresses(void **state) {
#if TEST_SANITIZED
  (void)state;
  print_message("skipped: a sanitizer needs addresses for itself\n");
#else
  act a;
  int refused = 0, asked = 0;
  (void)state;
  act_init(&a, SHORT_ADDRESSES);
  a.options.optimizer_bytes = 6 << 20;
  for (a.rank = 0; a.rank < SCENE_RANKS; a.rank += 3)
    for (a.room = 0; is_refused(&a); a.room += 1536 << 10) {
      refused++;
      asked += says(&a, "of addresses (") && says(&a, ", and RLIMIT_AS leaves ");
    }
  print_message("%d refused, %d of them before anything was mapped\n", refused, asked);
  assert_true(refused > 10 && asked > 10);
  act_release(&a);
#endif
}

/* The pool, its windows, the twins, the memory of the peers in turn, in spite of what was asked before. */
static void test_mappings(void **state) {
#if TEST_SANITIZED
  (void)state;
  print_message("skipped: mappings are the sanitizer's\n");
#else
  act a;
  int refused = 0, twins = 0;
  (void)state;
  act_init(&a, SHORT_MAPPINGS);
  for (a.rank = 0; a.rank < SCENE_RANKS; a.rank += 3)
    for (a.room = 1; is_refused(&a); a.room++) {
      refused++;
      twins += says(&a, "no host memory of");
    }
  print_message("%d refused, %d of them for a twin\n", refused, twins);
  assert_true(refused > 10 && twins >= 2);
  act_release(&a);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_full_file),   cmocka_unit_test(test_full_control_block),
      cmocka_unit_test(test_descriptors), cmocka_unit_test(test_allocations),
      cmocka_unit_test(test_addresses),   cmocka_unit_test(test_mappings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
