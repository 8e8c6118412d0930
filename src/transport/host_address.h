/* The address of this machine by which others may reach it. */
#ifndef TREADLE_TRANSPORT_HOST_ADDRESS_H
#define TREADLE_TRANSPORT_HOST_ADDRESS_H

#include "base/status.h"

/* The first one of IPv4, else of IPv6, on an interface that is up and leads outside; where there is none, that of the loopback. As numbers,
 * host [room]. TREADLE_SYSTEM: there is none at all. */
treadle_status treadle_host_address_find(char *host, size_t room);

#endif
