/* Pools of other processes on a CUDA device: pieces that come as descriptors, and are mapped for reading (pool_cuda.c). */
#include "memory/pieces_cuda.h"

#include "base/alloc.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST_PAGES = INT32_MAX };

struct treadle_imported {
  treadle_cuda_pieces pieces;
  int64_t expected; /* descriptors */
  int64_t next, at; /* the piece that comes next, and its first page */
  size_t bytes;     /* of the pool */
  treadle_view_of only;
  bool is_window;
  uint8_t *wanted; /* [pages] `only` leads there; NULL: all are */
};

static treadle_status refuse_form(const treadle_imported *imported) {
  return treadle_fail(
      TREADLE_PEER,
      "cuda: device %d: a peer's pool of %s does not consist of the pieces that it has told of",
      imported->pieces.cuda->card, treadle_text_of_size(imported->bytes));
}

/* Pieces that follow each other and are the whole pool. */
static treadle_status take_lengths(treadle_imported *imported, const int32_t *lengths) {
  treadle_cuda_pieces *p = &imported->pieces;
  int64_t at = 0;
  uint8_t *starts = treadle_alloc_array((size_t)p->pages + 1, sizeof *starts);
  if (!starts) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  for (int64_t i = 0; i < imported->expected - 1 && at >= 0; i++) {
    const bool fits = lengths[i] > 0 && lengths[i] <= p->pages - at;
    if (fits) starts[at] = 1;
    at = fits ? at + lengths[i] : -1;
  }
  const treadle_status status =
      at == p->pages ? treadle_cuda_pieces_make(p, starts) : refuse_form(imported);
  treadle_free(starts);
  return status;
}

/* A view without a table is the whole pool. */
static int64_t pages_of(const treadle_cuda_pieces *p, const treadle_view_of *view) {
  return view->table ? view->pages : p->pages;
}

static bool is_form(const treadle_imported *imported, const treadle_cuda_form *head) {
  return head->magic == TREADLE_CUDA_FORM_MAGIC && head->count == imported->expected - 1 &&
         head->page_bytes > 0 && head->page_bytes % imported->pieces.cuda->granularity == 0 &&
         imported->bytes % head->page_bytes == 0 && imported->bytes / head->page_bytes <= MOST_PAGES;
}

/* Which pages of the pool does the window have? */
static treadle_status note_wanted(treadle_imported *imported) {
  const treadle_view_of *only = &imported->only;
  imported->wanted = treadle_alloc_array((size_t)imported->pieces.pages + 1, sizeof *imported->wanted);
  if (!imported->wanted) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  for (int64_t i = 0; i < pages_of(&imported->pieces, only); i++) {
    const int64_t page = treadle_cuda_page_at(only->table, i);
    if (page < 0 || page >= imported->pieces.pages)
      return treadle_fail(TREADLE_PEER, "page %" PRId64 " of a peer's window is none of its memory", i);
    imported->wanted[page] = 1;
  }
  return TREADLE_OK;
}

static treadle_status import_form(treadle_imported *imported, int descriptor) {
  treadle_status status;
  treadle_cuda_form head;
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
  treadle_cuda_pieces *p = &imported->pieces;
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

/* What mostly keeps a device from memory of another process: then it is refused. */
static treadle_status fail_view(treadle_status status) {
  char message[400];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  return treadle_fail(status == TREADLE_SYSTEM ? TREADLE_REFUSED : status,
                      "%s; memory of another device can be read where there is peer access between the two "
                      "(treadle doctor), else the ranks of each device need a node of their own (--nodes)",
                      message);
}

/* A window of its own addresses for each view: flat. */
treadle_status treadle_cuda_import_view(treadle_imported *imported, const treadle_view_of *window,
                                        treadle_paged *paged_p) {
  treadle_cuda_range *made = NULL;
  treadle_cuda_pieces *p = &imported->pieces;
  const treadle_view_of *of = imported->is_window ? &imported->only : window;
  const int64_t pages = pages_of(p, of);
  *paged_p = (treadle_paged){0};
  if (pages == 0) return TREADLE_OK;
  if (imported->next != p->count || (of->table && p->page_bytes != (size_t)1 << of->page_shift))
    return refuse_form(imported);
  treadle_cuda_enter(p->cuda);
  const treadle_status status =
      treadle_cuda_range_make(p, of->table, pages, CU_MEM_ACCESS_FLAGS_PROT_READ, &made);
  treadle_cuda_leave(p->cuda);
  if (status == TREADLE_OK) paged_p->base = treadle_cuda_pointer(made->at);
  return status == TREADLE_OK ? status : fail_view(status);
}

void treadle_cuda_unimport(treadle_imported *imported) {
  if (!imported) return;
  treadle_cuda *cuda = imported->pieces.cuda;
  treadle_cuda_enter(cuda);
  (void)treadle_cuda_fence(cuda);
  treadle_cuda_pieces_release(&imported->pieces);
  treadle_cuda_leave(cuda);
  treadle_free(imported->wanted);
  treadle_free(imported);
}
