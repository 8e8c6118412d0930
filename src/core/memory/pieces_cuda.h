/* Pieces of a pool on a CUDA device, and ranges of addresses that they are mapped in: what a pool of this process (pool_cuda.c) and one of another
 * process (import_cuda.c) have in common. */
#ifndef TREADLE_MEMORY_PIECES_CUDA_H
#define TREADLE_MEMORY_PIECES_CUDA_H

#include "memory/state_cuda.h"

/* Addresses, and what is mapped there. */
typedef struct treadle_cuda_range {
  CUdeviceptr at;
  int64_t pages;   /* that have addresses */
  int32_t *mapped; /* by page: how many pages the mapping has that begins there; 0: none does */
  struct treadle_cuda_range *next;
} treadle_cuda_range;

typedef struct treadle_cuda_pieces {
  treadle_cuda *cuda;
  int64_t pages;
  size_t page_bytes;
  int32_t *of_page; /* [pages] the piece that begins there; -1: none does */
  int64_t count;
  CUmemGenericAllocationHandle *handles; /* [count]; 0: none */
  int32_t *lengths;                      /* [count] pages */
  int64_t made_pages;                    /* of pieces that have a handle */
  treadle_cuda_range *ranges;
} treadle_cuda_pieces;

/* What other processes are told of a pool before its descriptors come; then the lengths of all pieces in pages, int32_t [count]. */
typedef struct treadle_cuda_form {
  uint64_t magic, page_bytes;
  int64_t count;
} treadle_cuda_form;
enum { TREADLE_CUDA_FORM_MAGIC = 0x74706563 };

/* The page at a place of a table; NULL: that of the same number. */
static inline int64_t treadle_cuda_page_at(const int32_t *table, int64_t i) { return table ? table[i] : i; }

/* starts [pages]: does a piece begin there? cuda, pages and page_bytes are there. */
treadle_status treadle_cuda_pieces_make(treadle_cuda_pieces *pieces, const uint8_t *starts);
/* Unmaps all ranges, and lets go of all handles; between enter and leave. */
void treadle_cuda_pieces_release(treadle_cuda_pieces *pieces);
/* A new range with the pages of a table, -1: a hole; NULL: each page at its place. Fails where a table has a part of a piece. */
treadle_status treadle_cuda_range_make(treadle_cuda_pieces *pieces, const int32_t *table, int64_t pages,
                                       int access, treadle_cuda_range **range_p);

#endif
