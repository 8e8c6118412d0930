/* treadle for authors of engines, and for programs that use the built-in ones.
 *
 *   treadle_tokenizer_*      texts to tokens and back
 *   treadle_chat_*           messages to texts, by a model's chat template
 *   treadle_engine_*         the built-in engine that generates and scores
 *   treadle_trainer_*        the built-in training engine: loss and gradients of rows of tokens
 *   treadle_train_config_*   the configuration of training: docs/training.md
 *   treadle_sft_*            supervised training
 *   treadle_reward_*         functions from completions to numbers
 *
 * The conventions are those of treadle.h. Lifetimes and threads:
 *
 *   tokenizer    Needs nothing. Its texts live as long as it does. It never changes: any number of threads may use it.
 *   text stream  Needs its tokenizer. One thread at a time.
 *   chat         Needs nothing. It never changes: any number of threads may render with it. */
#ifndef TREADLE_ENGINE_H
#define TREADLE_ENGINE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Text: tokens --------------------------------------------------------------------------------
 *
 * Texts to ids and back, as the tokenizers library of Hugging Face and llama2.c do it. Texts are UTF-8 of known length,
 * and may hold 0 bytes. Ids go from 0 to treadle_tokenizer_count - 1; some of them may have no token. */

typedef struct treadle_tokenizer treadle_tokenizer;

/* Reads the tokenizer of the folder `path`, from the first of these that it has:
 *
 *   tokenizer.json                     BPE; docs/tokenizers.md lists what else it may have
 *   vocab.json with merges.txt
 *   a *.bin file of llama2.c
 *   tokenizer_config.json with char_ords
 *
 * `path` may also be one of these files. Special tokens are those of tokenizer_config.json beside it. Refused, by name:
 * features of a tokenizer that treadle does not know. On failure *tokenizer_p is NULL. */
treadle_status treadle_tokenizer_open(const char *path, treadle_tokenizer **tokenizer_p);
void treadle_tokenizer_close(treadle_tokenizer *tokenizer);

/* The largest id plus one. Else -1. */
int32_t treadle_tokenizer_count(const treadle_tokenizer *tokenizer);

typedef struct treadle_token_info {
  size_t struct_size;
  /* [bytes] and a 0: the token as the tokenizer writes it ("\u0120the", "<0x0A>"). Lives as long as the tokenizer. */
  const char *text;
  size_t bytes;
  bool added;   /* it is found as a whole in texts, before they are cut into words */
  bool special; /* decoding can leave it out */
} treadle_token_info;

/* Facts about token `id`. Refused: an id without a token. */
treadle_status treadle_tokenizer_token(const treadle_tokenizer *tokenizer, int32_t id, treadle_token_info *info_p);
/* The id of the token with this text, as the tokenizer writes it. Else, also if no token has this text, -1. */
int32_t treadle_tokenizer_find(const treadle_tokenizer *tokenizer, const char *text, size_t bytes);

/* Tokens with a meaning of their own: bos_token, eos_token, pad_token, unk_token of tokenizer_config.json. */
typedef enum treadle_special_token {
  TREADLE_BOS = 0, /* starts a text */
  TREADLE_EOS,     /* ends a text */
  TREADLE_PAD,
  TREADLE_UNKNOWN
} treadle_special_token;

/* The id of a special token. Else, also if the tokenizer does not have it, -1. */
int32_t treadle_tokenizer_special(const treadle_tokenizer *tokenizer, treadle_special_token which);

/* Gives the ids [*count_p] of a text. `special`: adds the special tokens that the tokenizer puts around a text. Special
 * tokens that are written in the text are found in either case. Refused: a text that is not UTF-8 or has more than 2^28
 * bytes. The caller frees *ids_p with free(). It is NULL on failure, but not if there are no ids. */
treadle_status treadle_tokenizer_encode(const treadle_tokenizer *tokenizer, const char *text, size_t bytes,
                                        bool special, int32_t **ids_p, size_t *count_p);
/* Gives the text of ids, [*bytes_p] and a 0. It is always UTF-8, with U+FFFD for bytes that make no character.
 * `special`: keeps the texts of special tokens. Refused: ids without a token. The caller frees *text_p with free(); on
 * failure it is NULL. */
treadle_status treadle_tokenizer_decode(const treadle_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                        bool special, char **text_p, size_t *bytes_p);

/* The text of tokens that come one by one. The stream gives a character when all its bytes are there, never in parts.
 * The texts of a stream, joined, are what treadle_tokenizer_decode gives. Only the number of U+FFFD may differ, for
 * tokenizers with byte fallback. */
typedef struct treadle_text_stream treadle_text_stream;

/* Makes a stream; `special` is as in treadle_tokenizer_decode. Refused: a tokenizer whose decoder must see all tokens
 * at once. */
treadle_status treadle_text_stream_create(const treadle_tokenizer *tokenizer, bool special,
                                          treadle_text_stream **stream_p);
/* Takes a token. *text_p, [*bytes_p] and a 0, is the text that it completes, often "". It lives until the next call
 * with this stream. */
treadle_status treadle_text_stream_put(treadle_text_stream *stream, int32_t id, const char **text_p, size_t *bytes_p);
/* Ends the text: incomplete bytes become U+FFFD. Afterwards put and end return TREADLE_STATE. */
treadle_status treadle_text_stream_end(treadle_text_stream *stream, const char **text_p, size_t *bytes_p);
void treadle_text_stream_destroy(treadle_text_stream *stream);

/* ---- Text: chats ---------------------------------------------------------------------------------
 *
 * Messages to the text that a model was trained on, by the model's chat template. The template is Jinja, as
 * transformers runs it. docs/chats.md says what a template may use; anything else is refused, with line and name.
 * Limits on steps, memory and output stop a template that would not end. */

typedef struct treadle_chat treadle_chat;

/* Opens the chat template of a model. `path` is a folder (chat_template.jinja, tokenizer_config.json or
 * chat_template.json), a file tokenizer_config.json, or any other file, whose text is the template.
 * tokenizer_config.json also has the special tokens, which are variables of the template: bos_token, eos_token and so
 * on. On failure *chat_p is NULL. Local. */
treadle_status treadle_chat_open(const char *path, treadle_chat **chat_p);
/* Opens the chat template of a folder, or of the folder in which the file `path` lies. If there is none, that is not a
 * failure: *chat_p is NULL. Local. */
treadle_status treadle_chat_find(const char *path, treadle_chat **chat_p);
void treadle_chat_close(treadle_chat *chat);

typedef struct treadle_chat_options {
  size_t struct_size;
  /* A JSON object; NULL: none. Its keys are variables of the template (add_generation_prompt, tools, documents,
   * enable_thinking, ...), except two:
   *
   *   continue_final_message  true: the text ends in the last message, for the model to continue
   *   chat_template           the name of one of several templates, or the text of another one */
  const char *variables;
  const char *now; /* what strftime_now sees: "2025-03-14T15:09:26"; NULL: the clock's local time */
} treadle_chat_options;

/* Renders `messages`, a JSON list of objects with a role, as transformers takes it. *text_p is UTF-8, [*bytes_p] and a
 * 0; the caller frees it with free(). On failure it is NULL, and the message names the line of the template. The
 * message of raise_exception ends with the text that the template gives. Options may be NULL. Local. */
treadle_status treadle_chat_render(const treadle_chat *chat, const char *messages, const treadle_chat_options *options,
                                   char **text_p, size_t *bytes_p);

/* ---- The built-in engine -------------------------------------------------------------------------
 *
 * Runs decoders on processors, for families whose file says what is computed (docs/families.md). It is small, and
 * exact: a token's log-probability has the same bits whatever the layout, batch, chunks and threads. A program
 *
 *   1. makes the engine of a layout (treadle_engine_create);
 *   2. gives it the weights of its rank in that layout (treadle_engine_bind), and again after they have changed. Or it
 *      makes it the engine of a switch (treadle_engine_hooks_of), which then does this;
 *   3. scores texts or generates.
 *
 * If there are several ranks, each makes the same calls with the same arguments. */
typedef struct treadle_engine treadle_engine;

typedef struct treadle_engine_options {
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
} treadle_engine_options;

/* Makes an engine. The group and the layout must outlive it; group: NULL is one rank. Options may be NULL. Refused, by
 * name: families, layouts and kinds of attention that it does not compute. On failure *engine_p is NULL. Collective. */
treadle_status treadle_engine_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_engine_options *options, treadle_engine **engine_p);
void treadle_engine_destroy(treadle_engine *engine);

/* Bind gives the weights from now on: the window of this rank in the engine's layout. The window must not change until
 * unbind or the next bind. The first bind takes memory for the cache and for activations. Bind does not look at the
 * weights. If a weight is NaN or infinite, it is refused by its name as soon as a row of logits shows it. Refused: a
 * window that does not lie in host memory. Collective.
 *
 * If a call that generates or scores finds no weights before a step, it waits for the next bind. Then it computes again
 * what it has not finished: keys and values of the tokens so far, and texts from their start. If the weights are equal,
 * exact mode gives the same bits.
 *
 * If another thread runs such a call, bind and unbind wait for the end of its present step. In the thread of such a
 * call they may be called only in its `watch`, by all ranks after the same step. In its other callbacks they return
 * TREADLE_STATE. They also return TREADLE_STATE while the engine belongs to a switch. */
treadle_status treadle_engine_bind(treadle_engine *engine, const void *window, size_t bytes);
treadle_status treadle_engine_unbind(treadle_engine *engine);

/* Fills hooks that make this the engine of a switch; set treadle_switch_options.engine to them. The engine's layout
 * must be the switch's infer layout, and its group must have the same ranks. From treadle_switch_create until
 * treadle_switch_destroy the engine belongs to the switch, and must outlive it:
 *
 *   weights   They lie in the infer window, where the plan says (also with alias). Their version is that of the switch.
 *   cache     It lies in the KV window, in blocks of kv_block_bytes. kv_bytes of the switch sets its least size. If the
 *             window has no room for a block, bind is refused.
 *   work      Activations and packed copies of weights lie in the window of TREADLE_WORK.
 *
 * If the switch has own infer tensors or memory of another kind than host (treadle_switch_options), bind is refused.
 *
 * An arrow out of INFER may be taken while a call of the engine runs. The call waits, as after treadle_engine_unbind,
 * and goes on after the next arrow to INFER. If other threads take arrows meanwhile, engine and switch need two groups
 * of the same ranks, since one thread at a time uses a group. If the switch is destroyed while a call waits for
 * weights, the call returns TREADLE_STATE. Local. */
treadle_status treadle_engine_hooks_of(treadle_engine *engine, treadle_engine_hooks *hooks_p);

typedef struct treadle_engine_info {
  size_t struct_size;
  treadle_dtype dtype; /* in which it computes */
  bool exact;
  const char *kernels; /* of this rank's products: "amx", or "amx, avx512"; lives as long as the engine */
  int32_t threads;
  int64_t vocabulary, max_len;
  size_t work_bytes;                                 /* activations */
  size_t packed_bytes;                               /* packed copies of weights; not in work_bytes */
  int32_t kv_blocks, kv_blocks_peak, kv_blocks_used; /* of the cache */
  uint64_t version;      /* how often weights were bound; with a switch: treadle_switch_version */
  size_t kv_block_bytes; /* of a block of the cache, on this rank */
} treadle_engine_info;

treadle_status treadle_engine_get_info(const treadle_engine *engine, treadle_engine_info *info_p);

/* A text as tokens. Frozen. */
typedef struct treadle_score_text {
  const int32_t *ids;
  size_t count;
} treadle_score_text;

typedef struct treadle_score_options {
  size_t struct_size;
  float temperature; /* logits are divided by it; 0: 1 */
  /* Called for each text, in order, when it is done. logprobs [count]: the natural logarithm of the probability of each
   * token, given the tokens before it; that of the first token is NaN. NULL: nobody. */
  treadle_status (*done)(void *context, size_t text, const float *logprobs);
  /* Called for each token, in order, with the logits [vocabulary] that follow it. NULL: nobody. */
  treadle_status (*logits)(void *context, size_t text, size_t token, const float *logits);
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
} treadle_score_options;

/* Scores `count` texts of at least one token each. It checks all of them before it scores the first. If a callback
 * fails, the call ends with its status. Collective. */
treadle_status treadle_engine_score(treadle_engine *engine, const treadle_score_text *texts, size_t count,
                                    const treadle_score_options *options);

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

/* Generates for requests, one a line of JSON (docs/cli.md, "treadle generate"). It checks all lines before the first
 * one runs. Collective. */
treadle_status treadle_engine_generate(treadle_engine *engine, const char *lines, size_t bytes,
                                       const treadle_generate_options *options, treadle_generate_figures *figures_p);

typedef struct treadle_score_lines_options {
  size_t struct_size;
  const char *what;  /* names the lines in messages: a path; NULL: "texts" */
  float temperature; /* logits are divided by it; 0: 1 */
  bool check;        /* compare with the logprobs of each line, bit for bit; a line without logprobs is refused */
  /* Called for each text, in order. `line` is a line of JSON (docs/cli.md), and lives until the callback returns. NULL:
   * nobody. */
  treadle_status (*answer)(void *context, const char *line, size_t bytes);
  /* Called for each token, in order, with the logits [vocabulary] that follow it. NULL: nobody. */
  treadle_status (*logits)(void *context, size_t text, size_t token, const float *logits);
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  const treadle_tokenizer *tokenizer; /* turns texts into tokens; NULL: lines have token ids */
  const treadle_chat *chat;           /* turns messages into texts; NULL: no line has messages */
  int64_t top; /* 0 to 20: the answer also has this number of the largest log-probabilities of each token */
  /* The path of a safetensors file for the logits, which rank 0 writes: "logits.N" for line N, from 0, is fp32 [tokens,
   * vocabulary]. It is written row by row, and appears when all lines were scored. NULL: none. */
  const char *logits_file;
} treadle_score_lines_options;

typedef struct treadle_score_figures {
  size_t struct_size;
  int64_t texts, tokens;
  int64_t predicted; /* tokens that have a log-probability: all except the first of each text */
  double nll;        /* the sum of their negative log-probabilities */
  double seconds;
  int64_t checked, different; /* log-probabilities that were compared, and those with other bits */
  uint64_t digest;            /* of token ids and bits of log-probabilities, in the order of the answers */
} treadle_score_figures;

/* Scores lines of JSON (docs/cli.md, "treadle score"). It checks all of them before it scores the first. Collective. */
treadle_status treadle_engine_score_lines(treadle_engine *engine, const char *lines, size_t bytes,
                                          const treadle_score_lines_options *options, treadle_score_figures *figures_p);

/* ---- The built-in training engine --------------------------------------------------------------- */

typedef struct treadle_trainer treadle_trainer;

typedef struct treadle_trainer_options {
  size_t struct_size;
  const char *kernels; /* of matrix products: a name that `treadle doctor` lists; NULL: the best */
  int32_t threads;     /* 0: the number of processors */
  bool fast;           /* may add in any order; otherwise rows and micro batches alone decide the bits */
  int64_t most_rows;   /* the most tokens of a micro batch, for which there is memory; 0: 4096 */
  /* The most tokens of a row; 0: the smaller of most_rows and the model's max_position_embeddings. */
  int64_t most_tokens;
  /* Windows in host memory, such as those of a switch, with the sizes that treadle_trainer_plan gives, at multiples of
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

/* Rows read from JSON: lines, or one list, of objects of these forms.
 *
 *   {ids, mask}
 *   {text}               All tokens except the first count.
 *   {prompt, response}   The response counts, and so does the end token that is added to it. A prompt is a list of
 *                        messages or a text. If there is a chat template, a text is a message of the user.
 *   {messages}           What assistants say counts, up to their end token.
 *
 * The last two forms may have other keys as well. */
typedef struct treadle_train_rows treadle_train_rows;

typedef struct treadle_train_rows_spec {
  size_t struct_size;
  const char *what;                   /* names the lines in messages: a path; NULL: "rows" */
  const treadle_tokenizer *tokenizer; /* turns texts into tokens; NULL: texts are refused */
  const treadle_layout *layout;       /* of the model that rows must fit; NULL: rows are not compared with a model */
  const treadle_chat *chat;           /* the model's template; NULL: none */
  int64_t most_tokens;                /* the most tokens of a row; 0: as many as the model takes */
} treadle_train_rows_spec;

/* Reads rows. Refused, with the line: invalid JSON; unknown keys; ids beyond the vocabulary; a row of less than two
 * tokens, or more than the model takes; a mask of another length; a row in which no token counts. On failure *rows_p is
 * NULL. */
treadle_status treadle_train_rows_read(const treadle_train_rows_spec *spec, const char *text, size_t bytes,
                                       treadle_train_rows **rows_p);
void treadle_train_rows_destroy(treadle_train_rows *rows);
/* The rows [*count_p]. They live until `rows` is destroyed. Else NULL and 0. */
const treadle_train_row *treadle_train_rows_items(const treadle_train_rows *rows, size_t *count_p);

/* Makes a trainer: weights in a layout, gradients in that layout as fp32, and memory for activations. It computes in
 * the type of the layout, bf16 or fp32 (fp32 for fp16). All ranks of the group make the same calls with the same
 * options; group: NULL is this process alone. Group and layout must outlive the trainer. Options may be NULL. Refused,
 * by name: experts, latent attention, more tensor parallel ranks than key and value heads, and anything else that the
 * engine does not compute. On failure *trainer_p is NULL. Collective, like all functions of trainers except
 * accessors. */
treadle_status treadle_trainer_create(treadle_group *group, const treadle_layout *layout,
                                      const treadle_trainer_options *options, treadle_trainer **trainer_p);
void treadle_trainer_destroy(treadle_trainer *trainer);
/* Loads the weights of the checkpoint, and resets the optimizer to one that has taken no step. */
treadle_status treadle_trainer_load(treadle_trainer *trainer);
/* Makes up random weights in place of a checkpoint's. Matrices get a normal distribution around 0, with the config's
 * initializer_range (or 0.02) as deviation. Norms get 1, biases 0. A value is a function of seed, tensor and canonical
 * index. */
treadle_status treadle_trainer_randomise(treadle_trainer *trainer, uint64_t seed);

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

/* Computes gradients of the mean of -log p over all tokens that count, in all rows. It overwrites earlier gradients.
 * Rows do not see each other. All ranks give equal batches; data parallel replicas divide the micro batches. All rows
 * are checked first; what is wrong is refused by the row's number. Refused: a loss that is not finite. */
treadle_status treadle_trainer_gradients(treadle_trainer *trainer, const treadle_train_batch *batch,
                                         treadle_loss *loss_p);
/* Computes that loss without gradients. */
treadle_status treadle_trainer_loss(treadle_trainer *trainer, const treadle_train_batch *batch, treadle_loss *loss_p);

/* ---- Policies: training by rewards ---- */

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

/* Computes gradients of a loss that is a function of log-probabilities and entropies. It writes these to logprobs and
 * entropies, [counted tokens] in the order of rows, on all ranks. In exact mode they have the bits of
 * treadle_engine_score at that temperature. Both arrays may be NULL. */
treadle_status treadle_trainer_policy_gradients(treadle_trainer *trainer, const treadle_train_batch *batch,
                                                const treadle_policy *policy, float *logprobs, float *entropies);
/* Computes log-probabilities without gradients; entropies may be NULL. weights: NULL, or a window of another model's
 * weights in the trainer's layout, to compute with instead. */
treadle_status treadle_trainer_logprobs(treadle_trainer *trainer, const treadle_train_batch *batch,
                                        const treadle_policy *policy, const void *weights, float *logprobs,
                                        float *entropies);
/* Tells the trainer that its windows held something else meanwhile, or that the weights in them have changed. It then
 * rebuilds what it derived from the weights, such as packed copies. Local. */
treadle_status treadle_trainer_rebind(treadle_trainer *trainer);

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

/* Takes one step of AdamW (torch.optim.AdamW) with the present gradients. TREADLE_STATE: the trainer has no
 * optimizer. */
treadle_status treadle_trainer_step(treadle_trainer *trainer, const treadle_optimizer_step *step,
                                    treadle_optimizer_figures *result_p);
/* Writes weights and the optimizer's state into an existing folder: huggingface/, and optimizer/ with master/, exp_avg/
 * and exp_avg_sq/ as fp32. Each is a Hugging Face folder. It overwrites the gradients. */
treadle_status treadle_trainer_save(treadle_trainer *trainer, const char *folder);
/* Reads what a trainer of any layout and any number of ranks has saved. Refused: tensors other than the model's. After
 * a failure the trainer has no state to continue with. */
treadle_status treadle_trainer_resume(treadle_trainer *trainer, const char *folder);
/* The digest of the weights, as in treadle_switch_digest. */
treadle_status treadle_trainer_weights_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* The square root of the sum of squares of all gradients, with equal bits in every layout. NaN: a gradient is not
 * finite. */
treadle_status treadle_trainer_norm(treadle_trainer *trainer, double *norm_p);
/* The digest of the gradients, as in treadle_switch_digest. */
treadle_status treadle_trainer_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* Writes the gradients as safetensors: fp32, under Hugging Face names, a tied tensor once. The file appears when it is
 * whole. */
treadle_status treadle_trainer_save_gradients(treadle_trainer *trainer, const char *path);

/* The layout of the gradients, and their window of *bytes_p bytes. Else NULL and 0. */
const treadle_layout *treadle_trainer_grad_layout(const treadle_trainer *trainer);
float *treadle_trainer_grad_window(const treadle_trainer *trainer, size_t *bytes_p);
/* Bytes of device memory that the trainer holds: weights, gradients, the optimizer's state, activations. Else 0. */
size_t treadle_trainer_bytes(const treadle_trainer *trainer);

/* Bytes that a rank's trainer will hold. work: activations. forward: the part of work, from its start, that passes
 * without backward use. board: what ranks exchange, which lies in no window. Frozen. */
typedef struct treadle_trainer_memory {
  size_t params, grads, optimizer, work, forward, board;
  size_t peak; /* all together, without what offload_policy leaves in host memory */
} treadle_trainer_memory;

/* Computes what treadle_trainer_create would take on each rank: by_rank [ranks of the layout]. It does not take that
 * memory, and meets no other rank. Local. */
treadle_status treadle_trainer_plan(const treadle_layout *layout, const treadle_trainer_options *options,
                                    treadle_trainer_memory *by_rank);

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

/* ---- Engines that generate ----------------------------------------------------------------------------- */

/* An inference engine as the actor sees it: hooks for a switch, and answers to requests. hooks is called once, before
 * the switch is made. generate takes and gives what treadle_engine_generate does, and is collective. */
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
                                                    const treadle_engine_options *options,
                                                    treadle_infer_engine *engine_p);
/* Opens the built-in engine: treadle_engine_create and its functions. `context` is ignored. */
treadle_status treadle_engine_open_infer(void *context, treadle_group *group, const treadle_layout *layout,
                                         const treadle_engine_options *options, treadle_infer_engine *engine_p);

/* Bytes that the built-in engine takes on a rank: work memory, a block of its cache, and what ranks exchange (board),
 * which lies in no window. Frozen. */
typedef struct treadle_engine_memory {
  size_t work, kv_block, board;
} treadle_engine_memory;

/* Computes what treadle_engine_create would take on each rank: by_rank [ranks of the layout]. It meets no other rank.
 * Local. */
treadle_status treadle_engine_plan(const treadle_layout *layout, const treadle_engine_options *options,
                                   treadle_engine_memory *by_rank);

/* ---- Engines that train -------------------------------------------------------------------------------- */

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
  /* For a worker that trains by rewards (treadle_control.h). */
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
/* Opens the built-in engine: treadle_trainer_create and its functions. `context` is ignored. */
treadle_status treadle_trainer_open_engine(void *context, treadle_group *group, const treadle_layout *layout,
                                           const treadle_trainer_options *options, treadle_train_engine *engine_p);

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
} treadle_sft_step;

typedef enum treadle_sft_start {
  TREADLE_RESUME_NEVER, /* from scratch; refused if the folder of the run has checkpoints */
  TREADLE_RESUME_AUTO,  /* from the newest checkpoint; if there is none, from scratch */
  TREADLE_RESUME_FROM   /* from the checkpoint `from` */
} treadle_sft_start;

/* All callbacks run in the thread that called the library. */
typedef struct treadle_sft_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  const char *kernels;  /* as in treadle_trainer_options */
  int32_t threads;      /* as in treadle_trainer_options */
  treadle_sft_start resume;
  const char *from;                                              /* a folder global_step_K */
  void (*progress)(void *context, const treadle_sft_step *step); /* called on rank 0 alone */
  bool (*stops)(void *context); /* asked after each step: if one rank says true, the run saves a checkpoint and ends */
  void *context;
  treadle_train_engine_open open_engine; /* NULL: the built-in one */
  void *engine_context;                  /* of open_engine */
  /* Bytes that no rank may exceed. A run or a plan that does is refused, with what would fit. 0: no limit. */
  size_t budget_bytes;
  /* Called on rank 0 with what a person should know though the run goes on: weights are made up, a file is not as it
   * should be. NULL: nobody. */
  void (*warn)(void *context, const char *line);
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
treadle_status treadle_sft_plan(const treadle_train_config *config, int64_t ranks, const treadle_sft_options *options,
                                treadle_trainer_memory *by_rank);

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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
