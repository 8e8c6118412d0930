/* Explicit pieces: windows of storage tensors, and the fills between pieces. */
#include "base/dtype.h"
#include "base/limits.h"
#include "layout/explicit_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sorts storages by rank, in order of appearance, lays windows out, and makes offsets count from their begin. */
treadle_status treadle_explicit_place_storages(treadle_explicit_builder *b) {
  treadle_explicit *explicit = b->explicit;
  size_t count = b->storages.count, ranks = (size_t)b->layout->ranks;
  explicit->storages = treadle_arena_alloc_array(&explicit->arena, count + 1, sizeof *explicit->storages);
  explicit->names = treadle_arena_alloc_array(&explicit->arena, count + 1, sizeof *explicit->names);
  explicit->storage_first =
      treadle_arena_alloc_array(&explicit->arena, ranks + 1, sizeof *explicit->storage_first);
  explicit->window_bytes =
      treadle_arena_alloc_array(&explicit->arena, ranks + 1, sizeof *explicit->window_bytes);
  int32_t *place = treadle_arena_alloc_array(&explicit->arena, count + 1, sizeof *place);
  int32_t *next = treadle_arena_alloc_array(&explicit->arena, ranks + 1, sizeof *next);
  if (!explicit->storages || !explicit->names || !explicit->storage_first || !explicit->window_bytes ||
      !place || !next)
    return treadle_explicit_no_memory();
  explicit->storage_count = (int32_t)count;
  for (size_t i = 0; i < count; i++) explicit->storage_first[b->storages.items[i].rank + 1]++;
  for (size_t r = 0; r < ranks; r++) {
    explicit->storage_first[r + 1] += explicit->storage_first[r];
    next[r] = explicit->storage_first[r];
  }
  for (size_t i = 0; i < count; i++) {
    treadle_made_storage *made = &b->storages.items[i];
    int64_t *end = &explicit->window_bytes[made->rank];
    treadle_status status = treadle_storage_place(b->layout, made->name, &made->storage, 1, end);
    if (status != TREADLE_OK) return status;
    if (*end > explicit->window_bytes_max) explicit->window_bytes_max = *end;
    place[i] = next[made->rank]++;
    made->storage.run = 1;
    made->storage.public_first = place[i] - explicit->storage_first[made->rank];
    explicit->storages[place[i]] = made->storage;
    explicit->names[place[i]] = made->name;
  }
  for (size_t i = 0; i < b->pieces.count; i++) {
    treadle_rank_piece *owned = &b->pieces.items[i];
    int32_t at = place[owned->piece.storage];
    owned->piece.offset += explicit->storages[at].offset;
    owned->piece.storage = at - explicit->storage_first[owned->rank];
  }
  return TREADLE_OK;
}

/* Bytes of one rank's window, for the check that pieces share none and for finding what is left. */
typedef struct stretch {
  int64_t begin, end;
} stretch;

typedef TREADLE_ARRAY(stretch) stretches;

static int compare_stretch(const void *a, const void *b) {
  const stretch *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static treadle_status push_stretches(const treadle_piece *piece, int axes, int a, int64_t at, int64_t size,
                                     stretches *out) {
  treadle_status status = TREADLE_OK;
  int64_t length = size; /* are axes a.. one stretch? */
  bool whole = true;
  for (int i = axes - 1; i >= a && whole; i--) {
    if (piece->box.size[i] == 1) continue;
    whole = piece->stride[i] == length;
    length *= piece->box.size[i];
  }
  if (whole && out->count < TREADLE_MAX_RUNS) return treadle_array_push(out, ((stretch){at, at + length}));
  if (whole)
    return treadle_fail(TREADLE_REFUSED, "the pieces of a storage tensor fall into more than %d stretches",
                        TREADLE_MAX_RUNS);
  for (int64_t i = 0; i < piece->box.size[a]; i++)
    TRY(push_stretches(piece, axes, a + 1, at + i * piece->stride[a], size, out));
out:
  return status;
}

/* What lies between the stretches of one storage becomes fills; stretches that meet are refused. */
static treadle_status fill_storage(treadle_explicit_builder *b, int64_t rank, int32_t local,
                                   stretches *found) {
  treadle_status status = TREADLE_OK;
  const treadle_storage *storage = &b->explicit->storages[b->explicit->storage_first[rank] + local];
  const char *name = b->explicit->names[b->explicit->storage_first[rank] + local];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), at = storage->offset;
  if (found->count > 0) qsort(found->items, found->count, sizeof *found->items, compare_stretch);
  for (size_t i = 0; i <= found->count; i++) {
    int64_t begin = i < found->count ? found->items[i].begin : storage->offset + storage->bytes;
    if (begin < at)
      TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64 ": two pieces of storage '%s' share element %" PRId64,
                              rank, name, (begin - storage->offset) / size);
    if (begin > at) {
      treadle_rank_piece fill = {
          .rank = rank,
          .piece = {
              .tensor = -1, .storage = local, .dtype = storage->dtype, .offset = at, .stride = {size}}};
      for (int a = 0; a < TREADLE_MAX_AXES; a++) fill.piece.box.size[a] = 1;
      fill.piece.box.size[0] = (begin - at) / size;
      TRY(treadle_array_push(&b->pieces, fill));
    }
    if (i < found->count) at = found->items[i].end;
  }
out:
  return status;
}

int treadle_explicit_compare_ranks(const void *a, const void *b) {
  const treadle_rank_piece *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->piece.storage != y->piece.storage) return x->piece.storage < y->piece.storage ? -1 : 1;
  if ((x->piece.tensor < 0) != (y->piece.tensor < 0)) return x->piece.tensor < 0 ? 1 : -1;
  return x->piece.offset < y->piece.offset ? -1 : x->piece.offset > y->piece.offset;
}

treadle_status treadle_explicit_fill_gaps(treadle_explicit_builder *b) {
  treadle_status status = TREADLE_OK;
  stretches found = {0};
  size_t data = b->pieces.count;
  qsort(b->pieces.items, data, sizeof *b->pieces.items, treadle_explicit_compare_ranks);
  for (size_t i = 0; i < data;) {
    int64_t rank = b->pieces.items[i].rank;
    int32_t storage = b->pieces.items[i].piece.storage;
    found.count = 0;
    for (; i < data && b->pieces.items[i].rank == rank && b->pieces.items[i].piece.storage == storage;
         i++) {
      const treadle_piece *piece = &b->pieces.items[i].piece;
      const treadle_tensor *tensor = &b->layout->model->tensors[piece->tensor];
      status = push_stretches(piece, tensor->naxes, 0, piece->offset,
                              (int64_t)treadle_dtype_bytes(piece->dtype), &found);
      if (status == TREADLE_REFUSED)
        treadle_fail_in(status, "pieces: rank %" PRId64 ": %s: ", rank, tensor->name);
      TRY(status);
    }
    TRY(fill_storage(b, rank, storage, &found));
  }
out:
  treadle_array_release(&found);
  return status;
}
