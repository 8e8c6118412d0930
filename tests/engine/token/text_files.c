/* Tokenizers that tests write themselves. */
#include "token/text_files.h"

#include "test.h"

void text_write(const char *folder, const char *name, const void *bytes, size_t count) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  fclose(file);
}

treadle_status text_open(const char *json, size_t bytes, treadle_tokenizer **tokenizer_p) {
  char path[] = "/tmp/treadle-test-XXXXXX.json";
  int fd = mkstemps(path, 5);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, json, bytes), bytes);
  close(fd);
  treadle_status status = treadle_tokenizer_open(path, tokenizer_p);
  unlink(path);
  return status;
}

treadle_tokenizer *text_must_open(const char *json) {
  treadle_tokenizer *tokenizer = NULL;
  char *copy = strdup(json);
  assert_non_null(copy);
  for (char *at = copy; *at; at++)
    if (*at == '\'') *at = '"';
  assert_ok(text_open(copy, strlen(copy), &tokenizer));
  free(copy);
  return tokenizer;
}

void text_expect(const treadle_tokenizer *tokenizer, const char *text, bool special, const char *ids) {
  int32_t *got = NULL;
  size_t count;
  char said[600] = "";
  assert_ok(treadle_tokenizer_encode(tokenizer, text, strlen(text), special, &got, &count));
  for (size_t i = 0; i < count; i++)
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s%d", i ? " " : "", (int)got[i]);
  if (strcmp(said, ids) != 0) fail_msg("'%s': wanted %s, got %s", text, ids, said);
  free(got);
}

void text_expect_back(const treadle_tokenizer *tokenizer, const char *ids, bool special, const char *text) {
  int32_t list[64];
  size_t count = 0, bytes;
  char *got = NULL, *end;
  for (const char *at = ids; *at && count < TEST_COUNT(list); at = end + (*end == ' '))
    list[count++] = (int32_t)strtol(at, &end, 10);
  assert_ok(treadle_tokenizer_decode(tokenizer, list, count, special, &got, &bytes));
  if (strcmp(got, text) != 0) fail_msg("%s: wanted '%s', got '%s'", ids, text, got);
  assert_int_equal(strlen(got), bytes);
  free(got);
}

static size_t put(char *to, size_t at, size_t room, float score, const char *text) {
  int32_t length = (int32_t)strlen(text);
  assert_true(at + 8 + (size_t)length <= room);
  memcpy(to + at, &score, 4);
  memcpy(to + at + 4, &length, 4);
  memcpy(to + at + 8, text, (size_t)length);
  return at + 8 + (size_t)length;
}

size_t text_make_bin(char *to, size_t room, const char *const *tokens, int count) {
  int32_t most = 7;
  size_t at = sizeof most;
  memcpy(to, &most, sizeof most);
  at = put(to, at, room, 0, "<unk>");
  at = put(to, at, room, 0, "\n<s>\n");
  at = put(to, at, room, 0, "\n</s>\n");
  for (int i = 0; i < 256; i++) {
    char byte[8];
    snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
    at = put(to, at, room, 0, byte);
  }
  for (int i = 0; i < count; i++) at = put(to, at, room, (float)-i, tokens[i]);
  return at;
}
