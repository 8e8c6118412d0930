/* Pools on a CUDA device: handles of the driver's, each of a piece of the pool, and ranges of addresses that pieces are mapped in.
 *
 * All is mapped, and given access, when the pool is made or a window of it: a switch calls none of this. A handle is mapped as a whole, at as
 * many addresses as there are windows with its pages. To make and to map one takes time, so pages that follow each other in all windows are one
 * piece, of at most 256 MiB: those of gradients, optimizer state and a KV cache mostly are, those that both windows of weights lie on seldom.
 * Pages of another process come as one descriptor a piece, after one of a file that says how long the pieces are. They are mapped for reading:
 * that nothing writes there is what treadle does, the driver does not promise it. */
#include "memory/pieces_cuda.h"

#include "base/alloc.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 20 };

struct treadle_pool {
  treadle_cuda_pieces pieces;
  treadle_cuda_range *base;
};

/* ---- Pieces ---- */

/* A piece ends where pages do not follow each other in some window. */
static void cut_by(const treadle_view_of *view, int64_t pages, uint8_t *starts) {
  for (int64_t i = 0; view->table && i < view->pages; i++) {
    const int64_t page = view->table[i];
    if (page < 0) continue;
    if (i == 0 || view->table[i - 1] != page - 1) starts[page] = 1;
    if (page + 1 < pages && (i + 1 == view->pages || view->table[i + 1] != page + 1)) starts[page + 1] = 1;
  }
}

static treadle_status cut_pool(treadle_cuda_pieces *p, const treadle_view_of *views, int count) {
  const int64_t most = (int64_t)(PIECE_BYTES / p->page_bytes);
  uint8_t *starts = treadle_alloc_array((size_t)p->pages + 1, sizeof *starts);
  if (!starts) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  starts[0] = p->pages > 0;
  for (int v = 0; v < count; v++) cut_by(&views[v], p->pages, starts);
  for (int64_t i = 0, begun = 0; i < p->pages; i++) {
    if (!views || i - begun >= most) starts[i] = 1;
    if (starts[i]) begun = i;
  }
  const treadle_status status = treadle_cuda_pieces_make(p, starts);
  treadle_free(starts);
  return status;
}

/* ---- Pools ---- */

static treadle_status check_page(const treadle_cuda *cuda, int64_t page_bytes) {
  if (page_bytes % (int64_t)cuda->granularity == 0) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED, "cuda: device %d: pages of %s: the driver has pages of %s, or of a multiple of that",
      cuda->card, treadle_text_of_size((size_t)page_bytes), treadle_text_of_size(cuda->granularity));
}

/* The card is full: what has been taken, and what the driver says is left. */
static treadle_status full(const treadle_cuda_pieces *p, CUresult result) {
  size_t left = 0, all = 0;
  if (result != CUDA_ERROR_OUT_OF_MEMORY || p->cuda->driver->memory_info(&left, &all) != CUDA_SUCCESS)
    return treadle_cuda_fail(p->cuda, "cuMemCreate", result);
  return treadle_fail(TREADLE_NO_MEMORY,
                      "cuda: device %d: a pool of %s got %s of it, and the driver has no more pages: it "
                      "says that %s of %s are free",
                      p->cuda->card, treadle_text_of_size((size_t)p->pages * p->page_bytes),
                      treadle_text_of_size((size_t)p->made_pages * p->page_bytes),
                      treadle_text_of_size(left), treadle_text_of_size(all));
}

static treadle_status make_handles(treadle_cuda_pieces *p) {
  const CUmemAllocationProp wanted = treadle_cuda_memory_of(p->cuda->card);
  for (int64_t i = 0; i < p->count; i++) {
    const size_t bytes = (size_t)p->lengths[i] * p->page_bytes;
    const CUresult result = p->cuda->driver->handle_create(&p->handles[i], bytes, &wanted, 0);
    if (result != CUDA_SUCCESS) {
      p->handles[i] = 0;
      return full(p, result);
    }
    p->made_pages += p->lengths[i];
    if (p->lengths[i] > 1) p->cuda->figures.slab_bytes += bytes;
  }
  return TREADLE_OK;
}

/* Ranks of this process on other cards read the pool where it is, if these cards can. */
static treadle_status open_to_others(const treadle_pool *pool) {
  treadle_status status = TREADLE_OK;
  const treadle_cuda_pieces *p = &pool->pieces;
  const treadle_cuda_driver *driver = p->cuda->driver;
  bool in_use[TREADLE_CUDA_CARDS];
  treadle_cuda_cards(in_use);
  for (int card = 0; card < TREADLE_CUDA_CARDS; card++) {
    const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, card}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    int can = 0;
    if (in_use[card] && card != p->cuda->card &&
        driver->can_access_peer(&can, card, p->cuda->card) == CUDA_SUCCESS && can)
      CUDA_TRY(p->cuda, "cuMemSetAccess",
               driver->set_access(pool->base->at, (size_t)p->pages * p->page_bytes, &wanted, 1));
  }
out:
  return status;
}

static treadle_status build(treadle_pool *pool) {
  treadle_status status = TREADLE_OK;
  treadle_cuda_pieces *p = &pool->pieces;
  TRY(treadle_cuda_say(p->cuda));
  if (p->pages == 0) return TREADLE_OK;
  TRY(make_handles(p));
  TRY(treadle_cuda_range_make(p, NULL, p->pages, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &pool->base));
  TRY(open_to_others(pool));
  /* Is it zeroed by the driver? Nobody says so. */
  CUDA_TRY(p->cuda, "cuMemsetD8Async",
           p->cuda->driver->set(pool->base->at, 0, (size_t)p->pages * p->page_bytes, p->cuda->stream));
  TRY(treadle_cuda_fence(p->cuda));
out:
  return status;
}

treadle_status treadle_cuda_pool_create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                                        int64_t budget_bytes, const treadle_view_of *views, int view_count,
                                        treadle_pool **pool_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_pool *pool = NULL;
  *pool_p = NULL;
  TRY(check_page(cuda, page_bytes));
  if (pages > budget_bytes / page_bytes)
    TRY(treadle_fail(TREADLE_NO_MEMORY,
                     "memory: a pool of %" PRId64 " pages of %s is over its budget of %s", pages,
                     treadle_text_of_size((size_t)page_bytes), treadle_text_of_size((size_t)budget_bytes)));
  pool = treadle_alloc(sizeof *pool);
  if (!pool) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  pool->pieces = (treadle_cuda_pieces){.cuda = cuda, .pages = pages, .page_bytes = (size_t)page_bytes};
  TRY(cut_pool(&pool->pieces, views, view_count));
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
  treadle_cuda *cuda = pool->pieces.cuda;
  treadle_cuda_enter(cuda);
  (void)treadle_cuda_fence(cuda); /* what still runs there would fault */
  for (int64_t i = 0; pool->pieces.handles && i < pool->pieces.count; i++)
    if (pool->pieces.handles[i] && pool->pieces.lengths[i] > 1)
      cuda->figures.slab_bytes -= (size_t)pool->pieces.lengths[i] * pool->pieces.page_bytes;
  treadle_cuda_pieces_release(&pool->pieces);
  treadle_cuda_leave(cuda);
  treadle_free(pool);
}

void *treadle_cuda_pool_base(const treadle_pool *pool) {
  return pool->base ? treadle_cuda_pointer(pool->base->at) : NULL;
}

size_t treadle_cuda_pool_held_bytes(const treadle_pool *pool) {
  return (size_t)pool->pieces.made_pages * pool->pieces.page_bytes;
}

treadle_status treadle_cuda_pool_map(treadle_pool *pool, const int32_t *table, int64_t pages,
                                     void **base_p) {
  treadle_cuda_range *made = NULL;
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  treadle_cuda_enter(pool->pieces.cuda);
  const treadle_status status =
      treadle_cuda_range_make(&pool->pieces, table, pages, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &made);
  treadle_cuda_leave(pool->pieces.cuda);
  if (status == TREADLE_OK) *base_p = treadle_cuda_pointer(made->at);
  return status;
}

/* The driver unmaps before it maps anew, and whoever reads in between faults. */
treadle_status treadle_cuda_pool_remap(treadle_pool *pool, void *base, const int32_t *table,
                                       int64_t pages) {
  (void)pool, (void)base, (void)table, (void)pages;
  return treadle_fail(TREADLE_REFUSED, "cuda: windows stay on their pages, so that there can be no two "
                                       "versions: leave out double_infer (--double)");
}

treadle_status treadle_cuda_pool_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                        int64_t pages) {
  (void)shadow;
  return treadle_cuda_pool_remap(pool, base, table, pages);
}

treadle_status treadle_cuda_pool_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody) {
  (void)pool, (void)classes, (void)nobody;
  return treadle_fail(
      TREADLE_REFUSED,
      "cuda: pages stay with the pool until the switch is destroyed; they cannot be trimmed");
}

/* ---- For others ---- */

int64_t treadle_cuda_pool_export_count(const treadle_pool *pool) {
  return pool->pieces.count ? pool->pieces.count + 1 : 0;
}

static treadle_status export_form(const treadle_cuda_pieces *p, int *descriptor_p) {
  const treadle_cuda_form head = {TREADLE_CUDA_FORM_MAGIC, p->page_bytes, p->count};
  const size_t bytes = (size_t)p->count * sizeof *p->lengths;
  const int file = memfd_create("treadle-pieces", MFD_CLOEXEC);
  if (file >= 0 && write(file, &head, sizeof head) == (ssize_t)sizeof head &&
      write(file, p->lengths, bytes) == (ssize_t)bytes) {
    *descriptor_p = file;
    return TREADLE_OK;
  }
  const treadle_status status =
      treadle_fail(TREADLE_SYSTEM, "cuda: device %d: the pool's pieces cannot be told to others: %s",
                   p->cuda->card, strerror(errno));
  if (file >= 0) close(file);
  return status;
}

treadle_status treadle_cuda_pool_export_part(const treadle_pool *pool, int64_t first, int count,
                                             bool reading, int *descriptors) {
  treadle_status status = TREADLE_OK;
  const treadle_cuda_pieces *p = &pool->pieces;
  treadle_cuda *cuda = p->cuda;
  int made = 0;
  (void)reading; /* the driver cannot see to that */
  treadle_cuda_enter(cuda);
  TRY(treadle_cuda_say(cuda));
  for (; made < count; made++) {
    if (first + made == 0) {
      TRY(export_form(p, &descriptors[0]));
      continue;
    }
    CUDA_TRY(cuda, "cuMemExportToShareableHandle",
             cuda->driver->handle_export(&descriptors[made], p->handles[first + made - 1],
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
out:
  while (status != TREADLE_OK && made-- > 0) close(descriptors[made]);
  treadle_cuda_leave(cuda);
  return status;
}
