/* The digest of what a switch has, over all ranks. */

#include "weights/digest.h"
#include "base/alloc.h"
#include "base/argument.h"
#include "switch/switch.h"

#include <string.h>

/* What this rank answers for of the window of the present mode. */
static treadle_status add_present(treadle_switch *sw, int64_t turn, uint64_t *sums) {
  treadle_status status = sw->device.ops->renew(&sw->device);
  if (status != TREADLE_OK) return status;
  if (sw->mode == TREADLE_LOST) return treadle_fail(TREADLE_STATE, "digest: the weights are lost");
  if (sw->mode == TREADLE_HOST)
    return treadle_fail(TREADLE_STATE, "digest: in mode host no weights are on the device");
  if (!treadle_switch_is_valid(sw))
    return treadle_fail(TREADLE_STATE,
                        "digest: an update has failed, and the infer window holds no version");
  treadle_status full = sw->mode == TREADLE_INFER ? TREADLE_OK : treadle_filled_check(sw->filled, "digest");
  if (full) return full;
  treadle_mode side = sw->mode == TREADLE_INFER ? TREADLE_INFER : TREADLE_TRAIN;
  status = treadle_caller_memory_show(sw);
  if (status != TREADLE_OK) return status;
  status = treadle_own_check(sw);
  if (status != TREADLE_OK) return status;
  const treadle_rank_window window = {
      .layout = sw->layouts[side],
      .rank = sw->group->rank,
      .device = &sw->device,
      .window = sw->space.windows[treadle_class_of(side)],
      .arrangement = side == TREADLE_INFER ? &sw->carry.plan->arrangement : NULL,
      .own = sw->carry.own.spans[side],
  };
  return treadle_digest_add(&window, turn, sums);
}

static treadle_status digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums) {
  enum { MOST = TREADLE_GROUP_PAYLOAD / sizeof(uint64_t) };
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  size_t count = (size_t)sw->layouts[0]->model->entry_count;
  double group_timeout = group->timeout_seconds;
  group->timeout_seconds = sw->terms.timeout_seconds;
  memset(sums, 0, count * sizeof *sums);
  TRY(treadle_group_agree(group, add_present(sw, turn, sums)));
  for (size_t at = 0; at < count; at += MOST) {
    size_t part = count - at < MOST ? count - at : MOST;
    TRY(treadle_group_say(group, sums + at, part * sizeof *sums));
    memset(sums + at, 0, part * sizeof *sums);
    for (int rank = 0; rank < group->size; rank++) {
      const uint64_t *said = treadle_group_said(group, rank);
      for (size_t i = 0; i < part; i++) sums[at + i] += said[i];
    }
  }
out:
  group->timeout_seconds = group_timeout;
  return status;
}

treadle_status treadle_switch_digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums) {
  TREADLE_NEED(sw);
  TREADLE_NEED(sums);
  if (turn < 0)
    return treadle_fail(TREADLE_REFUSED,
                        "treadle_switch_digest_entries: turn is %lld, and must be at least 0",
                        (long long)turn);
  treadle_status status = treadle_helm_take(sw->helm, "digest");
  if (status != TREADLE_OK) return status;
  status = digest_entries(sw, turn, sums);
  treadle_helm_leave(sw->helm);
  return status;
}

static treadle_status digest(treadle_switch *sw, uint64_t *digest_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  size_t count = (size_t)sw->layouts[0]->model->entry_count;
  uint64_t *sums = treadle_alloc_array(count + 1, sizeof *sums), mine = 0, sum = 0;
  double group_timeout = group->timeout_seconds;
  group->timeout_seconds = sw->terms.timeout_seconds;
  *digest_p = 0;
  TRY(treadle_group_agree(group, sums ? add_present(sw, 0, sums)
                                      : treadle_fail(TREADLE_NO_MEMORY, "digest: memory is out")));
  for (size_t i = 0; i < count; i++) mine += sums[i];
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < group->size; rank++) sum += *(const uint64_t *)treadle_group_said(group, rank);
  *digest_p = sum;
out:
  treadle_free(sums);
  group->timeout_seconds = group_timeout;
  return status;
}

treadle_status treadle_switch_digest(treadle_switch *sw, uint64_t *digest_p) {
  TREADLE_NEED(sw);
  TREADLE_NEED(digest_p);
  treadle_status status = treadle_helm_take(sw->helm, "digest");
  if (status != TREADLE_OK) return status;
  status = digest(sw, digest_p);
  treadle_helm_leave(sw->helm);
  return status;
}
