/* Work of several ranks on one result, over a board.
 *
 *   exchange   the ranks of a set bring a part each, in memory that all of them see:
 *     sum        partial sums of a product whose inner dimension is cut: all get the sum that one rank alone would have
 *     columns    the columns of a matrix, such as logits: all can have whole rows
 *     slots      what the experts of each rank made, read in place
 *   ring       rows on their way from one rank to another, such as the next pipeline stage
 *
 * An exchange is used so: the rank writes its part into treadle_exchange_room(), calls one of the functions that meet, and reads
 * what the others brought. That stays until it calls the next of these functions. All ranks of the set make the same calls in the
 * same order; each says what its part is, and what does not fit together is refused. Memory is double: a rank may write its next
 * part while others read the last one, so a sum takes one meeting (a large one two, see parallel_sum.c).
 *
 * A failure is the board's: group/board.h. `what` is for messages. Numbers are fp32. Nothing here takes memory after it was
 * made. */
#ifndef TREADLE_NN_PARALLEL_H
#define TREADLE_NN_PARALLEL_H

#include "group/board.h"
#include "nn/leaf_tree.h"

/* ---- Exchanges ---- */

typedef struct treadle_exchange treadle_exchange;

/* What a rank says of its part. */
typedef struct treadle_exchange_part {
  int64_t of, first, end; /* it has [first, end) of this many columns or slots; maybe none */
  int64_t rows, columns;  /* of each matrix */
} treadle_exchange_part;

/* One matrix, slot `number`; a rank that brings nothing only meets the others. */
static inline treadle_exchange_part treadle_exchange_slot(int64_t of, int64_t number, bool brings,
                                                          int64_t rows, int64_t columns) {
  return (treadle_exchange_part){
      .of = of, .first = number, .end = brings ? number + 1 : number, .rows = rows, .columns = columns};
}

/* Bytes of the board for parts of this many elements. */
uint64_t treadle_exchange_memory(uint64_t elems);

/* Uses the bytes from `at`, a multiple of 64, of the board's part of each rank of the set; the same for all. Local; the exchange
 * ends before its board. */
treadle_status treadle_exchange_create(treadle_board_set *set, uint64_t at, uint64_t elems,
                                       treadle_exchange **exchange_p);
void treadle_exchange_destroy(treadle_exchange *exchange);

/* Where this rank writes its next part: [elems]. */
float *treadle_exchange_room(treadle_exchange *exchange);

/* ---- Sums ---- */

/* The room has the sums of this rank's nodes of the leaf tree (treadle_leaf_nodes of `mine`), [nodes, rows, columns]; it takes
 * max(nodes, 1) * rows * columns elements. sum: [rows, columns], the sum of all leaves added in the tree: the same bits on every
 * rank, however the leaves are divided. Each leaf is some rank's, once; a rank may have none. `sum` may not lie in the room. */
treadle_status treadle_parallel_sum(treadle_exchange *exchange, treadle_leaf_range mine, int64_t rows,
                                    int64_t columns, float *sum, const char *what);

/* ---- Columns ---- */

/* The room has columns [first, end) of a matrix of `of` columns: [rows, columns], where columns beyond end - first are padding.
 * Each column is some rank's, once. */
treadle_status treadle_parallel_columns(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                        const char *what);
/* Then: a whole row, to [of]. Any thread. */
void treadle_parallel_row(const treadle_exchange *exchange, int64_t row, float *to);
/* Both, for all rows: `all` is [rows, of]. */
treadle_status treadle_parallel_gather(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                       float *all, const char *what);

/* ---- Slots ---- */

/* The room has [end - first, rows, columns] of slots [first, end). Ranks have the same slots and columns, and may differ in rows. A
 * slot that several ranks have is read from the first of them. */
treadle_status treadle_parallel_slots(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                      const char *what);
/* Then: a slot, [rows, columns] of its rank, in place; NULL: no rank has it. Any thread. */
const float *treadle_parallel_slot(const treadle_exchange *exchange, int64_t slot, int64_t *rows_p);
/* And the columns of what member `member` of the set has brought. */
int64_t treadle_parallel_columns_of(const treadle_exchange *exchange, int member);

/* ---- Rings ---- */

typedef struct treadle_ring treadle_ring;

typedef struct treadle_ring_spec {
  int from, to;   /* ranks */
  int number;     /* the board's counter that both use for it, and for nothing else */
  int slots;      /* that may be full at once */
  uint64_t at;    /* where in the board's part of `from`, a multiple of 64 */
  uint64_t elems; /* of a slot */
} treadle_ring_spec;

/* Bytes of the board. */
uint64_t treadle_ring_memory(int slots, uint64_t elems);

/* Local, on both ranks, with the same spec; the ring ends before its board. */
treadle_status treadle_ring_create(treadle_board *board, const treadle_ring_spec *spec,
                                   treadle_ring **ring_p);
void treadle_ring_destroy(treadle_ring *ring);

/* On `from`: waits until a slot is free, and gives it, [elems]; send hands it over as [rows, columns]. */
treadle_status treadle_ring_room(treadle_ring *ring, float **room_p, const char *what);
treadle_status treadle_ring_send(treadle_ring *ring, int64_t rows, int64_t columns);

/* On `to`: waits for the next slot, which must be [rows, columns], and reads it in place; release lets the sender have it back. */
treadle_status treadle_ring_take(treadle_ring *ring, int64_t rows, int64_t columns, const float **rows_p,
                                 const char *what);
void treadle_ring_release(treadle_ring *ring);

#endif
