/* Quantised tensors as matrices: rows are dimension 0 of one expert, columns dimension 1, both flattened; fp8 blocks lie
 * on a grid that starts at row 0 and column 0. The matrix of the block scales has one element for each block. */
#ifndef TREADLE_LAYOUT_BLOCKS_H
#define TREADLE_LAYOUT_BLOCKS_H

#include "layout/layout.h"

typedef struct treadle_blocks {
  const treadle_tensor *tensor;
  int first_row, first_column; /* axes: experts in front (none or one), then rows, then columns */
  int64_t experts, rows, columns;
  int64_t high, wide;               /* rows and columns of a block; of scales: 1 */
  int64_t down, across;             /* blocks of an expert, by rows and columns */
  int64_t weight[TREADLE_MAX_AXES]; /* flattened rows, or columns, of one step of an axis */
} treadle_blocks;

/* Of a quantised tensor or of block scales. */
treadle_blocks treadle_blocks_of(const treadle_model *model, int32_t tensor);

/* A part of one expert's matrix. */
typedef struct treadle_rectangle {
  int64_t expert, row, rows, column, columns;
} treadle_rectangle;

/* A rectangle, and where it lies in a window. */
typedef struct treadle_placed_rectangle {
  treadle_rectangle of;
  treadle_dtype dtype;
  int32_t storage;
  int64_t offset, row_stride, column_stride; /* bytes; offset of the first element */
} treadle_placed_rectangle;

typedef TREADLE_ARRAY(treadle_placed_rectangle) treadle_placed_rectangles;

/* Appends the boxes of a rectangle, in its order. */
treadle_status treadle_rectangle_boxes(const treadle_blocks *blocks, const treadle_rectangle *of,
                                       treadle_boxes *boxes);

/* Appends a box that lies at `offset` with these strides as rectangles, as few as its axes allow. */
treadle_status treadle_blocks_placed(const treadle_blocks *blocks, const treadle_piece *piece,
                                     treadle_placed_rectangles *places);

/* Makes `places` of these pieces of one rank: of all of the tensor or, from 0 on, of one expert; of those in codes (fp8;
 * `codes`) or in other types. By expert, then by address; those that continue one another are one. */
treadle_status treadle_blocks_places(const treadle_blocks *blocks, const treadle_pieces *pieces,
                                     int64_t expert, bool codes, treadle_placed_rectangles *places);
/* The same of all that a rank holds of the tensor. */
treadle_status treadle_blocks_held(const treadle_blocks *blocks, const treadle_layout *layout, int64_t rank,
                                   bool codes, treadle_placed_rectangles *places);

/* Of places by expert, those of one: *first_p up to the end, which is returned. */
size_t treadle_placed_of(const treadle_placed_rectangles *places, int64_t expert, size_t *first_p);
/* The first of them that has the element at (expert, row, column); NULL: none. Ranks with two slots for an expert have it
 * twice: codes and scales that come first belong together. */
const treadle_placed_rectangle *treadle_placed_find(const treadle_placed_rectangles *places, int64_t expert,
                                                    int64_t row, int64_t column);

static inline int64_t treadle_placed_offset(const treadle_placed_rectangle *place, int64_t row,
                                            int64_t column) {
  return place->offset + (row - place->of.row) * place->row_stride +
         (column - place->of.column) * place->column_stride;
}

/* The rectangle of the blocks [column, column + columns) of row block `down` of an expert. */
treadle_rectangle treadle_blocks_row(const treadle_blocks *blocks, int64_t expert, int64_t down,
                                     int64_t column, int64_t columns);

/* Where a piece begins inside of a block: a number that is equal where that is. */
uint64_t treadle_blocks_phase(const treadle_model *model, const treadle_piece *piece);
/* Are these fp8 codes that begin or end inside of a block? */
bool treadle_blocks_cut(const treadle_model *model, const treadle_piece *piece);

/* The first and the last row of a box, flattened: its axes from `first` up to `end`; or columns. Of several axes the box may have gaps. */
static inline void treadle_blocks_span(const treadle_blocks *blocks, const treadle_box *box, int first,
                                       int end, int64_t *low_p, int64_t *high_p) {
  *low_p = *high_p = 0;
  for (int a = first; a < end; a++) {
    *low_p += box->start[a] * blocks->weight[a];
    *high_p += (box->start[a] + box->size[a] - 1) * blocks->weight[a];
  }
}

/* May a rank, which holds these boxes of a tensor, have a part of rows [down, end) of blocks of an expert? True where it has. */
static inline bool treadle_blocks_touched(const treadle_blocks *blocks, const treadle_pieces *held,
                                          int64_t expert, int64_t down, int64_t end) {
  int64_t low = down * blocks->high, high = end * blocks->high;
  for (size_t i = 0; i < held->count; i++) {
    const treadle_box *box = &held->items[i].box;
    int64_t row, last;
    bool here =
        blocks->first_row == 0 || (expert >= box->start[0] && expert < box->start[0] + box->size[0]);
    treadle_blocks_span(blocks, box, blocks->first_row, blocks->first_column, &row, &last);
    if (here && row < high && last >= low) return true;
  }
  return false;
}
/* What says of rows of blocks how its bytes count for a rank that holds nothing of them, beside the tensor: the expert, or -1
 * where all experts are cut alike. */
static inline int64_t treadle_blocks_sum_expert(const treadle_blocks *blocks, const treadle_layout *layout,
                                                int64_t expert) {
  const treadle_form *forms = treadle_layout_forms(layout);
  bool alike = forms && forms[blocks->tensor - layout->model->tensors].experts == blocks->experts;
  return alike ? -1 : expert;
}

/* Does the pair hold fp8 blocks on one side at least, and is the tensor one of their weights or scales? */
static inline bool treadle_is_in_block_rows(const treadle_layout *from, const treadle_layout *to,
                                            int32_t tensor) {
  const treadle_tensor *t = &from->model->tensors[tensor];
  return (from->fp8 || to->fp8) && (t->scale >= 0 || t->scale_of >= 0);
}

static inline bool treadle_has_block_rows(const treadle_layout *from, const treadle_layout *to) {
  for (int32_t t = 0; t < from->model->tensor_count; t++)
    if (treadle_is_in_block_rows(from, to, t)) return true;
  return false;
}

/* Is this destination piece quantised on its way? */
static inline bool treadle_is_quantised(const treadle_layout *from, const treadle_piece *piece) {
  const treadle_tensor *t = &from->model->tensors[piece->tensor];
  return t->scale >= 0 && piece->dtype == TREADLE_FP8_E4M3 &&
         treadle_layout_dtype(from, t) != TREADLE_FP8_E4M3;
}

/* Is it dequantised, from codes of the source or, where this window has the codes too, from these? */
static inline bool treadle_is_dequantised(const treadle_layout *from, const treadle_layout *to,
                                          const treadle_piece *piece) {
  const treadle_tensor *t = &from->model->tensors[piece->tensor];
  return t->scale >= 0 && piece->dtype != TREADLE_FP8_E4M3 &&
         (treadle_layout_dtype(from, t) == TREADLE_FP8_E4M3 ||
          treadle_layout_holds_codes(to, piece->tensor));
}

#endif
