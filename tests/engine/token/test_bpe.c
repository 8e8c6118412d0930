/* src/engine/token/bpe.c, compared with merging one pair at a time; and words of a million characters. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "test.h"
#include "token/bpe.h"

enum { LETTERS = 4, LONGEST = 40 };

typedef struct made {
  treadle_bpe bpe;
  treadle_random random;
} made;

/* Letters, and merges of known tokens: a merge may be made twice, and then the later rank counts. */
static void make(made *m, uint64_t seed) {
  *m = (made){.random.state = seed, .bpe = {.prefix = "", .suffix = ""}};
  for (int i = 0; i < LETTERS; i++) {
    char letter = (char)('a' + i);
    assert_ok(treadle_tokens_put(&m->bpe.tokens, i, &letter, 1));
  }
  for (int32_t rank = 0; rank < 30; rank++) {
    int32_t left = (int32_t)treadle_random_below(&m->random, m->bpe.tokens.count),
            right = (int32_t)treadle_random_below(&m->random, m->bpe.tokens.count);
    const treadle_token *a = &m->bpe.tokens.items[left], *b = &m->bpe.tokens.items[right];
    char both[64];
    if (a->bytes + b->bytes > 12) continue;
    snprintf(both, sizeof both, "%s%s", a->text, b->text);
    int32_t token = treadle_tokens_find(&m->bpe.tokens, both, strlen(both));
    if (token < 0) {
      token = m->bpe.tokens.count;
      assert_ok(treadle_tokens_put(&m->bpe.tokens, token, both, strlen(both)));
    }
    treadle_merge merge = {rank, token};
    assert_ok(treadle_merges_put(&m->bpe.merges, left, right, merge));
  }
  treadle_bpe_settle(&m->bpe);
}

/* The merge of a pair; NULL: none. */
static const treadle_merge *look_up(const made *m, int32_t left, int32_t right) {
  static treadle_merge found;
  uint64_t hash = treadle_mix64((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
  int32_t number = treadle_hash_index_find(&m->bpe.merges.by_pair, hash);
  if (number < 0) return NULL;
  found = m->bpe.merges.items.items[number];
  return &found;
}

/* The best pair of all, the first of equals, again and again. */
static size_t merge_slowly(const made *m, int32_t *ids, size_t count) {
  for (;;) {
    size_t best = count;
    treadle_merge merge = {INT32_MAX, -1};
    for (size_t i = 0; i + 1 < count; i++) {
      const treadle_merge *one = look_up(m, ids[i], ids[i + 1]);
      if (one && one->rank < merge.rank) {
        merge = *one;
        best = i;
      }
    }
    if (best == count) return count;
    ids[best] = merge.token;
    memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
    count--;
  }
}

static void as_slowly(void **state) {
  (void)state;
  int seeds = test_seeds(3000);
  size_t shorter = 0;
  for (int seed = 0; seed < seeds; seed++) {
    made m;
    make(&m, (uint64_t)seed);
    treadle_bpe_room room = {0};
    treadle_token_ids ids = {0};
    char word[LONGEST];
    int32_t slow[LONGEST];
    size_t count = (size_t)treadle_random_below(&m.random, LONGEST) + 1;
    for (size_t i = 0; i < count; i++) {
      slow[i] = (int32_t)treadle_random_below(&m.random, LETTERS);
      word[i] = (char)('a' + slow[i]);
    }
    assert_ok(treadle_bpe_encode(&m.bpe, &room, word, count, &ids));
    size_t wanted = merge_slowly(&m, slow, count);
    if (ids.count != wanted || memcmp(ids.items, slow, wanted * sizeof *slow) != 0)
      fail_msg("seed %d differs", seed);
    shorter += wanted < count;
    treadle_array_release(&ids);
    treadle_bpe_room_release(&room);
    treadle_bpe_release(&m.bpe);
  }
  assert_in_range(shorter, (size_t)seeds / 2, (size_t)seeds);
}

/* Merges a a, aa aa, ... of one long word: time grows with the length, not with its square. */
static void long_word(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, LEVELS = 8 };
  treadle_bpe bpe = {.prefix = "", .suffix = ""};
  char *word = malloc(BYTES);
  assert_non_null(word);
  memset(word, 'a', BYTES);
  for (int i = 0; i <= LEVELS; i++) {
    assert_ok(treadle_tokens_put(&bpe.tokens, i, word, (size_t)1 << i));
    treadle_merge merge = {i - 1, i};
    if (i > 0) assert_ok(treadle_merges_put(&bpe.merges, i - 1, i - 1, merge));
  }
  treadle_bpe_settle(&bpe);
  treadle_bpe_room room = {0};
  treadle_token_ids ids = {0};
  double begin = treadle_clock_seconds();
  assert_ok(treadle_bpe_encode(&bpe, &room, word, BYTES, &ids));
  double seconds = treadle_clock_seconds() - begin;
  printf("%d bytes in one word: %.2f s\n", BYTES, seconds);
  assert_int_equal(ids.count, BYTES >> LEVELS);
  for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.items[i], LEVELS);
  assert_true(seconds < 60); /* with a square it would be an hour */
  treadle_array_release(&ids);
  treadle_bpe_room_release(&room);
  treadle_bpe_release(&bpe);
  free(word);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_slowly), cmocka_unit_test(long_word)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
