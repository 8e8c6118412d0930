/* Grid layouts: "who has this box?" */
#include "base/dtype.h"
#include "base/limits.h"
#include "grid/grid.h"

#include <string.h>

/* A holder of a cell, of the cell's regions, slots and repeated shards. A set of ranks has each
 * seat, which treadle_mesh_select computes; nothing is listed by rank. A holder's number, from 0 to
 * cell->holders - 1, is a seat and a rank of its set; seat_of takes it apart. */
typedef struct seat {
  int32_t holder;
  int64_t slot, repeat;
} seat;

/* The storage tensor of a holder, in the first variant. Variants differ in offsets and in the number of
 * experts, not in rules, parts or layers. */
static const treadle_storage *storage_of(const treadle_grid *grid, const treadle_holder *holder) {
  return &grid->stages[holder->stage * grid->variants].storages[holder->storage];
}

static const treadle_holder *holder_of(const treadle_grid *grid, const treadle_cell *cell, const seat *at) {
  return &grid->holders[cell->holder_first + at->holder];
}

/* The ep rank of a seat, and its place among the experts there. Without a map the cell is all experts of
 * one ep rank, and cell->slot is that rank: its first expert is at place 0. With a map the cell is one
 * expert, and cell->slot is where its slots begin in slots->places. 8 experts and 4 redundant ones with
 * ep = 4 are 3 slots a rank: expert 1 has slots 1 and 9, which are rank 0 place 1 and rank 3 place 0. */
static int64_t seat_ep(const treadle_grid *grid, const treadle_cell *cell, const seat *at,
                       int64_t *place_p) {
  *place_p = 0;
  if (!cell->slots) return 0;
  const treadle_slots *slots = grid->slots[storage_of(grid, holder_of(grid, cell, at))->layer];
  if (!slots->logical) return cell->slot;
  int64_t slot = slots->places[cell->slot + at->slot], rank = treadle_slots_rank(slots, slot);
  *place_p = slot - treadle_slots_first(slots, rank);
  return rank;
}

/* The layout ranks of a seat. Dimensions that no rule fixes (dp, and tp of what is whole) are free: their
 * ranks are copies. A repeated shard is fixed at one of its shards: with 2 KV heads over tp = 8 the cell of
 * head 1 has shard 4, and its seats are of shards 4 to 7. */
static treadle_rank_set seat_set(const treadle_grid *grid, const treadle_cell *cell, const seat *at) {
  const treadle_holder *holder = holder_of(grid, cell, at);
  const treadle_grid_rule *rule = &grid->rules[storage_of(grid, holder)->rule];
  int64_t place;
  treadle_fixed fixed[] = {{grid->pp, holder->stage},
                           {rule->over, cell->shard + at->repeat},
                           {rule->ep, seat_ep(grid, cell, at, &place)},
                           {cell->range_over, cell->range}};
  return treadle_mesh_select(&grid->mesh, fixed, 4);
}

static int64_t slots_of(const treadle_cell *cell) { return cell->slots ? cell->slots : 1; }

/* Experts that follow each other in slots of a rank. */
typedef struct experts {
  int64_t first, count, stride;
} experts;

/* Appends a cell: a part of a shard, of all of the tensor or of some experts. The wanted box chooses cells
 * and does not cut them: cells are the same whoever asks. The experts are axis 0 of the tensor, [experts,
 * rows, columns]; the part knows the axes behind it. */
static treadle_status push_cell(const treadle_layout *layout, const treadle_cell *like,
                                const treadle_part_shape *shape, const treadle_part *part,
                                const experts *of, const treadle_box *wanted, treadle_cells *cells) {
  const treadle_grid *grid = treadle_grid_of(layout);
  treadle_cell cell = *like;
  treadle_box common;
  int64_t size = (int64_t)treadle_dtype_bytes(cell.dtype);
  treadle_part_canonical(shape, part, &cell.box, cell.stride);
  for (int a = 0; a < TREADLE_MAX_AXES; a++) cell.stride[a] *= size;
  if (of) {
    cell.box.start[0] = of->first;
    cell.box.size[0] = of->count;
    cell.stride[0] = of->stride;
  }
  if (!treadle_box_meet(&cell.box, wanted, &common)) return TREADLE_OK;
  if (cells->count >= TREADLE_MAX_CELLS) return treadle_refuse_cells(layout, cell.tensor);
  cell.offset = part->offset * size;
  seat first = {0};
  treadle_rank_set set = seat_set(grid, &cell, &first);
  /* All seats of a cell fix the same dimensions, so each has as many ranks as the first. */
  cell.holders = treadle_rank_set_count(&set) * cell.shard_repeat * cell.holder_count * slots_of(&cell);
  return treadle_array_push(cells, cell);
}

/* The cells of one part of one shard: one for each rank of ep or, with an expert map, each expert. */
static treadle_status push_expert_cells(const treadle_layout *layout, treadle_cell *cell,
                                        const treadle_storage *storage, const treadle_part_shape *shape,
                                        const treadle_part *part, const treadle_box *box,
                                        treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_slots *slots = treadle_grid_of(layout)->slots[storage->layer];
  int64_t first = box->start[0], last = first + box->size[0] - 1;
  if (!slots->logical) {
    cell->slots = 1;
    /* Experts in order: rank r has a run of them, one cell. Experts 3 to 6 of 8 over ep = 4 ask for the
     * cells of ranks 1 to 3, which are experts 2 to 7. */
    for (int64_t r = treadle_slots_rank(slots, first); r <= treadle_slots_rank(slots, last); r++) {
      const experts of = {treadle_slots_first(slots, r), treadle_slots_on(slots, r), storage->slot_stride};
      cell->slot = r;
      TRY(push_cell(layout, cell, shape, part, &of, box, cells));
    }
    return TREADLE_OK;
  }
  /* With a map neighbours in number need not be neighbours in memory: a cell for each. */
  for (int64_t expert = first; expert <= last; expert++) {
    const experts of = {expert, 1, storage->slot_stride};
    cell->slot = slots->first[expert];
    cell->slots = slots->first[expert + 1] - slots->first[expert];
    TRY(push_cell(layout, cell, shape, part, &of, box, cells));
  }
out:
  return status;
}

/* The cells of one region: for each shard that may meet the box, its parts, and for each part the ranks of
 * ep. Repeated shards are the same box, so only the first of them is walked. The first holder of the region
 * speaks for all, since they are cut alike. */
static treadle_status region_cells(const treadle_layout *layout, int32_t tensor,
                                   const treadle_region *region, const treadle_box *box,
                                   treadle_parts *parts, treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = treadle_grid_of(layout);
  const treadle_holder *holder = &grid->holders[region->holder_first];
  const treadle_storage *storage = storage_of(grid, holder);
  const treadle_grid_rule *rule = &grid->rules[storage->rule];
  const treadle_part_shape *shape = &rule->parts[holder->part];
  bool one_more = holder->part >= storage->nparts - rule->also;
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), first, last, repeat;
  treadle_box seen;
  if (!treadle_part_seen(shape, box, &seen)) return TREADLE_OK;
  treadle_cut_shards(rule, storage, holder->part, &seen, &first, &last, &repeat);
  for (int64_t shard = first; shard <= last; shard += repeat) {
    parts->count = 0;
    TRY(treadle_cut_part(rule, storage, holder->part, shard, true, parts));
    for (size_t i = 0; i < parts->count; i++) {
      treadle_part *part = &parts->items[i];
      treadle_cell cell = {.tensor = tensor,
                           .dtype = storage->dtype,
                           .add = rule->rule->add,
                           .holder_first = region->holder_first,
                           .holder_count = region->holder_count,
                           .shard = shard,
                           .shard_repeat = repeat};
      if (rule->ep && !one_more) {
        TRY(push_expert_cells(layout, &cell, storage, shape, part, box, cells));
      } else {
        /* The shared expert lies behind the routed ones of the rank (docs/rules.md 6.3). Offsets of parts
         * are elements, slot_stride is bytes. */
        if (one_more) part->offset += storage->slots * storage->slot_stride / size;
        TRY(push_cell(layout, &cell, shape, part, NULL, box, cells));
      }
    }
  }
out:
  return status;
}

treadle_status treadle_grid_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                  treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = treadle_grid_of(layout);
  treadle_parts parts = {0};
  for (int32_t r = grid->region_first[tensor]; r < grid->region_first[tensor + 1]; r++)
    TRY(region_cells(layout, tensor, &grid->regions[r], box, &parts, cells));
out:
  treadle_array_release(&parts);
  return status;
}

/* Holders are numbered: repeated shards first, then slots, holders of the region, ranks. The number is
 * ((rank * holder_count + holder) * slots + slot) * shard_repeat + repeat, rank counting in the set of the
 * seat. With 4 repeated shards, one slot and one holder, holder 6 is rank 1 of the set of shard + 2. */
static seat seat_of(const treadle_cell *cell, int64_t holder, int64_t *position_p) {
  seat at = {.repeat = holder % cell->shard_repeat};
  holder /= cell->shard_repeat;
  at.slot = holder % slots_of(cell);
  holder /= slots_of(cell);
  at.holder = (int32_t)(holder % cell->holder_count);
  *position_p = holder / cell->holder_count;
  return at;
}

const treadle_holder *treadle_grid_holder(const treadle_grid *grid, const treadle_cell *cell,
                                          int64_t holder) {
  int64_t position;
  seat at = seat_of(cell, holder, &position);
  return holder_of(grid, cell, &at);
}

int64_t treadle_grid_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  int64_t position;
  seat at = seat_of(cell, holder, &position);
  treadle_rank_set set = seat_set(treadle_grid_of(layout), cell, &at);
  return treadle_order_physical(&layout->order, treadle_rank_set_get(&set, position));
}

/* The inverse of cell_rank: stage and shard of the rank leave few seats to ask. A rank with several slots
 * of an expert gets the first of them. */
int64_t treadle_grid_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  const treadle_grid *grid = treadle_grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  int64_t stage = treadle_dim_index(grid->pp, at);
  seat s;
  for (s.holder = 0; s.holder < cell->holder_count; s.holder++) {
    const treadle_holder *holder = &grid->holders[cell->holder_first + s.holder];
    if (holder->stage != stage) continue;
    const treadle_grid_rule *rule = &grid->rules[storage_of(grid, holder)->rule];
    const treadle_dim *over = rule->over;
    if (cell->range_over && treadle_dim_index(cell->range_over, at) != cell->range) continue;
    s.repeat = over ? treadle_dim_index(over, at) - cell->shard : 0; /* no other one can be the rank's */
    if (s.repeat < 0 || s.repeat >= cell->shard_repeat) continue;
    for (s.slot = 0; s.slot < slots_of(cell); s.slot++) {
      int64_t place;
      if (rule->ep && treadle_dim_index(rule->ep, at) != seat_ep(grid, cell, &s, &place)) continue;
      treadle_rank_set set = seat_set(grid, cell, &s);
      int64_t position = treadle_rank_set_find(&set, at);
      if (position >= 0)
        return ((position * cell->holder_count + s.holder) * slots_of(cell) + s.slot) * cell->shard_repeat +
               s.repeat;
    }
  }
  return -1;
}

int64_t treadle_grid_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                 const int64_t **stride_p) {
  const treadle_grid *grid = treadle_grid_of(layout);
  int64_t position, place;
  seat at = seat_of(cell, holder, &position);
  const treadle_holder *h = holder_of(grid, cell, &at);
  int64_t ep_rank = seat_ep(grid, cell, &at, &place);
  if (!cell->slots && grid->variants > 1) /* any rank: which table is its own? */
    ep_rank = treadle_grid_index(
        grid->ep, treadle_order_layout(&layout->order, treadle_grid_cell_rank(layout, cell, holder)));
  const treadle_storage *storage =
      &grid->stages[h->stage * grid->variants + treadle_grid_variant(grid, ep_rank)].storages[h->storage];
  *stride_p = cell->stride;
  /* Begin of the storage tensor, of the slot in it, of the part in the slot: all bytes. The strides are the
   * same for every holder. */
  return storage->offset + place * storage->slot_stride + cell->offset;
}

/* As many holders as regions: each region has one of its own, and none is left over. */
bool treadle_grid_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell) {
  const treadle_grid *grid = treadle_grid_of(layout);
  int32_t t = cell->tensor;
  return cell->slots <= 1 && grid->region_first[t + 1] - grid->region_first[t] ==
                                 grid->holder_first[t + 1] - grid->holder_first[t];
}
