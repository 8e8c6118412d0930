/* Memory of a CUDA device as a device: state_cuda.h has the parts. */
#include "memory/device_cuda.h"

#include "memory/state_cuda.h"

/* ---- Memory of others ---- */

/* What keeps the byte from being read and written as memory of this device. */
static const char *fault_at(treadle_cuda *cuda, const char *at) {
  int kind = 0, managed = 0, card = -1, mapped = 0;
  if (!treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at, &kind))
    return "the driver does not know that memory: it is the host's, or it was freed";
  if (treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_IS_MANAGED, at, &managed) && managed)
    return "that memory is managed: the driver moves it";
  if (kind != CU_MEMORYTYPE_DEVICE) return "that memory is the host's, not the device's";
  if (!treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at, &card) || card != cuda->card)
    return "that memory is another device's";
  if (treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_MAPPED, at, &mapped) && !mapped)
    return "those addresses have no memory now";
  return NULL;
}

static const char *fault(const treadle_device *device, const void *memory, size_t bytes,
                         treadle_maps **maps_p) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  (void)maps_p;
  treadle_cuda_enter(cuda);
  const char *at = memory;
  const char *words = fault_at(cuda, at);
  if (!words && bytes > 1) words = fault_at(cuda, at + bytes - 1);
  if (cuda->failed) words = "the driver does not answer: the device has failed";
  treadle_cuda_leave(cuda);
  return words;
}

/* ---- Room ---- */

/* Cards are told apart by their UUID, from whichever process and under whichever number they are seen. */
static treadle_status room(const treadle_device *device, treadle_device_room *room_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  *room_p = (treadle_device_room){0};
  treadle_cuda_enter(cuda);
  TRY(treadle_cuda_say(cuda));
  CUDA_TRY(cuda, "cuMemGetInfo", cuda->driver->memory_info(&room_p->left_bytes, &room_p->bytes));
  room_p->id = treadle_cuda_card_id(cuda->driver, cuda->card);
out:
  treadle_cuda_leave(cuda);
  return status;
}

static void figures(const treadle_device *device, treadle_device_figures *figures_p) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  *figures_p = cuda->figures;
  treadle_cuda_leave(cuda);
}

/* ---- Pages ---- */

/* The switch says which page nobody may touch; here nothing keeps others from it. */
static treadle_status protect(treadle_pool *pool, void *at, size_t bytes, treadle_access access) {
  (void)pool, (void)at, (void)bytes, (void)access;
  return TREADLE_OK;
}

static treadle_status close_window(treadle_pool *pool, void *base, size_t bytes, bool closed) {
  (void)pool, (void)base, (void)bytes, (void)closed;
  return TREADLE_OK;
}

/* ---- Memory beside pools ---- */

static void *scratch(const treadle_device *device, size_t bytes) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  CUdeviceptr at = 0;
  treadle_cuda_enter(cuda);
  if (cuda->driver->alloc(&at, bytes + 1) == CUDA_SUCCESS) {
    if (treadle_cuda_ask(cuda))
      treadle_cuda_keep(cuda, "cuMemsetD8Async", cuda->driver->set(at, 0, bytes + 1, cuda->stream));
    (void)treadle_cuda_fence(
        cuda); /* the next call's work waits for the caller's stream, as nothing is under way */
  } else {
    at = 0;
  }
  treadle_cuda_leave(cuda);
  return treadle_cuda_pointer(at);
}

static void scratch_release(const treadle_device *device, void *memory) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  if (!memory) return;
  treadle_cuda_enter(cuda);
  (void)treadle_cuda_fence(cuda);
  treadle_cuda_keep(cuda, "cuMemFree", cuda->driver->alloc_free((uintptr_t)memory));
  treadle_cuda_leave(cuda);
}

static bool is_of_device(treadle_cuda *cuda, const void *memory) {
  int kind = 0;
  return treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory, &kind) &&
         kind == CU_MEMORYTYPE_DEVICE;
}

static treadle_status pin(const treadle_device *device, void *host, size_t bytes) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  if (bytes == 0) return TREADLE_OK;
  treadle_cuda_enter(cuda);
  const bool own = is_of_device(cuda, host);
  TRY(treadle_cuda_say(cuda));
  if (!own) TRY(treadle_cuda_pin(cuda, host, bytes));
out:
  treadle_cuda_leave(cuda);
  return status;
}

/* Where no pinned range begins the driver says so, and nothing is done. */
static void unpin(const treadle_device *device, void *host) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  if (!is_of_device(cuda, host)) cuda->driver->host_unregister(host);
  treadle_cuda_leave(cuda);
}

/* ---- Order ---- */

static treadle_ticket mark(const treadle_device *device) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  const treadle_ticket ticket = treadle_cuda_mark(cuda);
  treadle_cuda_leave(cuda);
  return ticket;
}

static treadle_status passed(const treadle_device *device, treadle_ticket ticket, bool *passed_p) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  const treadle_status status = treadle_cuda_passed(cuda, ticket, passed_p);
  treadle_cuda_leave(cuda);
  return status;
}

/* A call of state_cuda.h, in the context and under the lock. */
static treadle_status entered(const treadle_device *device, treadle_status (*call)(treadle_cuda *cuda)) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  const treadle_status status = call(cuda);
  treadle_cuda_leave(cuda);
  return status;
}

static treadle_status renew(const treadle_device *device) { return entered(device, treadle_cuda_renew); }

static treadle_status fence(const treadle_device *device) { return entered(device, treadle_cuda_fence); }

/* ---- Bytes ---- */

static void move(const treadle_device *device, void *to, const void *from, size_t bytes) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  if (bytes == 0) return;
  treadle_cuda_enter(cuda);
  if (treadle_cuda_ask(cuda))
    treadle_cuda_keep(cuda, "cuMemcpyAsync",
                      cuda->driver->copy((uintptr_t)to, (uintptr_t)from, bytes, cuda->stream));
  treadle_cuda_leave(cuda);
}

static void fill(const treadle_device *device, void *at, int byte, size_t bytes) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  if (bytes == 0) return;
  treadle_cuda_enter(cuda);
  if (treadle_cuda_ask(cuda))
    treadle_cuda_keep(cuda, "cuMemsetD8Async",
                      cuda->driver->set((uintptr_t)at, (unsigned char)byte, bytes, cuda->stream));
  treadle_cuda_leave(cuda);
}

const treadle_device_ops treadle_cuda_ops = {.struct_size = sizeof(treadle_device_ops),
                                             .name = "cuda",
                                             .net_memory = TREADLE_NET_CUDA,
                                             .open = treadle_cuda_open,
                                             .close = treadle_cuda_close,
                                             .renew = renew,
                                             .fault = fault,
                                             .room = room,
                                             .figures = figures,
                                             .create = treadle_cuda_pool_create,
                                             .destroy = treadle_cuda_pool_destroy,
                                             .base = treadle_cuda_pool_base,
                                             .held_bytes = treadle_cuda_pool_held_bytes,
                                             .map = treadle_cuda_pool_map,
                                             .remap = treadle_cuda_pool_remap,
                                             .follow = treadle_cuda_pool_follow,
                                             .trim = treadle_cuda_pool_trim,
                                             .protect = protect,
                                             .close_window = close_window,
                                             .export_count = treadle_cuda_pool_export_count,
                                             .export_part = treadle_cuda_pool_export_part,
                                             .import_begin = treadle_cuda_import_begin,
                                             .import_part = treadle_cuda_import_part,
                                             .view = treadle_cuda_import_view,
                                             .unimport = treadle_cuda_unimport,
                                             .scratch = scratch,
                                             .scratch_release = scratch_release,
                                             .pin = pin,
                                             .unpin = unpin,
                                             .copy = treadle_cuda_copy,
                                             .pack = treadle_cuda_copy,
                                             .blocks = treadle_cuda_make_blocks,
                                             .prepare = treadle_cuda_prepare,
                                             .work_release = treadle_cuda_work_release,
                                             .run = treadle_cuda_run_work,
                                             .mark = mark,
                                             .passed = passed,
                                             .fence = fence,
                                             .plain = &treadle_cuda_ops,
                                             .move = move,
                                             .fill = fill,
                                             .generate = treadle_cuda_generate,
                                             .hash = treadle_cuda_hash};
