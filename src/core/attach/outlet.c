/* The outlet of a window.
 *
 * The sheet is filled before anybody can have its descriptor. The handle is sealed last, since it has the name of
 * the service's socket; until then the service refuses every handle. From then on only versions and holds change
 * (holds.c). */
#include "attach/outlet.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "group/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const double LOOK_EVERY = 10e-3; /* seconds */

struct treadle_outlet {
  treadle_handle handle;
  treadle_sheet *sheet;
  int file; /* of the sheet */
  treadle_service *service;
  pid_t process;
};

/* ---- The sheet ---- */

/* Its size is sealed: a reader that cut the file would end every process that touches the sheet. */
static treadle_status make_file(treadle_outlet *outlet, int64_t bytes) {
  int file = outlet->file = memfd_create("treadle-sheet", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0 || fallocate(file, 0, 0, (off_t)bytes) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return treadle_fail(TREADLE_SYSTEM, "handle: no memory for what readers share: %s", strerror(errno));
  void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return treadle_fail(TREADLE_SYSTEM, "handle: what readers share cannot be mapped: %s", strerror(errno));
  outlet->sheet = at;
  return TREADLE_OK;
}

static void fill_storage(const treadle_storage_info *info, treadle_sheet_storage *storage) {
  snprintf(storage->name, sizeof storage->name, "%s", info->name);
  storage->chunk = info->chunk;
  storage->ndim = info->ndim;
  storage->dtype = (int32_t)info->dtype;
  storage->derived = info->derived;
  memcpy(storage->shape, info->shape, sizeof storage->shape);
  storage->offset_bytes = (int64_t)info->offset_bytes;
  storage->bytes = (int64_t)info->bytes;
}

static void fill_sheet(const treadle_outlet_window *window, treadle_sheet *sheet, int64_t bytes) {
  sheet->format = TREADLE_HANDLE_FORMAT;
  sheet->storages = window->storage_count;
  sheet->bytes = bytes;
  snprintf(sheet->layout, sizeof sheet->layout, "%s", window->layout);
  for (int32_t i = 0; i < window->storage_count; i++)
    fill_storage(&window->storages[i], &treadle_sheet_storages(sheet)[i]);
  if (window->pages > 0)
    memcpy(treadle_sheet_table(sheet), window->table, (size_t)window->pages * sizeof(int32_t));
  sheet->magic = TREADLE_SHEET_MAGIC;
}

/* What could not be exported to a reader is said now: a handle that nobody can use is refused. */
static treadle_status try_export(const treadle_outlet_window *window) {
  const treadle_device_ops *ops = window->device->ops;
  int descriptor;
  const int64_t count = ops->export_count(window->pool);
  if (count == 0) return TREADLE_OK;
  const treadle_status status = ops->export_part(window->pool, count - 1, 1, true, &descriptor);
  if (status != TREADLE_OK) return treadle_fail_in(status, "handle: ");
  close(descriptor);
  return TREADLE_OK;
}

/* ---- Its life ---- */

static treadle_status fill_handle(const treadle_outlet_window *window, treadle_handle *h) {
  treadle_status status = TREADLE_OK;
  treadle_device_room room;
  h->process = (int32_t)getpid();
  h->start_time = treadle_shm_start_time(getpid());
  TRY(treadle_handle_here(h));
  h->which = window->which;
  h->rank = window->rank;
  h->ranks = window->ranks;
  h->kind = window->device->kind;
  h->device = window->device->number;
  TRY(window->device->ops->room(window->device, &room));
  h->device_id = room.id;
  h->page_bytes = window->page_bytes;
  h->pages = window->pages;
  h->pool_pages = window->pool_pages;
  h->window_bytes = window->bytes;
  h->sheet_bytes = treadle_sheet_size(window->storage_count, window->pages);
out:
  return status;
}

treadle_status treadle_outlet_create(const treadle_outlet_window *window, treadle_outlet **outlet_p) {
  treadle_status status = TREADLE_OK;
  treadle_outlet *outlet = treadle_alloc(sizeof *outlet);
  *outlet_p = NULL;
  if (!outlet) return treadle_fail(TREADLE_NO_MEMORY, "handle: memory is out");
  memset(outlet, 0, sizeof *outlet); /* padding too: its sum is taken */
  outlet->file = -1;
  outlet->process = getpid();
  treadle_handle *h = &outlet->handle;
  TRY(fill_handle(window, h));
  TRY(make_file(outlet, h->sheet_bytes));
  fill_sheet(window, outlet->sheet, h->sheet_bytes);
  TRY(try_export(window));
  const treadle_service_files files = {
      .sheet = outlet->file, .device = window->device, .pool = window->pool};
  TRY(treadle_service_start(&files, h->name, &outlet->service));
  treadle_handle_seal(h);
  treadle_service_expect(outlet->service, h->sum);
  *outlet_p = outlet;
out:
  if (status != TREADLE_OK) treadle_outlet_destroy(outlet);
  return status;
}

void treadle_outlet_destroy(treadle_outlet *outlet) {
  if (!outlet) return;
  bool own = outlet->process == getpid(); /* else a child made by fork, whose parent goes on */
  if (outlet->sheet && own) {
    atomic_store(&outlet->sheet->closed, 1);
    treadle_sheet_tell(outlet->sheet, 0, atomic_load(&outlet->sheet->committed));
  }
  treadle_service_stop(outlet->service);
  if (outlet->sheet) munmap(outlet->sheet, (size_t)outlet->handle.sheet_bytes);
  if (outlet->file >= 0) close(outlet->file);
  treadle_free(outlet);
}

const treadle_handle *treadle_outlet_handle(const treadle_outlet *outlet) { return &outlet->handle; }

/* ---- Versions and holds ---- */

void treadle_outlet_tell(treadle_outlet *outlet, uint64_t valid, uint64_t committed) {
  if (atomic_load(&outlet->sheet->valid) != valid || atomic_load(&outlet->sheet->committed) != committed)
    treadle_sheet_tell(outlet->sheet, valid, committed);
}

static treadle_status refuse(const treadle_outlet *outlet, const treadle_hold *place, double waited) {
  uint64_t process = atomic_load(&place->process);
  double since = (double)atomic_load(&place->since) / 1e6;
  return treadle_fail(TREADLE_TIMEOUT,
                      "the infer parameters of rank %d are held: process %d has held version %llu for %.1f "
                      "s, and did not let go in %.1f s",
                      outlet->handle.rank, (int)treadle_hold_number(process),
                      (unsigned long long)atomic_load(&place->version), treadle_clock_seconds() - since,
                      waited);
}

treadle_status treadle_outlet_end_holds(treadle_outlet *outlet, uint64_t committed, double seconds,
                                        treadle_status (*check)(void *context), void *context) {
  treadle_status status = TREADLE_OK;
  treadle_sheet *sheet = outlet->sheet;
  double begin = treadle_clock_seconds(), now = begin, deadline = begin + seconds;
  treadle_sheet_tell(sheet, 0, committed);
  for (int place; (place = treadle_sheet_find_hold(sheet)) >= 0; now = treadle_clock_seconds()) {
    TRY(check(context));
    if (now >= deadline) TRY(refuse(outlet, &sheet->holds[place], now - begin));
    treadle_sheet_wait_free(sheet, place, deadline - now < LOOK_EVERY ? deadline - now : LOOK_EVERY);
  }
out:
  return status;
}
