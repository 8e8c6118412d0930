/* Links: how a rank reads what the others have published. One row for each way:
 *
 *   self            nobody else is there
 *   threads         memory at the addresses of its owner, for tests
 *   shared memory   descriptors are handed around, and imported, read only
 *
 * Where ranks are on several nodes each row serves one of them: memory of the others is not there, and what it has comes as messages (net/net.h). */
#ifndef TREADLE_GROUP_LINK_H
#define TREADLE_GROUP_LINK_H

#include "group/group.h"
#include "memory/device.h"

/* What this rank gives: bytes at `base`, which are a pool of `device`. */
typedef struct treadle_offer {
  const treadle_device *device;
  const treadle_pool *pool; /* NULL: nobody of another process reads it */
  const void *base;
  size_t bytes;
  bool whole; /* others read all of it at one address, not by views alone */
} treadle_offer;

/* What a rank has published, as another one has it. */
typedef struct treadle_peer_memory {
  const void *
      base; /* where all of it is read; NULL: there is none, it is on another node, or it is imported for views alone */
  size_t bytes;
  treadle_imported *imported; /* NULL: at the addresses of its owner */
  int number;                 /* of the owner's device, where it is not imported */
} treadle_peer_memory;

/* A window of what a rank of this node has published by `device`; its table was checked. */
static inline treadle_status treadle_peer_view(const treadle_device *device,
                                               const treadle_peer_memory *memory,
                                               const treadle_view_of *window, treadle_paged *paged_p) {
  if (memory->imported) return device->ops->view(memory->imported, window, paged_p);
  const treadle_status status =
      memory->bytes > 0 ? treadle_device_reaches(device, memory->number) : TREADLE_OK;
  *paged_p =
      (treadle_paged){.base = memory->base, .table = window->table, .page_shift = window->page_shift};
  return status;
}

struct treadle_link {
  const char *name;
  /* Every rank gives some memory, or none (0 bytes), and gets what all have given; its own as it is. Collective. On failure
   * `all` is empty, and where others may have failed with it, the group is left. */
  treadle_status (*publish)(treadle_group *group, const treadle_offer *mine, treadle_peer_memory *all);
  /* All that was published as `device`'s. Local. */
  void (*withdraw)(treadle_group *group, const treadle_device *device, treadle_peer_memory *all);
};

#endif
