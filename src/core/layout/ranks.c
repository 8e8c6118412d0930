/* What a rank has, and who has a box: the functions of layout.h that types provide through their table.
 *
 * Ranks become owners here and owners ranks, and nowhere else. A rank that is not an owner has nothing: the table is not asked. */
#include "layout/layout.h"

#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/sized.h"

#include <inttypes.h>
#include <string.h>

static int64_t owner_of(const treadle_layout *layout, int64_t rank) {
  return treadle_owners_find(&layout->owners, rank);
}

static treadle_status check_rank(const treadle_layout *layout, int64_t rank) {
  if (rank < 0 || rank >= layout->ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': rank %" PRId64 " is not one of %" PRId64,
                        layout->text, rank, layout->ranks);
  return TREADLE_OK;
}

size_t treadle_layout_window_bytes(const treadle_layout *layout, int64_t rank) {
  TREADLE_NEED_OR(layout, 0);
  if (check_rank(layout, rank) != TREADLE_OK) return 0;
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? 0 : (size_t)layout->ops->window_bytes(layout, owner);
}

bool treadle_layout_holds(const treadle_layout *layout, int64_t rank) {
  TREADLE_NEED_OR(layout, false);
  return check_rank(layout, rank) == TREADLE_OK && owner_of(layout, rank) >= 0;
}

treadle_status treadle_layout_check_whole_group(const treadle_layout *layout, const char *why) {
  if (!layout->owners.runs) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "layout '%s': on: %s, and only %" PRId64 " of %" PRId64 " ranks hold it",
                      layout->text, why, layout->owners.count, layout->ranks);
}

/* As users count them. */
static int32_t public_count(const treadle_layout *layout, int64_t rank) {
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? 0 : layout->ops->public_count(layout, owner);
}

int32_t treadle_layout_storage_count(const treadle_layout *layout, int64_t rank) {
  TREADLE_NEED_OR(layout, -1);
  if (check_rank(layout, rank) != TREADLE_OK) return -1;
  return public_count(layout, rank);
}

const treadle_storage *treadle_layout_public(const treadle_layout *layout, int64_t rank, int32_t number,
                                             int32_t *storage_p, int64_t *expert_p) {
  int32_t count;
  const treadle_storage *storages = treadle_layout_storages(layout, rank, &count);
  if (number < 0 || number >= public_count(layout, rank)) return NULL;
  const treadle_storage *first =
      storages + treadle_last_at_most(&storages->public_first, sizeof *storages, count, number);
  first -= first->run_at;
  int64_t in = number - first->public_first;
  const treadle_storage *found = first + in % first->run;
  *expert_p = in / first->run;
  *storage_p = (int32_t)(found - storages);
  return found;
}

treadle_status treadle_layout_storage(const treadle_layout *layout, int64_t rank, int32_t storage,
                                      treadle_storage_info *info_p) {
  TREADLE_NEED(layout);
  TREADLE_NEED_SIZED(info_p);
  treadle_status status = check_rank(layout, rank);
  if (status != TREADLE_OK) return status;
  int32_t index;
  int64_t expert;
  const treadle_storage *found = treadle_layout_public(layout, rank, storage, &index, &expert);
  if (!found)
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': rank %" PRId64 " has %d storage tensors, no number %d", layout->text,
                        rank, public_count(layout, rank), storage);
  treadle_storage_info info = {.chunk = found->chunk,
                               .ndim = found->ndim,
                               .dtype = found->dtype,
                               .derived = found->derived,
                               .bytes = (size_t)found->bytes};
  treadle_layout_storage_name(layout, rank, found, expert, info.name, sizeof info.name);
  memcpy(info.shape, found->shape, sizeof info.shape);
  info.offset_bytes = (size_t)(found->offset + (found->by_expert ? expert * found->slot_stride : 0));
  if (layout->ops->local_shape) {
    layout->ops->local_shape(layout, owner_of(layout, rank), found, info.shape);
    info.bytes = treadle_dtype_bytes(found->dtype);
    for (int d = 0; d < found->ndim; d++) info.bytes *= (size_t)info.shape[d];
  }
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

int32_t treadle_layout_find(const treadle_layout *layout, int64_t rank, const char *name) {
  TREADLE_NEED_OR(layout, -1);
  TREADLE_NEED_OR(name, -1);
  if (check_rank(layout, rank) != TREADLE_OK) return -1;
  char own[sizeof(((treadle_storage_info *)NULL)->name)];
  int32_t index;
  int64_t expert;
  for (int32_t i = 0; i < public_count(layout, rank); i++) {
    const treadle_storage *storage = treadle_layout_public(layout, rank, i, &index, &expert);
    treadle_layout_storage_name(layout, rank, storage, expert, own, sizeof own);
    if (strcmp(own, name) == 0) return i;
  }
  treadle_fail(TREADLE_REFUSED, "layout '%s': rank %" PRId64 " has no storage tensor '%s'", layout->text,
               rank, name);
  return -1;
}

treadle_status treadle_layout_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  treadle_status status = check_rank(layout, rank);
  int64_t owner = status == TREADLE_OK ? owner_of(layout, rank) : -1;
  return owner < 0 ? status : layout->ops->pieces(layout, owner, pieces);
}

treadle_status treadle_layout_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                        treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  int64_t owner = owner_of(layout, rank);
  if (owner < 0) return TREADLE_OK;
  if (layout->ops->pieces_in) return layout->ops->pieces_in(layout, owner, storage, pieces);
  size_t kept = pieces->count;
  TRY(treadle_layout_pieces(layout, rank, pieces));
  for (size_t i = kept; i < pieces->count; i++)
    if (pieces->items[i].storage == storage) pieces->items[kept++] = pieces->items[i];
  pieces->count = kept;
out:
  return status;
}

treadle_status treadle_piece_lists_make(const treadle_pieces *pieces, int32_t tensors,
                                        treadle_piece_lists *lists) {
  lists->first = treadle_alloc_array((size_t)tensors + 1, sizeof *lists->first);
  lists->next = treadle_alloc_array(pieces->count + 1, sizeof *lists->next);
  if (!lists->first || !lists->next) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (int32_t t = 0; t < tensors; t++) lists->first[t] = -1;
  for (size_t i = pieces->count; i-- > 0;) {
    int32_t tensor = pieces->items[i].tensor;
    lists->next[i] = -1;
    if (tensor < 0) continue;
    lists->next[i] = lists->first[tensor];
    lists->first[tensor] = (int32_t)i;
  }
  return TREADLE_OK;
}

void treadle_piece_lists_release(treadle_piece_lists *lists) {
  treadle_free(lists->first);
  treadle_free(lists->next);
  *lists = (treadle_piece_lists){0};
}

treadle_status treadle_layout_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces) {
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? TREADLE_OK : layout->ops->pieces_of(layout, owner, tensor, pieces);
}

const treadle_form *treadle_layout_forms(const treadle_layout *layout) {
  return layout->ops->forms ? layout->ops->forms(layout) : NULL;
}

treadle_status treadle_layout_bundles_with_fills(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                                 treadle_pieces *pieces) {
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? TREADLE_OK : layout->ops->bundles_of(layout, owner, tensor, pieces);
}

treadle_status treadle_layout_bundles_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                         treadle_pieces *pieces) {
  if (!treadle_layout_forms(layout)) return treadle_layout_pieces_of(layout, rank, tensor, pieces);
  size_t kept = pieces->count;
  treadle_status status = treadle_layout_bundles_with_fills(layout, rank, tensor, pieces);
  for (size_t i = kept; i < pieces->count; i++)
    if (pieces->items[i].tensor >= 0) pieces->items[kept++] = pieces->items[i];
  pieces->count = kept;
  return status;
}

treadle_status treadle_layout_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells) {
  return layout->ops->cells(layout, tensor, box, cells);
}

int64_t treadle_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  return treadle_owners_rank(&layout->owners, layout->ops->cell_rank(layout, cell, holder));
}

int64_t treadle_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? -1 : layout->ops->cell_find(layout, cell, owner);
}

int64_t treadle_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                            const int64_t **stride_p) {
  return layout->ops->cell_locate(layout, cell, holder, stride_p);
}

bool treadle_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell) {
  return layout->ops->cell_is_plain && layout->ops->cell_is_plain(layout, cell);
}

const treadle_storage *treadle_layout_storages(const treadle_layout *layout, int64_t rank,
                                               int32_t *count_p) {
  static const treadle_storage none;
  int64_t owner = owner_of(layout, rank);
  *count_p = 0;
  return owner < 0 ? &none : layout->ops->storages(layout, owner, count_p);
}

void treadle_layout_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                                 int64_t expert, char *text, size_t capacity) {
  layout->ops->storage_name(layout, owner_of(layout, rank), storage, expert, text, capacity);
}

int64_t treadle_layout_window_max(const treadle_layout *layout) {
  return layout->ops->window_bytes_max(layout);
}

uint64_t treadle_layout_placement(const treadle_layout *layout, int32_t tensor) {
  return layout->ops->placement(layout, tensor);
}

uint64_t treadle_layout_cells_like(const treadle_layout *layout, int32_t tensor) {
  return (layout->ops->cells_like ? layout->ops->cells_like : layout->ops->placement)(layout, tensor);
}

uint64_t treadle_layout_place(const treadle_layout *layout, int64_t rank) {
  int64_t owner = owner_of(layout, rank);
  return owner < 0 ? treadle_hash_text("no owner", 0) : layout->ops->coordinate(layout, owner);
}

uint64_t treadle_layout_dense_place(const treadle_layout *layout, int64_t rank) {
  int64_t owner = owner_of(layout, rank);
  if (owner < 0 || !layout->ops->dense_coordinate) return treadle_layout_place(layout, rank);
  return layout->ops->dense_coordinate(layout, owner);
}

treadle_status treadle_layout_coordinate(const treadle_layout *layout, int64_t rank, const char *dimension,
                                         int64_t *index_p) {
  const treadle_mesh *mesh = layout->ops->mesh ? layout->ops->mesh(layout) : NULL;
  const treadle_dim *dim = mesh ? treadle_mesh_find(mesh, dimension) : NULL;
  if (!dim)
    return treadle_fail(TREADLE_REFUSED, "layout '%s' has no dimension '%s'", layout->text, dimension);
  int64_t owner = owner_of(layout, rank);
  if (owner < 0)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': rank %" PRId64 " does not hold it, and has no place",
                        layout->text, rank);
  *index_p = treadle_dim_index(dim, treadle_order_layout(&layout->order, owner));
  return TREADLE_OK;
}
