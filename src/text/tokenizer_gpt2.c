/* vocab.json and merges.txt, with the added tokens of tokenizer_config.json: what transformers' classes GPT2Tokenizer and Qwen2Tokenizer
 * make of them. The class is that of the config; without one, that of the model_type; else GPT-2's. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "text/fields.h"

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

/* Special tokens beside the four that programs ask for, in the order in which they get ids. */
static const char *const added_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

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

/* ---- Added tokens ---- */

/* Is it one of the special tokens that have a name? */
static treadle_status is_named(const json_t *config, const char *text, bool *named_p) {
  *named_p = false;
  for (size_t i = 0; i < sizeof added_names / sizeof *added_names; i++) {
    const char *one;
    treadle_status status = treadle_tokenizer_special_text(config, added_names[i], &one);
    if (status) return status;
    if (one && strcmp(one, text) == 0) *named_p = true;
  }
  return TREADLE_OK;
}

static treadle_status put_one(treadle_tokenizer *tokenizer, const json_t *config, const json_t *json,
                              int64_t id) {
  treadle_added_token flags = {0};
  treadle_status status;
  const char *text;
  bool named;
  TRY(treadle_field_needed_text(json, "content", &text));
  TRY(treadle_tokenizer_read_flags(json, &flags));
  TRY(is_named(config, text, &named));
  flags.special = flags.special || named;
  TRY(treadle_tokenizer_put_added(tokenizer, text, id, flags));
out:
  return status;
}

typedef struct numbered {
  int64_t id;
  const json_t *json;
} numbered;

static int by_id(const void *a, const void *b) {
  int64_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
  return x < y ? -1 : x > y;
}

/* added_tokens_decoder: an object from id to token; taken in the order of ids. */
static treadle_status put_decoder(treadle_tokenizer *tokenizer, const json_t *config) {
  json_t *object = json_object_get(config, "added_tokens_decoder");
  TREADLE_ARRAY(numbered) list = {0};
  treadle_status status = TREADLE_OK;
  if (!object || json_is_null(object)) return TREADLE_OK;
  if (!treadle_json_is_object(object)) REFUSE("added_tokens_decoder is not an object");
  for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    const char *key = json_object_iter_key(at);
    char *end;
    numbered one = {strtoll(key, &end, 10), json_object_iter_value(at)};
    if (*end || end == key || one.id < 0 || one.id > INT32_MAX)
      TRY(treadle_fail(TREADLE_REFUSED, "added_tokens_decoder: '%.80s' is no id", key));
    TRY(treadle_array_push(&list, one));
  }
  if (list.count) qsort(list.items, list.count, sizeof *list.items, by_id);
  for (size_t i = 0; i < list.count; i++) {
    status = put_one(tokenizer, config, list.items[i].json, list.items[i].id);
    if (status) TRY(treadle_fail_in(status, "added_tokens_decoder: %lld: ", (long long)list.items[i].id));
  }
out:
  treadle_array_release(&list);
  return status;
}

/* A special token that is not there yet. */
static treadle_status put_special(treadle_tokenizer *tokenizer, const char *text) {
  const treadle_added_token flags = {.special = true};
  if (!text || treadle_added_find(&tokenizer->added, text, strlen(text))) return TREADLE_OK;
  return treadle_tokenizer_put_added(tokenizer, text, -1, flags);
}

static treadle_status put_named(treadle_tokenizer *tokenizer, const tokenizer_class *class,
                                const json_t *config) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof added_names / sizeof *added_names; i++) {
    const char *text = NULL;
    TRY(treadle_tokenizer_special_text(config, added_names[i], &text));
    for (int s = 0; s < TREADLE_SPECIAL_TOKENS; s++)
      if (!json_object_get(config, added_names[i]) && strcmp(added_names[i], treadle_special_names[s]) == 0)
        text = class->special[s];
    TRY(put_special(tokenizer, text));
  }
out:
  return status;
}

static treadle_status put_more(treadle_tokenizer *tokenizer, const json_t *config, const char *name) {
  const json_t *list = json_object_get(config, name);
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *one = json_array_get(list, i);
    const char *text =
        json_string_value(treadle_json_is_object(one) ? json_object_get(one, "content") : one);
    if (!text) TRY(treadle_fail(TREADLE_REFUSED, "%s[%zu] is not a text", name, i));
    TRY(put_special(tokenizer, text));
  }
out:
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
  TRY(put_decoder(tokenizer, config));
  TRY(put_named(tokenizer, class, config));
  TRY(put_more(tokenizer, config, "additional_special_tokens"));
  TRY(put_more(tokenizer, config, "extra_special_tokens"));
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
