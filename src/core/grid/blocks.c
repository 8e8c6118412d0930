/* Grid layouts: fp8 weights are cut on the borders of their blocks, so that the scales of a shard are a cut of the scales.
 * docs/rules.md 4.10 (vLLM fp8.py, SGLang fp8.py). */
#include "grid/grid.h"

#include "base/divisor.h"

#include <inttypes.h>

/* Finer blocks have this side at least, and are made of whole ones: a matrix with a part of a block at its end keeps
 * the scale of a whole one in the file, and the loader's shares of the scales do not add up (vLLM
 * refine_fp8_moe_block_shape, RoutedExperts). Blocks that are this small themselves, which no public file has, are cut
 * wherever it is. */
enum { FINEST_BLOCK = 32 };

/* Rows of a part on one shard. Two axes of rows are [heads, head_dim] of keys or values, which are repeated
 * where there are more shards than heads; with three, query heads are cut evenly (docs/rules.md 4.4). */
static int64_t rows_on_shard(const treadle_grid_rule *rule, const treadle_part_shape *weight) {
  int rows = 0;
  for (int a = 0; a < weight->naxes; a++) rows += weight->axis_dim[a] == 0;
  bool repeated = rule->rule->cut == TREADLE_CUT_HEADS && rule->shards > weight->axis[0] && rows < 3;
  bool cut = rule->rule->cut == TREADLE_CUT_ROWS || rule->rule->cut == TREADLE_CUT_HEADS;
  return !cut ? weight->shape[0] : weight->shape[0] / (repeated ? weight->axis[0] : rule->shards);
}

treadle_status treadle_grid_check_blocks(const treadle_layout *layout, bool refines,
                                         treadle_grid_rule *rule) {
  const treadle_model *model = layout->model;
  treadle_status status = TREADLE_OK;
  for (int p = 0; p < rule->nparts; p++) {
    const treadle_pattern *scales = &model->family->patterns[rule->rule->parts[p].pattern];
    treadle_part_shape weight;
    TRY(treadle_model_part(model, (treadle_part_name){scales->scale_of, -1}, &weight));
    rule->rows[p] = weight.shape[0];
    rule->columns[p] = weight.shape[1];
    int64_t rows = rows_on_shard(rule, &weight), columns = weight.shape[1];
    if (rule->rule->cut == TREADLE_CUT_COLS) columns /= rule->shards;
    /* The last part of the stack, and of the one more expert, may end inside of a block: no grid of blocks
     * begins behind it. */
    bool last = p == rule->nparts - 1 - rule->also || p == rule->nparts - 1;
    bool rows_fit = rows % model->block[0] == 0 || (rows == weight.shape[0] && last);
    bool columns_fit = columns % model->block[1] == 0 || columns == weight.shape[1];
    /* Im = 384 over 2 with H = 256: gate is cut to [192, 256] and down to [256, 192]; both have 64 in
     * common with a block of 128, so a block is 2 x 2 finer ones. */
    int64_t finer = treadle_common_divisor(treadle_common_divisor(rows, columns), model->block[0]);
    if (!(rows_fit && columns_fit) && refines && rule->ep && !rule->also &&
        model->block[0] == model->block[1]) {
      bool whole = weight.shape[0] % model->block[0] == 0 && weight.shape[1] % model->block[1] == 0;
      if (model->block[0] > FINEST_BLOCK && (finer < FINEST_BLOCK || !whole))
        REFUSE("layout '%s': %s: vLLM makes no finer fp8 blocks of %" PRId64 " x %" PRId64
               " of %s, cut to %" PRId64 " x %" PRId64 "; cut it over fewer ranks, or give dtype=bf16",
               layout->text, rule->name->text, weight.shape[0], weight.shape[1],
               model->family->patterns[scales->scale_of].name, rows, columns);
      rule->refined = finer;
    } else if (!rows_fit)
      REFUSE("layout '%s': %s: %" PRId64 " rows of %s are no multiple of the %" PRId64
             " rows of an fp8 block; cut it over fewer ranks, or give dtype=bf16",
             layout->text, rule->name->text, rows, model->family->patterns[scales->scale_of].name,
             model->block[0]);
    else if (!columns_fit)
      REFUSE("layout '%s': %s: %" PRId64 " columns of %s are no multiple of the %" PRId64
             " columns of an fp8 block; cut it over fewer ranks, or give dtype=bf16",
             layout->text, rule->name->text, columns, model->family->patterns[scales->scale_of].name,
             model->block[1]);
  }
  if (rule->refined) rule->blocks_in_one = model->block[0] / rule->refined;
out:
  return status;
}

/* The range of a dimension on a shard, in finer blocks. 192 of 384 rows in blocks of 64: shard 1 has 3 of
 * them, from 3 on. What is not cut that way has all, from 0 on. */
static void refined_range(const treadle_grid_rule *rule, treadle_cut cut, int64_t length, int64_t shard,
                          int64_t *low_p, int64_t *count_p) {
  int64_t shards = rule->rule->cut == cut ? rule->shards : 1;
  *count_p = length / shards / rule->refined;
  *low_p = *count_p * (shards > 1 ? shard : 0);
}

/* The local scales of one expert, [rows, columns] in finer blocks: parts one above the other. In the
 * example of docs/rules.md 4.10 w13 has [3 + 3, 4] and w2 [4, 3]. */
void treadle_refined_shape(const treadle_grid_rule *rule, treadle_storage *storage) {
  int64_t low, rows = 0;
  storage->ndim = 2;
  for (int p = 0; p < rule->nparts; p++) {
    refined_range(rule, TREADLE_CUT_ROWS, rule->rows[p], 0, &low, &storage->shape[0]);
    rows += storage->shape[0];
  }
  storage->shape[0] = rows;
  refined_range(rule, TREADLE_CUT_COLS, rule->columns[0], 0, &low, &storage->shape[1]);
}

/* Each scale stands in blocks_in_one x blocks_in_one places, some of them on the next shard: one part for each place in
 * the block, which repeats every blocks_in_one rows and columns. The scale is of the shard of its first
 * place. Shard 1 above has finer rows 3, 4, 5 of old blocks 1, 2, 2. Place 0 of a block is row 4: old block
 * 2 at local row 1. Place 1 are rows 3 and 5: old blocks 1 and 2 at local rows 0 and 2. */
treadle_status treadle_refined_part(const treadle_grid_rule *rule, int position, int64_t shard, bool once,
                                    treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  int64_t in_one = rule->blocks_in_one, row_low, rows, column_low, columns, offset = 0;
  refined_range(rule, TREADLE_CUT_ROWS, rule->rows[position], shard, &row_low, &rows);
  refined_range(rule, TREADLE_CUT_COLS, rule->columns[position], shard, &column_low, &columns);
  for (int p = 0; p < position; p++) {
    int64_t low, above;
    refined_range(rule, TREADLE_CUT_ROWS, rule->rows[p], shard, &low, &above);
    offset += above * columns;
  }
  for (int64_t i = 0; i < (once ? 1 : in_one); i++)
    for (int64_t j = 0; j < (once ? 1 : in_one); j++) {
      /* The first local row, and column, that is place (i, j) of its old block. */
      int64_t row = (i - row_low % in_one + in_one) % in_one,
              column = (j - column_low % in_one + in_one) % in_one;
      if (row >= rows || column >= columns) continue;
      treadle_part part = {.offset = offset + row * columns + column};
      for (int a = 0; a < TREADLE_MAX_AXES; a++) part.box.size[a] = 1;
      part.box.start[0] = (row_low + row) / in_one;
      part.box.size[0] = (rows - row + in_one - 1) / in_one;
      part.box.start[1] = (column_low + column) / in_one;
      part.box.size[1] = (columns - column + in_one - 1) / in_one;
      part.stride[0] = in_one * columns;
      part.stride[1] = in_one;
      TRY(treadle_array_push(parts, part));
    }
out:
  return status;
}

/* A box of scales, in old blocks, on the shards of their first places: `each` finer blocks a shard. */
void treadle_refined_shards(const treadle_grid_rule *rule, int position, const treadle_box *box,
                            int64_t *first_p, int64_t *last_p) {
  bool by_columns = rule->rule->cut == TREADLE_CUT_COLS;
  int axis = by_columns;
  int64_t each = (by_columns ? rule->columns : rule->rows)[position] / rule->shards / rule->refined;
  *first_p = box->start[axis] * rule->blocks_in_one / each;
  *last_p = (box->start[axis] + box->size[axis] - 1) * rule->blocks_in_one / each;
}
