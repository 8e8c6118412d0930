/* vocab.json and merges.txt, with the added tokens of tokenizer_config.json: what transformers' classes GPT2Tokenizer and Qwen2Tokenizer
 * make of them. The class is that of the config; without one, that of the model_type; else GPT-2's. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "token/fields.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MERGES_BYTES = 1 << 28 };

typedef struct tokenizer_class {
  const char *name;
  const char *pattern;                         /* by which words are cut; NULL: GPT-2's */
  bool compose;                                /* texts are brought to NFC */
  const char *special[TREADLE_SPECIAL_TOKENS]; /* where the config does not say them */
} tokenizer_class;

#define END_OF_TEXT "<|endoftext|>"

static const tokenizer_class classes[] = {
    {.name = "GPT2Tokenizer", .special = {END_OF_TEXT, END_OF_TEXT, NULL, END_OF_TEXT}},
    {.name = "Qwen2Tokenizer",
     .pattern =
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     .compose = true,
     .special = {NULL, END_OF_TEXT, END_OF_TEXT, END_OF_TEXT}},
    {.name = NULL},
};

/* ---- Which class ---- */

static treadle_status find_class(const json_t *config, const char *model_type,
                                 const tokenizer_class **class_p) {
  const char *name;
  treadle_status status = treadle_field_text(config, "tokenizer_class", &name);
  *class_p = &classes[0];
  if (status) return status;
  if (name) {
    for (const tokenizer_class *c = classes; c->name; c++) {
      size_t length = strlen(c->name);
      if (strncmp(name, c->name, length) != 0 || (name[length] && strcmp(name + length, "Fast") != 0))
        continue;
      *class_p = c;
      return TREADLE_OK;
    }
    REFUSE("tokenizer_class '%.80s' is not known here for vocab.json with merges.txt", name);
  }
  if (!model_type || strncmp(model_type, "gpt2", 4) == 0) return TREADLE_OK;
  if (strncmp(model_type, "qwen2", 5) != 0 && strncmp(model_type, "qwen3", 5) != 0)
    REFUSE("which tokenizer_class a model of type '%.80s' has with vocab.json and merges.txt is not known "
           "here",
           model_type);
  *class_p = &classes[1];
  return TREADLE_OK;
}

/* ---- The files ---- */

static treadle_status read_vocabulary(treadle_tokenizer *tokenizer, const char *folder) {
  char path[PATH_MAX];
  json_t *root = NULL;
  treadle_status status;
  snprintf(path, sizeof path, "%s/vocab.json", folder);
  TRY(treadle_json_load(path, &root));
  status = treadle_tokenizer_read_vocabulary(tokenizer, root);
  if (status) treadle_fail_in(status, "%s: ", path);
out:
  json_decref(root);
  return status;
}

/* Lines of two tokens and a space. */
static treadle_status read_merges(treadle_tokenizer *tokenizer, const char *folder) {
  char path[PATH_MAX], *text = NULL;
  treadle_status status;
  size_t bytes = 0;
  int32_t rank = 0, number = 1;
  snprintf(path, sizeof path, "%s/merges.txt", folder);
  TRY(treadle_file_read(path, MOST_MERGES_BYTES, &text, &bytes));
  if (treadle_unicode_valid(text, bytes) != bytes)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: byte %zu is not UTF-8", path,
                     treadle_unicode_valid(text, bytes)));
  for (char *line = text, *next; line < text + bytes; line = next, number++) {
    char *end = memchr(line, '\n', (size_t)(text + bytes - line));
    next = end ? end + 1 : text + bytes;
    size_t length = (size_t)((end ? end : next) - line);
    if (length > 0 && line[length - 1] == '\r') length--;
    if (length == 0 || (length >= 8 && memcmp(line, "#version", 8) == 0)) continue;
    char *space = memchr(line, ' ', length);
    size_t left = space ? (size_t)(space - line) : 0, right = space ? length - left - 1 : 0;
    if (!space || memchr(space + 1, ' ', right))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: line %d is not two tokens and a space", path, (int)number));
    status = treadle_tokenizer_put_merge(tokenizer, rank++, line, left, space + 1, right);
    if (status) TRY(treadle_fail_in(status, "%s: line %d: ", path, (int)number));
  }
out:
  treadle_free(text);
  return status;
}

/* ---- The rules of the class ---- */

static treadle_status set_rules(treadle_tokenizer *tokenizer, const tokenizer_class *class,
                                const json_t *config) {
  treadle_status status;
  bool prefix_space, split_special;
  TRY(treadle_field_bool(config, "add_prefix_space", false, &prefix_space));
  TRY(treadle_field_bool(config, "split_special_tokens", false, &split_special));
  if (split_special) REFUSE("split_special_tokens is true, which is not done here");
  if (class->compose) {
    treadle_normalizer compose = {.type = TREADLE_NORMALIZE_UNICODE, .compose = true};
    TRY(treadle_array_push(&tokenizer->normalizers, compose));
  }
  if (class->pattern) TRY(treadle_splitters_add_pattern(&tokenizer->splitters, class->pattern));
  TRY(treadle_splitters_add_byte_level(&tokenizer->splitters, prefix_space, !class->pattern));
  TRY(treadle_decoders_add(&tokenizer->decoders, TREADLE_DECODE_BYTE_LEVEL));
out:
  return status;
}

/* add_bos_token and add_eos_token: ends that each text gets. */
static treadle_status set_ends(treadle_tokenizer *tokenizer, const json_t *config) {
  treadle_status status;
  bool begin, end;
  TRY(treadle_field_bool(config, "add_bos_token", false, &begin));
  TRY(treadle_field_bool(config, "add_eos_token", false, &end));
  if (begin && tokenizer->special[TREADLE_BOS] >= 0)
    TRY(treadle_array_push(&tokenizer->before, tokenizer->special[TREADLE_BOS]));
  if (end && tokenizer->special[TREADLE_EOS] >= 0)
    TRY(treadle_array_push(&tokenizer->behind, tokenizer->special[TREADLE_EOS]));
out:
  return status;
}

static treadle_status put_all(treadle_tokenizer *tokenizer, const tokenizer_class *class,
                              const json_t *config) {
  treadle_status status;
  TRY(set_rules(tokenizer, class, config));
  TRY(treadle_tokenizer_put_config(tokenizer, config, class->special));
  TRY(treadle_tokenizer_settle(tokenizer));
  for (int i = 0; i < TREADLE_SPECIAL_TOKENS; i++)
    if (class->special[i] && !json_object_get(config, treadle_special_names[i]))
      tokenizer->special[i] = treadle_tokenizer_id(tokenizer, class->special[i], strlen(class->special[i]));
  TRY(treadle_tokenizer_read_special(tokenizer, config));
  TRY(set_ends(tokenizer, config));
out:
  return status;
}

treadle_status treadle_tokenizer_read_gpt2(treadle_tokenizer *tokenizer, const treadle_gpt2_files *files) {
  treadle_status status;
  const tokenizer_class *class;
  const char *where = files->config ? files->config_path : files->folder;
  status = find_class(files->config, files->model_type, &class);
  if (status) return treadle_fail_in(status, "%s: ", where);
  TRY(read_vocabulary(tokenizer, files->folder));
  TRY(read_merges(tokenizer, files->folder));
  status = put_all(tokenizer, class, files->config);
  if (status) treadle_fail_in(status, "%s: ", where);
out:
  return status;
}
