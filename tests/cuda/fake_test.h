/* For the tests of the stand-in: a card of small pages, and what most of them do first. */
#ifndef FAKE_TEST_H
#define FAKE_TEST_H

#include "cuda/fake_cuda.h"
#include "test.h"

enum { FAKE_PAGE = 4096 };

#define assert_cuda(call)          assert_int_equal((call), CUDA_SUCCESS)
#define assert_cuda_is(code, call) assert_int_equal((call), (code))

static const CUmemAllocationProp fake_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes =
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* A card that only this test has, unless the environment names one: a process that the test started. */
static inline void fake_start(void) {
  CUcontext context;
  char path[64];
  snprintf(path, sizeof path, "/dev/shm/fake-cuda-test-%d", (int)getpid());
  setenv("FAKE_CUDA_CARD", path, 0);
  setenv("FAKE_CUDA_GRANULARITY", "4096", 0);
  setenv("FAKE_CUDA_TOTAL", "67108864", 0);
  assert_cuda(cuInit(0));
  assert_cuda(cuDevicePrimaryCtxRetain(&context, 0));
  assert_cuda(cuCtxSetCurrent(context));
}

static inline size_t fake_free_bytes(void) {
  size_t left, total;
  assert_cuda(cuMemGetInfo_v2(&left, &total));
  return left;
}

static inline CUmemGenericAllocationHandle fake_create(size_t bytes) {
  CUmemGenericAllocationHandle handle;
  assert_cuda(cuMemCreate(&handle, bytes, &fake_prop, 0));
  return handle;
}

static inline int fake_export(CUmemGenericAllocationHandle handle) {
  int file;
  assert_cuda(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return file;
}

static inline CUresult fake_import(CUmemGenericAllocationHandle *handle_p, int file) {
  return cuMemImportFromShareableHandle(handle_p, (void *)(intptr_t)file,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static inline CUresult fake_allow(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags) {
  const CUmemAccessDesc access = {.location = fake_prop.location, .flags = flags};
  return cuMemSetAccess(at, bytes, &access, 1);
}

/* A window on handles of `bytes` each. */
static inline CUdeviceptr fake_window_on(const CUmemGenericAllocationHandle *handles, size_t count,
                                         size_t bytes) {
  CUdeviceptr at;
  assert_cuda(cuMemAddressReserve(&at, count * bytes, 0, 0, 0));
  for (size_t i = 0; i < count; i++) assert_cuda(cuMemMap(at + i * bytes, bytes, 0, handles[i], 0));
  assert_cuda(fake_allow(at, count * bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  return at;
}

static inline void fake_window_end(CUdeviceptr at, size_t bytes) {
  assert_cuda(cuMemUnmap(at, bytes));
  assert_cuda(cuMemAddressFree(at, bytes));
}

#endif
