/* Memory of cards, by handles. A handle takes no descriptor; an exported one is a file of a few bytes that names the
 * card, the range and its generation. */
#include "cuda/fake_parts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- What this process holds ---- */

static fake_table
    memories[FAKE_CARDS]; /* by their place in the card's file: the same range imported twice is one */

static fake_memory *add_memory(fake_card *card, const fake_range *range) {
  fake_memory *m = calloc(1, sizeof *m);
  if (!m) abort();
  *m = (fake_memory){.span = {range->at, range->bytes}, .range = *range, .card = card};
  fake_table_add(&memories[card - fake_cards], &m->span);
  return m;
}

fake_memory *fake_memory_take(fake_card *card, uint64_t bytes) {
  fake_range range;
  if (!fake_card_take(card, bytes, &range)) return NULL;
  fake_memory *m = add_memory(card, &range);
  m->users = 1;
  return m;
}

static fake_memory *memory_of_other(fake_card *card, const fake_range *range) {
  if (!fake_card_hold(card, range)) return NULL;
  fake_memory *m = fake_table_find(&memories[card - fake_cards], range->at);
  if (!m) m = add_memory(card, range);
  m->users++;
  return m;
}

void fake_memory_release(fake_memory *m) {
  if (--m->users > 0) return;
  fake_table *table = &memories[m->card - fake_cards];
  const size_t i = fake_table_from(table, m->span.at);
  fake_table_remove(table, i, i + 1);
  fake_card_drop(m->card, &m->range);
  free(m);
}

/* ---- Handles ---- */

typedef struct handle {
  fake_span span; /* its number, which is never used again */
  fake_memory *memory;
  bool is_exportable;
} handle;

static fake_table handles;

static CUmemGenericAllocationHandle add_handle(fake_memory *memory, bool is_exportable) {
  static uint64_t next = 0x7a6e00000001;
  handle *h = calloc(1, sizeof *h);
  if (!h) abort();
  *h = (handle){.span = {next++, 1}, .memory = memory, .is_exportable = is_exportable};
  fake_table_add(&handles, &h->span);
  fake_level_add(&fake_ledger.handles, 1);
  return h->span.at;
}

fake_memory *fake_handle_memory(CUmemGenericAllocationHandle number) {
  const handle *h = fake_table_find(&handles, number);
  return h ? h->memory : NULL;
}

static bool is_fine(const CUmemAllocationProp *prop) {
  return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !prop->win32HandleMetaData &&
         (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0;
}

static bool is_device(int ordinal) { return ordinal >= 0 && ordinal < fake_card_count; }

FAKE_API CUresult cuMemGetAllocationGranularity(size_t *bytes_p, const CUmemAllocationProp *prop,
                                                CUmemAllocationGranularity_flags which) {
  FAKE_ENTER(cuMemGetAllocationGranularity);
  (void)which;
  if (!bytes_p || !is_fine(prop)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes_p = fake_card_granularity(&fake_cards[prop->location.id]);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle_p, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags) {
  FAKE_ENTER(cuMemCreate);
  FAKE_LOCKED;
  if (!handle_p || flags != 0 || bytes == 0 || !is_fine(prop)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  fake_card *card = &fake_cards[prop->location.id];
  if (bytes % fake_card_granularity(card) != 0) return CUDA_ERROR_INVALID_VALUE;
  fake_memory *memory = fake_memory_take(card, bytes);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle_p = add_handle(memory, prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE);
  fake_ledger.created++;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemRelease(CUmemGenericAllocationHandle number) {
  FAKE_ENTER(cuMemRelease);
  FAKE_LOCKED;
  handle *h = fake_table_find(&handles, number);
  if (!h) return CUDA_ERROR_INVALID_VALUE;
  const size_t i = fake_table_from(&handles, number);
  fake_table_remove(&handles, i, i + 1);
  fake_level_add(&fake_ledger.handles, -1);
  fake_memory_release(h->memory);
  free(h);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemGetInfo_v2(size_t *free_p, size_t *total_p) {
  FAKE_ENTER(cuMemGetInfo);
  FAKE_LOCKED;
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *total_p = fake_card_total(&fake_cards[device]);
  *free_p = fake_card_free(&fake_cards[device]);
  return CUDA_SUCCESS;
}

/* ---- Between processes ---- */

typedef struct letter { /* what an exported descriptor says */
  char magic[16], card[16];
  fake_range range;
} letter;

static const char magic[16] = "fake CUDA memory";

static bool write_letter(int file, const fake_memory *memory) {
  letter l = {.range = memory->range};
  memcpy(l.magic, magic, sizeof l.magic);
  memcpy(l.card, fake_card_identity(memory->card), sizeof l.card);
  return write(file, &l, sizeof l) == sizeof l;
}

/* Imported memory cannot be exported again; the driver's documentation does not promise it. */
FAKE_API CUresult cuMemExportToShareableHandle(void *descriptor_p, CUmemGenericAllocationHandle number,
                                               CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_ENTER(cuMemExportToShareableHandle);
  FAKE_LOCKED;
  const handle *h = fake_table_find(&handles, number);
  if (!descriptor_p || !h || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  if (!h->is_exportable) return CUDA_ERROR_INVALID_VALUE;
  const int file = memfd_create("fake-cuda-handle", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!write_letter(file, h->memory)) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(descriptor_p, &file, sizeof file);
  fake_ledger.exported++;
  return CUDA_SUCCESS;
}

static fake_card *card_named(const char *identity) {
  for (int i = 0; i < fake_card_count; i++)
    if (memcmp(fake_card_identity(&fake_cards[i]), identity, 16) == 0) return &fake_cards[i];
  return NULL;
}

/* The descriptor stays the caller's. */
FAKE_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle_p, void *descriptor,
                                                 CUmemAllocationHandleType type) {
  letter l;
  FAKE_ENTER(cuMemImportFromShareableHandle);
  FAKE_LOCKED;
  if (!handle_p || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (pread((int)(intptr_t)descriptor, &l, sizeof l, 0) != sizeof l ||
      memcmp(l.magic, magic, sizeof magic) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  fake_card *card = card_named(l.card);
  fake_memory *memory = card ? memory_of_other(card, &l.range) : NULL;
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  *handle_p = add_handle(memory, false);
  fake_ledger.imported++;
  return CUDA_SUCCESS;
}
