/* One rank, this process: the smallest group. Its memory is shared with nobody. */
#include "transport/group.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <stdlib.h>
#include <string.h>

static treadle_status self_share(treadle_group *group, int descriptor, const void *base, size_t bytes,
                                 treadle_shared *all) {
  (void)group, (void)descriptor;
  all[0] = (treadle_shared){base, bytes};
  return TREADLE_OK;
}

static void self_unshare(treadle_group *group, treadle_shared *all) {
  (void)group;
  all[0] = (treadle_shared){0};
}

static bool self_alive(treadle_group *group, int rank) {
  (void)group, (void)rank;
  return true;
}

static void self_destroy(treadle_group *group) { free(group->control); }

static const treadle_group_ops self_ops = {"self", self_share, self_unshare, self_alive, self_destroy};

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
