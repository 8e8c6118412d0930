/* A store over TCP among threads of one process: many ranks that set and wait at the same time. Run under TSan too.
 * ctest: label=threads */
#include "test.h"
#include "meet/store_place.h"
#include "treadle_tools.h"

#include "base/clock.h"

#include <pthread.h>

enum { RANKS = 40, ROUNDS = 20 };

typedef struct rank {
  pthread_t id;
  const char *address;
  int number;
  treadle_status status;
  char why[300];
} rank;

static treadle_status share(const rank *r) {
  treadle_status status = TREADLE_OK;
  const treadle_store_options options = store_options(r->address, r->number, RANKS, 30);
  treadle_store store = TREADLE_INIT(treadle_store);
  char key[40], value[40];
  size_t bytes;
  treadle_group *group;
  TRY(treadle_store_open(&options, &store));
  for (int round = 0; round < ROUNDS; round++) {
    snprintf(key, sizeof key, "%d of %d", round, r->number);
    TRY(store.set(store.context, key, key, strlen(key)));
    snprintf(key, sizeof key, "%d of %d", round, (r->number + 1 + round) % RANKS);
    TRY(store.get(store.context, key, 20, value, sizeof value, &bytes));
    if (bytes != strlen(key) || memcmp(key, value, bytes) != 0)
      TRY(treadle_error_set(TREADLE_DIFFERENT, "another value"));
  }
  TRY(treadle_group_nodes(&store, r->number, RANKS, RANKS / 2, 20, &group));
  status = treadle_group_barrier(group);
  treadle_group_close(group);
out:
  treadle_store_close(&store);
  return status;
}

static void *run(void *context) {
  rank *r = context;
  r->status = share(r);
  if (r->status != TREADLE_OK) snprintf(r->why, sizeof r->why, "%s", treadle_error_message());
  return NULL;
}

static void test_share(void **state) {
  static rank ranks[RANKS];
  const char *address = store_place();
  int files = test_open_files(), threads = store_threads();
  (void)state;
  for (int i = RANKS - 1; i >= 0; i--) { /* rank 0 last */
    ranks[i].address = address;
    ranks[i].number = i;
    assert_int_equal(pthread_create(&ranks[i].id, NULL, run, &ranks[i]), 0);
  }
  for (int i = 0; i < RANKS; i++) {
    pthread_join(ranks[i].id, NULL);
    if (ranks[i].status != TREADLE_OK) fail_msg("rank %d: %s", i, ranks[i].why);
  }
  assert_int_equal(test_open_files(), files);
  assert_true(store_threads() <= threads + TEST_SANITIZED); /* a sanitizer may have one of its own */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_share)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
