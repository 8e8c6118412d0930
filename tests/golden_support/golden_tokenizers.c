/* Tokenizers (tokenizers.json.gz): ids, texts and streams of real tokenizers. Their files lie beside the repository; those that are not there are skipped. */
#include "golden_support/golden_data.h"
#include "golden_support/golden_recording.h"
#include "treadle_builtin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The files of one tokenizer: links in a folder of its own, under the names that programs look for ---- */

static bool link_file(const char *folder, const char *name) {
  char real[600], link[700], whole[4097];
  if (!golden_data_find(name, real, sizeof real) || !realpath(real, whole)) return false;
  const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
  if (strncmp(base, "tokenizer_config.", 17) == 0) base = "tokenizer_config.json";
  snprintf(link, sizeof link, "%s/%s", folder, base);
  return symlink(whole, link) == 0;
}

static bool link_files(const char *folder, const json_t *files) {
  for (size_t i = 0; i < json_array_size(files); i++)
    if (!link_file(folder, json_string_value(json_array_get(files, i)))) return false;
  return json_array_size(files) > 0;
}

static void remove_links(const char *folder, const json_t *files) {
  static const char *const names[] = {"tokenizer_config.json"};
  char link[700];
  for (size_t i = 0; i < json_array_size(files); i++) {
    const char *name = json_string_value(json_array_get(files, i)), *slash = strrchr(name, '/');
    snprintf(link, sizeof link, "%s/%s", folder, slash ? slash + 1 : name);
    unlink(link);
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(link, sizeof link, "%s/%s", folder, names[i]);
    unlink(link);
  }
  rmdir(folder);
}

/* ---- Comparing ---- */

static bool same_ids(const json_t *wanted, const int32_t *ids, size_t count) {
  if (json_array_size(wanted) != count) return false;
  for (size_t i = 0; i < count; i++)
    if (json_integer_value(json_array_get(wanted, i)) != ids[i]) return false;
  return true;
}

static bool same_text(const json_t *wanted, const char *text, size_t bytes) {
  return json_string_length(wanted) == bytes && memcmp(json_string_value(wanted), text, bytes) == 0;
}

static bool encodes(const treadle_tokenizer *tokenizer, const json_t *item, const char *key, bool special) {
  const json_t *text = json_object_get(item, "text");
  int32_t *ids;
  size_t count;
  bool same = treadle_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text),
                                       special, &ids, &count) == TREADLE_OK &&
              same_ids(json_object_get(item, key), ids, count);
  free(ids);
  return same;
}

/* The ids of a list, [*count_p]. */
static int32_t *ids_of(const json_t *list, size_t *count_p) {
  int32_t *ids = calloc(json_array_size(list) + 1, sizeof *ids);
  if (!ids) abort();
  for (size_t i = 0; i < json_array_size(list); i++)
    ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
  *count_p = json_array_size(list);
  return ids;
}

static bool decodes(const treadle_tokenizer *tokenizer, const json_t *item, const char *key, bool special) {
  const json_t *wanted = json_object_get(item, key);
  size_t count, bytes;
  char *text = NULL;
  if (!wanted) return true; /* llama2.c has one form alone */
  const json_t *list = json_object_get(item, "ids_plain");
  int32_t *ids = ids_of(list ? list : json_object_get(item, "ids"), &count);
  bool same = treadle_tokenizer_decode(tokenizer, ids, count, special, &text, &bytes) == TREADLE_OK &&
              same_text(wanted, text, bytes);
  free(ids);
  free(text);
  return same;
}

static bool streams(const treadle_tokenizer *tokenizer, const json_t *item) {
  const json_t *ids = json_object_get(item, "ids"), *pieces = json_object_get(item, "pieces");
  treadle_text_stream *stream = NULL;
  const char *text;
  size_t bytes;
  bool same = treadle_text_stream_create(tokenizer, false, &stream) == TREADLE_OK &&
              json_array_size(ids) == json_array_size(pieces);
  for (size_t i = 0; i < json_array_size(ids) && same; i++)
    same = treadle_text_stream_put(stream, (int32_t)json_integer_value(json_array_get(ids, i)), &text,
                                   &bytes) == TREADLE_OK &&
           same_text(json_array_get(pieces, i), text, bytes);
  same = same && treadle_text_stream_end(stream, &text, &bytes) == TREADLE_OK &&
         same_text(json_object_get(item, "rest"), text, bytes);
  treadle_text_stream_destroy(stream);
  return same;
}

/* ---- One tokenizer ---- */

static void check_case(golden_recording *r, const treadle_tokenizer *tokenizer, const char *name,
                       const json_t *item, size_t number) {
  const char *what = !encodes(tokenizer, item, "ids", true)          ? "ids"
                     : !encodes(tokenizer, item, "ids_plain", false) ? "ids_plain"
                     : !decodes(tokenizer, item, "text_skip", false) ? "text_skip"
                     : !decodes(tokenizer, item, "text_keep", true)  ? "text_keep"
                                                                     : NULL;
  if (what)
    golden_say(r, "%s case %zu (%s): %s differs", name, number,
               json_string_value(json_object_get(item, "kind")), what);
  golden_count(r, (golden_counts){.equal = !what, .different = what != NULL});
}

static void check_stream(golden_recording *r, const treadle_tokenizer *tokenizer, const char *name,
                         const json_t *item, size_t number) {
  const char *what = !streams(tokenizer, item)                       ? "pieces"
                     : !decodes(tokenizer, item, "text_skip", false) ? "text_skip"
                     : !decodes(tokenizer, item, "text_keep", true)  ? "text_keep"
                                                                     : NULL;
  if (what) golden_say(r, "%s stream %zu: %s differ", name, number, what);
  golden_count(r, (golden_counts){.equal = !what, .different = what != NULL});
}

static bool known(golden_recording *r, const char *name, const char *list, size_t number, json_t *item,
                  const char *keys) {
  char reason[GOLDEN_REASON];
  if (golden_keys(item, keys, reason)) return true;
  golden_skip(r, 1, "%s %s %zu: %s", name, list, number, reason);
  return false;
}

static void check_all(golden_recording *r, const treadle_tokenizer *tokenizer, const json_t *one) {
  const char *name = json_string_value(json_object_get(one, "name"));
  const json_t *cases = json_object_get(one, "cases"), *all = json_object_get(one, "streams");
  int64_t count = json_integer_value(json_object_get(one, "vocab"));
  bool same = treadle_tokenizer_count(tokenizer) == count;
  if (!same)
    golden_say(r, "%s: %d tokens, recorded are %lld", name, (int)treadle_tokenizer_count(tokenizer),
               (long long)count);
  golden_count(r, (golden_counts){.equal = same, .different = !same});
  for (size_t i = 0; i < json_array_size(cases); i++)
    if (known(r, name, "case", i, json_array_get(cases, i),
              "?x:kind s:text i:ids i:ids_plain ?s:text_skip s:text_keep"))
      check_case(r, tokenizer, name, json_array_get(cases, i), i);
  for (size_t i = 0; i < json_array_size(all); i++)
    if (known(r, name, "stream", i, json_array_get(all, i),
              "i:ids t:pieces s:rest ?s:text_skip s:text_keep"))
      check_stream(r, tokenizer, name, json_array_get(all, i), i);
}

static void check_tokenizer(golden_recording *r, json_t *one, size_t number) {
  char reason[GOLDEN_REASON];
  if (!golden_keys(one, "s:name ?x:note t:files n:vocab l:cases l:streams", reason)) {
    golden_skip(r, 1, "tokenizer %zu: %s", number, reason);
    return;
  }
  const json_t *files = json_object_get(one, "files");
  int cases = (int)(json_array_size(json_object_get(one, "cases")) +
                    json_array_size(json_object_get(one, "streams"))) +
              1;
  char folder[] = "/tmp/treadle-golden-XXXXXX";
  treadle_tokenizer *tokenizer = NULL;
  if (!mkdtemp(folder)) abort();
  if (!link_files(folder, files)) {
    golden_skip(r, cases, "%s: its files are not there", json_string_value(json_object_get(one, "name")));
  } else if (treadle_tokenizer_open(folder, &tokenizer) != TREADLE_OK) {
    golden_say(r, "%s: %s", json_string_value(json_object_get(one, "name")), treadle_error_message());
    r->counts->cases += cases;
    r->counts->different += cases;
  } else {
    check_all(r, tokenizer, one);
  }
  treadle_tokenizer_close(tokenizer);
  remove_links(folder, files);
}

void golden_check_tokenizers(golden_recording *r) {
  const json_t *list = json_object_get(r->root, "tokenizers");
  for (size_t i = 0; i < json_array_size(list); i++) check_tokenizer(r, json_array_get(list, i), i);
}
