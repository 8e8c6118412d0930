/* Cutting: where a part of a storage tensor lies on one shard.
 *
 * A part's local rows are a range of its dimension 0 (or its local columns one of dimension 1), and a
 * range of a dimension is a few boxes in axes (treadle_box_range). All of this is in the axes of the part, for one
 * expert where there are experts; treadle_part_canonical turns it into canonical boxes. docs/rules.md
 * 4.1 to 4.5. */
#include "base/divisor.h"
#include "base/text.h"
#include "grid/grid.h"

#include <assert.h>
#include <inttypes.h>

/* The axes of a dimension, first and last; last < first when the part lacks it. q_proj [groups, heads of a
 * group, head_dim, hidden] has dimension 0 in axes 0 to 2, and dimension 1 in axis 3. Axes of a dimension
 * stand together, the slowest first. */
static void axes_of(const treadle_part_shape *part, int dim, int *first_p, int *last_p) {
  *first_p = part->naxes;
  *last_p = -1;
  for (int a = part->naxes - 1; a >= 0; a--)
    if (part->axis_dim[a] == dim) {
      *first_p = a;
      if (*last_p < 0) *last_p = a;
    }
}

/* Does dimension 0 count query heads in its second axis, as [group, head of group, head_dim]? */
static bool has_query_heads(const treadle_part_shape *part) {
  int first, last;
  axes_of(part, 0, &first, &last);
  return last - first >= 2 && !part->key_heads;
}

static int64_t rows_of(const treadle_part_shape *part) { return part->shape[0]; }

/* How a part is cut: where heads are cut but cannot be told apart, its rows are. */
static treadle_cut cut_of(const treadle_grid_rule *rule, const treadle_part_shape *part) {
  return rule->rule->cut == TREADLE_CUT_HEADS && part->rows_only ? TREADLE_CUT_ROWS : rule->rule->cut;
}

/* Elements of one step of dimension 0, in a local tensor whose dimension 1 is so wide. [rows, columns,
 * inner] has inner elements a column, so inner * width; [rows] has 1. */
static int64_t row_elems(const treadle_part_shape *part, int64_t width) {
  return part->elems / part->shape[0] / (part->ndim > 1 ? part->shape[1] : 1) * width;
}

/* Local rows of a part that is cut on its own. Heads over more shards than there are groups (docs/rules.md
 * 4.4): query heads are still cut evenly, a shard has one key head, and the same as its neighbours. 16
 * query and 2 KV heads of 128 rows over tp = 8: 256 query rows, 128 key rows. A padded vocabulary is cut
 * with its padding. */
static int64_t local_rows(const treadle_grid_rule *rule, const treadle_part_shape *part) {
  int64_t shards = rule->shards, groups = part->axis[0];
  switch (cut_of(rule, part)) {
  case TREADLE_CUT_NONE:
  case TREADLE_CUT_ROWS: return (rule->padded_rows ? rule->padded_rows : rows_of(part)) / shards;
  case TREADLE_CUT_HEADS:
    if (shards <= groups || has_query_heads(part)) return rows_of(part) / shards;
    return rows_of(part) / groups;
  default: return rule->padded_rows ? rule->padded_rows : rows_of(part);
  }
}

/* What has `least` room, or more. */
static int64_t with_room(const treadle_grid_rule *rule, int64_t size) {
  return size > rule->least ? size : rule->least;
}

/* Rows of a part on a shard, with padding behind them. */
static int64_t room_rows(const treadle_grid_rule *rule, const treadle_part_shape *part) {
  int64_t rows = local_rows(rule, part);
  return rule->rule->cut == TREADLE_CUT_ROWS ? with_room(rule, rows) : rows;
}

/* The same of columns; 1 of what has none. */
static int64_t room_columns(const treadle_grid_rule *rule, const treadle_part_shape *part) {
  if (part->ndim < 2) return 1;
  return rule->rule->cut == TREADLE_CUT_COLS ? with_room(rule, part->shape[1] / rule->shards)
                                             : part->shape[1];
}

static const char *name_of(const treadle_model *model, const treadle_part_shape *part) {
  return model->family->patterns[part->pattern].name;
}

static treadle_status check_heads(const char *what, const treadle_model *model,
                                  const treadle_grid_rule *rule, const treadle_part_shape *part) {
  int64_t shards = rule->shards, groups = part->axis[0],
          heads = has_query_heads(part) ? groups * part->axis[1] : groups * (shards / groups + 1);
  const char *name = rule->over->name;
  char instead[TREADLE_DIVISORS_ROOM];
  if (groups % shards != 0 && shards % groups != 0)
    REFUSE("layout '%s': %s: %s=%" PRId64 " and the %s must divide one another; %s", what,
           name_of(model, part), name, shards, treadle_text_of_count(groups, "KV head"),
           treadle_divisors_near(name, heads, shards, groups, instead));
  if (has_query_heads(part) && heads % shards != 0)
    REFUSE("layout '%s': %s: %s not divisible by %s=%" PRId64 "; %s", what, name_of(model, part),
           treadle_text_count_is(heads, "attention head"), name, shards,
           treadle_divisors_near(name, heads, shards, groups, instead));
  return TREADLE_OK;
}

static treadle_status check_divides(const char *what, const treadle_grid_rule *rule, const char *name,
                                    const char *of, int64_t size) {
  char instead[TREADLE_DIVISORS_ROOM];
  if (size % rule->shards != 0)
    REFUSE("layout '%s': %s: %" PRId64 " %s are not divisible by %s=%" PRId64 "; %s", what, name, size, of,
           rule->over->name, rule->shards,
           treadle_divisors_near(rule->over->name, size, rule->shards, 1, instead));
  return TREADLE_OK;
}

/* Local columns of the first parts of a rule whose parts stand side by side. [rows, a | b]: the parts have
 * the rows in common, and a row of the local tensor has a row of each. */
static int64_t columns_beside(const treadle_grid_rule *rule, int count) {
  int64_t columns = 0, shards = rule->rule->cut == TREADLE_CUT_COLS ? rule->shards : 1;
  for (int i = 0; i < count; i++) columns += rule->parts[i].shape[1] / shards;
  return columns;
}

/* The local shape of one expert, [rows, columns] of one shard. Parts stand one above the other, each with
 * its own local rows: gate over up is [2 * Im / tp, H] (docs/rules.md 4.3). Beside one another they add
 * columns. Parts of `also` are another expert and add nothing. */
treadle_status treadle_cut_shape(const char *what, const treadle_model *model,
                                 const treadle_grid_rule *rule, treadle_storage *storage) {
  treadle_status status = TREADLE_OK;
  const treadle_part_shape *head = &rule->parts[0];
  int64_t rows = 0, all_rows = 0;
  if (rule->refined) {
    treadle_refined_shape(rule, storage);
    return TREADLE_OK;
  }
  storage->ndim = head->ndim;
  for (int d = 0; d < head->ndim; d++) storage->shape[d] = head->shape[d];
  for (int i = 0; i < storage->nparts; i++) {
    const treadle_part_shape *part = &rule->parts[i];
    bool extra = i >= storage->nparts - rule->also; /* another expert of the same shape */
    if (part->ndim != head->ndim || part->elems / part->shape[0] != head->elems / head->shape[0] ||
        (extra && part->shape[0] != rule->parts[i - rule->also].shape[0]))
      REFUSE("%s line %d: %s and %s differ in more than rows and cannot be stacked", rule->rule->file,
             rule->rule->line, name_of(model, head), name_of(model, part));
    if (cut_of(rule, part) == TREADLE_CUT_HEADS || rule->rule->fuse)
      TRY(check_heads(what, model, rule, part));
    if (rule->rule->fuse && part->axis[0] != head->axis[0])
      REFUSE("%s line %d: %s and %s have no common axis to be fused by", rule->rule->file, rule->rule->line,
             name_of(model, head), name_of(model, part));
    if (cut_of(rule, part) == TREADLE_CUT_ROWS && !rule->rule->fuse && !rule->padded_rows)
      TRY(check_divides(what, rule, name_of(model, part), "rows", rows_of(part)));
    if (rule->rule->cut == TREADLE_CUT_COLS) {
      if (part->ndim < 2)
        REFUSE("%s line %d: %s has no columns to cut", rule->rule->file, rule->rule->line,
               name_of(model, part));
      TRY(check_divides(what, rule, name_of(model, part), "columns", part->shape[1]));
    }
    if (extra || (rule->rule->beside && i > 0)) continue;
    rows += room_rows(rule, part);
    all_rows += rows_of(part);
  }
  /* A matrix that is interleaved by groups is cut as a whole, wherever that falls in a group: its rows are
   * no sum of the parts' local rows (docs/rules.md 4.1). */
  if (rule->rule->fuse) {
    TRY(check_divides(what, rule, rule->rule->name, "fused rows", all_rows));
    rows = all_rows / rule->shards;
  }
  if (rule->round) rows = (rows + rule->round - 1) / rule->round * rule->round;
  storage->shape[0] = rows;
  if (rule->rule->cut == TREADLE_CUT_COLS) storage->shape[1] = room_columns(rule, head);
  if (rule->rule->beside) storage->shape[1] = columns_beside(rule, storage->nparts);
  if (rule->transposed) {
    rows = storage->shape[0];
    storage->shape[0] = storage->shape[1];
    storage->shape[1] = rows;
  }
out:
  return status;
}

/* Elements [low, high) of axes first..last. */
typedef struct range {
  int first, last;
  int64_t low, high;
} range;

/* A range of `box` as parts. The local tensor has its first element at `offset`. Steps of one dimension lie
 * at one distance, that of its last axis, so the offset of a box follows from how many steps of the range
 * come before it. */
static treadle_status push_range(const treadle_part_shape *part_shape, const treadle_box *box,
                                 const range *of, int64_t offset, const int64_t *stride,
                                 treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  treadle_box room[2 * TREADLE_MAX_AXES]; /* more than a range has, so that nothing is allocated */
  treadle_boxes boxes = {room, 0, 2 * TREADLE_MAX_AXES};
  TRY(treadle_box_range(box, of->first, of->last, of->low, of->high, &boxes));
  assert(boxes.items == room);
  for (size_t i = 0; i < boxes.count; i++) {
    treadle_part part = {.box = boxes.items[i]};
    int64_t position = 0;
    for (int a = of->first; a <= of->last; a++)
      position = position * box->size[a] + boxes.items[i].start[a] - box->start[a];
    int64_t step = of->last >= of->first ? stride[of->last] : 0;
    part.offset = offset + (position - of->low) * step;
    for (int a = 0; a < part_shape->naxes; a++) part.stride[a] = stride[a];
    TRY(treadle_array_push(parts, part));
  }
out:
  return status;
}

/* Strides in elements of each axis, in a local tensor whose dimension 1 is so wide. q_proj [2, 4, 128,
 * 1024] has 524288, 131072, 1024, 1. Cut by columns only the width changes: a range of columns is dense, so
 * that its axes keep their distances and the first of the range is column 0. */
static void local_strides(const treadle_part_shape *part, int64_t width, int64_t *stride) {
  int64_t elems = 1;
  for (int dim = part->ndim - 1; dim >= 0; dim--) {
    int64_t inner = elems;
    for (int a = part->naxes - 1; a >= 0; a--)
      if (part->axis_dim[a] == dim) {
        stride[a] = inner;
        inner *= part->axis[a];
      }
    elems *= dim == 1 ? width : part->shape[dim];
  }
}

static treadle_box whole_part(const treadle_part_shape *part) {
  treadle_box box;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    box.start[a] = 0;
    box.size[a] = a < part->naxes ? part->axis[a] : 1;
  }
  return box;
}

/* Interleaved by axis 0: a group of all parts after the other, then plain rows [a, b) of the whole. Two
 * groups of 2 query heads with 4 rows each are blocks of 8 query, 4 key and 4 value rows, 32 in all. Over
 * tp = 4 a shard has 8: shard 0 the query rows of group 0, shard 1 its key and value rows, without any
 * query row (docs/rules.md 4.1). */
static treadle_status push_fused(const treadle_grid_rule *rule, const treadle_storage *storage,
                                 int position, int64_t shard, treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  const treadle_part_shape *part = &rule->parts[position];
  int64_t groups = part->axis[0], row = row_elems(part, part->ndim > 1 ? part->shape[1] : 1);
  int64_t begin = 0, block = 0; /* this part's rows in a group's block */
  for (int i = 0; i < storage->nparts; i++) {
    if (i == position) begin = block;
    block += rows_of(&rule->parts[i]) / groups;
  }
  int64_t end = begin + rows_of(part) / groups;
  int64_t low = shard * storage->shape[0], high = low + storage->shape[0];
  int64_t stride[TREADLE_MAX_AXES];
  local_strides(part, part->shape[1], stride);
  /* From one group to the next is a whole block, with the rows of the other parts. */
  stride[0] = block * row;
  int first, last;
  axes_of(part, 0, &first, &last);

  /* The head, the whole groups and the tail of [low, high). Each is {first group, groups, from row, to
   * row}, rows counting in a block. Whole groups are one box, since they are cut alike. */
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
    treadle_box box = whole_part(part);
    box.start[0] = edges[i][0];
    box.size[0] = edges[i][1];
    /* `low` is row 0 of the shard. A range of this part counts from the part's own first row, `begin`. */
    int64_t offset = (edges[i][0] * block + from - low) * row;
    const range of = {first + 1, last, from - begin, to - begin};
    TRY(push_range(part, &box, &of, offset, stride, parts));
  }
out:
  return status;
}

/* Turns a part of a local matrix [rows, columns] into one of [columns, rows]. Element (r, c) goes
 * from r * columns + c to c * rows + r: in [6, 4] offset 9 is (2, 1), and becomes 8 in [4, 6]. A
 * step of rows was `columns` elements and is one; a step of columns was one and is `rows`. */
static void transpose(const treadle_part_shape *shape, int64_t rows, int64_t columns, treadle_part *part) {
  part->offset = part->offset % columns * rows + part->offset / columns;
  for (int a = 0; a < shape->naxes; a++) {
    if (shape->axis_dim[a] == 0)
      part->stride[a] /= columns;
    else if (shape->axis_dim[a] == 1)
      part->stride[a] *= rows;
  }
}

/* Parts that are cut each on its own. Part `position` begins behind the local rows of those before it,
 * padding included; a part of `also` counts in its own expert. */
static treadle_status cut_part(const treadle_grid_rule *rule, const treadle_storage *storage, int position,
                               int64_t shard, bool once, treadle_parts *parts) {
  if (rule->refined) return treadle_refined_part(rule, position, shard, once, parts);
  if (rule->rule->fuse) return push_fused(rule, storage, position, shard, parts);
  if (rule->rule->cut == TREADLE_CUT_FIRST && shard > 0) return TREADLE_OK;
  const treadle_part_shape *part = &rule->parts[position];
  bool by_columns = rule->rule->cut == TREADLE_CUT_COLS;
  int64_t width = room_columns(rule, part), stride[TREADLE_MAX_AXES];
  if (rule->rule->beside) width = columns_beside(rule, storage->nparts);
  local_strides(part, width, stride);
  int64_t offset = 0; /* of this part's first row, in its expert */
  int begin = position >= storage->nparts - rule->also ? storage->nparts - rule->also : 0;
  for (int i = begin; i < position && !rule->rule->beside; i++)
    offset += room_rows(rule, &rule->parts[i]) * row_elems(&rule->parts[i], width);
  if (rule->rule->beside) offset = columns_beside(rule, position);
  range of = {.low = 0, .high = rows_of(part)};
  axes_of(part, by_columns ? 1 : 0, &of.first, &of.last);
  int64_t rows = local_rows(rule, part);
  if (by_columns) {
    of.low = part->shape[1] / rule->shards * shard;
    of.high = of.low + part->shape[1] / rule->shards;
  } else if (cut_of(rule, part) == TREADLE_CUT_ROWS) {
    /* Padding is behind the last row of all, so late shards have fewer rows, or none: 100 rows padded to 384
     * over 6 shards are 64, 36, 0, 0, 0, 0. */
    of.low = rows * shard < of.high ? rows * shard : of.high;
    of.high = of.low + rows < of.high ? of.low + rows : of.high;
  } else if (cut_of(rule, part) == TREADLE_CUT_HEADS) {
    /* 2 KV heads over 8 shards: shards 0 to 3 have head 0, shards 4 to 7 head 1. */
    int64_t groups = part->axis[0];
    bool repeated = rule->shards > groups && !has_query_heads(part);
    of.low = repeated ? shard / (rule->shards / groups) * rows : rows * shard;
    of.high = of.low + rows;
  }
  treadle_box whole = whole_part(part);
  return push_range(part, &whole, &of, offset, stride, parts);
}

/* The storage tensor's shape is transposed already, and may have experts in front: its last dimension is
 * rows. */
treadle_status treadle_cut_part(const treadle_grid_rule *rule, const treadle_storage *storage, int position,
                                int64_t shard, bool once, treadle_parts *parts) {
  treadle_status status = TREADLE_OK;
  size_t first = parts->count;
  TRY(cut_part(rule, storage, position, shard, once, parts));
  for (size_t i = first; rule->transposed && i < parts->count; i++)
    transpose(&rule->parts[position], storage->shape[storage->ndim - 1], storage->shape[storage->ndim - 2],
              &parts->items[i]);
out:
  return status;
}

/* Cut by columns the gap is [rows, width - columns], at the end of each row; else it is rows below the
 * part's own, in one line (docs/rules.md 4.11). */
treadle_gap treadle_cut_gap(const treadle_grid_rule *rule, int position) {
  const treadle_part_shape *part = &rule->parts[position];
  treadle_gap gap = {0};
  int64_t width = room_columns(rule, part), rows = local_rows(rule, part), room = room_rows(rule, part);
  for (int i = 0; i < position; i++)
    gap.offset += room_rows(rule, &rule->parts[i]) * row_elems(&rule->parts[i], width);
  if (rule->rule->cut == TREADLE_CUT_COLS) {
    int64_t columns = part->shape[1] / rule->shards, inner = row_elems(part, 1);
    gap.elems = rows * (width - columns) * inner;
    gap.offset += columns * inner;
    gap.ndim = 2;
    gap.size[0] = rows;
    gap.stride[0] = width * inner;
    gap.size[1] = (width - columns) * inner;
  } else {
    gap.elems = (room - rows) * row_elems(part, width);
    gap.offset += rows * row_elems(part, width);
    gap.ndim = 1;
    gap.size[0] = gap.elems;
  }
  gap.stride[gap.ndim - 1] = 1;
  return gap;
}

/* A part may be transposed, so axis a of the part is axis of_axis[a] of the tensor. Axes that the part
 * lacks keep what it takes of them, and have stride 0. */
void treadle_part_canonical(const treadle_part_shape *shape, const treadle_part *part, treadle_box *box_p,
                            int64_t *stride) {
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    box_p->start[a] = shape->start[a];
    box_p->size[a] = shape->size[a];
    stride[a] = 0;
  }
  for (int a = 0; a < shape->naxes; a++) {
    int of = shape->of_axis[a];
    box_p->start[of] = shape->start[of] + part->box.start[a];
    box_p->size[of] = part->box.size[a];
    stride[of] = part->stride[a];
  }
}

/* The other way: the common part of the box and of what the part takes, counted from where the part starts.
 * The expert axis, 0 where there is one, is not looked at. */
bool treadle_part_seen(const treadle_part_shape *shape, const treadle_box *box, treadle_box *seen_p) {
  *seen_p = whole_part(shape);
  for (int a = shape->experts; a < TREADLE_MAX_AXES; a++) {
    int64_t start = box->start[a] - shape->start[a], end = start + box->size[a];
    if (start < 0) start = 0;
    if (end > shape->size[a]) end = shape->size[a];
    if (start >= end) return false;
    for (int i = 0; i < shape->naxes; i++) {
      if (shape->of_axis[i] != a) continue;
      seen_p->start[i] = start;
      seen_p->size[i] = end - start;
    }
  }
  return true;
}

void treadle_cut_shards(const treadle_grid_rule *rule, const treadle_storage *storage, int position,
                        const treadle_box *box, int64_t *first_p, int64_t *last_p, int64_t *repeat_p) {
  const treadle_part_shape *part = &rule->parts[position];
  *first_p = *last_p = 0;
  *repeat_p = 1;
  if (rule->refined && rule->shards > 1) {
    treadle_refined_shards(rule, position, box, first_p, last_p);
    return;
  }
  if (rule->rule->cut == TREADLE_CUT_NONE || rule->rule->cut == TREADLE_CUT_FIRST || rule->shards == 1)
    return;

  /* The first and the last element of the box are the ends of its range in row-major order; shards in
   * between may miss it, which nobody minds. In [2, 4, 128] the box of heads 1 and 2 of group 0 is steps
   * 128 to 383. */
  int first, last; /* the box's first and last step of the dimension that is cut */
  axes_of(part, rule->rule->cut == TREADLE_CUT_COLS ? 1 : 0, &first, &last);
  int64_t low = 0, high = 0, size = 1;
  for (int a = first; a <= last; a++) {
    low = low * part->axis[a] + box->start[a];
    high = high * part->axis[a] + box->start[a] + box->size[a] - 1;
    size *= part->axis[a];
  }
  int64_t each = rule->rule->cut == TREADLE_CUT_COLS ? size / rule->shards : local_rows(rule, part);
  /* Groups of the box, as rows of the interleaved matrix; a block is all rows of a group. */
  if (rule->rule->fuse) {
    int64_t groups = part->axis[0], block = storage->shape[0] * rule->shards / groups;
    low = box->start[0] * block;
    high = (box->start[0] + box->size[0]) * block - 1;
    each = storage->shape[0];
  } else if (cut_of(rule, part) == TREADLE_CUT_HEADS && rule->shards > part->axis[0] &&
             !has_query_heads(part)) {
    /* The first shard of each head: with 2 heads of 128 rows over 8, rows 128 to 255 are head 1, shard 4. */
    *repeat_p = rule->shards / part->axis[0];
    low = low / each * *repeat_p;
    high = high / each * *repeat_p;
    each = 1;
  }
  *first_p = low / each;
  *last_p = high / each;
}
