/* src/core/memory/cut_cuda.c: how wide units are, what becomes of the ends of rows, of axes beyond 32 bits; items
 * cover a box. What boxes do is test_kernel_cuda's. */
#include "kernels_on_host.h"
#include "memory/cut_cuda.h"
#include "test.h"

static treadle_cuda_box boxes[TREADLE_CUDA_BOXES];

/* An op of one type, with 192 bytes in each of 100 rows on either side; strides in bytes. */
static treadle_op rows_of(treadle_dtype from_dtype, treadle_dtype to_dtype, int64_t from_stride,
                          int64_t to_stride) {
  const int64_t from = from_dtype == TREADLE_FP32 ? 4 : 2, to = to_dtype == TREADLE_FP32 ? 4 : 2;
  return (treadle_op){.ndim = 2,
                      .from_dtype = (uint8_t)from_dtype,
                      .to_dtype = (uint8_t)to_dtype,
                      .elems = 9600,
                      .size = {100, 96},
                      .from_stride = {from_stride, from},
                      .to_stride = {to_stride, to}};
}

static int cut_at(const treadle_op *op, uint64_t from, uint64_t to) {
  const treadle_cuda_view from_view = {.base = from}, to_view = {.base = to};
  return treadle_cuda_cut(op, op->source < 0 ? NULL : &from_view, &to_view, boxes);
}

static void test_widths(void **state) {
  (void)state;
  treadle_op op = rows_of(TREADLE_BF16, TREADLE_BF16, 1024, 192);
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  assert_int_equal(boxes[0].kind, TREADLE_CUDA_ROWS);
  assert_int_equal(boxes[0].width, 16);
  assert_int_equal(boxes[0].ndim, 2);
  assert_int_equal(boxes[0].size[1], 12);
  assert_true(boxes[0].mark == treadle_op_mark(&op) && boxes[0].is_first);
  assert_int_equal(cut_at(&op, 4096 + 8, 8192), 1); /* the address of a base counts */
  assert_int_equal(boxes[0].width, 8);
  assert_int_equal(cut_at(&op, 4096 + 2, 8192), 1);
  assert_int_equal(boxes[0].width, 2);
  assert_int_equal(cut_at(&op, 4096 + 1, 8192), 1);
  assert_int_equal(boxes[0].width, 1);
  op = rows_of(TREADLE_BF16, TREADLE_BF16, 1024 + 4, 192); /* and strides */
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  assert_int_equal(boxes[0].width, 4);
  op = rows_of(TREADLE_FP32, TREADLE_BF16, 1024, 192);
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  assert_int_equal(boxes[0].kind, TREADLE_CUDA_VALUES);
  assert_int_equal(boxes[0].width, 8);
  assert_int_equal(boxes[0].size[1], 12);
}

static void test_ends(void **state) {
  (void)state;
  treadle_op op = rows_of(TREADLE_BF16, TREADLE_BF16, 192, 192); /* one long row */
  assert_int_equal(cut_at(&op, 4096 + 6, 8192 + 6), 3);
  assert_int_equal(boxes[0].width, 2);
  assert_int_equal(boxes[0].size[0], 5);
  assert_int_equal(boxes[1].width, 16);
  assert_int_equal(boxes[1].size[0], 1199);
  assert_int_equal(boxes[1].from.at, 10);
  assert_int_equal(boxes[2].width, 2);
  assert_int_equal(boxes[2].size[0], 3);
  assert_true(boxes[0].mark != 0 && boxes[1].mark == 0 && boxes[2].mark == 0);
  op = rows_of(TREADLE_BF16, TREADLE_FP32, 192, 384);
  assert_int_equal(cut_at(&op, 4096 + 4, 8192 + 8), 3);
  assert_int_equal(boxes[1].width, 8);
  assert_int_equal(boxes[0].size[0], 6);
  assert_int_equal(cut_at(&op, 4096 + 2, 8192 + 8), 1); /* never aligned on both sides at once */
  assert_int_equal(boxes[0].width, 1);
  assert_int_equal(boxes[0].by_bytes, 0);
  assert_int_equal(cut_at(&op, 4096 + 1, 8192), 1);
  assert_int_equal(boxes[0].by_bytes, 1);
}

static void test_pages(void **state) {
  (void)state;
  const int32_t table[1] = {0};
  treadle_op op = rows_of(TREADLE_FP32, TREADLE_BF16, 384, 192);
  treadle_cuda_view from = {.base = 4096, .table = address_on_host(table), .page_shift = 4},
                    to = {.base = 8192};
  assert_int_equal(treadle_cuda_cut(&op, &from, &to, boxes), 1); /* eight values would lie in two pages */
  assert_int_equal(boxes[0].width, 1);
  from.page_shift = 5;
  assert_int_equal(treadle_cuda_cut(&op, &from, &to, boxes), 1);
  assert_int_equal(boxes[0].width, 8);
  op.from = 4; /* the address of the first unit is a multiple of 32, its place in the window is not */
  from.base = 4096 - 4;
  treadle_cuda_cut(&op, &from, &to, boxes);
  assert_int_equal(boxes[0].width, 1);
}

static uint64_t units_of(const treadle_cuda_box *box) {
  uint64_t units = 1;
  for (int d = 0; d < box->ndim; d++) {
    assert_in_range(box->size[d], 1, TREADLE_CUDA_MOST_SIZE);
    units *= box->size[d];
  }
  return units;
}

/* Axes beyond 32 bits, and items of what becomes of them. */
static void test_long(void **state) {
  (void)state;
  const int64_t each = 1, size = (INT64_C(5) << 30) + 3;
  treadle_op op = {
      .ndim = 2, .from_dtype = TREADLE_FP8_E4M3, .to_dtype = TREADLE_FP8_E4M3, .size = {size, 3}};
  op.from_stride[0] = 5, op.to_stride[0] = 7;
  op.from_stride[1] = op.to_stride[1] = each;
  assert_int_equal(cut_at(&op, 4096, 8192), 2);
  assert_int_equal(units_of(&boxes[0]) + units_of(&boxes[1]), size * 3);
  assert_int_equal(boxes[0].ndim, 3);
  assert_int_equal(boxes[0].to_stride[0], 7 * (INT64_C(1) << 30));
  assert_int_equal(boxes[1].to.at, 7 * (INT64_C(5) << 30));
  int64_t count = treadle_cuda_item_count(&boxes[0]);
  assert_int_equal(count, (INT64_C(15) << 30) / TREADLE_CUDA_ITEM_BYTES);
  treadle_cuda_item last = treadle_cuda_item_of(&boxes[0], 9, count - 1);
  assert_int_equal(last.start + last.count, INT64_C(15) << 30);
  assert_int_equal(last.box, 9);
  op = (treadle_op){
      .ndim = 1, .from_dtype = TREADLE_BF16, .to_dtype = TREADLE_BF16, .size = {INT64_C(1) << 36}};
  op.from_stride[0] = op.to_stride[0] = 2;
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  assert_int_equal(units_of(&boxes[0]), INT64_C(1) << 33);
}

static void test_items(void **state) {
  (void)state;
  treadle_op op = {.ndim = 2, .from_dtype = TREADLE_BF16, .to_dtype = TREADLE_BF16, .size = {1000, 700}};
  op.from_stride[0] = 2, op.from_stride[1] = 2000, op.to_stride[0] = 1400, op.to_stride[1] = 2;
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  assert_int_equal(boxes[0].kind, TREADLE_CUDA_TILES);
  assert_int_equal(treadle_cuda_item_count(&boxes[0]), 16 * 11);
  op.from_stride[0] = 1400, op.from_stride[1] = 2;
  assert_int_equal(cut_at(&op, 4096, 8192), 1);
  const int64_t count = treadle_cuda_item_count(&boxes[0]);
  uint64_t reached = 0;
  for (int64_t i = 0; i < count; i++) {
    const treadle_cuda_item item = treadle_cuda_item_of(&boxes[0], 0, i);
    assert_int_equal(item.start, reached);
    assert_in_range(item.count, 1, TREADLE_CUDA_ITEM_BYTES / 16);
    reached += item.count;
  }
  assert_int_equal(reached, units_of(&boxes[0]));
}

static void test_nothing(void **state) {
  (void)state;
  treadle_op op = rows_of(TREADLE_BF16, TREADLE_BF16, 192, 192);
  op.size[1] = 0;
  op.elems = 0;
  assert_int_equal(cut_at(&op, 4096, 8192), 0);
  op = (treadle_op){
      .source = -1, .to_dtype = TREADLE_BF16, .tensor = TREADLE_FILL_MINUS_INFINITY, .elems = 1};
  assert_int_equal(cut_at(&op, 0, 8192), 1); /* no axis: one element */
  assert_int_equal(boxes[0].kind, TREADLE_CUDA_FILL);
  assert_int_equal(boxes[0].width, 2);
  assert_true(boxes[0].value == 0xff80ff80ff80ff80);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths), cmocka_unit_test(test_ends),
                                     cmocka_unit_test(test_pages),  cmocka_unit_test(test_long),
                                     cmocka_unit_test(test_items),  cmocka_unit_test(test_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
