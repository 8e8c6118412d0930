#include "cuda/card.h"

#include "test.h"

static char folder[64];

void card_make(int count, uint64_t bytes) {
  char text[32], path[80];
  snprintf(folder, sizeof folder, "%s", test_folder());
  snprintf(path, sizeof path, "%s/card", folder);
  setenv("FAKE_CUDA_CARD", path, 1);
  snprintf(text, sizeof text, "%d", count);
  setenv("FAKE_CUDA_DEVICES", text, 1);
  snprintf(text, sizeof text, "%d", (int)CARD_PAGE);
  setenv("FAKE_CUDA_GRANULARITY", text, 1);
  snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
  setenv("FAKE_CUDA_TOTAL", text, 1);
}

void card_remove(void) { test_remove(folder); }

void card_enter(void) {
  CUcontext context;
  assert_int_equal(cuInit(0), CUDA_SUCCESS);
  assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  assert_int_equal(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
}

void card_leave(void) {
  CUcontext context;
  assert_int_equal(cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

void card_is_as(const fake_cuda_ledger *before) {
  fake_cuda_ledger now;
  fake_cuda_ledger_read(&now);
  assert_int_equal(now.handles.now, before->handles.now);
  assert_int_equal(now.mappings.now, before->mappings.now);
  assert_int_equal(now.mapped_bytes.now, before->mapped_bytes.now);
  assert_int_equal(now.ranges.now, before->ranges.now);
  assert_int_equal(now.pinned_bytes.now, before->pinned_bytes.now);
  assert_int_equal(now.objects.now, before->objects.now);
  assert_int_equal(now.waiting, before->waiting);
}
