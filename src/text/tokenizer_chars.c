/* The tokenizer of verl's test of digits (tests/e2e, CharTokenizer): tokenizer_config.json has char_ords, the code points of its characters. S, E,
 * P and U, the ids 0 to 3, separate, end, fill and stand for what is unknown; then the characters follow in their order. */
#include "text/tokenizer.h"

#include "base/limits.h"

#include <string.h>
#include <utf8proc.h>

enum { MOST_CHARACTERS = 1 << 16 };

static const char *const special[] = {"S", "E", "P", "U"};
enum { SEPARATOR, END, PADDING, UNKNOWN, SPECIALS };

static treadle_status put_character(treadle_tokenizer *tokenizer, size_t number, const json_t *code) {
  char text[8];
  int64_t ord = json_is_integer(code) ? json_integer_value(code) : -1;
  if (ord < 1 || ord > 0x10FFFF || !utf8proc_codepoint_valid((utf8proc_int32_t)ord))
    REFUSE("item %zu of char_ords is no code point", number);
  utf8proc_ssize_t bytes = utf8proc_encode_char((utf8proc_int32_t)ord, (utf8proc_uint8_t *)text);
  if (treadle_tokens_find(&tokenizer->bpe.tokens, text, (size_t)bytes) >= 0)
    REFUSE("item %zu of char_ords is '%.*s', which is a token already", number, (int)bytes, text);
  return treadle_tokens_put(&tokenizer->bpe.tokens, (int64_t)(SPECIALS + number), text, (size_t)bytes);
}

treadle_status treadle_tokenizer_read_chars(treadle_tokenizer *tokenizer, const json_t *config) {
  const json_t *ords = json_object_get(config, "char_ords");
  size_t count = json_array_size(ords);
  treadle_status status = TREADLE_OK;
  if (!count || count > MOST_CHARACTERS)
    REFUSE("char_ords is no list of 1 to %d code points", MOST_CHARACTERS);
  for (int i = 0; i < SPECIALS; i++) TRY(treadle_tokens_put(&tokenizer->bpe.tokens, i, special[i], 1));
  for (size_t i = 0; i < count; i++) TRY(put_character(tokenizer, i, json_array_get(ords, i)));
  for (int i = 0; i < SPECIALS; i++)
    TRY(treadle_tokenizer_put_added(tokenizer, special[i], i, (treadle_added_token){.special = true}));
  TRY(treadle_decoders_add(&tokenizer->decoders, TREADLE_DECODE_FUSE));
  tokenizer->bpe.unknown = special[UNKNOWN];
  tokenizer->special[TREADLE_EOS] = END;
  tokenizer->special[TREADLE_PAD] = PADDING;
  tokenizer->special[TREADLE_UNKNOWN] = UNKNOWN;
  TRY(treadle_tokenizer_settle(tokenizer));
out:
  return status;
}
