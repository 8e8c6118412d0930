/* Sockets of TCP, and of one machine. */
#include "wire/connect.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static void set(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

treadle_wire_address treadle_wire_address_of(const struct sockaddr *at) {
  treadle_wire_address own = {0};
  if (at->sa_family == AF_INET) memcpy(&own.four, at, sizeof own.four);
  if (at->sa_family == AF_INET6) memcpy(&own.six, at, sizeof own.six);
  return own;
}

treadle_wire_address treadle_wire_local(const char *name) {
  treadle_wire_address at = {.local.sun_family = AF_UNIX};
  snprintf(at.local.sun_path + 1, TREADLE_WIRE_HOST + 1, "%s", name);
  return at;
}

socklen_t treadle_wire_address_bytes(const treadle_wire_address *at) {
  if (at->any.sa_family == AF_UNIX)
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at->local.sun_path + 1));
  return at->any.sa_family == AF_INET ? sizeof at->four : sizeof at->six;
}

static int open_for(const treadle_wire_address *at) {
  return socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int give_up(int socket) {
  int why = errno;
  close(socket);
  errno = why;
  return -1;
}

int treadle_wire_find(const char *host, const char *port, bool numbers, struct addrinfo **found_p) {
  const struct addrinfo wanted = {.ai_family = AF_UNSPEC,
                                  .ai_socktype = SOCK_STREAM,
                                  .ai_flags = numbers ? AI_NUMERICHOST | AI_NUMERICSERV : 0};
  *found_p = NULL;
  return getaddrinfo(host, port, &wanted, found_p);
}

int treadle_wire_find_one(const char *host, const char *port, treadle_wire_address *at_p) {
  struct addrinfo *found;
  const int error = treadle_wire_find(host, port, true, &found);
  if (error) return error;
  *at_p = treadle_wire_address_of(found->ai_addr);
  freeaddrinfo(found);
  return 0;
}

int treadle_wire_listen(const treadle_wire_address *at) {
  in_port_t port = at->any.sa_family == AF_INET    ? at->four.sin_port
                   : at->any.sa_family == AF_INET6 ? at->six.sin6_port
                                                   : 0;
  int one = open_for(at);
  if (one < 0) return -1;
  if (port) set(one, SOL_SOCKET, SO_REUSEADDR, 1); /* one that the system shall choose is nobody's yet */
  if (bind(one, &at->any, treadle_wire_address_bytes(at)) != 0 || listen(one, BACKLOG) != 0)
    return give_up(one);
  return one;
}

bool treadle_wire_is_out(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int treadle_wire_accept(int listener) {
  int one = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (one >= 0) set(one, IPPROTO_TCP, TCP_NODELAY, 1);
  return one;
}

int treadle_wire_connect(const treadle_wire_address *at) {
  int one = open_for(at);
  if (one < 0) return -1;
  set(one, IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(one, &at->any, treadle_wire_address_bytes(at)) != 0 && errno != EINPROGRESS && errno != EINTR)
    return give_up(one);
  return one;
}

/* A port of this machine to which nobody listens may be the very one that the system gives this end: then it is connected with itself. */
static bool is_itself(int socket) {
  const treadle_wire_address here = treadle_wire_end(socket, false), there = treadle_wire_end(socket, true);
  return here.any.sa_family != AF_UNSPEC && memcmp(&here, &there, sizeof here) == 0;
}

int treadle_wire_connected(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return !error && is_itself(socket) ? ECONNREFUSED : error;
}

void treadle_wire_keep_alive(int socket) {
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

treadle_wire_address treadle_wire_end(int socket, bool other_end) {
  treadle_wire_address at = {0};
  socklen_t length = sizeof at;
  int got = other_end ? getpeername(socket, &at.any, &length) : getsockname(socket, &at.any, &length);
  return got == 0 ? treadle_wire_address_of(&at.any) : (treadle_wire_address){0};
}

void treadle_wire_name(int socket, bool other_end, char *host, char *port) {
  const treadle_wire_address at = treadle_wire_end(socket, other_end);
  if (getnameinfo(&at.any, treadle_wire_address_bytes(&at), host, host ? TREADLE_WIRE_HOST : 0, port,
                  port ? TREADLE_WIRE_PORT : 0, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
    return;
  if (host) snprintf(host, TREADLE_WIRE_HOST, "?");
  if (port) snprintf(port, TREADLE_WIRE_PORT, "?");
}
