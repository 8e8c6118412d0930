/* Which rows a step takes. Rows are counted on through all epochs, and each epoch has them in another order, a function of seed and
 * epoch alone, or all have them in their own: what was taken so far is a number. A batch may end an epoch and begin the next one; no row is left out. */
#ifndef TREADLE_RUN_ORDER_H
#define TREADLE_RUN_ORDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct treadle_train_order {
  uint64_t seed;
  size_t rows;
  size_t *places; /* [rows] of epoch `epoch` */
  int64_t epoch;
  bool in_place; /* row i is number i of each epoch */
} treadle_train_order;

/* rows >= 1 */
treadle_status treadle_train_order_init(treadle_train_order *order, uint64_t seed, size_t rows);
/* From now on rows come in their own order. */
void treadle_train_order_keep(treadle_train_order *order);
void treadle_train_order_release(treadle_train_order *order);
/* The row that is taken as number `number`, from 0. */
size_t treadle_train_order_at(treadle_train_order *order, int64_t number);

#endif
