/* What the roles of a run hold on the device of each rank, found by shapes alone. `treadle pools`, `treadle train --plan` and the start of a run all ask
 * here, with the teams of that run (rl/teams.h). */
#ifndef TREADLE_RL_MEMORY_H
#define TREADLE_RL_MEMORY_H

#include "rl/loop.h"
#include "treadle_control.h"

/* The parts of a run that say so; good while the run is. */
typedef struct treadle_rl_forecast {
  treadle_rl_task task;
  const treadle_rl_crew *crew;
  const treadle_rl_teams *teams;
  const treadle_rl_models *models;
  const treadle_rl_bounds *bounds;
  const treadle_run_text *text;
  const treadle_rl_critic *critic;
  const treadle_rl_reward_model *reward_model;
  const treadle_rl_reference *reference;
  const treadle_rl_data *data;
} treadle_rl_forecast;

static inline treadle_rl_forecast treadle_rl_forecast_of(const treadle_rl *rl) {
  return (treadle_rl_forecast){.task = rl->task,
                               .crew = &rl->crew,
                               .teams = &rl->teams,
                               .models = &rl->models,
                               .bounds = &rl->bounds,
                               .text = &rl->text,
                               .critic = &rl->critic,
                               .reward_model = &rl->reward_model,
                               .reference = &rl->reference,
                               .data = &rl->data};
}

/* loop_open.c: the options of the policy's worker, which are good while `trainer` and `engine` are. */
treadle_status treadle_rl_actor_options(const treadle_rl_forecast *forecast,
                                        treadle_trainer_options *trainer, treadle_generator_options *engine,
                                        treadle_actor_options *to);

/* ---- memory.c ---- */

/* Adds what one role holds to what the ranks of its team hold already: by_rank [ranks of the team], zeroed at first. ActorRollout is added first: other roles
 * are called while it makes room. Nothing is added by a role that the run does not have, nor by a reference that the policy's worker keeps. Local. */
treadle_status treadle_rl_foresee_role(const treadle_rl_forecast *forecast, treadle_pool_role role,
                                       treadle_actor_memory *by_rank);
/* The same of all roles of a team: by_rank [ranks of the team]. */
treadle_status treadle_rl_foresee_team(const treadle_rl_forecast *forecast, int team,
                                       treadle_actor_memory *by_rank);

/* What device_memory lets a rank have; 0: as much as it needs. */
size_t treadle_rl_room(const treadle_train_settings *settings);
/* Has the rank, by its number in the team, a KV cache? */
bool treadle_rl_has_cache(const treadle_rl_forecast *forecast, int team, int rank);
/* Does what a rank of the team needs fit into the room? */
bool treadle_rl_fits(const treadle_rl_forecast *forecast, int team, int rank,
                     const treadle_actor_memory *memory);
/* plan_room.c. Refused, with what would help, where a rank of the team needs more than the room. */
treadle_status treadle_rl_check_room(const treadle_rl_forecast *forecast, int team,
                                     const treadle_actor_memory *by_rank);

/* Of all teams: by_rank [processes of the run] where that is given, of a controller that is apart zeros; *most_p: of the fullest rank. Refused, once both are
 * filled: a device or a cache that is too small. */
treadle_status treadle_rl_predict(const treadle_rl_forecast *forecast, treadle_actor_memory *by_rank,
                                  size_t *most_p);

/* ---- plan.c: a run that is only planned ---- */

typedef struct treadle_rl_plan {
  const treadle_rl_pools *pools; /* where its ranks are; NULL: all of them do everything */
  int first_rank;                /* of slot 0: 1 if the controller is apart */
  int64_t ranks;                 /* without pools */
} treadle_rl_plan;

/* With its inputs. The caller closes it, whatever is returned. */
treadle_status treadle_rl_plan_open(const treadle_train_config *config, const treadle_rl_plan *plan,
                                    const treadle_rl_options *options, treadle_rl **rl_p);
void treadle_rl_plan_close(treadle_rl *rl);

#endif
