/* Sums of ranks.
 *
 * Every rank has written its nodes, and all meet. A small sum is then added by every rank for itself: nobody waits a second time. Of a
 * large sum each rank adds a part of the elements, all meet again, and copy each other's parts: the ranks share the processors, so
 * what each would read of all others is time of all. A rank leaves its part in its own first node: of those elements nobody
 * else reads that node. */
#include "nn/exchange.h"

#include "base/checked.h"

#include <string.h>

enum { LINE = 16 /* elements of a cache line */ };

/* The nodes of all ranks, in the order of their leaves. */
static int32_t collect(treadle_exchange *x, int64_t elems) {
  int32_t count = 0;
  for (int i = 0; i < x->set->count; i++) {
    int member = x->order[i];
    const treadle_exchange_part *part = x->all[member];
    const treadle_leaf_range range = {(int32_t)part->first, (int32_t)(part->end - part->first),
                                      (int32_t)part->of};
    int32_t more = treadle_leaf_nodes(range, x->nodes + count);
    for (int32_t n = 0; n < more; n++) x->values[count + n] = x->numbers[member] + n * elems;
    count += more;
  }
  return count;
}

/* Where the elements of member i begin. */
static int64_t begin_of(int64_t elems, int member, int count) {
  int64_t lines = (elems + LINE - 1) / LINE, at = lines * member / count * LINE;
  return at < elems ? at : elems;
}

static treadle_status add_divided(treadle_exchange *x, int32_t nodes, float *own, int64_t elems, float *sum,
                                  const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_board_set *set = x->set;
  int64_t begin = begin_of(elems, set->index, set->count);
  int64_t end = begin_of(elems, set->index + 1, set->count);
  for (int32_t n = 0; n < nodes; n++) x->values[n] += begin;
  treadle_leaf_combine((int32_t)x->all[0]->of, x->nodes, x->values, nodes, own + begin, end - begin);
  TRY(treadle_board_meet(x->set, what));
  for (int i = 0; i < set->count; i++) {
    begin = begin_of(elems, i, set->count);
    end = begin_of(elems, i + 1, set->count);
    if (end > begin) memcpy(sum + begin, x->numbers[i] + begin, (size_t)(end - begin) * sizeof *sum);
  }
out:
  return status;
}

treadle_status treadle_parallel_sum(treadle_exchange *exchange, treadle_leaf_range mine, int64_t rows,
                                    int64_t columns, float *sum, const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_exchange_part part = {mine.all, mine.first, (int64_t)mine.first + mine.leaves, rows,
                                      columns};
  bool good = mine.all >= 1 && mine.all <= TREADLE_LEAVES_MAX && mine.first >= 0 && mine.leaves >= 0 &&
              mine.leaves <= mine.all - mine.first;
  int64_t own_nodes = good ? treadle_leaf_nodes(mine, NULL) : 0;
  const int64_t sizes[] = {own_nodes > 1 ? own_nodes : 1, rows, columns};
  int64_t needed;
  if (!good || !treadle_product_fits(sizes, 3, &needed)) needed = -1;
  float *own = treadle_exchange_room(exchange);
  TRY(treadle_exchange_meet(exchange, TREADLE_EXCHANGE_SUM, &part, needed, what));
  int64_t elems = rows * columns;
  int32_t nodes = collect(exchange, elems);
  if (exchange->set->count > 1 && elems * (exchange->set->count - 1) >= exchange->divide)
    TRY(add_divided(exchange, nodes, own, elems, sum, what));
  else
    treadle_leaf_combine(mine.all, exchange->nodes, exchange->values, nodes, sum, elems);
out:
  return status;
}
