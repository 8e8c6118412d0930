/* Random layout pairs, played and compared bit for bit. TREADLE_PAIRS sets how many (5000), TREADLE_SEED the first
 * seed (1).
 * ctest: timeout=1500 */
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"hf", "megatron", "vllm", "sglang", "pieces"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const pair_side *side) {
  for (int k = 0; k < KINDS; k++)
    if (strcmp(kinds[k], side->kind) == 0) return k;
  fail_msg("no kind '%s'", side->kind);
  return -1;
}

static void random_pairs(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_PAIRS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : 5000, seed = seed_text ? atoll(seed_text) : 1;
  int64_t from[KINDS] = {0}, to[KINDS] = {0}, moving = 0, waved = 0, lossy = 0;
  for (int64_t i = 0; i < count; i++) {
    pair p;
    pair_make(&p, (uint64_t)(seed + i), i % 50 == 0 ? 100000 : 12000);
    pair_result result = pair_play(&p, i % 2 == 0);
    from[kind_of(&p.from)]++;
    to[kind_of(&p.to)]++;
    moving += result.moved > 0;
    waved += result.waves > 1;
    lossy += !result.lossless;
    pair_release(&p);
  }
  printf("seeds %" PRId64 " to %" PRId64 ": %" PRId64 " of %" PRId64 " pairs move bytes, %" PRId64
         " in several waves, %" PRId64 " one way\n",
         seed, seed + count - 1, moving, count, waved, lossy);
  for (int k = 0; k < KINDS; k++)
    printf("  %-9s from %5" PRId64 "  to %5" PRId64 "\n", kinds[k], from[k], to[k]);
  assert_true(moving * 10 >= count * 7);
  for (int k = 0; k < KINDS && count >= 1000; k++) assert_true(from[k] > 0 && to[k] > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
