/* Which network devices a net uses. */
#ifndef TREADLE_NET_NET_DEVICES_H
#define TREADLE_NET_NET_DEVICES_H

#include "net/net.h"

/* "eth0,mlx5_0:1": those of options->devices; without them those that have the address options->host, and what InfiniBand or RoCE ports are
 * behind these; without both "", which is all. Refused: a device that is not there, an address that no device has.
 * system: where the kernel lists devices ("/sys"). */
treadle_status treadle_net_devices(const treadle_net_options *options, const char *system, char *text,
                                   size_t capacity);

#endif
