/* Boxes, against plain enumeration of their elements. */
#include "test.h"

#include "base/random.h"
#include "layout/box.h"

#include <inttypes.h>

enum {
  SIDE = 4,
  POINTS = SIDE * SIDE * SIDE * SIDE * SIDE * SIDE
}; /* a grid that every drawn box lies in */

static treadle_box draw_box(treadle_random *random, int axes) {
  treadle_box box;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    box.start[a] = a < axes ? treadle_random_below(random, SIDE) : 0;
    box.size[a] = a < axes ? treadle_random_between(random, 1, SIDE - box.start[a]) : 1;
  }
  return box;
}

static void point_of(int64_t number, int64_t *point) {
  for (int a = TREADLE_MAX_AXES - 1; a >= 0; a--, number /= SIDE) point[a] = number % SIDE;
}

static bool has(const treadle_box *box, const int64_t *point) {
  for (int a = 0; a < TREADLE_MAX_AXES; a++)
    if (point[a] < box->start[a] || point[a] >= box->start[a] + box->size[a]) return false;
  return true;
}

static int boxes_with(const treadle_boxes *boxes, const int64_t *point) {
  int count = 0;
  for (size_t i = 0; i < boxes->count; i++) count += has(&boxes->items[i], point);
  return count;
}

static void meet_and_subtract(void **state) {
  (void)state;
  treadle_boxes rest = {0};
  for (uint64_t seed = 1; seed <= 400; seed++) {
    treadle_random random = {seed};
    int axes = (int)treadle_random_between(&random, 1, 4);
    treadle_box a = draw_box(&random, axes), b = draw_box(&random, axes), common = {{-1}, {-1}}, swapped;
    bool meets = treadle_box_meet(&a, &b, &common);
    assert_int_equal(meets, treadle_box_meet(&b, &a, &swapped));
    if (meets)
      assert_true(treadle_box_equal(&common, &swapped));
    else
      assert_int_equal(common.start[0], -1); /* not written */
    rest.count = 0;
    assert_ok(treadle_box_subtract(&a, &b, &rest));
    assert_true(rest.count <= (size_t)(2 * axes));
    int64_t elems = 0, shared = 0;
    for (int64_t i = 0; i < POINTS; i++) {
      int64_t point[TREADLE_MAX_AXES];
      point_of(i, point);
      bool in_a = has(&a, point), in_b = has(&b, point);
      elems += in_a;
      shared += in_a && in_b;
      if (meets)
        assert_int_equal(has(&common, point), in_a && in_b);
      else
        assert_false(in_a && in_b);
      if (boxes_with(&rest, point) != (in_a && !in_b)) fail_msg("seed %" PRIu64, seed);
    }
    assert_int_equal(treadle_box_elems(&a), elems);
    assert_int_equal(meets ? treadle_box_elems(&common) : 0, shared);
  }
  treadle_array_release(&rest);
}

/* Elements [low, high) of axes first..last, in order: every low and high of many boxes. */
static void ranges(void **state) {
  (void)state;
  treadle_boxes boxes = {0};
  for (uint64_t seed = 1; seed <= 120; seed++) {
    treadle_random random = {seed};
    treadle_box box = draw_box(&random, 4);
    int first = (int)treadle_random_below(&random, 4),
        last = (int)treadle_random_between(&random, first, 3);
    int64_t rows = 1, others = 1;
    for (int a = 0; a < 4; a++) *(a >= first && a <= last ? &rows : &others) *= box.size[a];
    for (int64_t low = 0; low <= rows; low++)
      for (int64_t high = low; high <= rows; high++) {
        boxes.count = 0;
        assert_ok(treadle_box_range(&box, first, last, low, high, &boxes));
        assert_true(boxes.count <= (size_t)(2 * (last - first + 1) - 1));
        int64_t next = low; /* each box goes on where the one before it ended */
        for (size_t i = 0; i < boxes.count; i++) {
          const treadle_box *part = &boxes.items[i];
          int64_t begin = 0, count = 1, whole = 1;
          for (int a = 0; a < TREADLE_MAX_AXES; a++) {
            bool inside = a >= first && a <= last;
            if (inside) {
              begin = begin * box.size[a] + part->start[a] - box.start[a];
              count *= part->size[a];
            } else {
              assert_int_equal(part->start[a], box.start[a]);
              assert_int_equal(part->size[a], box.size[a]);
            }
          }
          for (int a = last; a >= first;
               a--) { /* one stretch: once an axis is cut, all before it are single */
            if (part->size[a] == box.size[a] && whole) continue;
            if (!whole) assert_int_equal(part->size[a], 1);
            whole = 0;
          }
          assert_int_equal(begin, next);
          assert_int_equal(treadle_box_elems(part), count * others);
          next += count;
        }
        if (next != (low < high ? high : low))
          fail_msg("seed %" PRIu64 " [%" PRId64 ", %" PRId64 ")", seed, low, high);
      }
  }
  boxes.count = 0;
  treadle_box one = {{0}, {1, 1, 1, 1, 1, 1}};
  assert_ok(treadle_box_range(&one, 6, -1, 0, 1, &boxes)); /* a dimension without axes: the box */
  assert_int_equal(boxes.count, 1);
  assert_true(treadle_box_equal(&boxes.items[0], &one));
  treadle_array_release(&boxes);
}

/* ---- Tilings ---- */

static treadle_box rectangle(int64_t r, int64_t c, int64_t rows, int64_t columns) {
  return (treadle_box){{r, c}, {rows, columns, 1, 1, 1, 1}};
}

/* Splits a box at random planes, a few levels deep: a tiling. */
static void split(treadle_random *random, treadle_box box, int depth, treadle_boxes *boxes) {
  int axis = (int)treadle_random_below(random, 4);
  if (depth == 0 || box.size[axis] == 1) {
    assert_ok(treadle_array_push(boxes, box));
    return;
  }
  treadle_box low = box, high = box;
  low.size[axis] = treadle_random_between(random, 1, box.size[axis] - 1);
  high.start[axis] += low.size[axis];
  high.size[axis] -= low.size[axis];
  split(random, low, depth - 1, boxes);
  split(random, high, depth - 1, boxes);
}

static void shuffle(treadle_random *random, treadle_boxes *boxes) {
  for (size_t i = boxes->count; i > 1; i--) {
    size_t k = (size_t)treadle_random_below(random, (int64_t)i);
    treadle_box swap = boxes->items[k];
    boxes->items[k] = boxes->items[i - 1];
    boxes->items[i - 1] = swap;
  }
}

static void random_tilings(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    treadle_random random = {seed};
    treadle_box whole = {{3, 0, 7, 1}, {13, 8, 5, 9, 1, 1}};
    treadle_boxes boxes = {0};
    split(&random, whole, (int)treadle_random_between(&random, 0, 6), &boxes);
    shuffle(&random, &boxes);
    if (!treadle_box_tiles(&whole, boxes.items, boxes.count)) fail_msg("seed %" PRIu64 " tiles", seed);

    size_t at = (size_t)treadle_random_below(&random, (int64_t)boxes.count);
    treadle_box *box = &boxes.items[at];
    int axis = (int)treadle_random_below(&random, 4);
    box->start[axis]++; /* a gap and an overlap, or sticks out */
    if (treadle_box_tiles(&whole, boxes.items, boxes.count)) fail_msg("seed %" PRIu64 " moved", seed);
    boxes.count = 0;
    random.state = seed;
    split(&random, whole, (int)treadle_random_between(&random, 0, 6), &boxes);
    if (boxes.count >
        1) { /* one box is there twice in place of another: right volume at times, wrong cover */
      boxes.items[0] = boxes.items[1];
      if (treadle_box_tiles(&whole, boxes.items, boxes.count)) fail_msg("seed %" PRIu64 " twice", seed);
      assert_false(treadle_box_tiles(&whole, boxes.items, boxes.count - 1));
    }
    treadle_array_release(&boxes);
  }
}

static void tilings_by_hand(void **state) {
  (void)state;
  treadle_box whole = rectangle(0, 0, 5, 5);
  treadle_box pinwheel[] = {rectangle(0, 0, 2, 3), rectangle(0, 3, 3, 2), rectangle(3, 2, 2, 3),
                            rectangle(2, 0, 3, 2), rectangle(2, 2, 1, 1)}; /* no plane splits it */
  assert_true(treadle_box_tiles(&whole, pinwheel, 5));
  treadle_box overlap[] = {rectangle(0, 0, 2, 3), rectangle(0, 3, 3, 2), rectangle(3, 2, 2, 3),
                           rectangle(2, 0, 3, 2),
                           rectangle(1, 2, 1, 1)}; /* the middle is moved over a blade: right volume */
  assert_false(treadle_box_tiles(&whole, overlap, 5));
  assert_false(treadle_box_tiles(&whole, pinwheel, 4)); /* sorted by now; one is missing, whichever */
  treadle_box out[] = {rectangle(0, 0, 5, 4), rectangle(0, 4, 6, 1)};
  assert_false(treadle_box_tiles(&whole, out, 2));
  treadle_box before[] = {rectangle(0, 0, 5, 4), rectangle(-1, 4, 5, 1)};
  assert_false(treadle_box_tiles(&whole, before, 2));
  treadle_box gap[] = {rectangle(0, 0, 5, 2), rectangle(0, 3, 5, 2)};
  assert_false(treadle_box_tiles(&whole, gap, 2));
  treadle_box halves[] = {rectangle(0, 2, 5, 3), rectangle(0, 0, 5, 2)};
  assert_true(treadle_box_tiles(&whole, halves, 2));
  assert_false(treadle_box_tiles(&whole, NULL, 0));
  assert_true(treadle_box_tiles(&whole, &whole, 1));
}

/* Two pinwheels side by side with an overlap in one: volumes that cancel out. */
static void an_overlap_behind_a_plane(void **state) {
  (void)state;
  treadle_box whole = rectangle(0, 0, 5, 10);
  treadle_box boxes[] = {rectangle(0, 0, 2, 3), rectangle(0, 3, 3, 2), rectangle(3, 2, 2, 3),
                         rectangle(2, 0, 3, 2), rectangle(2, 2, 1, 1), rectangle(0, 5, 2, 3),
                         rectangle(0, 8, 3, 2), rectangle(3, 7, 2, 3), rectangle(2, 5, 3, 2),
                         rectangle(2, 7, 1, 1)};
  assert_true(treadle_box_tiles(&whole, boxes, 10));
  for (size_t i = 0; i < 10; i++)
    if (treadle_box_elems(&boxes[i]) == 1 && boxes[i].start[1] == 2) boxes[i].start[1] = 3;
  assert_false(treadle_box_tiles(&whole, boxes, 10));
}

static void failing_allocations(void **state) {
  (void)state;
  treadle_box a = {{0}, {4, 4, 4, 4, 1, 1}}, b = {{1, 1, 1, 1}, {2, 2, 2, 2, 1, 1}};
  treadle_boxes boxes = {0};
  treadle_alloc_fail_at(1);
  assert_int_equal(treadle_box_subtract(&a, &b, &boxes), TREADLE_NO_MEMORY);
  treadle_alloc_fail_at(1);
  assert_int_equal(treadle_box_range(&a, 0, 3, 5, 200, &boxes), TREADLE_NO_MEMORY);
  treadle_alloc_fail_at(0);
  treadle_array_release(&boxes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(meet_and_subtract),
      cmocka_unit_test(ranges),
      cmocka_unit_test(random_tilings),
      cmocka_unit_test(tilings_by_hand),
      cmocka_unit_test(an_overlap_behind_a_plane),
      cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
