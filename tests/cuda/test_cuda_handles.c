/* The scenes of switch/far_handles.h on the stand-in of the driver. ctest: stage=gcc timeout=300 */
#include "cuda/card.h"
#include "memory/device_cuda.h"
#include "switch/far_handles.h"
#include "test.h"

static char card[100];

static void start(void) {
  card_enter();
  card_leave();
}

/* Each page is a piece of its own, so that there are many descriptors. */
static treadle_device_ops by_page;

static treadle_status create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                             int64_t budget_bytes, const treadle_view_of *views, int view_count,
                             treadle_pool **pool_p) {
  (void)views, (void)view_count;
  return treadle_cuda_ops.create(device, pages, page_bytes, budget_bytes, NULL, 0, pool_p);
}

/* A reader with another card, and the library's own table. */
static void hide(void) {
  char other[110];
  snprintf(card, sizeof card, "%s", getenv("FAKE_CUDA_CARD"));
  snprintf(other, sizeof other, "%s-other", card);
  setenv("FAKE_CUDA_CARD", other, 1);
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, NULL));
}

static void show(void) {
  setenv("FAKE_CUDA_CARD", card, 1);
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &by_page));
}

static void plant(const char *call, int64_t n) {
  char text[80];
  snprintf(text, sizeof text, "%s:%lld:999", call, (long long)n);
  fake_cuda_fail(text);
}

static void fail_export(int64_t n) { plant("cuMemExportToShareableHandle", n); }

static void fail_import(int64_t n) { plant("cuMemImportFromShareableHandle", n); }

int main(void) {
  card_make(1, 64 << 20);
  by_page = treadle_cuda_ops;
  by_page.create = create;
  by_page.plain = &by_page;
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &by_page));
  const int failed = far_handles(&(far_handles_device){.name = "cuda",
                                                       .start = start,
                                                       .hide = hide,
                                                       .show = show,
                                                       .fail_export = fail_export,
                                                       .fail_import = fail_import,
                                                       .late_import = 150,
                                                       .no_export = "cuMemExportToShareableHandle",
                                                       .no_import = "cuMemImportFromShareableHandle"});
  card_remove();
  return failed;
}
