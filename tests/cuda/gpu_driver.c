/* What treadle relies on, and what it only takes as it is. Without the first the stage fails; of the second the
 * answers are printed. The last one may end the context: nothing comes after it. */
#include "cuda/gpu.h"

#include "memory/driver_cuda.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct trial {
  gpu *g;
  const treadle_cuda_driver *driver;
  CUdevice card;
  size_t page;
} trial;

#define CALL(t, function, ...)                                                                             \
  do {                                                                                                     \
    const CUresult result_ = (t)->driver->function(__VA_ARGS__);                                           \
    if (result_ != CUDA_SUCCESS)                                                                           \
      TRY(treadle_fail(TREADLE_SYSTEM, "line %d: %s", __LINE__,                                            \
                       treadle_cuda_words((t)->driver, #function, result_)));                              \
  } while (0)

static CUmemAllocationProp prop_of(const trial *t) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, t->card}};
}

/* An answer of the driver, by its name: "CUDA_ERROR_INVALID_VALUE". */
static void print_result(const trial *t, const char *key, CUresult result) {
  const char *name = NULL;
  if (t->driver->error_name(result, &name) != CUDA_SUCCESS || !name) name = "an error without a name";
  treadle_json_out_text(&t->g->out, key, name);
}

static treadle_status make(const trial *t, size_t bytes, CUmemGenericAllocationHandle *handle_p) {
  treadle_status status = TREADLE_OK;
  const CUmemAllocationProp prop = prop_of(t);
  CALL(t, handle_create, handle_p, bytes, &prop, 0);
out:
  return status;
}

/* A window on the first page of a handle. */
static treadle_status open_window(const trial *t, CUmemGenericAllocationHandle handle, int access,
                                  CUdeviceptr *at_p) {
  treadle_status status = TREADLE_OK;
  const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, t->card}, access};
  CALL(t, reserve, at_p, t->page, 0, 0, 0);
  CALL(t, map, *at_p, t->page, 0, handle, 0);
  CALL(t, set_access, *at_p, t->page, &wanted, 1);
out:
  return status;
}

static treadle_status close_window(const trial *t, CUdeviceptr at) {
  treadle_status status = TREADLE_OK;
  CALL(t, unmap, at, t->page);
  CALL(t, reserve_free, at, t->page);
out:
  return status;
}

static treadle_status put(const trial *t, CUdeviceptr at, uint64_t value) {
  treadle_status status = TREADLE_OK;
  CALL(t, copy, at, (uintptr_t)&value, sizeof value, NULL);
  CALL(t, stream_synchronize, NULL);
out:
  return status;
}

static treadle_status get(const trial *t, CUdeviceptr at, uint64_t *value_p) {
  treadle_status status = TREADLE_OK;
  CALL(t, copy, (uintptr_t)value_p, at, sizeof *value_p, NULL);
  CALL(t, stream_synchronize, NULL);
out:
  return status;
}

/* ---- The stage ---- */

static treadle_status look_at_pages(trial *t) {
  treadle_status status = TREADLE_OK;
  const CUmemAllocationProp prop = prop_of(t);
  size_t recommended;
  CALL(t, granularity, &t->page, &prop, 0);
  CALL(t, granularity, &recommended, &prop, 1);
  treadle_json_out_int(&t->g->out, "page_bytes", (int64_t)t->page);
  treadle_json_out_int(&t->g->out, "page_bytes_recommended", (int64_t)recommended);
out:
  return status;
}

/* Pages of a switch are handles, since a handle is mapped as a whole. */
static treadle_status look_at_parts(trial *t) {
  treadle_status status;
  CUmemGenericAllocationHandle handle = 0, small;
  CUdeviceptr at = 0;
  const CUmemAllocationProp prop = prop_of(t);
  TRY(make(t, 2 * t->page, &handle));
  CALL(t, reserve, &at, 2 * t->page, 0, 0, 0);
  CUresult result = t->driver->map(at, t->page, t->page, handle, 0);
  print_result(t, "map_at_an_offset", result);
  if (result == CUDA_SUCCESS) CALL(t, unmap, at, t->page);
  result = t->driver->map(at, t->page, 0, handle, 0);
  print_result(t, "map_a_part", result);
  if (result == CUDA_SUCCESS) CALL(t, unmap, at, t->page);
  CALL(t, reserve_free, at, 2 * t->page);
  CALL(t, handle_release, handle);
  result = t->driver->handle_create(&small, t->page / 2, &prop, 0);
  print_result(t, "half_a_page", result);
  if (result == CUDA_SUCCESS) CALL(t, handle_release, small);
out:
  return status;
}

/* A page shared between both layouts has an address in each window. */
static treadle_status look_at_two_addresses(trial *t) {
  treadle_status status;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr one, two;
  uint64_t value = 0;
  TRY(make(t, t->page, &handle));
  TRY(open_window(t, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &one));
  TRY(open_window(t, handle, CU_MEM_ACCESS_FLAGS_PROT_READ, &two));
  TRY(get(t, one, &value));
  treadle_json_out_bool(&t->g->out, "made_of_zeros", value == 0);
  TRY(put(t, one, 0x1122334455667788));
  TRY(get(t, two, &value));
  if (value != 0x1122334455667788) gpu_fault(t->g, "two addresses of one page have different bytes");
  TRY(close_window(t, one));
  CALL(t, handle_release, handle); /* its memory stays while it is mapped */
  TRY(get(t, two, &value));
  if (value != 0x1122334455667788)
    gpu_fault(t->g, "a released handle's memory has gone, though it is mapped");
  TRY(close_window(t, two));
out:
  return status;
}

static treadle_status look_at_import(trial *t) {
  treadle_status status;
  CUmemGenericAllocationHandle handle, imported;
  CUdeviceptr own, seen, writable = 0;
  uint64_t value = 0;
  int file;
  TRY(make(t, t->page, &handle));
  TRY(open_window(t, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &own));
  TRY(put(t, own, 42));
  CALL(t, handle_export, &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  CALL(t, handle_import, &imported, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(file);
  TRY(open_window(t, imported, CU_MEM_ACCESS_FLAGS_PROT_READ, &seen));
  TRY(get(t, seen, &value));
  if (value != 42) gpu_fault(t->g, "an imported page has other bytes than the exported one");
  const bool can_write =
      open_window(t, imported, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &writable) == TREADLE_OK;
  treadle_json_out_bool(&t->g->out, "import_can_be_written", can_write);
  if (can_write) TRY(close_window(t, writable));
  TRY(close_window(t, seen));
  TRY(close_window(t, own));
  CALL(t, handle_release, imported);
  CALL(t, handle_release, handle);
out:
  return status;
}

/* What tensors of a user are asked before treadle writes there. */
static treadle_status look_at_pointers(trial *t) {
  treadle_status status = TREADLE_OK;
  CUdeviceptr at, reserved;
  int kind = 0;
  unsigned char mapped = 1;
  CALL(t, alloc, &at, t->page);
  CALL(t, pointer_attribute, &kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + t->page - 1);
  if (kind != CU_MEMORYTYPE_DEVICE)
    gpu_fault(t->g, "the driver does not know memory of cuMemAlloc as a device's");
  CALL(t, alloc_free, at);
  print_result(t, "kind_of_freed_memory",
               t->driver->pointer_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  CALL(t, reserve, &reserved, t->page, 0, 0, 0);
  const CUresult result = t->driver->pointer_attribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, reserved);
  print_result(t, "reserved_addresses", result);
  treadle_json_out_bool(&t->g->out, "reserved_is_mapped", result == CUDA_SUCCESS && mapped);
  CALL(t, reserve_free, reserved, t->page);
out:
  return status;
}

/* What a page costs is given back with it. */
static treadle_status look_at_room(trial *t) {
  enum { PAGES = 16 };
  treadle_status status = TREADLE_OK;
  CUmemGenericAllocationHandle handles[PAGES];
  size_t before, during, after, all;
  CALL(t, memory_info, &before, &all);
  for (int i = 0; i < PAGES; i++) TRY(make(t, t->page, &handles[i]));
  CALL(t, memory_info, &during, &all);
  for (int i = 0; i < PAGES; i++) CALL(t, handle_release, handles[i]);
  CALL(t, memory_info, &after, &all);
  treadle_json_out_int(&t->g->out, "bytes_of_16_pages", (int64_t)before - (int64_t)during);
  treadle_json_out_int(&t->g->out, "bytes_not_given_back", (int64_t)before - (int64_t)after);
out:
  return status;
}

/* "the call: CUDA_ERROR_...", "the work: ...", or "goes through" */
static treadle_status write_to_read_only(trial *t) {
  treadle_status status;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  uint64_t value = 7;
  TRY(make(t, t->page, &handle));
  TRY(open_window(t, handle, CU_MEM_ACCESS_FLAGS_PROT_READ, &at));
  CUresult result = t->driver->copy(at, (uintptr_t)&value, sizeof value, NULL);
  if (result == CUDA_SUCCESS) result = t->driver->stream_synchronize(NULL);
  print_result(t, "write_to_read_only", result);
out:
  return status;
}

treadle_status gpu_driver(gpu *g) {
  treadle_status status;
  trial t = {.g = g};
  CUcontext context;
  int version = 0;
  TRY(treadle_cuda_driver_get(&t.driver));
  CALL(&t, version, &version);
  CALL(&t, device_get, &t.card, g->number);
  CALL(&t, context_retain, &context, t.card);
  CALL(&t, context_push, context);
  treadle_json_out_int(&g->out, "version", version);
  TRY(look_at_pages(&t));
  TRY(look_at_parts(&t));
  TRY(look_at_two_addresses(&t));
  TRY(look_at_import(&t));
  TRY(look_at_pointers(&t));
  TRY(look_at_room(&t));
  gpu_say(g, "CUDA %d.%d, pages of %zu KiB; two addresses of a page, export and import work",
          version / 1000, version % 1000 / 10, t.page >> 10);
  TRY(write_to_read_only(&t));
out:
  return status;
}
