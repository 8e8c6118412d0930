/* What a reader asks of a window that it is attached to, and its holds.
 *
 * Holds of one object share one place of the sheet, and are counted here. In a child made by fork the count is the parent's, and so is
 * the place: the child begins anew, with its own process. */
#include "attach/attached.h"

#include "base/clock.h"
#include "base/sized.h"
#include "group/shm.h"

#include <string.h>
#include <unistd.h>

static const double LOOK_EVERY = 50e-3; /* seconds */

/* ---- Looking ---- */

static bool is_alive(const treadle_attached *a) {
  return !atomic_load(&a->sheet->closed) && treadle_shm_is_alive(a->owner);
}

const void *treadle_attached_window(const treadle_attached *attached, size_t *bytes_p) {
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED_OR(attached, NULL);
  if (bytes_p) *bytes_p = (size_t)attached->handle.window_bytes;
  return attached->handle.window_bytes > 0 ? attached->base : NULL;
}

int32_t treadle_attached_storage_count(const treadle_attached *attached) {
  TREADLE_NEED_OR(attached, -1);
  return attached->storage_count;
}

treadle_status treadle_attached_storage(const treadle_attached *attached, int32_t storage,
                                        treadle_storage_info *info_p) {
  TREADLE_NEED(attached);
  TREADLE_NEED_SIZED(info_p);
  if (storage < 0 || storage >= attached->storage_count)
    REFUSE("storage tensor %d is none of the window's %d", (int)storage, (int)attached->storage_count);
  const treadle_sheet_storage *s = &attached->storages[storage];
  treadle_storage_info info = {.struct_size = sizeof info,
                               .chunk = s->chunk,
                               .ndim = s->ndim,
                               .dtype = (treadle_dtype)s->dtype,
                               .derived = s->derived != 0,
                               .offset_bytes = (size_t)s->offset_bytes,
                               .bytes = (size_t)s->bytes};
  memcpy(info.name, s->name, sizeof info.name);
  memcpy(info.shape, s->shape, sizeof info.shape);
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

int32_t treadle_attached_find(const treadle_attached *attached, const char *name) {
  TREADLE_NEED_OR(attached, -1);
  TREADLE_NEED_OR(name, -1);
  for (int32_t i = 0; i < attached->storage_count; i++)
    if (strcmp(attached->storages[i].name, name) == 0) return i;
  treadle_fail(TREADLE_REFUSED, "no storage tensor '%.200s' in the window", name);
  return -1;
}

uint64_t treadle_attached_version(const treadle_attached *attached) {
  TREADLE_NEED_OR(attached, 0);
  return atomic_load(&attached->sheet->committed);
}

bool treadle_attached_is_valid(const treadle_attached *attached) {
  TREADLE_NEED_OR(attached, false);
  return atomic_load(&attached->sheet->valid) != 0 && is_alive(attached);
}

void treadle_attached_get_info(const treadle_attached *attached, treadle_attached_info *info_p) {
  treadle_attached_info info = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &info);
  TREADLE_NEED_ONLY(attached);
  const treadle_handle *h = &attached->handle;
  info = (treadle_attached_info){.process = h->process,
                                 .rank = h->rank,
                                 .ranks = h->ranks,
                                 .version = atomic_load(&attached->sheet->committed),
                                 .valid = treadle_attached_is_valid(attached),
                                 .alive = is_alive(attached),
                                 .page_bytes = (size_t)h->page_bytes,
                                 .memory = {attached->device.kind, attached->device.number, NULL}};
  memcpy(info.layout, attached->layout, sizeof info.layout);
  TREADLE_GIVE(info_p, &info);
}

treadle_status treadle_attached_read(const treadle_attached *attached, size_t offset, size_t bytes,
                                     void *to) {
  TREADLE_NEED(attached);
  if (bytes > 0) TREADLE_NEED(to);
  const size_t window = (size_t)attached->handle.window_bytes;
  if (offset > window || bytes > window - offset)
    return treadle_fail(TREADLE_REFUSED, "read: %zu bytes from byte %zu: the window has %zu", bytes, offset,
                        window);
  if (bytes == 0) return TREADLE_OK;
  const treadle_status status = attached->device.ops->renew(&attached->device);
  if (status != TREADLE_OK) return status;
  attached->device.ops->move(&attached->device, to, (const char *)attached->base + offset, bytes);
  return attached->device.ops->fence(&attached->device);
}

/* ---- Versions ---- */

static treadle_status check_alive(const treadle_attached *a, const char *what) {
  const treadle_handle *h = &a->handle;
  if (atomic_load(&a->sheet->closed))
    return treadle_fail(TREADLE_PEER, "%s: process %d (rank %d) has destroyed its switch", what, h->process,
                        h->rank);
  if (!treadle_shm_is_alive(a->owner))
    return treadle_fail(TREADLE_PEER, "%s: process %d (rank %d) has died", what, h->process, h->rank);
  return TREADLE_OK;
}

static bool has_version(const treadle_attached *a, uint64_t version) {
  uint64_t valid = atomic_load(&a->sheet->valid);
  return valid != 0 && valid >= version;
}

static treadle_status late(const treadle_attached *a, uint64_t version, double seconds) {
  return treadle_fail(TREADLE_TIMEOUT,
                      "wait: version %llu of rank %d did not come in %.1f s; the last is %llu",
                      (unsigned long long)version, a->handle.rank, seconds,
                      (unsigned long long)atomic_load(&a->sheet->committed));
}

treadle_status treadle_attached_wait(treadle_attached *attached, uint64_t version, double timeout_seconds,
                                     treadle_watcher watch, void *context) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(attached);
  TRY(TREADLE_CHECK_SECONDS(timeout_seconds));
  double begin = treadle_clock_seconds(), deadline = begin + timeout_seconds;
  for (;;) {
    uint32_t told = atomic_load(&attached->sheet->told); /* before the look */
    TRY(check_alive(attached, "wait"));
    if (has_version(attached, version)) break;
    double left = deadline - treadle_clock_seconds();
    if (!(left > 0)) TRY(late(attached, version, timeout_seconds));
    if (watch && !watch(context, "waiting for a version", (int64_t)atomic_load(&attached->sheet->committed),
                        (int64_t)version))
      TRY(treadle_fail(TREADLE_CANCELLED, "wait: cancelled before version %llu of rank %d came",
                       (unsigned long long)version, attached->handle.rank));
    treadle_sheet_listen(attached->sheet, told, left < LOOK_EVERY ? left : LOOK_EVERY);
  }
out:
  return status;
}

/* Under the lock: what is counted is this process's. */
static void settle_process(treadle_attached *a) {
  if (a->process == getpid()) return;
  a->process = getpid();
  a->holds = 0;
  a->place = -1;
}

static treadle_status hold(treadle_attached *a, uint64_t *version_p) {
  treadle_status status = TREADLE_OK;
  settle_process(a);
  TRY(check_alive(a, "hold"));
  if (a->holds == 0)
    TRY(treadle_hold_take(a->sheet, treadle_hold_process(a->process, treadle_shm_start_time(a->process)),
                          &a->place, &a->version));
  else if (atomic_load(&a->sheet->valid) != a->version)
    return treadle_fail(TREADLE_STATE,
                        "hold: version %llu is held already, and the owner waits for it to be released",
                        (unsigned long long)a->version);
  a->holds++;
  *version_p = a->version;
out:
  return status;
}

treadle_status treadle_attached_hold(treadle_attached *attached, uint64_t *version_p) {
  if (version_p) *version_p = 0;
  TREADLE_NEED(attached);
  TREADLE_NEED(version_p);
  pthread_mutex_lock(&attached->lock);
  treadle_status status = hold(attached, version_p);
  pthread_mutex_unlock(&attached->lock);
  return status;
}

static treadle_status release(treadle_attached *a, uint64_t version) {
  settle_process(a);
  if (a->holds == 0)
    return treadle_fail(TREADLE_STATE, "release: version %llu is not held: nothing is",
                        (unsigned long long)version);
  if (version != a->version)
    return treadle_fail(TREADLE_STATE, "release: version %llu is not held: %llu is",
                        (unsigned long long)version, (unsigned long long)a->version);
  if (--a->holds == 0) treadle_hold_release(a->sheet, a->place);
  return TREADLE_OK;
}

treadle_status treadle_attached_release(treadle_attached *attached, uint64_t version) {
  TREADLE_NEED(attached);
  pthread_mutex_lock(&attached->lock);
  treadle_status status = release(attached, version);
  pthread_mutex_unlock(&attached->lock);
  return status;
}
