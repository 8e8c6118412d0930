/* Filling a range of a tensor: its pieces are clipped to the range, each part is looked up in the source, and each place
 * found is one strided copy, with the change of type that it takes.
 *
 * Invariant, proved for every range: the bytes of the parts are the range's, and the elements of the places met are the
 * part's. Pieces do not overlap, nor do places, so each byte is written once. */
#include "convert/fill.h"

#include "base/dtype.h"
#include "convert/kept.h"
#include "memory/copy.h"
#include "weights/decode.h"

#include <inttypes.h>
#include <string.h>

void treadle_filler_release(treadle_filler *filler) {
  treadle_array_release(&filler->parts);
  treadle_array_release(&filler->places);
  treadle_filler_release_blocks(filler);
}

/* Whole rows where they are not long. */
int64_t treadle_fill_end(const treadle_out_tensor *tensor, int64_t at, int64_t most) {
  const treadle_stored *about = &tensor->about;
  int64_t row = (int64_t)about->bytes, end;
  if (tensor->making == TREADLE_MADE_CODES || tensor->making == TREADLE_MADE_SCALES)
    return treadle_fill_blocks_end(tensor, at);
  if (about->ndim > 1 && about->shape[0] > 0) row /= about->shape[0];
  if (row == 0 || row > most) row = 64;
  end = at + most / row * row;
  return end < (int64_t)about->bytes ? end : (int64_t)about->bytes;
}

/* Rows that are dense on both sides are memcpy's work: what is copied is written to a file at once, from the cache. The
 * rest is the fast kernel's. */
static const treadle_device *choose_device(const treadle_op *op) {
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  if (op->from_dtype != op->to_dtype || op->add) return treadle_device_host();
  for (int d = 0; d < op->ndim; d++)
    if (op->size[d] > 1 && op->to_stride[d] == size)
      return op->from_stride[d] == size ? treadle_device_plain() : treadle_device_host();
  return treadle_device_plain();
}

/* Do the elements lie one behind the other, in the same order on both sides? */
static bool is_run(const treadle_op *op, int64_t size) {
  int64_t at = size;
  if (op->from_dtype != op->to_dtype || op->add) return false;
  for (int done = 0; done < op->ndim;
       done++) { /* the next axis by stride, if it has the stride that it should */
    int d = 0;
    while (d < op->ndim && !(op->size[d] > 1 && op->to_stride[d] == at)) d++;
    if (d == op->ndim) break;
    if (op->from_stride[d] != at) return false;
    at *= op->size[d];
  }
  return at == op->elems * size;
}

static treadle_op make_op(const treadle_piece *piece, const treadle_strided *part, const treadle_box *box,
                          const treadle_file_box *place, int64_t *from_p, int64_t *reach_p) {
  treadle_op op = {.from_dtype = (uint8_t)place->dtype,
                   .to_dtype = (uint8_t)piece->dtype,
                   .add = (int8_t)(piece->add - place->add),
                   .tensor = piece->tensor,
                   .to = part->offset,
                   .ndim = TREADLE_MAX_AXES,
                   .elems = treadle_box_elems(box)};
  int64_t from = 0, reach = (int64_t)treadle_dtype_bytes(place->dtype);
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    from += (box->start[a] - place->box.start[a]) * place->stride[a];
    op.to += (box->start[a] - part->box.start[a]) * piece->stride[a];
    op.size[a] = box->size[a];
    op.from_stride[a] = place->stride[a];
    op.to_stride[a] = piece->stride[a];
    reach += (box->size[a] - 1) * place->stride[a];
  }
  *from_p = from;
  *reach_p = reach;
  return op;
}

/* Of coded values, all that the stored tensor has may have been read. */
static treadle_status touch_coded(treadle_filler *f, const treadle_stored_box *place) {
  treadle_status status;

  TRY(treadle_source_touch(f->source, place->stored->data, (int64_t)place->stored->bytes));
  if (place->scales)
    TRY(treadle_source_touch(f->source, place->scales->data, (int64_t)place->scales->bytes));
out:
  return status;
}

static treadle_status fill_part(treadle_filler *f, const treadle_piece *piece, const treadle_strided *part,
                                int64_t bytes, char *buffer, const char **bytes_p) {
  treadle_status status;
  int64_t left = treadle_box_elems(&part->box);
  int64_t size = (int64_t)treadle_dtype_bytes(piece->dtype);
  const bool merged = f->adapter && f->adapter->of_tensor[piece->tensor] >= 0;
  f->places.count = 0;
  TRY(treadle_source_places(f->source, piece->tensor, &part->box, &f->places));
  for (size_t i = 0; i < f->places.count; i++) {
    treadle_file_box *place = &f->places.items[i];
    treadle_box box;
    int64_t from, reach;
    if (place->add) TRY(treadle_kept_take(f->source, piece->tensor, place));
    if (!treadle_box_meet(&part->box, &place->box, &box)) continue;
    treadle_op op = make_op(piece, part, &box, place, &from, &reach);
    left -= op.elems;
    f->read_bytes += op.elems * (place->coded ? 1 : (int64_t)treadle_dtype_bytes(place->dtype));
    if (place->coded) { /* the source has cut it to the part */
      op.ndim = (uint8_t)f->source->model->tensors[piece->tensor].naxes;
      TRY(treadle_decode_place(&place->stored, &op, treadle_device_host(), buffer));
      TRY(touch_coded(f, &place->stored));
      continue;
    }
    TRY(treadle_source_ask(f->source, place->data + from, reach));
    const treadle_paged source = {.base = place->data + from}, to = treadle_paged_of(buffer);
    const treadle_device *device = choose_device(&op);
    if (!merged && op.to == 0 && op.elems * size == bytes && is_run(&op, size))
      *bytes_p = source.base;
    else
      device->ops->copy(device, &op, &source, &to, 1);
    TRY(treadle_source_touch(f->source, source.base, reach));
  }
  if (merged && !left) TRY(treadle_fill_merge(f, piece, part, buffer));
  if (left)
    status = treadle_fail(TREADLE_REFUSED, "%s: the checkpoint lacks %" PRId64 " of its elements",
                          f->source->model->tensors[piece->tensor].name, left);
out:
  return status;
}

static void pad_part(const treadle_piece *piece, const treadle_strided *part, char *buffer) {
  treadle_piece fill = *piece;
  fill.box = part->box;
  fill.offset = part->offset;
  const treadle_op op = treadle_fill_op(&fill);
  const treadle_paged to = treadle_paged_of(buffer);
  treadle_copy_op(&op, NULL, &to, TREADLE_MOVER_PLAIN);
}

treadle_status treadle_fill(treadle_filler *f, const treadle_out_file *file,
                            const treadle_out_tensor *tensor, int64_t low, int64_t high, char *buffer,
                            const char **bytes_p) {
  treadle_status status = TREADLE_OK;
  int64_t left = high - low;
  treadle_strideds *parts = &f->parts;
  *bytes_p = buffer;
  if (tensor->making == TREADLE_MADE_CODES || tensor->making == TREADLE_MADE_SCALES)
    return treadle_fill_blocks(f, file, tensor, low, high, bytes_p);
  if (tensor->making == TREADLE_MADE_RAW) {
    *bytes_p = tensor->raw + low;
    f->read_bytes += left;
    return treadle_source_touch(f->source, *bytes_p, left);
  }
  for (size_t i = 0; i < tensor->piece_count; i++) {
    const treadle_piece *piece = &file->pieces.items[tensor->first_piece + i];
    int64_t size = (int64_t)treadle_dtype_bytes(piece->dtype);
    treadle_strided whole = {.box = piece->box, .offset = piece->offset};
    memcpy(whole.stride, piece->stride, sizeof whole.stride);
    parts->count = 0;
    TRY(treadle_strided_clip(&whole, (treadle_span){low, high}, low, parts));
    for (size_t k = 0; k < parts->count; k++) {
      const treadle_strided *part = &parts->items[k];
      int64_t bytes = treadle_box_elems(&part->box) * size;
      left -= bytes;
      if (piece->tensor >= 0)
        TRY(fill_part(f, piece, part, high - low, buffer, bytes_p));
      else
        pad_part(piece, part, buffer);
    }
  }
  if (left)
    status = treadle_fail(TREADLE_DIFFERENT, "%s: the pieces of %s do not write each of its bytes once",
                          file->path, tensor->about.name);
out:
  return status;
}

treadle_status treadle_fill_piece(treadle_filler *filler, const treadle_piece *piece, char *window) {
  enum { NO_RUN = -1 }; /* what lies in the file in one run is copied, too */
  treadle_strided whole = {.box = piece->box, .offset = piece->offset};
  const char *bytes = window;
  memcpy(whole.stride, piece->stride, sizeof whole.stride);
  return fill_part(filler, piece, &whole, NO_RUN, window, &bytes);
}
