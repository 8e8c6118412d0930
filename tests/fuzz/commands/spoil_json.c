/* Spoiling one value of a JSON text. */
#include "commands/bytes.h"

#include <stdlib.h>
#include <string.h>

/* jansson keeps numbers of 63 bits: what else is to stand there goes in as a text with this in front, and is made bare
 * in the text that comes out. */
static const char RAW[] = "@raw@";

static json_t *raw_value(const char *text) {
  char marked[80];
  snprintf(marked, sizeof marked, "%s%s", RAW, text);
  return json_string(marked);
}

static void make_bare(fuzz_bytes *text) {
  for (char *at; (at = memmem(text->at, text->count, RAW, strlen(RAW)));) {
    size_t from = (size_t)(at - text->at) - 1, length = strlen(RAW) + 1;
    char *end = strstr(at, "\"");
    while (end && end > at && end[-1] == '\\') end = strstr(end + 1, "\"");
    if (!end) return;
    fuzz_bytes_replace(text, (size_t)(end - text->at), 1, NULL, 0);
    fuzz_bytes_replace(text, from, length, NULL, 0);
    for (size_t i = from; i + 1 < text->count && i < from + 80; i++) /* quotes inside were escaped */
      if (text->at[i] == '\\' && text->at[i + 1] == '"') fuzz_bytes_replace(text, i, 1, NULL, 0);
  }
}

static json_t *nested(treadle_random *random) {
  json_t *value = json_integer(fuzz_edge_int(random));
  for (int64_t deep = treadle_random_between(random, 1, 40); deep > 0; deep--) {
    json_t *outer = deep % 2 ? json_array() : json_object();
    if (deep % 2)
      json_array_append_new(outer, value);
    else
      json_object_set_new(outer, "a", value);
    value = outer;
  }
  return value;
}

static json_t *spoiled_text(treadle_random *random, const char *was) {
  static const char *const texts[] = {
      "",    "bfloat16", "float32",     "float8_e4m3fn", "F8_E4M3", "BF16",    "F32",
      "I64", "..",       "/",           "a/b",           "../x",    "\1\n",    "\u00e9",
      "fp8", "mxfp4",    "config.json", "llama",         "qwen3_5", "default", "full_attention"};
  fuzz_bytes text = {0};
  json_t *made = NULL;
  if (was && fuzz_one_in(random, 2)) {
    fuzz_bytes_add(&text, "%s", was);
    fuzz_spoil_text(random, &text);
    made = json_string(text.at);
  } else if (fuzz_one_in(random, 12)) {
    for (int i = 0; i < 600; i++) fuzz_bytes_add(&text, "long%d", i);
    made = json_string(text.at);
  }
  fuzz_bytes_release(&text);
  return made ? made : json_string(FUZZ_PICK(random, texts));
}

/* What stands in place of a value. */
static json_t *another(treadle_random *random, const json_t *was) {
  switch (treadle_random_below(random, 12)) {
  case 0: return nested(random);
  case 1: return spoiled_text(random, json_string_value(was));
  case 2: return json_null();
  case 3: return fuzz_one_in(random, 2) ? json_array() : json_object();
  case 4: return json_pack("[I, I]", (json_int_t)fuzz_edge_int(random), (json_int_t)2);
  case 5:
    if (json_is_integer(was)) return json_integer((json_int_t)((uint64_t)json_integer_value(was) << 1));
    return json_boolean(fuzz_one_in(random, 2));
  case 6:
    if (json_is_integer(was))
      return json_integer((json_int_t)((uint64_t)json_integer_value(was) +
                                       (uint64_t)treadle_random_between(random, -2, 2)));
    return json_boolean(fuzz_one_in(random, 2));
  default:
    if (json_is_string(was)) return spoiled_text(random, json_string_value(was));
    return raw_value(fuzz_edge(random));
  }
}

/* Goes down to a random member and spoils it there. */
static void spoil_array(treadle_random *random, json_t *array);

static void spoil_object(treadle_random *random, json_t *object) {
  const char *name;
  json_t *value = NULL;
  size_t count = json_object_size(object);
  if (!count) {
    json_object_set_new(object, "x", another(random, NULL));
    return;
  }
  int64_t which = treadle_random_below(random, (int64_t)count);
  json_object_foreach(object, name, value) if (which-- == 0) break;
  if (json_is_object(value) && !fuzz_one_in(random, 6))
    spoil_object(random, value);
  else if (json_is_array(value) && !fuzz_one_in(random, 4))
    spoil_array(random, value);
  else if (fuzz_one_in(random, 8)) {
    json_object_del(object, name);
  } else if (fuzz_one_in(random, 10)) { /* another name */
    json_t *named = spoiled_text(random, name);
    json_object_set(object, json_string_value(named), value);
    if (fuzz_one_in(random, 2)) json_object_del(object, name);
    json_decref(named);
  } else {
    json_object_set_new(object, name, another(random, value));
  }
}

static void spoil_array(treadle_random *random, json_t *array) {
  size_t count = json_array_size(array);
  if (!count) {
    json_array_append_new(array, another(random, NULL));
    return;
  }
  size_t which = (size_t)treadle_random_below(random, (int64_t)count);
  json_t *value = json_array_get(array, which);
  if (json_is_object(value) && !fuzz_one_in(random, 6))
    spoil_object(random, value);
  else if (json_is_array(value) && !fuzz_one_in(random, 6))
    spoil_array(random, value);
  else if (fuzz_one_in(random, 6))
    json_array_remove(array, which);
  else if (fuzz_one_in(random, 5))
    json_array_insert(array, which, value);
  else
    json_array_set_new(array, which, another(random, value));
}

void fuzz_spoil_json(treadle_random *random, fuzz_bytes *bytes) {
  json_t *root = bytes->count ? json_loadb(bytes->at, bytes->count, JSON_ALLOW_NUL, NULL) : NULL;
  if (!root || fuzz_one_in(random, 8)) {
    json_decref(root);
    fuzz_spoil_text(random, bytes);
    return;
  }
  if (json_is_object(root))
    spoil_object(random, root);
  else if (json_is_array(root))
    spoil_array(random, root);
  char *text = json_dumps(root, JSON_ENCODE_ANY | JSON_INDENT(1));
  if (text) fuzz_bytes_replace(bytes, 0, bytes->count, text, strlen(text));
  free(text);
  make_bare(bytes);
  if (fuzz_one_in(random, 12) && bytes->count > 2 && bytes->at[0] == '{') /* a key twice */
    fuzz_bytes_replace(bytes, 1, 0, "\"hidden_size\": 32, ", 19);
  json_decref(root);
}
