/* The scenes of switch/far_scenes.h on the stand-in of the driver, one card for all ranks, which are threads.  test_cuda_switch [SEED]
 * ctest: stage=gcc timeout=600 */
#include "cuda/card.h"
#include "switch/far_scenes.h"
#include "test.h"

/* Not one after which the device is lost: it is lost to all ranks of a process. test_cuda_processes has those. */
static void fail_at(treadle_switch *sw, const char *call, int64_t n) {
  char text[80];
  (void)sw;
  snprintf(text, sizeof text, "%s:%lld:999", call, (long long)n);
  fake_cuda_fail(n > 0 ? text : NULL);
}

static int64_t calls(const treadle_switch *sw, const char *call) {
  (void)sw;
  return (int64_t)fake_cuda_calls(call);
}

static void *take(size_t bytes) {
  CUdeviceptr at = 0;
  card_enter();
  if (cuMemAlloc_v2(&at, bytes) != CUDA_SUCCESS) abort();
  card_leave();
  return (void *)(uintptr_t)at;
}

static void give_back(void *memory) {
  card_enter();
  if (cuMemFree_v2((uintptr_t)memory) != CUDA_SUCCESS) abort();
  card_leave();
}

static void move(void *to, const void *from, size_t bytes) {
  card_enter();
  if (cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, NULL) != CUDA_SUCCESS ||
      cuStreamSynchronize(NULL) != CUDA_SUCCESS)
    abort();
  card_leave();
}

int main(int count, char **words) {
  const far_device device = {.is_one = true,
                             .fails = {"cuLaunchKernel", "cuEventRecord", "cuEventQuery",
                                       "cuStreamSynchronize", "cuMemcpyAsync", "cuCtxPushCurrent"},
                             .renewing = "cuCtxPushCurrent",
                             .fails_anywhere = true,
                             .fail_at = fail_at,
                             .calls = calls,
                             .take = take,
                             .give_back = give_back,
                             .move = move};
  fake_cuda_ledger before;
  card_make(1, 256 << 20);
  card_enter(); /* the driver starts */
  card_leave();
  fake_cuda_ledger_read(&before);
  const int failed = far_scenes(&device, count > 1 ? strtoull(words[1], NULL, 10) : 0);
  card_is_as(&before);
  card_remove();
  return failed;
}
