/* What ranks of other nodes pull from a rank's windows, found by that rank alone.
 *
 * Readers choose their sources by their own numbers and nodes; a sender makes, of each of them, the ops that read its from-window. So both
 * sides know what travels, without a word. In a wave what one rank sends another goes in the order of op->from, in the sender's window as it is
 * arranged: no two ops have the same. A reader's own ops (treadle_direction), with this source and in this wave, sorted by `from`, are the
 * same ones, but for `to`, which its arrangement moves. */
#ifndef TREADLE_PLAN_SENDS_H
#define TREADLE_PLAN_SENDS_H

#include "plan/plan.h"

typedef struct treadle_send {
  treadle_op op; /* of the reader; `from` is where it lies in this rank's window */
  int32_t reader;
} treadle_send;

/* A zeroed struct sends nothing. */
typedef struct treadle_sends {
  TREADLE_ARRAY(treadle_send) list; /* by wave, reader, from */
  int32_t *wave_first;              /* [waves + 1] */
} treadle_sends;

/* Of the rank of a plan, in one direction. Block rows are left out: what is made of, or to, fp8 blocks. Nothing is sent on one node. The
 * cost is that of what is sent, and of a hash for each reader and tensor. */
treadle_status treadle_sends_make(const treadle_plan *plan, bool back, treadle_sends *sends);
void treadle_sends_release(treadle_sends *sends);

#endif
