/* What each arrow (change of mode) does, and what a failure leaves behind.
 *
 * To INFER, from TRAIN or HOST:
 *      (from HOST: params come) -> enter -> optimizer state and gradients leave -> waves, and the twin before them
 *      -> coverage -> commit -> work memory, bind, an epoch of its own -> KV cache
 * From INFER, to TRAIN or FORWARD:
 *      enter -> where a rank has given out handles: no process holds a window, on all ranks
 *      -> unbind, work memory and KV cache go -> waves of the reverse plan (keep=infer) -> commit
 *      -> params from the twin (keep=host) -> to TRAIN: gradients and optimizer state come
 * The next version, in INFER, where params stay:
 *      enter -> no process holds a window -> unbind -> waves -> coverage -> commit -> bind, an epoch of its own; the KV cache stays
 *      with double_infer: enter -> waves, to the window's other pages -> coverage, on all ranks -> unbind -> commit -> window, bind
 * All others are local copies between the twins and the pool; from INFER, too, when a new group is joined that
 * is in TRAIN (keep=host).
 *
 * A failure on the way to INFER: with a twin of params the old mode is restored on all ranks. Without one the old mode stays if
 * no rank had begun to write on pages of params; else the mode is LOST, on all ranks. A failure on the way back:
 * the mode stays INFER, unless the reverse plan had begun to write on its pages. A failure of an update: the mode stays
 * INFER, with the old version where no rank had begun to write or all have kept what they wrote over (undo.c), and else with none (stale); with
 * double_infer always with the old one, which stays bound unless engines were being unbound. Own infer tensors that are kept are given back after
 * either failure. */
#include "switch/switch.h"

#include "base/clock.h"

#include <assert.h>
#include <stdio.h>

/* ---- Pieces ---- */

/* Gradients and optimizer state come: those that leave for INFER, those that stay, or all. */
static treadle_status come(treadle_switch *sw, bool leaving, bool staying) {
  treadle_status status = TREADLE_OK;
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (sw->terms.leaves[c] ? !leaving : !staying) continue;
    TRY(treadle_twins_load(&sw->twins, (treadle_class)c));
    TRY(treadle_caller_memory_back(sw, (treadle_class)c));
  }
out:
  return status;
}

static treadle_status go(treadle_switch *sw, bool leaving, bool staying) {
  treadle_status status = TREADLE_OK;
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (sw->terms.leaves[c] ? !leaving : !staying) continue;
    TRY(treadle_caller_memory_out(sw, (treadle_class)c));
    TRY(treadle_twins_offload(&sw->twins, (treadle_class)c));
  }
out:
  return status;
}

static treadle_status say(treadle_status status, const char *words, treadle_mode mode) {
  char message[TREADLE_GROUP_MESSAGE];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  return treadle_fail(status, words, message, treadle_mode_text(mode));
}

static const char stands[] = "%s; the %s weights stand as they were";
static const char lost[] = "%s; memory of the %s weights was already used again: the weights are lost";

static treadle_status lose(treadle_switch *sw, treadle_status status, treadle_mode old) {
  sw->mode = TREADLE_LOST;
  treadle_books_leave_all(&sw->books);
  return say(status, lost, old);
}

/* The device has failed where nothing can be undone any more: what lay on it is lost, to this rank, and so to the others at the next epoch. */
static treadle_status lose_device(treadle_switch *sw, treadle_status status) {
  sw->mode = TREADLE_LOST;
  treadle_books_leave_all(&sw->books);
  return treadle_fail_in(status, "rank %d: the weights on its device are lost: ",
                         treadle_group_called(sw->group, sw->group->rank));
}

treadle_status treadle_arrow_settle(treadle_switch *sw, treadle_status status) {
  char before[TREADLE_GROUP_MESSAGE], now[TREADLE_GROUP_MESSAGE];
  snprintf(before, sizeof before, "%s", treadle_error_message());
  const treadle_status settled = treadle_guard_settle(sw);
  if (settled == TREADLE_OK) return status;
  if (status != TREADLE_OK && sw->mode == TREADLE_LOST) return treadle_fail(status, "%s", before);
  snprintf(now, sizeof now, "%s", treadle_error_message());
  (void)treadle_switch_unbind_engine(sw);
  treadle_fail(settled, "%s", now);
  return lose_device(sw, settled);
}

/* ---- To INFER ---- */

static treadle_status come_back(treadle_switch *sw, treadle_mode old) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_twins_load(&sw->twins, TREADLE_PARAMS));
  treadle_books_leave(&sw->books, TREADLE_INFER_PARAMS);
  TRY(come(sw, true, false));
  treadle_books_train_work(&sw->books, treadle_work_of_mode(&sw->terms.options, old));
out:
  return status;
}

/* Back in mode `old`. */
static treadle_status restore(treadle_switch *sw, treadle_status status, treadle_mode old) {
  char message[TREADLE_GROUP_MESSAGE];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  treadle_net_delta_forget(&sw->carry);
  if (old == TREADLE_HOST) {
    treadle_books_leave_all(&sw->books);
  } else {
    const treadle_status back = come_back(sw, old);
    if (back != TREADLE_OK) return lose_device(sw, back);
  }
  sw->mode = old;
  return treadle_fail(status, stands, message, treadle_mode_text(old));
}

/* Params are in their window, before anybody may read them there. */
static treadle_status make_ready(treadle_switch *sw) {
  treadle_status status = sw->device.ops->renew(&sw->device);
  if (status == TREADLE_OK) status = treadle_filled_check(sw->filled, "switch to infer");
  if (status == TREADLE_OK) status = treadle_caller_memory_check(sw);
  if (status != TREADLE_OK) return status;
  return sw->mode == TREADLE_HOST ? treadle_twins_load(&sw->twins, TREADLE_PARAMS)
                                  : treadle_caller_memory_out(sw, TREADLE_PARAMS);
}

static treadle_status move_to_infer(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_epoch_enter(sw, TREADLE_INFER, make_ready(sw)));
  treadle_books_leave(&sw->books, TREADLE_TRAIN_WORK);
  TRY(treadle_switch_point(sw, TREADLE_AT_OFFLOAD, -1));
  if (sw->mode == TREADLE_HOST) {
    TRY(come(sw, false, true));
  } else {
    treadle_twins_begin(&sw->twins);
    TRY(go(sw, true, false));
  }
  treadle_books_staging(&sw->books, true);
  TRY(treadle_undo_keep(&sw->carry, false, &sw->undo));
  TRY(treadle_switch_run(sw, TREADLE_INFER));
  if (sw->terms.copied[TREADLE_PARAMS]) TRY(treadle_twins_fill_all(&sw->twins));
  TRY(treadle_switch_point(sw, TREADLE_AT_COMMIT, -1));
  TRY(treadle_epoch_commit(&sw->carry, "the proof that all bytes were written"));
out:
  return status;
}

/* The engine; all ranks have committed the weights. Where a twin has the old ones, a failure undoes it all. */
static treadle_status bind(treadle_switch *sw, treadle_mode old) {
  treadle_status status = TREADLE_OK;
  bool reclaimed;
  treadle_books_take(&sw->books, TREADLE_WORK);
  if (!sw->engine.binds) return TREADLE_OK;
  treadle_status shown = treadle_double_show(sw);
  TRY(treadle_epoch_next(&sw->carry));
  TRY(shown);
  TRY(treadle_switch_bind_engine(sw));
  TRY(treadle_epoch_commit(&sw->carry, "the bind of the engines"));
out:
  if (status != TREADLE_OK) status = treadle_epoch_fail(&sw->carry, status, &reclaimed);
  sw->engine.bound = status == TREADLE_OK;
  if (status == TREADLE_OK) return status;
  char message[TREADLE_GROUP_MESSAGE];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  (void)treadle_switch_unbind_engine(sw);
  treadle_books_leave(&sw->books, TREADLE_WORK);
  treadle_fail(status, "%s", message);
  if (old == TREADLE_HOST || (old == TREADLE_TRAIN && !treadle_switch_rebuilds(sw))) {
    const treadle_status back = treadle_undo_give_back(&sw->carry, &sw->undo);
    return back == TREADLE_OK ? restore(sw, status, old) : lose_device(sw, back);
  }
  return say(status, "%s; the mode is %s, and nothing is bound", TREADLE_INFER);
}

static treadle_status check_committed(const treadle_group *group) {
  if (treadle_outcome_committed(group, treadle_epoch_now(group))) return TREADLE_OK;
  return treadle_fail(TREADLE_DIFFERENT,
                      "rank %d: commit: a switch whose outcome does not say committed would be bound",
                      treadle_group_called(group, group->rank));
}

treadle_status treadle_arrow_to_infer(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_mode old = sw->mode;
  double begin = treadle_clock_seconds();
  bool reclaimed;
  TRY(move_to_infer(sw));
  TRY(check_committed(sw->group));
out:
  if (status != TREADLE_OK) status = treadle_epoch_fail(&sw->carry, status, &reclaimed);
  treadle_books_staging(&sw->books, false);
  if (status != TREADLE_OK) {
    const treadle_status back = treadle_undo_give_back(&sw->carry, &sw->undo);
    if (back != TREADLE_OK) return lose_device(sw, back);
    if (old == TREADLE_TRAIN && treadle_switch_rebuilds(sw) && reclaimed) return lose(sw, status, old);
    return restore(sw, status, old);
  }
  (void)treadle_switch_point(sw, TREADLE_AT_COMMITTED, -1);
  sw->mode = TREADLE_INFER;
  sw->version++;
  sw->stale = false;
  treadle_net_delta_commit(&sw->carry);
  if (sw->terms.leaves[TREADLE_PARAMS])
    treadle_books_leave(&sw->books, TREADLE_PARAMS);
  else if (old == TREADLE_HOST && (status = treadle_caller_memory_back(sw, TREADLE_PARAMS)) != TREADLE_OK)
    return lose_device(sw, status);
  treadle_books_take(&sw->books, TREADLE_INFER_PARAMS);
  status = bind(sw, old);
  treadle_undo_forget(&sw->undo);
  sw->stats.seconds = treadle_clock_seconds() - begin;
  if (sw->mode != TREADLE_INFER) return status;
  (void)treadle_switch_point(sw, TREADLE_AT_KV, -1);
  treadle_books_take(&sw->books, TREADLE_KV);
  return status;
}

treadle_status treadle_arrow_bind(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  bool reclaimed;
  TRY(treadle_epoch_enter(sw, TREADLE_INFER, TREADLE_OK));
  TRY(treadle_epoch_commit(&sw->carry, "the bind of the engines"));
out:
  if (status != TREADLE_OK) status = treadle_epoch_fail(&sw->carry, status, &reclaimed);
  if (status != TREADLE_OK) return say(status, "%s; the mode is %s, and nothing is bound", TREADLE_INFER);
  return bind(sw, TREADLE_INFER);
}

/* ---- From INFER ---- */

/* No process holds the infer window of any rank. One whose window is held fails after the time limit; the others give it a
 * little longer, so that they hear of it by its message. */
static treadle_status end_holds(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  uint64_t epoch = treadle_epoch_now(group);
  if (!treadle_epoch_has_handles(group)) return TREADLE_OK;
  double grace = group->timeout_seconds / 10 > 1 ? group->timeout_seconds / 10 : 1;
  double deadline = treadle_group_deadline(group) + grace;
  TRY(treadle_holds_end(sw, epoch));
  treadle_word_say(group, TREADLE_WORD_FREE, epoch);
  for (int rank = 0; rank < group->size; rank++)
    TRY(treadle_word_wait(&sw->carry, rank, TREADLE_WORD_FREE, epoch, epoch, deadline,
                          "the end of holds on windows"));
out:
  return status;
}

static treadle_status move_from_infer(treadle_switch *sw, treadle_mode aim) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_epoch_enter(sw, aim, treadle_caller_memory_check(sw)));
  TRY(end_holds(sw));
  TRY(treadle_switch_unbind_engine(sw));
  treadle_books_leave(&sw->books, TREADLE_WORK);
  treadle_books_leave(&sw->books, TREADLE_KV);
  if (treadle_switch_rebuilds(sw)) TRY(treadle_switch_run(sw, TREADLE_TRAIN));
  TRY(treadle_switch_point(sw, TREADLE_AT_COMMIT, -1));
  TRY(treadle_epoch_commit(&sw->carry, "the proof that all bytes were written"));
out:
  return status;
}

/* INFER stands. Some engines may be unbound by now: all count as unbound, until the ranks bind them again together. */
static treadle_status stay_in_infer(treadle_switch *sw, treadle_status status) {
  if (sw->terms.leaves[TREADLE_PARAMS]) treadle_books_leave(&sw->books, TREADLE_PARAMS);
  treadle_books_take(&sw->books, TREADLE_INFER_PARAMS);
  treadle_books_take(&sw->books, TREADLE_WORK);
  treadle_books_take(&sw->books, TREADLE_KV);
  sw->engine.bound = false;
  return say(status, stands, TREADLE_INFER);
}

/* INFER is over. */
static treadle_status arrive(treadle_switch *sw, treadle_mode aim) {
  treadle_status status = TREADLE_OK;
  treadle_net_delta_forget(&sw->carry);
  sw->mode = aim;
  sw->stale = false;
  if (sw->terms.copied[TREADLE_PARAMS])
    TRY(treadle_twins_load(&sw->twins, TREADLE_PARAMS));
  else
    treadle_books_take(&sw->books, TREADLE_PARAMS);
  treadle_books_leave(&sw->books, TREADLE_INFER_PARAMS);
  TRY(sw->terms.leaves[TREADLE_PARAMS]
          ? treadle_caller_memory_back(sw, TREADLE_PARAMS)
          : treadle_caller_memory_out(sw, TREADLE_PARAMS)); /* the trainer may have gone on meanwhile */
  if (aim == TREADLE_TRAIN) TRY(come(sw, true, false));
  treadle_books_train_work(&sw->books, treadle_work_of_mode(&sw->terms.options, aim));
out:
  return status == TREADLE_OK ? status : lose_device(sw, status);
}

treadle_status treadle_arrow_from_infer(treadle_switch *sw, treadle_mode aim) {
  double begin = treadle_clock_seconds();
  bool reclaimed = false;
  treadle_status status = move_from_infer(sw, aim);
  if (status != TREADLE_OK) status = treadle_epoch_fail(&sw->carry, status, &reclaimed);
  if (status != TREADLE_OK && treadle_switch_rebuilds(sw) && reclaimed)
    return lose(sw, status, TREADLE_INFER);
  if (status != TREADLE_OK) return stay_in_infer(sw, status);
  (void)treadle_switch_point(sw, TREADLE_AT_LOAD, -1);
  status = arrive(sw, aim);
  sw->stats.seconds = treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_arrow_return(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  assert(sw->mode == TREADLE_INFER && !treadle_switch_rebuilds(sw));
  TRY(treadle_caller_memory_check(sw));
  TRY(treadle_holds_end(sw, 0));
  TRY(treadle_switch_unbind_engine(sw));
  treadle_books_leave(&sw->books, TREADLE_WORK);
  treadle_books_leave(&sw->books, TREADLE_KV);
  TRY(arrive(sw, TREADLE_TRAIN));
  TRY(treadle_arrow_settle(sw, TREADLE_OK));
  treadle_books_tell(&sw->books);
out:
  return status;
}

/* ---- The next version ---- */

static treadle_status leave_engine(treadle_switch *sw) {
  sw->engine.since = treadle_clock_seconds();
  return treadle_switch_unbind_engine(sw);
}

static treadle_status move_to_next(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_epoch_enter(sw, TREADLE_AIM_UPDATE, make_ready(sw)));
  TRY(end_holds(sw));
  TRY(leave_engine(sw));
  sw->stale = true;
  treadle_books_staging(&sw->books, true);
  TRY(treadle_undo_keep(&sw->carry, true, &sw->undo));
  TRY(treadle_epoch_reclaim(&sw->carry, treadle_epoch_now(sw->group)));
  treadle_books_leave(&sw->books, TREADLE_INFER_PARAMS); /* its pages are taken again wave by wave */
  TRY(treadle_switch_run(sw, TREADLE_INFER));
  TRY(treadle_switch_point(sw, TREADLE_AT_COMMIT, -1));
  TRY(treadle_epoch_commit(&sw->carry, "the proof that all bytes were written"));
  TRY(check_committed(sw->group));
out:
  return status;
}

/* The same beside the old version, which the engine has until all ranks have proved the next one. */
static treadle_status move_beside(treadle_switch *sw) {
  treadle_status status = TREADLE_OK, ready = make_ready(sw);
  if (ready == TREADLE_OK) ready = treadle_double_ready(&sw->space, &sw->device);
  treadle_double_turn(sw);
  TRY(treadle_epoch_enter(sw, TREADLE_AIM_UPDATE, ready));
  treadle_books_staging(&sw->books, true);
  TRY(treadle_switch_run(sw, TREADLE_INFER));
  TRY(treadle_switch_point(sw, TREADLE_AT_COMMIT, -1));
  TRY(treadle_epoch_prove(&sw->carry, "the proof that all bytes were written"));
  TRY(treadle_epoch_reclaim(&sw->carry, treadle_epoch_now(sw->group)));
  TRY(leave_engine(sw));
  TRY(treadle_epoch_commit(&sw->carry, "the unbind of the engines"));
  TRY(check_committed(sw->group));
out:
  return status;
}

static const char spoiled[] =
    "%s; the mode is %s, and its window holds no version until an update succeeds";

/* Some ranks have written in their infer windows. */
static treadle_status spoil(treadle_switch *sw, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  (void)treadle_switch_unbind_engine(sw);
  treadle_books_leave(&sw->books, TREADLE_WORK);
  treadle_books_take(&sw->books, TREADLE_INFER_PARAMS);
  sw->stale = true;
  treadle_fail(status, "%s", message);
  return say(status, spoiled, TREADLE_INFER);
}

/* The old version has never been written. begun: some engines may be unbound; else all are as they were. */
static treadle_status turn_back(treadle_switch *sw, treadle_status status, bool begun) {
  treadle_double_turn(sw);
  treadle_books_leave_other(&sw->books);
  return begun ? stay_in_infer(sw, status) : say(status, stands, TREADLE_INFER);
}

treadle_status treadle_arrow_update(treadle_switch *sw) {
  double begin = treadle_clock_seconds();
  const bool beside = sw->terms.options.double_infer;
  bool begun = false, stale = sw->stale;
  treadle_status status = beside ? move_beside(sw) : move_to_next(sw);
  if (status != TREADLE_OK) status = treadle_epoch_fail(&sw->carry, status, &begun);
  treadle_books_staging(&sw->books, false);
  if (status != TREADLE_OK) {
    if (beside) return turn_back(sw, status, begun);
    const treadle_status back = treadle_undo_give_back(&sw->carry, &sw->undo);
    if (back != TREADLE_OK) return lose_device(sw, back);
    /* After an earlier failure there is no version to stand. */
    if ((begun && !sw->agreed.undoes) || stale) return spoil(sw, status);
    sw->stale = false;
    return stay_in_infer(sw, status);
  }
  (void)treadle_switch_point(sw, TREADLE_AT_COMMITTED, -1);
  treadle_undo_forget(&sw->undo);
  sw->behind = beside;
  sw->version++;
  sw->stale = false;
  if (beside) treadle_books_leave_other(&sw->books);
  treadle_net_delta_commit(&sw->carry);
  treadle_books_take(&sw->books, TREADLE_INFER_PARAMS);
  status = bind(sw, TREADLE_INFER);
  const double now = treadle_clock_seconds();
  sw->stats.seconds = now - begin;
  sw->stats.unbound_seconds = now - sw->engine.since;
  return status;
}

/* ---- The others: local ---- */

/* All that is on the device goes; a failure on the way leaves the old mode. */
static treadle_status leave_for_host(treadle_switch *sw, treadle_mode old) {
  treadle_status status = TREADLE_OK;
  char message[TREADLE_GROUP_MESSAGE];
  treadle_twins_begin(&sw->twins);
  if (old == TREADLE_TRAIN) TRY(treadle_caller_memory_out(sw, TREADLE_PARAMS));
  TRY(go(sw, old == TREADLE_TRAIN, true));
  TRY(treadle_twins_offload(&sw->twins, TREADLE_PARAMS));
out:
  if (status == TREADLE_OK) return TREADLE_OK;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  const treadle_status back = come(sw, old == TREADLE_TRAIN, true);
  return back == TREADLE_OK ? treadle_fail(status, stands, message, treadle_mode_text(old))
                            : lose_device(sw, back);
}

/* From the twins, or what has stayed. */
static treadle_status come_from_twins(treadle_switch *sw, treadle_mode old, treadle_mode aim) {
  treadle_status status = TREADLE_OK;
  if (old == TREADLE_HOST) {
    TRY(treadle_twins_load(&sw->twins, TREADLE_PARAMS));
    TRY(treadle_caller_memory_back(sw, TREADLE_PARAMS));
  }
  TRY(come(sw, aim == TREADLE_TRAIN, old == TREADLE_HOST));
out:
  return status == TREADLE_OK ? status : lose_device(sw, status);
}

treadle_status treadle_arrow_local(treadle_switch *sw, treadle_mode aim) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds();
  treadle_mode old = sw->mode;
  TRY(sw->device.ops->renew(&sw->device));
  if (aim == TREADLE_FORWARD) TRY(treadle_filled_check(sw->filled, "switch to forward"));
  TRY(treadle_caller_memory_check(sw));
  if ((status = treadle_reference_leave(sw)) != TREADLE_OK) return lose_device(sw, status);
  TRY(aim == TREADLE_HOST ? leave_for_host(sw, old) : come_from_twins(sw, old, aim));
  treadle_books_train_work(&sw->books, treadle_work_of_mode(&sw->terms.options, aim));
  sw->mode = aim;
  sw->stats.seconds = treadle_clock_seconds() - begin;
out:
  return status;
}
