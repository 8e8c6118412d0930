/* Cutting: where a part of a storage tensor lies on one shard.
 *
 * A part's local rows are a range of its dimension 0 (or its local columns one of dimension 1), and a
 * range of a dimension is a few boxes in axes (treadle_box_range). Facts: layouts.md sections 4.1 to 4.5. */
#include "layout/grid.h"

#include <inttypes.h>

#define REFUSE(...) return treadle_fail(TREADLE_REFUSED, __VA_ARGS__)

/* The axes of a dimension, first and last; last < first when the tensor lacks it. */
static void axes_of(const treadle_tensor *tensor, int dim, int *first_p, int *last_p) {
  *first_p = tensor->naxes;
  *last_p = -1;
  for (int a = tensor->naxes - 1; a >= 0; a--)
    if (tensor->axis_dim[a] == dim) {
      *first_p = a;
      if (*last_p < 0) *last_p = a;
    }
}

/* Does dimension 0 count query heads in its second axis, as [group, head of group, head_dim]? */
static bool has_query_heads(const treadle_tensor *tensor) {
  int first, last;
  axes_of(tensor, 0, &first, &last);
  return last - first >= 2;
}

static int64_t rows_of(const treadle_tensor *tensor) { return tensor->shape[0]; }

/* Elements of one step of dimension 0, in a local tensor whose dimension 1 is cut in `columns`. */
static int64_t row_elems(const treadle_tensor *tensor, int64_t columns) {
  return tensor->elems / tensor->shape[0] / columns;
}

/* Local rows of a part that is cut on its own. */
static int64_t local_rows(const treadle_grid_rule *rule, const treadle_tensor *tensor) {
  int64_t shards = rule->shards, groups = tensor->axis[0];
  switch (rule->rule->cut) {
  case TREADLE_CUT_ROWS: return (rule->padded_rows ? rule->padded_rows : rows_of(tensor)) / shards;
  case TREADLE_CUT_HEADS:
    if (shards <= groups || has_query_heads(tensor)) return rows_of(tensor) / shards;
    return rows_of(tensor) / groups;
  default: return rows_of(tensor);
  }
}

static treadle_status check_heads(const char *what, const treadle_grid_rule *rule,
                                  const treadle_tensor *tensor) {
  int64_t shards = rule->shards, groups = tensor->axis[0];
  if (groups % shards != 0 && shards % groups != 0)
    REFUSE("layout '%s': %s: %s=%" PRId64 " and the %" PRId64 " KV heads must divide one another", what,
           tensor->name, rule->over->name, shards, groups);
  if (has_query_heads(tensor) && groups * tensor->axis[1] % shards != 0)
    REFUSE("layout '%s': %s: %" PRId64 " attention heads are not divisible by %s=%" PRId64, what,
           tensor->name, groups * tensor->axis[1], rule->over->name, shards);
  return TREADLE_OK;
}

static treadle_status check_divides(const char *what, const treadle_grid_rule *rule, const char *name,
                                    const char *of, int64_t size) {
  if (size % rule->shards != 0)
    REFUSE("layout '%s': %s: %" PRId64 " %s are not divisible by %s=%" PRId64, what, name, size, of,
           rule->over->name, rule->shards);
  return TREADLE_OK;
}

treadle_status treadle_cut_shape(const char *what, const treadle_model *model,
                                 const treadle_grid_rule *rule, treadle_storage *storage) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *head = &model->tensors[storage->parts[0]];
  int64_t rows = 0, all_rows = 0;
  storage->ndim = head->ndim;
  for (int d = 0; d < head->ndim; d++) storage->shape[d] = head->shape[d];
  for (int i = 0; i < storage->nparts; i++) {
    const treadle_tensor *tensor = &model->tensors[storage->parts[i]];
    if (tensor->ndim != head->ndim || tensor->elems / tensor->shape[0] != head->elems / head->shape[0])
      REFUSE("family %s line %d: %s and %s differ in more than rows and cannot be stacked",
             model->family->name, rule->rule->line, head->name, tensor->name);
    if (rule->rule->cut == TREADLE_CUT_HEADS || rule->rule->fuse) TRY(check_heads(what, rule, tensor));
    if (rule->rule->fuse && tensor->axis[0] != head->axis[0])
      REFUSE("family %s line %d: %s and %s have no common axis to be fused by", model->family->name,
             rule->rule->line, head->name, tensor->name);
    if (rule->rule->cut == TREADLE_CUT_ROWS && !rule->rule->fuse && !rule->padded_rows)
      TRY(check_divides(what, rule, tensor->name, "rows", rows_of(tensor)));
    if (rule->rule->cut == TREADLE_CUT_COLS) {
      if (tensor->ndim < 2)
        REFUSE("family %s line %d: %s has no columns to cut", model->family->name, rule->rule->line,
               tensor->name);
      TRY(check_divides(what, rule, tensor->name, "columns", tensor->shape[1]));
    }
    rows += local_rows(rule, tensor);
    all_rows += rows_of(tensor);
  }
  if (rule->rule->fuse) {
    TRY(check_divides(what, rule, rule->rule->name, "fused rows", all_rows));
    rows = all_rows / rule->shards;
  }
  storage->shape[0] = rows;
  if (rule->rule->cut == TREADLE_CUT_COLS) storage->shape[1] /= rule->shards;
out:
  return status;
}

/* Elements [low, high) of axes first..last of `box` as parts. The local tensor has element `low` at `offset`. */
static treadle_status push_range(const treadle_tensor *tensor, const treadle_box *box, int first, int last,
                                 int64_t low, int64_t high, int64_t offset, const int64_t *stride,
                                 treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  treadle_boxes boxes = {0};
  TRY(treadle_box_range(box, first, last, low, high, &boxes));
  for (size_t i = 0; i < boxes.count; i++) {
    treadle_part part = {.box = boxes.items[i]};
    int64_t position = 0;
    for (int a = first; a <= last; a++)
      position = position * box->size[a] + boxes.items[i].start[a] - box->start[a];
    int64_t step = last >= first ? stride[last] : 0;
    part.offset = offset + (position - low) * step;
    for (int a = 0; a < tensor->naxes; a++) part.stride[a] = stride[a];
    TRY(treadle_array_push(parts, part));
  }
out:
  treadle_array_release(&boxes);
  return status;
}

/* Strides in elements of each axis, in a local tensor whose dimension 1 is cut in `columns`. */
static void local_strides(const treadle_tensor *tensor, int64_t columns, int64_t *stride) {
  int64_t elems = 1;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    int64_t inner = elems;
    for (int a = tensor->naxes - 1; a >= 0; a--)
      if (tensor->axis_dim[a] == dim) {
        stride[a] = inner;
        inner *= tensor->axis[a];
      }
    elems *= dim == 1 ? tensor->shape[dim] / columns : tensor->shape[dim];
  }
}

/* Interleaved by axis 0: a group of all parts after the other, then plain rows [a, b) of the whole. */
static treadle_status push_fused(const treadle_model *model, const treadle_storage *storage, int part,
                                 int64_t shard, treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &model->tensors[storage->parts[part]];
  int64_t groups = tensor->axis[0], row = row_elems(tensor, 1);
  int64_t begin = 0, block = 0; /* this part's rows in a group's block */
  for (int i = 0; i < storage->nparts; i++) {
    if (i == part) begin = block;
    block += rows_of(&model->tensors[storage->parts[i]]) / groups;
  }
  int64_t end = begin + rows_of(tensor) / groups;
  int64_t low = shard * storage->shape[0], high = low + storage->shape[0];
  int64_t stride[TREADLE_MAX_AXES];
  local_strides(tensor, 1, stride);
  stride[0] = block * row;
  int first, last;
  axes_of(tensor, 0, &first, &last);

  /* The head, the whole groups and the tail of [low, high). */
  int64_t edges[4][4] = {{0}};
  int count = 0;
  int64_t g = low / block, x = low % block, g_end = high / block, y = high % block;
  if (g == g_end) {
    edges[count][0] = g, edges[count][1] = 1, edges[count][2] = x, edges[count++][3] = y;
  } else {
    if (x > 0) edges[count][0] = g++, edges[count][1] = 1, edges[count][2] = x, edges[count++][3] = block;
    if (g < g_end)
      edges[count][0] = g, edges[count][1] = g_end - g, edges[count][2] = 0, edges[count++][3] = block;
    if (y > 0) edges[count][0] = g_end, edges[count][1] = 1, edges[count][2] = 0, edges[count++][3] = y;
  }
  for (int i = 0; i < count; i++) {
    int64_t from = edges[i][2] > begin ? edges[i][2] : begin, to = edges[i][3] < end ? edges[i][3] : end;
    if (from >= to) continue;
    treadle_box box = treadle_box_whole(tensor);
    box.start[0] = edges[i][0];
    box.size[0] = edges[i][1];
    int64_t offset = (edges[i][0] * block + from - low) * row;
    TRY(push_range(tensor, &box, first + 1, last, from - begin, to - begin, offset, stride, parts));
  }
out:
  return status;
}

treadle_status treadle_cut_part(const treadle_model *model, const treadle_grid_rule *rule,
                                const treadle_storage *storage, int part, int64_t shard,
                                treadle_parts *parts) {
  if (rule->rule->fuse) return push_fused(model, storage, part, shard, parts);
  const treadle_tensor *tensor = &model->tensors[storage->parts[part]];
  bool by_columns = rule->rule->cut == TREADLE_CUT_COLS;
  int64_t columns = by_columns ? rule->shards : 1, stride[TREADLE_MAX_AXES];
  local_strides(tensor, columns, stride);
  int64_t offset = 0; /* of this part's first row */
  for (int i = 0; i < part; i++) {
    const treadle_tensor *above = &model->tensors[storage->parts[i]];
    offset += local_rows(rule, above) * row_elems(above, columns);
  }
  int first, last;
  axes_of(tensor, by_columns ? 1 : 0, &first, &last);
  int64_t rows = local_rows(rule, tensor), low = 0, high = rows_of(tensor);
  if (by_columns) {
    low = tensor->shape[1] / rule->shards * shard;
    high = low + tensor->shape[1] / rule->shards;
  } else if (rule->rule->cut == TREADLE_CUT_ROWS) {
    low = rows * shard < high ? rows * shard : high;
    high = low + rows < high ? low + rows : high;
  } else if (rule->rule->cut == TREADLE_CUT_HEADS) {
    int64_t groups = tensor->axis[0];
    bool repeated = rule->shards > groups && !has_query_heads(tensor);
    low = repeated ? shard / (rule->shards / groups) * rows : rows * shard;
    high = low + rows;
  }
  treadle_box whole = treadle_box_whole(tensor);
  return push_range(tensor, &whole, first, last, low, high, offset, stride, parts);
}

void treadle_cut_shards(const treadle_model *model, const treadle_grid_rule *rule,
                        const treadle_storage *storage, int part, const treadle_box *box, int64_t *first_p,
                        int64_t *last_p, int64_t *repeat_p) {
  const treadle_tensor *tensor = &model->tensors[storage->parts[part]];
  *first_p = *last_p = 0;
  *repeat_p = 1;
  if (rule->rule->cut == TREADLE_CUT_NONE || rule->shards == 1) return;

  int first, last; /* the box's first and last step of the dimension that is cut */
  axes_of(tensor, rule->rule->cut == TREADLE_CUT_COLS ? 1 : 0, &first, &last);
  int64_t low = 0, high = 0, size = 1;
  for (int a = first; a <= last; a++) {
    low = low * tensor->axis[a] + box->start[a];
    high = high * tensor->axis[a] + box->start[a] + box->size[a] - 1;
    size *= tensor->axis[a];
  }
  int64_t each = rule->rule->cut == TREADLE_CUT_COLS ? size / rule->shards : local_rows(rule, tensor);
  if (rule->rule->fuse) {
    int64_t groups = tensor->axis[0], block = storage->shape[0] * rule->shards / groups;
    low = box->start[0] * block;
    high = (box->start[0] + box->size[0]) * block - 1;
    each = storage->shape[0];
  } else if (rule->rule->cut == TREADLE_CUT_HEADS && rule->shards > tensor->axis[0] &&
             !has_query_heads(tensor)) {
    *repeat_p = rule->shards / tensor->axis[0];
    low = low / each * *repeat_p;
    high = high / each * *repeat_p;
    each = 1;
  }
  *first_p = low / each;
  *last_p = high / each;
}
