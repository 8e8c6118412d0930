/* Ranks that use a store which rank 0 serves.
 *
 * Rank 0 may come later, or drop this one among strangers, so connecting is tried until the time is over; what rank 0 says ends it. A
 * request that was given up (cancelled, too late) may still be answered: its number tells. */
#include "meet/store_client.h"

#include "base/clock.h"
#include "base/thread_watch.h"
#include "group/shm.h" /* treadle_shm_poll_ms */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const double GRACE = 0.25; /* seconds that rank 0's word may be on its way */
static const double ATTEMPT = 2;  /* seconds that one connection may take */

/* TREADLE_OK: ready; TREADLE_TIMEOUT without a message: the time is over. */
static treadle_status wait_for(const treadle_store_client *c, int socket, short events, double deadline) {
  for (;;) {
    double left = deadline - treadle_clock_seconds();
    treadle_status asked = treadle_thread_ask(c->doing);
    if (asked != TREADLE_OK) return asked;
    if (treadle_thread_is_watched() && left > TREADLE_ASK_EVERY) left = TREADLE_ASK_EVERY;
    struct pollfd one = {.fd = socket, .events = events};
    int ready = poll(&one, 1, treadle_shm_poll_ms(left));
    if (ready > 0) return TREADLE_OK;
    if (ready == 0 && left <= 0) return TREADLE_TIMEOUT;
    if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "poll: %s", strerror(errno));
  }
}

/* Sends what is on its way and receives one message. TREADLE_PEER: rank 0 is gone; other failures have whole messages. */
static treadle_status exchange(treadle_store_client *c, double deadline) {
  treadle_status status = TREADLE_OK;
  const treadle_store_limit limit = {c->stream.job, 0, TREADLE_STORE_VALUE};
  for (bool whole = false; !whole;) {
    TRY(treadle_store_stream_send(&c->stream));
    TRY(treadle_store_stream_receive(&c->stream, &limit, &whole));
    if (whole) break;
    status = wait_for(c, c->stream.socket, c->stream.sends ? POLLIN | POLLOUT : POLLIN, deadline);
    if (status == TREADLE_TIMEOUT)
      status = treadle_fail(status, "%s: no word from rank 0 in time", c->what);
    TRY(status);
  }
out:
  if (status == TREADLE_REFUSED) treadle_fail_in(status, "%s: rank 0 ", c->what);
  return status;
}

/* The text that came with a status. */
static treadle_status take_text(treadle_store_client *c) {
  const treadle_store_message *m = &c->stream.in;
  bool known = m->status < TREADLE_OK && m->status >= TREADLE_CANCELLED;
  treadle_status status = treadle_fail(known ? (treadle_status)m->status : TREADLE_PEER, "%.*s",
                                       (int)m->bytes, m->bytes ? c->stream.in_behind->data : "");
  treadle_store_stream_next(&c->stream);
  return status;
}

/* ---- Meeting ---- */

/* A port of this machine to which nobody listens may be the very one that the system gives this end: then it is connected with itself. */
static bool is_itself(int socket) {
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t a = sizeof here, b = sizeof there;
  return getsockname(socket, (struct sockaddr *)&here, &a) == 0 &&
         getpeername(socket, (struct sockaddr *)&there, &b) == 0 && a == b && memcmp(&here, &there, a) == 0;
}

/* *socket_p: -1: not now. */
static treadle_status connect_once(const treadle_store_client *c, const struct addrinfo *at,
                                   double deadline, int *socket_p) {
  treadle_status status = TREADLE_OK;
  double now = treadle_clock_seconds(), end = now + ATTEMPT < deadline ? now + ATTEMPT : deadline;
  int error = 0;
  socklen_t length = sizeof error;
  *socket_p = -1;
  int one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (one < 0) return treadle_fail(TREADLE_SYSTEM, "%s: no socket: %s", c->what, strerror(errno));
  if (connect(one, at->ai_addr, at->ai_addrlen) != 0) {
    error = errno == EINPROGRESS || errno == EINTR ? 0 : errno;
    if (!error) status = wait_for(c, one, POLLOUT, end);
    if (!error && status == TREADLE_TIMEOUT) error = ETIMEDOUT;
    if (status == TREADLE_TIMEOUT) status = TREADLE_OK;
    if (!error && getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  }
  if (status != TREADLE_OK || error || is_itself(one)) {
    close(one);
    return status;
  }
  (void)setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  *socket_p = one;
  return status;
}

/* On a fresh connection. *met_p: false where it is closed again without a word. */
static treadle_status say_hello(treadle_store_client *c, double deadline, bool *met_p) {
  treadle_status status = exchange(c, deadline + GRACE);
  if (status == TREADLE_OK && c->stream.in.type == TREADLE_STORE_CHALLENGE) {
    c->stream.job = treadle_store_mix(c->job, c->stream.in.job);
    treadle_store_stream_next(&c->stream);
    treadle_store_message hello = treadle_store_say(TREADLE_STORE_HELLO, c->stream.job);
    double left = deadline - treadle_clock_seconds();
    hello.rank = c->rank;
    hello.ranks = c->ranks;
    hello.seconds = left > 0 ? left : 0;
    treadle_store_stream_put(&c->stream, &hello, NULL);
    status = exchange(c, deadline + GRACE);
  }
  *met_p = status != TREADLE_PEER;
  if (!*met_p) return TREADLE_OK;
  TRY(status);
  if (c->stream.in.type == TREADLE_STORE_REFUSAL) TRY(take_text(c));
  if (c->stream.in.type != TREADLE_STORE_WELCOME)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: rank 0 sent a message that was not expected", c->what));
  treadle_store_stream_next(&c->stream);
  treadle_store_stream_name(c->stream.socket, false, c->host);
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
    treadle_store_stream_start(&c->stream, socket);
    status = say_hello(c, deadline, met_p);
    if (status != TREADLE_OK || !*met_p) treadle_store_stream_end(&c->stream, true);
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

static treadle_status ask(treadle_store_client *c, treadle_store_message *head, treadle_store_bytes *behind,
                          double deadline) {
  treadle_status status = TREADLE_OK;
  if (c->stream.socket < 0) return treadle_fail(TREADLE_PEER, "%s: rank 0 has left or died", c->what);
  while (c->stream.sends) { /* what is left of a request that was given up */
    TRY(treadle_store_stream_send(&c->stream));
    if (c->stream.sends) status = wait_for(c, c->stream.socket, POLLOUT, deadline);
    if (status == TREADLE_TIMEOUT) treadle_fail(status, "%s: rank 0 does not take anything", c->what);
    TRY(status);
  }
  head->number = ++c->number;
  treadle_store_stream_put(&c->stream, head, behind);
  for (;;) {
    TRY(exchange(c, deadline));
    if (c->stream.in.type == TREADLE_STORE_ANSWER && c->stream.in.number == c->number) break;
    treadle_store_stream_next(&c->stream);
  }
  if (c->stream.in.status != TREADLE_OK) return take_text(c);
out:
  if (status == TREADLE_PEER || status == TREADLE_REFUSED) { /* nothing on it can be trusted any more */
    treadle_store_stream_end(&c->stream, true);
    if (status == TREADLE_PEER) treadle_fail(status, "%s: rank 0 has left or died", c->what);
  }
  return status;
}

static treadle_status request(treadle_store_client *c, treadle_store_message *head, const char *key,
                              const void *value, double deadline) {
  size_t length = strlen(key), bytes = (size_t)head->bytes;
  treadle_store_bytes *behind = treadle_store_bytes_make(length + bytes);
  if (!behind) return treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", c->what);
  head->key_bytes = (uint32_t)length;
  memcpy(behind->data, key, length);
  if (bytes) memcpy(behind->data + length, value, bytes);
  treadle_status status = ask(c, head, behind, deadline);
  treadle_store_bytes_drop(behind);
  return status;
}

treadle_status treadle_store_client_set(treadle_store_client *c, const char *key, const void *value,
                                        size_t bytes, double deadline) {
  treadle_store_message head = treadle_store_say(TREADLE_STORE_SET, c->stream.job);
  head.bytes = bytes;
  c->doing = "rank 0, which serves the store";
  treadle_status status = request(c, &head, key, value, deadline);
  if (status == TREADLE_OK) treadle_store_stream_next(&c->stream);
  return status;
}

treadle_status treadle_store_client_get(treadle_store_client *c, const char *key, double seconds,
                                        void *value, size_t capacity, size_t *bytes_p) {
  treadle_store_message head = treadle_store_say(TREADLE_STORE_GET, c->stream.job);
  head.seconds = seconds;
  c->doing = "a key of the store";
  treadle_status status = request(c, &head, key, NULL, treadle_clock_seconds() + seconds + GRACE);
  if (status != TREADLE_OK) return status;
  *bytes_p = (size_t)c->stream.in.bytes;
  if (*bytes_p && capacity)
    memcpy(value, c->stream.in_behind->data, *bytes_p < capacity ? *bytes_p : capacity);
  treadle_store_stream_next(&c->stream);
  return status;
}
