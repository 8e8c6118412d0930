/* Host memory that devices reach, plain device memory, and near addresses. */
#include "cuda/fake_parts.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

fake_table fake_pins;
pthread_rwlock_t fake_pins_lock = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic uint64_t pins_version = 1; /* each change makes another one */

/* ---- Addresses ---- */

bool fake_is_pinned(uint64_t address, uint64_t bytes) {
  pthread_rwlock_rdlock(&fake_pins_lock);
  const fake_span *pin = fake_table_find(&fake_pins, address);
  const bool found = pin && address + bytes <= pin->at + pin->bytes;
  pthread_rwlock_unlock(&fake_pins_lock);
  return found;
}

bool fake_is_accessible(uint64_t address, uint64_t bytes, bool written) {
  const unsigned wanted = written ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  for (uint64_t at = address; at < address + bytes;) {
    const fake_mapping *m = fake_table_find(&fake_mappings, at);
    unsigned flags = 0;
    for (int d = 0; m && d < FAKE_CARDS; d++) flags |= m->access[d];
    if ((flags & wanted) != wanted) return false;
    at = m->span.at + m->span.bytes;
  }
  return true;
}

/* 0: the address is not pinned. A thread remembers where it found the last one, until a pin comes or goes. */
static uint64_t pinned_near(uint64_t address) {
  static _Thread_local struct {
    uint64_t version;
    fake_span span;
  } last;
  if (last.version != atomic_load(&pins_version) || address - last.span.at >= last.span.bytes) {
    pthread_rwlock_rdlock(&fake_pins_lock);
    const fake_span *pin = fake_table_find(&fake_pins, address);
    last.version = atomic_load(&pins_version);
    last.span = pin ? *pin : (fake_span){0, 0};
    pthread_rwlock_unlock(&fake_pins_lock);
  }
  return address - last.span.at < last.span.bytes ? address : 0;
}

/* The last bytes of the space are in no mapping; values of any type would be aligned there. */
FAKE_API uint64_t fake_cuda_near(uint64_t address) {
  if (fake_is_device(address)) return address + fake_space_bytes;
  return pinned_near(address) ? address : fake_space + 2 * fake_space_bytes - 64;
}

/* ---- Pinned memory ---- */

static void add_pin(fake_pin given) {
  fake_pin *pin = malloc(sizeof *pin);
  if (!pin) abort();
  *pin = given;
  pthread_rwlock_wrlock(&fake_pins_lock);
  fake_table_add(&fake_pins, &pin->span);
  atomic_fetch_add(&pins_version, 1);
  pthread_rwlock_unlock(&fake_pins_lock);
  fake_level_add(&fake_ledger.pinned_bytes, (int64_t)pin->span.bytes);
}

/* Takes away the pin that begins there; NULL: none does, or it came otherwise. */
static fake_pin *take_pin(const void *memory, bool is_own) {
  fake_pin *pin = fake_table_find(&fake_pins, fake_address(memory));
  if (!pin || pin->span.at != fake_address(memory) || pin->is_own != is_own) return NULL;
  pthread_rwlock_wrlock(&fake_pins_lock);
  const size_t i = fake_table_from(&fake_pins, pin->span.at);
  fake_table_remove(&fake_pins, i, i + 1);
  atomic_fetch_add(&pins_version, 1);
  pthread_rwlock_unlock(&fake_pins_lock);
  fake_level_add(&fake_ledger.pinned_bytes, -(int64_t)pin->span.bytes);
  return pin;
}

FAKE_API CUresult cuMemHostAlloc(void **memory_p, size_t bytes, unsigned flags) {
  FAKE_ENTER(cuMemHostAlloc);
  FAKE_LOCKED;
  const unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!memory_p || bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  add_pin((fake_pin){.span = {fake_address(at), bytes}, .is_own = true, .device = device});
  *memory_p = at;
  return CUDA_SUCCESS;
}

/* As the driver does, after what devices still do. */
FAKE_API CUresult cuMemFreeHost(void *memory) {
  FAKE_ENTER(cuMemFreeHost);
  FAKE_LOCKED;
  fake_finish_all();
  fake_pin *pin = take_pin(memory, true);
  if (!pin) return CUDA_ERROR_INVALID_VALUE;
  munmap(memory, pin->span.bytes);
  free(pin);
  return CUDA_SUCCESS;
}

/* Whether all of its pages can be there: what the system asks of memory that it pins. */
static bool can_be_pinned(void *memory, size_t bytes, bool read_only) {
  const uintptr_t page = 4096, start = (uintptr_t)memory / page * page;
  const size_t length = (uintptr_t)memory + bytes - start;
  return madvise(fake_pointer(start), length, read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE) == 0 ||
         errno == EINVAL; /* an older system */
}

FAKE_API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  FAKE_ENTER(cuMemHostRegister);
  FAKE_LOCKED;
  const unsigned known =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!memory || bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  if (!fake_table_is_free(&fake_pins, fake_address(memory), bytes))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (fake_is_device(fake_address(memory)) ||
      !can_be_pinned(memory, bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY))
    return CUDA_ERROR_INVALID_VALUE;
  add_pin((fake_pin){.span = {fake_address(memory), bytes}, .device = device});
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostUnregister(void *memory) {
  FAKE_ENTER(cuMemHostUnregister);
  FAKE_LOCKED;
  fake_pin *pin = take_pin(memory, false);
  if (!pin) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  free(pin);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address_p, void *memory, unsigned flags) {
  FAKE_ENTER(cuMemHostGetDevicePointer);
  if (!address_p || flags != 0 || !fake_is_pinned(fake_address(memory), 1)) return CUDA_ERROR_INVALID_VALUE;
  *address_p = fake_address(memory);
  return CUDA_SUCCESS;
}

/* ---- Plain device memory: a window of its own ---- */

static CUresult map_plain(fake_window *w) {
  fake_memory *memory = fake_memory_take(&fake_cards[w->device], w->span.bytes);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = fake_map(w->span.at, memory);
  fake_memory_release(memory); /* the mapping uses it, too */
  if (result == CUDA_SUCCESS)
    result = fake_set_access(w->span.at, w->span.bytes, w->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return result;
}

static void end_window(fake_window *w) {
  const size_t i = fake_table_from(&fake_windows, w->span.at);
  fake_table_remove(&fake_windows, i, i + 1);
  fake_level_add(&fake_ledger.ranges, -1);
  free(w);
}

FAKE_API CUresult cuMemAlloc_v2(CUdeviceptr *address_p, size_t bytes) {
  FAKE_ENTER(cuMemAlloc);
  FAKE_LOCKED;
  fake_window *w;
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address_p || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t step = fake_card_granularity(&fake_cards[device]);
  CUresult result = fake_reserve((bytes + step - 1) / step * step, step, device, &w);
  if (result != CUDA_SUCCESS) return result;
  w->is_alloc = true;
  result = map_plain(w);
  if (result != CUDA_SUCCESS)
    end_window(w);
  else
    *address_p = w->span.at;
  return result;
}

FAKE_API CUresult cuMemFree_v2(CUdeviceptr address) {
  FAKE_ENTER(cuMemFree);
  FAKE_LOCKED;
  fake_finish_all();
  fake_window *w = fake_table_find(&fake_windows, address);
  if (!w || !w->is_alloc || w->span.at != address) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = fake_unmap(w->span.at, w->span.bytes);
  end_window(w);
  return result;
}
