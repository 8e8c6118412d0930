#include "memory/host.h"

#include "base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

char *treadle_host_reserve(size_t bytes, const char *what) {
  char *base =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    treadle_fail(TREADLE_NO_MEMORY, "switch: no host memory of %s for %s: %s", treadle_text_of_size(bytes),
                 what, strerror(errno));
    return NULL;
  }
  madvise(base, bytes, MADV_HUGEPAGE);
  return base;
}

treadle_status treadle_host_touch(char *at, size_t bytes, const char *what) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return TREADLE_OK;
  if (errno == ENOMEM || errno == EFAULT)
    return treadle_fail(TREADLE_NO_MEMORY, "switch: the system has no host memory of %s for %s",
                        treadle_text_of_size(bytes), what);
#endif
  (void)what;
  memset(at, 0, bytes);
  return TREADLE_OK;
}

void *treadle_host_create(size_t bytes, const char *what) {
  char *base = treadle_host_reserve(bytes, what);
  if (!base || treadle_host_touch(base, bytes, what) == TREADLE_OK) return base;
  treadle_host_destroy(base, bytes);
  return NULL;
}

void *treadle_host_create_alone(size_t bytes, const char *what) {
  void *base = treadle_host_create(bytes, what);
  if (base) madvise(base, bytes, MADV_DONTFORK);
  return base;
}

void treadle_host_destroy(void *at, size_t bytes) {
  if (at) munmap(at, bytes);
}

void *treadle_host_pinned(const treadle_device *device, size_t bytes, const char *what) {
  void *base = treadle_device_is_host(device) ? treadle_host_create(bytes, what)
                                              : treadle_host_create_alone(bytes, what);
  if (!base || device->ops->pin(device, base, bytes) == TREADLE_OK) return base;
  treadle_host_destroy(base, bytes);
  return NULL;
}

void treadle_host_unpinned(const treadle_device *device, void *at, size_t bytes) {
  if (!at) return;
  device->ops->unpin(device, at);
  treadle_host_destroy(at, bytes);
}
