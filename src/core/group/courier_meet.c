/* How couriers find each other: each listens at its node's address, on a port of the system's choice, and says it by way of the
 * store; each connects to those of lower nodes, and takes in those of higher ones. Nothing listens once all have come.
 *
 * Who connects says hello with the job's key, and hears one. Whoever says none within SILENCE is dropped; so is the oldest where there are more
 * than GUESTS, once what all of them have said is read. A node that was dropped among them connects again. */
#include "group/courier.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread_watch.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { GUESTS = 64, ADDRESS = 128, BACKLOG = 1024 };
static const double SILENCE = 2, LOOK_EVERY = 20e-3; /* seconds; from one attempt to the next, too */

typedef struct guest { /* connected, has not said hello */
  int socket;
  double until;
  size_t got;
  treadle_mail_head hello;
} guest;

typedef struct meeting {
  const treadle_courier_meeting *of;
  double deadline;
  uint64_t key;
  int listener;
  int *sockets;
  int guest_count;
  guest guests[GUESTS]; /* the first is the oldest */
} meeting;

uint64_t treadle_courier_key(const unsigned char key[TREADLE_MAIL_KEY]) {
  return treadle_hash_bytes(key, TREADLE_MAIL_KEY, 0);
}

static treadle_status late(const meeting *m, int32_t node) {
  return treadle_fail(TREADLE_TIMEOUT, "group: node %d waits in vain for node %d", (int)m->of->node,
                      (int)node);
}

static void set_up(int socket) {
  int on = 1;
  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- Listening ---- */

static treadle_status find_address(const char *host, const char *port, struct addrinfo **found_p) {
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
  int error = getaddrinfo(host, port, &wanted, found_p);
  if (error == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "group: '%s' port %s is not an address: %s", host, port,
                      gai_strerror(error));
}

static treadle_status listen_here(meeting *m) {
  treadle_status status = TREADLE_OK;
  struct addrinfo *found = NULL;
  struct sockaddr_storage bound;
  socklen_t length = sizeof bound;
  char port[16], text[ADDRESS];
  TRY(find_address(m->of->host, "0", &found));
  m->listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (m->listener < 0 || bind(m->listener, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(m->listener, BACKLOG) != 0 ||
      getsockname(m->listener, (struct sockaddr *)&bound, &length) != 0)
    TRY(treadle_fail(TREADLE_SYSTEM, "group: node %d cannot listen at %s: %s", (int)m->of->node,
                     m->of->host, strerror(errno)));
  if (getnameinfo((struct sockaddr *)&bound, length, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
    TRY(treadle_fail(TREADLE_SYSTEM, "group: no port at %s", m->of->host));
  snprintf(text, sizeof text, "%s %s", m->of->host, port);
  TRY(m->of->say(m->of->context, m->of->node, text));
out:
  if (found) freeaddrinfo(found);
  return status;
}

/* Its socket is closed, if it has not become a node's. */
static void drop(meeting *m, int position) {
  if (m->guests[position].socket >= 0) close(m->guests[position].socket);
  m->guest_count--;
  memmove(&m->guests[position], &m->guests[position + 1],
          (size_t)(m->guest_count - position) * sizeof *m->guests);
}

/* This node's hello, which is also the answer to one. */
static treadle_status say_hello(const meeting *m, int socket) {
  treadle_mail hello = {0};
  treadle_status status = treadle_mail_add(
      &hello, (treadle_mail_head){.type = TREADLE_MAIL_HELLO, .node = m->of->node, .key = m->key}, NULL, 0);
  if (status == TREADLE_OK &&
      send(socket, hello.bytes, hello.count, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)hello.count)
    status = TREADLE_PEER;
  treadle_mail_release(&hello);
  return status;
}

/* Reads what there is of a hello. TREADLE_PEER: there will be none. */
static treadle_status read_hello(const meeting *m, guest *g, bool *whole_p) {
  ssize_t got = recv(g->socket, (char *)&g->hello + g->got, sizeof g->hello - g->got, MSG_DONTWAIT);
  *whole_p = false;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return TREADLE_OK;
  if (got <= 0) return TREADLE_PEER;
  g->got += (size_t)got;
  if (g->got < sizeof g->hello) return TREADLE_OK;
  treadle_mail whole = {.bytes = (char *)&g->hello, .count = sizeof g->hello};
  treadle_mail_head head;
  const char *content;
  treadle_status status = treadle_mail_next(&whole, m->key, whole_p, &head, &content);
  return status == TREADLE_OK && *whole_p && head.type == TREADLE_MAIL_HELLO ? TREADLE_OK : TREADLE_PEER;
}

/* True: the guest is done with, whether it is a node or a stranger. */
static bool hear(meeting *m, guest *g) {
  bool whole;
  if (read_hello(m, g, &whole) != TREADLE_OK) return true;
  if (!whole) return false;
  int32_t node = g->hello.node;
  if (node <= m->of->node || node >= m->of->nodes->count || m->sockets[node] >= 0 ||
      say_hello(m, g->socket) != TREADLE_OK)
    return true;
  m->sockets[node] = g->socket;
  g->socket = -1;
  return true;
}

/* Reads what all guests have said: nobody goes whose hello is here. */
static void hear_all(meeting *m) {
  for (int i = m->guest_count - 1; i >= 0; i--) /* from the end: dropping moves those behind */
    if (hear(m, &m->guests[i])) drop(m, i);
}

static void take_in(meeting *m) {
  int socket = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  bool out = socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  if (socket < 0 && !out) return;
  if (out || m->guest_count == GUESTS) hear_all(m);
  if ((out && m->guest_count > 0) || m->guest_count == GUESTS) drop(m, 0);
  if (socket < 0) return;
  set_up(socket);
  m->guests[m->guest_count++] = (guest){.socket = socket, .until = treadle_clock_seconds() + SILENCE};
}

static treadle_status serve(meeting *m) {
  struct pollfd polls[1 + GUESTS] = {{.fd = m->listener, .events = POLLIN}};
  for (int i = 0; i < m->guest_count; i++)
    polls[1 + i] = (struct pollfd){.fd = m->guests[i].socket, .events = POLLIN};
  int ready = poll(polls, (nfds_t)(1 + m->guest_count), (int)(LOOK_EVERY * 1e3));
  if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "group: poll: %s", strerror(errno));
  double now = treadle_clock_seconds();
  for (int i = m->guest_count - 1; i >= 0; i--) /* from the end: dropping moves those behind */
    if ((ready > 0 && polls[1 + i].revents && hear(m, &m->guests[i])) || now > m->guests[i].until)
      drop(m, i);
  if (ready > 0 && polls[0].revents) take_in(m);
  return TREADLE_OK;
}

static int32_t find_missing(const meeting *m) {
  for (int32_t node = m->of->node + 1; node < m->of->nodes->count; node++)
    if (m->sockets[node] < 0) return node;
  return -1;
}

static treadle_status await_higher(meeting *m) {
  treadle_status status = TREADLE_OK;
  for (int32_t missing; (missing = find_missing(m)) >= 0;) {
    TRY(treadle_thread_ask("couriers of other nodes"));
    if (treadle_clock_seconds() > m->deadline) TRY(late(m, missing));
    TRY(serve(m));
  }
out:
  return status;
}

/* ---- Connecting ---- */

static treadle_status wait_for(const meeting *m, int socket, short events, int32_t node) {
  for (;;) {
    struct pollfd one = {.fd = socket, .events = events};
    treadle_status asked = treadle_thread_ask("a courier of another node");
    if (asked != TREADLE_OK) return asked;
    if (poll(&one, socket >= 0, (int)(LOOK_EVERY * 1e3)) > 0) return TREADLE_OK;
    if (treadle_clock_seconds() > m->deadline) return late(m, node);
    if (socket < 0) return TREADLE_OK; /* a pause */
  }
}

/* Says hello on a connection that is being made, and hears one. *met_p: false where the other side closes it: strangers had all places. */
static treadle_status greet(const meeting *m, int socket, int32_t node, bool *met_p) {
  treadle_status status = TREADLE_OK;
  int error = 0;
  socklen_t length = sizeof error;
  guest there = {.socket = socket};
  *met_p = false;
  TRY(wait_for(m, socket, POLLOUT, node));
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error && error != ECONNRESET)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d cannot reach node %d: %s", (int)m->of->node, (int)node,
                     strerror(error)));
  set_up(socket);
  status = error ? TREADLE_PEER : say_hello(m, socket);
  while (status == TREADLE_OK && !*met_p) {
    TRY(wait_for(m, socket, POLLIN, node));
    status = read_hello(m, &there, met_p);
  }
  if (status == TREADLE_PEER) return TREADLE_OK;
  if (*met_p && there.hello.node != node)
    status = treadle_fail(TREADLE_PEER, "group: node %d answers where node %d should",
                          (int)there.hello.node, (int)node);
out:
  return status;
}

static treadle_status try_once(meeting *m, const struct addrinfo *at, const char *host, int32_t node) {
  treadle_status status = TREADLE_OK;
  bool met = false;
  int one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (one < 0) return treadle_fail(TREADLE_SYSTEM, "group: no socket: %s", strerror(errno));
  if (connect(one, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d cannot reach node %d at %s: %s", (int)m->of->node,
                     (int)node, host, strerror(errno)));
  TRY(greet(m, one, node, &met));
out:
  if (met && status == TREADLE_OK)
    m->sockets[node] = one;
  else
    close(one);
  return status;
}

static treadle_status connect_to(meeting *m, int32_t node) {
  treadle_status status = TREADLE_OK;
  char text[ADDRESS], host[ADDRESS], port[16];
  struct addrinfo *found = NULL;
  TRY(m->of->ask(m->of->context, node, m->deadline, text, sizeof text));
  if (sscanf(text, "%111s %15s", host, port) != 2)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d has said no address", (int)node));
  TRY(find_address(host, port, &found));
  for (;;) {
    TRY(try_once(m, found, host, node));
    if (m->sockets[node] >= 0) break;
    TRY(wait_for(m, -1, 0, node));
  }
out:
  if (found) freeaddrinfo(found);
  return status;
}

treadle_status treadle_courier_meet(const treadle_courier_meeting *of, double deadline, int *sockets) {
  treadle_status status = TREADLE_OK;
  meeting m = {.of = of,
               .deadline = deadline,
               .key = treadle_courier_key(of->key),
               .listener = -1,
               .sockets = sockets};
  for (int32_t node = 0; node < of->nodes->count; node++) sockets[node] = -1;
  if (of->node + 1 < of->nodes->count) TRY(listen_here(&m));
  for (int32_t node = 0; node < of->node; node++) TRY(connect_to(&m, node));
  TRY(await_higher(&m));
out:
  while (m.guest_count > 0) drop(&m, m.guest_count - 1);
  if (m.listener >= 0) close(m.listener);
  for (int32_t node = 0; status != TREADLE_OK && node < of->nodes->count; node++) {
    if (sockets[node] >= 0) close(sockets[node]);
    sockets[node] = -1;
  }
  return status;
}
