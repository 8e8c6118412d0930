/* Where this process is, and where it can be reached: for ranks that something else has brought together once. */
#include "base/argument.h"
#include "base/port.h"
#include "group/node.h"
#include "wire/host_address.h"

#include <stdio.h>
#include <string.h>

enum { HOST = 100 };

static void write_address(treadle_node_address *to) {
  char host[HOST];
  int port;
  to->outside = treadle_host_address_find(host, sizeof host);
  if (treadle_port_find(host, &port) != TREADLE_OK)
    to->outside = false; /* no address, which is nobody's failure who needs none */
  else
    snprintf(to->address, sizeof to->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

treadle_status treadle_machine_address(treadle_node_address *address_p) {
  treadle_status status = TREADLE_OK;
  treadle_node here;
  TREADLE_NEED(address_p);
  *address_p = (treadle_node_address){0};
  TRY(treadle_node_here(&here));
  _Static_assert(sizeof here == sizeof address_p->node, "all of it, without gaps");
  memcpy(address_p->node, &here, sizeof here);
  write_address(address_p);
out:
  return status;
}
