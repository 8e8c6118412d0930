/* Sockets of TCP. */
#include "wire/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static void set(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

static int open_for(const struct sockaddr *at) {
  return socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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

/* A port that the system shall choose is nobody's yet. */
static bool has_port(const struct sockaddr *at) {
  return at->sa_family == AF_INET ? ((const struct sockaddr_in *)(const void *)at)->sin_port != 0
                                  : ((const struct sockaddr_in6 *)(const void *)at)->sin6_port != 0;
}

int treadle_wire_listen(const struct sockaddr *at, socklen_t bytes) {
  int one = open_for(at);
  if (one < 0) return -1;
  if (has_port(at)) set(one, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(one, at, bytes) != 0 || listen(one, BACKLOG) != 0) return give_up(one);
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

int treadle_wire_connect(const struct sockaddr *at, socklen_t bytes) {
  int one = open_for(at);
  if (one < 0) return -1;
  set(one, IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(one, at, bytes) != 0 && errno != EINPROGRESS && errno != EINTR) return give_up(one);
  return one;
}

/* A port of this machine to which nobody listens may be the very one that the system gives this end: then it is connected with itself. */
static bool is_itself(int socket) {
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t a = sizeof here, b = sizeof there;
  return getsockname(socket, (struct sockaddr *)&here, &a) == 0 &&
         getpeername(socket, (struct sockaddr *)&there, &b) == 0 && a == b && memcmp(&here, &there, a) == 0;
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

void treadle_wire_name(int socket, bool other_end, char *host, char *port) {
  struct sockaddr_storage at;
  socklen_t length = sizeof at;
  int got = other_end ? getpeername(socket, (struct sockaddr *)&at, &length)
                      : getsockname(socket, (struct sockaddr *)&at, &length);
  if (got == 0)
    got = getnameinfo((struct sockaddr *)&at, length, host, host ? TREADLE_WIRE_HOST : 0, port,
                      port ? TREADLE_WIRE_PORT : 0, NI_NUMERICHOST | NI_NUMERICSERV);
  if (got != 0 && host) snprintf(host, TREADLE_WIRE_HOST, "?");
  if (got != 0 && port) snprintf(port, TREADLE_WIRE_PORT, "?");
}
