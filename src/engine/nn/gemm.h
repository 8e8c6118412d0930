/* Products of activations and weights: y[row, out] = the sum over k of x[row, k] * w[out, k], for all rows at once.
 *
 * A kernel is one way of doing it, on one kind of processor; they stand in a table. In each of them the bits of a row of y follow from
 * that row of x and the weights alone: not from the number of rows, the row's place, the columns beside it, threads, alignment or the
 * cut of the inner dimension into leaves that ranks have (nn/leaf_tree.h). Different kernels add in different orders, and
 * give different bits. Each has its order written at the top of its file.
 *
 * Weights are read where they lie: bf16 or fp32, row-major, at any alignment of their elements. One product may read several storage
 * tensors or parts of them, its segments. With bf16 weights x is rounded to bf16 (nearest, ties to even), unless the product is a fine one:
 * then x is read as fp32, or, by a kernel that has nothing but bf16, as the sum of two such numbers. Products are added in fp32.
 * Weights are finite; who loads them sees to it. Subnormal values may count as 0, where a kernel says so.
 *
 *   pack  brings x into the form that the kernel reads, once for all products that share it; packed_bytes says how large that is
 *   run   computes a product
 *
 * Both may be called by several threads, each with its part (`index` of `count`); all parts of the packing are done before the first part
 * of a product begins. They allocate nothing and cannot fail; run uses up to 160 KiB of the stack. */
#ifndef TREADLE_NN_GEMM_H
#define TREADLE_NN_GEMM_H

#include "base/status.h"
#include "nn/leaf_tree.h"

/* The inner dimension: `range` of leaves, each `leaf` elements; k counts from the first element of the first leaf of the range. */
typedef struct treadle_gemm_inner {
  treadle_dtype dtype; /* of the weights: TREADLE_BF16 or TREADLE_FP32 */
  int32_t leaf;
  treadle_leaf_range range;
  bool fine; /* x is not rounded; such a product is neither gated nor turned */
} treadle_gemm_inner;

typedef struct treadle_gemm_segment {
  const void *weights; /* [rows, leaves * leaf], `stride` elements from a row to the next */
  int64_t rows, stride;
  int64_t column;    /* of y, that of the first row */
  const void *gates; /* of a gated product: rows of another matrix, as many, with the same stride */
} treadle_gemm_segment;

typedef struct treadle_gemm_source {
  treadle_gemm_inner inner;
  const float *x; /* [rows, leaves * leaf], `stride` elements from a row to the next */
  int64_t rows, stride;
  /* In place of x, for a kernel that can turn: x turned, [leaves * leaf] pointers to [rows] elements of this type. NULL: zeros. */
  const void *const *turned;
  treadle_dtype turned_dtype; /* TREADLE_BF16 or TREADLE_FP32 */
} treadle_gemm_source;

/* Segments do not share columns. In a gated product, of one leaf, y is silu(g) * u as nn/rows.h has it, where g is the product with the
 * gates and u that with the weights. Sums of node n (treadle_leaf_nodes) lie at y + n * node_stride. */
typedef struct treadle_gemm_product {
  treadle_gemm_inner inner;
  const void *packed; /* x */
  int64_t rows;
  const treadle_gemm_segment *segments;
  int32_t count; /* of segments */
  float *y;      /* [nodes, rows, columns], `stride` elements from a row to the next */
  int64_t stride, node_stride;
  bool gated;  /* only where the kernel can */
  bool turned; /* y is [nodes, columns, rows]; only where the kernel can turn */
  bool adds;   /* sums are added to y; only where the kernel can turn */
} treadle_gemm_product;

typedef struct treadle_gemm_kernel {
  const char *name;
  const char *about; /* what it needs of a processor, in a few words */
  bool gates;        /* can it do gated products? */
  bool turns;        /* can it take x turned, and give y turned? */
  /* NULL where this machine can run it, else why not. */
  const char *(*lacks)(void);
  /* Has it a form for leaves of this type and size? */
  bool (*takes)(treadle_dtype dtype, int32_t leaf);
  size_t (*packed_bytes)(treadle_gemm_inner inner, int64_t rows);
  void (*pack)(const treadle_gemm_source *source, void *packed, int32_t index, int32_t count);
  void (*run)(const treadle_gemm_product *product, int32_t index, int32_t count);
} treadle_gemm_kernel;

enum { TREADLE_GEMM_ALIGNMENT = 64 /* bytes, of packed x */ };

/* Kernel `number`, from 0, in the order of the table: the plain one first, the one to prefer last. NULL: there are no more. */
const treadle_gemm_kernel *treadle_gemm_kernel_at(int32_t number);

/* The kernel of this name, for leaves of this type and size; with "auto", the preferred one that takes them and runs here. Refused:
 * unknown names, a kernel that this machine lacks, a type that is neither bf16 nor fp32. A named kernel that does not take the leaves is
 * replaced by the preferred one before it in the table that does, so that one name serves all products of a model. */
treadle_status treadle_gemm_choose(const char *name, treadle_dtype dtype, int32_t leaf,
                                   const treadle_gemm_kernel **kernel_p);

#endif
