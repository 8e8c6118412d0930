/* The lower bound of blocks. */
#include "layout/inbound_blocks.h"

#include "base/dtype.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

void treadle_block_bound_release(treadle_block_bound *b) {
  treadle_scale_set_release(&b->scale_set);
  treadle_array_release(&b->boxes);
  treadle_array_release(&b->rest);
  treadle_array_release(&b->spare);
  treadle_array_release(&b->cells);
  treadle_array_release(&b->held);
}

bool treadle_is_made_of_values(const treadle_layout *from, const treadle_piece *piece) {
  const treadle_tensor *tensor = &from->model->tensors[piece->tensor];
  return treadle_is_quantised(from, piece) ||
         (tensor->scale_of >= 0 && !treadle_layout_holds_codes(from, piece->tensor));
}

static treadle_status start(treadle_block_bound *b, int32_t tensor) {
  if (b->tensor == tensor) return TREADLE_OK;
  b->tensor = tensor;
  b->blocks = treadle_blocks_of(b->from->model, tensor);
  b->has_seen = false;
  b->held.count = 0;
  return treadle_layout_bundles_of(b->from, b->rank, tensor, &b->held);
}

/* No block of the tensor at hand was seen yet. */
static treadle_status start_seen(treadle_block_bound *b) {
  if (b->has_seen) return TREADLE_OK;
  b->has_seen = true;
  return treadle_scale_set_start(&b->scale_set, &b->blocks);
}

treadle_status treadle_block_bound_scales(treadle_block_bound *b, int32_t tensor,
                                          const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  TRY(start(b, tensor));
  TRY(start_seen(b));
  for (size_t i = 0; i < boxes->count; i++)
    b->bytes +=
        treadle_scale_set_add_box(&b->scale_set, &b->blocks, &boxes->items[i]) * (int64_t)sizeof(float);
out:
  return status;
}

/* ---- Codes ---- */

enum { MAX_HOLDERS = 8, BOUND = 1 /* what a sum is of */ };

/* Is there a rank that has all of the cells? */
static bool one_has_all(const treadle_block_bound *b) {
  const treadle_cell *first = &b->cells.items[0];
  for (int64_t h = 0; h < first->holders && h < MAX_HOLDERS; h++) {
    int64_t rank = treadle_cell_rank(b->from, first, h);
    size_t i = 1;
    while (i < b->cells.count && treadle_cell_find(b->from, &b->cells.items[i], rank) >= 0) i++;
    if (i == b->cells.count) return true;
  }
  return false;
}

/* Leaves in b->rest what of a rectangle this rank does not hold, and in b->cells who has it. */
static treadle_status find_rest(treadle_block_bound *b, const treadle_rectangle *of, int64_t *elems_p) {
  treadle_status status = TREADLE_OK;
  b->rest.count = b->cells.count = 0;
  *elems_p = 0;
  TRY(treadle_cuts_add(&b->cuts, TREADLE_CUTS_OF_BLOCK_ROW + b->held.count));
  TRY(treadle_rectangle_boxes(&b->blocks, of, &b->rest));
  for (size_t k = 0; k < b->held.count; k++)
    TRY(treadle_boxes_subtract(&b->rest, &b->held.items[k].box, &b->spare));
  for (size_t i = 0; i < b->rest.count; i++) {
    *elems_p += treadle_box_elems(&b->rest.items[i]);
    TRY(treadle_layout_cells(b->from, b->tensor, &b->rest.items[i], &b->cells));
  }
out:
  return status;
}

/* Moves *border_p to a border of blocks strictly between `low` and `high`, at or beside which a box begins or ends along rows,
 * or columns, and which is nearer to the middle; 0: none so far. Where they are several axes, which boxes do not take
 * whole: the middle. */
static void find_border(const treadle_blocks *m, const treadle_box *box, bool rows, int64_t low,
                        int64_t high, int64_t *border_p) {
  int first = rows ? m->first_row : m->first_column, end = rows ? m->first_column : m->tensor->naxes;
  int64_t size = rows ? m->high : m->wide,
          at[2] = {box->start[first], box->start[first] + box->size[first]};
  int64_t twice = low + high;
  bool whole = true;
  for (int a = first; a < end; a++) whole = whole && box->size[a] == m->tensor->axis[a];
  if (whole) return;
  if (end - first > 1) {
    *border_p = twice / 2;
    return;
  }
  for (int i = 0; i < 2; i++)
    for (int64_t border = at[i] / size; border * size < at[i] + size; border++)
      if (border > low && border < high &&
          (*border_p == 0 || llabs(2 * border - twice) < llabs(2 * *border_p - twice)))
        *border_p = border;
}

/* Of all boxes of the rest, and of all cells, the border nearest to the middle. */
static int64_t split_of(const treadle_block_bound *b, bool rows, int64_t low, int64_t high) {
  int64_t border = 0;
  if (high - low < 2) return 0;
  for (size_t i = 0; i < b->rest.count; i++)
    find_border(&b->blocks, &b->rest.items[i], rows, low, high, &border);
  for (size_t i = 0; i < b->cells.count; i++)
    find_border(&b->blocks, &b->cells.items[i].box, rows, low, high, &border);
  return border;
}

/* Adds the bytes of rows [down, end) of blocks, columns [across, last). */
typedef treadle_status count_function(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                      int64_t across, int64_t last);

/* Counts by `count`, or takes the sum of another rank that has nothing of these blocks either. */
static treadle_status count_once(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                 int64_t across, int64_t last, count_function *count) {
  treadle_status status = TREADLE_OK;
  int64_t before = b->bytes, sum;
  if (!b->counting || !b->from->ops->holders_apart ||
      treadle_blocks_touched(&b->blocks, &b->held, expert, down, end))
    return count(b, expert, down, end, across, last);
  const int64_t numbers[] = {
      BOUND, treadle_blocks_sum_expert(&b->blocks, b->from, expert), down, end, across, last};
  uint64_t key = treadle_hash_bytes(numbers, sizeof numbers, b->counting->kin[b->tensor]);
  if (treadle_sums_find(b->counting->sums, key, &sum)) {
    b->bytes += sum;
    return TREADLE_OK;
  }
  TRY(count(b, expert, down, end, across, last));
  treadle_sums_add(b->counting->sums, key, b->bytes - before);
out:
  return status;
}

static count_function count_blocks;

/* The same, row by row. */
static treadle_status count_rows(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                 int64_t across, int64_t last) {
  treadle_status status = TREADLE_OK;
  for (; down < end; down++) TRY(count_once(b, expert, down, down + 1, across, last, count_blocks));
out:
  return status;
}

/* Blocks that are all wanted: rows [down, end), columns [across, last). As one where that can be told of all; else split
 * where what is there changes, until blocks are alike. */
static treadle_status count_blocks(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                   int64_t across, int64_t last) {
  treadle_status status = TREADLE_OK;
  int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(b->from, b->blocks.tensor)), elems;
  treadle_rectangle of = treadle_blocks_row(&b->blocks, expert, down, across, last - across);
  const treadle_rectangle below = treadle_blocks_row(&b->blocks, expert, end - 1, across, last - across);
  of.rows = below.row + below.rows - of.row;
  TRY(find_rest(b, &of, &elems));
  if (elems == 0) goto out;
  if (elems == of.rows * of.columns && one_has_all(b)) {
    b->bytes += elems + (end - down) * (last - across) * (int64_t)sizeof(float);
    goto out;
  }
  int64_t column = split_of(b, false, across, last), row = column ? 0 : split_of(b, true, down, end);
  if (column) {
    TRY(count_blocks(b, expert, down, end, across, column));
    TRY(count_blocks(b, expert, down, end, column, last));
  } else if (row) {
    if ((int64_t)b->cells.count > 2 * (end - down)) return count_rows(b, expert, down, end, across, last);
    TRY(count_blocks(b, expert, down, row, across, last));
    TRY(count_blocks(b, expert, row, end, across, last));
  } else {
    b->bytes += elems * wide;
  }
out:
  return status;
}

/* The same of all that is wanted together. Where a row already lies in several cells that are no higher, no two rows are
 * alike, and the cells of all of them would be found for nothing. */
static treadle_status count_all(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                int64_t across, int64_t last) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *m = &b->blocks;
  const treadle_rectangle row = treadle_blocks_row(m, expert, down, across, last - across);
  int64_t elems, low = 0;
  TRY(find_rest(b, &row, &elems));
  for (size_t i = 0; i < b->cells.count; i++) {
    int64_t rows = 1;
    for (int a = m->first_row; a < m->first_column; a++) rows *= b->cells.items[i].box.size[a];
    low += rows <= m->high;
  }
  TRY((low > 2 ? count_rows : count_blocks)(b, expert, down, end, across, last));
out:
  return status;
}

/* The rows of blocks, and the columns, that a box touches in each of its experts; false where its rows or columns do not
 * follow each other. */
static bool rectangle_of(const treadle_blocks *m, const treadle_box *box, treadle_rectangle *of_p) {
  *of_p = (treadle_rectangle){.rows = 1, .columns = 1};
  for (int rows = 0; rows < 2; rows++) {
    int64_t *at = rows ? &of_p->row : &of_p->column, *count = rows ? &of_p->rows : &of_p->columns;
    int first = rows ? m->first_row : m->first_column, last = rows ? m->first_column : m->tensor->naxes;
    bool whole = true; /* the axes so far */
    for (int a = last - 1; a >= first; a--) {
      if (!whole && box->size[a] > 1) return false;
      *at += box->start[a] * m->weight[a];
      *count += (box->size[a] - 1) * m->weight[a];
      whole = whole && box->size[a] == m->tensor->axis[a];
    }
  }
  return true;
}

/* Takes the blocks that were seen, rectangle by rectangle. */
static treadle_status count_codes(treadle_block_bound *b) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *m = &b->blocks;
  int64_t all = m->experts * m->down * m->across;
  uint8_t *first = b->scale_set.blocks;
  for (uint8_t *scale_set = first; (scale_set = memchr(scale_set, 1, (size_t)(first + all - scale_set)));) {
    int64_t at = scale_set - first, across = at % m->across, down = at / m->across % m->down, end = down;
    int64_t last = across, expert = at / m->across / m->down;
    while (last < m->across && scale_set[last - across]) last++;
    size_t count = (size_t)(last - across);
    for (uint8_t *next = scale_set; end < m->down && !memchr(next, 0, count); next += m->across, end++)
      memset(next, 0, count);
    TRY(count_once(b, expert, down, end, across, last, count_all));
  }
out:
  return status;
}

/* The codes of one tensor. */
static treadle_status take_codes(treadle_block_bound *b, const treadle_pieces *codes) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *m = &b->blocks;
  const treadle_box *only = NULL;
  treadle_rectangle of;
  size_t count = 0;
  for (size_t k = 0; k < codes->count; k++)
    if (codes->items[k].dtype == TREADLE_FP8_E4M3) only = &codes->items[k].box, count++;
  if (count == 1 && rectangle_of(m, only, &of)) { /* the rule: no block is seen twice */
    int64_t begin = m->first_row ? only->start[0] : 0, experts = m->first_row ? only->size[0] : 1;
    for (int64_t e = begin; e < begin + experts; e++)
      TRY(count_once(b, e, of.row / m->high, (of.row + of.rows - 1) / m->high + 1, of.column / m->wide,
                     (of.column + of.columns - 1) / m->wide + 1, count_all));
    return TREADLE_OK;
  }
  TRY(start_seen(b));
  for (size_t k = 0; k < codes->count; k++)
    if (codes->items[k].dtype == TREADLE_FP8_E4M3)
      treadle_scale_set_add_box(&b->scale_set, m, &codes->items[k].box);
  TRY(count_codes(b));
out:
  return status;
}

treadle_status treadle_block_bound_codes(treadle_block_bound *b, int32_t tensor,
                                         const treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  TRY(start(b, tensor));
  TRY(take_codes(b, pieces));
out:
  return status;
}
