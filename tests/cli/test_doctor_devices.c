/* What treadle doctor says of CUDA devices: on the stand-in of the driver, with cards of this test's own.
 * ctest: stage=gcc */
#include "cli/command.h"
#include "test.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>

enum { CARD_BYTES = 64 << 20, PAGE_BYTES = 2 << 20 };

/* The command's processes find the stand-in in place of a driver. */
static int use_stand_in(void **state) {
  (void)state;
  const char *build = getenv("TREADLE_BUILD");
  char path[512];
  snprintf(path, sizeof path, "%s/fake-cuda", build ? build : "build");
  setenv("LD_LIBRARY_PATH", path, 1);
  setenv("FAKE_CUDA_CARD", command_path("card"), 1);
  setenv("FAKE_CUDA_TOTAL", "67108864", 1);
  setenv("FAKE_CUDA_DEVICES", "2", 1);
  unsetenv("FAKE_CUDA_FAIL");
  unsetenv("FAKE_CUDA_PEERS");
  return 0;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  if (!text) fail_msg("%s is not a text", key);
  return text;
}

/* The check with this name; NULL. */
static const json_t *check_of(const json_t *root, const char *name) {
  size_t i;
  const json_t *check;
  json_array_foreach(json_object_get(root, "checks"), i,
                     check) if (strcmp(text_of(check, "name"), name) == 0) return check;
  return NULL;
}

static void check_device(const json_t *device, int number) {
  assert_int_equal((int)command_number(device, "number"), number);
  assert_string_equal(text_of(device, "name"), "stand-in of a GPU");
  assert_memory_equal(text_of(device, "uuid"), "GPU-", 4);
  assert_int_equal(strlen(text_of(device, "uuid")), 40);
  assert_string_equal(text_of(device, "driver"), "13.0");
  assert_string_equal(text_of(device, "compute_capability"), "9.0");
  assert_int_equal((int)command_number(device, "bytes"), CARD_BYTES);
  assert_int_equal((int)command_number(device, "left_bytes"), CARD_BYTES);
  assert_int_equal((int)command_number(device, "page_bytes"), PAGE_BYTES);
  assert_true(json_is_true(json_object_get(device, "handles")));
  assert_true(json_is_false(json_object_get(device, "mig")));
  assert_true(json_is_false(json_object_get(device, "mps")));
  assert_true(json_is_true(json_object_get(device, "usable")));
  assert_true(json_is_null(json_object_get(device, "lacks")));
}

static void test_two_cards(void **state) {
  (void)state;
  json_t *root = command_json(0, 0, "doctor");
  const json_t *devices = json_object_get(root, "devices");
  assert_int_equal(json_array_size(devices), 2);
  for (int i = 0; i < 2; i++) {
    const json_t *device = json_array_get(devices, (size_t)i), *peers = json_object_get(device, "peers");
    check_device(device, i);
    assert_int_equal(json_array_size(peers), 1);
    assert_int_equal(json_integer_value(json_array_get(peers, 0)), 1 - i);
  }
  assert_string_not_equal(text_of(json_array_get(devices, 0), "uuid"),
                          text_of(json_array_get(devices, 1), "uuid"));
  const char *found = text_of(check_of(root, "devices"), "found");
  assert_non_null(strstr(found, "2 CUDA devices, driver of CUDA 13.0, kernels "));
  assert_true((strstr(found, "not built in: run make cuda") == NULL) == treadle_machine_has_kernels());
  assert_string_equal(text_of(check_of(root, "device 1"), "level"), "ok");
  json_decref(root);
}

static void test_table(void **state) {
  (void)state;
  command_result result = command_run("doctor");
  command_expect(&result, 0, "", 0);
  assert_non_null(strstr(result.out, "ok       devices        2 CUDA devices, driver of CUDA 13.0, kernels "));
  assert_non_null(strstr(result.out, "ok       device 1       stand-in of a GPU, GPU-"));
  assert_non_null(
      strstr(result.out, "64.00 MiB, 64.00 MiB free, pages of 2.00 MiB, shareable handles, peers 0\n"));
  command_release(&result);
}

static void test_no_peers(void **state) {
  setenv("FAKE_CUDA_PEERS", "0", 1);
  json_t *root = command_json(0, 0, "doctor");
  const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
  assert_int_equal(json_array_size(json_object_get(device, "peers")), 0);
  assert_non_null(strstr(text_of(check_of(root, "device 0"), "found"), ", no peers"));
  assert_non_null(strstr(text_of(check_of(root, "device 0"), "advice"), "a node of their own (--nodes)"));
  json_decref(root);
  use_stand_in(state);
}

/* A card that cannot be used is a warning with the reason. What does not need it is said all the same. */
static void check_unusable(const char *fail, const char *words) {
  setenv("FAKE_CUDA_FAIL", fail, 1);
  json_t *root = command_json(0, 0, "doctor");
  const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
  assert_true(json_is_false(json_object_get(device, "usable")));
  assert_non_null(strstr(text_of(device, "lacks"), words));
  assert_string_equal(text_of(device, "compute_capability"), "9.0");
  assert_string_equal(text_of(check_of(root, "device 0"), "level"), "warn");
  assert_non_null(strstr(text_of(check_of(root, "device 0"), "advice"), words));
  assert_string_equal(text_of(check_of(root, "device 1"), "level"), "ok");
  json_decref(root);
}

static void test_unusable(void **state) {
  (void)state;
  check_unusable("cuDevicePrimaryCtxRetain:1", "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY, 2");
  check_unusable("cuStreamCreate:1:999", "cuStreamCreate: CUDA_ERROR_UNKNOWN, 999");
  use_stand_in(state);
}

/* Nobody lacks a GPU who has none. */
static void check_none(const char *words) {
  json_t *root = command_json(0, 0, "doctor");
  assert_int_equal(json_array_size(json_object_get(root, "devices")), 0);
  const json_t *check = check_of(root, "devices");
  if (access("/dev/nvidiactl", F_OK) != 0) assert_string_equal(text_of(check, "level"), "ok");
  assert_memory_equal(text_of(check, "found"), "no CUDA devices: ", 17);
  assert_non_null(strstr(text_of(check, "found"), words));
  assert_non_null(strstr(text_of(check, "advice"), "--device cpu"));
  assert_null(check_of(root, "device 0"));
  json_decref(root);
}

static void test_none(void **state) {
  setenv("FAKE_CUDA_DEVICES", "0", 1);
  check_none("CUDA_ERROR_NO_DEVICE");
  /* A folder of libraries with one that is none. */
  command_write("libcuda.so.1", "not a library\n");
  setenv("LD_LIBRARY_PATH", command_folder(), 1);
  check_none("there is no driver library");
  use_stand_in(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_cards), cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_no_peers), cmocka_unit_test(test_unusable),
                                     cmocka_unit_test(test_none)};
  return cmocka_run_group_tests(tests, use_stand_in, command_teardown);
}
