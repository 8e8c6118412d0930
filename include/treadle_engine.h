/* treadle for authors of engines, and for programs that use the built-in ones.
 *
 *   treadle_tokenizer_*      texts to tokens and back
 *   treadle_chat_*           messages to texts, by a model's chat template
 *   treadle_engine_*         the built-in engine that generates and scores
 *   treadle_trainer_*        the built-in training engine: loss and gradients of rows of tokens
 *   treadle_train_config_*   the configuration of training: docs/training.md
 *
 * Conventions are those of treadle.h. Lifetimes and threads:
 *
 *   tokenizer   needs nothing. Its texts live as long as it does. It never changes: any number of threads may use it.
 *   text stream   needs its tokenizer. One thread at a time.
 *   chat     needs nothing. It never changes: any number of threads may render with it. */
#ifndef TREADLE_ENGINE_H
#define TREADLE_ENGINE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Text: tokens --------------------------------------------------------------------------------
 *
 * Texts to ids and back, as the tokenizers library of Hugging Face and llama2.c have them. Texts are UTF-8 of known length, and may
 * hold 0 bytes. Ids are from 0 to treadle_tokenizer_count - 1; some of them may have no token. */

typedef struct treadle_tokenizer treadle_tokenizer;

/* Reads the tokenizer of a folder: tokenizer.json (BPE; what else it may have is in docs/tokenizers.md), else vocab.json with
 * merges.txt, else a *.bin of llama2.c, else tokenizer_config.json with char_ords. Or the file `path`. Special tokens are those of
 * tokenizer_config.json beside it. What a tokenizer has that is not known is refused by name. On failure *tokenizer_p is NULL. */
treadle_status treadle_tokenizer_open(const char *path, treadle_tokenizer **tokenizer_p);
void treadle_tokenizer_close(treadle_tokenizer *tokenizer);

int32_t
treadle_tokenizer_count(const treadle_tokenizer *tokenizer); /* one more than the largest id; else -1 */

typedef struct treadle_token_info {
  size_t struct_size;
  const char *
      text; /* as the tokenizer writes it ("\u0120the", "<0x0A>"), [bytes] and a 0; lives as long as the tokenizer */
  size_t bytes;
  bool added;   /* it is found as a whole in texts, before they are cut into words */
  bool special; /* decoding can leave it out */
} treadle_token_info;

/* Facts about a token. Refused: an id without one. */
treadle_status treadle_tokenizer_token(const treadle_tokenizer *tokenizer, int32_t id,
                                       treadle_token_info *info_p);
/* The id of the token with this text, as the tokenizer writes it. Else, also for a text that is none: -1. */
int32_t treadle_tokenizer_find(const treadle_tokenizer *tokenizer, const char *text, size_t bytes);

/* Tokens with a meaning of their own: bos_token, eos_token, pad_token, unk_token of tokenizer_config.json. */
typedef enum treadle_special_token {
  TREADLE_BOS = 0, /* begins a text */
  TREADLE_EOS,     /* ends it */
  TREADLE_PAD,
  TREADLE_UNKNOWN
} treadle_special_token;

/* The id of a special token. Else, also where the tokenizer has none: -1. */
int32_t treadle_tokenizer_special(const treadle_tokenizer *tokenizer, treadle_special_token which);

/* The ids of a text, [*count_p]. `special`: with the special tokens that the tokenizer puts around a text. Special tokens that are
 * written in the text are found in either case. Refused: a text that is not UTF-8, or has more than 2^28 bytes. The caller frees
 * *ids_p with free(); it is not NULL where there are no ids; on failure it is. */
treadle_status treadle_tokenizer_encode(const treadle_tokenizer *tokenizer, const char *text, size_t bytes,
                                        bool special, int32_t **ids_p, size_t *count_p);
/* The text of ids, [*bytes_p] and a 0: always UTF-8, with U+FFFD for bytes that make no character. `special`: with the texts of special
 * tokens. Refused: ids without a token. The caller frees *text_p with free(); on failure it is NULL. */
treadle_status treadle_tokenizer_decode(const treadle_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, bool special, char **text_p, size_t *bytes_p);

/* The text of tokens that come one by one. A character is given away when all its bytes are there, never in parts. All texts that a
 * stream has given are together what treadle_tokenizer_decode gives (but for the number of U+FFFD in tokenizers with byte fallback). */
typedef struct treadle_text_stream treadle_text_stream;

/* Refused: a tokenizer whose decoder has to see all tokens at once. */
treadle_status treadle_text_stream_create(const treadle_tokenizer *tokenizer, bool special,
                                          treadle_text_stream **stream_p);
/* Takes a token. *text_p, [*bytes_p] and a 0, is what it makes complete: often "". It lives until the next call with this stream. */
treadle_status treadle_text_stream_put(treadle_text_stream *stream, int32_t id, const char **text_p,
                                       size_t *bytes_p);
/* Ends the text: what is left becomes U+FFFD. Afterwards put and end are TREADLE_STATE. */
treadle_status treadle_text_stream_end(treadle_text_stream *stream, const char **text_p, size_t *bytes_p);
void treadle_text_stream_destroy(treadle_text_stream *stream);

/* ---- Text: chats ---------------------------------------------------------------------------------
 *
 * Messages to the text that a model was trained on, by the model's chat template: Jinja, as transformers runs it. What a template may
 * use is in docs/chats.md; what is missing is refused by line and name. A template that does not end is ended by limits on its
 * steps, its memory and its output. */

typedef struct treadle_chat treadle_chat;

/* The chat template of a model: of a folder (chat_template.jinja, tokenizer_config.json, chat_template.json), of a file
 * tokenizer_config.json, or any other file as the text of a template. tokenizer_config.json also says the special tokens, which are
 * variables of the template: bos_token, eos_token and so on. On failure *chat_p is NULL. Local. */
treadle_status treadle_chat_open(const char *path, treadle_chat **chat_p);
/* That of a folder, or of the folder in which a file lies, where it may have none: then *chat_p is NULL. Local. */
treadle_status treadle_chat_find(const char *path, treadle_chat **chat_p);
void treadle_chat_close(treadle_chat *chat);

typedef struct treadle_chat_options {
  size_t struct_size;
  /* JSON, an object; NULL: none. Its keys are variables of the template (add_generation_prompt, tools, documents, enable_thinking,
   * ...), but for two: continue_final_message (true: the text ends in the last message, for the model to go on), and
   * chat_template (the name of one of several templates, or the text of another one). */
  const char *variables;
  const char *now; /* what strftime_now sees: "2025-03-14T15:09:26"; NULL: the clock's local time */
} treadle_chat_options;

/* `messages` is JSON: a list of objects with a role, as transformers takes it. *text_p is UTF-8, [*bytes_p] and a 0; the caller frees it
 * with free(). On failure it is NULL, and the message has the line of the template; that of raise_exception ends with the text that
 * the template gives. Options may be NULL. Local. */
treadle_status treadle_chat_render(const treadle_chat *chat, const char *messages,
                                   const treadle_chat_options *options, char **text_p, size_t *bytes_p);

/* ---- The built-in engine -------------------------------------------------------------------------
 *
 * Decoders of the families that say what is computed (treadle_family_get_info, docs/families.md), on processors. It is small, and exact:
 * the log-probability of a token is the same bits whatever the layout, the batch, the chunks and the threads are. A program
 *
 *   1. makes the engine of a layout (treadle_engine_create);
 *   2. gives it the weights of its rank in that layout (treadle_engine_bind), and again after they have changed; or makes it the engine of
 *      a switch (treadle_engine_hooks_of), which gives them to it;
 *   3. scores texts or generates.
 *
 * Several ranks: each makes the same calls with the same arguments. */
typedef struct treadle_engine treadle_engine;

typedef struct treadle_engine_options {
  size_t struct_size;
  bool fast;                   /* false: exact mode */
  const char *kernels;         /* of matrix products, by name; NULL: the best of the machine */
  int32_t threads;             /* of this rank; 0: the processors of the machine, divided among its ranks */
  int32_t max_batch;           /* sequences that are generated at once; 0: 64 */
  int32_t prefill_chunk;       /* tokens of prompts that are read at once; 0: 512 */
  int32_t block_tokens;        /* of a block of the cache; 0: 16 */
  treadle_choice prefix_cache; /* sequences that begin alike share blocks (default: on) */
  size_t kv_bytes;             /* memory of the cache; 0: 256 MiB */
  int64_t max_len;             /* tokens of a sequence; 0: max_position_embeddings */
} treadle_engine_options;

/* The group and the layout must outlive the engine; a group of NULL is one rank. Options may be NULL. Refused, by name: families, layouts
 * and kinds of attention that it does not compute. On failure *engine_p is NULL. Collective. */
treadle_status treadle_engine_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_engine_options *options, treadle_engine **engine_p);
void treadle_engine_destroy(treadle_engine *engine);

/* The weights from now on: the window of this rank in the engine's layout, which stays as it is until unbind or the next bind. The first
 * bind takes memory for the cache and for activations. Weights are not looked at here: one that is NaN or infinite is refused by its name
 * as soon as a row of logits shows it. Collective.
 *
 * A call that generates or scores, and finds no weights before a step, waits for the next bind. What it has not finished it computes
 * again then: keys and values of the tokens so far, texts from their begin. With the same weights results are the same bits, in exact
 * mode. Both functions wait for the end of the step that is under way, if they are called in another thread than that call. In the
 * same thread they may be called in its `watch`, by all ranks after the same step; in its other callbacks they are TREADLE_STATE.
 * Both are TREADLE_STATE while the engine belongs to a switch. */
treadle_status treadle_engine_bind(treadle_engine *engine, const void *window, size_t bytes);
treadle_status treadle_engine_unbind(treadle_engine *engine);

/* Fills hooks by which the engine is that of a switch: its layout is the switch's infer layout, its group has the same ranks. Set
 * treadle_switch_options.engine to them. From treadle_switch_create until treadle_switch_destroy the engine belongs to the switch, and
 * must outlive it:
 *
 *   weights   lie in the infer window, where the plan says (also with alias); their version is that of the switch
 *   cache     lies in the KV window, which has blocks of kv_block_bytes; set kv_bytes of the switch for how large it is at least.
 *             If the window has no room for a block, bind is refused
 *   work      activations and packed copies of weights lie in the window of TREADLE_WORK
 *
 * Own infer tensors (treadle_switch_options) are not for it: bind is refused then.
 *
 * An arrow out of INFER may be taken while a call of the engine runs, as treadle_engine_bind says of unbind; the call goes on after
 * the next arrow to INFER. If other threads take arrows meanwhile, engine and switch need groups of their own (two groups of the same
 * ranks), since one thread at a time uses a group. A call that waits for weights when the switch is destroyed is TREADLE_STATE.
 * Local. */
treadle_status treadle_engine_hooks_of(treadle_engine *engine, treadle_engine_hooks *hooks_p);

typedef struct treadle_engine_info {
  size_t struct_size;
  treadle_dtype dtype; /* in which it computes */
  bool exact;
  const char
      *kernels; /* that products of this rank use: "amx", or "amx, avx512"; lives as long as the engine */
  int32_t threads;
  int64_t vocabulary, max_len;
  size_t work_bytes;   /* activations */
  size_t packed_bytes; /* copies of weights that are laid out anew; beside work_bytes */
  int32_t kv_blocks, kv_blocks_peak, kv_blocks_used; /* of the cache */
  uint64_t version;      /* how often weights were bound; with a switch: treadle_switch_version */
  size_t kv_block_bytes; /* of a block of the cache, on this rank */
} treadle_engine_info;

treadle_status treadle_engine_get_info(const treadle_engine *engine, treadle_engine_info *info_p);

/* A text as tokens. An element of an array: this struct is frozen. */
typedef struct treadle_score_text {
  const int32_t *ids;
  size_t count;
} treadle_score_text;

typedef struct treadle_score_options {
  size_t struct_size;
  float temperature; /* logits are divided by it; 0: 1 */
  /* Called for each text, in order, when it is done: the natural logarithm of the probability of each token behind those before it
   * [count]; that of the first is NaN. NULL: nobody. */
  treadle_status (*done)(void *context, size_t text, const float *logprobs);
  /* Called for each token, in order: the logits [vocabulary] behind it. NULL: nobody. */
  treadle_status (*logits)(void *context, size_t text, size_t token, const float *logits);
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
} treadle_score_options;

/* Scores `count` texts of at least one token each. All are checked before the first is begun. A callback that fails ends it with its
 * status. Collective. */
treadle_status treadle_engine_score(treadle_engine *engine, const treadle_score_text *texts, size_t count,
                                    const treadle_score_options *options);

typedef struct treadle_generate_options {
  size_t struct_size;
  const char *what; /* names the lines in messages: a path; NULL: "requests" */
  const char *
      sampling; /* a JSON object of sampling values, by vLLM's names, over those of generation_config.json; NULL: none */
  const treadle_tokenizer
      *tokenizer; /* turns prompts into tokens, and tokens into text; NULL: requests are token ids */
  const treadle_chat *chat; /* turns messages into prompts; NULL: no request has messages */
  int64_t seed;             /* of requests without a seed of their own */
  bool scaled; /* log-probabilities of logits over temperature; else of the model's distribution */
  /* Called for each sample, in the order of requests and samples, as soon as it is its turn: a line of JSON, docs/cli.md. It
   * lives until the call returns. NULL: nobody. */
  treadle_status (*answer)(void *context, const char *line, size_t bytes);
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  bool talks; /* a prompt is a message of the user: a chat of one message */
  /* Called for each new token, as it comes, on the ranks that compute it: what it adds to the text of a sample, [bytes], whole characters
   * and often none. Requests and samples count from 0. All that a sample is given is the text of its answer: what may become a stop
   * text is held back. It lives until the call returns. NULL: nobody. */
  treadle_status (*text)(void *context, int64_t request, int64_t sample, const char *text, size_t bytes);
  /* [never_count] ids that are never drawn, and have no part in log-probabilities; NULL: none */
  const int32_t *never;
  size_t never_count;
  /* Log-probabilities are of the distribution that a token was drawn from: of logits over temperature, over the ids
   * that `never`, min_tokens, top_k, top_p and min_p leave. Refused then: penalties, temperatures below 1e-5, and
   * logprobs of other tokens. `scaled` is not looked at. */
  bool drawn;
  /* With `drawn`: how many ids a cut leaves at most: those with the largest logits, and of equal ones the lower ids. If a
   * request has a top_k, it leaves that many. 0: no limit. */
  int64_t most_kept;
  /* With `drawn`, if top_k, top_p or min_p cut: called before `answer` of a sample, with the ids that each of its tokens
   * was drawn from. counts: [tokens]; ids: [count] in all, token after token, ascending within each. Both live until the
   * call returns. NULL: nobody is told. */
  treadle_status (*kept)(void *context, const int32_t *counts, size_t tokens, const int32_t *ids,
                         size_t count);
} treadle_generate_options;

typedef struct treadle_generate_figures {
  size_t struct_size;
  int64_t requests, samples;
  int64_t prompt_tokens, new_tokens; /* a prompt counts once for all samples of its request */
  double seconds;
  int64_t preemptions, prefix_hit_tokens;
  int64_t kv_blocks_leaked; /* blocks of the cache that are in use at the end: 0 */
  uint64_t digest;          /* of token ids and bits of log-probabilities, in the order of the answers */
} treadle_generate_figures;

/* Generates for requests, one a line of JSON (docs/cli.md, "treadle generate"). All lines are checked before the first runs.
 * Collective. */
treadle_status treadle_engine_generate(treadle_engine *engine, const char *lines, size_t bytes,
                                       const treadle_generate_options *options,
                                       treadle_generate_figures *figures_p);

typedef struct treadle_score_lines_options {
  size_t struct_size;
  const char *what;  /* names the lines in messages: a path; NULL: "texts" */
  float temperature; /* as in treadle_score_options */
  bool check; /* compare with the logprobs of each line, bit for bit; a line without any is refused */
  /* Called for each text, in order: a line of JSON, docs/cli.md. It lives until the call returns. NULL: nobody. */
  treadle_status (*answer)(void *context, const char *line, size_t bytes);
  treadle_status (*logits)(void *context, size_t text, size_t token,
                           const float *logits); /* as in treadle_score_options */
  void *context;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  const treadle_tokenizer *tokenizer; /* turns texts into tokens; NULL: lines have token ids */
  const treadle_chat *chat;           /* turns messages into texts; NULL: no line has messages */
  int64_t top; /* so many of the largest log-probabilities of each token are in the answer, too: 0 to 20 */
  /* The path of a safetensors file for the logits, which rank 0 writes: "logits.N" for line N, from 0, fp32 [tokens, vocabulary]. It
   * is written row by row, and appears when all lines were scored. NULL: none. */
  const char *logits_file;
} treadle_score_lines_options;

typedef struct treadle_score_figures {
  size_t struct_size;
  int64_t texts, tokens;
  int64_t predicted; /* tokens that have a log-probability: all but the first of each text */
  double nll;        /* the sum of their negative log-probabilities */
  double seconds;
  int64_t checked, different; /* log-probabilities that were compared, and those with other bits */
  uint64_t digest;            /* as in treadle_generate_figures */
} treadle_score_figures;

/* Scores lines of JSON (docs/cli.md, "treadle score"). All are checked before the first is begun. Collective. */
treadle_status treadle_engine_score_lines(treadle_engine *engine, const char *lines, size_t bytes,
                                          const treadle_score_lines_options *options,
                                          treadle_score_figures *figures_p);

/* ---- The built-in training engine --------------------------------------------------------------- */

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

/* ---- Engines that generate ----------------------------------------------------------------------------- */

/* An engine as the actor sees it: the engine of a switch (hooks), and what it makes of requests. Texts and figures are those of
 * treadle_engine_generate. generate is collective; hooks is called once, before the switch is made. */
typedef struct treadle_infer_engine {
  size_t struct_size;
  void *engine;
  treadle_status (*hooks)(void *engine, treadle_engine_hooks *hooks_p);
  treadle_status (*generate)(void *engine, const char *lines, size_t bytes,
                             const treadle_generate_options *options, treadle_generate_figures *figures_p);
  size_t (*bytes)(const void *engine); /* of device memory that lies in no window, on this rank */
  void (*close)(void *engine);
} treadle_infer_engine;

/* Opens an engine on the ranks of a group, for a layout: fills *engine_p, whose struct_size is set. `context` is the caller's. Collective. */
typedef treadle_status (*treadle_infer_engine_open)(void *context, treadle_group *group,
                                                    const treadle_layout *layout,
                                                    const treadle_engine_options *options,
                                                    treadle_infer_engine *engine_p);
/* The built-in one: treadle_engine_create, and its functions. context is not looked at. */
treadle_status treadle_engine_open_infer(void *context, treadle_group *group, const treadle_layout *layout,
                                         const treadle_engine_options *options,
                                         treadle_infer_engine *engine_p);

/* What the built-in engine takes of a rank: window of work, a block of its cache, and memory that lies in no window (what ranks
 * exchange). An element of an array: this struct is frozen. */
typedef struct treadle_engine_memory {
  size_t work, kv_block, board;
} treadle_engine_memory;

/* The same beforehand, of all ranks of the layout: by_rank [ranks]. It meets nobody. Local. */
treadle_status treadle_engine_plan(const treadle_layout *layout, const treadle_engine_options *options,
                                   treadle_engine_memory *by_rank);

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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
