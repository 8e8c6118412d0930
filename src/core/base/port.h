/* Ports of TCP. */
#ifndef TREADLE_BASE_PORT_H
#define TREADLE_BASE_PORT_H

#include "base/status.h"

/* A port of the host, which is as numbers, that nobody has now. */
treadle_status treadle_port_find(const char *host, int *port_p);

#endif
