/* src/core/memory/image_cuda.c: the library holds compiled kernels, or says that it has none. */
/* ctest: stage=gcc */
#include "memory/image_cuda.h"
#include "test.h"

static void test_image(void **state) {
  (void)state;
  const uint32_t fat_binary = 0xba55ed50;
  if (treadle_cuda_image_is_built()) {
    assert_memory_equal(treadle_cuda_image, &fat_binary, sizeof fat_binary);
    assert_true(treadle_cuda_image_bytes() > 10000);
  } else {
    assert_int_equal(treadle_cuda_image_bytes(), strlen(treadle_cuda_image) + 1);
    assert_non_null(strstr(treadle_cuda_image, "make cuda"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_image)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
