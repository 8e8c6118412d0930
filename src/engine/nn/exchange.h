/* Exchanges, as parallel_*.c know them. */
#ifndef TREADLE_NN_EXCHANGE_H
#define TREADLE_NN_EXCHANGE_H

#include "nn/parallel.h"

typedef enum treadle_exchange_kind {
  TREADLE_EXCHANGE_SUM = 1,
  TREADLE_EXCHANGE_COLUMNS,
  TREADLE_EXCHANGE_SLOTS
} treadle_exchange_kind;

/* What stands before the numbers of a part. */
typedef struct treadle_exchange_header {
  _Alignas(64) int64_t kind;
  treadle_exchange_part part;
} treadle_exchange_header;

struct treadle_exchange {
  treadle_board_set *set;
  uint64_t at, elems; /* in the board's part of each rank, and of each half's numbers */
  int64_t divide;     /* sums of which a rank reads this many elements of others are divided */
  uint64_t turn;      /* parts that were brought; the halves of the memory take turns */
  const treadle_exchange_part **all; /* [count] of the last turn, in the set's order */
  const float **numbers;             /* [count] */
  int32_t *order;                    /* [count] members by `first` */
  treadle_leaf_node *nodes;          /* [count * TREADLE_LEAF_NODES_MAX] of a sum, in the order of leaves */
  const float **values;              /* of each node */
};

/* A sum is divided among the ranks where each would read this many elements of others, unless `divide` is changed (tests,
 * bench/board.c). With 2, 4 and 8 ranks on 2 processors both are as fast at about 16,000, 9,000 and 7,000. */
enum { TREADLE_EXCHANGE_DIVIDE = 8192 };

/* Says what this rank's part is, waits for the others', and looks whether they fit together. needed: elements of the room. */
treadle_status treadle_exchange_meet(treadle_exchange *exchange, treadle_exchange_kind kind,
                                     const treadle_exchange_part *mine, int64_t needed, const char *what);

#endif
