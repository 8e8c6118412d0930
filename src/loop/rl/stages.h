/* Stages of a step: what is done with its samples, one thing after the other. A stage is work of one role. The rank that leads those who have the role does
 * it, with its own part of the run, and makes the calls that it needs among them (workers.h).
 *
 * Together, that is rank 0, which goes through the step as well. With the controller apart it is the first rank of the role's pool, which the controller asks.
 * Samples stay on the first rank of the policy's pool. Other pools' first ranks fetch what they need of them there, and keep what they find until the
 * controller says that the step is over: no row passes the controller. Stages of different pools may be under way at the same time.
 *
 *   treadle_rl_stage_start(rl, STAGE);  ...  treadle_rl_stage_wait(rl, STAGE, &outcome);  ...  treadle_rl_stages_clear(rl);
 *
 * A stage that needs nothing but rows of its own may be started with a portion of them, and again with the next one (loop_portions.c). */
#ifndef TREADLE_RL_STAGES_H
#define TREADLE_RL_STAGES_H

#include "control/worker_relay.h"
#include "rl/ledger.h"
#include "rl/teams.h"
#include "treadle_engine.h"

typedef enum treadle_rl_stage_number {
  TREADLE_STAGE_GENERATE, /* samples; scores are under way */
  TREADLE_STAGE_RM_SCORE,
  TREADLE_STAGE_OLD, /* log-probabilities, where the update does not find them itself */
  TREADLE_STAGE_REWARDS,
  TREADLE_STAGE_REFERENCE,
  TREADLE_STAGE_VALUES,
  TREADLE_STAGE_ADVANTAGES,
  TREADLE_STAGE_UPDATE_CRITIC,
  TREADLE_STAGE_UPDATE,
  TREADLE_STAGE_FIGURES,
  TREADLE_STAGE_WRITE,     /* files of samples */
  TREADLE_STAGE_TEST_DRAW, /* prompts that are not trained on */
  TREADLE_STAGE_TEST_RM_SCORE,
  TREADLE_STAGE_TEST_JUDGE,
  TREADLE_STAGES
} treadle_rl_stage_number;

/* What the last mini batch of an update has come to. */
typedef struct treadle_rl_mini_result {
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl, grad_norm, lr;
  double aux_loss, load_max, load_min; /* of a model with experts, else 0 */
} treadle_rl_mini_result;

/* What a stage has come to, beside figures in the ledger. */
typedef struct treadle_rl_outcome {
  double seconds;
  bool skipped;                   /* a step of an optimizer did nothing */
  treadle_rl_mini_result last;    /* UPDATE */
  double reward, response_length; /* FIGURES: means of samples */
  int64_t tokens;                 /* the same: of all samples, with their prompts */
  double test;                    /* TEST_JUDGE: the mean score */
} treadle_rl_outcome;

/* With the controller apart: rows of a stage that was asked for. */
typedef struct treadle_rl_portion {
  treadle_row_range rows;  /* end 0: all */
  treadle_future *made;    /* the columns that it leaves, until the stage is started anew */
  treadle_future *outcome; /* what it comes to; NULL: that has been heard */
} treadle_rl_portion;

/* Stages of a run, whose parts all these are. */
typedef struct treadle_rl_stages {
  const treadle_train_settings *settings;
  treadle_rl_teams *teams;
  treadle_rl_state *state;
  treadle_rl_ledger *ledger;
  treadle_rl_batch *batch, *tests;
  bool *stopped;
  int processes; /* of the run */
  /* Does a stage, on this rank, of these rows; a stage begins, which is called `said`. */
  treadle_status (*work)(void *run, treadle_rl_stage_number stage, const treadle_row_range *rows,
                         treadle_rl_outcome *outcome);
  void (*begin)(void *run, const char *said);
  void *run;
  treadle_rl_outcome outcome; /* of the stage that this rank did last */
  struct {
    bool started;               /* and not waited for */
    treadle_rl_outcome outcome; /* together: what it has come to */
    TREADLE_ARRAY(treadle_rl_portion) portions;
    TREADLE_ARRAY(treadle_future *) brought; /* columns of earlier portions that were brought to it */
  } all[TREADLE_STAGES];
} treadle_rl_stages;

/* ---- loop_stages.c ---- */

/* Has the run this stage? Those that need a role which the run does not have it has not. */
bool treadle_rl_stage_is_wanted(const treadle_rl_stages *stages, treadle_rl_stage_number stage);
/* Whose work it is: the number of the team. */
int treadle_rl_stage_team(const treadle_rl_stages *stages, treadle_rl_stage_number stage);
/* May it go on beside those of the policy? */
bool treadle_rl_stage_is_beside(const treadle_rl_stages *stages, treadle_rl_stage_number stage);
treadle_pool_role treadle_rl_stage_role(treadle_rl_stage_number stage);
/* "compute_values" */
const char *treadle_rl_stage_name(treadle_rl_stage_number stage);
/* The columns that it leaves for others [*count_p], as far as it has them. */
const char *const *treadle_rl_stage_leaves(treadle_rl_stage_number stage, size_t *count_p);
/* Does it, on this rank, of these rows, end 0: all: stages->outcome. */
treadle_status treadle_rl_stage_do(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                   const treadle_row_range *rows);

/* Of who goes through the step. A stage is started when those were waited for whose columns it reads. */
treadle_status treadle_rl_stage_start(treadle_rl_stages *stages, treadle_rl_stage_number stage);
/* With a portion, of which another follows where it does not end the step. */
treadle_status treadle_rl_stage_start_rows(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                           const treadle_row_range *rows);
/* For all portions that were started. */
treadle_status treadle_rl_stage_wait(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                     treadle_rl_outcome *outcome_p);
/* Both; what was started is only waited for. Nothing is done where the stage is not wanted: *outcome_p is zeroed. */
treadle_status treadle_rl_stage_run(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                    treadle_rl_outcome *outcome_p);

/* ---- loop_stages_work.c: fills stages->work; the run is a treadle_rl. ---- */

treadle_status treadle_rl_stage_work(void *run, treadle_rl_stage_number stage,
                                     const treadle_row_range *rows, treadle_rl_outcome *outcome);

/* ---- loop_portions.c ---- */

/* Draws the samples of a step, and starts what others do with these alone, as soon as there are some. *seconds_p grows. */
treadle_status treadle_rl_stages_draw(treadle_rl_stages *stages, double *seconds_p);
/* Of how many samples a portion is; 0: there are none. */
int64_t treadle_rl_portion_of(const treadle_rl_stages *stages);

/* ---- loop_stages_apart.c ---- */

/* The class of the crew that first ranks of pools are workers of, whose team->work are their treadle_rl_stages; team: NULL on other ranks. */
treadle_worker_class treadle_rl_team_class(const char *name, treadle_worker_team *team);
/* The controller: asks, waits. */
treadle_status treadle_rl_stage_ask(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                    const treadle_row_range *rows);
treadle_status treadle_rl_stage_hear(treadle_rl_stages *stages, treadle_rl_stage_number stage,
                                     treadle_rl_outcome *outcome_p);
/* No stage that was started is needed any more: what they have left goes. */
void treadle_rl_stages_clear(treadle_rl_stages *stages);

#endif
