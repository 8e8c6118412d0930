/* Rows to train on, for a small tokenizer and a chat template. What is taken keeps its promises, and lines are the same rows as a list. */
#include "base/text.h"
#include "io/json.h"
#include "token/tokenizer.h"
#include "treadle_loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { MOST_TOKENS = 1000 };

static const char letters[] = "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\n\": 3, \"_\": "
                              "4, \"?\": 5}, \"merges\": [\"a b\"], "
                              "\"unk_token\": \"?\"}, \"normalizer\": {\"type\": \"Prepend\", \"prepend\": "
                              "\"_\"}, \"added_tokens\": [{\"id\": "
                              "6, \"content\": \"<end>\", \"special\": true}]}";
static const char turns[] =
    "{% for m in messages %}{% if m.role == 'last' and not loop.last %}{% continue %}{% endif %}{{ m.role "
    "}}: {{ "
    "m.content }}<end>{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

static void need(bool holds) {
  if (!holds) __builtin_trap();
}

static treadle_tokenizer *open_tokenizer(void) {
  treadle_tokenizer *tokenizer = NULL;
  json_t *root = NULL;
  need(treadle_json_parse("letters", letters, sizeof letters - 1, &root) == TREADLE_OK);
  need(treadle_tokenizer_make(&tokenizer) == TREADLE_OK);
  need(treadle_tokenizer_read_json(tokenizer, root) == TREADLE_OK);
  tokenizer->special[TREADLE_EOS] = treadle_tokenizer_id(tokenizer, "<end>", 5);
  json_decref(root);
  return tokenizer;
}

static treadle_chat *open_chat(void) {
  char path[] = "/tmp/treadle-fuzz-XXXXXX";
  treadle_chat *chat = NULL;
  int file = mkstemp(path);
  need(file >= 0 && write(file, turns, sizeof turns - 1) == (ssize_t)sizeof turns - 1);
  close(file);
  need(treadle_chat_open(path, &chat) == TREADLE_OK);
  unlink(path);
  return chat;
}

static treadle_batch *read_rows(const treadle_train_rows_spec *spec, const char *text, size_t count) {
  treadle_batch *rows = NULL;
  treadle_status status = treadle_train_rows_read(spec, text, count, &rows);
  need(status == TREADLE_OK ? rows != NULL
                            : status == TREADLE_REFUSED && !rows && *treadle_error_message());
  return rows;
}

/* The tokens of rows and which of them count. */
typedef struct tokens {
  int64_t rows;
  const int64_t *offsets; /* [rows + 1], from 0 */
  const int32_t *ids;
  const uint8_t *mask;
} tokens;

static tokens tokens_of(const treadle_batch *batch) {
  treadle_column ids = TREADLE_INIT(treadle_column), mask = TREADLE_INIT(treadle_column);
  const int64_t rows = treadle_batch_rows(batch);
  need(treadle_batch_column(batch, "ids", &ids) == TREADLE_OK && ids.type == TREADLE_COLUMN_INT32);
  need(treadle_batch_column(batch, "mask", &mask) == TREADLE_OK && mask.type == TREADLE_COLUMN_UINT8);
  need(ids.offsets[0] == 0 &&
       memcmp(ids.offsets, mask.offsets, ((size_t)rows + 1) * sizeof *ids.offsets) == 0);
  return (tokens){.rows = rows, .offsets = ids.offsets, .ids = ids.data, .mask = mask.data};
}

static void check(const treadle_batch *batch) {
  const tokens t = tokens_of(batch);
  need(t.rows > 0);
  for (int64_t r = 0; r < t.rows; r++) {
    const int64_t first = t.offsets[r], count = t.offsets[r + 1] - first;
    size_t counted = 0;
    need(count >= 2 && count <= MOST_TOKENS && t.mask[first] == 0);
    for (int64_t i = first; i < first + count; i++) {
      need(t.ids[i] >= 0 && t.mask[i] <= 1);
      counted += t.mask[i];
    }
    need(counted > 0);
  }
}

static void expect_same(const treadle_batch *a, const treadle_batch *b) {
  const tokens x = tokens_of(a), y = tokens_of(b);
  need(x.rows == y.rows);
  const size_t offsets = ((size_t)x.rows + 1) * sizeof *x.offsets, count = (size_t)x.offsets[x.rows];
  need(memcmp(x.offsets, y.offsets, offsets) == 0);
  need(memcmp(x.ids, y.ids, count * sizeof *x.ids) == 0 && memcmp(x.mask, y.mask, count) == 0);
}

/* Lines that are not white space, as a list. */
static void read_as_list(const treadle_train_rows_spec *spec, const char *text, size_t count,
                         const treadle_batch *wanted) {
  treadle_builder list = {0};
  char *copy = malloc(count + 1), *line, *rest = copy;
  need(copy != NULL);
  memcpy(copy, text, count);
  copy[count] = 0;
  if (memchr(text, 0, count)) goto out;
  treadle_builder_add(&list, "[");
  while ((line = strsep(&rest, "\n")))
    if (line[strspn(line, " \t\r")]) treadle_builder_add(&list, "%s%s", list.length > 1 ? "," : "", line);
  treadle_builder_add(&list, "]");
  treadle_batch *rows = read_rows(spec, list.text, list.length);
  need(rows != NULL);
  expect_same(rows, wanted);
  treadle_batch_destroy(rows);
out:
  treadle_builder_release(&list);
  free(copy);
}

static bool is_list(const char *text, size_t count) {
  size_t at = 0;
  while (at < count && memchr(" \t\r\n", text[at], 4)) at++;
  return at < count && text[at] == '[';
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static treadle_train_rows_spec spec = {.struct_size = sizeof spec, .most_tokens = MOST_TOKENS};
  if (!spec.tokenizer) spec.tokenizer = open_tokenizer();
  if (!spec.chat) spec.chat = open_chat();
  const char *text = (const char *)bytes;
  treadle_batch *rows = read_rows(&spec, text, count);
  if (rows) check(rows);
  size_t mark = treadle_json_mark(text, count); /* which a list in between may not have */
  if (rows && !is_list(text + mark, count - mark)) read_as_list(&spec, text + mark, count - mark, rows);
  treadle_batch_destroy(rows);
  return 0;
}
