/* Random layout pairs of every family and kind, played and compared bit for bit. TREADLE_PAIRS sets how many (3000),
 * TREADLE_SEED the first seed (1).
 * ctest: timeout=1500 */
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>

enum { MOST = 32, QUOTA = 50 }; /* of QUOTA pairs each family and each kind has at least one */

static int kind_of(const char *kind) {
  int k = 0;
  while (draw_kinds[k] && strcmp(draw_kinds[k], kind) != 0) k++;
  if (!draw_kinds[k]) fail_msg("no kind '%s'", kind);
  return k;
}

/* The pair the other way round, from what the first plan has been seen to leave: a plan of (b, a) after one of
 * (a, b) gives a again, and moves what the way back of the first does. */
static void play_swapped(pair *p, const pair_result *first) {
  pair_side from = p->from;
  p->from = p->to;
  p->to = from;
  pair_result second = pair_play(p, false);
  assert_int_equal(second.moved, first->back_moved);
  assert_int_equal(second.back_moved, first->moved);
}

static void random_pairs(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_PAIRS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : 3000, seed = seed_text ? atoll(seed_text) : 1;
  int64_t from[MOST] = {0}, to[MOST] = {0}, both[MOST] = {0}, family[MOST] = {0};
  int64_t moving = 0, waved = 0, one_way = 0, shifted = 0;
  for (int64_t i = 0; i < count; i++) {
    pair p;
    pair_make(&p, (uint64_t)(seed + i), i % 50 == 0 ? 100000 : 12000);
    pair_result result = pair_play(&p, i % 2 == 0);
    int a = kind_of(p.from.kind), b = kind_of(p.to.kind);
    from[a]++;
    to[b]++;
    both[a]++;
    both[b] += a != b;
    family[draw_family_of(p.json)]++;
    moving += result.moved > 0;
    waved += result.waves > 1;
    one_way += !result.returned;
    shifted += result.returned && !result.lossless;
    if (i % 8 == 3 && result.returned) play_swapped(&p, &result);
    pair_release(&p);
  }
  printf("seeds %" PRId64 " to %" PRId64 ": %" PRId64 " of %" PRId64 " pairs move bytes, %" PRId64
         " in several waves, %" PRId64 " one way, %" PRId64 " with values stored less 1\n",
         seed, seed + count - 1, moving, count, waved, one_way, shifted);
  for (int f = 0; draw_families[f]; f++) printf("  %-18s %5" PRId64 "\n", draw_families[f], family[f]);
  for (int k = 0; draw_kinds[k]; k++)
    printf("  %-10s from %5" PRId64 "  to %5" PRId64 "\n", draw_kinds[k], from[k], to[k]);
  assert_true(moving * 10 >= count * 6);
  for (int f = 0; draw_families[f] && count >= 1000; f++) assert_true(family[f] * QUOTA >= count);
  for (int k = 0; draw_kinds[k] && count >= 1000; k++) assert_true(both[k] * QUOTA >= count);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
