/* Boxes: meet, subtract, ranges of the row-major order, and the proof that boxes tile a box. */
#include "layout/box.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

treadle_box treadle_box_whole(const treadle_tensor *tensor) {
  treadle_box box;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    box.start[a] = 0;
    box.size[a] = a < tensor->naxes ? tensor->axis[a] : 1;
  }
  return box;
}

int64_t treadle_box_elems(const treadle_box *box) {
  int64_t elems = 1;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) elems *= box->size[a];
  return elems;
}

/* Only numbers and no padding between them, so bytes compare. */
bool treadle_box_equal(const treadle_box *a, const treadle_box *b) { return memcmp(a, b, sizeof *a) == 0; }

bool treadle_box_meet(const treadle_box *a, const treadle_box *b, treadle_box *box_p) {
  treadle_box box;
  for (int i = 0; i < TREADLE_MAX_AXES; i++) {
    int64_t a_end = a->start[i] + a->size[i], b_end = b->start[i] + b->size[i];
    int64_t start = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
    int64_t end = a_end < b_end ? a_end : b_end;
    if (start >= end) return false;
    box.start[i] = start;
    box.size[i] = end - start;
  }
  *box_p = box;
  return true;
}

/* [4, 4] less the [2, 2] in its middle: rows 0 and 3, each [1, 4], then columns 0 and 3 of the two rows
 * between, each [2, 1]. The parts are disjoint, since `rest` shrinks to the common range axis by axis. */
treadle_status treadle_box_subtract(const treadle_box *from, const treadle_box *without,
                                    treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_box common, rest = *from;
  if (!treadle_box_meet(from, without, &common)) return treadle_array_push(boxes, *from);
  for (int a = 0; a < TREADLE_MAX_AXES; a++) { /* peel off what lies before and after on each axis */
    int64_t before = common.start[a] - rest.start[a];
    int64_t after = rest.start[a] + rest.size[a] - common.start[a] - common.size[a];
    if (before > 0) {
      treadle_box part = rest;
      part.size[a] = before;
      TRY(treadle_array_push(boxes, part));
    }
    if (after > 0) {
      treadle_box part = rest;
      part.start[a] = common.start[a] + common.size[a];
      part.size[a] = after;
      TRY(treadle_array_push(boxes, part));
    }
    rest.start[a] = common.start[a];
    rest.size[a] = common.size[a];
  }
out:
  return status;
}

/* Where nothing meets, nothing is copied. */
treadle_status treadle_boxes_subtract(treadle_boxes *boxes, const treadle_box *without,
                                      treadle_boxes *spare) {
  treadle_status status = TREADLE_OK;
  treadle_box common;
  size_t apart = 0;
  while (apart < boxes->count && !treadle_box_meet(&boxes->items[apart], without, &common)) apart++;
  if (apart == boxes->count) return TREADLE_OK;
  spare->count = 0;
  for (size_t i = 0; i < boxes->count; i++) TRY(treadle_box_subtract(&boxes->items[i], without, spare));
  treadle_boxes swap = *boxes;
  *boxes = *spare;
  *spare = swap;
out:
  return status;
}

/* Elements 5 to 19 of [2, 3, 4], 12 to a step of axis 0: the head begins in step 0, and is (0, 1, 1..3) and
 * (0, 2, all); no step is whole; the tail, 8 elements of step 1, is (1, 0..1, all). In all 3 + 4 + 8 = 15.
 * Each axis gives a head, steps that are whole, and a tail, so the boxes come in row-major order. */
treadle_status treadle_box_range(const treadle_box *box, int first, int last, int64_t low, int64_t high,
                                 treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  int64_t inner = 1; /* elements of axes first+1..last for one step of axis `first` */
  if (low >= high) return TREADLE_OK;
  for (int a = first + 1; a <= last; a++) inner *= box->size[a];
  if (first > last) return treadle_array_push(boxes, *box);

  /* Steps of axis `first`: head is where the range begins, tail is where it ends. Equal: all of it is
   * inside of one step, and the first branch has it whole. */
  int64_t head = low / inner, tail = high / inner;
  treadle_box part = *box;
  part.size[first] = 1;
  if (low % inner != 0 || head == tail) { /* begins inside a step of this axis */
    int64_t end = head == tail ? high - head * inner : inner;
    part.start[first] = box->start[first] + head;
    TRY(treadle_box_range(&part, first + 1, last, low - head * inner, end, boxes));
    head++;
  }
  if (head < tail) {
    part = *box;
    part.start[first] = box->start[first] + head;
    part.size[first] = tail - head;
    TRY(treadle_array_push(boxes, part));
  }
  if (head <= tail && high % inner != 0) {
    part = *box;
    part.start[first] = box->start[first] + tail;
    part.size[first] = 1;
    TRY(treadle_box_range(&part, first + 1, last, 0, high % inner, boxes));
  }
out:
  return status;
}

/* ---- Tiling ---- */

/* qsort has no context argument, so there is one comparison an axis. */
#define COMPARE(axis)                                                                                      \
  static int compare_axis_##axis(const void *a, const void *b) {                                           \
    int64_t x = ((const treadle_box *)a)->start[axis], y = ((const treadle_box *)b)->start[axis];          \
    return (x > y) - (x < y);                                                                              \
  }
COMPARE(0)
COMPARE(1)
COMPARE(2)
COMPARE(3)
COMPARE(4)
COMPARE(5)
static int (*const compare_axis[TREADLE_MAX_AXES])(const void *, const void *) = {
    compare_axis_0, compare_axis_1, compare_axis_2, compare_axis_3, compare_axis_4, compare_axis_5};

static bool disjoint(const treadle_box *boxes, size_t count) {
  treadle_box common;
  for (size_t i = 0; i < count; i++)
    for (size_t j = i + 1; j < count; j++)
      if (treadle_box_meet(&boxes[i], &boxes[j], &common)) return false;
  return true;
}

/* Are boxes pairwise disjoint? Splits them at planes of axis `axis` and on, `stuck` axes in a row without
 * a plane; when no axis splits, every pair is compared. A plane lies where every box before it ends at or
 * before the start of the next one: boxes on its two sides cannot meet, so each side is looked at alone.
 * `end` is the furthest end so far. Boxes of a grid come apart axis by axis; pairs are
 * compared only where no plane is free of boxes, as in a pinwheel. */
static bool disjoint_by_planes(treadle_box *boxes, size_t count, int axis, int stuck) {
  if (count <= 1) return true;
  if (stuck == TREADLE_MAX_AXES) return disjoint(boxes, count);
  bool sorted = true;
  for (size_t i = 1; i < count && sorted; i++) sorted = boxes[i - 1].start[axis] <= boxes[i].start[axis];
  if (!sorted) qsort(boxes, count, sizeof *boxes, compare_axis[axis]);
  int next = (axis + 1) % TREADLE_MAX_AXES;
  size_t begin = 0;
  int64_t end = boxes[0].start[axis] + boxes[0].size[axis];
  for (size_t i = 1; i <= count; i++) {
    if (i < count && boxes[i].start[axis] < end) { /* no plane before box i */
      int64_t own_end = boxes[i].start[axis] + boxes[i].size[axis];
      if (own_end > end) end = own_end;
      continue;
    }
    bool split = begin > 0 || i < count;
    if (!disjoint_by_planes(boxes + begin, i - begin, next, split ? 0 : stuck + 1)) return false;
    begin = i;
    if (i < count) end = boxes[i].start[axis] + boxes[i].size[axis];
  }
  return true;
}

/* Is all of a box inside of another one? Not if it is empty. */
static bool contains(const treadle_box *whole, const treadle_box *box) {
  for (int a = 0; a < TREADLE_MAX_AXES; a++)
    if (box->size[a] < 1 || box->start[a] < whole->start[a] ||
        box->start[a] + box->size[a] > whole->start[a] + whole->size[a])
      return false;
  return true;
}

/* Inside of `whole`, disjoint, and as many elements: then nothing is left out. */
bool treadle_box_tiles(const treadle_box *whole, treadle_box *boxes, size_t count) {
  int64_t elems = 0;
  for (size_t i = 0; i < count; i++) {
    if (!contains(whole, &boxes[i])) return false;
    elems += treadle_box_elems(&boxes[i]);
  }
  return elems == treadle_box_elems(whole) && disjoint_by_planes(boxes, count, 0, 0);
}
