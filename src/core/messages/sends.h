/* What ranks of other nodes pull from a rank's windows, found by that rank alone.
 *
 * Readers choose their sources by their own numbers and nodes; a sender makes, of each of them, the ops that read its from-window, and the
 * inputs of their block rows (far_inputs.h). So both sides know what travels, without a word. In a wave what one rank sends another goes in one
 * order (treadle_send_order): ops that copy, then those that the source makes, then inputs. A reader's own ops and inputs, with this source
 * and in this wave, are the same ones, but for `to`, which its arrangement moves. */
#ifndef TREADLE_MESSAGES_SENDS_H
#define TREADLE_MESSAGES_SENDS_H

#include "plan/plan.h"

typedef struct treadle_send {
  treadle_op op; /* of the reader; `from` is where it lies in this rank's window */
  int32_t reader;
  bool input; /* of a block row, to its area */
} treadle_send;

/* Less than 0: x goes before y. What is 0 is the same bytes. Copies go by `from`, in the sender's window as it is arranged; what is made by
 * tensor and row of blocks, its codes before its scales. */
int treadle_send_order(const treadle_op *x, bool x_input, const treadle_op *y, bool y_input);

/* A zeroed struct sends nothing. */
typedef struct treadle_sends {
  TREADLE_ARRAY(treadle_send) list; /* by wave, reader, from */
  int32_t *wave_first;              /* [waves + 1] */
} treadle_sends;

/* Of the rank of a plan, in one direction. Nothing is sent on one node. The cost is that of what is sent, and of a hash for each reader and
 * tensor; of tensors with fp8 blocks that of the ranks that read. */
treadle_status treadle_sends_make(const treadle_plan *plan, bool back, treadle_sends *sends);
void treadle_sends_release(treadle_sends *sends);

#endif
