/* Where a run stands, which a checkpoint has of it; and the folders that it owns. */
#ifndef TREADLE_RL_STATE_H
#define TREADLE_RL_STATE_H

#include "io/folder_lock.h"
#include "rl/crew.h"
#include "rl/prompts.h"
#include "rl/task.h"
#include "run/run_start.h"

/* `from` is that of all ranks, the rest of rank 0. */
typedef struct treadle_rl_state {
  char from[TREADLE_RUN_FROM];                 /* the checkpoint that the run goes on from; "": it begins */
  int64_t step, optimizer_steps, critic_steps; /* critic_steps: of its optimizer */
  int64_t drawn;                               /* prompts so far */
  int64_t saved;                               /* the step of the newest checkpoint; -1: there is none */
  int64_t written;                             /* of the newest line of metrics.jsonl */
  double kl_coef, loss_kl_coef;                /* of the next step; of the loss of this one */
  uint64_t losses_digest;
} treadle_rl_state;

/* loop_advantages.c: the coefficient of the next step, by the mean KL of this one's samples. */
void treadle_rl_steer_kl(treadle_rl_state *state, const treadle_train_settings *settings, size_t samples,
                         double kl);

/* ---- loop_start.c ---- */

treadle_status treadle_rl_find_start(treadle_rl_state *state, const treadle_rl_task *task,
                                     const treadle_rl_crew *crew);
/* Is the checkpoint whole, as it was saved? Collective. */
treadle_status treadle_rl_check_start(const treadle_rl_state *state, const treadle_rl_task *task,
                                      const treadle_rl_crew *crew);
treadle_status treadle_rl_read_start(treadle_rl_state *state, const treadle_rl_task *task,
                                     const treadle_rl_prompts *prompts);

/* ---- loop_folders.c ---- */

/* Rank 0 holds their locks for all ranks. */
typedef struct treadle_rl_folders {
  treadle_folder_lock own, dumps;
} treadle_rl_folders;

/* The folder and those above it. */
treadle_status treadle_rl_make_folders(const char *path);
/* Rank 0: the folders that the run owns are its own from here on. Refused where another run has one of them. */
treadle_status treadle_rl_take_folders(treadle_rl_folders *folders, const treadle_rl_task *task,
                                       const treadle_rl_crew *crew);
void treadle_rl_release_folders(treadle_rl_folders *folders);

#endif
