/* Messages on a socket that does not block. */
#include "meet/store_stream.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = sizeof(treadle_store_message) };

treadle_store_bytes *treadle_store_bytes_make(size_t bytes) {
  treadle_store_bytes *b = treadle_alloc(sizeof *b + bytes);
  if (b) *b = (treadle_store_bytes){.bytes = bytes, .users = 1};
  return b;
}

treadle_store_bytes *treadle_store_bytes_share(treadle_store_bytes *b) {
  if (b) b->users++;
  return b;
}

void treadle_store_bytes_drop(treadle_store_bytes *b) {
  if (b && --b->users == 0) treadle_free(b);
}

void treadle_store_stream_start(treadle_store_stream *stream, int socket) {
  *stream = (treadle_store_stream){.socket = socket};
}

void treadle_store_stream_end(treadle_store_stream *stream, bool ours) {
  if (stream->socket >= 0) {
    if (ours) shutdown(stream->socket, SHUT_RDWR); /* also where a child has it, too */
    close(stream->socket);
  }
  treadle_store_bytes_drop(stream->in_behind);
  treadle_store_bytes_drop(stream->out_behind);
  *stream = (treadle_store_stream){.socket = -1};
}

void treadle_store_stream_put(treadle_store_stream *stream, const treadle_store_message *head,
                              treadle_store_bytes *behind) {
  assert(!stream->sends);
  stream->out = *head;
  stream->out_behind = treadle_store_bytes_share(behind);
  stream->out_used = 0;
  stream->sends = true;
  treadle_store_seal(&stream->out, behind ? behind->data : NULL);
}

static treadle_status gone(void) { return treadle_fail(TREADLE_PEER, "has left or died"); }

treadle_status treadle_store_stream_send(treadle_store_stream *stream) {
  while (stream->sends) {
    size_t behind = stream->out_behind ? stream->out_behind->bytes : 0, at = stream->out_used;
    const char *from = at < HEAD ? (const char *)&stream->out + at : stream->out_behind->data + (at - HEAD);
    ssize_t sent = send(stream->socket, from, at < HEAD ? HEAD - at : HEAD + behind - at,
                        MSG_NOSIGNAL | MSG_DONTWAIT | (at < HEAD && behind ? MSG_MORE : 0));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return TREADLE_OK;
    if (sent < 0) return gone();
    stream->out_used += (size_t)sent;
    if (stream->out_used < HEAD + behind) continue;
    treadle_store_bytes_drop(stream->out_behind);
    stream->out_behind = NULL;
    stream->sends = false;
  }
  return TREADLE_OK;
}

/* Is all of the message there? With the head it is checked, and room is made for the rest. */
static treadle_status look(treadle_store_stream *stream, const treadle_store_limit *limit, bool *whole_p) {
  treadle_status status = TREADLE_OK;
  size_t behind;
  *whole_p = false;
  if (stream->in_used < HEAD) return TREADLE_OK;
  if (stream->in_used == HEAD && !stream->in_behind) TRY(treadle_store_check(&stream->in, limit));
  behind = stream->in.key_bytes + (size_t)stream->in.bytes;
  if (behind && !stream->in_behind) {
    stream->in_behind = treadle_store_bytes_make(behind);
    if (!stream->in_behind) return treadle_fail(TREADLE_NO_MEMORY, "store: memory is out");
  }
  if (stream->in_used < HEAD + behind) return TREADLE_OK;
  TRY(treadle_store_check_sum(&stream->in, behind ? stream->in_behind->data : NULL));
  *whole_p = true;
out:
  return status;
}

treadle_status treadle_store_stream_receive(treadle_store_stream *stream, const treadle_store_limit *limit,
                                            bool *whole_p) {
  treadle_status status = TREADLE_OK;
  *whole_p = false;
  while (!*whole_p) {
    size_t at = stream->in_used;
    char *to = at < HEAD ? (char *)&stream->in + at : stream->in_behind->data + (at - HEAD);
    size_t room = at < HEAD ? HEAD - at : HEAD + stream->in_behind->bytes - at;
    ssize_t got = recv(stream->socket, to, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return TREADLE_OK;
    if (got <= 0) return gone();
    stream->in_used += (size_t)got;
    TRY(look(stream, limit, whole_p));
  }
out:
  return status;
}

void treadle_store_stream_next(treadle_store_stream *stream) {
  treadle_store_bytes_drop(stream->in_behind);
  stream->in_behind = NULL;
  stream->in_used = 0;
}

void treadle_store_stream_name(int socket, bool other_end, char text[TREADLE_STORE_HOST]) {
  struct sockaddr_storage at;
  socklen_t length = sizeof at;
  int got = other_end ? getpeername(socket, (struct sockaddr *)&at, &length)
                      : getsockname(socket, (struct sockaddr *)&at, &length);
  if (got != 0 ||
      getnameinfo((struct sockaddr *)&at, length, text, TREADLE_STORE_HOST, NULL, 0, NI_NUMERICHOST) != 0)
    snprintf(text, TREADLE_STORE_HOST, "?");
}
