/* src/engine/token/oniguruma.c and src/engine/token/regex.c: what patterns of tokenizers match. The matches are those of Oniguruma 6.9 in Ruby's syntax,
 * which the tokenizers library 0.23 was asked for. */
#include "test.h"
#include "token/regex.h"

static const struct {
  const char *pattern, *text, *matches; /* with | between them */
} cases[] = {
    {"a+", "aabab", "aa|a"},
    {"x*", "xxa", "xx|"}, /* an empty one right behind a match does not count */
    {"\\s+",
     "a \t\n\xe2\x80\x83"
     "b\xe1\xa0\x8e"
     "c",
     " \t\n\xe2\x80\x83"}, /* U+180E is not a space */
    {"\\s+(?!\\S)|\\s+", "a   b  ", "  | |  "},
    {"[^\\s\\p{L}]+", "ab 12-3 c", "12-3"},
    {"\\w+", "a\xcc\x81_1-\xc2\xbd", "a\xcc\x81_1|\xc2\xbd"}, /* marks, and a half of Latin-1 */
    {"[\\w]+", "1\xc2\xbd", "1"},                             /* but not in a class */
    {"\\h+", "xyzabf09", "abf09"},
    {"\\H+", "abxyz", "xyz"},
    {"\\v", "\n\x0b\r", "\x0b"},
    {"\\p{Han}+", "a\xe6\xbc\xa2\xe3\x80\x81",
     "\xe6\xbc\xa2"}, /* the mark U+3001 has Han among its extensions */
    {"\\p{Letter}+", "12ab3", "ab"},
    {"\\p{^L}+", "ab12", "12"},
    {"\\p{N}{1,3}", "12345", "123|45"},
    {"a{,2}b", "aaab", "aab"},
    {"a{b", "a{b", "a{b"},
    {"[a-c[x-z]]+", "abyd", "aby"},
    {"[a-z&&[^b]]+", "abcd", "a|cd"},
    {"[^a-c&&[b-z]]+", "abcda", "a|da"},
    {"[\\p{L}&&[^\\p{Han}]]+", "ab\xe6\xbc\xa2", "ab"},
    {"[^\\W\\d]+", "ab12c", "ab|c"},
    {"[\\s-]+", "a - b", " - "},
    {"[]a]+", "a]b", "a]"},
    {"[[:alpha:]-]+", "a-b1", "a-b"},
    {"[[:^alpha:]]+", "a12b", "12"},
    {"(?m).+", "a\nb", "a\nb"},
    {".+", "a\nb", "a|b"},
    {"^b", "a\nb", "b"},
    {"a$", "a\nba", "a|a"},
    {"(?i:'s|'ll)", "X'S y'Ll", "'S|'Ll"},
    {"(?i:s)", "\xc5\xbf", "\xc5\xbf"}, /* the long s */
    {"\\u0061", "ba", "a"},
    {"\\x{61}\\x62", "ab", "ab"},
    {"(?<=a)b", "abb", "b"},
    {"\\bab\\b", "ab abc ab\xcc\x81", "ab"},
    {"a(?#b)c", "ac", "ac"},
    {"\\A.", "ab", "a"},
};

static void check(const char *pattern, bool literal, const char *text, const char *matches) {
  treadle_regex *regex = NULL;
  treadle_regex_room *room = NULL;
  char said[300] = "";
  bool found = true;
  assert_ok(treadle_regex_create(pattern, strlen(pattern), literal, &regex));
  assert_ok(treadle_regex_room_create(&room));
  treadle_regex_search search = {.regex = regex, .room = room, .text = text, .bytes = strlen(text)};
  for (int number = 0; found; number++) {
    assert_ok(treadle_regex_next(&search, &found));
    if (found)
      snprintf(said + strlen(said), sizeof said - strlen(said), "%s%.*s", number ? "|" : "",
               (int)(search.end - search.start), text + search.start);
  }
  if (strcmp(said, matches) != 0)
    fail_msg("%s in '%s': wanted '%s', got '%s'", pattern, text, matches, said);
  treadle_regex_room_destroy(room);
  treadle_regex_destroy(regex);
}

static void matches(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(cases); i++)
    check(cases[i].pattern, false, cases[i].text, cases[i].matches);
  check("a+", true, "a+aa+", "a+|a+");
}

static void refuses(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *part;
  } bad[] = {
      {"", "empty"},
      {"a{2}+", "means other things"},
      {"a{2}?", "means other things"},
      {"[a", "without its ]"},
      {"[a&&]", "is empty"},
      {"(?x: a)", "(?x is not known"},
      {"(?~a)", "(?~ is not"},
      {"\\p{Nothing}", "property"},
      {"\\pL", "without a property in braces"},
      {"\\p{}", "\\p{} is not known"},
      {"\\u12", "four digits"},
      {"a\\", "ends with \\"},
      {"\\Qa", "\\Q is not known"},
      {"[\\R]", "\\R in a class"},
      {"[[:graph:]]", "[:graph:] is not known"},
      {"(a", "parenthesis"},
      {"a)", "parenthes"},
      {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[a]", "nested more than 32 deep"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_regex *regex = NULL;
    assert_refused(bad[i].part,
                   treadle_regex_create(bad[i].pattern, strlen(bad[i].pattern), false, &regex));
    assert_null(regex);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(matches), cmocka_unit_test(refuses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
