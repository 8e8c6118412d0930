/* The ranks of a run, and who watches it. */
#ifndef TREADLE_RL_CREW_H
#define TREADLE_RL_CREW_H

#include "group/group.h"
#include "run/observe.h"

#include <stdint.h>

/* Whoever has one knows which rank it is, can meet the others, and can tell the person who runs it. */
typedef struct treadle_rl_crew {
  treadle_group *group; /* NULL: one rank */
  int rank, ranks;
  bool leads;       /* goes through the steps, and has the run's figures and folders */
  bool has_samples; /* and data and rewards: who leads, or the first rank of the policy's pool */
  /* How many work in these roles: all, or those of a pool. */
  int policy_ranks, critic_ranks, reward_ranks, reference_ranks;
  /* Of policy_ranks, where Rollout has a pool of its own: the last ones generate, and the others train. 0: all do both. */
  int rollout_ranks;
  treadle_observer observer;
} treadle_rl_crew;

/* All ranks of a group do everything, and rank 0 leads them. */
treadle_rl_crew treadle_rl_crew_of(treadle_group *group, const treadle_observer *observer);

/* All ranks fail if one has. Collective. */
treadle_status treadle_rl_agree(const treadle_rl_crew *crew, treadle_status status);
/* Gives all ranks the number of rank 0. Collective. */
treadle_status treadle_rl_tell(const treadle_rl_crew *crew, int64_t *number);
/* Gives all ranks the figures of rank 0, at most as long as what a rank says at a meeting. Collective. */
treadle_status treadle_rl_share(const treadle_rl_crew *crew, void *figures, size_t bytes);

/* Tells the person who runs it that something is not as it should be; "" is nothing. Who leads does. */
void treadle_rl_warn(const treadle_rl_crew *crew, const char *line);
/* Tells who asks what takes long now; and what a person should know. Who leads does. */
void treadle_rl_doing(const treadle_rl_crew *crew, const char *what);
void treadle_rl_note(const treadle_rl_crew *crew, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
