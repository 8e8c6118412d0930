/* The owner's side of handles: the outlet of a switch, made with its first handle. It has the sheet, the two descriptors that
 * readers get, and the thread that gives them.
 *
 * A version is valid in mode INFER, from the end of the arrow there (so that a bind that failed undoes it unseen) until an arrow
 * takes the window away. All ranks enter that arrow, then each ends the holds on its own window, and none goes on before all
 * have (arrows.c): up to there nothing has changed, so a rank whose window is held makes all of them refuse.
 *
 * Only infer parameters have handles. Windows of training change without a version that says so, and a KV cache and work memory are
 * written by the engine that has them. */
#include "switch/handle.h"
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "group/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POOL = TREADLE_SERVICE_POOL, SHEET = TREADLE_SERVICE_SHEET };
static const double LOOK_EVERY = 10e-3 /* seconds */, ALONE = 0.8;

struct treadle_outlet {
  treadle_handle handle;
  treadle_sheet *sheet;
  int descriptors[2]; /* POOL, which may only be read, and SHEET */
  treadle_service *service;
  pid_t process;
};

/* ---- The sheet ---- */

/* Its size is sealed: nobody who has the descriptor can cut it, which would end who touches it. */
static treadle_status make_file(treadle_outlet *outlet, int64_t bytes) {
  int file = outlet->descriptors[SHEET] = memfd_create("treadle-sheet", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0 || fallocate(file, 0, 0, (off_t)bytes) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return treadle_fail(TREADLE_SYSTEM, "handle: no memory for what readers share: %s", strerror(errno));
  void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return treadle_fail(TREADLE_SYSTEM, "handle: what readers share cannot be mapped: %s", strerror(errno));
  outlet->sheet = at;
  return TREADLE_OK;
}

static treadle_status fill_sheet(const treadle_switch *sw, treadle_sheet *sheet, int32_t storages,
                                 int64_t bytes) {
  const treadle_page_tables *tables = &sw->space.tables;
  sheet->format = TREADLE_HANDLE_FORMAT;
  sheet->storages = storages;
  sheet->bytes = bytes;
  snprintf(sheet->layout, sizeof sheet->layout, "%s", treadle_layout_text(sw->layouts[TREADLE_INFER]));
  for (int32_t i = 0; i < storages; i++) {
    treadle_sheet_storage *storage = &treadle_sheet_storages(sheet)[i];
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_status status = treadle_plan_storage(sw->carry.plan, i, &info);
    if (status != TREADLE_OK) return status;
    snprintf(storage->name, sizeof storage->name, "%s", info.name);
    storage->chunk = info.chunk;
    storage->ndim = info.ndim;
    storage->dtype = (int32_t)info.dtype;
    storage->derived = info.derived;
    memcpy(storage->shape, info.shape, sizeof storage->shape);
    storage->offset_bytes = (int64_t)info.offset_bytes;
    storage->bytes = (int64_t)info.bytes;
  }
  if (tables->pages[TREADLE_INFER_PARAMS] > 0)
    memcpy(treadle_sheet_table(sheet), tables->page[TREADLE_INFER_PARAMS],
           (size_t)tables->pages[TREADLE_INFER_PARAMS] * sizeof(int32_t));
  sheet->magic = TREADLE_SHEET_MAGIC;
  return TREADLE_OK;
}

/* The pool's file, opened once more for reading alone: a reader cannot map it for writing. */
static treadle_status open_pool(const treadle_switch *sw, treadle_outlet *outlet) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", sw->device.ops->export(sw->space.pool));
  outlet->descriptors[POOL] = open(path, O_RDONLY | O_CLOEXEC);
  if (outlet->descriptors[POOL] >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "handle: the pool cannot be opened for readers (%s): %s", path,
                      strerror(errno));
}

/* ---- The outlet ---- */

static void release(treadle_outlet *outlet) {
  if (!outlet) return;
  bool own = outlet->process == getpid(); /* else a child made by fork, whose parent goes on */
  if (outlet->sheet && own) {
    atomic_store(&outlet->sheet->closed, 1);
    treadle_sheet_tell(outlet->sheet, 0, atomic_load(&outlet->sheet->committed));
  }
  treadle_service_stop(outlet->service);
  if (outlet->sheet) munmap(outlet->sheet, (size_t)outlet->handle.sheet_bytes);
  for (int i = 0; i < 2; i++)
    if (outlet->descriptors[i] >= 0) close(outlet->descriptors[i]);
  treadle_free(outlet);
}

void treadle_outlet_release(treadle_switch *sw) {
  release(sw->outlet);
  sw->outlet = NULL;
}

static treadle_status create(treadle_switch *sw, treadle_outlet **outlet_p) {
  treadle_status status = TREADLE_OK;
  const treadle_page_tables *tables = &sw->space.tables;
  int32_t storages = treadle_layout_storage_count(sw->layouts[TREADLE_INFER], sw->group->rank);
  treadle_outlet *outlet = treadle_alloc(sizeof *outlet);
  if (!outlet) return treadle_fail(TREADLE_NO_MEMORY, "handle: memory is out");
  memset(outlet, 0, sizeof *outlet); /* padding too: its sum is taken */
  outlet->descriptors[POOL] = outlet->descriptors[SHEET] = -1;
  outlet->process = getpid();
  treadle_handle *h = &outlet->handle;
  h->process = (int32_t)getpid();
  h->start_time = treadle_shm_start_time(getpid());
  TRY(treadle_handle_here(h));
  h->which = TREADLE_INFER_PARAMS;
  h->rank = sw->group->rank;
  h->ranks = sw->group->size;
  h->page_bytes = sw->carry.plan->page_bytes;
  h->pages = tables->pages[TREADLE_INFER_PARAMS];
  h->pool_pages = tables->physical;
  h->window_bytes = (int64_t)tables->bytes[TREADLE_INFER_PARAMS];
  h->sheet_bytes = treadle_sheet_size(storages, h->pages);
  TRY(make_file(outlet, h->sheet_bytes));
  TRY(fill_sheet(sw, outlet->sheet, storages, h->sheet_bytes));
  TRY(open_pool(sw, outlet));
  TRY(treadle_service_start(outlet->descriptors, h->name, &outlet->service));
  treadle_handle_seal(h);
  treadle_service_expect(outlet->service, h->sum);
  *outlet_p = outlet;
out:
  if (status != TREADLE_OK) release(outlet);
  return status;
}

/* ---- What a user calls ---- */

static treadle_status check_window(const treadle_switch *sw, treadle_class which) {
  if (which != TREADLE_INFER_PARAMS)
    REFUSE("handle: of %s; only infer parameters have handles, since only they have versions",
           treadle_class_text(which));
  if (sw->engine.hooks.transforms)
    REFUSE("handle: the engine of rank %d changes the weights in its window (transforms), so that their "
           "names and types are not what lies there",
           sw->group->rank);
  if (sw->terms.options.double_infer) /* readers have mapped one of the two sets of pages */
    REFUSE("handle: the infer parameters of rank %d change their pages with each version (double_infer), "
           "and other processes map one "
           "version alone: make the switch without double_infer",
           sw->group->rank);
  if (sw->carry.own.spans[TREADLE_INFER].count >
      0) /* that memory lies in no file that could be given away */
    REFUSE("handle: %zu storage tensors of rank %d's infer parameters are own tensors, in memory of the "
           "caller, "
           "which other processes cannot map",
           (size_t)sw->carry.own.spans[TREADLE_INFER].count, sw->group->rank);
  return TREADLE_OK;
}

static treadle_status give(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                           size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  TRY(check_window(sw, which));
  if (capacity < sizeof sw->outlet->handle)
    REFUSE("handle: it has %zu bytes, and there is room for %zu", sizeof sw->outlet->handle, capacity);
  if (!sw->outlet) TRY(create(sw, &sw->outlet));
  treadle_holds_settle(sw);
  memcpy(handle, &sw->outlet->handle, sizeof sw->outlet->handle);
  *bytes_p = sizeof sw->outlet->handle;
out:
  return status;
}

treadle_status treadle_switch_handle(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                                     size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED(sw);
  TREADLE_NEED(handle);
  TREADLE_NEED(bytes_p);
  TRY(TREADLE_CHECK_ENUM(which, TREADLE_CLASSES));
  TRY(treadle_helm_take(sw->helm, "handle"));
  status = give(sw, which, handle, capacity, bytes_p);
  treadle_helm_leave(sw->helm);
out:
  return status;
}

treadle_status treadle_switch_withdraw(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_status status = treadle_helm_take(sw->helm, "withdraw");
  if (status != TREADLE_OK) return status;
  treadle_outlet_release(sw);
  treadle_helm_leave(sw->helm);
  return TREADLE_OK;
}

/* ---- Versions and holds, for the arrows ---- */

void treadle_holds_settle(treadle_switch *sw) {
  if (!sw->outlet) return;
  uint64_t valid = sw->mode == TREADLE_INFER && !sw->stale ? sw->version : 0;
  if (atomic_load(&sw->outlet->sheet->valid) != valid ||
      atomic_load(&sw->outlet->sheet->committed) != sw->version)
    treadle_sheet_tell(sw->outlet->sheet, valid, sw->version);
}

static treadle_status refuse(const treadle_switch *sw, const treadle_hold *place, double waited) {
  uint64_t process = atomic_load(&place->process);
  double since = (double)atomic_load(&place->since) / 1e6;
  return treadle_fail(TREADLE_TIMEOUT,
                      "the infer parameters of rank %d are held: process %d has held version %llu for %.1f "
                      "s, and did not let go in %.1f s",
                      sw->group->rank, (int)treadle_hold_number(process),
                      (unsigned long long)atomic_load(&place->version), treadle_clock_seconds() - since,
                      waited);
}

treadle_status treadle_holds_end(treadle_switch *sw, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  if (!sw->outlet) return TREADLE_OK;
  treadle_sheet *sheet = sw->outlet->sheet;
  double begin = treadle_clock_seconds(), now = begin, limit = sw->terms.timeout_seconds;
  if (!epoch) limit *= ALONE; /* the others, who wait as long as that to hear how it went, shall hear it */
  double deadline = begin + limit;
  treadle_sheet_tell(sheet, 0, sw->version);
  for (int place; (place = treadle_sheet_find_hold(sheet)) >= 0; now = treadle_clock_seconds()) {
    TRY(epoch ? treadle_carry_check(&sw->carry, epoch) : treadle_helm_check(sw->helm));
    if (now >= deadline) TRY(refuse(sw, &sheet->holds[place], now - begin));
    treadle_sheet_wait_free(sheet, place, deadline - now < LOOK_EVERY ? deadline - now : LOOK_EVERY);
  }
out:
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  return status;
}
