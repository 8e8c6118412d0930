/* A tokenizer.json, or a tokenizer_config.json with char_ords, a line %%, and a text; or a *.bin of llama2.c, which does not begin with
 * {. What is taken turns the text into ids that it has, these into text in UTF-8, and the stream of them into the same text. */
#include "must.h"

#include "io/json.h"
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { MOST_TEXT = 400 };

/* A refusal has a reason. */
static bool taken(treadle_status status) {
  MUST(status == TREADLE_OK || (status == TREADLE_REFUSED && *treadle_error_message()));
  return status == TREADLE_OK;
}

static treadle_status read_tokenizer(const char *bytes, size_t count, treadle_tokenizer *tokenizer) {
  if (count == 0 || *bytes != '{') return treadle_tokenizer_read_llama2c(tokenizer, bytes, count);
  json_t *root = NULL;
  treadle_status status = treadle_json_parse("input", bytes, count, &root);
  if (!status)
    status = json_object_get(root, "char_ords") ? treadle_tokenizer_read_chars(tokenizer, root)
                                                : treadle_tokenizer_read_json(tokenizer, root);
  json_decref(root);
  return status;
}

/* U+FFFD: a decoder may count others than a stream. */
static bool has_lost(const char *text, size_t bytes) {
  return memmem(text, bytes, "\xef\xbf\xbd", 3) != NULL;
}

static void check_stream(const treadle_tokenizer *tokenizer, const int32_t *ids, size_t count,
                         const char *wanted, size_t wanted_bytes) {
  treadle_text_stream *stream = NULL;
  treadle_text_bytes all = {0};
  const char *text;
  size_t bytes;
  bool good = taken(treadle_text_stream_create(tokenizer, true, &stream));
  for (size_t i = 0; good && i <= count; i++) {
    good = taken(i < count ? treadle_text_stream_put(stream, ids[i], &text, &bytes)
                           : treadle_text_stream_end(stream, &text, &bytes));
    if (!good) break;
    MUST(treadle_unicode_valid(text, bytes) == bytes);
    MUST(treadle_text_bytes_add(&all, text, bytes) == TREADLE_OK);
  }
  if (good && !has_lost(wanted, wanted_bytes) && !has_lost(all.items, all.count))
    MUST(all.count == wanted_bytes && (all.count == 0 || memcmp(all.items, wanted, all.count) == 0));
  treadle_array_release(&all);
  treadle_text_stream_destroy(stream);
}

static void check_text(const treadle_tokenizer *tokenizer, const char *text, size_t bytes) {
  int32_t *ids = NULL;
  char *back = NULL;
  size_t count, back_bytes;
  if (taken(treadle_tokenizer_encode(tokenizer, text, bytes, true, &ids, &count))) {
    for (size_t i = 0; i < count; i++) MUST(treadle_tokenizer_check_id(tokenizer, ids[i]) == TREADLE_OK);
    if (taken(treadle_tokenizer_decode(tokenizer, ids, count, true, &back, &back_bytes))) {
      MUST(treadle_unicode_valid(back, back_bytes) == back_bytes);
      check_stream(tokenizer, ids, count, back, back_bytes);
    }
  }
  free(ids);
  free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const char mark[] = "\n%%\n", usual[] = "ab <s>c\xc3\xa9  A1";
  const char *input = (const char *)bytes;
  const char *cut = count ? memmem(input, count, mark, sizeof mark - 1) : NULL;
  const char *text = cut ? cut + sizeof mark - 1 : usual;
  size_t text_bytes = cut ? (size_t)(input + count - text) : sizeof usual - 1;
  treadle_tokenizer *tokenizer = NULL;
  MUST(treadle_tokenizer_make(&tokenizer) == TREADLE_OK);
  if (taken(read_tokenizer(input, cut ? (size_t)(cut - input) : count, tokenizer)))
    check_text(tokenizer, text, text_bytes < MOST_TEXT ? text_bytes : MOST_TEXT);
  treadle_tokenizer_close(tokenizer);
  return 0;
}
