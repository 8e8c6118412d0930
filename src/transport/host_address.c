/* Interfaces are asked in the kernel's order. IPv6 addresses of a link alone (fe80::) are left out while there are others: they mean something else on
 * each interface. */
#include "transport/host_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

/* The smaller, the better; 0: none. */
static int rank_of(const struct ifaddrs *one) {
  if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return 0;
  bool loopback = one->ifa_flags & IFF_LOOPBACK;
  if (one->ifa_addr->sa_family == AF_INET) return loopback ? 4 : 1;
  if (one->ifa_addr->sa_family != AF_INET6) return 0;
  const struct sockaddr_in6 *six = (const void *)one->ifa_addr;
  return loopback ? 5 : IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 3 : 2;
}

void treadle_host_address_find(char *host, size_t room) {
  struct ifaddrs *all = NULL;
  const struct ifaddrs *best = NULL;
  if (getifaddrs(&all) != 0) all = NULL;
  for (const struct ifaddrs *one = all; one; one = one->ifa_next)
    if (rank_of(one) && (!best || rank_of(one) < rank_of(best))) best = one;
  if (!best || getnameinfo(best->ifa_addr,
                           best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                : sizeof(struct sockaddr_in6),
                           host, (socklen_t)room, NULL, 0, NI_NUMERICHOST) != 0)
    snprintf(host, room, "127.0.0.1");
  if (all) freeifaddrs(all);
}
