/* tokenizer.json of huggingface/tokenizers, with a BPE model. Truncation and padding are left out: who calls decides about lengths. */
#include "token/tokenizer.h"

#include "base/arena.h"
#include "base/json.h"
#include "token/fields.h"

#include <string.h>

enum { DEEPEST = 16, MOST_AROUND = 64 };

/* ---- The model ---- */

/* ["a", "b"] or "a b". Lines that begin with #version are no merges. */
static treadle_status read_merge(treadle_tokenizer *tokenizer, const json_t *merge, int32_t *rank_p) {
  const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
  treadle_status status = TREADLE_OK;
  if (json_is_array(merge)) {
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
      REFUSE("merge %d is not a pair of texts%s", (int)*rank_p,
             treadle_json_note(json_is_string(left) ? right : left));
    TRY(treadle_tokenizer_put_merge(tokenizer, *rank_p, json_string_value(left), json_string_length(left),
                                    json_string_value(right), json_string_length(right)));
    ++*rank_p;
    return TREADLE_OK;
  }
  if (!json_is_string(merge))
    REFUSE("merge %d is neither a text nor a pair of texts%s", (int)*rank_p, treadle_json_note(merge));
  const char *text = json_string_value(merge), *space = strchr(text, ' ');
  if (strncmp(text, "#version", 8) == 0) return TREADLE_OK;
  if (!space || strchr(space + 1, ' '))
    REFUSE("merge %d is not two tokens and a space: '%.80s'", (int)*rank_p, text);
  TRY(treadle_tokenizer_put_merge(tokenizer, *rank_p, text, (size_t)(space - text), space + 1,
                                  strlen(space + 1)));
  ++*rank_p;
out:
  return status;
}

static treadle_status read_merges(treadle_tokenizer *tokenizer, const json_t *merges) {
  treadle_status status;
  int32_t rank = 0;
  if (!json_is_array(merges)) REFUSE("merges is not a list");
  TRY(treadle_hash_index_reserve(&tokenizer->bpe.merges.by_pair, json_array_size(merges)));
  for (size_t i = 0; i < json_array_size(merges); i++)
    TRY(read_merge(tokenizer, json_array_get(merges, i), &rank));
out:
  return status;
}

/* A text of the model that lives as long as the tokenizer; NULL stays NULL. */
static treadle_status read_own_text(treadle_tokenizer *tokenizer, const json_t *model, const char *name,
                                    const char **text_p) {
  treadle_status status = treadle_field_text(model, name, text_p);
  if (status || !*text_p) return status;
  *text_p = treadle_arena_copy_text(&tokenizer->bpe.tokens.arena, *text_p);
  return *text_p ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", name);
}

static treadle_status read_model(treadle_tokenizer *tokenizer, const json_t *model) {
  treadle_bpe *bpe = &tokenizer->bpe;
  treadle_status status;
  const char *type, *prefix, *suffix;
  const json_t *dropout = json_object_get(model, "dropout");
  if (!treadle_json_is_object(model)) REFUSE("is missing, or is not an object");
  TRY(treadle_field_text(model, "type", &type)); /* files of old versions do not say it */
  if (type && strcmp(type, "BPE") != 0) REFUSE("type '%s' is not known here; BPE is", type);
  if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0))
    REFUSE("dropout leaves merges out at random, which is not done here");
  TRY(treadle_tokenizer_read_vocabulary(tokenizer, json_object_get(model, "vocab")));
  TRY(read_own_text(tokenizer, model, "unk_token", &bpe->unknown));
  TRY(read_own_text(tokenizer, model, "continuing_subword_prefix", &prefix));
  TRY(read_own_text(tokenizer, model, "end_of_word_suffix", &suffix));
  if (prefix) bpe->prefix = prefix;
  if (suffix) bpe->suffix = suffix;
  TRY(treadle_field_bool(model, "fuse_unk", false, &bpe->fuse_unknown));
  TRY(treadle_field_bool(model, "byte_fallback", false, &bpe->byte_fallback));
  TRY(treadle_field_bool(model, "ignore_merges", false, &bpe->ignore_merges));
  if (bpe->byte_fallback) treadle_tokenizer_find_bytes(tokenizer);
  TRY(read_merges(tokenizer, json_object_get(model, "merges")));
out:
  return status;
}

/* ---- Added tokens ---- */

static treadle_status read_added_token(treadle_tokenizer *tokenizer, const json_t *json) {
  treadle_added_token flags = {0};
  treadle_status status;
  const char *text;
  int64_t id;
  if (!treadle_json_is_object(json)) REFUSE("is not an object");
  TRY(treadle_field_needed_text(json, "content", &text));
  TRY(treadle_field_number(json, "id", 0, INT32_MAX, &id));
  TRY(treadle_tokenizer_read_flags(json, &flags));
  TRY(treadle_tokenizer_put_added(tokenizer, text, id, flags));
out:
  return status;
}

static treadle_status read_added(treadle_tokenizer *tokenizer, const json_t *root) {
  const json_t *list;
  treadle_status status;
  TRY(treadle_field_list(root, "added_tokens", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    status = read_added_token(tokenizer, json_array_get(list, i));
    if (status) return treadle_fail_in(status, "added_tokens[%zu]: ", i);
  }
out:
  return status;
}

/* ---- What is put around a text ---- */

/* The ids of a special token of a template: its place in special_tokens has them. */
static treadle_status read_template_ids(const treadle_tokenizer *tokenizer, const json_t *template,
                                        const json_t *token, treadle_token_ids *ids) {
  const char *name;
  treadle_status status;
  TRY(treadle_field_needed_text(token, "id", &name));
  const json_t *list =
      json_object_get(json_object_get(json_object_get(template, "special_tokens"), name), "ids");
  if (!json_is_array(list)) REFUSE("special_tokens has no ids of '%.80s'", name);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value > INT32_MAX) REFUSE("special_tokens of '%.80s' has an id that is none", name);
    status = treadle_tokenizer_check_id(tokenizer, (int32_t)value);
    if (status) return treadle_fail_in(status, "special_tokens of '%.80s': ", name);
    if (ids->count == MOST_AROUND) REFUSE("a text gets more than %d special tokens", MOST_AROUND);
    TRY(treadle_array_push(ids, (int32_t)value));
  }
out:
  return status;
}

/* A second template would see the parts that the first one made, which no tokenizer means. */
static treadle_status read_template(treadle_tokenizer *tokenizer, const json_t *json, bool *any) {
  const json_t *list;
  treadle_status status;
  int texts = 0;
  if (*any) REFUSE("there is more than one template");
  *any = true;
  TRY(treadle_field_list(json, "single", &list));
  if (!list) REFUSE("single is missing");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *piece = json_array_get(list, i), *token = json_object_get(piece, "SpecialToken");
    const char *name = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
    if (token)
      TRY(read_template_ids(tokenizer, json, token, texts ? &tokenizer->behind : &tokenizer->before));
    else if (name && strcmp(name, "A") == 0)
      texts++;
    else
      REFUSE("single[%zu] is neither a SpecialToken nor the Sequence A", i);
  }
  if (texts != 1) REFUSE("single has the text %d times, and must have it once", texts);
out:
  return status;
}

static treadle_status read_processor(treadle_tokenizer *tokenizer, const json_t *json, int depth,
                                     bool *any) {
  treadle_status status;
  const char *type;
  const json_t *list;
  if (!json || json_is_null(json)) return TREADLE_OK;
  if (depth > DEEPEST) REFUSE("sequences are nested more than %d deep", DEEPEST);
  if (!treadle_json_is_object(json)) REFUSE("is not an object");
  TRY(treadle_field_needed_text(json, "type", &type));
  if (strcmp(type, "ByteLevel") == 0) return TREADLE_OK; /* only trims offsets, which are not made here */
  if (strcmp(type, "TemplateProcessing") == 0) {
    status = read_template(tokenizer, json, any);
    return status ? treadle_fail_in(status, "%s: ", type) : TREADLE_OK;
  }
  if (strcmp(type, "Sequence") != 0) REFUSE("post-processor '%s' is not known here", type);
  TRY(treadle_field_list(json, "processors", &list));
  if (!list) REFUSE("processors is missing");
  for (size_t i = 0; i < json_array_size(list); i++) {
    status = read_processor(tokenizer, json_array_get(list, i), depth + 1, any);
    if (status) return treadle_fail_in(status, "processors[%zu]: ", i);
  }
out:
  return status;
}

/* ---- All of it ---- */

static treadle_status in(treadle_status status, const char *field) {
  return status ? treadle_fail_in(status, "%s: ", field) : TREADLE_OK;
}

treadle_status treadle_tokenizer_read_json(treadle_tokenizer *tokenizer, const json_t *root) {
  treadle_status status;
  const char *version;
  bool any = false; /* template */
  TRY(treadle_field_text(root, "version", &version));
  if (version && strcmp(version, "1.0") != 0) REFUSE("version '%s' is not known here; 1.0 is", version);
  TRY(in(read_model(tokenizer, json_object_get(root, "model")), "model"));
  TRY(in(treadle_normalizers_read(json_object_get(root, "normalizer"), &tokenizer->normalizers),
         "normalizer"));
  TRY(in(treadle_splitters_read(json_object_get(root, "pre_tokenizer"), &tokenizer->splitters),
         "pre_tokenizer"));
  TRY(in(treadle_decoders_read(json_object_get(root, "decoder"), &tokenizer->decoders), "decoder"));
  TRY(read_added(tokenizer, root));
  TRY(treadle_tokenizer_settle(tokenizer));
  tokenizer->own_count = tokenizer->count;
  TRY(in(read_processor(tokenizer, json_object_get(root, "post_processor"), 0, &any), "post_processor"));
out:
  return status;
}
