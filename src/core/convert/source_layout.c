/* From a canonical box to places in files, by way of a layout.
 *
 * The cells of the source layout say on which rank a part of the box lies, and where in that rank's window. The window
 * is a row of storage tensors, each dense; files have the same tensors, with strides of their own and maybe in chunks.
 * So an address in the window becomes coordinates in a storage tensor, and a step of an axis becomes a step of one of
 * its dimensions: most rules build storage tensors of whole dimensions, axes are factors of them. Not so `merge`
 * (Megatron's GroupedMLP: expert by expert in memory, whatever its shape says): a storage tensor that its file has
 * whole and dense is a vector. */
#include "convert/source_layout.h"

#include "base/dtype.h"
#include "base/search.h"
#include "flat/flat.h"

#include <inttypes.h>
#include <string.h>

/* A box in the coordinates of one storage tensor. */
typedef struct part {
  treadle_box box;
  int64_t at[TREADLE_MAX_DIMS]; /* of the element at box.start */
} part;

typedef TREADLE_ARRAY(part) part_array;

/* How the axes of a box step through a storage tensor. */
typedef struct frame {
  int ndim;
  int8_t dim[TREADLE_MAX_AXES]; /* of each axis */
  int64_t step[TREADLE_MAX_AXES];
} frame;

/* One storage tensor as it is looked at. */
typedef struct look {
  treadle_source *source;
  treadle_stored_shard_of chunk_of;
  const treadle_storage *storage;
  int64_t rank;
  int32_t number;
  const treadle_cell *cell;
  treadle_file_boxes *places;
  part_array now, next; /* scratch */
  treadle_strideds clipped;
} look;

/* A chunk that is all of the storage tensor, row-major, becomes one of a vector. */
static bool make_vector(const treadle_storage *storage, treadle_stored_shard *chunk) {
  int64_t elems = 1;
  for (int d = storage->ndim - 1; d >= 0; d--) {
    int64_t size = storage->shape[d];
    if (chunk->offset[d] || chunk->size[d] != size || (size > 1 && chunk->stride[d] != elems)) return false;
    elems *= size;
  }
  chunk->offset[0] = 0;
  chunk->size[0] = elems;
  chunk->stride[0] = 1;
  return true;
}

static void make_vector_frame(const treadle_box *box, const int64_t *stride, int64_t offset, frame *f,
                              part *p) {
  *f = (frame){.ndim = 1};
  *p = (part){.box = *box, .at = {offset}};
  memcpy(f->step, stride, sizeof f->step);
}

/* Strides and offset in elements of the dense tensor. */
static treadle_status make_frame(const look *l, const treadle_box *box, const int64_t *stride,
                                 int64_t offset, frame *f, part *p) {
  const treadle_storage *storage = l->storage;
  int64_t dense[TREADLE_MAX_DIMS], last[TREADLE_MAX_DIMS], elems = 1;
  bool across = false;
  *f = (frame){.ndim = storage->ndim};
  *p = (part){.box = *box};
  for (int d = storage->ndim - 1; d >= 0; d--) {
    dense[d] = elems;
    elems *= storage->shape[d];
    last[d] = p->at[d] = offset / dense[d] % storage->shape[d];
  }
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    if (box->size[a] == 1) continue;
    int d = storage->ndim - 1;
    while (d > 0 && stride[a] >= dense[d] * storage->shape[d]) d--;
    f->dim[a] = (int8_t)d;
    f->step[a] = stride[a] / dense[d];
    last[d] += (box->size[a] - 1) * f->step[a];
    across = across || stride[a] % dense[d];
  }
  for (int d = 0; d < storage->ndim; d++) across = across || last[d] >= storage->shape[d];
  if (across)
    return treadle_fail(TREADLE_REFUSED,
                        "%s lies across the dimensions of its storage tensor; it can only be read from a "
                        "file in which that is whole and row-major, without strides or chunks",
                        l->source->model->tensors[l->cell->tensor].name);
  return TREADLE_OK;
}

/* Keeps what of a part lies in [low, high) of one dimension. */
static treadle_status clip_dim(look *l, const frame *f, const part *from, int dim, int64_t low,
                               int64_t high) {
  treadle_status status = TREADLE_OK;
  treadle_strided line = {.box = from->box, .offset = from->at[dim]};
  int64_t last = from->at[dim];
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    bool along = from->box.size[a] > 1 && f->dim[a] == dim;
    line.stride[a] = along ? f->step[a] : 1;
    if (!along) line.box.size[a] = 1;
    last += (line.box.size[a] - 1) * line.stride[a];
  }
  if (from->at[dim] >= low && last < high) return treadle_array_push(&l->next, *from);
  l->clipped.count = 0;
  TRY(treadle_strided_clip(&line, (treadle_span){low, high}, 0, &l->clipped));
  for (size_t i = 0; i < l->clipped.count; i++) {
    part kept = *from;
    for (int a = 0; a < TREADLE_MAX_AXES; a++)
      if (from->box.size[a] > 1 && f->dim[a] == dim) {
        kept.box.start[a] = l->clipped.items[i].box.start[a];
        kept.box.size[a] = l->clipped.items[i].box.size[a];
      }
    kept.at[dim] = l->clipped.items[i].offset;
    TRY(treadle_array_push(&l->next, kept));
  }
out:
  return status;
}

static treadle_status push_chunk(look *l, const frame *f, const part *whole,
                                 const treadle_stored_shard *chunk) {
  treadle_status status;
  int64_t size = (int64_t)treadle_dtype_bytes(l->cell->dtype);
  l->now.count = 0;
  TRY(treadle_array_push(&l->now, *whole));
  for (int d = 0; d < f->ndim; d++) {
    l->next.count = 0;
    for (size_t i = 0; i < l->now.count; i++)
      TRY(clip_dim(l, f, &l->now.items[i], d, chunk->offset[d], chunk->offset[d] + chunk->size[d]));
    part_array swap = l->now;
    l->now = l->next;
    l->next = swap;
  }
  for (size_t i = 0; i < l->now.count; i++) {
    const part *p = &l->now.items[i];
    treadle_file_box place = {.box = p->box,
                              .data = chunk->data,
                              .dtype = l->cell->dtype,
                              .add = l->cell->add,
                              .file = chunk->file};
    for (int d = 0; d < f->ndim; d++) place.data += (p->at[d] - chunk->offset[d]) * chunk->stride[d] * size;
    for (int a = 0; a < TREADLE_MAX_AXES; a++)
      if (p->box.size[a] > 1) place.stride[a] = f->step[a] * chunk->stride[f->dim[a]] * size;
    TRY(treadle_array_push(l->places, place));
  }
out:
  return status;
}

/* A box in one storage tensor of one rank; `offset` is the window's. */
static treadle_status look_at(look *l, const treadle_box *box, int64_t offset, const int64_t *stride,
                              int64_t expert) {
  treadle_status status;
  const treadle_storage *storage = l->storage;
  int64_t size = (int64_t)treadle_dtype_bytes(l->cell->dtype), elems[TREADLE_MAX_AXES];
  int64_t begin = storage->offset + expert * storage->slot_stride;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) elems[a] = stride[a] / size;
  l->number = (int32_t)(storage->public_first + expert * storage->run + storage->run_at);
  treadle_stored_shard chunk;
  for (int32_t n = 0; l->chunk_of(l->source, l->rank, l->number, n, &chunk); n++) {
    frame f;
    part whole;
    if (make_vector(storage, &chunk))
      make_vector_frame(box, elems, (offset - begin) / size, &f, &whole);
    else
      TRY(make_frame(l, box, elems, (offset - begin) / size, &f, &whole));
    TRY(push_chunk(l, &f, &whole, &chunk));
  }
out:
  return status;
}

/* The storage tensor of a window that has this byte. */
static const treadle_storage *storage_at(const treadle_layout *layout, int64_t rank, int64_t offset) {
  int32_t count;
  const treadle_storage *storages = treadle_layout_storages(layout, rank, &count);
  return storages + treadle_last_at_most(&storages->offset, sizeof *storages, count, offset);
}

/* What of `box` lies in a cell, on one of its holders. */
static treadle_status look_at_cell(look *l, const treadle_box *box, int64_t holder) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = l->source->layout;
  const int64_t *stride;
  treadle_box common;
  if (!treadle_box_meet(box, &l->cell->box, &common)) return TREADLE_OK;
  l->rank = treadle_cell_rank(layout, l->cell, holder);
  int64_t offset = treadle_cell_locate(layout, l->cell, holder, &stride);
  l->storage = storage_at(layout, l->rank, offset);
  for (int a = 0; a < TREADLE_MAX_AXES; a++)
    offset += (common.start[a] - l->cell->box.start[a]) * stride[a];
  if (!l->storage->by_expert) return look_at(l, &common, offset, stride, 0);
  int64_t first = (offset - l->storage->offset) / l->storage->slot_stride, experts = common.size[0];
  common.size[0] = 1;
  for (int64_t e = 0; e < experts; e++, common.start[0]++, offset += l->storage->slot_stride)
    TRY(look_at(l, &common, offset, stride, first + e));
out:
  return status;
}

static void end_look(look *l) {
  treadle_array_release(&l->now);
  treadle_array_release(&l->next);
  treadle_array_release(&l->clipped);
}

treadle_status treadle_layout_places(treadle_source *source, treadle_stored_shard_of chunk_of,
                                     int32_t tensor, const treadle_box *box, treadle_file_boxes *places) {
  treadle_status status;
  treadle_cells cells = {0};
  look l = {.source = source, .chunk_of = chunk_of, .places = places};
  TRY(treadle_layout_cells(source->layout, tensor, box, &cells));
  for (size_t i = 0; i < cells.count; i++) {
    l.cell = &cells.items[i];
    TRY(look_at_cell(&l, box, 0));
  }
out:
  end_look(&l);
  treadle_array_release(&cells);
  return status;
}

/* ---- Comparing copies -------------------------------------------------------------------------- */

typedef struct span {
  int64_t size, a, b; /* strides in bytes */
} span;

static bool equal_spans(const span *spans, int count, const char *a, const char *b, size_t row) {
  if (count == 0) return memcmp(a, b, row) == 0;
  for (int64_t i = 0; i < spans->size; i++)
    if (!equal_spans(spans + 1, count - 1, a + i * spans->a, b + i * spans->b, row)) return false;
  return true;
}

static bool equal_places(const treadle_file_box *a, const treadle_file_box *b) {
  span spans[TREADLE_MAX_AXES];
  int count = 0;
  size_t row = treadle_dtype_bytes(a->dtype);
  for (int x = 0; x < TREADLE_MAX_AXES; x++) {
    if (a->box.size[x] == 1) continue;
    int at = count++; /* slow to fast */
    for (; at > 0 && spans[at - 1].a < a->stride[x]; at--) spans[at] = spans[at - 1];
    spans[at] = (span){a->box.size[x], a->stride[x], b->stride[x]};
  }
  for (; count > 0 && spans[count - 1].a == (int64_t)row && spans[count - 1].b == (int64_t)row; count--)
    row *= (size_t)spans[count - 1].size;
  return equal_spans(spans, count, a->data, b->data, row);
}

static int64_t reach_of(const treadle_file_box *place) {
  int64_t reach = (int64_t)treadle_dtype_bytes(place->dtype);
  for (int a = 0; a < TREADLE_MAX_AXES; a++) reach += (place->box.size[a] - 1) * place->stride[a];
  return reach;
}

static treadle_status compare_holders(look *l, treadle_file_boxes *first, treadle_file_boxes *other,
                                      int64_t *bytes) {
  treadle_status status = TREADLE_OK;
  const treadle_source *source = l->source;
  for (size_t i = 0; i < other->count; i++) {
    const treadle_file_box *a = &first->items[i], *b = &other->items[i];
    if (a->data == b->data) continue; /* two ranks of one file */
    TRY(treadle_source_ask(l->source, a->data, reach_of(a)));
    TRY(treadle_source_ask(l->source, b->data, reach_of(b)));
    if (!equal_places(a, b)) {
      char name[256];
      treadle_layout_storage_name(source->layout, l->rank, l->storage, 0, name, sizeof name);
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s and %s hold %s (%s) with different values; a layout in which both are the same "
                       "weight does not "
                       "fit these files",
                       source->files[a->file], source->files[b->file],
                       source->model->tensors[l->cell->tensor].name, name));
    }
    *bytes += 2 * treadle_box_elems(&a->box) * (int64_t)treadle_dtype_bytes(a->dtype);
    TRY(treadle_source_touch(l->source, a->data, reach_of(a)));
    TRY(treadle_source_touch(l->source, b->data, reach_of(b)));
  }
out:
  return status;
}

treadle_status treadle_layout_compare(treadle_source *source, treadle_stored_shard_of chunk_of,
                                      int32_t tensor, int64_t limit, int64_t *bytes) {
  enum { STEP = 16 << 20 }; /* bytes that are compared at once */
  treadle_status status;
  treadle_cells cells = {0};
  treadle_file_boxes first = {0}, other = {0};
  treadle_boxes boxes = {0};
  look l = {.source = source, .chunk_of = chunk_of};
  const treadle_box whole = treadle_box_whole(&source->model->tensors[tensor]);
  TRY(treadle_layout_cells(source->layout, tensor, &whole, &cells));
  for (size_t i = 0; i < cells.count; i++) {
    l.cell = &cells.items[i];
    int64_t cell_bytes = treadle_box_elems(&l.cell->box) * (int64_t)treadle_dtype_bytes(l.cell->dtype);
    if (l.cell->holders < 2 || cell_bytes >= limit) continue;
    int naxes = source->model->tensors[tensor].naxes;
    int64_t elems = treadle_box_elems(&l.cell->box),
            step = STEP / (int64_t)treadle_dtype_bytes(l.cell->dtype);
    boxes.count = 0;
    for (int64_t at = 0; at < elems; at += step)
      TRY(treadle_box_range(&l.cell->box, 0, naxes - 1, at, at + step < elems ? at + step : elems, &boxes));
    for (size_t k = 0; k < boxes.count; k++) {
      first.count = 0;
      l.places = &first;
      TRY(look_at_cell(&l, &boxes.items[k], 0));
      for (int64_t holder = 1; holder < l.cell->holders; holder++) {
        other.count = 0;
        l.places = &other;
        TRY(look_at_cell(&l, &boxes.items[k], holder));
        TRY(compare_holders(&l, &first, &other, bytes));
      }
    }
  }
out:
  end_look(&l);
  treadle_array_release(&boxes);
  treadle_array_release(&first);
  treadle_array_release(&other);
  treadle_array_release(&cells);
  return status;
}
