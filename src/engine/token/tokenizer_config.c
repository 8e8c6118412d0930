/* Added tokens of tokenizer_config.json, in the order in which transformers adds them: those of added_tokens_decoder by their ids, the
 * special tokens that have names, those that have none. What is an added token already stays as it is. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/json.h"
#include "token/fields.h"

#include <stdlib.h>
#include <string.h>

/* Special tokens beside the four that programs ask for, in the order in which they get ids. */
static const char *const added_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/* Is it one of the special tokens that have a name? */
static treadle_status is_named(const json_t *config, const char *text, bool *named_p) {
  *named_p = false;
  for (size_t i = 0; i < sizeof added_names / sizeof *added_names; i++) {
    const char *one;
    treadle_status status = treadle_tokenizer_special_text(config, added_names[i], &one);
    if (status) return status;
    if (one && strcmp(one, text) == 0) *named_p = true;
  }
  return TREADLE_OK;
}

static treadle_status put_one(treadle_tokenizer *tokenizer, const json_t *config, const json_t *json,
                              int64_t id) {
  treadle_added_token flags = {0};
  treadle_status status;
  const char *text;
  bool named;
  TRY(treadle_field_needed_text(json, "content", &text));
  if (tokenizer->own_count && treadle_added_find(&tokenizer->added, text, strlen(text))) return TREADLE_OK;
  TRY(treadle_tokenizer_read_flags(json, &flags));
  TRY(is_named(config, text, &named));
  flags.special = flags.special || named;
  TRY(treadle_tokenizer_put_added(tokenizer, text, id, flags));
out:
  return status;
}

typedef struct numbered {
  int64_t id;
  const json_t *json;
} numbered;

static int by_id(const void *a, const void *b) {
  int64_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
  return x < y ? -1 : x > y;
}

/* added_tokens_decoder: an object from id to token; taken in the order of ids. */
static treadle_status put_decoder(treadle_tokenizer *tokenizer, const json_t *config) {
  json_t *object = json_object_get(config, "added_tokens_decoder");
  TREADLE_ARRAY(numbered) list = {0};
  treadle_status status = TREADLE_OK;
  if (!object || json_is_null(object)) return TREADLE_OK;
  if (!treadle_json_is_object(object)) REFUSE("added_tokens_decoder is not an object");
  for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    const char *key = json_object_iter_key(at);
    char *end;
    numbered one = {strtoll(key, &end, 10), json_object_iter_value(at)};
    if (*end || end == key || one.id < 0 || one.id > INT32_MAX)
      TRY(treadle_fail(TREADLE_REFUSED, "added_tokens_decoder: '%.80s' is not an id", key));
    TRY(treadle_array_push(&list, one));
  }
  if (list.count) qsort(list.items, list.count, sizeof *list.items, by_id);
  for (size_t i = 0; i < list.count; i++) {
    status = put_one(tokenizer, config, list.items[i].json, list.items[i].id);
    if (status) TRY(treadle_fail_in(status, "added_tokens_decoder: %lld: ", (long long)list.items[i].id));
  }
out:
  treadle_array_release(&list);
  return status;
}

/* A special token that is not there yet: a text, or an object with flags. */
static treadle_status put_special(treadle_tokenizer *tokenizer, const json_t *token, const char *name) {
  treadle_added_token flags = {.special = true};
  const char *text = json_string_value(token);
  treadle_status status = TREADLE_OK;
  if (treadle_json_is_object(token)) {
    TRY(treadle_field_needed_text(token, "content", &text));
    TRY(treadle_tokenizer_read_flags(token, &flags));
    if (!json_object_get(token, "normalized")) flags.normalized = false;
    flags.special = true;
  }
  if (!text) REFUSE("%s is not a text%s", name, treadle_json_note(token));
  if (!treadle_added_find(&tokenizer->added, text, strlen(text)))
    TRY(treadle_tokenizer_put_added(tokenizer, text, -1, flags));
out:
  return status ? treadle_fail_in(status, "%s: ", name) : TREADLE_OK;
}

static treadle_status put_default(treadle_tokenizer *tokenizer, const char *text) {
  const treadle_added_token flags = {.special = true};
  if (!text || treadle_added_find(&tokenizer->added, text, strlen(text))) return TREADLE_OK;
  return treadle_tokenizer_put_added(tokenizer, text, -1, flags);
}

static treadle_status put_named(treadle_tokenizer *tokenizer, const json_t *config,
                                const char *const *defaults) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof added_names / sizeof *added_names; i++) {
    const json_t *token = json_object_get(config, added_names[i]);
    if (token && !json_is_null(token)) TRY(put_special(tokenizer, token, added_names[i]));
    for (int s = 0; defaults && !token && s < TREADLE_SPECIAL_TOKENS; s++)
      if (strcmp(added_names[i], treadle_special_names[s]) == 0) TRY(put_default(tokenizer, defaults[s]));
  }
out:
  return status;
}

/* A list of tokens, or an object of tokens by name. */
static treadle_status put_more(treadle_tokenizer *tokenizer, const json_t *config, const char *name) {
  json_t *all = json_object_get(config, name);
  char place[100];
  treadle_status status = TREADLE_OK;
  if (!all || json_is_null(all)) return TREADLE_OK;
  if (!json_is_array(all) && !treadle_json_is_object(all))
    REFUSE("%s is neither a list nor an object%s", name, treadle_json_note(all));
  for (size_t i = 0; json_is_array(all) && i < json_array_size(all); i++) {
    snprintf(place, sizeof place, "%s[%zu]", name, i);
    TRY(put_special(tokenizer, json_array_get(all, i), place));
  }
  for (void *at = json_object_iter(all); at; at = json_object_iter_next(all, at)) {
    snprintf(place, sizeof place, "%s: %.60s", name, json_object_iter_key(at));
    TRY(put_special(tokenizer, json_object_iter_value(at), place));
  }
out:
  return status;
}

treadle_status treadle_tokenizer_put_config(treadle_tokenizer *tokenizer, const json_t *config,
                                            const char *const *defaults) {
  treadle_status status;
  TRY(put_decoder(tokenizer, config));
  TRY(put_named(tokenizer, config, defaults));
  TRY(put_more(tokenizer, config, "additional_special_tokens"));
  TRY(put_more(tokenizer, config, "extra_special_tokens"));
out:
  return status;
}
