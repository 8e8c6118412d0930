/* The scenes of far_handles.h on memory/device_far.h, with a descriptor for each page. ctest: timeout=300 */
#include "memory/device_far.h"
#include "switch/far_handles.h"
#include "test.h"

static void hide(void) { assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, NULL)); }

static void show(void) { assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops)); }

static void fail_export(int64_t n) { device_far_fails_export = n; }

static void fail_import(int64_t n) { device_far_fails_import = n; }

int main(void) {
  show();
  device_far_piece_pages = 1;
  return far_handles(&(far_handles_device){.name = "far",
                                           .number = 3,
                                           .hide = hide,
                                           .show = show,
                                           .fail_export = fail_export,
                                           .fail_import = fail_import,
                                           .late_import = 254,
                                           .no_export = "the far device does not export",
                                           .no_import = "the far device does not import"});
}
