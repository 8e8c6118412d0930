/* Tokenizers that cannot be: each is refused, and the message has the field and the number. */
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

static const char *quoted(const char *json) {
  static char text[4000];
  snprintf(text, sizeof text, "%s", json);
  for (char *at = text; *at; at++)
    if (*at == '\'') *at = '"';
  return text;
}

#define MODEL "'model': {'vocab': {'a': 0, 'b': 1, 'ab': 2}, 'merges': ['a b']}"

static const struct {
  const char *json, *part;
} bad[] = {
    {"", "line 1"},
    {"[]", "model: is missing"},
    {"{}", "model: is missing"},
    {"{'version': '2.0', " MODEL "}", "version '2.0' is not known"},
    {"{'model': {'type': 'Unigram', 'vocab': {}}}", "model: type 'Unigram' is not known here"},
    {"{'model': {'vocab': {'a': 0}}}", "model: merges is not a list"},
    {"{'model': {'merges': []}}", "the vocabulary is not an object"},
    {"{'model': {'vocab': {}, 'merges': []}}", "the vocabulary is empty"},
    {"{'model': {'vocab': {'a': 0, 'b': 0}, 'merges': []}}", "id 0 is that of two tokens: 'a' and 'b'"},
    {"{'model': {'vocab': {'a': 0, 'a': 1}, 'merges': []}}", "stands twice in one object"},
    {"{'model': {'vocab': {'a': -1}, 'merges': []}}", "token 'a' has the id -1; ids are from 0 to 4194303"},
    {"{'model': {'vocab': {'a': 4194304}, 'merges': []}}", "token 'a' has the id 4194304"},
    {"{'model': {'vocab': {'a': 'x'}, 'merges': []}}", "the id of token 'a' is not a whole number"},
    {"{'model': {'vocab': {'a': 0}, 'merges': ['a b']}}", "merge 0 needs the token 'b'"},
    {"{'model': {'vocab': {'a': 0, 'b': 1}, 'merges': ['a b']}}", "merge 0 needs the token 'ab'"},
    {"{'model': {'vocab': {'a': 0, 'aa': 1}, 'merges': ['a a', 'a c']}}", "merge 1 needs the token 'c'"},
    {"{'model': {'vocab': {'a': 0}, 'merges': ['a']}}", "merge 0 is not two tokens and a space: 'a'"},
    {"{'model': {'vocab': {'a': 0}, 'merges': [['a']]}}", "merge 0 is not a pair of texts"},
    {"{'model': {'vocab': {'a': 0}, 'merges': [7]}}", "merge 0 is neither a text nor a pair"},
    {"{'model': {'vocab': {'a': 0}, 'merges': [], 'dropout': 0.5}}", "dropout"},
    {"{'model': {'vocab': {'a': 0}, 'merges': [], 'byte_fallback': 1}}",
     "byte_fallback is neither true nor false"},
    {"{" MODEL ", 'added_tokens': [{'id': 9, 'content': '<s>'}]}",
     "added_tokens[0]: added token '<s>' has the id 9, but by the vocabulary and the tokens before it "
     "would be 3"},
    {"{" MODEL ", 'added_tokens': [{'id': 1, 'content': 'a'}]}", "'a' has the id 1, but by the vocabulary"},
    {"{" MODEL ", 'added_tokens': [{'content': '<s>'}]}", "added_tokens[0]: id is missing"},
    {"{" MODEL ", 'added_tokens': [{'id': 3}]}", "added_tokens[0]: content is missing"},
    {"{" MODEL ", 'added_tokens': [{'id': 3, 'content': 'x', 'special': 'no'}]}",
     "special is neither true nor false"},
    {"{" MODEL ", 'added_tokens': {}}", "added_tokens is not a list"},
    {"{'model': {'vocab': {'a': 0, 'b': 2}, 'merges': []}, 'added_tokens': [{'id': 2, 'content': 'x'}]}",
     "id 2 is that of two tokens: 'b' and 'x'"},
    {"{" MODEL ", 'normalizer': {'type': 'BertNormalizer'}}",
     "normalizer: normalizer 'BertNormalizer' is not known here"},
    {"{" MODEL ", 'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'Nmt'}]}}",
     "normalizer: normalizers[1]: normalizer 'Nmt'"},
    {"{" MODEL ", 'normalizer': {'type': 'Replace', 'pattern': {'String': ''}, 'content': ''}}",
     "a pattern is empty"},
    {"{" MODEL ", 'normalizer': {'type': 'Replace', 'pattern': 1, 'content': ''}}", "pattern is neither"},
    {"{" MODEL ", 'normalizer': 3}", "normalizer: is not an object"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Whitespace'}}",
     "pre-tokenizer 'Whitespace' is not known here"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '('}, 'behavior': 'Isolated'}}",
     "pre_tokenizer: Split: pattern '(': missing closing parenthesis"},
    {"{" MODEL
     ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'a{2}+'}, 'behavior': 'Isolated'}}",
     "{2}+ means"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '[a'}, 'behavior': 'Isolated'}}",
     "a class without its ]"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '\\\\p{Nothing}'}, 'behavior': "
     "'Isolated'}}",
     "unknown property"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'a'}, 'behavior': 'Joined'}}",
     "behavior is 'Joined', which is not known here"},
    {"{" MODEL ", 'pre_tokenizer': {'type': 'Metaspace', 'replacement': 'xy'}}",
     "replacement is not one character"},
    {"{" MODEL ", 'decoder': {'type': 'WordPiece'}}", "decoder 'WordPiece' is not known here"},
    {"{" MODEL ", 'decoder': {'type': 'Strip', 'content': ' ', 'start': -1, 'stop': 0}}",
     "start is -1, and must be from 0"},
    {"{" MODEL ", 'post_processor': {'type': 'BertProcessing'}}",
     "post-processor 'BertProcessing' is not known here"},
    {"{" MODEL ", 'post_processor': {'type': 'TemplateProcessing', 'single': []}}",
     "single has the text 0 times"},
    {"{" MODEL ", 'post_processor': {'type': 'TemplateProcessing', 'single': [{'Sequence': {'id': 'B'}}]}}",
     "single[0]"},
    {"{" MODEL
     ", 'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': 'x'}}]}}",
     "special_tokens has no ids of 'x'"},
    {"{" MODEL
     ", 'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': 'x'}}], "
     "'special_tokens': {'x': {'ids': [7]}}}}",
     "7 is not an id of this tokenizer: ids are from 0 to 2"},
    {"{" MODEL ", 'normalizer': {'type': 'Lowercase'}, 'added_tokens': [{'id': 3, 'content': 'X', "
     "'normalized': true}, {'id': 4, "
     "'content': 'x', 'normalized': true}]}",
     "added tokens 3 and 4 are both 'x'"},
};

static void files(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_tokenizer *tokenizer = NULL;
    const char *json = quoted(bad[i].json);
    assert_refused(bad[i].part, text_open(json, strlen(json), &tokenizer));
    assert_null(tokenizer);
  }
}

/* Sequences in sequences, and brackets in brackets. */
static void deep(void **state) {
  (void)state;
  enum { ROOM = 1 << 18 };
  static const char begin[] = "{" MODEL ", 'normalizer': ", one[] = "{'type': 'Sequence', 'normalizers': [";
  static char json[ROOM];
  treadle_tokenizer *tokenizer = NULL;
  for (int levels = 20; levels <= 2000; levels *= 100) {
    size_t length = (size_t)snprintf(json, ROOM, "%s", begin);
    for (int i = 0; i < levels; i++) length += (size_t)snprintf(json + length, ROOM - length, "%s", one);
    for (int i = 0; i < levels; i++) length += (size_t)snprintf(json + length, ROOM - length, "]}");
    length += (size_t)snprintf(json + length, ROOM - length, "}");
    for (size_t i = 0; i < length; i++)
      if (json[i] == '\'') json[i] = '"';
    assert_refused(levels == 20 ? "nested more than 16 deep" : "nested deeper than 2048",
                   text_open(json, length, &tokenizer));
  }
}

/* A pattern that would search for ever. */
static void endless_pattern(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer =
      text_must_open("{" MODEL ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': "
                     "'(a|aa)+[cd]'}, 'behavior': 'Isolated'}}");
  char text[5000];
  int32_t *ids;
  size_t count;
  memset(text, 'a', sizeof text);
  assert_refused("too many steps",
                 treadle_tokenizer_encode(tokenizer, text, sizeof text, false, &ids, &count));
  assert_null(ids);
  treadle_tokenizer_close(tokenizer);
}

static void texts_and_ids(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer =
      text_must_open("{'model': {'vocab': {'a': 0, 'b': 3}, 'merges': []}, 'decoder': {'type': 'Fuse'}}");
  static const int32_t hole[] = {0, 2};
  int32_t *ids;
  char *text;
  size_t count;
  assert_refused("not UTF-8: byte 2 is 0xed",
                 treadle_tokenizer_encode(tokenizer, "ab\xed\xa0\x80", 5, true, &ids, &count));
  assert_refused("not UTF-8: byte 0 is 0xc3",
                 treadle_tokenizer_encode(tokenizer, "\xc3", 1, true, &ids, &count));
  assert_refused("at most 268435456",
                 treadle_tokenizer_encode(tokenizer, "", (size_t)1 << 40, true, &ids, &count));
  assert_refused("ids[1]: the tokenizer has no token with the id 2",
                 treadle_tokenizer_decode(tokenizer, hole, 2, true, &text, &count));
  treadle_tokenizer_close(tokenizer);
}

/* A decoder that looks at the end of the whole text has no stream. */
static void streams(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer =
      text_must_open("{" MODEL ", 'decoder': {'type': 'Sequence', 'decoders': [{'type': 'Fuse'}, {'type': "
                     "'Strip', 'content': 'a', 'start': 0, "
                     "'stop': 1}]}}");
  treadle_text_stream *stream = NULL;
  assert_refused("cannot work token by token", treadle_text_stream_create(tokenizer, true, &stream));
  assert_null(stream);
  treadle_tokenizer_close(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files), cmocka_unit_test(deep),
                                     cmocka_unit_test(endless_pattern), cmocka_unit_test(texts_and_ids),
                                     cmocka_unit_test(streams)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
