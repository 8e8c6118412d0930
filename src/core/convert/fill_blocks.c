/* Filling fp8 blocks: the values of one row of blocks are filled in as fp32, and quantised block by block. Codes and
 * scales are tensors of their own, so each value is read twice. */
#include "convert/fill.h"

#include "base/alloc.h"
#include "memory/device.h"

#include <assert.h>

/* One row of blocks of one matrix. */
typedef struct block_row {
  int64_t first, rows; /* first value; rows of values */
  int64_t across;      /* blocks */
  int64_t end;         /* byte of the tensor where it ends */
} block_row;

static int64_t blocks_in(int64_t size, int64_t block) { return (size + block - 1) / block; }

/* The block row that begins at a byte of codes or scales. */
static block_row block_row_at(const treadle_out_tensor *tensor, int64_t at) {
  int64_t high = tensor->block[0], down = blocks_in(tensor->rows, high), row;
  block_row b = {.across = blocks_in(tensor->columns, tensor->block[1])};
  if (tensor->making == TREADLE_MADE_CODES) {
    b.first = at;
    row = at / tensor->columns % tensor->rows;
  } else {
    int64_t number = at / (int64_t)sizeof(float) / b.across;
    row = number % down * high;
    b.first = (number / down * tensor->rows + row) * tensor->columns;
  }
  b.rows = tensor->rows - row < high ? tensor->rows - row : high;
  b.end = at + (tensor->making == TREADLE_MADE_CODES ? b.rows * tensor->columns
                                                     : b.across * (int64_t)sizeof(float));
  return b;
}

int64_t treadle_fill_blocks_end(const treadle_out_tensor *tensor, int64_t at) {
  return block_row_at(tensor, at).end;
}

void treadle_filler_release_blocks(treadle_filler *f) {
  treadle_free(f->values);
  treadle_free(f->codes);
  treadle_free(f->scales);
  f->values = f->scales = NULL;
  f->codes = NULL;
  f->room = 0;
}

/* Room for a block row: a value has a code, and never more than one scale. */
static treadle_status make_room(treadle_filler *f, const char *name, int64_t values) {
  if (f->room >= values) return TREADLE_OK;
  treadle_filler_release_blocks(f);
  f->values = treadle_alloc_array((size_t)values, sizeof *f->values);
  f->codes = treadle_alloc_array((size_t)values, sizeof *f->codes);
  f->scales = treadle_alloc_array((size_t)values, sizeof *f->scales);
  if (f->values && f->codes && f->scales) f->room = values;
  return f->room ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a row of blocks", name);
}

treadle_status treadle_fill_blocks(treadle_filler *f, const treadle_out_file *file,
                                   const treadle_out_tensor *tensor, int64_t low, int64_t high,
                                   const char **bytes_p) {
  treadle_status status;
  const block_row b = block_row_at(tensor, low);
  const int64_t columns = tensor->columns, wide = tensor->block[1], each = (int64_t)sizeof(float);
  const treadle_device *device = treadle_device_host();
  const char *values;
  treadle_out_tensor of = *tensor;
  of.making = TREADLE_MADE_OF_VALUES;
  assert(high == b.end);
  (void)high;
  TRY(make_room(f, tensor->about.name, b.rows * columns));
  TRY(treadle_fill(f, file, &of, b.first * each, (b.first + b.rows * columns) * each, (char *)f->values,
                   &values));
  const treadle_strip strip = {.values = {values, NULL, columns * each, each},
                               .codes = treadle_matrix_of(f->codes, columns, 1),
                               .scales = treadle_matrix_of(f->scales, 0, each),
                               .rows = b.rows,
                               .columns = columns,
                               .width = (int32_t)wide,
                               .dtype = TREADLE_FP32};
  device->ops->blocks(device, &strip, 1);
  TRY(device->ops->fence(device));
  *bytes_p = tensor->making == TREADLE_MADE_CODES ? (const char *)f->codes : (const char *)f->scales;
out:
  return status;
}
