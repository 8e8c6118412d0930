/* src/core/memory/device_cuda.c and what it is made of, on the stand-in of the driver: the row does what the table says (treadle_device.h), late and
 * in another order than it was asked for; each call of the driver may fail; nothing is left over.  test_cuda_device [SEED] ctest: stage=gcc */
#include "base/dtype.h"
#include "base/random.h"
#include "cuda/card.h"
#include "memory/copy.h"
#include "memory/device.h"
#include "memory/random_op.h"
#include "test.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = CARD_PAGE, SHIFT = 12, PAGES = 64, ROOM = PAGES * PAGE, CASES = 300, OPS = 40 };

static uint64_t only_seed;

static treadle_device opened(int number, void *stream) {
  treadle_device device;
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = number, .stream = stream};
  assert_ok(treadle_device_open(&memory, &device));
  return device;
}

/* Asked again and again; what is asked about too early has not passed. */
static void wait_for(const treadle_device *device, treadle_ticket ticket) {
  for (bool passed = false; !passed;) assert_ok(device->ops->passed(device, ticket, &passed));
}

static void draw(treadle_random *random, void *memory, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((char *)memory)[i] = (char)treadle_random_next(random);
}

static void assert_bytes(const treadle_device *device, const void *at, const void *wanted, size_t bytes) {
  char *found = malloc(bytes + 1);
  assert_non_null(found);
  device->ops->move(device, found, at, bytes);
  assert_ok(device->ops->fence(device));
  assert_memory_equal(found, wanted, bytes);
  free(found);
}

/* ---- Bytes ---- */

/* Between memory of the device, pinned and pageable memory. */
static void test_bytes(void **state) {
  (void)state;
  enum { KINDS = 4, BYTES = 3 * PAGE + 100 };
  treadle_random random = {3};
  fake_cuda_ledger before;
  fake_cuda_ledger_read(&before);
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  static char pageable[BYTES], pinned[BYTES], wanted[KINDS][BYTES];
  char *at[KINDS] = {ops->scratch(&device, BYTES), ops->scratch(&device, BYTES), pinned, pageable};
  assert_ok(ops->pin(&device, pinned, BYTES));
  assert_bytes(&device, at[0], wanted[0], BYTES); /* zeroed */
  for (int i = 0; i < KINDS; i++) {
    draw(&random, wanted[i], BYTES);
    ops->move(&device, at[i], wanted[i], BYTES);
  }
  assert_ok(ops->fence(&device));
  for (int i = 0; i < 200; i++) {
    const int from = (int)treadle_random_below(&random, KINDS),
              to = (int)treadle_random_below(&random, KINDS);
    const size_t bytes = (size_t)treadle_random_below(&random, BYTES / 2),
                 source = (size_t)treadle_random_below(&random, BYTES / 2 - (int64_t)bytes + 1),
                 into = BYTES / 2 + (size_t)treadle_random_below(&random, BYTES / 2 - (int64_t)bytes + 1);
    if (i % 3 == 0 && to < 2) {
      ops->fill(&device, at[to] + into, i, bytes);
      memset(wanted[to] + into, i, bytes);
      continue;
    }
    if (from == 3 || to == 3) assert_ok(ops->fence(&device)); /* the processor's, too */
    ops->move(&device, at[to] + into, at[from] + source, bytes);
    memmove(wanted[to] + into, wanted[from] + source, bytes);
    if (from >= 2 && to >= 2) assert_ok(ops->fence(&device));
  }
  for (int i = 0; i < KINDS; i++) assert_bytes(&device, at[i], wanted[i], BYTES);
  ops->unpin(&device, pinned);
  for (int i = 0; i < 2; i++) ops->scratch_release(&device, at[i]);
  treadle_device_close(&device);
  card_is_as(&before);
}

/* ---- Elements and blocks ---- */

/* Values and hashes are those of the host, in every type. */
static void test_elements(void **state) {
  (void)state;
  enum { BYTES = 7 * 40 * 4 + 64 };
  treadle_device device = opened(0, NULL);
  char *window = device.ops->scratch(&device, BYTES);
  static char wanted[BYTES];
  for (int dtype = TREADLE_FP32; dtype <= TREADLE_FP16; dtype++)
    for (int how = 0; how < 4; how++) {
      treadle_elements e = {.tensor = 77,
                            .ndim = 2,
                            .size = {7, 33},
                            .weight = {50, 1},
                            .index = 12,
                            .at = 64,
                            .dtype = (treadle_dtype)dtype,
                            .near_one = how & 1,
                            .add = how & 2 ? -1 : 0};
      uint64_t found[3] = {0, 0, 5};
      e.stride[1] = (int64_t)treadle_dtype_bytes(e.dtype);
      e.stride[0] = e.stride[1] * 40;
      memset(wanted, 1, sizeof wanted);
      device.ops->fill(&device, window, 1, BYTES);
      device.ops->generate(&device, &e, window);
      treadle_elements_generate(&e, wanted);
      assert_bytes(&device, window, wanted, BYTES);
      const void *const windows[] = {window, window + 64};
      treadle_elements both[] = {e, e};
      both[1].at = 0;
      assert_ok(device.ops->hash(&device, both, windows, 2, found));
      const uint64_t sum = treadle_elements_hash(&e, wanted);
      assert_true(found[0] == sum && found[1] == sum && found[2] == 5);
      assert_ok(device.ops->hash(&device, both, windows, 0, found));
    }
  device.ops->scratch_release(&device, window);
  treadle_device_close(&device);
}

/* More of them than one launch takes. */
static void test_many_hashes(void **state) {
  (void)state;
  enum { COUNT = 5000, SIDE = 8 };
  treadle_device device = opened(0, NULL);
  char *window = device.ops->scratch(&device, COUNT * SIDE * 2);
  treadle_elements *all = calloc(COUNT, sizeof *all);
  const void **windows = calloc(COUNT, sizeof *windows);
  uint64_t *sums = calloc(COUNT, sizeof *sums);
  static char wanted[COUNT * SIDE * 2];
  assert_true(all && windows && sums);
  for (int i = 0; i < COUNT; i++) {
    all[i] = (treadle_elements){
        .tensor = (uint64_t)i, .dtype = TREADLE_BF16, .ndim = 1, .index = i, .at = i * SIDE * 2};
    all[i].size[0] = SIDE, all[i].stride[0] = 2, all[i].weight[0] = 1;
    windows[i] = window;
    treadle_elements_generate(&all[i], wanted);
  }
  device.ops->move(&device, window, wanted, sizeof wanted);
  assert_ok(device.ops->hash(&device, all, windows, COUNT, sums));
  for (int i = 0; i < COUNT; i++) assert_true(sums[i] == treadle_elements_hash(&all[i], wanted));
  free(all);
  free(windows);
  free(sums);
  device.ops->scratch_release(&device, window);
  treadle_device_close(&device);
}

/* Strips of 1 to `STRIPS` in a call, both ways, as the plain twin makes them. */
static void test_blocks(void **state) {
  (void)state;
  enum {
    SIDE = 64,
    VALUES = SIDE * SIDE * 4,
    STRIPS = 5,
    SCALES = SIDE * 4,
    EACH = VALUES + SIDE * SIDE + SCALES
  };
  treadle_random random = {11};
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  char *rooms = ops->scratch(&device, STRIPS * EACH);
  static char here[STRIPS * EACH];
  for (int i = 0; i < 30; i++) {
    treadle_strip strips[STRIPS];
    const size_t count = (size_t)i % STRIPS + 1;
    draw(&random, here, sizeof here);
    ops->move(&device, rooms, here, sizeof here);
    for (size_t k = 0; k < count; k++) {
      const treadle_dtype dtype = (treadle_dtype)(TREADLE_FP32 + (i + (int)k) % 3);
      const int64_t each = (int64_t)treadle_dtype_bytes(dtype), first = (int64_t)k * EACH;
      const bool turned = (i + (int)k) & 1;
      strips[k] = (treadle_strip){.values = treadle_matrix_of(rooms + first, turned ? each : SIDE * each,
                                                              turned ? SIDE * each : each),
                                  .codes = treadle_matrix_of(rooms + first + VALUES, SIDE, 1),
                                  .scales = treadle_matrix_of(rooms + first + VALUES + SIDE * SIDE, 0, 4),
                                  .rows = 1 + treadle_random_below(&random, SIDE),
                                  .columns = 1 + treadle_random_below(&random, SIDE),
                                  .width = (int32_t)(1 + treadle_random_below(&random, SIDE)),
                                  .dtype = dtype};
      strips[k].skip = (int32_t)treadle_random_below(&random, strips[k].width);
    }
    for (int back = 0; back < 2; back++) {
      for (size_t k = 0; k < count; k++) {
        treadle_strip twin = strips[k];
        const int64_t to_here = here - rooms;
        twin.back = strips[k].back = back;
        twin.values = treadle_matrix_at(twin.values, to_here);
        twin.codes = treadle_matrix_at(twin.codes, to_here);
        twin.scales = treadle_matrix_at(twin.scales, to_here);
        treadle_strip_make(&twin, TREADLE_MOVER_PLAIN);
      }
      ops->blocks(&device, strips, count);
      assert_bytes(&device, rooms, here, sizeof here);
    }
  }
  ops->scratch_release(&device, rooms);
  treadle_device_close(&device);
}

/* ---- The caller's stream ---- */

/* A fence waits for what the caller's stream was given, also where nothing was asked of the device: others may read it then. */
static void test_callers_stream(void **state) {
  (void)state;
  for (int own = 0; own < 2; own++) {
    CUstream stream = NULL;
    CUdeviceptr at;
    fake_cuda_ledger ledger;
    card_enter();
    if (own) assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&at, PAGE), CUDA_SUCCESS);
    treadle_device device = opened(0, stream);
    assert_int_equal(cuMemsetD8Async(at, 7, PAGE, stream), CUDA_SUCCESS);
    fake_cuda_ledger_read(&ledger);
    assert_true(ledger.waiting > 0);
    assert_ok(device.ops->fence(&device));
    fake_cuda_ledger_read(&ledger);
    assert_int_equal(ledger.waiting, 0);
    treadle_device_close(&device);
    assert_int_equal(cuMemFree_v2(at), CUDA_SUCCESS);
    if (own) assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    card_leave();
  }
}

/* Values are converted by eight, where a table lets them be: rows that begin in the middle of eight have a head and a tail, however often
 * they are cut. */
static void test_heads(void **state) {
  enum { VALUES = 200, BYTES = VALUES * 4 + 64 };
  static char source[BYTES], found[2 * PAGE], wanted[2 * PAGE];
  static const int32_t table[] = {0, 1};
  treadle_random random = {9};
  (void)state;
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  char *from = ops->scratch(&device, BYTES), *to = ops->scratch(&device, 2 * PAGE);
  draw(&random, source, BYTES);
  for (int i = 0; i < BYTES; i += 4) source[i + 3] = 0x3f; /* no NaN */
  ops->move(&device, from, source, BYTES);
  for (int at = 0; at < 64; at += 16) {
    treadle_op op = {.from_dtype = TREADLE_FP32,
                     .to_dtype = TREADLE_FP32,
                     .add = 1,
                     .ndim = 1,
                     .size = {VALUES},
                     .from_stride = {4},
                     .to_stride = {4},
                     .elems = VALUES,
                     .to = at};
    const treadle_paged far = treadle_paged_of(from + 16),
                        far_to = {.base = to, .into = to, .table = table, .page_shift = SHIFT},
                        near = treadle_paged_of(source + 16),
                        near_to = {.base = wanted, .into = wanted, .table = table, .page_shift = SHIFT};
    treadle_work *work;
    treadle_written written = {0};
    memset(wanted, 0, sizeof wanted);
    treadle_copy_op(&op, &near, &near_to, TREADLE_MOVER_PLAIN);
    for (int prepared = 0; prepared < 2; prepared++) {
      ops->fill(&device, to, 0, 2 * PAGE);
      assert_ok(ops->prepare(&device, &op, &far, &far_to, 1, &work));
      if (prepared)
        ops->run(&device, work, 0, 1, &written);
      else
        ops->copy(&device, &op, &far, &far_to, 1);
      ops->move(&device, found, to, 2 * PAGE);
      assert_ok(ops->fence(&device));
      assert_memory_equal(found, wanted, 2 * PAGE);
      ops->work_release(work);
    }
    assert_int_equal(written.bytes, VALUES * 4);
  }
  ops->scratch_release(&device, from);
  ops->scratch_release(&device, to);
  treadle_device_close(&device);
}

/* ---- Pools ---- */

static treadle_imported *import_all(const treadle_device *device, const treadle_pool *pool, int64_t pages,
                                    const treadle_view_of *only) {
  treadle_imported *imported;
  int descriptors[8];
  const int64_t all = device->ops->export_count(pool);
  assert_ok(device->ops->import_begin(device, all, (size_t)pages * PAGE, only, &imported));
  for (int64_t i = 0; i < all; i += 2) { /* some at a time */
    const int count = all - i < 2 ? 1 : 2;
    assert_ok(device->ops->export_part(pool, i, count, true, descriptors));
    assert_ok(device->ops->import_part(imported, i, count, descriptors));
    for (int k = 0; k < count; k++) close(descriptors[k]);
  }
  return imported;
}

/* The first descriptor says what is wrong with what was said of the pool. */
static void import_wrong(const treadle_device *device, const treadle_pool *pool, int64_t count,
                         size_t bytes, const treadle_view_of *only, const char *words) {
  treadle_imported *imported;
  int descriptor;
  assert_ok(device->ops->import_begin(device, count, bytes, only, &imported));
  assert_ok(device->ops->export_part(pool, 0, 1, true, &descriptor));
  assert_fails(TREADLE_PEER, words, device->ops->import_part(imported, 0, 1, &descriptor));
  close(descriptor);
  device->ops->unimport(imported);
}

/* Pages that follow each other in all windows are one piece; they are imported as that. */
static void test_pieces(void **state) {
  (void)state;
  fake_cuda_ledger before;
  fake_cuda_ledger_read(&before);
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  const int32_t first[] = {0, 1, 2, 3, 4, 5, 6, 7}, second[] = {6, 7, 2}, bad[] = {7, 2};
  const treadle_view_of views[] = {{first, 8, SHIFT}, {second, 3, SHIFT}, {bad + 1, 0, SHIFT}};
  treadle_pool *pool;
  treadle_device_figures figures;
  treadle_paged view;
  void *base;
  char page[PAGE];
  assert_ok(ops->create(&device, 8, PAGE, 8 * PAGE, views, 3, &pool));
  assert_int_equal(ops->export_count(pool), 5); /* 0 1, 2, 3 4 5, 6 7 */
  ops->figures(&device, &figures);
  assert_int_equal(figures.slab_bytes, 7 * PAGE);
  assert_ok(ops->map(pool, second, 3, &base));
  for (int i = 0; i < 8; i++) ops->fill(&device, (char *)ops->base(pool) + i * PAGE, 10 + i, PAGE);
  memset(page, 17, PAGE);
  assert_bytes(&device, (char *)base + PAGE, page, PAGE);
  assert_fails(TREADLE_PEER, "in the middle of a piece", ops->map(pool, bad, 2, &base));
  treadle_imported *imported = import_all(&device, pool, 8, &views[1]);
  assert_ok(ops->view(imported, &views[1], &view));
  assert_bytes(&device, treadle_paged_address(&view, PAGE), page, PAGE);
  memset(page, 12, PAGE);
  assert_bytes(&device, treadle_paged_address(&view, 2 * PAGE), page, PAGE);
  ops->unimport(imported);
  ops->destroy(pool);
  treadle_device_close(&device);
  card_is_as(&before);
}

/* A pool, its windows, and what others get of it are the same memory. */
static void test_pool(void **state) {
  (void)state;
  enum { COUNT = 5 };
  fake_cuda_ledger before;
  fake_cuda_ledger_read(&before);
  const int files = test_open_files();
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  const int32_t table[] = {2, -1, 0, 4}, shown[] = {4, 2}, beyond[] = {2, COUNT};
  const treadle_view_of window = {table + 2, 2, SHIFT}, only = {shown, 2, SHIFT},
                        wrong = {beyond, 2, SHIFT};
  treadle_pool *pool;
  treadle_imported *imported;
  treadle_paged whole, part;
  char *at, page[PAGE], zeros[PAGE] = {0};
  void *base;
  assert_ok(ops->create(&device, COUNT, PAGE, COUNT * PAGE, NULL, 0, &pool));
  assert_int_equal(ops->held_bytes(pool), COUNT * PAGE);
  assert_int_equal(ops->export_count(pool), COUNT + 1); /* the lengths of pieces, too */
  assert_bytes(&device, (char *)ops->base(pool) + 4 * PAGE, zeros, PAGE);
  assert_ok(ops->map(pool, table, 4, &base));
  at = base;
  for (int i = 0; i < COUNT; i++) ops->fill(&device, (char *)ops->base(pool) + i * PAGE, 10 + i, PAGE);
  memset(page, 12, PAGE);
  assert_bytes(&device, at, page, PAGE);
  ops->fill(&device, at + 3 * PAGE, 77, PAGE); /* page 4, by another address */
  memset(page, 77, PAGE);
  assert_bytes(&device, (char *)ops->base(pool) + 4 * PAGE, page, PAGE);

  assert_fails(TREADLE_PEER, "comes in 1 descriptors",
               ops->import_begin(&device, 1, COUNT * PAGE, NULL, &imported));
  import_wrong(&device, pool, COUNT + 2, COUNT * PAGE, NULL, "does not consist of the pieces");
  import_wrong(&device, pool, COUNT + 1, (COUNT + 1) * PAGE, NULL, "does not consist of the pieces");
  import_wrong(&device, pool, COUNT + 1, COUNT * PAGE, &wrong, "page 1 of a peer's window");
  imported = import_all(&device, pool, COUNT, NULL);
  assert_ok(ops->view(imported, &(treadle_view_of){0}, &whole));
  assert_ok(ops->view(imported, &window, &part));
  assert_true(!whole.into && !part.into);
  assert_bytes(&device, treadle_paged_address(&whole, 4 * PAGE), page, PAGE);
  assert_bytes(&device, treadle_paged_address(&part, PAGE), page, PAGE);
  treadle_imported *one = import_all(&device, pool, COUNT, &only);
  assert_ok(ops->view(one, &only, &part));
  assert_bytes(&device, treadle_paged_address(&part, 0), page, PAGE);
  memset(page, 12, PAGE);
  assert_bytes(&device, treadle_paged_address(&part, PAGE), page, PAGE);
  ops->unimport(one);
  ops->destroy(pool); /* whoever has imported it has its pages still */
  memset(page, 77, PAGE);
  assert_bytes(&device, treadle_paged_address(&whole, 4 * PAGE), page, PAGE);
  ops->unimport(imported);
  ops->unimport(NULL);
  ops->destroy(NULL);
  treadle_device_close(&device);
  card_is_as(&before);
  assert_int_equal(test_open_files(), files);
}

static void test_pool_refused(void **state) {
  (void)state;
  fake_cuda_ledger before;
  treadle_device_room room;
  treadle_pool *pool;
  void *base;
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  assert_ok(ops->room(&device, &room));
  fake_cuda_ledger_read(&before);
  assert_true(room.id != 0 && room.left_bytes > 0 && room.left_bytes <= room.bytes);
  assert_refused("pages of 2.00 KiB: the driver has pages of 4.00 KiB",
                 ops->create(&device, 3, PAGE / 2, 3 * PAGE, NULL, 0, &pool));
  assert_null(pool);
  assert_fails(TREADLE_NO_MEMORY, "over its budget of 8.00 KiB",
               ops->create(&device, 3, PAGE, 2 * PAGE, NULL, 0, &pool));
  assert_fails(
      TREADLE_NO_MEMORY, "has no more pages",
      ops->create(&device, (int64_t)(room.left_bytes / PAGE) + 1, PAGE, INT64_MAX, NULL, 0, &pool));
  card_is_as(&before);
  assert_ok(ops->create(&device, 0, PAGE, 0, NULL, 0, &pool));
  assert_int_equal(ops->export_count(pool), 0);
  assert_int_equal(ops->held_bytes(pool), 0);
  assert_null(ops->base(pool));
  assert_ok(ops->map(pool, NULL, 0, &base));
  assert_null(base);
  ops->destroy(pool);
  assert_ok(ops->create(&device, 2, PAGE, 2 * PAGE, NULL, 0, &pool));
  assert_refused("leave out double_infer", ops->remap(pool, ops->base(pool), NULL, 2));
  assert_refused("leave out double_infer", ops->follow(pool, ops->base(pool), NULL, NULL, 2));
  assert_refused("cannot be trimmed", ops->trim(pool, NULL, 0));
  assert_false(ops->guards);
  assert_ok(ops->protect(pool, ops->base(pool), PAGE, TREADLE_ACCESS_NONE));
  assert_ok(ops->close_window(pool, ops->base(pool), PAGE, true));
  ops->destroy(pool);
  card_is_as(&before);
  treadle_device_close(&device);
}

/* ---- Ops ---- */

/* A side of ops: bytes in physical order, on the host as they should be, and where the ops find them. */
typedef struct side {
  char wanted[ROOM];
  int32_t table[PAGES];
  treadle_paged expected, paged;
} side;

/* pinned: the ops find it in memory of the host. */
static side *side_make(const treadle_device *device, treadle_random *random, bool pinned) {
  side *s = malloc(sizeof *s);
  assert_non_null(s);
  draw(random, s->wanted, ROOM);
  random_table(random, s->table, PAGES);
  char *at = pinned ? mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : device->ops->scratch(device, ROOM);
  const int32_t *table = treadle_random_below(random, 3) ? s->table : NULL;
  assert_true(at && at != MAP_FAILED);
  if (pinned) assert_ok(device->ops->pin(device, at, ROOM));
  device->ops->move(device, at, s->wanted, ROOM);
  assert_ok(device->ops->fence(device));
  s->expected = (treadle_paged){s->wanted, s->wanted, table, SHIFT};
  s->paged = (treadle_paged){at, at, table, SHIFT};
  return s;
}

static void side_release(const treadle_device *device, side *s, bool pinned) {
  if (pinned) {
    device->ops->unpin(device, s->paged.into);
    munmap(s->paged.into, ROOM);
  } else {
    device->ops->scratch_release(device, s->paged.into);
  }
  free(s);
}

static treadle_op draw_op(treadle_random *random) {
  const bool fill = treadle_random_below(random, 8) == 0;
  treadle_op op = random_op(random, ROOM, fill, !fill && treadle_random_below(random, 3) == 0);
  if (fill) op.tensor = treadle_random_below(random, 2) ? TREADLE_FILL_ZEROS : TREADLE_FILL_MINUS_INFINITY;
  return op;
}

/* One op, by copy and by pack. */
static void check_copy(const treadle_device *device, uint64_t seed) {
  treadle_random random = {seed};
  const bool pinned = treadle_random_below(&random, 3) == 0;
  side *from = side_make(device, &random, pinned), *to = side_make(device, &random, seed % 2);
  for (int i = 0; i < 3; i++) {
    const treadle_op op = draw_op(&random);
    const treadle_paged *source = op.source < 0 ? NULL : &from->paged;
    treadle_copy_op(&op, op.source < 0 ? NULL : &from->expected, &to->expected, TREADLE_MOVER_PLAIN);
    if (i == 0 && source)
      device->ops->pack(device, &op, source, &to->paged, 1);
    else
      device->ops->copy(device, &op, i == 1 && source ? &from->expected : source, &to->paged,
                        1); /* pageable, too */
  }
  assert_bytes(device, to->paged.base, to->wanted, ROOM);
  side_release(device, from, pinned);
  side_release(device, to, seed % 2);
}

static void test_copies(void **state) {
  (void)state;
  fake_cuda_ledger before;
  treadle_device device = opened(0, NULL);
  fake_cuda_ledger_read(&before);
  for (uint64_t seed = 1; seed <= test_seeds(CASES); seed++)
    check_copy(&device, only_seed ? only_seed : seed);
  card_is_as(&before);
  treadle_device_close(&device);
}

/* From pageable memory, longer than what the library brings over at once. */
static void test_large_copy(void **state) {
  (void)state;
  enum { ROWS = 3, COLUMNS = 700001 };
  treadle_random random = {17};
  treadle_device device = opened(0, NULL);
  float *from = calloc(ROWS * COLUMNS, sizeof *from);
  uint16_t *wanted = calloc(ROWS * COLUMNS, sizeof *wanted);
  assert_true(from && wanted);
  for (int i = 0; i < ROWS * COLUMNS; i++) from[i] = (float)(treadle_random_next(&random) >> 40);
  char *to = device.ops->scratch(&device, ROWS * COLUMNS * sizeof *wanted);
  treadle_op op = {.ndim = 2,
                   .from_dtype = TREADLE_FP32,
                   .to_dtype = TREADLE_BF16,
                   .size = {ROWS, COLUMNS},
                   .from_stride = {COLUMNS * 4, 4},
                   .to_stride = {COLUMNS * 2, 2},
                   .elems = ROWS * COLUMNS};
  const treadle_paged source = treadle_paged_of(from), here = treadle_paged_of(wanted),
                      there = treadle_paged_of(to);
  treadle_copy_op(&op, &source, &here, TREADLE_MOVER_PLAIN);
  device.ops->copy(&device, &op, &source, &there, 1);
  assert_bytes(&device, to, wanted, ROWS * COLUMNS * sizeof *wanted);
  op.elems = 0;
  op.size[1] = 0;
  device.ops->copy(&device, &op, &source, &there, 1);
  assert_bytes(&device, to, wanted, ROWS * COLUMNS * sizeof *wanted);
  device.ops->scratch_release(&device, to);
  free(from);
  free(wanted);
  treadle_device_close(&device);
}

/* ---- Ops that are prepared ---- */

typedef struct list {
  side *from[2], *to; /* the first source is on the device, the other one pinned */
  treadle_op ops[OPS];
  treadle_paged sources[OPS], targets[OPS];
  int64_t runs[OPS]; /* how often each was run */
  treadle_written written[OPS];
  treadle_work *work;
} list;

static void list_make(const treadle_device *device, treadle_random *random, list *l) {
  for (int i = 0; i < 2; i++) l->from[i] = side_make(device, random, i);
  l->to = side_make(device, random, false);
  for (int i = 0; i < OPS; i++) {
    l->ops[i] = draw_op(random);
    l->sources[i] =
        l->ops[i].source < 0 ? (treadle_paged){0} : l->from[treadle_random_below(random, 2)]->paged;
    l->targets[i] = l->to->paged;
    if (i % 10 == 7) l->targets[i] = (treadle_paged){0}; /* never run */
  }
  l->ops[3].elems = 0;
  assert_ok(device->ops->prepare(device, l->ops, l->sources, l->targets, OPS, &l->work));
}

static void list_release(const treadle_device *device, list *l) {
  device->ops->work_release(l->work);
  for (int i = 0; i < 2; i++) side_release(device, l->from[i], i);
  side_release(device, l->to, false);
  free(l);
}

static void expect_run(list *l, size_t i) {
  const treadle_op *op = &l->ops[i];
  const side *from = l->sources[i].base == l->from[0]->paged.base ? l->from[0] : l->from[1];
  if (op->elems > 0)
    treadle_copy_op(op, op->source < 0 ? NULL : &from->expected, &l->to->expected, TREADLE_MOVER_PLAIN);
  l->runs[i]++;
}

static void check_written(const list *l) {
  for (int i = 0; i < OPS; i++) {
    const treadle_op *op = &l->ops[i];
    const int64_t bytes = op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    assert_int_equal(l->written[i].times, l->runs[i]);
    assert_int_equal(l->written[i].bytes, l->runs[i] * bytes);
    assert_true(l->written[i].mark == (uint64_t)l->runs[i] * treadle_op_mark(op));
  }
}

/* Runs of one op each, in their order, many of them without waiting; some ops again, before they have passed. */
static void check_list(const treadle_device *device, uint64_t seed) {
  treadle_random random = {seed};
  list *l = calloc(1, sizeof *l);
  treadle_ticket last = {0};
  assert_non_null(l);
  list_make(device, &random, l);
  for (int k = 0; k < 2 * OPS; k++) {
    const size_t i = (size_t)treadle_random_below(&random, OPS), count = i % 10 == 7 ? 0 : 1;
    device->ops->run(device, l->work, i, count, &l->written[i]);
    if (count) expect_run(l, i);
    if (treadle_random_below(&random, 3) == 0) last = device->ops->mark(device);
    if (treadle_random_below(&random, 20) == 0) wait_for(device, last);
  }
  last = device->ops->mark(device);
  if (seed % 2)
    wait_for(device, last);
  else
    assert_ok(device->ops->fence(device));
  check_written(l);
  assert_bytes(device, l->to->paged.base, l->to->wanted, ROOM);
  list_release(device, l);
}

static void test_work(void **state) {
  (void)state;
  fake_cuda_ledger before;
  treadle_device device = opened(0, NULL);
  fake_cuda_ledger_read(&before);
  for (uint64_t seed = 1; seed <= test_seeds(CASES / 3); seed++)
    check_list(&device, only_seed ? only_seed : seed);
  card_is_as(&before);
  treadle_device_close(&device);
}

/* Ops that write apart from each other, several of them a run, and several runs under way. */
static void test_runs_under_way(void **state) {
  (void)state;
  enum { PARTS = 12, EACH = 3, BYTES = 5000 };
  treadle_random random = {21};
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  static char wanted[PARTS * EACH * BYTES];
  char *from = ops->scratch(&device, sizeof wanted), *to = ops->scratch(&device, sizeof wanted);
  treadle_op all[PARTS * EACH];
  treadle_paged sources[PARTS * EACH], targets[PARTS * EACH];
  treadle_written written[PARTS * EACH] = {0};
  treadle_ticket tickets[PARTS];
  treadle_work *work;
  draw(&random, wanted, sizeof wanted);
  ops->move(&device, from, wanted, sizeof wanted);
  for (int i = 0; i < PARTS * EACH; i++) {
    all[i] = (treadle_op){.ndim = 1,
                          .from_dtype = TREADLE_BF16,
                          .to_dtype = TREADLE_BF16,
                          .size = {BYTES / 2},
                          .from_stride = {2},
                          .to_stride = {2},
                          .elems = BYTES / 2,
                          .from = i * BYTES,
                          .to = i * BYTES,
                          .tensor = i};
    sources[i] = treadle_paged_of(from);
    targets[i] = treadle_paged_of(to);
  }
  assert_ok(ops->prepare(&device, all, sources, targets, PARTS * EACH, &work));
  for (int round = 1; round <= 3; round++) {
    for (int p = 0; p < PARTS; p++) {
      ops->run(&device, work, (size_t)(p * EACH), EACH, written + p * EACH);
      tickets[p] = ops->mark(&device);
    }
    for (int p = PARTS - 1; p >= 0; p--) { /* when the last one has passed, all have */
      wait_for(&device, tickets[p]);
      for (int i = 0; i < EACH * (p + 1); i++)
        assert_true(written[i].times == round && written[i].bytes == round * BYTES &&
                    written[i].mark == (uint64_t)round * treadle_op_mark(&all[i]));
    }
  }
  assert_bytes(&device, to, wanted, sizeof wanted);
  ops->run(&device, work, 0, PARTS * EACH, written); /* released while it is under way */
  ops->work_release(work);
  assert_int_equal(written[PARTS * EACH - 1].times, 4);
  /* Nothing to do: */
  for (int i = 0; i < 3; i++) all[i].elems = 0;
  assert_ok(ops->prepare(&device, all, sources, targets, 3, &work));
  ops->run(&device, work, 0, 3, written);
  ops->work_release(work);
  assert_ok(ops->prepare(&device, all, sources, targets, 0, &work));
  ops->run(&device, work, 0, 0, written);
  wait_for(&device, ops->mark(&device));
  ops->work_release(work);
  ops->work_release(NULL);
  assert_ok(ops->fence(&device));
  ops->scratch_release(&device, from);
  ops->scratch_release(&device, to);
  treadle_device_close(&device);
}

/* ---- Tickets ---- */

/* More of them than the device has events, asked about in any order, and long after. */
static void test_tickets(void **state) {
  (void)state;
  enum { MARKS = 300 };
  treadle_random random = {5};
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  static unsigned char seen[MARKS]; /* pinned: written by the device */
  static treadle_ticket tickets[MARKS];
  char *at = ops->scratch(&device, 1);
  bool passed;
  assert_ok(ops->pin(&device, seen, sizeof seen));
  for (int round = 0; round < 3; round++) {
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < MARKS; i++) {
      ops->fill(&device, at, 1 + i % 200, 1);
      ops->move(&device, seen + i, at, 1);
      tickets[i] = ops->mark(&device);
      const treadle_ticket again = ops->mark(&device); /* nothing was asked for in between */
      assert_true(again.at == tickets[i].at);
      for (int64_t k = treadle_random_below(&random, 3); k > 0; k--) {
        const int asked = (int)treadle_random_below(&random, i + 1);
        assert_ok(ops->passed(&device, tickets[asked], &passed));
        for (int j = 0; passed && j <= asked; j++) assert_int_equal(seen[j], 1 + j % 200);
      }
    }
    for (int i = MARKS - 1; i >= 0; i -= 7) wait_for(&device, tickets[i]);
    for (int i = 0; i < MARKS; i++) {
      assert_ok(ops->passed(&device, tickets[i], &passed));
      assert_true(passed && seen[i] == 1 + i % 200);
    }
  }
  ops->unpin(&device, seen);
  ops->scratch_release(&device, at);
  treadle_device_close(&device);
}

/* What the caller's stream was given before is seen by what is asked for while nothing is under way. */
static void test_streams(void **state) {
  (void)state;
  for (int own = 0; own < 2; own++) {
    CUstream stream = NULL;
    card_enter();
    if (own) assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    treadle_device device = opened(0, stream);
    char *at = device.ops->scratch(&device, PAGE), found[PAGE];
    for (int i = 1; i < 100; i++) {
      char *other = i % 2 ? device.ops->scratch(&device, PAGE) : NULL;
      for (int k = 0; k < 5; k++)
        assert_int_equal(cuMemsetD8Async((uintptr_t)at + 1, (unsigned char)(i + k), PAGE - 1, stream),
                         CUDA_SUCCESS);
      device.ops->move(&device, found, at, PAGE);
      assert_ok(device.ops->fence(&device));
      assert_int_equal((unsigned char)found[PAGE - 1], i + 4);
      device.ops->scratch_release(&device, other);
    }
    device.ops->scratch_release(&device, at);
    treadle_device_close(&device);
    if (own) assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    card_leave();
  }
}

/* ---- Beginning anew ---- */

/* What has failed once is forgotten: the device works. */
static void test_renew(void **state) {
  (void)state;
  static const char *const calls[][2] = {{"cuMemcpyAsync:1:2", "cuMemcpyAsync: CUDA_ERROR_OUT_OF_MEMORY"},
                                         {"cuLaunchKernel:1:2", "cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY"},
                                         {"cuEventRecord:1:906", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"}};
  const treadle_elements e = {
      .tensor = 1, .dtype = TREADLE_BF16, .ndim = 1, .size = {100}, .stride = {2}, .weight = {1}};
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  char *at = ops->scratch(&device, PAGE), bytes[PAGE] = {1, 2}, found[PAGE];
  for (size_t i = 0; i < TEST_COUNT(calls); i++) {
    fake_cuda_fail(calls[i][0]);
    ops->move(&device, at, bytes, PAGE);
    ops->generate(&device, &e, at);
    for (int k = 0; k < 2; k++) assert_fails(TREADLE_SYSTEM, calls[i][1], ops->fence(&device));
    assert_ok(ops->renew(&device));
    ops->move(&device, at, bytes, PAGE);
    ops->move(&device, found, at, PAGE);
    assert_ok(ops->fence(&device));
    assert_memory_equal(found, bytes, PAGE);
    bytes[i]++;
  }
  ops->scratch_release(&device, at);
  treadle_device_close(&device);
}

/* A stream that is being captured is not followed; and a device of the default stream does not draw it into somebody's graph. */
static void test_capture(void **state) {
  (void)state;
  for (int own = 0; own < 2; own++) {
    CUstream stream;
    void *graph;
    treadle_device other;
    char bytes[PAGE] = {1};
    card_enter();
    assert_int_equal(cuStreamCreate(&stream, own ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
                     CUDA_SUCCESS);
    const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .stream = own ? stream : NULL};
    treadle_device device = opened(0, memory.stream);
    char *at = device.ops->scratch(&device, PAGE);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const uint64_t records = fake_cuda_calls("cuEventRecord");
    for (int i = 0; i < 2; i++) assert_refused("is capturing a graph", device.ops->renew(&device));
    assert_refused("is capturing a graph", treadle_device_open(&memory, &other));
    assert_int_equal(fake_cuda_calls("cuEventRecord"), records);
    device.ops->move(&device, at, bytes,
                     PAGE); /* as if it began in the middle of a call: no part of the graph */
    assert_ok(device.ops->fence(&device));
    assert_int_equal(fake_cuda_calls("cuEventRecord"),
                     records + 2); /* the device's own stream: begun, ended */
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_ok(device.ops->renew(&device));
    device.ops->move(&device, at, bytes, PAGE);
    assert_ok(device.ops->fence(&device));
    device.ops->scratch_release(&device, at);
    treadle_device_close(&device);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    card_leave();
  }
}

/* ---- Memory of others ---- */

static void test_fault(void **state) {
  (void)state;
  treadle_device device = opened(0, NULL), other = opened(1, NULL);
  const treadle_device_ops *ops = device.ops;
  static char pageable[PAGE], pinned[PAGE];
  const int32_t table[] = {1, -1, 0};
  treadle_pool *pool;
  treadle_maps *maps = NULL;
  void *base;
  char *here = ops->scratch(&device, PAGE), *there = ops->scratch(&other, PAGE),
       *freed = ops->scratch(&device, PAGE);
  assert_ok(ops->create(&device, 2, PAGE, 2 * PAGE, NULL, 0, &pool));
  assert_ok(ops->map(pool, table, 3, &base));
  assert_ok(ops->pin(&device, pinned, PAGE));
  ops->scratch_release(&device, freed);
  assert_null(ops->fault(&device, here, PAGE, NULL));
  assert_null(ops->fault(&device, here, PAGE, &maps));
  assert_null(ops->fault(&device, here, 0, NULL));
  assert_null(ops->fault(&device, base, PAGE, NULL));
  assert_non_null(strstr(ops->fault(&device, pageable, PAGE, NULL), "does not know"));
  assert_non_null(strstr(ops->fault(&device, pinned, PAGE, NULL), "the host's"));
  assert_non_null(strstr(ops->fault(&device, freed, PAGE, NULL), "freed"));
  assert_non_null(strstr(ops->fault(&device, there, PAGE, NULL), "another device's"));
  assert_non_null(strstr(ops->fault(&device, (char *)base + PAGE, PAGE, NULL), "no memory now"));
  assert_non_null(strstr(ops->fault(&device, base, 2 * PAGE, NULL), "no memory now"));
  assert_null(ops->fault(&other, there, PAGE, NULL));
  assert_null(maps);
  ops->unpin(&device, pinned);
  ops->destroy(pool);
  ops->scratch_release(&device, here);
  ops->scratch_release(&other, there);
  treadle_device_close(&device);
  treadle_device_close(&other);
}

static void test_pins(void **state) {
  (void)state;
  fake_cuda_ledger before, now;
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  static char host[2 * PAGE];
  char *there = ops->scratch(&device, PAGE);
  fake_cuda_ledger_read(&before);
  assert_ok(ops->pin(&device, host, 100)); /* ranges of any length that touch each other */
  assert_ok(ops->pin(&device, host + 100, PAGE));
  assert_fails(TREADLE_SYSTEM, "cuMemHostRegister", ops->pin(&device, host + 50, PAGE));
  fake_cuda_ledger_read(&now);
  assert_int_equal(now.pinned_bytes.now, before.pinned_bytes.now + 100 + PAGE);
  ops->unpin(&device, host);
  ops->unpin(&device, host);
  ops->unpin(&device, host + 101);
  ops->unpin(&device, host + 100);
  assert_ok(ops->pin(&device, there, PAGE)); /* the device's own: nothing is done */
  ops->unpin(&device, there);
  assert_ok(ops->pin(&device, host, 0));
  ops->unpin(&device, host);
  ops->unpin(&device, NULL);
  card_is_as(&before);
  assert_ok(ops->fence(&device));
  ops->scratch_release(&device, there);
  treadle_device_close(&device);
}

static void test_open_refused(void **state) {
  (void)state;
  treadle_device device;
  fake_cuda_ledger before;
  fake_cuda_ledger_read(&before);
  const treadle_memory second = {.kind = TREADLE_MEMORY_CUDA, .device = 2},
                       below = {.kind = TREADLE_MEMORY_CUDA, .device = -1},
                       each = {.kind = TREADLE_MEMORY_CUDA, .stream = (void *)2};
  assert_refused("cuda: there is no device 2: this process sees 2, counted from 0",
                 treadle_device_open(&second, &device));
  assert_refused("no device -1", treadle_device_open(&below, &device));
  assert_refused("CU_STREAM_PER_THREAD (handle 2), another one on each thread",
                 treadle_device_open(&each, &device));
  card_is_as(&before);
}

static void test_fork(void **state) {
  (void)state;
  treadle_device device = opened(0, NULL);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    treadle_device opened_here;
    const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA};
    const bool refused = treadle_device_open(&memory, &opened_here) == TREADLE_REFUSED &&
                         strstr(treadle_error_message(), "was forked");
    const bool fails = device.ops->fence(&device) != TREADLE_OK; /* the parent's: no crash */
    _exit(refused && fails ? 0 : 1);
  }
  int how = 0;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  assert_ok(device.ops->fence(&device));
  treadle_device_close(&device);
}

/* ---- Each call of the driver fails ---- */

enum { LIFE_PAGES = 3, LIFE_OPS = 4 };

typedef struct life {
  treadle_device device;
  treadle_pool *pool;
  treadle_imported *imported;
  treadle_work *work;
  char *scratch, *pinned;
  bool is_pinned;
  treadle_op ops[LIFE_OPS];
  treadle_paged from[LIFE_OPS], to[LIFE_OPS];
  treadle_written written[LIFE_OPS];
} life;

static treadle_status prepare_life(life *l) {
  for (int i = 0; i < LIFE_OPS; i++) {
    l->ops[i] = (treadle_op){.ndim = 1,
                             .from_dtype = TREADLE_BF16,
                             .to_dtype = TREADLE_BF16,
                             .size = {PAGE / 2},
                             .from_stride = {2},
                             .to_stride = {2},
                             .elems = PAGE / 2,
                             .to = i % 3 * PAGE};
    l->from[i] = treadle_paged_of(i % 2 ? l->pinned : l->scratch);
    l->to[i] = treadle_paged_of(l->device.ops->base(l->pool));
  }
  return l->device.ops->prepare(&l->device, l->ops, l->from, l->to, LIFE_OPS, &l->work);
}

static treadle_status share(life *l) {
  treadle_status status;
  const treadle_device_ops *ops = l->device.ops;
  int descriptors[LIFE_PAGES + 1];
  treadle_paged view;
  TRY(ops->export_part(l->pool, 0, LIFE_PAGES + 1, true, descriptors));
  status = ops->import_begin(&l->device, LIFE_PAGES + 1, LIFE_PAGES * PAGE, NULL, &l->imported);
  if (status == TREADLE_OK) status = ops->import_part(l->imported, 0, LIFE_PAGES + 1, descriptors);
  for (int i = 0; i < LIFE_PAGES + 1; i++) close(descriptors[i]);
  if (status == TREADLE_OK)
    status = ops->view(l->imported, &(treadle_view_of){NULL, LIFE_PAGES, SHIFT}, &view);
out:
  return status;
}

static treadle_status ask(life *l) {
  treadle_status status;
  const treadle_device_ops *ops = l->device.ops;
  const treadle_elements e = {
      .tensor = 1, .dtype = TREADLE_BF16, .ndim = 1, .size = {100}, .stride = {2}, .weight = {1}};
  const void *const window = ops->base(l->pool);
  const treadle_paged pageable = treadle_paged_of(l->written);
  bool passed = false;
  uint64_t sum;
  ops->fill(&l->device, l->scratch, 3, PAGE);
  ops->move(&l->device, l->pinned, l->scratch, PAGE);
  for (int round = 0; round < 2; round++) {
    ops->run(&l->device, l->work, 0, 2, l->written);
    ops->run(&l->device, l->work, 2, 2, l->written + 2);
    const treadle_ticket ticket = ops->mark(&l->device);
    for (passed = false; !passed;) TRY(ops->passed(&l->device, ticket, &passed));
  }
  l->ops[0].size[0] = l->ops[0].elems = 10;
  ops->copy(&l->device, &l->ops[0], &pageable, &l->to[0], 1);
  ops->pack(&l->device, &l->ops[0], &l->from[0], &l->to[0], 1);
  ops->generate(&l->device, &e, l->scratch);
  TRY(ops->hash(&l->device, &e, &window, 1, &sum));
  TRY(ops->fence(&l->device));
out:
  return status;
}

static treadle_status live(life *l) {
  treadle_status status;
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA};
  const treadle_device_ops *ops;
  treadle_device_room room;
  const int32_t table[] = {2, -1, 0};
  void *window;
  TRY(treadle_device_open(&memory, &l->device));
  ops = l->device.ops;
  TRY(ops->room(&l->device, &room));
  TRY(ops->create(&l->device, LIFE_PAGES, PAGE, LIFE_PAGES * PAGE, NULL, 0, &l->pool));
  TRY(ops->map(l->pool, table, 3, &window));
  l->scratch = ops->scratch(&l->device, PAGE);
  TRY(ops->fence(&l->device));
  if (!l->scratch) TRY(treadle_fail(TREADLE_NO_MEMORY, "scratch: cuMemAlloc"));
  TRY(ops->pin(&l->device, l->pinned, PAGE));
  l->is_pinned = true;
  TRY(prepare_life(l));
  TRY(share(l));
  TRY(ask(l));
out:
  return status;
}

static void end_life(life *l) {
  const treadle_device_ops *ops = l->device.ops;
  if (!ops) return;
  ops->work_release(l->work);
  ops->unimport(l->imported);
  ops->scratch_release(&l->device, l->scratch);
  const treadle_status over = ops->fence(&l->device);
  (void)over; /* whatever it is */
  if (l->is_pinned) ops->unpin(&l->device, l->pinned);
  ops->destroy(l->pool);
  treadle_device_close(&l->device);
}

/* The status and message of a life; the message is that before its end. */
static treadle_status live_once(char *message, size_t bytes) {
  static char pinned[PAGE];
  life l = {.pinned = pinned};
  const treadle_status status = live(&l);
  snprintf(message, bytes, "%s", status == TREADLE_OK ? "" : treadle_error_message());
  if (status != TREADLE_OK && !l.device.state) l.device.ops = NULL;
  end_life(&l);
  return status;
}

/* Those whose failure is said, with their name, by the calls of the table or by the next fence. */
static const char *const said[] = {"cuDeviceGetCount",
                                   "cuDeviceGet",
                                   "cuDeviceGetAttribute",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuMemGetInfo",
                                   "cuMemGetAllocationGranularity",
                                   "cuMemCreate",
                                   "cuMemExportToShareableHandle",
                                   "cuMemImportFromShareableHandle",
                                   "cuMemAddressReserve",
                                   "cuMemMap",
                                   "cuMemSetAccess",
                                   "cuMemAlloc",
                                   "cuFuncLoad",
                                   "cuStreamIsCapturing",
                                   "cuMemHostRegister",
                                   "cuStreamCreate",
                                   "cuStreamSynchronize",
                                   "cuEventCreate",
                                   "cuEventRecord",
                                   "cuEventQuery",
                                   "cuMemcpyAsync",
                                   "cuMemsetD8Async",
                                   "cuModuleLoadData",
                                   "cuModuleGetFunction",
                                   "cuLaunchKernel",
                                   "cuCtxPushCurrent",
                                   "cuCtxPopCurrent",
                                   "cuThreadExchangeStreamCaptureMode"},
                         /* and those that end something, or ask: only that nothing breaks. */
    *const silent[] = {
        "cuMemRelease",    "cuMemAddressFree",     "cuMemUnmap",     "cuMemFree",
        "cuStreamDestroy", "cuEventDestroy",       "cuModuleUnload", "cuDevicePrimaryCtxRelease",
        "cuDeviceGetUuid", "cuPointerGetAttribute"};

/* The n-th call of a function fails, once. True: there were as many. */
static bool fail_call(const char *name, uint64_t n, bool is_said) {
  char text[80], message[512];
  fake_cuda_ledger before;
  fake_cuda_ledger_read(&before);
  const int files = test_open_files();
  const uint64_t calls = fake_cuda_calls(name);
  CUcontext current = NULL, after = NULL;
  assert_int_equal(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  snprintf(text, sizeof text, "%s:%llu:999", name, (unsigned long long)n);
  fake_cuda_fail(text);
  const treadle_status status = live_once(message, sizeof message);
  const bool came = fake_cuda_calls(name) - calls >= n;
  fake_cuda_fail(NULL);
  assert_int_equal(cuCtxGetCurrent(&after), CUDA_SUCCESS);
  if (strcmp(name, "cuCtxPopCurrent") != 0)
    assert_ptr_equal(after, current);
  else
    while (cuCtxPopCurrent_v2(&after) == CUDA_SUCCESS) continue;
  assert_int_equal(test_open_files(), files);
  if (status != TREADLE_OK && is_said && !strstr(message, name)) fail_msg("%s: '%s'", text, message);
  if (is_said && strcmp(name, "cuCtxPushCurrent") != 0)
    card_is_as(&before); /* outside of its context nothing ends */
  return came;
}

static void test_failures(void **state) {
  (void)state;
  char message[512];
  assert_ok(live_once(message, sizeof message));
  for (size_t i = 0; i < TEST_COUNT(said); i++)
    for (uint64_t n = 1; fail_call(said[i], n, true); n++) continue;
  assert_ok(live_once(message, sizeof message));
}

static void test_silent_failures(void **state) {
  (void)state;
  char message[512];
  for (size_t i = 0; i < TEST_COUNT(silent); i++)
    for (uint64_t n = 1; fail_call(silent[i], n, false); n++) continue;
  assert_ok(live_once(message, sizeof message));
}

/* The device is lost: said by each call from then on. It comes last: nothing can be ended any more. */
static void test_sticky(void **state) {
  (void)state;
  treadle_device device = opened(0, NULL);
  const treadle_device_ops *ops = device.ops;
  treadle_pool *pool, *second;
  bool passed = false;
  uint64_t sum;
  const treadle_elements e = {
      .tensor = 1, .dtype = TREADLE_BF16, .ndim = 1, .size = {100}, .stride = {2}, .weight = {1}};
  assert_ok(ops->create(&device, 2, PAGE, 2 * PAGE, NULL, 0, &pool));
  const void *const window = ops->base(pool);
  fake_cuda_fail("launch:2");
  treadle_status status = TREADLE_OK;
  treadle_ticket ticket = {0};
  for (int i = 0; i < 3; i++) {
    ops->generate(&device, &e, ops->base(pool));
    ticket = ops->mark(&device);
  }
  while (status == TREADLE_OK && !passed) status = ops->passed(&device, ticket, &passed);
  assert_false(passed);
  for (int i = 0; i < 3; i++) {
    assert_fails(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", ops->passed(&device, ticket, &passed));
    assert_false(passed);
    assert_fails(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", ops->fence(&device));
    assert_fails(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", ops->renew(&device));
    assert_fails(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", ops->hash(&device, &e, &window, 1, &sum));
    ops->fill(&device, ops->base(pool), 0, 5);
    ops->generate(&device, &e, ops->base(pool));
    ticket = ops->mark(&device);
  }
  assert_fails(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED",
               ops->create(&device, 2, PAGE, 2 * PAGE, NULL, 0, &second));
  assert_null(ops->scratch(&device, 5));
  ops->destroy(pool);
  treadle_device_close(&device);
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  card_make(2, 64 << 20);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes),
                                     cmocka_unit_test(test_elements),
                                     cmocka_unit_test(test_many_hashes),
                                     cmocka_unit_test(test_blocks),
                                     cmocka_unit_test(test_callers_stream),
                                     cmocka_unit_test(test_heads),
                                     cmocka_unit_test(test_pieces),
                                     cmocka_unit_test(test_pool),
                                     cmocka_unit_test(test_pool_refused),
                                     cmocka_unit_test(test_copies),
                                     cmocka_unit_test(test_large_copy),
                                     cmocka_unit_test(test_work),
                                     cmocka_unit_test(test_runs_under_way),
                                     cmocka_unit_test(test_tickets),
                                     cmocka_unit_test(test_streams),
                                     cmocka_unit_test(test_renew),
                                     cmocka_unit_test(test_capture),
                                     cmocka_unit_test(test_fault),
                                     cmocka_unit_test(test_pins),
                                     cmocka_unit_test(test_open_refused),
                                     cmocka_unit_test(test_fork),
                                     cmocka_unit_test(test_failures),
                                     cmocka_unit_test(test_silent_failures),
                                     cmocka_unit_test(test_sticky)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  card_remove();
  return failed;
}
