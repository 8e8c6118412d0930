/* "10.0.0.1:7000", "[fe80::1%eth0]:7000", "host.name:7000": where a store is. */
#ifndef TREADLE_MEET_STORE_ADDRESS_H
#define TREADLE_MEET_STORE_ADDRESS_H

#include "base/status.h"

enum { TREADLE_STORE_ADDRESS = 256 };

typedef struct treadle_store_address {
  char host[TREADLE_STORE_ADDRESS]; /* without brackets */
  char port[6];                     /* 1 to 65535 */
} treadle_store_address;

/* Pure. Refused: no host, no port, no number, an IPv6 address without brackets. */
treadle_status treadle_store_address_read(const char *text, treadle_store_address *address_p);

struct addrinfo;
/* What the system knows of it; the caller ends it with freeaddrinfo. A host name takes as long as the system's resolver takes. Refused:
 * an address of all of a machine (0.0.0.0). TREADLE_SYSTEM: there is no such name. `text` is for messages. */
treadle_status treadle_store_address_find(const char *text, const treadle_store_address *address,
                                          struct addrinfo **found_p);

#endif
