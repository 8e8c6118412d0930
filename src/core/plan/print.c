/* A plan as text: one line for each op. For people, and for comparing plans. */
#include "base/argument.h"
#include "base/dtype.h"
#include "base/utf8.h"
#include "plan/plan.h"

#include <inttypes.h>

static void print_op(const treadle_plan *plan, const treadle_op *op, FILE *file) {
  if (op->source < 0)
    fprintf(file, "  fill");
  else if (op->twin && op->source == plan->rank)
    fprintf(file, "  copy twin");
  else if (op->twin)
    fprintf(file, "  relay rank %d", op->source);
  else if (op->source == plan->rank)
    fprintf(file, "  copy own");
  else
    fprintf(file, "  pull rank %d", op->source);
  if (op->tensor >= 0)
    fprintf(file, " %s", treadle_text_shown(plan->from->model->tensors[op->tensor].name));
  fprintf(file, " %s", treadle_dtype_name((treadle_dtype)op->from_dtype));
  if (op->from_dtype != op->to_dtype) fprintf(file, ">%s", treadle_dtype_name((treadle_dtype)op->to_dtype));
  if (op->add) fprintf(file, " %+d", op->add);
  for (int d = 0; d < op->ndim; d++)
    fprintf(file, " %" PRId64 "(%" PRId64 ">%" PRId64 ")", op->size[d], op->from_stride[d],
            op->to_stride[d]);
  fprintf(file, " at %" PRId64 ">%" PRId64 "\n", op->from, op->to);
}

static void print_block_row(const treadle_plan *plan, const treadle_direction *direction,
                            const treadle_block_row *run, int32_t position, FILE *file) {
  const treadle_block_row at = treadle_block_row_at(run, position), *block_row = &at;
  fprintf(file, "  %s%s %s: %d x %d, codes at %" PRId64 ", scales at %" PRId64 "\n",
          block_row->quantises ? "quantise" : "dequantise", block_row->twin ? " twin" : "",
          plan->from->model->tensors[block_row->tensor].name, block_row->rows, block_row->columns,
          block_row->codes, block_row->scales);
  for (int64_t i = 0; i < block_row->parts; i++) {
    const treadle_op op = treadle_block_row_part_at(
        run, &direction->block_row_parts.items[block_row->part_first + i], position);
    fprintf(file, "  ");
    print_op(plan, &op, file);
  }
}

static void print_direction(const treadle_plan *plan, const char *name, const treadle_direction *direction,
                            FILE *file) {
  size_t operations = direction->ops.count;
  for (size_t i = 0; i < direction->block_rows.count; i++)
    operations += (size_t)direction->block_rows.items[i].count;
  fprintf(file,
          "%s: moved %" PRId64 " of lower bound %" PRId64 ", own %" PRId64 ", fills %" PRId64
          " bytes, %zu operations\n",
          name, direction->moved_bytes, direction->lower_bound_bytes, direction->resident_bytes,
          direction->fill_bytes, operations);
  for (int32_t w = 0; w < plan->waves; w++) {
    if (direction->wave_first[w] == direction->wave_first[w + 1] &&
        direction->block_row_first[w] == direction->block_row_first[w + 1])
      continue;
    fprintf(file, " wave %d", w);
    if (direction->need[w] >= 0) fprintf(file, " after wave %d of all ranks", direction->need[w]);
    fprintf(file, "\n");
    for (int32_t i = direction->block_row_first[w]; i < direction->block_row_first[w + 1]; i++)
      for (int32_t k = 0; k < direction->block_rows.items[i].count; k++)
        print_block_row(plan, direction, &direction->block_rows.items[i], k, file);
    for (int32_t i = direction->wave_first[w]; i < direction->wave_first[w + 1]; i++)
      print_op(plan, &direction->ops.items[i], file);
  }
}

treadle_status treadle_plan_print(const treadle_plan *plan, FILE *file) {
  TREADLE_NEED(plan);
  TREADLE_NEED(file);
  fprintf(file,
          "plan of rank %" PRId64 " of %" PRId64 ": '%s' to '%s', %d waves, pages of %" PRId64
          " bytes: %" PRId64 " and %" PRId64 " on %" PRId64 ", digest %016" PRIx64 "\n",
          plan->rank, plan->from->ranks, plan->from->text, plan->to->text, plan->waves, plan->page_bytes,
          plan->from_pages, plan->to_pages, plan->physical_pages, plan->digest);
  if (plan->arrangement.pages > 0)
    fprintf(file, "alias: %" PRId64 " pages in %" PRId64 " stretches, %" PRId64 " bytes of padding\n",
            plan->arrangement.pages, plan->arrangement.run_count, plan->arrangement.padding_bytes);
  print_direction(plan, "forward", &plan->forward, file);
  print_direction(plan, "back", &plan->back, file);
  if (ferror(file)) return treadle_fail(TREADLE_SYSTEM, "plan: the text could not be written");
  return TREADLE_OK;
}
