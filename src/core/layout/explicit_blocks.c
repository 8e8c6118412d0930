/* Explicit pieces of fp8 models: do they hold blocks, and can these blocks be quantised and dequantised?
 *
 * That needs, on every rank, codes in rows without gaps, the scale of each of their blocks, and no other scales. Other
 * pieces are a valid layout, too; then codes and scales can only be copied as they are. */
#include "base/dtype.h"
#include "layout/blocks.h"
#include "layout/explicit_parts.h"

#include <inttypes.h>
#include <stdio.h>

treadle_status treadle_explicit_find_fp8(treadle_explicit_builder *b) {
  treadle_status status = TREADLE_OK;
  treadle_layout *layout = b->layout;
  const treadle_model *model = layout->model;
  int32_t codes = -1, values = -1, scales = -1;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    if (model->tensors[t].scale >= 0 && b->dtypes[t])
      *(b->dtypes[t] == TREADLE_FP8_E4M3 ? &codes : &values) = t;
    if (model->tensors[t].scale_of >= 0 && b->dtypes[t]) scales = t;
  }
  if (codes >= 0 && values >= 0)
    TREADLE_EXPLICIT_REFUSE(
        "pieces: %s is given in fp8 and %s in %s: of tensors with block scales, all are in "
        "fp8 or none is",
        model->tensors[codes].name, model->tensors[values].name, treadle_dtype_name(b->dtypes[values]));
  if (scales >= 0 && codes < 0)
    TREADLE_EXPLICIT_REFUSE("pieces: %s is given, and %s, whose blocks it scales, is not in fp8",
                            model->tensors[scales].name,
                            model->tensors[model->tensors[scales].scale_of].name);
  layout->fp8 = codes >= 0;
out:
  return status;
}

/* The pieces of one tensor on a rank; *at_p moves behind them. */
static treadle_status take_rank(const treadle_explicit *explicit, int32_t tensor, int64_t rank,
                                size_t *at_p, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  pieces->count = 0;
  for (; *at_p < explicit->tensor_first[tensor + 1] && explicit->by_tensor[*at_p].rank == rank; ++*at_p)
    TRY(treadle_array_push(pieces, explicit->by_tensor[*at_p].piece));
out:
  return status;
}

/* The first block of these codes whose scale is not there; false: none. */
static bool lacks_scale(const treadle_blocks *b, const treadle_placed_rectangle *codes,
                        const treadle_placed_rectangles *scales) {
  const treadle_rectangle *of = &codes->of;
  for (int64_t down = of->row / b->high; down * b->high < of->row + of->rows; down++)
    for (int64_t across = of->column / b->wide; across * b->wide < of->column + of->columns;) {
      const treadle_placed_rectangle *scale = treadle_placed_find(scales, of->expert, down, across);
      if (!scale) return true;
      across = scale->of.column + scale->of.columns;
    }
  return false;
}

/* The column behind those blocks of row `down`, from `across` on, that some codes lie in; `across`: none do. */
static int64_t codes_up_to(const treadle_blocks *b, const treadle_placed_rectangles *codes, int64_t expert,
                           int64_t down, int64_t across) {
  size_t i, end = treadle_placed_of(codes, expert, &i);
  for (; i < end; i++) {
    const treadle_rectangle *of = &codes->items[i].of;
    if (of->row < (down + 1) * b->high && of->row + of->rows > down * b->high &&
        of->column < (across + 1) * b->wide && of->column + of->columns > across * b->wide)
      return (of->column + of->columns - 1) / b->wide + 1;
  }
  return across;
}

static bool lacks_codes(const treadle_blocks *b, const treadle_placed_rectangle *scales,
                        const treadle_placed_rectangles *codes) {
  const treadle_rectangle *of = &scales->of;
  for (int64_t down = of->row; down < of->row + of->rows; down++)
    for (int64_t across = of->column, next; across < of->column + of->columns; across = next) {
      next = codes_up_to(b, codes, of->expert, down, across);
      if (next == across) return true;
    }
  return false;
}

/* What is wrong with the blocks of a tensor on a rank; NULL: nothing. */
static const char *fault_of(const treadle_blocks *b, const treadle_placed_rectangles *codes,
                            const treadle_placed_rectangles *scales) {
  for (size_t i = 0; i < codes->count; i++) {
    if (codes->items[i].column_stride != 1) return "has codes with gaps between columns";
    if (lacks_scale(b, &codes->items[i], scales)) return "has codes without the scale of their block";
  }
  for (size_t i = 0; i < scales->count; i++)
    if (lacks_codes(b, &scales->items[i], codes)) return "has scales without codes of their blocks";
  return NULL;
}

treadle_status treadle_explicit_check_blocks(treadle_explicit_builder *b) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = b->layout->model;
  const treadle_explicit *explicit = b->explicit;
  treadle_pieces pieces = {0};
  treadle_placed_rectangles codes = {0}, scales = {0};
  for (int32_t t = 0; t < model->tensor_count && b->layout->fp8; t++) {
    int32_t s = model->tensors[t].scale;
    if (s < 0) continue;
    const treadle_blocks of_codes = treadle_blocks_of(model, t), of_scales = treadle_blocks_of(model, s);
    size_t at = explicit->tensor_first[t], scale_at = explicit->tensor_first[s];
    for (int64_t rank = 0; rank < b->layout->ranks; rank++) {
      TRY(take_rank(explicit, t, rank, &at, &pieces));
      TRY(treadle_blocks_places(&of_codes, &pieces, -1, true, &codes));
      TRY(take_rank(explicit, s, rank, &scale_at, &pieces));
      TRY(treadle_blocks_places(&of_scales, &pieces, -1, false, &scales));
      const char *fault = fault_of(&of_codes, &codes, &scales);
      if (!fault) continue;
      snprintf(b->explicit->fault, sizeof b->explicit->fault, "rank %" PRId64 " %s: %s", rank, fault,
               model->tensors[t].name);
      b->layout->blocks_fault = b->explicit->fault;
      goto out;
    }
  }
out:
  treadle_array_release(&pieces);
  treadle_array_release(&codes);
  treadle_array_release(&scales);
  return status;
}
