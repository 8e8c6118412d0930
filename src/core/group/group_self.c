/* One rank, this process: the smallest group. Its memory is shared with nobody. */
#include "group/link.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <stdlib.h>
#include <string.h>

static treadle_status self_publish(treadle_group *group, const treadle_offer *mine,
                                   treadle_peer_memory *all) {
  (void)group;
  all[0] = (treadle_peer_memory){.base = mine->base, .bytes = mine->bytes, .number = mine->device->number};
  return TREADLE_OK;
}

static void self_withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  (void)group, (void)device;
  all[0] = (treadle_peer_memory){0};
}

static const treadle_link self_link = {"self", self_publish, self_withdraw};

static bool self_alive(treadle_group *group, int rank) {
  (void)group, (void)rank;
  return true;
}

static void self_destroy(treadle_group *group) { free(group->control); }

static const treadle_group_ops self_ops = {"self", &self_link, self_alive, self_destroy};

treadle_status treadle_group_self(treadle_group **group_p) {
  TREADLE_NEED(group_p);
  *group_p = NULL;
  size_t bytes = treadle_control_bytes(1);
  treadle_control *control = aligned_alloc(64, bytes);
  if (!control) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  memset(control, 0, bytes);
  treadle_status status = treadle_group_make(&self_ops, 0, 1, 60, control, NULL, group_p);
  if (status != TREADLE_OK) free(control);
  return status;
}
