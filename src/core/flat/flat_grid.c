/* Flat grids: "who has this box?", computed from the grid's answer, and the table of functions. pieces.c has
 * "what has rank r?". */
#include "flat/flat_grid.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "grid/grid.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Who has this box? ---- */

/* Appends the ranges of a grid's cell, of `param`, that meet `wanted`. cell->offset counts from the
 * parameter's begin. Addresses count elements of the unit. Range r has [r * shard, (r + 1) * shard); each
 * range that an address from first to last lies in gives its own cells. Their holders are those of the
 * grid's cell with index r along unit->over, so they are over->size times fewer where the unit is cut. */
static treadle_status push_ranges(const treadle_layout *layout, const treadle_flat_stage *stage,
                                  const treadle_cell *cell, const treadle_flat_param *param,
                                  const treadle_box *wanted, treadle_strideds *parts,
                                  treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_flat_share *unit = &stage->units[param->unit];
  int64_t size = (int64_t)treadle_dtype_bytes(cell->dtype);
  treadle_box common, meet;
  if (!treadle_box_meet(&cell->box, wanted, &common)) return TREADLE_OK;
  treadle_strided from = {.box = cell->box, .offset = param->start + cell->offset / size};
  int64_t first = from.offset,
          last = first; /* addresses of the first and of the last element that are wanted */
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    from.stride[a] = cell->stride[a] / size;
    first += (common.start[a] - cell->box.start[a]) * from.stride[a];
    last += (common.start[a] + common.size[a] - 1 - cell->box.start[a]) * from.stride[a];
  }
  const treadle_nest nest = treadle_nest_of(&from);
  if (last / unit->shard - first / unit->shard >= TREADLE_MAX_CELLS)
    return treadle_refuse_cells(layout, cell->tensor);
  for (int64_t range = first / unit->shard; range <= last / unit->shard; range++) {
    treadle_span span = {range * unit->shard, (range + 1) * unit->shard};
    parts->count = 0;
    TRY(treadle_nest_clip(&nest, &from, span, span.low, parts));
    for (size_t i = 0; i < parts->count; i++) {
      if (!treadle_box_meet(&parts->items[i].box, wanted, &meet)) continue;
      if (cells->count >= TREADLE_MAX_CELLS) return treadle_refuse_cells(layout, cell->tensor);
      treadle_cell clipped = *cell;
      clipped.box = parts->items[i].box;
      clipped.offset = parts->items[i].offset * size;
      if (unit->over) {
        clipped.range_over = unit->over;
        clipped.range = range;
        clipped.holders /= unit->over->size;
        if (stage->steps) treadle_flat_place_in_order(stage, param, range, &clipped);
      }
      TRY(treadle_array_push(cells, clipped));
    }
  }
out:
  return status;
}

static treadle_status flat_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                 treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_flat_grid *flat = treadle_flat_of(layout);
  treadle_cells whole = {0};
  treadle_strideds parts = {0};
  TRY(treadle_grid_ops.cells(layout, tensor, box, &whole));
  for (size_t i = 0; i < whole.count; i++) {
    treadle_cell cell = whole.items[i];
    const treadle_holder *holder = treadle_grid_holder(&flat->grid, &cell, 0);
    const treadle_flat_stage *stage = &flat->stages[holder->stage];
    const treadle_storage *storage = treadle_flat_grid_storage(flat, holder->stage, holder->storage);
    /* A cell [experts, ...] of storage with a parameter for each expert is asked for expert by expert:
     * each begins at an address of its own. */
    if (!storage->by_expert) {
      TRY(push_ranges(layout, stage, &cell, treadle_flat_param_of(stage, storage, 0), box, &parts, cells));
      continue;
    }
    /* [first, end): the cell's experts that are asked for; e - begin is the number of expert e on its
     * rank. */
    int64_t begin = cell.box.start[0], first = box->start[0] > begin ? box->start[0] : begin;
    int64_t end = begin + cell.box.size[0];
    if (end > box->start[0] + box->size[0]) end = box->start[0] + box->size[0];
    cell.box.size[0] = 1;
    for (int64_t e = first; e < end; e++) {
      cell.box.start[0] = e;
      TRY(push_ranges(layout, stage, &cell, treadle_flat_param_of(stage, storage, e - begin), box, &parts,
                      cells));
    }
  }
out:
  treadle_array_release(&whole);
  treadle_array_release(&parts);
  return status;
}

/* All holders of a cell have it at the same place of a unit (flat_place), but the units need not begin alike.
 * cell->offset is in bytes, from the start of its range of the unit; the range is the storage tensor of the
 * holder's window. `number` is the expert's slot on that rank. */
static int64_t flat_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                const int64_t **stride_p) {
  const treadle_flat_grid *flat = treadle_flat_of(layout);
  const treadle_holder *of = treadle_grid_holder(&flat->grid, cell, holder);
  const treadle_flat_stage *stage = &flat->stages[of->stage];
  const treadle_storage *storage = treadle_flat_grid_storage(flat, of->stage, of->storage);
  int64_t number = 0;
  if (storage->by_expert)
    number = cell->box.start[0] - treadle_slots_first(flat->grid.slots[storage->layer], cell->slot);
  *stride_p = cell->stride;
  return stage->storages[treadle_flat_param_of(stage, storage, number)->unit].offset + cell->offset;
}

/* ---- The window ---- */

static const treadle_storage *flat_storages(const treadle_layout *layout, int64_t rank, int32_t *count_p) {
  const treadle_flat_stage *stage =
      treadle_flat_stage_at(treadle_flat_of(layout), treadle_order_layout(&layout->order, rank));
  *count_p = stage->unit_count;
  return stage->storages;
}

static int32_t flat_public_count(const treadle_layout *layout, int64_t rank) {
  return treadle_flat_stage_at(treadle_flat_of(layout), treadle_order_layout(&layout->order, rank))
      ->unit_count;
}

static void flat_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                              int64_t expert, char *text, size_t capacity) {
  const treadle_flat_stage *stage =
      treadle_flat_stage_at(treadle_flat_of(layout), treadle_order_layout(&layout->order, rank));
  (void)expert;
  snprintf(text, capacity, "%s", stage->units[storage - stage->storages].name);
}

/* Whole rows: range r has [r * shape[0], (r + 1) * shape[0]) of unit->rows, as far as they go. 9 rows over
 * 4 are 3, 3, 3, 0 (docs/rules.md 10.2). */
static void flat_local_shape(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                             int64_t *shape) {
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_flat_stage *stage = treadle_flat_stage_at(treadle_flat_of(layout), at);
  const treadle_flat_share *unit = &stage->units[storage - stage->storages];
  if (unit->rows == 0) return;
  int64_t left = unit->rows - treadle_flat_range(unit, at) * storage->shape[0];
  shape[0] = left < 0 ? 0 : left < storage->shape[0] ? left : storage->shape[0];
}

static int64_t flat_window_bytes(const treadle_layout *layout, int64_t rank) {
  return treadle_flat_stage_at(treadle_flat_of(layout), treadle_order_layout(&layout->order, rank))
      ->window_bytes;
}

static int64_t flat_window_bytes_max(const treadle_layout *layout) {
  return treadle_flat_of(layout)->window_bytes_max;
}

/* Beside the grid's coordinate, the rank's index on each dimension that units are cut over, in the order
 * of units. */
static uint64_t flat_coordinate(const treadle_layout *layout, int64_t rank) {
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_flat_stage *stage = treadle_flat_stage_at(treadle_flat_of(layout), at);
  uint64_t hash = treadle_grid_ops.coordinate(layout, rank);
  const treadle_dim *before = NULL;
  for (int32_t u = 0; u < stage->unit_count; u++) {
    const treadle_dim *over = stage->units[u].over;
    if (over && over != before) hash = treadle_hash_more(hash, (uint64_t)treadle_dim_index(over, at));
    before = over;
  }
  return hash;
}

static uint64_t flat_placement(const treadle_layout *layout, int32_t tensor) {
  return treadle_grid_ops.placement(layout, tensor);
}

/* Cells follow from where a tensor's parameters begin and how long ranges are; with long units, from the unit too. */
static uint64_t flat_cells_like(const treadle_layout *layout, int32_t tensor) {
  const treadle_flat_grid *flat = treadle_flat_of(layout);
  const treadle_grid *grid = &flat->grid;
  uint64_t hash = treadle_grid_ops.placement(layout, tensor);
  for (int32_t h = grid->holder_first[tensor]; h < grid->holder_first[tensor + 1]; h++) {
    const treadle_flat_stage *stage = &flat->stages[grid->holders[h].stage];
    const treadle_storage *storage =
        treadle_flat_grid_storage(flat, grid->holders[h].stage, grid->holders[h].storage);
    int64_t count = storage->by_expert ? storage->slots : 1;
    for (int64_t e = 0; e < count; e++) {
      const treadle_flat_param *param = treadle_flat_param_of(stage, storage, e);
      const treadle_flat_share *unit = &stage->units[param->unit];
      hash = treadle_hash_more(hash, (uint64_t)param->start);
      hash = treadle_hash_more(hash, (uint64_t)unit->shard);
      hash =
          treadle_hash_more(hash, unit->over ? (uint64_t)(unit->over - grid->mesh.dims) : TREADLE_MAX_MESH);
      if (stage->steps) hash = treadle_hash_more(hash, (uint64_t)param->unit);
    }
  }
  return hash;
}

static int64_t flat_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  return treadle_grid_ops.cell_rank(layout, cell, holder);
}

static int64_t flat_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  return treadle_grid_ops.cell_find(layout, cell, rank);
}

static bool flat_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell) {
  return treadle_grid_ops.cell_is_plain(layout, cell);
}

static const treadle_form *flat_forms(const treadle_layout *layout) {
  return treadle_flat_of(layout)->forms;
}

static const treadle_mesh *flat_mesh(const treadle_layout *layout) { return treadle_grid_ops.mesh(layout); }

static void flat_destroy(treadle_layout *layout) { treadle_grid_ops.destroy(layout); }

/* Cells are ranges of units, and a range has one set of holders. */
static const treadle_layout_ops flat_ops = {
    .holders_apart = true,
    .pieces = treadle_flat_pieces,
    .pieces_in = treadle_flat_pieces_in,
    .pieces_of = treadle_flat_pieces_of,
    .forms = flat_forms,
    .bundles_of = treadle_flat_bundles_of,
    .cells = flat_cells,
    .cell_rank = flat_cell_rank,
    .cell_find = flat_cell_find,
    .cell_locate = flat_cell_locate,
    .cell_is_plain = flat_cell_is_plain,
    .placement = flat_placement,
    .cells_like = flat_cells_like,
    .mesh = flat_mesh,
    .storages = flat_storages,
    .public_count = flat_public_count,
    .storage_name = flat_storage_name,
    .local_shape = flat_local_shape,
    .window_bytes = flat_window_bytes,
    .window_bytes_max = flat_window_bytes_max,
    .coordinate = flat_coordinate,
    .destroy = flat_destroy,
};

treadle_status treadle_flat_start(treadle_layout *layout, treadle_flat_grid **flat_p) {
  *flat_p = treadle_alloc(sizeof **flat_p);
  if (!*flat_p) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  layout->ops = &flat_ops;
  layout->state = *flat_p;
  return TREADLE_OK;
}
