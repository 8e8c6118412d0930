/* The reader: one pass, by descent. Texts without escapes go from the source to the value in one copy; lines are counted where a message
 * or an odd value needs one. */
#include "base/json_parts.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 60 };

static treadle_status keep(treadle_json_reader *r, json_t *value, json_t **value_p) {
  *value_p = value;
  return value ? TREADLE_OK : treadle_json_no_memory(r);
}

/* An odd value: what stands from `from` on. */
static treadle_status keep_odd(treadle_json_reader *r, size_t from, json_t **value_p) {
  return keep(r, treadle_json_make_odd(r->text + from, r->at - from, treadle_json_line(r, from)), value_p);
}

static treadle_status read_text_value(treadle_json_reader *r, json_t **value_p) {
  size_t from = r->at++;
  treadle_json_bytes text;
  treadle_status status = treadle_json_scan_text(r, &text);
  if (status) return status;
  if (text.half || (text.zero && !r->source->zeros)) return keep_odd(r, from, value_p);
  return keep(r, json_stringn_nocheck(text.bytes, text.count), value_p);
}

/* ---- Values ------------------------------------------------------------------------------------------------ */

static treadle_status read_value(treadle_json_reader *r, json_t **value_p);

static treadle_status enter(treadle_json_reader *r) {
  char why[80];
  if (r->depth++ < TREADLE_JSON_DEEPEST) return TREADLE_OK;
  snprintf(why, sizeof why, "it is nested deeper than %d", TREADLE_JSON_DEEPEST);
  return treadle_json_fail_at(r, r->at, why);
}

/* *more_p: another item follows. `close` ends the list. */
static treadle_status go_on(treadle_json_reader *r, char close, bool *more_p) {
  treadle_json_skip_space(r);
  *more_p = treadle_json_is_at(r, ',', ',');
  if (!*more_p && !treadle_json_is_at(r, close, close))
    return treadle_json_expected(r, close == ']' ? "',' or ']'" : "',' or '}'");
  r->at++;
  return TREADLE_OK;
}

static treadle_status read_list(treadle_json_reader *r, json_t **value_p) {
  treadle_status status;
  bool more;
  TRY(enter(r));
  TRY(keep(r, json_array(), value_p));
  r->at++;
  treadle_json_skip_space(r);
  more = !treadle_json_is_at(r, ']', ']');
  if (!more) r->at++;
  while (more) {
    json_t *item = NULL;
    status = read_value(r, &item);
    if (status) json_decref(item);
    TRY(status);
    if (json_array_append_new(*value_p, item) != 0) TRY(treadle_json_no_memory(r));
    TRY(go_on(r, ']', &more));
  }
  r->depth--;
out:
  return status;
}

static treadle_status refuse_key(treadle_json_reader *r, size_t at, const char *why, const char *key) {
  char shown[SHOWN], text[SHOWN + 80];
  const char *rest = treadle_utf8_show(shown, sizeof shown, key);
  snprintf(text, sizeof text, "key '%s%s' %s", shown, *rest ? "..." : "", why);
  return treadle_json_fail_at(r, at, text);
}

/* Onto the end of the keys of all open objects, with a 0 behind it. *at_p: where it begins there. */
static treadle_status push_key(treadle_json_reader *r, const treadle_json_bytes *key, size_t *at_p) {
  *at_p = r->keys.length;
  if (!key->zero) treadle_builder_add_bytes(&r->keys, key->bytes, key->count);
  for (size_t i = 0; key->zero && i < key->count; i++)
    treadle_builder_add_bytes(&r->keys, key->bytes[i] ? key->bytes + i : TREADLE_JSON_ZERO,
                              key->bytes[i] ? 1 : 2);
  treadle_builder_add_bytes(&r->keys, "", 1);
  return r->keys.failed ? treadle_json_no_memory(r) : TREADLE_OK;
}

static treadle_status read_member(treadle_json_reader *r, json_t *object) {
  size_t from, at = r->keys.length, before = json_object_size(object);
  treadle_json_bytes key;
  json_t *value = NULL;
  treadle_status status = TREADLE_OK;
  treadle_json_skip_space(r);
  from = r->at;
  if (!treadle_json_is_at(r, '"', '"')) return treadle_json_expected(r, "a key in '\"'");
  r->at++;
  TRY(treadle_json_scan_text(r, &key));
  TRY(push_key(r, &key, &at));
  if (key.half) TRY(refuse_key(r, from, "has half of a surrogate pair", r->keys.text + at));
  treadle_json_skip_space(r);
  if (!treadle_json_is_at(r, ':', ':')) TRY(treadle_json_expected(r, "':' behind a key"));
  r->at++;
  status = read_value(r, &value);
  if (status) json_decref(value);
  TRY(status);
  if (json_object_set_new_nocheck(object, r->keys.text + at, value) != 0) TRY(treadle_json_no_memory(r));
  if (json_object_size(object) == before)
    TRY(refuse_key(r, from, "stands twice in one object", r->keys.text + at));
  r->keys.length = at;
out:
  return status;
}

static treadle_status read_object(treadle_json_reader *r, json_t **value_p) {
  treadle_status status;
  bool more;
  TRY(enter(r));
  TRY(keep(r, json_object(), value_p));
  r->at++;
  treadle_json_skip_space(r);
  more = !treadle_json_is_at(r, '}', '}');
  if (!more) r->at++;
  while (more) {
    TRY(read_member(r, *value_p));
    TRY(go_on(r, '}', &more));
  }
  r->depth--;
out:
  return status;
}

static bool take_word(treadle_json_reader *r, const char *word) {
  size_t length = strlen(word);
  if (r->end - r->at < length || memcmp(r->text + r->at, word, length) != 0) return false;
  r->at += length;
  return true;
}

static treadle_status read_word(treadle_json_reader *r, json_t **value_p) {
  size_t from = r->at;
  if (take_word(r, "true")) return keep(r, json_true(), value_p);
  if (take_word(r, "false")) return keep(r, json_false(), value_p);
  if (take_word(r, "null")) return keep(r, json_null(), value_p);
  if (take_word(r, "NaN") || take_word(r, "Infinity") || take_word(r, "-Infinity"))
    return keep_odd(r, from, value_p);
  return treadle_json_expected(r, "a value");
}

/* *value_p is whole or, where this fails, what there is of it, which the caller ends. */
static treadle_status read_value(treadle_json_reader *r, json_t **value_p) {
  treadle_json_skip_space(r);
  char sign = r->at < r->end ? r->text[r->at] : 0;
  if (sign == '"') return read_text_value(r, value_p);
  if (sign == '{') return read_object(r, value_p);
  if (sign == '[') return read_list(r, value_p);
  bool number =
      (sign >= '0' && sign <= '9') || (sign == '-' && (r->end - r->at < 2 || r->text[r->at + 1] != 'I'));
  if (!number) return read_word(r, value_p);
  size_t from = r->at;
  treadle_status status = treadle_json_scan_number(r, value_p);
  return status || *value_p ? status : keep_odd(r, from, value_p);
}

size_t treadle_json_mark(const char *text, size_t count) {
  static const char mark[] = "\xef\xbb\xbf";
  return count >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
}

treadle_status treadle_json_read(const treadle_json_source *source, json_t **root_p) {
  int64_t line = source->line ? source->line : 1;
  treadle_json_reader r = {.source = source, .text = source->text, .end = source->count, .line = line};
  json_t *root = NULL;
  treadle_status status = TREADLE_OK;
  if (source->line == 0) r.at = treadle_json_mark(r.text, r.end);
  treadle_json_skip_space(&r);
  if (!treadle_json_is_at(&r, '{', '[')) TRY(treadle_json_expected(&r, "'{' or '['"));
  TRY(read_value(&r, &root));
  if (source->used_p)
    *source->used_p = r.at;
  else
    treadle_json_skip_space(&r);
  if (!source->used_p && r.at < r.end) TRY(treadle_json_expected(&r, "the end of the text"));
  *root_p = root;
  root = NULL;
out:
  json_decref(root);
  treadle_builder_release(&r.text_room);
  treadle_builder_release(&r.keys);
  return status;
}
