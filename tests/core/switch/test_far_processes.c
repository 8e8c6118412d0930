/* The scenes of far_processes.h on memory/device_far.h, whose pools are in pieces. ctest: timeout=300 */
#include "memory/device_far.h"
#include "switch/far_processes.h"
#include "test.h"

static void fail_export(int64_t n) { device_far_fails_export = n; }

static void fail_import(int64_t n) { device_far_fails_import = n; }

int main(void) {
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops));
  return far_processes(&(far_processes_device){.two = true,
                                               .fail_export = fail_export,
                                               .fail_import = fail_import,
                                               .no_export = "rank 1: the far device does not export",
                                               .no_import = "rank 0: the far device does not import"});
}
