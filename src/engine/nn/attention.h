/* Attention of query rows to the keys and values in the cache (nn/kv.h), causal, with grouped heads.
 *
 * One result is that of one query row and head: of the query, and of keys and values from position 0 to its own. Its bits
 * depend on nothing else: not on rows beside it, chunks, block_tokens, or how items are divided among threads.
 *
 * The order of additions. Keys are taken in blocks of 64 positions from position 0. In a block:
 *   1. score of each key: a chain of fused multiply-adds over the dimensions of the head in ascending order, from 0; then times
 *      `scale`.
 *   2. m' = the larger of m and the largest score (m from minus infinity); c = e^(m - m'); p = e^(score - m').
 *   3. l' = l * c + sum of p: lane i of 16 adds keys i, i + 16, i + 32, i + 48 in order, lanes are added as in nn/rows.h.
 *   4. each value of the result: times c, then a chain of fused multiply-adds p * value over the keys in ascending order.
 * At the end the result is divided by l. Keys that are masked, behind the row's position or before its window, have p = 0 in 3 and are
 * left out in 4; blocks with only such keys are left out.
 *
 * Why fused: it takes 0.7 to 0.77 of the time (docs/speed.md, "Rows and attention"), and processors that have AVX2 have FMA; plain C
 * calls fmaf, whose result is the same by the standard, though slowly. Why a chain for each key: with keys side by side in
 * the cache, 16 keys are the lanes of one vector, and one query of decoding does what 1000 rows of prefill do. */
#ifndef TREADLE_NN_ATTENTION_H
#define TREADLE_NN_ATTENTION_H

#include "nn/kv.h"

#include <stdbool.h>

enum { TREADLE_ATTENTION_BLOCK = 64 /* keys */ };

/* What all rows of a layer have in common. */
typedef struct treadle_attention_spec {
  treadle_kv_shape kv;
  int64_t
      heads; /* query heads of this rank: a multiple of kv.heads; head h reads key-value head h / (heads / kv.heads) */
  float scale;    /* of scores */
  int64_t window; /* a row sees this many keys, its own the last; 0: all */
} treadle_attention_spec;

/* Rows of one sequence, at positions that follow each other. Their own keys and values are in the cache already. */
typedef struct treadle_attention_rows {
  const float *queries;             /* [count, heads * key_dim] */
  float *out;                       /* [count, heads * value_dim]; not the same memory */
  int64_t query_stride, out_stride; /* values from row to row */
  treadle_kv_blocks blocks;
  int64_t position, count;
  treadle_kv_blocks next; /* of the rows that are run after these, to be fetched: */
  int64_t next_end;       /* positions before this one; 0: there are none */
} treadle_attention_rows;

typedef struct treadle_attention_ops {
  const char *name;
  bool (*supported)(void);
  /* Items from..to of the rows: item i is row i % count for key-value head i / count, so that a range has whole runs of rows, which
   * share what is read. `scratch` has treadle_attention_scratch_bytes, is a multiple of 64, and belongs to one thread. */
  void (*run)(const treadle_attention_spec *spec, const treadle_attention_rows *rows, int64_t from,
              int64_t to, void *scratch);
} treadle_attention_ops;

/* As for treadle_row_ops. */
const treadle_attention_ops *treadle_attention_ops_choose(void);
/* Those of the same instructions as these kernels of products, where there are some: so a name limits all of them. No bit depends on it. */
const treadle_attention_ops *treadle_attention_ops_for(const char *kernels);
const treadle_attention_ops *const *treadle_attention_ops_list(int *count_p);

/* Refuses what does not fit together. */
treadle_status treadle_attention_check(const treadle_attention_spec *spec);
int64_t treadle_attention_scratch_bytes(const treadle_attention_spec *spec);

/* To divide rows among threads: what all items cost together, causal rows by what they see; and the first item behind the items that
 * cost up to `cost`. */
int64_t treadle_attention_cost(const treadle_attention_spec *spec, const treadle_attention_rows *rows);
int64_t treadle_attention_item_at(const treadle_attention_spec *spec, const treadle_attention_rows *rows,
                                  int64_t cost);

#endif
