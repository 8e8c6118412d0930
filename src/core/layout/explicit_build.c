/* Explicit pieces: building and checking. */
#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "layout/explicit_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_REACH = INT64_C(1)
                                 << 56; /* elements, stride by size: sums of a few do not overflow */

/* ---- Reading pieces ---- */

static int64_t volume(const int64_t *size, int ndim) {
  int64_t elems = 1;
  for (int d = 0; d < ndim; d++)
    if (size[d] < 1 || __builtin_mul_overflow(elems, size[d], &elems)) return -1;
  return elems;
}

/* The storage tensor of a piece, made when it is new; pieces of one storage agree in its shape and dtype. */
static treadle_status find_storage(treadle_explicit_builder *b, const treadle_explicit_piece *p,
                                   treadle_dtype dtype, size_t *index_p) {
  treadle_status status = TREADLE_OK;
  for (size_t i = b->storages.count; i-- > 0;) {
    const treadle_made_storage *known = &b->storages.items[i];
    if (known->rank != p->rank || strcmp(known->name, p->storage) != 0) continue;
    if (known->storage.ndim != p->storage_ndim || known->storage.dtype != dtype ||
        memcmp(known->storage.shape, p->storage_shape, sizeof(int64_t) * (size_t)p->storage_ndim) != 0)
      TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64
                              ": two pieces give storage '%s' different shapes or dtypes",
                              p->rank, p->storage);
    *index_p = i;
    return TREADLE_OK;
  }
  treadle_made_storage made = {
      .storage = {.layer = -1, .local_layer = -1, .ndim = p->storage_ndim, .dtype = dtype},
      .rank = p->rank,
      .name = treadle_arena_copy_text(&b->explicit->arena, p->storage)};
  if (!made.name) return treadle_explicit_no_memory();
  for (int d = 0; d < p->storage_ndim; d++) made.storage.shape[d] = p->storage_shape[d];
  made.storage.bytes = volume(p->storage_shape, p->storage_ndim) * (int64_t)treadle_dtype_bytes(dtype);
  *index_p = b->storages.count;
  TRY(treadle_array_push(&b->storages, made));
out:
  return status;
}

/* Dimensions are those of the Hugging Face tensor; a stacked tensor has one more in front. */
static treadle_status check_piece(const treadle_explicit_piece *p, const treadle_tensor *tensor) {
  treadle_status status = TREADLE_OK;
  int skip = tensor->by_expert;
  int64_t last = p->offset, elems = volume(p->storage_shape, p->storage_ndim);
  if (elems < 1 || elems > INT64_C(1) << 48)
    TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64
                            ": the shape of storage '%s' holds no element or too many",
                            p->rank, p->storage);
  for (int d = 0; d < tensor->ndim - skip; d++) {
    int64_t reach, length = tensor->shape[d + skip];
    if (p->start[d] < 0 || p->size[d] < 1 || p->start[d] > length - p->size[d])
      TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64 ": dimension %d of %s: start %" PRId64
                              " and size %" PRId64 " leave [0, %" PRId64 ")",
                              p->rank, d, tensor->name, p->start[d], p->size[d], length);
    if (p->stride[d] < (p->size[d] > 1) || p->stride[d] > MAX_REACH / length ||
        __builtin_mul_overflow(p->size[d] - 1, p->stride[d], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64 ": dimension %d of %s has a stride of %" PRId64,
                              p->rank, d, tensor->name, p->stride[d]);
  }
  if (p->offset < 0 || last >= elems)
    TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64 ": %s reaches from element %" PRId64 " to %" PRId64
                            " of storage '%s', which has %" PRId64,
                            p->rank, tensor->name, p->offset, last, p->storage, elems);
out:
  return status;
}

/* A box in dimensions is a few boxes in axes. Offsets count from the start of the storage for now. */
static treadle_status push_boxes(treadle_explicit_builder *b, const treadle_explicit_piece *p,
                                 const treadle_tensor *tensor, int32_t expert, int32_t storage,
                                 treadle_dtype dtype) {
  treadle_status status = TREADLE_OK;
  treadle_boxes boxes = {0}, next = {0};
  int skip = tensor->by_expert;
  int64_t size = (int64_t)treadle_dtype_bytes(dtype), stride[TREADLE_MAX_AXES] = {0};
  treadle_box whole = treadle_box_whole(tensor);
  if (skip) {
    whole.start[0] = expert;
    whole.size[0] = 1;
  }
  TRY(treadle_array_push(&boxes, whole));
  for (int d = 0; d < tensor->ndim - skip; d++) {
    int first = 0, last = -1;
    int64_t inner = p->stride[d];
    for (int a = tensor->naxes - 1; a >= 0; a--)
      if (tensor->axis_dim[a] == d + skip) {
        if (last < 0) last = a;
        first = a;
        stride[a] = inner;
        inner *= tensor->axis[a];
      }
    next.count = 0;
    for (size_t i = 0; i < boxes.count; i++)
      TRY(treadle_box_range(&boxes.items[i], first, last, p->start[d], p->start[d] + p->size[d], &next));
    treadle_boxes swap = boxes;
    boxes = next;
    next = swap;
  }
  int64_t origin = p->offset; /* where element 0 of the tensor would lie */
  for (int d = 0; d < tensor->ndim - skip; d++) origin -= p->start[d] * p->stride[d];
  for (size_t i = 0; i < boxes.count; i++) {
    treadle_rank_piece owned = {.rank = p->rank,
                                .piece = {.tensor = (int32_t)(tensor - b->layout->model->tensors),
                                          .storage = storage,
                                          .dtype = dtype,
                                          .box = boxes.items[i],
                                          .offset = origin * size}};
    for (int a = 0; a < tensor->naxes; a++) {
      owned.piece.stride[a] = stride[a] * size;
      owned.piece.offset += boxes.items[i].start[a] * owned.piece.stride[a];
    }
    TRY(treadle_array_push(&b->pieces, owned));
  }
out:
  treadle_array_release(&boxes);
  treadle_array_release(&next);
  return status;
}

static treadle_status add_piece(treadle_explicit_builder *b, const treadle_explicit_piece *p) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = b->layout->model;
  size_t storage = 0;
  if (p->rank < 0 || p->rank >= b->layout->ranks)
    TREADLE_EXPLICIT_REFUSE("pieces: rank %" PRId64 " is not one of %" PRId64, p->rank, b->layout->ranks);
  int64_t found = p->tensor ? treadle_hash_map_get(&model->by_name, p->tensor, -1) : -1;
  if (found < 0)
    TREADLE_EXPLICIT_REFUSE("pieces: the model has no tensor '%s'", p->tensor ? p->tensor : "");
  if (!p->storage || !*p->storage)
    TREADLE_EXPLICIT_REFUSE("pieces: a piece of %s names no storage", p->tensor);
  if (p->storage_ndim < 1 || p->storage_ndim > TREADLE_MAX_DIMS)
    TREADLE_EXPLICIT_REFUSE("pieces: storage '%s' has %d dimensions; 1 to %d will do", p->storage,
                            p->storage_ndim, TREADLE_MAX_DIMS);
  if ((unsigned)p->dtype > TREADLE_INT32)
    TREADLE_EXPLICIT_REFUSE("pieces: storage '%s' has dtype %d, which is none; 0 to %d", p->storage,
                            (int)p->dtype, TREADLE_INT32);
  const treadle_entry *entry = &model->entries[found];
  const treadle_tensor *tensor = &model->tensors[entry->tensor];
  treadle_dtype dtype = p->dtype ? p->dtype : tensor->dtype, *known = &b->dtypes[entry->tensor];
  if ((dtype == TREADLE_INT32) != (tensor->dtype == TREADLE_INT32))
    TREADLE_EXPLICIT_REFUSE("pieces: %s is of type %s, and given in %s", tensor->name,
                            treadle_dtype_name(tensor->dtype), treadle_dtype_name(dtype));
  if (*known && *known != dtype)
    TREADLE_EXPLICIT_REFUSE("pieces: %s is given in %s and in %s", tensor->name, treadle_dtype_name(*known),
                            treadle_dtype_name(dtype));
  *known = dtype;
  TRY(check_piece(p, tensor));
  TRY(find_storage(b, p, dtype, &storage));
  TRY(push_boxes(b, p, tensor, entry->expert, (int32_t)storage, dtype));
out:
  return status;
}

/* ---- Tables ---- */

static int compare_by_tensor(const void *a, const void *b) {
  const treadle_rank_piece *x = a, *y = b;
  if (x->piece.tensor != y->piece.tensor) return x->piece.tensor < y->piece.tensor ? -1 : 1;
  return treadle_explicit_compare_ranks(a, b);
}

static treadle_status index_pieces(treadle_explicit_builder *b) {
  treadle_explicit *explicit = b->explicit;
  size_t count = b->pieces.count, ranks = (size_t)b->layout->ranks;
  size_t tensors = (size_t)b->layout->model->tensor_count, data = 0;
  explicit->by_rank = treadle_arena_alloc_array(&explicit->arena, count + 1, sizeof *explicit->by_rank);
  explicit->by_tensor = treadle_arena_alloc_array(&explicit->arena, count + 1, sizeof *explicit->by_tensor);
  explicit->rank_first =
      treadle_arena_alloc_array(&explicit->arena, ranks + 1, sizeof *explicit->rank_first);
  explicit->tensor_first =
      treadle_arena_alloc_array(&explicit->arena, tensors + 1, sizeof *explicit->tensor_first);
  if (!explicit->by_rank || !explicit->by_tensor || !explicit->rank_first || !explicit->tensor_first)
    return treadle_explicit_no_memory();
  for (size_t i = 0; i < count; i++) {
    explicit->by_rank[i] = b->pieces.items[i];
    explicit->rank_first[b->pieces.items[i].rank + 1]++;
    if (b->pieces.items[i].piece.tensor < 0) continue;
    explicit->by_tensor[data++] = b->pieces.items[i];
    explicit->tensor_first[b->pieces.items[i].piece.tensor + 1]++;
  }
  for (size_t r = 0; r < ranks; r++) explicit->rank_first[r + 1] += explicit->rank_first[r];
  for (size_t t = 0; t < tensors; t++) explicit->tensor_first[t + 1] += explicit->tensor_first[t];
  qsort(explicit->by_rank, count, sizeof *explicit->by_rank, treadle_explicit_compare_ranks);
  qsort(explicit->by_tensor, data, sizeof *explicit->by_tensor, compare_by_tensor);
  return TREADLE_OK;
}

static int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The edges of one tensor's pieces, and its placement. */
static treadle_status find_edges(treadle_explicit_builder *b, int32_t t) {
  treadle_explicit *explicit = b->explicit;
  const treadle_tensor *tensor = &b->layout->model->tensors[t];
  size_t first = explicit->tensor_first[t], end = explicit->tensor_first[t + 1];
  uint64_t placement = 0;
  for (int a = 0; a < tensor->naxes; a++) {
    int64_t *at = treadle_arena_alloc_array(&explicit->arena, 2 * (end - first) + 2, sizeof *at);
    if (!at) return treadle_explicit_no_memory();
    size_t count = 0;
    at[count++] = 0;
    at[count++] = tensor->axis[a];
    for (size_t i = first; i < end; i++) {
      const treadle_box *box = &explicit->by_tensor[i].piece.box;
      at[count++] = box->start[a];
      at[count++] = box->start[a] + box->size[a];
      placement = treadle_hash_more(placement, (uint64_t)box->start[a]);
      placement = treadle_hash_more(placement, (uint64_t)box->size[a]);
      placement = treadle_hash_more(placement, (uint64_t) explicit->by_tensor[i].rank);
    }
    qsort(at, count, sizeof *at, compare_int64);
    size_t unique = 0;
    for (size_t i = 0; i < count; i++)
      if (unique == 0 || at[unique - 1] != at[i]) at[unique++] = at[i];
    explicit->edges[t].at[a] = at;
    explicit->edges[t].count[a] = (int32_t)unique;
  }
  explicit->placement[t] = placement;
  return TREADLE_OK;
}

/* Every cell of every tensor has a holder. */
static treadle_status check_cover(treadle_explicit_builder *b) {
  treadle_status status = TREADLE_OK;
  treadle_explicit *explicit = b->explicit;
  const treadle_model *model = b->layout->model;
  size_t tensors = (size_t)model->tensor_count;
  treadle_cells cells = {0};
  explicit->edges = treadle_arena_alloc_array(&explicit->arena, tensors + 1, sizeof *explicit->edges);
  explicit->placement =
      treadle_arena_alloc_array(&explicit->arena, tensors + 1, sizeof *explicit->placement);
  if (!explicit->edges || !explicit->placement) return treadle_explicit_no_memory();
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    TRY(find_edges(b, t));
    if (tensor->scale_of >= 0 && !b->layout->fp8) continue;
    int64_t product = 1;
    for (int a = 0; a < tensor->naxes; a++) {
      product *= explicit->edges[t].count[a] - 1;
      if (product > TREADLE_MAX_CELLS)
        TREADLE_EXPLICIT_REFUSE("pieces: the pieces of %s cut it in more than %d parts", tensor->name,
                                TREADLE_MAX_CELLS);
    }
    treadle_box whole = treadle_box_whole(tensor);
    cells.count = 0;
    TRY(treadle_layout_cells(b->layout, t, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++)
      if (cells.items[i].holders == 0)
        TREADLE_EXPLICIT_REFUSE("pieces: no rank holds all elements of %s", tensor->name);
  }
out:
  treadle_array_release(&cells);
  return status;
}

static uint64_t digest_pieces(const treadle_explicit_piece *pieces, size_t count) {
  uint64_t hash = count;
  for (size_t i = 0; i < count; i++) {
    const treadle_explicit_piece *p = &pieces[i];
    hash = treadle_hash_text(p->storage, hash);
    hash = treadle_hash_text(p->tensor, hash);
    const int64_t numbers[] = {p->rank, p->storage_ndim, (int64_t)p->dtype, p->offset};
    for (size_t k = 0; k < 4; k++) hash = treadle_hash_more(hash, (uint64_t)numbers[k]);
    for (int d = 0; d < TREADLE_MAX_DIMS; d++) {
      const int64_t more[] = {p->storage_shape[d], p->start[d], p->size[d], p->stride[d]};
      for (size_t k = 0; k < 4; k++) hash = treadle_hash_more(hash, (uint64_t)more[k]);
    }
  }
  return hash;
}

treadle_status treadle_explicit_build(treadle_layout *layout, const treadle_explicit_piece *pieces,
                                      size_t count) {
  treadle_status status = TREADLE_OK;
  treadle_explicit_builder b = {.layout = layout};
  if (layout->ranks > TREADLE_MAX_TABLE_RANKS)
    return treadle_fail(TREADLE_REFUSED, "pieces: %" PRId64 " ranks; at most %d will do", layout->ranks,
                        TREADLE_MAX_TABLE_RANKS);
  b.explicit = treadle_alloc(sizeof *b.explicit);
  if (!b.explicit) return treadle_explicit_no_memory();
  layout->ops = &treadle_explicit_ops;
  layout->state = b.explicit;
  layout->is_train = true;
  size_t tensors = (size_t)layout->model->tensor_count;
  b.dtypes = treadle_arena_alloc_array(&b.explicit->arena, tensors + 1, sizeof *b.dtypes);
  if (!b.dtypes) return treadle_explicit_no_memory();
  for (size_t i = 0; i < count; i++) TRY(add_piece(&b, &pieces[i]));
  TRY(treadle_explicit_find_fp8(&b));
  for (size_t t = 0; t < tensors; t++) {
    const treadle_tensor *tensor = &layout->model->tensors[t];
    if (b.dtypes[t]) continue;
    if (tensor->scale_of < 0 || layout->fp8)
      TREADLE_EXPLICIT_REFUSE("pieces: no rank holds %s", tensor->name);
    b.dtypes[t] = tensor->dtype; /* no scales where there are no codes */
  }
  layout->dtypes = b.dtypes;
  TRY(treadle_explicit_place_storages(&b));
  TRY(treadle_explicit_fill_gaps(&b));
  TRY(index_pieces(&b));
  TRY(check_cover(&b));
  TRY(treadle_explicit_check_blocks(&b));
  layout->digest = treadle_hash_more(digest_pieces(pieces, count), (uint64_t)layout->ranks);
out:
  treadle_array_release(&b.storages);
  treadle_array_release(&b.pieces);
  return status;
}

treadle_status treadle_layout_from_pieces(const treadle_model *model, int64_t ranks,
                                          const treadle_explicit_piece *pieces, size_t count,
                                          treadle_layout **layout_p) {
  TREADLE_NEED(layout_p);
  *layout_p = NULL;
  TREADLE_NEED(model);
  if (count > 0) TREADLE_NEED(pieces);
  treadle_layout *layout;
  treadle_status status = treadle_layout_start(model, "pieces", ranks, &layout);
  if (status == TREADLE_OK) status = treadle_explicit_build(layout, pieces, count);
  *layout_p = status == TREADLE_OK ? layout : NULL;
  if (status != TREADLE_OK) treadle_layout_destroy(layout);
  return status;
}
