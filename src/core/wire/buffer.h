/* Bytes on their way: a row of bytes that grows behind and gets shorter in front, and bytes that several have. */
#ifndef TREADLE_WIRE_BUFFER_H
#define TREADLE_WIRE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is an empty one. */
typedef struct treadle_wire_buffer {
  char *bytes;
  size_t begun, count, capacity; /* bytes before `begun` are done with */
} treadle_wire_buffer;

static inline size_t treadle_wire_buffer_used(const treadle_wire_buffer *buffer) {
  return buffer->count - buffer->begun;
}

/* Room for this many bytes after those in it, which may move; whoever fills it adds them to `count`. NULL: memory is out. */
char *treadle_wire_buffer_room(treadle_wire_buffer *buffer, size_t bytes);
/* The first bytes are done with. They stay where they are until there is to be more room. */
void treadle_wire_buffer_drop(treadle_wire_buffer *buffer, size_t bytes);
/* Gives its memory back. */
void treadle_wire_buffer_release(treadle_wire_buffer *buffer);

/* Bytes that several have, such as a value that many ranks are sent. One thread at a time may share and drop them. */
typedef struct treadle_wire_bytes {
  size_t bytes;
  int32_t users;
  char data[];
} treadle_wire_bytes;

treadle_wire_bytes *treadle_wire_bytes_make(size_t bytes); /* with one user; NULL: memory is out */
treadle_wire_bytes *treadle_wire_bytes_share(treadle_wire_bytes *b);
void treadle_wire_bytes_drop(treadle_wire_bytes *b); /* the last user's drop ends it; NULL: nothing */

#endif
