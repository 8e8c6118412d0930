/* Addresses of stores. */
#include "meet/store_address.h"

#include "base/text.h"
#include "base/utf8.h"
#include "wire/connect.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static treadle_status wrong(const char *text, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "store: the address '%.300s' %s", treadle_text_shown(text), why);
}

treadle_status treadle_store_address_read(const char *text, treadle_store_address *address_p) {
  const char *colon = strrchr(text, ':'), *host = text;
  size_t length = colon ? (size_t)(colon - text) : 0;
  int64_t port = 0;
  *address_p = (treadle_store_address){0};
  if (!colon || strchr(colon, ']')) return wrong(text, "has no port; it is ADDRESS:PORT");
  if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || !treadle_text_to_int64(colon + 1, &port) ||
      port < 1 || port > 65535)
    return wrong(text, "has no port from 1 to 65535");
  bool six = *host == '[' && length > 1 && colon[-1] == ']';
  if (six) {
    host++;
    length -= 2;
  }
  if ((!six && memchr(host, ':', length)) || memchr(host, '[', length) || memchr(host, ']', length))
    return wrong(text, "is not an address with a port; one of IPv6 is written [::1]:7000");
  if (length == 0) return wrong(text, "has no host");
  if (length >= sizeof address_p->host) return wrong(text, "is too long");
  memcpy(address_p->host, host, length);
  snprintf(address_p->port, sizeof address_p->port, "%d", (int)port);
  return TREADLE_OK;
}

static bool is_everywhere(const struct sockaddr *address) {
  if (address->sa_family == AF_INET)
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
  const struct sockaddr_in6 *six = (const void *)address;
  return IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr) || IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
}

treadle_status treadle_store_address_find(const char *text, const treadle_store_address *address,
                                          struct addrinfo **found_p) {
  int error = treadle_wire_find(address->host, address->port, false, found_p);
  if (error != 0)
    return treadle_fail(TREADLE_SYSTEM, "store: the host of '%.300s' is not known here: %s",
                        treadle_text_shown(text), gai_strerror(error));
  for (const struct addrinfo *one = *found_p; one; one = one->ai_next)
    if ((one->ai_family != AF_INET && one->ai_family != AF_INET6) || is_everywhere(one->ai_addr)) {
      freeaddrinfo(*found_p);
      *found_p = NULL;
      return wrong(text, "is not one address of one machine");
    }
  return TREADLE_OK;
}
