#include "memory/pieces_cuda.h"

#include "base/alloc.h"

#include <inttypes.h>

/* ---- Ranges ---- */

static void range_release(treadle_cuda_pieces *p, treadle_cuda_range *r) {
  const treadle_cuda_driver *driver = p->cuda->driver;
  for (int64_t i = 0; i < r->pages; i++)
    if (r->mapped[i])
      driver->unmap(r->at + (CUdeviceptr)i * p->page_bytes, (size_t)r->mapped[i] * p->page_bytes);
  if (r->at) driver->reserve_free(r->at, (size_t)r->pages * p->page_bytes);
  treadle_free(r->mapped);
  treadle_free(r);
}

static treadle_status range_reserve(treadle_cuda_pieces *p, int64_t pages, treadle_cuda_range **range_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda_range *r = treadle_alloc(sizeof *r);
  int32_t *mapped = treadle_alloc_array((size_t)pages, sizeof *mapped);
  if (!r || !mapped) {
    treadle_free(r);
    treadle_free(mapped);
    return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  }
  *r = (treadle_cuda_range){.pages = pages, .mapped = mapped, .next = p->ranges};
  p->ranges = *range_p = r;
  CUDA_TRY(p->cuda, "cuMemAddressReserve",
           p->cuda->driver->reserve(&r->at, (size_t)pages * p->page_bytes, 0, 0, 0));
out:
  return status;
}

/* `count` pages of the range from `first` on, all of them mapped. */
static treadle_status range_open(treadle_cuda_pieces *p, treadle_cuda_range *r, int64_t first,
                                 int64_t count, int access) {
  treadle_status status = TREADLE_OK;
  const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, p->cuda->card}, access};
  CUDA_TRY(p->cuda, "cuMemSetAccess",
           p->cuda->driver->set_access(r->at + (CUdeviceptr)first * p->page_bytes,
                                       (size_t)count * p->page_bytes, &wanted, 1));
out:
  return status;
}

/* The piece that lies at page i of a table as a whole; -1: none does. */
static int32_t piece_at(const treadle_cuda_pieces *p, const int32_t *table, int64_t pages, int64_t i) {
  const int64_t first = treadle_cuda_page_at(table, i);
  const int32_t piece = first < p->pages ? p->of_page[first] : -1;
  if (piece < 0 || i + p->lengths[piece] > pages || !p->handles[piece]) return -1;
  for (int32_t k = 1; k < p->lengths[piece]; k++)
    if (treadle_cuda_page_at(table, i + k) != first + k) return -1;
  return piece;
}

/* table: the page for each of the range; NULL: each its own. A page below 0 is a hole. */
static treadle_status range_fill(treadle_cuda_pieces *p, treadle_cuda_range *r, const int32_t *table,
                                 int access) {
  treadle_status status = TREADLE_OK;
  int64_t first = 0; /* of what is mapped and not open */
  for (int64_t i = 0; i <= r->pages;) {
    if (i == r->pages || treadle_cuda_page_at(table, i) < 0) {
      if (i > first) TRY(range_open(p, r, first, i - first, access));
      first = ++i;
      continue;
    }
    const int32_t piece = piece_at(p, table, r->pages, i);
    if (piece < 0)
      TRY(treadle_fail(TREADLE_PEER,
                       "cuda: device %d: page %" PRId64
                       " of a window is in the middle of a piece of the pool, or is not there",
                       p->cuda->card, i));
    const size_t bytes = (size_t)p->lengths[piece] * p->page_bytes;
    CUDA_TRY(p->cuda, "cuMemMap",
             p->cuda->driver->map(r->at + (CUdeviceptr)i * p->page_bytes, bytes, 0, p->handles[piece], 0));
    r->mapped[i] = p->lengths[piece];
    i += p->lengths[piece];
  }
out:
  return status;
}

treadle_status treadle_cuda_range_make(treadle_cuda_pieces *p, const int32_t *table, int64_t pages,
                                       int access, treadle_cuda_range **range_p) {
  treadle_status status;
  TRY(treadle_cuda_say(p->cuda));
  TRY(range_reserve(p, pages, range_p));
  TRY(range_fill(p, *range_p, table, access));
out:
  return status;
}

/* ---- Pieces ---- */

treadle_status treadle_cuda_pieces_make(treadle_cuda_pieces *p, const uint8_t *starts) {
  for (int64_t i = 0; i < p->pages; i++) p->count += starts[i];
  p->of_page = treadle_alloc_array((size_t)p->pages + 1, sizeof *p->of_page);
  p->handles = treadle_alloc_array((size_t)p->count + 1, sizeof *p->handles);
  p->lengths = treadle_alloc_array((size_t)p->count + 1, sizeof *p->lengths);
  if (!p->of_page || !p->handles || !p->lengths)
    return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  int32_t piece = -1;
  for (int64_t i = 0; i < p->pages; i++) {
    piece += starts[i];
    p->of_page[i] = starts[i] ? piece : -1;
    p->lengths[piece]++;
  }
  return TREADLE_OK;
}

void treadle_cuda_pieces_release(treadle_cuda_pieces *p) {
  for (treadle_cuda_range *r = p->ranges, *next; r; r = next) {
    next = r->next;
    range_release(p, r);
  }
  for (int64_t i = 0; p->handles && i < p->count; i++)
    if (p->handles[i]) p->cuda->driver->handle_release(p->handles[i]);
  treadle_free(p->of_page);
  treadle_free(p->handles);
  treadle_free(p->lengths);
}
