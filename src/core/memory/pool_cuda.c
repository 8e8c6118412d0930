/* Pools on a CUDA device: handles of the driver's, each of a piece of the pool, and ranges of addresses that pieces are mapped in.
 *
 * All is mapped, and given access, when the pool is made or a window of it: a switch calls none of this. A handle is mapped as a whole, at as
 * many addresses as there are windows with its pages. To make and to map one takes time, so pages that follow each other in all windows are one
 * piece, of at most 256 MiB: those of gradients, optimizer state and a KV cache mostly are, those that both windows of weights lie on seldom.
 * Pages of another process come as one descriptor a piece, after one of a file that says how long the pieces are. They are mapped for reading:
 * that nothing writes there is what treadle does, the driver does not promise it. */
#include "memory/state_cuda.h"

#include "base/alloc.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 20, MOST_PAGES = INT32_MAX };

/* Addresses, and what is mapped there. */
typedef struct range {
  CUdeviceptr at;
  int64_t pages;   /* that have addresses */
  int32_t *mapped; /* by page: how many pages the mapping has that begins there; 0: none does */
  struct range *next;
} range;

typedef struct pieces {
  treadle_cuda *cuda;
  int64_t pages;
  size_t page_bytes;
  int32_t *of_page; /* [pages] the piece that begins there; -1: none does */
  int64_t count;
  CUmemGenericAllocationHandle *handles; /* [count]; 0: none */
  int32_t *lengths;                      /* [count] pages */
  int64_t made_pages;
  range *ranges;
} pieces;

struct treadle_pool {
  pieces pieces;
  range *base;
};

struct treadle_imported {
  pieces pieces;
  int64_t expected; /* descriptors */
  int64_t next, at; /* the piece that comes next, and its first page */
  size_t bytes;     /* of the pool */
  treadle_view_of only;
  bool is_window;
  uint8_t *wanted; /* [pages] `only` leads there; NULL: all are */
};

/* ---- Ranges ---- */

static void range_release(pieces *p, range *r) {
  const treadle_cuda_driver *driver = p->cuda->driver;
  for (int64_t i = 0; i < r->pages; i++)
    if (r->mapped[i])
      driver->unmap(r->at + (CUdeviceptr)i * p->page_bytes, (size_t)r->mapped[i] * p->page_bytes);
  if (r->at) driver->reserve_free(r->at, (size_t)r->pages * p->page_bytes);
  treadle_free(r->mapped);
  treadle_free(r);
}

static treadle_status range_reserve(pieces *p, int64_t pages, range **range_p) {
  treadle_status status = TREADLE_OK;
  range *r = treadle_alloc(sizeof *r);
  int32_t *mapped = treadle_alloc_array((size_t)pages, sizeof *mapped);
  if (!r || !mapped) {
    treadle_free(r);
    treadle_free(mapped);
    return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  }
  *r = (range){.pages = pages, .mapped = mapped, .next = p->ranges};
  p->ranges = *range_p = r;
  CUDA_TRY(p->cuda, "cuMemAddressReserve",
           p->cuda->driver->reserve(&r->at, (size_t)pages * p->page_bytes, 0, 0, 0));
out:
  return status;
}

/* `count` pages of the range from `first` on, all of them mapped. */
static treadle_status range_open(pieces *p, range *r, int64_t first, int64_t count, int access) {
  treadle_status status = TREADLE_OK;
  const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, p->cuda->card}, access};
  CUDA_TRY(p->cuda, "cuMemSetAccess",
           p->cuda->driver->set_access(r->at + (CUdeviceptr)first * p->page_bytes,
                                       (size_t)count * p->page_bytes, &wanted, 1));
out:
  return status;
}

static int64_t page_at(const int32_t *table, int64_t i) { return table ? table[i] : i; }

/* The piece that lies at page i of a table as a whole; -1: none does. */
static int32_t piece_at(const pieces *p, const int32_t *table, int64_t pages, int64_t i) {
  const int64_t first = page_at(table, i);
  const int32_t piece = first < p->pages ? p->of_page[first] : -1;
  if (piece < 0 || i + p->lengths[piece] > pages || !p->handles[piece]) return -1;
  for (int32_t k = 1; k < p->lengths[piece]; k++)
    if (page_at(table, i + k) != first + k) return -1;
  return piece;
}

/* table: the page for each of the range; NULL: each its own. A page below 0 is a hole. */
static treadle_status range_fill(pieces *p, range *r, const int32_t *table, int access) {
  treadle_status status = TREADLE_OK;
  int64_t first = 0; /* of what is mapped and not open */
  for (int64_t i = 0; i <= r->pages;) {
    if (i == r->pages || page_at(table, i) < 0) {
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

static treadle_status range_make(pieces *p, const int32_t *table, int64_t pages, int access,
                                 range **range_p) {
  treadle_status status;
  TRY(treadle_cuda_say(p->cuda));
  TRY(range_reserve(p, pages, range_p));
  TRY(range_fill(p, *range_p, table, access));
out:
  return status;
}

/* ---- Pieces ---- */

/* starts [pages]: does a piece begin there? */
static treadle_status pieces_make(pieces *p, const uint8_t *starts) {
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

static void pieces_release(pieces *p) {
  for (range *r = p->ranges, *next; r; r = next) {
    next = r->next;
    range_release(p, r);
  }
  for (int64_t i = 0; p->handles && i < p->count; i++)
    if (p->handles[i]) p->cuda->driver->handle_release(p->handles[i]);
  treadle_free(p->of_page);
  treadle_free(p->handles);
  treadle_free(p->lengths);
}

/* A piece ends where pages do not follow each other in some window. */
static void cut_by(const treadle_view_of *view, int64_t pages, uint8_t *starts) {
  for (int64_t i = 0; view->table && i < view->pages; i++) {
    const int64_t page = view->table[i];
    if (page < 0) continue;
    if (i == 0 || view->table[i - 1] != page - 1) starts[page] = 1;
    if (page + 1 < pages && (i + 1 == view->pages || view->table[i + 1] != page + 1)) starts[page + 1] = 1;
  }
}

static treadle_status cut_pool(pieces *p, const treadle_view_of *views, int count) {
  const int64_t most = (int64_t)(PIECE_BYTES / p->page_bytes);
  uint8_t *starts = treadle_alloc_array((size_t)p->pages + 1, sizeof *starts);
  if (!starts) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  starts[0] = p->pages > 0;
  for (int v = 0; v < count; v++) cut_by(&views[v], p->pages, starts);
  for (int64_t i = 0, begun = 0; i < p->pages; i++) {
    if (!views || i - begun >= most) starts[i] = 1;
    if (starts[i]) begun = i;
  }
  const treadle_status status = pieces_make(p, starts);
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
static treadle_status full(const pieces *p, CUresult result) {
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

static treadle_status make_handles(pieces *p) {
  const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, p->cuda->card}};
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

static treadle_status build(treadle_pool *pool) {
  treadle_status status = TREADLE_OK;
  pieces *p = &pool->pieces;
  TRY(treadle_cuda_say(p->cuda));
  if (p->pages == 0) return TREADLE_OK;
  TRY(make_handles(p));
  TRY(range_make(p, NULL, p->pages, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &pool->base));
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
  pool->pieces = (pieces){.cuda = cuda, .pages = pages, .page_bytes = (size_t)page_bytes};
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
  pieces_release(&pool->pieces);
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
  range *made = NULL;
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  treadle_cuda_enter(pool->pieces.cuda);
  const treadle_status status =
      range_make(&pool->pieces, table, pages, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &made);
  treadle_cuda_leave(pool->pieces.cuda);
  if (status == TREADLE_OK) *base_p = treadle_cuda_pointer(made->at);
  return status;
}

/* The driver unmaps before it maps anew, and whoever reads in between faults. */
treadle_status treadle_cuda_pool_remap(treadle_pool *pool, void *base, const int32_t *table,
                                       int64_t pages) {
  (void)pool, (void)base, (void)table, (void)pages;
  return treadle_fail(
      TREADLE_REFUSED,
      "cuda: windows stay on their pages, so that there can be no two versions: leave out double_infer");
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

/* ---- Pages of others ---- */

/* What the first descriptor is of: this, and then the lengths of all pieces in pages, int32_t [count]. */
typedef struct form {
  uint64_t magic, page_bytes;
  int64_t count;
} form;

static const uint64_t form_magic = 0x7365636569706474;

int64_t treadle_cuda_pool_export_count(const treadle_pool *pool) {
  return pool->pieces.count ? pool->pieces.count + 1 : 0;
}

static treadle_status export_form(const pieces *p, int *descriptor_p) {
  const form head = {form_magic, p->page_bytes, p->count};
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
  const pieces *p = &pool->pieces;
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

static treadle_status refuse_form(const treadle_imported *imported) {
  return treadle_fail(
      TREADLE_PEER,
      "cuda: device %d: a peer's pool of %s does not consist of the pieces that it has told of",
      imported->pieces.cuda->card, treadle_text_of_size(imported->bytes));
}

/* Pieces that follow each other and are the whole pool. */
static treadle_status take_lengths(treadle_imported *imported, const int32_t *lengths) {
  pieces *p = &imported->pieces;
  int64_t at = 0;
  uint8_t *starts = treadle_alloc_array((size_t)p->pages + 1, sizeof *starts);
  if (!starts) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  for (int64_t i = 0; i < imported->expected - 1 && at >= 0; i++) {
    const bool fits = lengths[i] > 0 && lengths[i] <= p->pages - at;
    if (fits) starts[at] = 1;
    at = fits ? at + lengths[i] : -1;
  }
  const treadle_status status = at == p->pages ? pieces_make(p, starts) : refuse_form(imported);
  treadle_free(starts);
  return status;
}

/* A view without a table is the whole pool. */
static int64_t pages_of(const pieces *p, const treadle_view_of *view) {
  return view->table ? view->pages : p->pages;
}

static bool is_form(const treadle_imported *imported, const form *head) {
  return head->magic == form_magic && head->count == imported->expected - 1 && head->page_bytes > 0 &&
         head->page_bytes % imported->pieces.cuda->granularity == 0 &&
         imported->bytes % head->page_bytes == 0 && imported->bytes / head->page_bytes <= MOST_PAGES;
}

/* Which pages of the pool does the window have? */
static treadle_status note_wanted(treadle_imported *imported) {
  const treadle_view_of *only = &imported->only;
  imported->wanted = treadle_alloc_array((size_t)imported->pieces.pages + 1, sizeof *imported->wanted);
  if (!imported->wanted) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  for (int64_t i = 0; i < pages_of(&imported->pieces, only); i++) {
    const int64_t page = page_at(only->table, i);
    if (page < 0 || page >= imported->pieces.pages)
      return treadle_fail(TREADLE_PEER, "page %" PRId64 " of a peer's window is none of its memory", i);
    imported->wanted[page] = 1;
  }
  return TREADLE_OK;
}

static treadle_status import_form(treadle_imported *imported, int descriptor) {
  treadle_status status;
  form head;
  const int64_t count = imported->expected - 1;
  const size_t bytes = (size_t)count * sizeof(int32_t);
  int32_t *lengths = treadle_alloc_array((size_t)count + 1, sizeof *lengths);
  if (!lengths) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  if (pread(descriptor, &head, sizeof head, 0) != (ssize_t)sizeof head || !is_form(imported, &head) ||
      pread(descriptor, lengths, bytes, sizeof head) != (ssize_t)bytes)
    TRY(refuse_form(imported));
  imported->pieces.page_bytes = head.page_bytes;
  imported->pieces.pages = (int64_t)(imported->bytes / head.page_bytes);
  TRY(take_lengths(imported, lengths));
  if (imported->is_window) TRY(note_wanted(imported));
out:
  treadle_free(lengths);
  return status;
}

/* Its pieces are not known before the first descriptor has come. */
treadle_status treadle_cuda_import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                         const treadle_view_of *only, treadle_imported **imported_p) {
  *imported_p = NULL;
  if (count < 2 || count > MOST_PAGES)
    return treadle_fail(TREADLE_PEER,
                        "cuda: a peer's pool of %s comes in %" PRId64 " descriptors: at least 2",
                        treadle_text_of_size(bytes), count);
  treadle_imported *imported = treadle_alloc(sizeof *imported);
  if (!imported) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  *imported = (treadle_imported){
      .pieces.cuda = treadle_cuda_of(device), .expected = count, .bytes = bytes, .is_window = only};
  if (only) imported->only = *only;
  *imported_p = imported;
  return TREADLE_OK;
}

static bool is_wanted(const treadle_imported *imported, int64_t at, int32_t length) {
  bool wanted = !imported->wanted;
  for (int32_t i = 0; i < length && !wanted; i++) wanted = imported->wanted[at + i];
  return wanted;
}

/* Piece number `next` is the one whose descriptor comes next, and begins at page `at`. */
static treadle_status import_piece(treadle_imported *imported, int descriptor) {
  treadle_status status = TREADLE_OK;
  pieces *p = &imported->pieces;
  const int64_t piece = imported->next, at = imported->at;
  if (piece >= p->count) return refuse_form(imported);
  imported->next++;
  imported->at += p->lengths[piece];
  if (!is_wanted(imported, at, p->lengths[piece])) return TREADLE_OK;
  CUDA_TRY(p->cuda, "cuMemImportFromShareableHandle",
           p->cuda->driver->handle_import(&p->handles[piece], treadle_cuda_pointer((CUdeviceptr)descriptor),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  p->made_pages += p->lengths[piece];
out:
  return status;
}

treadle_status treadle_cuda_import_part(treadle_imported *imported, int64_t first, int count,
                                        const int *descriptors) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = imported->pieces.cuda;
  treadle_cuda_enter(cuda);
  TRY(treadle_cuda_say(cuda));
  for (int i = 0; i < count; i++)
    TRY(first + i == 0 ? import_form(imported, descriptors[i]) : import_piece(imported, descriptors[i]));
out:
  treadle_cuda_leave(cuda);
  return status;
}

/* A window of its own addresses for each view: flat. */
treadle_status treadle_cuda_import_view(treadle_imported *imported, const treadle_view_of *window,
                                        treadle_paged *paged_p) {
  range *made = NULL;
  pieces *p = &imported->pieces;
  const treadle_view_of *of = imported->is_window ? &imported->only : window;
  const int64_t pages = pages_of(p, of);
  *paged_p = (treadle_paged){0};
  if (pages == 0) return TREADLE_OK;
  if (imported->next != p->count || (of->table && p->page_bytes != (size_t)1 << of->page_shift))
    return refuse_form(imported);
  treadle_cuda_enter(p->cuda);
  const treadle_status status = range_make(p, of->table, pages, CU_MEM_ACCESS_FLAGS_PROT_READ, &made);
  treadle_cuda_leave(p->cuda);
  if (status == TREADLE_OK) paged_p->base = treadle_cuda_pointer(made->at);
  return status;
}

void treadle_cuda_unimport(treadle_imported *imported) {
  if (!imported) return;
  treadle_cuda *cuda = imported->pieces.cuda;
  treadle_cuda_enter(cuda);
  (void)treadle_cuda_fence(cuda);
  pieces_release(&imported->pieces);
  treadle_cuda_leave(cuda);
  treadle_free(imported->wanted);
  treadle_free(imported);
}
