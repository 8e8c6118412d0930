/* The kernels' copies, run on the host, against treadle_copy_op: random boxes, types, strides of any sign, offsets,
 * bases, tables of pages down to 16 bytes. Bytes outside the box must stay; items say what they have written; and
 * barriers that are left out are noticed. A failure prints its seed:  test_kernel_cuda SEED */
/* ctest: stage=gcc optimise */
#include "base/dtype.h"
#include "cuda/random_boxes.h"
#include "kernels_on_host.h"
#include "memory/copy.h"
#include "memory/cut_cuda.h"
#include "test.h"

enum { CASES = 10000, MOST_ITEMS = 4096 };

static uint64_t only_seed;
static char rooms[3][RANDOM_ROOM_BYTES]; /* the source, the destination, and what it should be */
static random_side from, to;
/* How many boxes there were: by kind; by eight values; by bytes. */
enum { BY_EIGHT = TREADLE_CUDA_FILL + 1, BY_BYTES, KINDS };
static int64_t kinds[KINDS];

/* ---- Running ---- */

static treadle_cuda_view view_of(const random_side *s) {
  return (treadle_cuda_view){.base = address_on_host(s->paged.base),
                             .table = s->paged.table ? address_on_host(s->paged.table) : 0,
                             .page_shift = s->paged.page_shift};
}

/* Items of all boxes; some are cut again, since kernels take any parts. */
static uint32_t draw_items(treadle_random *random, const treadle_cuda_box *boxes, int box_count,
                           treadle_cuda_item *items) {
  uint32_t count = 0;
  for (int b = 0; b < box_count; b++) {
    kinds[boxes[b].kind]++;
    kinds[BY_EIGHT] += boxes[b].kind == TREADLE_CUDA_VALUES && boxes[b].width == 8;
    kinds[BY_BYTES] += boxes[b].by_bytes;
    for (int64_t i = 0; i < treadle_cuda_item_count(&boxes[b]); i++) {
      assert_true(count + 2 <= MOST_ITEMS);
      treadle_cuda_item item = treadle_cuda_item_of(&boxes[b], (uint32_t)b, i);
      if (item.count > 1 && treadle_random_below(random, 2)) {
        const uint32_t part = (uint32_t)treadle_random_between(random, 1, item.count - 1);
        items[count++] = (treadle_cuda_item){item.box, part, item.start};
        item.start += part;
        item.count -= part;
      }
      items[count++] = item;
    }
  }
  for (uint32_t i = count; i > 1; i--) { /* any order */
    const int64_t k = treadle_random_below(random, i);
    const treadle_cuda_item item = items[k];
    items[k] = items[i - 1];
    items[i - 1] = item;
  }
  return count;
}

static treadle_written run(kernel_on_host *copy, const treadle_op *op, treadle_random *random) {
  static treadle_cuda_item items[MOST_ITEMS];
  static treadle_cuda_count counts[MOST_ITEMS];
  treadle_cuda_box boxes[TREADLE_CUDA_BOXES];
  const treadle_cuda_view from_view = view_of(&from), to_view = view_of(&to);
  const int box_count = treadle_cuda_cut(op, op->source < 0 ? NULL : &from_view, &to_view, boxes);
  const treadle_cuda_copy_args args = {.boxes = address_on_host(boxes),
                                       .items = address_on_host(items),
                                       .counts = address_on_host(counts),
                                       .count = draw_items(random, boxes, box_count, items)};
  copy(&args, (uint32_t)treadle_random_between(random, 1, 5), (uint32_t)treadle_random_next(random));
  treadle_written written = {0};
  for (uint32_t i = 0; i < args.count; i++) {
    written.bytes += (int64_t)counts[i].bytes;
    written.mark += counts[i].mark;
  }
  return written;
}

/* true: the kernel has the twin's bits. */
static bool check_case(uint64_t seed, kernel_on_host *copy) {
  treadle_random random = {seed};
  random_side_draw(&from, &random, rooms[0]);
  random_side_draw(&to, &random, rooms[1]);
  const treadle_op op = random_op_draw(&random, &from, &to);
  memset(rooms[1], 0xee, sizeof rooms[1]);
  memset(rooms[2], 0xee, sizeof rooms[2]);
  treadle_paged wanted = to.paged;
  wanted.base = wanted.into = rooms[2] + (to.base - rooms[1]);
  treadle_copy_op(&op, op.source < 0 ? NULL : &from.paged, &wanted, TREADLE_MOVER_PLAIN);
  const treadle_written written = run(copy, &op, &random);
  const bool same = memcmp(rooms[1], rooms[2], sizeof rooms[1]) == 0;
  if (copy != host_copy) return same;
  if (!same || written.bytes != op.elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op.to_dtype) ||
      written.mark != treadle_op_mark(&op))
    fail_msg("seed %llu: %s of %d axes, %lld elements, types %d to %d, %+d: %s, %lld bytes written",
             (unsigned long long)seed, op.source < 0 ? "fill" : "copy", op.ndim, (long long)op.elems,
             op.from_dtype, op.to_dtype, op.add, same ? "all bits are right" : "bits differ",
             (long long)written.bytes);
  return same;
}

static int draw_source(void **state) {
  (void)state;
  treadle_random random = {1};
  for (size_t i = 0; i < sizeof rooms[0]; i++) rooms[0][i] = (char)treadle_random_next(&random);
  return 0;
}

static void test_random_boxes(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(CASES); seed++)
    check_case(only_seed ? only_seed : seed, host_copy);
  for (int kind = 0; kind < KINDS && test_seeds(CASES) >= 2000; kind++) assert_true(kinds[kind] > 10);
}

static void test_race(void **state) {
  (void)state;
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) wrong += !check_case(seed, raced_copy);
  assert_true(wrong > 3);
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_boxes), cmocka_unit_test(test_race)};
  return cmocka_run_group_tests(tests, draw_source, NULL);
}
