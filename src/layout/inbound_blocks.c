/* The lower bound of blocks. */
#include "layout/inbound_blocks.h"

#include "base/dtype.h"

#include <string.h>

void treadle_block_bound_release(treadle_block_bound *b) {
  treadle_free(b->seen);
  treadle_array_release(&b->boxes);
  treadle_array_release(&b->rest);
  treadle_array_release(&b->spare);
  treadle_array_release(&b->cells);
  treadle_array_release(&b->held);
}

bool treadle_is_made_of_values(const treadle_layout *from, const treadle_piece *piece) {
  const treadle_tensor *tensor = &from->model->tensors[piece->tensor];
  return treadle_is_quantised(from, piece) || (tensor->scale_of >= 0 && !from->fp8);
}

static treadle_status start(treadle_block_bound *b, int32_t tensor) {
  if (b->tensor == tensor) return TREADLE_OK;
  b->tensor = tensor;
  b->blocks = treadle_blocks_of(b->from->model, tensor);
  treadle_free(b->seen);
  b->seen = treadle_alloc((size_t)(b->blocks.experts * b->blocks.down * b->blocks.across));
  if (!b->seen) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  b->held.count = 0;
  return treadle_layout_pieces_of(b->from, b->rank, tensor, &b->held);
}

/* Sees the blocks that the elements of a box lie in. */
static void see_box(treadle_block_bound *b, const treadle_box *box) {
  const treadle_blocks *m = &b->blocks;
  int axes = m->tensor->naxes;
  int64_t at[TREADLE_MAX_AXES];
  for (int a = 0; a < TREADLE_MAX_AXES; a++) at[a] = box->start[a];
  for (;;) { /* the last row axis and the last column axis go by blocks */
    int64_t row = 0, column = 0;
    for (int a = m->first_row; a < axes; a++)
      *(a < m->first_column ? &row : &column) += at[a] * m->weight[a];
    int64_t expert = m->first_row ? at[0] : 0;
    b->seen[(expert * m->down + row / m->high) * m->across + column / m->wide] = 1;
    int a = axes - 1;
    for (; a >= 0; a--) {
      int64_t end = box->start[a] + box->size[a], step = 1;
      if (a == axes - 1) step = m->wide - column % m->wide;
      if (a == m->first_column - 1) step = m->high - row % m->high;
      at[a] += step;
      if (at[a] < end) break;
      at[a] = box->start[a];
    }
    if (a < 0) return;
  }
}

static int64_t seen_count(const treadle_block_bound *b) {
  int64_t count = 0;
  for (int64_t i = 0; i < b->blocks.experts * b->blocks.down * b->blocks.across; i++) count += b->seen[i];
  return count;
}

treadle_status treadle_block_bound_scales(treadle_block_bound *b, int32_t tensor,
                                          const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  TRY(start(b, tensor));
  int64_t before = seen_count(b);
  for (size_t i = 0; i < boxes->count; i++) see_box(b, &boxes->items[i]);
  b->bytes += (seen_count(b) - before) * (int64_t)sizeof(float);
out:
  return status;
}

/* ---- Codes ---- */

enum { MAX_HOLDERS = 8 };

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
  TRY(treadle_rectangle_boxes(&b->blocks, of, &b->rest));
  for (size_t k = 0; k < b->held.count; k++) {
    b->spare.count = 0;
    for (size_t i = 0; i < b->rest.count; i++)
      TRY(treadle_box_subtract(&b->rest.items[i], &b->held.items[k].box, &b->spare));
    treadle_boxes swap = b->rest;
    b->rest = b->spare;
    b->spare = swap;
  }
  for (size_t i = 0; i < b->rest.count; i++) {
    *elems_p += treadle_box_elems(&b->rest.items[i]);
    TRY(treadle_layout_cells(b->from, b->tensor, &b->rest.items[i], &b->cells));
  }
out:
  return status;
}

/* Blocks that are all wanted: rows [down, end), columns [across, last). As one where that can be told of all, else row by
 * row, else one by one. */
static treadle_status count_blocks(treadle_block_bound *b, int64_t expert, int64_t down, int64_t end,
                                   int64_t across, int64_t last) {
  treadle_status status = TREADLE_OK;
  int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(b->from, b->blocks.tensor)), elems;
  treadle_rectangle of = treadle_blocks_band(&b->blocks, expert, down, across, last - across);
  const treadle_rectangle below = treadle_blocks_band(&b->blocks, expert, end - 1, across, last - across);
  of.rows = below.row + below.rows - of.row;
  TRY(find_rest(b, &of, &elems));
  if (elems == 0) goto out;
  if (elems == of.rows * of.columns && one_has_all(b))
    b->bytes += elems + (end - down) * (last - across) * (int64_t)sizeof(float);
  else if (end - down > 1)
    for (int64_t i = down; i < end; i++) TRY(count_blocks(b, expert, i, i + 1, across, last));
  else if (last - across > 1)
    for (int64_t j = across; j < last; j++) TRY(count_blocks(b, expert, down, end, j, j + 1));
  else
    b->bytes += elems * wide;
out:
  return status;
}

/* Takes the blocks that were seen, rectangle by rectangle. */
static treadle_status count_codes(treadle_block_bound *b) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *m = &b->blocks;
  int64_t all = m->experts * m->down * m->across;
  for (uint8_t *seen = b->seen; (seen = memchr(seen, 1, (size_t)(b->seen + all - seen)));) {
    int64_t at = seen - b->seen, across = at % m->across, down = at / m->across % m->down, end = down;
    int64_t last = across, expert = at / m->across / m->down;
    while (last < m->across && seen[last - across]) last++;
    size_t count = (size_t)(last - across);
    for (uint8_t *next = seen; end < m->down && !memchr(next, 0, count); next += m->across, end++)
      memset(next, 0, count);
    TRY(count_blocks(b, expert, down, end, across, last));
  }
out:
  return status;
}

treadle_status treadle_block_bound_codes(treadle_block_bound *b, const treadle_layout *to,
                                         const treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = b->from->model;
  treadle_pieces codes = {0};
  char *done = treadle_alloc((size_t)model->tensor_count + 1);
  if (!done) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  b->tensor = -1;
  for (size_t i = 0; i < pieces->count; i++) {
    int32_t tensor = pieces->items[i].tensor;
    if (tensor < 0 || done[tensor] || !treadle_is_quantised(b->from, &pieces->items[i])) continue;
    done[tensor] = 1;
    TRY(start(b, tensor));
    codes.count = 0;
    TRY(treadle_layout_pieces_of(to, b->rank, tensor, &codes));
    for (size_t k = 0; k < codes.count; k++)
      if (codes.items[k].dtype == TREADLE_FP8_E4M3) see_box(b, &codes.items[k].box);
    TRY(count_codes(b));
  }
out:
  treadle_array_release(&codes);
  treadle_free(done);
  return status;
}
