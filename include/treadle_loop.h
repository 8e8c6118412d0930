/* treadle for those who run training: its configuration, supervised training, rewards, the worker that trains and
 * generates, and the loop of reinforcement learning.
 *
 *   treadle_train_config_*   the configuration of training: docs/training.md
 *   treadle_train_rows_*     rows to train on, read from JSON
 *   treadle_data_*           rows of a task
 *   treadle_sft_*            supervised training
 *   treadle_reward_*         functions from completions to numbers
 *   treadle_prompts_*        prompts of a loop of one's own, and other pieces of it
 *   treadle_actor_*          a policy that trains in one layout and generates in another, on the same devices
 *   treadle_rl_*             the loop around it: GRPO and similar algorithms
 *   treadle_rl_mini_batch_*  the loss of samples that a run has dumped
 *   treadle_eval             how good a model's answers are
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_LOOP_H
#define TREADLE_LOOP_H

#include "treadle_builtin.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- The configuration of training --------------------------------------------------------------- */

typedef struct treadle_train_config treadle_train_config;

/* Reads a YAML file with the keys of docs/training.md. Each of `count` overrides is section.key=value, and takes
 * precedence over the file; NULL if there are none. Refused, with file, line and key: an unknown key (with the nearest
 * one), a value of another type or out of range, a key that is given twice, keys that exclude each other. Whether keys
 * are missing for a run is not checked. On failure *config_p is NULL. */
treadle_status treadle_train_config_read(const char *path, const char *const *overrides, size_t count,
                                         treadle_train_config **config_p);
void treadle_train_config_destroy(treadle_train_config *config);
/* Warnings for a person, [*count_p] lines: keys of other programs that have no effect here, and the like. They live
 * until the configuration is destroyed. Else NULL and 0. */
const char *const *treadle_train_config_warnings(const treadle_train_config *config, size_t *count_p);
/* Gives YAML with the value of every key, and as a comment where it comes from. Reading it gives an equal
 * configuration. The caller frees *text_p with free(); on failure it is NULL. */
treadle_status treadle_train_config_text(const treadle_train_config *config, char **text_p);
/* Gives the table of keys: lines in columns, or one JSON object. The caller frees *text_p with free(); on failure it is
 * NULL. */
treadle_status treadle_train_config_help(bool json, char **text_p);

/* ---- Rows to train on ---------------------------------------------------------------------------------- */

/* Rows read from JSON: lines, or one list, of objects of these forms.
 *
 *   {ids, mask}
 *   {text}               All tokens except the first count.
 *   {prompt, response}   The response counts, and so does the end token that is added to it. A prompt is a list of
 *                        messages or a text. If there is a chat template, a text is a message of the user.
 *   {messages}           What assistants say counts, up to their end token.
 *
 * The last two forms may have other keys as well. */
typedef struct treadle_train_rows_spec {
  size_t struct_size;
  const char *what;                   /* names the lines in messages: a path; NULL: "rows" */
  const treadle_tokenizer *tokenizer; /* turns texts into tokens; NULL: texts are refused */
  const treadle_layout *layout;       /* of the model that rows must fit; NULL: rows are not compared with a model */
  const treadle_chat *chat;           /* the model's template; NULL: none */
  int64_t most_tokens;                /* the most tokens of a row; 0: as many as the model takes */
} treadle_train_rows_spec;

/* Reads rows as a batch with the columns ids (ragged int32) and mask (ragged uint8), as treadle_forward_options has
 * them; the caller destroys it. Refused, with the line: invalid JSON; unknown keys; ids beyond the vocabulary; a row of
 * less than two tokens, or more than the model takes; a mask of another length; a row in which no token counts. On
 * failure *rows_p is NULL. */
treadle_status treadle_train_rows_read(const treadle_train_rows_spec *spec, const char *text, size_t bytes,
                                       treadle_batch **rows_p);

/* Adds the column experts to rows: of each the key "experts" of a line of JSON, [[[0, 3], ..], ..], of each token but
 * the last, of each layer that has experts; as `treadle score --experts` and treadle_trainer_save_experts() write it.
 * Other keys of a line are not looked at. model: whose experts they are; NULL: their numbers are not looked at. what:
 * names the lines in messages; NULL: "experts". Refused, with the line: lists of different shapes, of another number of
 * tokens than the row, or of other layers and experts than the model; numbers that do not ascend; and another number of
 * lines than rows. */
treadle_status treadle_train_experts_read(const treadle_model *model, const char *what, const char *text, size_t bytes,
                                          treadle_batch *rows);

/* ---- Rows of a task ----------------------------------------------------------------------------------- */

typedef struct treadle_sequence_options {
  size_t struct_size;
  double noise; /* probability that a number of a row of sft.jsonl is a random digit */
  uint64_t seed;
} treadle_sequence_options;

typedef struct treadle_sequence_figures {
  size_t struct_size;
  int64_t train, test, sft; /* lines of each file */
} treadle_sequence_figures;

/* Writes the task of verl's end-to-end test into a folder, which it makes if needed: train.jsonl and test.jsonl
 * ({prompt, answer, data_source}) and sft.jsonl ({prompt, response}); docs/cli.md, "treadle data". Each file appears
 * when it is whole. An existing file with one of these names is left as it is. If its content is different, the call is
 * refused. */
treadle_status treadle_data_sequence(const char *folder, const treadle_sequence_options *options,
                                     treadle_sequence_figures *figures_p);

/* ---- Supervised training ------------------------------------------------------------------------------ */

/* The figures of a step. */
typedef struct treadle_sft_step {
  size_t struct_size;
  int64_t step, steps; /* the number of this step, from 1, and the number of all steps */
  double loss, grad_norm, lr;
  bool skipped; /* the norm was not finite */
  bool tested;  /* val_loss is set */
  double val_loss;
  int64_t tokens; /* of the step's rows */
  double seconds;
  const char *checkpoint; /* the folder that was saved after the step; NULL: none was */
  double aux_loss, expert_load_max, expert_load_min; /* as in treadle_loss; 0: there are no experts */
} treadle_sft_step;

typedef enum treadle_start {
  TREADLE_RESUME_NEVER, /* from scratch; refused if the folder of the run has checkpoints */
  TREADLE_RESUME_AUTO,  /* from the newest checkpoint; if there is none, from scratch */
  TREADLE_RESUME_FROM   /* from the checkpoint `from` */
} treadle_start;

/* All callbacks run in the thread that called the library. */
typedef struct treadle_sft_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  const char *kernels;  /* as in treadle_trainer_options */
  int32_t threads;      /* as in treadle_trainer_options */
  treadle_start resume;
  const char *from;                                              /* a folder global_step_K */
  void (*progress)(void *context, const treadle_sft_step *step); /* called on rank 0 alone */
  void *context;
  /* Told on rank 0. `stop` is asked on all ranks after each step: if one rank says true, the run saves a checkpoint and
   * ends. NULL: nobody. */
  const treadle_observer *observer;
  treadle_train_engine_open open_engine; /* NULL: the built-in one */
  void *engine_context;                  /* of open_engine */
  /* Bytes that no rank may exceed. A run or a plan that does is refused, with what would fit. 0: no limit. */
  size_t budget_bytes;
} treadle_sft_options;

typedef struct treadle_sft_figures {
  size_t struct_size;
  int64_t steps;                /* taken by this call */
  int64_t last_step;            /* of the run */
  double loss_first, loss_last; /* of the steps of this call */
  int64_t tokens;
  double seconds;
  size_t peak_bytes, peak_predicted_bytes; /* of the fullest rank */
  uint64_t weights_digest, losses_digest;  /* the latter of the losses of all steps of the run */
  bool stopped;                            /* before the last step */
  char checkpoint[1024];                   /* the newest, as a path */
  treadle_weights weights;                 /* where the weights come from with which the run started or resumed */
} treadle_sft_figures;

/* Trains as the configuration says, on all ranks of the group (NULL: this process alone), and writes into the folder of
 * the run. Wherever possible, wrong input is refused before anything is written: docs/training.md has the list.
 * Collective. */
treadle_status treadle_sft_run(treadle_group *group, const treadle_train_config *config,
                               const treadle_sft_options *options, treadle_sft_figures *result_p);

/* Computes what each rank would hold: by_rank [ranks]. If the configuration names no data, rows are as long as
 * seq_length allows. Refused: a budget that is too small, but by_rank is filled even so. Local. */
treadle_status treadle_sft_foresee(const treadle_train_config *config, int64_t ranks,
                                   const treadle_sft_options *options, treadle_trainer_memory *by_rank);

/* Called for a checkpoint. `known` is false if it has no digests, as in older versions. `damage` says which part or
 * file differs from what was saved; NULL: none does. */
typedef void (*treadle_checkpoint_watcher)(void *context, const char *checkpoint, bool known, const char *damage);

/* Compares checkpoints with the digests that they were saved with (digests.json, docs/checkpoints.md). `folder` is one
 * checkpoint, global_step_K, or a run's folder with checkpoints, which are compared in ascending order. families: as in
 * treadle_sft_options. `each` may be NULL. *damaged_p: the number of damaged checkpoints. Refused: no checkpoint is
 * there. Local. */
treadle_status treadle_checkpoint_verify(const char *folder, const char *families, treadle_checkpoint_watcher each,
                                         void *context, int64_t *damaged_p);

/* ---- Rewards ------------------------------------------------------------------------------------------ */

/* A function from a completion to a number. One thread at a time. */
typedef struct treadle_reward treadle_reward;

/* A completion to be judged. Fields that the reward does not use may be NULL or 0. Frozen. */
typedef struct treadle_reward_sample {
  const char *id; /* for "command": unique among the samples of a call */
  const char *data_source, *prompt;
  const char *completion; /* [completion_bytes] any bytes; NULL if there are none */
  size_t completion_bytes;
  const char *answer; /* the right answer, from the data */
  int64_t tokens;     /* of the completion */
} treadle_reward_sample;

typedef struct treadle_reward_options {
  size_t struct_size;
  /* A row of treadle_reward_help: "sequence", "gsm8k", "math", "regex:P", "length:target=T", "command". */
  const char *name;
  const char *command;    /* for "command": what /bin/sh -c runs */
  double timeout_seconds; /* for "command": how long a process may take for its next answer; 0: 60 */
  int32_t parallel;       /* for "command": the number of processes that divide the samples, at most 1024; 0: 1 */
} treadle_reward_options;

/* Makes a reward, and starts the processes of "command". Each takes an open file, so the limit on open files may refuse
 * them. Refused: an unknown reward (with the nearest name); missing settings; a pattern that does not compile, with the
 * place of the error. On failure *reward_p is NULL. */
treadle_status treadle_reward_create(const treadle_reward_options *options, treadle_reward **reward_p);
/* Start scores `count` samples in a thread of its own, while the caller does other things. Samples and their texts must
 * not change until treadle_reward_wait has returned. Wait writes scores [count of the start] and, unless preds is NULL,
 * preds [count]: what was taken for the answer, or NULL if there was none. The caller frees each with free(). Such a
 * text ends at a 0 byte of the completion.
 *
 * Refused, by number: a sample without what the reward needs; a pattern that takes too many steps. docs/rewards.md says
 * what is refused of a command. TREADLE_TIMEOUT: a process of the command was silent for too long. TREADLE_STATE: a
 * second start, or a wait without a start. On failure all preds are NULL and scores are undefined; the reward may be
 * used again. */
treadle_status treadle_reward_start(treadle_reward *reward, const treadle_reward_sample *samples, size_t count);
treadle_status treadle_reward_wait(treadle_reward *reward, double *scores, char **preds);
/* Frees the reward. Ends a start that was not waited for, and the processes of "command". It closes their standard
 * input, and a second later kills those that still run, each with its process group. If this process ends without
 * calling it, they are killed at once. */
void treadle_reward_destroy(treadle_reward *reward);
/* Gives the table of rewards for a person: a line each, with its name and what it gives. The caller frees *text_p with
 * free(); on failure it is NULL. */
treadle_status treadle_reward_help(char **text_p);

/* ---- Pieces of a loop of one's own: examples/08_own_loop.c ----------------------------------------------- */

typedef struct treadle_prompts_options {
  size_t struct_size;
  const char *path;                   /* lines of JSON, or one list; several files with commas between them */
  const treadle_tokenizer *tokenizer; /* NULL: prompts are token ids */
  const treadle_chat *chat;           /* NULL: texts stay as they are */
  const char *prompt_key, *answer_key, *data_source_key; /* NULL: prompt, answer, data_source */
  int64_t vocabulary, most_tokens;                       /* of ids; of a prompt; 0: no limit */
  bool need_answers;                                     /* a line without an answer is refused */
} treadle_prompts_options;

/* Reads prompts (docs/grpo.md) as a batch with the columns prompt_ids, prompt, answer and data_source; the caller
 * destroys it. Refused, by file and line: what a run refuses, too. On failure *prompts_p is NULL. */
treadle_status treadle_prompts_read(const treadle_prompts_options *options, treadle_batch **prompts_p);

typedef struct treadle_draw_options {
  size_t struct_size;
  int64_t step, count;         /* the step, from 0, and the prompts of each step */
  int64_t seed, sampling_seed; /* of the order of prompts, which is another one in each epoch; of their answers */
  bool in_place;               /* each epoch has them in their own order */
} treadle_draw_options;

/* Gives the prompts of a step, as a run with these seeds has them: rows of `prompts`, with the columns seed (int64) and
 * group (int64: 0, 1, ...) besides. The caller destroys them. On failure *drawn_p is NULL. */
treadle_status treadle_prompts_draw(const treadle_batch *prompts, const treadle_draw_options *options,
                                    treadle_batch **drawn_p);

/* Gives all ranks the rows of all ranks: a new batch of those that each rank has in `mine`, in the order of ranks.
 * NULL: this rank has none; one rank must have some. Meta is left behind. On failure *all_p is NULL. Collective. */
treadle_status treadle_batch_gather(treadle_group *group, const treadle_batch *mine, treadle_batch **all_p);

/* Adds the column score (fp64): what the reward says of each row, by the columns completion, answer, prompt and
 * data_source (texts) and ids. Those that the reward does not use may be absent. Local. */
treadle_status treadle_reward_score(treadle_reward *reward, treadle_batch *batch);

typedef struct treadle_advantage_options {
  size_t struct_size;
  const char *estimator; /* a word of rl_config.adv_estimator; NULL: "group_norm" */
  bool keep_scale;       /* "group_norm": without division by the group's deviation; "gae": not whitened */
  double gamma;          /* of "reinforce_plus_plus" and "gae", in [0, 1]; 0: 1 */
  double lam;            /* of "gae", in [0, 1]; 0: 1 */
} treadle_advantage_options;

/* Adds the column advantage (fp64), or, if the estimator gives tokens of a row different ones, advantages (ragged fp64,
 * like ids). By the columns group (int64, from 0), ids and reward, or, if that is absent, score (fp64). "gae" also
 * needs values (ragged fp32, like ids: what a critic expects before each token), and adds returns, of the same form.
 * Refused: rewards and values that are not finite, by row. Local. */
treadle_status treadle_advantages(treadle_batch *batch, const treadle_advantage_options *options);

typedef struct treadle_lr_options {
  size_t struct_size;
  const char *style; /* "constant", "linear", "cosine"; NULL: "constant" */
  double lr, min_lr;
  double warmup_fraction; /* of all steps, in [0, 1) */
  int64_t steps;          /* of the optimizer, in the whole run */
} treadle_lr_options;

/* Gives the learning rate of a step before which `done` were taken, as a run has it (docs/training.md). Refused: an
 * unknown style; numbers out of range. Local. */
treadle_status treadle_learning_rate(const treadle_lr_options *options, int64_t done, double *lr_p);

/* ---- The hybrid actor worker ---------------------------------------------------------------------------- */

/* The worker of one rank: a train engine and an infer engine, known as tables of functions, on the windows of one
 * switch. It makes the infer engine first, then the switch, then the train engine on the switch's windows. So blocks of
 * the KV cache are counted when the training state has left the device.
 *
 * It enters modes lazily: a call switches only when it needs another mode than the present one.
 *
 *   generate                       needs INFER
 *   log-probs of the policy        need TRAIN or FORWARD: the present one, otherwise FORWARD
 *   log-probs of the reference     need FORWARD
 *   gradients, step, load, save    need TRAIN
 *
 * Trainer and generator may be on ranks of their own: then both layouts have on= (docs/layouts.md), on ranks that
 * together are all ranks of the group, each once. A rank opens the engine of its side alone, for that side's ranks as
 * a group of their own and the layout without on=. All ranks make all calls: those without the job of a call are given
 * no rows, give none, and wait, however long it takes. From the first generate on the mode stays INFER, where training
 * goes on; generate moves weights that have changed since the last time, as treadle_switch_update does, and no others.
 * Offload flags and keep mean nothing, since nothing leaves the device. There is no reference.
 *
 * A call that fails on one rank fails on all. All functions except accessors and destroy are collective. */
typedef struct treadle_actor treadle_actor;

typedef struct treadle_actor_options {
  size_t struct_size;
  const treadle_trainer_options *trainer;  /* without windows, which are the actor's; NULL: defaults */
  const treadle_generator_options *engine; /* NULL: defaults */
  const treadle_layout *reference;         /* equals the training layout, but of the reference's model; NULL: none */
  /* These classes leave the device in mode INFER (default: on). */
  treadle_choice offload_train_param, offload_train_grad, offload_train_optimizer;
  treadle_keep keep;                      /* as in treadle_switch_options */
  size_t page_bytes, cap_bytes, kv_bytes; /* as in treadle_switch_options */
  size_t budget_bytes;                    /* device bytes that this rank may hold, of all classes; 0: no limit */
  double timeout_seconds;                 /* of a switch */
  treadle_train_engine_open open_train;   /* NULL: treadle_trainer_open_engine */
  void *train_context;
  treadle_infer_engine_open open_infer; /* NULL: treadle_generator_open_infer */
  void *infer_context;
  /* Its `memory` alone. Device memory that lies in no window counts as work memory. NULL: nobody. */
  const treadle_observer *observer;
} treadle_actor_options;

/* Makes an actor. Its weights are zeros until load, randomise or resume. group: NULL is this process alone. Group and
 * layouts must outlive the actor. Options may be NULL. On failure *actor_p is NULL. Refused: on= in one layout alone; a
 * rank that is in on= of both or of neither; a reference beside on=. */
treadle_status treadle_actor_create(treadle_group *group, const treadle_layout *train, const treadle_layout *infer,
                                    const treadle_actor_options *options, treadle_actor **actor_p);
void treadle_actor_destroy(treadle_actor *actor); /* local */

/* These do what treadle_trainer_load, treadle_trainer_randomise, treadle_trainer_resume and treadle_trainer_save do. */
treadle_status treadle_actor_load(treadle_actor *actor);
treadle_status treadle_actor_randomise(treadle_actor *actor, uint64_t seed);
treadle_status treadle_actor_resume(treadle_actor *actor, const char *folder);
treadle_status treadle_actor_save(treadle_actor *actor, const char *folder);
/* Loads the reference's weights from its layout's checkpoint. If that model's weights are made up, the reference gets
 * the present weights of the policy. Refused: a model without weights. TREADLE_STATE: the actor was made without a
 * reference, or the policy has no weights yet. */
treadle_status treadle_actor_load_reference(treadle_actor *actor);

/* The sharding manager. Between enter and exit the worker stays in one mode: TREADLE_TRAIN, TREADLE_FORWARD or
 * TREADLE_INFER. Entering this mode again does nothing. TREADLE_STATE, with both modes in the message: entering another
 * mode, or leaving a mode in which it does not stay. Leaving moves nothing; the next call that needs another mode
 * does. */
treadle_status treadle_actor_enter(treadle_actor *actor, treadle_mode mode);
treadle_status treadle_actor_exit(treadle_actor *actor, treadle_mode mode);

/* Gives the prompts that this rank's replica answers, of a batch that all ranks have whole: *mine_p is a slice of it,
 * rows *range_p, which may be NULL. leads_p, which may be NULL: is this rank the first of its replica? A rank without a
 * generator has no rows and does not lead. Local. */
treadle_status treadle_actor_slice_prompts(treadle_actor *actor, const treadle_batch *prompts,
                                           treadle_row_range *range_p, bool *leads_p, treadle_batch **mine_p);
/* Answers the prompts of this rank's replica, as treadle_generator_generate does; no rows on a rank without a
 * generator. Refused, by row and column: answers of an engine of the caller's that are not as
 * treadle_generator_generate gives them. */
treadle_status treadle_actor_generate_sequences(treadle_actor *actor, const treadle_batch *prompts,
                                                const treadle_sampling *sampling, const treadle_observer *observer,
                                                treadle_batch **out_p);
/* Gives this rank's rows of a batch, as treadle_trainer_slice does: those that the functions below take. None on a rank
 * without a trainer. Local. */
treadle_status treadle_actor_slice(treadle_actor *actor, const treadle_batch *batch,
                                   const treadle_forward_options *forward, treadle_row_range *range_p,
                                   treadle_batch **mine_p);
/* Compute log-probabilities of the policy or of the reference, as treadle_trainer_logprobs does. TREADLE_STATE: there
 * is no reference, or its weights were not loaded. */
treadle_status treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                              const treadle_forward_options *forward, treadle_batch *out);
treadle_status treadle_actor_compute_ref_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                  const treadle_forward_options *forward, treadle_batch *out);
/* Computes gradients as treadle_trainer_gradients does, and then takes a step as treadle_trainer_step does. A rank
 * without a trainer gets figures of 0. */
treadle_status treadle_actor_update(treadle_actor *actor, const treadle_batch *batch,
                                    const treadle_forward_options *forward, const treadle_loss_options *loss,
                                    const treadle_optimizer_step *step, treadle_batch *out,
                                    treadle_optimizer_figures *figures_p);
/* The digest of the policy's weights, as in treadle_switch_digest, on all ranks. */
treadle_status treadle_actor_weights_digest(treadle_actor *actor, uint64_t *digest_p);

/* Figures of this rank. */
typedef struct treadle_actor_info {
  size_t struct_size;
  treadle_mode mode;
  uint64_t version;              /* how often the weights have gone to INFER */
  int64_t kv_blocks;             /* of this rank's cache */
  size_t bytes[TREADLE_CLASSES]; /* on the device now, by class */
  size_t peaks[TREADLE_CLASSES]; /* the most so far, by class */
  size_t peak_bytes;             /* the most so far, of all classes together */
  double to_infer, to_train;     /* seconds in switches so far: to INFER, with updates; to FORWARD and TRAIN */
  size_t pulled_bytes;           /* from other ranks, by the last switch to INFER */
} treadle_actor_info;

treadle_status treadle_actor_get_info(const treadle_actor *actor, treadle_actor_info *info_p);
/* The actor's switch, to look at but not to change. It lives until the actor is destroyed. Else NULL. */
const treadle_switch *treadle_actor_switch(const treadle_actor *actor);

/* Bytes that a rank will hold by class: in each mode (an index is a treadle_mode), while the reference is shown, and
 * while a critic or a reward model computes beside it, in mode FORWARD; all 0 without them. With trainer and generator
 * on ranks of their own, FORWARD has what INFER has, since that mode stays. Frozen. */
typedef struct treadle_actor_memory {
  size_t by_mode[5][TREADLE_CLASSES], with_reference[TREADLE_CLASSES];
  size_t with_critic[TREADLE_CLASSES];
  size_t peak_bytes;
  int64_t kv_blocks;
  size_t least_bytes; /* a budget that is large enough */
} treadle_actor_memory;

/* Computes what treadle_actor_create would take on each rank with the built-in engines: by_rank [ranks]. It does not
 * take that memory, and meets no other rank. Callbacks in the options are ignored. Local. */
treadle_status treadle_actor_foresee(const treadle_layout *train, const treadle_layout *infer,
                                     const treadle_actor_options *options, treadle_actor_memory *by_rank);

/* ---- The loop ------------------------------------------------------------------------------------------- */

/* The figures of a step. */
typedef struct treadle_rl_step {
  size_t struct_size;
  int64_t step, steps;        /* the number of this step, from 1, and of all steps; 0: the test before the first step */
  double reward;              /* mean over the samples */
  double kl;                  /* to the reference; NaN: there is none */
  double entropy;             /* mean over the tokens; NaN: not computed */
  double response_length;     /* mean, in tokens */
  double loss, grad_norm, lr; /* of the last mini batch; NaN: the critic was updated alone */
  bool skipped;               /* a norm was not finite */
  bool tested;                /* val_reward is set: mean@N over all prompts of the test */
  double val_reward;
  int64_t tokens;                              /* of prompts and responses */
  double seconds, gen_seconds, switch_seconds; /* of the step; of generating; of switches both ways */
  size_t peak_bytes;                           /* of the fullest rank so far */
  int64_t logprob_differing; /* tokens of the step with log-probabilities that differ between generator and trainer */
  const char *checkpoint;    /* the folder that was saved after the step; NULL: none was */
  double expert_load_max, expert_load_min; /* as in treadle_loss, of the last mini batch; 0: there are no experts */
} treadle_rl_step;

/* All callbacks run in the thread that called the library. */
typedef struct treadle_rl_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  const char *kernels;  /* as in treadle_trainer_options */
  int32_t threads;      /* as in treadle_trainer_options */
  treadle_start resume;
  const char *from;                                             /* a folder global_step_K */
  void (*progress)(void *context, const treadle_rl_step *step); /* called on rank 0 alone */
  void *context;
  /* Told on rank 0. `stop` is asked on all ranks after each step, and on rank 0 while it waits for rewards: if one rank
   * says true, the run saves a checkpoint and ends. NULL: nobody. */
  const treadle_observer *observer;
  treadle_train_engine_open open_train; /* NULL: the built-in one */
  void *train_context;
  treadle_infer_engine_open open_infer; /* NULL: the built-in one */
  void *infer_context;
} treadle_rl_options;

/* Equal on all ranks. */
typedef struct treadle_rl_figures {
  size_t struct_size;
  int64_t steps;                    /* taken by this call */
  int64_t last_step;                /* of the run */
  double reward_first, reward_last; /* means of the first and last tenth of the steps, at least one; NaN: none */
  double val_first, val_last;       /* of the first test and of the last one; NaN: there was none */
  int64_t logprob_tokens, logprob_differing; /* tokens that were compared between generator and trainer; that differ */
  double logprob_max_diff;
  size_t peak_bytes, peak_predicted_bytes; /* of the fullest rank */
  int64_t kv_blocks;                       /* of the rank with the fewest */
  double step_seconds;                     /* median */
  double tokens_per_second;                /* of prompts and responses, over all steps */
  uint64_t weights_digest, losses_digest;  /* the latter of the losses of all mini batches of the run */
  bool stopped;                            /* before the last step */
  char checkpoint[1024];                   /* the newest, as a path */
  treadle_weights weights;                 /* as in treadle_sft_figures */
} treadle_rl_figures;

/* Reads a configuration of reinforcement learning, with the keys of docs/grpo-keys.md. Otherwise it works like
 * treadle_train_config_read. */
treadle_status treadle_rl_config_read(const char *path, const char *const *overrides, size_t count,
                                      treadle_train_config **config_p);
/* Where the run starts if the caller does not say: verl's resume_mode. With TREADLE_RESUME_FROM, *from_p is the folder;
 * else NULL. */
treadle_start treadle_rl_config_start(const treadle_train_config *config, const char **from_p);
/* Gives the table of these keys, as treadle_train_config_help does. */
treadle_status treadle_rl_config_help(bool json, char **text_p);

/* ---- What a switch of others' runs would be ---------------------------------------------------------------- */

/* A configuration file of MindSpeed-RL, RLinf or verl, read for what a switch between its trainer and its engine would
 * be: docs/config.md. */
typedef struct treadle_switch_config treadle_switch_config;

/* What it says; texts belong to the configuration. NULL or 0: it does not say. */
typedef struct treadle_switch_config_info {
  size_t struct_size;
  const char *source;        /* whose file it is: "MindSpeed-RL", "RLinf", "verl" */
  const char *model;         /* a folder, or a hub's name */
  const char *train, *infer; /* layouts as text (docs/layouts.md) on `ranks` ranks */
  treadle_rank_map rank_map; /* of infer */
  int64_t ranks, nodes;
  bool offload_params, offload_grads, offload_optimizer; /* what leaves the device while the engine generates */
  size_t cap_bytes; /* device memory beyond the weights that the run allows a switch: the size of its buckets */
} treadle_switch_config_info;

/* Reads the file. overrides [count] of the form path=value go before it; path and overrides are read in this call.
 * Refused, all together, by path and line: a key that this project does not have; a value that it does not take; a key
 * of which the weights depend, and that no layout here can express; a value of the environment; a file that is composed
 * of others when its program starts; and one that is of none of the three, or of two. On failure *config_p is NULL.
 * Local. */
treadle_status treadle_switch_config_read(const char *path, const char *const *overrides, size_t count,
                                          treadle_switch_config **config_p);
void treadle_switch_config_destroy(treadle_switch_config *config);
void treadle_switch_config_get_info(const treadle_switch_config *config, treadle_switch_config_info *info_p);
/* What a person should know, a line each: one names the keys that no weight depends on. *count_p: how many lines. */
const char *const *treadle_switch_config_warnings(const treadle_switch_config *config, size_t *count_p);

/* Trains a policy by rewards as the configuration says, on all ranks of the group (NULL: this process alone), and
 * writes into the folder of the run: docs/grpo.md.
 *
 *   TREADLE_REFUSED     an input is wrong; found before the run starts
 *   TREADLE_DIFFERENT   in exact mode a log-probability of the generator is not the trainer's
 *   another status      a failure during the run, such as that of a reward
 *
 * Collective. */
treadle_status treadle_rl_run(treadle_group *group, const treadle_train_config *config,
                              const treadle_rl_options *options, treadle_rl_figures *result_p);

/* Computes what each rank would hold: by_rank [ranks]. Where roles have several pools, ranks are all processes of the
 * run; rank 0 is the controller, and has nothing. Refused: a device_memory that is too small, with what would fit, but
 * by_rank is filled even so; another number of ranks than the pools ask for. Local. */
treadle_status treadle_rl_foresee(const treadle_train_config *config, int64_t ranks, const treadle_rl_options *options,
                                  treadle_actor_memory *by_rank);
/* Computes the most bytes of host memory on each rank for the ids that a step's tokens were drawn from. 0: sampling
 * cuts nothing, or these ids are not kept. Local. */
treadle_status treadle_rl_foresee_kept(const treadle_train_config *config, const treadle_rl_options *options,
                                       size_t *bytes_p);

/* ---- A mini batch of dumped samples ----------------------------------------------------------------------- */

/* Samples of one mini batch that a run has dumped (dump_rollouts), with the loss that a configuration describes. */
typedef struct treadle_rl_mini_batch treadle_rl_mini_batch;

/* Reads the samples of mini batch `number` from the file `path`. The advantage of a sample holds for all its tokens.
 * The layout's model decides which ids there are. Refused, by line: invalid samples, ids that the model does not have;
 * also a number that no sample has. On failure *mini_p is NULL. Local. */
treadle_status treadle_rl_mini_batch_read(const treadle_train_config *config, const treadle_layout *layout,
                                          const char *path, int64_t number, treadle_rl_mini_batch **mini_p);
void treadle_rl_mini_batch_destroy(treadle_rl_mini_batch *mini);
/* Sets most_rows, most_tokens and most_micro_batches of the options to what a trainer needs for this mini batch, with
 * micro batches of `micro` rows (0: as in the configuration). */
treadle_status treadle_rl_mini_batch_measure(treadle_rl_mini_batch *mini, int64_t micro,
                                             treadle_trainer_options *options);

/* Losses are aggregated as the configuration says; clipfrac, clipfrac_lower and ppo_kl are means over tokens. */
typedef struct treadle_rl_mini_figures {
  size_t struct_size;
  int64_t samples, tokens;
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl;
} treadle_rl_mini_figures;

/* Computes gradients of its loss, as treadle_trainer_policy_gradients does. Collective. */
treadle_status treadle_rl_mini_batch_gradients(treadle_rl_mini_batch *mini, treadle_trainer *trainer,
                                               treadle_rl_mini_figures *figures_p);

/* ---- Evaluation ------------------------------------------------------------------------------------------- */

typedef struct treadle_eval_options {
  size_t struct_size;
  const char *model, *data, *reward;   /* a folder; prompts and answers as for a run; the name of a reward */
  const char *reward_command;          /* of the reward "command" */
  const char *tokenizer;               /* NULL: the model's folder */
  const char *prompt_key, *answer_key; /* NULL: prompt, answer */
  /* families and kernels: as in treadle_rl_options. layout: of inference; NULL: vllm with one replica on each rank. */
  const char *families, *layout, *kernels;
  int32_t threads;
  int64_t samples;    /* of each prompt; 0: 1 */
  double temperature; /* 0: the most probable token */
  int64_t max_tokens; /* of a response; 0: half of the model's positions, at most 1024 */
  int64_t seed;
  /* Leaves out prompts without an answer if the reward needs one. Otherwise such a line is refused. */
  bool leave_unanswered_out;
  treadle_weights weights; /* as in treadle_model_options */
  /* Told, and asked for `stop` while it generates and waits for rewards, on rank 0: the call then ends with
   * TREADLE_CANCELLED. NULL: nobody. */
  const treadle_observer *observer;
} treadle_eval_options;

/* Equal on all ranks, except seconds. */
typedef struct treadle_eval_figures {
  size_t struct_size;
  int64_t rows, samples, tokens;
  /* mean@N, best@N/mean, maj@N/mean. majority is NaN if the reward does not say what it took for the answer. */
  double mean, best, majority;
  double response_length; /* mean, in tokens */
  double seconds;
  int64_t left_out;        /* prompts without an answer */
  treadle_weights weights; /* where the model's weights come from */
} treadle_eval_figures;

/* Generates answers of a model and scores them. The figures are those of a run's test (docs/grpo.md). With temperature
 * 0 all samples of a prompt are equal. Collective. */
treadle_status treadle_eval(treadle_group *group, const treadle_eval_options *options, treadle_eval_figures *figures_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
