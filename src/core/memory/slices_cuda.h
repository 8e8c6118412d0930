/* Page tables of views, as the kernels of a CUDA device read them: the parts of them that ops need, copied to where the device reads. */
#ifndef TREADLE_MEMORY_SLICES_CUDA_H
#define TREADLE_MEMORY_SLICES_CUDA_H

#include "memory/cut_cuda.h"

#include <stdbool.h>
#include <stddef.h>

/* A part of a page table, and its copy. */
typedef struct treadle_cuda_slice {
  const int32_t *table;
  int64_t first, end; /* entries */
  uint64_t at;        /* address of what would be entry 0 of the copy */
} treadle_cuda_slice;

typedef struct treadle_cuda_slices {
  treadle_cuda_slice *items;
  size_t count, capacity;
} treadle_cuda_slices;

/* What an op needs of the tables of its views; false: memory is out. From a fill nothing is read. */
bool treadle_cuda_slices_add(treadle_cuda_slices *slices, const treadle_op *op, const treadle_paged *from,
                             const treadle_paged *to);
size_t treadle_cuda_slices_bytes(const treadle_cuda_slices *slices);
/* Copies all of them to memory of the host that the device has, or will have, at `address`. */
void treadle_cuda_slices_put(treadle_cuda_slices *slices, char *to, uint64_t address);
/* What ops are cut into, and where that goes; NULL: nowhere. */
typedef struct treadle_cuda_cuts {
  int64_t box_count, item_count;
  treadle_cuda_box *boxes;
  treadle_cuda_item *items;
  int64_t *item_first; /* [count of ops + 1]: the items before each op */
} treadle_cuda_cuts;

/* Boxes and items of ops [count], one after another, in their views [count]. What has no view has no box. */
void treadle_cuda_cut_ops(const treadle_cuda_slices *slices, const treadle_op *ops,
                          const treadle_paged *from, const treadle_paged *to, size_t count,
                          treadle_cuda_cuts *cuts);

#endif
