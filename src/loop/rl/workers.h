/* The calls that rank 0 makes on all ranks (loop_calls.c). */
#ifndef TREADLE_RL_WORKERS_H
#define TREADLE_RL_WORKERS_H

#include "control/worker_relay.h"
#include "control/worker_rows.h"
#include "rl/batch.h"
#include "run/checkpoint.h"
#include "run/trace.h"

typedef struct treadle_rl_workers {
  treadle_worker_group group;   /* on the controller apart: of the policy */
  treadle_worker_group critics; /* of the controller apart alone: the way to the critic, */
  treadle_worker_relay *relays; /* [relay_count] and to all pools */
  int relay_count;
  treadle_message in, out; /* of the call that is made */
  treadle_trace *trace;    /* what this rank records; NULL: nothing is */
  /* Which rows each rank takes in calls of a method, by_rank [ranks], by their lengths, and how they go through the layers; `worker` is the
   * group's. NULL: no call has rows to train on. Local. */
  treadle_status (*divide)(void *worker, const char *method, const int64_t *lengths, int64_t rows,
                           treadle_row_range *by_rank, treadle_forward_options *forward_p);
  bool balances; /* rows are put in an order in which coordinates have about equal work */
  struct treadle_rl_tokens *tokens; /* of calls that are made; NULL: nobody counts */
} treadle_rl_workers;

void treadle_rl_workers_release(treadle_rl_workers *workers);

/* Calls something of the policy's ranks, and apart of those of each other pool, one group after the other. */
typedef treadle_status treadle_rl_group_call(treadle_rl_workers *workers, treadle_worker_group *group,
                                             void *context);
treadle_status treadle_rl_call_each(treadle_rl_workers *workers, treadle_rl_group_call *ask, void *context);

typedef struct treadle_rl_rows {
  treadle_rl_batch *batch;
  const int64_t *samples; /* [count] which ones; those without tokens go nowhere */
  size_t count;
} treadle_rl_rows;
/* Samples from `from` on, by their numbers, which the caller frees; the batch has its columns. */
treadle_status treadle_rl_rows_from(treadle_rl_batch *batch, size_t from, int64_t **numbers_p,
                                    treadle_rl_rows *rows);

/* The largest of all ranks, field by field; kv_blocks: the smallest of those that generate. */
typedef struct treadle_rl_gauges {
  treadle_actor_info fullest;
  bool stops; /* a rank wants to */
} treadle_rl_gauges;

/* How samples of prompts are drawn. */
typedef struct treadle_rl_sampling {
  int64_t n, key; /* key: with the place of a prompt it makes the seed of its samples */
  double temperature, top_p;
  int64_t top_k; /* below 1: all */
  bool keeps;    /* the ids that tokens are drawn from are to be known */
} treadle_rl_sampling;

/* Answers of the replicas, one's behind those of the one before. They lie where the ranks have put them, until the next call. */
typedef struct treadle_rl_answers {
  treadle_batch **parts; /* [count] */
  size_t count;
} treadle_rl_answers;
/* Answers to prompts, a batch with the columns prompt_ids and seed; the caller releases them, also on failure. The tokenizer
 * knows which token ends a text; NULL: the model does. */
treadle_status treadle_rl_call_generate(treadle_rl_workers *workers, const treadle_tokenizer *tokenizer,
                                        const treadle_batch *prompts, const treadle_rl_sampling *sampling,
                                        treadle_rl_answers *answers_p);
void treadle_rl_answers_release(treadle_rl_answers *answers);
/* Log-probabilities, and entropies where they are not NULL, of the tokens of these samples: each at its place in the batch. */
treadle_status treadle_rl_call_logprobs(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                        bool reference, float *logprobs, float *entropies);
/* All ranks go to a mode, ahead of who needs it. */
treadle_status treadle_rl_call_enter(treadle_rl_workers *workers, treadle_mode mode);
typedef struct treadle_rl_update {
  treadle_rl_rows rows;
  treadle_loss_options loss; /* each rank makes its own by the configuration, with this kl_coef */
  treadle_optimizer_step step;
  float *logprobs, *entropies; /* what they were before the step; entropies: NULL: not wanted */
  int64_t *differing;          /* [samples of the batch] as in it; NULL: not wanted */
} treadle_rl_update;
treadle_status treadle_rl_call_update(treadle_rl_workers *workers, const treadle_rl_update *update,
                                      treadle_optimizer_figures *figures_p);
/* What the critic gives the tokens of these samples, each at its place in the batch. */
treadle_status treadle_rl_call_values(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                      float *values);
/* An update of the critic, by the columns values and returns. */
treadle_status treadle_rl_call_update_critic(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                             double lr, treadle_optimizer_figures *figures_p);
/* The calls of the critic are over for now. */
treadle_status treadle_rl_call_rest(treadle_rl_workers *workers);
treadle_status treadle_rl_call_save(treadle_rl_workers *workers,
                                    const treadle_train_checkpoint *checkpoint);
/* Apart: what one role has of a checkpoint, into a folder that is there. */
treadle_status treadle_rl_call_save_role(treadle_rl_workers *workers, bool critic, const char *folder);
treadle_status treadle_rl_call_digest(treadle_rl_workers *workers, uint64_t *digest_p);
/* Of all ranks of all pools. */
treadle_status treadle_rl_call_gauges(treadle_rl_workers *workers, treadle_rl_gauges *gauges_p);
/* loop_worker.c */
void treadle_rl_gauges_join(treadle_rl_gauges *gauges, const treadle_rl_gauges *other);

#endif
