#include "switch/far_handles.h"

#include "memory/device.h"
#include "switch/readers.h"
#include "switch/scene.h"
#include "test.h"

#include "base/hash.h"
#include "group/shm.h"

static const far_handles_device *the;
static reader readers[2], blind;

typedef struct owner {
  scene s;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
} owner;

static void owner_init(owner *o) {
  memset(o, 0, sizeof *o);
  scene_init(&o->s);
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .memory = {.kind = TREADLE_MEMORY_CUDA, .device = the->number},
                                          .page_bytes = SCENE_PAGE,
                                          .offload_train_param = TREADLE_OFF,
                                          .timeout_seconds = 0.5};
  if (the->start) the->start();
  assert_ok(treadle_layout_create(o->s.model, "megatron:tp=1", 1, NULL, &o->train));
  assert_ok(treadle_layout_create(o->s.model, "vllm:tp=1", 1, NULL, &o->infer));
  assert_ok(treadle_group_self(&o->group));
  assert_ok(treadle_switch_create(o->group, o->train, o->infer, &options, &o->sw));
  assert_ok(treadle_layout_load(o->train, 0, treadle_switch_train_window(o->sw)));
  assert_true(o->sw->device.ops->export_count(o->sw->space.pool) > TREADLE_SHM_DESCRIPTORS);
}

static void owner_give(owner *o) {
  assert_ok(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, o->handle, sizeof o->handle, &o->bytes));
}

static void owner_release(owner *o) {
  treadle_switch_destroy(o->sw);
  treadle_group_close(o->group);
  treadle_layout_destroy(o->train);
  treadle_layout_destroy(o->infer);
  scene_release(&o->s);
}

static char *owner_bytes(const owner *o, size_t *bytes_p) {
  (void)treadle_switch_window(o->sw, TREADLE_INFER_PARAMS, bytes_p);
  char *copy = malloc(*bytes_p + 1);
  assert_ok(treadle_switch_read(o->sw, TREADLE_INFER_PARAMS, 0, *bytes_p, copy));
  return copy;
}

static void assert_answer(reader_answer answer, treadle_status status, const char *part) {
  if (answer.status != status || (part && !strstr(answer.message, part)))
    fail_msg("wanted %s '%s', got %s '%s'", treadle_status_text(status), part ? part : "",
             treadle_status_text(answer.status), answer.message);
}

/* ---- Bytes, versions and holds ---- */

static void test_here(void **state) {
  owner o;
  treadle_attached *attached;
  uint64_t version;
  size_t bytes, wanted_bytes;
  (void)state;
  owner_init(&o);
  const int files = test_open_files();
  owner_give(&o);
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  const void *window = treadle_attached_window(attached, &bytes);
  const treadle_device *device = treadle_device_at(window);
  assert_string_equal(device->ops->name, the->name);
  assert_int_equal(device->number, the->number);
  assert_ptr_not_equal(device, &o.sw->device);
  for (uint64_t i = 1; i <= 2; i++) {
    assert_fails(TREADLE_STATE, "no version is in the window", treadle_attached_hold(attached, &version));
    assert_ok(treadle_switch_to_infer(o.sw));
    assert_ok(treadle_attached_hold(attached, &version));
    assert_int_equal(version, i);
    char *wanted = owner_bytes(&o, &wanted_bytes), *found = malloc(bytes + 1);
    assert_int_equal(bytes, wanted_bytes);
    device->ops->move(device, found, window, bytes);
    assert_ok(device->ops->fence(device));
    assert_memory_equal(found, wanted, bytes);
    free(found);
    free(wanted);
    assert_fails(TREADLE_TIMEOUT, "has held version", treadle_switch_to_train(o.sw));
    assert_ok(treadle_attached_release(attached, version));
    assert_ok(treadle_switch_to_train(o.sw));
    assert_false(treadle_attached_is_valid(attached));
  }
  treadle_detach(attached);
  assert_true(treadle_device_is_host(treadle_device_at(window)));
  assert_ok(treadle_switch_withdraw(o.sw));
  assert_int_equal(test_open_files(), files);
  owner_release(&o);
}

static void test_elsewhere(void **state) {
  owner o;
  size_t bytes;
  reader r = readers[0], other = readers[1];
  (void)state;
  owner_init(&o);
  owner_give(&o);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_answer(reader_attach(&other, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_STATE, "no version is in the window");
  for (uint64_t version = 1; version <= 2; version++) {
    assert_ok(treadle_switch_to_infer(o.sw));
    assert_answer(reader_do_version(&r, READER_WAIT, version, 10), TREADLE_OK, NULL);
    assert_int_equal(reader_do(&r, READER_HOLD).version, version);
    char *wanted = owner_bytes(&o, &bytes);
    const uint64_t sum = treadle_hash_bytes(wanted, bytes, 0);
    free(wanted);
    assert_int_equal(reader_do(&r, READER_SUM).sum, sum);
    assert_int_equal(reader_do(&other, READER_SUM).sum, sum);
    assert_fails(TREADLE_TIMEOUT, "has held version", treadle_switch_to_train(o.sw));
    assert_answer(reader_do_version(&r, READER_RELEASE, version, 0), TREADLE_OK, NULL);
    assert_ok(treadle_switch_to_train(o.sw));
    assert_false(reader_do(&r, READER_LOOK).valid);
  }
  assert_answer(reader_do(&r, READER_DETACH), TREADLE_OK, NULL);
  owner_release(&o);
  assert_answer(reader_do(&other, READER_HOLD), TREADLE_PEER, "has destroyed its switch");
  reader_end(&r);
  reader_end(&other);
}

/* ---- What is refused, and what fails ---- */

static void test_no_such_device(void **state) {
  owner o;
  (void)state;
  reader r = blind;
  owner_init(&o);
  owner_give(&o);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_REFUSED, "attach: the window of process");
  owner_release(&o);
  reader_end(&r);
}

static void test_failures(void **state) {
  owner o;
  treadle_attached *attached;
  (void)state;
  owner_init(&o);
  const int files = test_open_files();
  the->fail_export(1);
  assert_fails(TREADLE_SYSTEM, the->no_export,
               treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, o.handle, sizeof o.handle, &o.bytes));
  assert_int_equal(test_open_files(), files);
  owner_give(&o);
  const int given = test_open_files();
  for (int i = 0; i < 2; i++) { /* in the first message, and in the second one */
    the->fail_import(i ? the->late_import : 3);
    assert_fails(TREADLE_SYSTEM, the->no_import, treadle_attach(o.handle, o.bytes, 10, &attached));
    the->fail_export(i ? 254 : 3);
    assert_fails(TREADLE_REFUSED, the->no_export, treadle_attach(o.handle, o.bytes, 10, &attached));
    assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
    treadle_detach(attached);
  }
  assert_ok(treadle_switch_withdraw(o.sw)); /* and the service has closed what it had */
  assert_int_equal(test_open_files(), files);
  assert_true(given > files);
  owner_release(&o);
}

int far_handles(const far_handles_device *device) {
  the = device;
  for (int i = 0; i < 2; i++) readers[i] = reader_start();
  the->hide();
  blind = reader_start();
  the->show();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_here), cmocka_unit_test(test_elsewhere),
                                     cmocka_unit_test(test_no_such_device),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
