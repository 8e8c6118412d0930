/* The stages of a step: whose work each is, and how they are started and waited for. */
#include "rl/stages.h"

#include "base/clock.h"

/* ---- Whose work it is ---------------------------------------------------------------------------------------- */

static const char *const drawn[] = {"prompt_ids", "ids", "kept_counts", "kept", NULL};
static const char *const score_alone[] = {"score", NULL}, *const logprobs_alone[] = {"ref_log_probs", NULL},
                         *const values_alone[] = {"values", NULL},
                         *const returns_alone[] = {"returns", NULL};

static const struct {
  const char *name; /* in messages */
  const char *said; /* what a person is told; NULL: it goes without saying */
  treadle_pool_role role;
  const char *const *leaves; /* columns for others, ended by NULL */
} table[TREADLE_STAGES] = {
    [TREADLE_STAGE_GENERATE] = {"generate_sequences", "generate", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, drawn},
    [TREADLE_STAGE_RM_SCORE] = {"compute_rm_score", "reward model", TREADLE_POOL_ROLE_REWARD_MODEL,
                                score_alone},
    [TREADLE_STAGE_OLD] = {"compute_log_prob", "old log-probabilities", TREADLE_POOL_ROLE_ACTOR_ROLLOUT,
                           NULL},
    [TREADLE_STAGE_REWARDS] = {"compute_score", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, NULL},
    [TREADLE_STAGE_REFERENCE] = {"compute_ref_log_prob", "reference", TREADLE_POOL_ROLE_REF_POLICY,
                                 logprobs_alone},
    [TREADLE_STAGE_VALUES] = {"compute_values", "values", TREADLE_POOL_ROLE_CRITIC, values_alone},
    [TREADLE_STAGE_ADVANTAGES] = {"compute_advantage", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT,
                                  returns_alone},
    [TREADLE_STAGE_UPDATE_CRITIC] = {"update_critic", "update of the critic", TREADLE_POOL_ROLE_CRITIC,
                                     NULL},
    [TREADLE_STAGE_UPDATE] = {"update", "update", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, NULL},
    [TREADLE_STAGE_FIGURES] = {"figures", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, NULL},
    [TREADLE_STAGE_WRITE] = {"write", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, NULL},
    [TREADLE_STAGE_TEST_DRAW] = {"generate_sequences", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, drawn},
    [TREADLE_STAGE_TEST_RM_SCORE] = {"compute_rm_score", NULL, TREADLE_POOL_ROLE_REWARD_MODEL, score_alone},
    [TREADLE_STAGE_TEST_JUDGE] = {"compute_score", NULL, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, NULL},
};

const char *treadle_rl_stage_name(treadle_rl_stage_number stage) { return table[stage].name; }

treadle_pool_role treadle_rl_stage_role(treadle_rl_stage_number stage) { return table[stage].role; }

const char *const *treadle_rl_stage_leaves(treadle_rl_stage_number stage, size_t *count_p) {
  const char *const *names = table[stage].leaves;
  *count_p = 0;
  while (names && names[*count_p]) ++*count_p;
  return names;
}

bool treadle_rl_stage_is_wanted(const treadle_rl_stages *s, treadle_rl_stage_number stage) {
  return treadle_rl_uses_role(s->settings, table[stage].role);
}

int treadle_rl_stage_team(const treadle_rl_stages *s, treadle_rl_stage_number stage) {
  return treadle_rl_teams_of(s->teams, table[stage].role);
}

bool treadle_rl_stage_is_beside(const treadle_rl_stages *s, treadle_rl_stage_number stage) {
  return s->teams->apart && !s->settings->resources.blocking && treadle_rl_stage_is_wanted(s, stage) &&
         !treadle_rl_teams_share(s->teams, table[stage].role);
}

/* ---- Doing it ------------------------------------------------------------------------------------------------ */

treadle_status treadle_rl_stage_do(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                   const treadle_row_range *rows) {
  const double begin = treadle_clock_seconds();
  s->outcome = (treadle_rl_outcome){0};
  const treadle_status status = s->work(s->run, stage, rows, &s->outcome);
  s->outcome.seconds = treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_rl_stage_start(treadle_rl_stages *s, treadle_rl_stage_number stage) {
  return treadle_rl_stage_start_rows(s, stage, &(treadle_row_range){0});
}

treadle_status treadle_rl_stage_start_rows(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                           const treadle_row_range *rows) {
  if (table[stage].said) s->begin(s->run, table[stage].said);
  s->all[stage].started = true;
  if (s->teams->apart) return treadle_rl_stage_ask(s, stage, rows);
  const treadle_status status = treadle_rl_stage_do(s, stage, rows);
  s->all[stage].outcome = s->outcome;
  return status;
}

treadle_status treadle_rl_stage_wait(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                     treadle_rl_outcome *outcome_p) {
  s->all[stage].started = false;
  if (s->teams->apart) return treadle_rl_stage_hear(s, stage, outcome_p);
  *outcome_p = s->all[stage].outcome;
  return TREADLE_OK;
}

treadle_status treadle_rl_stage_run(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                    treadle_rl_outcome *outcome_p) {
  treadle_status status = TREADLE_OK;
  *outcome_p = (treadle_rl_outcome){0};
  if (!treadle_rl_stage_is_wanted(s, stage)) return TREADLE_OK;
  if (!s->all[stage].started) TRY(treadle_rl_stage_start(s, stage));
  TRY(treadle_rl_stage_wait(s, stage, outcome_p));
out:
  return status;
}
