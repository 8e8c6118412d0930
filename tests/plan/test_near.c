/* Plans over several nodes (src/plan/near.h): each byte enters a node once, and relays bring it to the others, bit for bit. TREADLE_PAIRS sets
 * how many random pairs (1000), TREADLE_SEED the first seed (1).
 * ctest: timeout=1500 */
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>

/* Random numbers of nodes; ranks of a node are seldom neighbours. */
static void draw_nodes(pair *p) {
  treadle_random random = {p->seed * 31 + 7};
  int32_t of[64];
  int64_t count = treadle_random_between(&random, 2, p->ranks < 8 ? p->ranks : 8);
  bool blocks = draw_chance(&random, 40); /* neighbours, as a launcher puts them */
  for (int64_t r = 0; r < p->ranks; r++)
    of[r] = (int32_t)(blocks ? r * count / p->ranks : treadle_random_below(&random, count));
  assert_ok(treadle_nodes_make(of, p->ranks, &p->nodes));
}

static void random_pairs(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_PAIRS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : (int64_t)test_seeds(1000),
          seed = seed_text ? atoll(seed_text) : 1, entering = 0, relaying = 0, played = 0;
  for (int64_t i = 0; i < count; i++) {
    pair p;
    pair_make(&p, (uint64_t)(seed + i), 12000);
    if (p.ranks > 1) {
      draw_nodes(&p);
      pair_result result = pair_play(&p, i % 2 == 0);
      played++;
      entering += result.node_moved > 0;
      relaying += result.relayed > 0;
    }
    pair_release(&p);
  }
  printf("%" PRId64 " pairs: bytes enter nodes in %" PRId64 ", and are relayed in %" PRId64 "\n", played,
         entering, relaying);
  if (count < 100) return;
  assert_true(entering * 2 > played);
  assert_true(relaying * 5 > played);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
