/* treadle for authors of engines.
 *
 *   treadle_trainer_*        the built-in training engine: loss and gradients of rows of tokens
 *   treadle_train_config_*   the configuration of training: docs/training.md
 *   treadle_net_*            messages between nodes
 *
 * Conventions are those of treadle.h. */
#ifndef TREADLE_ENGINE_H
#define TREADLE_ENGINE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct treadle_trainer treadle_trainer;

typedef struct treadle_trainer_options {
  size_t struct_size;
  const char *kernels; /* how matrices are multiplied: a name that `treadle doctor` lists; NULL: the best */
  int32_t threads;     /* 0: as many as there are processors */
  bool fast; /* may add in an order of its own; else the bits follow from rows and micro batches alone */
  int64_t most_rows;   /* tokens of a micro batch, at most: for so many there is memory; 0: 4096 */
  int64_t most_tokens; /* of a row; 0: the smaller of most_rows and the model's max_position_embeddings */
  /* Windows, such as those of a switch, of the sizes that treadle_trainer_plan says, at multiples of 64 bytes; they outlive the trainer. NULL: it
   * takes memory of its own. */
  void *params_window, *grads_window, *optimizer_window;
  void *
      work_window; /* activations and the like; with the others, or NULL. What is in it is of no use between two calls */
  const char
      *companions; /* a folder whose tokenizer is saved with the weights, as treadle_save_options has it */
  bool recompute;  /* backward runs each layer again, so that less is kept */
  bool sequence_parallel; /* tensor parallel ranks divide the rows of the residual stream that is kept */
  bool optimizer;         /* with AdamW: masters, where weights are not fp32, and two moments */
  bool offload_policy;    /* of fsdp2: shards of weights, gradients and optimizer lie in host memory */
  bool distributed_optimizer;              /* data parallel ranks divide its state */
  double adam_beta1, adam_beta2, adam_eps; /* 0: 0.9, 0.999, 1e-8 */
  int32_t
      most_micro_batches; /* of a step of a replica, in a pipeline of several stages: for so many there is memory; 0: 4 for a
                                 stage */
  int64_t most_sequences; /* rows of a micro batch, at most; 0: as many as there are tokens in it */
  /* A step may have fewer micro batches than most_micro_batches; some smaller numbers need more memory. */
  bool fewer_micro_batches;
} treadle_trainer_options;

/* A row: ids [count] of tokens, and mask [count]: does -log p of ids[i] behind those before it count? mask[0] is 0. An element of an
 * array: this struct is frozen. */
typedef struct treadle_train_row {
  const int32_t *ids;
  const uint8_t *mask;
  size_t count;
} treadle_train_row;

typedef struct treadle_loss {
  size_t struct_size;
  double nll;     /* the sum of -log p over the tokens that count; the loss is nll / tokens */
  int64_t tokens; /* how many they are */
} treadle_loss;

/* Rows read from JSON, lines or one list of objects:
 *
 *   {ids, mask}
 *   {text}               all tokens but the first count
 *   {prompt, response}   the response counts, with the end token that is put behind it; a prompt is a text, which is a message of
 *                        the user where there is a chat template, or a list of messages
 *   {messages}           what assistants say counts, up to their end token
 *
 * The last two may have other keys beside. */
typedef struct treadle_train_rows treadle_train_rows;

typedef struct treadle_train_rows_spec {
  size_t struct_size;
  const char *what;                   /* names the lines in messages: a path; NULL: "rows" */
  const treadle_tokenizer *tokenizer; /* turns texts into tokens; NULL: texts are refused */
  const treadle_layout
      *layout;              /* of the model that rows must fit to; NULL: they are not compared with one */
  const treadle_chat *chat; /* the model's template; NULL: there is none */
  int64_t most_tokens;      /* of a row; 0: as many as the model takes */
} treadle_train_rows_spec;

/* Refused, by the line: what is no JSON, other keys, ids beyond the vocabulary, a row of less than two tokens or more than the model
 * takes, a mask of another length, a row without a token that counts. On failure *rows_p is NULL. */
treadle_status treadle_train_rows_read(const treadle_train_rows_spec *spec, const char *text, size_t bytes,
                                       treadle_train_rows **rows_p);
void treadle_train_rows_destroy(treadle_train_rows *rows);
/* [*count_p], until the rows are destroyed. Else NULL and 0. */
const treadle_train_row *treadle_train_rows_items(const treadle_train_rows *rows, size_t *count_p);

/* Weights in a layout, gradients in the same layout as fp32, and memory for activations. It computes in the type of the layout, bf16 or fp32
 * (fp32 for fp16). All ranks of the group make the same calls with the same options; group: NULL: this process alone. Group and layout must
 * outlive the trainer; options may be NULL. Refused by name: experts, latent attention, more tensor parallel ranks than key and value
 * heads, and what the engine does not compute. On failure *trainer_p is NULL. Collective, as all that follows but accessors. */
treadle_status treadle_trainer_create(treadle_group *group, const treadle_layout *layout,
                                      const treadle_trainer_options *options, treadle_trainer **trainer_p);
void treadle_trainer_destroy(treadle_trainer *trainer);
/* The weights of the checkpoint, and an optimizer that has taken no step. */
treadle_status treadle_trainer_load(treadle_trainer *trainer);
/* Random weights in place of a checkpoint's: matrices from a normal distribution around 0 whose deviation is the config's
 * initializer_range (without one 0.02), norms 1, biases 0. A value is a function of seed, tensor and canonical index. */
treadle_status treadle_trainer_randomise(treadle_trainer *trainer, uint64_t seed);

/* Rows, and how many go through the layers together: micro_batch_size rows, or as many as have max_tokens_per_micro tokens (a row that
 * has more is refused). One of the two is 0. */
typedef struct treadle_train_batch {
  size_t struct_size;
  const treadle_train_row *rows; /* [count] */
  size_t count, micro_batch_size;
  int64_t max_tokens_per_micro;
  /* [count] so many tokens at its begin, none of which counts, a row has in common with the row before it: a prompt, which goes through the
   * layers once for all rows of a micro batch that follow each other and have it. NULL: none. */
  const int32_t *shared;
} treadle_train_batch;

/* Gradients of the mean of -log p over all tokens that count, in all rows; rows know nothing of each other. All ranks give the same
 * batch; data parallel replicas divide the micro batches. What gradients there were is overwritten. All rows are checked first: by
 * number, what is wrong. A loss that is not finite is TREADLE_REFUSED. */
treadle_status treadle_trainer_gradients(treadle_trainer *trainer, const treadle_train_batch *batch,
                                         treadle_loss *loss_p);
/* The loss alone. */
treadle_status treadle_trainer_loss(treadle_trainer *trainer, const treadle_train_batch *batch,
                                    treadle_loss *loss_p);

/* ---- Policies: training by rewards ---- */

/* What is asked of the tokens that count (mask), in the rows of a batch. A row may have none of them. */
typedef struct treadle_policy {
  size_t struct_size;
  double temperature; /* logits are divided by it; 0: 1 */
  bool entropy;       /* entropies of softmax(logits / temperature) are wanted, too */
  /* For gradients: the derivatives of the loss by the log-probability, and by the entropy, of token `token` of row `row` of the batch. Called in the
   * caller's thread, with the same arguments on every rank that has the token's logits; entropy is 0 where it is not wanted. */
  treadle_status (*differentiate)(void *context, size_t row, size_t token, float logprob, float entropy,
                                  double *by_logprob_p, double *by_entropy_p);
  void *context;
  /* What tokens were drawn from: log-probabilities, entropies and gradients are those of the distribution over these
   * ids alone. */
  const int32_t *never; /* [never_count] ids that are never drawn, ascending; NULL: none */
  size_t never_count;
  /* Of counted token i of the batch, in the order of rows: ids kept[kept_first[i]] to before kept[kept_first[i + 1]],
   * ascending, the token among them. A token without ids: all but those of `never`. NULL: so for all tokens. */
  const size_t *kept_first; /* [counted tokens + 1], from 0 on */
  const int32_t *kept;
} treadle_policy;

/* Gradients of a loss that is a function of log-probabilities and entropies. These go to logprobs and entropies, [counted tokens] in the order
 * of rows, on all ranks: the bits of treadle_engine_score at that temperature, in exact mode. Both may be NULL. */
treadle_status treadle_trainer_policy_gradients(treadle_trainer *trainer, const treadle_train_batch *batch,
                                                const treadle_policy *policy, float *logprobs,
                                                float *entropies);
/* Log-probabilities alone; entropies may be NULL. weights: NULL, or a window of another model's weights, in the trainer's layout, to compute
 * with. */
treadle_status treadle_trainer_logprobs(treadle_trainer *trainer, const treadle_train_batch *batch,
                                        const treadle_policy *policy, const void *weights, float *logprobs,
                                        float *entropies);
/* The windows were elsewhere, or the weights in them have changed: what was made of them is made anew. Local. */
treadle_status treadle_trainer_rebind(treadle_trainer *trainer);

typedef struct treadle_optimizer_step {
  size_t struct_size;
  double lr, weight_decay; /* not of tensors with one dimension */
  double clip_grad;        /* gradients are scaled down to this norm; 0: never */
} treadle_optimizer_step;

typedef struct treadle_optimizer_figures {
  size_t struct_size;
  double grad_norm; /* before clipping */
  bool skipped;     /* a gradient was not finite: nothing was done */
  int64_t steps;    /* taken so far */
} treadle_optimizer_figures;

/* One step of AdamW (torch.optim.AdamW) with the present gradients. TREADLE_STATE: the trainer has no optimizer. */
treadle_status treadle_trainer_step(treadle_trainer *trainer, const treadle_optimizer_step *step,
                                    treadle_optimizer_figures *result_p);
/* Writes weights and the optimizer's state into FOLDER, which exists: huggingface/, and optimizer/ with master/, exp_avg/ and exp_avg_sq/
 * as fp32, each a Hugging Face folder. What gradients there were is overwritten. */
treadle_status treadle_trainer_save(treadle_trainer *trainer, const char *folder);
/* Reads what a trainer of any layout and any number of ranks has saved. Refused: other tensors than the model's. After a failure the trainer
 * has no state to go on with. */
treadle_status treadle_trainer_resume(treadle_trainer *trainer, const char *folder);
/* As treadle_switch_digest, of the weights. */
treadle_status treadle_trainer_weights_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* The square root of the sum of squares of all gradients; the same bits in every layout. NaN where a gradient is not finite. */
treadle_status treadle_trainer_norm(treadle_trainer *trainer, double *norm_p);
/* As treadle_switch_digest, of the gradients. */
treadle_status treadle_trainer_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* Writes them as safetensors: fp32, under Hugging Face names, a tied tensor once. The file is there when it is whole. */
treadle_status treadle_trainer_save_gradients(treadle_trainer *trainer, const char *path);

/* The layout of the gradients and their window. Else NULL and 0. */
const treadle_layout *treadle_trainer_grad_layout(const treadle_trainer *trainer);
float *treadle_trainer_grad_window(const treadle_trainer *trainer, size_t *bytes_p);
/* Bytes of device memory that the trainer holds: weights, gradients, the optimizer's state, activations. Else 0. */
size_t treadle_trainer_bytes(const treadle_trainer *trainer);

/* Bytes that a rank's trainer will hold. work: activations; forward: of them, from the begin of the window on, for passes without backward;
 * board: what ranks exchange, which lies in no window. An element of an array: this struct is frozen. */
typedef struct treadle_trainer_memory {
  size_t params, grads, optimizer, work, forward, board;
  size_t peak; /* all of them, but what offload_policy leaves in host memory */
} treadle_trainer_memory;

/* The same beforehand, of all ranks: by_rank [ranks of the layout]. It takes no memory of that size, and meets nobody. Local. */
treadle_status treadle_trainer_plan(const treadle_layout *layout, const treadle_trainer_options *options,
                                    treadle_trainer_memory *by_rank);

/* ---- The configuration of training --------------------------------------------------------------- */

typedef struct treadle_train_config treadle_train_config;

/* Reads YAML with the keys of docs/training.md. Each of `count` overrides is section.key=value, and goes before the file; NULL if there are
 * none. Refused, with file, line and key: what is no key (with the nearest), a value of another type or out of range, a key that is given
 * twice, keys that exclude each other. Which keys a run needs is not checked. On failure *config_p is NULL. */
treadle_status treadle_train_config_read(const char *path, const char *const *overrides, size_t count,
                                         treadle_train_config **config_p);
void treadle_train_config_destroy(treadle_train_config *config);
/* [*count_p] lines for a person, until the configuration is destroyed: keys of other programs that do nothing here, and the like. Else
 * NULL and 0. */
const char *const *treadle_train_config_warnings(const treadle_train_config *config, size_t *count_p);
/* YAML with the value of every key, and as a comment where it comes from. Read again, it is the same configuration. The caller frees
 * *text_p with free(); on failure it is NULL. */
treadle_status treadle_train_config_text(const treadle_train_config *config, char **text_p);
/* The table of keys: lines in columns, or one JSON object. As above. */
treadle_status treadle_train_config_help(bool json, char **text_p);

/* ---- Engines that train -------------------------------------------------------------------------------- */

/* An engine as the loop of training sees it: what treadle_trainer_* do, of whatever trainer. All functions but bytes and close are
 * collective. */
typedef struct treadle_train_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*load)(void *engine); /* the weights of the layout's checkpoint */
  treadle_status (*randomise)(void *engine, uint64_t seed);
  treadle_status (*gradients)(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p);
  treadle_status (*loss)(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p);
  treadle_status (*step)(void *engine, const treadle_optimizer_step *step,
                         treadle_optimizer_figures *figures_p);
  treadle_status (*weights_digest)(void *engine, uint64_t *digest_p);
  treadle_status (*save)(void *engine, const char *folder);
  treadle_status (*resume)(void *engine, const char *folder);
  size_t (*bytes)(const void *engine); /* of device memory, on this rank */
  void (*close)(void *engine);
  /* For a worker that trains by rewards (treadle_control.h). */
  treadle_status (*policy_gradients)(void *engine, const treadle_train_batch *batch,
                                     const treadle_policy *policy, float *logprobs, float *entropies);
  treadle_status (*logprobs)(void *engine, const treadle_train_batch *batch, const treadle_policy *policy,
                             const void *weights, float *logprobs, float *entropies);
  treadle_status (*rebind)(void *engine);
} treadle_train_engine;

/* Opens an engine on the ranks of a group, for a layout: fills *engine_p, whose struct_size is set. `context` is the caller's. Collective. */
typedef treadle_status (*treadle_train_engine_open)(void *context, treadle_group *group,
                                                    const treadle_layout *layout,
                                                    const treadle_trainer_options *options,
                                                    treadle_train_engine *engine_p);
/* The built-in one: treadle_trainer_create, and its functions. context is not looked at. */
treadle_status treadle_trainer_open_engine(void *context, treadle_group *group,
                                           const treadle_layout *layout,
                                           const treadle_trainer_options *options,
                                           treadle_train_engine *engine_p);

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

/* Writes train.jsonl, test.jsonl ({prompt, answer, data_source}) and sft.jsonl ({prompt, response}) of the task of verl's end-to-end test into
 * a folder, which is made if it is not there; docs/cli.md, "treadle data". Each file is there when it is whole. One of these names with
 * other content is refused and left as it is; one with the same content is left, too. */
treadle_status treadle_data_sequence(const char *folder, const treadle_sequence_options *options,
                                     treadle_sequence_figures *figures_p);

/* ---- Supervised training ------------------------------------------------------------------------------ */

/* What a step came to. */
typedef struct treadle_sft_step {
  size_t struct_size;
  int64_t step, steps; /* number `step`, from 1, of so many */
  double loss, grad_norm, lr;
  bool skipped; /* the norm was not finite */
  bool tested;  /* val_loss is there */
  double val_loss;
  int64_t tokens; /* of its rows */
  double seconds;
  const char *checkpoint; /* the folder that was saved after it; NULL: none was */
} treadle_sft_step;

typedef enum treadle_sft_start {
  TREADLE_RESUME_NEVER, /* a folder of a run that has checkpoints is refused */
  TREADLE_RESUME_AUTO,  /* from the newest one; without one the run begins */
  TREADLE_RESUME_FROM   /* from `from` */
} treadle_sft_start;

/* Functions are called in the thread of the call. */
typedef struct treadle_sft_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  const char *kernels;  /* as treadle_trainer_options has it, and threads */
  int32_t threads;
  treadle_sft_start resume;
  const char *from;                                              /* a folder global_step_K */
  void (*progress)(void *context, const treadle_sft_step *step); /* of rank 0 alone */
  bool (*stops)(
      void *context); /* asked after each step: if one rank says so, the run saves a checkpoint and ends */
  void *context;
  treadle_train_engine_open open_engine; /* NULL: the built-in one */
  void *engine_context;                  /* of open_engine */
  size_t
      budget_bytes; /* what no rank may exceed: a run or a plan that does is refused, with what would fit; 0: no limit */
  /* Of rank 0: what a person should know, and the run goes on: weights are made up, a file is not as it should be. NULL: nobody does. */
  void (*warn)(void *context, const char *line);
} treadle_sft_options;

typedef struct treadle_sft_figures {
  size_t struct_size;
  int64_t steps;                /* taken by this call */
  int64_t last_step;            /* the run's */
  double loss_first, loss_last; /* of these steps */
  int64_t tokens;
  double seconds;
  size_t peak_bytes, peak_predicted_bytes; /* of the fullest rank */
  uint64_t weights_digest, losses_digest;  /* of the losses of all steps of the run */
  bool stopped;                            /* before the last step */
  char checkpoint[1024];                   /* the newest, as a path */
  treadle_weights weights;                 /* where those that the run began or went on with come from */
} treadle_sft_figures;

/* Trains as the configuration says, on all ranks of the group (NULL: this process alone), and writes into the folder of the run. Refused
 * before anything is written, where that can be: docs/training.md has the list. Collective. */
treadle_status treadle_sft_run(treadle_group *group, const treadle_train_config *config,
                               const treadle_sft_options *options, treadle_sft_figures *result_p);

/* What each of `ranks` ranks would hold, by_rank [ranks]. Where the configuration names no data, rows are as long as seq_length lets them be.
 * by_rank is filled even where the budget is too small, which is refused. Local. */
treadle_status treadle_sft_plan(const treadle_train_config *config, int64_t ranks,
                                const treadle_sft_options *options, treadle_trainer_memory *by_rank);

/* Is told of a checkpoint. known is false if it has no digests, as those of older versions; damage is NULL, or says which part or
 * file is not what was saved. */
typedef void (*treadle_checkpoint_watcher)(void *context, const char *checkpoint, bool known,
                                           const char *damage);

/* Compares checkpoints of a run with what they say of themselves (digests.json, docs/checkpoints.md): a folder
 * global_step_K, or a run's folder, each of whose checkpoints is looked at, ascending. `each` may be NULL. families: as in
 * treadle_sft_options. Refused: no checkpoint is there. *damaged_p: how many are. Local. */
treadle_status treadle_checkpoint_verify(const char *folder, const char *families,
                                         treadle_checkpoint_watcher each, void *context,
                                         int64_t *damaged_p);

/* ---- Rewards ------------------------------------------------------------------------------------------ */

/* A function from a completion to a number. One thread at a time. */
typedef struct treadle_reward treadle_reward;

/* A completion to be judged. What a reward does not look at may be NULL or 0. An element of an array: this struct is frozen. */
typedef struct treadle_reward_sample {
  const char *id; /* for "command": its own among the samples of a call */
  const char *data_source, *prompt;
  const char *completion; /* [completion_bytes] any bytes; NULL where they are none */
  size_t completion_bytes;
  const char *answer; /* what the data say */
  int64_t tokens;     /* of the completion */
} treadle_reward_sample;

typedef struct treadle_reward_options {
  size_t struct_size;
  const char *name;       /* a row of treadle_reward_help: "sequence", "gsm8k", "math", "regex:P",
                       "length:target=T", "command" */
  const char *command;    /* of "command": what /bin/sh -c runs */
  double timeout_seconds; /* of "command": how long a process may take for its next answer; 0: 60 */
  int32_t parallel;       /* of "command": so many processes divide the samples, at most 1024; 0: 1 */
} treadle_reward_options;

/* Refused: what is no reward (with the nearest), what it needs and has not, a pattern that does not compile, with the place. The processes
 * of "command" are started; each takes an open file, of which there may be too few. On failure *reward_p is NULL. */
treadle_status treadle_reward_create(const treadle_reward_options *options, treadle_reward **reward_p);
/* Begins to score in a thread of its own, while the caller does other things: samples and their texts stay as they are until
 * treadle_reward_wait, which has the count of the start. scores [count]; preds: NULL, or [count]: what was taken for the answer, which the caller
 * frees with free(), or NULL where there was none. A 0 byte of a completion ends such a text. Refused, by number: a sample without what the reward
 * needs, a pattern that takes too many steps; docs/rewards.md has what is refused of a command. On failure all preds are NULL, and scores are not
 * to be used; the reward may be used again. TREADLE_TIMEOUT: a process of the command was silent for too long. TREADLE_STATE: a second
 * start, a wait without a start. */
treadle_status treadle_reward_start(treadle_reward *reward, const treadle_reward_sample *samples,
                                    size_t count);
treadle_status treadle_reward_wait(treadle_reward *reward, double *scores, char **preds);
/* Ends what was started and not waited for, and the processes: their standard input is closed, and those that have not ended a second later
 * are killed, each with its process group; so they are at once where this process ends without that. */
void treadle_reward_destroy(treadle_reward *reward);
/* The table of rewards for a person: a line each, its name and what it gives. The caller frees *text_p with free(); on failure it is NULL. */
treadle_status treadle_reward_help(char **text_p);

/* ---- Nets: messages between ranks on different nodes ---------------------------------------------------- */

/* Where the bytes of a message lie. An element of an array: this struct is frozen. */
typedef struct treadle_net_part {
  void *at;
  size_t bytes;
} treadle_net_part;

typedef enum treadle_net_memory {
  TREADLE_NET_HOST = 1,
  TREADLE_NET_CUDA = 2
} treadle_net_memory; /* flags */

typedef struct treadle_net_options {
  size_t struct_size;
  int rank, ranks;
  const char *devices; /* network devices, "eth0,eth1"; NULL: those of `host` */
  const char *host;    /* the address of this rank's machine by which it met the others; NULL: not known */
  void *context;       /* of the row: what the caller gave with it */
} treadle_net_options;

/* How messages go from rank to rank where memory cannot be read in place. A row has these functions, and state of its own (`net`), which one
 * thread at a time uses. Messages between two ranks are matched by sender and tag, below 2^40, whichever side comes first; a pair never has
 * two messages of one tag and direction at a time. A message may wait until those that were sent before it to the same rank have been received. A message that is received has the bytes that were sent, all of them: another length
 * fails (TREADLE_PEER, with both numbers), and what lies in the parts is then nothing. The two sides may cut a message into parts in different
 * ways. After a failure of one pair the others go on. */
typedef struct treadle_net_ops {
  size_t struct_size;
  const char *name; /* "ucx" */
  unsigned memory;  /* treadle_net_memory: where parts may lie */
  int most_parts;   /* of a message; at least 1 */
  /* Local. Refused where the row cannot work here, with what to install; devices that are not there, an address that is not this machine's. */
  treadle_status (*open)(const treadle_net_options *options, void **net_p);
  /* What others connect to, at most `capacity` bytes. */
  treadle_status (*address)(void *net, void *room, size_t capacity, size_t *bytes_p);
  /* Before the first message to or from that rank, once. Both sides do it, in any order, and neither waits: messages wait until both have.
   * Refused: bytes that are not the address of that rank. TREADLE_PEER: nobody is there. */
  treadle_status (*connect)(void *net, int peer, const void *address, size_t bytes);
  /* Begins; the parts' memory (the array is copied) stays until the request has ended. A message may have no bytes. TREADLE_STATE: not connected;
   * TREADLE_PEER: lost before. A send that has ended may not have arrived yet. */
  treadle_status (*send)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                         void **request_p);
  treadle_status (*receive)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                            void **request_p);
  /* Moves on whatever is under way. When *done_p, or with another status, the request has ended and is no more. TREADLE_PEER: the other
   * rank cannot be reached any more. A peer that is there and silent is no error: whoever waits has a time limit. */
  treadle_status (*test)(void *net, void *request, bool *done_p);
  /* Moves on, and comes back when a test may say more, `seconds` later at the most. */
  void (*wait)(void *net, double seconds);
  /* Ends a request: its memory is touched no more, and the pair has no more messages until the net is opened again: other requests of the
   * pair, on both sides, may end with TREADLE_PEER, and are cancelled where they do not. Not for a request that a test has ended. */
  void (*cancel)(void *net, void *request);
  /* With requests under way: they are cancelled. What others have not received yet may be lost, though its send has ended: so ranks close when
   * all have what they wait for, which they tell each other in another way. In a child made by fork, which may call nothing else, it frees
   * memory and leaves the parent's connections alone. */
  void (*close)(void *net);
} treadle_net_ops;

/* Switches that are made on the group then move what goes between nodes by this net, in place of "tcp"; the same on all ranks, and before the first
 * of them. context: of its options when it is opened. It is closed after an attempt that failed, and opened again for the next one; the row may
 * refuse that. Functions are called by whichever thread runs an arrow, one at a time, also while the switch is destroyed. *ops and what it needs stay until the
 * group is closed. Refused: a table that lacks a function or a name, or has no part for a message, or none in host memory. Local. */
treadle_status treadle_group_set_net(treadle_group *group, const treadle_net_ops *ops, void *context);
/* The same with a net that is there: "tcp" (sockets, what a group has by itself) or "ucx" (for InfiniBand). Refused: another name, with those that
 * there are; "ucx" in a library that was built without it. Whether UCX is on this machine is seen when a switch is made. Local. */
treadle_status treadle_group_choose_net(treadle_group *group, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
