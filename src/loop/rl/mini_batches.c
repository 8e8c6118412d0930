#include "rl/mini_batches.h"

#include "base/hash.h"
#include "run/order.h"

#include <string.h>

treadle_status treadle_rl_mini_order(size_t count, bool shuffles, uint64_t seed, int64_t step,
                                     int64_t epoch, int64_t *places) {
  treadle_train_order order;
  treadle_status status = TREADLE_OK;
  uint64_t mixed = treadle_hash_more(treadle_hash_more(seed, (uint64_t)step), (uint64_t)epoch);
  for (size_t i = 0; i < count; i++) places[i] = (int64_t)i;
  if (!shuffles || !count) return TREADLE_OK;
  TRY(treadle_train_order_init(&order, mixed, count));
  for (size_t i = 0; i < count; i++) places[i] = (int64_t)treadle_train_order_at(&order, (int64_t)i);
  treadle_train_order_release(&order);
out:
  return status;
}
