/* The stages of a step: whose work each is, and what it does on the rank that leads these. */
#include "rl/loop.h"

#include "base/clock.h"
#include "rl/dapo.h"

/* ---- What is done -------------------------------------------------------------------------------------------- */

static treadle_status generate(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return treadle_rl_draw_step(rl, &rl->scored);
}

/* Where something fails before scores were waited for, no reward looks at the samples any more. */
static treadle_status or_abandon(treadle_rl *rl, treadle_status status) {
  if (status) treadle_rl_abandon_scores(&rl->rewards);
  return status;
}

static treadle_status rm_score(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return or_abandon(rl, treadle_rl_find_rm_scores(&rl->workers, rl->task.settings, &rl->batch, rl->scored));
}

static treadle_status old(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return or_abandon(rl,
                    treadle_rl_old_logprobs(&rl->workers, rl->task.settings, &rl->ledger, &rl->batch));
}

static treadle_status rewards(treadle_rl *rl, treadle_rl_outcome *o) {
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  (void)o;
  if (rl->scored == rl->batch.samples.count) return TREADLE_OK;
  return treadle_rl_score_wait(&rollout, &rl->batch, rl->scored, NULL);
}

static treadle_status reference(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return treadle_rl_ref_logprobs(&rl->workers, rl->task.settings, &rl->batch);
}

static treadle_status values(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return treadle_rl_find_values(&rl->workers, rl->task.settings, &rl->batch);
}

static treadle_status advantages(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return treadle_rl_find_advantages(rl);
}

static treadle_status update_critic(treadle_rl *rl, treadle_rl_outcome *o) {
  const treadle_rl_critic_update critic = {.settings = rl->task.settings,
                                           .schedule = &rl->critic.schedule,
                                           .workers = &rl->workers,
                                           .batch = &rl->batch,
                                           .state = &rl->state,
                                           .ledger = &rl->ledger};
  return treadle_rl_update_critic(&critic, &o->skipped);
}

static treadle_status update(treadle_rl *rl, treadle_rl_outcome *o) {
  return treadle_rl_update_actor(rl, &o->last, &o->skipped);
}

static treadle_status figures(treadle_rl *rl, treadle_rl_outcome *o) {
  const treadle_rl_batch *b = &rl->batch;
  const double count = (double)b->samples.count;
  double reward = 0, length = 0;
  treadle_rl_batch_values(&rl->ledger.values, rl->task.settings, &rl->bounds, b);
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    reward += s->reward;
    length += (double)s->count;
    o->tokens += s->prompt->count + (int64_t)s->count;
  }
  if (b->samples.count) {
    o->reward = reward / count;
    o->response_length = length / count;
  }
  return TREADLE_OK;
}

static treadle_status write(treadle_rl *rl, treadle_rl_outcome *o) {
  treadle_status status;
  (void)o;
  TRY(treadle_rl_log_samples(&rl->ledger, rl->task.settings, &rl->state, &rl->batch));
  TRY(treadle_rl_dump_step(rl->task.settings, &rl->state, &rl->batch));
out:
  return status;
}

static treadle_status test_draw(treadle_rl *rl, treadle_rl_outcome *o) {
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  (void)o;
  treadle_rl_batch_clear(&rl->tests);
  rl->tests.step = rl->state.step;
  return treadle_rl_draw_tests(&rollout, rl->data.tests, &rl->tests);
}

static treadle_status test_rm_score(treadle_rl *rl, treadle_rl_outcome *o) {
  (void)o;
  return treadle_rl_find_rm_scores(&rl->workers, rl->task.settings, &rl->tests, 0);
}

static treadle_status test_judge(treadle_rl *rl, treadle_rl_outcome *o) {
  const treadle_status status = treadle_rl_test(rl, &o->test);
  treadle_rl_batch_clear(&rl->tests);
  return status;
}

/* ---- Whose work it is ---------------------------------------------------------------------------------------- */

static const char *const drawn[] = {"prompt_ids", "ids", NULL};
static const char *const score_alone[] = {"score", NULL}, *const logprobs_alone[] = {"ref_log_probs", NULL},
                               *const values_alone[] = {"values", NULL},
                               *const returns_alone[] = {"returns", NULL};

static const struct {
  const char *name; /* in messages */
  const char *said; /* what a person is told; NULL: it goes without saying */
  treadle_pool_role role;
  treadle_status (*run)(treadle_rl *rl, treadle_rl_outcome *outcome);
  const char *const *leaves; /* columns for others, ended by NULL */
} stages[TREADLE_STAGES] = {
    [TREADLE_STAGE_GENERATE] = {"generate_sequences", "generate", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, generate,
                             drawn},
    [TREADLE_STAGE_RM_SCORE] = {"compute_rm_score", "reward model", TREADLE_POOL_ROLE_REWARD_MODEL, rm_score,
                             score_alone},
    [TREADLE_STAGE_OLD] = {"compute_log_prob", "old log-probabilities", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, old,
                        NULL},
    [TREADLE_STAGE_REWARDS] = {"compute_score", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, rewards, NULL},
    [TREADLE_STAGE_REFERENCE] = {"compute_ref_log_prob", "reference", TREADLE_POOL_ROLE_REF_POLICY, reference,
                              logprobs_alone},
    [TREADLE_STAGE_VALUES] = {"compute_values", "values", TREADLE_POOL_ROLE_CRITIC, values, values_alone},
    [TREADLE_STAGE_ADVANTAGES] = {"compute_advantage", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, advantages,
                               returns_alone},
    [TREADLE_STAGE_UPDATE_CRITIC] = {"update_critic", "update of the critic", TREADLE_POOL_ROLE_CRITIC,
                                  update_critic, NULL},
    [TREADLE_STAGE_UPDATE] = {"update", "update", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, update, NULL},
    [TREADLE_STAGE_FIGURES] = {"figures", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, figures, NULL},
    [TREADLE_STAGE_WRITE] = {"write", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, write, NULL},
    [TREADLE_STAGE_TEST_DRAW] = {"generate_sequences", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, test_draw,
                              drawn},
    [TREADLE_STAGE_TEST_RM_SCORE] = {"compute_rm_score", NULL, TREADLE_POOL_ROLE_REWARD_MODEL, test_rm_score,
                                  score_alone},
    [TREADLE_STAGE_TEST_JUDGE] = {"compute_score", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, test_judge, NULL},
};

const char *treadle_rl_stage_name(treadle_rl_stage_number stage) { return stages[stage].name; }

treadle_pool_role treadle_rl_stage_role(treadle_rl_stage_number stage) { return stages[stage].role; }

const char *const *treadle_rl_stage_leaves(treadle_rl_stage_number stage, size_t *count_p) {
  const char *const *names = stages[stage].leaves;
  *count_p = 0;
  while (names && names[*count_p]) ++*count_p;
  return names;
}

bool treadle_rl_stage_is_wanted(const treadle_rl *rl, treadle_rl_stage_number stage) {
  switch (stages[stage].role) {
  case TREADLE_POOL_ROLE_CRITIC: return treadle_train_has_critic(rl->task.settings);
  case TREADLE_POOL_ROLE_REWARD_MODEL: return treadle_train_has_reward_model(rl->task.settings);
  case TREADLE_POOL_ROLE_REF_POLICY: return treadle_rl_uses_kl(rl->task.settings);
  default: return true;
  }
}

bool treadle_rl_stage_is_beside(const treadle_rl *rl, treadle_rl_stage_number stage) {
  return rl->teams.apart && treadle_rl_teams_of(&rl->teams, stages[stage].role) !=
                                treadle_rl_teams_of(&rl->teams, TREADLE_POOL_ROLE_ACTOR_ROLLOUT);
}

/* ---- Doing it ------------------------------------------------------------------------------------------------ */

treadle_status treadle_rl_stage_do(treadle_rl *rl, treadle_rl_stage_number stage,
                                   treadle_rl_outcome *outcome_p) {
  const double begin = treadle_clock_seconds();
  *outcome_p = (treadle_rl_outcome){0};
  const treadle_status status = stages[stage].run(rl, outcome_p);
  outcome_p->seconds = treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_rl_stage_start(treadle_rl *rl, treadle_rl_stage_number stage) {
  if (stages[stage].said) treadle_rl_stage(rl, stages[stage].said);
  if (rl->teams.apart) return treadle_rl_stage_ask(rl, stage);
  return treadle_rl_stage_do(rl, stage, &rl->stages.all[stage].outcome);
}

treadle_status treadle_rl_stage_wait(treadle_rl *rl, treadle_rl_stage_number stage,
                                     treadle_rl_outcome *outcome_p) {
  if (rl->teams.apart) return treadle_rl_stage_hear(rl, stage, outcome_p);
  *outcome_p = rl->stages.all[stage].outcome;
  return TREADLE_OK;
}

treadle_status treadle_rl_stage_run(treadle_rl *rl, treadle_rl_stage_number stage,
                                    treadle_rl_outcome *outcome_p) {
  treadle_status status = TREADLE_OK;
  *outcome_p = (treadle_rl_outcome){0};
  if (!treadle_rl_stage_is_wanted(rl, stage)) return TREADLE_OK;
  if (!rl->stages.all[stage].answer) TRY(treadle_rl_stage_start(rl, stage));
  TRY(treadle_rl_stage_wait(rl, stage, outcome_p));
out:
  return status;
}
