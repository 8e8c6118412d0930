/* Nets: messages between ranks of different nodes. The table of their functions is public (treadle_net_ops in treadle_device.h); one row
 * for each way:
 *
 *   tcp        sockets: what there is everywhere (net_tcp.h)
 *   ucx        UCX, found when it is first needed: TCP and InfiniBand (net_ucx.h) */
#ifndef TREADLE_NET_NET_H
#define TREADLE_NET_NET_H

#include "base/status.h"
#include "treadle_device.h"
#include "treadle_tools.h"

/* Tags are below it. */
#define TREADLE_NET_TAGS (UINT64_C(1) << 40)
enum { TREADLE_NET_RANKS = 1 << 23 }; /* of a net, at most */

/* Row number `at`, from 0; NULL behind the last. */
const treadle_net_ops *treadle_net_at(int at);
/* The row of that name. Refused, with the names that there are: another one, and one that this library was built without. */
treadle_status treadle_net_find(const char *name, const treadle_net_ops **ops_p);

/* What rows check in the same way. */
treadle_status treadle_net_check_options(const char *net, const treadle_net_options *options);
/* Of a message: peer, tag, number of parts. *bytes_p: of all parts. */
treadle_status treadle_net_check_message(const treadle_net_ops *ops, int peer, int ranks, uint64_t tag,
                                         const treadle_net_part *parts, int count, size_t *bytes_p);

/* Waits until a descriptor of a net can be read, or this many seconds (an hour at the most). True: it can. */
bool treadle_net_listen(int bell, double seconds);

extern const treadle_net_ops treadle_net_tcp, treadle_net_ucx;
/* Which devices of this machine have addresses. */
void treadle_net_tcp_info(treadle_net_info *info);
/* Looks for UCX: version, devices, or what is lacking. */
void treadle_net_ucx_info(treadle_net_info *info);

#endif
