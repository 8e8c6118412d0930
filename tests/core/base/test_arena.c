/* src/core/base/arena.c and array.c: what is given out is zeroed, aligned and does not overlap. */
#include "test.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/random.h"

static void pieces_are_apart(void **state) {
  (void)state;
  enum { COUNT = 3000 };
  static unsigned char *pieces[COUNT];
  static size_t sizes[COUNT];
  treadle_arena arena = {0};
  treadle_random random = {7};
  for (int i = 0; i < COUNT; i++) {
    sizes[i] = (size_t)treadle_random_below(&random, i % 100 ? 300 : 2000000);
    pieces[i] = treadle_arena_alloc(&arena, sizes[i]);
    assert_non_null(pieces[i]);
    assert_int_equal((uintptr_t)pieces[i] % 16, 0);
    for (size_t j = 0; j < sizes[i]; j++)
      if (pieces[i][j]) fail_msg("byte %zu of piece %d is not zero", j, i);
    memset(pieces[i], i & 0xff, sizes[i]);
  }
  for (int i = 0; i < COUNT; i++)
    for (size_t j = 0; j < sizes[i]; j++)
      if (pieces[i][j] != (i & 0xff)) fail_msg("piece %d was overwritten", i);
  treadle_arena_release(&arena);
  assert_null(arena.block);
  assert_non_null(treadle_arena_alloc(&arena, 1)); /* ready again */
  treadle_arena_release(&arena);
}

static void texts(void **state) {
  (void)state;
  treadle_arena arena = {0};
  assert_string_equal(treadle_arena_copy_text(&arena, "layer"), "layer");
  assert_string_equal(treadle_arena_copy_text(&arena, ""), "");
  assert_string_equal(treadle_arena_format(&arena, "layers.%d.%s", 12, "weight"), "layers.12.weight");
  treadle_arena_release(&arena);
}

static void memory_is_out(void **state) {
  (void)state;
  treadle_arena arena = {0};
  assert_null(treadle_arena_alloc(&arena, SIZE_MAX));
  assert_null(treadle_arena_alloc(&arena, SIZE_MAX - 100));
  assert_null(treadle_arena_alloc_array(&arena, SIZE_MAX / 2, 4));
  treadle_alloc_fail_at(1);
  assert_null(treadle_arena_alloc(&arena, 16));
  treadle_alloc_fail_at(1);
  assert_null(treadle_arena_copy_text(&arena, "x"));
  treadle_alloc_fail_at(1);
  assert_null(treadle_arena_format(&arena, "%d", 1));
  assert_non_null(treadle_arena_alloc(&arena, 16));
  treadle_arena_release(&arena);
}

static void array_grows(void **state) {
  (void)state;
  typedef struct pair {
    int64_t a, b;
  } pair;
  TREADLE_ARRAY(pair) pairs = {0};
  for (int64_t i = 0; i < 1000; i++) {
    pair item = {i, -i};
    assert_ok(treadle_array_push(&pairs, item));
  }
  assert_int_equal(pairs.count, 1000);
  assert_true(pairs.capacity >= 1000 && pairs.capacity < 2000);
  for (int64_t i = 0; i < 1000; i++) assert_true(pairs.items[i].a == i && pairs.items[i].b == -i);
  treadle_array_release(&pairs);
  assert_null(pairs.items);

  pair item = {1, 2};
  assert_ok(treadle_array_push(&pairs, item));
  pairs.count = pairs.capacity;
  treadle_alloc_fail_at(1);
  pair *before = pairs.items;
  assert_fails(TREADLE_NO_MEMORY, "16 bytes", treadle_array_push(&pairs, item));
  assert_ptr_equal(pairs.items, before);
  assert_int_equal(pairs.count, 8);
  treadle_array_release(&pairs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_are_apart), cmocka_unit_test(texts),
                                     cmocka_unit_test(memory_is_out), cmocka_unit_test(array_grows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
