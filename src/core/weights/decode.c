/* Coded values, decoded slab by slab into a buffer that the copy kernel then takes further: it does the
 * transposing and the conversion. A slab has the box's axes in the order of the file, so that each row of
 * it is one run there.
 *
 * MXFP4: 32 values share a byte of scale, and two a byte of code, the even one in its low half; value =
 * E2M1 * 2^(scale - 127). fp8: value = e4m3 * the scale of its block, fp32 or exact there. Both are rounded to bf16; MXFP4 is exact there.
 * docs/rules.md 4.9 and 4.10. */
#include "weights/decode.h"

#include "base/alloc.h"
#include "base/dtype.h"

#include <math.h>
#include <string.h>

enum { SLAB_ELEMS = 1 << 18, SEGMENT = 128 };

/* A box in the order of the file: axis 0 is the slowest. */
typedef struct walk {
  int naxes;
  int axis[TREADLE_MAX_AXES]; /* of the tensor */
  int64_t size[TREADLE_MAX_AXES], stride[TREADLE_MAX_AXES];
} walk;

typedef struct decoder {
  const treadle_stored_box *place;
  const treadle_op *op; /* takes all of it from there to the window */
  const treadle_device *device;
  char *window;
  uint16_t *slab;                 /* [SLAB_ELEMS] */
  int64_t rows, cols;             /* fp8: of the matrices of `stored` */
  int64_t block_rows, block_cols; /* fp8 */
  int64_t scale_rows, scale_cols; /* fp8: of the scales */
  int64_t scale_bytes;            /* fp8: of one scale */
  float fp8[256];                 /* by code */
  uint16_t mxfp4[256][16];        /* bf16 by scale and code */
} decoder;

/* ---- Values ------------------------------------------------------------------------------------ */

static void make_table(decoder *d) {
  static const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int scale = 0; scale < 256; scale++)
    for (int code = 0; code < 16; code++) {
      float value = ldexpf(values[code & 7], scale - 127);
      d->mxfp4[scale][code] = treadle_bf16_of_float(code & 8 ? -value : value);
    }
}

static void decode_mxfp4(const decoder *d, int64_t at, int64_t count, uint16_t *to) {
  const uint8_t *blocks = d->place->stored->data, *scales = d->place->scales->data;
  for (int64_t i = 0; i < count; i++, at++) {
    uint8_t codes = blocks[at / 2]; /* 16 bytes for each 32 values, so 1 for each 2 */
    to[i] = d->mxfp4[scales[at / 32]][at % 2 ? codes >> 4 : codes & 15];
  }
}

/* Segment by segment of one row and one block. */
static void decode_fp8(const decoder *d, int64_t at, int64_t count, uint16_t *to) {
  const uint8_t *codes = d->place->stored->data;
  const char *scales = d->place->scales->data;
  float values[SEGMENT], scale;
  for (int64_t some; count > 0; at += some, to += some, count -= some) {
    int64_t col = at % d->cols, row = at / d->cols % d->rows, matrix = at / d->cols / d->rows;
    int64_t block = (matrix * d->scale_rows + row / d->block_rows) * d->scale_cols + col / d->block_cols;
    some = d->block_cols - col % d->block_cols;
    if (some > d->cols - col) some = d->cols - col;
    if (some > count) some = count;
    if (some > SEGMENT) some = SEGMENT;
    treadle_dtype_convert(&scale, TREADLE_FP32, scales + block * d->scale_bytes, d->place->scales->dtype,
                          1);
    for (int64_t i = 0; i < some; i++) values[i] = d->fp8[codes[at + i]] * scale;
    treadle_dtype_convert(to, TREADLE_BF16, values, TREADLE_FP32, (size_t)some);
  }
}

static void decode_run(const decoder *d, int64_t at, int64_t count, uint16_t *to) {
  if (d->place->coding == TREADLE_CODED_MXFP4)
    decode_mxfp4(d, at, count, to);
  else
    decode_fp8(d, at, count, to);
}

static void start(const treadle_stored_box *place, decoder *d) {
  const treadle_stored *stored = place->stored, *scales = place->scales;
  d->place = place;
  if (place->coding == TREADLE_CODED_MXFP4) {
    make_table(d);
    return;
  }
  for (int code = 0; code < 256; code++) d->fp8[code] = treadle_fp8_to_float((uint8_t)code);
  d->rows = stored->shape[stored->ndim - 2];
  d->cols = stored->shape[stored->ndim - 1];
  d->block_rows = place->block[0];
  d->block_cols = place->block[1];
  d->scale_rows = scales->shape[scales->ndim - 2];
  d->scale_cols = scales->shape[scales->ndim - 1];
  d->scale_bytes = (int64_t)treadle_dtype_bytes(scales->dtype);
}

/* ---- Slabs ------------------------------------------------------------------------------------- */

static walk order_axes(const treadle_stored_box *place, int naxes) {
  walk w = {.naxes = naxes};
  for (int a = 0; a < naxes; a++) {
    int i = a;
    for (; i > 0 && place->stride[w.axis[i - 1]] < place->stride[a]; i--) w.axis[i] = w.axis[i - 1];
    w.axis[i] = a;
  }
  for (int i = 0; i < naxes; i++) {
    w.size[i] = place->size[w.axis[i]];
    w.stride[i] = place->stride[w.axis[i]];
  }
  return w;
}

/* Decodes a box in the order of the file, from element `at` of it on. */
static uint16_t *decode_box(const decoder *d, const walk *w, int axis, int64_t at, uint16_t *to) {
  if (axis == w->naxes) {
    decode_run(d, at, 1, to);
    return to + 1;
  }
  if (axis == w->naxes - 1 && w->stride[axis] == 1) {
    decode_run(d, at, w->size[axis], to);
    return to + w->size[axis];
  }
  for (int64_t i = 0; i < w->size[axis]; i++) to = decode_box(d, w, axis + 1, at + i * w->stride[axis], to);
  return to;
}

/* One slab: `w` has its sizes, `to` is where its first element goes. The next one takes its room. */
static treadle_status copy_slab(const decoder *d, const walk *w, int64_t at, int64_t to) {
  treadle_op op = *d->op;
  int64_t step = sizeof *d->slab;
  decode_box(d, w, 0, at, d->slab);
  op.from_dtype = TREADLE_BF16;
  op.from = 0;
  op.to = to;
  op.elems = 1;
  for (int i = w->naxes - 1; i >= 0; i--) {
    op.size[w->axis[i]] = w->size[i];
    op.from_stride[w->axis[i]] = step;
    step *= w->size[i];
    op.elems *= w->size[i];
  }
  const treadle_paged from_paged = treadle_paged_of(d->slab), to_paged = treadle_paged_of(d->window);
  d->device->ops->copy(d->device, &op, &from_paged, &to_paged, 1);
  return d->device->ops->fence(d->device);
}

/* Splits axis by axis, the slowest first, until a slab fits. */
static treadle_status split(const decoder *d, const walk *w, int axis, int64_t at, int64_t to) {
  treadle_status status = TREADLE_OK;
  int64_t inner = 1;
  for (int i = axis + 1; i < w->naxes; i++) inner *= w->size[i];
  int64_t most = SLAB_ELEMS / inner;
  walk part = *w;
  for (int64_t i = 0; axis < w->naxes && i < w->size[axis]; i += part.size[axis]) {
    int64_t left = w->size[axis] - i, first_at = at + i * w->stride[axis];
    int64_t first_to = to + i * d->op->to_stride[w->axis[axis]];
    part.size[axis] = most > 1 ? (left < most ? left : most) : 1;
    TRY(most > 0 ? copy_slab(d, &part, first_at, first_to) : split(d, &part, axis + 1, first_at, first_to));
  }
out:
  return status;
}

treadle_status treadle_decode_place(const treadle_stored_box *place, const treadle_op *op,
                                    const treadle_device *device, char *window) {
  treadle_status status = TREADLE_OK;
  decoder *d = treadle_alloc(sizeof *d);
  if (d) d->slab = treadle_alloc_array(SLAB_ELEMS, sizeof *d->slab);
  if (!d || !d->slab)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "tensor '%s': no memory to decode it", place->stored->name));
  d->op = op;
  d->device = device;
  d->window = window;
  start(place, d);
  const walk w = order_axes(place, op->ndim);
  TRY(split(d, &w, 0, place->at, op->to));
out:
  if (d) treadle_free(d->slab);
  treadle_free(d);
  return status;
}
