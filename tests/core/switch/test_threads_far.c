/* The scenes of far_scenes.h on memory/device_far.h.  test_threads_far [SEED] ctest: label=threads timeout=900 */
#include "memory/device_far.h"
#include "switch/far_scenes.h"
#include "test.h"

static void fail_at(treadle_switch *sw, const char *call, int64_t n) {
  (void)call;
  if (sw) device_far_fail_at(&sw->device, n);
}

static int64_t calls(const treadle_switch *sw, const char *call) {
  (void)call;
  return device_far_calls(&sw->device);
}

int main(int count, char **words) {
  const far_device device = {.guards = true,
                             .two = true,
                             .fails = {"any"},
                             .words = "the far device failed at its call",
                             .fail_at = fail_at,
                             .calls = calls};
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops));
  return far_scenes(&device, count > 1 ? strtoull(words[1], NULL, 10) : 0);
}
