/* A net of the ranks of a group, for tests. */
#ifndef TREADLE_TESTS_NETS_H
#define TREADLE_TESTS_NETS_H

#include "group/ranks.h"
#include "net/net.h"

/* Seconds without any progress after which something has hung, and does not only wait for a processor of a busy machine. The groups of these
 * tests have this limit, and so has all that must come. */
enum { NETS_PATIENCE = 300 };

typedef struct nets_rank {
  const treadle_net_ops *ops;
  void *net;
  int rank, ranks;
  treadle_group *group;
} nets_rank;

/* Opens, gives all the address, connects with all. Collective. The name is for the row; host and context as in the options. */
treadle_status nets_open(treadle_group *group, const char *name, const char *host, void *context,
                         nets_rank *n);
void nets_close(nets_rank *n);

/* Tests a request until it ends, `seconds` at most (TREADLE_TIMEOUT; then it was cancelled). */
treadle_status nets_finish(nets_rank *n, void *request, double seconds);

/* A barrier whose ranks go on moving their nets: what a send that has ended leaves to be moved, another rank may wait for. */
treadle_status nets_meet(nets_rank *n);

/* One part, to the end. */
treadle_status nets_send(nets_rank *n, int to, uint64_t tag, const void *bytes, size_t count);
treadle_status nets_receive(nets_rank *n, int from, uint64_t tag, void *bytes, size_t count);

/* Random messages between all pairs, both ways, at once and in any order: `rounds` of `count` from each rank to each other one, of at most
 * `most` bytes and several parts; all bits are compared. 0: good. */
int nets_storm(nets_rank *n, uint64_t seed, int rounds, int count, size_t most);

#endif
