/* The address of this machine by which others may reach it. */
#ifndef TREADLE_TRANSPORT_HOST_ADDRESS_H
#define TREADLE_TRANSPORT_HOST_ADDRESS_H

#include <stddef.h>

/* The first one of IPv4, else of IPv6, on an interface that is up and leads outside; where there is none, that of the loopback: then no other
 * machine reaches this one. As numbers, host [room]. */
void treadle_host_address_find(char *host, size_t room);

#endif
