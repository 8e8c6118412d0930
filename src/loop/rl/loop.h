/* The loop of reinforcement learning: what its files share.
 *
 *   loop.c             a run: steps one after the other, until the last
 *   loop_open.c        what a configuration names, opened: model, layouts, the worker
 *   loop_data.c        and prompts and rewards
 *   loop_start.c       where a run goes on, and what a checkpoint has of it
 *   loop_convert.c     a checkpoint of Megatron that weights begin with: found, or made once
 *   loop_weights.c     where its weights come from, and filling them
 *   loop_exact.c       what exact mode needs, and its check
 *   loop_worker.c      the methods that rank 0 calls on all ranks
 *   loop_calls.c       the calls, as rank 0 makes them
 *   loop_columns.c     the columns of a step's samples, which calls hand to ranks
 *   loop_kept.c        ids that are never drawn, and those that tokens were drawn from
 *   loop_draw.c        prompts of a step, and the samples that the policy makes of them
 *   loop_advantages.c  scores, KL in the reward, advantages
 *   loop_update.c      mini batches
 *   loop_figures.c     what metrics.jsonl gets
 *   loop_report.c      what `treadle report` draws beside metrics.jsonl
 *   loop_test.c        prompts that are not trained on
 *
 * Rank 0 has data, rewards and figures; the other ranks serve its calls (control/worker_group.h). A step, in this order:
 *
 *   draw        prompts of the step, n samples of each          generate_sequences       INFER
 *   rewards     begin, beside what follows
 *   old         the trainer's log-probabilities, where          compute_log_prob         FORWARD
 *               the update does not find them itself
 *   reference   where a KL is used                              compute_ref_log_prob     FORWARD
 *   advantages
 *   update      mini batch by mini batch                        update                   TRAIN
 *   test, save  after every test_interval and save_interval steps
 *
 * All sums over samples and tokens are taken by rank 0, in the order of samples: no figure depends on a layout. */
#ifndef TREADLE_RL_LOOP_H
#define TREADLE_RL_LOOP_H

#include "base/arena.h"
#include "base/array.h"
#include "control/worker_group.h"
#include "io/folder_lock.h"
#include "rl/advantages.h"
#include "rl/dump.h"
#include "rl/kl_control.h"
#include "rl/prompts.h"
#include "rl/sample_log.h"
#include "rl/validate.h"
#include "run/checkpoint.h"
#include "run/config.h"
#include "run/metrics.h"
#include "run/observe.h"
#include "run/order.h"
#include "run/run_start.h"
#include "run/schedule.h"
#include "train/ppo.h"
#include "treadle_loop.h"

#include <limits.h>

enum { TREADLE_RL_NAME = 72, TREADLE_RL_REWARDS = 8 };

/* "rl_config.epochs (line 9)" */
#define TREADLE_RL_PLACE(rl, member) treadle_train_config_place((rl)->config, TREADLE_KEY_OF(member))

/* A completion of a prompt. Tokens are in the arrays of the batch, from `first` on. */
typedef struct treadle_rl_made {
  const treadle_rl_prompt *prompt;
  int64_t group;                 /* number of its prompt in the step */
  int64_t index;                 /* of the sample */
  size_t first, count;           /* of its tokens */
  size_t kept_first, kept_count; /* of the ids that they were drawn from */
  char *text;                    /* [bytes] and a 0 */
  size_t bytes;
  bool cut;             /* at the largest length */
  double score, reward; /* reward: with penalties of the length and the KL */
  double advantage;
  int64_t mini_batch;
} treadle_rl_made;

/* The samples of a step. Their tokens lie one behind the other. */
typedef struct treadle_rl_batch {
  TREADLE_ARRAY(treadle_rl_made) samples; /* groups one behind the other */
  int64_t step, groups;
  bool tests;                 /* it is not trained on: of a test behind that step */
  TREADLE_ARRAY(int32_t) ids; /* of all tokens, and so all that follows */
  TREADLE_ARRAY(float) rollout;
  /* Where what is drawn is cut, and log-probabilities are of that: of each token how many ids there were, and which;
   * else empty. */
  TREADLE_ARRAY(int32_t) kept_counts;
  TREADLE_ARRAY(int32_t) kept;
  float *old, *ref; /* NULL: not computed; and so the next two */
  float *updated;   /* log-probabilities as the last update of each sample has found them */
  float *entropies; /* after the update: those that actor/entropy is made of */
  double *rewards, *advantages, *returns;
  treadle_batch
      *columns; /* what ranks get of it, a row for each sample, on the same memory; NULL: not yet */
  int64_t *offsets, *kept_offsets; /* [samples + 1] of these columns, in one array */
} treadle_rl_batch;

typedef struct treadle_rl_mini_result {
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl, grad_norm, lr;
} treadle_rl_mini_result;

/* Seconds of the stages of a step. */
typedef struct treadle_rl_times {
  double gen, reward, old_log_prob, ref, adv, update_actor, testing, save_checkpoint, step;
  double to_infer, to_train;
} treadle_rl_times;

/* What steps have come to, for the end of the run. */
typedef struct treadle_rl_totals {
  TREADLE_ARRAY(double) seconds, rewards; /* of each step */
  int64_t tokens, compared, differing;
  double most_difference, all_seconds;
} treadle_rl_totals;

/* Device bytes of rank 0 at a moment of a step, by class. */
typedef struct treadle_rl_moment {
  double seconds;
  const char *stage;
  size_t bytes[TREADLE_CLASSES];
} treadle_rl_moment;

typedef struct treadle_rl {
  treadle_group *group;
  const treadle_train_config *config;
  const treadle_train_settings *settings;
  const treadle_rl_options *options;
  treadle_observer observer;
  int rank, ranks;
  bool plans; /* only memory is wanted */
  /* Of all ranks. */
  treadle_model *opened, *reference_model; /* reference_model: NULL: the policy's own */
  struct treadle_values *start_values;     /* of a checkpoint of Megatron; NULL: of the model's own files */
  const treadle_model *model;              /* the opened one, with start_values where there are any */
  treadle_layout *train, *infer, *reference;
  treadle_actor *actor;
  treadle_worker_group workers;
  char model_path[PATH_MAX], companions[PATH_MAX];
  char from[TREADLE_RUN_FROM]; /* the checkpoint that the run goes on from; "": it begins */
  /* Of rank 0. */
  treadle_tokenizer *tokenizer;
  treadle_chat *chat;
  treadle_rl_prompts *prompts, *tests; /* tests: NULL: there are none */
  treadle_reward *rewards[TREADLE_RL_REWARDS];
  double weights[TREADLE_RL_REWARDS];
  int reward_count;
  TREADLE_ARRAY(treadle_reward_sample) judged; /* what the rewards see now */
  treadle_arena judged_texts;
  treadle_train_order order;
  treadle_lr_schedule schedule;
  treadle_metrics *metrics;
  treadle_rl_sample_log *sample_log;
  treadle_rl_batch batch;
  treadle_message in, out;
  int64_t prompt_most, response_most; /* tokens */
  int64_t vocabulary;
  /* [never_count] ids that no token is, ascending: those without a token, and ends that are ignored. Of all ranks. */
  int32_t *never;
  size_t never_count;
  bool needs_answers;                   /* a reward does */
  double kl_coef, loss_kl_coef;         /* of the next step; of the loss of this one */
  int64_t step, optimizer_steps, drawn; /* drawn: prompts so far */
  int64_t saved;                        /* the step of the newest checkpoint; -1: there is none */
  int64_t written;                      /* of the newest line of metrics.jsonl */
  double saving_since;                  /* 0: no checkpoint is under way */
  treadle_folder_lock lock, dump_lock;  /* of rank 0 */
  uint64_t losses_digest;
  size_t predicted;
  treadle_rl_times times;
  treadle_rl_totals totals;
  double val_first, val_last;
  int64_t left_out;                         /* groups of this step whose samples score alike */
  bool stopped;                             /* a rank was asked to, while samples were drawn or scored */
  TREADLE_ARRAY(treadle_metric) values;     /* of this step */
  bool values_lost;                         /* there was no memory for one */
  const char *stage;                        /* of the step that is under way */
  double begin;                             /* of that step */
  TREADLE_ARRAY(treadle_rl_moment) moments; /* of the last step */
  treadle_arena names;                      /* of the values */
} treadle_rl;

treadle_status treadle_rl_agree(const treadle_rl *rl, treadle_status status);
static inline bool treadle_rl_uses_kl(const treadle_train_settings *s) {
  return s->rl.kl.in_loss || s->rl.kl.in_reward;
}
/* Gives all ranks the number of rank 0. Collective. */
treadle_status treadle_rl_tell(const treadle_rl *rl, int64_t *number);
/* Gives all ranks the figures of rank 0, at most as long as what a rank says at a meeting. Collective. */
treadle_status treadle_rl_share(const treadle_rl *rl, void *figures, size_t bytes);

/* ---- loop_folders.c ---- */

/* The folder and those above it. */
treadle_status treadle_rl_make_folders(const char *path);
/* Rank 0: the folders that the run owns are its own from here on. Refused where another run has one of them. */
treadle_status treadle_rl_take_folders(treadle_rl *rl);
void treadle_rl_release_folders(treadle_rl *rl);
/* Tells the person who runs it that something is not as it should be; "" is nothing. Rank 0 does. */
void treadle_rl_warn(const treadle_rl *rl, const char *line);

/* Steps of the optimizer that a run takes: mini batches of all epochs of all steps. */
static inline int64_t treadle_rl_optimizer_steps(const treadle_train_settings *s) {
  const int64_t samples = treadle_train_step_prompts(s) * s->rl.batches.n_samples_per_prompt;
  const int64_t mini = s->rl.batches.mini_batch_samples > 0 ? s->rl.batches.mini_batch_samples : samples;
  return s->training.train_iters * s->rl.batches.epochs * ((samples + mini - 1) / mini);
}
/* Tells who asks what takes long now; and what a person should know. Rank 0 does. */
void treadle_rl_doing(const treadle_rl *rl, const char *what);
void treadle_rl_note(const treadle_rl *rl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- loop_open.c ---- */

/* Of the pool of the switch. */
static inline size_t treadle_rl_page_bytes(const treadle_model *model) {
  return (size_t)treadle_model_bytes(model) < (size_t)64 << 20 ? (size_t)1 << 16 : (size_t)1 << 21;
}
/* All but the worker. */
treadle_status treadle_rl_open_inputs(treadle_rl *rl);
treadle_status treadle_rl_open(treadle_rl *rl);
/* Tokens of prompts and responses, at most, and the vocabulary: of a model and what settings say. */
treadle_status treadle_rl_find_lengths(treadle_rl *rl, const treadle_model *model);
void treadle_rl_close(treadle_rl *rl);
/* The tokenizer and the chat template, where there are any: those that the settings name, else of rl->model_path. */
treadle_status treadle_rl_open_text(treadle_rl *rl);
/* The options of its worker, which are good while `trainer` and `engine` are. */
treadle_status treadle_rl_actor_options(const treadle_rl *rl, treadle_trainer_options *trainer,
                                        treadle_generator_options *engine, treadle_actor_options *to);
/* What ranks will hold, whatever a device has: by_rank [ranks]. */
treadle_status treadle_rl_foresee_ranks(const treadle_rl *rl, treadle_actor_memory *by_rank);
/* plan_room.c: refused, with what would help, where a device has less than a rank needs. */
treadle_status treadle_rl_check_room(const treadle_rl *rl, const treadle_actor_memory *by_rank);
/* The same of both: by_rank [ranks] where that is given; and of the fullest one: rl->predicted. */
treadle_status treadle_rl_predict(treadle_rl *rl, treadle_actor_memory *by_rank);

/* loop_data.c: on rank 0, prompts and rewards. */
treadle_status treadle_rl_open_data(treadle_rl *rl);

/* loop_convert.c: takes the values of a checkpoint of Megatron, and makes the layouts anew with them, where the configuration says so. Collective. */
treadle_status treadle_rl_open_values(treadle_rl *rl);
/* loop_open.c: the layouts of the run, of its model as it is now. Local. */
treadle_status treadle_rl_open_layouts(treadle_rl *rl);

/* loop_weights.c: refused where weights are needed that nothing gives; says so where they are made up. Local. */
treadle_status treadle_rl_check_weights(const treadle_rl *rl);
/* Where the weights come from that the run began or went on with. */
treadle_weights treadle_rl_weights(const treadle_rl *rl);
/* Fills the worker's, and those of the reference. Collective. */
treadle_status treadle_rl_fill_weights(treadle_rl *rl);

/* ---- loop_exact.c ---- */

/* Refused, where both sides cannot have the same bits. */
treadle_status treadle_rl_check_exact(const treadle_rl *rl);
/* Is it compared in this step? */
bool treadle_rl_check_is_due(const treadle_rl *rl);
/* Where the first mini batch has all samples, its own pass forward is the trainer's with the weights that generated: no other one is needed. */
bool treadle_rl_update_checks(const treadle_rl *rl);
/* A value of each token: zeros. NULL: there is no memory. */
float *treadle_rl_values_of(const treadle_rl_batch *batch);
/* Room for the trainer's log-probabilities and entropies. */
treadle_status treadle_rl_take_old(treadle_rl_batch *batch);
/* batch->old beside batch->rollout: figures, and in exact mode TREADLE_DIFFERENT for a bit that differs. */
treadle_status treadle_rl_compare(treadle_rl *rl);
/* The same, with what an update of all samples has found. */
treadle_status treadle_rl_compare_update(treadle_rl *rl, const float *logprobs, const float *entropies);

/* ---- loop_start.c ---- */

treadle_status treadle_rl_find_start(treadle_rl *rl);
/* Is the checkpoint whole, as it was saved? Collective. */
treadle_status treadle_rl_check_start(treadle_rl *rl);
treadle_status treadle_rl_read_start(treadle_rl *rl);
/* Saves a checkpoint of the present step; its path. Rank 0. What the step has for files is written before the checkpoint gets its name, so
 * that no run that goes on from it lacks them. */
treadle_status treadle_rl_save(treadle_rl *rl, char *path, size_t room);
/* loop.c: those files, once the checkpoint's own are there. Collective. */
treadle_status treadle_rl_write_step(treadle_rl *rl);

/* ---- loop_worker.c ---- */

extern const treadle_worker_method treadle_rl_methods[];
/* What treadle_rl_call_generate asks for: all prompts, which lie in the message, and how answers are drawn. */
typedef struct treadle_rl_asked {
  treadle_batch *prompts;
  treadle_sampling sampling;
  int32_t end;               /* of sampling.stop_token_ids */
  treadle_observer observer; /* rank 0 tells how far it is */
} treadle_rl_asked;
treadle_status treadle_rl_take_asked(treadle_rl *rl, treadle_message *in, treadle_rl_asked *asked_p);
/* What this rank answers: to prompts from `first` on. NULL: another rank of its replica does. */
void treadle_rl_put_answers(treadle_message *out, int64_t first, const treadle_batch *answers);

/* ---- loop_calls.c; rank 0 ---- */

typedef struct treadle_rl_rows {
  treadle_rl_batch *batch;
  const int64_t *samples; /* [count] which ones; those without tokens go nowhere */
  size_t count;
} treadle_rl_rows;

typedef struct treadle_rl_gauges {
  treadle_actor_info fullest; /* the largest of all ranks, field by field; kv_blocks: the smallest */
  bool stops;                 /* a rank wants to */
} treadle_rl_gauges;

/* How samples of prompts are drawn. */
typedef struct treadle_rl_sampling {
  int64_t n, key; /* key: with the place of a prompt it makes the seed of its samples */
  double temperature, top_p;
  int64_t top_k; /* below 1: all */
  bool keeps;    /* the ids that tokens are drawn from are to be known */
} treadle_rl_sampling;

/* Answers to prompts, a batch with the columns prompt_ids and seed; the caller destroys them, also on failure. */
treadle_status treadle_rl_call_generate(treadle_rl *rl, const treadle_batch *prompts,
                                        const treadle_rl_sampling *sampling, treadle_batch **answers_p);
/* Log-probabilities, and entropies where they are not NULL, of the tokens of these samples: each at its place in the batch. */
treadle_status treadle_rl_call_logprobs(treadle_rl *rl, const treadle_rl_rows *rows, bool reference,
                                        float *logprobs, float *entropies);
/* All ranks go to a mode, ahead of who needs it. */
treadle_status treadle_rl_call_enter(treadle_rl *rl, treadle_mode mode);
typedef struct treadle_rl_update {
  treadle_rl_rows rows;
  treadle_optimizer_step step;
  float *logprobs, *entropies; /* what they were before the step; entropies: NULL: not wanted */
} treadle_rl_update;
treadle_status treadle_rl_call_update(treadle_rl *rl, const treadle_rl_update *update,
                                      treadle_optimizer_figures *figures_p);
treadle_status treadle_rl_call_save(treadle_rl *rl, const treadle_train_checkpoint *checkpoint);
treadle_status treadle_rl_call_digest(treadle_rl *rl, uint64_t *digest_p);
/* Of all ranks, the largest. */
treadle_status treadle_rl_call_gauges(treadle_rl *rl, treadle_rl_gauges *gauges_p);

/* ---- loop_columns.c; rank 0 ---- */

/* The columns that the batch has by now: prompt_ids, ids, rollout_log_probs, and what else was computed. */
treadle_status treadle_rl_set_columns(treadle_rl_batch *batch);

/* ---- loop_kept.c ---- */

/* Finds rl->never, by the tokenizer and the settings, where there are some. ends: those of the model, where they are
 * ignored; NULL: none. */
treadle_status treadle_rl_find_never(treadle_rl *rl, const treadle_model *ends);
/* Says what is never drawn, and what a cut keeps at most. */
void treadle_rl_note_never(const treadle_rl *rl);
void treadle_rl_note_kept(const treadle_rl *rl);
/* Are log-probabilities of what a cut leaves? */
bool treadle_rl_keeps(const treadle_rl *rl);
/* Bytes of a step's ids on a rank, at most; 0: none are kept. */
size_t treadle_rl_kept_bytes(const treadle_rl *rl);
/* The ids of a sample that is new in the batch, after the present ones, as a message has them. Refused: other ids
 * than a cut leaves. */
treadle_status treadle_rl_take_kept(const treadle_rl *rl, treadle_rl_batch *batch, treadle_rl_made *made,
                                    const int32_t *counts, const int32_t *ids, size_t count);

/* ---- loop_draw.c; rank 0 ---- */

/* "STEP-PROMPT-SAMPLE", of a test "test-STEP-PROMPT-SAMPLE": what rewards and files call it. */
void treadle_rl_name_sample(const treadle_rl_batch *batch, const treadle_rl_made *sample,
                            char to[TREADLE_RL_NAME]);
void treadle_rl_batch_clear(treadle_rl_batch *batch);
void treadle_rl_batch_release(treadle_rl_batch *batch);
/* Samples of `count` prompts, into the batch, after the present ones. */
treadle_status treadle_rl_draw(treadle_rl *rl, const treadle_rl_prompt *const *prompts, int64_t count,
                               const treadle_rl_sampling *sampling, treadle_rl_batch *batch);
/* Begins to score what is in the batch from sample `from` on, and waits for it. preds: NULL, or what samples were taken to answer, by
 * sample. Where one of them fails, and behind the wait, no reward looks at the batch any more. Scores that have not come half a second after the
 * run was asked to stop are not waited for: rl->stopped, and there are none. */
treadle_status treadle_rl_score_start(treadle_rl *rl, treadle_rl_batch *batch, size_t from);
treadle_status treadle_rl_score_wait(treadle_rl *rl, treadle_rl_batch *batch, size_t from, char **preds);
/* The samples of the next step, with scores under way from sample *from_p on: groups that score alike are drawn anew, where that is asked. */
treadle_status treadle_rl_draw_step(treadle_rl *rl, size_t *from_p);

/* ---- loop_advantages.c, loop_update.c, loop_figures.c, loop_test.c; rank 0 ---- */

/* The loss of a step, with the KL's coefficient. */
treadle_loss_options treadle_rl_loss_of(const treadle_rl *rl, double kl_coef);
/* The coefficient of the next step, by the mean KL of this one. */
void treadle_rl_steer_kl(treadle_rl *rl, double kl);
/* Old log-probabilities: the pass of the trainer, compared with those of the generator. */
treadle_status treadle_rl_old_logprobs(treadle_rl *rl);
treadle_status treadle_rl_ref_logprobs(treadle_rl *rl);
treadle_status treadle_rl_find_advantages(treadle_rl *rl);
treadle_status treadle_rl_update_actor(treadle_rl *rl, treadle_rl_mini_result *last_p, bool *skipped_p);
void treadle_rl_value(treadle_rl *rl, const char *name, double value);
void treadle_rl_count(treadle_rl *rl, const char *name, int64_t value);
/* What is known of the batch. */
void treadle_rl_batch_values(treadle_rl *rl);
/* val_n samples of each prompt of rl->tests, with their scores, in the batch, which is empty before; and what they come to. The caller
 * releases both, whatever is returned. rl->stopped: there are no scores. */
treadle_status treadle_rl_judge_tests(treadle_rl *rl, treadle_rl_batch *batch,
                                      treadle_rl_verdicts *verdicts);
treadle_status treadle_rl_test(treadle_rl *rl, double *mean_p);
/* Writes FOLDER/K.jsonl. */
treadle_status treadle_rl_dump_step(treadle_rl *rl);
/* The first samples, in samples.jsonl; of a test, in RUN/validation/STEP.jsonl. */
treadle_status treadle_rl_log_samples(treadle_rl *rl);
treadle_status treadle_rl_write_test(treadle_rl *rl, const treadle_rl_batch *batch);

/* ---- loop_report.c ---- */

/* What the actor's books tell; context is the run. */
void treadle_rl_note_moment(void *context, const size_t *bytes, int classes);
/* A step begins; a stage of it does. Rank 0. */
void treadle_rl_begin_moments(treadle_rl *rl);
void treadle_rl_stage(treadle_rl *rl, const char *stage);
/* RUN/switch.json and memory.json, for `treadle report`. */
treadle_status treadle_rl_report(treadle_rl *rl);

#endif
