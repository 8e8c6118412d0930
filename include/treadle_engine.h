/* treadle for authors of engines.
 *
 *   treadle_trainer_*        the built-in training engine: loss and gradients of rows of tokens
 *   treadle_train_config_*   the configuration of training: docs/training.md
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
} treadle_train_batch;

/* Gradients of the mean of -log p over all tokens that count, in all rows; rows know nothing of each other. All ranks give the same
 * batch; data parallel replicas divide the micro batches. What gradients there were is overwritten. All rows are checked first: by
 * number, what is wrong. A loss that is not finite is TREADLE_REFUSED. */
treadle_status treadle_trainer_gradients(treadle_trainer *trainer, const treadle_train_batch *batch,
                                         treadle_loss *loss_p);
/* The loss alone. */
treadle_status treadle_trainer_loss(treadle_trainer *trainer, const treadle_train_batch *batch,
                                    treadle_loss *loss_p);

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

/* Bytes that a rank's trainer will hold. work: activations, and what ranks exchange. An element of an array: this struct is frozen. */
typedef struct treadle_trainer_memory {
  size_t params, grads, optimizer, work;
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
} treadle_sft_figures;

/* Trains as the configuration says, on all ranks of the group (NULL: this process alone), and writes into the folder of the run. Refused
 * before anything is written, where that can be: docs/training.md has the list. Collective. */
treadle_status treadle_sft_run(treadle_group *group, const treadle_train_config *config,
                               const treadle_sft_options *options, treadle_sft_figures *result_p);

/* What each of `ranks` ranks would hold, by_rank [ranks]. Where the configuration names no data, rows are as long as seq_length lets them be.
 * by_rank is filled even where the budget is too small, which is refused. Local. */
treadle_status treadle_sft_plan(const treadle_train_config *config, int64_t ranks,
                                const treadle_sft_options *options, treadle_trainer_memory *by_rank);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
