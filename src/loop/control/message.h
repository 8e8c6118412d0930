/* A message between ranks: values one behind the other, in the order in which they were put. Who reads it looks at every length: a message that
 * ends too early is refused by what was to be read.
 *
 *   treadle_message_put_int(&m, 7);  treadle_message_put_bytes(&m, text, length);
 *   TRY(treadle_message_int(&m, "step", &step));  TRY(treadle_message_bytes(&m, "lines", &text, &length)); */
#ifndef TREADLE_CONTROL_MESSAGE_H
#define TREADLE_CONTROL_MESSAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is an empty message. */
typedef struct treadle_message {
  char *bytes;
  const char *given;       /* read in place of bytes: memory of others, which is not released */
  size_t length, room, at; /* at: of what was read so far */
  bool failed;             /* memory was out */
} treadle_message;

void treadle_message_release(treadle_message *message);
/* As an empty one, also where memory was out. It keeps its room. */
void treadle_message_clear(treadle_message *message);
/* Room for `length` bytes, which the message then has. NULL: memory is out, now or before. */
char *treadle_message_grow(treadle_message *message, size_t length);

void treadle_message_put_int(treadle_message *message, int64_t value);
void treadle_message_put_real(treadle_message *message, double value);
/* With their length; aligned, so that arrays can be read where they lie. */
void treadle_message_put_bytes(treadle_message *message, const void *bytes, size_t length);

treadle_status treadle_message_int(treadle_message *message, const char *what, int64_t *value_p);
treadle_status treadle_message_real(treadle_message *message, const char *what, double *value_p);
/* *bytes_p lies in the message. */
treadle_status treadle_message_bytes(treadle_message *message, const char *what, const void **bytes_p,
                                     size_t *length_p);
/* The same of `count` items of `size` bytes. */
treadle_status treadle_message_array(treadle_message *message, const char *what, size_t size, size_t count,
                                     const void **items_p);

#endif
