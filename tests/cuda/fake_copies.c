/* Copies and memset. */
#include "cuda/fake_parts.h"

#include <stdlib.h>
#include <string.h>

static void *near(uint64_t address) {
  return fake_pointer(fake_is_device(address) ? fake_cuda_near(address) : address);
}

static void count(uint64_t *bytes, const fake_work *w) {
  FAKE_LOCKED;
  *bytes += w->bytes;
}

static void run_copy(const fake_work *w) {
  const void *from = w->own ? w->own : near(w->from);
  uint64_t *const kinds[2][2] = {{&fake_ledger.host_to_host, &fake_ledger.host_to_device},
                                 {&fake_ledger.device_to_host, &fake_ledger.device_to_device}};
  memmove(near(w->to), from, w->bytes);
  count(kinds[fake_is_device(w->from)][fake_is_device(w->to)], w);
}

static void run_set(const fake_work *w) {
  memset(near(w->to), w->value, w->bytes);
  count(&fake_ledger.set, w);
}

/* Device memory that nobody may use there is known before the work begins. */
static bool is_fine(uint64_t address, uint64_t bytes, bool written) {
  return fake_is_device(address) ? fake_is_accessible(address, bytes, written) : address != 0;
}

static bool is_pageable(uint64_t address, uint64_t bytes) {
  return !fake_is_device(address) && !fake_is_pinned(address, bytes);
}

/* From pageable memory: its bytes of now. To pageable memory, or between host memory: the copy has ended when this
 * returns. */
static CUresult put_copy(uint64_t to, uint64_t from, uint64_t bytes, CUstream stream) {
  struct CUstream_st *s;
  const CUresult result = fake_stream_takes(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!is_fine(to, bytes, true) || !is_fine(from, bytes, false)) return CUDA_ERROR_INVALID_VALUE;
  fake_work w = {.run = run_copy, .to = to, .from = from, .bytes = bytes};
  if (is_pageable(from, bytes)) {
    w.own = malloc(bytes);
    if (!w.own) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(w.own, fake_pointer(from), bytes);
  }
  fake_put(s, w);
  if (is_pageable(to, bytes) || (!fake_is_device(to) && !fake_is_device(from))) fake_finish(s);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyAsync);
  FAKE_LOCKED;
  return put_copy(to, from, bytes, stream);
}

FAKE_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyDtoDAsync);
  FAKE_LOCKED;
  if (bytes > 0 && (!fake_is_device(to) || !fake_is_device(from))) return CUDA_ERROR_INVALID_VALUE;
  return put_copy(to, from, bytes, stream);
}

FAKE_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyHtoDAsync);
  FAKE_LOCKED;
  if (bytes > 0 && (!fake_is_device(to) || fake_is_device(fake_address(from))))
    return CUDA_ERROR_INVALID_VALUE;
  return put_copy(to, fake_address(from), bytes, stream);
}

FAKE_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyDtoHAsync);
  FAKE_LOCKED;
  if (bytes > 0 && (fake_is_device(fake_address(to)) || !fake_is_device(from)))
    return CUDA_ERROR_INVALID_VALUE;
  return put_copy(fake_address(to), from, bytes, stream);
}

/* In the NULL stream, and waited for. */
static CUresult copy_now(uint64_t to, uint64_t from, uint64_t bytes) {
  struct CUstream_st *s;
  CUresult result = put_copy(to, from, bytes, NULL);
  if (result != CUDA_SUCCESS) return result;
  result = fake_stream_takes(NULL, &s);
  if (result == CUDA_SUCCESS) fake_finish(s);
  return fake_stuck();
}

FAKE_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  FAKE_ENTER(cuMemcpyHtoD);
  FAKE_LOCKED;
  if (bytes > 0 && (!fake_is_device(to) || fake_is_device(fake_address(from))))
    return CUDA_ERROR_INVALID_VALUE;
  return copy_now(to, fake_address(from), bytes);
}

FAKE_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  FAKE_ENTER(cuMemcpyDtoH);
  FAKE_LOCKED;
  if (bytes > 0 && (fake_is_device(fake_address(to)) || !fake_is_device(from)))
    return CUDA_ERROR_INVALID_VALUE;
  return copy_now(fake_address(to), from, bytes);
}

FAKE_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  struct CUstream_st *s;
  FAKE_ENTER(cuMemsetD8Async);
  FAKE_LOCKED;
  const CUresult result = fake_stream_takes(stream, &s);
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  if (!is_fine(to, bytes, true)) return CUDA_ERROR_INVALID_VALUE;
  fake_put(s, (fake_work){.run = run_set, .to = to, .value = value, .bytes = bytes});
  return CUDA_SUCCESS;
}
