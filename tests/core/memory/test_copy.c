/* The copy kernel against a loop over elements: random strided boxes, types, offsets, page tables of tiny
 * pages, both movers. Bytes outside the box must stay. A failure prints its seed:  test_copy SEED */
/* ctest: label=kernels */
#include "base/dtype.h"
#include "base/random.h"
#include "memory/copy.h"
#include "memory/copy_stream.h"
#include "memory/random_op.h"
#include "test.h"

enum { ROOM = 1 << 18, PAGE_SHIFT = 12, PAGES = ROOM >> PAGE_SHIFT, CASES = 3000 };

typedef struct side { /* a window, and its bytes in physical order */
  char *base;
  int32_t table[PAGES];
  treadle_paged paged;
} side;

static uint64_t only_seed;

static char *byte_at(const side *s, int64_t at) {
  if (!s->paged.table) return s->base + at;
  return s->base + ((int64_t)s->table[at >> PAGE_SHIFT] << PAGE_SHIFT) + (at & ((1 << PAGE_SHIFT) - 1));
}

static void side_init(side *s, treadle_random *random, bool paged) {
  s->base = aligned_alloc(4096, ROOM);
  assert_non_null(s->base);
  for (int i = 0; i < ROOM; i++) s->base[i] = (char)treadle_random_next(random);
  random_table(random, s->table, PAGES);
  s->paged = (treadle_paged){
      .base = s->base, .into = s->base, .table = paged ? s->table : NULL, .page_shift = PAGE_SHIFT};
}

/* Element by element, as the op says. */
static void plain_op(const treadle_op *op, const side *from, side *to) {
  size_t in_bytes = treadle_dtype_bytes((treadle_dtype)op->from_dtype);
  size_t out_bytes = treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  int64_t at[TREADLE_MAX_AXES] = {0};
  for (int64_t n = 0; n < op->elems; n++) {
    int64_t f = op->from, t = op->to;
    for (int d = 0; d < op->ndim; d++) {
      f += at[d] * op->from_stride[d];
      t += at[d] * op->to_stride[d];
    }
    char in[4], out[4] = {0};
    for (size_t i = 0; i < in_bytes && op->source >= 0; i++) in[i] = *byte_at(from, f + (int64_t)i);
    if (op->source >= 0)
      treadle_dtype_convert_add(out, (treadle_dtype)op->to_dtype, in, (treadle_dtype)op->from_dtype,
                                op->add, 1);
    for (size_t i = 0; i < out_bytes; i++) *byte_at(to, t + (int64_t)i) = out[i];
    for (int d = op->ndim - 1; d >= 0 && ++at[d] == op->size[d]; d--) at[d] = 0;
  }
}

static void check_case(uint64_t seed) {
  treadle_random random = {seed};
  side from, to, wanted;
  bool fill = treadle_random_below(&random, 10) == 0, convert = treadle_random_below(&random, 3) == 0;
  treadle_op op = random_op(&random, ROOM, fill, convert);
  side_init(&from, &random, treadle_random_below(&random, 2));
  side_init(&to, &random, treadle_random_below(&random, 2));
  wanted = to;
  wanted.base = aligned_alloc(4096, ROOM);
  assert_non_null(wanted.base);
  memcpy(wanted.base, to.base, ROOM);
  if (to.paged.table) to.paged.table = to.table;
  if (from.paged.table) from.paged.table = from.table;
  char *untouched = aligned_alloc(4096, ROOM);
  assert_non_null(untouched);
  memcpy(untouched, to.base, ROOM);
  plain_op(&op, &from, &wanted);
  for (int mover = TREADLE_MOVER_PLAIN; mover <= (int)treadle_copy_choose(); mover++) {
    memcpy(to.base, untouched, ROOM);
    treadle_copy_op(&op, fill ? NULL : &from.paged, &to.paged, (treadle_mover)mover);
    treadle_copy_fence();
    if (memcmp(to.base, wanted.base, ROOM) == 0) continue;
    fail_msg("seed %llu: mover %d, %d dimensions, %lld elements, types %d to %d, %+d",
             (unsigned long long)seed, mover, op.ndim, (long long)op.elems, op.from_dtype, op.to_dtype,
             op.add);
  }
  free(from.base);
  free(to.base);
  free(wanted.base);
  free(untouched);
}

static void test_random_boxes(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(CASES); seed++) check_case(only_seed ? only_seed : seed);
}

/* Rows of the stream kernel: every head, tail and gap around its block sizes. */
static void check_rows(size_t row, size_t count, size_t head, size_t gap) {
  enum { SPACE = 1 << 20 };
  static char from[SPACE], to[SPACE], wanted[SPACE];
  size_t from_stride = row + gap * 100, to_stride = (row + 63) / 64 * 64 + (head & 1);
  size_t used = head + count * to_stride + 200;
  assert_true(used < SPACE && 3 + count * from_stride < SPACE);
  for (size_t i = 0; i < used + count * from_stride; i++) from[i % SPACE] = (char)(i * 31 + i / 256);
  memset(to, 1, used);
  memset(wanted, 1, used);
  for (size_t i = 0; i < count; i++) memcpy(wanted + head + i * to_stride, from + 3 + i * from_stride, row);
  treadle_stream_rows(to + head, to_stride, from + 3, from_stride, row, count);
  treadle_stream_fence();
  assert_memory_equal(to, wanted, used);
}

static void test_rows(void **state) {
  (void)state;
  if (!treadle_stream_supported()) skip();
  static const size_t rows[] = {1,   63,   64,   255,  256,  320,  511,  512,
                                575, 1000, 1024, 2048, 2049, 4096, 4097, 8192};
  static const size_t longs[] = {65535, 65536, 65537, 65598, 100001, 131072 + 2000};
  for (size_t head = 0; head < 70; head += 7)
    for (size_t gap = 0; gap < 3; gap++) {
      for (size_t r = 0; r < TEST_COUNT(rows); r++) check_rows(rows[r], 9, head, gap);
      for (size_t r = 0; r < TEST_COUNT(longs); r++) check_rows(longs[r], 3, head, gap);
    }
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_boxes), cmocka_unit_test(test_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
