/* Links: how a rank reads what the others have published. One row for each way:
 *
 *   self            nobody else is there
 *   threads         memory at the addresses of its owner, for tests
 *   shared memory   descriptors are handed around, and mapped read only
 *
 * A rank's memory can be read in place, where it was published with an address, or its bytes are fetched. All rows above
 * give addresses of all ranks, and have no fetch; tests/transport/far.c has a row that fetches. */
#ifndef TREADLE_TRANSPORT_LINK_H
#define TREADLE_TRANSPORT_LINK_H

#include "memory/device.h"
#include "transport/group.h"

/* What this rank gives: bytes at `base`, and a descriptor of them (-1: none) as `device` exports it. */
typedef struct treadle_offer {
  const treadle_device *device;
  int descriptor;
  const void *base;
  size_t bytes;
} treadle_offer;

/* What a rank has published, as another one has it. */
typedef struct treadle_peer_memory {
  const void *base; /* where it is read in place; NULL: it is not, or there is none */
  size_t bytes;
  uint64_t key;  /* the row's own */
  void *mapping; /* the row's own: what is unmapped in the end */
} treadle_peer_memory;

/* Is there memory that must be fetched? */
static inline bool treadle_peer_memory_is_far(const treadle_peer_memory *shared) {
  return !shared->base && shared->bytes > 0;
}

/* Bytes of a published memory. */
typedef struct treadle_part {
  int64_t at, bytes;
} treadle_part;

/* Parts that are fetched: they come to lie at `to`, host memory, one behind the other. What it points to stays until it has
 * ended. */
typedef struct treadle_fetch {
  int rank; /* whose memory it is */
  treadle_peer_memory from;
  const treadle_part *parts;
  int32_t count;
  void *to;
  int64_t progress; /* the row's own, 0 at first */
  void *state;      /* the row's own, NULL at first */
} treadle_fetch;

struct treadle_link {
  const char *name;
  /* Every rank gives some memory, or none (0 bytes), and gets what all have given; its own as it is. Collective. On failure
   * `all` is empty, and where others may have failed with it, the group is left. */
  treadle_status (*publish)(treadle_group *group, const treadle_offer *mine, treadle_peer_memory *all);
  /* All that was published as `device`'s. Local. */
  void (*withdraw)(treadle_group *group, const treadle_device *device, treadle_peer_memory *all);

  /* Fetching; NULL where all memory can be read in place. It is started; tested until it is done, or fails; or cancelled:
   * neither `to` nor the other rank's memory is touched any more after either. In between, nothing of the row is lost by not
   * being called. `wait` comes back when a test may say more, `seconds` later at the most. */
  treadle_status (*start)(treadle_group *group, treadle_fetch *fetch);
  treadle_status (*test)(treadle_group *group, treadle_fetch *fetch, bool *done_p);
  void (*wait)(treadle_group *group, treadle_fetch *fetch, double seconds);
  void (*cancel)(treadle_group *group, treadle_fetch *fetch);
};

/* Fetches, and waits as treadle_group_wait does: until `deadline`, while the rank is alive and in the group, and while what is
 * watched (NULL: nothing) allows it. Else it is cancelled. `what` is for messages. */
treadle_status treadle_link_fetch(treadle_group *group, treadle_fetch *fetch, const treadle_watch *watch,
                                  double deadline, const char *what);

#endif
