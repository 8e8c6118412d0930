#include "control/divide.h"

#include "base/status.h"

treadle_status treadle_engine_divide(const treadle_train_engine *engine, int64_t ranks,
                                     const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank) {
  treadle_status status;
  TRY(engine->coordinate_of(engine->engine, lengths, rows, forward, by_rank));
  for (int64_t rank = 0; rank < ranks; rank++) {
    const treadle_row_range *r = &by_rank[rank];
    if (r->first < 0 || r->end < r->first || r->end > rows)
      REFUSE("the train engine's coordinate_of gives rank %lld rows %lld to %lld of %lld", (long long)rank,
             (long long)r->first, (long long)r->end, (long long)rows);
  }
out:
  return status;
}
