/* Whether there is memory for what the ranks are about to make: who counts together, and what is said. */
#include "switch/room.h"

#include "test.h"
#include "group/ranks.h"

enum { RANKS = 4, MIB = 1 << 20, ALL = 100, ROOMY = 4000 };

static const uint64_t mib = MIB;

typedef struct act {
  treadle_demand demands[RANKS];
  treadle_status wanted;
  const char *words;
} act;

static void limit_to(treadle_demand *d, uint64_t id, uint64_t left, const char *text) {
  treadle_limit *limit = &d->limits.memory[d->limits.count++];
  *limit = (treadle_limit){.id = id, .bytes = left + 7 * mib, .left = left};
  snprintf(limit->text, sizeof limit->text, "%s", text);
}

/* Ranks in processes of their own on a machine that has plenty, each with 100 MiB to share, of huge pages. */
static act begin(void) {
  act a = {.wanted = TREADLE_OK};
  for (int rank = 0; rank < RANKS; rank++) {
    treadle_demand *d = &a.demands[rank];
    d->pool = d->shared = d->mapped = d->addresses = ALL * mib;
    d->huge = true;
    d->limits.addresses.id = (uint64_t)rank + 1;
    limit_to(d, 0, ROOMY * mib, "this machine");
  }
  return a;
}

static int ask(treadle_group *group, void *context) {
  const act *a = context;
  if (a->wanted == TREADLE_OK)
    RANK_OK(treadle_room_ask(group, &a->demands[group->rank]));
  else
    RANK_FAILS(a->wanted, a->words, treadle_room_ask(group, &a->demands[group->rank]));
  RANK_OK(treadle_group_barrier(group)); /* nobody is left behind */
  return 0;
}

static void check(act *a, const char *words) {
  a->wanted = words ? TREADLE_NO_MEMORY : TREADLE_OK;
  a->words = words;
  ranks_as_threads(RANKS, 30, 0, ask, a);
}

static void test_machine(void **state) {
  (void)state;
  act a = begin();
  check(&a, NULL);
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.memory[0].left = 380 * mib;
  check(
      &a,
      "switch: 4 ranks need 404.01 MiB of memory (pools 400.00 MiB, host memory 0 B, tables 4.01 MiB, the "
      "caller's own 0 B), and this machine leaves 380.00 MiB of 3.91 GiB");
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.memory[0].left = 405 * mib;
  check(&a, NULL);
  a.demands[2].limits.memory[0].left = 300 * mib; /* who reads least is believed */
  check(&a, "this machine leaves 300.00 MiB");
}

static void test_all_that_is_taken(void **state) {
  (void)state;
  act a = begin();
  for (int rank = 0; rank < RANKS; rank++) {
    a.demands[rank].host = 200 * mib;
    a.demands[rank].others = 50 * mib;
    a.demands[rank].tables = mib;
    a.demands[rank].limits.memory[0].left = 1380 * mib;
  }
  check(&a, "(pools 400.00 MiB, host memory 800.00 MiB, tables 9.96 MiB, the caller's own 200.00 MiB)");
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.memory[0].left = 1415 * mib;
  check(&a, NULL);
  /* Small pages: each rank's tables for all pools. */
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].huge = false;
  a.demands[0].limits.memory[0].left = 1411 * mib;
  check(&a, "tables 13.08 MiB");
}

/* Two in each of two groups, which lie in one that all are in. */
static void test_groups(void **state) {
  (void)state;
  act a = begin();
  for (int rank = 0; rank < RANKS; rank++) {
    limit_to(&a.demands[rank], rank % 2 ? 11 : 10, 210 * mib, rank % 2 ? "group /odd" : "group /even");
    limit_to(&a.demands[rank], 5, 410 * mib, "group /");
  }
  check(&a, NULL);
  a.demands[1].limits.memory[1].left = a.demands[3].limits.memory[1].left = 150 * mib;
  check(
      &a,
      "switch: 2 ranks need 202.00 MiB of memory (pools 200.00 MiB, host memory 0 B, tables 2.00 MiB, the "
      "caller's own 0 B), and group /odd leaves 150.00 MiB of 217.00 MiB");
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.memory[2].left = 50 * mib;
  check(&a, "4 ranks need"); /* most is missing there */
  a = begin();
  limit_to(&a.demands[3], 12, 99 * mib, "group /alone");
  check(&a, "switch: rank 3 needs 101.00 MiB of memory");
}

static void test_addresses(void **state) {
  (void)state;
  act a = begin();
  treadle_limits *limits = &a.demands[2].limits;
  limits->has_addresses = true;
  limits->addresses.bytes = 500 * mib;
  limits->addresses.left = 400 * mib;
  snprintf(limits->addresses.text, sizeof limits->addresses.text, "RLIMIT_AS");
  check(&a, NULL);
  limits->addresses.left--;
  check(
      &a,
      "switch: rank 2 needs 400.00 MiB of addresses (its pool of 100.00 MiB, windows, host memory of 0 B, "
      "the pools of its peers, the caller's own 0 B), and RLIMIT_AS leaves 400.00 MiB of 500.00 MiB");
  /* Ranks of one process map no peers, and have what is left together. */
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.addresses.id = 7;
  check(&a, "rank 2 needs 400.00 MiB of addresses");
  limits->addresses.left++;
  check(&a, NULL);
}

static void test_more_than_fits_a_number(void **state) {
  (void)state;
  act a = begin();
  for (int rank = 0; rank < RANKS; rank++)
    a.demands[rank].pool = a.demands[rank].host = a.demands[rank].mapped = (uint64_t)1 << 63;
  check(&a, "this machine leaves 3.91 GiB");
}

/* No limit is known: nothing is refused. */
static void test_unknown(void **state) {
  (void)state;
  act a = begin();
  for (int rank = 0; rank < RANKS; rank++) a.demands[rank].limits.count = 0;
  a.demands[0].pool = (uint64_t)1 << 62;
  check(&a, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_machine),
                                     cmocka_unit_test(test_all_that_is_taken),
                                     cmocka_unit_test(test_groups),
                                     cmocka_unit_test(test_addresses),
                                     cmocka_unit_test(test_more_than_fits_a_number),
                                     cmocka_unit_test(test_unknown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
