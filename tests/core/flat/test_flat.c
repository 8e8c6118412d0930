/* Flat layouts: clipping against plain enumeration, and the tables of units by hand. */
#include "test.h"

#include "base/random.h"
#include "flat/shards.h"

#include <inttypes.h>

/* ---- Clipping -------------------------------------------------------------------------------- */

/* A box of some axes, nested, with gaps at times, its axes in any order of speed. */
static treadle_strided draw(treadle_random *random, int axes) {
  treadle_strided from = {.offset = treadle_random_below(random, 20)};
  int order[TREADLE_MAX_AXES];
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    int k = (int)treadle_random_below(random, a + 1);
    order[a] = order[k];
    order[k] = a;
  }
  int64_t reach = 1;
  for (int i = 0; i < TREADLE_MAX_AXES; i++) {
    int a = order[i];
    from.box.start[a] = i < axes ? treadle_random_below(random, 5) : 0;
    from.box.size[a] = i < axes ? treadle_random_between(random, 1, 4) : 1;
    from.stride[a] = reach + (treadle_random_below(random, 2) ? treadle_random_below(random, 4) : 0);
    reach += (from.box.size[a] - 1) * from.stride[a];
  }
  return from;
}

typedef struct element {
  int64_t address, point[TREADLE_MAX_AXES];
} element;

/* The elements of a box, each in turn; false behind the last. */
static bool element_of(const treadle_strided *part, int64_t number, element *e) {
  if (number >= treadle_box_elems(&part->box)) return false;
  e->address = part->offset;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    int64_t index = number % part->box.size[a];
    number /= part->box.size[a];
    e->point[a] = part->box.start[a] + index;
    e->address += index * part->stride[a];
  }
  return true;
}

static bool has(const treadle_strideds *parts, const element *e) {
  int found = 0;
  element other;
  for (size_t i = 0; i < parts->count; i++)
    for (int64_t k = 0; element_of(&parts->items[i], k, &other); k++)
      found += memcmp(&other, e, sizeof other) == 0;
  return found == 1;
}

static bool clips(const treadle_strided *from, int axes, treadle_span span, int64_t origin,
                  treadle_strideds *parts) {
  parts->count = 0;
  assert_ok(treadle_strided_clip(from, span, origin, parts));
  if (parts->count > (size_t)(axes > 0 ? 2 * axes - 1 : 1)) return false;
  int64_t inside = 0, given = 0, last = INT64_MIN;
  element e;
  for (int64_t k = 0; element_of(from, k, &e); k++) {
    if (e.address < span.low || e.address >= span.high) continue;
    inside++;
    e.address -= origin;
    if (!has(parts, &e)) return false;
  }
  for (size_t i = 0; i < parts->count; i++) {
    if (parts->items[i].offset <= last) return false; /* ascending */
    last = parts->items[i].offset;
    given += treadle_box_elems(&parts->items[i].box);
  }
  return given == inside;
}

static void clip_against_enumeration(void **state) {
  (void)state;
  treadle_strideds parts = {0};
  for (uint64_t seed = 1; seed <= 400; seed++) {
    treadle_random random = {seed};
    int axes = (int)treadle_random_between(&random, 0, 4);
    treadle_strided from = draw(&random, axes);
    int64_t end = from.offset + 3;
    for (int a = 0; a < TREADLE_MAX_AXES; a++) end += (from.box.size[a] - 1) * from.stride[a];
    for (int i = 0; i < 30; i++) {
      treadle_span span = {treadle_random_below(&random, end + 1), 0};
      span.high = treadle_random_between(&random, span.low, end);
      int64_t origin = treadle_random_below(&random, 2) ? span.low : 0;
      if (!clips(&from, axes, span, origin, &parts))
        fail_msg("seed %" PRIu64 " [%" PRId64 ", %" PRId64 ")", seed, span.low, span.high);
    }
    assert_true(clips(&from, axes, (treadle_span){INT64_MIN / 2, INT64_MAX / 2}, 0, &parts));
    assert_int_equal(parts.count, 1);
    assert_true(treadle_box_equal(&parts.items[0].box, &from.box));
  }
  treadle_array_release(&parts);
}

/* 3 rows of 5, a shard that has the tail of one row and the head of another. */
static void clip_by_hand(void **state) {
  (void)state;
  treadle_strideds parts = {0};
  treadle_strided whole = treadle_strided_whole((int64_t[]){3, 5}, 2, 100);
  assert_ok(treadle_strided_clip(&whole, (treadle_span){103, 112}, 103, &parts));
  static const struct {
    int64_t row, column, rows, columns, offset;
  } wanted[] = {{0, 3, 1, 2, 0}, {1, 0, 1, 5, 2}, {2, 0, 1, 2, 7}};
  assert_int_equal(parts.count, 3);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(parts.items[i].box.start[0], wanted[i].row);
    assert_int_equal(parts.items[i].box.start[1], wanted[i].column);
    assert_int_equal(parts.items[i].box.size[0], wanted[i].rows);
    assert_int_equal(parts.items[i].box.size[1], wanted[i].columns);
    assert_int_equal(parts.items[i].offset, wanted[i].offset);
    assert_int_equal(parts.items[i].stride[0], 5);
  }
  parts.count = 0; /* a model of 2^44 elements; a shard inside one row */
  whole = treadle_strided_whole((int64_t[]){1 << 12, 1 << 16, 1 << 16}, 3, 0);
  int64_t at = (INT64_C(7) << 32) + (INT64_C(9) << 16) + 11;
  assert_ok(treadle_strided_clip(&whole, (treadle_span){at, at + 5}, at, &parts));
  assert_int_equal(parts.count, 1);
  assert_int_equal(parts.items[0].box.start[0], 7);
  assert_int_equal(parts.items[0].box.start[1], 9);
  assert_int_equal(parts.items[0].box.start[2], 11);
  assert_int_equal(parts.items[0].box.size[2], 5);
  treadle_array_release(&parts);
}

static void failing_allocations(void **state) {
  (void)state;
  treadle_strideds parts = {0};
  treadle_strided whole = treadle_strided_whole((int64_t[]){3, 5}, 2, 0);
  treadle_alloc_fail_at(1);
  assert_fails(TREADLE_NO_MEMORY, "memory", treadle_strided_clip(&whole, (treadle_span){1, 9}, 0, &parts));
  treadle_alloc_fail_at(0);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static void chunks(void **state) {
  (void)state;
  for (int64_t n = 0; n <= 30; n++)
    for (int64_t count = 1; count <= 12; count++) {
      int64_t next = 5, each = (n + count - 1) / count;
      for (int64_t r = 0; r < count; r++) {
        treadle_span span = treadle_span_chunk((treadle_span){5, 5 + n}, count, r);
        int64_t size = n - r * each < each ? n - r * each : each;
        assert_int_equal(span.high - span.low, size > 0 ? size : 0);
        assert_int_equal(span.low, next);
        next = span.high;
      }
      assert_int_equal(next, 5 + n);
    }
  treadle_span span = treadle_span_chunk((treadle_span){0, INT64_MAX}, INT64_C(1) << 62, INT64_C(1) << 61);
  assert_int_equal(span.low, INT64_C(1) << 62);
  assert_int_equal(span.high, (INT64_C(1) << 62) + 2);
  span = treadle_span_chunk((treadle_span){0, 7}, INT64_MAX, INT64_MAX - 1);
  assert_int_equal(span.low, span.high);
}

/* ---- Units ----------------------------------------------------------------------------------- */

static const int64_t toy[] = {15, 5, 5, 1};

static void fsdp1_by_hand(void **state) {
  (void)state;
  int64_t starts[4];
  treadle_flat_unit unit;
  assert_ok(treadle_fsdp1_unit(toy, 4, 4, true, 2, starts, &unit));
  static const int64_t aligned[] = {0, 16, 24, 32}, packed[] = {0, 15, 20, 25}, by_four[] = {0, 16, 24, 32};
  assert_memory_equal(starts, aligned, sizeof starts);
  assert_int_equal(unit.used, 33);
  assert_int_equal(unit.total, 36);
  assert_int_equal(unit.shard, 9);
  assert_int_equal(unit.fill, 42);
  assert_ok(treadle_fsdp1_unit(toy, 4, 4, false, 2, starts, &unit));
  assert_memory_equal(starts, packed, sizeof starts);
  assert_int_equal(unit.used, 26);
  assert_int_equal(unit.total, 28);
  assert_int_equal(unit.shard, 7);
  assert_int_equal(unit.fill, 0);
  assert_int_equal(flat_shard_of(&unit, 3).high - unit.used, 2);    /* the last rank's padding */
  assert_ok(treadle_fsdp1_unit(toy, 4, 1, true, 4, starts, &unit)); /* fp32: multiples of 4 */
  assert_memory_equal(starts, by_four, sizeof starts);
  assert_int_equal(unit.total, 33);
}

static void zero_by_hand(void **state) {
  (void)state;
  int64_t starts[4];
  treadle_flat_unit unit;
  assert_ok(treadle_zero12_unit(toy, 4, 4, starts, &unit)); /* 26 to a multiple of 8 */
  static const int64_t packed[] = {0, 15, 20, 25};
  assert_memory_equal(starts, packed, sizeof starts);
  assert_int_equal(unit.used, 26);
  assert_int_equal(unit.total, 32);
  assert_int_equal(unit.shard, 8);
  assert_int_equal(unit.fill, 0);
  assert_ok(treadle_zero12_unit(toy, 4, 13, starts, &unit)); /* 26 is one */
  assert_int_equal(unit.total, 26);
}

static void refused_units(void **state) {
  (void)state;
  int64_t starts[2], negative[] = {4, -1}, huge[] = {INT64_MAX - 4, 9}, full[] = {INT64_MAX};
  treadle_flat_unit unit;
  assert_refused("over 0 ranks", treadle_fsdp1_unit(toy, 1, 0, true, 2, starts, &unit));
  assert_refused("elements of 3 bytes", treadle_fsdp1_unit(toy, 1, 2, true, 3, starts, &unit));
  assert_refused("elements of 0 bytes", treadle_fsdp1_unit(toy, 1, 2, true, 0, starts, &unit));
  assert_refused("parameter 1 has -1", treadle_fsdp1_unit(negative, 2, 2, true, 2, starts, &unit));
  assert_refused("up to 1 do not fit", treadle_fsdp1_unit(huge, 2, 2, false, 2, starts, &unit));
  assert_refused("up to 1 do not fit", treadle_fsdp1_unit(huge, 2, 2, true, 2, starts, &unit));
  assert_refused("do not fit", treadle_fsdp1_unit(full, 1, 2, false, 2, starts, &unit));
  assert_refused("do not fit", treadle_zero12_unit(full, 1, 2, starts, &unit));
  assert_refused("ranks", treadle_zero12_unit(toy, 1, INT64_MAX, starts, &unit));
  assert_refused("over -1 ranks", treadle_zero12_unit(toy, 1, -1, starts, &unit));
}

/* Units of drawn parameters: the shards of all ranks have every parameter's elements once. */
static void shards_cover(void **state) {
  (void)state;
  treadle_strideds parts = {0};
  for (uint64_t seed = 1; seed <= 200; seed++) {
    treadle_random random = {seed};
    int64_t numels[5], starts[5], world = treadle_random_between(&random, 1, 9);
    int count = (int)treadle_random_between(&random, 1, 5);
    for (int i = 0; i < count; i++) numels[i] = treadle_random_between(&random, 1, 40);
    treadle_flat_unit unit;
    if (seed % 2)
      assert_ok(treadle_fsdp1_unit(numels, count, world, seed % 4 == 1, 2, starts, &unit));
    else
      assert_ok(treadle_zero12_unit(numels, count, world, starts, &unit));
    for (int i = 0; i < count; i++) {
      treadle_strided whole = treadle_strided_whole(&numels[i], 1, starts[i]);
      int64_t next = 0;
      for (int64_t r = 0; r < world; r++) {
        parts.count = 0;
        treadle_span shard = flat_shard_of(&unit, r);
        assert_ok(treadle_strided_clip(&whole, shard, shard.low, &parts));
        if (parts.count == 0) continue;
        assert_int_equal(parts.items[0].box.start[0], next);
        assert_true(parts.items[0].offset + parts.items[0].box.size[0] <= unit.shard);
        next += parts.items[0].box.size[0];
      }
      if (next != numels[i]) fail_msg("seed %" PRIu64, seed);
    }
  }
  treadle_array_release(&parts);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clip_against_enumeration),
      cmocka_unit_test(clip_by_hand),
      cmocka_unit_test(failing_allocations),
      cmocka_unit_test(chunks),
      cmocka_unit_test(fsdp1_by_hand),
      cmocka_unit_test(zero_by_hand),
      cmocka_unit_test(refused_units),
      cmocka_unit_test(shards_cover),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
