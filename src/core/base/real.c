/* Real numbers as text. C's printf and strtod are exact in glibc, and their point is that of the locale, which is put right here. */
#include "base/real.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void treadle_real_print(char to[TREADLE_REAL_BYTES], char type, int precision, bool alternate,
                        double real) {
  char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : 0, 0};
  snprintf(to, TREADLE_REAL_BYTES, format, precision, real);
  const char *point = localeconv()->decimal_point;
  char *found = strcmp(point, ".") == 0 ? NULL : strstr(to, point);
  if (!found) return;
  *found = '.';
  memmove(found + 1, found + strlen(point), strlen(found + strlen(point)) + 1);
}

double treadle_real_parse(const char *text) {
  const char *point = localeconv()->decimal_point, *dot = strchr(text, '.');
  if (!dot || strcmp(point, ".") == 0) return strtod(text, NULL);
  char copy[9000];
  snprintf(copy, sizeof copy, "%.*s%s%s", (int)(dot - text), text, point, dot + 1);
  return strtod(copy, NULL);
}

/* How many digits `text` begins with. */
static size_t digits_of(const char *text) { return strspn(text, "0123456789"); }

bool treadle_text_to_real(const char *text, double *value_p) {
  const char *at = text + (*text == '-' || *text == '+');
  size_t digits = digits_of(at), length = strlen(text);
  at += digits;
  if (*at == '.') {
    size_t behind = digits_of(++at);
    digits += behind;
    at += behind;
  }
  if (!digits) return false;
  if (*at == 'e' || *at == 'E') {
    at++;
    at += *at == '-' || *at == '+';
    if (!digits_of(at)) return false;
    at += digits_of(at);
  }
  if (*at || length > 4096) return false;
  *value_p = treadle_real_parse(text);
  return isfinite(*value_p);
}

void treadle_text_of_real(char to[TREADLE_REAL_BYTES], double real) {
  int precision = 1;
  if (fabs(real) < 1e15 && real == trunc(real)) {
    treadle_real_print(to, 'f', 0, false, real);
    return;
  }
  do treadle_real_print(to, 'g', precision, false, real);
  while (treadle_real_parse(to) != real && ++precision <= 17);
}
