/* What ranks of a run will hold, for who asks beforehand. */
#include "rl/memory.h"
#include "rl/pools.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "run/config_pools.h"

enum { RANKS_MOST = 1 << 16 };

/* Without pools all ranks do everything. */
static treadle_status find_teams(const treadle_rl_plan *plan, const treadle_rl_task *task,
                                 treadle_rl_teams *teams, treadle_rl_crew *crew) {
  if (plan->pools) return treadle_rl_teams_plan(teams, task, plan->pools, plan->first_rank, crew);
  crew->ranks = crew->policy_ranks = crew->critic_ranks = crew->reward_ranks = crew->reference_ranks =
      (int)plan->ranks;
  crew->leads = true;
  return TREADLE_OK;
}

static treadle_status begin_plan(const treadle_train_config *config, const treadle_rl_options *options,
                                 treadle_rl **rl_p) {
  treadle_rl *rl = *rl_p = treadle_alloc(sizeof *rl);
  treadle_status status;
  if (!rl) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a forecast");
  TRY(TREADLE_TAKE(options->observer, &rl->crew.observer));
  rl->task = (treadle_rl_task){.config = config,
                               .settings = treadle_train_config_settings(config),
                               .options = options,
                               .plans = true};
out:
  return status;
}

treadle_status treadle_rl_plan_open(const treadle_train_config *config, const treadle_rl_plan *plan,
                                    const treadle_rl_options *options, treadle_rl **rl_p) {
  treadle_status status;
  TRY(begin_plan(config, options, rl_p));
  treadle_rl *rl = *rl_p;
  TRY(find_teams(plan, &rl->task, &rl->teams, &rl->crew));
  for (int team = 0; team == 0 || team < rl->teams.count; team++) {
    const int ranks = treadle_rl_teams_ranks(&rl->teams, team, &rl->crew);
    if (ranks > RANKS_MOST)
      TRY(treadle_fail(TREADLE_REFUSED, "%d ranks in a pool: %d at most", ranks, RANKS_MOST));
  }
  TRY(treadle_rl_open_inputs(rl));
out:
  return status;
}

void treadle_rl_plan_close(treadle_rl *rl) {
  if (!rl) return;
  treadle_rl_close(rl);
  treadle_free(rl);
}

/* Pools of a run with this many processes; NULL: all of them do everything. */
static treadle_status find_pools(const treadle_train_config *config, int64_t ranks,
                                 const treadle_observer *observer, treadle_rl_pools **pools_p) {
  const treadle_rl_crew crew = {.ranks = (int)ranks, .leads = true, .observer = *observer};
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_status status;
  *pools_p = NULL;
  if (!treadle_rl_is_apart(config, ranks)) return treadle_rl_check_pools(config, &crew);
  TRY(treadle_rl_pools_create(config, NULL, 0, pools_p));
  treadle_rl_pools_get_info(*pools_p, &info);
  if (info.slots + 1 != ranks)
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: %s asks for %d slots, and the controller is a process of its own: plan with "
                          "--ranks %d, or leave it out",
                          config->file, info.place, (int)info.slots, (int)info.slots + 1);
out:
  return status;
}

treadle_status treadle_rl_foresee(const treadle_train_config *config, int64_t ranks,
                                  const treadle_rl_options *options, treadle_actor_memory *by_rank) {
  treadle_rl_options o;
  treadle_observer observer;
  treadle_rl_pools *pools = NULL;
  treadle_rl *rl = NULL;
  size_t most;
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &observer));
  if (ranks < 1 || ranks > RANKS_MOST) REFUSE("%lld ranks: 1 to %d", (long long)ranks, RANKS_MOST);
  TRY(find_pools(config, ranks, &observer, &pools));
  const treadle_rl_plan plan = {.pools = pools, .first_rank = 1, .ranks = ranks};
  TRY(treadle_rl_plan_open(config, &plan, &o, &rl));
  const treadle_rl_forecast forecast = treadle_rl_forecast_of(rl);
  TRY(treadle_rl_predict(&forecast, by_rank, &most));
out:
  treadle_rl_plan_close(rl);
  treadle_rl_pools_destroy(pools);
  return status;
}

treadle_status treadle_rl_foresee_kept(const treadle_train_config *config,
                                       const treadle_rl_options *options, size_t *bytes_p) {
  treadle_rl_options o;
  treadle_rl *rl = NULL;
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED(bytes_p);
  TRY(TREADLE_TAKE(options, &o));
  *bytes_p = 0;
  o.observer = NULL; /* the plan says it */
  if (!treadle_train_cuts(&treadle_train_config_settings(config)->sampling)) return TREADLE_OK;
  TRY(begin_plan(config, &o, &rl));
  TRY(treadle_rl_open_lengths(rl));
  *bytes_p = treadle_rl_kept_bytes(&rl->bounds, rl->task.settings);
out:
  treadle_rl_plan_close(rl);
  return status;
}
