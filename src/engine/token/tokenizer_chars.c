/* A tokenizer of single characters: `char_ords` of tokenizer_config.json, as the class CharTokenizer of verl's test of arithmetic sequences
 * has it (tests/e2e/envs/digit_completion/tokenizer.py). The config lists code points. Ids 0 to 3 are S, E, P and U, which separate, end,
 * pad, and stand for characters without a token; the characters follow in their order. Nothing is put around a text.
 *
 * Other classes write char_ords as well, with other special tokens. verl's has a chat_template beside it, and they have not. */
#include "token/tokenizer.h"

#include "base/limits.h"
#include "token/fields.h"

#include <string.h>

enum { SEPARATOR, END, PADDING, UNKNOWN };

const treadle_token_name treadle_character_tokens[TREADLE_CHAR_TOKENS] = {[SEPARATOR] = {"sep_token", "S"},
                                                                          [END] = {"eos_token", "E"},
                                                                          [PADDING] = {"pad_token", "P"},
                                                                          [UNKNOWN] = {"unk_token", "U"}};

/* The config is of that class, and does not name the special tokens otherwise. */
static treadle_status check_class(const json_t *config) {
  const char *text;
  treadle_status status;
  TRY(treadle_field_text(config, "tokenizer_class", &text));
  if (text && strcmp(text, "CharTokenizer") != 0)
    REFUSE("tokenizer_class '%.80s' with char_ords is not known here; CharTokenizer is", text);
  if (!json_is_string(json_object_get(config, "chat_template")))
    REFUSE("char_ords without a chat_template: of which class it is, and so which ids its special tokens "
           "have, is not known");
  for (int i = 0; i < TREADLE_CHAR_TOKENS; i++) {
    const treadle_token_name *token = &treadle_character_tokens[i];
    TRY(treadle_tokenizer_special_text(config, token->name, &text));
    if (text && strcmp(text, token->text) != 0)
      REFUSE("%s is '%.80s'; with char_ords it is '%s'", token->name, text, token->text);
  }
out:
  return status;
}

static treadle_status put_character(treadle_tokenizer *tokenizer, const json_t *code, size_t i) {
  char text[4];
  json_int_t value = json_integer_value(code);
  if (!json_is_integer(code)) REFUSE("char_ords[%zu] is not a whole number", i);
  if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    REFUSE("char_ords[%zu] is %lld, which is not a character", i, (long long)value);
  size_t bytes = treadle_utf8_encode((uint32_t)value, text);
  int32_t there = treadle_tokens_find(&tokenizer->bpe.tokens, text, bytes);
  if (there >= 0)
    REFUSE("char_ords[%zu] is %lld, '%.*s', which is the token with the id %d already", i, (long long)value,
           (int)bytes, text, (int)there);
  return treadle_tokens_put(&tokenizer->bpe.tokens, (int64_t)i + TREADLE_CHAR_TOKENS, text, bytes);
}

treadle_status treadle_tokenizer_read_chars(treadle_tokenizer *tokenizer, const json_t *config) {
  static const treadle_added_token flags = {.special = true};
  treadle_tokens *tokens = &tokenizer->bpe.tokens;
  const json_t *list;
  treadle_status status;
  TRY(treadle_field_list(config, "char_ords", &list));
  size_t count = json_array_size(list);
  if (count == 0) REFUSE("char_ords is empty");
  if (count > TREADLE_MAX_TOKENS - TREADLE_CHAR_TOKENS)
    REFUSE("char_ords has %zu characters, at most %d are taken", count,
           TREADLE_MAX_TOKENS - TREADLE_CHAR_TOKENS);
  TRY(check_class(config));
  int32_t whole = (int32_t)count + TREADLE_CHAR_TOKENS;
  TRY(treadle_tokens_reserve(tokens, whole, whole));
  for (int i = 0; i < TREADLE_CHAR_TOKENS; i++)
    TRY(treadle_tokens_put(tokens, i, treadle_character_tokens[i].text, 1));
  for (size_t i = 0; i < count; i++) TRY(put_character(tokenizer, json_array_get(list, i), i));
  for (int i = 0; i < TREADLE_CHAR_TOKENS; i++)
    TRY(treadle_tokenizer_put_added(tokenizer, treadle_character_tokens[i].text, i, flags));
  TRY(treadle_decoders_add(&tokenizer->decoders, TREADLE_DECODE_FUSE));
  TRY(treadle_tokenizer_settle(tokenizer));
  tokenizer->special[TREADLE_EOS] = END;
  tokenizer->special[TREADLE_PAD] = PADDING;
  tokenizer->special[TREADLE_UNKNOWN] = UNKNOWN;
  tokenizer->bpe.unknown = treadle_character_tokens[UNKNOWN].text;
out:
  return status;
}
