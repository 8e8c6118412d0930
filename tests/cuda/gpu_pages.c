/* What the driver takes for pages, a call, and a pool of treadle's: made, mapped, and given back whole. Pages are
 * made when a switch is created; no switch calls any of this later. */
#include "cuda/gpu.h"

#include "base/clock.h"
#include "memory/device.h"
#include "memory/driver_cuda.h"
#include "memory/state_cuda.h"

#include <unistd.h>

enum { MOST = 64 };

typedef enum step { CREATE, MAP, ACCESS, EXPORT, IMPORT, UNMAP, RELEASE, STEPS } step;
static const char *const names[STEPS] = {"create", "map",   "access_of_all", "export",
                                         "import", "unmap", "release"};

typedef struct pages {
  const treadle_cuda_driver *driver;
  int card, count;
  size_t bytes;
  CUdeviceptr at;
  CUmemGenericAllocationHandle handles[MOST], imported[MOST];
  int files[MOST];
} pages;

static CUresult do_step(pages *p, step which, int i) {
  const treadle_cuda_driver *driver = p->driver;
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, p->card};
  const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = here};
  const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUdeviceptr at = p->at + (CUdeviceptr)i * p->bytes;
  switch (which) {
  case CREATE: return driver->handle_create(&p->handles[i], p->bytes, &prop, 0);
  case MAP: return driver->map(at, p->bytes, 0, p->handles[i], 0);
  case ACCESS: return i ? CUDA_SUCCESS : driver->set_access(p->at, p->bytes * (size_t)p->count, &access, 1);
  case EXPORT:
    return driver->handle_export(&p->files[i], p->handles[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  case IMPORT:
    return driver->handle_import(&p->imported[i], (void *)(intptr_t)p->files[i],
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  case UNMAP: return driver->unmap(at, p->bytes);
  case RELEASE: return driver->handle_release(p->handles[i]);
  case STEPS: break;
  }
  return CUDA_SUCCESS;
}

static treadle_status measure(gpu *g, pages *p) {
  treadle_status status = TREADLE_OK;
  double micros[STEPS];
  CUresult result = p->driver->reserve(&p->at, p->bytes * (size_t)p->count, 0, 0, 0);
  for (step s = CREATE; s < STEPS; s++) {
    const double begun = treadle_clock_seconds();
    for (int i = 0; i < p->count && result == CUDA_SUCCESS; i++) result = do_step(p, s, i);
    micros[s] = (treadle_clock_seconds() - begun) * 1e6 / (s == ACCESS ? 1 : p->count);
    if (result != CUDA_SUCCESS)
      TRY(treadle_fail(TREADLE_SYSTEM, "%s", treadle_cuda_words(p->driver, names[s], result)));
  }
  for (int i = 0; i < p->count; i++) {
    close(p->files[i]);
    (void)p->driver->handle_release(p->imported[i]);
  }
  (void)p->driver->reserve_free(p->at, p->bytes * (size_t)p->count);
  treadle_json_out_open(&g->out, NULL, '{');
  treadle_json_out_int(&g->out, "page_bytes", (int64_t)p->bytes);
  treadle_json_out_int(&g->out, "pages", p->count);
  for (step s = CREATE; s < STEPS; s++) treadle_json_out_real(&g->out, names[s], micros[s]);
  treadle_json_out_close(&g->out, '}');
  if (p->bytes == (size_t)4 << 20)
    gpu_say(g, "a page of 4 MiB: create %.0f us, map %.1f, export %.1f, import %.1f; access of %d: %.0f us",
            micros[CREATE], micros[MAP], micros[EXPORT], micros[IMPORT], p->count, micros[ACCESS]);
out:
  return status;
}

static treadle_status measure_all(gpu *g, const treadle_device *device) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_json_out_open(&g->out, "microseconds", '[');
  treadle_cuda_enter(cuda);
  for (size_t bytes = (size_t)2 << 20; bytes <= (size_t)16 << 20 && status == TREADLE_OK; bytes *= 2) {
    pages p = {
        .driver = cuda->driver, .card = cuda->card, .bytes = bytes, .count = g->is_stand_in ? 8 : MOST};
    if (bytes == (size_t)8 << 20 || bytes % g->page_bytes != 0) continue;
    if (p.bytes * (size_t)p.count > g->left_bytes / 2) p.count = 1;
    status = measure(g, &p);
  }
  treadle_cuda_leave(cuda);
  treadle_json_out_close(&g->out, ']');
  return status;
}

/* Memory is back when the pool is gone. */
static treadle_status try_pool(gpu *g, const treadle_device *device) {
  treadle_status status;
  const treadle_device_ops *ops = device->ops;
  const int64_t page = g->page_bytes > (size_t)4 << 20 ? (int64_t)g->page_bytes : 4 << 20;
  const int64_t count = (g->is_stand_in ? (int64_t)64 << 20 : (int64_t)1 << 30) / page;
  treadle_device_room before, during, after;
  treadle_pool *pool = NULL;
  void *window;
  TRY(ops->room(device, &before));
  const double begun = treadle_clock_seconds();
  TRY(ops->create(device, count, page, count * page, NULL, 0, &pool));
  TRY(ops->map(pool, NULL, count, &window));
  const double made = treadle_clock_seconds();
  TRY(ops->room(device, &during));
  ops->destroy(pool);
  pool = NULL;
  const double ended = treadle_clock_seconds();
  TRY(ops->room(device, &after));
  treadle_json_out_int(&g->out, "pool_bytes", count * page);
  treadle_json_out_real(&g->out, "pool_seconds_to_make", made - begun);
  treadle_json_out_real(&g->out, "pool_seconds_to_end", ended - made);
  treadle_json_out_int(&g->out, "left_before", (int64_t)before.left_bytes);
  treadle_json_out_int(&g->out, "left_during", (int64_t)during.left_bytes);
  treadle_json_out_int(&g->out, "left_after", (int64_t)after.left_bytes);
  if (after.left_bytes + (size_t)(count * page) / 2 < before.left_bytes)
    gpu_fault(g, "a destroyed pool has not given its memory back: %zu MiB were free, and %zu MiB are",
              before.left_bytes >> 20, after.left_bytes >> 20);
out:
  if (pool) ops->destroy(pool);
  return status;
}

treadle_status gpu_pages(gpu *g) {
  treadle_status status;
  treadle_device device;
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = g->number};
  TRY(treadle_device_open(&memory, &device));
  status = measure_all(g, &device);
  if (status == TREADLE_OK) status = try_pool(g, &device);
  treadle_device_close(&device);
out:
  return status;
}
