/* The list of kinds of attention; checks; how rows are divided among threads. */
#include "nn/attention.h"

#include "nn/attention_kinds.h"
#include "nn/rows.h"

#include <math.h>
#include <stddef.h>

/* The places are those of rows.c. */
static const treadle_attention_ops *const list[] = {
    &treadle_attention_ops_plain, &treadle_attention_ops_avx2, &treadle_attention_ops_avx512};
enum { KINDS = sizeof list / sizeof *list };

const treadle_attention_ops *const *treadle_attention_ops_list(int *count_p) {
  *count_p = KINDS;
  return list;
}

const treadle_attention_ops *treadle_attention_ops_choose(void) {
  return list[treadle_row_ops_place(NULL)];
}

const treadle_attention_ops *treadle_attention_ops_for(const char *kernels) {
  return list[treadle_row_ops_place(kernels)];
}

treadle_status treadle_attention_check(const treadle_attention_spec *spec) {
  treadle_status status;
  TRY(treadle_kv_check(&spec->kv));
  if (spec->heads < 1 || spec->heads > 65536 || spec->heads % spec->kv.heads)
    REFUSE("%lld query heads with %lld key-value heads: they are a multiple", (long long)spec->heads,
           (long long)spec->kv.heads);
  if (!isfinite(spec->scale)) REFUSE("the scale of attention is not finite");
  if (spec->window < 0) REFUSE("a window of %lld keys: it has at least 1", (long long)spec->window);
out:
  return status;
}

int64_t treadle_attention_scratch_bytes(const treadle_attention_spec *spec) {
  return (int64_t)sizeof(attention_scratch) + attention_memory(spec) * (int64_t)sizeof(float);
}

/* Keys that the first `count` rows see, and this many more for what a row costs by itself. */
static int64_t cost_of(const treadle_attention_spec *spec, const treadle_attention_rows *rows,
                       int64_t count) {
  enum { OF_ITSELF = 32 };
  int64_t growing = count;
  if (spec->window > 0) {
    growing = spec->window - rows->position;
    growing = growing < 0 ? 0 : growing > count ? count : growing;
  }
  return count * OF_ITSELF + growing * rows->position + growing * (growing + 1) / 2 +
         (count - growing) * spec->window;
}

int64_t treadle_attention_cost(const treadle_attention_spec *spec, const treadle_attention_rows *rows) {
  return cost_of(spec, rows, rows->count) * spec->kv.heads;
}

int64_t treadle_attention_item_at(const treadle_attention_spec *spec, const treadle_attention_rows *rows,
                                  int64_t cost) {
  int64_t head_cost = cost_of(spec, rows, rows->count);
  if (cost <= 0 || head_cost == 0) return 0;
  if (cost >= head_cost * spec->kv.heads) return rows->count * spec->kv.heads;
  int64_t low = 0, high = rows->count; /* rows of the head in which the border lies */
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (cost_of(spec, rows, middle) < cost % head_cost)
      low = middle + 1;
    else
      high = middle;
  }
  return cost / head_cost * rows->count + low;
}
