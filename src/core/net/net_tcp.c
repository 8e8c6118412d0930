/* The net "tcp": messages, and the row.
 *
 * - A peer is killed, or closes: its kernel ends the connection, and all messages of the pair end with TREADLE_PEER. Others go on.
 * - A peer does nothing any more, but is there: no error. Sends end while the kernels have room. The caller's time limit and cancel end them.
 * - A message is cancelled: one of which no byte has come, or gone, is taken back. Else the connection is closed, and the other side's
 *   messages end with an error.
 * - Who connects needs the key of the rank, which is in its address. Payloads are neither encrypted nor signed: the switch's sums find
 *   bytes that were changed by chance, not on purpose. */
#include "net/net_tcp.h"

#include "base/alloc.h"
#include "base/sized.h"

#include <string.h>

enum { MOST_PARTS = 64, IOV = 128, TURN = 2 << 20 /* bytes, before others have their turn */ };

static int rank_of(const treadle_tcp_net *net, const treadle_tcp_peer *peer) {
  return (int)(peer - net->peers);
}

/* ---- Queues ---- */

static void append(treadle_tcp_queue *queue, treadle_tcp_message *m) {
  if (queue->last)
    queue->last->next = m;
  else
    queue->first = m;
  queue->last = m;
}

static void take_out(treadle_tcp_queue *queue, treadle_tcp_message *m) {
  treadle_tcp_message *before = NULL;
  for (treadle_tcp_message *at = queue->first; at != m; at = at->next) before = at;
  if (before)
    before->next = m->next;
  else
    queue->first = m->next;
  if (queue->last == m) queue->last = before;
  m->next = NULL;
}

static treadle_tcp_queue *queue_of(const treadle_tcp_message *m) {
  return m->ended ? &m->with->ended : m->receives ? &m->with->in : &m->with->out;
}

/* It stays with its peer until it is tested. */
static void end(treadle_tcp_message *m) {
  take_out(queue_of(m), m);
  m->ended = true;
  append(queue_of(m), m);
}

static void forget(treadle_tcp_message *m) {
  take_out(queue_of(m), m);
  treadle_free(m);
}

/* ---- Bytes ---- */

/* What is left of the parts of a message behind `done` bytes. */
static int add_parts(const treadle_tcp_message *m, size_t done, struct iovec *to, int room) {
  int count = 0;
  for (int i = 0; i < m->count && count < room; i++) {
    size_t skip = done < m->parts[i].iov_len ? done : m->parts[i].iov_len;
    done -= skip;
    if (skip == m->parts[i].iov_len) continue;
    to[count++] = (struct iovec){(char *)m->parts[i].iov_base + skip, m->parts[i].iov_len - skip};
  }
  return count;
}

/* Of as many messages as there is room for. */
static int gather(const treadle_tcp_peer *peer, struct iovec *to) {
  int count = 0;
  for (treadle_tcp_message *m = peer->out.first; m && count < IOV - 1; m = m->next) {
    size_t head = sizeof m->head, done = m->done;
    if (done < head) to[count++] = (struct iovec){(char *)&m->head + done, head - done};
    count += add_parts(m, done < head ? 0 : done - head, to + count, IOV - count);
  }
  return count;
}

static void note_sent(treadle_tcp_peer *peer, size_t sent) {
  for (treadle_tcp_message *m; sent > 0 && (m = peer->out.first);) {
    size_t left = sizeof m->head + m->bytes - m->done, now = sent < left ? sent : left;
    m->done += now;
    sent -= now;
    if (now < left) return;
    end(m);
  }
}

/* True: something went. */
static bool send_some(treadle_tcp_peer *peer) {
  struct iovec parts[IOV];
  size_t turn = 0;
  while (peer->wire.writable && peer->out.first && turn < TURN) {
    size_t sent;
    if (treadle_wire_write(&peer->wire, parts, gather(peer, parts), &sent) != TREADLE_OK)
      treadle_tcp_lose(peer, treadle_wire_why(&peer->wire));
    if (!sent) break;
    note_sent(peer, sent);
    turn += sent;
  }
  return turn > 0;
}

/* Whose is the head that is here? False: of no message that somebody has begun to receive, or of none. */
static bool match(treadle_tcp_peer *peer) {
  treadle_tcp_message *m = peer->in.first;
  if (peer->coming) return true;
  while (m && m->head.tag != peer->head.tag) m = m->next;
  if (!m) return false;
  m->received = peer->head.frame.bytes;
  if (m->received != m->bytes) {
    end(m);
    treadle_tcp_lose(peer, "a message of it had another length");
    return false;
  }
  peer->coming = m;
  return true;
}

/* The next head, if it is here: of a message that somebody receives? */
static bool find_head(treadle_tcp_peer *peer) {
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_MESSAGE);
  const char *content;
  size_t lacks = 0;
  if (peer->comes) return match(peer);
  treadle_status status = treadle_wire_take(&peer->wire, &rule, &peer->head, &content, &lacks);
  if (status == TREADLE_OK && lacks) return true;
  peer->comes = status == TREADLE_OK && peer->head.frame.type == TREADLE_TCP_MESSAGE;
  if (!peer->comes) treadle_tcp_lose(peer, "it has sent something that is not a message");
  return peer->comes && match(peer);
}

/* The message that comes has all its bytes. */
static void note_received(treadle_tcp_peer *peer) {
  treadle_tcp_message *m = peer->coming;
  if (!m || m->done < m->bytes) return;
  end(m);
  peer->coming = NULL;
  peer->comes = false;
}

/* Reads the rest of a message, and the head of the next one, at once. */
static bool receive_once(treadle_tcp_peer *peer) {
  struct iovec parts[IOV];
  treadle_tcp_message *m = peer->coming;
  int count = m ? add_parts(m, m->done, parts, IOV - 1) : 0;
  size_t before = treadle_wire_buffer_used(&peer->wire.in), got;
  treadle_status status = treadle_wire_read(&peer->wire, parts, count, sizeof peer->head - before, &got);
  if (status != TREADLE_OK)
    treadle_tcp_lose(peer,
                     status == TREADLE_PEER ? treadle_wire_why(&peer->wire) : treadle_error_message());
  if (!got) return false;
  if (m) {
    m->done += got - (treadle_wire_buffer_used(&peer->wire.in) - before);
    note_received(peer);
  }
  return true;
}

/* True: something came. */
static bool receive_some(treadle_tcp_peer *peer) {
  bool moved = false;
  for (int turn = 0; turn < 64 && peer->wire.socket >= 0; turn++) {
    if (!find_head(peer)) break;
    note_received(peer); /* one of no bytes */
    if (!peer->wire.readable || !receive_once(peer)) break;
    moved = true;
  }
  return moved;
}

/* One turn of everybody who may have something to do. */
static bool progress(treadle_tcp_net *net) {
  bool moved = false;
  treadle_tcp_hear(net);
  treadle_tcp_peer *busy = net->busy;
  net->busy = NULL;
  while (busy) {
    treadle_tcp_peer *peer = busy;
    busy = peer->next;
    peer->is_busy = false;
    bool was = peer->is_greeted, lost = peer->lost;
    if (treadle_tcp_greet(net, peer)) {
      moved |= send_some(peer);
      moved |= receive_some(peer);
    }
    moved |= was != peer->is_greeted || lost != peer->lost;
    const treadle_wire *wire = &peer->wire;
    bool stalled = peer->comes && !peer->coming;
    bool more = peer->is_greeted ? (wire->readable && !stalled) || (wire->writable && peer->out.first)
                                 : peer->connected && wire->readable;
    if (!peer->lost && more) treadle_tcp_busy(net, peer);
  }
  return moved;
}

/* ---- Messages ---- */

static treadle_status lost(const treadle_tcp_net *net, const treadle_tcp_peer *peer) {
  return treadle_fail(TREADLE_PEER, "net tcp: rank %d cannot be reached any more: %s", rank_of(net, peer),
                      peer->why);
}

static treadle_status begin(treadle_tcp_net *net, int rank, uint64_t tag, const treadle_net_part *parts,
                            int count, bool receives, void **request_p) {
  treadle_status status = TREADLE_OK;
  size_t bytes;
  *request_p = NULL;
  TRY(treadle_net_check_message(&treadle_net_tcp, rank, net->ranks, tag, parts, count, &bytes));
  treadle_tcp_peer *peer = &net->peers[rank];
  if (!peer->connected) TRY(treadle_fail(TREADLE_STATE, "net tcp: rank %d is not connected", rank));
  if (peer->lost) TRY(lost(net, peer));
  treadle_tcp_message *m = treadle_alloc(sizeof *m + (size_t)count * sizeof *m->parts);
  if (!m) TRY(treadle_fail(TREADLE_NO_MEMORY, "net tcp: memory is out"));
  *m = (treadle_tcp_message){.with = peer, .receives = receives, .bytes = bytes, .received = bytes};
  m->head = (treadle_tcp_head){.frame.type = TREADLE_TCP_MESSAGE, .tag = tag};
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_MESSAGE);
  if (!receives) treadle_frame_seal(&rule, &m->head, NULL, bytes);
  for (int i = 0; i < count; i++)
    if (parts[i].bytes) m->parts[m->count++] = (struct iovec){parts[i].at, parts[i].bytes};
  append(receives ? &peer->in : &peer->out, m);
  treadle_tcp_busy(net, peer);
  *request_p = m;
out:
  return status;
}

/* ---- The row ---- */

static void tcp_close(void *of) {
  treadle_tcp_net *net = of;
  if (!net) return;
  for (int rank = 0; rank < net->ranks && net->peers; rank++) {
    treadle_tcp_peer *peer = &net->peers[rank];
    treadle_tcp_queue *queues[] = {&peer->out, &peer->in, &peer->ended};
    for (int i = 0; i < 3; i++)
      while (queues[i]->first) forget(queues[i]->first);
  }
  if (net->peers) treadle_tcp_close(net);
  treadle_free(net->peers);
  treadle_free(net);
}

static treadle_status tcp_open(const treadle_net_options *given, void **net_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_options options;
  treadle_tcp_net *net = NULL;
  *net_p = NULL;
  TRY(TREADLE_TAKE(given, &options));
  TRY(treadle_net_check_options("tcp", &options));
  net = treadle_alloc(sizeof *net);
  if (!net) TRY(treadle_fail(TREADLE_NO_MEMORY, "net tcp: memory is out"));
  *net = (treadle_tcp_net){.rank = options.rank, .ranks = options.ranks, .listener = -1, .poll = -1};
  net->peers = treadle_alloc_array((size_t)options.ranks, sizeof *net->peers);
  if (!net->peers) TRY(treadle_fail(TREADLE_NO_MEMORY, "net tcp: memory is out"));
  for (int rank = 0; rank < net->ranks; rank++) net->peers[rank].wire.socket = -1;
  TRY(treadle_tcp_listen(net, &options));
  *net_p = net;
out:
  if (status != TREADLE_OK) tcp_close(net);
  return status;
}

static treadle_status tcp_address(void *of, void *room, size_t capacity, size_t *bytes_p) {
  return treadle_tcp_address(of, room, capacity, bytes_p);
}

static treadle_status tcp_connect(void *of, int rank, const void *address, size_t bytes) {
  return treadle_tcp_connect(of, rank, address, bytes);
}

static treadle_status tcp_send(void *of, int rank, uint64_t tag, const treadle_net_part *parts, int count,
                               void **request_p) {
  return begin(of, rank, tag, parts, count, false, request_p);
}

static treadle_status tcp_receive(void *of, int rank, uint64_t tag, const treadle_net_part *parts,
                                  int count, void **request_p) {
  return begin(of, rank, tag, parts, count, true, request_p);
}

static treadle_status tcp_test(void *of, void *request, bool *done_p) {
  treadle_status status = TREADLE_OK;
  treadle_tcp_net *net = of;
  treadle_tcp_message *m = request;
  *done_p = false;
  if (!m->ended) progress(net);
  if (!m->ended && !m->with->lost) return TREADLE_OK;
  if (m->received != m->bytes)
    status =
        treadle_fail(TREADLE_PEER, "net tcp: message %llu of rank %d has %llu bytes; %llu were to come",
                     (unsigned long long)m->head.tag, rank_of(net, m->with),
                     (unsigned long long)m->received, (unsigned long long)m->bytes);
  else if (!m->ended)
    status = lost(net, m->with);
  *done_p = status == TREADLE_OK;
  forget(m);
  return status;
}

static void tcp_wait(void *of, double seconds) {
  treadle_tcp_net *net = of;
  if (progress(net) || net->busy || !(seconds > 0)) return;
  if (treadle_net_listen(net->poll, treadle_tcp_pause(net, seconds)) || net->refused) progress(net);
}

static void tcp_cancel(void *of, void *request) {
  (void)of;
  treadle_tcp_message *m = request;
  bool begun = m->with->coming == m || (!m->receives && m->done > 0);
  if (!m->ended && begun) treadle_tcp_lose(m->with, "a message was cancelled");
  forget(m);
}

const treadle_net_ops treadle_net_tcp = {
    .struct_size = sizeof(treadle_net_ops),
    .name = "tcp",
    .memory = TREADLE_NET_HOST,
    .most_parts = MOST_PARTS,
    .open = tcp_open,
    .address = tcp_address,
    .connect = tcp_connect,
    .send = tcp_send,
    .receive = tcp_receive,
    .test = tcp_test,
    .wait = tcp_wait,
    .cancel = tcp_cancel,
    .close = tcp_close,
};
