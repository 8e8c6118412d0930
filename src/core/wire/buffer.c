/* Bytes move to the front only where half of the memory is free then, so each moves about once. */
#include "wire/buffer.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

void treadle_wire_buffer_release(treadle_wire_buffer *buffer) {
  treadle_free(buffer->bytes);
  *buffer = (treadle_wire_buffer){0};
}

static char *grow(treadle_wire_buffer *buffer, size_t capacity) {
  size_t used = treadle_wire_buffer_used(buffer);
  char *more = treadle_alloc(capacity);
  if (!more) return NULL;
  if (used) memcpy(more, buffer->bytes + buffer->begun, used);
  treadle_free(buffer->bytes);
  *buffer = (treadle_wire_buffer){.bytes = more, .count = used, .capacity = capacity};
  return more + used;
}

char *treadle_wire_buffer_room(treadle_wire_buffer *buffer, size_t bytes) {
  size_t used = treadle_wire_buffer_used(buffer);
  if (!used) buffer->begun = buffer->count = 0;
  if (buffer->capacity - buffer->count < bytes) {
    if (buffer->capacity / 2 < used + bytes) return grow(buffer, 2 * (used + bytes));
    memmove(buffer->bytes, buffer->bytes + buffer->begun, used);
    buffer->begun = 0;
    buffer->count = used;
  }
  return buffer->bytes + buffer->count;
}

void treadle_wire_buffer_drop(treadle_wire_buffer *buffer, size_t bytes) {
  assert(bytes <= treadle_wire_buffer_used(buffer));
  buffer->begun += bytes;
}

treadle_wire_bytes *treadle_wire_bytes_make(size_t bytes) {
  treadle_wire_bytes *b = treadle_alloc(sizeof *b + bytes);
  if (b) *b = (treadle_wire_bytes){.bytes = bytes, .users = 1};
  return b;
}

treadle_wire_bytes *treadle_wire_bytes_share(treadle_wire_bytes *b) {
  if (b) b->users++;
  return b;
}

void treadle_wire_bytes_drop(treadle_wire_bytes *b) {
  if (b && --b->users == 0) treadle_free(b);
}
