#include "run/order.h"

#include "base/alloc.h"
#include "base/random.h"

/* Fisher and Yates. */
static void shuffle(treadle_train_order *order, int64_t epoch) {
  treadle_random random = {treadle_mix64(order->seed ^ treadle_mix64((uint64_t)epoch + 1))};
  for (size_t i = 0; i < order->rows; i++) order->places[i] = i;
  for (size_t i = order->rows; i-- > 1;) {
    size_t other = (size_t)treadle_random_below(&random, (int64_t)i + 1), row = order->places[i];
    order->places[i] = order->places[other];
    order->places[other] = row;
  }
  order->epoch = epoch;
}

treadle_status treadle_train_order_init(treadle_train_order *order, uint64_t seed, size_t rows) {
  *order = (treadle_train_order){.seed = seed, .rows = rows};
  order->places = treadle_alloc_array(rows, sizeof *order->places);
  if (!order->places) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the order of %zu rows", rows);
  shuffle(order, 0);
  return TREADLE_OK;
}

void treadle_train_order_release(treadle_train_order *order) {
  treadle_free(order->places);
  order->places = NULL;
}

void treadle_train_order_keep(treadle_train_order *order) { order->in_place = true; }

size_t treadle_train_order_at(treadle_train_order *order, int64_t number) {
  if (order->in_place) return (size_t)number % order->rows;
  int64_t epoch = number / (int64_t)order->rows;
  if (epoch != order->epoch) shuffle(order, epoch);
  return order->places[number % (int64_t)order->rows];
}
