/* Rules of tokenizers, one by one, on tokenizers that are small enough to follow by hand. */
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

#define ABC        "'a': 0, 'b': 1, 'c': 2, 'ab': 3, 'abc': 4, ' ': 5, '\xe2\x96\x81': 6, 'A': 7"
#define ABC_MERGES "'merges': ['a b', 'ab c']"
#define ABC_MODEL  "'model': {'type': 'BPE', 'vocab': {" ABC "}, " ABC_MERGES "}"

static void check(const char *json, const char *text, const char *ids) {
  treadle_tokenizer *tokenizer = text_must_open(json);
  text_expect(tokenizer, text, false, ids);
  treadle_tokenizer_close(tokenizer);
}

static void merges(void **state) {
  (void)state;
  check("{" ABC_MODEL "}", "abc", "4");
  check("{" ABC_MODEL "}", "ababcb", "3 4 1");
  check("{" ABC_MODEL "}", "", "");
  check("{" ABC_MODEL "}", "axb",
        "3"); /* x has no token and no unk_token: as in the library it is left out */
  check("{'model': {'vocab': {" ABC "}, 'merges': [['a', 'b']]}}", "abc", "3 2"); /* no type; pairs */
  check("{'model': {'vocab': {" ABC "}, 'merges': [], 'ignore_merges': true}}", "abc", "4");
  check("{'model': {'vocab': {" ABC "}, 'merges': [], 'ignore_merges': true}}", "abca", "0 1 2 0");
}

static void unknown(void **state) {
  (void)state;
#define UNK "'model': {'vocab': {'<unk>': 9, " ABC "}, " ABC_MERGES ", 'unk_token': '<unk>'"
  check("{" UNK "}}", "axxb", "0 9 9 1");
  check("{" UNK ", 'fuse_unk': true}}", "axxb", "0 9 1");
  check("{'model': {'vocab': {" ABC "}, " ABC_MERGES ", 'unk_token': 'none'}}", "ab", "3");
  treadle_tokenizer *tokenizer =
      text_must_open("{'model': {'vocab': {" ABC "}, " ABC_MERGES ", 'unk_token': 'none'}}");
  int32_t *ids;
  size_t count;
  assert_refused("no 'none', which unk_token names",
                 treadle_tokenizer_encode(tokenizer, "x", 1, false, &ids, &count));
  treadle_tokenizer_close(tokenizer);
}

static void byte_fallback(void **state) {
  (void)state;
#define BYTES "'<0xC3>': 10, '<0xA9>': 11, '<unk>': 12"
#define FALL                                                                                               \
  "'model': {'vocab': {" ABC ", " BYTES "}, " ABC_MERGES ", 'byte_fallback': true, 'unk_token': '<unk>'}"
  check("{" FALL "}", "a\xc3\xa9", "0 10 11");
  check("{" FALL "}", "a\xc3\xa8", "0 12"); /* a byte of it has no token */
  treadle_tokenizer *tokenizer = text_must_open(
      "{" FALL ", 'decoder': {'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'String': "
      "'\xe2\x96\x81'}, 'content': ' '}, {'type': 'ByteFallback'}, {'type': 'Fuse'}, {'type': 'Strip', "
      "'content': ' ', 'start': 1, 'stop': 0}]}}");
  text_expect_back(tokenizer, "6 0 10 11 6", true, "a\xc3\xa9 ");
  text_expect_back(tokenizer, "0 10 0", true,
                   "a\xef\xbf\xbd"
                   "a");
  text_expect_back(tokenizer, "10 11 10", true,
                   "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* one for each byte of the run */
  treadle_tokenizer_close(tokenizer);
}

static void prefix_and_suffix(void **state) {
  (void)state;
  check(
      "{'model': {'vocab': {'a': 0, '##b': 1, 'ab': 2, '##c': 3, 'abc': 4}, 'merges': ['a ##b', 'ab ##c'], "
      "'continuing_subword_prefix': '##'}}",
      "abc", "4");
  check("{'model': {'vocab': {'a': 0, 'b</w>': 1, 'ab</w>': 2, 'a</w>': 3}, 'merges': ['a b</w>'], "
        "'end_of_word_suffix': '</w>'}}",
        "ab", "2");
}

/* ---- Normalizers ---- */

static void check_normalizer(const char *normalizer, const char *text, const char *ids) {
  char json[1000];
  snprintf(json, sizeof json, "{" ABC_MODEL ", 'normalizer': %s}", normalizer);
  check(json, text, ids);
}

static void normalizers(void **state) {
  (void)state;
  check_normalizer("{'type': 'Lowercase'}", "ABC", "4");
  check_normalizer("{'type': 'Strip', 'strip_left': true, 'strip_right': false}", " \tab ", "3 5");
  check_normalizer("{'type': 'Strip', 'strip_left': false, 'strip_right': true}", " ab\xe3\x80\x80", "5 3");
  check_normalizer("{'type': 'Prepend', 'prepend': 'a'}", "b", "3");
  check_normalizer("{'type': 'Prepend', 'prepend': 'a'}", "", "");
  check_normalizer("{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\xe2\x96\x81'}", "a  b",
                   "0 6 6 1");
  check_normalizer("{'type': 'Replace', 'pattern': {'Regex': '[x-z]+'}, 'content': 'b'}", "axyzc", "4");
  check_normalizer("{'type': 'NFKC'}", "\xef\xbd\x81\xe2\x92\xb7",
                   "0"); /* U+FF41 is a, U+24B7 is B, without token */
  check_normalizer(
      "{'type': 'Sequence', 'normalizers': [{'type': 'Lowercase'}, {'type': 'Prepend', 'prepend': 'A'}]}",
      "AB", "7 3");
  check_normalizer("null", "ab", "3");
}

static void normal_forms(void **state) {
  (void)state;
  static const struct {
    const char *form, *text, *ids; /* e, acute, e with acute, ligature fi, f, i, dot below */
  } cases[] = {
      {"NFC", "e\xcc\x81", "2"},
      {"NFD", "\xc3\xa9", "0 1"},
      {"NFC", "\xef\xac\x81", "3"},
      {"NFKC", "\xef\xac\x81", "4 5"},
      {"NFKD", "\xc3\xa9\xef\xac\x81", "0 1 4 5"},
      {"NFD", "e\xcc\x81\xcc\xa3", "0 6 1"}, /* marks in the order of their classes */
      {"NFC", "\xcc\x81", "1"},
      {"NFC", "", ""},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char json[400];
    snprintf(json, sizeof json,
             "{'normalizer': {'type': '%s'}, 'model': {'vocab': {'e': 0, '\xcc\x81': 1, '\xc3\xa9': 2, "
             "'\xef\xac\x81': 3, "
             "'f': 4, 'i': 5, '\xcc\xa3': 6}, 'merges': []}}",
             cases[i].form);
    check(json, cases[i].text, cases[i].ids);
  }
}

/* Thousands of marks whose order is the wrong one: quick, and sorted. */
static void many_marks(void **state) {
  (void)state;
  enum { MARKS = 100000 };
  treadle_tokenizer *tokenizer = text_must_open(
      "{'normalizer': {'type': 'NFD'}, 'model': {'vocab': {'\xcc\x81': 0, '\xcc\xa3': 1}, 'merges': []}}");
  char *text = malloc(MARKS * 4);
  assert_non_null(text);
  for (int i = 0; i < MARKS; i++) memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4);
  int32_t *ids;
  size_t count;
  assert_ok(treadle_tokenizer_encode(tokenizer, text, MARKS * 4, false, &ids, &count));
  assert_int_equal(count, 2 * MARKS);
  for (int i = 0; i < 2 * MARKS; i++) assert_int_equal(ids[i], i < MARKS);
  free(ids);
  free(text);
  treadle_tokenizer_close(tokenizer);
}

/* ---- Words ---- */

static void check_splitter(const char *splitter, const char *text, const char *ids) {
  char json[1000];
  snprintf(json, sizeof json, "{" ABC_MODEL ", 'pre_tokenizer': %s}", splitter);
  check(json, text, ids);
}

#define SPLIT(pattern, behavior)                                                                           \
  "{'type': 'Split', 'pattern': {'Regex': '" pattern "'}, 'behavior': '" behavior "'}"

static void splitters(void **state) {
  (void)state;
  check_splitter(SPLIT("b", "Isolated"), "abc", "0 1 2");
  check_splitter(SPLIT("b", "Removed"), "abc", "0 2");
  check_splitter(SPLIT("b", "MergedWithPrevious"), "abc", "3 2");
  check_splitter(SPLIT("b", "MergedWithNext"), "abc", "0 1 2");
  check_splitter(SPLIT("[ab]", "Contiguous"), "abcab", "3 2 3");
  check_splitter("{'type': 'Split', 'pattern': {'String': 'ab'}, 'behavior': 'Removed', 'invert': true}",
                 "cabc", "3");
  check_splitter("{'type': 'WhitespaceSplit'}", " ab  c", "3 2");
  check_splitter("{'type': 'Metaspace', 'replacement': '\xe2\x96\x81', 'prepend_scheme': 'always'}", "a b",
                 "6 0 6 1");
  check_splitter("{'type': 'Metaspace', 'replacement': '\xe2\x96\x81', 'prepend_scheme': 'never'}", "a b",
                 "0 6 1");
  check_splitter("{'type': 'Metaspace', 'replacement': '\xe2\x96\x81', 'add_prefix_space': false}", "ab",
                 "3");
  check_splitter(
      "{'type': 'Sequence', 'pretokenizers': [" SPLIT("b", "Isolated") ", " SPLIT("c", "Removed") "]}",
      "abc", "0 1");
  check("{'model': {'vocab': {'1': 0, '2': 1, '12': 2, '.': 3, '.1': 4}, 'merges': ['1 2', '. 1']}, "
        "'pre_tokenizer': {'type': "
        "'Digits', 'individual_digits': false}}",
        ".12", "3 2");
  check("{'model': {'vocab': {'1': 0, '2': 1, '12': 2, '.': 3, '.1': 4}, 'merges': ['1 2', '. 1']}, "
        "'pre_tokenizer': {'type': "
        "'Punctuation', 'behavior': 'MergedWithNext'}}",
        "12.1", "2 4");
}

/* In front of the first word, not of one behind an added token. */
static void first_word(void **state) {
  (void)state;
  const char *json = "{" ABC_MODEL ", 'added_tokens': [{'id': 8, 'content': '<s>', 'normalized': false}], "
                     "'pre_tokenizer': {'type': 'Metaspace', 'replacement': '\xe2\x96\x81', "
                     "'prepend_scheme': 'first', 'split': "
                     "false}}";
  check(json, "ab<s>ab", "6 3 8 3");
  check(json, "<s>ab", "8 3");
}

/* ---- Added tokens ---- */

static void check_added(const char *flags, const char *text, const char *ids) {
  char json[1000];
  snprintf(json, sizeof json, "{" ABC_MODEL ", 'added_tokens': [{'id': 8, 'content': '<s>', %s}]}", flags);
  check(json, text, ids);
}

static void added_tokens(void **state) {
  (void)state;
  check_added("'normalized': false", "a <s> b", "0 5 8 5 1");
  check_added("'lstrip': true, 'normalized': false", "a  <s> b", "0 8 5 1");
  check_added("'rstrip': true, 'normalized': false", "a <s>\n b", "0 5 8 1");
  check_added("'lstrip': true, 'rstrip': true, 'normalized': true", " <s> <s> ", "8 8");
  check_added("'single_word': true, 'normalized': false", "<s> a<s> <s>", "8 5 0 5 8");
  check_added("'single_word': true, 'normalized': false", "\xc3\xa9<s> <s>\xcc\x81",
              "5"); /* letters and marks go on */
  check("{" ABC_MODEL
        ", 'added_tokens': [{'id': 8, 'content': 'ca', 'normalized': false}, {'id': 9, 'content': 'cab', "
        "'normalized': false}]}",
        "abcabca", "3 9 8"); /* the longest one at the leftmost place */
  check("{" ABC_MODEL ", 'normalizer': {'type': 'Lowercase'}, 'added_tokens': [{'id': 8, 'content': 'BA', "
        "'normalized': true}, "
        "{'id': 9, 'content': 'CA', 'normalized': false}]}",
        "aBAbCAca", "0 8 1 9 2 0");
  check("{" ABC_MODEL ", 'added_tokens': [{'id': 3, 'content': 'ab', 'special': true}]}", "aab", "0 3");
}

static void special_tokens(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer =
      text_must_open("{" ABC_MODEL ", 'added_tokens': [{'id': 8, 'content': '<s>', 'special': true}, "
                     "{'id': 9, 'content': '</s>', 'special': "
                     "true}, {'id': 10, 'content': '<t>', 'special': false}], 'decoder': {'type': 'Fuse'}, "
                     "'post_processor': {'type': "
                     "'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}, {'Sequence': "
                     "{'id': 'A'}}, {'SpecialToken': {'id': "
                     "'e'}}], 'special_tokens': {'<s>': {'ids': [8]}, 'e': {'ids': [9, 9]}}}}");
  treadle_token_info info = TREADLE_INIT(treadle_token_info);
  text_expect(tokenizer, "ab", true, "8 3 9 9");
  text_expect(tokenizer, "ab<s>", false, "3 8");
  text_expect(tokenizer, "", true, "8 9 9");
  text_expect_back(tokenizer, "8 3 10 9", true, "<s>ab<t></s>");
  text_expect_back(tokenizer, "8 3 10 9", false, "ab<t>");
  assert_int_equal(treadle_tokenizer_count(tokenizer), 11);
  assert_int_equal(treadle_tokenizer_find(tokenizer, "</s>", 4), 9);
  assert_int_equal(treadle_tokenizer_find(tokenizer, "abc", 3), 4);
  assert_ok(treadle_tokenizer_token(tokenizer, 9, &info));
  assert_string_equal(info.text, "</s>");
  assert_true(info.special && info.added);
  assert_ok(treadle_tokenizer_token(tokenizer, 10, &info));
  assert_true(!info.special && info.added);
  assert_ok(treadle_tokenizer_token(tokenizer, 3, &info));
  assert_true(!info.special && !info.added);
  treadle_tokenizer_close(tokenizer);
}

/* ---- Decoders ---- */

static void decoders(void **state) {
  (void)state;
  static const struct {
    const char *decoder, *text; /* of 6 0 6 1 */
  } cases[] = {
      {"null", "\xe2\x96\x81 a \xe2\x96\x81 b"},
      {"{'type': 'Fuse'}", "\xe2\x96\x81"
                           "a\xe2\x96\x81"
                           "b"},
      {"{'type': 'Metaspace', 'replacement': '\xe2\x96\x81'}", "a b"},
      {"{'type': 'Metaspace', 'replacement': '\xe2\x96\x81', 'prepend_scheme': 'never'}", " a b"},
      {"{'type': 'Sequence', 'decoders': []}", "\xe2\x96\x81"
                                               "a\xe2\x96\x81"
                                               "b"},
      {"{'type': 'Strip', 'content': 'b', 'start': 0, 'stop': 1}", "\xe2\x96\x81"
                                                                   "a\xe2\x96\x81"},
      {"{'type': 'ByteLevel'}", "\xe2\x96\x81"
                                "a\xe2\x96\x81"
                                "b"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char json[1000];
    snprintf(json, sizeof json, "{" ABC_MODEL ", 'decoder': %s}", cases[i].decoder);
    treadle_tokenizer *tokenizer = text_must_open(json);
    text_expect_back(tokenizer, "6 0 6 1", true, cases[i].text);
    treadle_tokenizer_close(tokenizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(merges),         cmocka_unit_test(unknown),
                                     cmocka_unit_test(byte_fallback),  cmocka_unit_test(prefix_and_suffix),
                                     cmocka_unit_test(normalizers),    cmocka_unit_test(normal_forms),
                                     cmocka_unit_test(many_marks),     cmocka_unit_test(splitters),
                                     cmocka_unit_test(first_word),     cmocka_unit_test(added_tokens),
                                     cmocka_unit_test(special_tokens), cmocka_unit_test(decoders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
