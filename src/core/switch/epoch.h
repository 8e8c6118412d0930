/* How the ranks enter, commit and fail together (epoch.c). */
#ifndef TREADLE_SWITCH_EPOCH_H
#define TREADLE_SWITCH_EPOCH_H

#include "carry/carry.h"

/* What an arrow aims at beside the modes: the next version, from mode INFER to mode INFER. */
enum { TREADLE_AIM_UPDATE = 8 };

/* "infer", ..., "the next version": after "switch to". */
static inline const char *treadle_aim_text(int aim) {
  return aim == TREADLE_AIM_UPDATE ? "the next version" : treadle_mode_text((treadle_mode)aim);
}

/* The window that an arrow's waves write, where it has waves. */
static inline treadle_side treadle_aim_side(int aim) {
  return aim == TREADLE_INFER || aim == TREADLE_AIM_UPDATE ? TREADLE_SIDE_INFER : TREADLE_SIDE_TRAIN;
}

/* ---- epoch.c ---- */

/* Enters an epoch of an arrow: all ranks are in it, in the same mode, on the same way, and none refuses. ready: what this rank has found already, whose
 * message is the last one. */
treadle_status treadle_epoch_enter(treadle_switch *sw, int aim, treadle_status ready);
/* From here on this rank writes on pages that others count on if the epoch fails: of the old mode, or of the version before an
 * update. Or, where that version has pages of its own, unbinds its engine. */
treadle_status treadle_epoch_reclaim(const treadle_carry *c, uint64_t epoch);
/* One more epoch without meeting: all ranks are known to have committed the last one. */
treadle_status treadle_epoch_next(treadle_carry *c);
/* All ranks have written every byte of the next version beside the present one. What they have done so far can be undone. */
treadle_status treadle_epoch_prove(treadle_carry *c, const char *what);
/* All ranks have done their part of the present epoch, and so the word says committed. */
treadle_status treadle_epoch_commit(treadle_carry *c, const char *what);
/* This rank failed with `status`, or heard that another did. TREADLE_OK: the epoch is committed all the same. Else all
 * living ranks have stopped, and *reclaimed_p is whether any of them had called treadle_epoch_reclaim; it is the same on all. */
treadle_status treadle_epoch_fail(treadle_carry *c, treadle_status status, bool *reclaimed_p);

/* Has any rank given out handles? Asked after entering an epoch, and the same on all ranks. */
bool treadle_epoch_has_handles(const treadle_group *group);

#endif
