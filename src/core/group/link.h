/* Links: how a rank reads what the others have published. One row for each way:
 *
 *   self            nobody else is there
 *   threads         memory at the addresses of its owner, for tests
 *   shared memory   descriptors are handed around, and mapped read only
 *
 * Where ranks are on several nodes each row serves one of them: memory of the others is not there, and what it has comes as messages (net/net.h). */
#ifndef TREADLE_GROUP_LINK_H
#define TREADLE_GROUP_LINK_H

#include "memory/device.h"
#include "group/group.h"

/* What this rank gives: bytes at `base`, and a descriptor of them (-1: none) as `device` exports it. */
typedef struct treadle_offer {
  const treadle_device *device;
  int descriptor;
  const void *base;
  size_t bytes;
} treadle_offer;

/* What a rank has published, as another one has it. */
typedef struct treadle_peer_memory {
  const void *base; /* where it is read; NULL: there is none, or it is on another node */
  size_t bytes;
  uint64_t key;  /* the row's own */
  void *mapping; /* the row's own: what is unmapped in the end */
} treadle_peer_memory;

struct treadle_link {
  const char *name;
  /* Every rank gives some memory, or none (0 bytes), and gets what all have given; its own as it is. Collective. On failure
   * `all` is empty, and where others may have failed with it, the group is left. */
  treadle_status (*publish)(treadle_group *group, const treadle_offer *mine, treadle_peer_memory *all);
  /* All that was published as `device`'s. Local. */
  void (*withdraw)(treadle_group *group, const treadle_device *device, treadle_peer_memory *all);
};

#endif
