/* What scalars say, as YAML 1.1 has it and PyYAML and OmegaConf read it, which read the trainer files of others: yes and on are true, 017 and
 * 0b11 are 15 and 3, 1_000 is 1000, 1:30 is 90. 0o17, 08 and 0x are texts there, and no numbers. */
#include "io/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool treadle_yaml_truth(const char *text, bool *truth_p) {
  static const char *const words[] = {"true", "True", "TRUE", "yes",   "Yes",   "YES",
                                      "on",   "On",   "ON",   "no",    "No",    "NO",
                                      "off",  "Off",  "OFF",  "false", "False", "FALSE"};
  enum { WORDS = sizeof words / sizeof *words, TRUE_WORDS = 9 };
  for (int i = 0; i < WORDS; i++)
    if (strcmp(words[i], text) == 0) {
      *truth_p = i < TRUE_WORDS;
      return true;
    }
  return false;
}

bool treadle_yaml_is_null(const char *text) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
  for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
    if (strcmp(text, nulls[i]) == 0) return true;
  return false;
}

/* Digits of a base with underscores between them, up to the end; one at least. */
static bool read_digits(const char *text, int base, unsigned long long *value_p) {
  static const char all[] = "0123456789abcdef";
  bool any = false;
  *value_p = 0;
  for (; *text; text++) {
    const char *digit = memchr(all, *text >= 'A' && *text <= 'F' ? *text + 32 : *text, (size_t)base);
    if (*text == '_') continue;
    if (!digit || __builtin_mul_overflow(*value_p, (unsigned long long)base, value_p) ||
        __builtin_add_overflow(*value_p, (unsigned long long)(digit - all), value_p))
      return false;
    any = true;
  }
  return any;
}

/* "1:30:05.5": each part below 60 but the first. */
static bool read_sixties(const char *text, char to[TREADLE_YAML_NUMBER], const char *sign) {
  double value = 0;
  int part = 0;
  for (; *text; part++) {
    char *end;
    const double one = strtod(text, &end);
    const bool last = *end == 0;
    if (end == text || text[strspn(text, "0123456789")] == 'e' || (part && one >= 60)) return false;
    if ((!last && *end != ':') || (!last && !end[1])) return false;
    value = value * 60 + one;
    text = last ? end : end + 1;
  }
  if (part < 2 || value > 9e15) return false;
  snprintf(to, TREADLE_YAML_NUMBER, value == (double)(long long)value ? "%s%.0f" : "%s%.17g", sign, value);
  return true;
}

const char *treadle_yaml_number(const char *text, char to[TREADLE_YAML_NUMBER]) {
  const char *digits = text + (*text == '-' || *text == '+'), *sign = *text == '-' ? "-" : "";
  const size_t decimals = strspn(digits, "0123456789_");
  unsigned long long value;
  if (strlen(text) >= TREADLE_YAML_NUMBER || *digits < '0' || *digits > '9') return text;
  if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'b')) {
    if (!read_digits(digits + 2, digits[1] == 'x' ? 16 : 2, &value)) return NULL;
    snprintf(to, TREADLE_YAML_NUMBER, "%s%llu", sign, value);
    return to;
  }
  if (digits[decimals] == ':') return *digits != '0' && read_sixties(digits, to, sign) ? to : NULL;
  if (digits[0] == '0' && decimals > 1 && !digits[decimals]) {
    if (!read_digits(digits + 1, 8, &value)) return NULL;
    snprintf(to, TREADLE_YAML_NUMBER, "%s%llu", sign, value);
    return to;
  }
  if (!strchr(text, '_')) return text;
  size_t length = 0;
  for (; *text; text++)
    if (*text != '_') to[length++] = *text;
  to[length] = 0;
  return to;
}
