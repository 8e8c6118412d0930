/* From ids to text, and facts about tokens. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/sized.h"

#include <string.h>

int32_t treadle_tokenizer_count(const treadle_tokenizer *tokenizer) {
  TREADLE_NEED_OR(tokenizer, -1);
  return tokenizer->count;
}

static bool is_special(const treadle_tokenizer *tokenizer, int32_t id) {
  const treadle_added_token *added = treadle_added_get(&tokenizer->added, id);
  return added ? added->special : tokenizer->llama2c && id < TREADLE_LLAMA2C_SPECIAL;
}

treadle_status treadle_tokenizer_token(const treadle_tokenizer *tokenizer, int32_t id,
                                       treadle_token_info *info_p) {
  TREADLE_NEED(tokenizer);
  TREADLE_NEED_SIZED(info_p);
  treadle_status status = treadle_tokenizer_check_id(tokenizer, id);
  if (status) return status;
  const treadle_added_token *added = treadle_added_get(&tokenizer->added, id);
  const treadle_token *token = added ? NULL : &tokenizer->bpe.tokens.items[id];
  treadle_token_info info = {.struct_size = sizeof info,
                             .text = added ? added->text : token->text,
                             .bytes = added ? added->bytes : token->bytes,
                             .added = added != NULL,
                             .special = is_special(tokenizer, id)};
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

int32_t treadle_tokenizer_find(const treadle_tokenizer *tokenizer, const char *text, size_t bytes) {
  TREADLE_NEED_OR(tokenizer, -1);
  TREADLE_NEED_OR(text, -1);
  int32_t id = treadle_tokenizer_id(tokenizer, text, bytes);
  if (id < 0) treadle_fail(TREADLE_REFUSED, "the tokenizer has no such token");
  return id;
}

int32_t treadle_tokenizer_special(const treadle_tokenizer *tokenizer, treadle_special_token which) {
  TREADLE_NEED_OR(tokenizer, -1);
  if (TREADLE_CHECK_ENUM(which, TREADLE_SPECIAL_TOKENS)) return -1;
  if (tokenizer->special[which] < 0)
    treadle_fail(TREADLE_REFUSED, "the tokenizer has no %s", treadle_special_names[which]);
  return tokenizer->special[which];
}

/* ---- Decoding ---- */

/* The texts that decoders begin with. */
static treadle_status collect(const treadle_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool special, treadle_text_list *list) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < count; i++) {
    treadle_token form;
    bool is;
    status = treadle_tokenizer_check_id(tokenizer, ids[i]);
    if (status) return treadle_fail_in(status, "ids[%zu]: ", i);
    treadle_tokenizer_form(tokenizer, ids[i], &form, &is);
    if (is && !special) continue;
    TRY(treadle_text_list_add(list, form.text, form.bytes));
    if (list->text.count > TREADLE_MAX_TEXT_BYTES)
      REFUSE("the tokens have more than %d bytes", TREADLE_MAX_TEXT_BYTES);
  }
out:
  return status;
}

/* One text of all; blanks between them where there is no decoder. */
static treadle_status join(const treadle_tokenizer *tokenizer, const treadle_text_list *list,
                           treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  if (tokenizer->decoders.count) return treadle_text_bytes_add(to, list->text.items, list->text.count);
  for (size_t i = 0, from = 0; i < list->ends.count; from = list->ends.items[i++]) {
    if (i > 0) TRY(treadle_text_bytes_add(to, " ", 1));
    TRY(treadle_text_bytes_add(to, list->text.items + from, list->ends.items[i] - from));
  }
out:
  return status;
}

treadle_status treadle_tokenizer_decode(const treadle_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, bool special, char **text_p, size_t *bytes_p) {
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(bytes_p);
  *bytes_p = 0;
  TREADLE_NEED(tokenizer);
  if (count) TREADLE_NEED(ids);
  treadle_regex_room *room = NULL;
  treadle_text_list list = {0}, spare = {0};
  treadle_text_bytes text = {0};
  treadle_status status;
  if (tokenizer->llama2c && count > 0 && ids[0] == tokenizer->special[TREADLE_BOS]) {
    ids++; /* what follows is a begin all the same */
    count--;
  }
  TRY(treadle_regex_room_create(&room));
  TRY(collect(tokenizer, ids, count, special, &list));
  TRY(treadle_decoders_run(&tokenizer->decoders, room, &list, &spare));
  TRY(join(tokenizer, &list, &text));
  TRY(treadle_text_bytes_add(&text, "", 1)); /* a 0 byte behind it */
  *bytes_p = text.count - 1;
  *text_p = text.items;
  text.items = NULL;
out:
  treadle_array_release(&text);
  treadle_text_list_release(&list);
  treadle_text_list_release(&spare);
  treadle_regex_room_destroy(room);
  return status;
}
