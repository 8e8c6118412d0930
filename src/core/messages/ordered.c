#include "messages/ordered.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/larger.h"
#include "plan/block_rows.h"

#include <inttypes.h>

treadle_status treadle_ordered_begin(const treadle_plan *plan, bool back, treadle_ordered *ordered) {
  treadle_ordered_walk *walk = treadle_alloc(sizeof *walk);
  const treadle_layout *from = back ? plan->to : plan->from, *to = back ? plan->from : plan->to;
  *ordered = (treadle_ordered){.walk = walk};
  if (!walk) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  *walk = (treadle_ordered_walk){.plan = plan, .back = back};
  treadle_near_init(&walk->near, plan->nodes, plan->rank);
  treadle_block_row_walk_init(&walk->walk, NULL, from, to, plan->rank, &walk->sink);
  walk->walk.near = &walk->near;
  return TREADLE_OK;
}

void treadle_ordered_end(treadle_ordered *ordered) {
  treadle_ordered_walk *walk = ordered->walk;
  if (!walk) return;
  treadle_block_row_walk_release(&walk->walk);
  treadle_near_release(&walk->near);
  treadle_hash_index_release(&walk->found);
  treadle_free(walk);
  ordered->walk = NULL;
}

void treadle_ordered_release(treadle_ordered *ordered) {
  treadle_ordered_end(ordered);
  treadle_array_release(&ordered->list);
  treadle_array_release(&ordered->parts);
  *ordered = (treadle_ordered){0};
}

/* ---- Which one ---- */

static bool is_of_codes(const treadle_op *op) { return op->from_dtype == TREADLE_FP8_E4M3; }

/* Codes of columns [100, 300) in blocks of 128 columns are of blocks 0 to 2. */
static treadle_ordered_row row_of(const treadle_blocks *b, const treadle_op *whole,
                                  const treadle_op *part) {
  int64_t number = part->from / part->made, at = whole->from % whole->made, columns = whole->size[1], end;
  treadle_ordered_row row = {.expert = number / b->down, .down = number % b->down, .columns = b->columns};
  if (is_of_codes(whole)) {
    at %= b->columns;
    end = (at + columns + b->wide - 1) / b->wide;
    row.across = at / b->wide;
  } else {
    row.across = at / (int64_t)sizeof(float);
    end = row.across + columns;
  }
  row.blocks = end - row.across;
  return row;
}

/* Its parts, all from ranks of this node. */
static treadle_status find_parts(treadle_ordered *ordered, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  treadle_ordered_walk *m = ordered->walk;
  treadle_block_row_walk *w = &m->walk;
  TRY(treadle_block_rows_find_sources(w, of));
  if (w->rest.count > 0)
    TRY(treadle_fail(TREADLE_DIFFERENT,
                     "plan: rank %" PRId64
                     " is to make blocks of %s, and its node has not all of their values",
                     w->rank, treadle_block_rows_name(w)));
  TRY(treadle_block_rows_make_parts(w, of));
  for (size_t i = 0; i < w->parts.count; i++) {
    treadle_block_row_part part = w->parts.items[i];
    const bool own = part.op.source == w->rank;
    ordered->reads_others = ordered->reads_others || !own;
    if (m->back && own) part.op.from = treadle_plan_place(&m->plan->arrangement, part.op.from);
    TRY(treadle_array_push(&ordered->parts, part));
  }
out:
  return status;
}

static treadle_status add(treadle_ordered *ordered, int32_t tensor, treadle_ordered_row *row) {
  treadle_status status = TREADLE_OK;
  treadle_block_row_walk *w = &ordered->walk->walk;
  const treadle_blocks *b = &w->blocks;
  const treadle_rectangle of = treadle_blocks_row(b, row->expert, row->down, row->across, row->blocks);
  treadle_dtype dtype = treadle_layout_dtype(w->from, b->tensor);
  row->block_row = (treadle_block_row){.tensor = tensor,
                                       .count = 1,
                                       .quantises = true,
                                       .value_dtype = (uint8_t)dtype,
                                       .rows = (int32_t)of.rows,
                                       .columns = (int32_t)of.columns,
                                       .block_columns = (int32_t)b->wide,
                                       .code_rows = (int32_t)of.rows,
                                       .code_columns = (int32_t)of.columns,
                                       .part_first = (int64_t)ordered->parts.count};
  TRY(find_parts(ordered, &of));
  row->block_row.parts = (int64_t)ordered->parts.count - row->block_row.part_first;
  int64_t values = of.rows * of.columns;
  ordered->scratch_bytes =
      treadle_larger(ordered->scratch_bytes, values * (int64_t)treadle_dtype_bytes(dtype));
  ordered->scratch_codes = treadle_larger(ordered->scratch_codes, values);
  ordered->scratch_scales = treadle_larger(ordered->scratch_scales, row->blocks);
  TRY(treadle_array_push(&ordered->list, *row));
out:
  return status;
}

treadle_status treadle_ordered_add(treadle_ordered *ordered, const treadle_op *whole,
                                   const treadle_op *part, int64_t *number_p) {
  treadle_status status = TREADLE_OK;
  treadle_ordered_walk *m = ordered->walk;
  int32_t number = (int32_t)ordered->list.count, first;
  TRY(treadle_block_rows_start_sources(&m->walk, part->tensor));
  treadle_ordered_row row = row_of(&m->walk.blocks, whole, part);
  const int64_t numbers[] = {part->tensor, row.expert, row.down, row.across, row.blocks};
  TRY(treadle_hash_index_put(&m->found, treadle_hash_bytes(numbers, sizeof numbers, 0), number, &first));
  *number_p = first;
  if (first == number) TRY(add(ordered, part->tensor, &row));
out:
  return status;
}

treadle_op treadle_ordered_read(const treadle_ordered *ordered, int64_t number, const treadle_op *op) {
  const treadle_ordered_row *row = &ordered->list.items[number];
  const treadle_block_row *block_row = &row->block_row;
  int64_t at = op->from % op->made, each = (int64_t)sizeof(float);
  treadle_op read = *op;
  read.made = 0;
  if (!is_of_codes(op)) {
    read.from = at - row->across * each;
    return read;
  }
  read.from =
      at / row->columns * block_row->columns + at % row->columns - row->across * block_row->block_columns;
  for (int d = 0; d < read.ndim; d++)
    if (read.from_stride[d] == row->columns && row->columns > 1) read.from_stride[d] = block_row->columns;
  return read;
}
