/* Lanes and waves. */
#include "plan/lanes.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/hash_index.h"
#include "layout/signatures.h"

#include <stdlib.h>

/* The wave of an element is where it comes in its lane, as a fraction, times the number of waves. Where
 * it comes: the tensor among those of its lane in model order, then the row of its atom in the common box
 * [rows, row_elems]. */
/* The first pass counts those before each tensor, the second one says how many there are: a pattern in
 * layers 0 to 3 that lie alike has before = 0, 1, 2, 3 and count = 4. */
treadle_status treadle_lanes_create(const treadle_layout *from, const treadle_layout *to,
                                    int64_t page_bytes, treadle_lanes *lanes) {
  treadle_status status = TREADLE_OK;
  int32_t tensors = from->model->tensor_count;
  treadle_hash_index lane_of = {0};
  *lanes = (treadle_lanes){.from = from, .to = to, .page_bytes = page_bytes, .waves = 1};
  int32_t *lane =
      treadle_alloc_array((size_t)tensors + 1, sizeof *lane); /* by tensor; the first one of it */
  int32_t *count = treadle_alloc_array((size_t)tensors + 1, sizeof *count); /* by lane */
  lanes->positions = treadle_alloc_array((size_t)tensors + 1, sizeof *lanes->positions);
  if (!lane || !count || !lanes->positions) TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  TRY(treadle_hash_index_reserve(&lane_of, (size_t)tensors));
  for (int32_t t = 0; t < tensors; t++) {
    TRY(treadle_hash_index_put(&lane_of, treadle_tensor_kin(from, to, t), t, &lane[t]));
    lanes->positions[t].before = count[lane[t]]++;
  }
  for (int32_t t = 0; t < tensors; t++) lanes->positions[t].count = count[lane[t]];
out:
  treadle_hash_index_release(&lane_of);
  treadle_free(lane);
  treadle_free(count);
  if (status != TREADLE_OK) treadle_lanes_release(lanes);
  return status;
}

void treadle_lanes_release(treadle_lanes *lanes) {
  treadle_free(lanes->positions);
  lanes->positions = NULL;
}

treadle_common treadle_lanes_common(const treadle_lanes *lanes, int32_t t, const treadle_cell *of_from,
                                    const treadle_cell *of_to) {
  const treadle_tensor *tensor = &lanes->from->model->tensors[t];
  treadle_common common = {.rows = 1, .row_elems = 1};
  /* The common box is [rows, row_elems]: row axes 0..last_row_axis, then the others. */
  treadle_box_meet(&of_from->box, &of_to->box, &common.box);
  const treadle_box *box = &common.box;
  common.last_row_axis = treadle_last_row_axis(tensor);
  for (int a = 0; a < tensor->naxes; a++) {
    if (a <= common.last_row_axis) {
      common.rows *= box->size[a];
    } else {
      common.row_elems *= box->size[a];
    }
  }
  /* Cells of flat buffers say where they come. Where both sides say so, or neither, the tensor's position
   * counts. */
  bool from_says = of_from->total > 0, to_says = of_to->total > 0;
  const treadle_cell *says = from_says ? of_from : of_to;
  common.by_cell = from_says != to_says;
  common.atoms = lanes->atoms;
  if (common.by_cell) {
    common.before = says->before;
    common.weight = says->weight;
    common.total = says->total;
  } else {
    common.before = lanes->positions[t].before;
    common.weight = 1;
    common.total = lanes->positions[t].count;
  }

  /* The wider type, so that an atom of several rows fits a page of either window. Steps of axes: in a box
   * of [4, 6, 64] rows a step is 384, 64 or 1 rows, and an atom of 100 rows becomes one of 64. */
  size_t from_size = treadle_dtype_bytes(treadle_layout_dtype(lanes->from, tensor));
  size_t to_size = treadle_dtype_bytes(treadle_layout_dtype(lanes->to, tensor));
  int64_t row_bytes = common.row_elems * (int64_t)(from_size > to_size ? from_size : to_size);
  int64_t atom = lanes->page_bytes / row_bytes;
  if (atom < 1) atom = 1;
  if (atom > common.rows) atom = common.rows;
  int64_t whole = common.rows; /* rows of one step of axis a: an atom of whole steps is one box */
  for (int a = 0; a <= common.last_row_axis; a++) {
    whole /= box->size[a];
    if (whole <= atom) {
      atom -= atom % whole;
      break;
    }
  }
  common.atom_rows = atom;
  return common;
}

/* Elements up to 2^52 (padding included), rows up to as many, and 4096 waves: 2^117. The middle of the
 * atom decides; twice, to stay whole. Rows [5, 10) of 10, in the second of 4 layers, with 8 waves: (2 * 1
 * * 10 + 5 + 10) * 8 / (2 * 4 * 10) = 280 / 80, wave 3. A middle lies before the end of the lane, so the
 * wave is less than `waves`. */
static int32_t wave_of_atom(const treadle_common *common, int32_t waves, int64_t first_row) {
  int64_t end = first_row + common->atom_rows < common->rows ? first_row + common->atom_rows : common->rows;
  treadle_wide middle = (treadle_wide)common->weight * (first_row + end); /* twice, in rows */
  treadle_wide twice = 2 * (treadle_wide)common->before * common->rows + middle;
  return (int32_t)(twice * waves / (2 * (treadle_wide)common->total * common->rows));
}

/* The same number from what was noted: twice = 2 * before * rows + weight * middle. */
int32_t treadle_atom_wave(const treadle_atom *atom, const treadle_position *position, int32_t waves) {
  int64_t before = atom->by_cell ? atom->before : position->before;
  int64_t total = atom->by_cell ? atom->total : position->count;
  treadle_wide twice =
      2 * (treadle_wide)before * atom->rows + (treadle_wide)atom->weight * (treadle_wide)atom->middle;
  return (int32_t)(twice * waves / (2 * (treadle_wide)total * atom->rows));
}

static bool same_atom(const treadle_atom *a, const treadle_atom *b) {
  return a->rows == b->rows && a->middle == b->middle && a->by_cell == b->by_cell &&
         a->before == b->before && a->weight == b->weight && a->total == b->total;
}

/* The number of an atom; equal ones that were met of late have one. That of a box with one atom does not
 * tell its rows. Its fraction is (0 + rows) / (2 * rows), which is 1 / (2 * 1) for any number of rows. */
static int32_t note_atom(const treadle_common *common, int64_t first, int64_t *end_p) {
  enum { OF_LATE = 16 };
  int64_t end = first + common->atom_rows < common->rows ? first + common->atom_rows : common->rows;
  bool one = first == 0 && end == common->rows;
  treadle_atom atom = {.rows = one ? 1 : common->rows,
                       .middle = one ? 1 : first + end,
                       .by_cell = common->by_cell,
                       .before = common->by_cell ? common->before : 0,
                       .weight = common->weight,
                       .total = common->by_cell ? common->total : 0};
  size_t count = common->atoms->list.count;
  *end_p = end;
  for (size_t i = count; i-- > 0 && count - i <= OF_LATE;)
    if (same_atom(&common->atoms->list.items[i], &atom)) return (int32_t)i;
  if (treadle_array_push(&common->atoms->list, atom) == TREADLE_OK) return (int32_t)count;
  common->atoms->status = TREADLE_NO_MEMORY;
  return 0;
}

int32_t treadle_common_wave(const treadle_common *common, int32_t waves, int64_t row, int64_t *end_p) {
  int64_t first = row - row % common->atom_rows;
  if (common->atoms) return note_atom(common, first, end_p);
  int32_t wave = wave_of_atom(common, waves, first);
  if (waves == 1) {
    *end_p = common->rows;
    return wave;
  }
  /* Waves never fall from atom to atom, so those of one wave follow each other. */
  do first += common->atom_rows;
  while (first < common->rows && wave_of_atom(common, waves, first) == wave);
  *end_p = first < common->rows ? first : common->rows;
  return wave;
}

/* Row-major over the row axes, from the start of the common box. */
int64_t treadle_common_row(const treadle_common *common, const int64_t *coordinate) {
  int64_t row = 0;
  for (int a = 0; a <= common->last_row_axis; a++)
    row = row * common->box.size[a] + coordinate[a] - common->box.start[a];
  return row;
}
