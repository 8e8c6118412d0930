/* The kernel says from which address it would send to a far machine; then interfaces are asked in the kernel's order. IPv6 addresses of a link
 * alone (fe80::) are left out while there are others: they mean something else on each interface. */
#include "wire/host_address.h"

#include "wire/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool write_numbers(const struct sockaddr *address, char *host, size_t room) {
  const treadle_wire_address at = treadle_wire_address_of(address);
  return getnameinfo(&at.any, treadle_wire_address_bytes(&at), host, (socklen_t)room, NULL, 0,
                     NI_NUMERICHOST) == 0;
}

/* ---- The default route ---- */

static bool is_near(const treadle_wire_address *address) {
  if (address->any.sa_family == AF_INET) return ntohl(address->four.sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&address->six.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&address->six.sin6_addr);
}

/* Connecting a datagram socket sends nothing. `far` is of those that are kept for documents, and nobody's. */
static bool find_way(const treadle_wire_address *far, char *host, size_t room) {
  int way = socket(far->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool leads = way >= 0 && connect(way, &far->any, treadle_wire_address_bytes(far)) == 0;
  const treadle_wire_address own = treadle_wire_end(way, false);
  bool found = leads && own.any.sa_family && !is_near(&own) && write_numbers(&own.any, host, room);
  if (way >= 0) close(way);
  return found;
}

static bool find_default(char *host, size_t room) {
  treadle_wire_address four = {.four = {.sin_family = AF_INET, .sin_port = htons(9)}},
                       six = {.six = {.sin6_family = AF_INET6, .sin6_port = htons(9)}};
  return (inet_pton(AF_INET, "192.0.2.1", &four.four.sin_addr) == 1 && find_way(&four, host, room)) ||
         (inet_pton(AF_INET6, "2001:db8::1", &six.six.sin6_addr) == 1 && find_way(&six, host, room));
}

/* ---- Interfaces ---- */

/* The smaller, the better; 0: none. */
static int rank_of(const struct ifaddrs *one) {
  if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return 0;
  bool loopback = one->ifa_flags & IFF_LOOPBACK;
  if (one->ifa_addr->sa_family == AF_INET) return loopback ? 4 : 1;
  if (one->ifa_addr->sa_family != AF_INET6) return 0;
  const struct sockaddr_in6 *six = (const void *)one->ifa_addr;
  return loopback ? 5 : IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 3 : 2;
}

bool treadle_host_address_find(char *host, size_t room) {
  struct ifaddrs *all = NULL;
  const struct ifaddrs *best = NULL;
  if (find_default(host, room)) return true;
  if (getifaddrs(&all) != 0) all = NULL;
  for (const struct ifaddrs *one = all; one; one = one->ifa_next)
    if (rank_of(one) && (!best || rank_of(one) < rank_of(best))) best = one;
  bool found = best && write_numbers(best->ifa_addr, host, room), outside = found && rank_of(best) <= 3;
  if (!found) snprintf(host, room, "127.0.0.1");
  if (all) freeifaddrs(all);
  return outside;
}
