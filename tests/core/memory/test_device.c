/* src/core/memory/device.c, device_host.c: both rows of the table do the same. */
#include "memory/device.h"

#include "base/random.h"
#include "memory/value.h"
#include "test.h"

enum { BYTES = 5 << 20, PAGE = 4096 };

static const treadle_device *const *rows(void) {
  static const treadle_device *both[2];
  both[0] = treadle_device_host();
  both[1] = treadle_device_plain();
  return both;
}

static void test_bytes(void **state) {
  (void)state;
  treadle_random random = {3};
  char *from = malloc(BYTES + 64), *to = malloc(BYTES + 64);
  assert_non_null(from);
  assert_non_null(to);
  for (int i = 0; i < BYTES + 64; i++) from[i] = (char)treadle_random_next(&random);
  for (int r = 0; r < 2; r++) {
    const treadle_device *device = rows()[r];
    for (int i = 0; i < 20; i++) {
      size_t bytes = (size_t)treadle_random_below(&random, i < 10 ? 300 : BYTES);
      char *at = to + treadle_random_below(&random, 64), *source = from + treadle_random_below(&random, 64);
      device->ops->fill(device, to, 0x5a, BYTES + 64);
      device->ops->move(device, at, source, bytes);
      assert_ok(device->ops->fence(device));
      if (bytes > 0) assert_memory_equal(at, source, bytes);
      for (char *byte = to; byte < to + BYTES + 64; byte++)
        if (byte < at || byte >= at + bytes) assert_int_equal(*byte, 0x5a);
    }
  }
  free(from);
  free(to);
}

/* What is generated has the hash that its values say, in every type. */
static void test_elements(void **state) {
  (void)state;
  treadle_elements e = {.tensor = 77, .ndim = 2, .size = {7, 33}, .weight = {50, 1}, .index = 12, .at = 64};
  for (int r = 0; r < 2; r++)
    for (int dtype = TREADLE_FP32; dtype <= TREADLE_FP16; dtype++) {
      const treadle_device *device = rows()[r];
      e.dtype = (treadle_dtype)dtype;
      e.stride[1] = (int64_t)treadle_dtype_bytes(e.dtype);
      e.stride[0] = e.stride[1] * 40;
      static char window[7 * 40 * 4 + 64];
      uint64_t wanted = 0, found[3] = {0, 0, 5};
      memset(window, 1, sizeof window);
      device->ops->generate(device, &e, window);
      for (int64_t row = 0; row < 7; row++)
        for (int64_t column = 0; column < 33; column++) {
          int64_t index = 12 + row * 50 + column;
          wanted += treadle_value_hash(77, index, (uint32_t)treadle_value_bf16(77, index) << 16);
        }
      const void *const windows[] = {window, window + 64};
      treadle_elements both[] = {e, e};
      both[1].at = 0;
      assert_ok(device->ops->hash(device, both, windows, 2, found));
      assert_true(found[0] == wanted && found[1] == wanted && found[2] == 5);
    }
}

/* A pool that is exported and imported is the same memory. */
static void test_pool(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    const treadle_device *device = rows()[r];
    const int32_t table[] = {2, 0};
    treadle_pool *pool;
    void *window;
    treadle_imported *imported;
    treadle_paged whole, paged;
    int descriptor;
    assert_ok(device->ops->create(device, 3, PAGE, 3 * PAGE, NULL, 0, &pool));
    assert_ok(device->ops->map(pool, table, 2, &window));
    assert_int_equal(device->ops->export_count(pool), 1);
    assert_ok(device->ops->export_part(pool, 0, 1, false, &descriptor));
    assert_fails(TREADLE_PEER, "comes in 2 descriptors",
                 device->ops->import_begin(device, 2, 3 * PAGE, NULL, &imported));
    assert_ok(device->ops->import_begin(device, 1, 3 * PAGE, NULL, &imported));
    assert_ok(device->ops->import_part(imported, 0, 1, &descriptor));
    close(descriptor);
    assert_ok(device->ops->view(imported, &(treadle_view_of){0}, &whole));
    assert_ok(device->ops->view(imported, &(treadle_view_of){table, 2, 12}, &paged));
    device->ops->fill(device, window, 9, PAGE);
    assert_ok(device->ops->fence(device));
    assert_int_equal(whole.base[2 * PAGE], 9);
    assert_int_equal(*treadle_paged_address(&paged, 0), 9);
    assert_true(!whole.into && !paged.into);
    assert_int_equal(((const char *)device->ops->base(pool))[2 * PAGE], 9);
    assert_int_equal(device->ops->held_bytes(pool), 3 * PAGE);
    device->ops->unimport(imported);
    device->ops->unimport(NULL);
    device->ops->destroy(pool);
  }
}

/* A window alone, by a descriptor that nobody can write by. */
static void test_window_of_other(void **state) {
  (void)state;
  const treadle_device *device = treadle_device_host();
  const int32_t table[] = {2, 0}, wrong[] = {2, 3};
  treadle_pool *pool;
  treadle_imported *imported;
  treadle_paged paged;
  int descriptor;
  const int files = test_open_files();
  assert_ok(device->ops->create(device, 3, PAGE, 3 * PAGE, NULL, 0, &pool));
  memset(device->ops->base(pool), 4, PAGE);
  memset((char *)device->ops->base(pool) + 2 * PAGE, 6, PAGE);
  assert_ok(device->ops->export_part(pool, 0, 1, true, &descriptor));
  assert_int_equal(write(descriptor, "?", 1), -1);
  const treadle_view_of window = {table, 2, 12}, beyond = {wrong, 2, 12};
  assert_ok(device->ops->import_begin(device, 1, 3 * PAGE, &window, &imported));
  assert_ok(device->ops->import_part(imported, 0, 1, &descriptor));
  assert_ok(device->ops->view(imported, &window, &paged));
  assert_null(paged.table);
  assert_int_equal(paged.base[0], 6);
  assert_int_equal(paged.base[2 * PAGE - 1], 4);
  device->ops->unimport(imported);
  assert_ok(device->ops->import_begin(device, 1, 3 * PAGE, &beyond, &imported));
  assert_fails(TREADLE_PEER, "page 1 of a peer's window is page 3 of its memory, of 3",
               device->ops->import_part(imported, 0, 1, &descriptor));
  device->ops->unimport(imported);
  close(descriptor);
  device->ops->destroy(pool);
  assert_int_equal(test_open_files(), files);
}

static void test_kinds(void **state) {
  (void)state;
  treadle_device device;
  assert_ok(treadle_device_open(NULL, &device));
  assert_ok(treadle_device_open(&(treadle_memory){0}, &device));
  assert_ptr_equal(device.ops, treadle_device_host()->ops);
  const treadle_memory nowhere = {.kind = TREADLE_MEMORY_CUDA, .device = 1 << 20};
  assert_refused("cuda: ", treadle_device_open(&nowhere, &device)); /* with a GPU or without */
  assert_refused("7 is not a kind",
                 treadle_device_open(&(treadle_memory){.kind = (treadle_memory_kind)7}, &device));
  assert_refused("not device 2", treadle_device_open(&(treadle_memory){.device = 2}, &device));
  assert_refused("stream", treadle_device_open(&(treadle_memory){.stream = &device}, &device));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes), cmocka_unit_test(test_elements),
                                     cmocka_unit_test(test_pool), cmocka_unit_test(test_window_of_other),
                                     cmocka_unit_test(test_kinds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
