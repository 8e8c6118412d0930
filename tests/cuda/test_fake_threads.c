/* tests/cuda/fake_*.c: the stand-in of the driver, with threads. ctest: label=threads */
#include "cuda/fake_test.h"

#include <pthread.h>

/* Threads have streams of their own, and do each other's work where they look. */
static void *work_in_thread(void *context) {
  enum { HALF = 2048 };
  CUstream stream;
  CUevent event;
  CUdeviceptr at;
  char *pinned;
  assert_cuda(cuCtxSetCurrent(context));
  assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  assert_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  assert_cuda(cuMemHostAlloc((void **)&pinned, 2 * HALF, 0));
  for (int round = 1; round < 60; round++) {
    assert_cuda(cuMemAlloc_v2(&at, 2 * HALF));
    memset(pinned, round, HALF);
    assert_cuda(cuMemcpyHtoDAsync_v2(at, pinned, HALF, stream));
    assert_cuda(cuMemcpyDtoDAsync_v2(at + HALF, at, HALF, stream));
    assert_cuda(cuMemcpyAsync((uintptr_t)pinned + HALF, at + HALF, HALF, stream));
    assert_cuda(cuEventRecord(event, stream));
    if (round % 2)
      assert_cuda(cuEventSynchronize(event));
    else
      while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
    assert_memory_equal(pinned, pinned + HALF, HALF);
    assert_cuda(cuMemFree_v2(at));
  }
  assert_cuda(cuMemFreeHost(pinned));
  assert_cuda(cuEventDestroy_v2(event));
  assert_cuda(cuStreamDestroy_v2(stream));
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  CUcontext context;
  pthread_t threads[3];
  const size_t before = fake_free_bytes();
  assert_cuda(cuCtxGetCurrent(&context));
  for (size_t i = 0; i < TEST_COUNT(threads); i++)
    assert_int_equal(pthread_create(&threads[i], NULL, work_in_thread, context), 0);
  for (size_t i = 0; i < TEST_COUNT(threads); i++) pthread_join(threads[i], NULL);
  assert_int_equal(fake_free_bytes(), before);
}

static int start(void **state) {
  (void)state;
  fake_start();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
  return cmocka_run_group_tests(tests, start, NULL);
}
