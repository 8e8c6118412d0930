/* src/core/base/utf8.c, and what messages of src/core/base/status.c show of texts that are no text. */
#include "test.h"

#include "base/status.h"
#include "base/utf8.h"

static void characters(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int length;
    uint32_t code;
  } rows[] = {{"", 1, 0},
              {"a", 1, 'a'},
              {"\x7f", 1, 0x7f},
              {"\xc3\xa4", 2, 0xe4},
              {"\xe2\x82\xac", 3, 0x20ac},
              {"\xef\xbf\xbf", 3, 0xffff},
              {"\xf0\x9f\x98\x80", 4, 0x1f600},
              {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
              {"\xf4\x90\x80\x80", 0, 0}, /* above U+10FFFF */
              {"\xed\xa0\x80", 0, 0},     /* a surrogate */
              {"\xed\xbf\xbf", 0, 0},     /* the last of them */
              {"\xc0\x80", 0, 0},         /* overlong */
              {"\xc1\xbf", 0, 0},         /* overlong */
              {"\xe0\x9f\xbf", 0, 0},     /* overlong */
              {"\xf0\x8f\xbf\xbf", 0, 0}, /* overlong */
              {"\x80", 0, 0},             /* begins nothing */
              {"\xff", 0, 0},
              {"\xfe", 0, 0}, /* never there */
              {"\xc3", 0, 0},
              {"\xe2\x82", 0, 0}, /* not whole */
              {"\xf0\x9f\x98", 0, 0},
              {"\xe2\x28\xa1", 0, 0}, /* broken off */
              {"\xf8\x88\x80\x80\x80", 0, 0}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    uint32_t code = 0;
    int length = treadle_utf8_read(rows[i].text, &code);
    if (length != rows[i].length || code != rows[i].code) fail_msg("row %zu: %d, %x", i, length, code);
    assert_int_equal(treadle_utf8_is_valid(rows[i].text), length > 0);
  }
}

static void what_is_shown(void **state) {
  (void)state;
  static const struct {
    const char *text, *shown;
  } rows[] = {{"", ""},
              {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac"},
              {"a\\x1b", "a\\x1b"},
              {"\x1b[2Jred", "\\x1b[2Jred"},
              {"two\nlines\t\r\x7f", "two\\x0alines\\x09\\x0d\\x7f"},
              {"\xc2\x9b"
               "31m",
               "\\xc2\\x9b31m"},
              {"\xe2\x80\xae"
               "abc",
               "\\xe2\\x80\\xae"
               "abc"},
              {"\xff\xc3\xa4\xc3", "\\xff\xc3\xa4\\xc3"},
              {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
              {"\xef\xbf\xbe", "\\xef\\xbf\\xbe"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    assert_string_equal(treadle_text_shown(rows[i].text), rows[i].shown);
    assert_string_equal(treadle_text_shown(rows[i].shown), rows[i].shown);
  }
  const char *plain = "plain";
  assert_ptr_equal(treadle_text_shown(plain), plain);
}

/* Each character there and back, with the bytes that the reader of unknown texts takes. */
static void written_and_read(void **state) {
  (void)state;
  for (uint32_t code = 0; code <= 0x10ffff; code++) {
    char bytes[5] = "";
    uint32_t decoded, read;
    if (code >= 0xd800 && code < 0xe000) continue;
    size_t length = treadle_utf8_encode(code, bytes);
    assert_int_equal(treadle_utf8_read(bytes, &read), length);
    assert_int_equal(treadle_utf8_decode(bytes, &decoded), length);
    assert_true(read == code && decoded == code);
  }
}

/* Room is kept, and what is cut is cut between characters. */
static void room_is_kept(void **state) {
  (void)state;
  const char *text = "a\xc3\xa4\x1b\xc2\x80"
                     "b",
             *whole = "a\xc3\xa4\\x1b\\xc2\\x80"
                      "b";
  for (size_t room = 1; room <= 20; room++) {
    char to[24];
    memset(to, '?', sizeof to);
    const char *rest = treadle_utf8_show(to, room, text);
    assert_true(strlen(to) < room);
    assert_int_equal(to[room], '?');
    assert_memory_equal(to, whole, strlen(to));
    assert_true(treadle_utf8_is_valid(to));
    assert_int_equal(*rest == 0, strlen(to) == strlen(whole));
  }
  char longer[3000];
  memset(longer, '\xff', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  const char *shown = treadle_text_shown(longer);
  assert_true(strlen(shown) < 1008);
  assert_string_equal(shown + strlen(shown) - 7, "\\xff...");
}

static void messages_are_printable(void **state) {
  (void)state;
  treadle_fail(TREADLE_REFUSED, "%s: tensor '%s'", "a\xff\n", "\x1b]0;x\a");
  assert_string_equal(treadle_error_message(), "a\\xff\\x0a: tensor '\\x1b]0;x\\x07'");
  treadle_fail_in(TREADLE_REFUSED, "%s: ", "\x9b");
  assert_string_equal(treadle_error_message(), "\\x9b: a\\xff\\x0a: tensor '\\x1b]0;x\\x07'");
  for (int shift = 0; shift < 4;
       shift++) { /* cut anywhere, the message is characters, and no escape is made of half a one */
    char text[3000] = "";
    for (size_t i = (size_t)shift; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 5);
    memset(text, 'a', (size_t)shift);
    for (int turn = 0; turn < 2; turn++) {
      turn ? treadle_fail_in(TREADLE_REFUSED, "%s", text)
           : treadle_fail(TREADLE_REFUSED, "%s: the end", text);
      assert_true(treadle_utf8_is_valid(treadle_error_message()));
      assert_null(strchr(treadle_error_message(), '\\'));
      assert_true(strlen(treadle_error_message()) > 1000);
      assert_non_null(strstr(treadle_error_message(), ": the end"));
    }
  }
}

/* What is the matter stands at the end, behind a path. */
static void long_paths_leave_the_end(void **state) {
  (void)state;
  char path[5000];
  for (int byte = 'a'; byte < 256; byte += 255 - 'a') {
    memset(path, byte, sizeof path - 1);
    path[sizeof path - 1] = 0;
    treadle_fail(TREADLE_REFUSED, "%s: cannot open: Permission denied", path);
    const char *message = treadle_error_message();
    assert_true(strlen(message) < 1024 && strlen(message) > 700);
    static const char end[] = ": cannot open: Permission denied";
    assert_string_equal(message + strlen(message) - (sizeof end - 1), end);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(characters),
                                     cmocka_unit_test(written_and_read),
                                     cmocka_unit_test(what_is_shown),
                                     cmocka_unit_test(room_is_kept),
                                     cmocka_unit_test(messages_are_printable),
                                     cmocka_unit_test(long_paths_leave_the_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
