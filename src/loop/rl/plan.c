/* What ranks of a run will hold. */
#include "rl/loop.h"
#include "rl/pools.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/larger.h"
#include "base/sized.h"

#include <string.h>

enum { RANKS_MOST = 1 << 16 };

treadle_status treadle_rl_foresee_ranks(const treadle_rl *rl, treadle_actor_memory *by_rank) {
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  treadle_actor_options options;
  treadle_status status;
  TRY(treadle_rl_actor_options(rl, &trainer, &engine, &options));
  TRY(treadle_actor_foresee(rl->models.train, rl->models.infer, &options, by_rank));
  if (treadle_rl_teams_share(&rl->teams, TREADLE_POOL_ROLE_CRITIC))
    TRY(treadle_rl_critic_foresee(&rl->critic, &rl->task, &rl->bounds, &rl->text, by_rank));
  if (treadle_rl_teams_share(&rl->teams, TREADLE_POOL_ROLE_REWARD_MODEL))
    TRY(treadle_rl_reward_model_foresee(&rl->reward_model, &rl->task, &rl->bounds, &rl->text, by_rank));
  if (rl->teams.apart && treadle_rl_teams_share(&rl->teams, TREADLE_POOL_ROLE_REF_POLICY))
    TRY(treadle_rl_reference_foresee(&rl->reference, &rl->task, &rl->bounds, &rl->text, by_rank));
out:
  return status;
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
static treadle_status check_cache(const treadle_rl *rl, const treadle_actor_memory *all) {
  const treadle_train_settings *s = rl->task.settings;
  const int64_t block = s->generate.block_size;
  int64_t prompt = treadle_larger(longest_of(rl->data.prompts), longest_of(rl->data.tests));
  const int first = rl->crew.rollout_ranks ? rl->crew.policy_ranks - rl->crew.rollout_ranks : 0;
  int fewest = first; /* the ranks before have no cache */
  if (!prompt) prompt = rl->bounds.prompt_most;
  for (int rank = first + 1; rank < rl->crew.policy_ranks; rank++)
    if (all[rank].kv_blocks < all[fewest].kv_blocks) fewest = rank;
  if (block < 1 || (!first && all[fewest].kv_blocks < 1) || rl->task.options->open_infer) return TREADLE_OK;
  int64_t blocks = (prompt + rl->bounds.response_most + block - 1) / block;
  if (blocks <= all[fewest].kv_blocks) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "a prompt of %lld tokens and a response of %lld (%s) are %lld blocks of the KV "
                      "cache, and rank %d has "
                      "room for %lld: give it more memory (%s), or make them shorter",
                      (long long)prompt, (long long)rl->bounds.response_most,
                      TREADLE_RL_PLACE(&rl->task, sampling.max_tokens), (long long)blocks, fewest,
                      (long long)all[fewest].kv_blocks, TREADLE_RL_PLACE(&rl->task, generate.kv_memory));
}

treadle_status treadle_rl_predict(treadle_rl *rl, treadle_actor_memory *by_rank) {
  treadle_actor_memory *all = treadle_alloc_array((size_t)rl->crew.policy_ranks, sizeof *all);
  treadle_status status;
  if (!all)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %d ranks", rl->crew.policy_ranks);
  TRY(treadle_rl_foresee_ranks(rl, all));
  if (by_rank) memcpy(by_rank, all, (size_t)rl->crew.policy_ranks * sizeof *all);
  rl->predicted = 0;
  for (int rank = 0; rank < rl->crew.policy_ranks; rank++)
    if (all[rank].peak_bytes > rl->predicted) rl->predicted = all[rank].peak_bytes;
  TRY(treadle_rl_check_room(rl, all));
  TRY(check_cache(rl, all));
out:
  treadle_free(all);
  return status;
}

/* A run that is only planned, with its inputs. The caller closes it, whatever is returned. */
static treadle_status open_plan(const treadle_train_config *config, const treadle_rl_pool_plan *pool,
                                const treadle_rl_options *options, treadle_rl **rl_p) {
  treadle_rl *rl = *rl_p = treadle_alloc(sizeof *rl);
  treadle_status status;
  if (!rl) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a forecast");
  TRY(TREADLE_TAKE(options->observer, &rl->crew.observer));
  rl->task.config = config;
  rl->task.options = options;
  rl->crew.ranks = rl->crew.policy_ranks = (int)pool->policy_ranks;
  rl->crew.critic_ranks = (int)pool->critic_ranks;
  rl->crew.reward_ranks = (int)pool->reward_ranks;
  rl->crew.reference_ranks = (int)pool->reference_ranks;
  rl->crew.leads = true;
  rl->task.plans = true;
  rl->task.settings = treadle_train_config_settings(config);
  TRY(treadle_rl_open_inputs(rl));
out:
  return status;
}

static void close_plan(treadle_rl *rl) {
  if (!rl) return;
  treadle_rl_close(rl);
  treadle_free(rl);
}

static treadle_rl_pool_plan plan_of(int64_t ranks) {
  return (treadle_rl_pool_plan){
      .policy_ranks = ranks, .critic_ranks = ranks, .reward_ranks = ranks, .reference_ranks = ranks};
}

/* Roles that are on other ranks than those that are looked at. */
static void leave_out(const treadle_rl_pool_plan *pool, treadle_rl_critic *critic,
                      treadle_rl_reward_model *reward) {
  if (pool->critic_apart) {
    treadle_rl_critic_close(critic);
    *critic = (treadle_rl_critic){.path = ""};
  }
  if (pool->reward_apart) {
    treadle_rl_reward_model_close(reward);
    *reward = (treadle_rl_reward_model){.model = NULL};
  }
}

treadle_status treadle_rl_foresee_pool(const treadle_train_config *config, const treadle_rl_pool_plan *pool,
                                       const treadle_rl_options *options, treadle_actor_memory *by_rank) {
  const int64_t ranks[] = {pool->policy_ranks, pool->critic_ranks, pool->reward_ranks,
                           pool->reference_ranks};
  treadle_rl *rl = NULL;
  treadle_status status;
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
    if (ranks[i] < 1 || ranks[i] > RANKS_MOST)
      REFUSE("%lld ranks: 1 to %d", (long long)ranks[i], RANKS_MOST);
  TRY(open_plan(config, pool, options, &rl));
  leave_out(pool, &rl->critic, &rl->reward_model);
  if (!pool->reference_alone) {
    TRY(treadle_rl_predict(rl, by_rank));
    goto out;
  }
  memset(by_rank, 0, (size_t)pool->reference_ranks * sizeof *by_rank);
  TRY(treadle_rl_reference_foresee(&rl->reference, &rl->task, &rl->bounds, &rl->text, by_rank));
out:
  close_plan(rl);
  return status;
}

treadle_status treadle_rl_foresee(const treadle_train_config *config, int64_t ranks,
                                  const treadle_rl_options *options, treadle_actor_memory *by_rank) {
  treadle_rl_options o;
  treadle_rl_crew crew = {0};
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &crew.observer));
  if (ranks < 1 || ranks > RANKS_MOST) REFUSE("%lld ranks: 1 to %d", (long long)ranks, RANKS_MOST);
  crew.ranks = (int)ranks;
  TRY(treadle_rl_check_pools(config, &crew));
  const treadle_rl_pool_plan all = plan_of(ranks);
  TRY(treadle_rl_foresee_pool(config, &all, &o, by_rank));
out:
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
  const treadle_rl_pool_plan one = plan_of(1);
  TRY(open_plan(config, &one, &o, &rl));
  *bytes_p = treadle_rl_kept_bytes(&rl->bounds, rl->task.settings);
out:
  close_plan(rl);
  return status;
}
