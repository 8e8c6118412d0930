/* What the files that build layouts of explicit pieces say to each other. */
#ifndef TREADLE_LAYOUT_GIVEN_PARTS_H
#define TREADLE_LAYOUT_GIVEN_PARTS_H

#include "layout/given.h"
#include "layout/kinds.h"

/* Refuses, in a function with a status and a label out. */
#define TREADLE_GIVEN_REFUSE(...)                                                                          \
  do {                                                                                                     \
    status = treadle_fail(TREADLE_REFUSED, __VA_ARGS__);                                                   \
    goto out;                                                                                              \
  } while (0)

typedef struct treadle_made_storage {
  treadle_storage storage;
  const char *name;
  int64_t rank;
} treadle_made_storage;

typedef struct treadle_given_builder {
  treadle_layout *layout;
  treadle_given *given;
  TREADLE_ARRAY(treadle_made_storage) storages;
  TREADLE_ARRAY(treadle_owned_piece) pieces;
  treadle_dtype *dtypes; /* by tensor */
} treadle_given_builder;

static inline treadle_status treadle_given_no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "pieces: memory is out");
}

/* ---- given_blocks.c ---- */

/* Says whether the layout holds fp8 blocks; refuses one that holds some of the weights in codes and some in values. */
treadle_status treadle_given_find_fp8(treadle_given_builder *b);
/* Notes what keeps its blocks from being made and taken apart. */
treadle_status treadle_given_check_blocks(treadle_given_builder *b);

/* ---- given_windows.c ---- */

/* Sorts storages by rank, in order of appearance, lays windows out, and makes offsets count from their begin. */
treadle_status treadle_given_place_storages(treadle_given_builder *b);
/* Adds fills for what no piece covers; refuses pieces of a rank that share memory. */
treadle_status treadle_given_fill_gaps(treadle_given_builder *b);
/* Orders treadle_owned_piece by rank and storage, for qsort. */
int treadle_given_compare_ranks(const void *a, const void *b);

#endif
