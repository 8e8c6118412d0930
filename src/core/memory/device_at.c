/* Which device has memory at an address: what devices other than the host have claimed, in one list, which is short: a switch has a window for
 * each class. */
#include "base/alloc.h"
#include "memory/device.h"

#include <pthread.h>
#include <stdint.h>

typedef struct claim {
  const treadle_device *device;
  uintptr_t first, end;
  struct claim *next;
} claim;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static claim *claims;

const treadle_device *treadle_device_at(const void *address) {
  const uintptr_t at = (uintptr_t)address;
  pthread_mutex_lock(&lock);
  const claim *c = claims;
  while (c && (at < c->first || at >= c->end)) c = c->next;
  const treadle_device *device = c ? c->device : NULL;
  pthread_mutex_unlock(&lock);
  return device ? device : treadle_device_host();
}

treadle_status treadle_device_claim(const treadle_device *device, const void *memory, size_t bytes) {
  if (bytes == 0 || treadle_device_is_host(device)) return TREADLE_OK;
  claim *c = treadle_alloc(sizeof *c);
  if (!c) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  *c = (claim){.device = device, .first = (uintptr_t)memory, .end = (uintptr_t)memory + bytes};
  pthread_mutex_lock(&lock);
  c->next = claims;
  claims = c;
  pthread_mutex_unlock(&lock);
  return TREADLE_OK;
}

void treadle_device_let_go(const treadle_device *device) {
  pthread_mutex_lock(&lock);
  for (claim **at = &claims; *at;) {
    claim *c = *at;
    if (c->device != device) {
      at = &c->next;
      continue;
    }
    *at = c->next;
    treadle_free(c);
  }
  pthread_mutex_unlock(&lock);
}

treadle_status treadle_device_need_host(const char *who, const void *memory) {
  const treadle_device *device = treadle_device_at(memory);
  if (treadle_device_is_host(device)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s needs windows in host memory; these lie on device '%s'", who,
                      device->ops->name);
}
