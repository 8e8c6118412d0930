/* Flat layouts: boxes of an address range, and the tables of flat buffers. */
#include "flat/flat.h"

#include "base/larger.h"

#include <assert.h>
#include <inttypes.h>

bool treadle_round_up(int64_t at, int64_t step, int64_t *rounded_p) {
  int64_t rest = at % step;
  return !__builtin_add_overflow(at, rest ? step - rest : 0, rounded_p);
}

treadle_span treadle_span_chunk(treadle_span span, int64_t count, int64_t rank) {
  int64_t n = span.high - span.low, chunk = n / count + (n % count != 0);
  bool past = chunk == 0 || rank > n / chunk; /* so that rank * chunk cannot overflow */
  int64_t begin = past ? n : rank * chunk;
  return (treadle_span){span.low + begin, span.low + begin + treadle_smaller(chunk, n - begin)};
}

/* ---- Clipping ------------------------------------------------------------------------------------ */

treadle_strided treadle_strided_whole(const int64_t *axis, int naxes, int64_t offset) {
  treadle_strided whole = {.offset = offset};
  int64_t stride = 1;
  for (int a = TREADLE_MAX_AXES - 1; a >= 0; a--) {
    whole.box.size[a] = a < naxes ? axis[a] : 1;
    whole.stride[a] = stride;
    stride *= whole.box.size[a];
  }
  return whole;
}

treadle_nest treadle_nest_of(const treadle_strided *from) {
  treadle_nest n = {0};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    if (from->box.size[a] == 1) continue;
    int i = n.count++;
    for (; i > 0 && from->stride[n.order[i - 1]] < from->stride[a]; i--) n.order[i] = n.order[i - 1];
    n.order[i] = a;
  }
  int64_t reach = 1;
  for (int i = n.count - 1; i >= 0; i--) {
    int a = n.order[i];
    assert(from->box.size[a] > 1 && from->stride[a] >= reach);
    n.reach[i] = reach;
    reach += (from->box.size[a] - 1) * from->stride[a];
  }
  return n;
}

/* `part` is one step of all axes before `level`, and comes back as it was. low and high count from its first element. Steps of an
 * axis lie one behind the other, so only the first that is met can begin before low, and only the last can
 * end behind high. */
static treadle_status clip(const treadle_nest *n, int level, treadle_strided *part, int64_t low,
                           int64_t high, treadle_strideds *parts) {
  treadle_status status = TREADLE_OK;
  if (level == n->count) return treadle_array_push(parts, *part);
  int a = n->order[level];
  int64_t stride = part->stride[a], reach = n->reach[level], size = part->box.size[a];
  int64_t start = part->box.start[a], offset = part->offset;
  int64_t first = low < reach ? 0 : (low - reach) / stride + 1,
          end = treadle_smaller(size, (high - 1) / stride + 1);
  if (first >= end) return TREADLE_OK; /* all of the range is a gap between two steps */

  bool cut_first = low > first * stride;
  bool cut_last = high < (end - 1) * stride + reach;
  if (cut_first) { /* and perhaps cut at its end too */
    part->box.size[a] = 1;
    part->box.start[a] = start + first;
    part->offset = offset + first * stride;
    TRY(clip(n, level + 1, part, low - first * stride, high - first * stride, parts));
    if (++first == end) goto out;
  }
  int64_t whole_end = end - cut_last;
  if (first < whole_end) {
    part->box.start[a] = start + first;
    part->box.size[a] = whole_end - first;
    part->offset = offset + first * stride;
    TRY(treadle_array_push(parts, *part));
  }
  if (cut_last) {
    part->box.start[a] = start + whole_end;
    part->box.size[a] = 1;
    part->offset = offset + whole_end * stride;
    TRY(clip(n, level + 1, part, 0, high - whole_end * stride, parts));
  }
out:
  part->box.start[a] = start;
  part->box.size[a] = size;
  part->offset = offset;
  return status;
}

treadle_status treadle_nest_clip(const treadle_nest *nest, const treadle_strided *from,
                                 treadle_span addresses, int64_t origin, treadle_strideds *parts) {
  int64_t low = addresses.low - from->offset, high = addresses.high - from->offset;
  if (low < 0) low = 0;
  if (low >= high) return TREADLE_OK;
  if (nest->count == 0 && low > 0) return TREADLE_OK; /* a single element, before the range */
  treadle_strided part = *from;
  part.offset -= origin;
  return clip(nest, 0, &part, low, high, parts);
}

treadle_status treadle_strided_clip(const treadle_strided *from, treadle_span addresses, int64_t origin,
                                    treadle_strideds *parts) {
  const treadle_nest nest = treadle_nest_of(from);
  return treadle_nest_clip(&nest, from, addresses, origin, parts);
}

/* ---- Units --------------------------------------------------------------------------------------- */

/* How a system rounds: where each parameter begins, and where the unit ends. In elements. */
typedef struct rounding {
  const char *what; /* for messages */
  int64_t align, pad;
} rounding;

static treadle_status unit_of(const rounding *to, const int64_t *numels, int64_t count, int64_t world,
                              int64_t *starts, treadle_flat_unit *unit_p) {
  const char *what = to->what;
  if (world < 1) return treadle_fail(TREADLE_REFUSED, "%s over %" PRId64 " ranks", what, world);
  int64_t at = 0, total;
  for (int64_t i = 0; i < count; i++) {
    if (numels[i] < 0)
      return treadle_fail(TREADLE_REFUSED, "%s: parameter %" PRId64 " has %" PRId64 " elements", what, i,
                          numels[i]);
    if (!treadle_round_up(at, to->align, &starts[i]) || __builtin_add_overflow(starts[i], numels[i], &at))
      return treadle_fail(TREADLE_REFUSED, "%s: the parameters up to %" PRId64 " do not fit 63 bits", what,
                          i);
  }
  if (!treadle_round_up(at, to->pad, &total))
    return treadle_fail(TREADLE_REFUSED, "%s: %" PRId64 " elements padded to %" PRId64 " ranks do not fit",
                        what, at, world);
  *unit_p = (treadle_flat_unit){.used = at, .shard = total / world, .total = total};
  return TREADLE_OK;
}

treadle_status treadle_fsdp1_unit(const int64_t *numels, int64_t count, int64_t world, bool use_orig_params,
                                  int64_t elem_bytes, int64_t *starts, treadle_flat_unit *unit_p) {
  enum { ALIGN_BYTES = 16, ALIGNED_FILL = 42 };
  if (elem_bytes < 1 || ALIGN_BYTES % elem_bytes != 0)
    return treadle_fail(TREADLE_REFUSED, "FSDP1 unit: elements of %" PRId64 " bytes do not divide %d bytes",
                        elem_bytes, ALIGN_BYTES);
  const rounding to = {"FSDP1 unit", use_orig_params ? ALIGN_BYTES / elem_bytes : 1, world};
  treadle_status status = unit_of(&to, numels, count, world, starts, unit_p);
  if (status == TREADLE_OK && use_orig_params) unit_p->fill = ALIGNED_FILL;
  return status;
}

treadle_status treadle_zero12_unit(const int64_t *numels, int64_t count, int64_t world, int64_t *starts,
                                   treadle_flat_unit *unit_p) {
  enum { NCCL_START_ALIGNMENT = 2 };
  int64_t pad;
  if (__builtin_mul_overflow(world, NCCL_START_ALIGNMENT, &pad))
    return treadle_fail(TREADLE_REFUSED, "ZeRO-1/2 group over %" PRId64 " ranks", world);
  const rounding to = {"ZeRO-1/2 group", 1, pad};
  return unit_of(&to, numels, count, world, starts, unit_p);
}
