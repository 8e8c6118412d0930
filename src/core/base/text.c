/* Texts: numbers, sizes, and one builder. Numbers are read by hand: strtoll takes leading spaces, signs and
 * what follows, and depends on errno. */
#include "base/text.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Digits at *text_p as a number up to INT64_MAX; moves past them. False: no digit, or too large. */
static bool read_digits(const char **text_p, int64_t *value_p) {
  const char *text = *text_p;
  int64_t value = 0;
  if (*text < '0' || *text > '9') return false;
  for (; *text >= '0' && *text <= '9'; text++) {
    int digit = *text - '0';
    if (value > (INT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *text_p = text;
  *value_p = value;
  return true;
}

bool treadle_text_to_int64(const char *text, int64_t *value_p) {
  bool negative = *text == '-';
  int64_t value;
  if (negative && strcmp(text, "-9223372036854775808") == 0) {
    *value_p = INT64_MIN;
    return true;
  }
  text += negative;
  if (!read_digits(&text, &value) || *text) return false;
  *value_p = negative ? -value : value;
  return true;
}

static const char *const unit_names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
enum { UNITS = sizeof unit_names / sizeof *unit_names };

treadle_status treadle_text_to_size(const char *what, const char *text, size_t *bytes_p) {
  const char *end = text;
  int64_t number = INT64_MAX;
  bool large = *text >= '0' && *text <= '9';
  if (!read_digits(&end, &number) && large)
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is more than 2^63 - 1 bytes", what, text);
  if (!large)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: '%s' is not a size: a whole number and B, KiB, MiB, GiB or TiB", what, text);
  int unit = 0;
  while (*end && unit < UNITS && strcmp(end, unit_names[unit]) != 0) unit++;
  if (unit == UNITS)
    return treadle_fail(TREADLE_REFUSED, "%s: '%s': unit '%s' is none of B, KiB, MiB, GiB, TiB", what, text,
                        end);
  if (number == 0) return treadle_fail(TREADLE_REFUSED, "%s: '%s': a size is at least 1 B", what, text);
  if (number > INT64_MAX >> (10 * unit))
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is more than 2^63 - 1 bytes", what, text);
  *bytes_p = (size_t)number << (10 * unit);
  return TREADLE_OK;
}

enum { TEXT_BYTES = 64 };

/* 32, so that 16 of sizes and 16 of counts stand in one message. */
static char *next_buffer(void) {
  static _Thread_local char buffers[32][TEXT_BYTES];
  static _Thread_local unsigned turn;
  return buffers[turn++ % 32];
}

const char *treadle_text_of_size(size_t bytes) {
  char *buffer = next_buffer();
  double value = (double)bytes;
  int unit = 0;
  /* 1023.995 would print as 1024.00. */
  for (; value >= 1023.995 && unit < UNITS - 1; unit++) value /= 1024;
  snprintf(buffer, TEXT_BYTES, unit ? "%.2f %s" : "%.0f %s", value, unit_names[unit]);
  return buffer;
}

static const char *count_text(int64_t count, const char *noun, const char *is, const char *are) {
  char *buffer = next_buffer();
  snprintf(buffer, TEXT_BYTES, "%" PRId64 " %.32s%s", count, noun, count == 1 ? is : are);
  return buffer;
}

const char *treadle_text_of_count(int64_t count, const char *noun) {
  return count_text(count, noun, "", "s");
}

const char *treadle_text_count_is(int64_t count, const char *noun) {
  return count_text(count, noun, " is", "s are");
}

bool treadle_text_starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Levenshtein's table, one row at a time; texts beyond 255 characters are compared by their beginnings. */
int treadle_text_distance(const char *a, const char *b) {
  enum { LONGEST = 255 };
  int row[LONGEST + 1];
  int a_length = (int)strnlen(a, LONGEST), b_length = (int)strnlen(b, LONGEST);
  for (int j = 0; j <= b_length; j++) row[j] = j;
  for (int i = 1; i <= a_length; i++) {
    int diagonal = row[0]; /* of the row before, one to the left */
    row[0] = i;
    for (int j = 1; j <= b_length; j++) {
      int above = row[j];
      int best = diagonal + (a[i - 1] != b[j - 1]);
      if (above + 1 < best) best = above + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
      diagonal = above;
    }
  }
  return row[b_length];
}

const char *treadle_nearest_name(const char *name, const char *const *names) {
  const char *nearest = NULL;
  int least = (int)strlen(name) < 6 ? 3 : 4; /* further away is not a typing error */
  for (; *names; names++) {
    int distance = treadle_text_distance(name, *names);
    if (distance < least) {
      least = distance;
      nearest = *names;
    }
  }
  return nearest;
}

static bool make_room(treadle_builder *builder, size_t more) {
  size_t needed = builder->length + more + 1;
  if (needed <= builder->capacity) return true;
  size_t capacity = builder->capacity * 2 > needed ? builder->capacity * 2 : needed + 64;
  char *text = treadle_realloc(builder->text, capacity);
  if (!text) return false;
  builder->text = text;
  builder->capacity = capacity;
  return true;
}

void treadle_builder_add(treadle_builder *builder, const char *format, ...) {
  if (builder->failed) return;
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int more = vsnprintf(NULL, 0, format, arguments);
  builder->failed = more < 0 || !make_room(builder, (size_t)more);
  if (!builder->failed) {
    vsnprintf(builder->text + builder->length, (size_t)more + 1, format, again);
    builder->length += (size_t)more;
  }
  va_end(again);
  va_end(arguments);
}

void treadle_builder_add_bytes(treadle_builder *builder, const char *bytes, size_t count) {
  if (builder->failed) return;
  builder->failed = !make_room(builder, count);
  if (builder->failed) return;
  if (count) memcpy(builder->text + builder->length, bytes, count);
  builder->length += count;
  builder->text[builder->length] = 0;
}

void treadle_builder_release(treadle_builder *builder) {
  treadle_free(builder->text);
  *builder = (treadle_builder){0};
}
