/* What this rank takes of the rows of a call (loop_taken.c), and the methods of the critic (loop_worker_critic.c). */
#ifndef TREADLE_RL_TAKEN_H
#define TREADLE_RL_TAKEN_H

#include "control/worker_rows.h"
#include "treadle_engine.h"

typedef struct treadle_rl_rows_share {
  treadle_worker_share share;
  treadle_batch *out; /* what is found of its rows */
  treadle_forward_options forward;
} treadle_rl_rows_share;

/* Rows of this rank's data parallel coordinate, which lie in the message; `forward` stays as it is. Ended by release, whatever is returned. */
treadle_status treadle_rl_take_rows(const treadle_worker_group *group, treadle_message *in,
                                    treadle_rl_rows_share *taken);
/* What was found. */
void treadle_rl_put_rows_share(treadle_message *out, const treadle_rl_rows_share *taken);
void treadle_rl_rows_share_release(treadle_rl_rows_share *taken);

/* How the ranks of a role beside the policy fared in a method. Where Rollout has a pool of its own, its ranks wait for them. Collective in the team. */
treadle_status treadle_rl_settle_beside(void *worker, treadle_status status);

/* Methods: `worker` is the run. */
treadle_status treadle_rl_compute_values(void *worker, treadle_message *in, treadle_message *out);
treadle_status treadle_rl_update_critic_rows(void *worker, treadle_message *in, treadle_message *out);
treadle_status treadle_rl_rest_critic(void *worker, treadle_message *in, treadle_message *out);

#endif
