/* The message of the last failure of each thread: a fixed buffer, so that saying that memory is out needs
 * no memory. Longer messages are cut. */
#include "base/status.h"

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

/* The new message is made beside the old one: the arguments may be, or quote, treadle_error_message(). */
treadle_status treadle_fail(treadle_status status, const char *format, ...) {
  char made[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(made, sizeof made, format, arguments);
  va_end(arguments);
  memcpy(message, made, sizeof made);
  return status;
}

treadle_status treadle_fail_in(treadle_status status, const char *format, ...) {
  char made[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(made, sizeof made, format, arguments);
  va_end(arguments);
  if (length < 0) length = 0;
  if (length < MESSAGE_BYTES) snprintf(made + length, sizeof made - (size_t)length, "%s", message);
  memcpy(message, made, sizeof made);
  return status;
}
