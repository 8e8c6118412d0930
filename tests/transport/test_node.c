/* Which node a process is on: as text and back, and which ranks can meet. */
#include "test.h"

#include "transport/node.h"

static void test_text(void **state) {
  treadle_node here, read;
  char text[TREADLE_NODE_TEXT];
  (void)state;
  assert_ok(treadle_node_here(&here));
  assert_true(here.network != 0);
  treadle_node_write(&here, text);
  assert_null(strpbrk(text, " /"));
  assert_true(treadle_node_read(text, &read));
  assert_true(treadle_node_is_same(&here, &read));
  assert_string_equal(here.host, read.host);
  for (size_t cut = 0; cut < strcspn(text, "@") + 1; cut++) {
    char part[TREADLE_NODE_TEXT];
    snprintf(part, sizeof part, "%.*s", (int)cut, text);
    assert_false(treadle_node_read(part, &read));
  }
}

static void test_no_text(void **state) {
  const char *const bad[] = {
      "",
      "stale",
      "00112233445566778899aabbccddeeff@host",
      "00112233445566778899aabbccddeeff.@host",
      "00112233445566778899aabbccddeeff.1",
      "00112233445566778899aabbccddeef.1@host",
      "00112233445566778899aabbccddeegf.1@host",
      "00112233445566778899aabbccddeeff.11112222333344445@host",
      "00112233445566778899aabbccddeeff.1@a host",
      "00112233445566778899aabbccddeeff.1@"
      "0123456789012345678901234567890123456789012345678901234567890123456789",
  };
  treadle_node node;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(treadle_node_read(bad[i], &node));
  assert_true(treadle_node_read("00112233-4455-6677-8899-aabbccddeeff.f@", &node));
  assert_int_equal(node.boot[15], 0xff);
  assert_int_equal(node.network, 15);
}

static void test_check(void **state) {
  treadle_node a, b;
  (void)state;
  assert_true(treadle_node_read("00112233445566778899aabbccddeeff.1@left", &a));
  b = a;
  b.host[0] = 'L'; /* a name says nothing */
  assert_ok(treadle_node_check(&a, 0, &b, 5));
  b = a;
  b.boot[15] ^= 1;
  assert_fails(TREADLE_REFUSED,
               "rank 0 is on node left (boot 00112233, network namespace 1), and rank 5 on",
               treadle_node_check(&a, 0, &b, 5));
  b = a;
  b.network = 2;
  assert_fails(TREADLE_REFUSED,
               "(boot 00112233, network namespace 2): all ranks of a group have to be on one",
               treadle_node_check(&a, 0, &b, 5));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_no_text),
                                     cmocka_unit_test(test_check)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
