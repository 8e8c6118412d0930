/* Placements: what a rank has, and who has a box.
 *
 * Both are products. Each dimension of a storage tensor is a list of runs: those of a rank's coordinates, or those that meet a
 * box, with the coordinates that have them. A run of a dimension of several axes is a few boxes. */
#include "flat/placements.h"

#include "base/dtype.h"
#include "base/limits.h"

/* ---- Products of runs ---- */

/* Boxes of one dimension: those axes of `box` that lie in it. */
typedef struct slab {
  treadle_box box;
  int64_t local;  /* of the first element, among those of the ranks that have it */
  int64_t length; /* how many these have in this dimension */
  int64_t place;  /* in the mesh: the sum of its coordinates in the dimensions that cut this one */
} slab;

typedef struct slabs {
  TREADLE_ARRAY(slab) of[TREADLE_MAX_DIMS];
  treadle_strideds clipped; /* room to work in */
} slabs;

static void slabs_release(slabs *s) {
  for (int d = 0; d < TREADLE_MAX_DIMS; d++) treadle_array_release(&s->of[d]);
  treadle_array_release(&s->clipped);
}

/* A part in one dimension: its axes there, with their distances in elements of the dimension. */
typedef struct line {
  treadle_strided of;
  treadle_nest nest;
} line;

static line line_of(const treadle_placed_part *part, int dim) {
  line l = {.of.offset = part->base[dim]};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    bool here = part->dim[a] == dim;
    l.of.box.start[a] = here ? part->box.start[a] : 0;
    l.of.box.size[a] = here ? part->box.size[a] : 1;
    l.of.stride[a] = here ? part->weight[a] : 1;
  }
  l.nest = treadle_nest_of(&l.of);
  return l;
}

static bool meets_in(const treadle_placed_part *part, int dim, const treadle_box *box,
                     const treadle_box *wanted) {
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    if (part->dim[a] != dim) continue;
    if (box->start[a] >= wanted->start[a] + wanted->size[a] ||
        wanted->start[a] >= box->start[a] + box->size[a])
      return false;
  }
  return true;
}

/* Appends what a part has of a run. wanted NULL: all of it. */
static treadle_status push_run(slabs *s, const treadle_placed_part *part, int dim, const line *l,
                               const treadle_placement_run *run, int64_t place, const treadle_box *wanted) {
  treadle_status status = TREADLE_OK;
  s->clipped.count = 0;
  TRY(treadle_nest_clip(&l->nest, &l->of, (treadle_span){run->low, run->high}, 0, &s->clipped));
  for (size_t i = 0; i < s->clipped.count; i++) {
    const treadle_strided *clipped = &s->clipped.items[i];
    if (wanted && !meets_in(part, dim, &clipped->box, wanted)) continue;
    TRY(treadle_array_push(&s->of[dim], ((slab){.box = clipped->box,
                                                .local = run->local + clipped->offset - run->low,
                                                .length = run->length,
                                                .place = place})));
  }
out:
  return status;
}

/* One box of the product: the slabs at these positions. offset and strides are in bytes, of the local tensor. */
typedef struct product {
  treadle_box box;
  int64_t offset, stride[TREADLE_MAX_AXES], place;
} product;

static product product_at(const slabs *s, const treadle_placed *placed, const treadle_placed_part *part,
                          const size_t *at) {
  product made = {.box = part->box}; /* axes without a dimension: the number of an expert */
  int64_t step[TREADLE_MAX_DIMS], next = (int64_t)treadle_dtype_bytes(placed->dtype);
  for (int d = placed->ndim - 1; d >= 0; d--) {
    const slab *of = &s->of[d].items[at[d]];
    step[d] = next;
    next *= of->length;
    made.offset += of->local * step[d];
    made.place += of->place;
  }
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    int d = part->dim[a];
    if (d < 0) continue;
    made.box.start[a] = s->of[d].items[at[d]].box.start[a];
    made.box.size[a] = s->of[d].items[at[d]].box.size[a];
    made.stride[a] = part->weight[a] * step[d];
  }
  return made;
}

/* The next positions, the last dimension first; false: there are no more. */
static bool next_product(const slabs *s, int ndim, size_t *at) {
  int d = ndim - 1;
  while (d >= 0 && ++at[d] == s->of[d].count) at[d--] = 0;
  return d >= 0;
}

static size_t product_count(const slabs *s, int ndim) {
  size_t count = 1;
  for (int d = 0; d < ndim && count > 0 && count <= TREADLE_MAX_CELLS; d++) {
    if (s->of[d].count > TREADLE_MAX_CELLS) return s->of[d].count;
    count *= s->of[d].count;
  }
  return count;
}

/* ---- What has rank r? ---- */

/* Where a rank has a placed tensor. */
typedef struct location {
  int32_t placed, storage;
  int64_t place;  /* in the mesh */
  int64_t offset; /* of the storage tensor in the window */
} location;

static treadle_status push_part(const treadle_layout *layout, int32_t number, const location *of, slabs *s,
                                treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  const treadle_placed_part *part = &p->parts[number];
  const treadle_placed *placed = &p->placed[of->placed];
  const treadle_placement_cut *cut = treadle_placed_cut(p, placed);
  const treadle_placement_mesh *mesh = treadle_placed_mesh_of(p, placed);
  int64_t coordinates[TREADLE_MAX_PLACED_DIMS], other[TREADLE_MAX_PLACED_DIMS];
  size_t at[TREADLE_MAX_DIMS] = {0};
  for (int m = 0; m < mesh->ndim; m++) coordinates[m] = treadle_placement_coordinate(mesh, m, of->place);
  for (int d = 0; d < placed->ndim; d++) {
    const line l = line_of(part, d);
    int64_t length = treadle_placement_length(cut, d, placed->shape[d], coordinates), local = 0;
    s->of[d].count = 0;
    while (local < length) {
      int64_t element = treadle_placement_element(cut, d, placed->shape[d], coordinates, local);
      treadle_placement_run run = treadle_placement_find(cut, d, placed->shape[d], element, other);
      TRY(push_run(s, part, d, &l, &run, 0, NULL));
      local += run.high - run.low;
    }
    if (s->of[d].count == 0) return TREADLE_OK;
  }
  if (product_count(s, placed->ndim) > TREADLE_MAX_CELLS) return treadle_refuse_cells(layout, part->tensor);
  do {
    const product made = product_at(s, placed, part, at);
    treadle_piece piece = {.tensor = part->tensor,
                           .storage = of->storage,
                           .dtype = placed->dtype,
                           .box = made.box,
                           .offset = of->offset + made.offset};
    for (int a = 0; a < TREADLE_MAX_AXES; a++) piece.stride[a] = made.stride[a];
    TRY(treadle_array_push(pieces, piece));
  } while (next_product(s, placed->ndim, at));
out:
  return status;
}

static location location_of(const treadle_placements *p, const treadle_placed_window *window, int32_t index,
                            int64_t at) {
  int32_t placed = (int32_t)window->placed[index];
  return (location){placed, index,
                    treadle_placement_mesh_find(treadle_placed_mesh_of(p, &p->placed[placed]), at),
                    window->storages[index].offset};
}

static treadle_status push_storages(const treadle_layout *layout, int64_t rank, int32_t first, int32_t end,
                                    treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_placed_window *window = treadle_placed_window_of(p, at);
  slabs s = {0};
  for (int32_t i = first; i < (end < 0 ? window->count : end); i++) {
    const location of = location_of(p, window, i, at);
    const treadle_placed *placed = &p->placed[of.placed];
    for (int32_t k = 0; k < placed->part_count; k++)
      TRY(push_part(layout, placed->first_part + k, &of, &s, pieces));
  }
out:
  slabs_release(&s);
  return status;
}

treadle_status treadle_placed_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  return push_storages(layout, rank, 0, -1, pieces);
}

treadle_status treadle_placed_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                        treadle_pieces *pieces) {
  return push_storages(layout, rank, storage, storage + 1, pieces);
}

treadle_status treadle_placed_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_placed_window *window = treadle_placed_window_of(p, at);
  slabs s = {0};
  for (int32_t i = p->part_first[tensor]; i < p->part_first[tensor + 1]; i++) {
    int32_t placed = p->parts[p->parts_of[i]].placed;
    if (treadle_placement_mesh_find(treadle_placed_mesh_of(p, &p->placed[placed]), at) < 0) continue;
    const location of = location_of(p, window, treadle_placed_storage(window, placed), at);
    TRY(push_part(layout, p->parts_of[i], &of, &s, pieces));
  }
out:
  slabs_release(&s);
  return status;
}

/* ---- Who has this box? ---- */

/* The runs of a dimension that meet the box, which meets the part. */
static treadle_status push_meeting(const treadle_layout *layout, const treadle_placed_part *part, int dim,
                                   const treadle_box *wanted, slabs *s) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  const treadle_placed *placed = &p->placed[part->placed];
  const treadle_placement_cut *cut = treadle_placed_cut(p, placed);
  const treadle_placement_mesh *mesh = treadle_placed_mesh_of(p, placed);
  const line l = line_of(part, dim);
  int64_t low = part->base[dim], high = part->base[dim] + 1, coordinates[TREADLE_MAX_PLACED_DIMS];
  s->of[dim].count = 0;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    if (part->dim[a] != dim) continue;
    int64_t start = part->box.start[a], end = start + part->box.size[a];
    int64_t first = wanted->start[a] > start ? wanted->start[a] : start;
    int64_t last = wanted->start[a] + wanted->size[a] < end ? wanted->start[a] + wanted->size[a] : end;
    low += (first - start) * part->weight[a];
    high += (last - 1 - start) * part->weight[a];
  }
  for (int64_t at = low; at < high;) {
    const treadle_placement_run run = treadle_placement_find(cut, dim, placed->shape[dim], at, coordinates);
    int64_t place = 0;
    for (int32_t k = cut->first[dim]; k < cut->first[dim + 1]; k++)
      place += coordinates[cut->steps[k].mesh_dim] * mesh->weight[cut->steps[k].mesh_dim];
    TRY(push_run(s, part, dim, &l, &run, place, wanted));
    if (s->of[dim].count > TREADLE_MAX_CELLS) return treadle_refuse_cells(layout, part->tensor);
    at = run.high;
  }
out:
  return status;
}

static treadle_status push_cells(const treadle_layout *layout, int32_t number, const treadle_box *wanted,
                                 slabs *s, treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  const treadle_placed_part *part = &p->parts[number];
  const treadle_placed *placed = &p->placed[part->placed];
  size_t at[TREADLE_MAX_DIMS] = {0};
  treadle_box common;
  if (!treadle_box_meet(&part->box, wanted, &common)) return TREADLE_OK;
  for (int d = 0; d < placed->ndim; d++) {
    TRY(push_meeting(layout, part, d, wanted, s));
    if (s->of[d].count == 0) return TREADLE_OK;
  }
  if (product_count(s, placed->ndim) + cells->count > TREADLE_MAX_CELLS)
    return treadle_refuse_cells(layout, part->tensor);
  do {
    const product made = product_at(s, placed, part, at);
    treadle_cell cell = {.box = made.box,
                         .tensor = part->tensor,
                         .dtype = placed->dtype,
                         .holders = part->likes * treadle_placed_cut(p, placed)->copies,
                         .holder_first = number,
                         .holder_count = part->likes,
                         .shard = made.place,
                         .offset = made.offset};
    for (int a = 0; a < TREADLE_MAX_AXES; a++) cell.stride[a] = made.stride[a];
    TRY(treadle_array_push(cells, cell));
  } while (next_product(s, placed->ndim, at));
out:
  return status;
}

treadle_status treadle_placed_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_placements *p = treadle_placements_of(layout);
  slabs s = {0};
  for (int32_t i = p->part_first[tensor]; i < p->part_first[tensor + 1]; i++)
    if (p->parts[p->parts_of[i]].is_first) TRY(push_cells(layout, p->parts_of[i], box, &s, cells));
out:
  slabs_release(&s);
  return status;
}
