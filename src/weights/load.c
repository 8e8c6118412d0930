/* Filling a window as a layout places it: from the checkpoint, or with generated values.
 *
 * fp8 blocks without files that hold them are made in load_blocks.c.
 *
 * A piece is a strided box of the tensor, and so is each of its places in a checkpoint (model/stored.h): each is
 * one op of the copy kernel, conversion included. */
#include "weights/load.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "memory/copy.h"
#include "model/stored.h"
#include "weights/decode.h"
#include "weights/value.h"

#include <assert.h>
#include <string.h>

static treadle_op make_op(const treadle_tensor *tensor, const treadle_piece *piece,
                          const treadle_stored_place *place) {
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

static treadle_status load_piece(const treadle_model *model, const treadle_piece *piece, char *window) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  treadle_stored_place place;
  for (int32_t next = 0;
       treadle_model_stored(model, piece->tensor, piece->box.start, piece->box.size, &next, &place);) {
    if (!place.stored->data)
      return treadle_fail(TREADLE_REFUSED, "tensor '%s': the files of '%s' do not have its values",
                          place.stored->name, model->path ? model->path : "the model");
    const treadle_view from = {.base = (char *)(uintptr_t)place.stored->data}, to = {.base = window};
    const treadle_op op = make_op(tensor, piece, &place);
    bool as_it_is =
        place.coding == TREADLE_CODED_FP8 && piece->dtype == TREADLE_FP8_E4M3; /* beside its scales */
    if (place.coding == TREADLE_CODED_PLAIN || as_it_is)
      treadle_copy_op(&op, &from, &to, treadle_copy_choose());
    else
      TRY(treadle_decode_place(&place, &op, window));
  }
out:
  return status;
}

/* ---- Generated values ---- */

typedef struct generator {
  char *window;
  uint64_t tensor;
  treadle_dtype dtype;
  int8_t add;
  bool near_one;
} generator;

static uint16_t value_at(const generator *g, int64_t index) {
  return g->near_one ? treadle_value_near_one(g->tensor, index) : treadle_value_bf16(g->tensor, index);
}

static void put(const generator *g, char *at, uint16_t bf16) {
  treadle_dtype dtype = g->dtype;
  if (g->add) {
    float value;
    uint32_t wide = (uint32_t)bf16 << 16;
    memcpy(&value, &wide, sizeof value);
    value += (float)g->add;
    treadle_dtype_convert(at, dtype, &value, TREADLE_FP32, 1);
    return;
  }
  if (dtype == TREADLE_FP32) {
    uint32_t bits = (uint32_t)bf16 << 16;
    memcpy(at, &bits, sizeof bits);
    return;
  }
  if (dtype == TREADLE_FP8_E4M3) { /* rounded: 3 bits of fraction */
    uint8_t fp8 = treadle_fp8_of_float(treadle_bf16_to_float(bf16));
    memcpy(at, &fp8, sizeof fp8);
    return;
  }
  if (dtype ==
      TREADLE_FP16) /* 5 bits of exponent with a bias of 15 instead of 127, 10 of fraction instead of 7 */
    bf16 = (uint16_t)((bf16 & 0x8000) | ((bf16 >> 7 & 0xff) - 112) << 10 | (bf16 & 0x7f) << 3);
  memcpy(at, &bf16, sizeof bf16);
}

/* Runs of bf16 without gaps, which are nearly all, go four at a time. */
static void generate_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  const generator *g = context;
  char *to = g->window + at;
  int64_t i = 0;
  bool by_four = g->dtype == TREADLE_BF16 && step == 2 && !g->add && !g->near_one;
  for (; i < count && (!by_four || (index + i) % 4 != 0); i++)
    put(g, to + i * step, value_at(g, index + i));
  for (; i + 4 <= count; i += 4) {
    uint64_t lanes = treadle_value_lanes(g->tensor, (index + i) >> 2);
    memcpy(to + i * 2, &lanes, sizeof lanes);
  }
  for (; i < count; i++) put(g, to + i * step, value_at(g, index + i));
}

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

static void generate_piece(const treadle_model *model, const treadle_piece *piece, char *window) {
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  int64_t experts = tensor->by_expert ? piece->box.size[0] : 1;
  for (int64_t e = 0; e < experts; e++) {
    const treadle_piece one = piece_of(tensor, piece, e);
    generator g = {window, treadle_value_tensor(name_of(model, tensor, &one)), piece->dtype, piece->add,
                   model->family->kinds[tensor->kind].shifted};
    treadle_value_each(tensor, one.box.start, one.box.size, one.offset, one.stride, generate_run, &g);
  }
}

static void fill_piece(const treadle_piece *piece, char *window) {
  int64_t each = (int64_t)treadle_dtype_bytes(piece->dtype), count = piece->box.size[0];
  if (piece->stride[0] == each) {
    memset(window + piece->offset, 0, (size_t)(count * each));
    return;
  }
  for (int64_t i = 0; i < count; i++)
    memset(window + piece->offset + i * piece->stride[0], 0, (size_t)each);
}

treadle_status treadle_load_values(const treadle_model *model, const treadle_piece *piece, char *window) {
  if (model->checkpoint) return load_piece(model, piece, window);
  generate_piece(model, piece, window);
  return TREADLE_OK;
}

treadle_status treadle_layout_load_from(const treadle_layout *layout, const treadle_layout *source,
                                        int64_t rank, const int64_t *shift, void *window) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  if (rank < 0 || rank >= layout->ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': there is no rank %lld", layout->text,
                        (long long)rank);
  TRY(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    char *base = (char *)window + (shift ? shift[piece->storage] : 0);
    if (piece->tensor < 0)
      fill_piece(piece, base);
    else if (treadle_load_is_blocks(layout, source, piece))
      TRY(treadle_load_blocks(layout, piece, base));
    else
      TRY(treadle_load_values(layout->model, piece, base));
  }
  treadle_copy_fence();
out:
  if (status != TREADLE_NO_MEMORY) { /* what was cut off meanwhile may look like anything */
    treadle_status unchanged = treadle_checkpoint_unchanged(layout->model->checkpoint);
    if (unchanged) status = unchanged;
  }
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window) {
  TREADLE_NEED(layout);
  if (treadle_layout_window_bytes(layout, rank) > 0) TREADLE_NEED(window);
  return treadle_layout_load_from(layout, NULL, rank, NULL, window);
}
