/* src/engine/token/stream.c: characters are given away whole, and all that is given away is the decoded text. */
#include "base/random.h"
#include "base/utf8.h"
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

static void expect(treadle_text_stream *stream, int32_t id, const char *wanted) {
  const char *text;
  size_t bytes;
  assert_ok(treadle_text_stream_put(stream, id, &text, &bytes));
  if (strcmp(text, wanted) != 0) fail_msg("id %d: wanted '%s', got '%s'", (int)id, wanted, text);
  assert_int_equal(bytes, strlen(wanted));
}

static void expect_end(treadle_text_stream *stream, const char *wanted) {
  const char *text;
  size_t bytes;
  assert_ok(treadle_text_stream_end(stream, &text, &bytes));
  if (strcmp(text, wanted) != 0) fail_msg("end: wanted '%s', got '%s'", wanted, text);
}

#define LOST "\xef\xbf\xbd"

/* Tokens that are bytes: E2 82 AC is the euro sign. */
static void whole_characters(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer =
      text_must_open("{'model': {'vocab': {'<0xE2>': 0, '<0x82>': 1, '<0xAC>': 2, 'a': 3, '<0xFF>': 4, "
                     "'<0xED>': 5}, 'merges': []}, 'added_tokens': "
                     "[{'id': 6, 'content': '<s>', 'special': true}], 'decoder': {'type': 'Sequence', "
                     "'decoders': [{'type': 'ByteFallback'}, "
                     "{'type': 'Fuse'}]}}");
  treadle_text_stream *stream;
  assert_ok(treadle_text_stream_create(tokenizer, false, &stream));
  expect(stream, 0, "");
  expect(stream, 1, "");
  expect(stream, 6, ""); /* gives nothing, and ends no character */
  expect(stream, 2, "\xe2\x82\xac");
  expect(stream, 3, "a");
  expect(stream, 0, "");
  expect(stream, 1, "");
  expect(stream, 3, LOST "a"); /* two bytes that began one character */
  expect(stream, 1, LOST);
  expect(stream, 4, LOST);
  expect(stream, 5, "");
  expect(stream, 2, LOST LOST); /* ED AC would be a surrogate */
  expect(stream, 0, "");
  expect_end(stream, LOST);
  treadle_text_stream_destroy(stream);
  assert_ok(treadle_text_stream_create(tokenizer, true, &stream));
  expect(stream, 6, "<s>");
  expect_end(stream, "");
  treadle_text_stream_destroy(stream);
  treadle_tokenizer_close(tokenizer);
}

/* Only the start of the whole text loses its blank. */
static void begin(void **state) {
  (void)state;
  static const char *const decoders[] = {"{'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': "
                                         "{'String': '_'}, 'content': ' '}, {'type': 'Fuse'}, {'type': "
                                         "'Strip', 'content': ' ', 'start': 1, 'stop': 0}]}",
                                         "{'type': 'Metaspace', 'replacement': '_'}"};
  for (size_t i = 0; i < TEST_COUNT(decoders); i++) {
    char json[500];
    snprintf(json, sizeof json, "{'model': {'vocab': {'_a': 0, '_': 1}, 'merges': []}, 'decoder': %s}",
             decoders[i]);
    treadle_tokenizer *tokenizer = text_must_open(json);
    treadle_text_stream *stream;
    assert_ok(treadle_text_stream_create(tokenizer, true, &stream));
    expect(stream, 0, "a");
    expect(stream, 0, " a");
    expect(stream, 1, " ");
    expect_end(stream, "");
    treadle_text_stream_destroy(stream);
    assert_ok(treadle_text_stream_create(tokenizer, true, &stream));
    expect(stream, 1, "");
    expect(stream, 0, " a");
    treadle_text_stream_destroy(stream);
    treadle_tokenizer_close(tokenizer);
  }
}

/* Random bytes as tokens of the byte-level alphabet: what is given is valid, and together it is the decoded text. */
static void random_bytes(void **state) {
  (void)state;
  enum { COUNT = 24 };
  char json[8000] = "{'model': {'vocab': {", *at = json + strlen(json);
  for (int b = 0, code = 256; b < 256; b++) {
    bool itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    at += sprintf(at, "%s'\\u%04x': %d", b ? ", " : "", itself ? (unsigned)b : (unsigned)code++, b);
  }
  strcpy(at, "}, 'merges': []}, 'decoder': {'type': 'ByteLevel'}}");
  treadle_tokenizer *tokenizer = text_must_open(json);
  for (int seed = 0, seeds = test_seeds(5000); seed < seeds; seed++) {
    static const unsigned char near[] = {0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xed,
                                         0xa0, 0xf4, 0x90, 0xc3, 0xa9, 'a',  0};
    treadle_random random = {.state = (uint64_t)seed};
    int32_t ids[COUNT];
    char all[COUNT * 4] = "", *whole;
    size_t length = 0, bytes;
    const char *text;
    treadle_text_stream *stream;
    assert_ok(treadle_text_stream_create(tokenizer, false, &stream));
    for (int i = 0; i <= COUNT; i++) {
      if (i < COUNT)
        ids[i] = treadle_random_below(&random, 4) ? near[treadle_random_below(&random, TEST_COUNT(near))]
                                                  : (int32_t)treadle_random_below(&random, 256);
      assert_ok(i < COUNT ? treadle_text_stream_put(stream, ids[i], &text, &bytes)
                          : treadle_text_stream_end(stream, &text, &bytes));
      for (size_t k = 0, one; k < bytes; k += one) {
        uint32_t code;
        one = (size_t)treadle_utf8_read(text + k, &code);
        assert_true(one > 0);
      }
      memcpy(all + length, text, bytes);
      length += bytes;
    }
    assert_ok(treadle_tokenizer_decode(tokenizer, ids, COUNT, false, &whole, &bytes));
    if (bytes != length || memcmp(whole, all, bytes) != 0)
      fail_msg("seed %d: the stream is not the text", seed);
    free(whole);
    treadle_text_stream_destroy(stream);
  }
  treadle_tokenizer_close(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(whole_characters), cmocka_unit_test(begin),
                                     cmocka_unit_test(random_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
