/* tests/cuda/fake_*.c: the stand-in of the driver, in one process. ctest: stage=gcc */
#include "cuda/fake_test.h"

#include "memory/kernel_cuda.h"

enum { PAGES = 4, BYTES = PAGES * FAKE_PAGE };

/* ---- Memory ---- */

static void test_memory(void **state) {
  (void)state;
  const size_t before = fake_free_bytes();
  char seen[BYTES], zeros[BYTES] = {0};
  for (int round = 0; round < 3; round++) { /* what is given back comes back as zeros */
    CUmemGenericAllocationHandle handles[PAGES];
    for (int i = 0; i < PAGES; i++) handles[i] = fake_create(FAKE_PAGE);
    assert_int_equal(fake_free_bytes(), before - BYTES);
    CUdeviceptr first = fake_window_on(handles, PAGES, FAKE_PAGE),
                second = fake_window_on(handles, PAGES, FAKE_PAGE);
    for (int i = 0; i < PAGES; i++) assert_cuda(cuMemRelease(handles[i])); /* mappings hold it */
    assert_int_equal(fake_free_bytes(), before - BYTES);
    assert_cuda(cuMemcpyDtoH_v2(seen, first, BYTES));
    assert_memory_equal(seen, zeros, BYTES);
    memset(seen, round + 1, BYTES);
    assert_cuda(cuMemcpyHtoD_v2(first + 5, seen, BYTES - 5));
    assert_cuda(cuMemcpyDtoH_v2(zeros, second, BYTES));
    assert_int_equal(zeros[4], 0);
    assert_memory_equal(zeros + 5, seen, BYTES - 5);
    memset(zeros, 0, BYTES);
    fake_window_end(first, BYTES);
    fake_window_end(second, BYTES);
    assert_int_equal(fake_free_bytes(), before);
    assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(seen, first, 1));
  }
}

static void test_refused(void **state) {
  (void)state;
  CUmemAllocationProp closed = fake_prop;
  CUmemGenericAllocationHandle handle, both[2];
  CUdeviceptr at;
  int file;
  closed.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 100, &fake_prop, 0));
  assert_cuda_is(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 30, &fake_prop, 0));
  assert_cuda(cuMemCreate(&handle, FAKE_PAGE, &closed, 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE,
                 cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  assert_cuda(cuMemRelease(handle));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));

  both[0] = fake_create(FAKE_PAGE);
  both[1] = fake_create(2 * FAKE_PAGE);
  assert_cuda(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, FAKE_PAGE, 0, both[1], 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, FAKE_PAGE, FAKE_PAGE, both[1], 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 3 * FAKE_PAGE, 2 * FAKE_PAGE, 0, both[1], 0));
  assert_cuda(cuMemMap(at, FAKE_PAGE, 0, both[0], 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, FAKE_PAGE, 0, both[0], 0));
  assert_cuda(cuMemMap(at + 2 * FAKE_PAGE, 2 * FAKE_PAGE, 0, both[1], 0));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE,
                 fake_allow(at, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READ)); /* a hole */
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE,
                 fake_allow(at + 2 * FAKE_PAGE, FAKE_PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, BYTES));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, BYTES));
  assert_cuda(cuMemUnmap(at, FAKE_PAGE));
  assert_cuda(cuMemUnmap(at + 2 * FAKE_PAGE, 2 * FAKE_PAGE));
  assert_cuda(cuMemAddressFree(at, BYTES));
  for (int i = 0; i < 2; i++) assert_cuda(cuMemRelease(both[i]));
}

static void test_access(void **state) {
  (void)state;
  char bytes[FAKE_PAGE] = {7};
  unsigned long long flags;
  CUmemGenericAllocationHandle handle = fake_create(FAKE_PAGE);
  CUdeviceptr at = fake_window_on(&handle, 1, FAKE_PAGE);
  assert_cuda(cuMemcpyHtoD_v2(at, bytes, FAKE_PAGE));
  assert_cuda(fake_allow(at, FAKE_PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
  assert_cuda(cuMemGetAccess(&flags, &fake_prop.location, at));
  assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at, bytes, 1));
  assert_cuda(cuMemcpyDtoH_v2(bytes + 1, at, 1));
  assert_int_equal(bytes[1], 7);
  assert_cuda(fake_allow(at, FAKE_PAGE, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, at, 1));
  fake_window_end(at, FAKE_PAGE);
  assert_cuda(cuMemRelease(handle));
}

static void test_pointers(void **state) {
  (void)state;
  CUmemorytype type;
  CUdeviceptr at, start;
  void *pinned;
  int local, device;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  assert_cuda(cuMemAlloc_v2(&at, 100));
  assert_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 50));
  assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
  assert_cuda(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 50));
  assert_int_equal(start, at);
  assert_cuda(cuMemFree_v2(at));
  assert_cuda(cuMemHostAlloc(&pinned, 100, 0));
  assert_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)pinned));
  assert_int_equal(type, CU_MEMORYTYPE_HOST);
  assert_cuda(cuMemFreeHost(pinned));
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE,
                 cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local));
  assert_cuda(cuPointerGetAttributes(2, which, (void *[]){&type, &device}, (uintptr_t)&local));
  assert_int_equal(type, 0);
  assert_int_equal(device, -2);
}

/* ---- Streams ---- */

static void test_late(void **state) {
  (void)state;
  static char pinned[64], pageable[64], seen[64];
  CUstream stream;
  CUdeviceptr at;
  assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  assert_cuda(cuMemAlloc_v2(&at, 128));
  assert_cuda(cuMemHostRegister_v2(pinned, sizeof pinned, 0));
  assert_cuda_is(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(pinned + 9, 9, 0));
  pinned[0] = pageable[0] = 1;
  assert_cuda(cuMemcpyHtoDAsync_v2(at, pinned, 64, stream));
  assert_cuda(cuMemcpyHtoDAsync_v2(at + 64, pageable, 64, stream));
  pinned[0] = pageable[0] = 2;
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) continue;
  assert_cuda(cuMemcpyDtoHAsync_v2(seen, at, 64, stream)); /* pageable: waited for */
  assert_int_equal(seen[0], 2);
  assert_cuda(cuMemcpyDtoHAsync_v2(pinned, at + 64, 64, stream));
  assert_int_equal(pinned[0], 2);
  assert_cuda(cuStreamSynchronize(stream));
  assert_int_equal(pinned[0], 1);
  assert_cuda(cuMemHostUnregister(pinned));
  assert_cuda_is(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pinned));
  assert_cuda(cuMemFree_v2(at));
  assert_cuda(cuStreamDestroy_v2(stream));
}

/* Who of two streams writes last; with an event, or by way of the NULL stream, always the second. */
static int last_of_two(unsigned flags, bool with_event, CUdeviceptr at) {
  CUstream streams[2];
  CUevent event;
  unsigned char seen;
  for (int i = 0; i < 2; i++) assert_cuda(cuStreamCreate(&streams[i], flags));
  assert_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  assert_cuda(cuMemsetD8Async(at, 1, 1, streams[0]));
  assert_cuda(cuEventRecord(event, streams[0]));
  if (with_event) assert_cuda(cuStreamWaitEvent(streams[1], event, 0));
  if (flags == CU_STREAM_DEFAULT) assert_cuda(cuMemsetD8Async(at + 1, 1, 1, NULL));
  assert_cuda(cuMemsetD8Async(at, 2, 1, streams[1]));
  if (with_event) assert_cuda(cuEventDestroy_v2(event));
  for (int i = 0; i < 2; i++) assert_cuda(cuStreamSynchronize(streams[i]));
  if (!with_event) assert_cuda(cuEventQuery(event));
  if (!with_event) assert_cuda(cuEventDestroy_v2(event));
  for (int i = 0; i < 2; i++) assert_cuda(cuStreamDestroy_v2(streams[i]));
  assert_cuda(cuMemcpyDtoH_v2(&seen, at, 1));
  return seen;
}

static void test_order(void **state) {
  (void)state;
  CUdeviceptr at;
  int seen[3] = {0};
  assert_cuda(cuMemAlloc_v2(&at, 2));
  for (int round = 0; round < 64; round++) {
    seen[last_of_two(CU_STREAM_NON_BLOCKING, false, at)]++;
    assert_int_equal(last_of_two(CU_STREAM_NON_BLOCKING, true, at), 2);
    assert_int_equal(last_of_two(CU_STREAM_DEFAULT, false, at), 2);
  }
  assert_true(seen[1] > 0 && seen[2] > 0);
  assert_cuda(cuMemFree_v2(at));
}

/* ---- Failures ---- */

static void test_failures(void **state) {
  (void)state;
  CUdeviceptr at;
  const uint64_t calls = fake_cuda_calls("cuMemAlloc");
  fake_cuda_fail("cuMemAlloc:2,cuMemFree:1:999");
  assert_cuda(cuMemAlloc_v2(&at, 1));
  assert_cuda_is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, 1));
  assert_cuda_is(CUDA_ERROR_UNKNOWN, cuMemFree_v2(at));
  assert_cuda(cuMemFree_v2(at));
  fake_cuda_fail(NULL);
  assert_int_equal(fake_cuda_calls("cuMemAlloc"), calls + 2);
}

/* ---- Kernels ---- */

typedef struct tables { /* pinned */
  treadle_cuda_box box;
  treadle_cuda_item item;
  treadle_cuda_count count;
} tables;

/* Launches a fill of `count` units of 4 bytes. */
static CUresult launch_fill(CUmodule module, tables *t, CUdeviceptr to, uint32_t count) {
  CUfunction function;
  assert_cuda(cuModuleGetFunction(&function, module, "treadle_cuda_copy"));
  *t = (tables){.item = {.count = count}};
  t->box = (treadle_cuda_box){.kind = TREADLE_CUDA_FILL,
                              .width = 4,
                              .ndim = 1,
                              .size = {count},
                              .to_stride = {4},
                              .to = {.base = to},
                              .value = 0x0101010101010101};
  treadle_cuda_copy_args args = {(uintptr_t)&t->box, (uintptr_t)&t->item, (uintptr_t)&t->count, 1, 0};
  return cuLaunchKernel(function, 3, 1, 1, TREADLE_CUDA_THREADS, 1, 1, 0, NULL, (void *[]){&args}, NULL);
}

static void test_kernels(void **state) {
  (void)state;
  fake_cuda_ledger before, after;
  CUmodule module;
  CUdeviceptr at;
  tables *t;
  char seen[4100], wanted[4100];
  fake_cuda_ledger_read(&before);
  assert_cuda_is(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "not an image of kernels"));
  assert_cuda(cuModuleLoadData(&module, FAKE_CUDA_MARKER));
  assert_cuda(cuMemHostAlloc((void **)&t, sizeof *t, 0));
  assert_cuda(cuMemAlloc_v2(&at, 8192));
  assert_cuda(launch_fill(module, t, at, 1024));
  assert_int_equal(t->count.bytes, 0);
  assert_cuda(cuMemcpyDtoH_v2(seen, at, sizeof seen));
  assert_int_equal(t->count.bytes, 4096);
  memset(wanted, 1, 4096);
  memset(wanted + 4096, 0, 4);
  assert_memory_equal(seen, wanted, sizeof seen);
  fake_cuda_ledger_read(&after);
  assert_int_equal(after.launches, before.launches + 1);
  assert_int_equal(after.kernel_bytes, before.kernel_bytes + 4096);
  assert_int_equal(after.device_to_host, before.device_to_host + sizeof seen);

  fake_cuda_fail("launch:1");
  assert_cuda(launch_fill(module, t, at, 8));
  assert_cuda_is(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(NULL));
  assert_cuda_is(CUDA_ERROR_LAUNCH_FAILED, cuMemFree_v2(at));
  fake_cuda_fail(NULL);
  assert_cuda(cuMemFree_v2(at));
  assert_cuda(cuMemFreeHost(t));
  assert_cuda(cuModuleUnload(module));
}

static int start(void **state) {
  (void)state;
  fake_start();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),   cmocka_unit_test(test_refused), cmocka_unit_test(test_access),
      cmocka_unit_test(test_pointers), cmocka_unit_test(test_late),    cmocka_unit_test(test_order),
      cmocka_unit_test(test_failures), cmocka_unit_test(test_kernels),
  };
  return cmocka_run_group_tests(tests, start, NULL);
}
