/* A switch in another group, after a rank of the old one died: step by step as treadle_switch_create does, with the memory
 * that this rank has. */
#include "switch/switch.h"

#include "base/argument.h"
#include "switch/room.h"

#include <string.h>

/* The plan that the new group has agreed on must be that on which the memory was made. */
static treadle_status check_same(const treadle_plan *plan, const treadle_plan *old) {
  if (plan->digest == old->digest && plan->waves == old->waves &&
      plan->physical_pages == old->physical_pages)
    return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "rejoin: rank %d was made for another plan (%d waves, %lld pages; the group has %d waves, %lld "
      "pages)",
      (int)old->rank, (int)old->waves, (long long)old->physical_pages, (int)plan->waves,
      (long long)plan->physical_pages);
}

static treadle_status fit_in(treadle_switch *sw, const treadle_plan *old) {
  treadle_status status = check_same(sw->carry.plan, old);
  if (status == TREADLE_OK && sw->agreed.returns && sw->mode == TREADLE_INFER)
    status = treadle_arrow_return(sw);
  return status;
}

static treadle_status join(treadle_switch *sw, treadle_group *group) {
  treadle_status status = TREADLE_OK;
  double group_timeout = group->timeout_seconds;
  treadle_plan *old = sw->carry.plan;
  const treadle_terms terms = sw->terms; /* which the ranks of the new group may change */
  const treadle_carry_terms carried = sw->carry.terms;
  const bool any[2] = {sw->carry.own.any[0], sw->carry.own.any[1]};
  treadle_demand demand;
  if (group->rank != sw->group->rank || group->size != sw->group->size)
    return treadle_fail(TREADLE_REFUSED, "rejoin: rank %d of %d cannot be rank %d of %d", sw->group->rank,
                        sw->group->size, group->rank, group->size);
  if (sw->mode == TREADLE_LOST) return treadle_fail(TREADLE_STATE, "rejoin: the weights are lost");
  treadle_switch_unshare(sw);
  group->timeout_seconds = sw->terms.timeout_seconds;
  sw->group = group;
  treadle_switch_carry_begin(sw);
  sw->carry.plan = NULL;
  TRY(treadle_group_agree(group, TREADLE_OK)); /* step by step as treadle_switch_create does */
  TRY(treadle_switch_plan_together(sw));
  treadle_switch_bound_pool(sw);
  TRY(treadle_group_agree(group, TREADLE_OK));
  TRY(treadle_room_limits(group, &sw->device, &sw->terms.options, &demand));
  demand = treadle_room_exact(sw, demand);
  TRY(treadle_room_ask(group, &demand));
  TRY(treadle_group_agree(group, fit_in(sw, old)));
  TRY(treadle_switch_share(sw));
out:
  sw->apart = status != TREADLE_OK;
  if (sw->apart) {
    treadle_switch_unshare(sw); /* lists are of the plan that goes */
    sw->terms = terms;
    sw->carry.terms = carried;
    memcpy(sw->carry.own.any, any, sizeof any);
  }
  treadle_plan_destroy(sw->apart ? sw->carry.plan : old);
  if (sw->apart) sw->carry.plan = old;
  group->timeout_seconds = group_timeout;
  return status;
}

treadle_status treadle_switch_rejoin(treadle_switch *sw, treadle_group *group) {
  TREADLE_NEED(sw);
  TREADLE_NEED(group);
  treadle_status status = treadle_helm_take(sw->helm, "rejoin");
  if (status != TREADLE_OK) return status;
  status = join(sw, group);
  treadle_holds_settle(sw);
  treadle_helm_leave(sw->helm);
  return status;
}
