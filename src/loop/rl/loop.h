/* The loop of reinforcement learning: what its files share.
 *
 *   loop.c             a run: steps one after the other, until the last
 *   loop_crew.c        ranks that agree, and what a person is told; loop_teams.c, loop_teams_ranks.c: which ranks do what; loop_lost.c: which is lost
 *   loop_open.c        what a configuration names, opened: model, layouts, the worker; loop_data.c: prompts and rewards
 *   loop_folders.c     the folders that a run owns
 *   loop_same.c        whether all ranks have one configuration
 *   loop_start.c       where a run goes on, and what a checkpoint has of it
 *   loop_weights.c     where its weights come from, and filling them; loop_convert.c: a checkpoint of Megatron, found, or made once
 *   loop_exact.c       what exact mode needs, and its check
 *   loop_worker.c      the methods that rank 0 calls on all ranks; loop_worker_critic.c: those of the critic; loop_taken.c: their rows
 *   loop_calls.c       the calls, as rank 0 makes them; loop_calls_rows.c: of rows; loop_balance.c: in which order
 *   loop_columns.c     the columns of a step's samples, which calls hand to ranks
 *   loop_draw.c        prompts of a step, and the samples that the policy makes of them; loop_kept.c: ids that these were drawn from
 *   loop_advantages.c  scores, KL in the reward, advantages; loop_token_rewards.c: rewards that give each token its own
 *   loop_update.c      mini batches
 *   loop_critic.c      values, and the critic's mini batches; loop_critic_open.c: its model and its role
 *   loop_reward_model.c  scores of a reward model; loop_reward_model_open.c: its model and its role; loop_worker_reward.c: its method
 *   loop_reference_open.c, loop_worker_reference.c  the same of a reference with an engine of its own
 *   loop_role.c        what a trainer is opened with; loop_role_beside.c: what roles beside the policy have alike
 *   loop_figures.c     what metrics.jsonl gets; loop_report.c: what `treadle report` draws beside it; loop_trace.c: who worked when
 *   loop_test.c        prompts that are not trained on
 *   loop_step.c        the stages of a step, in their order; loop_stages_work.c: what each does
 *   loop_stages.c      whose work they are; loop_stages_apart.c: asking other ranks for them; loop_portions.c: with the samples that have come;
 *                      loop_brought.c: samples that are another rank's
 *
 * A run is made of parts, each of which has a header; functions take the parts that they need:
 *
 *   task.h      what it is to do: configuration, settings, options
 *   crew.h      its ranks, and who watches it; teams.h: which of them do what
 *   models.h    models and layouts; bounds.h: lengths, and the ids that tokens have
 *   data.h      prompts and rewards
 *   batch.h     the samples of a step; stages.h: what is done with them
 *   workers.h   calls that rank 0 makes
 *   rollout.h   drawing and scoring, by several of these parts
 *   state.h     where it stands, and its folders
 *   memory.h    what its ranks will hold: memory.c, plan.c, plan_room.c
 *   ledger.h    figures, and the files that they are written to
 *   critic.h    the critic, where there is one; reward_model.h, reference.h: the same of a reward model, and of a reference with an engine of its own
 *
 * Rank 0 has data, rewards and figures, goes through the stages of a step, and does them; the other ranks serve its calls (control/worker_group.h). With the
 * controller apart, rank 0 only asks others to do them (stages.h). A step, in this order:
 *
 *   draw        prompts of the step, n samples of each          generate_sequences       INFER
 *   rewards     begin, beside what follows
 *   reward model  where there is one                         compute_rm_score         FORWARD, the reward model's, too
 *   old         the trainer's log-probabilities, where          compute_log_prob         FORWARD
 *               the update does not find them itself
 *   reference   where a KL is used                              compute_ref_log_prob     FORWARD
 *   values      where there is a critic                         compute_values           FORWARD, the critic's, too
 *   advantages
 *   critic      mini batch by mini batch                        update_critic            FORWARD, the critic's TRAIN
 *   update      mini batch by mini batch                        update                   TRAIN
 *   test, save  after every test_interval and save_interval steps
 *
 * All sums over samples and tokens are taken by one rank, in the order of samples: no figure depends on a layout. */
#ifndef TREADLE_RL_LOOP_H
#define TREADLE_RL_LOOP_H

#include "rl/advantages.h"
#include "rl/critic.h"
#include "rl/dump.h"
#include "rl/kl_control.h"
#include "rl/ledger.h"
#include "rl/models.h"
#include "rl/reference.h"
#include "rl/reward_model.h"
#include "rl/rollout.h"
#include "rl/stages.h"
#include "rl/teams.h"
#include "run/schedule.h"

typedef struct treadle_rl {
  treadle_rl_task task;
  /* All processes; those of this rank's team, or all; and those with which it has roles beside the policy: the same, or of two pools Actor's. */
  treadle_rl_crew whole, crew, beside;
  treadle_rl_teams teams;
  treadle_rl_models models;
  treadle_run_text text;
  treadle_rl_bounds bounds;
  treadle_actor *actor;
  treadle_rl_critic critic;
  treadle_rl_reward_model reward_model;
  treadle_rl_reference reference;
  treadle_rl_workers workers;
  /* Of who leads and of those who do stages, but for state.from. */
  treadle_rl_data data;
  treadle_rl_rewards rewards;
  treadle_rl_batch batch, tests; /* samples of the step, and of the test behind it */
  size_t scored;                 /* samples of the batch that had their scores when they were drawn */
  treadle_rl_state state;
  treadle_rl_ledger ledger;
  treadle_rl_stages stages;
  treadle_rl_folders folders;
  treadle_lr_schedule schedule;
  treadle_actor_books books; /* of a rank without the policy: what other roles hold there */
  size_t predicted;          /* bytes of the fullest rank */
  bool stopped;              /* a rank was asked to, while samples were drawn or scored */
} treadle_rl;

/* Good while the run is. */
static inline treadle_rl_rollout treadle_rl_rollout_of(treadle_rl *rl) {
  return (treadle_rl_rollout){.settings = rl->task.settings,
                              .crew = &rl->crew,
                              .bounds = &rl->bounds,
                              .tokenizer = rl->text.tokenizer,
                              .workers = &rl->workers,
                              .rewards = &rl->rewards,
                              .stopped = &rl->stopped};
}

/* ---- loop_open.c ---- */

/* All but the worker; of that, the policy's model and the lengths of sequences alone. */
treadle_status treadle_rl_open_inputs(treadle_rl *rl);
treadle_status treadle_rl_open_lengths(treadle_rl *rl);
treadle_status treadle_rl_open(treadle_rl *rl);
void treadle_rl_close(treadle_rl *rl);

/* ---- Inputs ---- */

/* loop_data.c: on rank 0, prompts and rewards. */
treadle_status treadle_rl_open_data(treadle_rl *rl);
/* loop_convert.c: takes the values of a checkpoint of Megatron, and makes the layouts anew with them, where the configuration says so. Collective. */
treadle_status treadle_rl_open_values(treadle_rl *rl);
/* loop_weights.c: fills the worker's, and those of the reference. Collective. */
treadle_status treadle_rl_fill_weights(treadle_actor *policy, const treadle_rl_models *models,
                                       const char *from, int64_t seed);

/* ---- Checkpoints ---- */

/* loop_same.c: refused if a rank has another configuration than rank 0, but for paths. Collective. */
treadle_status treadle_rl_check_same(const treadle_rl_crew *whole, const treadle_rl_task *task);
/* loop_start.c: saves a checkpoint of the present step; its path. Rank 0. What the step has for files is written before the checkpoint gets
 * its name, so that no run that goes on from it lacks them. */
treadle_status treadle_rl_save(treadle_rl *rl, char *path, size_t room);
/* loop.c: those files, once the checkpoint's own are there. Collective. */
treadle_status treadle_rl_write_step(treadle_rl *rl);

/* loop_worker.c: the worker of each rank is the run, whose actor is there. group NULL: one rank. */
void treadle_rl_open_workers(treadle_rl_workers *workers, treadle_group *group, void *run);

/* ---- A step; rank 0 ---- */

/* loop_draw.c: these samples of the next step, end 0: all; when all have come, scores are under way from sample *from_p on. Groups that score alike are
 * drawn anew, where that is asked. */
treadle_status treadle_rl_draw_step(treadle_rl *rl, const treadle_row_range *rows, size_t *from_p);

/* loop_advantages.c. Old log-probabilities: the pass of the trainer, compared with those of the generator. */
treadle_status treadle_rl_old_logprobs(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                       treadle_rl_ledger *ledger, treadle_rl_batch *batch);
treadle_status treadle_rl_ref_logprobs(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                       treadle_rl_batch *batch, size_t from);
treadle_status treadle_rl_find_advantages(treadle_rl *rl);

/* loop_step.c: all stages of the next step, and its figures; `step` gets what it came to, *gauges what ranks had before and have now. *stages->stopped: it
 * was not taken. */
treadle_status treadle_rl_take_step(treadle_rl_stages *stages, treadle_rl_workers *workers,
                                    treadle_rl_step *step, treadle_rl_gauges *gauges);

/* loop_update.c; and loop_test.c: scores of rl->tests, and their figures. */
treadle_status treadle_rl_update_actor(treadle_rl *rl, treadle_rl_mini_result *last_p, bool *skipped_p);
treadle_status treadle_rl_test(treadle_rl *rl, double *mean_p);

/* ---- loop_report.c ---- */

/* What the actor's books tell; context is the run. */
void treadle_rl_note_moment(void *context, const size_t *bytes, int classes);
/* A stage of the step begins. Rank 0. */
void treadle_rl_stage(treadle_rl *rl, const char *stage);
/* RUN/switch.json and memory.json, for `treadle report`. */
treadle_status treadle_rl_report(treadle_rl *rl);

#endif
