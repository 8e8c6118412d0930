/* A message between ranks: values one behind the other, in the order in which they were put. Who reads it looks at every length: a message that
 * ends too early is refused by what was to be read.
 *
 *   treadle_message_put_int(&m, 7);  treadle_message_put_bytes(&m, text, length);
 *   TRY(treadle_message_int(&m, "step", &step));  TRY(treadle_message_bytes(&m, "lines", &text, &length)); */
#ifndef TREADLE_CONTROL_MESSAGE_H
#define TREADLE_CONTROL_MESSAGE_H

#include "base/status.h"
#include "treadle_batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is an empty message. */
typedef struct treadle_message {
  char *bytes;             /* [room] where it is written: memory of its own, or lent */
  size_t length, room, at; /* at: of what was read so far */
  bool failed;             /* memory was out */
  const char *given;       /* read in place of bytes: memory of others */
  char *lent, *own;        /* [lent_room], [own_room] */
  size_t lent_room, own_room;
  /* Who has `given`, if it is to stay for columns that are read in it: each holds it once, and releases it. NULL: it is there anyway. */
  void (*hold)(void *holder);
  void (*release)(void *holder);
  void *holder;
} treadle_message;

void treadle_message_release(treadle_message *message);
/* As an empty one, also where memory was out. It keeps its room. */
void treadle_message_clear(treadle_message *message);
/* From the next clear on it is written into this memory of the caller's, as far as that goes. */
void treadle_message_lend(treadle_message *message, void *memory, size_t bytes);
/* Room for that many more bytes at once, so that what is put there is not copied again and again. */
void treadle_message_reserve(treadle_message *message, size_t more);
/* Gives its own memory away, with what was written to it: [*length_p], a block (blocks.h). NULL: memory was out. */
char *treadle_message_leave(treadle_message *message, size_t *length_p);
/* Room for `length` bytes, which the message then has. NULL: memory is out, now or before. */
char *treadle_message_grow(treadle_message *message, size_t length);

void treadle_message_put_int(treadle_message *message, int64_t value);
void treadle_message_put_real(treadle_message *message, double value);
/* With their length; aligned, so that arrays can be read where they lie. */
void treadle_message_put_bytes(treadle_message *message, const void *bytes, size_t length);

/* Rows of a batch: rows [row_count] by their numbers, NULL: all; of the columns names [count], where it has them, NULL:
 * all. */
typedef struct treadle_message_rows {
  const treadle_batch *batch;
  const char *const *names;
  size_t count;
  const int64_t *rows;
  size_t row_count;
} treadle_message_rows;
void treadle_message_put_rows(treadle_message *message, const treadle_message_rows *rows);

treadle_status treadle_message_int(treadle_message *message, const char *what, int64_t *value_p);
treadle_status treadle_message_real(treadle_message *message, const char *what, double *value_p);
/* *bytes_p lies in the message. */
treadle_status treadle_message_bytes(treadle_message *message, const char *what, const void **bytes_p,
                                     size_t *length_p);
/* The same of `count` items of `size` bytes. */
treadle_status treadle_message_array(treadle_message *message, const char *what, size_t size, size_t count,
                                     const void **items_p);

/* *batch_p: rows that were put, whose columns lie in the message. It is destroyed before the message changes, where nobody holds that. */
treadle_status treadle_message_batch(treadle_message *message, treadle_batch **batch_p);

#endif
