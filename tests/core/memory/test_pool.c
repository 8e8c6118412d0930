/* Pools: what they hold is what was asked for, windows are other addresses of the same memory, and what
 * does not fit is refused. */
#include "base/random.h"
#include "memory/pool.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { KIB4 = 4096, MIB2 = 2 << 20 };

static treadle_pool *make(int64_t pages, int64_t page_bytes) {
  treadle_pool *pool;
  assert_ok(treadle_pool_create(pages, page_bytes, pages * page_bytes, &pool));
  return pool;
}

/* st_blocks is exact from the start, with pages of all sizes, whether the system has huge pages or not. */
static void test_sizes(void **state) {
  (void)state;
  static const int64_t sizes[] = {KIB4, 64 << 10, 1 << 20, MIB2, 4 << 20};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++)
    for (int64_t pages = 0; pages <= 9; pages += 3) {
      treadle_pool *pool = make(pages, sizes[i]);
      assert_int_equal(treadle_pool_bytes(pool), pages * sizes[i]);
      assert_int_equal(treadle_pool_held_bytes(pool), pages * sizes[i]);
      if (pages > 0)
        memset(treadle_pool_base(pool), 7, (size_t)(pages * sizes[i]));
      else
        assert_null(treadle_pool_base(pool));
      assert_int_equal(treadle_pool_held_bytes(pool), pages * sizes[i]);
      treadle_pool_destroy(pool);
    }
}

static void test_zeroed(void **state) {
  (void)state;
  treadle_pool *pool = make(3, MIB2);
  const char *base = treadle_pool_base(pool);
  for (int64_t i = 0; i < 3 * MIB2; i += 512) assert_int_equal(base[i], 0);
  treadle_pool_destroy(pool);
}

/* A window in any order is the same memory as the pool, and two windows may share pages. */
static void check_window(int64_t page_bytes) {
  enum { PAGES = 12 };
  treadle_pool *pool = make(PAGES, page_bytes);
  treadle_random random = {(uint64_t)page_bytes};
  int32_t table[PAGES];
  for (int i = 0; i < PAGES; i++) table[i] = i;
  for (int i = PAGES - 1; i > 4; i--) { /* the first few stay in order, to share mappings */
    int k = (int)treadle_random_between(&random, 5, i);
    int32_t t = table[i];
    table[i] = table[k];
    table[k] = t;
  }
  void *window, *other, *empty = &window;
  assert_ok(treadle_pool_map(pool, table, PAGES, &window));
  assert_ok(treadle_pool_map(pool, table + 3, 4, &other));
  assert_ok(treadle_pool_map(pool, table, 0, &empty));
  assert_null(empty);
  assert_int_equal((uintptr_t)window % MIB2, 0);
  char *base = treadle_pool_base(pool), *seen = window, *part = other;
  for (int i = 0; i < PAGES; i++) {
    seen[i * page_bytes + 17] = (char)(i + 1);
    assert_int_equal(base[table[i] * page_bytes + 17], i + 1);
    base[table[i] * page_bytes + page_bytes - 1] = (char)(i + 40);
    assert_int_equal(seen[(i + 1) * page_bytes - 1], i + 40);
  }
  for (int i = 0; i < 4; i++) assert_int_equal(part[i * page_bytes + 17], i + 4);
  assert_int_equal(treadle_pool_held_bytes(pool), PAGES * page_bytes);
  treadle_pool_destroy(pool);
}

static void test_windows(void **state) {
  (void)state;
  check_window(KIB4);
  check_window(MIB2);
}

static void test_refusals(void **state) {
  (void)state;
  treadle_pool *pool = NULL;
  assert_fails(TREADLE_NO_MEMORY, "budget is 12287 bytes",
               treadle_pool_create(3, KIB4, 3 * KIB4 - 1, &pool));
  assert_null(pool);
  assert_refused("power of two", treadle_pool_create(3, KIB4 - 1, 1 << 30, &pool));
  assert_refused("power of two", treadle_pool_create(3, 2048, 1 << 30, &pool));
  assert_refused("power of two", treadle_pool_create(3, 3 * KIB4, 1 << 30, &pool));
  assert_refused("pages", treadle_pool_create(-1, KIB4, 1 << 30, &pool));
  assert_refused("pages", treadle_pool_create(INT64_C(1) << 40, KIB4, INT64_MAX, &pool));
  assert_fails(TREADLE_NO_MEMORY, "",
               treadle_pool_create(INT32_MAX, 1 << 30, INT64_MAX, &pool)); /* 2 EiB */
}

/* A window in which no two pages are neighbours needs a mapping for each; the system allows 65,530 unless it was told otherwise, and some have
 * 1,048,576. */
static void test_mappings(void **state) {
  (void)state;
  enum { PAGES = 3, MOST = 1 << 24 };
  long long allowed = 0;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
  bool is_read = file && fscanf(file, "%lld", &allowed) == 1;
  if (file) fclose(file);
  if (!is_read || allowed > MOST) skip();
  int32_t *table = malloc((size_t)allowed * sizeof *table);
  void *window;
  treadle_pool *pool = make(PAGES, KIB4);
  assert_non_null(table);
  for (int i = 0; i < allowed; i++) table[i] = PAGES - 1 - i % PAGES;
  assert_refused("mappings", treadle_pool_map(pool, table, allowed, &window));
  assert_null(window);
  for (int i = 0; i < PAGES; i++) table[i] = i;
  assert_ok(treadle_pool_map(pool, table, PAGES, &window));
  treadle_pool_destroy(pool);
  free(table);
}

/* A peer sees what the owner writes, and cannot write. */
static void test_peer(void **state) {
  (void)state;
  treadle_pool *pool = make(4, KIB4);
  char *base = treadle_pool_base(pool);
  void *mapped, *none;
  int descriptor;
  assert_ok(treadle_pool_export(pool, 0, 1, false, &descriptor));
  assert_ok(treadle_pool_map_peer(descriptor, 4 * KIB4, &mapped));
  const char *peer = mapped;
  base[3 * KIB4] = 9;
  assert_int_equal(peer[3 * KIB4], 9);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)mapped = 1; /* must not work */
    _exit(0);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_false(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  assert_fails(TREADLE_PEER, "smaller", treadle_pool_map_peer(descriptor, 5 * KIB4, &none));
  close(descriptor);
  treadle_pool_unmap_peer(mapped, 4 * KIB4);
  treadle_pool_destroy(pool);
}

static treadle_status make_and_map(void) {
  treadle_status status = TREADLE_OK;
  treadle_pool *pool = NULL;
  int32_t table[] = {2, 0, 1};
  void *window;
  TRY(treadle_pool_create(3, KIB4, 3 * KIB4, &pool));
  TRY(treadle_pool_map(pool, table, 3, &window));
out:
  treadle_pool_destroy(pool);
  return status;
}

/* Closed, a window is read as before; open again, it is written as before. */
static void test_closing(void **state) {
  (void)state;
  treadle_pool *pool = make(3, MIB2);
  const int32_t table[] = {1, 2};
  void *window;
  assert_ok(treadle_pool_map(pool, table, 2, &window));
  for (int turn = 0; turn < 3; turn++) {
    assert_ok(treadle_pool_close_window(pool, window, 2 * MIB2, false));
    memset(window, turn + 1, 2 * MIB2);
    assert_ok(treadle_pool_close_window(pool, window, 2 * MIB2, true));
    assert_ok(treadle_pool_close_window(pool, window, 2 * MIB2, true));
    for (int64_t i = 0; i < 2 * MIB2; i += 512) assert_int_equal(((char *)window)[i], turn + 1);
    assert_int_equal(((char *)treadle_pool_base(pool))[MIB2], turn + 1);
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      *(volatile char *)window = 9;
      _exit(0);
    }
    int how = 0;
    waitpid(child, &how, 0);
    assert_true(!WIFEXITED(how) || WEXITSTATUS(how) != 0);
  }
  assert_fails(TREADLE_SYSTEM, "pool: it has no window of 2097152 bytes there",
               treadle_pool_close_window(pool, window, MIB2, true));
  assert_ok(treadle_pool_close_window(pool, NULL, 0, true));
  treadle_pool_destroy(pool);
}

static void test_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(make_and_map());
}

/* The window goes to other pages at its address, by new mappings or with the page tables of a second window; and back. */
static void test_other_pages(void **state) {
  (void)state;
  enum { PAGES = 7 };
  static const int64_t sizes[] = {KIB4, 64 << 10, MIB2};
  static const int32_t first[PAGES] = {3, 2, 0, 1, 5, 4, 6}, second[PAGES] = {7, 8, 9, 10, 11, 12, 13};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    const size_t page = (size_t)sizes[i];
    treadle_pool *pool = make(2 * (int64_t)PAGES, sizes[i]);
    char *base = treadle_pool_base(pool);
    void *window, *shadow;
    for (int k = 0; k < 2 * PAGES; k++) memset(base + (size_t)k * page, k + 1, page);
    assert_ok(treadle_pool_map(pool, first, PAGES, &window));
    assert_ok(treadle_pool_map(pool, second, PAGES, &shadow));
    for (int round = 0; round < 6; round++) {
      const int32_t *now = round % 2 ? first : second, *next = round % 2 ? second : first;
      if (round < 4)
        assert_ok(treadle_pool_follow(pool, window, shadow, now, PAGES));
      else
        assert_ok(treadle_pool_remap(pool, window, now, PAGES));
      for (int k = 0; k < PAGES; k++) {
        char *at = (char *)window + (size_t)k * page;
        assert_true(at[0] == now[k] + 1 && at[page - 1] == now[k] + 1);
        at[1] = (char)(now[k] + 1); /* it may be written, and is the pool's page */
        assert_true(base[(size_t)now[k] * page] == at[0]);
      }
      assert_ok(treadle_pool_remap(pool, shadow, next, PAGES));
    }
    assert_fails(TREADLE_SYSTEM, "no window", treadle_pool_remap(pool, base, first, PAGES));
    assert_fails(TREADLE_SYSTEM, "no window", treadle_pool_remap(pool, window, first, PAGES - 1));
    treadle_pool_destroy(pool);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes),       cmocka_unit_test(test_zeroed),
      cmocka_unit_test(test_windows),     cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_peer),        cmocka_unit_test(test_mappings),
      cmocka_unit_test(test_allocations), cmocka_unit_test(test_other_pages),
      cmocka_unit_test(test_closing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
