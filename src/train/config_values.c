/* Values of keys: what they may be, read from text and written as text. */
#include "train/config.h"

#include "base/real.h"
#include "base/utf8.h"
#include "io/yaml.h"

#include <stdio.h>
#include <string.h>

static const char *const truths[] = {"false", "true", "False", "True", "FALSE", "TRUE"};
enum { TRUTHS = sizeof truths / sizeof *truths };

const char *treadle_train_key_type_text(const treadle_train_key *key) {
  static const char *const names[] = {[TREADLE_KEY_BOOL] = "bool",
                                      [TREADLE_KEY_INTEGER] = "integer",
                                      [TREADLE_KEY_REAL] = "real",
                                      [TREADLE_KEY_TEXT] = "text",
                                      [TREADLE_KEY_CHOICE] = "choice"};
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

bool treadle_train_is_null(const char *text) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
  for (const char *const *null = nulls; *null; null++)
    if (strcmp(text, *null) == 0) return true;
  return false;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static treadle_status refuse_value(const treadle_train_key *key, const char *where, const char *text) {
  char allowed[TREADLE_KEY_TEXT_BYTES];
  treadle_train_key_allowed(allowed, key);
  const char *what = key->type == TREADLE_KEY_INTEGER ? "a whole number, "
                     : key->type == TREADLE_KEY_REAL  ? "a number, "
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

static bool read_truth(const char *text, bool *value_p) {
  for (int i = 0; i < TRUTHS; i++)
    if (strcmp(truths[i], text) == 0) {
      *value_p = i % 2;
      return true;
    }
  return false;
}

treadle_status treadle_train_key_read(const treadle_train_key *key, const char *where, const char *text,
                                      treadle_train_settings *settings) {
  void *to = (char *)settings + key->at;
  int64_t whole = 0;
  double real = 0;
  bool good = false;
  if (!text) text = key->otherwise;
  if (!text) { /* zero, as the struct was made */
    return TREADLE_OK;
  }
  switch (key->type) {
  case TREADLE_KEY_BOOL: good = read_truth(text, to); break;
  case TREADLE_KEY_INTEGER:
    good = treadle_text_to_int64(text, &whole) && in_range(key, (double)whole);
    if (good) *(int64_t *)to = whole;
    break;
  case TREADLE_KEY_REAL:
    good = treadle_text_to_real(text, &real) && in_range(key, real);
    if (good) *(double *)to = real;
    break;
  case TREADLE_KEY_TEXT:
    good = true;
    *(const char **)to = text;
    break;
  case TREADLE_KEY_CHOICE: good = read_word(key, text, to); break;
  }
  return good ? TREADLE_OK : refuse_value(key, where, text);
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

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
  case TREADLE_KEY_CHOICE: treadle_builder_add(text, "%s", key->words[*(const int32_t *)from]); break;
  }
}
