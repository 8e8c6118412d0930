/* Reading and writing, and frames on top of them. */
#include "wire/wire.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WASTE = 4096 };

treadle_wire treadle_wire_on(int socket) {
  return (treadle_wire){.socket = socket, .readable = true, .writable = true};
}

int treadle_wire_leave(treadle_wire *wire) {
  int socket = wire->socket;
  treadle_wire_buffer_release(&wire->in);
  treadle_wire_buffer_release(&wire->out);
  treadle_wire_bytes_drop(wire->behind);
  *wire = (treadle_wire){.socket = -1, .error = wire->error};
  return socket;
}

void treadle_wire_close(treadle_wire *wire, bool for_all) {
  int socket = treadle_wire_leave(wire);
  if (socket < 0) return;
  if (for_all) shutdown(socket, SHUT_RDWR);
  close(socket);
}

const char *treadle_wire_why(const treadle_wire *wire) {
  return wire->error ? strerror(wire->error) : "it has closed the connection";
}

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "memory is out"); }

/* After a call that has moved nothing: it would wait, or the connection is over. */
static treadle_status judge(treadle_wire *wire, ssize_t moved, bool *may_p) {
  *may_p = false;
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TREADLE_OK;
  wire->error = moved < 0 ? errno : 0;
  return TREADLE_PEER;
}

/* ---- Bytes ---- */

static size_t bytes_of(const struct iovec *parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
  return bytes;
}

treadle_status treadle_wire_write(treadle_wire *wire, struct iovec *parts, int count, size_t *sent_p) {
  const struct msghdr how = {.msg_iov = parts, .msg_iovlen = (size_t)count};
  ssize_t sent;
  *sent_p = 0;
  do sent = sendmsg(wire->socket, &how, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return judge(wire, sent, &wire->writable);
  if ((size_t)sent < bytes_of(parts, count)) wire->writable = false;
  *sent_p = (size_t)sent;
  return TREADLE_OK;
}

treadle_status treadle_wire_read(treadle_wire *wire, struct iovec *parts, int count, size_t room,
                                 size_t *got_p) {
  struct iovec one;
  struct msghdr how = {.msg_iov = parts ? parts : &one, .msg_iovlen = (size_t)count};
  size_t of_parts = bytes_of(parts, count);
  ssize_t got;
  *got_p = 0;
  if (room) {
    char *behind = treadle_wire_buffer_room(&wire->in, room);
    if (!behind) return no_memory();
    how.msg_iov[how.msg_iovlen++] = (struct iovec){behind, room};
  }
  do got = recvmsg(wire->socket, &how, MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return judge(wire, got, &wire->readable);
  *got_p = (size_t)got;
  if (*got_p > of_parts) wire->in.count += *got_p - of_parts;
  return TREADLE_OK;
}

/* ---- Saying ---- */

size_t treadle_wire_waiting(const treadle_wire *wire) {
  return treadle_wire_buffer_used(&wire->out) +
         (wire->behind ? wire->behind->bytes - wire->behind_used : 0);
}

short treadle_wire_events(const treadle_wire *wire) {
  return treadle_wire_waiting(wire) ? POLLIN | POLLOUT : POLLIN;
}

/* Adds a head that is sealed, and content that is copied. */
static treadle_status add(treadle_wire *wire, const void *head, size_t head_bytes, const void *content,
                          size_t bytes) {
  char *at = treadle_wire_buffer_room(&wire->out, head_bytes + bytes);
  if (!at) return no_memory();
  assert(!wire->behind);
  memcpy(at, head, head_bytes);
  if (bytes) memcpy(at + head_bytes, content, bytes);
  wire->out.count += head_bytes + bytes;
  return TREADLE_OK;
}

treadle_status treadle_wire_say(treadle_wire *wire, const treadle_frame_rule *rule, void *head,
                                const void *content, size_t bytes) {
  treadle_frame_seal(rule, head, content, bytes);
  return add(wire, head, rule->head_bytes, content, bytes);
}

treadle_status treadle_wire_say_shared(treadle_wire *wire, const treadle_frame_rule *rule, void *head,
                                       treadle_wire_bytes *content) {
  size_t bytes = content ? content->bytes : 0;
  assert(!treadle_wire_waiting(wire));
  treadle_frame_seal(rule, head, bytes ? content->data : NULL, bytes);
  treadle_status status = add(wire, head, rule->head_bytes, NULL, 0);
  if (status == TREADLE_OK && bytes) wire->behind = treadle_wire_bytes_share(content);
  wire->behind_used = 0;
  return status;
}

static void note_sent(treadle_wire *wire, size_t sent) {
  size_t first = treadle_wire_buffer_used(&wire->out);
  if (first > sent) first = sent;
  treadle_wire_buffer_drop(&wire->out, first);
  wire->behind_used += sent - first;
  if (!wire->behind || wire->behind_used < wire->behind->bytes) return;
  treadle_wire_bytes_drop(wire->behind);
  wire->behind = NULL;
}

treadle_status treadle_wire_send(treadle_wire *wire) {
  treadle_status status = TREADLE_OK;
  while (treadle_wire_waiting(wire)) {
    struct iovec parts[2] = {{wire->out.bytes + wire->out.begun, treadle_wire_buffer_used(&wire->out)}};
    size_t sent;
    if (wire->behind)
      parts[1] =
          (struct iovec){wire->behind->data + wire->behind_used, wire->behind->bytes - wire->behind_used};
    TRY(treadle_wire_write(wire, parts, 2, &sent));
    if (!sent) break;
    note_sent(wire, sent);
  }
out:
  return status;
}

void treadle_wire_finish(treadle_wire *wire) { shutdown(wire->socket, SHUT_WR); }

/* ---- Hearing ---- */

treadle_status treadle_wire_take(treadle_wire *wire, const treadle_frame_rule *rule, void *head_p,
                                 const char **content_p, size_t *lacks_p) {
  treadle_status status = TREADLE_OK;
  const treadle_frame *frame = head_p;
  const char *at = wire->in.bytes ? wire->in.bytes + wire->in.begun : "";
  *content_p = NULL;
  TRY(treadle_frame_read(rule, at, treadle_wire_buffer_used(&wire->in), head_p, lacks_p));
  if (*lacks_p) return TREADLE_OK;
  *content_p = at + rule->head_bytes;
  treadle_wire_buffer_drop(&wire->in, rule->head_bytes + (rule->open ? 0 : (size_t)frame->bytes));
out:
  return status;
}

treadle_status treadle_wire_hear(treadle_wire *wire, const treadle_frame_rule *rule, void *head_p,
                                 const char **content_p, bool *whole_p) {
  treadle_status status = TREADLE_OK;
  for (*whole_p = false;;) {
    size_t lacks, got;
    TRY(treadle_wire_take(wire, rule, head_p, content_p, &lacks));
    *whole_p = !lacks;
    if (*whole_p) break;
    TRY(treadle_wire_read(wire, NULL, 0, lacks, &got));
    if (!got) break;
  }
out:
  return status;
}

treadle_status treadle_wire_waste(treadle_wire *wire) {
  size_t got;
  treadle_status status = treadle_wire_read(wire, NULL, 0, WASTE, &got);
  if (status == TREADLE_OK) treadle_wire_buffer_drop(&wire->in, treadle_wire_buffer_used(&wire->in));
  return status;
}
