/* Filling a window as a layout places it: from the checkpoint, or with generated values.
 *
 * A piece is a strided box of the tensor; a checkpoint holds the tensor row-major, so each piece is one op
 * of the copy kernel, conversion included. */
#include "base/dtype.h"
#include "memory/copy.h"
#include "model/model.h"
#include "switch/value.h"

#include <assert.h>
#include <string.h>

/* Pieces are in the axes of the tensor; row-major over axes is row-major over dimensions. */
static treadle_op make_op(const treadle_tensor *tensor, const treadle_piece *piece, treadle_dtype dtype) {
  treadle_op op = {.from_dtype = (uint8_t)dtype,
                   .to_dtype = (uint8_t)piece->dtype,
                   .tensor = piece->tensor,
                   .storage = piece->storage,
                   .to = piece->offset,
                   .ndim = (uint8_t)tensor->naxes,
                   .elems = 1};
  int64_t stride = (int64_t)treadle_dtype_bytes(dtype);
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    op.size[a] = piece->box.size[a];
    op.to_stride[a] = piece->stride[a];
    op.from_stride[a] = stride;
    op.from += piece->box.start[a] * stride;
    op.elems *= op.size[a];
    stride *= tensor->axis[a];
  }
  return op;
}

static treadle_status load_piece(const treadle_model *model, const treadle_piece *piece, char *window) {
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  const treadle_stored *stored = treadle_checkpoint_find(model->checkpoint, tensor->name);
  if (!stored || !stored->data || stored->elems != tensor->elems)
    return treadle_fail(TREADLE_REFUSED, "tensor '%s': the files of '%s' do not have its values",
                        tensor->name, model->path ? model->path : "the model");
  const treadle_view from = {.base = (char *)(uintptr_t)stored->data}, to = {.base = window};
  const treadle_op op = make_op(tensor, piece, stored->dtype);
  treadle_copy_op(&op, &from, &to, treadle_copy_choose());
  return TREADLE_OK;
}

/* ---- Generated values ---- */

typedef struct generator {
  char *window;
  uint64_t tensor;
  treadle_dtype dtype;
} generator;

static void put(char *at, treadle_dtype dtype, uint16_t bf16) {
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
  bool by_four = g->dtype == TREADLE_BF16 && step == 2;
  for (; i < count && (!by_four || (index + i) % 4 != 0); i++)
    put(to + i * step, g->dtype, treadle_value_bf16(g->tensor, index + i));
  for (; i + 4 <= count; i += 4) {
    uint64_t lanes = treadle_value_lanes(g->tensor, (index + i) >> 2);
    memcpy(to + i * 2, &lanes, sizeof lanes);
  }
  for (; i < count; i++) put(to + i * step, g->dtype, treadle_value_bf16(g->tensor, index + i));
}

static void generate_piece(const treadle_model *model, const treadle_piece *piece, char *window) {
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  generator g = {window, treadle_value_tensor(tensor->name), piece->dtype};
  treadle_value_each(tensor, piece->box.start, piece->box.size, piece->offset, piece->stride, generate_run,
                     &g);
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

treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  const treadle_model *model = layout->model;
  if (rank < 0 || rank >= layout->ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': there is no rank %lld", layout->text,
                        (long long)rank);
  TRY(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    if (piece->tensor < 0)
      fill_piece(piece, window);
    else if (model->checkpoint)
      TRY(load_piece(model, piece, window));
    else
      generate_piece(model, piece, window);
  }
  treadle_copy_fence();
out:
  treadle_array_release(&pieces);
  return status;
}
