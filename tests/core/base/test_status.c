/* Messages of src/core/base/status.c: kept per thread, cut when long, safe to quote themselves. */
#include "test.h"

#include "base/status.h"

#include <pthread.h>

static void message_is_empty_at_first(void **state) {
  (void)state;
  assert_string_equal(treadle_error_message(), "");
}

static void fail_keeps_message(void **state) {
  (void)state;
  assert_int_equal(treadle_fail(TREADLE_REFUSED, "tensor '%s' needs %d", "x", 4), TREADLE_REFUSED);
  assert_string_equal(treadle_error_message(), "tensor 'x' needs 4");
  assert_int_equal(treadle_fail_in(TREADLE_SYSTEM, "%s: ", "file"), TREADLE_SYSTEM);
  assert_string_equal(treadle_error_message(), "file: tensor 'x' needs 4");
  treadle_fail(TREADLE_REFUSED, "again: %s", treadle_error_message());
  assert_string_equal(treadle_error_message(), "again: file: tensor 'x' needs 4");
}

static void long_message_is_cut(void **state) {
  (void)state;
  char text[3000];
  memset(text, 'a', sizeof text - 1);
  text[sizeof text - 1] = 0;
  treadle_fail(TREADLE_REFUSED, "%s", text);
  assert_int_equal(strlen(treadle_error_message()), 1023);
  treadle_fail_in(TREADLE_REFUSED, "%s", "prefix: ");
  assert_int_equal(strlen(treadle_error_message()), 1023);
  assert_memory_equal(treadle_error_message(), "prefix: aaa", 11);
  treadle_fail_in(TREADLE_REFUSED, "%s", text);
  assert_int_equal(strlen(treadle_error_message()), 1023);
}

static void *other_thread(void *result) {
  *(size_t *)result = strlen(treadle_error_message());
  treadle_fail(TREADLE_REFUSED, "of the other thread");
  return NULL;
}

static void message_belongs_to_thread(void **state) {
  (void)state;
  pthread_t thread;
  size_t length = 1;
  treadle_fail(TREADLE_REFUSED, "mine");
  assert_int_equal(pthread_create(&thread, NULL, other_thread, &length), 0);
  pthread_join(thread, NULL);
  assert_int_equal(length, 0);
  assert_string_equal(treadle_error_message(), "mine");
}

static void statuses_have_words(void **state) {
  (void)state;
  for (int status = TREADLE_OK; status >= TREADLE_STATE; status--)
    assert_string_not_equal(treadle_status_text((treadle_status)status), "unknown status");
  assert_string_equal(treadle_status_text((treadle_status)-99), "unknown status");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(message_is_empty_at_first), cmocka_unit_test(fail_keeps_message),
      cmocka_unit_test(long_message_is_cut), cmocka_unit_test(message_belongs_to_thread),
      cmocka_unit_test(statuses_have_words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
