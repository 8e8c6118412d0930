/* What is said waits in messages, whose content is written from where it lies. */
#include "control/endpoint.h"

#include "control/blocks.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 2 << 20 }; /* bytes that a local socket has under way */

/* ---- Content ---- */

treadle_endpoint_content *treadle_endpoint_content_of(char *bytes, size_t length) {
  treadle_endpoint_content *content = treadle_alloc(sizeof *content);
  if (!content) {
    treadle_block_give(bytes);
    return NULL;
  }
  atomic_store(&content->users, 1);
  content->bytes = bytes;
  content->length = length;
  return content;
}

void treadle_endpoint_content_drop(treadle_endpoint_content *content) {
  if (!content || atomic_fetch_sub(&content->users, 1) > 1) return;
  treadle_block_give(content->bytes);
  treadle_free(content);
}

/* ---- Parcels; the lock is held ---- */

static void drop_first(treadle_endpoint_peer *peer) {
  treadle_endpoint_message *one = peer->first;
  peer->first = one->next;
  if (!peer->first) peer->last = &peer->first;
  treadle_endpoint_content_drop(one->content);
  treadle_free(one);
}

void treadle_endpoint_forget(treadle_endpoint_peer *peer) {
  while (peer->first) drop_first(peer);
}

treadle_status treadle_endpoint_put(treadle_endpoint *e, int rank, treadle_endpoint_head head,
                                    treadle_endpoint_content *content) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  treadle_endpoint_message *one = treadle_alloc(sizeof *one);
  if (!one) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a message to rank %d", rank);
  head.rank = e->group->rank;
  *one = (treadle_endpoint_message){.head = head, .content = content};
  if (content) atomic_fetch_add(&content->users, 1);
  treadle_frame_seal(&e->rule, &one->head, content ? content->bytes : NULL, content ? content->length : 0);
  *peer->last = one;
  peer->last = &one->next;
  return TREADLE_OK;
}

/* *whole_p: all of the first one has gone. */
static treadle_status send_first(treadle_endpoint_peer *peer, bool *whole_p) {
  treadle_endpoint_message *one = peer->first;
  const size_t head = sizeof one->head, length = one->content ? one->content->length : 0;
  const size_t of_head = one->sent < head ? one->sent : head, of_content = one->sent - of_head;
  struct iovec parts[2] = {{(char *)&one->head + of_head, head - of_head}};
  size_t sent;
  if (length) parts[1] = (struct iovec){one->content->bytes + of_content, length - of_content};
  const treadle_status status = treadle_wire_write(&peer->out, parts, length ? 2 : 1, &sent);
  one->sent += sent;
  *whole_p = one->sent == head + length;
  return status;
}

void treadle_endpoint_flush(treadle_endpoint *e, int rank) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  for (bool whole = true; whole && peer->first && peer->out.socket >= 0;) {
    if (send_first(peer, &whole)) {
      treadle_wire_close(&peer->out, false);
      peer->broken = true;
      peer->broke = treadle_clock_seconds(); /* the thread sees to it */
      treadle_endpoint_forget(peer);
    } else if (whole)
      drop_first(peer);
  }
}

/* Connects if it is not connected, with a hello in front of all else. */
static treadle_status connect_to(treadle_endpoint *e, int rank) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  if (peer->out.socket >= 0) return TREADLE_OK;
  const int socket = treadle_wire_connect(&peer->at);
  if (socket < 0) return treadle_fail(TREADLE_PEER, "rank %d cannot be reached: %s", rank, strerror(errno));
  if (treadle_group_is_near(e->group, rank)) /* as much as the system allows: TCP finds its own */
    (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &(int){ROOM}, sizeof(int));
  peer->out = treadle_wire_on(socket);
  peer->connected = treadle_clock_seconds();
  const treadle_status status =
      treadle_endpoint_put(e, rank, (treadle_endpoint_head){.frame.type = TREADLE_ENDPOINT_HELLO}, NULL);
  if (status) treadle_wire_close(&peer->out, false); /* without a hello nobody would listen */
  return status;
}

/* ---- Sending ---- */

treadle_status treadle_endpoint_send(treadle_endpoint *e, int rank, treadle_endpoint_head head,
                                     treadle_endpoint_content *content) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&e->lock);
  if (peer->lost || peer->left || peer->broken)
    status = treadle_fail(TREADLE_PEER, "rank %d %s", rank, peer->left ? "has left" : "is lost");
  if (!status) status = connect_to(e, rank);
  if (!status) status = treadle_endpoint_put(e, rank, head, content);
  if (!status) {
    peer->sent = treadle_clock_seconds();
    treadle_endpoint_flush(e, rank);
  }
  const bool waits = !status && (peer->first || peer->broken);
  pthread_mutex_unlock(&e->lock);
  if (waits) {
    ssize_t written = write(e->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* a counter that is full wakes, too */
  }
  return status;
}

treadle_status treadle_endpoint_send_text(treadle_endpoint *e, int rank, treadle_endpoint_head head,
                                          const char *text) {
  const size_t length = strlen(text) + 1;
  char *bytes = treadle_block_take(length);
  if (bytes) memcpy(bytes, text, length);
  treadle_endpoint_content *content = bytes ? treadle_endpoint_content_of(bytes, length) : NULL;
  treadle_status status = content
                              ? treadle_endpoint_send(e, rank, head, content)
                              : treadle_fail(TREADLE_NO_MEMORY, "no memory for a message to rank %d", rank);
  treadle_endpoint_content_drop(content);
  return status;
}
