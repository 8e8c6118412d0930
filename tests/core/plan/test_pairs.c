/* Random layout pairs of every family and set, played and compared bit for bit. TREADLE_PAIRS sets how many (2000),
 * TREADLE_SEED the first seed (1).
 * ctest: timeout=1500 */
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>

enum {
  MOST = 32,
  QUOTA = 50, /* of QUOTA pairs each family, each set, and each sort of fp8 pair has at least one... */
  MANY = 2000 /* ...in runs of enough that chance does not miss it */
};

/* Which sides hold fp8 blocks. */
enum { NO_BLOCKS, FROM_BLOCKS, TO_BLOCKS, BOTH_BLOCKS, BLOCKS };
static const char *const sorts[] = {"no fp8", "from fp8", "to fp8", "fp8 to fp8"};

typedef struct tally {
  int64_t pairs, moving, waved, one_way, shifted, banded;
  int64_t from[MOST], to[MOST], both[MOST]; /* by set */
  int64_t fp8[MOST];                        /* of them, those that hold blocks */
  int64_t family[MOST], sort[BLOCKS];
} tally;

static int kind_of(const char *set) {
  int k = 0;
  while (draw_kinds[k] && strcmp(draw_kinds[k], set) != 0) k++;
  if (!draw_kinds[k]) fail_msg("no kind '%s'", set);
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

static void count_pair(tally *t, const pair *p, const pair_result *result) {
  int a = kind_of(p->from.set), b = kind_of(p->to.set);
  bool from_fp8 = p->from.layout->fp8, to_fp8 = p->to.layout->fp8;
  t->pairs++;
  t->from[a]++;
  t->to[b]++;
  t->both[a]++;
  t->both[b] += a != b;
  t->fp8[a] += from_fp8;
  t->fp8[b] += to_fp8 && !(a == b && from_fp8);
  t->sort[from_fp8 ? (to_fp8 ? BOTH_BLOCKS : FROM_BLOCKS) : (to_fp8 ? TO_BLOCKS : NO_BLOCKS)]++;
  t->family[draw_family_of(p->json)]++;
  t->moving += result->moved > 0;
  t->waved += result->waves > 1;
  t->one_way += !result->returned;
  t->shifted += result->returned && !result->lossless;
  t->banded += result->block_rows > 0;
}

static void print_tally(const tally *t, int64_t seed) {
  printf("seeds %" PRId64 " to %" PRId64 ": %" PRId64 " of %" PRId64 " pairs move bytes, %" PRId64
         " in several waves, %" PRId64 " one way, %" PRId64 " with values stored less 1, %" PRId64
         " make or decode fp8 blocks\n",
         seed, seed + t->pairs - 1, t->moving, t->pairs, t->waved, t->one_way, t->shifted, t->banded);
  for (int f = 0; draw_families[f]; f++) printf("  %-18s %5" PRId64 "\n", draw_families[f], t->family[f]);
  for (int k = 0; draw_kinds[k]; k++)
    printf("  %-10s from %5" PRId64 "  to %5" PRId64 "  either %5" PRId64 "  in fp8 %5" PRId64 "\n",
           draw_kinds[k], t->from[k], t->to[k], t->both[k], t->fp8[k]);
  for (int s = 0; s < BLOCKS; s++) printf("  %-10s %5" PRId64 "\n", sorts[s], t->sort[s]);
}

static void check_share(const tally *t, const char *name, int64_t count) {
  if (count * QUOTA < t->pairs)
    fail_msg("%s: %" PRId64 " of %" PRId64 " pairs, less than one of %d", name, count, t->pairs, QUOTA);
}

static void random_pairs(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_PAIRS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : (int64_t)test_seeds(MANY),
          seed = seed_text ? atoll(seed_text) : 1;
  tally t = {0};
  for (int64_t i = 0; i < count; i++) {
    pair p;
    pair_make(&p, (uint64_t)(seed + i), i % 50 == 0 ? 100000 : 12000);
    pair_result result = pair_play(&p, i % 2 == 0);
    count_pair(&t, &p, &result);
    if (i % 8 == 3 && result.returned) play_swapped(&p, &result);
    pair_release(&p);
  }
  print_tally(&t, seed);
  if (count < MANY) return;
  assert_true(t.moving * 10 >= count * 6);
  for (int f = 0; draw_families[f]; f++) check_share(&t, draw_families[f], t.family[f]);
  for (int k = 0; draw_kinds[k]; k++) check_share(&t, draw_kinds[k], t.both[k]);
  for (int s = 0; s < BLOCKS; s++) check_share(&t, sorts[s], t.sort[s]);
  for (int k = 0; draw_kinds[k]; k++)
    if (t.fp8[k] > 0) check_share(&t, draw_kinds[k], t.fp8[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
