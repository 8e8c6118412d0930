/* Filling a window as a layout places it: from the checkpoint, or with generated values.
 *
 * fp8 blocks without files that hold them are made in load_blocks.c.
 *
 * A piece is a strided box of the tensor, and so is each of its places in a checkpoint (model/stored.h): each is
 * one op of the copy kernel, conversion included. */
#include "weights/load.h"
#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "memory/value.h"
#include "model/stored.h"
#include "weights/box_elements.h"
#include "weights/decode.h"
#include "weights/filled.h"

#include <assert.h>
#include <string.h>

static treadle_op make_op(const treadle_tensor *tensor, const treadle_piece *piece,
                          const treadle_stored_box *place) {
  treadle_dtype dtype = place->stored->dtype;
  int64_t bytes = (int64_t)treadle_dtype_bytes(dtype);
  treadle_op op = {.from_dtype = (uint8_t)dtype,
                   .to_dtype = (uint8_t)piece->dtype,
                   .tensor = piece->tensor,
                   .add = piece->add,
                   .storage = piece->storage,
                   .from = place->at * bytes,
                   .to = piece->offset,
                   .ndim = (uint8_t)tensor->naxes,
                   .elems = 1};
  for (int a = 0; a < tensor->naxes; a++) {
    op.size[a] = place->size[a];
    op.from_stride[a] = place->stride[a] * bytes;
    op.to_stride[a] = piece->stride[a];
    op.to += (place->start[a] - piece->box.start[a]) * piece->stride[a];
    op.elems *= op.size[a];
  }
  return op;
}

static treadle_status load_piece(const treadle_model *model, const treadle_piece *piece,
                                 const treadle_device *device, char *window) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  treadle_stored_box place;
  for (int32_t next = 0;
       treadle_model_stored(model, piece->tensor, piece->box.start, piece->box.size, &next, &place);) {
    if (!place.stored->data)
      return treadle_fail(TREADLE_REFUSED, "tensor '%s': the files of '%s' do not have its values",
                          place.stored->name, model->path ? model->path : "the model");
    const treadle_paged from = {.base = place.stored->data}, to = treadle_paged_of(window);
    const treadle_op op = make_op(tensor, piece, &place);
    bool as_it_is =
        place.coding == TREADLE_CODED_FP8 && piece->dtype == TREADLE_FP8_E4M3; /* beside its scales */
    if (place.coding == TREADLE_CODED_PLAIN || as_it_is)
      device->ops->copy(device, &op, &from, &to, 1);
    else
      TRY(treadle_decode_place(&place, &op, device, window));
  }
out:
  return status;
}

/* ---- Generated values ---- */

/* The piece of one of its experts; of all where the tensor is not stacked by treadle. */
static treadle_piece piece_of(const treadle_tensor *tensor, const treadle_piece *piece, int64_t expert) {
  treadle_piece one = *piece;
  if (!tensor->by_expert) return one;
  one.offset += expert * piece->stride[0];
  one.box.start[0] += expert;
  one.box.size[0] = 1;
  return one;
}

static const char *name_of(const treadle_model *model, const treadle_tensor *tensor,
                           const treadle_piece *one) {
  return model->entries[tensor->first_entry + (tensor->by_expert ? one->box.start[0] : 0)].name;
}

static void generate_piece(const treadle_model *model, const treadle_piece *piece,
                           const treadle_device *device, char *window) {
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  int64_t experts = tensor->by_expert ? piece->box.size[0] : 1;
  for (int64_t e = 0; e < experts; e++) {
    const treadle_piece one = piece_of(tensor, piece, e);
    treadle_elements elements =
        treadle_elements_of(tensor, one.box.start, one.box.size, one.offset, one.stride);
    elements.tensor = treadle_value_tensor(name_of(model, tensor, &one));
    elements.dtype = piece->dtype;
    elements.add = piece->add;
    elements.near_one = model->family->patterns[tensor->pattern].shifted;
    device->ops->generate(device, &elements, window);
  }
}

static void fill_piece(const treadle_piece *piece, const treadle_device *device, char *window) {
  const treadle_op op = treadle_fill_op(piece);
  const treadle_paged to = treadle_paged_of(window);
  device->ops->copy(device, &op, NULL, &to, 1);
}

/* Values that come to host memory alone: the window's own, or a buffer, dense, from which the device takes them. */
static treadle_status read_piece(const treadle_model *model, const treadle_piece *piece,
                                 const treadle_device *device, char *window) {
  treadle_status status;
  if (treadle_device_is_host(device)) return model->values.read(model->values.context, piece, window);
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  int64_t bytes = (int64_t)treadle_dtype_bytes(piece->dtype);
  treadle_piece dense = *piece;
  treadle_op op = {.from_dtype = (uint8_t)piece->dtype,
                   .to_dtype = (uint8_t)piece->dtype,
                   .tensor = piece->tensor,
                   .storage = piece->storage,
                   .to = piece->offset,
                   .ndim = (uint8_t)tensor->naxes,
                   .elems = 1};
  dense.offset = 0;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    op.size[a] = piece->box.size[a];
    op.from_stride[a] = dense.stride[a] = bytes;
    op.to_stride[a] = piece->stride[a];
    op.elems *= op.size[a];
    bytes *= op.size[a];
  }
  char *buffer = treadle_alloc((size_t)bytes + 1);
  if (!buffer) return treadle_fail(TREADLE_NO_MEMORY, "tensor '%s': no memory to read it", tensor->name);
  const treadle_paged from = treadle_paged_of(buffer), to = treadle_paged_of(window);
  TRY(model->values.read(model->values.context, &dense, buffer));
  device->ops->copy(device, &op, &from, &to, 1);
  TRY(device->ops->fence(device));
out:
  treadle_free(buffer);
  return status;
}

treadle_status treadle_load_values(const treadle_model *model, const treadle_piece *piece,
                                   const treadle_device *device, char *window) {
  if (model->values.read) return read_piece(model, piece, device, window);
  if (model->checkpoint) return load_piece(model, piece, device, window);
  if (model->weights != TREADLE_WEIGHTS_RANDOM) return treadle_model_need_weights(model);
  generate_piece(model, piece, device, window);
  return TREADLE_OK;
}

/* model: whose values they are, which is that of the layout, or a copy of it. */
static treadle_status load_window(const treadle_model *model, const treadle_layout *layout,
                                  const treadle_layout *source, int64_t rank, const int64_t *shift,
                                  const treadle_device *device, char *window) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  if (rank < 0 || rank >= layout->ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': there is no rank %lld", layout->text,
                        (long long)rank);
  TRY(device->ops->renew(device));
  TRY(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    char *base = window + (shift ? shift[piece->storage] : 0);
    if (piece->tensor < 0)
      fill_piece(piece, device, base);
    else if (!model->values.read && treadle_load_is_blocks(model, layout, source, piece))
      TRY(treadle_load_blocks(model, piece, device, base));
    else
      TRY(treadle_load_values(model, piece, device, base));
  }
out:
  status = treadle_device_finish(device, status); /* it may still read files */
  if (status != TREADLE_NO_MEMORY) {              /* what was cut off meanwhile may look like anything */
    treadle_status unchanged = treadle_checkpoint_unchanged(model->checkpoint);
    if (unchanged) status = unchanged;
  }
  if (!status) treadle_filled_memory(window, treadle_layout_window_bytes(layout, rank));
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_layout_load_from(const treadle_layout *layout, const treadle_layout *source,
                                        int64_t rank, const int64_t *shift, const treadle_device *device,
                                        void *window) {
  return load_window(layout->model, layout, source, rank, shift, device, window);
}

/* Those of the layout's model as a copy of it that has no files. */
static treadle_status load_random(const treadle_layout *layout, int64_t rank, void *window) {
  treadle_model model = *layout->model;
  model.weights = TREADLE_WEIGHTS_RANDOM;
  model.checkpoint = NULL;
  model.values = (treadle_model_values){0};
  return load_window(&model, layout, NULL, rank, NULL, treadle_device_at(window), window);
}

treadle_status treadle_layout_load_weights(const treadle_layout *layout, int64_t rank,
                                           treadle_weights weights, void *window) {
  treadle_status status;
  TREADLE_NEED(layout);
  if (treadle_layout_window_bytes(layout, rank) > 0) TREADLE_NEED(window);
  if (TREADLE_CHECK_ENUM(weights, TREADLE_WEIGHTS_RANDOM + 1)) return TREADLE_REFUSED;
  if (weights == TREADLE_WEIGHTS_RANDOM) return load_random(layout, rank, window);
  TRY(treadle_model_need_weights(layout->model));
  if (weights == TREADLE_WEIGHTS_FILES && treadle_model_weights(layout->model) != TREADLE_WEIGHTS_FILES)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: weights are to come from files, and those of this model are made up",
                     layout->model->path));
  TRY(load_window(layout->model, layout, NULL, rank, NULL, treadle_device_at(window), window));
out:
  return status;
}

treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window) {
  return treadle_layout_load_weights(layout, rank, TREADLE_WEIGHTS_NONE, window);
}
