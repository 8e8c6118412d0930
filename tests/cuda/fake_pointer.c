/* What the driver knows of an address. */
#include "cuda/fake_parts.h"

#include <string.h>

typedef struct place {
  const fake_window *window;
  const fake_mapping *mapping; /* in the window; NULL */
  const fake_pin *pin;
  const fake_span *whole, *part; /* reserved, or pinned; and mapped, or NULL */
  int device;
} place;

/* Of pageable memory nothing is known. */
static bool find(uint64_t address, place *p) {
  const fake_window *w = fake_table_find(&fake_windows, address);
  const fake_mapping *m = fake_table_find(&fake_mappings, address);
  const fake_pin *pin = fake_table_find(&fake_pins, address);
  *p = (place){.window = w, .mapping = m, .pin = pin};
  if (!w && !pin) return false;
  p->whole = w ? &w->span : &pin->span;
  p->part = m ? &m->span : pin ? &pin->span : NULL;
  p->device = pin ? pin->device : m ? (int)(m->memory->card - fake_cards) : w->device;
  return true;
}

static uint64_t context_of(const place *p) { /* memory of cuMemCreate belongs to none */
  return p->pin || p->window->is_alloc ? fake_address(fake_context(p->device)) : 0;
}

static uint64_t access_of(const place *p) {
  const int here = fake_current_device();
  if (p->pin) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return p->mapping && here >= 0 ? p->mapping->access[here] : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* false: the address has no such thing. */
static bool read_value(const place *p, uint64_t address, CUpointer_attribute which, uint64_t *value_p) {
  switch ((int)which) {
  case CU_POINTER_ATTRIBUTE_CONTEXT: *value_p = context_of(p); return true;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *value_p = p->pin ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *value_p = address; return true;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER: *value_p = address; return p->pin != NULL;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED: *value_p = 0; return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *value_p = (uint64_t)p->device; return true;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *value_p = p->whole->at; return true;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *value_p = p->whole->bytes; return true;
  case CU_POINTER_ATTRIBUTE_MAPPED: *value_p = p->part != NULL; return true;
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *value_p = access_of(p); return true;
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *value_p = p->part ? p->part->bytes : 0; return p->part != NULL;
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *value_p = p->part ? p->part->at : 0; return p->part != NULL;
  default: return false;
  }
}

/* Of what a caller's variable has: an int, or an address. Nobody says how many bytes a truth value has: it may be those of an int. */
static size_t bytes_of(CUpointer_attribute which) {
  if (which == CU_POINTER_ATTRIBUTE_IS_MANAGED || which == CU_POINTER_ATTRIBUTE_MAPPED ||
      which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
      which == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)
    return sizeof(int);
  return sizeof(uint64_t);
}

/* The low bytes come first. */
FAKE_API CUresult cuPointerGetAttribute(void *value_p, CUpointer_attribute which, CUdeviceptr address) {
  FAKE_ENTER(cuPointerGetAttribute);
  FAKE_LOCKED;
  place p;
  uint64_t value;
  if (!value_p || !find(address, &p) || !read_value(&p, address, which, &value))
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(value_p, &value, bytes_of(which));
  return CUDA_SUCCESS;
}

/* Of what is not known the values are 0, and there is no error; but the device of no memory is -2. */
FAKE_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **values,
                                         CUdeviceptr address) {
  FAKE_ENTER(cuPointerGetAttributes);
  FAKE_LOCKED;
  place p;
  if (!which || !values) return CUDA_ERROR_INVALID_VALUE;
  const bool found = find(address, &p);
  for (unsigned i = 0; i < count; i++) {
    uint64_t value = 0;
    if (!found || !read_value(&p, address, which[i], &value))
      value = which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2 : 0;
    memcpy(values[i], &value, bytes_of(which[i]));
  }
  return CUDA_SUCCESS;
}
