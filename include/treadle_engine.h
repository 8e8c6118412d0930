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
  void (*stage)(void *context, const char *stage); /* "generate", "update": it begins; NULL: the step has ended */
  /* What takes long now, and how far it is. total 0: unknown. */
  void (*progress)(void *context, const char *what, int64_t done, int64_t total);
  /* What a person should know. warns: something is not as it should be, and the call goes on. */
  void (*note)(void *context, bool warns, const char *line);
  /* Bytes of this rank's device by class [classes], as in treadle_switch_options. */
  void (*memory)(void *context, const size_t *bytes, int classes);
  bool (*stop)(void *context); /* asked again and again: true ends the call */
} treadle_observer;

/* ---- Engines that generate ----------------------------------------------------------------------------- */

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
  bool experts; /* record the experts that tokens chose, beside keys and values; refused if the model has none */
} treadle_generator_options;

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

/* A generator as the actor knows it: a table of functions. hooks is called once, before the switch is made. generate
 * does what treadle_generator_generate does, with the same columns: the ranks of a replica give equal batches, two
 * replicas different ones or none, and all ranks of a replica get its answers. Collective. */
typedef struct treadle_infer_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*hooks)(void *engine, treadle_engine_hooks *hooks_p);
  treadle_status (*generate)(void *engine, const treadle_batch *prompts, const treadle_sampling *sampling,
                             const treadle_observer *observer, treadle_batch **out_p);
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
  /* Rows go forward only, as those of a reward model do: there is no memory for gradients, and no optimizer. */
  bool forward_only;
  /* Of models with experts, of each of their routers: the coefficients of the loss that keeps experts evenly loaded,
   * and of the z loss (0: none); by how much a step moves each bias towards an even load (0: not at all; of sigmoid
   * scores); and true: routers keep their weights. */
  double aux_loss_coeff, z_loss_coeff, expert_bias_rate;
  bool freeze_routers;
  bool seq_aux_loss; /* the first of these losses is of each row by itself, and the mean over those of a micro batch */
  /* Ulysses: this many data parallel ranks that follow each other have the same rows, and divide their tokens among
   * them; 0: each has all of its own. A layout with cp= says it for itself, and takes none here. */
  int32_t ulysses_ranks;
  /* LoRA: adapters of this rank train in place of the weights, which have neither gradients nor an optimizer; 0: the
   * weights train. A matrix W counts as W + lora_alpha / lora_rank * B A, rounded to the type of W. */
  int64_t lora_rank;
  double lora_alpha;         /* 0: 16 */
  /* Names of matrices, with commas: "q_proj,lm_head"; NULL or "all-linear": all of layers, but routers and experts. */
  const char *lora_modules;
  const char *lora_adapter;  /* a folder of peft's with the adapters to begin with; NULL: A random, B zero */
  uint64_t lora_seed;        /* of random A */
  bool lora_save_merged;     /* the weights with the adapters in them are saved beside the adapters */
  bool lora_gather;          /* there is memory on each rank for treadle_trainer_gather_adapters */
} treadle_trainer_options;

/* How rows go through the layers, and what is wanted of them.
 *
 * A row of a batch is prompt_ids (ragged int32; may be absent) and then ids (ragged int32). Of ids those count that
 * mask says (ragged uint8, like ids; absent: all); the first token of a row, which has none before it, never does. A
 * row may have no token that counts, if a loss other than "nll" is asked for. Rows one after the other with equal
 * prompt_ids share that prompt in a micro batch. kept_counts and kept, which may be absent, say what the tokens were
 * drawn from, as a generator gives them: a count of 0 is all ids but `never`.
 *
 * micro_batch (int64, one a row), which may be absent, says which rows go through the layers together: neighbours with
 * equal numbers. The two limits below hold as they do without it: a micro batch above them is refused. */
typedef struct treadle_forward_options {
  size_t struct_size;
  /* Rows go through the layers in micro batches: of micro_batch_size rows, or of as many as fit in max_tokens_per_micro
   * tokens (a longer row is refused). Just one of the two is above 0. */
  int64_t micro_batch_size, max_tokens_per_micro;
  double temperature; /* logits are divided by it; 0: 1 */
  bool entropies;     /* also of softmax(logits / temperature) */
  /* [never_count] ids that are never drawn, ascending: log-probabilities, entropies and gradients are those of the
   * distribution without them; NULL: none */
  const int32_t *never;
  size_t never_count;
  /* Of models with experts. Where the batch has a column experts (bytes, as the generator records it; a row without
   * bytes has no record), routers are compared with it: `out` gets experts_differing (int64, one a row: tokens that
   * would have gone to other experts; rows with one prompt count its tokens once). With replay_experts each row must
   * have a record, and tokens go to its experts, with weights of this pass. */
  bool replay_experts;
  bool experts; /* `out` also gets the column experts: those that tokens chose by themselves */
} treadle_forward_options;

/* Rows first up to end of a batch. Frozen. */
typedef struct treadle_row_range {
  int64_t first, end;
} treadle_row_range;

/* The tokens of a row that count, for a loss of the caller's. Frozen. */
typedef struct treadle_loss_row {
  int64_t row;            /* of the batch that this rank was given */
  int64_t count;          /* tokens that count */
  const float *log_probs; /* [count] as this pass finds them */
  const float *entropies; /* [count]; NULL: not asked for */
  double *losses;         /* [count] to be written: what each adds to the loss; 0 before */
  double *by_log_prob;    /* [count] to be written: the loss's derivatives; 0 before */
  double *by_entropy;     /* [count] the same; NULL: not asked for */
} treadle_loss_row;

/* A loss.
 *
 *   "nll"   the mean of -log p over all tokens that count, of all ranks
 *   "ppo"   the sum over all tokens of weight * token, by the columns old_log_probs (fp32; absent: rollout_log_probs),
 *           advantage (fp64, one a row) or advantages (ragged fp64), ref_log_probs (fp32) with a KL, and
 *           rollout_log_probs with an importance_cap:
 *             ratio = e^(log_prob - old), the exponent held within 20
 *             pg    = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high)); A < 0: min(that, -A clip_c)
 *             token = pg - entropy_coeff * entropy + kl_coef * KL(log_prob, ref)
 *           clip_c is 1 at least; INFINITY: no second clip. Values of these columns that are not finite are refused,
 *           and so is a loss that is not
 *   "value" of a model with a score head, and the only one of it: the sum over all tokens of weight * token, by the
 *           columns values (fp32: what the head gave before) and returns (fp32):
 *             token = max((v - R)^2, (clip(v, old - clip_value, old + clip_value) - R)^2) / 2
 *           clip_value is 0 at least; INFINITY: no clip. Values that are not finite are refused as in "ppo"
 *   NULL    the caller's: of_row is called for each row that has tokens that count, with equal arguments on every rank
 *           that has its logits. It may not change the batch. Values that are not finite are refused, by row and
 *           token. Figures are nll, tokens and loss */
typedef struct treadle_loss_options {
  size_t struct_size;
  const char *name;
  double clip_low, clip_high, clip_c;
  /* Weights of "ppo" and "value", over all ranks: "token-mean" 1 / tokens; "seq-mean-token-sum" 1 / rows with tokens;
   * "seq-mean-token-mean" 1 / rows / tokens of the row; "seq-mean-token-sum-norm" 1 / rows / norm_length. NULL: the
   * first. */
  const char *aggregation;
  double norm_length;
  double entropy_coeff; /* not 0: forward options must ask for entropies */
  const char *kl;       /* "kl", "abs", "mse", "low_var_kl" or another of docs/grpo.md; NULL: none */
  double kl_coef;
  double importance_cap; /* not 0: pg is multiplied by e^(old - rollout), at most this */
  treadle_status (*of_row)(void *context, const treadle_loss_row *row);
  void *context;
  double clip_value; /* of "value" */
} treadle_loss_options;

/* What a loss came to, over all ranks. */
typedef struct treadle_loss {
  size_t struct_size;
  /* The sum of -log p over the tokens that count, coordinate by coordinate; of "nll" the loss is nll / tokens, of
   * "value" it is 0. All other sums go on from coordinate to coordinate, and have the same bits in all layouts. */
  double nll;
  int64_t tokens; /* the number of tokens that count */
  /* Of a loss other than "nll": the loss itself, and its parts. pg_loss, kl_loss and entropy are weighted as the loss;
   * clipfrac, clipfrac_lower and ppo_kl are means over tokens. */
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl;
  /* Of "value": vf_loss is weighted as the loss. vf_clipfrac is the share of tokens whose clipped square is the larger
   * one, and vpred_mean the mean of v over tokens. */
  double vf_loss, vf_clipfrac, vpred_mean;
  /* Of models with experts, where gradients were made: the losses of routers, which `loss` does not include; and of the
   * layer where they are farthest from it, how often the most and the least loaded expert was chosen, over the mean. */
  double aux_loss, expert_load_max, expert_load_min;
  /* Where rows have records of experts: tokens with a record, and how many of these would have gone to others. */
  int64_t experts_compared, experts_differing;
} treadle_loss;

typedef struct treadle_optimizer_step {
  size_t struct_size;
  double lr, weight_decay; /* weight decay leaves out tensors with one dimension */
  double clip_grad;        /* gradients are scaled down to this norm; 0: never */
} treadle_optimizer_step;

typedef struct treadle_optimizer_figures {
  size_t struct_size;
  double grad_norm;  /* before clipping */
  bool skipped;      /* a gradient was not finite, and the step did nothing */
  int64_t steps;     /* taken so far */
  treadle_loss loss; /* of an update; of a step alone all 0 */
} treadle_optimizer_figures;

/* A trainer as the worker and the loops know it: a table of functions. Each does what the function treadle_trainer_* of
 * its name does. All except coordinate_of, bytes and close are collective.
 *
 * coordinate_of says which rows each rank takes. Each rank then gives logprobs, loss and update the batch of its rows,
 * which may be none; ranks with the same rows give equal batches. `out`, a batch with as many rows, gets the column
 * log_probs (ragged fp32, like ids; 0 where a token does not count), and entropies if they are asked for, on one rank
 * at least of those with the same rows. out may be NULL.
 *
 * A model with a score head (TREADLE_HEAD_SCORE) has no log-probabilities. values and scores take its rows in place of
 * logprobs; loss and update take the loss "value", and out gets the column values. An engine that knows no such models
 * may leave values and scores NULL. */
typedef struct treadle_train_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*load)(void *engine); /* the weights of the layout's checkpoint */
  treadle_status (*randomise)(void *engine, uint64_t seed);
  treadle_status (*coordinate_of)(void *engine, const int64_t *lengths, int64_t rows,
                                  const treadle_forward_options *forward, treadle_row_range *by_rank);
  treadle_status (*logprobs)(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                             const void *weights, treadle_batch *out);
  treadle_status (*loss)(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                         const treadle_loss_options *loss, treadle_loss *loss_p);
  /* Gradients of the loss, and a step with them. */
  treadle_status (*update)(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                           const treadle_loss_options *loss, const treadle_optimizer_step *step, treadle_batch *out,
                           treadle_optimizer_figures *figures_p);
  treadle_status (*weights_digest)(void *engine, uint64_t *digest_p);
  treadle_status (*save)(void *engine, const char *folder);
  treadle_status (*resume)(void *engine, const char *folder);
  treadle_status (*rebind)(void *engine);
  size_t (*bytes)(const void *engine); /* of device memory, on this rank */
  void (*close)(void *engine);
  treadle_status (*values)(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                           treadle_batch *out);
  treadle_status (*scores)(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                           treadle_batch *out);
  /* LoRA. gather: each rank gets the adapters of now, from all ranks; collective. merge: adds them to the weights of
   * the base that a rank of this layout has in a window; local. NULL: nothing is to be added to weights. */
  treadle_status (*gather)(void *engine);
  treadle_status (*merge)(void *engine, const treadle_layout *layout, int64_t rank, void *window);
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
