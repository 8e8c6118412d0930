/* Values of keys: what they may be, read from text and written as text. */
#include "run/config.h"

#include "base/real.h"
#include "base/utf8.h"
#include "io/yaml.h"

#include <stdio.h>
#include <string.h>

const char *treadle_train_key_type_text(const treadle_train_key *key) {
  static const char *const names[] = {
      [TREADLE_KEY_BOOL] = "bool", [TREADLE_KEY_INTEGER] = "integer", [TREADLE_KEY_REAL] = "real",
      [TREADLE_KEY_TEXT] = "text", [TREADLE_KEY_CHOICE] = "choice",   [TREADLE_KEY_SIZE] = "size",
      [TREADLE_KEY_LIST] = "list", [TREADLE_KEY_MAP] = "map"};
  return names[key->type];
}

/* Of a limit: an integer in full. */
static void write_limit(char to[TREADLE_REAL_BYTES], const treadle_train_key *key, double limit) {
  if (key->type == TREADLE_KEY_INTEGER)
    snprintf(to, TREADLE_REAL_BYTES, "%lld", (long long)limit);
  else
    treadle_text_of_real(to, limit);
}

void treadle_train_key_allowed(char to[TREADLE_KEY_TEXT_BYTES], const treadle_train_key *key) {
  char least[TREADLE_REAL_BYTES], most[TREADLE_REAL_BYTES];
  *to = 0;
  if (key->type == TREADLE_KEY_BOOL) strcpy(to, "true|false");
  for (int i = 0; key->type == TREADLE_KEY_CHOICE && key->words[i]; i++)
    snprintf(to + strlen(to), TREADLE_KEY_TEXT_BYTES - strlen(to), "%s%s", i ? "|" : "", key->words[i]);
  if (key->type != TREADLE_KEY_INTEGER && key->type != TREADLE_KEY_REAL) return;
  write_limit(least, key, key->least);
  write_limit(most, key, key->most);
  snprintf(to, TREADLE_KEY_TEXT_BYTES, "%.50s to %s%.50s", least, key->below ? "below " : "", most);
}

bool treadle_train_is_null(const char *text) { return treadle_yaml_is_null(text); }

/* ---- Reading ---------------------------------------------------------------------------------------- */

static treadle_status refuse_value(const treadle_train_key *key, const char *where, const char *text) {
  char allowed[TREADLE_KEY_TEXT_BYTES];
  treadle_train_key_allowed(allowed, key);
  const char *what = key->type == TREADLE_KEY_INTEGER ? "a whole number, "
                     : key->type == TREADLE_KEY_REAL  ? "a number, "
                     : key->type == TREADLE_KEY_SIZE  ? "bytes, or a size as 512MiB"
                                                      : "one of ";
  const char *nearest = key->type == TREADLE_KEY_CHOICE ? treadle_nearest_name(text, key->words) : NULL;
  REFUSE("%s is '%s', and must be %s%s%s%s%s", where, treadle_text_shown(text), what, allowed,
         nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static bool in_range(const treadle_train_key *key, double value) {
  return value >= key->least && (key->below ? value < key->most : value <= key->most);
}

static bool read_word(const treadle_train_key *key, const char *text, int32_t *value_p) {
  for (int32_t i = 0; key->words[i]; i++)
    if (strcmp(key->words[i], text) == 0) {
      *value_p = i;
      return true;
    }
  return false;
}

/* "4096", "64MiB", "0". */
static bool read_size(const treadle_train_key *key, const char *text, size_t *bytes_p) {
  int64_t whole;
  size_t bytes = 0;
  char digits[TREADLE_YAML_NUMBER];
  if (!(text = treadle_yaml_number(text, digits))) return false;
  if (treadle_text_to_int64(text, &whole)) {
    if (whole < 0) return false;
    bytes = (size_t)whole;
  } else if (treadle_text_to_size("size", text, &bytes) != TREADLE_OK) {
    return false;
  }
  *bytes_p = bytes;
  return in_range(key, (double)bytes);
}

/* A text that begins with [ is a list of YAML; another one is its only item. */
static treadle_status read_list(const char *where, const char *text, treadle_arena *arena,
                                treadle_train_list *list) {
  const treadle_yaml *root = NULL;
  treadle_status status = TREADLE_OK;
  if (*text == '[') TRY(treadle_yaml_parse(where, text, strlen(text), arena, &root));
  if (root && root->type != TREADLE_YAML_LIST)
    REFUSE("%s: '%s' is not a list", where, treadle_text_shown(text));
  const char **items = treadle_arena_alloc_array(arena, root ? root->count + 1 : 1, sizeof *items);
  if (!items) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its value", where);
  *list = (treadle_train_list){items, root ? root->count : 1};
  if (!root) items[0] = text;
  for (size_t i = 0; root && i < root->count; i++) {
    if (root->items[i]->type != TREADLE_YAML_SCALAR) REFUSE("%s: item %zu is not a single value", where, i);
    items[i] = root->items[i]->text;
  }
out:
  return status;
}

treadle_status treadle_train_key_read(const treadle_train_key *key, const char *where, const char *text,
                                      treadle_arena *arena, treadle_train_settings *settings) {
  void *to = (char *)settings + key->at;
  int64_t whole = 0;
  double real = 0;
  char digits[TREADLE_YAML_NUMBER];
  const char *number;
  bool good = false;
  if (!text) text = key->otherwise;
  if (!text) { /* zero, as the struct was made */
    return TREADLE_OK;
  }
  switch (key->type) {
  case TREADLE_KEY_BOOL: good = treadle_yaml_truth(text, to); break;
  case TREADLE_KEY_INTEGER:
    number = treadle_yaml_number(text, digits);
    good = number && treadle_text_to_int64(number, &whole) && in_range(key, (double)whole);
    if (good) *(int64_t *)to = whole;
    break;
  case TREADLE_KEY_REAL:
    number = treadle_yaml_number(text, digits);
    good = number && treadle_text_to_real(number, &real) && in_range(key, real);
    if (good) *(double *)to = real;
    break;
  case TREADLE_KEY_MAP:
  case TREADLE_KEY_TEXT:
    good = true;
    *(const char **)to = text;
    break;
  case TREADLE_KEY_CHOICE: good = read_word(key, text, to); break;
  case TREADLE_KEY_SIZE: good = read_size(key, text, to); break;
  case TREADLE_KEY_LIST: return read_list(where, text, arena, to);
  }
  return good ? TREADLE_OK : refuse_value(key, where, text);
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

/* In quotes: an item may have commas and brackets. */
void treadle_train_write_item(treadle_builder *text, const char *item) {
  treadle_builder_add(text, "\"");
  for (; *item; item++) treadle_builder_add(text, *item == '"' || *item == '\\' ? "\\%c" : "%c", *item);
  treadle_builder_add(text, "\"");
}

static void write_list(treadle_builder *text, const treadle_train_list *list) {
  treadle_builder_add(text, "[");
  for (size_t i = 0; i < list->count; i++) {
    if (i) treadle_builder_add(text, ", ");
    treadle_train_write_item(text, list->items[i]);
  }
  treadle_builder_add(text, "]");
}

void treadle_train_key_write(treadle_builder *text, const treadle_train_key *key,
                             const treadle_train_settings *settings) {
  const void *from = (const char *)settings + key->at;
  char digits[TREADLE_REAL_BYTES];
  switch (key->type) {
  case TREADLE_KEY_BOOL: treadle_builder_add(text, "%s", *(const bool *)from ? "true" : "false"); break;
  case TREADLE_KEY_INTEGER:
    if (*(const int64_t *)from == 0 && key->least > 0)
      treadle_builder_add(text, "null");
    else
      treadle_builder_add(text, "%lld", (long long)*(const int64_t *)from);
    break;
  case TREADLE_KEY_REAL:
    treadle_text_of_real(digits, *(const double *)from);
    treadle_builder_add(text, "%s", digits);
    break;
  case TREADLE_KEY_TEXT:
    if (*(const char *const *)from)
      treadle_yaml_write_scalar(text, *(const char *const *)from);
    else
      treadle_builder_add(text, "null");
    break;
  case TREADLE_KEY_MAP:
    treadle_builder_add(text, "%s", *(const char *const *)from ? *(const char *const *)from : "null");
    break;
  case TREADLE_KEY_CHOICE: treadle_builder_add(text, "%s", key->words[*(const int32_t *)from]); break;
  case TREADLE_KEY_SIZE: treadle_builder_add(text, "%zu", *(const size_t *)from); break;
  case TREADLE_KEY_LIST:
    if (((const treadle_train_list *)from)->count)
      write_list(text, from);
    else
      treadle_builder_add(text, "null");
    break;
  }
}
