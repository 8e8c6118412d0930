/* Block rows of one rank in one direction. */
/* A tensor is a matrix [experts, rows, columns] here, rows and columns each one axis or several, flattened
 * (layout/blocks.h); without experts it is one expert. Its blocks are [experts, down, across]: 300 rows in
 * blocks of 128 are down = 3, the last one with 44 rows. docs/rules.md 4.10. */
#include "plan/block_rows_parts.h"

#include "base/dtype.h"
#include "base/hash.h"

#include <assert.h>
#include <string.h>

static const treadle_model *model_of(const treadle_block_row_walk *w) { return w->to->model; }
const char *treadle_block_rows_name(const treadle_block_row_walk *w) { return w->blocks.tensor->name; }

void treadle_block_row_walk_init(treadle_block_row_walk *walk, const treadle_lanes *lanes,
                                 const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                 treadle_sink *sink) {
  *walk = (treadle_block_row_walk){
      .lanes = lanes, .from = from, .to = to, .rank = rank, .sink = sink, .tensor = -1};
}

void treadle_block_row_walk_release(treadle_block_row_walk *walk) {
  treadle_placed_rectangles *places[] = {&walk->codes, &walk->scales, &walk->own_codes, &walk->own_scales};
  for (size_t i = 0; i < walk->lenders.all.count; i++) {
    treadle_array_release(&walk->lenders.all.items[i].codes_held);
    treadle_array_release(&walk->lenders.all.items[i].scales_held);
    treadle_array_release(&walk->lenders.all.items[i].codes);
    treadle_array_release(&walk->lenders.all.items[i].scales);
  }
  treadle_array_release(&walk->lenders.all);
  for (size_t i = 0; i < walk->peers.all.count; i++) {
    treadle_array_release(&walk->peers.all.items[i].codes);
    treadle_array_release(&walk->peers.all.items[i].scales);
  }
  treadle_array_release(&walk->peers.all);
  treadle_array_release(&walk->seats);
  treadle_array_release(&walk->sharers);
  treadle_array_release(&walk->columns);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) treadle_array_release(places[i]);
  treadle_array_release(&walk->cells);
  treadle_array_release(&walk->other_cells);
  treadle_array_release(&walk->wanted);
  treadle_array_release(&walk->boxes);
  treadle_array_release(&walk->rest);
  treadle_array_release(&walk->spare);
  treadle_array_release(&walk->held);
  treadle_array_release(&walk->here);
  treadle_array_release(&walk->parts);
  treadle_array_release(&walk->part_boxes);
  treadle_array_release(&walk->sources);
  treadle_scale_set_release(&walk->scale_set);
}

/* Codes and scales of the tensor at hand in this rank's window.
 * Codes are [experts, rows, columns]; scales are [experts, down, across], a matrix whose blocks are 1 x 1. */
static treadle_status find_places(const treadle_block_row_walk *w, const treadle_layout *layout,
                                  treadle_placed_rectangles *codes, treadle_placed_rectangles *scales) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks of_scales = treadle_blocks_of(model_of(w), w->blocks.tensor->scale);
  TRY(treadle_blocks_held(&w->blocks, layout, w->rank, true, codes));
  TRY(treadle_blocks_held(&of_scales, layout, w->rank, false, scales));
out:
  return status;
}

/* Turns to a tensor: to its waves alone.
 * What the rank holds is found later, when something is made: cutting alone does not need it. */
static void start(treadle_block_row_walk *w, int32_t tensor) {
  if (w->tensor == tensor) return;
  w->tensor = tensor;
  w->blocks = treadle_blocks_of(model_of(w), tensor);
  w->has_common = w->has_sources = false;
}

treadle_status treadle_block_rows_start_sources(treadle_block_row_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  start(w, tensor);
  if (w->has_sources) return TREADLE_OK;
  /* Lenders keep their memory and forget whose it is. */
  for (size_t i = 0; i < w->lenders.all.count; i++) w->lenders.all.items[i].rank = -1;
  w->lenders.last = w->lenders.next = 0;
  w->peers.count = 0;
  w->codes.count = w->scales.count = w->own_codes.count = w->own_scales.count = w->held.count = 0;
  w->here_expert = -1;
  TRY(w->sink->figures ? treadle_layout_bundles_of(w->from, w->rank, tensor, &w->held)
                       : treadle_layout_pieces_of(w->from, w->rank, tensor, &w->held));
  if (treadle_layout_holds_codes(w->to, tensor)) TRY(find_places(w, w->to, &w->codes, &w->scales));
  if (treadle_layout_holds_codes(w->from, tensor))
    TRY(find_places(w, w->from, &w->own_codes, &w->own_scales));
  TRY(treadle_scale_set_start(&w->scale_set, &w->blocks));
  w->has_sources = true;
out:
  return status;
}

treadle_status treadle_block_rows_turn(treadle_block_row_walk *w, int64_t expert) {
  treadle_status status = TREADLE_OK;
  if (w->here_expert == expert) return TREADLE_OK;
  w->here.count = 0;
  for (size_t i = 0; i < w->held.count; i++) {
    const treadle_box *box = &w->held.items[i].box;
    if (w->blocks.first_row == 0 || (expert >= box->start[0] && expert < box->start[0] + box->size[0]))
      TRY(treadle_array_push(&w->here, w->held.items[i]));
  }
  w->here_expert = expert;
out:
  return status;
}

/* ---- Waves ---- */

/* The first element of a block row: true where the lane at hand has it.
 * That is [expert, down * high, 0], as a coordinate on every axis. Rows of several axes count like digits,
 * the slow axis first: with axes [2, 3, 64] their weights are 192, 64 and 1, and row 128 is (0, 2, 0). */
static bool find_corner(const treadle_block_row_walk *w, int64_t expert, int64_t down, int64_t *at) {
  const treadle_blocks *blocks = &w->blocks;
  int64_t row = down * blocks->high;
  bool has = w->has_common;
  for (int a = 0; a < blocks->tensor->naxes; a++) {
    at[a] = 0;
    if (a < blocks->first_row)
      at[a] = expert;
    else if (a == blocks->first_column - 1)
      at[a] = row;
    else if (a < blocks->first_column)
      at[a] = row / blocks->weight[a], row %= blocks->weight[a];
    int64_t step = at[a] - w->common.box.start[a];
    has = has && step >= 0 && step < w->common.box.size[a];
  }
  return has;
}

/* Rows of the common box, beginning at an element, that follow each other in the expert: in the order of
 * its rows, and in that of the box. Rows of one axis do so up to the end of the box. Of several, each axis
 * but the first must be whole in the box; otherwise the box jumps in the rows of the expert, and one row
 * alone is sure. */
static int64_t rows_together(const treadle_blocks *blocks, const treadle_box *common,
                             const int64_t *corner) {
  int64_t rows = 0;
  for (int a = blocks->first_row; a < blocks->first_column; a++) {
    if (a > blocks->first_row && common->size[a] < blocks->tensor->axis[a]) return 1;
    rows += (common->start[a] + common->size[a] - 1 - corner[a]) * blocks->weight[a];
  }
  return rows + 1;
}

/* The first element lies in one cell of each layout; what both share is its lane. It is kept, since the
 * next block rows mostly begin in the same one. */
treadle_status treadle_block_rows_wave(treadle_block_row_walk *w, int64_t expert, int64_t down,
                                       int32_t *wave_p, int64_t *end_p) {
  treadle_status status = TREADLE_OK;
  int64_t at[TREADLE_MAX_AXES], end, high = w->blocks.high;
  if (w->sink->figures) { /* bytes do not depend on waves */
    *wave_p = 0;
    *end_p = w->blocks.down;
    return TREADLE_OK;
  }
  if (!find_corner(w, expert, down, at)) {
    treadle_box corner = treadle_box_whole(w->blocks.tensor);
    for (int a = 0; a < w->blocks.tensor->naxes; a++) corner.start[a] = at[a], corner.size[a] = 1;
    w->cells.count = w->other_cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &corner, &w->cells));
    TRY(treadle_layout_cells(w->to, w->tensor, &corner, &w->other_cells));
    assert(w->cells.count == 1 && w->other_cells.count == 1);
    const treadle_cell *from = &w->cells.items[0], *to = &w->other_cells.items[0];
    /* Lanes have the pair in the order of the plan. On the way back the cells change places. */
    bool turned = w->from != w->lanes->from;
    w->common = treadle_lanes_common(w->lanes, w->tensor, turned ? to : from, turned ? from : to);
    w->has_common = true;
  }
  int64_t row = treadle_common_row(&w->common, at);
  *wave_p = treadle_common_wave(&w->common, w->lanes->waves, row, &end);
  /* This many rows from the first one on have this wave. Each block row that begins among them has it, too,
   * also one that ends behind them: with blocks of 128, 130 rows are two block rows. */
  int64_t rows = treadle_smaller(end - row, rows_together(&w->blocks, &w->common.box, at));
  *end_p = down + (rows + high - 1) / high;
out:
  return status;
}

/* Emits whole rows of a box.
 * Rows of one axis are one box. Of several axes they are a few boxes, each cut by `box`. */
static treadle_status emit_rows(treadle_block_row_walk *w, const treadle_blocks *blocks,
                                const treadle_box *box, const treadle_rectangle *rows, int32_t wave,
                                treadle_step_emit emit, void *context) {
  treadle_status status = TREADLE_OK;
  if (treadle_block_rows_plain(blocks)) {
    treadle_box part = *box;
    if (blocks->first_row) part.start[0] = rows->expert, part.size[0] = 1;
    part.start[blocks->first_row] = rows->row;
    part.size[blocks->first_row] = rows->rows;
    return emit(context, &part, wave);
  }
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(blocks, rows, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box part;
    if (treadle_box_meet(&w->boxes.items[i], box, &part)) TRY(emit(context, &part, wave));
  }
out:
  return status;
}

/* Cuts a box [experts, rows, columns] by waves: expert by expert, in each from its first row to its last,
 * always at borders of block rows. An expert that is whole in one wave waits in `same`, which grows by the
 * next expert while that has the same wave: so 256 experts of one wave are one box. The rows of scales are
 * block rows, high = 1, and have the waves of their weights. */
static treadle_status cut(void *self, int32_t tensor, const treadle_box *box, treadle_step_emit emit,
                          void *context) {
  treadle_block_row_walk *w = self;
  treadle_status status = TREADLE_OK;
  const treadle_tensor *t = &model_of(w)->tensors[tensor];
  const treadle_blocks blocks = treadle_blocks_of(model_of(w), tensor);
  treadle_box same = *box; /* experts that are whole in one wave go together */
  int32_t same_wave = -1, wave = 0, next = 0;
  int64_t first, last, experts = blocks.first_row ? box->size[0] : 1,
                       begin = blocks.first_row ? box->start[0] : 0;
  start(w, t->scale_of >= 0 ? t->scale_of : tensor);
  treadle_blocks_span(&blocks, box, blocks.first_row, blocks.first_column, &first, &last);
  for (int64_t e = begin; e < begin + experts; e++) {
    int64_t down = first / blocks.high, end, next_end, row = first;
    TRY(treadle_block_rows_wave(w, e, down, &wave, &next_end));
    while (row <= last) {
      /* Goes on while the wave is the same; `next` and `next_end` are then of the block row `end`. */
      for (end = next_end; end * blocks.high <= last; end = next_end) {
        TRY(treadle_block_rows_wave(w, e, end, &next, &next_end));
        if (next != wave) break;
      }
      bool whole = row == first && end * blocks.high > last;
      if (!(whole && wave == same_wave) && same_wave >= 0) {
        TRY(emit(context, &same, same_wave));
        same_wave = -1;
      }
      if (whole && same_wave >= 0) {
        same.size[0]++;
      } else if (whole) {
        same = *box;
        if (blocks.first_row) same.start[0] = e, same.size[0] = 1;
        same_wave = wave;
      } else {
        int64_t row_end = treadle_smaller(end * blocks.high, last + 1);
        const treadle_rectangle rows = {e, row, row_end - row, 0, blocks.columns};
        TRY(emit_rows(w, &blocks, box, &rows, wave, emit, context));
      }
      row = end * blocks.high;
      wave = next;
    }
  }
  if (same_wave >= 0) TRY(emit(context, &same, same_wave));
out:
  return status;
}

/* ---- Block rows ---- */

/* Scratch is the block row alone, [of->rows, of->columns], row-major, each value `size` bytes. So the
 * element of row r and column c lies at ((r - of->row) * of->columns + c - of->column) * size, whatever
 * its expert. */
treadle_block_row_part treadle_block_rows_part(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                               const treadle_box *box, const treadle_piece *piece,
                                               treadle_dtype value, bool to_scratch) {
  int64_t offset = treadle_box_offset(box, &piece->box, piece->stride, piece->offset);
  int64_t size = (int64_t)treadle_dtype_bytes(value), at = 0, scratch[TREADLE_MAX_AXES] = {0};
  treadle_block_row_part part = {.op = {.tensor = w->tensor, .elems = treadle_box_elems(box)}};
  for (int a = 0; a < w->blocks.tensor->naxes; a++) {
    if (a < w->blocks.first_row) continue;
    scratch[a] = w->blocks.weight[a] * size * (a < w->blocks.first_column ? of->columns : 1);
    at += box->start[a] * scratch[a];
  }
  at -= (of->row * of->columns + of->column) * size;
  part.op.from_dtype = (uint8_t)(to_scratch ? piece->dtype : value);
  part.op.to_dtype = (uint8_t)(to_scratch ? value : piece->dtype);
  part.op.from = to_scratch ? offset : at;
  part.op.to = to_scratch ? at : offset;
  treadle_op_set_dims(&part.op, box, w->blocks.tensor->naxes, to_scratch ? piece->stride : scratch,
                      to_scratch ? scratch : piece->stride);
  return part;
}

treadle_rectangle treadle_block_rows_meet(const treadle_rectangle *a, const treadle_rectangle *b) {
  treadle_rectangle met = {a->expert, a->row > b->row ? a->row : b->row, 0,
                           a->column > b->column ? a->column : b->column, 0};
  met.rows = treadle_smaller(a->row + a->rows, b->row + b->rows) - met.row;
  met.columns = treadle_smaller(a->column + a->columns, b->column + b->columns) - met.column;
  return met;
}

/* `of` is what scratch has; `cut` is the part of it whose codes stand in the window, counted from `of` on.
 * skip: this many columns of the first block lie before `of`. With blocks 128 wide, columns [160, 288) are
 * the end of block 1 and the start of block 2: across = 1, skip = 32, two blocks. */
treadle_block_row treadle_block_rows_add(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                         const treadle_placed_rectangle *codes,
                                         const treadle_placed_rectangle *scales) {
  int64_t down = of->row / w->blocks.high, across = of->column / w->blocks.wide;
  const treadle_rectangle cut = treadle_block_rows_meet(of, &codes->of);
  return (treadle_block_row){.tensor = w->tensor,
                             .count = 1,
                             .rows = (int32_t)of->rows,
                             .columns = (int32_t)of->columns,
                             .skip = (int32_t)(of->column % w->blocks.wide),
                             .block_columns = (int32_t)w->blocks.wide,
                             .code_row = (int32_t)(cut.row - of->row),
                             .code_rows = (int32_t)cut.rows,
                             .code_column = (int32_t)(cut.column - of->column),
                             .code_columns = (int32_t)cut.columns,
                             .codes = treadle_placed_offset(codes, cut.row, cut.column),
                             .code_stride = codes->row_stride,
                             .scales = treadle_placed_offset(scales, down, across),
                             .scale_stride = scales->column_stride,
                             .code_step = w->blocks.high * codes->row_stride,
                             .scale_step = scales->row_stride};
}

/* A rank that has the cell. */
int64_t treadle_block_rows_holder(const treadle_block_row_walk *w, const treadle_cell *cell, int64_t expert,
                                  int64_t k) {
  uint64_t begin = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->rank) + (uint64_t)expert;
  int64_t n = cell->holders;
  return treadle_cell_rank(w->from, cell, ((int64_t)(begin % (uint64_t)n) + k) % n);
}

/* ---- The step ---- */

/* Scales are made with the codes of their weight where the source has none. Where it has them, they are
 * copied like any tensor. */
static treadle_making making(const void *self, const treadle_piece *piece) {
  const treadle_block_row_walk *w = self;
  if (model_of(w)->tensors[piece->tensor].scale_of >= 0 &&
      !treadle_layout_holds_codes(w->from, piece->tensor))
    return TREADLE_MAKING_ELSEWHERE;
  if (treadle_is_quantised(w->from, piece)) return TREADLE_MAKING_TENSOR;
  if (!treadle_is_dequantised(w->from, w->to, piece)) return TREADLE_MAKING_COPIES;
  return treadle_layout_holds_codes(w->to, piece->tensor)
             ? TREADLE_MAKING_CODED
             : TREADLE_MAKING_PIECE; /* all are made of the codes where there are any */
}

static treadle_status make_piece(void *self, const treadle_piece *piece, const treadle_boxes *boxes) {
  return treadle_block_rows_dequantise(self, piece, boxes);
}

static treadle_status make_tensor(void *self, int32_t tensor) {
  return treadle_block_rows_quantise(self, tensor);
}

const treadle_step treadle_block_rows_step = {.name = "fp8 blocks",
                                              .takes = treadle_is_in_block_rows,
                                              .cut = cut,
                                              .making = making,
                                              .make_piece = make_piece,
                                              .make_tensor = make_tensor};
