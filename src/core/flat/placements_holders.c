/* Placements: the ranks that hold a cell, windows, and the table of functions. */
#include "base/hash.h"
#include "flat/placements.h"

#include <stdio.h>

/* ---- Holders ---- */

/* Holder h is copy h % copies of the (h / copies)-th of the placed tensors that are cut alike. Copies count through the mesh
 * dimensions that do not cut, row-major. */
static const treadle_placed_part *holder_part(const treadle_placements *p, const treadle_cell *cell,
                                              int64_t holder, int64_t *copy_p) {
  const treadle_placed_part *part = &p->parts[cell->holder_first];
  int64_t copies = treadle_placed_cut(p, &p->placed[part->placed])->copies;
  for (; holder >= copies; holder -= copies) part = &p->parts[part->like];
  *copy_p = holder;
  return part;
}

static int64_t holder_rank(const treadle_placements *p, const treadle_cell *cell,
                           const treadle_placed_part *part, int64_t copy) {
  const treadle_placement_cut *cut = treadle_placed_cut(p, &p->placed[part->placed]);
  const treadle_placement_mesh *mesh = &p->meshes[cut->mesh];
  int64_t place = cell->shard;
  for (int m = mesh->ndim - 1; m >= 0; m--) {
    if (cut->cuts[m]) continue;
    place += copy % mesh->size[m] * mesh->weight[m];
    copy /= mesh->size[m];
  }
  return treadle_placement_mesh_rank(mesh, place);
}

static int64_t placed_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t copy;
  const treadle_placed_part *part = holder_part(p, cell, holder, &copy);
  return treadle_order_physical(&layout->order, holder_rank(p, cell, part, copy));
}

static int64_t placed_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank), before = 0;
  for (int32_t k = cell->holder_first; k >= 0; k = p->parts[k].like) {
    const treadle_placement_cut *cut = treadle_placed_cut(p, &p->placed[p->parts[k].placed]);
    const treadle_placement_mesh *mesh = &p->meshes[cut->mesh];
    int64_t place = treadle_placement_mesh_find(mesh, at), shard = cell->shard, copy = 0, weight = 1;
    bool has = place >= 0;
    for (int m = mesh->ndim - 1; has && m >= 0; m--) {
      int64_t size = mesh->size[m], coordinate = place % size;
      if (cut->cuts[m]) {
        has = coordinate == shard % size;
      } else {
        copy += coordinate * weight;
        weight *= size;
      }
      place /= size;
      shard /= size;
    }
    if (has) return before + copy;
    before += cut->copies;
  }
  return -1;
}

static int64_t placed_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                  const int64_t **stride_p) {
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t copy;
  const treadle_placed_part *part = holder_part(p, cell, holder, &copy);
  *stride_p = cell->stride;
  if (p->placed[part->placed].offset >= 0) return p->placed[part->placed].offset + cell->offset;
  const treadle_placed_window *window = treadle_placed_window_of(p, holder_rank(p, cell, part, copy));
  return window->storages[treadle_placed_storage(window, part->placed)].offset + cell->offset;
}

/* ---- Windows ---- */

static uint64_t placed_placement(const treadle_layout *layout, int32_t tensor) {
  return treadle_placements_of(layout)->placement[tensor];
}

static const treadle_storage *placed_storages(const treadle_layout *layout, int64_t rank,
                                              int32_t *count_p) {
  const treadle_placed_window *window =
      treadle_placed_window_of(treadle_placements_of(layout), treadle_order_layout(&layout->order, rank));
  *count_p = window->count;
  return window->storages;
}

static int32_t placed_public_count(const treadle_layout *layout, int64_t rank) {
  return treadle_placed_window_of(treadle_placements_of(layout), treadle_order_layout(&layout->order, rank))
      ->count;
}

static void placed_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                                int64_t expert, char *text, size_t capacity) {
  (void)expert;
  const treadle_placements *p = treadle_placements_of(layout);
  const treadle_placed_window *window =
      treadle_placed_window_of(p, treadle_order_layout(&layout->order, rank));
  snprintf(text, capacity, "%s", p->placed[window->placed[storage - window->storages]].name);
}

static void placed_local_shape(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                               int64_t *shape) {
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank), coordinates[TREADLE_MAX_PLACED_DIMS];
  const treadle_placed_window *window = treadle_placed_window_of(p, at);
  const treadle_placed *placed = &p->placed[window->placed[storage - window->storages]];
  const treadle_placement_mesh *mesh = treadle_placed_mesh_of(p, placed);
  const treadle_placement_cut *cut = treadle_placed_cut(p, placed);
  int64_t place = treadle_placement_mesh_find(mesh, at);
  for (int m = 0; m < mesh->ndim; m++) coordinates[m] = treadle_placement_coordinate(mesh, m, place);
  bool empty = false;
  for (int d = 0; d < placed->ndim; d++) {
    shape[d] = treadle_placement_length(cut, d, placed->shape[d], coordinates);
    empty = empty || shape[d] == 0;
  }
  for (int d = 0; empty && d < placed->ndim; d++)
    if (cut->fully[d]) shape[d] = 0; /* fully_shard gives rows to no shard without elements */
}

static int64_t placed_window_bytes(const treadle_layout *layout, int64_t rank) {
  return treadle_placed_window_of(treadle_placements_of(layout), treadle_order_layout(&layout->order, rank))
      ->bytes;
}

static int64_t placed_window_bytes_max(const treadle_layout *layout) {
  return treadle_placements_of(layout)->window_bytes_max;
}

/* Ranks of one group that have the same coordinates in all mesh dimensions that cut anything. */
static uint64_t placed_coordinate(const treadle_layout *layout, int64_t rank) {
  const treadle_placements *p = treadle_placements_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  int32_t group = treadle_placement_group_of(&p->groups, at);
  uint64_t hash = treadle_hash_more(1, (uint64_t)group);
  for (int32_t i = p->groups.mesh_first[group]; i < p->groups.mesh_first[group + 1]; i++) {
    const treadle_placement_mesh *mesh = &p->meshes[p->groups.meshes[i]];
    int64_t place = treadle_placement_mesh_find(mesh, at);
    for (int m = 0; m < mesh->ndim; m++)
      if (mesh->cuts[m])
        hash = treadle_hash_more(hash, (uint64_t)treadle_placement_coordinate(mesh, m, place));
  }
  return hash;
}

static void placed_destroy(treadle_layout *layout) {
  treadle_placements *p = layout->state;
  treadle_arena_release(&p->arena);
  treadle_free(p);
}

const treadle_layout_ops treadle_placements_ops = {
    .pieces = treadle_placed_pieces,
    .pieces_in = treadle_placed_pieces_in,
    .pieces_of = treadle_placed_pieces_of,
    .cells = treadle_placed_cells,
    .cell_rank = placed_cell_rank,
    .cell_find = placed_cell_find,
    .cell_locate = placed_cell_locate,
    .placement = placed_placement,
    .storages = placed_storages,
    .public_count = placed_public_count,
    .storage_name = placed_storage_name,
    .local_shape = placed_local_shape,
    .window_bytes = placed_window_bytes,
    .window_bytes_max = placed_window_bytes_max,
    .coordinate = placed_coordinate,
    .destroy = placed_destroy,
};
