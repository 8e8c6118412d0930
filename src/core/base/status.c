/* The message of the last failure of each thread: a fixed buffer, so that saying that memory is out needs
 * no memory. Longer messages lose their middle. What they quote may come from anywhere, and is made printable here, once, for the
 * command and for programs. */
#include "base/status_list.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024, LONG_BYTES = 16384, MADE_BYTES = 8192 /* two paths and words */ };

static _Thread_local char message[LONG_BYTES]; /* of MESSAGE_BYTES, but where it is a list */

static const struct {
  treadle_status status;
  const char *text;
} texts[] = {{TREADLE_OK, "ok"},
             {TREADLE_REFUSED, "refused"},
             {TREADLE_NO_MEMORY, "no memory"},
             {TREADLE_SYSTEM, "system"},
             {TREADLE_PEER, "peer"},
             {TREADLE_TIMEOUT, "timeout"},
             {TREADLE_DIFFERENT, "different"},
             {TREADLE_STATE, "state"},
             {TREADLE_CANCELLED, "cancelled"}};

static const char *text_of(treadle_status status) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].status == status) return texts[i].text;
  return NULL;
}

const char *treadle_status_text(treadle_status status) {
  const char *text = text_of(status);
  return text ? text : "unknown status";
}

bool treadle_status_is_failure(treadle_status status) { return status && text_of(status); }

const char *treadle_error_message(void) { return message; }

/* Keeps what was made: its begin and its end where all of it has no room, since paths stand before what is the matter. */
static void keep(const char *made) {
  static const char gap[] = " ... ";
  enum { HEAD = 600, GAP = sizeof gap - 1, TAIL = MESSAGE_BYTES - 1 - HEAD - GAP };
  if (!*treadle_utf8_show(message, MESSAGE_BYTES, made)) return;
  treadle_utf8_show(message, HEAD + 1, made);
  size_t length = strlen(made), head = strlen(message);
  memcpy(message + head, gap, sizeof gap);
  for (size_t back = TAIL; back > 0; back /= 2) { /* what is not plain takes up to four times its bytes */
    const char *tail = made + length - back;
    while (((unsigned char)*tail & 0xc0) == 0x80) tail++;
    if (!*treadle_utf8_show(message + head + GAP, MESSAGE_BYTES - head - GAP, tail)) return;
  }
}

treadle_status treadle_error_set(treadle_status status, const char *text) {
  return treadle_fail(status, "%s", text && *text ? text : "no reason was given");
}

/* The new message is made beside the old one: the arguments may be, or quote, treadle_error_message(). */
treadle_status treadle_fail(treadle_status status, const char *format, ...) {
  char made[MADE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(made, sizeof made, format, arguments) < 0) made[0] = 0;
  va_end(arguments);
  keep(made);
  return status;
}

/* Line by line: a newline is the list's own. */
static void keep_lines(char *made) {
  size_t length = 0;
  char *rest = NULL;
  message[0] = 0;
  for (char *line = strtok_r(made, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (length && length + 1 < sizeof message) message[length++] = '\n';
    treadle_utf8_show(message + length, sizeof message - length, line);
    length += strlen(message + length);
  }
}

treadle_status treadle_fail_long(treadle_status status, const char *format, ...) {
  char made[LONG_BYTES];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(made, sizeof made, format, arguments) < 0) made[0] = 0;
  va_end(arguments);
  keep_lines(made);
  return status;
}

treadle_status treadle_fail_in(treadle_status status, const char *format, ...) {
  char made[MADE_BYTES + LONG_BYTES];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(made, MADE_BYTES - MESSAGE_BYTES, format, arguments) < 0) made[0] = 0;
  va_end(arguments);
  strcat(made, message);
  if (strlen(message) < MESSAGE_BYTES)
    keep(made);
  else
    keep_lines(made);
  return status;
}

treadle_status treadle_refused_at(const char *place, treadle_status status) {
  return status ? treadle_fail_in(treadle_as_refusal(status), "%s: ", place) : TREADLE_OK;
}
