/* Batches of several: rows one after the other (concat), columns side by side (union). */
#include "base/argument.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "batch/batch.h"

#include <stdlib.h>
#include <string.h>

static const char METRICS[] = "metrics";

/* ---- Concat ------------------------------------------------------------------------------------ */

/* The columns of all batches with the name of column `number` of the first. */
static treadle_status concat_column(const treadle_batch *const *batches, size_t count, size_t number,
                                    int64_t rows, treadle_batch_entry *entry_p) {
  treadle_status status;
  const treadle_batch_entry *first = &batches[0]->columns.items[number];
  size_t each = treadle_column_about_of(first->type)->bytes;
  int64_t values = 0, *offsets, row = 0;
  for (size_t b = 0; b < count; b++) {
    const treadle_batch_entry *here = treadle_batch_find(batches[b], first->name);
    if (!here) REFUSE("batch %zu has no column '%s', which batch 0 has", b, first->name);
    if (here->type != first->type || here->width != first->width)
      REFUSE("column '%s': %s of width %lld in batch 0, %s of width %lld in batch %zu (0: ragged)",
             first->name, treadle_column_about_of(first->type)->name, (long long)first->width,
             treadle_column_about_of(here->type)->name, (long long)here->width, b);
    values += treadle_entry_at(here, batches[b]->rows) - treadle_entry_at(here, 0);
    if (values > TREADLE_MAX_ELEMS)
      REFUSE("column '%s': more than %lld values", first->name, (long long)TREADLE_MAX_ELEMS);
  }
  TRY(treadle_entry_make(first->name, first->type, first->width, rows, values, entry_p, &offsets));
  char *to = entry_p->data;
  for (size_t b = 0; b < count; b++) {
    const treadle_batch_entry *here = treadle_batch_find(batches[b], first->name);
    int64_t begin = treadle_entry_at(here, 0), end = treadle_entry_at(here, batches[b]->rows);
    if (end > begin) memcpy(to, treadle_entry_data(here, 0), (size_t)(end - begin) * each);
    to += (size_t)(end - begin) * each;
    for (int64_t r = 0; offsets && r < batches[b]->rows; r++, row++)
      offsets[row + 1] = offsets[row] + treadle_entry_count(here, r);
  }
out:
  return status;
}

/* Appends the objects of a value, which is one or a list of them. */
static treadle_status take_metrics(size_t batch, json_t *value, json_t *all) {
  size_t i;
  json_t *item;
  if (!json_is_array(value)) {
    if (!treadle_json_is_object(value))
      REFUSE("meta 'metrics' of batch %zu is neither an object nor a list of objects", batch);
    return json_array_append(all, value) ? treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics")
                                         : TREADLE_OK;
  }
  json_array_foreach(value, i, item) {
    if (!treadle_json_is_object(item))
      REFUSE("meta 'metrics' of batch %zu: item %zu is not an object", batch, i);
    if (json_array_append(all, item)) return treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics");
  }
  return TREADLE_OK;
}

/* Objects with equal keys become one object of lists. */
static treadle_status list_metrics(json_t *all, json_t *lists) {
  size_t i;
  json_t *object, *value;
  const char *key;
  json_array_foreach(all, i, object) {
    if (json_object_size(object) != json_object_size(json_array_get(all, 0)))
      REFUSE("meta 'metrics': object %zu has %zu keys, object 0 has %zu", i, json_object_size(object),
             json_object_size(json_array_get(all, 0)));
    json_object_foreach(object, key, value) {
      json_t *list = json_object_get(lists, key);
      if (!list && i > 0)
        REFUSE("meta 'metrics': object %zu has key '%s', object 0 does not", i, treadle_text_shown(key));
      if (!list) {
        list = json_array();
        if (json_object_set_new(lists, key, list))
          return treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics");
      }
      if (json_array_append(list, value)) return treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics");
    }
  }
  return TREADLE_OK;
}

static treadle_status concat_metrics(const treadle_batch *const *batches, size_t count,
                                     treadle_batch *made) {
  treadle_status status = TREADLE_OK;
  json_t *all = json_array(), *lists = json_object(), *value = NULL;
  char *text = NULL;
  bool any = false;
  if (!all || !lists) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics"));
  for (size_t b = 0; b < count; b++) {
    const char *json = treadle_batch_meta(batches[b], METRICS);
    if (!json) continue;
    any = true;
    TRY(treadle_meta_parse(METRICS, json, &value));
    TRY(take_metrics(b, value, all));
    json_decref(value);
    value = NULL;
  }
  if (!any) goto out;
  TRY(list_metrics(all, lists));
  text = treadle_json_dump(lists, JSON_COMPACT);
  if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for metrics"));
  TRY(treadle_batch_set_meta(made, METRICS, text));
out:
  free(text);
  json_decref(value);
  json_decref(all);
  json_decref(lists);
  return status;
}

/* Adds the keys of `from`; both may have a key if its values are equal. */
static treadle_status merge_meta(treadle_batch *to, const treadle_batch *from, bool metrics) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < from->meta.count; i++) {
    const char *key = from->meta.items[i].key, *json = from->meta.items[i].json,
               *there = treadle_batch_meta(to, key);
    bool equal = true;
    if (!metrics && strcmp(key, METRICS) == 0) continue;
    if (there) TRY(treadle_meta_equal(key, there, json, &equal));
    if (!equal) /* verl's words */
      TRY(treadle_fail(TREADLE_REFUSED, "Conflicting values for meta_info key '%s': %s and %s",
                       treadle_text_shown(key), treadle_text_shown(there), treadle_text_shown(json)));
    if (!there) TRY(treadle_batch_set_meta(to, key, json));
  }
out:
  return status;
}

treadle_status treadle_batch_concat(const treadle_batch *const *batches, size_t count,
                                    treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *made = NULL;
  treadle_batch_entry entry;
  int64_t rows = 0;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batches);
  if (count == 0) REFUSE("no batches: the columns are those of the first");
  for (size_t b = 0; b < count; b++) {
    const treadle_batch *batch = batches[b];
    TREADLE_NEED(batch);
    rows += batch->rows;
    if (rows > TREADLE_MAX_ROWS) REFUSE("more than %lld rows", (long long)TREADLE_MAX_ROWS);
    if (batch->columns.count != batches[0]->columns.count)
      REFUSE("batch %zu has %zu columns, batch 0 has %zu", b, batch->columns.count,
             batches[0]->columns.count);
  }
  TRY(treadle_batch_create(rows, &made));
  for (size_t i = 0; i < batches[0]->columns.count; i++) {
    TRY(concat_column(batches, count, i, rows, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  for (size_t b = 0; b < count; b++) TRY(merge_meta(made, batches[b], false));
  TRY(concat_metrics(batches, count, made));
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(made);
  return status;
}

/* ---- Union ------------------------------------------------------------------------------------- */

static treadle_status check_equal(const treadle_batch_entry *a, const treadle_batch_entry *b,
                                  int64_t rows) {
  if (a->type != b->type || a->width != b->width)
    REFUSE(
        "'%s' in tensor_dict1 and tensor_dict2 are not the same object: %s of width %lld, %s of width %lld "
        "(0: ragged)",
        a->name, treadle_column_about_of(a->type)->name, (long long)a->width,
        treadle_column_about_of(b->type)->name, (long long)b->width);
  for (int64_t r = 0; r < rows; r++) {
    int64_t count = treadle_entry_count(a, r), other = treadle_entry_count(b, r);
    if (count != other)
      REFUSE("'%s' in tensor_dict1 and tensor_dict2 are not the same object: row %lld has %lld and %lld "
             "values",
             a->name, (long long)r, (long long)count, (long long)other);
    if (!treadle_column_equal(a->type, treadle_entry_data(a, r), treadle_entry_data(b, r),
                              count)) /* verl's words */
      REFUSE("'%s' in tensor_dict1 and tensor_dict2 are not the same object: the values of row %lld differ",
             a->name, (long long)r);
  }
  return TREADLE_OK;
}

treadle_status treadle_batch_union(treadle_batch *batch, const treadle_batch *other) {
  treadle_status status;
  treadle_batch *made = NULL;
  treadle_batch_entry entry;
  TREADLE_NEED(batch);
  TREADLE_NEED(other);
  if (batch->rows != other->rows)
    REFUSE("a union of %lld and %lld rows", (long long)batch->rows, (long long)other->rows);
  TRY(treadle_batch_slice(batch, 0, batch->rows, &made));
  for (size_t i = 0; i < other->columns.count; i++) {
    const treadle_batch_entry *from = &other->columns.items[i],
                              *there = treadle_batch_find(made, from->name);
    if (there) {
      TRY(check_equal(there, from, batch->rows));
      continue;
    }
    TRY(treadle_entry_share(from, 0, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  TRY(merge_meta(made, other, true));
  treadle_batch old = *batch;
  *batch = *made;
  *made = old;
out:
  treadle_batch_destroy(made);
  return status;
}
