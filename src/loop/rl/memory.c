#include "rl/memory.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "base/text.h"

#include <string.h>

/* ---- One role, and all of a team --------------------------------------------------------------------------- */

static treadle_status foresee_policy(const treadle_rl_forecast *f, treadle_actor_memory *by_rank) {
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  treadle_actor_options options;
  treadle_status status;
  TRY(treadle_rl_actor_options(f, &trainer, &engine, &options));
  TRY(treadle_actor_foresee(f->models->train, f->models->infer, &options, by_rank));
out:
  return status;
}

treadle_status treadle_rl_foresee_role(const treadle_rl_forecast *f, treadle_pool_role role,
                                       treadle_actor_memory *by_rank) {
  const treadle_rl_task *task = &f->task;
  const treadle_rl_bounds *bounds = f->bounds;
  const treadle_run_text *text = f->text;
  switch (role) {
  case TREADLE_POOL_ROLE_ACTOR_ROLLOUT: return foresee_policy(f, by_rank);
  case TREADLE_POOL_ROLE_CRITIC: return treadle_rl_critic_foresee(f->critic, task, bounds, text, by_rank);
  case TREADLE_POOL_ROLE_REWARD_MODEL:
    return treadle_rl_reward_model_foresee(f->reward_model, task, bounds, text, by_rank);
  case TREADLE_POOL_ROLE_REF_POLICY:
    return treadle_rl_reference_foresee(f->reference, task, bounds, text, by_rank);
  default: return TREADLE_OK;
  }
}

treadle_status treadle_rl_foresee_team(const treadle_rl_forecast *f, int team,
                                       treadle_actor_memory *by_rank) {
  static const treadle_pool_role roles[] = {TREADLE_POOL_ROLE_ACTOR_ROLLOUT, TREADLE_POOL_ROLE_CRITIC,
                                            TREADLE_POOL_ROLE_REWARD_MODEL, TREADLE_POOL_ROLE_REF_POLICY};
  treadle_status status = TREADLE_OK;
  memset(by_rank, 0, (size_t)treadle_rl_teams_ranks(f->teams, team, f->crew) * sizeof *by_rank);
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (treadle_rl_teams_of(f->teams, roles[i]) == team) TRY(treadle_rl_foresee_role(f, roles[i], by_rank));
out:
  return status;
}

/* ---- What there is ------------------------------------------------------------------------------------------ */

size_t treadle_rl_room(const treadle_train_settings *s) {
  return (size_t)((double)s->generate.device_memory * s->generate.gpu_memory_utilization);
}

bool treadle_rl_has_cache(const treadle_rl_forecast *f, int team, int rank) {
  const int first = f->crew->rollout_ranks ? f->crew->policy_ranks - f->crew->rollout_ranks : 0;
  return treadle_rl_teams_of(f->teams, TREADLE_POOL_ROLE_ACTOR_ROLLOUT) == team && rank >= first;
}

bool treadle_rl_fits(const treadle_rl_forecast *f, int team, int rank, const treadle_actor_memory *memory) {
  const size_t room = treadle_rl_room(f->task.settings);
  if (!room) return true;
  return memory->least_bytes <= room && (memory->kv_blocks > 0 || !treadle_rl_has_cache(f, team, rank));
}

static int64_t longest_of(const treadle_rl_prompts *prompts) {
  size_t count = 0;
  int64_t longest = 0;
  const treadle_rl_prompt *items = prompts ? treadle_rl_prompts_items(prompts, &count) : NULL;
  for (size_t i = 0; i < count; i++) longest = treadle_larger(longest, items[i].count);
  return longest;
}

/* A sequence must fit into the cache alone, or the run would end at the first that is too long: the longest prompt there is, with the
 * longest response. A plan does not know the prompts. */
static treadle_status check_cache(const treadle_rl_forecast *f, int team, const treadle_actor_memory *all) {
  const treadle_train_settings *s = f->task.settings;
  const int64_t block = s->generate.block_size;
  const int ranks = treadle_rl_teams_ranks(f->teams, team, f->crew);
  int64_t prompt = treadle_larger(longest_of(f->data->prompts), longest_of(f->data->tests));
  char who[TREADLE_RL_TEAMS_NAME];
  int fewest = -1;
  if (!prompt) prompt = f->bounds->prompt_most;
  for (int rank = 0; rank < ranks; rank++)
    if (treadle_rl_has_cache(f, team, rank) && (fewest < 0 || all[rank].kv_blocks < all[fewest].kv_blocks))
      fewest = rank;
  if (block < 1 || fewest < 0 || f->task.options->open_infer) return TREADLE_OK;
  if (!f->crew->rollout_ranks && all[fewest].kv_blocks < 1) return TREADLE_OK;
  int64_t blocks = (prompt + f->bounds->response_most + block - 1) / block;
  if (blocks <= all[fewest].kv_blocks) return TREADLE_OK;
  treadle_rl_teams_name(f->teams, team, fewest, who);
  return treadle_fail(TREADLE_REFUSED,
                      "a prompt of %lld tokens and a response of %lld (%s) are %lld blocks of the KV "
                      "cache, and %s has "
                      "room for %lld: give it more memory (%s), or make them shorter",
                      (long long)prompt, (long long)f->bounds->response_most,
                      TREADLE_RL_PLACE(&f->task, sampling.max_tokens), (long long)blocks, who,
                      (long long)all[fewest].kv_blocks, TREADLE_RL_PLACE(&f->task, generate.kv_memory));
}

/* ---- All teams ---------------------------------------------------------------------------------------------- */

static int team_count(const treadle_rl_forecast *f) { return f->teams->count ? f->teams->count : 1; }

static int ranks_of(const treadle_rl_forecast *f, int team) {
  return treadle_rl_teams_ranks(f->teams, team, f->crew);
}

/* all: of the first team, then of the next. by_rank gets them by the numbers of the run. */
static void give(const treadle_rl_forecast *f, const treadle_actor_memory *all,
                 treadle_actor_memory *by_rank, size_t *most_p) {
  *most_p = 0;
  if (by_rank && f->teams->count) by_rank[0] = (treadle_actor_memory){.peak_bytes = 0};
  for (int team = 0; team < team_count(f); all += ranks_of(f, team++))
    for (int rank = 0; rank < ranks_of(f, team); rank++) {
      *most_p = treadle_larger_size(*most_p, all[rank].peak_bytes);
      if (by_rank) by_rank[treadle_rl_teams_rank(f->teams, team, rank)] = all[rank];
    }
}

/* The first team that does not fit is the one that is told of. */
static treadle_status check_all(const treadle_rl_forecast *f, const treadle_actor_memory *all) {
  treadle_status status = TREADLE_OK;
  for (int team = 0; team < team_count(f); all += ranks_of(f, team++)) {
    TRY(treadle_rl_check_room(f, team, all));
    TRY(check_cache(f, team, all));
  }
out:
  return status;
}

treadle_status treadle_rl_predict(const treadle_rl_forecast *f, treadle_actor_memory *by_rank,
                                  size_t *most_p) {
  treadle_actor_memory *all, *of_team;
  size_t count = 0;
  treadle_status status = TREADLE_OK;
  for (int team = 0; team < team_count(f); team++) count += (size_t)ranks_of(f, team);
  all = of_team = treadle_alloc_array(count, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %zu ranks", count);
  for (int team = 0; team < team_count(f); of_team += ranks_of(f, team++))
    TRY(treadle_rl_foresee_team(f, team, of_team));
  give(f, all, by_rank, most_p);
  TRY(check_all(f, all));
out:
  treadle_free(all);
  return status;
}
