/* A copy that is asked for alone has the part of its page table that it reads in the room, near the room's start.
 * Entry 0 would lie before the room, in memory that no device reaches: kernels may reckon with its address, and not
 * read by it. On the stand-in of the driver.
 * ctest: stage=gcc */
#include "cuda/fake_test.h"
#include "memory/device.h"

enum { PAGES = 1 << 17, SHIFT = 4, PAGE = 1 << SHIFT, FIRST = PAGES - 2 };

static void test_late_pages(void **state) {
  (void)state;
  static int32_t
      table[PAGES]; /* 512 KiB: the only pinned memory is the room, and that begins later than entry 0 */
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA};
  treadle_device device;
  char given[2 * PAGE], seen[2 * PAGE];
  assert_ok(treadle_device_open(&memory, &device));
  char *pages = device.ops->scratch(&device, sizeof given),
       *to = device.ops->scratch(&device, sizeof given);
  assert_true(pages && to);
  for (int i = 0; i < (int)sizeof given; i++) given[i] = (char)(i + 1);
  device.ops->move(&device, pages, given, sizeof given);
  table[FIRST] = 1; /* the last two pages of the window, the other way round */
  table[FIRST + 1] = 0;
  const treadle_op op = {.ndim = 1,
                         .from_dtype = TREADLE_FP32,
                         .to_dtype = TREADLE_FP32,
                         .from = (int64_t)FIRST * PAGE,
                         .size = {2 * PAGE / 4},
                         .from_stride = {4},
                         .to_stride = {4},
                         .elems = 2 * PAGE / 4};
  const treadle_paged from = {.base = pages, .table = table, .page_shift = SHIFT},
                      into = {.base = to, .into = to};
  device.ops->copy(&device, &op, &from, &into, 1);
  device.ops->move(&device, seen, to, sizeof seen);
  assert_ok(device.ops->fence(&device));
  assert_memory_equal(seen, given + PAGE, PAGE);
  assert_memory_equal(seen + PAGE, given, PAGE);
  device.ops->scratch_release(&device, pages);
  device.ops->scratch_release(&device, to);
  treadle_device_close(&device);
}

int main(void) {
  fake_start();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_pages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
