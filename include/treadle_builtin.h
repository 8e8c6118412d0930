/* treadle's built-in engines, and texts for them.
 *
 *   treadle_tokenizer_*      texts to tokens and back
 *   treadle_chat_*           messages to texts, by a model's chat template
 *   treadle_generator_*       the built-in engine that generates and scores
 *   treadle_trainer_*        the built-in training engine: loss and gradients of rows of tokens
 *
 * The conventions are those of treadle.h. Lifetimes and threads:
 *
 *   tokenizer    Needs nothing. Its texts live as long as it does. It never changes: any number of threads may use it.
 *   text stream  Needs its tokenizer. One thread at a time.
 *   chat         Needs nothing. It never changes: any number of threads may render with it. */
#ifndef TREADLE_BUILTIN_H
#define TREADLE_BUILTIN_H

#include "treadle_engine.h"

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

/* Adds a column of texts to a batch: of each row, the text of its ids in column `from` (ragged int32), as
 * treadle_tokenizer_decode gives it without `special`. Refused, by row: ids without a token. */
treadle_status treadle_tokenizer_decode_rows(const treadle_tokenizer *tokenizer, treadle_batch *batch, const char *from,
                                             const char *to);

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
 *   1. makes the engine of a layout (treadle_generator_create);
 *   2. gives it its rank's weights in that layout (treadle_generator_bind), and again after they have changed. Or it
 *      makes it the engine of a switch (treadle_generator_hooks_of), which then does this;
 *   3. scores texts or generates.
 *
 * If there are several ranks, each makes the same calls with the same arguments. */
typedef struct treadle_generator treadle_generator;

/* Makes an engine. The group and the layout must outlive it; group: NULL is one rank. Options may be NULL. Refused, by
 * name: families, layouts and kinds of attention that it does not compute. On failure *engine_p is NULL. Collective. */
treadle_status treadle_generator_create(treadle_group *group, const treadle_layout *layout,
                                        const treadle_generator_options *options, treadle_generator **engine_p);
void treadle_generator_destroy(treadle_generator *engine);

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
 * call they may be called only in its `watch` or observer, by all ranks after the same step. In its other callbacks
 * they return TREADLE_STATE. They also return TREADLE_STATE while the engine belongs to a switch. */
treadle_status treadle_generator_bind(treadle_generator *engine, const void *window, size_t bytes);
treadle_status treadle_generator_unbind(treadle_generator *engine);

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
 * An arrow out of INFER may be taken while a call of the engine runs. It waits, as after treadle_generator_unbind,
 * and goes on after the next arrow to INFER. If other threads take arrows meanwhile, engine and switch need two groups
 * of the same ranks, since one thread at a time uses a group. If the switch is destroyed while a call waits for
 * weights, the call returns TREADLE_STATE. Local. */
treadle_status treadle_generator_hooks_of(treadle_generator *engine, treadle_engine_hooks *hooks_p);

typedef struct treadle_generator_info {
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
} treadle_generator_info;

treadle_status treadle_generator_get_info(const treadle_generator *engine, treadle_generator_info *info_p);

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
  const treadle_observer *observer; /* NULL: nobody */
  /* Called for each text before `done`, if the generator records experts: those of all its tokens but the last one,
   * as in the column of treadle_generator_generate. They live until the callback returns. NULL: nobody. */
  treadle_status (*experts)(void *context, size_t text, const uint8_t *experts, size_t bytes);
} treadle_score_options;

/* Scores `count` texts of at least one token each. It checks all of them before it scores the first. If a callback
 * fails, the call ends with its status. Collective. */
treadle_status treadle_generator_score(treadle_generator *engine, const treadle_score_text *texts, size_t count,
                                       const treadle_score_options *options);

/* Generates answers to prompts. `prompts` has a row for each prompt; other columns than these are passed over:
 *
 *   prompt_ids   ragged int32, at least one id each
 *   seed         int64: of the answers to this prompt; may be absent. An answer draws by this seed and its number, so
 *                that it depends on nothing else
 *
 * *out_p gets a new batch with n rows for each of these rows, one prompt's answers after the other's:
 *
 *   ids                 ragged int32: the answer, with the token that ended it
 *   rollout_log_probs   ragged fp32, one of each of ids
 *   finish              text: "stop", or "length" at the largest number of tokens
 *   version             int64: of the weights that drew the last token
 *   kept_counts, kept   ragged int32, with TREADLE_LOGPROBS_DRAWN where top_k, top_p or min_p cut: how many ids each of
 *                       ids was drawn from, and these ids, token after token and ascending for each
 *   experts             bytes, if the generator records them: the experts that each token of the prompt and the answer
 *                       but the last one chose, little-endian uint16 [tokens, layers with experts, experts of a token],
 *                       those of a layer ascending
 *
 * Replicas answer prompts of their own, and so do data parallel ranks that share experts (vllm:dp=2,ep=on). The other
 * ranks of these give equal batches, and all get the answers; two replicas may give different batches, or one without
 * rows. All ranks wait for the last one. sampling NULL: the model's own values (generation_config.json). observer NULL:
 * nobody; it may not change prompts. All rows are checked before the first one runs. On failure *out_p is NULL. If the
 * call of one rank is stopped, or fails after that check, those of the others fail with TREADLE_PEER; before the next
 * call all ranks meet anew. Collective. */
treadle_status treadle_generator_generate(treadle_generator *generator, const treadle_batch *prompts,
                                          const treadle_sampling *sampling, const treadle_observer *observer,
                                          treadle_batch **out_p);

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
  const treadle_observer *observer; /* NULL: nobody */
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
treadle_status treadle_generator_generate_lines(treadle_generator *engine, const char *lines, size_t bytes,
                                                const treadle_generate_options *options,
                                                treadle_generate_figures *figures_p);

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
  const treadle_observer *observer; /* NULL: nobody */
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
treadle_status treadle_generator_score_lines(treadle_generator *engine, const char *lines, size_t bytes,
                                             const treadle_score_lines_options *options,
                                             treadle_score_figures *figures_p);

/* Opens the built-in engine: treadle_generator_create and its functions. `context` is ignored. */
treadle_status treadle_generator_open_infer(void *context, treadle_group *group, const treadle_layout *layout,
                                            const treadle_generator_options *options, treadle_infer_engine *engine_p);

/* Bytes that the built-in engine takes on a rank: work memory, a block of its cache, and what ranks exchange (board),
 * which lies in no window. Frozen. */
typedef struct treadle_generator_memory {
  size_t work, kv_block, board;
} treadle_generator_memory;

/* Computes what treadle_generator_create would take on each rank: by_rank [ranks of the layout]. It meets no rank.
 * Local. */
treadle_status treadle_generator_foresee(const treadle_layout *layout, const treadle_generator_options *options,
                                         treadle_generator_memory *by_rank);

/* ---- The built-in training engine --------------------------------------------------------------- */

typedef struct treadle_trainer treadle_trainer;

/* Makes a trainer: weights in a layout, gradients in that layout as fp32, and memory for activations. It computes in
 * the type of the layout, bf16 or fp32 (fp32 for fp16). All ranks of the group make the same calls with the same
 * options; group: NULL is this process alone. Group and layout must outlive the trainer. Options may be NULL. Refused,
 * by name: more tensor parallel ranks than key and value heads, and anything else that the engine does not compute. If
 * the model has a score head (TREADLE_HEAD_SCORE), so has the trainer: it computes values and scores, and the loss
 * "value". On failure *trainer_p is NULL. Collective, like all functions of trainers except accessors. */
treadle_status treadle_trainer_create(treadle_group *group, const treadle_layout *layout,
                                      const treadle_trainer_options *options, treadle_trainer **trainer_p);
void treadle_trainer_destroy(treadle_trainer *trainer);
/* Loads the weights of the checkpoint, and resets the optimizer to one that has taken no step. */
treadle_status treadle_trainer_load(treadle_trainer *trainer);
/* Makes up random weights in place of a checkpoint's. Matrices get a normal distribution around 0, with the config's
 * initializer_range (or 0.02) as deviation. Norms get 1, biases 0. A value is a function of seed, tensor and canonical
 * index. */
treadle_status treadle_trainer_randomise(treadle_trainer *trainer, uint64_t seed);

/* Rows of a batch through the layers: treadle_forward_options says what a row is. Data parallel ranks divide rows by
 * whole micro batches: coordinate_of gives the rows of each rank, by_rank [ranks of the layout], by their lengths in
 * tokens, [rows] (local). Then each rank gives the functions below the rows of its own coordinate, which may be none;
 * ranks with the same rows give equal batches. Rows do not see each other. All rows are checked first; what is wrong is
 * refused by the row's number in this rank's batch. */
treadle_status treadle_trainer_coordinate_of(treadle_trainer *trainer, const int64_t *lengths, int64_t rows,
                                             const treadle_forward_options *forward, treadle_row_range *by_rank);
/* Gives this rank's rows of a batch that all ranks have whole: *mine_p is a slice of it, rows *range_p, which may be
 * NULL. On failure *mine_p is NULL. Local. */
treadle_status treadle_trainer_slice(treadle_trainer *trainer, const treadle_batch *batch,
                                     const treadle_forward_options *forward, treadle_row_range *range_p,
                                     treadle_batch **mine_p);
/* Computes gradients of a loss over the rows of all ranks. It overwrites earlier gradients. out, a batch with as many
 * rows as this rank's, or NULL, gets the columns log_probs and, if they are asked for, entropies (ragged fp32, like
 * ids; 0 where a token does not count), on one rank of each coordinate; of a model with a score head, values; of one
 * with experts, what treadle_forward_options says of them. In exact mode log-probabilities have the bits of
 * treadle_generator_score at that temperature. Refused: a loss that is not finite. After a call that failed,
 * treadle_trainer_step is refused until one succeeds. */
treadle_status treadle_trainer_gradients(treadle_trainer *trainer, const treadle_batch *batch,
                                         const treadle_forward_options *forward, const treadle_loss_options *loss,
                                         treadle_batch *out, treadle_loss *loss_p);
/* Computes that loss without gradients. */
treadle_status treadle_trainer_loss(treadle_trainer *trainer, const treadle_batch *batch,
                                    const treadle_forward_options *forward, const treadle_loss_options *loss,
                                    treadle_loss *loss_p);
/* Computes log-probabilities alone. weights: NULL, or a window of another model's weights in the trainer's layout, to
 * compute with instead, without adapters: its own window of weights is the base alone. */
treadle_status treadle_trainer_logprobs(treadle_trainer *trainer, const treadle_batch *batch,
                                        const treadle_forward_options *forward, const void *weights,
                                        treadle_batch *out);
/* Computes values, of a model with a score head: out gets the column values (ragged fp32, like ids; 0 where a token
 * does not count), on one rank of each coordinate. The value of a token is the head at the position before it: what was
 * known when the token was drawn. The bits are the same in every layout and micro batch. Temperature, never,
 * kept_counts and kept have no meaning here, and are ignored. Refused: entropies; a model with another head. */
treadle_status treadle_trainer_values(treadle_trainer *trainer, const treadle_batch *batch,
                                      const treadle_forward_options *forward, treadle_batch *out);
/* Computes one number for each row: out gets the column score (fp64), the head at the row's last token, whatever mask
 * says. It goes through the layers, too, so that a micro batch has one token more for each row. Otherwise it is as
 * treadle_trainer_values. */
treadle_status treadle_trainer_scores(treadle_trainer *trainer, const treadle_batch *batch,
                                      const treadle_forward_options *forward, treadle_batch *out);
/* Tells the trainer that its windows held something else meanwhile, or that the weights in them have changed. It then
 * rebuilds what it derived from the weights, such as packed copies. Local. */
treadle_status treadle_trainer_rebind(treadle_trainer *trainer);

/* Takes one step of AdamW (torch.optim.AdamW) with the present gradients. TREADLE_STATE: the trainer has no
 * optimizer. */
treadle_status treadle_trainer_step(treadle_trainer *trainer, const treadle_optimizer_step *step,
                                    treadle_optimizer_figures *result_p);
/* Writes weights and the optimizer's state into an existing folder: huggingface/, and optimizer/ with master/, exp_avg/
 * and exp_avg_sq/ as fp32. Each is a Hugging Face folder. With adapters: lora_adapter/, and optimizer/ with exp_avg/
 * and exp_avg_sq/, each a folder of peft's; huggingface/ with merged weights, if lora_save_merged asks for them. It
 * overwrites the gradients. Refused: one of these folders is there and is not empty. */
treadle_status treadle_trainer_save(treadle_trainer *trainer, const char *folder);
/* Reads what a trainer of any layout and any number of ranks has saved. With adapters the weights beside them are those
 * of the model. Refused: tensors other than the model's; adapters that were trained beside other weights. After a
 * failure the trainer has no state to continue with. */
treadle_status treadle_trainer_resume(treadle_trainer *trainer, const char *folder);
/* LoRA: gathers the adapters of all ranks on each, where the options have lora_gather. */
treadle_status treadle_trainer_gather_adapters(treadle_trainer *trainer);
/* Adds the adapters that were gathered last to the weights of the base that a rank of this layout has in a window, in
 * place: matrices become what the trainer multiplies by, to the bit. A window must be merged once. Refused: weights of
 * another type than the trainer's. Local. */
treadle_status treadle_trainer_merge_adapters(treadle_trainer *trainer, const treadle_layout *layout, int64_t rank,
                                              void *window);
/* The digest of the weights, as in treadle_switch_digest. With adapters: of the base and of them. */
treadle_status treadle_trainer_weights_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* The square root of the sum of squares of all gradients, with equal bits in every layout. NaN: a gradient is not
 * finite. */
treadle_status treadle_trainer_norm(treadle_trainer *trainer, double *norm_p);
/* The digest of the gradients, as in treadle_switch_digest. */
treadle_status treadle_trainer_digest(treadle_trainer *trainer, uint64_t *digest_p);
/* Writes the gradients as safetensors: fp32, under Hugging Face names, a tied tensor once. The file appears when it is
 * whole. */
treadle_status treadle_trainer_save_gradients(treadle_trainer *trainer, const char *path);
/* Writes the experts that tokens chose, a line of JSON for each row of all ranks: {"experts": [[[..], ..], ..]}, of
 * each token but the last, of each layer that has experts. out: what a call with forward->experts gave this rank; NULL,
 * or without the column: another rank of its coordinate has it. The file is written whole or not at all. */
treadle_status treadle_trainer_save_experts(treadle_trainer *trainer, const treadle_batch *out, const char *path);

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
treadle_status treadle_trainer_foresee(const treadle_layout *layout, const treadle_trainer_options *options,
                                       treadle_trainer_memory *by_rank);

/* Opens the built-in engine: treadle_trainer_create and its functions. `context` is ignored. */
treadle_status treadle_trainer_open_engine(void *context, treadle_group *group, const treadle_layout *layout,
                                           const treadle_trainer_options *options, treadle_train_engine *engine_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
