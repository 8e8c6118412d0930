/* The kernels' copies, run on the host, against treadle_copy_op: random boxes, types, strides of any sign, offsets,
 * bases, tables of pages down to 16 bytes. Bytes outside the box must stay; items say what they have written; and
 * barriers that are left out are noticed. A failure prints its seed:  test_kernel_cuda SEED */
/* ctest: stage=gcc optimise */
#include "base/dtype.h"
#include "base/random.h"
#include "kernels_on_host.h"
#include "memory/copy.h"
#include "memory/cut_cuda.h"
#include "test.h"

enum {
  ROOM = 1 << 17,
  SLACK = 64,
  LEAST_SHIFT = 4,
  MOST_PAGES = ROOM >> LEAST_SHIFT,
  CASES = 10000,
  MOST_ITEMS = 4096
};

typedef struct side { /* a window, and its bytes in physical order */
  char *base;
  int32_t table[MOST_PAGES];
  treadle_paged paged;
} side;

static uint64_t only_seed;
static char rooms[3][ROOM + 2 * SLACK]; /* the source, the destination, and what it should be */
static side from, to;
/* How many boxes there were: by kind; by eight values; by bytes. */
enum { BY_EIGHT = TREADLE_CUDA_FILL + 1, BY_BYTES, KINDS };
static int64_t kinds[KINDS];

static void draw_side(side *s, treadle_random *random, char *room) {
  s->base = room + (treadle_random_below(random, 2) ? SLACK - (int64_t)((uintptr_t)room % SLACK)
                                                    : treadle_random_below(random, SLACK));
  s->paged = (treadle_paged){.base = s->base, .into = s->base};
  if (treadle_random_below(random, 3) == 0) return;
  s->paged.table = s->table;
  s->paged.page_shift = (int)treadle_random_between(random, LEAST_SHIFT, 13);
  const int pages = ROOM >> s->paged.page_shift;
  for (int i = 0; i < pages; i++) s->table[i] = i;
  for (int i = pages - 1; i > 0; i--) { /* some neighbours stay neighbours */
    int k = (int)treadle_random_below(random, i + 1);
    if (k % 3 == 0) continue;
    int32_t t = s->table[i];
    s->table[i] = s->table[k];
    s->table[k] = t;
  }
}

/* Strides that hold what is inside, with gaps now and then, in a random order of the axes, which is that of the op
 * half of the time; the bytes that they take, and the first element's offset. */
static int64_t draw_strides(treadle_random *random, const treadle_op *op, int64_t *strides, int64_t each,
                            int64_t *first_p) {
  int order[TREADLE_MAX_AXES];
  const bool turned = treadle_random_below(random, 2);
  for (int d = 0; d < op->ndim; d++) {
    int k = turned ? (int)treadle_random_below(random, d + 1) : d;
    order[d] = order[k];
    order[k] = d;
  }
  int64_t inner = each;
  *first_p = 0;
  for (int i = op->ndim - 1; i >= 0; i--) {
    const int d = order[i];
    const int64_t kind = treadle_random_below(random, 6);
    int64_t stride = inner;
    if (kind == 0) stride += treadle_random_below(random, 5) * each;
    if (kind == 1) stride += treadle_random_below(random, 3) * inner;
    if (kind == 2 && i < op->ndim - 1) stride = (stride + 15) / 16 * 16;
    if (kind == 3 && treadle_random_below(random, 8) == 0) stride += treadle_random_below(random, 4);
    inner += stride * (op->size[d] - 1);
    const bool backwards = treadle_random_below(random, 8) == 0;
    if (backwards) *first_p += stride * (op->size[d] - 1);
    strides[d] = backwards ? -stride : stride;
  }
  return inner;
}

static void draw_sizes(treadle_random *random, treadle_op *op) {
  static const int64_t rows[] = {1,   3,   12,  31,  32,   64,   96,   100,  128,
                                 256, 500, 512, 600, 1024, 2048, 2100, 5000, 30000};
  op->ndim = (uint8_t)treadle_random_below(random, TREADLE_MAX_AXES + 1);
  if (op->ndim == TREADLE_MAX_AXES) op->ndim = (uint8_t)treadle_random_below(random, TREADLE_MAX_AXES + 1);
  for (int d = 0; d < op->ndim; d++) op->size[d] = 1 + treadle_random_below(random, op->ndim < 4 ? 6 : 3);
  if (op->ndim == 0) return;
  op->size[op->ndim - 1] = rows[treadle_random_below(random, TEST_COUNT(rows))];
  if (op->ndim < 2 || treadle_random_below(random, 2)) return;
  for (int d = 0; d < op->ndim; d++) /* planes of several tiles */
    op->size[d] = 1 + treadle_random_below(random, d < op->ndim - 2 ? 2 : 150);
}

static void place(treadle_random *random, int64_t *at_p, int64_t bytes, const side *s) {
  *at_p = treadle_random_below(random, ROOM - bytes + 1); /* any byte: no alignment is promised */
  if (treadle_random_below(random, 4) == 0) return;
  *at_p &= ~INT64_C(63);
  if (!s->paged.table && treadle_random_below(random, 2) == 0) /* so that the address is aligned, too */
    *at_p += *at_p > 0 ? -(int64_t)((uintptr_t)s->base % 16) : 0;
}

/* An op that fits the room on both sides, and is not long for what it tests. */
static treadle_op draw_op(treadle_random *random) {
  for (;;) {
    const bool fill = treadle_random_below(random, 10) == 0, convert = treadle_random_below(random, 2) == 0;
    treadle_op op = {.source = fill ? -1 : 0, .elems = 1, .tensor = TREADLE_FILL_ZEROS};
    if (treadle_random_below(random, 2)) op.tensor = TREADLE_FILL_MINUS_INFINITY;
    op.from_dtype = (uint8_t)(1 + treadle_random_below(random, TREADLE_INT32));
    op.to_dtype = convert ? (uint8_t)(1 + treadle_random_below(random, TREADLE_INT32)) : op.from_dtype;
    if (convert) op.add = (int8_t)treadle_random_between(random, -1, 1);
    draw_sizes(random, &op);
    for (int d = 0; d < op.ndim; d++) op.elems *= op.size[d];
    if (op.elems > 20000 && treadle_random_below(random, 8) > 0) continue;
    int64_t from_first, to_first;
    int64_t from_bytes =
        draw_strides(random, &op, op.from_stride,
                     (int64_t)treadle_dtype_bytes((treadle_dtype)op.from_dtype), &from_first);
    int64_t to_bytes = draw_strides(random, &op, op.to_stride,
                                    (int64_t)treadle_dtype_bytes((treadle_dtype)op.to_dtype), &to_first);
    if (from_bytes > ROOM || to_bytes > ROOM) continue;
    place(random, &op.from, from_bytes, &from);
    place(random, &op.to, to_bytes, &to);
    if (op.from + from_bytes > ROOM || op.to + to_bytes > ROOM) continue;
    op.from += from_first;
    op.to += to_first;
    return op;
  }
}

/* ---- Running ---- */

static treadle_cuda_view view_of(const side *s) {
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
  draw_side(&from, &random, rooms[0]);
  draw_side(&to, &random, rooms[1]);
  const treadle_op op = draw_op(&random);
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
