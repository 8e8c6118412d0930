/* treadle for everybody who handles samples: a batch is named columns over rows.
 *
 * A row is a sample. A column has one type, and in each row one value, `width` values, or as many as the row has
 * (ragged). Nothing is padded:
 *
 *                 uid (text)   prompt_ids (int32, ragged)   ids (int32, ragged)   score (fp64)
 *   row 0         "7-0"        12 40 9                      31 7 2                1
 *   row 1         "7-1"        12 40 9                      31 2                  0
 *
 * Names with a fixed meaning. A column that is not needed is not there.
 *
 *   prompt_ids, ids                                          int32, ragged: tokens of the prompt, of the completion
 *   rollout_log_probs, old_log_probs, ref_log_probs          fp32, ragged as ids: of each token of the completion
 *   entropies, values, returns, token_rewards                fp32, ragged as ids
 *   advantages                                               fp64, ragged as ids, where they differ by token
 *   advantage, reward, score                                 fp64: of the whole sample
 *   mask                                                     uint8, ragged as ids: 1 for tokens that are trained
 *   uid, data_source, prompt, completion, answer, finish     text
 *   version                                                  int64: of the weights that drew the sample
 *   group                                                    int64: equal for samples of one prompt
 *   experts                                                  bytes: those that each token of prompt and completion but
 *                                                            the last one chose (treadle_generator_generate)
 *
 * A batch also has meta: keys with a JSON value each, for the batch as a whole.
 *
 * The conventions are those of treadle.h. Batches share memory of columns: treadle_batch_select, _slice, _split,
 * _chunk, _pop, _fold, _unfold, _unpad and _union copy no values, so who writes into such a column writes into all
 * batches that have it. The memory of a column lives as long as a batch has it. One thread at a time uses a batch;
 * batches that share columns may be used by different threads. All functions are local. */
#ifndef TREADLE_BATCH_H
#define TREADLE_BATCH_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct treadle_batch treadle_batch;

typedef enum treadle_column_type {
  TREADLE_COLUMN_INT32 = 0,
  TREADLE_COLUMN_INT64,
  TREADLE_COLUMN_FP32,
  TREADLE_COLUMN_FP64,
  TREADLE_COLUMN_BF16,
  TREADLE_COLUMN_UINT8,
  TREADLE_COLUMN_BOOL,
  TREADLE_COLUMN_TEXT, /* a text of UTF-8 in each row; it may hold 0 bytes, and no 0 follows it */
  TREADLE_COLUMN_BYTES /* any bytes in each row */
} treadle_column_type;

/* A column. The values of row r are
 *
 *   data[r * width] up to data[(r + 1) * width]     if offsets is NULL
 *   data[offsets[r]] up to data[offsets[r + 1]]     otherwise: the column is ragged, as texts and bytes always are
 *
 * The first offset need not be 0. Values lie without gaps, and each at an address that is a multiple of its size. */
typedef struct treadle_column {
  size_t struct_size;
  const char *name; /* 1 to 255 bytes of UTF-8 without control characters, which do not end in ".offsets" */
  treadle_column_type type;
  int64_t width;          /* from 1; 0: ragged, or in treadle_batch_add 1 */
  const int64_t *offsets; /* [rows + 1], ascending from 0 or more; NULL: `width` values a row */
  void *data;
  /* For treadle_batch_add alone. NULL: data and offsets are copied. Otherwise the batch uses the caller's own memory,
   * which must not move, and calls release(context) when no batch has the column any more; perhaps in another thread.
   * It may not use batches. If the call fails, release is not called. */
  void (*release)(void *context);
  void *context;
} treadle_column;

/* Makes a batch of `rows` rows, without columns. On failure *batch_p is NULL. */
treadle_status treadle_batch_create(int64_t rows, treadle_batch **batch_p);
void treadle_batch_destroy(treadle_batch *batch);
/* The number of rows, and of columns. Else -1. */
int64_t treadle_batch_rows(const treadle_batch *batch);
int32_t treadle_batch_column_count(const treadle_batch *batch);

/* ---- Columns ----------------------------------------------------------------------------------- */

/* Adds a column after those that the batch has. data NULL: the batch makes memory, of zeros, which the caller then
 * fills (treadle_batch_column). Refused: a name that the batch has; offsets that descend, by row; text that is not
 * UTF-8, by row. */
treadle_status treadle_batch_add(treadle_batch *batch, const treadle_column *column);
/* Adds a column of texts [rows]. bytes [rows]: their lengths; NULL: each ends with a 0. Copies them. Refused: as
 * above; a text that is NULL, by row. */
treadle_status treadle_batch_add_texts(treadle_batch *batch, const char *name, const char *const *texts,
                                       const size_t *bytes);
/* Gives the column with this name. Data and offsets live as long as the batch has the column, the name lives until a
 * function changes the batch. Refused: no column has this name. */
treadle_status treadle_batch_column(const treadle_batch *batch, const char *name, treadle_column *column_p);
/* Gives column `number`, from 0, in the order in which they were added. Refused: a number out of range. */
treadle_status treadle_batch_column_at(const treadle_batch *batch, int32_t number, treadle_column *column_p);
/* Does a column have this name? Else false. */
bool treadle_batch_has(const treadle_batch *batch, const char *name);
/* Removes a column, or gives it another name. Refused: no column has the name; another one has the new name. */
treadle_status treadle_batch_remove(treadle_batch *batch, const char *name);
treadle_status treadle_batch_rename(treadle_batch *batch, const char *name, const char *to);
/* Takes columns and meta out of a batch: *batch_p has `count` columns of it, in the order of the names, with their
 * memory, and `key_count` keys of its meta, and the batch no longer does. Refused: a name that no column has, or that
 * is there twice; a key that the batch does not have. On failure the batch is as it was, and *batch_p is NULL. */
treadle_status treadle_batch_pop(treadle_batch *batch, const char *const *names, size_t count, const char *const *keys,
                                 size_t key_count, treadle_batch **batch_p);

/* ---- Meta -------------------------------------------------------------------------------------- */

/* Sets a key to a JSON value ("3", "\"x\"", "{\"a\": [1]}"); NULL: removes the key, which need not be there. Refused:
 * a text that is not one JSON value. */
treadle_status treadle_batch_set_meta(treadle_batch *batch, const char *key, const char *json);
/* The JSON text of a key's value, which lives until the key is set again or the batch destroyed. Else, also if the
 * batch does not have the key, NULL. */
const char *treadle_batch_meta(const treadle_batch *batch, const char *key);
/* Key number `number`, from 0; it lives as long as the value. Else, also from the number of keys on, NULL. */
const char *treadle_batch_meta_key(const treadle_batch *batch, int32_t number);

/* ---- New batches from others: on failure *batch_p is NULL ------------------------------------------ */

/* A batch with `count` columns of this one, in the order of the names. It shares their memory, and has all meta.
 * Refused: a name that no column has, or that is there twice. */
treadle_status treadle_batch_select(const treadle_batch *batch, const char *const *names, size_t count,
                                    treadle_batch **batch_p);
/* A batch of rows by their numbers rows [count], from 0, in that order; a row may come again. Refused, by its place: a
 * number out of range. */
treadle_status treadle_batch_index(const treadle_batch *batch, const int64_t *rows, size_t count,
                                   treadle_batch **batch_p);
/* A batch of the rows r with mask[r]. mask [count]; refused: a count that is not the number of rows. */
treadle_status treadle_batch_index_mask(const treadle_batch *batch, const bool *mask, size_t count,
                                        treadle_batch **batch_p);
/* A batch of rows `begin` up to `end`, which shares their memory. Refused: not 0 <= begin <= end <= rows. */
treadle_status treadle_batch_slice(const treadle_batch *batch, int64_t begin, int64_t end, treadle_batch **batch_p);
/* Splits a batch into parts [count] of counts [count] rows each, one after the other, which share its memory. Refused:
 * counts whose sum is not the number of rows. On failure all parts are NULL. */
treadle_status treadle_batch_split(const treadle_batch *batch, const int64_t *counts, size_t count,
                                   treadle_batch **parts);
/* The same, into parts [count] of equal size. Refused: rows that do not divide equally. */
treadle_status treadle_batch_chunk(const treadle_batch *batch, size_t count, treadle_batch **parts);
/* A batch of the rows of `count` batches, one after the other, of which there must be one. Columns are those of the
 * first, and all batches must have them. Meta is that of all: "metrics", an object or a list of objects in each,
 * becomes one object of lists; other keys must have equal values. Refused, by batch and column: other names, types or
 * widths. */
treadle_status treadle_batch_concat(const treadle_batch *const *batches, size_t count, treadle_batch **batch_p);
/* A batch of each row `times` times. interleaved: rows a a b b; otherwise a b a b. Refused: times below 1. */
treadle_status treadle_batch_repeat(const treadle_batch *batch, int64_t times, bool interleaved,
                                    treadle_batch **batch_p);
/* A batch of row r counts[r] times, one after the other; counts [count], from 0. Refused: a count that is not the
 * number of rows; a row less than 0 times. */
treadle_status treadle_batch_sample_level_repeat(const treadle_batch *batch, const int64_t *counts, size_t count,
                                                 treadle_batch **batch_p);

/* A batch of `rows` rows, each of which has all values of as many neighbours (fold), and back: each row becomes `times`
 * rows (unfold). Rows that belong together stay together while folded rows are reordered. Values are shared. A column
 * of fixed width gets another width; a ragged column, of texts too, becomes two: its values, and in NAME.counts
 * (int64) how many each row had. Refused: rows that do not divide; by column, to unfold: a width that does not divide,
 * a ragged column whose NAME.counts is not there or does not add up. */
treadle_status treadle_batch_fold(const treadle_batch *batch, int64_t rows, treadle_batch **batch_p);
treadle_status treadle_batch_unfold(const treadle_batch *batch, int64_t times, treadle_batch **batch_p);
/* A batch in which each row becomes `times` rows. The values of the columns names [count] are divided among them, in
 * order, and are shared; those of other columns are repeated. Refused, by column and row: values that do not divide, as
 * texts and bytes never do; a name that no column has, or that is there twice. */
treadle_status treadle_batch_unfold_columns(const treadle_batch *batch, int64_t times, const char *const *names,
                                            size_t count, treadle_batch **batch_p);

/* A batch with [*padding_p] more rows, so that their number is a multiple of `divisor`: rows 0, 1, 2 and so on, which
 * start again after the last. A batch without rows stays so. Nothing is copied if nothing is missing. Refused: a
 * divisor below 1. */
treadle_status treadle_batch_pad_to_divisor(const treadle_batch *batch, int64_t divisor, treadle_batch **batch_p,
                                            int64_t *padding_p);
/* A batch without its last `padding` rows, which shares the memory of the others. Refused: not 0 <= padding <= rows. */
treadle_status treadle_batch_unpad(const treadle_batch *batch, int64_t padding, treadle_batch **batch_p);

/* ---- Mini batches ------------------------------------------------------------------------------ */

typedef struct treadle_batch_iterator treadle_batch_iterator;

/* Starts to give a batch in mini batches of `rows` rows, `epochs` times. shuffled: in an order of rows that is a
 * function of seed, epoch and number of rows alone; otherwise in the batch's own, and mini batches share its memory.
 * The batch may end before the iterator. Refused: rows that do not divide; epochs below 0. On failure *iterator_p is
 * NULL. */
treadle_status treadle_batch_iterate_open(const treadle_batch *batch, int64_t rows, int64_t epochs, bool shuffled,
                                          uint64_t seed, treadle_batch_iterator **iterator_p);
/* Gives the next mini batch, which the caller destroys. *batch_p is NULL after the last one, and on failure. */
treadle_status treadle_batch_iterate_next(treadle_batch_iterator *iterator, treadle_batch **batch_p);
void treadle_batch_iterate_close(treadle_batch_iterator *iterator);

/* ---- Changes of a batch ------------------------------------------------------------------------ */

/* Adds the columns and the meta of another batch with as many rows, and shares its memory. What both have must hold
 * equal values; NaN equals NaN. Refused, by column and row: values that differ. On failure the batch is as it was. */
treadle_status treadle_batch_union(treadle_batch *batch, const treadle_batch *other);
/* Puts row order[r] at place r; order [count]. Columns get new memory. Refused: an order that does not have each row
 * once. On failure the batch is as it was. */
treadle_status treadle_batch_reorder(treadle_batch *batch, const int64_t *order, size_t count);

/* ---- Files ------------------------------------------------------------------------------------- */

/* Writes a batch as a folder, which is there when it is whole: batch.json (rows, columns, meta), columns.safetensors
 * (numbers and bytes, each under the column's name; offsets under NAME.offsets, from 0) and texts.jsonl (an object of
 * texts a row). A file that would be empty is not written. If there is such a folder, it is replaced. Refused:
 * something else at this path. */
treadle_status treadle_batch_save(const treadle_batch *batch, const char *folder);
/* Reads such a folder. Refused, by file, row and column: what treadle_batch_save does not write. On failure *batch_p is
 * NULL. */
treadle_status treadle_batch_load(const char *folder, treadle_batch **batch_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
