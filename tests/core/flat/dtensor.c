/* DTensor placements and FSDP2 shards. A placement cuts one dimension, so each dimension is a list of spans
 * of its own, and the shard is their product. */
#include "flat/dtensor.h"

#include <inttypes.h>

static treadle_status check_shape(const int64_t *shape, int ndim) {
  if (ndim < 1 || ndim > TREADLE_MAX_AXES)
    REFUSE("a tensor of %d dimensions; 1 to %d are possible", ndim, TREADLE_MAX_AXES);
  int64_t elems = 1;
  for (int d = 0; d < ndim; d++)
    if (shape[d] < 1 || __builtin_mul_overflow(elems, shape[d], &elems))
      REFUSE("dimension %d of a tensor has %" PRId64 " elements", d, shape[d]);
  return TREADLE_OK;
}

/* ---- DTensor ------------------------------------------------------------------------------------- */

/* Appends positions [low, high) of the elements of `spans`, counted through all of them.
 * Positions [1, 3) of [0, 2), [6, 8) are [1, 2), [6, 7). Spans that touch become one. */
static treadle_status take(const treadle_spans *spans, treadle_span wanted, treadle_spans *taken) {
  treadle_status status = TREADLE_OK;
  int64_t at = 0;
  for (size_t i = 0; i < spans->count; i++) {
    const treadle_span *span = &spans->items[i];
    int64_t n = span->high - span->low;
    int64_t low = wanted.low > at ? wanted.low - at : 0, high = wanted.high < at + n ? wanted.high - at : n;
    at += n;
    if (low >= high) continue;
    treadle_span part = {span->low + low, span->low + high};
    treadle_span *last = taken->count > 0 ? &taken->items[taken->count - 1] : NULL;
    if (last && last->high == part.low)
      last->high = part.high;
    else
      TRY(treadle_array_push(taken, part));
  }
out:
  return status;
}

static int64_t spans_elems(const treadle_spans *spans) {
  int64_t elems = 0;
  for (size_t i = 0; i < spans->count; i++) elems += spans->items[i].high - spans->items[i].low;
  return elems;
}

/* What a placement leaves of a dimension: *spans becomes that.
 * docs/rules.md 10.3. Strided with f = 2 over 4, of 9: the parts are [0, 5) and [5, 9); rank 0 has [0, 2) of
 * the first and [5, 6) of the second. Later mesh dimensions cut positions among what is left, not
 * coordinates. */
static treadle_status cut(const treadle_mesh_placement *place, treadle_spans *spans) {
  treadle_status status = TREADLE_OK;
  treadle_spans left = {0};
  treadle_span all = {0, spans_elems(spans)};
  int64_t split = place->placement.type == 'T' ? place->placement.split : 1;
  if (split > all.high) split = all.high; /* chunks behind are empty */
  for (int64_t s = 0; s < split; s++)
    TRY(take(spans, treadle_span_chunk(treadle_span_chunk(all, split, s), place->size, place->index),
             &left));
  treadle_array_release(spans);
  *spans = left;
  left = (treadle_spans){0};
out:
  treadle_array_release(&left);
  return status;
}

static treadle_status check_place(const treadle_mesh_placement *place, int number, int ndim) {
  char type = place->placement.type;
  if (place->size < 1 || place->index < 0 || place->index >= place->size)
    REFUSE("mesh dimension %d: index %" PRId64 " of %" PRId64, number, place->index, place->size);
  if (type == 'R') return TREADLE_OK;
  if (type == 'P') REFUSE("mesh dimension %d is Partial: reduce the tensor before it is moved", number);
  if (type != 'S' && type != 'T') REFUSE("mesh dimension %d: unknown placement '%c'", number, type);
  if (place->placement.dim < 0 || place->placement.dim >= ndim)
    REFUSE("mesh dimension %d cuts dimension %d of a tensor of %d", number, place->placement.dim, ndim);
  if (type == 'T' && place->placement.split < 1)
    REFUSE("mesh dimension %d: split factor %" PRId64, number, place->placement.split);
  return TREADLE_OK;
}

/* Appends the product of the spans of dimensions d and on.
 * Boxes come in row-major order. Their offsets count in the local tensor, whose shape is the lengths of all
 * spans. */
static treadle_status product(const treadle_spans *spans, int ndim, int d, treadle_strided part,
                              treadle_strideds *boxes) {
  treadle_status status = TREADLE_OK;
  if (d == ndim) return treadle_array_push(boxes, part);
  int64_t offset = part.offset;
  for (size_t i = 0; i < spans[d].count; i++) {
    const treadle_span *span = &spans[d].items[i];
    part.box.start[d] = span->low;
    part.box.size[d] = span->high - span->low;
    part.offset = offset;
    TRY(product(spans, ndim, d + 1, part, boxes));
    offset += part.box.size[d] * part.stride[d];
  }
out:
  return status;
}

treadle_status treadle_dtensor_shard(const int64_t *shape, int ndim, const treadle_mesh_placement *places,
                                     int nplaces, int64_t *local, treadle_strideds *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_spans spans[TREADLE_MAX_AXES] = {{0}};
  TRY(check_shape(shape, ndim));
  for (int d = 0; d < ndim; d++) TRY(treadle_array_push(&spans[d], ((treadle_span){0, shape[d]})));
  for (int m = 0; m < nplaces; m++) {
    TRY(check_place(&places[m], m, ndim));
    if (places[m].placement.type != 'R') TRY(cut(&places[m], &spans[places[m].placement.dim]));
  }
  for (int d = 0; d < ndim; d++) local[d] = spans_elems(&spans[d]);
  TRY(product(spans, ndim, 0, treadle_strided_whole(local, ndim, 0), boxes));
out:
  for (int d = 0; d < TREADLE_MAX_AXES; d++) treadle_array_release(&spans[d]);
  return status;
}

/* ---- FSDP2 --------------------------------------------------------------------------------------- */

static treadle_status check_fsdp2(const int64_t *shape, int ndim, const treadle_fsdp2_rule *rule,
                                  int64_t tp_index, int64_t index) {
  if (rule->tp < 1 || rule->tp_dim < -1 || rule->tp_dim >= ndim || tp_index < 0 || tp_index >= rule->tp)
    REFUSE("TP index %" PRId64 " of %" PRId64 " on dimension %d of a tensor of %d", tp_index, rule->tp,
           rule->tp_dim, ndim);
  if (rule->fsdp < 1 || rule->fsdp_dim < 0 || rule->fsdp_dim >= ndim || index < 0 || index >= rule->fsdp)
    REFUSE("FSDP index %" PRId64 " of %" PRId64 " on dimension %d of a tensor of %d", index, rule->fsdp,
           rule->fsdp_dim, ndim);
  if (rule->fsdp_dim == 0) return TREADLE_OK;
  for (int64_t t = 0; t < rule->tp; t++) {
    treadle_span span = {0, shape[rule->fsdp_dim]};
    if (rule->tp_dim == rule->fsdp_dim) span = treadle_span_chunk(span, rule->tp, t);
    if ((span.high - span.low) % rule->fsdp != 0)
      REFUSE("FSDP2: dimension %d has %" PRId64 " elements, which are not divisible by %" PRId64
             " ranks; only dimension 0 may be uneven",
             rule->fsdp_dim, span.high - span.low, rule->fsdp);
    if (rule->tp_dim != rule->fsdp_dim || span.low == span.high) break; /* all further ones are alike */
  }
  return TREADLE_OK;
}

/* tp first, then FSDP within that part (docs/rules.md 10.2): 9 rows, dp=2, tp=2, tp index 1 has [5, 9);
 * FSDP index 0 has [5, 7). stored: the shape that torch allocates, the same on all FSDP ranks. */
treadle_status treadle_fsdp2_shard(const int64_t *shape, int ndim, const treadle_fsdp2_rule *rule,
                                   int64_t tp_index, int64_t index, treadle_box *box_p, int64_t *stored) {
  treadle_status status = TREADLE_OK;
  TRY(check_shape(shape, ndim));
  TRY(check_fsdp2(shape, ndim, rule, tp_index, index));
  for (int d = 0; d < TREADLE_MAX_AXES; d++) {
    treadle_span span = {0, d < ndim ? shape[d] : 1};
    if (d == rule->tp_dim) span = treadle_span_chunk(span, rule->tp, tp_index);
    int64_t rows = span.high - span.low;
    if (d == rule->fsdp_dim) {
      rows = rows / rule->fsdp + (rows % rule->fsdp != 0);
      span = treadle_span_chunk(span, rule->fsdp, index);
    }
    box_p->start[d] = span.low;
    box_p->size[d] = span.high - span.low;
    if (d < ndim) stored[d] = rows;
  }
  if (treadle_box_elems(box_p) == 0)
    box_p->size[rule->fsdp_dim] = 0; /* torch: an empty shard has no rows */
out:
  return status;
}
