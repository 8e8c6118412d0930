/* What the files that build layouts of explicit pieces share. */
#ifndef TREADLE_LAYOUT_EXPLICIT_PARTS_H
#define TREADLE_LAYOUT_EXPLICIT_PARTS_H

#include "layout/explicit.h"
#include "layout/layout_types.h"

/* Refuses, in a function with a status and a label out. */
#define TREADLE_EXPLICIT_REFUSE(...)                                                                       \
  do {                                                                                                     \
    status = treadle_fail(TREADLE_REFUSED, __VA_ARGS__);                                                   \
    goto out;                                                                                              \
  } while (0)

typedef struct treadle_made_storage {
  treadle_storage storage;
  const char *name;
  int64_t rank;
} treadle_made_storage;

typedef struct treadle_explicit_builder {
  treadle_layout *layout;
  treadle_explicit *explicit;
  TREADLE_ARRAY(treadle_made_storage) storages;
  TREADLE_ARRAY(treadle_rank_piece) pieces;
  treadle_dtype *dtypes; /* by tensor */
} treadle_explicit_builder;

static inline treadle_status treadle_explicit_no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "pieces: memory is out");
}

/* ---- explicit_blocks.c ---- */

/* Says whether the layout holds fp8 blocks; refuses one that holds some of the weights in codes and some in values. */
treadle_status treadle_explicit_find_fp8(treadle_explicit_builder *b);
/* Notes what keeps its blocks from being made and taken apart. */
treadle_status treadle_explicit_check_blocks(treadle_explicit_builder *b);

/* ---- explicit_windows.c ---- */

/* Sorts storages by rank, in order of appearance, lays windows out, and makes offsets count from their begin. */
treadle_status treadle_explicit_place_storages(treadle_explicit_builder *b);
/* Adds fills for what no piece covers; refuses pieces of a rank that share memory. */
treadle_status treadle_explicit_fill_gaps(treadle_explicit_builder *b);
/* Orders treadle_rank_piece by rank and storage, for qsort. */
int treadle_explicit_compare_ranks(const void *a, const void *b);

#endif
