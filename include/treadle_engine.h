/* treadle for authors of engines: the tables of functions by which the worker and the loops of treadle_loop.h know an
 * engine that generates and one that trains, and the types that are in these tables.
 *
 *   treadle_infer_engine   an engine that generates
 *   treadle_train_engine   an engine that trains
 *
 * The engines that are built in are in treadle_builtin.h. The conventions are those of treadle.h. */
#ifndef TREADLE_ENGINE_H
#define TREADLE_ENGINE_H

#include "treadle_batch.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Who watches ---------------------------------------------------------------------------------------- */

/* Who is told what a call does, and may end it. Each function may be NULL: nobody. All are called in the thread that
 * called the library. */
typedef struct treadle_observer {
  size_t struct_size;
  void *context;
  /* What takes long now, and how far it is. total 0: unknown. */
  void (*progress)(void *context, const char *what, int64_t done, int64_t total);
  bool (*stop)(void *context); /* asked again and again: true ends the call with TREADLE_CANCELLED */
} treadle_observer;

/* ---- Engines that generate ----------------------------------------------------------------------------- */

/* Texts to tokens and messages to texts: treadle_builtin.h. */
typedef struct treadle_tokenizer treadle_tokenizer;
typedef struct treadle_chat treadle_chat;

typedef struct treadle_generator_options {
  size_t struct_size;
  bool fast;                   /* false: exact mode */
  const char *kernels;         /* of matrix products, by name; NULL: the best of the machine */
  int32_t threads;             /* of this rank; 0: the processors of the machine, divided among its ranks */
  int32_t max_batch;           /* sequences that are generated at once; 0: 64 */
  int32_t prefill_chunk;       /* tokens of prompts that are read at once; 0: 512 */
  int32_t block_tokens;        /* tokens in a block of the cache; 0: 16 */
  treadle_choice prefix_cache; /* sequences with equal first tokens share blocks (default: on) */
  size_t kv_bytes;             /* memory of the cache; 0: 256 MiB */
  int64_t max_len;             /* tokens of a sequence; 0: max_position_embeddings */
} treadle_generator_options;

typedef struct treadle_generate_options {
  size_t struct_size;
  const char *what; /* names the lines in messages: a path; NULL: "requests" */
  /* A JSON object of sampling values under vLLM's names, which override generation_config.json. NULL: none. */
  const char *sampling;
  const treadle_tokenizer *tokenizer; /* turns prompts into tokens, tokens into text; NULL: requests are token ids */
  const treadle_chat *chat;           /* turns messages into prompts; NULL: no request has messages */
  int64_t seed;                       /* of requests without a seed of their own */
  bool scaled; /* log-probabilities of logits over temperature; else of the model's distribution */
  /* Called for each sample when its turn comes, in the order of requests and samples. `line` is a line of JSON
   * (docs/cli.md), and lives until the callback returns. NULL: nobody. */
  treadle_status (*answer)(void *context, const char *line, size_t bytes);
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  bool talks; /* a prompt is a message of the user: a chat of one message */
  /* Called for each new token as it comes, on the ranks that compute it. text [bytes] is what the token adds to the
   * text of a sample: whole characters, and often none. Requests and samples count from 0. All texts of a sample
   * together are the text of its answer: characters that may become a stop text are held back. `text` lives until the
   * callback returns. NULL: nobody. */
  treadle_status (*text)(void *context, int64_t request, int64_t sample, const char *text, size_t bytes);
  /* [never_count] ids that are never drawn, and have no part in log-probabilities; NULL: none */
  const int32_t *never;
  size_t never_count;
  /* Log-probabilities are of the distribution that a token was drawn from. This is the one of logits over temperature,
   * over the ids that `never`, min_tokens, top_k, top_p and min_p leave. `scaled` is then ignored. Refused: penalties,
   * temperatures below 1e-5, and logprobs of other tokens. */
  bool drawn;
  /* With `drawn`: the largest number of ids that a cut leaves. It leaves those with the largest logits, and of equal
   * logits the lower ids. If a request has a top_k, that number counts instead. 0: no limit. */
  int64_t most_kept;
  /* With `drawn`, if top_k, top_p or min_p cut: called before `answer` of a sample, with the ids that each of its
   * tokens was drawn from. counts: [tokens]. ids: [count] in all, token after token, ascending for each token. Both
   * live until the callback returns. NULL: nobody. */
  treadle_status (*kept)(void *context, const int32_t *counts, size_t tokens, const int32_t *ids, size_t count);
} treadle_generate_options;

typedef struct treadle_generate_figures {
  size_t struct_size;
  int64_t requests, samples;
  int64_t prompt_tokens, new_tokens; /* a prompt counts once for all samples of its request */
  double seconds;
  int64_t preemptions, prefix_hit_tokens;
  int64_t kv_blocks_leaked; /* blocks of the cache that are still used at the end: 0 */
  uint64_t digest;          /* of token ids and bits of log-probabilities, in the order of the answers */
} treadle_generate_figures;

typedef enum treadle_logprobs_of {
  TREADLE_LOGPROBS_MODEL = 0, /* the model's own distribution */
  TREADLE_LOGPROBS_SCALED,    /* of logits over temperature */
  TREADLE_LOGPROBS_DRAWN      /* of what a token was drawn from */
} treadle_logprobs_of;

/* How tokens are drawn. Names and ranges are vLLM's (SamplingParams). TREADLE_SAMPLING_INIT has the values that nobody
 * gave. */
typedef struct treadle_sampling {
  size_t struct_size;
  double temperature;                         /* below 1e-5: the largest logit, and of equal ones the lower id */
  int64_t top_k;                              /* 0, -1: all */
  double top_p, min_p;                        /* 1 and 0: all */
  double repetition_penalty;                  /* 1: none */
  double presence_penalty, frequency_penalty; /* 0: none */
  int64_t n;                                  /* answers to each prompt */
  int64_t max_tokens, min_tokens;             /* of an answer */
  const int32_t *stop_token_ids; /* [stop_token_id_count] end an answer, beside the model's own; NULL: none */
  size_t stop_token_id_count;
  bool ignore_eos;      /* the model's own end tokens do not end an answer */
  int64_t seed;         /* of prompts without a seed of their own: they draw by it and the number of their row */
  const int32_t *never; /* [never_count] ids that are never drawn, and have no part in log-probabilities; NULL: none */
  size_t never_count;
  /* Whose log-probabilities: of the model's distribution, of logits over temperature, or of what a token was drawn
   * from, after `never`, min_tokens, top_k, top_p and min_p. The last refuses penalties and temperatures below 1e-5. */
  treadle_logprobs_of logprobs_of;
  /* With TREADLE_LOGPROBS_DRAWN: the largest number of ids that a cut leaves. It leaves those with the largest logits,
   * and of equal logits the lower ids. A top_k counts instead. 0: no limit. */
  int64_t most_kept;
} treadle_sampling;

#ifdef __cplusplus
#define TREADLE_SAMPLING_INIT                                                                                          \
  ([] {                                                                                                                \
    treadle_sampling sampling = TREADLE_INIT(treadle_sampling);                                                        \
    sampling.temperature = sampling.top_p = sampling.repetition_penalty = 1;                                           \
    sampling.n = 1;                                                                                                    \
    sampling.max_tokens = 256;                                                                                         \
    return sampling;                                                                                                   \
  }())
#else
#define TREADLE_SAMPLING_INIT                                                                                          \
  ((treadle_sampling){.struct_size = sizeof(treadle_sampling),                                                         \
                      .temperature = 1,                                                                                \
                      .top_p = 1,                                                                                      \
                      .repetition_penalty = 1,                                                                         \
                      .n = 1,                                                                                          \
                      .max_tokens = 256})
#endif

/* An inference engine as the actor sees it: hooks for a switch, and answers to requests. hooks is called once, before
 * the switch is made. generate takes and gives what treadle_generator_generate_lines does, and is collective. */
typedef struct treadle_infer_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*hooks)(void *engine, treadle_engine_hooks *hooks_p);
  treadle_status (*generate)(void *engine, const char *lines, size_t bytes, const treadle_generate_options *options,
                             treadle_generate_figures *figures_p);
  size_t (*bytes)(const void *engine); /* of device memory that lies in no window, on this rank */
  void (*close)(void *engine);
} treadle_infer_engine;

/* Opens an engine on the ranks of a group, for a layout. It fills *engine_p, whose struct_size is set. `context` is the
 * caller's. Collective. */
typedef treadle_status (*treadle_infer_engine_open)(void *context, treadle_group *group, const treadle_layout *layout,
                                                    const treadle_generator_options *options,
                                                    treadle_infer_engine *engine_p);

/* ---- Engines that train -------------------------------------------------------------------------------- */

typedef struct treadle_trainer_options {
  size_t struct_size;
  const char *kernels; /* of matrix products: a name that `treadle doctor` lists; NULL: the best */
  int32_t threads;     /* 0: the number of processors */
  bool fast;           /* may add in any order; otherwise rows and micro batches alone decide the bits */
  int64_t most_rows;   /* the most tokens of a micro batch, for which there is memory; 0: 4096 */
  /* The most tokens of a row; 0: the smaller of most_rows and the model's max_position_embeddings. */
  int64_t most_tokens;
  /* Windows in host memory, such as those of a switch, of the sizes that treadle_trainer_foresee gives, at multiples of
   * 64 bytes. They must outlive the trainer. Give all that the trainer needs, or none. NULL: it takes memory of its
   * own. */
  void *params_window, *grads_window, *optimizer_window;
  void *work_window;          /* activations and the like; may be NULL. Its contents do not matter between two calls */
  const char *companions;     /* a folder whose tokenizer is saved with the weights, as in treadle_save_options */
  bool recompute;             /* backward computes each layer again, so that less is kept */
  bool sequence_parallel;     /* tensor parallel ranks divide the rows of the residual stream that is kept */
  bool optimizer;             /* with AdamW: two moments, and masters if weights are not fp32 */
  bool offload_policy;        /* of fsdp2: shards of weights, gradients and optimizer state lie in host memory */
  bool distributed_optimizer; /* data parallel ranks divide the optimizer's state */
  double adam_beta1, adam_beta2, adam_eps; /* 0: 0.9, 0.999, 1e-8 */
  /* The most micro batches of a step of a replica, for which a pipeline of several stages has memory; 0: 4 for each
   * stage. */
  int32_t most_micro_batches;
  int64_t most_sequences; /* the most rows of a micro batch; 0: as many as it has tokens */
  /* A step may have fewer micro batches than most_micro_batches. Some smaller numbers need more memory. */
  bool fewer_micro_batches;
} treadle_trainer_options;

/* A row of tokens: ids [count], and mask [count], which says whether -log p of ids[i] counts, given the ids before it.
 * mask[0] is 0. Frozen. */
typedef struct treadle_train_row {
  const int32_t *ids;
  const uint8_t *mask;
  size_t count;
} treadle_train_row;

typedef struct treadle_loss {
  size_t struct_size;
  double nll;     /* the sum of -log p over the tokens that count; the loss is nll / tokens */
  int64_t tokens; /* the number of tokens that count */
} treadle_loss;

/* Rows, and how they divide into micro batches, which go through the layers together. A micro batch has
 * micro_batch_size rows, or as many as fit in max_tokens_per_micro tokens (a longer row is refused). One of the two
 * must be 0. */
typedef struct treadle_train_batch {
  size_t struct_size;
  const treadle_train_row *rows; /* [count] */
  size_t count, micro_batch_size;
  int64_t max_tokens_per_micro;
  /* [count] the number of first tokens that a row has in common with the row before it, such as a prompt. None of them
   * may count. They go through the layers once for all consecutive rows of a micro batch that have them. NULL: none. */
  const int32_t *shared;
} treadle_train_batch;

/* What to compute for the tokens that count (mask), in the rows of a batch. A row may have no such token. */
typedef struct treadle_policy {
  size_t struct_size;
  double temperature; /* logits are divided by it; 0: 1 */
  bool entropy;       /* also compute entropies of softmax(logits / temperature) */
  /* For gradients: gives the derivatives of the loss by the log-probability and by the entropy of token `token` of row
   * `row` of the batch. Called in the caller's thread, with equal arguments on every rank that has the token's logits.
   * If entropies are not computed, `entropy` is 0. */
  treadle_status (*differentiate)(void *context, size_t row, size_t token, float logprob, float entropy,
                                  double *by_logprob_p, double *by_entropy_p);
  void *context;
  /* The ids that tokens were drawn from: log-probabilities, entropies and gradients are those of the distribution over
   * these ids alone. */
  const int32_t *never; /* [never_count] ids that are never drawn, ascending; NULL: none */
  size_t never_count;
  /* Token i of the batch that counts, in the order of rows, was drawn from kept[kept_first[i]] to before
   * kept[kept_first[i + 1]]. These ids are ascending and include the token. If they are none, it was drawn from all ids
   * except `never`. NULL: this holds for all tokens. */
  const size_t *kept_first; /* [counted tokens + 1], starts at 0 */
  const int32_t *kept;
} treadle_policy;

typedef struct treadle_optimizer_step {
  size_t struct_size;
  double lr, weight_decay; /* weight decay leaves out tensors with one dimension */
  double clip_grad;        /* gradients are scaled down to this norm; 0: never */
} treadle_optimizer_step;

typedef struct treadle_optimizer_figures {
  size_t struct_size;
  double grad_norm; /* before clipping */
  bool skipped;     /* a gradient was not finite, and the step did nothing */
  int64_t steps;    /* taken so far */
} treadle_optimizer_figures;

/* A training engine as the loop of training sees it. Each function does what the function treadle_trainer_* of its name
 * does. All functions except bytes and close are collective. */
typedef struct treadle_train_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*load)(void *engine); /* the weights of the layout's checkpoint */
  treadle_status (*randomise)(void *engine, uint64_t seed);
  treadle_status (*gradients)(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p);
  treadle_status (*loss)(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p);
  treadle_status (*step)(void *engine, const treadle_optimizer_step *step, treadle_optimizer_figures *figures_p);
  treadle_status (*weights_digest)(void *engine, uint64_t *digest_p);
  treadle_status (*save)(void *engine, const char *folder);
  treadle_status (*resume)(void *engine, const char *folder);
  size_t (*bytes)(const void *engine); /* of device memory, on this rank */
  void (*close)(void *engine);
  /* For a worker that trains by rewards (treadle_loop.h). */
  treadle_status (*policy_gradients)(void *engine, const treadle_train_batch *batch, const treadle_policy *policy,
                                     float *logprobs, float *entropies);
  treadle_status (*logprobs)(void *engine, const treadle_train_batch *batch, const treadle_policy *policy,
                             const void *weights, float *logprobs, float *entropies);
  treadle_status (*rebind)(void *engine);
} treadle_train_engine;

/* Opens an engine on the ranks of a group, for a layout. It fills *engine_p, whose struct_size is set. `context` is the
 * caller's. Collective. */
typedef treadle_status (*treadle_train_engine_open)(void *context, treadle_group *group, const treadle_layout *layout,
                                                    const treadle_trainer_options *options,
                                                    treadle_train_engine *engine_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
