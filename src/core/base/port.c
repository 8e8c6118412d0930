#include "base/port.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

treadle_status treadle_port_find(const char *host, int *port_p) {
  const struct addrinfo numbers = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  struct sockaddr_storage own;
  char number[8] = "";
  socklen_t length = sizeof own;
  *port_p = 0;
  int error = getaddrinfo(host, "0", &numbers, &found);
  if (error != 0)
    return treadle_fail(TREADLE_SYSTEM, "'%s' is not an address as numbers: %s", host, gai_strerror(error));
  int one = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool bound =
      one >= 0 && bind(one, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(one, (struct sockaddr *)&own, &length) == 0 &&
      getnameinfo((struct sockaddr *)&own, length, NULL, 0, number, sizeof number, NI_NUMERICSERV) == 0;
  error = errno;
  if (one >= 0) close(one);
  freeaddrinfo(found);
  if (!bound) return treadle_fail(TREADLE_SYSTEM, "no port at %s: %s", host, strerror(error));
  *port_p = atoi(number);
  return TREADLE_OK;
}
