/* Interfaces are asked in the kernel's order. IPv6 addresses of a link alone (fe80::) are left out while there are others: they mean something else on
 * each interface. */
#include "transport/host_address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
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

treadle_status treadle_host_address_find(char *host, size_t room) {
  struct ifaddrs *all = NULL;
  const struct ifaddrs *best = NULL;
  int error = EAI_FAIL;
  if (getifaddrs(&all) != 0)
    return treadle_fail(TREADLE_SYSTEM, "the addresses of this machine are not known: %s", strerror(errno));
  for (const struct ifaddrs *one = all; one; one = one->ifa_next)
    if (rank_of(one) && (!best || rank_of(one) < rank_of(best))) best = one;
  if (best)
    error = getnameinfo(best->ifa_addr,
                        best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                             : sizeof(struct sockaddr_in6),
                        host, (socklen_t)room, NULL, 0, NI_NUMERICHOST);
  freeifaddrs(all);
  if (error != 0) return treadle_fail(TREADLE_SYSTEM, "this machine has no address");
  return TREADLE_OK;
}
