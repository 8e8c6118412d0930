/* The address of this machine by which others may reach it. */
#ifndef TREADLE_WIRE_HOST_ADDRESS_H
#define TREADLE_WIRE_HOST_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

/* The address from which this machine would send to a far one (that of its default route), of IPv4, else of IPv6; where nothing leads
 * far away, the first one of IPv4, else of IPv6, on an interface that is up and leads outside. Where there is none, that of the
 * loopback, and false: then no other machine reaches this one. Nothing is sent. As numbers, host [room]. */
bool treadle_host_address_find(char *host, size_t room);

#endif
