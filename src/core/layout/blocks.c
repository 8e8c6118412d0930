/* Matrices of blocks, and where they lie. */
#include "layout/blocks.h"

#include "base/dtype.h"
#include "base/larger.h"

#include <assert.h>
#include <stdlib.h>

/* q_proj [2, 4, 128, 1024] is a matrix of 1024 x 1024: a step of its axes is 512, 128, 1 rows and 1 column.
 * Experts stand in front, [experts, rows, columns], and each has a matrix and a grid of blocks of its own.
 * 576 rows in blocks of 128 are 5 blocks down, the last one with 64 rows. */
treadle_blocks treadle_blocks_of(const treadle_model *model, int32_t index) {
  const treadle_tensor *tensor = &model->tensors[index];
  treadle_blocks blocks = {.tensor = tensor, .experts = 1, .rows = 1, .columns = 1};
  bool scales = tensor->scale_of >= 0;
  int first = model->family->patterns[tensor->pattern].experts;
  blocks.first_row = first;
  blocks.first_column = tensor->naxes;
  if (first) blocks.experts = tensor->axis[0];
  /* Dimension `first` is the rows. From the last axis on, a weight is the product of the later axes of its
   * dimension. */
  for (int a = tensor->naxes - 1; a >= first; a--) {
    bool row = tensor->axis_dim[a] == first;
    int64_t *size = row ? &blocks.rows : &blocks.columns;
    if (!row) blocks.first_column = a;
    blocks.weight[a] = *size;
    *size *= tensor->axis[a];
  }
  blocks.high = scales ? 1 : model->block[0];
  blocks.wide = scales ? 1 : model->block[1];
  blocks.down = (blocks.rows + blocks.high - 1) / blocks.high;
  blocks.across = (blocks.columns + blocks.wide - 1) / blocks.wide;
  return blocks;
}

/* Blocks at the lower and at the right end may be partial: the rectangle ends with the matrix. */
treadle_rectangle treadle_blocks_row(const treadle_blocks *blocks, int64_t expert, int64_t down,
                                     int64_t column, int64_t columns) {
  treadle_rectangle block_row = {expert, down * blocks->high, blocks->high, column * blocks->wide,
                                 columns * blocks->wide};
  block_row.rows = treadle_smaller(block_row.rows, blocks->rows - block_row.row);
  block_row.columns = treadle_smaller(block_row.columns, blocks->columns - block_row.column);
  return block_row;
}

/* A range of rows is up to 2 * axes - 1 boxes, each of them with all columns; then each is cut to the range
 * of columns. */
treadle_status treadle_rectangle_boxes(const treadle_blocks *blocks, const treadle_rectangle *of,
                                       treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_boxes rows = {0};
  treadle_box whole = treadle_box_whole(blocks->tensor);
  if (blocks->first_row) {
    whole.start[0] = of->expert;
    whole.size[0] = 1;
  }
  /* Rows and columns are one axis each, as in most weights: one box. */
  if (blocks->first_column - blocks->first_row == 1 && blocks->tensor->naxes - blocks->first_column == 1) {
    whole.start[blocks->first_row] = of->row;
    whole.size[blocks->first_row] = of->rows;
    whole.start[blocks->first_column] = of->column;
    whole.size[blocks->first_column] = of->columns;
    return treadle_array_push(boxes, whole);
  }
  TRY(treadle_box_range(&whole, blocks->first_row, blocks->first_column - 1, of->row, of->row + of->rows,
                        &rows));
  for (size_t i = 0; i < rows.count; i++)
    TRY(treadle_box_range(&rows.items[i], blocks->first_column, blocks->tensor->naxes - 1, of->column,
                          of->column + of->columns, boxes));
out:
  treadle_array_release(&rows);
  return status;
}

/* Row and column of the first element in its block, rows in the high half. 0: it begins on a border. */
uint64_t treadle_blocks_phase(const treadle_model *model, const treadle_piece *piece) {
  const treadle_blocks blocks = treadle_blocks_of(model, piece->tensor);
  int64_t row = 0, column = 0;
  for (int a = blocks.first_row; a < blocks.tensor->naxes; a++)
    *(a < blocks.first_column ? &row : &column) += piece->box.start[a] * blocks.weight[a];
  return (uint64_t)(row % blocks.high) << 32 | (uint64_t)(column % blocks.wide);
}

/* An end inside of a block is not a cut where the matrix ends there too. */
bool treadle_blocks_cut(const treadle_model *model, const treadle_piece *piece) {
  const treadle_blocks blocks = treadle_blocks_of(model, piece->tensor);
  int64_t end[2] = {1, 1}; /* of columns, of rows */
  if (piece->dtype != TREADLE_FP8_E4M3) return false;
  for (int a = blocks.first_row; a < blocks.tensor->naxes; a++)
    end[a < blocks.first_column] += (piece->box.start[a] + piece->box.size[a] - 1) * blocks.weight[a];
  return treadle_blocks_phase(model, piece) != 0 || (end[1] % blocks.high && end[1] < blocks.rows) ||
         (end[0] % blocks.wide && end[0] < blocks.columns);
}

/* ---- Places ---- */

/* The first axis of first..last from which on steps of the box follow each other without a gap. [2, 4, 128]
 * with all 128 rows of 2 heads of one group gives the axis of heads: 256 rows are one run. The axes behind
 * must be whole, or rows of the matrix would be left out; the stride must go on, or they would not be at
 * one distance. */
static int run_axis(const treadle_blocks *blocks, const treadle_piece *piece, int first, int last) {
  int a = last;
  while (a > first && piece->box.size[a] == blocks->tensor->axis[a] &&
         (piece->box.size[a - 1] == 1 || piece->stride[a - 1] == piece->stride[a] * piece->box.size[a]))
    a--;
  return a;
}

static int64_t steps_before(const treadle_box *box, int first, int run) {
  int64_t steps = 1;
  for (int a = first; a < run; a++) steps *= box->size[a];
  return steps;
}

/* Moves to step `step` of axes first..run - 1 of the box. Steps are in row-major order of these axes: step
 * 5 of a box [2, 3] is (1, 2). It adds to the row (or column) of the matrix and to the offset in bytes. */
static void add_step(const treadle_blocks *blocks, const treadle_piece *piece, int first, int run,
                     int64_t step, int64_t *at, int64_t *offset) {
  for (int a = run - 1; a >= first; a--) {
    int64_t i = step % piece->box.size[a];
    step /= piece->box.size[a];
    *at += (piece->box.start[a] + i) * blocks->weight[a];
    *offset += i * piece->stride[a];
  }
}

/* Rows from row_axis on are at one distance, and so are columns from column_axis on: one rectangle. The
 * axes before them are walked: experts, then steps of rows, then steps of columns. */
treadle_status treadle_blocks_placed(const treadle_blocks *blocks, const treadle_piece *piece,
                                     treadle_placed_rectangles *places) {
  treadle_status status = TREADLE_OK;
  const treadle_box *box = &piece->box;
  int last_row = blocks->first_column - 1, last_column = blocks->tensor->naxes - 1;
  int row_axis = run_axis(blocks, piece, blocks->first_row, last_row);
  int column_axis = run_axis(blocks, piece, blocks->first_column, last_column);
  int64_t downs = steps_before(box, blocks->first_row, row_axis);
  int64_t acrosses = steps_before(box, blocks->first_column, column_axis);
  int64_t experts = blocks->first_row ? box->size[0] : 1;
  for (int64_t e = 0; e < experts; e++)
    for (int64_t i = 0; i < downs; i++)
      for (int64_t k = 0; k < acrosses; k++) {
        treadle_placed_rectangle place = {
            .dtype = piece->dtype, .storage = piece->storage, .offset = piece->offset};
        if (blocks->first_row) {
          place.of.expert = box->start[0] + e;
          place.offset += e * piece->stride[0];
        }
        add_step(blocks, piece, blocks->first_row, row_axis, i, &place.of.row, &place.offset);
        add_step(blocks, piece, blocks->first_column, column_axis, k, &place.of.column, &place.offset);
        place.of.row += box->start[row_axis] * blocks->weight[row_axis];
        place.of.column += box->start[column_axis] * blocks->weight[column_axis];
        place.of.rows = box->size[row_axis] * blocks->weight[row_axis];
        place.of.columns = box->size[column_axis] * blocks->weight[column_axis];
        /* One row, one column of the matrix further: a step of the last axis of each. */
        place.row_stride = piece->stride[last_row];
        place.column_stride = piece->stride[last_column];
        TRY(treadle_array_push(places, place));
      }
out:
  return status;
}

static int compare_places(const void *a, const void *b) {
  const treadle_placed_rectangle *x = a, *y = b;
  if (x->of.expert != y->of.expert) return x->of.expert < y->of.expert ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static void sort_places(treadle_placed_rectangles *places) {
  bool sorted = true; /* as they mostly are */
  for (size_t i = 1; i < places->count && sorted; i++)
    sorted = compare_places(&places->items[i - 1], &places->items[i]) < 0;
  if (!sorted) qsort(places->items, places->count, sizeof *places->items, compare_places);
}

/* Places whose rows continue those of the one before become one with it. Sorted by address, so what
 * continues a place comes right after it, or not at all where columns are apart. */
static void join_places(treadle_placed_rectangles *places) {
  size_t count = 0;
  for (size_t i = 0; i < places->count; i++) {
    treadle_placed_rectangle *last = count > 0 ? &places->items[count - 1] : NULL;
    const treadle_placed_rectangle *next = &places->items[i];
    if (last && last->of.expert == next->of.expert && last->of.row + last->of.rows == next->of.row &&
        last->of.column == next->of.column && last->of.columns == next->of.columns &&
        last->row_stride == next->row_stride && last->column_stride == next->column_stride &&
        next->offset == last->offset + last->of.rows * last->row_stride)
      last->of.rows += next->of.rows;
    else
      places->items[count++] = *next;
  }
  places->count = count;
}

/* Codes and values of one tensor may both lie on a rank; the caller asks for one of them. Of a piece with
 * many experts the one asked for is cut out first. */
treadle_status treadle_blocks_places(const treadle_blocks *blocks, const treadle_pieces *pieces,
                                     int64_t expert, bool codes, treadle_placed_rectangles *places) {
  treadle_status status = TREADLE_OK;
  places->count = 0;
  for (size_t i = 0; i < pieces->count; i++) {
    treadle_piece piece = pieces->items[i];
    if ((piece.dtype == TREADLE_FP8_E4M3) != codes) continue;
    if (blocks->first_row && expert >= 0) {
      int64_t step = expert - piece.box.start[0];
      if (step < 0 || step >= piece.box.size[0]) continue;
      piece.offset += step * piece.stride[0];
      piece.box.start[0] = expert;
      piece.box.size[0] = 1;
    }
    TRY(treadle_blocks_placed(blocks, &piece, places));
  }
  sort_places(places);
  join_places(places);
out:
  return status;
}

treadle_status treadle_blocks_held(const treadle_blocks *blocks, const treadle_layout *layout, int64_t rank,
                                   bool codes, treadle_placed_rectangles *places) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  int32_t tensor = (int32_t)(blocks->tensor - layout->model->tensors);
  TRY(treadle_layout_pieces_of(layout, rank, tensor, &pieces));
  TRY(treadle_blocks_places(blocks, &pieces, -1, codes, places));
out:
  treadle_array_release(&pieces);
  return status;
}

/* The first place of an expert, or behind it. */
static size_t first_of(const treadle_placed_rectangles *places, int64_t expert) {
  size_t low = 0, high = places->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (places->items[middle].of.expert < expert)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

size_t treadle_placed_of(const treadle_placed_rectangles *places, int64_t expert, size_t *first_p) {
  size_t end = *first_p = first_of(places, expert);
  while (end < places->count && places->items[end].of.expert == expert) end++;
  return end;
}

/* Expert apart: the caller has looked at it. */
static bool has(const treadle_rectangle *of, int64_t row, int64_t column) {
  return row >= of->row && row < of->row + of->rows && column >= of->column &&
         column < of->column + of->columns;
}

const treadle_placed_rectangle *treadle_placed_find(const treadle_placed_rectangles *places, int64_t expert,
                                                    int64_t row, int64_t column) {
  for (size_t i = first_of(places, expert); i < places->count; i++) {
    if (places->items[i].of.expert != expert) break;
    if (has(&places->items[i].of, row, column)) return &places->items[i];
  }
  return NULL;
}
