/* Normalizers: a list of steps, read from JSON and run one after the other. */
#include "token/normalizer.h"

#include "base/limits.h"
#include "token/fields.h"
#include "token/normal_form.h"
#include "token/steps.h"

#include <string.h>
#include <utf8proc.h>

/* ---- Reading ---- */

treadle_status treadle_pattern_read(const json_t *json, treadle_regex **regex_p) {
  const json_t *literal = json_is_string(json) ? json : json_object_get(json, "String");
  const json_t *text = literal ? literal : json_object_get(json, "Regex");
  if (!json_is_string(text)) REFUSE("pattern is neither a String nor a Regex");
  return treadle_regex_create(json_string_value(text), json_string_length(text), literal != NULL, regex_p);
}

static treadle_status read_content(const json_t *json, const char *name, treadle_normalizer *step) {
  const char *text;
  treadle_status status = treadle_field_needed_text(json, name, &text);
  return status ? status : treadle_text_bytes_add(&step->content, text, strlen(text));
}

static treadle_status read_replace(const json_t *json, treadle_normalizer *step) {
  treadle_status status;
  TRY(treadle_pattern_read(json_object_get(json, "pattern"), &step->pattern));
  TRY(read_content(json, "content", step));
out:
  return status;
}

static treadle_status read_strip(const json_t *json, treadle_normalizer *step) {
  treadle_status status;
  TRY(treadle_field_bool(json, "strip_left", true, &step->left));
  TRY(treadle_field_bool(json, "strip_right", true, &step->right));
out:
  return status;
}

static treadle_status read_prepend(const json_t *json, treadle_normalizer *step) {
  return read_content(json, "prepend", step);
}

/* What JSON calls a step, and what it is. */
static const struct {
  const char *name;
  treadle_normalizer step;
  treadle_status (*read)(const json_t *json, treadle_normalizer *step); /* NULL: there is nothing more */
} kinds[] = {
    {"NFC", {.type = TREADLE_NORMALIZE_UNICODE, .compose = true}, NULL},
    {"NFD", {.type = TREADLE_NORMALIZE_UNICODE}, NULL},
    {"NFKC", {.type = TREADLE_NORMALIZE_UNICODE, .compose = true, .compatible = true}, NULL},
    {"NFKD", {.type = TREADLE_NORMALIZE_UNICODE, .compatible = true}, NULL},
    {"Lowercase", {.type = TREADLE_NORMALIZE_LOWERCASE}, NULL},
    {"Strip", {.type = TREADLE_NORMALIZE_STRIP}, read_strip},
    {"Replace", {.type = TREADLE_NORMALIZE_REPLACE}, read_replace},
    {"Prepend", {.type = TREADLE_NORMALIZE_PREPEND}, read_prepend},
    {"ByteLevel", {.type = TREADLE_NORMALIZE_BYTE_LEVEL}, NULL},
};

static void release_step(treadle_normalizer *step) {
  treadle_regex_destroy(step->pattern);
  treadle_array_release(&step->content);
}

static treadle_status read_step(const json_t *json, const char *type, void *of) {
  treadle_normalizers *steps = of;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, type) != 0) continue;
    treadle_normalizer step = kinds[i].step;
    treadle_status status = kinds[i].read ? kinds[i].read(json, &step) : TREADLE_OK;
    if (!status) status = treadle_array_push(steps, step);
    if (status) release_step(&step);
    return status ? treadle_fail_in(status, "%s: ", type) : TREADLE_OK;
  }
  REFUSE("normalizer '%s' is not known here", type);
}

treadle_status treadle_normalizers_read(const json_t *json, treadle_normalizers *steps) {
  const treadle_step_reader reader = {.list = "normalizers", .read_step = read_step, .steps = steps};
  return treadle_steps_read(json, &reader);
}

void treadle_normalizers_release(treadle_normalizers *steps) {
  for (size_t i = 0; i < steps->count; i++) release_step(&steps->items[i]);
  treadle_array_release(steps);
}

/* ---- Running ---- */

/* Rust's lower case of a character is one character, but for this one. */
static treadle_status lowercase(const treadle_text_bytes *text, treadle_text_bytes *to) {
  enum { CAPITAL_I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };
  treadle_status status = TREADLE_OK;
  for (size_t at = 0; at < text->count;) {
    uint32_t code;
    at += treadle_utf8_decode(text->items + at, &code);
    if (code == CAPITAL_I_WITH_DOT) {
      TRY(treadle_text_bytes_add(to, "i", 1));
      TRY(treadle_text_bytes_add_code(to, DOT_ABOVE));
    } else {
      TRY(treadle_text_bytes_add_code(to, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code)));
    }
  }
out:
  return status;
}

static treadle_status strip(const treadle_normalizer *step, const treadle_text_bytes *text,
                            treadle_text_bytes *to) {
  size_t from = 0, end = text->count;
  uint32_t code;
  for (size_t length; step->left && from < end; from += length) {
    length = treadle_utf8_decode(text->items + from, &code);
    if (!treadle_unicode_is_space(code)) break;
  }
  while (step->right && end > from) {
    size_t at = end - 1;
    while (((unsigned char)text->items[at] & 0xc0) == 0x80) at--;
    treadle_utf8_decode(text->items + at, &code);
    if (!treadle_unicode_is_space(code)) break;
    end = at;
  }
  return treadle_text_bytes_add(to, text->items + from, end - from);
}

treadle_status treadle_replace(treadle_regex_search search, const treadle_text_bytes *content,
                               treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  bool found;
  size_t done = 0;
  while (search.bytes > 0) {
    TRY(treadle_regex_next(&search, &found));
    if (!found) break;
    TRY(treadle_text_bytes_add(to, search.text + done, search.start - done));
    TRY(treadle_text_bytes_add(to, content->items, content->count));
    if (to->count > TREADLE_MAX_TEXT_BYTES)
      TRY(treadle_fail(TREADLE_REFUSED, "Replace makes a text of more than %d bytes",
                       TREADLE_MAX_TEXT_BYTES));
    done = search.end;
  }
  TRY(treadle_text_bytes_add(to, search.text + done, search.bytes - done));
out:
  return status;
}

static treadle_status run_step(const treadle_normalizer *step, treadle_regex_room *room,
                               const treadle_text_bytes *text, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  switch (step->type) {
  case TREADLE_NORMALIZE_UNICODE:
    return treadle_normal_form(text->items, text->count, step->compose, step->compatible, to);
  case TREADLE_NORMALIZE_LOWERCASE: return lowercase(text, to);
  case TREADLE_NORMALIZE_STRIP: return strip(step, text, to);
  case TREADLE_NORMALIZE_REPLACE: {
    treadle_regex_search search = {
        .regex = step->pattern, .room = room, .text = text->items, .bytes = text->count};
    return treadle_replace(search, &step->content, to);
  }
  case TREADLE_NORMALIZE_PREPEND:
    if (text->count) TRY(treadle_text_bytes_add(to, step->content.items, step->content.count));
    TRY(treadle_text_bytes_add(to, text->items, text->count));
    break;
  case TREADLE_NORMALIZE_BYTE_LEVEL: return treadle_byte_level_add(to, text->items, text->count);
  }
out:
  return status;
}

treadle_status treadle_normalizers_run(const treadle_normalizers *steps, treadle_regex_room *room,
                                       treadle_text_bytes *text, treadle_text_bytes *spare) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < steps->count; i++) {
    spare->count = 0;
    TRY(run_step(&steps->items[i], room, text, spare));
    treadle_text_bytes made = *spare;
    *spare = *text;
    *text = made;
  }
out:
  return status;
}
