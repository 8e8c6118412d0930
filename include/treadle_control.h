/* treadle for those who run a loop around the switch: the hybrid actor worker.
 *
 *   treadle_actor_*   one copy of a policy that trains in one layout and generates in another, on the same devices
 *   treadle_rl_*      the loop around it: GRPO and its kin
 *   treadle_eval      what the answers of a model are worth
 *
 * Conventions are those of treadle.h. */
#ifndef TREADLE_CONTROL_H
#define TREADLE_CONTROL_H

#include "treadle_engine.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- The hybrid actor worker ---------------------------------------------------------------------------- */

/* The worker of one rank: a train engine and an infer engine, known as tables of functions, on the windows of one switch. It is made in this
 * order, so that blocks of the KV cache are counted when the state of training has left the device: the infer engine, the switch, the train
 * engine on the switch's windows.
 *
 * Modes are entered lazily: a call switches only when it needs another mode than the present one.
 *
 *   generate    INFER
 *   log-probs   of the policy: TRAIN or FORWARD, whichever it is in, else FORWARD; of the reference: FORWARD
 *   gradients, step, load, save    TRAIN
 *
 * A call that fails on one rank fails on all. All functions but accessors and destroy are collective. */
typedef struct treadle_actor treadle_actor;

typedef struct treadle_actor_options {
  size_t struct_size;
  const treadle_trainer_options *trainer; /* its windows are the actor's; NULL: defaults */
  const treadle_engine_options *engine;   /* NULL: defaults */
  const treadle_layout *reference; /* like the layout of training, of the reference's model; NULL: none */
  treadle_choice offload_train_param, offload_train_grad,
      offload_train_optimizer; /* leave the device in mode INFER (default: on) */
  treadle_keep keep;           /* as in treadle_switch_options, as are */
  size_t page_bytes, cap_bytes, kv_bytes;
  size_t budget_bytes;                  /* device bytes that this rank may hold, all in all; 0: no limit */
  double timeout_seconds;               /* of a switch */
  treadle_train_engine_open open_train; /* NULL: treadle_trainer_open_engine */
  void *train_context;
  treadle_infer_engine_open open_infer; /* NULL: treadle_engine_open_infer */
  void *infer_context;
  /* As in treadle_switch_options; what lies in no window counts as work. */
  void (*watch)(void *context, const size_t *bytes, int classes);
  void *watch_context;
} treadle_actor_options;

/* The weights are zeros until load, randomise or resume. group: NULL: this process alone. Group and layouts outlive the actor. On failure
 * *actor_p is NULL. */
treadle_status treadle_actor_create(treadle_group *group, const treadle_layout *train,
                                    const treadle_layout *infer, const treadle_actor_options *options,
                                    treadle_actor **actor_p);
void treadle_actor_destroy(treadle_actor *actor); /* local */

/* As treadle_trainer_load, _randomise, _resume and _save. */
treadle_status treadle_actor_load(treadle_actor *actor);
treadle_status treadle_actor_randomise(treadle_actor *actor, uint64_t seed);
treadle_status treadle_actor_resume(treadle_actor *actor, const char *folder);
treadle_status treadle_actor_save(treadle_actor *actor, const char *folder);
/* The reference gets the weights of its layout's checkpoint, or, if the model's weights are made up, those that the policy has now.
 * Refused: a model without weights. */
treadle_status treadle_actor_load_reference(treadle_actor *actor);

/* The sharding manager. Between enter and exit the worker stays in that mode. To enter the mode that it stays in is nothing; another one is
 * TREADLE_STATE, and so is to leave a mode that it does not stay in: the message names both. Leaving moves nothing: the next call that
 * needs another mode does. mode: TREADLE_TRAIN, TREADLE_FORWARD or TREADLE_INFER. */
treadle_status treadle_actor_enter(treadle_actor *actor, treadle_mode mode);
treadle_status treadle_actor_exit(treadle_actor *actor, treadle_mode mode);

/* As treadle_engine_generate. */
treadle_status treadle_actor_generate_sequences(treadle_actor *actor, const char *lines, size_t bytes,
                                                const treadle_generate_options *options,
                                                treadle_generate_figures *figures_p);
/* As treadle_trainer_logprobs, of the policy or of the reference. TREADLE_STATE: there is no reference, or its weights were not loaded. */
treadle_status treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_train_batch *batch,
                                              const treadle_policy *policy, float *logprobs,
                                              float *entropies);
treadle_status treadle_actor_compute_ref_log_prob(treadle_actor *actor, const treadle_train_batch *batch,
                                                  const treadle_policy *policy, float *logprobs,
                                                  float *entropies);
/* As treadle_trainer_policy_gradients, and then treadle_trainer_step. */
treadle_status treadle_actor_update(treadle_actor *actor, const treadle_train_batch *batch,
                                    const treadle_policy *policy, const treadle_optimizer_step *step,
                                    float *logprobs, float *entropies,
                                    treadle_optimizer_figures *figures_p);
/* As treadle_trainer_weights_digest. */
treadle_status treadle_actor_weights_digest(treadle_actor *actor, uint64_t *digest_p);

typedef struct treadle_actor_info {
  size_t struct_size;
  treadle_mode mode;
  uint64_t version;              /* how often the weights have gone to INFER */
  int64_t kv_blocks;             /* of this rank's cache */
  size_t bytes[TREADLE_CLASSES]; /* on the device now, by class */
  size_t peaks[TREADLE_CLASSES]; /* the most so far, by class */
  size_t peak_bytes;             /* the most so far of all together, on this rank */
  double to_infer, to_train;     /* seconds in switches so far: to INFER; to FORWARD and TRAIN */
  size_t pulled_bytes;           /* from other ranks, by the last switch to INFER */
} treadle_actor_info;

treadle_status treadle_actor_get_info(const treadle_actor *actor, treadle_actor_info *info_p);
/* The switch, for who looks: until the actor is destroyed. Else NULL. */
const treadle_switch *treadle_actor_switch(const treadle_actor *actor);

/* What a rank will hold by class: in each mode (TREADLE_TRAIN, ... of treadle_mode), and while the reference is there. An element of an
 * array: this struct is frozen. */
typedef struct treadle_actor_memory {
  size_t by_mode[5][TREADLE_CLASSES], with_reference[TREADLE_CLASSES];
  size_t peak_bytes;
  int64_t kv_blocks;
  size_t least_bytes; /* a budget that would do */
} treadle_actor_memory;

/* The same beforehand, with the built-in engines, of all ranks: by_rank [ranks]. It meets nobody, and takes no memory of that size. Of the
 * options the callbacks are not looked at. Local. */
treadle_status treadle_actor_plan(const treadle_layout *train, const treadle_layout *infer,
                                  const treadle_actor_options *options, treadle_actor_memory *by_rank);

/* ---- The loop ------------------------------------------------------------------------------------------- */

/* What a step came to. */
typedef struct treadle_rl_step {
  size_t struct_size;
  int64_t step, steps;        /* number `step`, from 1, of so many */
  double reward;              /* mean over the samples */
  double kl;                  /* to the reference; NaN: there is none */
  double entropy;             /* mean over the tokens; NaN: not computed */
  double response_length;     /* tokens, mean */
  double loss, grad_norm, lr; /* of the last mini batch */
  bool skipped;               /* a norm was not finite */
  bool tested;                /* val_reward is there: mean@N over all prompts of the test */
  double val_reward;
  int64_t tokens;                              /* of prompts and responses */
  double seconds, gen_seconds, switch_seconds; /* switch: both ways */
  size_t peak_bytes;                           /* of the fullest rank so far */
  int64_t logprob_differing;                   /* of its tokens */
  const char *checkpoint;                      /* the folder that was saved after it; NULL: none was */
} treadle_rl_step;

/* Functions are called in the thread of the call. */
typedef struct treadle_rl_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  const char *kernels;  /* as treadle_trainer_options has it, and threads */
  int32_t threads;
  treadle_sft_start resume;
  const char *from;                                             /* a folder global_step_K */
  void (*progress)(void *context, const treadle_rl_step *step); /* of rank 0 alone */
  void (*doing)(void *context, const char *what, int64_t done,
                int64_t total); /* of rank 0: what takes long now; total 0: unknown; NULL: nobody asks */
  bool (*stops)(
      void *context); /* asked after each step, and on rank 0 while rewards are waited for: if one rank
                         says so, the run saves a checkpoint and ends */
  void *context;
  treadle_train_engine_open open_train; /* NULL: the built-in ones */
  void *train_context;
  treadle_infer_engine_open open_infer;
  void *infer_context;
  void (*note)(void *context,
               const char *line); /* of rank 0: what a person should know; NULL: nobody does */
  void (*warn)(void *context, const char *line); /* as treadle_sft_options has it */
} treadle_rl_options;

typedef struct treadle_rl_figures {
  size_t struct_size;
  int64_t steps;                             /* taken by this call */
  int64_t last_step;                         /* the run's */
  double reward_first, reward_last;          /* means of a tenth of the steps, at least one; NaN: none */
  double val_first, val_last;                /* of the first test and the last one; NaN: there was none */
  int64_t logprob_tokens, logprob_differing; /* that were compared */
  double logprob_max_diff;
  size_t peak_bytes, peak_predicted_bytes; /* of the fullest rank */
  int64_t kv_blocks;                       /* of the rank with the fewest */
  double step_seconds;                     /* median */
  double tokens_per_second;                /* of prompts and responses, over all steps */
  uint64_t weights_digest, losses_digest;  /* of the losses of all mini batches of the run */
  bool stopped;                            /* before the last step */
  char checkpoint[1024];                   /* the newest, as a path */
  treadle_weights weights;                 /* as treadle_sft_figures has it */
} treadle_rl_figures;

/* As treadle_train_config_read, with the keys of docs/grpo-keys.md: those of a run of reinforcement learning. */
treadle_status treadle_rl_config_read(const char *path, const char *const *overrides, size_t count,
                                      treadle_train_config **config_p);
/* Where a run begins that the caller says nothing of: verl's resume_mode. *from_p: its folder, of TREADLE_RESUME_FROM; else NULL. */
treadle_sft_start treadle_rl_config_start(const treadle_train_config *config, const char **from_p);
/* As treadle_train_config_help. */
treadle_status treadle_rl_config_help(bool json, char **text_p);

/* Trains a policy by rewards as the configuration says, on all ranks of the group (NULL: this process alone), and writes into the folder of the
 * run: docs/grpo.md. TREADLE_REFUSED: an input, before the run begins; TREADLE_DIFFERENT: exact mode, and a log-probability of the generator is not the trainer's;
 * another status: a failure while running, as of a reward. Collective. */
treadle_status treadle_rl_run(treadle_group *group, const treadle_train_config *config,
                              const treadle_rl_options *options, treadle_rl_figures *result_p);

/* What each of `ranks` ranks would hold, by_rank [ranks]. by_rank is filled even where device_memory is too small, which is refused with what
 * would fit. Local. */
treadle_status treadle_rl_plan(const treadle_train_config *config, int64_t ranks,
                               const treadle_rl_options *options, treadle_actor_memory *by_rank);
/* Bytes of host memory that the ids which a step's tokens were drawn from take at most on each rank; 0: nothing is cut,
 * or it is not kept. Local. */
treadle_status treadle_rl_plan_kept(const treadle_train_config *config, const treadle_rl_options *options,
                                    size_t *bytes_p);

/* ---- A mini batch of dumped samples ----------------------------------------------------------------------- */

/* Samples of one mini batch, as a run has dumped them (dump_rollouts), with the loss that a configuration describes. */
typedef struct treadle_rl_mini_batch treadle_rl_mini_batch;

/* Those of mini batch `number` of the file. The advantage of a sample is that of all its tokens. Refused, by line: what is no such sample, ids that
 * the layout's model does not have; a number that no sample has. On failure *mini_p is NULL. Local. */
treadle_status treadle_rl_mini_batch_read(const treadle_train_config *config, const treadle_layout *layout,
                                          const char *path, int64_t number, treadle_rl_mini_batch **mini_p);
void treadle_rl_mini_batch_destroy(treadle_rl_mini_batch *mini);
/* most_rows, most_tokens and most_micro_batches that a trainer needs for it, micro batches of `micro` rows (0: the configuration's). */
treadle_status treadle_rl_mini_batch_measure(treadle_rl_mini_batch *mini, int64_t micro,
                                             treadle_trainer_options *options);

/* By the aggregation of the configuration; clipfrac, clipfrac_lower and ppo_kl are means over tokens. */
typedef struct treadle_rl_mini_figures {
  size_t struct_size;
  int64_t samples, tokens;
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl;
} treadle_rl_mini_figures;

/* Gradients of its loss, as treadle_trainer_policy_gradients. Collective. */
treadle_status treadle_rl_mini_batch_gradients(treadle_rl_mini_batch *mini, treadle_trainer *trainer,
                                               treadle_rl_mini_figures *figures_p);

/* ---- Evaluation ------------------------------------------------------------------------------------------- */

typedef struct treadle_eval_options {
  size_t struct_size;
  const char *model, *data, *reward; /* a folder; prompts and answers as a run has them; a reward's name */
  const char *reward_command;        /* of the reward "command" */
  const char *tokenizer;             /* NULL: the model's folder */
  const char *prompt_key, *answer_key;     /* NULL: prompt, answer */
  const char *families, *layout, *kernels; /* layout: NULL: vllm with one replica a rank */
  int32_t threads;
  int64_t samples;    /* of each prompt; 0: 1 */
  double temperature; /* 0: the best token */
  int64_t max_tokens; /* of a response; 0: half of the model's positions, at most 1024 */
  int64_t seed;
  void (*doing)(void *context, const char *what, int64_t done,
                int64_t total); /* of rank 0; NULL: nobody asks */
  void *context;
  bool
      leave_unanswered_out; /* prompts without an answer, where the reward needs one: else such a line is refused */
  treadle_weights weights; /* as treadle_model_options has it */
  void (*note)(void *context,
               const char *line); /* what a person should know; of rank 0. NULL: nobody asks */
} treadle_eval_options;

typedef struct treadle_eval_figures {
  size_t struct_size;
  int64_t rows, samples, tokens;
  double mean, best,
      majority; /* mean@N, best@N/mean, maj@N/mean; majority: NaN: the reward does not say what it took for the answer */
  double response_length; /* tokens, mean */
  double seconds;
  int64_t left_out;        /* prompts without an answer */
  treadle_weights weights; /* where those of the model come from */
} treadle_eval_figures;

/* What answers of a model are worth. Figures are those of a run's test (docs/grpo.md); with temperature 0 all samples are the same.
 * Collective. */
treadle_status treadle_eval(treadle_group *group, const treadle_eval_options *options,
                            treadle_eval_figures *figures_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
