/* Rows of a call that ranks divide. All ranks of a node read them in one message, each its own; to another node those of its ranks are sent, and no
 * others. */
#ifndef TREADLE_CONTROL_WORKER_ROWS_H
#define TREADLE_CONTROL_WORKER_ROWS_H

#include "control/worker_group.h"
#include "treadle_engine.h"

typedef struct treadle_worker_rows {
  treadle_message_rows rows;        /* by their numbers */
  const treadle_row_range *by_rank; /* [ranks] of these numbers */
} treadle_worker_rows;

/* Rank 0: treadle_worker_group_call with a message that ends with rows. Not behind a relay. */
treadle_status treadle_worker_group_call_rows(treadle_worker_group *group, const char *name,
                                              treadle_message *in, const treadle_worker_rows *rows,
                                              treadle_message *out);

/* A method: its rows. */
typedef struct treadle_worker_share {
  treadle_row_range range; /* of the call's rows */
  treadle_batch *mine;     /* lies in the message; NULL before, and after a failure */
} treadle_worker_share;
treadle_status treadle_worker_take_rows(const treadle_worker_group *group, treadle_message *in,
                                        treadle_worker_share *share_p);

#endif
