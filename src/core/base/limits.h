/* The stated limits of treadle: what is larger is refused where it comes in, with the number and the limit, so that everything
 * behind can multiply freely, and no table is made for what no machine could hold. docs/cli.md has them as a table for users;
 * tests/core/base/test_limits_table.c compares the two.
 *
 * The largest models of today have 2^41 elements, 2^17 names and 2^12 tensors; a rank of them has 2^18 pages. */
#ifndef TREADLE_BASE_LIMITS_H
#define TREADLE_BASE_LIMITS_H

#include <stdint.h>

/* Elements of a model, each once, and so of a tensor. With 4 bytes each, twice that in a window for padding, and positions that
 * are multiplied with counts and 8192 in 128 bits, nothing overflows. */
#define TREADLE_MAX_ELEMS (INT64_C(1) << 50)
/* Bytes of one rank's window. */
#define TREADLE_MAX_WINDOW_BYTES (INT64_C(1) << 54)

enum {
  TREADLE_MAX_TENSORS = 1 << 18,  /* of a model, experts stacked */
  TREADLE_MAX_NAMES = 1 << 21,    /* of a model's tensors as Hugging Face names them */
  TREADLE_MAX_STORAGES = 1 << 20, /* storage tensors of all stages of a layout; parameters of a flat one */
  TREADLE_MAX_STAGES = 1 << 17,   /* pipeline stages times virtual ones */
  TREADLE_MAX_PAGES = 1 << 23,    /* of one rank's window in a plan */
  TREADLE_MAX_OWNER_RUNS = 1 << 10, /* runs of ranks in on= of a layout */
  TREADLE_MAX_TABLE_RANKS =
      1 << 20,                  /* ranks that a table is made of: reports over all ranks, explicit pieces */
  TREADLE_MAX_BLOCKS = 1 << 24, /* fp8 blocks of a tensor */
  TREADLE_MAX_COLUMNS = 1 << 26, /* and its columns: a row of blocks is made at once */
  TREADLE_MAX_CELLS = 1 << 20,   /* parts in which the ranks of one layout have one tensor, asked at once */
  TREADLE_MAX_CUTS = 1 << 23,    /* parts that the windows of one rank fall into in a plan */
  TREADLE_MAX_TOUCHES =
      1 << 22, /* such parts that are kept, because they touch pages otherwise than those before */
  TREADLE_MAX_RUNS = 1 << 23, /* of a storage tensor, when its runs are listed; of a piece that is given */
  TREADLE_MAX_TOKENS = 1 << 22,    /* ids of a tokenizer */
  TREADLE_MAX_TEXT_BYTES = 1 << 28 /* of a text that is encoded at once */
};

/* Rows of a batch. */
#define TREADLE_MAX_ROWS (INT64_C(1) << 32)

/* Limits of a report: the plans of all ranks together look at at most TREADLE_PLANNED_CUTS parts, and at one more for
 * every TREADLE_BYTES_OF_A_CUT bytes of the model. */
#define TREADLE_PLANNED_CUTS (INT64_C(1) << 25)
enum { TREADLE_BYTES_OF_A_CUT = 256 };

/* Parts that are looked at when ranks are compared, pages of both windows of all sets of equal ranks, bytes of all windows. */
#define TREADLE_MAX_REPORT_CUTS  (INT64_C(1) << 28)
#define TREADLE_MAX_REPORT_PAGES (INT64_C(1) << 26)
#define TREADLE_MAX_REPORT_BYTES (INT64_C(1) << 62)

#endif
