/* Grid layouts: the answers to "what has rank r" and "who has this box". */
#include "layout/grid.h"
#include "base/dtype.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

static const treadle_grid *grid_of(const treadle_layout *layout) { return layout->kind; }

static const treadle_grid_stage *stage_of(const treadle_layout *layout, int64_t layout_rank) {
  return &grid_of(layout)->stages[treadle_dim_index(grid_of(layout)->pp, layout_rank)];
}

/* Appends the pieces of one part of a storage tensor on a layout rank. */
static treadle_status push_part(const treadle_layout *layout, int64_t layout_rank, int32_t index,
                                const treadle_storage *storage, int part, treadle_parts *parts,
                                treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_grid_rule *rule = &grid_of(layout)->rules[storage->rule];
  int64_t shard = rule->over ? treadle_dim_index(rule->over, layout_rank) : 0;
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype);
  parts->count = 0;
  TRY(treadle_cut_part(layout->model, rule, storage, part, shard, parts));
  for (size_t i = 0; i < parts->count; i++) {
    treadle_piece piece = {.tensor = storage->parts[part],
                           .storage = index,
                           .dtype = storage->dtype,
                           .box = parts->items[i].box,
                           .offset = storage->offset + parts->items[i].offset * size};
    for (int a = 0; a < TREADLE_MAX_AXES; a++) piece.stride[a] = parts->items[i].stride[a] * size;
    TRY(treadle_array_push(pieces, piece));
  }
out:
  return status;
}

/* Rows of padding lie behind the vocabulary's rows. */
static treadle_status push_padding(const treadle_storage *storage, int32_t index, int64_t rows_held,
                                   treadle_pieces *pieces) {
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), elems = storage->bytes / size;
  int64_t held = elems / storage->shape[0] * rows_held;
  if (held == elems) return TREADLE_OK;
  treadle_piece fill = {
      .tensor = -1, .storage = index, .dtype = storage->dtype, .offset = storage->offset + held * size};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) fill.box.size[a] = 1;
  fill.box.size[0] = elems - held;
  fill.stride[0] = size;
  return treadle_array_push(pieces, fill);
}

static treadle_status grid_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_grid_stage *stage = stage_of(layout, at);
  treadle_parts parts = {0};
  for (int32_t i = 0; i < stage->count; i++) {
    const treadle_storage *storage = &stage->storages[i];
    size_t before = pieces->count;
    for (int p = 0; p < storage->nparts; p++) TRY(push_part(layout, at, i, storage, p, &parts, pieces));
    if (grid_of(layout)->rules[storage->rule].padded_rows) {
      int64_t rows = 0;
      for (size_t k = before; k < pieces->count; k++) rows += pieces->items[k].box.size[0];
      TRY(push_padding(storage, i, rows, pieces));
    }
  }
out:
  treadle_array_release(&parts);
  return status;
}

static treadle_status grid_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                     treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank), own = treadle_dim_index(grid->pp, at);
  treadle_parts parts = {0};
  for (int32_t h = grid->holder_first[tensor]; h < grid->holder_first[tensor + 1]; h++) {
    const treadle_holder *holder = &grid->holders[h];
    if (holder->stage != own) continue;
    TRY(push_part(layout, at, holder->storage, &grid->stages[own].storages[holder->storage], holder->part,
                  &parts, pieces));
  }
out:
  treadle_array_release(&parts);
  return status;
}

/* The layout ranks that hold a cell through one of its holders, for one of its repeated shards. */
static treadle_rank_set cell_set(const treadle_grid *grid, const treadle_cell *cell, int32_t holder,
                                 int64_t repeat) {
  const treadle_holder *at = &grid->holders[cell->holder_first + holder];
  const treadle_storage *storage = &grid->stages[at->stage].storages[at->storage];
  return treadle_mesh_select(&grid->mesh, grid->pp, at->stage, grid->rules[storage->rule].over,
                             cell->shard + repeat);
}

static treadle_status grid_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                 treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = grid_of(layout);
  const treadle_holder *holder = &grid->holders[grid->holder_first[tensor]];
  const treadle_storage *storage = &grid->stages[holder->stage].storages[holder->storage];
  const treadle_grid_rule *rule = &grid->rules[storage->rule];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), first, last, repeat;
  treadle_parts parts = {0};
  treadle_cut_shards(layout->model, rule, storage, holder->part, box, &first, &last, &repeat);
  for (int64_t shard = first; shard <= last; shard += repeat) {
    parts.count = 0;
    TRY(treadle_cut_part(layout->model, rule, storage, holder->part, shard, &parts));
    for (size_t i = 0; i < parts.count; i++) {
      treadle_box common;
      if (!treadle_box_meet(&parts.items[i].box, box, &common)) continue;
      treadle_cell cell = {.box = parts.items[i].box,
                           .tensor = tensor,
                           .dtype = storage->dtype,
                           .holder_first = grid->holder_first[tensor],
                           .holder_count = grid->holder_primary[tensor],
                           .shard = shard,
                           .shard_repeat = repeat,
                           .offset = parts.items[i].offset * size};
      for (int a = 0; a < TREADLE_MAX_AXES; a++) cell.stride[a] = parts.items[i].stride[a] * size;
      treadle_rank_set set = cell_set(grid, &cell, 0, 0);
      cell.holders = treadle_rank_set_count(&set) * repeat * cell.holder_count;
      TRY(treadle_array_push(cells, cell));
    }
  }
out:
  treadle_array_release(&parts);
  return status;
}

static int64_t grid_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  int64_t repeat = holder % cell->shard_repeat, rest = holder / cell->shard_repeat;
  treadle_rank_set set = cell_set(grid_of(layout), cell, (int32_t)(rest % cell->holder_count), repeat);
  return treadle_order_physical(&layout->order, treadle_rank_set_get(&set, rest / cell->holder_count));
}

static int64_t grid_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  const treadle_grid *grid = grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  int64_t stage = treadle_dim_index(grid->pp, at);
  for (int32_t h = 0; h < cell->holder_count; h++) {
    if (grid->holders[cell->holder_first + h].stage != stage) continue;
    for (int64_t repeat = 0; repeat < cell->shard_repeat; repeat++) {
      treadle_rank_set set = cell_set(grid, cell, h, repeat);
      int64_t position = treadle_rank_set_find(&set, at);
      if (position >= 0) return (position * cell->holder_count + h) * cell->shard_repeat + repeat;
    }
  }
  return -1;
}

static int64_t grid_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                const int64_t **stride_p) {
  const treadle_grid *grid = grid_of(layout);
  int64_t h = holder / cell->shard_repeat % cell->holder_count;
  const treadle_holder *at = &grid->holders[cell->holder_first + h];
  *stride_p = cell->stride;
  return grid->stages[at->stage].storages[at->storage].offset + cell->offset;
}

static uint64_t grid_placement(const treadle_layout *layout, int32_t tensor) {
  return grid_of(layout)->placement[tensor];
}

static const treadle_mesh *grid_mesh(const treadle_layout *layout) { return &grid_of(layout)->mesh; }

static const treadle_storage *grid_storages(const treadle_layout *layout, int64_t rank, int32_t *count_p) {
  const treadle_grid_stage *stage = stage_of(layout, treadle_order_layout(&layout->order, rank));
  *count_p = stage->count;
  return stage->storages;
}

static void grid_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                              char *text, size_t capacity) {
  (void)rank;
  const char *name = grid_of(layout)->rules[storage->rule].rule->name, *mark = strstr(name, "{l}");
  if (mark)
    snprintf(text, capacity, "%.*s%d%s", (int)(mark - name), name, storage->local_layer, mark + 3);
  else
    snprintf(text, capacity, "%s", name);
}

static int64_t grid_window_bytes(const treadle_layout *layout, int64_t rank) {
  return stage_of(layout, treadle_order_layout(&layout->order, rank))->window_bytes;
}

static int64_t grid_window_bytes_max(const treadle_layout *layout) {
  return grid_of(layout)->window_bytes_max;
}

static uint64_t grid_coordinate(const treadle_layout *layout, int64_t rank) {
  const treadle_grid *grid = grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  uint64_t hash = (uint64_t)treadle_dim_index(grid->pp, at);
  for (int32_t r = 0; r < grid->rule_count; r++) {
    const treadle_dim *over = grid->rules[r].over;
    if (over && (r == 0 || over != grid->rules[r - 1].over))
      hash = treadle_hash_more(hash, (uint64_t)treadle_dim_index(over, at));
  }
  return hash;
}

static void grid_destroy(treadle_layout *layout) {
  treadle_grid *grid = layout->kind;
  treadle_arena_release(&grid->arena);
  treadle_free(grid);
}

static const treadle_layout_ops grid_ops = {
    .pieces = grid_pieces,
    .pieces_of = grid_pieces_of,
    .cells = grid_cells,
    .cell_rank = grid_cell_rank,
    .cell_find = grid_cell_find,
    .cell_locate = grid_cell_locate,
    .placement = grid_placement,
    .mesh = grid_mesh,
    .storages = grid_storages,
    .storage_name = grid_storage_name,
    .window_bytes = grid_window_bytes,
    .window_bytes_max = grid_window_bytes_max,
    .coordinate = grid_coordinate,
    .destroy = grid_destroy,
};

treadle_status treadle_grid_start(treadle_layout *layout, treadle_grid **grid_p) {
  *grid_p = treadle_alloc(sizeof **grid_p);
  if (!*grid_p) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  layout->ops = &grid_ops;
  layout->kind = *grid_p;
  return TREADLE_OK;
}
