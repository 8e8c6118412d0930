/* A tokenizer: what all forms of files are read into.
 *
 *   encoding   added tokens are found; what lies between them is normalized, cut into words (splitters), and each word becomes tokens
 *              (bpe); then special tokens are put around it
 *   decoding   the texts of tokens go through the decoders
 *
 * It never changes once it is open. */
#ifndef TREADLE_TOKEN_TOKENIZER_H
#define TREADLE_TOKEN_TOKENIZER_H

#include "treadle_builtin.h"

#include "token/added.h"
#include "token/bpe.h"
#include "token/decoder.h"
#include "token/normalizer.h"
#include "token/splitter.h"

enum {
  TREADLE_SPECIAL_TOKENS = 4,
  TREADLE_LLAMA2C_SPECIAL = 3
}; /* of treadle_special_token; of llama2.c, the first ids */

struct treadle_tokenizer {
  treadle_bpe bpe;
  treadle_added_tokens added;
  treadle_normalizers normalizers;
  treadle_splitters splitters;
  treadle_decoders decoders;
  treadle_token_ids before, behind; /* special tokens around a text */
  int32_t special[TREADLE_SPECIAL_TOKENS];
  bool llama2c;      /* its special tokens are the first three, and are no added ones */
  int32_t count;     /* one more than the largest id */
  int32_t own_count; /* the same of tokenizer.json alone; 0: it is of other files */
  int32_t next;      /* one more than the largest id of added tokens behind the vocabulary */
};

/* ---- Making one: what readers of files share ---- */

treadle_status treadle_tokenizer_make(treadle_tokenizer **tokenizer_p); /* empty */
/* The tokens of a vocabulary, an object from text to id. */
treadle_status treadle_tokenizer_read_vocabulary(treadle_tokenizer *tokenizer, json_t *vocabulary);
/* A merge of the texts of two tokens. All three must be there. */
treadle_status treadle_tokenizer_put_merge(treadle_tokenizer *tokenizer, int32_t rank, const char *left,
                                           size_t left_bytes, const char *right, size_t right_bytes);
/* Finds <0x00> to <0xFF>. */
void treadle_tokenizer_find_bytes(treadle_tokenizer *tokenizer);
/* An added token. Its id is that of the vocabulary, else the next one; `id`, if not below 0, must be the same. After the vocabulary and
 * the normalizers. */
treadle_status treadle_tokenizer_put_added(treadle_tokenizer *tokenizer, const char *text, int64_t id,
                                           treadle_added_token flags);
/* Reads single_word, lstrip, rstrip, normalized, special of an object. */
treadle_status treadle_tokenizer_read_flags(const json_t *json, treadle_added_token *flags_p);
/* That of a folder, or of the folder of a file, where it may have none: then *tokenizer_p is NULL. One that is there and cannot be read is refused:
 * a run without it would stop at other tokens, and save checkpoints that lack it. */
treadle_status treadle_tokenizer_open_if_there(const char *path, treadle_tokenizer **tokenizer_p);
/* After all of it. */
treadle_status treadle_tokenizer_settle(treadle_tokenizer *tokenizer);
/* One more than the largest id that the tokenizer's own file has: tokenizer_config.json may add tokens that no model has a row for. */
int32_t treadle_tokenizer_own_count(const treadle_tokenizer *tokenizer);
/* The id of a text, added or not; -1: there is none. */
int32_t treadle_tokenizer_id(const treadle_tokenizer *tokenizer, const char *text, size_t bytes);
/* The text that decoding begins with; false: the id has none. */
bool treadle_tokenizer_form(const treadle_tokenizer *tokenizer, int32_t id, treadle_token *form_p,
                            bool *special_p);
/* Refuses ids that have no token. */
treadle_status treadle_tokenizer_check_id(const treadle_tokenizer *tokenizer, int32_t id);

/* ---- The forms of files ---- */

/* tokenizer.json of huggingface/tokenizers. */
treadle_status treadle_tokenizer_read_json(treadle_tokenizer *tokenizer, const json_t *root);
/* vocab.json and merges.txt, as the class does that the config says, or the model_type. */
typedef struct treadle_gpt2_files {
  const char *folder;
  const char *config_path; /* for messages */
  const json_t *config;    /* NULL: none */
  const char *model_type;  /* NULL: unknown */
} treadle_gpt2_files;
treadle_status treadle_tokenizer_read_gpt2(treadle_tokenizer *tokenizer, const treadle_gpt2_files *files);
/* tok*.bin of llama2.c. */
treadle_status treadle_tokenizer_read_llama2c(treadle_tokenizer *tokenizer, const char *bytes,
                                              size_t count);
/* char_ords of tokenizer_config.json. */
treadle_status treadle_tokenizer_read_chars(treadle_tokenizer *tokenizer, const json_t *config);
/* The special tokens of such a tokenizer: their ids are their places. */
enum { TREADLE_CHAR_TOKENS = 4 };
typedef struct treadle_token_name {
  const char *name, *text; /* "sep_token", "S" */
} treadle_token_name;
extern const treadle_token_name treadle_character_tokens[TREADLE_CHAR_TOKENS];
/* Added tokens that tokenizer_config.json, or special_tokens_map.json, has and the tokenizer has not yet; of those named in
 * treadle_special_names that the config does not say, defaults[] (NULL: none). To be settled afterwards. */
treadle_status treadle_tokenizer_put_config(treadle_tokenizer *tokenizer, const json_t *config,
                                            const char *const *defaults);
/* bos_token, eos_token, pad_token, unk_token of tokenizer_config.json or special_tokens_map.json. */
treadle_status treadle_tokenizer_read_special(treadle_tokenizer *tokenizer, const json_t *config);
/* The text of a special token there: a text, or an object with content. NULL: it has none, or null. */
treadle_status treadle_tokenizer_special_text(const json_t *config, const char *name, const char **text_p);
extern const char *const treadle_special_names[TREADLE_SPECIAL_TOKENS]; /* "bos_token", ... */

#endif
