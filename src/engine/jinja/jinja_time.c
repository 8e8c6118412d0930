/* Times in a format of strftime's, in English whatever the locale is, as Python prints them. */
#include "jinja/jinja_time.h"

#include "jinja/jinja_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;

typedef struct moment {
  struct tm time;
  long microseconds;
} moment;

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* ---- Which time ------------------------------------------------------------------------------------------- */

/* Exactly `count` digits at *at_p. */
static bool take_digits(const char **at_p, int count, int least, int most, int *number_p) {
  *number_p = 0;
  for (int i = 0; i < count; i++, ++*at_p) {
    if (**at_p < '0' || **at_p > '9') return false;
    *number_p = *number_p * 10 + **at_p - '0';
  }
  return *number_p >= least && *number_p <= most;
}

static bool take(const char **at_p, const char *set) {
  if (!**at_p || !strchr(set, **at_p)) return false;
  ++*at_p;
  return true;
}

static bool read_time(const char *at, moment *moment_p) {
  struct tm t = {0};
  int year, month;
  long micro = 0;
  if (!take_digits(&at, 4, 1, 9999, &year) || !take(&at, "-") || !take_digits(&at, 2, 1, 12, &month) ||
      !take(&at, "-") || !take_digits(&at, 2, 1, 31, &t.tm_mday) || !take(&at, "T ") ||
      !take_digits(&at, 2, 0, 23, &t.tm_hour) || !take(&at, ":") ||
      !take_digits(&at, 2, 0, 59, &t.tm_min) || !take(&at, ":") || !take_digits(&at, 2, 0, 59, &t.tm_sec))
    return false;
  if (take(&at, ".")) {
    int digits = 0;
    for (; *at >= '0' && *at <= '9' && digits < 6; at++, digits++) micro = micro * 10 + *at - '0';
    for (; digits < 6; digits++) micro *= 10;
  }
  t.tm_year = year - 1900;
  t.tm_mon = month - 1;
  int day = t.tm_mday;
  struct tm whole = t;
  timegm(&whole); /* the days of the week and of the year */
  *moment_p = (moment){whole, micro};
  return *at == 0 && whole.tm_mday == day;
}

bool treadle_jinja_is_time(const char *text) {
  moment ignored;
  return read_time(text, &ignored);
}

static treadle_status find_time(machine *m, moment *now) {
  struct timespec clock;
  PASS(treadle_jinja_step(m, 20));
  if (m->options->now) {
    if (!read_time(m->options->now, now))
      REFUSE("'%.60s' is not a time: 2025-03-14T15:09:26 is one", m->options->now);
    return TREADLE_OK;
  }
  clock_gettime(CLOCK_REALTIME, &clock);
  now->microseconds = clock.tv_nsec / 1000;
  return localtime_r(&clock.tv_sec, &now->time) ? TREADLE_OK
                                                : treadle_fail(TREADLE_SYSTEM, "the clock has no time");
}

/* ---- Formats ---------------------------------------------------------------------------------------------- */

/* Week of the year; weeks begin with weekday `first`. */
static int week_of(const struct tm *t, int first) {
  return (t->tm_yday + 7 - (t->tm_wday + 7 - first) % 7) / 7;
}

/* ISO 8601: a year has the weeks whose Thursday is in it. */
static int weekday_of_end(int year) { return (year + year / 4 - year / 100 + year / 400) % 7; }
static int weeks_of(int year) {
  return weekday_of_end(year) == 4 || weekday_of_end(year - 1) == 3 ? 53 : 52;
}

static int iso_week(const struct tm *t, int *year_p) {
  int week = (t->tm_yday - (t->tm_wday + 6) % 7 + 10) / 7;
  *year_p = t->tm_year + 1900;
  if (week < 1) return weeks_of(--*year_p);
  if (week <= weeks_of(*year_p)) return week;
  ++*year_p;
  return 1;
}

/* A number of `width` digits, filled with `fill`; flag '-' fills with nothing, '_' with spaces, '0' with zeros. */
static treadle_status put(machine *m, writer *w, long number, int width, char fill, char flag) {
  char text[32];
  if (flag == '-') width = 1;
  if (flag == '_') fill = ' ';
  if (flag == '0') fill = '0';
  snprintf(text, sizeof text, fill == ' ' ? "%*ld" : "%0*ld", width, number);
  return treadle_jinja_write_plain(m, w, text);
}

static treadle_status put_word(machine *m, writer *w, const char *word, size_t length, char flag) {
  for (size_t i = 0; i < length && word[i]; i++) {
    char c = word[i];
    if (flag == '^' && c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
    PASS(treadle_jinja_write(m, w, &c, 1));
  }
  return TREADLE_OK;
}

static treadle_status write_format(machine *m, writer *w, const moment *now, const char *format,
                                   size_t length);

/* Directives that are others in a row. */
static const char *expansion_of(char c) {
  switch (c) {
  case 'c': return "%a %b %e %H:%M:%S %Y";
  case 'D':
  case 'x': return "%m/%d/%y";
  case 'X':
  case 'T': return "%H:%M:%S";
  case 'F': return "%Y-%m-%d";
  case 'R': return "%H:%M";
  case 'r': return "%I:%M:%S %p";
  case 'h': return "%b";
  case 'n': return "\n";
  case 't': return "\t";
  default: return NULL;
  }
}

/* Directives that are numbers: the number, its digits and what fills them. */
static bool number_of(const moment *now, char c, long *number_p, int *width_p, char *fill_p) {
  const struct tm *t = &now->time;
  int year = t->tm_year + 1900, hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12, iso_year;
  *width_p = 2;
  *fill_p = strchr("ekl", c) ? ' ' : '0';
  switch (c) {
  case 'd':
  case 'e': *number_p = t->tm_mday; return true;
  case 'H':
  case 'k': *number_p = t->tm_hour; return true;
  case 'I':
  case 'l': *number_p = hour; return true;
  case 'm': *number_p = t->tm_mon + 1; return true;
  case 'M': *number_p = t->tm_min; return true;
  case 'S': *number_p = t->tm_sec; return true;
  case 'y': *number_p = year % 100; return true;
  case 'C': *number_p = year / 100; return true;
  case 'U': *number_p = week_of(t, 0); return true;
  case 'W': *number_p = week_of(t, 1); return true;
  case 'V': *number_p = iso_week(t, &iso_year); return true;
  case 'g': *number_p = (iso_week(t, &iso_year), iso_year % 100); return true;
  case 'j': *width_p = 3, *number_p = t->tm_yday + 1; return true;
  case 'f': *width_p = 6, *number_p = now->microseconds; return true;
  case 'Y': *width_p = 1, *number_p = year; return true;
  case 'G': *width_p = 1, *number_p = (iso_week(t, &iso_year), iso_year); return true;
  case 'w': *width_p = 1, *number_p = t->tm_wday; return true;
  case 'u': *width_p = 1, *number_p = t->tm_wday ? t->tm_wday : 7; return true;
  default: return false;
  }
}

/* %z and %Z of a time without a zone are empty; what strftime does not know stays as it is. */
static treadle_status write_one(machine *m, writer *w, const moment *now, char c, char flag) {
  long number;
  int width;
  char fill;
  const char *longer = expansion_of(c), *half = now->time.tm_hour < 12 ? "am" : "pm";
  if (longer) return write_format(m, w, now, longer, strlen(longer));
  if (number_of(now, c, &number, &width, &fill)) return put(m, w, number, width, fill, flag);
  switch (c) {
  case 'a': return put_word(m, w, days[now->time.tm_wday], 3, flag);
  case 'A': return put_word(m, w, days[now->time.tm_wday], 99, flag);
  case 'b': return put_word(m, w, months[now->time.tm_mon], 3, flag);
  case 'B': return put_word(m, w, months[now->time.tm_mon], 99, flag);
  case 'p': return put_word(m, w, half, 2, '^');
  case 'P': return put_word(m, w, half, 2, 0);
  case 'z':
  case 'Z': return TREADLE_OK;
  case '%': return treadle_jinja_write_plain(m, w, "%");
  default: REFUSE("strftime_now does not know '%%%c'", c);
  }
}

static treadle_status write_format(machine *m, writer *w, const moment *now, const char *format,
                                   size_t length) {
  for (size_t at = 0; at < length; at++) {
    if (format[at] != '%' || at + 1 == length) {
      PASS(treadle_jinja_write(m, w, format + at, 1));
      continue;
    }
    char flag = strchr("-_0^", format[at + 1]) && format[at + 1] ? format[++at] : 0;
    if (++at == length) break;
    PASS(write_one(m, w, now, format[at], flag));
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_time(machine *m, const treadle_jinja_text *format,
                                  treadle_jinja_value *result_p) {
  moment now;
  writer w = {0};
  PASS(find_time(m, &now));
  PASS(write_format(m, &w, &now, format->bytes, format->length));
  return treadle_jinja_written(m, &w, result_p);
}
