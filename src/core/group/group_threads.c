/* Ranks as threads of one process, for tests: the same table, the same control block, and memory at the
 * addresses of its owner, so that a race on a byte is a race on one address and TSan finds it. */
#include "group/link.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

typedef struct common { /* of all groups of one call */
  treadle_control *control;
  treadle_peer_memory *shared; /* [size] */
  atomic_int users;
} common;

static treadle_status threads_publish(treadle_group *group, const treadle_offer *mine,
                                      treadle_peer_memory *all) {
  treadle_status status = TREADLE_OK;
  common *c = group->state;
  c->shared[group->rank] =
      (treadle_peer_memory){.base = mine->base, .bytes = mine->bytes, .number = mine->device->number};
  TRY(treadle_group_barrier(group));
  memcpy(all, c->shared, (size_t)group->size * sizeof *all);
  TRY(treadle_group_barrier(group)); /* all have read: the next call may write */
out:
  return status;
}

static void threads_withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  (void)device;
  memset(all, 0, (size_t)group->size * sizeof *all);
}

static const treadle_link threads_link = {"threads", threads_publish, threads_withdraw};

static bool threads_alive(treadle_group *group, int rank) {
  (void)group, (void)rank;
  return true;
}

static void release(common *c) {
  if (!c || atomic_fetch_sub(&c->users, 1) > 1) return;
  free(c->control);
  treadle_free(c->shared);
  treadle_free(c);
}

static void threads_destroy(treadle_group *group) { release(group->state); }

static const treadle_group_ops threads_ops = {"threads", &threads_link, threads_alive, threads_destroy};

treadle_status treadle_group_threads(int size, double timeout_seconds, treadle_group **groups) {
  treadle_status status = TREADLE_OK;
  memset(groups, 0, (size_t)size * sizeof(*groups));
  common *c = treadle_alloc(sizeof *c);
  if (!c) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  atomic_store(&c->users, 1); /* this function */
  size_t bytes = (treadle_control_bytes(size) + 63) / 64 * 64;
  c->control = aligned_alloc(64, bytes);
  c->shared = treadle_alloc_array((size_t)size, sizeof *c->shared);
  if (!c->control || !c->shared) {
    status = treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
    goto out;
  }
  memset(c->control, 0, bytes);
  for (int rank = 0; rank < size; rank++) {
    TRY(treadle_group_make(&threads_ops, rank, size, timeout_seconds, c->control, c, &groups[rank]));
    atomic_fetch_add(&c->users, 1);
  }
out:
  for (int rank = 0; status != TREADLE_OK && rank < size; rank++) {
    treadle_group_close(groups[rank]);
    groups[rank] = NULL;
  }
  release(c);
  return status;
}
