/* Ranks that use a store which rank 0 serves.
 *
 * Rank 0 may come later, or drop this one among strangers, so connecting is tried until the time is over; what rank 0 says ends it. A
 * request that was given up (cancelled, too late) may still be answered: its number tells. */
#include "meet/store_client.h"

#include "base/clock.h"
#include "base/thread_watch.h"
#include "wire/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double GRACE = 0.25; /* seconds that rank 0's word may be on its way */
static const double ATTEMPT = 2;  /* seconds that one connection may take */

/* TREADLE_TIMEOUT without a message: the time is over. */
static treadle_status wait_for(const treadle_store_client *c, short events, double deadline) {
  return treadle_wire_wait(c->stream.wire.socket, events, deadline, c->doing);
}

/* Sends what is on its way and receives one message. TREADLE_PEER: rank 0 is gone; other failures have whole messages. */
static treadle_status exchange(treadle_store_client *c, double deadline) {
  treadle_status status = TREADLE_OK;
  for (bool whole = false; !whole;) {
    TRY(treadle_wire_send(&c->stream.wire));
    TRY(treadle_store_hear(&c->stream, TREADLE_STORE_VALUE, &whole));
    if (whole) break;
    status = wait_for(c, treadle_wire_events(&c->stream.wire), deadline);
    if (status == TREADLE_TIMEOUT)
      status = treadle_fail(status, "%s: no word from rank 0 in time", c->what);
    TRY(status);
  }
out:
  if (status == TREADLE_REFUSED) treadle_fail_in(status, "%s: rank 0 ", c->what);
  return status;
}

/* When nothing waits to be sent. */
static treadle_status say(treadle_store_client *c, treadle_store_message *head,
                          treadle_wire_bytes *content) {
  const treadle_frame_rule rule = treadle_store_rule(c->stream.job, 0);
  treadle_status status = treadle_wire_say_shared(&c->stream.wire, &rule, head, content);
  return status == TREADLE_OK ? status : treadle_fail_in(status, "%s: ", c->what);
}

/* The text that came with a status. */
static treadle_status take_text(treadle_store_client *c) {
  const treadle_store_message *m = &c->stream.in;
  bool known = m->status < TREADLE_OK && m->status >= TREADLE_CANCELLED;
  return treadle_fail(known ? (treadle_status)m->status : TREADLE_PEER, "%.*s", (int)m->frame.bytes,
                      c->stream.content);
}

/* ---- Meeting ---- */

/* *socket_p: -1: not now. */
static treadle_status connect_once(const treadle_store_client *c, const struct addrinfo *at,
                                   double deadline, int *socket_p) {
  double now = treadle_clock_seconds(), end = now + ATTEMPT < deadline ? now + ATTEMPT : deadline;
  treadle_status status = TREADLE_OK;
  const treadle_wire_address there = treadle_wire_address_of(at->ai_addr);
  int one = treadle_wire_connect(&there);
  *socket_p = -1;
  if (one < 0 && treadle_wire_is_out(errno))
    return treadle_fail(TREADLE_SYSTEM, "%s: no socket: %s", c->what, strerror(errno));
  if (one < 0) return TREADLE_OK;
  status = treadle_wire_wait(one, POLLOUT, end, c->doing);
  if (status == TREADLE_OK && treadle_wire_connected(one) == 0)
    *socket_p = one;
  else
    close(one);
  return status == TREADLE_TIMEOUT ? TREADLE_OK : status;
}

/* On a fresh connection. *met_p: false where it is closed again without a word. */
static treadle_status say_hello(treadle_store_client *c, double deadline, bool *met_p) {
  treadle_status status = exchange(c, deadline + GRACE);
  if (status == TREADLE_OK && c->stream.in.frame.type == TREADLE_STORE_CHALLENGE) {
    double left = deadline - treadle_clock_seconds();
    treadle_store_message hello = {.frame.type = TREADLE_STORE_HELLO,
                                   .rank = c->rank,
                                   .ranks = c->ranks,
                                   .seconds = left > 0 ? left : 0};
    c->stream.job = treadle_store_mix(c->job, c->stream.in.challenge);
    TRY(say(c, &hello, NULL));
    status = exchange(c, deadline + GRACE);
  }
  *met_p = status != TREADLE_PEER;
  if (!*met_p) return TREADLE_OK;
  TRY(status);
  if (c->stream.in.frame.type == TREADLE_STORE_REFUSAL) TRY(take_text(c));
  if (c->stream.in.frame.type != TREADLE_STORE_WELCOME)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: rank 0 sent a message that was not expected", c->what));
  treadle_wire_name(c->stream.wire.socket, false, c->host, NULL);
out:
  return status;
}

/* One after the other of the addresses that the name has. *met_p: rank 0 is found, or it has said that there will be no store. */
static treadle_status try_all(treadle_store_client *c, const char *text,
                              const treadle_store_address *address, double deadline, bool *met_p) {
  struct addrinfo *all = NULL;
  treadle_status status = treadle_store_address_find(text, address, &all);
  *met_p = status == TREADLE_REFUSED;
  for (const struct addrinfo *one = all; one && !*met_p && status == TREADLE_OK; one = one->ai_next) {
    int socket;
    status = connect_once(c, one, deadline, &socket);
    if (status != TREADLE_OK || socket < 0) continue;
    c->stream = (treadle_store_stream){.wire = treadle_wire_on(socket)};
    status = say_hello(c, deadline, met_p);
    if (status != TREADLE_OK || !*met_p) treadle_wire_close(&c->stream.wire, true);
  }
  if (all) freeaddrinfo(all);
  return status;
}

treadle_status treadle_store_client_meet(treadle_store_client *c, const char *text,
                                         const treadle_store_address *address, double deadline) {
  treadle_status status = TREADLE_OK;
  bool met = false;
  c->doing = "rank 0, which serves the store";
  for (double pause = 1e-3;; pause = pause < 0.05 ? pause * 2 : pause) {
    status = try_all(c, text, address, deadline, &met);
    if (met || status == TREADLE_CANCELLED || status == TREADLE_NO_MEMORY) return status;
    double left = deadline - treadle_clock_seconds();
    if (left <= 0) break;
    if (left > pause) left = pause;
    nanosleep(&(struct timespec){.tv_nsec = (long)(left * 1e9)}, NULL);
    treadle_status asked = treadle_thread_ask(c->doing);
    if (asked != TREADLE_OK) return asked;
  }
  if (status == TREADLE_SYSTEM) return status; /* the last attempt has words */
  return treadle_fail(TREADLE_TIMEOUT, "%s: rank 0 does not listen there, or not in time", c->what);
}

/* ---- Requests ---- */

static treadle_status ask(treadle_store_client *c, treadle_store_message *head, treadle_wire_bytes *content,
                          double deadline) {
  treadle_status status = TREADLE_OK;
  treadle_wire *wire = &c->stream.wire;
  if (wire->socket < 0) return treadle_fail(TREADLE_PEER, "%s: rank 0 has left or died", c->what);
  while (treadle_wire_waiting(wire)) { /* what is left of a request that was given up */
    TRY(treadle_wire_send(wire));
    if (treadle_wire_waiting(wire)) status = wait_for(c, POLLOUT, deadline);
    if (status == TREADLE_TIMEOUT) treadle_fail(status, "%s: rank 0 does not take anything", c->what);
    TRY(status);
  }
  head->number = ++c->number;
  TRY(say(c, head, content));
  do TRY(exchange(c, deadline));
  while (c->stream.in.frame.type != TREADLE_STORE_ANSWER || c->stream.in.number != c->number);
  if (c->stream.in.status != TREADLE_OK) return take_text(c);
out:
  if (status == TREADLE_PEER || status == TREADLE_REFUSED) { /* nothing on it can be trusted any more */
    treadle_wire_close(wire, true);
    if (status == TREADLE_PEER) treadle_fail(status, "%s: rank 0 has left or died", c->what);
  }
  return status;
}

static treadle_status request(treadle_store_client *c, treadle_store_message *head, const char *key,
                              const void *value, size_t bytes, double deadline) {
  size_t length = strlen(key);
  treadle_wire_bytes *content = treadle_wire_bytes_make(length + bytes);
  if (!content) return treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", c->what);
  head->key_bytes = (uint32_t)length;
  memcpy(content->data, key, length);
  if (bytes) memcpy(content->data + length, value, bytes);
  treadle_status status = ask(c, head, content, deadline);
  treadle_wire_bytes_drop(content);
  return status;
}

treadle_status treadle_store_client_set(treadle_store_client *c, const char *key, const void *value,
                                        size_t bytes, double deadline) {
  treadle_store_message head = {.frame.type = TREADLE_STORE_SET};
  c->doing = "rank 0, which serves the store";
  return request(c, &head, key, value, bytes, deadline);
}

treadle_status treadle_store_client_get(treadle_store_client *c, const char *key, double seconds,
                                        void *value, size_t capacity, size_t *bytes_p) {
  treadle_store_message head = {.frame.type = TREADLE_STORE_GET, .seconds = seconds};
  c->doing = "a key of the store";
  treadle_status status = request(c, &head, key, NULL, 0, treadle_clock_seconds() + seconds + GRACE);
  if (status != TREADLE_OK) return status;
  *bytes_p = (size_t)c->stream.in.frame.bytes;
  if (*bytes_p && capacity) memcpy(value, c->stream.content, *bytes_p < capacity ? *bytes_p : capacity);
  return status;
}
