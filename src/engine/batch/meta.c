/* Meta: keys with a value of JSON each, kept as compact text. */
#include "base/argument.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "batch/batch.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(const char *key) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for meta '%s'", treadle_text_shown(key));
}

/* JSON texts have an object or a list as their root, so the value is read as the only item of a list. */
treadle_status treadle_meta_parse(const char *key, const char *json, json_t **value_p) {
  treadle_status status;
  treadle_builder text = {0};
  char what[300];
  json_t *root = NULL;
  *value_p = NULL;
  treadle_builder_add(&text, "[");
  treadle_builder_add_bytes(&text, json, strlen(json));
  treadle_builder_add(&text, "]");
  if (text.failed) TRY(no_memory(key));
  snprintf(what, sizeof what, "meta '%.256s'", treadle_text_shown(key));
  TRY(treadle_json_read(
      &(treadle_json_source){.what = what, .text = text.text, .count = text.length, .zeros = true}, &root));
  if (json_array_size(root) != 1)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: '%s' is not one JSON value", what, treadle_text_shown(json)));
  *value_p = json_incref(json_array_get(root, 0));
out:
  treadle_builder_release(&text);
  json_decref(root);
  return status;
}

static treadle_batch_meta_entry *find(const treadle_batch *batch, const char *key) {
  for (size_t i = 0; i < batch->meta.count; i++)
    if (strcmp(batch->meta.items[i].key, key) == 0) return &batch->meta.items[i];
  return NULL;
}

static void release(treadle_batch_meta_entry *entry) {
  treadle_free(entry->key);
  treadle_free(entry->json);
  *entry = (treadle_batch_meta_entry){0};
}

/* Sets a key to a text that was checked. */
static treadle_status put(treadle_batch *batch, const char *key, const char *json) {
  treadle_status status = TREADLE_OK;
  treadle_batch_meta_entry *there = find(batch, key), entry = {0};
  entry.json = treadle_batch_copy_text(json);
  if (!entry.json) TRY(no_memory(key));
  if (there) {
    treadle_free(there->json);
    there->json = entry.json;
    return TREADLE_OK;
  }
  entry.key = treadle_batch_copy_text(key);
  if (!entry.key || treadle_array_push(&batch->meta, entry) != TREADLE_OK) TRY(no_memory(key));
  return TREADLE_OK;
out:
  release(&entry);
  return status;
}

treadle_status treadle_batch_set_meta(treadle_batch *batch, const char *key, const char *json) {
  treadle_status status = TREADLE_OK;
  json_t *value = NULL;
  char *text = NULL;
  TREADLE_NEED(batch);
  TREADLE_NEED(key);
  if (!treadle_utf8_is_valid(key)) REFUSE("meta '%s': the key is not UTF-8", treadle_text_shown(key));
  if (!json) {
    treadle_batch_meta_entry *there = find(batch, key);
    if (!there) return TREADLE_OK;
    size_t at = (size_t)(there - batch->meta.items);
    release(there);
    memmove(there, there + 1, (--batch->meta.count - at) * sizeof *there);
    return TREADLE_OK;
  }
  TRY(treadle_meta_parse(key, json, &value));
  text = treadle_json_dump(value, JSON_COMPACT);
  if (!text) TRY(no_memory(key));
  TRY(put(batch, key, text));
out:
  free(text);
  json_decref(value);
  return status;
}

const char *treadle_batch_meta(const treadle_batch *batch, const char *key) {
  TREADLE_NEED_OR(batch, NULL);
  TREADLE_NEED_OR(key, NULL);
  const treadle_batch_meta_entry *entry = find(batch, key);
  return entry ? entry->json : NULL;
}

const char *treadle_batch_meta_key(const treadle_batch *batch, int32_t number) {
  TREADLE_NEED_OR(batch, NULL);
  return number < 0 || (size_t)number >= batch->meta.count ? NULL : batch->meta.items[number].key;
}

treadle_status treadle_batch_meta_copy(treadle_batch *to, const treadle_batch *from) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < from->meta.count; i++)
    TRY(put(to, from->meta.items[i].key, from->meta.items[i].json));
out:
  return status;
}

treadle_status treadle_meta_equal(const char *key, const char *a, const char *b, bool *equal_p) {
  treadle_status status = TREADLE_OK;
  json_t *x = NULL, *y = NULL;
  *equal_p = strcmp(a, b) == 0;
  if (*equal_p) return TREADLE_OK;
  TRY(treadle_meta_parse(key, a, &x));
  TRY(treadle_meta_parse(key, b, &y));
  *equal_p = json_equal(x, y);
out:
  json_decref(x);
  json_decref(y);
  return status;
}

void treadle_batch_meta_release(treadle_batch *batch) {
  for (size_t i = 0; i < batch->meta.count; i++) release(&batch->meta.items[i]);
  treadle_array_release(&batch->meta);
}
