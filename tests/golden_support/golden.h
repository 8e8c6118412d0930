/* Comparing answers about layouts with tests/golden: what the real libraries did (SOURCE*.txt there).
 *
 * A golden file has cases. A checker turns a case into a config, a layout text and a number of ranks, asks
 * a subject for that layout, and compares names, shapes and the source of every element, or a table of
 * stages, rows or coordinates. The subject is the library (golden_library) or any other source of layouts:
 * the oracle is held against the same files. A new type of file is one row in golden.c. */
#ifndef TREADLE_TESTS_GOLDEN_H
#define TREADLE_TESTS_GOLDEN_H

#include "treadle.h"

#include <jansson.h>

/* Who is asked. A layout is opened with its model; tensors are numbered as the subject likes. */
typedef struct golden_subject {
  const char *name;
  int64_t max_elems; /* cases with larger models are skipped; 0: any size */
  /* NULL: refused, and reason() says why. */
  void *(*open)(json_t *config, const char *text, int64_t ranks);
  const char *(*reason)(void);
  void (*close)(void *layout);
  int32_t (*tensor_count)(const void *layout); /* canonical ones, without copies; one for each expert's */
  bool (*tensor)(const void *layout, int32_t tensor, treadle_tensor_info *info_p);
  /* Names of copies lead to the canonical tensor; -1: none. Names of fp8 block scales, which are no canonical
   * tensors, have numbers of their own, as in the tensors of runs. */
  int32_t (*find)(const void *layout, const char *name);
  int32_t (*storage_count)(const void *layout, int64_t rank);
  bool (*storage)(const void *layout, int64_t rank, int32_t storage, treadle_storage_info *info_p);
  bool (*runs)(const void *layout, int64_t rank, int32_t storage, treadle_run **runs_p, size_t *count_p);
  bool (*coordinate)(const void *layout, int64_t rank, const char *dimension, int64_t *index_p);
} golden_subject;

extern const golden_subject golden_library;

typedef struct golden_counts {
  int cases, equal, refused, skipped, different;
} golden_counts;

/* Checks every case of a .json or .json.gz file; each difference is a line on `differences`. False when the
 * file cannot be read or nobody knows its pattern. */
bool golden_check_file(const char *path, const golden_subject *subject, FILE *differences,
                       golden_counts *counts_p);

/* NULL, and a line on stderr, when it cannot be read. Ended by json_decref. */
json_t *golden_load(const char *path);

#endif
