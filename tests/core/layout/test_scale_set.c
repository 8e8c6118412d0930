/* Blocks that were seen, against a table of elements. */
#include "layout/scale_set.h"

#include "base/random.h"
#include "test.h"

#include <inttypes.h>
#include <string.h>

enum {
  EXPERTS = 2,
  GROUPS = 3,
  HEADS = 4,
  INNER = 2,
  OUTER = 5
}; /* rows GROUPS x HEADS, columns OUTER x INNER */

/* Boxes of a tensor whose rows and columns are two axes each. */
static void boxes_of_blocks(void **state) {
  (void)state;
  treadle_tensor tensor = {.naxes = 5, .axis = {EXPERTS, GROUPS, HEADS, OUTER, INNER}};
  treadle_random random = {7};
  treadle_scale_set scale_set = {0};
  for (int round = 0; round < 400; round++) {
    treadle_blocks b = {.tensor = &tensor,
                        .first_row = 1,
                        .first_column = 3,
                        .experts = EXPERTS,
                        .rows = GROUPS * HEADS,
                        .columns = OUTER * INNER,
                        .high = treadle_random_between(&random, 1, 13),
                        .wide = treadle_random_between(&random, 1, 11),
                        .weight = {0, HEADS, 1, INNER, 1}};
    bool known[EXPERTS][GROUPS * HEADS][OUTER * INNER] = {0};
    b.down = (b.rows + b.high - 1) / b.high;
    b.across = (b.columns + b.wide - 1) / b.wide;
    assert_ok(treadle_scale_set_start(&scale_set, &b));
    for (int n = 0; n < 4; n++) {
      treadle_box box = treadle_box_whole(&tensor);
      int64_t fresh = 0;
      for (int a = 0; a < tensor.naxes; a++) {
        box.size[a] = treadle_random_between(&random, 1, tensor.axis[a]);
        box.start[a] = treadle_random_below(&random, tensor.axis[a] - box.size[a] + 1);
      }
      for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t row = 0; row < b.rows; row++)
          for (int64_t column = 0; column < b.columns; column++) {
            const int64_t at[] = {e, row / HEADS, row % HEADS, column / INNER, column % INNER};
            bool inside = true;
            for (int a = 0; a < tensor.naxes; a++)
              inside = inside && at[a] >= box.start[a] && at[a] < box.start[a] + box.size[a];
            bool *block = &known[e][row / b.high][column / b.wide];
            fresh += inside && !*block;
            *block = *block || inside;
          }
      assert_int_equal(treadle_scale_set_add_box(&scale_set, &b, &box), fresh);
      assert_int_equal(treadle_scale_set_add_box(&scale_set, &b, &box), 0);
    }
    for (int64_t e = 0; e < EXPERTS; e++)
      for (int64_t down = 0; down < b.down; down++) {
        int64_t fresh = 0;
        for (int64_t across = 0; across < b.across; across++) fresh += !known[e][down][across];
        assert_int_equal(treadle_scale_set_fresh(&scale_set, &b, e, down, 0, b.columns), fresh);
        for (int64_t other = down; other < b.down; other++)
          assert_int_equal(treadle_scale_set_equal(&scale_set, &b, e, down, other, 0, b.columns),
                           memcmp(known[e][down], known[e][other], (size_t)b.across) == 0);
        assert_int_equal(treadle_scale_set_add(&scale_set, &b, e, down, 0, b.columns), fresh);
        assert_int_equal(treadle_scale_set_fresh(&scale_set, &b, e, down, 0, b.columns), 0);
      }
  }
  treadle_scale_set_release(&scale_set);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(boxes_of_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
