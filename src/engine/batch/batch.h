/* What the files of batch/ share: a batch and its columns.
 *
 * Memory of columns is counted: each column that shows it is a user. It goes when the last user goes, in whichever batch and thread that is. A
 * column of a slice points into the middle of its memory. */
#ifndef TREADLE_BATCH_BATCH_H
#define TREADLE_BATCH_BATCH_H

#include "base/array.h"
#include "treadle_batch.h"

#include <jansson.h>
#include <stdatomic.h>

typedef struct treadle_column_memory {
  atomic_long users;
  void *data; /* NULL: the caller's */
  int64_t *offsets;
  void (*release)(void *context);
  void *context;
} treadle_column_memory;

typedef struct treadle_batch_entry {
  char *name;
  treadle_column_type type;
  int64_t width;          /* 0: ragged */
  const int64_t *offsets; /* [rows + 1]; NULL: `width` values a row */
  char *data;
  treadle_column_memory *memory;
} treadle_batch_entry;

typedef struct treadle_batch_meta_entry {
  char *key, *json;
} treadle_batch_meta_entry;

struct treadle_batch {
  int64_t rows;
  TREADLE_ARRAY(treadle_batch_entry) columns;
  TREADLE_ARRAY(treadle_batch_meta_entry) meta;
};

/* ---- Types of columns (types.c) ---- */

typedef struct treadle_column_about {
  const char *name; /* in files and messages: "int32" */
  size_t bytes;     /* of a value */
  const char *safetensors;
  bool ragged; /* always */
} treadle_column_about;

const treadle_column_about *treadle_column_about_of(treadle_column_type type); /* one of the enum */
bool treadle_column_type_find(const char *name, treadle_column_type *type_p);
/* Do two runs of `count` values hold equal ones? NaN equals NaN, -0 equals 0. */
bool treadle_column_equal(treadle_column_type type, const void *a, const void *b, int64_t count);

/* ---- Columns (column.c) ---- */

/* Where the values of `row` begin, counted in values from data; row may be the number of rows, which gives their end. */
static inline int64_t treadle_entry_at(const treadle_batch_entry *entry, int64_t row) {
  return entry->offsets ? entry->offsets[row] : entry->width * row;
}
static inline int64_t treadle_entry_count(const treadle_batch_entry *entry, int64_t row) {
  return treadle_entry_at(entry, row + 1) - treadle_entry_at(entry, row);
}
static inline char *treadle_entry_data(const treadle_batch_entry *entry, int64_t row) {
  return entry->data + (size_t)treadle_entry_at(entry, row) * treadle_column_about_of(entry->type)->bytes;
}

/* Makes a column with memory of its own: `values` zeros, and room for offsets [rows + 1] if width is 0, which the caller writes through *offsets_p.
 */
treadle_status treadle_entry_make(const char *name, treadle_column_type type, int64_t width, int64_t rows,
                                  int64_t values, treadle_batch_entry *entry_p, int64_t **offsets_p);
/* A column of the same memory, from row `begin` on. */
treadle_status treadle_entry_share(const treadle_batch_entry *from, int64_t begin,
                                   treadle_batch_entry *entry_p);
void treadle_entry_release(treadle_batch_entry *entry);
/* Ended by treadle_free(). NULL: memory is out. */
char *treadle_batch_copy_text(const char *text);
/* Refuses, by row, text that is not UTF-8 and truth values other than 0 and 1. */
treadle_status treadle_entry_check(const treadle_batch_entry *entry, int64_t rows);
/* The column with this name; NULL: there is none. */
treadle_batch_entry *treadle_batch_find(const treadle_batch *batch, const char *name);
/* The same; refused, with the nearest name, if there is none. */
treadle_status treadle_batch_need(const treadle_batch *batch, const char *name,
                                  treadle_batch_entry **entry_p);
/* Moves a column to the end of a batch; on failure it is released. */
treadle_status treadle_batch_take(treadle_batch *batch, treadle_batch_entry *entry);

/* ---- Meta (meta.c) ---- */

/* The value of a JSON text of any type; the message names the key. Ended by json_decref(). */
treadle_status treadle_meta_parse(const char *key, const char *json, json_t **value_p);
treadle_status treadle_batch_meta_copy(treadle_batch *to, const treadle_batch *from);
/* Are two texts of JSON equal values? */
treadle_status treadle_meta_equal(const char *key, const char *a, const char *b, bool *equal_p);
void treadle_batch_meta_release(treadle_batch *batch);

#endif
