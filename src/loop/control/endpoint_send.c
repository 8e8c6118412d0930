#include "control/endpoint.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Connects if it is not connected, with a hello in front of all else. */
static treadle_status connect_to(treadle_endpoint *e, int rank) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  treadle_endpoint_head hello = {.frame.type = TREADLE_ENDPOINT_HELLO, .rank = e->group->rank};
  if (peer->out.socket >= 0) return TREADLE_OK;
  const int socket = treadle_wire_connect(&peer->at);
  if (socket < 0) return treadle_fail(TREADLE_PEER, "rank %d cannot be reached: %s", rank, strerror(errno));
  peer->out = treadle_wire_on(socket);
  peer->connected = treadle_clock_seconds();
  return treadle_wire_say(&peer->out, &e->rule, &hello, NULL, 0);
}

void treadle_endpoint_flush(treadle_endpoint *e, int rank) {
  treadle_wire *out = &e->peers[rank].out;
  if (out->socket < 0 || treadle_wire_send(out) == TREADLE_OK) return;
  treadle_wire_close(out, false);
  e->peers[rank].broken = true; /* the thread sees to it */
}

treadle_status treadle_endpoint_send(treadle_endpoint *e, int rank, treadle_endpoint_head head,
                                     const void *content, size_t bytes) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  treadle_status status = TREADLE_OK;
  head.rank = e->group->rank;
  pthread_mutex_lock(&e->lock);
  if (peer->lost || peer->left || peer->broken)
    status = treadle_fail(TREADLE_PEER, "rank %d %s", rank, peer->left ? "has left" : "is lost");
  if (!status) status = connect_to(e, rank);
  if (!status) status = treadle_wire_say(&peer->out, &e->rule, &head, content, bytes);
  if (!status) {
    peer->sent = treadle_clock_seconds();
    treadle_endpoint_flush(e, rank);
  }
  const bool waits = !status && (peer->out.socket < 0 || treadle_wire_waiting(&peer->out));
  pthread_mutex_unlock(&e->lock);
  if (waits) {
    ssize_t written = write(e->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* a counter that is full wakes, too */
  }
  return status;
}
