#include "control/message.h"

#include "control/blocks.h"

#include <string.h>

enum { UNIT = 8, LEAST = 4096 };
static const size_t MOST =
    SIZE_MAX / 8; /* bytes of a message: twice that, and what pads it, are a size_t */

void treadle_message_release(treadle_message *message) {
  treadle_block_give(message->own);
  *message = (treadle_message){0};
}

void treadle_message_clear(treadle_message *message) {
  message->length = message->at = 0;
  message->given = NULL;
  message->failed = false;
  message->bytes = message->lent ? message->lent : message->own;
  message->room = message->lent ? message->lent_room : message->own_room;
}

void treadle_message_lend(treadle_message *message, void *memory, size_t bytes) {
  message->lent = memory;
  message->lent_room = bytes;
}

/* Room for `more` bytes after the present ones, in its own memory: twice as much as before, until it does. */
static bool make_room(treadle_message *message, size_t more) {
  size_t room = message->own_room ? message->own_room : LEAST;
  while (room < message->length || room - message->length < more) room *= 2;
  char *bytes = treadle_block_take(room);
  if (!bytes) return false;
  if (message->length) memcpy(bytes, message->bytes, message->length);
  treadle_block_give(message->own);
  message->bytes = message->own = bytes;
  message->room = message->own_room = room;
  return true;
}

void treadle_message_reserve(treadle_message *message, size_t more) {
  if (message->failed || more > MOST - message->length) return; /* who puts that much sees it fail */
  if (!message->bytes || message->room - message->length < more)
    message->failed = !make_room(message, more);
}

char *treadle_message_leave(treadle_message *message, size_t *length_p) {
  char *own = message->failed ? NULL : message->own;
  *length_p = message->length;
  if (!own && !message->failed) own = treadle_block_take(1);
  if (message->failed) treadle_block_give(message->own);
  *message = (treadle_message){0};
  return own;
}

char *treadle_message_grow(treadle_message *message, size_t length) {
  if (message->failed) return NULL;
  message->failed = length > MOST - message->length;
  if (message->failed) return NULL;
  const size_t padded = (length + UNIT - 1) / UNIT * UNIT;
  if (!message->bytes || message->room - message->length < padded)
    message->failed = !make_room(message, padded);
  if (message->failed) return NULL;
  char *to = message->bytes + message->length;
  message->length += padded;
  if (padded > length) memset(to + padded - UNIT, 0, UNIT); /* what pads it is always the same */
  return to;
}

static void put(treadle_message *message, const void *bytes, size_t length) {
  char *to = treadle_message_grow(message, length);
  if (!to || !length) return;
  memcpy(to, bytes, length);
}

void treadle_message_put_int(treadle_message *message, int64_t value) {
  put(message, &value, sizeof value);
}
void treadle_message_put_real(treadle_message *message, double value) {
  put(message, &value, sizeof value);
}

void treadle_message_put_bytes(treadle_message *message, const void *bytes, size_t length) {
  treadle_message_put_int(message, (int64_t)length);
  put(message, bytes, length);
}

static treadle_status take(treadle_message *message, const char *what, size_t length, const char **from_p) {
  const size_t left = message->length - message->at;
  *from_p = NULL;
  if (length > left)
    return treadle_fail(TREADLE_PEER, "a message of %zu bytes ends at its %s, which would have %zu more",
                        message->length, what, length - left);
  *from_p = (message->given ? message->given : message->bytes) + message->at;
  size_t padded = (length + UNIT - 1) / UNIT * UNIT;
  message->at += padded < left ? padded : left;
  return TREADLE_OK;
}

treadle_status treadle_message_int(treadle_message *message, const char *what, int64_t *value_p) {
  const char *from;
  treadle_status status = take(message, what, sizeof *value_p, &from);
  *value_p = 0;
  if (!status) memcpy(value_p, from, sizeof *value_p);
  return status;
}

treadle_status treadle_message_real(treadle_message *message, const char *what, double *value_p) {
  const char *from;
  treadle_status status = take(message, what, sizeof *value_p, &from);
  *value_p = 0;
  if (!status) memcpy(value_p, from, sizeof *value_p);
  return status;
}

treadle_status treadle_message_bytes(treadle_message *message, const char *what, const void **bytes_p,
                                     size_t *length_p) {
  const char *from;
  int64_t length;
  treadle_status status;
  *bytes_p = NULL;
  *length_p = 0;
  TRY(treadle_message_int(message, what, &length));
  if (length < 0)
    TRY(treadle_fail(TREADLE_PEER, "a message has %lld bytes for its %s", (long long)length, what));
  TRY(take(message, what, (size_t)length, &from));
  *bytes_p = from;
  *length_p = (size_t)length;
out:
  return status;
}

treadle_status treadle_message_array(treadle_message *message, const char *what, size_t size, size_t count,
                                     const void **items_p) {
  size_t length;
  treadle_status status;
  TRY(treadle_message_bytes(message, what, items_p, &length));
  if (length / size != count || length % size != 0) {
    *items_p = NULL;
    status = treadle_fail(TREADLE_PEER, "a message has %zu bytes for its %s, and %zu items have %zu each",
                          length, what, count, size);
  }
out:
  return status;
}
