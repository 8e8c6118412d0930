/* Block rows of one rank: blocks quantised from values. Layouts (grid/blocks.c) or treadle_plan_check make sure that all codes have
 * scales and all scales codes; here that is proved once more. */
/* For each codes rectangle [rows, columns] of an expert: its whole blocks, row by row of them. For each of
 * these the sources are found, own ones first; then columns whose scales lie in one place are made as one
 * block row; block rows below that differ in nothing but where they begin join it as a run. */
#include "plan/block_rows_parts.h"

#include "base/dtype.h"
#include "base/hash.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { MOVED = 2 /* what a sum is of */ };

/* The parts of a block row from the sources at hand.
 * Parts come by source, then by box in the order of the rectangle. They fill [rows, columns] of the scratch
 * once: their elements are counted. */
treadle_status treadle_block_rows_make_parts(treadle_block_row_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  treadle_dtype value = treadle_layout_dtype(w->from, w->blocks.tensor);
  int64_t elems = 0;
  w->parts.count = w->part_boxes.count = w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->sources.count; i++)
    for (size_t k = 0; k < w->boxes.count; k++) {
      const treadle_block_row_values *source = &w->sources.items[i];
      treadle_box box;
      if (!treadle_box_meet(&w->boxes.items[k], &source->box, &box)) continue;
      treadle_block_row_part part = treadle_block_rows_part(w, of, &box, &source->piece, value, true);
      part.op.source = (int32_t)source->rank;
      part.op.add = (int8_t)-source->piece.add;
      if (treadle_block_rows_plain(&w->blocks))
        /* Rows are one axis: the next block row is this many bytes behind this one at the source. */
        part.step = w->blocks.high * source->piece.stride[w->blocks.first_row];
      elems += part.op.elems;
      TRY(treadle_array_push(&w->part_boxes, box));
      TRY(treadle_array_push(&w->parts, part));
    }
  if (elems != of->rows * of->columns)
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": the sources of %s do not give each value once", w->rank,
                          treadle_block_rows_name(w));
out:
  return status;
}

/* How many elements of a part lie in a block, whose boxes are at hand. Mostly none: its columns tell it at once. */
static int64_t elems_in(const treadle_block_row_walk *w, const treadle_rectangle *block, size_t part) {
  const treadle_box *other = &w->part_boxes.items[part];
  int64_t elems = 0, column, last;
  treadle_box met;
  treadle_blocks_span(&w->blocks, other, w->blocks.first_column, w->blocks.tensor->naxes, &column, &last);
  if (column >= block->column + block->columns || last < block->column) return 0;
  for (size_t i = 0; i < w->boxes.count; i++)
    if (treadle_box_meet(&w->boxes.items[i], other, &met)) elems += treadle_box_elems(&met);
  return elems;
}

/* What the parts move of one block.
 * Values of one rank: a byte a value and the scale, once. Values of several: those of other ranks in the
 * type of the source, and no scale, since it is made here. */
static treadle_status count_block(treadle_block_row_walk *w, const treadle_rectangle *block) {
  treadle_status status = TREADLE_OK;
  int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(w->from, w->blocks.tensor)), first = -1;
  bool one = true;
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, block, &w->boxes));
  for (size_t i = 0; i < w->parts.count; i++) {
    int64_t source = w->parts.items[i].op.source;
    if (elems_in(w, block, i) == 0) continue;
    if (first >= 0) one = one && source == first;
    first = source;
  }
  bool scale = one; /* is still to be counted */
  for (size_t i = 0; i < w->parts.count; i++) {
    int64_t elems = elems_in(w, block, i);
    if (elems == 0 || w->parts.items[i].op.source == w->rank) continue;
    w->parts.items[i].moved += elems * (one ? 1 : wide) + (scale ? (int64_t)sizeof(float) : 0);
    scale = false;
  }
out:
  return status;
}

/* Do parts of two sources reach from the first column of the block row to its last, so that none of its blocks is of one source? */
static bool none_is_of_one(const treadle_block_row_walk *w, const treadle_rectangle *of) {
  const treadle_blocks *b = &w->blocks;
  int64_t first = -1;
  for (size_t i = 0; i < w->part_boxes.count; i++) {
    int64_t columns = 1, source = w->parts.items[i].op.source;
    for (int a = b->first_column; a < b->tensor->naxes; a++) columns *= w->part_boxes.items[i].size[a];
    if (columns != of->columns) continue;
    if (first >= 0 && source != first) return true;
    first = source;
  }
  return false;
}

/* What each part moves.
 * Three cases, the cheap ones first: all values are of one rank; parts of two ranks reach over all columns, so
 * that each block has values of several ranks; else each block is looked at alone. */
static treadle_status count_moved(treadle_block_row_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  bool one = true;
  int64_t first = w->parts.items[0].op.source, across = of->column / w->blocks.wide;
  int64_t count = (of->columns + w->blocks.wide - 1) / w->blocks.wide;
  for (size_t i = 1; i < w->parts.count; i++) one = one && w->parts.items[i].op.source == first;
  if (one && first == w->rank) return TREADLE_OK;
  if (one) {
    for (size_t i = 0; i < w->parts.count; i++) w->parts.items[i].moved = w->parts.items[i].op.elems;
    w->parts.items[0].moved += count * (int64_t)sizeof(float);
    return TREADLE_OK;
  }
  if (none_is_of_one(w, of)) {
    int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(w->from, w->blocks.tensor));
    for (size_t i = 0; i < w->parts.count; i++)
      if (w->parts.items[i].op.source != w->rank)
        w->parts.items[i].moved = w->parts.items[i].op.elems * wide;
    return TREADLE_OK;
  }
  for (int64_t j = across; j < across + count; j++) {
    const treadle_rectangle block =
        treadle_blocks_row(&w->blocks, of->expert, of->row / w->blocks.high, j, 1);
    TRY(count_block(w, &block));
  }
out:
  return status;
}

/* A further copy of codes or scales in this window.
 * `of` counts elements of `tensor`: for scales a row is a row of blocks. Both places are in this window. */
static treadle_status copy_twin(treadle_block_row_walk *w, const treadle_rectangle *of,
                                const treadle_placed_rectangle *from, const treadle_placed_rectangle *to,
                                int32_t tensor, int32_t wave) {
  treadle_op op = {.wave = wave,
                   .source = (int32_t)w->rank,
                   .twin = true,
                   .from_dtype = (uint8_t)to->dtype,
                   .to_dtype = (uint8_t)to->dtype,
                   .tensor = tensor,
                   .storage = to->storage,
                   .from = treadle_placed_offset(from, of->row, of->column),
                   .to = treadle_placed_offset(to, of->row, of->column),
                   .ndim = 2,
                   .size = {of->rows, of->columns},
                   .from_stride = {from->row_stride, from->column_stride},
                   .to_stride = {to->row_stride, to->column_stride},
                   .elems = of->rows * of->columns};
  if (w->sink->of_source) return TREADLE_OK;
  treadle_status status = treadle_cuts_add(&w->sink->cuts, 1);
  return status != TREADLE_OK ? status : w->sink->take(w->sink, &op);
}

/* Of the places that have the scale of a block, the one that reaches furthest across; NULL: none.
 * So as many blocks as can be are made as one block row. */
const treadle_placed_rectangle *treadle_block_rows_scales(const treadle_placed_rectangles *scales,
                                                          int64_t expert, int64_t down, int64_t across) {
  const treadle_rectangle block = {expert, down, 1, across, 1};
  const treadle_placed_rectangle *best = NULL;
  size_t i, end = treadle_placed_of(scales, expert, &i);
  for (; i < end; i++) {
    const treadle_placed_rectangle *placed = &scales->items[i];
    const treadle_rectangle met = treadle_block_rows_meet(&block, &placed->of);
    if (met.rows < 1 || met.columns < 1) continue;
    if (!best || placed->of.column + placed->of.columns > best->of.column + best->of.columns) best = placed;
  }
  return best;
}

static const treadle_placed_rectangle *find_scales(const treadle_block_row_walk *w, int64_t expert,
                                                   int64_t down, int64_t across) {
  return w->repeats ? treadle_block_rows_scales(&w->scales, expert, down, across)
                    : treadle_placed_find(&w->scales, expert, down, across);
}

/* The scales of these blocks, from the place where they are written to all others.
 * blocks: [rows, columns] of blocks. w->scales_left goes down by each place that has its scale, so that 0 in
 * the end says that all have. */
treadle_status treadle_block_rows_repeat(treadle_block_row_walk *w, const treadle_rectangle *blocks,
                                         const treadle_placed_rectangle *from, int32_t wave) {
  treadle_status status = TREADLE_OK;
  w->scales_left -= blocks->rows * blocks->columns;
  size_t i, end = treadle_placed_of(&w->scales, blocks->expert, &i);
  for (; i < end && w->repeats; i++) {
    const treadle_placed_rectangle *placed = &w->scales.items[i];
    const treadle_rectangle met = treadle_block_rows_meet(blocks, &placed->of);
    if (placed == from || met.rows < 1 || met.columns < 1) continue;
    w->scales_left -= met.rows * met.columns;
    TRY(copy_twin(w, &met, from, placed, w->blocks.tensor->scale, wave));
  }
out:
  return status;
}

/* Lowers *end_p to where a box begins or ends. */
static void end_at(const treadle_box *box, int axis, int64_t row, int64_t *end_p) {
  int64_t begin = box->start[axis], end = begin + box->size[axis];
  if (begin > row) *end_p = treadle_smaller(*end_p, begin);
  if (end > row) *end_p = treadle_smaller(*end_p, end);
}

/* How many block rows from this one on are made as it is made: of the same sources at hand, one step
 * further each. They end at the next border of codes, scales or a source. Only whole block rows count:
 * with blocks of 128 rows and a border at row 700, block rows 2, 3 and 4 are alike; 5 has rows on both
 * sides of the border. */
int64_t treadle_block_rows_alike(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                 const treadle_placed_rectangle *codes,
                                 const treadle_placed_rectangle *scales, bool simple) {
  const treadle_blocks *b = &w->blocks;
  int64_t down = of->row / b->high, last = codes->of.row + codes->of.rows;
  int axis = b->first_row;
  if (!treadle_block_rows_plain(b) || w->uneven || of->rows < b->high || of->row < codes->of.row) return 1;
  last = treadle_smaller(last, (scales->of.row + scales->of.rows) * b->high);
  for (size_t i = 0; i < w->sources.count; i++)
    end_at(simple ? &w->sources.items[i].box : &w->sources.items[i].piece.box, axis, of->row, &last);
  for (size_t i = 0; i < w->held.count && !simple; i++) end_at(&w->held.items[i].box, axis, of->row, &last);
  return last / b->high > down ? last / b->high - down : 1;
}

treadle_status treadle_block_rows_quantise_columns(treadle_block_row_walk *w, const treadle_rectangle *of,
                                                   const treadle_placed_rectangle *codes,
                                                   const treadle_placed_rectangle *scales, int64_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t down = of->row / b->high, end;
  TRY(treadle_block_rows_make_parts(w, of));
  TRY(count_moved(w, of));
  treadle_block_row block_row = treadle_block_rows_add(w, of, codes, scales);
  block_row.quantises = true;
  block_row.storage = codes->storage;
  block_row.value_dtype = (uint8_t)treadle_layout_dtype(w->from, b->tensor);
  block_row.parts = (int64_t)w->parts.count;
  /* Runs end where the wave changes. Parts are those of the first block row: `begin` says how many block
   * rows behind it the run begins, while codes and scales are moved on here. */
  for (int64_t last = down + count; down < last; down += block_row.count) {
    TRY(treadle_block_rows_wave(w, of->expert, down, &block_row.wave, &end));
    block_row.count = (int32_t)(treadle_smaller(end, last) - down);
    TRY(treadle_cuts_add(&w->sink->cuts, TREADLE_CUTS_OF_BLOCK_ROW + w->parts.count));
    TRY(w->sink->take_block_row(w->sink, &block_row, w->parts.items));
    w->row_moved += treadle_block_row_moved(&block_row, w->parts.items);
    w->row_written += treadle_block_row_written(&block_row, w->parts.items);
    const treadle_rectangle blocks = {of->expert, down, block_row.count, of->column / b->wide,
                                      treadle_block_row_blocks(&block_row)};
    TRY(treadle_block_rows_repeat(w, &blocks, scales, block_row.wave));
    block_row.begin += block_row.count;
    block_row.codes += block_row.count * block_row.code_step;
    block_row.scales += block_row.count * block_row.scale_step;
  }
out:
  return status;
}

/* The block rows from row block `down` on that are alike; *end_p is the one after them. `simple`: the sources at hand are good
 * for all of the codes, whose whole blocks are `all`. */
static treadle_status quantise_block_rows(treadle_block_row_walk *w, const treadle_placed_rectangle *codes,
                                          const treadle_rectangle *all, int nth, int64_t down, bool simple,
                                          int64_t *end_p) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t across = all->column / b->wide, count = (all->columns + b->wide - 1) / b->wide, columns;
  const treadle_rectangle block_row = treadle_blocks_row(b, all->expert, down, across, count);
  /* Codes that were made before for this window are copied, block row by block row in their waves. */
  if (nth > 0) {
    int32_t wave;
    const treadle_rectangle of = treadle_block_rows_meet(&block_row, &codes->of);
    TRY(treadle_block_rows_wave(w, of.expert, down, &wave, end_p));
    *end_p = down + 1;
    const treadle_placed_rectangle *first = treadle_placed_find(&w->codes, of.expert, of.row, of.column);
    return copy_twin(w, &of, first, codes, w->tensor, wave);
  }
  if (!simple) TRY(treadle_block_rows_find_sources(w, &block_row));
  /* Scales may be cut elsewhere than codes: each turn takes the columns whose scales lie in one place. */
  for (int64_t at = across; at < across + count; at += columns) {
    const treadle_placed_rectangle *scales = find_scales(w, all->expert, down, at);
    if (!scales)
      return treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": codes of %s without the scale of their block", w->rank,
                          treadle_block_rows_name(w));
    columns = treadle_smaller(across + count, scales->of.column + scales->of.columns) - at;
    const treadle_rectangle of = treadle_blocks_row(b, all->expert, down, at, columns);
    int64_t signatures =
        columns == count && !w->by_row ? treadle_block_rows_alike(w, &of, codes, scales, simple) : 1;
    TRY(treadle_block_rows_quantise_columns(w, &of, codes, scales, signatures));
    *end_p = down + signatures;
  }
out:
  return status;
}

/* The whole blocks that codes lie in.
 * Blocks of 128 and codes of rows [100, 300) of 320: block rows 0, 1 and 2, rows [0, 320). */
static treadle_rectangle whole_blocks(const treadle_blocks *b, const treadle_rectangle *of) {
  int64_t down = of->row / b->high, end = (of->row + of->rows + b->high - 1) / b->high;
  int64_t across = of->column / b->wide, last = (of->column + of->columns + b->wide - 1) / b->wide;
  treadle_rectangle all = treadle_blocks_row(b, of->expert, down, across, last - across);
  all.rows = treadle_smaller(end * b->high, b->rows) - all.row;
  return all;
}

/* Looks at codes and scales before they are made: how many places have a scale, and are they more than one
 * a block? blocks: how many the codes touch. A scale stands in several places where an expert has several
 * codes rectangles, and where there are more scales than blocks (docs/rules.md 4.10: vLLM's finer blocks). */
static void count_scales(treadle_block_row_walk *w) {
  int64_t blocks = 0;
  const treadle_blocks *b = &w->blocks;
  w->repeats = false;
  for (size_t i = 0; i < w->codes.count; i++) {
    const treadle_placed_rectangle *codes = &w->codes.items[i];
    const treadle_rectangle all = whole_blocks(b, &codes->of);
    assert(codes->column_stride == 1);
    blocks += ((all.rows + b->high - 1) / b->high) * ((all.columns + b->wide - 1) / b->wide);
    if (i > 0 && codes[-1].of.expert == codes->of.expert) w->repeats = true; /* further copies, perhaps */
  }
  w->scales_left = 0;
  for (size_t i = 0; i < w->scales.count; i++)
    w->scales_left += w->scales.items[i].of.rows * w->scales.items[i].of.columns;
  w->repeats = w->repeats || w->scales_left > blocks;
}

/* A sum of rows [down, end) of blocks of which this rank has nothing: their bytes are those of any other
 * rank that has nothing of them. The key has what the bytes follow from: the kin of the tensor, the rows of blocks, and the
 * rows and columns of codes and scales; not the rank. Bytes moved stand under the key, bytes written under the key with its last
 * bit turned. 0: no sum, since the scales lie in several places. */
static uint64_t sum_key(treadle_block_row_walk *w, const treadle_placed_rectangle *codes,
                        const treadle_rectangle *all, int64_t down, int64_t end) {
  const treadle_placed_rectangle *scales = find_scales(w, all->expert, down, all->column / w->blocks.wide);
  if (!scales || end > scales->of.row + scales->of.rows) return 0;
  const int64_t numbers[] = {MOVED,
                             treadle_blocks_sum_expert(&w->blocks, w->from, all->expert),
                             down,
                             end,
                             codes->of.row,
                             codes->of.rows,
                             codes->of.column,
                             codes->of.columns,
                             scales->of.column,
                             scales->of.columns};
  return treadle_hash_bytes(numbers, sizeof numbers, w->sink->counting->kin[w->tensor]);
}

static bool take_sum(treadle_block_row_walk *w, const treadle_rectangle *all, uint64_t key, int64_t rows) {
  const treadle_counting *counting = w->sink->counting;
  int64_t moved, written;
  if (key == 0 || !treadle_sums_find(counting->sums, key, &moved) ||
      !treadle_sums_find(counting->sums, key ^ 1, &written))
    return false;
  w->scales_left -= rows * ((all->columns + w->blocks.wide - 1) / w->blocks.wide);
  w->sink->take_sum(w->sink, w->tensor, moved, written);
  return true;
}

static void add_sum(const treadle_block_row_walk *w, uint64_t key) {
  if (key == 0) return;
  treadle_sums_add(w->sink->counting->sums, key, w->row_moved);
  treadle_sums_add(w->sink->counting->sums, key ^ 1, w->row_written);
}

/* Is what rows [down, end) of blocks move and write a sum, the same for all ranks that have nothing of them? w->here is of the
 * expert. */
static bool is_sum(const treadle_block_row_walk *w, const treadle_rectangle *all, int64_t down,
                   int64_t end) {
  return w->sink->counting && !w->repeats && w->from->ops->holders_apart &&
         !treadle_blocks_touched(&w->blocks, &w->here, all->expert, down, end);
}

/* Such rows: all of the codes, or one alone, whose sources are always found anew. */
static treadle_status quantise_once(treadle_block_row_walk *w, const treadle_placed_rectangle *codes,
                                    const treadle_rectangle *all, int64_t down, int64_t end) {
  treadle_status status = TREADLE_OK;
  uint64_t key = sum_key(w, codes, all, down, end);
  bool simple = false;
  if (take_sum(w, all, key, end - down)) return TREADLE_OK;
  w->by_row = end - down == 1;
  w->row_moved = w->row_written = 0;
  if (!w->by_row) TRY(treadle_block_rows_find_whole(w, all, &simple));
  while (down < end) TRY(quantise_block_rows(w, codes, all, 0, down, simple, &down));
  add_sum(w, key);
out:
  w->by_row = false;
  return status;
}

/* Codes that are the first ones with their row and column: of which this rank has nothing as a sum, others row by row, where
 * rows are on several ranks, or in runs of rows. */
static treadle_status quantise_codes(treadle_block_row_walk *w, const treadle_placed_rectangle *codes,
                                     const treadle_rectangle *all) {
  treadle_status status = TREADLE_OK;
  int64_t down = all->row / w->blocks.high,
          end = (all->row + all->rows + w->blocks.high - 1) / w->blocks.high;
  bool simple; /* mostly all of it is on one rank, so that block rows need not be looked at */
  if (w->near->nodes) return treadle_block_rows_quantise_near(w, codes, all);
  TRY(treadle_block_rows_turn(w, all->expert));
  if (is_sum(w, all, down, end)) return quantise_once(w, codes, all, down, end);
  TRY(treadle_block_rows_find_whole(w, all, &simple));
  while (down < end) {
    if (!simple && is_sum(w, all, down, down + 1)) {
      TRY(quantise_once(w, codes, all, down, down + 1));
      down++;
    } else {
      TRY(quantise_block_rows(w, codes, all, 0, down, simple, &down));
    }
  }
out:
  return status;
}

/* Codes come by expert, then by address. nth: this many before this one begin at the same row and column;
 * the first of them, 0, is made, the others are copies of it. */
treadle_status treadle_block_rows_quantise(treadle_block_row_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_block_rows_start_sources(w, tensor));
  count_scales(w);
  for (size_t i = 0; i < w->codes.count; i++) {
    const treadle_placed_rectangle *codes = &w->codes.items[i];
    const treadle_rectangle *of = &codes->of, all = whole_blocks(&w->blocks, of);
    int nth = 0;
    for (size_t k = i; k-- > 0 && w->codes.items[k].of.expert == of->expert;)
      nth += w->codes.items[k].of.row == of->row && w->codes.items[k].of.column == of->column;
    if (nth == 0) TRY(quantise_codes(w, codes, &all));
    for (int64_t down = all.row / w->blocks.high; nth > 0 && down * w->blocks.high < all.row + all.rows;)
      TRY(quantise_block_rows(w, codes, &all, nth, down, false, &down));
  }
  if (w->scales_left != 0 && !w->sink->of_source) /* of these only what a source gives was looked for */
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": %" PRId64 " scales of %s without codes of their blocks",
                          w->rank, w->scales_left, treadle_block_rows_name(w));
out:
  return status;
}
