/* How couriers find each other: each listens at its node's address, on a port of the system's choice, and says it by way of the
 * store; each connects to those of lower nodes, and takes in those of higher ones. Nothing listens once all have come.
 *
 * Who connects says hello with the job's key; whoever does not within SILENCE is dropped and holds up nobody. */
#include "transport/courier.h"

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

enum { GUESTS = 64, ADDRESS = 128 };
static const double SILENCE = 2, LOOK_EVERY = 20e-3; /* seconds */

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
  guest guests[GUESTS];
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
  return treadle_fail(TREADLE_REFUSED, "group: '%s' port %s is no address: %s", host, port,
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
      listen(m->listener, 128) != 0 || getsockname(m->listener, (struct sockaddr *)&bound, &length) != 0)
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

static void drop(meeting *m, int position) {
  close(m->guests[position].socket);
  m->guests[position] = m->guests[--m->guest_count];
}

static void take_in(meeting *m) {
  int socket = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return;
  if (m->guest_count == GUESTS) drop(m, 0);
  set_up(socket);
  m->guests[m->guest_count++] = (guest){.socket = socket, .until = treadle_clock_seconds() + SILENCE};
}

/* True: the guest is done with, whether it is a node or a stranger. */
static bool hear(meeting *m, guest *g) {
  ssize_t got = recv(g->socket, (char *)&g->hello + g->got, sizeof g->hello - g->got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return true;
  g->got += (size_t)got;
  if (g->got < sizeof g->hello) return false;
  treadle_mail whole = {.bytes = (char *)&g->hello, .count = sizeof g->hello};
  treadle_mail_head head;
  const char *content;
  bool is_whole;
  if (treadle_mail_next(&whole, m->key, &is_whole, &head, &content) != TREADLE_OK || !is_whole ||
      head.type != TREADLE_MAIL_HELLO || head.node <= m->of->node || head.node >= m->of->nodes->count ||
      m->sockets[head.node] >= 0)
    return true;
  m->sockets[head.node] = g->socket;
  g->socket = -1;
  return true;
}

static treadle_status serve(meeting *m) {
  struct pollfd polls[1 + GUESTS] = {{.fd = m->listener, .events = POLLIN}};
  for (int i = 0; i < m->guest_count; i++)
    polls[1 + i] = (struct pollfd){.fd = m->guests[i].socket, .events = POLLIN};
  int ready = poll(polls, (nfds_t)(1 + m->guest_count), (int)(LOOK_EVERY * 1e3));
  if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "group: poll: %s", strerror(errno));
  double now = treadle_clock_seconds();
  for (int i = m->guest_count - 1; i >= 0; i--) { /* from the end: dropping moves the last one here */
    bool over = now > m->guests[i].until || (ready > 0 && polls[1 + i].revents && hear(m, &m->guests[i]));
    if (over && m->guests[i].socket >= 0)
      drop(m, i);
    else if (over)
      m->guests[i] = m->guests[--m->guest_count];
  }
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

static treadle_status finish(meeting *m, int socket, int32_t node) {
  for (;;) {
    struct pollfd one = {.fd = socket, .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof error;
    treadle_status asked = treadle_thread_ask("a courier of another node");
    if (asked != TREADLE_OK) return asked;
    if (poll(&one, 1, (int)(LOOK_EVERY * 1e3)) > 0) {
      if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) return TREADLE_OK;
      return treadle_fail(TREADLE_PEER, "group: node %d cannot reach node %d: %s", (int)m->of->node,
                          (int)node, strerror(error));
    }
    if (treadle_clock_seconds() > m->deadline) return late(m, node);
  }
}

static treadle_status connect_to(meeting *m, int32_t node) {
  treadle_status status = TREADLE_OK;
  char text[ADDRESS], host[ADDRESS], port[16];
  struct addrinfo *found = NULL;
  treadle_mail hello = {0};
  TRY(m->of->ask(m->of->context, node, m->deadline, text, sizeof text));
  if (sscanf(text, "%111s %15s", host, port) != 2)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d has said no address", (int)node));
  TRY(find_address(host, port, &found));
  int socket_of = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_of < 0) TRY(treadle_fail(TREADLE_SYSTEM, "group: no socket: %s", strerror(errno)));
  m->sockets[node] = socket_of;
  if (connect(socket_of, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d cannot reach node %d at %s: %s", (int)m->of->node,
                     (int)node, host, strerror(errno)));
  TRY(finish(m, socket_of, node));
  set_up(socket_of);
  TRY(treadle_mail_add(&hello,
                       (treadle_mail_head){.type = TREADLE_MAIL_HELLO, .node = m->of->node, .key = m->key},
                       NULL, 0));
  if (send(socket_of, hello.bytes, hello.count, MSG_NOSIGNAL) != (ssize_t)hello.count)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d cannot send to node %d: %s", (int)m->of->node, (int)node,
                     strerror(errno)));
out:
  treadle_mail_release(&hello);
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
