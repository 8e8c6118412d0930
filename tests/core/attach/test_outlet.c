/* An outlet alone: the window of a pool that the test made, with a reader in this process. What the reader finds,
 * versions and holds, the end of the owner, outlets that cannot be made. switch/test_handles.c has whole switches, and
 * readers in other processes. */
#include "attach/outlet.h"
#include "test.h"
#include "treadle_attach.h"

enum { PAGE = 4096, PAGES = 2, POOL_PAGES = 3, BYTES = 6000 };

typedef struct owner {
  treadle_pool *pool;
  treadle_storage_info storages[2];
  treadle_outlet_window window;
  treadle_outlet *outlet;
} owner;

static const int32_t table[PAGES] = {2, 0};

/* Each byte of a pool's page is the page's number. */
static treadle_pool *make_pool(void) {
  treadle_pool *pool;
  assert_ok(treadle_pool_create(POOL_PAGES, PAGE, POOL_PAGES * PAGE, &pool));
  for (int i = 0; i < POOL_PAGES; i++) memset((char *)treadle_pool_base(pool) + i * PAGE, i, PAGE);
  return pool;
}

static void owner_init(owner *o) {
  memset(o, 0, sizeof *o);
  o->pool = make_pool();
  o->storages[0] = (treadle_storage_info){.struct_size = sizeof o->storages[0],
                                          .name = "first",
                                          .ndim = 2,
                                          .shape = {10, 100},
                                          .dtype = TREADLE_FP32,
                                          .bytes = 4000};
  o->storages[1] = (treadle_storage_info){.struct_size = sizeof o->storages[1],
                                          .name = "second",
                                          .chunk = 1,
                                          .ndim = 1,
                                          .shape = {1000},
                                          .dtype = TREADLE_BF16,
                                          .derived = true,
                                          .offset_bytes = 4000,
                                          .bytes = 2000};
  o->window = (treadle_outlet_window){.which = TREADLE_INFER_PARAMS,
                                      .rank = 1,
                                      .ranks = 3,
                                      .layout = "a layout",
                                      .storages = o->storages,
                                      .storage_count = 2,
                                      .bytes = BYTES,
                                      .page_bytes = PAGE,
                                      .pages = PAGES,
                                      .pool_pages = POOL_PAGES,
                                      .table = table,
                                      .device = treadle_device_host(),
                                      .pool = o->pool};
  assert_ok(treadle_outlet_create(&o->window, &o->outlet));
}

static void owner_release(owner *o) {
  treadle_outlet_destroy(o->outlet);
  treadle_pool_destroy(o->pool);
}

static treadle_attached *attach(const owner *o) {
  treadle_attached *attached;
  assert_ok(treadle_attach(treadle_outlet_handle(o->outlet), sizeof(treadle_handle), 10, &attached));
  return attached;
}

/* ---- What a reader finds ---- */

static void test_facts(void **state) {
  owner o;
  treadle_attached_info info = TREADLE_INIT(treadle_attached_info);
  size_t bytes;
  (void)state;
  owner_init(&o);
  treadle_attached *attached = attach(&o);
  treadle_attached_get_info(attached, &info);
  assert_int_equal(info.process, getpid());
  assert_int_equal(info.rank, 1);
  assert_int_equal(info.ranks, 3);
  assert_int_equal(info.page_bytes, PAGE);
  assert_string_equal(info.layout, "a layout");
  assert_true(info.alive && !info.valid);
  const char *window = treadle_attached_window(attached, &bytes);
  assert_int_equal(bytes, BYTES);
  for (size_t i = 0; i < bytes; i++) assert_int_equal(window[i], table[i / PAGE]);
  assert_int_equal(treadle_attached_storage_count(attached), 2);
  for (int32_t i = 0; i < 2; i++) {
    treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
    const treadle_storage_info *wanted = &o.storages[i];
    assert_ok(treadle_attached_storage(attached, i, &storage));
    assert_string_equal(storage.name, wanted->name);
    assert_int_equal(storage.chunk, wanted->chunk);
    assert_int_equal(storage.ndim, wanted->ndim);
    assert_memory_equal(storage.shape, wanted->shape, sizeof storage.shape);
    assert_int_equal(storage.dtype, wanted->dtype);
    assert_int_equal(storage.derived, wanted->derived);
    assert_int_equal(storage.offset_bytes, wanted->offset_bytes);
    assert_int_equal(storage.bytes, wanted->bytes);
  }
  treadle_detach(attached);
  owner_release(&o);
}

/* ---- Versions and holds ---- */

typedef struct asked {
  int times;
  treadle_status answer;
} asked;

static treadle_status answer(void *context) {
  asked *a = context;
  a->times++;
  return a->answer == TREADLE_OK ? TREADLE_OK : treadle_fail(a->answer, "no more waiting");
}

static void test_holds(void **state) {
  owner o;
  asked a = {0};
  uint64_t version;
  (void)state;
  owner_init(&o);
  treadle_attached *attached = attach(&o);
  assert_fails(TREADLE_STATE, "no version is in the window", treadle_attached_hold(attached, &version));
  treadle_outlet_tell(o.outlet, 7, 7);
  assert_true(treadle_attached_is_valid(attached));

  /* Nobody holds it. */
  assert_ok(treadle_outlet_end_holds(o.outlet, 7, 10, answer, &a));
  assert_int_equal(a.times, 0);
  assert_false(treadle_attached_is_valid(attached));
  assert_int_equal(treadle_attached_version(attached), 7);

  /* A reader holds it until the time is over, or until the owner gives up. */
  treadle_outlet_tell(o.outlet, 7, 7);
  assert_ok(treadle_attached_hold(attached, &version));
  assert_int_equal(version, 7);
  assert_fails(TREADLE_TIMEOUT, "the infer parameters of rank 1 are held",
               treadle_outlet_end_holds(o.outlet, 7, 0.05, answer, &a));
  assert_true(a.times > 0);
  assert_false(treadle_attached_is_valid(attached));
  treadle_outlet_tell(o.outlet, 7, 7);
  assert_true(treadle_attached_is_valid(attached));
  a = (asked){.answer = TREADLE_CANCELLED};
  assert_fails(TREADLE_CANCELLED, "no more waiting", treadle_outlet_end_holds(o.outlet, 7, 10, answer, &a));
  assert_int_equal(a.times, 1);

  assert_ok(treadle_attached_release(attached, version));
  assert_ok(treadle_outlet_end_holds(o.outlet, 7, 10, answer, &a));
  assert_int_equal(a.times, 1);
  treadle_detach(attached);
  owner_release(&o);
}

/* ---- The end of the owner ---- */

static void test_end(void **state) {
  owner o;
  uint64_t version;
  (void)state;
  owner_init(&o);
  treadle_attached *attached = attach(&o), *late;
  treadle_handle handle = *treadle_outlet_handle(o.outlet);
  treadle_outlet_tell(o.outlet, 1, 1);
  treadle_outlet_destroy(o.outlet);
  o.outlet = NULL;
  assert_false(treadle_attached_is_valid(attached));
  assert_int_equal(treadle_attached_version(attached), 1);
  assert_fails(TREADLE_PEER, "has destroyed its switch", treadle_attached_hold(attached, &version));
  assert_fails(TREADLE_PEER, "has destroyed the switch", treadle_attach(&handle, sizeof handle, 10, &late));
  treadle_detach(attached);
  owner_release(&o);
}

/* ---- Outlets that cannot be made ---- */

static treadle_status export_nothing(const treadle_pool *pool, int64_t first, int count, bool reading,
                                     int *descriptors) {
  (void)pool, (void)first, (void)count, (void)reading, (void)descriptors;
  return treadle_fail(TREADLE_SYSTEM, "nothing is exported");
}

static treadle_status make_and_end(const owner *o) {
  treadle_outlet *outlet;
  treadle_status status = treadle_outlet_create(&o->window, &outlet);
  treadle_outlet_destroy(outlet);
  return status;
}

static void test_failures(void **state) {
  owner o;
  (void)state;
  owner_init(&o);
  int files = test_open_files();
  TEST_EACH_ALLOCATION(make_and_end(&o));
  treadle_device_ops ops = *treadle_device_host()->ops;
  const treadle_device device = {.ops = &ops};
  ops.export_part = export_nothing;
  o.window.device = &device;
  assert_fails(TREADLE_SYSTEM, "handle: nothing is exported", make_and_end(&o));
  assert_int_equal(test_open_files(), files);
  owner_release(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_facts),
      cmocka_unit_test(test_holds),
      cmocka_unit_test(test_end),
      cmocka_unit_test(test_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
