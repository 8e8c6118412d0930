/* What the processor hands to the kernels of a CUDA device: tables that lie on the device or in pinned memory, and one
 * struct by value for each launch. Host files in C, and kernel_cuda.cu, include it.
 *
 * An op of a plan becomes a few boxes (cut_cuda.h), and a box some items; a block of threads takes one item after
 * another. */
#ifndef TREADLE_MEMORY_KERNEL_CUDA_H
#define TREADLE_MEMORY_KERNEL_CUDA_H

#if defined(__CUDA__) && !defined(__NVCC__) /* clang without any header */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

enum {
  TREADLE_CUDA_THREADS = 256,         /* of a block */
  TREADLE_CUDA_BLOCKS_AT_ONCE = 4,    /* a multiprocessor has room for as many, or more */
  TREADLE_CUDA_AXES = 7,              /* one more than an op has: a very long one becomes two */
  TREADLE_CUDA_TILE = 64,             /* values on a side of a tile */
  TREADLE_CUDA_ITEM_BYTES = 64 << 10, /* about as many are written by an item */
  TREADLE_CUDA_MOST_SIZE = 1 << 30    /* of a box on an axis */
};

/* treadle_dtype, which kernels cannot include. */
enum {
  TREADLE_CUDA_FP32 = 1,
  TREADLE_CUDA_BF16,
  TREADLE_CUDA_FP16,
  TREADLE_CUDA_FP8_E4M3,
  TREADLE_CUDA_INT32
};

/* A view: byte b lies at base + table[b >> page_shift] << page_shift + b's place in its page. */
typedef struct treadle_cuda_view {
  uint64_t base;  /* an address; it may lie outside of any memory */
  uint64_t table; /* the address of int32_t [pages], which the device can read; 0: contiguous at base */
  int64_t at;     /* the byte at which the box begins */
  int32_t page_shift;
  int32_t unused;
} treadle_cuda_view;

/* What a box is made of, and what its units are.
 *   rows    the last axis is dense on both sides, and bits stay as they are: units of `width` bytes
 *   values  converted, or their bits copied: units of `width` values, 1, or 8 that are dense
 *   tiles   values, of which the source is read faster along the last axis but one: they turn in shared memory
 *   fill    nothing is read: units of `width` bytes are set to `value` */
typedef enum treadle_cuda_kind {
  TREADLE_CUDA_ROWS = 0,
  TREADLE_CUDA_VALUES,
  TREADLE_CUDA_TILES,
  TREADLE_CUDA_FILL
} treadle_cuda_kind;

/* A box. Axes run from slow to fast by the destination's strides; those of one element are dropped, and neighbours
 * merged. Each unit lies in one page, and is aligned as the device needs it, unless it is read and written byte by
 * byte. */
typedef struct treadle_cuda_box {
  treadle_cuda_view from, to;
  int64_t from_stride[TREADLE_CUDA_AXES], to_stride[TREADLE_CUDA_AXES]; /* bytes, of any sign */
  uint32_t size[TREADLE_CUDA_AXES];                                     /* of units */
  uint8_t ndim;                                                         /* at least 1 */
  uint8_t kind, width;
  uint8_t by_bytes; /* of values and fills: single ones at any address, across borders of pages */
  uint64_t mark;    /* treadle_op_mark of its op, in the first of its boxes; else 0 */
  uint64_t value;   /* of a fill: that of an element, again and again */
  uint8_t from_dtype, to_dtype; /* treadle_dtype */
  int8_t add;
  uint8_t is_first; /* among the boxes of its op */
  uint32_t unused;
} treadle_cuda_box;

/* A part of a box: `count` units (tiles: one) from number `start` on, in the order of the box. */
typedef struct treadle_cuda_item {
  uint32_t box, count;
  uint64_t start;
} treadle_cuda_item;

/* What an item has written, said by who wrote it. */
typedef struct treadle_cuda_count {
  uint64_t bytes;
  uint64_t mark; /* of an op's first item; else 0 */
} treadle_cuda_count;

/* Kernel treadle_cuda_copy, any number of blocks. Addresses of arrays, multiples of 8. */
typedef struct treadle_cuda_copy_args {
  uint64_t boxes, items;
  uint64_t counts; /* treadle_cuda_count [count]; 0: nobody counts */
  uint32_t count;  /* of items */
  uint32_t unused;
} treadle_cuda_copy_args;

/* A strip of blocks of at most 128 x 128 values (treadle_strip of treadle_device.h). Nothing needs an alignment. */
typedef struct treadle_cuda_strip {
  uint64_t values, codes, scales;                                            /* addresses */
  int64_t values_row, values_column, codes_row, codes_column, scales_column; /* strides, bytes */
  uint32_t rows, columns;
  uint32_t width, skip;
  uint8_t dtype; /* treadle_dtype of the values */
  uint8_t back;  /* codes to values */
  uint8_t unused[6];
} treadle_cuda_strip;

/* A block of a strip, by its number from the left. */
typedef struct treadle_cuda_block {
  uint32_t strip, number;
} treadle_cuda_block;

/* Kernel treadle_cuda_blocks: a block of threads takes one of these after another. Addresses of arrays, multiples of
 * 8. */
typedef struct treadle_cuda_blocks_args {
  uint64_t strips;
  uint64_t blocks; /* treadle_cuda_block [count] */
  uint32_t count;
  uint32_t unused;
} treadle_cuda_blocks_args;

/* Elements of a tensor in a window (treadle_elements of treadle_device.h). Kernels treadle_cuda_generate and
 * treadle_cuda_hash. */
typedef struct treadle_cuda_elements {
  uint64_t window; /* address */
  uint64_t tensor;
  int64_t at, index;
  int64_t stride[TREADLE_CUDA_AXES], weight[TREADLE_CUDA_AXES];
  int64_t size[TREADLE_CUDA_AXES];
  uint8_t ndim, dtype, near_one;
  int8_t add;
  uint32_t unused;
} treadle_cuda_elements;

/* treadle_cuda_generate: one. treadle_cuda_hash: `count` of them from an array, and sums [count], which begin with 0.
 * Blocks of threads share all of the elements among them. */
typedef struct treadle_cuda_elements_args {
  treadle_cuda_elements one; /* where `many` is 0 */
  uint64_t many, sums;
  uint32_t count; /* 1 where `many` is 0 */
  uint32_t unused;
} treadle_cuda_elements_args;

#endif
