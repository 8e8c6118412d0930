/* What each stage does, on the rank that leads those whose work it is. */
#include "rl/loop.h"

/* Where something fails before scores were waited for, no reward looks at the samples any more. */
static treadle_status or_abandon(treadle_rl_rewards *rewards, treadle_status status) {
  if (status) treadle_rl_abandon_scores(rewards);
  return status;
}

static treadle_status wait_for_scores(const treadle_rl_rollout *rollout, treadle_rl_batch *batch,
                                      size_t scored) {
  return scored < batch->samples.count ? treadle_rl_score_wait(rollout, batch, scored, NULL) : TREADLE_OK;
}

static treadle_status find_figures(const treadle_rl_batch *b, treadle_rl_outcome *o) {
  const double count = (double)b->samples.count;
  double reward = 0, length = 0;
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    reward += s->reward;
    length += (double)s->count;
    o->tokens += s->prompt->count + (int64_t)s->count;
  }
  o->reward = count > 0 ? reward / count : 0;
  o->response_length = count > 0 ? length / count : 0;
  return TREADLE_OK;
}

static treadle_status write_samples(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                    const treadle_rl_state *state, const treadle_rl_batch *batch) {
  treadle_status status;
  TRY(treadle_rl_log_samples(ledger, settings, state, batch));
  TRY(treadle_rl_dump_step(settings, state, batch));
out:
  return status;
}

treadle_status treadle_rl_stage_work(void *run, treadle_rl_stage_number stage,
                                     const treadle_row_range *rows, treadle_rl_outcome *o) {
  treadle_rl *rl = run;
  const size_t from = (size_t)rows->first, unscored = from > rl->scored ? from : rl->scored;
  treadle_rl_batch *batch = &rl->batch;
  const treadle_train_settings *s = rl->task.settings;
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  const treadle_rl_critic_update critic = {.settings = s,
                                           .schedule = &rl->critic.schedule,
                                           .workers = &rl->workers,
                                           .batch = batch,
                                           .state = &rl->state,
                                           .ledger = &rl->ledger};
  switch (stage) {
  case TREADLE_STAGE_GENERATE: return treadle_rl_draw_step(rl, rows, &rl->scored);
  case TREADLE_STAGE_RM_SCORE:
    return or_abandon(&rl->rewards, treadle_rl_find_rm_scores(&rl->workers, s, batch, unscored));
  case TREADLE_STAGE_OLD:
    return or_abandon(&rl->rewards, treadle_rl_old_logprobs(&rl->workers, s, &rl->ledger, batch));
  case TREADLE_STAGE_REWARDS: return wait_for_scores(&rollout, batch, rl->scored);
  case TREADLE_STAGE_REFERENCE: return treadle_rl_ref_logprobs(&rl->workers, s, batch, from);
  case TREADLE_STAGE_VALUES: return treadle_rl_find_values(&rl->workers, s, batch, from);
  case TREADLE_STAGE_ADVANTAGES: return treadle_rl_find_advantages(rl);
  case TREADLE_STAGE_UPDATE_CRITIC: return treadle_rl_update_critic(&critic, &o->skipped);
  case TREADLE_STAGE_UPDATE: return treadle_rl_update_actor(rl, &o->last, &o->skipped);
  case TREADLE_STAGE_FIGURES:
    treadle_rl_batch_values(&rl->ledger.values, s, &rl->bounds, batch);
    return find_figures(batch, o);
  case TREADLE_STAGE_WRITE: return write_samples(&rl->ledger, s, &rl->state, batch);
  case TREADLE_STAGE_TEST_DRAW:
    treadle_rl_batch_clear(&rl->tests);
    rl->tests.step = rl->state.step;
    return treadle_rl_draw_tests(&rollout, rl->data.tests, &rl->tests);
  case TREADLE_STAGE_TEST_RM_SCORE: return treadle_rl_find_rm_scores(&rl->workers, s, &rl->tests, 0);
  case TREADLE_STAGE_TEST_JUDGE: return treadle_rl_test(rl, &o->test);
  case TREADLE_STAGES: break;
  }
  return TREADLE_OK;
}
