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
#include "wire/connect.h"
#include "wire/wait.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GUESTS = 64, ADDRESS = 128 };
static const double SILENCE = 2, LOOK_EVERY = 20e-3; /* seconds; from one attempt to the next, too */

typedef struct guest { /* connected, has not said hello */
  treadle_wire wire;
  double until;
} guest;

typedef struct meeting {
  const treadle_courier_meeting *of;
  double deadline;
  treadle_frame_rule rule;
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

/* ---- Listening ---- */

static treadle_status find_address(const char *host, const char *port, treadle_wire_address *address_p) {
  const int error = treadle_wire_find_one(host, port, address_p);
  if (error)
    return treadle_fail(TREADLE_REFUSED, "group: '%s' port %s is not an address: %s", host, port,
                        gai_strerror(error));
  return TREADLE_OK;
}

static treadle_status listen_here(meeting *m) {
  treadle_status status = TREADLE_OK;
  treadle_wire_address here;
  char port[TREADLE_WIRE_PORT], text[ADDRESS];
  TRY(find_address(m->of->host, "0", &here));
  m->listener = treadle_wire_listen(&here);
  if (m->listener < 0)
    TRY(treadle_fail(TREADLE_SYSTEM, "group: node %d cannot listen at %s: %s", (int)m->of->node,
                     m->of->host, strerror(errno)));
  treadle_wire_name(m->listener, false, NULL, port);
  snprintf(text, sizeof text, "%s %s", m->of->host, port);
  TRY(m->of->say(m->of->context, m->of->node, text));
out:
  return status;
}

/* Its connection is closed, if it has not become a node's. */
static void drop(meeting *m, int position) {
  treadle_wire_close(&m->guests[position].wire, false);
  m->guest_count--;
  memmove(&m->guests[position], &m->guests[position + 1],
          (size_t)(m->guest_count - position) * sizeof *m->guests);
}

/* This node's hello, which is also the answer to one. */
static treadle_status say_hello(const meeting *m, treadle_wire *wire) {
  treadle_status status = TREADLE_OK;
  treadle_mail_head hello = {.frame.type = TREADLE_MAIL_HELLO, .node = m->of->node};
  TRY(treadle_wire_say(wire, &m->rule, &hello, NULL, 0));
  TRY(treadle_wire_send(wire));
  if (treadle_wire_waiting(wire)) status = TREADLE_PEER;
out:
  return status;
}

/* Reads what there is of a hello. TREADLE_PEER: there will be none. */
static treadle_status read_hello(const meeting *m, treadle_wire *wire, int32_t *node_p, bool *whole_p) {
  treadle_mail_head hello;
  const char *content;
  treadle_status status = treadle_wire_hear(wire, &m->rule, &hello, &content, whole_p);
  if (status == TREADLE_OK && *whole_p && hello.frame.type != TREADLE_MAIL_HELLO) status = TREADLE_PEER;
  *node_p = hello.node;
  return status == TREADLE_REFUSED ? TREADLE_PEER : status;
}

/* True: the guest is done with, whether it is a node or a stranger. */
static bool hear(meeting *m, guest *g) {
  bool whole;
  int32_t node;
  if (read_hello(m, &g->wire, &node, &whole) != TREADLE_OK) return true;
  if (!whole) return false;
  if (node <= m->of->node || node >= m->of->nodes->count || m->sockets[node] >= 0 ||
      say_hello(m, &g->wire) != TREADLE_OK)
    return true;
  m->sockets[node] = treadle_wire_leave(&g->wire);
  return true;
}

/* Reads what all guests have said: nobody goes whose hello is here. */
static void hear_all(meeting *m) {
  for (int i = m->guest_count - 1; i >= 0; i--) /* from the end: dropping moves those behind */
    if (hear(m, &m->guests[i])) drop(m, i);
}

static void take_in(meeting *m) {
  int socket = treadle_wire_accept(m->listener);
  bool out = socket < 0 && treadle_wire_is_out(errno);
  if (socket < 0 && !out) return;
  if (out || m->guest_count == GUESTS) hear_all(m);
  if ((out && m->guest_count > 0) || m->guest_count == GUESTS) drop(m, 0);
  if (socket < 0) return;
  m->guests[m->guest_count++] =
      (guest){.wire = treadle_wire_on(socket), .until = treadle_clock_seconds() + SILENCE};
}

static treadle_status serve(meeting *m) {
  struct pollfd polls[1 + GUESTS] = {{.fd = m->listener, .events = POLLIN}};
  for (int i = 0; i < m->guest_count; i++)
    polls[1 + i] = (struct pollfd){.fd = m->guests[i].wire.socket, .events = POLLIN};
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
  treadle_status status = treadle_wire_wait(socket, events, m->deadline, "a courier of another node");
  return status == TREADLE_TIMEOUT ? late(m, node) : status;
}

static treadle_status unreachable(const meeting *m, int32_t node, const char *host, int error) {
  return treadle_fail(TREADLE_PEER, "group: node %d cannot reach node %d at %s: %s", (int)m->of->node,
                      (int)node, host, strerror(error));
}

/* Says hello on a connection that is being made, and hears one. *met_p: false where it is disconnected: strangers had all places. */
static treadle_status greet(const meeting *m, treadle_wire *wire, const char *host, int32_t node,
                            bool *met_p) {
  treadle_status status = TREADLE_OK;
  int32_t other = -1;
  *met_p = false;
  TRY(wait_for(m, wire->socket, POLLOUT, node));
  int error = treadle_wire_connected(wire->socket);
  if (error && error != ECONNRESET) TRY(unreachable(m, node, host, error));
  status = error ? TREADLE_PEER : say_hello(m, wire);
  while (status == TREADLE_OK && !*met_p) {
    TRY(wait_for(m, wire->socket, POLLIN, node));
    status = read_hello(m, wire, &other, met_p);
  }
  if (status == TREADLE_PEER) *met_p = false;
  if (status == TREADLE_PEER) return TREADLE_OK;
  if (*met_p && other != node)
    status =
        treadle_fail(TREADLE_PEER, "group: node %d answers where node %d should", (int)other, (int)node);
out:
  return status;
}

static treadle_status try_once(meeting *m, const treadle_wire_address *at, const char *host, int32_t node) {
  bool met = false;
  treadle_wire wire = treadle_wire_on(treadle_wire_connect(at));
  if (wire.socket < 0) return unreachable(m, node, host, errno);
  treadle_status status = greet(m, &wire, host, node, &met);
  if (met && status == TREADLE_OK) m->sockets[node] = treadle_wire_leave(&wire);
  treadle_wire_close(&wire, false);
  return status;
}

static treadle_status connect_to(meeting *m, int32_t node) {
  treadle_status status = TREADLE_OK;
  char text[ADDRESS], host[ADDRESS], port[16];
  treadle_wire_address there;
  TRY(m->of->ask(m->of->context, node, m->deadline, text, sizeof text));
  if (sscanf(text, "%111s %15s", host, port) != 2)
    TRY(treadle_fail(TREADLE_PEER, "group: node %d has said no address", (int)node));
  TRY(find_address(host, port, &there));
  for (;;) {
    TRY(try_once(m, &there, host, node));
    if (m->sockets[node] >= 0) break;
    double now = treadle_clock_seconds();
    if (now > m->deadline) TRY(late(m, node));
    status = treadle_wire_wait(-1, 0, now + LOOK_EVERY, "a courier of another node"); /* a pause */
    if (status == TREADLE_TIMEOUT) status = TREADLE_OK;
    TRY(status);
  }
out:
  return status;
}

treadle_status treadle_courier_meet(const treadle_courier_meeting *of, double deadline, int *sockets) {
  treadle_status status = TREADLE_OK;
  meeting m = {.of = of,
               .deadline = deadline,
               .rule = treadle_mail_rule(treadle_courier_key(of->key)),
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
