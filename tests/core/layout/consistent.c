/* A layout against the windows that its own pieces describe. */
#include "layout/consistent.h"

#include "base/dtype.h"
#include "test.h"

#include <inttypes.h>

typedef struct element { /* of a window; tensor -1: a fill, -2: nothing */
  int32_t tensor;
  int64_t index;
} element;

typedef struct rank_window { /* an element for each two bytes, where one begins */
  element *at;
  treadle_pieces pieces;
} rank_window;

enum { NOTHING = -2, REST = -3, GRAIN = 2 };

#define CONTRADICTION(layout, format, ...)                                                                 \
  fail_msg("%s on %" PRId64 " ranks, %s: " format, (layout)->text, (layout)->ranks,                        \
           (layout)->model->family->name, __VA_ARGS__)

/* ---- Windows ---- */

static int64_t index_of(const treadle_tensor *tensor, const int64_t *at) {
  int64_t index = 0;
  for (int a = 0; a < tensor->naxes; a++) index = index * tensor->axis[a] + at[a];
  return index;
}

/* Next position in a box; false behind the last one. at counts from 0. */
static bool step(const treadle_box *box, int64_t *at) {
  int a = TREADLE_MAX_AXES - 1;
  while (a >= 0 && ++at[a] == box->size[a]) at[a--] = 0;
  return a >= 0;
}

static int64_t place_of(const int64_t *at, const int64_t *stride) {
  int64_t place = 0;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) place += at[a] * stride[a];
  return place;
}

static int64_t canonical_of(const treadle_tensor *tensor, const treadle_box *box, const int64_t *at) {
  int64_t absolute[TREADLE_MAX_AXES];
  for (int a = 0; a < TREADLE_MAX_AXES; a++) absolute[a] = box->start[a] + at[a];
  return index_of(tensor, absolute);
}

static void write_piece(const treadle_layout *layout, int64_t rank, const treadle_piece *piece,
                        element *window) {
  int64_t at[TREADLE_MAX_AXES] = {0}, bytes = (int64_t)treadle_layout_window_bytes(layout, rank);
  int64_t size = (int64_t)treadle_dtype_bytes(piece->dtype);
  const treadle_tensor *tensor = piece->tensor >= 0 ? &layout->model->tensors[piece->tensor] : NULL;
  for (int a = 0; a < TREADLE_MAX_AXES; a++)
    if (piece->box.size[a] < 1)
      CONTRADICTION(layout, "rank %" PRId64 ": a piece of storage %d has size %" PRId64 " in axis %d", rank,
                    piece->storage, piece->box.size[a], a);
  do {
    int64_t byte = piece->offset + place_of(at, piece->stride);
    if (byte < 0 || byte + size > bytes || byte % size != 0)
      CONTRADICTION(layout, "rank %" PRId64 ": storage %d has an element at byte %" PRId64 " of %" PRId64,
                    rank, piece->storage, byte, bytes);
    for (int64_t b = byte; b < byte + size; b += GRAIN) {
      element *e = &window[b / GRAIN];
      if (e->tensor != NOTHING)
        CONTRADICTION(layout, "rank %" PRId64 ": byte %" PRId64 " is held twice", rank, b);
      *e = (element){REST, 0};
    }
    window[byte / GRAIN] =
        tensor ? (element){piece->tensor, canonical_of(tensor, &piece->box, at)} : (element){-1, 0};
  } while (step(&piece->box, at));
}

/* Every byte of every storage tensor that users see is held, and no other. */
static void check_storages(const treadle_layout *layout, int64_t rank, const rank_window *window) {
  int64_t bytes = (int64_t)treadle_layout_window_bytes(layout, rank), held = 0, stored = 0;
  int32_t count = treadle_layout_storage_count(layout, rank);
  for (int64_t b = 0; b < bytes; b += GRAIN) held += window->at[b / GRAIN].tensor != NOTHING;
  for (int32_t s = 0; s < count; s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    int64_t elems = 1;
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    for (int d = 0; d < info.ndim; d++) elems *= info.shape[d];
    if ((int64_t)info.bytes != elems * (int64_t)treadle_dtype_bytes(info.dtype))
      CONTRADICTION(layout, "rank %" PRId64 ": %s has %zu bytes", rank, info.name, info.bytes);
    if ((int64_t)(info.offset_bytes + info.bytes) > bytes)
      CONTRADICTION(layout, "rank %" PRId64 ": %s is outside of the window", rank, info.name);
    for (size_t b = info.offset_bytes; b < info.offset_bytes + info.bytes; b += GRAIN)
      if (window->at[b / GRAIN].tensor == NOTHING)
        CONTRADICTION(layout, "rank %" PRId64 ": byte %zu of %s has no piece", rank, b - info.offset_bytes,
                      info.name);
    stored += (int64_t)info.bytes / GRAIN;
  }
  if (held != stored)
    CONTRADICTION(layout, "rank %" PRId64 ": pieces hold %" PRId64 " bytes, storage tensors have %" PRId64,
                  rank, held * GRAIN, stored * GRAIN);
}

static void write_window(const treadle_layout *layout, int64_t rank, rank_window *window) {
  size_t elems = treadle_layout_window_bytes(layout, rank) / GRAIN + 1;
  int32_t count;
  const treadle_storage *storages = treadle_layout_storages(layout, rank, &count);
  window->at = malloc(elems * sizeof *window->at);
  assert_non_null(window->at);
  for (size_t i = 0; i < elems; i++) window->at[i] = (element){NOTHING, 0};
  assert_ok(treadle_layout_pieces(layout, rank, &window->pieces));
  for (size_t i = 0; i < window->pieces.count; i++) {
    const treadle_piece *piece = &window->pieces.items[i];
    assert_in_range(piece->storage, 0, count - 1);
    assert_int_equal(piece->dtype, storages[piece->storage].dtype);
    if (i > 0) assert_true(piece->storage >= piece[-1].storage);
    write_piece(layout, rank, piece, window->at);
  }
  check_storages(layout, rank, window);
}

static bool same_piece(const treadle_piece *a, const treadle_piece *b) {
  if (a->tensor != b->tensor || a->storage != b->storage || a->dtype != b->dtype || a->add != b->add ||
      a->offset != b->offset || !treadle_box_equal(&a->box, &b->box))
    return false;
  for (int i = 0; i < TREADLE_MAX_AXES; i++)
    if (a->box.size[i] > 1 && a->stride[i] != b->stride[i]) return false;
  return true;
}

static void check_pieces_of(const treadle_layout *layout, int64_t rank, const rank_window *window) {
  treadle_pieces some = {0};
  size_t found = 0;
  for (int32_t t = 0; t < layout->model->tensor_count; t++) {
    some.count = 0;
    assert_ok(treadle_layout_pieces_of(layout, rank, t, &some));
    size_t wanted = 0, equal = 0;
    for (size_t i = 0; i < window->pieces.count; i++) {
      if (window->pieces.items[i].tensor != t) continue;
      wanted++;
      for (size_t k = 0; k < some.count; k++) equal += same_piece(&window->pieces.items[i], &some.items[k]);
    }
    if (wanted != some.count || equal != wanted)
      CONTRADICTION(layout,
                    "rank %" PRId64 ": pieces_of gives %zu pieces of %s, pieces %zu, and %zu are equal",
                    rank, some.count, layout->model->tensors[t].name, wanted, equal);
    found += wanted;
  }
  for (size_t i = 0; i < window->pieces.count; i++) found += window->pieces.items[i].tensor < 0;
  assert_int_equal(found, window->pieces.count);
  treadle_array_release(&some);
}

static void check_places(const treadle_layout *layout, const rank_window *windows) {
  for (int64_t r = 1; r < layout->ranks; r++)
    for (int64_t before = 0; before < r; before++) {
      if (treadle_layout_place(layout, r) != treadle_layout_place(layout, before)) continue;
      const treadle_pieces *a = &windows[r].pieces, *b = &windows[before].pieces;
      bool equal = a->count == b->count;
      for (size_t i = 0; equal && i < a->count; i++) equal = same_piece(&a->items[i], &b->items[i]);
      if (!equal)
        CONTRADICTION(layout, "ranks %" PRId64 " and %" PRId64 " have one place and other pieces", before,
                      r);
      break;
    }
}

/* ---- Cells ---- */

/* The elements of a cell lie where a holder says. */
static void check_holder(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                         const rank_window *windows) {
  const treadle_tensor *tensor = &layout->model->tensors[cell->tensor];
  const int64_t *stride;
  int64_t rank = treadle_cell_rank(layout, cell, holder);
  if (rank < 0 || rank >= layout->ranks)
    CONTRADICTION(layout, "%s: holder %" PRId64 " of a cell is rank %" PRId64, tensor->name, holder, rank);
  int64_t offset = treadle_cell_locate(layout, cell, holder, &stride), at[TREADLE_MAX_AXES] = {0};
  int64_t bytes = (int64_t)treadle_layout_window_bytes(layout, rank);
  do {
    int64_t byte = offset + place_of(at, stride), index = canonical_of(tensor, &cell->box, at);
    if (byte < 0 || byte >= bytes)
      CONTRADICTION(layout, "%s: rank %" PRId64 " has a cell outside of its window", tensor->name, rank);
    const element *e = &windows[rank].at[byte / GRAIN];
    if (e->tensor != cell->tensor || e->index != index)
      CONTRADICTION(layout,
                    "%s: rank %" PRId64 " (holder %" PRId64 " of %" PRId64 ") has no element %" PRId64
                    " at byte %" PRId64,
                    tensor->name, rank, holder, cell->holders, index, byte);
  } while (step(&cell->box, at));
  int64_t found = treadle_cell_find(layout, cell, rank);
  if (found < 0 || found >= cell->holders || treadle_cell_rank(layout, cell, found) != rank)
    CONTRADICTION(layout, "%s: rank %" PRId64 " is holder %" PRId64 ", and find says %" PRId64,
                  tensor->name, rank, holder, found);
}

static bool is_holder(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  for (int64_t h = 0; h < cell->holders; h++)
    if (treadle_cell_rank(layout, cell, h) == rank) return true;
  return false;
}

/* Holders lie in places of their own, and a rank that is none is not found. */
static void check_holders(const treadle_layout *layout, const treadle_cell *cell,
                          const rank_window *windows) {
  const char *name = layout->model->tensors[cell->tensor].name;
  const int64_t *stride;
  if (cell->holders < 1) CONTRADICTION(layout, "%s: a cell has no holder", name);
  for (int64_t h = 0; h < cell->holders; h++) {
    check_holder(layout, cell, h, windows);
    for (int64_t k = 0; k < h; k++)
      if (treadle_cell_rank(layout, cell, h) == treadle_cell_rank(layout, cell, k) &&
          treadle_cell_locate(layout, cell, h, &stride) == treadle_cell_locate(layout, cell, k, &stride))
        CONTRADICTION(layout, "%s: holders %" PRId64 " and %" PRId64 " of a cell are the same", name, k, h);
  }
  for (int64_t r = 0; r < layout->ranks; r++)
    if ((treadle_cell_find(layout, cell, r) >= 0) != is_holder(layout, cell, r))
      CONTRADICTION(layout, "%s: find and the holders of a cell do not agree on rank %" PRId64, name, r);
}

static void check_cover(const treadle_layout *layout, int32_t t, const treadle_cells *cells) {
  const treadle_tensor *tensor = &layout->model->tensors[t];
  uint8_t *seen = calloc((size_t)tensor->elems, 1);
  int64_t held = 0;
  assert_non_null(seen);
  for (size_t i = 0; i < cells->count; i++) {
    int64_t at[TREADLE_MAX_AXES] = {0};
    assert_int_equal(cells->items[i].tensor, t);
    do {
      int64_t index = canonical_of(tensor, &cells->items[i].box, at);
      if (index < 0 || index >= tensor->elems || seen[index]++)
        CONTRADICTION(layout, "%s: element %" PRId64 " is in two cells", tensor->name, index);
      held++;
    } while (step(&cells->items[i].box, at));
  }
  if (held != tensor->elems)
    CONTRADICTION(layout, "%s: cells cover %" PRId64 " of %" PRId64 " elements", tensor->name, held,
                  tensor->elems);
  free(seen);
}

static bool same_cell(const treadle_layout *layout, const treadle_cell *a, const treadle_cell *b) {
  if (!treadle_box_equal(&a->box, &b->box) || a->holders != b->holders || a->dtype != b->dtype ||
      a->add != b->add)
    return false;
  for (int64_t h = 0; h < a->holders; h++)
    if (treadle_cell_rank(layout, a, h) != treadle_cell_rank(layout, b, h)) return false;
  return true;
}

/* The cells that meet a box, by asking for it and by asking for all. */
static void check_box(const treadle_layout *layout, int32_t t, const treadle_box *box,
                      const treadle_cells *all) {
  treadle_cells some = {0};
  treadle_box common;
  size_t next = 0;
  assert_ok(treadle_layout_cells(layout, t, box, &some));
  for (size_t i = 0; i < all->count; i++) {
    if (!treadle_box_meet(&all->items[i].box, box, &common)) continue;
    size_t k = 0;
    while (k < some.count && !same_cell(layout, &some.items[k], &all->items[i])) k++;
    if (k == some.count)
      CONTRADICTION(layout, "%s: a cell that meets a box is not among the box's",
                    layout->model->tensors[t].name);
    next++;
  }
  if (next != some.count)
    CONTRADICTION(layout, "%s: a box has %zu cells, and %zu meet it", layout->model->tensors[t].name,
                  some.count, next);
  treadle_array_release(&some);
}

/* Boxes of one element at both ends, halves of each axis, and the middle. */
static void check_boxes(const treadle_layout *layout, int32_t t, const treadle_cells *all) {
  const treadle_tensor *tensor = &layout->model->tensors[t];
  treadle_box whole = treadle_box_whole(tensor), one = whole, last = whole, middle = whole;
  for (int a = 0; a < tensor->naxes; a++) {
    one.size[a] = last.size[a] = 1;
    last.start[a] = whole.size[a] - 1;
    middle.start[a] = whole.size[a] / 3;
    middle.size[a] = (whole.size[a] + 2) / 3;
    treadle_box half = whole;
    half.size[a] = (whole.size[a] + 1) / 2;
    check_box(layout, t, &half, all);
    half.start[a] = whole.size[a] / 2;
    check_box(layout, t, &half, all);
  }
  check_box(layout, t, &one, all);
  check_box(layout, t, &last, all);
  check_box(layout, t, &middle, all);
}

/* A tensor of the same type and placement before this one has the same cells. */
static void check_placement(const treadle_layout *layout, int32_t t, const treadle_cells *all) {
  const treadle_model *model = layout->model;
  for (int32_t before = 0; before < t; before++) {
    if (model->tensors[before].pattern != model->tensors[t].pattern ||
        treadle_layout_placement(layout, before) != treadle_layout_placement(layout, t))
      continue;
    treadle_cells other = {0};
    treadle_box whole = treadle_box_whole(&model->tensors[before]);
    assert_ok(treadle_layout_cells(layout, before, &whole, &other));
    bool equal = other.count == all->count;
    for (size_t i = 0; equal && i < other.count; i++)
      equal = same_cell(layout, &other.items[i], &all->items[i]);
    if (!equal)
      CONTRADICTION(layout, "%s and %s have one placement and other cells", model->tensors[before].name,
                    model->tensors[t].name);
    treadle_array_release(&other);
    return;
  }
}

/* ---- Runs ---- */

static void check_runs(const treadle_layout *layout, int64_t rank, const rank_window *window) {
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs;
    size_t count;
    int64_t next = 0;
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    assert_ok(treadle_layout_runs(layout, rank, s, &runs, &count));
    int64_t size = (int64_t)treadle_dtype_bytes(info.dtype);
    for (size_t i = 0; i < count; i++) {
      if (runs[i].local_start != next)
        CONTRADICTION(layout, "rank %" PRId64 ": runs of %s go from %" PRId64 " to %" PRId64, rank,
                      info.name, next, runs[i].local_start);
      next += runs[i].count;
      for (int64_t k = 0; k < runs[i].count; k++) {
        const element *e =
            &window->at[((int64_t)info.offset_bytes + (runs[i].local_start + k) * size) / GRAIN];
        int32_t tensor = runs[i].tensor;
        int64_t index = runs[i].start + k * runs[i].stride;
        if (tensor >= 0) {
          const treadle_entry *entry = &layout->model->entries[tensor];
          const treadle_tensor *of = &layout->model->tensors[entry->tensor];
          tensor = entry->tensor;
          if (entry->expert >= 0) index += entry->expert * (of->elems / of->shape[0]);
        } else {
          index = 0;
        }
        if (e->tensor != tensor || e->index != index)
          CONTRADICTION(layout, "rank %" PRId64 ": run %zu of %s is not what pieces say", rank, i,
                        info.name);
      }
    }
    if (next * size != (int64_t)info.bytes)
      CONTRADICTION(layout, "rank %" PRId64 ": runs of %s end at %" PRId64, rank, info.name, next);
    free(runs);
  }
}

void consistent_layout(const treadle_layout *layout) {
  rank_window *windows = calloc((size_t)layout->ranks, sizeof *windows);
  int64_t largest = 0;
  assert_non_null(windows);
  for (int64_t r = 0; r < layout->ranks; r++) {
    int64_t bytes = (int64_t)treadle_layout_window_bytes(layout, r);
    if (bytes > largest) largest = bytes;
    write_window(layout, r, &windows[r]);
    check_pieces_of(layout, r, &windows[r]);
    check_runs(layout, r, &windows[r]);
  }
  assert_int_equal(treadle_layout_window_max(layout), largest);
  check_places(layout, windows);
  treadle_cells cells = {0};
  for (int32_t t = 0; t < layout->model->tensor_count; t++) {
    treadle_box whole = treadle_box_whole(&layout->model->tensors[t]);
    cells.count = 0;
    assert_ok(treadle_layout_cells(layout, t, &whole, &cells));
    check_cover(layout, t, &cells);
    for (size_t i = 0; i < cells.count; i++) check_holders(layout, &cells.items[i], windows);
    check_boxes(layout, t, &cells);
    check_placement(layout, t, &cells);
  }
  treadle_array_release(&cells);
  for (int64_t r = 0; r < layout->ranks; r++) {
    treadle_array_release(&windows[r].pieces);
    free(windows[r].at);
  }
  free(windows);
}
