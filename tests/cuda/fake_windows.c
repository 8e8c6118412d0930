/* Device addresses: reservations, what is mapped in them, and who may use it. The memory of a mapping lies
 * fake_space_bytes beyond its address. */
#include "cuda/fake_parts.h"

#include <stdlib.h>
#include <sys/mman.h>

uint64_t fake_space, fake_space_bytes;
fake_table fake_windows, fake_mappings;

static uint64_t next; /* nothing was ever reserved from here on */

static bool is_multiple(uint64_t value, uint64_t of) { return value % of == 0; }

/* ---- The space ---- */

enum { NOTHING = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

/* Sanitizers leave less room than the system. */
bool fake_space_open(void) {
  const uint64_t least = (uint64_t)1 << 36, edge = (uint64_t)1 << 30;
  for (uint64_t bytes = (uint64_t)1 << 44; bytes >= least; bytes /= 2) {
    void *at = mmap(NULL, 2 * bytes + edge, PROT_NONE, NOTHING, -1, 0);
    if (at == MAP_FAILED) continue;
    fake_space = (fake_address(at) + edge - 1) / edge * edge;
    fake_space_bytes = bytes;
    next = fake_space;
    return true;
  }
  return false;
}

void fake_space_forget(void) {
  if (fake_space_bytes)
    mmap(fake_pointer(fake_space + fake_space_bytes), fake_space_bytes, PROT_NONE, NOTHING | MAP_FIXED, -1,
         0);
}

static void *near_of(uint64_t address) { return fake_pointer(address + fake_space_bytes); }

/* ---- Reservations ---- */

/* Between two of them lies a gap. */
CUresult fake_reserve(uint64_t bytes, uint64_t alignment, int device, fake_window **window_p) {
  const uint64_t step = fake_card_granularity(&fake_cards[device]);
  if (alignment < step) alignment = step;
  const uint64_t at = (next + alignment - 1) / alignment * alignment;
  if (at + bytes + step > fake_space + fake_space_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  fake_window *w = calloc(1, sizeof *w);
  if (!w) abort();
  *w = (fake_window){.span = {at, bytes}, .device = device};
  next = at + bytes + step;
  fake_table_add(&fake_windows, &w->span);
  fake_level_add(&fake_ledger.ranges, 1);
  *window_p = w;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAddressReserve(CUdeviceptr *address_p, size_t bytes, size_t alignment,
                                      CUdeviceptr wish, unsigned long long flags) {
  FAKE_ENTER(cuMemAddressReserve);
  FAKE_LOCKED;
  fake_window *w;
  (void)wish; /* it may be ignored */
  if (!address_p || flags != 0 || bytes == 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_multiple(bytes, fake_card_granularity(&fake_cards[0]))) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = fake_reserve(bytes, alignment, 0, &w);
  if (result == CUDA_SUCCESS) *address_p = w->span.at;
  return result;
}

/* Whole reservations, in which nothing is mapped. */
FAKE_API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  FAKE_ENTER(cuMemAddressFree);
  FAKE_LOCKED;
  fake_window *w = fake_table_find(&fake_windows, address);
  if (!w || w->is_alloc || w->span.at != address || w->span.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!fake_table_is_free(&fake_mappings, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const size_t i = fake_table_from(&fake_windows, address);
  fake_table_remove(&fake_windows, i, i + 1);
  fake_level_add(&fake_ledger.ranges, -1);
  free(w);
  return CUDA_SUCCESS;
}

/* ---- Mappings ---- */

CUresult fake_map(uint64_t at, fake_memory *memory) {
  const fake_range *range = &memory->range;
  fake_mapping *m = calloc(1, sizeof *m);
  if (!m) abort();
  *m = (fake_mapping){.span = {at, range->bytes}, .memory = memory};
  if (mmap(near_of(at), range->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->card->file,
           (off_t)range->at) == MAP_FAILED) {
    free(m);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->users++;
  fake_table_add(&fake_mappings, &m->span);
  fake_level_add(&fake_ledger.mappings, 1);
  fake_level_add(&fake_ledger.mapped_bytes, (int64_t)range->bytes);
  return CUDA_SUCCESS;
}

/* A handle is mapped as a whole, in one reservation, where nothing is mapped. */
FAKE_API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags) {
  FAKE_ENTER(cuMemMap);
  FAKE_LOCKED;
  fake_memory *memory = fake_handle_memory(handle);
  const fake_window *w = fake_table_find(&fake_windows, address);
  if (!memory || !w || w->is_alloc || flags != 0 || offset != 0 || bytes != memory->range.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_multiple(address, fake_card_granularity(memory->card)) ||
      address + bytes > w->span.at + w->span.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!fake_table_is_free(&fake_mappings, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return fake_map(address, memory);
}

/* ---- Access ---- */

static unsigned access_of(const fake_mapping *m) {
  unsigned flags = 0;
  for (int d = 0; d < FAKE_CARDS; d++) flags |= m->access[d];
  return flags;
}

static void count_accessible(const fake_mapping *m, int sign) {
  if (!access_of(m)) return;
  fake_level_add(&fake_ledger.accessible, sign);
  fake_level_add(&fake_ledger.accessible_bytes, sign * (int64_t)m->span.bytes);
}

static void set_flags(fake_mapping *m, int device, CUmemAccess_flags flags) {
  count_accessible(m, -1);
  m->access[device] = (uint8_t)flags;
  count_accessible(m, 1);
}

static int protection_of(const fake_mapping *m) {
  const unsigned flags = access_of(m);
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
         : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                     : PROT_NONE;
}

/* Neighbours that are protected alike take one call. */
static bool protect(size_t first, size_t end) {
  for (size_t i = first, k; i < end; i = k) {
    const fake_mapping *m = (const fake_mapping *)fake_mappings.spans[i], *last = m;
    const int protection = protection_of(m);
    for (k = i + 1; k < end; k++) {
      const fake_mapping *other = (const fake_mapping *)fake_mappings.spans[k];
      if (protection_of(other) != protection) break;
      last = other;
    }
    const uint64_t bytes = last->span.at + last->span.bytes - m->span.at;
    if (mprotect(near_of(m->span.at), bytes, protection) != 0) return false;
  }
  return true;
}

CUresult fake_set_access(uint64_t at, uint64_t bytes, int device, CUmemAccess_flags flags) {
  size_t first, end;
  if (!fake_table_fills(&fake_mappings, at, bytes, &first, &end)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = first; i < end; i++) {
    fake_mapping *m = (fake_mapping *)fake_mappings.spans[i];
    if (!fake_can_reach(device, (int)(m->memory->card - fake_cards))) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (size_t i = first; i < end; i++) set_flags((fake_mapping *)fake_mappings.spans[i], device, flags);
  return protect(first, end) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What protects the memory is the access of all cards together. */
bool fake_is_reached(uint64_t address) {
  if (fake_card_count < 2) return true;
  FAKE_LOCKED;
  const fake_mapping *m = fake_table_find(&fake_mappings, address);
  return !m || m->access[fake_worker];
}

static CUresult look_at(const CUmemLocation *location) {
  if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return location->id >= 0 && location->id < fake_card_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static bool are_flags(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

FAKE_API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                 size_t count) {
  FAKE_ENTER(cuMemSetAccess);
  FAKE_LOCKED;
  if (!access || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    CUresult result = look_at(&access[i].location);
    if (result == CUDA_SUCCESS && !are_flags(access[i].flags)) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
      result = fake_set_access(address, bytes, access[i].location.id, access[i].flags);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemGetAccess(unsigned long long *flags_p, const CUmemLocation *location,
                                 CUdeviceptr address) {
  FAKE_ENTER(cuMemGetAccess);
  FAKE_LOCKED;
  const fake_mapping *m = fake_table_find(&fake_mappings, address);
  const CUresult result = look_at(location);
  if (result != CUDA_SUCCESS) return result;
  if (!flags_p || !m) return CUDA_ERROR_INVALID_VALUE;
  *flags_p = m->access[location->id];
  return CUDA_SUCCESS;
}

/* ---- Ending ---- */

CUresult fake_unmap(uint64_t at, uint64_t bytes) {
  size_t first, end;
  if (!fake_table_fills(&fake_mappings, at, bytes, &first, &end)) return CUDA_ERROR_INVALID_VALUE;
  mmap(near_of(at), bytes, PROT_NONE, NOTHING | MAP_FIXED, -1, 0);
  for (size_t i = first; i < end; i++) {
    fake_mapping *m = (fake_mapping *)fake_mappings.spans[i];
    count_accessible(m, -1);
    fake_level_add(&fake_ledger.mappings, -1);
    fake_level_add(&fake_ledger.mapped_bytes, -(int64_t)m->span.bytes);
    fake_memory_release(m->memory);
    free(m);
  }
  fake_table_remove(&fake_mappings, first, end);
  return CUDA_SUCCESS;
}

/* Work that still waits faults afterwards. */
FAKE_API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_ENTER(cuMemUnmap);
  FAKE_LOCKED;
  const fake_window *w = fake_table_find(&fake_windows, address);
  if (!w || w->is_alloc) return CUDA_ERROR_INVALID_VALUE;
  return fake_unmap(address, bytes);
}
