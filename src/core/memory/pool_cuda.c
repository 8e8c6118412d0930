/* Pools on a CUDA device: one handle of the driver's a page, and ranges of addresses that pages are mapped in.
 *
 * All is mapped, and given access, when the pool is made or a window of it: a switch calls none of this. A handle is mapped as a whole, at as
 * many addresses as there are windows with its page. Pages of another process come as one descriptor each, and are mapped for reading: that
 * nothing writes there is what treadle does, the driver does not promise it. */
#include "memory/state_cuda.h"

#include "base/alloc.h"
#include "base/text.h"

#include <inttypes.h>
#include <unistd.h>

/* Addresses, and what is mapped there: pages by number, -1 where there is none. */
typedef struct range {
  CUdeviceptr at;
  int64_t pages; /* that have addresses */
  uint8_t *mapped;
  struct range *next;
} range;

typedef struct handles {
  treadle_cuda *cuda;
  CUmemGenericAllocationHandle *of; /* [count], by page; 0: none */
  int64_t count, made;
  size_t page_bytes;
  range *ranges;
} handles;

struct treadle_pool {
  handles pages;
  range *base;
};

struct treadle_imported {
  handles pages;
  treadle_view_of only;
  bool is_window;
  uint8_t *wanted; /* [count] by page: `only` leads there; NULL: all are */
};

/* ---- Ranges ---- */

static void range_release(handles *h, range *r) {
  const treadle_cuda_driver *driver = h->cuda->driver;
  for (int64_t i = 0; i < r->pages; i++)
    if (r->mapped[i]) driver->unmap(r->at + (CUdeviceptr)i * h->page_bytes, h->page_bytes);
  if (r->at) driver->reserve_free(r->at, (size_t)r->pages * h->page_bytes);
  treadle_free(r->mapped);
  treadle_free(r);
}

static treadle_status range_reserve(handles *h, int64_t pages, range **range_p) {
  treadle_status status = TREADLE_OK;
  range *r = treadle_alloc(sizeof *r);
  uint8_t *mapped = treadle_alloc_array((size_t)pages, sizeof *mapped);
  if (!r || !mapped) {
    treadle_free(r);
    treadle_free(mapped);
    return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  }
  *r = (range){.pages = pages, .mapped = mapped, .next = h->ranges};
  h->ranges = *range_p = r;
  CUDA_TRY(h->cuda, "cuMemAddressReserve",
           h->cuda->driver->reserve(&r->at, (size_t)pages * h->page_bytes, 0, 0, 0));
out:
  return status;
}

/* Pages of the range from `first` on, as far as the pages lie in a row. */
static treadle_status range_open(handles *h, range *r, int64_t first, int64_t count, int access) {
  treadle_status status = TREADLE_OK;
  const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, h->cuda->card}, access};
  CUDA_TRY(h->cuda, "cuMemSetAccess",
           h->cuda->driver->set_access(r->at + (CUdeviceptr)first * h->page_bytes,
                                       (size_t)count * h->page_bytes, &wanted, 1));
out:
  return status;
}

/* table: the page for each of the range; NULL: each its own. A page below 0 is a hole. */
static treadle_status range_fill(handles *h, range *r, const int32_t *table, int access) {
  treadle_status status = TREADLE_OK;
  int64_t first = 0; /* of what is mapped and not open */
  for (int64_t i = 0; i <= r->pages; i++) {
    const int64_t page = i == r->pages ? -1 : table ? table[i] : i;
    if (page < 0) {
      if (i > first) TRY(range_open(h, r, first, i - first, access));
      first = i + 1;
      continue;
    }
    CUDA_TRY(h->cuda, "cuMemMap",
             h->cuda->driver->map(r->at + (CUdeviceptr)i * h->page_bytes, h->page_bytes, 0, h->of[page], 0));
    r->mapped[i] = 1;
  }
out:
  return status;
}

static treadle_status range_make(handles *h, const int32_t *table, int64_t pages, int access,
                                 range **range_p) {
  treadle_status status;
  TRY(range_reserve(h, pages, range_p));
  TRY(range_fill(h, *range_p, table, access));
out:
  return status;
}

/* An address, as the table's functions have it. */
static void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

/* ---- Handles ---- */

static treadle_status handles_make(handles *h, treadle_cuda *cuda, int64_t count, size_t page_bytes) {
  *h = (handles){.cuda = cuda, .count = count, .page_bytes = page_bytes};
  h->of = treadle_alloc_array((size_t)count + 1, sizeof *h->of);
  return h->of ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
}

static void handles_release(handles *h) {
  for (range *r = h->ranges, *next; r; r = next) {
    next = r->next;
    range_release(h, r);
  }
  for (int64_t i = 0; h->of && i < h->count; i++)
    if (h->of[i]) h->cuda->driver->handle_release(h->of[i]);
  treadle_free(h->of);
}

/* ---- Pools ---- */

static treadle_status check_page(const treadle_cuda *cuda, int64_t page_bytes) {
  if (page_bytes % (int64_t)cuda->granularity == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "cuda: device %d: pages of %s: the driver has pages of %s, or of a multiple of that",
                      cuda->card, treadle_text_of_size((size_t)page_bytes),
                      treadle_text_of_size(cuda->granularity));
}

/* The card is full: what has been taken, and what the driver says is left. */
static treadle_status full(const handles *h, CUresult result) {
  size_t left = 0, all = 0;
  if (result != CUDA_ERROR_OUT_OF_MEMORY ||
      h->cuda->driver->memory_info(&left, &all) != CUDA_SUCCESS)
    return treadle_cuda_fail(h->cuda, "cuMemCreate", result);
  return treadle_fail(TREADLE_NO_MEMORY,
                      "cuda: device %d: a pool of %s got %s of it, and the driver has no more pages: it says that %s of %s are free",
                      h->cuda->card, treadle_text_of_size((size_t)h->count * h->page_bytes),
                      treadle_text_of_size((size_t)h->made * h->page_bytes), treadle_text_of_size(left),
                      treadle_text_of_size(all));
}

static treadle_status make_pages(handles *h) {
  const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, h->cuda->card}};
  for (; h->made < h->count; h->made++) {
    const CUresult result = h->cuda->driver->handle_create(&h->of[h->made], h->page_bytes, &wanted, 0);
    if (result == CUDA_SUCCESS) continue;
    h->of[h->made] = 0;
    return full(h, result);
  }
  return TREADLE_OK;
}

static treadle_status build(treadle_pool *pool) {
  treadle_status status = TREADLE_OK;
  handles *h = &pool->pages;
  if (h->count == 0) return TREADLE_OK;
  TRY(make_pages(h));
  TRY(range_make(h, NULL, h->count, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &pool->base));
  /* Is it zeroed by the driver? Nobody says so. */
  CUDA_TRY(h->cuda, "cuMemsetD8Async",
           h->cuda->driver->set(pool->base->at, 0, (size_t)h->count * h->page_bytes, h->cuda->stream));
  TRY(treadle_cuda_fence(h->cuda));
out:
  return status;
}

treadle_status treadle_cuda_pool_create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                                        int64_t budget_bytes, treadle_pool **pool_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_pool *pool = NULL;
  *pool_p = NULL;
  TRY(check_page(cuda, page_bytes));
  if (pages > budget_bytes / page_bytes)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: a pool of %" PRId64 " pages of %s is over its budget of %s",
                     pages, treadle_text_of_size((size_t)page_bytes),
                     treadle_text_of_size((size_t)budget_bytes)));
  pool = treadle_alloc(sizeof *pool);
  if (!pool) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  TRY(handles_make(&pool->pages, cuda, pages, (size_t)page_bytes));
  treadle_cuda_enter(cuda);
  status = build(pool);
  treadle_cuda_leave(cuda);
  if (status == TREADLE_OK) *pool_p = pool;
out:
  if (status != TREADLE_OK) treadle_cuda_pool_destroy(pool);
  return status;
}

void treadle_cuda_pool_destroy(treadle_pool *pool) {
  if (!pool) return;
  treadle_cuda *cuda = pool->pages.cuda;
  if (pool->pages.of) {
    treadle_cuda_enter(cuda);
    (void)treadle_cuda_fence(cuda); /* what still runs there would fault */
    handles_release(&pool->pages);
    treadle_cuda_leave(cuda);
  }
  treadle_free(pool);
}

void *treadle_cuda_pool_base(const treadle_pool *pool) { return pool->base ? pointer(pool->base->at) : NULL; }

size_t treadle_cuda_pool_held_bytes(const treadle_pool *pool) {
  return (size_t)pool->pages.made * pool->pages.page_bytes;
}

treadle_status treadle_cuda_pool_map(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p) {
  range *made = NULL;
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  treadle_cuda_enter(pool->pages.cuda);
  const treadle_status status =
      range_make(&pool->pages, table, pages, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &made);
  treadle_cuda_leave(pool->pages.cuda);
  if (status == TREADLE_OK) *base_p = pointer(made->at);
  return status;
}

/* The driver unmaps before it maps anew, and whoever reads in between faults. */
treadle_status treadle_cuda_pool_remap(treadle_pool *pool, void *base, const int32_t *table, int64_t pages) {
  (void)pool, (void)base, (void)table, (void)pages;
  return treadle_fail(TREADLE_REFUSED,
                      "cuda: windows stay on their pages, so that there can be no two versions: leave out double_infer");
}

treadle_status treadle_cuda_pool_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                        int64_t pages) {
  (void)shadow;
  return treadle_cuda_pool_remap(pool, base, table, pages);
}

treadle_status treadle_cuda_pool_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody) {
  (void)pool, (void)classes, (void)nobody;
  return treadle_fail(TREADLE_REFUSED, "cuda: pages stay with the pool until the switch is destroyed; they cannot be trimmed");
}

/* ---- Pages of others ---- */

int64_t treadle_cuda_pool_export_count(const treadle_pool *pool) { return pool->pages.count; }

treadle_status treadle_cuda_pool_export_part(const treadle_pool *pool, int64_t first, int count, bool reading,
                                             int *descriptors) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = pool->pages.cuda;
  int made = 0;
  (void)reading; /* the driver cannot see to that */
  treadle_cuda_enter(cuda);
  for (; made < count; made++)
    CUDA_TRY(cuda, "cuMemExportToShareableHandle",
             cuda->driver->handle_export(&descriptors[made], pool->pages.of[first + made],
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
out:
  while (status != TREADLE_OK && made-- > 0) close(descriptors[made]);
  treadle_cuda_leave(cuda);
  return status;
}

/* Which pages of the pool does the window have? */
static treadle_status note_wanted(treadle_imported *imported, const treadle_view_of *only) {
  imported->wanted = treadle_alloc_array((size_t)imported->pages.count, sizeof *imported->wanted);
  if (!imported->wanted) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  for (int64_t i = 0; i < only->pages; i++) {
    const int64_t page = only->table ? only->table[i] : i;
    if (page < 0 || page >= imported->pages.count)
      return treadle_fail(TREADLE_PEER, "page %" PRId64 " of a peer's window is none of its memory", i);
    imported->wanted[page] = 1;
  }
  return TREADLE_OK;
}

treadle_status treadle_cuda_import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                         const treadle_view_of *only, treadle_imported **imported_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_imported *imported = NULL;
  *imported_p = NULL;
  if (count <= 0 || bytes % (size_t)count != 0 || bytes / (size_t)count % cuda->granularity != 0)
    TRY(treadle_fail(TREADLE_PEER, "cuda: a peer's memory of %s comes in %" PRId64 " descriptors, which are not its pages",
                     treadle_text_of_size(bytes), count));
  imported = treadle_alloc(sizeof *imported);
  if (!imported) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  TRY(handles_make(&imported->pages, cuda, count, bytes / (size_t)count));
  if (only) imported->only = *only;
  imported->is_window = only;
  if (only) TRY(note_wanted(imported, only));
  *imported_p = imported;
out:
  if (status != TREADLE_OK) treadle_cuda_unimport(imported);
  return status;
}

treadle_status treadle_cuda_import_part(treadle_imported *imported, int64_t first, int count,
                                        const int *descriptors) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = imported->pages.cuda;
  treadle_cuda_enter(cuda);
  for (int i = 0; i < count; i++)
    if (!imported->wanted || imported->wanted[first + i])
      CUDA_TRY(cuda, "cuMemImportFromShareableHandle",
               cuda->driver->handle_import(&imported->pages.of[first + i], pointer((CUdeviceptr)descriptors[i]),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
out:
  treadle_cuda_leave(cuda);
  return status;
}

/* A window of its own addresses for each view: flat. */
treadle_status treadle_cuda_import_view(treadle_imported *imported, const treadle_view_of *window,
                                 treadle_paged *paged_p) {
  range *made = NULL;
  const treadle_view_of *of = imported->is_window ? &imported->only : window;
  *paged_p = (treadle_paged){0};
  if (of->pages == 0) return TREADLE_OK;
  treadle_cuda_enter(imported->pages.cuda);
  const treadle_status status =
      range_make(&imported->pages, of->table, of->pages, CU_MEM_ACCESS_FLAGS_PROT_READ, &made);
  treadle_cuda_leave(imported->pages.cuda);
  if (status == TREADLE_OK) paged_p->base = pointer(made->at);
  return status;
}

void treadle_cuda_unimport(treadle_imported *imported) {
  if (!imported) return;
  treadle_cuda *cuda = imported->pages.cuda;
  if (imported->pages.of) {
    treadle_cuda_enter(cuda);
    (void)treadle_cuda_fence(cuda);
    handles_release(&imported->pages);
    treadle_cuda_leave(cuda);
  }
  treadle_free(imported->wanted);
  treadle_free(imported);
}
