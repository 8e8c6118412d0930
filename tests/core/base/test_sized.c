/* src/core/base/sized.c: structs of callers that were compiled with an older or a newer header. */
#include "test.h"

#include "base/sized.h"

typedef struct known { /* what this library has */
  size_t struct_size;
  int64_t first, second;
} known;

typedef struct older {
  size_t struct_size;
  int64_t first;
} older;

typedef struct newer {
  size_t struct_size;
  int64_t first, second, third;
  char last;
} newer;

static void none_is_zeros(void **state) {
  (void)state;
  known copy = {7, 7, 7};
  const known *none = NULL;
  assert_ok(TREADLE_TAKE(none, &copy));
  assert_int_equal(copy.struct_size, sizeof copy);
  assert_int_equal(copy.first | copy.second, 0);
}

static void an_older_one_is_filled_up(void **state) {
  (void)state;
  known copy = {7, 7, 7};
  older given = {.struct_size = sizeof given, .first = 5};
  assert_ok(TREADLE_TAKE(&given, &copy));
  assert_int_equal(copy.struct_size, sizeof copy);
  assert_int_equal(copy.first, 5);
  assert_int_equal(copy.second, 0);
  struct {
    older given;
    int64_t behind;
  } room = {given, 9};
  TREADLE_GIVE(&room.given, (&(known){.first = 6, .second = 8}));
  assert_int_equal(room.given.struct_size, sizeof given);
  assert_int_equal(room.given.first, 6);
  assert_int_equal(room.behind, 9);
}

static void a_newer_one_must_not_ask_for_more(void **state) {
  (void)state;
  known copy;
  newer given = {.struct_size = sizeof given, .first = 5, .second = 6};
  assert_ok(TREADLE_TAKE(&given, &copy));
  assert_int_equal(copy.second, 6);
  given.third = INT64_MIN;
  assert_int_equal(TREADLE_TAKE(&given, &copy), TREADLE_REFUSED);
  assert_non_null(
      strstr(treadle_error_message(), "a_newer_one_must_not_ask_for_more: &given has 40 bytes"));
  given.third = 0;
  given.last = 1;
  assert_int_equal(TREADLE_TAKE(&given, &copy), TREADLE_REFUSED);
  TREADLE_GIVE(&given,
               (&(known){.first = 1, .second = 2})); /* what is filled with zeros was anything before */
  assert_int_equal(given.struct_size, sizeof given);
  assert_int_equal(given.second, 2);
  assert_int_equal(given.last, 0);
}

static treadle_status take_output(known *info_p) {
  TREADLE_NEED_SIZED(info_p);
  return TREADLE_OK;
}

static void a_size_that_is_none(void **state) {
  (void)state;
  static const size_t sizes[] = {
      0, 1, sizeof(size_t) - 1, sizeof(size_t) + 4, TREADLE_MOST_STRUCT + 1, SIZE_MAX};
  known copy, given = TREADLE_INIT(known);
  assert_ok(take_output(&given));
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    given.struct_size = sizes[i];
    assert_int_equal(TREADLE_TAKE(&given, &copy), TREADLE_REFUSED);
    assert_int_equal(take_output(&given), TREADLE_REFUSED);
    assert_non_null(strstr(treadle_error_message(), "take_output: info_p has a struct_size of"));
  }
  assert_int_equal(take_output(NULL), TREADLE_REFUSED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_is_zeros), cmocka_unit_test(an_older_one_is_filled_up),
      cmocka_unit_test(a_newer_one_must_not_ask_for_more), cmocka_unit_test(a_size_that_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
