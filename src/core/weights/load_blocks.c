/* Filling a window with fp8 blocks that no file holds, block by block: canonical values are quantised, and codes, the
 * scale, or what comes back of them is put where the piece has it. A piece may have parts of blocks. */
#include "weights/load.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/larger.h"
#include "layout/blocks.h"
#include "model/stored.h"

#include <inttypes.h>

enum { BLOCK = TREADLE_BLOCK_ROW_SIDE };

typedef struct block {
  treadle_rectangle of;
  float values[BLOCK * BLOCK]; /* [of.rows, of.columns]; first canonical, then what comes back */
  uint8_t codes[BLOCK * BLOCK];
  float scale;
  treadle_boxes boxes; /* of it */
} block;

/* Do the files hold the tensor in fp8? */
static bool is_coded(const treadle_model *model, int32_t tensor) {
  static const int64_t start[TREADLE_MAX_AXES] = {0};
  treadle_stored_box place;
  int32_t next = 0;
  return model->checkpoint &&
         treadle_model_stored(model, tensor, start, model->tensors[tensor].axis, &next, &place) &&
         place.coding == TREADLE_CODED_FP8;
}

bool treadle_load_is_blocks(const treadle_model *model, const treadle_layout *layout,
                            const treadle_layout *source, const treadle_piece *piece) {
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  bool source_codes = source && treadle_layout_holds_codes(source, piece->tensor);
  bool through = treadle_layout_holds_codes(layout, piece->tensor) || source_codes,
       values = source && !source_codes; /* files are decoded first */
  if (tensor->scale_of >= 0) return values || !is_coded(model, tensor->scale_of);
  return tensor->scale >= 0 && through && (values || !is_coded(model, piece->tensor));
}

/* Canonical values of a block, quantised; what comes back of them where that is wanted. */
static treadle_status make_block(const treadle_model *model, const treadle_blocks *blocks, bool back,
                                 block *b) {
  treadle_status status = TREADLE_OK;
  const treadle_device *host = treadle_device_plain();
  int64_t each = (int64_t)sizeof(float);
  b->boxes.count = 0;
  TRY(treadle_rectangle_boxes(blocks, &b->of, &b->boxes));
  for (size_t i = 0; i < b->boxes.count; i++) {
    int32_t tensor = (int32_t)(blocks->tensor - model->tensors);
    treadle_piece piece = {.tensor = tensor, .dtype = TREADLE_FP32, .box = b->boxes.items[i]};
    for (int a = blocks->first_row; a < blocks->tensor->naxes; a++) {
      piece.stride[a] = blocks->weight[a] * each * (a < blocks->first_column ? b->of.columns : 1);
      piece.offset += piece.box.start[a] * piece.stride[a];
    }
    piece.offset -= (b->of.row * b->of.columns + b->of.column) * each;
    TRY(treadle_load_values(model, &piece, host, (char *)b->values));
  }
  TRY(host->ops->fence(host));
  treadle_strip strip = {.values = treadle_matrix_of(b->values, b->of.columns * each, each),
                         .codes = treadle_matrix_of(b->codes, b->of.columns, 1),
                         .scales = treadle_matrix_of(&b->scale, 0, each),
                         .rows = b->of.rows,
                         .columns = b->of.columns,
                         .width = (int32_t)b->of.columns,
                         .dtype = TREADLE_FP32};
  host->ops->blocks(host, &strip, 1);
  strip.back = true;
  if (back) host->ops->blocks(host, &strip, 1);
out:
  return status;
}

/* What of a block the spot has. */
static void put_block(const block *b, const treadle_placed_rectangle *spot, const treadle_piece *piece,
                      const treadle_device *device, char *window) {
  const treadle_rectangle *of = &spot->of;
  bool codes = piece->dtype == TREADLE_FP8_E4M3;
  int64_t each = codes ? 1 : (int64_t)sizeof *b->values;
  int64_t row = treadle_larger(b->of.row, of->row), column = treadle_larger(b->of.column, of->column);
  int64_t rows = treadle_smaller(b->of.row + b->of.rows, of->row + of->rows) - row;
  int64_t columns = treadle_smaller(b->of.column + b->of.columns, of->column + of->columns) - column;
  const treadle_op op = {.from_dtype = codes ? TREADLE_FP8_E4M3 : TREADLE_FP32,
                         .to_dtype = (uint8_t)piece->dtype,
                         .add = codes ? 0 : piece->add,
                         .ndim = 2,
                         .size = {rows, columns},
                         .elems = rows * columns,
                         .from = ((row - b->of.row) * b->of.columns + column - b->of.column) * each,
                         .from_stride = {b->of.columns * each, each},
                         .to = treadle_placed_offset(spot, row, column),
                         .to_stride = {spot->row_stride, spot->column_stride}};
  const treadle_paged from = {.base = codes ? (const char *)b->codes : (const char *)b->values},
                      to = treadle_paged_of(window);
  device->ops->copy(device, &op, &from, &to, 1);
}

/* The scale of a block, at its place. */
static void put_scale(const block *b, int64_t at, treadle_dtype dtype, const treadle_device *device,
                      char *window) {
  const treadle_op op = {.from_dtype = TREADLE_FP32,
                         .to_dtype = (uint8_t)dtype,
                         .ndim = 1,
                         .size = {1},
                         .elems = 1,
                         .from_stride = {(int64_t)sizeof b->scale},
                         .to = at,
                         .to_stride = {(int64_t)treadle_dtype_bytes(dtype)}};
  const treadle_paged from = {.base = (const char *)&b->scale}, to = treadle_paged_of(window);
  device->ops->copy(device, &op, &from, &to, 1);
}

treadle_status treadle_load_blocks(const treadle_model *model, const treadle_piece *piece,
                                   const treadle_device *device, char *window) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &model->tensors[piece->tensor];
  bool scales = tensor->scale_of >= 0;
  const treadle_blocks blocks = treadle_blocks_of(model, scales ? tensor->scale_of : piece->tensor);
  const treadle_blocks own = treadle_blocks_of(model, piece->tensor);
  treadle_placed_rectangles spots = {0};
  block *b = treadle_alloc(sizeof *b);
  if (!b) return treadle_fail(TREADLE_NO_MEMORY, "load: memory is out");
  if (blocks.high > BLOCK || blocks.wide > BLOCK) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most are made",
                          model->path, blocks.high, blocks.wide, BLOCK, BLOCK);
    goto out;
  }
  TRY(treadle_blocks_placed(&own, piece, &spots));
  for (size_t i = 0; i < spots.count; i++) {
    const treadle_placed_rectangle *spot = &spots.items[i];
    const treadle_rectangle *of = &spot->of;
    for (int64_t down = of->row / own.high; down * own.high < of->row + of->rows; down++)
      for (int64_t across = of->column / own.wide; across * own.wide < of->column + of->columns; across++) {
        b->of = treadle_blocks_row(&blocks, of->expert, down, across, 1);
        TRY(make_block(model, &blocks, !scales && piece->dtype != TREADLE_FP8_E4M3, b));
        if (scales)
          put_scale(b, treadle_placed_offset(spot, down, across), piece->dtype, device, window);
        else
          put_block(b, spot, piece, device, window);
        TRY(device->ops->fence(device)); /* the next one takes its room */
      }
  }
out:
  treadle_array_release(&spots);
  treadle_array_release(&b->boxes);
  treadle_free(b);
  return status;
}
