/* The message of the last failure of each thread: a fixed buffer, so that saying that memory is out needs
 * no memory. Longer messages are cut. What they quote may come from anywhere, and is made printable here, once, for the
 * command and for programs. */
#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

const char *treadle_status_text(treadle_status status) {
  static const struct {
    treadle_status status;
    const char *text;
  } rows[] = {{TREADLE_OK, "ok"},
              {TREADLE_REFUSED, "refused"},
              {TREADLE_NO_MEMORY, "no memory"},
              {TREADLE_SYSTEM, "system"},
              {TREADLE_PEER, "peer"},
              {TREADLE_TIMEOUT, "timeout"},
              {TREADLE_DIFFERENT, "different"},
              {TREADLE_STATE, "state"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].status == status) return rows[i].text;
  return "unknown status";
}

const char *treadle_error_message(void) { return message; }

/* A text that vsnprintf has cut may end within a character. */
static void drop_half_character(char *text, size_t length) {
  uint32_t code;
  for (size_t back = 1; back <= 3 && back <= length; back++) {
    unsigned char byte = (unsigned char)text[length - back];
    if (byte >= 0xc0 && treadle_utf8_read(text + length - back, &code) == 0) text[length - back] = 0;
    if ((byte & 0xc0) != 0x80) return;
  }
}

/* The new message is made beside the old one: the arguments may be, or quote, treadle_error_message(). */
static void keep(char *made, int length, const char *after) {
  if (length < 0) length = made[0] = 0;
  if (length < MESSAGE_BYTES)
    length += snprintf(made + length, (size_t)(MESSAGE_BYTES - length), "%s", after);
  if (length >= MESSAGE_BYTES) drop_half_character(made, MESSAGE_BYTES - 1);
  treadle_utf8_show(message, sizeof message, made);
}

treadle_status treadle_fail(treadle_status status, const char *format, ...) {
  char made[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  keep(made, vsnprintf(made, sizeof made, format, arguments), "");
  va_end(arguments);
  return status;
}

treadle_status treadle_fail_in(treadle_status status, const char *format, ...) {
  char made[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  keep(made, vsnprintf(made, sizeof made, format, arguments), message);
  va_end(arguments);
  return status;
}
