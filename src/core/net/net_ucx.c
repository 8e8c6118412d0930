/* The net "ucx": peers and messages.
 *
 * What UCX 1.13.1 does over TCP, as tests/core/net/test_net.c has it:
 *
 * - A peer is killed, or closes: its kernel ends the connections, and the next progress calls on_error (in tests after 1 to 170 ms).
 *   Sends to it end with an error, begun or not; receives that have a message's beginning, too. A receive without one belongs to no
 *   peer in UCX, and is cancelled here. Other endpoints are not touched.
 * - A peer does nothing any more, but is there (stopped): no error, since its kernel answers keepalives. Messages of up to 8 KiB are
 *   sent while sockets have room, larger ones wait for the receiver. The caller's time limit and cancel end them.
 * - A machine does not answer any more (by the settings, not tried): keepalives end the connection after 4 s of silence, but only where
 *   nothing is on its way that was not confirmed; else the kernel sends it again for minutes. Heartbeats see that earlier.
 * - A receive is cancelled: without a message's beginning it is taken back, and the sender of a large message waits until it
 *   cancels as well. With one it cannot be: the endpoint is closed, with which it ends, and the sender gets an error.
 * - A send is cancelled: the endpoint is closed; the receiver gets an error.
 * - What came and nobody received stays in the worker, and a later receive of that tag would get it. So after a failure the
 *   net is opened again.
 * - A message whose packets come one by one has no end when its sender dies. There are none: settings.
 * - UCX 1.13 itself ended the process in 3 of 1,800 cancelled messages on a busy machine (a fault, or its assertion "*cur_iov_idx <= iov_cnt", in the
 *   progress of a connection): not understood yet.
 *
 * InfiniBand was not tried. UCX's TCP has no keys: whoever reaches the port of a rank can write its memory. The ports belong in a network of trusted machines. */
#include "net/net_ucx.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sized.h"
#include "net/net_devices.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

/* More than two parts go through copies of UCX's own, over TCP at 0.7 of the speed (docs/speed.md). */
enum { MOST_PARTS = 2, DEVICES_TEXT = 512, AT_ONCE = 16 /* steps of UCX */ };

/* A message that UCX does not end in that time, where it has to at once, is ended with the worker. */
static const double END_WITHIN = 5; /* seconds */

struct net;

/* A greeting has these steps: a small message each way, then a large one. HELLO_DONE: messages may go. */
enum { HELLO_SMALL, HELLO_LARGE, HELLO_DONE, HELLO_BYTES = 9000 };

typedef struct peer {
  struct net *net;
  ucp_ep_h endpoint; /* NULL: not connected, or closed */
  bool connected, lost;
  ucs_status_t why;             /* it was lost */
  struct peer *next_lost;       /* in net.lost: its endpoint is to be closed */
  ucs_status_ptr_t closing;     /* a request of UCX; NULL: none */
  int hello;                    /* HELLO_* */
  struct peer *next_hello;      /* in net.greeted: its greeting is not done */
  ucs_status_ptr_t sent, heard; /* requests of the greeting's present step; NULL: ended */
} peer;

typedef struct message {
  struct message *before, *behind; /* in net.messages */
  peer *with;
  bool waits;               /* for the greeting to be done: it is not begun */
  ucs_status_ptr_t request; /* NULL, and it does not wait: it has ended, as `ended` says */
  ucs_status_t ended;
  bool receives;
  uint64_t tag;
  size_t bytes, received;
  int count;
  ucp_dt_iov_t parts[];
} message;

typedef struct net {
  const treadle_ucx *ucx;
  treadle_ucx_worker worker;
  int rank, ranks;
  pid_t owner;
  peer *peers;       /* [ranks] */
  peer *lost;        /* their endpoints are to be closed */
  peer *greeted;     /* their greetings are under way */
  message *messages; /* all that were begun, and not yet tested until their end, or cancelled */
  char hello[HELLO_BYTES], answer[HELLO_BYTES];
} net;

/* ---- Peers ----
 *
 * Who connects greets, and messages wait until that is done. For an endpoint asks the other one's number when it first sends a large
 * message (a wireup message), and if that has to wait until the connection stands, and the peer dies before it does, UCX 1.13 ends the
 * process (its assertion "pending_count == 0"). So a small message goes first, which needs no number and no such message, and
 * makes the connection; then a large one, while nothing else is under way. A peer that dies during a greeting, or later, is an error. */

/* Called by UCX, in the middle of its work. */
static void on_error(void *context, ucp_ep_h endpoint, ucs_status_t why) {
  (void)endpoint;
  peer *p = context;
  if (p->lost) return;
  p->lost = true;
  p->why = why;
  p->next_lost = p->net->lost;
  p->net->lost = p;
}

static void drop(peer *p) {
  const treadle_ucx *ucx = p->net->ucx;
  if (!p->endpoint) return;
  ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
  p->closing = ucx->ucp_ep_close_nbx(p->endpoint, &how);
  if (UCS_PTR_IS_ERR(p->closing)) p->closing = NULL;
  p->endpoint = NULL;
}

/* Is it closed, as far as UCX is concerned? */
static bool is_closed(peer *p) {
  const treadle_ucx *ucx = p->net->ucx;
  if (!p->closing) return true;
  if (ucx->ucp_request_check_status(p->closing) == UCS_INPROGRESS) return false;
  ucx->ucp_request_free(p->closing);
  p->closing = NULL;
  return true;
}

/* ---- Messages ---- */

/* Both names of a message: who sends it, and its tag. Those of greetings have the highest bit, too. */
static ucp_tag_t full_tag(int sender, uint64_t tag) { return (uint64_t)sender << 40 | tag; }

static const ucp_tag_t hello_tag = UINT64_C(1) << 63;

static int rank_of(const peer *p) { return (int)(p - p->net->peers); }

/* Gives UCX a message: `count` parts of `bytes` bytes. */
static ucs_status_ptr_t post(const net *n, const peer *with, bool receives, ucp_tag_t tag,
                             ucp_dt_iov_t *parts, int count, size_t bytes) {
  ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                             .memory_type = UCS_MEMORY_TYPE_HOST};
  void *at = count > 1 ? (void *)parts : count ? parts[0].buffer : NULL;
  size_t elems = count > 1 ? (size_t)count : bytes;
  how.datatype = count > 1 ? (ucp_datatype_t)UCP_DATATYPE_IOV : ucp_dt_make_contig(1);
  if (!receives) return n->ucx->ucp_tag_send_nbx(with->endpoint, at, elems, tag, &how);
  how.op_attr_mask |=
      UCP_OP_ATTR_FLAG_NO_IMM_CMPL; /* of one that ends here, only a request has the length */
  return n->ucx->ucp_tag_recv_nbx(n->worker.worker, at, elems, tag, UINT64_MAX, &how);
}

static void begin_message(const net *n, message *m) {
  int count = m->count;
  ucp_tag_t tag = full_tag(m->receives ? rank_of(m->with) : n->rank, m->tag);
  m->waits = false;
  treadle_ucx_listen();
  m->request = post(n, m->with, m->receives, tag, m->parts, count, m->bytes);
  treadle_ucx_ignore();
  if (UCS_PTR_IS_PTR(m->request)) return;
  m->ended = UCS_PTR_STATUS(m->request);
  m->request = NULL;
}

/* ---- Greetings ---- */

static void begin_hello(net *n, peer *p) {
  size_t bytes = p->hello == HELLO_LARGE ? HELLO_BYTES : 1;
  ucp_tag_t step = hello_tag | (ucp_tag_t)p->hello;
  ucp_dt_iov_t out = {n->hello, bytes}, in = {n->answer, bytes};
  p->heard = post(n, p, true, full_tag(rank_of(p), step), &in, 1, bytes);
  p->sent = post(n, p, false, full_tag(n->rank, step), &out, 1, bytes);
}

/* NULL: it has ended, well; or an error. */
static ucs_status_ptr_t look_at(const net *n, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return request;
  ucs_status_t now = n->ucx->ucp_request_check_status(request);
  if (now == UCS_INPROGRESS) return request;
  n->ucx->ucp_request_free(request);
  return UCS_STATUS_PTR(now);
}

static void give_up_hello(const net *n, peer *p) {
  if (UCS_PTR_IS_PTR(p->heard)) {
    n->ucx->ucp_request_cancel(n->worker.worker, p->heard);
    n->ucx->ucp_request_free(p->heard); /* when it ends */
  }
  if (UCS_PTR_IS_PTR(p->sent)) n->ucx->ucp_request_free(p->sent);
  p->heard = p->sent = NULL;
}

/* True: it is over. */
static bool move_hello(net *n, peer *p) {
  while (!p->lost && p->hello != HELLO_DONE) {
    p->heard = look_at(n, p->heard);
    p->sent = look_at(n, p->sent);
    if (UCS_PTR_IS_ERR(p->heard)) on_error(p, NULL, UCS_PTR_STATUS(p->heard));
    if (UCS_PTR_IS_ERR(p->sent)) on_error(p, NULL, UCS_PTR_STATUS(p->sent));
    if (!p->lost && (p->heard || p->sent)) return false;
    if (!p->lost && ++p->hello != HELLO_DONE) begin_hello(n, p);
  }
  if (p->lost) give_up_hello(n, p);
  for (message *m = n->messages; m; m = m->behind)
    if (m->with == p && m->waits) {
      if (p->lost)
        m->waits = false, m->ended = p->why;
      else
        begin_message(n, m);
    }
  return true;
}

/* Says whether anything moved. */
static bool progress(net *n) {
  if (!n->worker.worker) return false;
  treadle_ucx_listen();
  bool moved = false;
  for (int i = 0; i < AT_ONCE && n->ucx->ucp_worker_progress(n->worker.worker) > 0; i++) moved = true;
  for (peer **p = &n->greeted; *p;) {
    if (move_hello(n, *p))
      *p = (*p)->next_hello, moved = true;
    else
      p = &(*p)->next_hello;
  }
  while (n->lost) {
    peer *p = n->lost;
    n->lost = p->next_lost;
    drop(p);
    moved = true;
  }
  treadle_ucx_ignore();
  return moved;
}

/* ---- Ends of messages ---- */

static bool has_ended(const net *n, message *m) {
  if (m->waits) return false;
  if (!m->request) return true;
  ucp_tag_recv_info_t info = {0, 0};
  ucs_status_t now = m->receives ? n->ucx->ucp_tag_recv_request_test(m->request, &info)
                                 : n->ucx->ucp_request_check_status(m->request);
  if (now == UCS_INPROGRESS) return false;
  n->ucx->ucp_request_free(m->request);
  m->request = NULL;
  m->ended = now;
  m->received = info.length;
  return true;
}

/* Without a worker nothing moves, and no memory is touched. What UCX had for the requests is lost. */
static void break_down(net *n) {
  treadle_ucx_close(n->ucx, &n->worker);
  n->lost = n->greeted = NULL;
  for (int rank = 0; rank < n->ranks; rank++) {
    peer *p = &n->peers[rank];
    if (!p->lost) p->why = UCS_ERR_CANCELED;
    p->lost = true;
    p->endpoint = NULL;
    p->closing = p->heard = p->sent = NULL;
  }
  for (message *m = n->messages; m; m = m->behind)
    if (m->request || m->waits) m->request = NULL, m->waits = false, m->ended = UCS_ERR_CANCELED;
}

/* Afterwards it has ended, well or not. A receive that has no message yet is taken back; all others end with the endpoint. */
static void end(net *n, message *m) {
  if (m->waits) m->waits = false, m->ended = UCS_ERR_CANCELED;
  if (has_ended(n, m)) return;
  treadle_ucx_listen();
  if (m->receives) n->ucx->ucp_request_cancel(n->worker.worker, m->request);
  if (!has_ended(n, m)) {
    on_error(m->with, NULL, UCS_ERR_CANCELED);
    double deadline = treadle_clock_seconds() + END_WITHIN;
    while (!has_ended(n, m)) {
      progress(n);
      if (treadle_clock_seconds() > deadline) break_down(n);
    }
  }
  treadle_ucx_ignore();
}

static void forget(net *n, message *m) {
  if (m->before)
    m->before->behind = m->behind;
  else
    n->messages = m->behind;
  if (m->behind) m->behind->before = m->before;
  treadle_free(m);
}

static treadle_status lost(const net *n, const peer *p) {
  return treadle_fail(TREADLE_PEER, "net ucx: rank %d cannot be reached any more: %s", (int)(p - n->peers),
                      n->ucx->ucs_status_string(p->why));
}

/* What a message that has ended came to. */
static treadle_status verdict(const net *n, const message *m) {
  int rank = rank_of(m->with);
  bool longer = m->ended == UCS_ERR_MESSAGE_TRUNCATED;
  if (m->receives && longer && m->received <= m->bytes)
    return treadle_fail(TREADLE_PEER,
                        "net ucx: message %llu of rank %d has more than the %zu bytes that "
                        "were to come",
                        (unsigned long long)m->tag, rank, m->bytes);
  if (m->receives && (longer || (m->ended == UCS_OK && m->received != m->bytes)))
    return treadle_fail(TREADLE_PEER, "net ucx: message %llu of rank %d has %zu bytes; %zu were to come",
                        (unsigned long long)m->tag, rank, m->received, m->bytes);
  if (m->ended == UCS_OK) return TREADLE_OK;
  if (m->with->lost) return lost(n, m->with);
  return treadle_fail(m->ended == UCS_ERR_NO_MEMORY ? TREADLE_NO_MEMORY : TREADLE_PEER,
                      "net ucx: message %llu %s rank %d: %s", (unsigned long long)m->tag,
                      m->receives ? "of" : "to", rank, n->ucx->ucs_status_string(m->ended));
}

static treadle_status begin(net *n, int rank, uint64_t tag, const treadle_net_part *parts, int count,
                            bool receives, void **request_p) {
  treadle_status status = TREADLE_OK;
  *request_p = NULL;
  size_t bytes;
  TRY(treadle_net_check_message(&treadle_net_ucx, rank, n->ranks, tag, parts, count, &bytes));
  peer *p = &n->peers[rank];
  if (!p->connected) TRY(treadle_fail(TREADLE_STATE, "net ucx: rank %d is not connected", rank));
  if (p->lost) TRY(lost(n, p));
  message *m = treadle_alloc(sizeof *m + (size_t)count * sizeof *m->parts);
  if (!m) TRY(treadle_fail(TREADLE_NO_MEMORY, "net ucx: memory is out"));
  *m = (message){.behind = n->messages, .with = p, .receives = receives, .tag = tag, .bytes = bytes};
  int used = 0;
  for (int i = 0; i < count; i++)
    if (parts[i].bytes) m->parts[used++] = (ucp_dt_iov_t){parts[i].at, parts[i].bytes};
  m->count = used;
  if (n->messages) n->messages->before = m;
  n->messages = m;
  if (p->hello == HELLO_DONE)
    begin_message(n, m);
  else
    m->waits = true;
  *request_p = m;
out:
  return status;
}

/* ---- The row ---- */

static treadle_status ucx_open(const treadle_net_options *given, void **net_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_options options;
  net *n = NULL;
  const treadle_ucx *ucx;
  char devices[DEVICES_TEXT];
  *net_p = NULL;
  TRY(TREADLE_TAKE(given, &options));
  TRY(treadle_net_check_options("ucx", &options));
  TRY(treadle_ucx_find(&ucx));
  TRY(treadle_net_devices(&options, "/sys", devices, sizeof devices));
  n = treadle_alloc(sizeof *n);
  peer *peers = treadle_alloc_array((size_t)options.ranks, sizeof *peers);
  if (!n || !peers) {
    treadle_free(peers);
    TRY(treadle_fail(TREADLE_NO_MEMORY, "net ucx: memory is out"));
  }
  *n = (net){.ucx = ucx, .rank = options.rank, .ranks = options.ranks, .owner = getpid(), .peers = peers};
  for (int rank = 0; rank < n->ranks; rank++) peers[rank].net = n;
  TRY(treadle_ucx_open(ucx, devices[0] ? devices : NULL, &n->worker));
  *net_p = n;
out:
  if (status != TREADLE_OK && n) {
    treadle_free(n->peers);
    treadle_free(n);
  }
  return status;
}

static treadle_status ucx_address(void *of, void *room, size_t capacity, size_t *bytes_p) {
  net *n = of;
  return treadle_ucx_pack(n->ucx, &n->worker, n->rank, room, capacity, bytes_p);
}

static treadle_status ucx_connect(void *of, int rank, const void *address, size_t bytes) {
  net *n = of;
  const ucp_address_t *remote;
  if (rank < 0 || rank >= n->ranks || rank == n->rank)
    REFUSE("net ucx: rank %d of %d connects to rank %d", n->rank, n->ranks, rank);
  peer *p = &n->peers[rank];
  if (p->connected) return treadle_fail(TREADLE_STATE, "net ucx: rank %d is connected already", rank);
  treadle_status status = treadle_ucx_unpack(n->ucx, rank, address, bytes, &remote);
  if (status != TREADLE_OK) return status;
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .address = remote,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_error, .arg = p},
  };
  treadle_ucx_listen();
  ucs_status_t got = n->ucx->ucp_ep_create(n->worker.worker, &params, &p->endpoint);
  if (got != UCS_OK) {
    p->endpoint = NULL;
    status = treadle_fail(TREADLE_PEER, "net ucx: rank %d cannot be reached: %s (%s)", rank,
                          n->ucx->ucs_status_string(got), treadle_ucx_heard());
  } else {
    p->connected = true;
    begin_hello(n, p);
    p->next_hello = n->greeted;
    n->greeted = p;
  }
  treadle_ucx_ignore();
  return status;
}

static treadle_status ucx_send(void *of, int rank, uint64_t tag, const treadle_net_part *parts, int count,
                               void **request_p) {
  return begin(of, rank, tag, parts, count, false, request_p);
}

static treadle_status ucx_receive(void *of, int rank, uint64_t tag, const treadle_net_part *parts,
                                  int count, void **request_p) {
  return begin(of, rank, tag, parts, count, true, request_p);
}

static treadle_status ucx_test(void *of, void *request, bool *done_p) {
  net *n = of;
  message *m = request;
  *done_p = false;
  if (!has_ended(n, m)) progress(n);
  if (!has_ended(n, m)) {
    if (!m->with->lost) return TREADLE_OK;
    end(n, m);
  }
  treadle_status status = verdict(n, m);
  *done_p = status == TREADLE_OK;
  forget(n, m);
  return status;
}

static void ucx_wait(void *of, double seconds) {
  net *n = of;
  if (progress(n) || !n->worker.worker || !(seconds > 0)) return;
  treadle_ucx_listen();
  /* What came since the last progress makes it busy; what comes from now on rings. */
  ucs_status_t armed = n->ucx->ucp_worker_arm(n->worker.worker);
  treadle_ucx_ignore();
  if (armed != UCS_OK) return;
  (void)treadle_net_listen(n->worker.bell, seconds);
}

static void ucx_cancel(void *of, void *request) {
  net *n = of;
  end(n, request);
  forget(n, request);
}

static void ucx_close(void *of) {
  net *n = of;
  if (!n) return;
  bool mine = n->owner == getpid(); /* else this is a child, and the sockets are its parent's */
  if (mine) {
    for (int rank = 0; rank < n->ranks && n->worker.worker; rank++) drop(&n->peers[rank]);
    double deadline = treadle_clock_seconds() + END_WITHIN;
    for (int rank = 0; rank < n->ranks && n->worker.worker; rank++)
      while (!is_closed(&n->peers[rank]) && treadle_clock_seconds() < deadline) progress(n);
  }
  while (n->messages) {
    if (mine) end(n, n->messages);
    forget(n, n->messages);
  }
  if (mine) treadle_ucx_close(n->ucx, &n->worker);
  treadle_free(n->peers);
  treadle_free(n);
}

const treadle_net_ops treadle_net_ucx = {
    .struct_size = sizeof(treadle_net_ops),
    .name = "ucx",
    .memory = TREADLE_NET_HOST,
    .most_parts = MOST_PARTS,
    .open = ucx_open,
    .address = ucx_address,
    .connect = ucx_connect,
    .send = ucx_send,
    .receive = ucx_receive,
    .test = ucx_test,
    .wait = ucx_wait,
    .cancel = ucx_cancel,
    .close = ucx_close,
};
