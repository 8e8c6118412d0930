/* The sharding manager: enter and exit of modes, over the switch, lazily.
 *
 * Not all modes have an arrow from each to each. From FORWARD to INFER the way goes through TRAIN, and from TRAIN to FORWARD through INFER: the
 * weights are the same everywhere, so that is only longer.
 *
 * Where trainer and generator are on ranks of their own, no rank has both to make room for: from the first INFER on the worker stays there, and
 * weights that have changed go to the generator as the next version. */
#include "control/actor.h"

#include "base/argument.h"
#include "base/clock.h"
#include "group/group.h"

#include <stdio.h>

treadle_status treadle_actor_agree(const treadle_actor *actor, treadle_status status) {
  return actor->group ? treadle_group_agree(actor->group, status) : status;
}

static treadle_status take_arrow(treadle_actor *a, treadle_mode to) {
  const double begin = treadle_clock_seconds();
  treadle_status status;
  if (to == TREADLE_INFER) TRY(treadle_actor_gather(a));
  if (to == TREADLE_INFER)
    status = treadle_switch_to_infer(a->sw);
  else
    status = to == TREADLE_FORWARD ? treadle_switch_to_forward(a->sw) : treadle_switch_to_train(a->sw);
  a->moved = true;
  *(to == TREADLE_INFER ? &a->to_infer : &a->to_train) += treadle_clock_seconds() - begin;
  status = treadle_actor_agree(a, status);
out:
  return status;
}

/* The engine of a mode knows its windows: also where it has failed before to take them. */
static treadle_status settle(treadle_actor *a, treadle_mode mode) {
  const double begin = treadle_clock_seconds();
  treadle_status status = TREADLE_OK;
  if (mode == TREADLE_INFER) return treadle_switch_to_infer(a->sw); /* binds what is not bound */
  if (!a->moved) return TREADLE_OK;
  if (a->train.rebind && a->has_weights) status = a->train.rebind(a->train.engine);
  TRY(treadle_actor_agree(a, status));
  a->moved = false;
  a->to_train += treadle_clock_seconds() - begin;
out:
  return status;
}

/* The mode next to `from` on the way to `to`. */
static treadle_mode next_of(treadle_mode from, treadle_mode to) {
  if (from == TREADLE_TRAIN) return TREADLE_INFER;
  if (from == TREADLE_FORWARD) return TREADLE_TRAIN;
  return to;
}

static treadle_status lost(void) {
  return treadle_fail(TREADLE_STATE, "the worker has lost its weights: a switch has failed before");
}

static treadle_status go(treadle_actor *a, treadle_mode to) {
  treadle_status status = TREADLE_OK;
  treadle_mode mode;
  while ((mode = treadle_switch_mode(a->sw)) != to) {
    if (mode == TREADLE_LOST) return lost();
    TRY(take_arrow(a, next_of(mode, to)));
  }
  TRY(settle(a, to));
out:
  return status;
}

/* With trainer and generator on ranks of their own. Whether this succeeds or not: the version says whether weights have moved. */
static treadle_status go_apart(treadle_actor *a, treadle_mode to) {
  const double begin = treadle_clock_seconds();
  const uint64_t version = treadle_switch_version(a->sw);
  const treadle_mode mode = treadle_switch_mode(a->sw);
  treadle_status status;
  if (mode == TREADLE_LOST) return lost();
  if (to != TREADLE_INFER) return TREADLE_OK;
  status = mode == TREADLE_INFER && a->changed
               ? treadle_switch_update(a->sw)
               : treadle_switch_to_infer(a->sw); /* binds what is not bound */
  if (treadle_switch_version(a->sw) != version) a->changed = false;
  a->to_infer += treadle_clock_seconds() - begin;
  return treadle_actor_agree(a, status);
}

static treadle_status enter(treadle_actor *a, treadle_mode mode) {
  return a->apart ? go_apart(a, mode) : go(a, mode);
}

static bool is_worker_mode(treadle_mode mode) {
  return mode == TREADLE_TRAIN || mode == TREADLE_FORWARD || mode == TREADLE_INFER;
}

static treadle_status check_stay(const treadle_actor *a, treadle_mode mode, const char *what) {
  if (!a->stays || a->entered == mode) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "%s needs %s mode, and the worker stays in %s mode: exit that first",
                      what, treadle_mode_text(mode), treadle_mode_text(a->entered));
}

static treadle_status begin(const treadle_actor *a, const char *what, treadle_mode mode,
                            treadle_status status) {
  char name[48];
  const treadle_group_call call = {
      .name = name, .object = a->number, .alike = {{.what = "mode", .hash = (uint64_t)mode}}, .count = 1};
  snprintf(name, sizeof name, "treadle_actor_%s", what);
  return a->group ? treadle_group_agree_on(a->group, status, &call) : status;
}

treadle_status treadle_actor_need(treadle_actor *actor, treadle_mode mode, const char *what,
                                  treadle_status before) {
  treadle_status status;
  TRY(begin(actor, what, mode, before ? before : check_stay(actor, mode, what)));
  TRY(enter(actor, mode));
out:
  return status;
}

treadle_status treadle_actor_need_params(treadle_actor *actor, const char *what, treadle_status before) {
  const treadle_mode mode = actor->stays ? actor->entered : treadle_switch_mode(actor->sw);
  return treadle_actor_need(actor, mode == TREADLE_TRAIN ? TREADLE_TRAIN : TREADLE_FORWARD, what, before);
}

static treadle_status check_enter(const treadle_actor *a, treadle_mode mode) {
  if (!is_worker_mode(mode))
    REFUSE("treadle_actor_enter: %s mode is not one to enter: train, forward and infer are",
           treadle_mode_text(mode));
  if (!a->has_weights)
    return treadle_fail(TREADLE_STATE, "the worker has no weights: load, randomise or resume them first");
  if (a->stays && a->entered != mode)
    return treadle_fail(TREADLE_STATE, "to enter %s mode, the worker must first exit %s mode",
                        treadle_mode_text(mode), treadle_mode_text(a->entered));
  return TREADLE_OK;
}

treadle_status treadle_actor_enter(treadle_actor *actor, treadle_mode mode) {
  treadle_status status;
  TREADLE_NEED(actor);
  TRY(begin(actor, "enter", mode, check_enter(actor, mode)));
  TRY(enter(actor, mode));
  actor->stays = true;
  actor->entered = mode;
out:
  return status;
}

treadle_status treadle_actor_exit(treadle_actor *actor, treadle_mode mode) {
  TREADLE_NEED(actor);
  if (!actor->stays)
    return treadle_fail(TREADLE_STATE,
                        "to exit %s mode, the worker must have entered it: it stays in none, and "
                        "is in %s mode",
                        treadle_mode_text(mode), treadle_mode_text(treadle_switch_mode(actor->sw)));
  if (actor->entered != mode)
    return treadle_fail(TREADLE_STATE,
                        "to exit %s mode, the worker must have entered it: it stays in %s mode",
                        treadle_mode_text(mode), treadle_mode_text(actor->entered));
  actor->stays = false;
  return TREADLE_OK;
}
