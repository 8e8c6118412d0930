/* The table of cache blocks: who finds what by its hash, what goes first, and that half a hash is not enough. */
#include "generate/cache.h"

#include "test.h"

enum { BLOCKS = 4 };

static treadle_hash_pair hash(uint64_t low, uint64_t high) { return (treadle_hash_pair){low, high}; }

static void finds_whole_hashes(void **state) {
  (void)state;
  treadle_cache cache;
  assert_ok(treadle_cache_init(&cache, BLOCKS, 16, true));
  int32_t a = treadle_cache_take(&cache), b = treadle_cache_take(&cache);
  treadle_cache_publish(&cache, a, hash(7, 1));
  treadle_cache_publish(&cache, b, hash(7, 2)); /* the lower half is the same, and so is the list */
  assert_int_equal(treadle_cache_share(&cache, hash(7, 1)), a);
  assert_int_equal(treadle_cache_share(&cache, hash(7, 2)), b);
  assert_int_equal(treadle_cache_share(&cache, hash(7, 3)), -1);
  assert_int_equal(treadle_cache_share(&cache, hash(0, 0)), -1); /* blocks without a hash are not found */
  treadle_cache_publish(&cache, a, hash(0, 0));
  assert_int_equal(treadle_cache_share(&cache, hash(0, 0)), a);
  assert_int_equal(treadle_cache_share(&cache, hash(7, 1)), -1);
  assert_int_equal(cache.used, 2);
  assert_int_equal(cache.most_used, 2);
  treadle_cache_release(&cache);
}

static void forgets_what_is_taken(void **state) {
  (void)state;
  treadle_cache cache;
  int32_t block[BLOCKS];
  assert_ok(treadle_cache_init(&cache, BLOCKS, 16, true));
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = treadle_cache_take(&cache);
    treadle_cache_publish(&cache, block[i], hash((uint64_t)i, 5));
  }
  assert_int_equal(treadle_cache_take(&cache), -1);
  for (int i = BLOCKS - 1; i >= 0; i--) treadle_cache_leave(&cache, block[i]);
  assert_int_equal(treadle_cache_unused(&cache), BLOCKS);
  assert_int_equal(treadle_cache_take(&cache), block[BLOCKS - 1]); /* unused for longest */
  assert_int_equal(treadle_cache_share(&cache, hash(BLOCKS - 1, 5)), -1);
  assert_int_equal(treadle_cache_share(&cache, hash(0, 5)), block[0]);
  treadle_cache_release(&cache);
}

/* Each half of the hash before counts, and so do all tokens. */
static void hashes_all(void **state) {
  (void)state;
  int32_t tokens[16] = {1, 2, 3};
  treadle_hash_pair all[2 + 2 + 16];
  size_t count = 0;
  all[count++] = treadle_cache_hash(hash(1, 0), tokens, 16);
  all[count++] = treadle_cache_hash(hash(2, 0), tokens, 16);
  all[count++] = treadle_cache_hash(hash(1, 1), tokens, 16);
  all[count++] = treadle_cache_hash(hash(1, 0), tokens, 15);
  for (int i = 0; i < 16; i++) {
    tokens[i] ^= 1 << 20;
    all[count++] = treadle_cache_hash(hash(1, 0), tokens, 16);
    tokens[i] ^= 1 << 20;
  }
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++) {
      assert_false(treadle_hash_pair_equal(all[i], all[j]));
      assert_true(all[i].low != all[j].low && all[i].high != all[j].high);
    }
  assert_true(treadle_hash_pair_equal(all[0], treadle_cache_hash(hash(1, 0), tokens, 16)));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_whole_hashes),
                                     cmocka_unit_test(forgets_what_is_taken), cmocka_unit_test(hashes_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
