/* Grid layouts: "what has rank r?", and the table of functions. */
#include "grid/grid.h"
#include "base/dtype.h"
#include "base/hash.h"

#include <string.h>

/* stages is [stages, variants]: a rank's table follows from its indices of pp and ep. */
static const treadle_grid_stage *stage_of(const treadle_layout *layout, int64_t layout_rank) {
  const treadle_grid *grid = treadle_grid_of(layout);
  return &grid->stages[treadle_dim_index(grid->pp, layout_rank) * grid->variants +
                       treadle_grid_variant(grid, treadle_grid_index(grid->ep, layout_rank))];
}

/* ---- What has rank r? ---- */

/* Where pieces of a part go, and which experts they are of. */
typedef struct part_place {
  const treadle_layout *layout;
  const treadle_storage *storage;
  int32_t index; /* of the storage */
  int position;  /* of the part */
  int64_t shard;
} part_place;

/* Appends the pieces of experts [expert, expert + count), which lie in slots [slot, slot + count); of all of the tensor
 * when it is not of experts (count 0). A piece is the part's box with [experts] in front: experts in a row
 * of slots are slot_stride bytes apart, which is the stride of axis 0. Each box of the part is a piece of
 * its own. */
static treadle_status push_experts(const part_place *p, const treadle_parts *parts, int64_t expert,
                                   int64_t slot, int64_t count, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_storage *storage = p->storage;
  const treadle_grid_rule *rule = &treadle_grid_of(p->layout)->rules[storage->rule];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype);
  for (size_t i = 0; i < parts->count; i++) {
    treadle_piece piece = {.tensor = storage->parts[p->position],
                           .storage = p->index,
                           .dtype = storage->dtype,
                           .add = rule->rule->add,
                           .offset = storage->offset + slot * storage->slot_stride +
                                     parts->items[i].offset * size};
    treadle_part_canonical(&rule->parts[p->position], &parts->items[i], &piece.box, piece.stride);
    for (int a = 0; a < TREADLE_MAX_AXES; a++) piece.stride[a] *= size;
    /* Axis 0 of the tensor is its experts; the part has no such axis. */
    if (count > 0) {
      piece.box.start[0] = expert;
      piece.box.size[0] = count;
      piece.stride[0] = storage->slot_stride;
    }
    TRY(treadle_array_push(pieces, piece));
  }
out:
  return status;
}

/* Appends the pieces of one part of a storage tensor on a layout rank. */
static treadle_status push_part(const treadle_layout *layout, int64_t layout_rank, int32_t index,
                                const treadle_storage *storage, int position, treadle_parts *parts,
                                treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_grid_rule *rule = &treadle_grid_of(layout)->rules[storage->rule];
  part_place place = {layout, storage, index, position, treadle_grid_index(rule->over, layout_rank)};
  parts->count = 0;
  TRY(treadle_cut_part(rule, storage, position, place.shard, false, parts));
  if (!rule->ep) return push_experts(&place, parts, 0, 0, 0, pieces);
  if (position >= storage->nparts - rule->also) /* one more expert, behind the others */
    return push_experts(&place, parts, 0, storage->slots, 0, pieces);
  const treadle_slots *slots = treadle_grid_of(layout)->slots[storage->layer];
  /* `first` is the rank's first slot of all; slots in the window count from 0. Without a map slots are
   * experts. Slots 4 5 6 0 1 of a map are two pieces: experts 4 to 6, and 0 to 1. */
  int64_t rank = treadle_dim_index(rule->ep, layout_rank), first = treadle_slots_first(slots, rank);
  if (!slots->logical)
    return storage->slots ? push_experts(&place, parts, first, 0, storage->slots, pieces) : TREADLE_OK;
  for (int64_t slot = 0; slot < storage->slots;) { /* experts that follow one another are one piece */
    int64_t expert = slots->logical[first + slot], count = 1;
    while (slot + count < storage->slots && slots->logical[first + slot + count] == expert + count) count++;
    TRY(push_experts(&place, parts, expert, slot, count, pieces));
    slot += count;
  }
out:
  return status;
}

/* What no part covers is filled: rows of padding behind the vocabulary's, a bias that another shard has.
 * Padding of this kind is behind all that is held, in one line: so as many elements as are held come first,
 * and the fill is the rest. Its box is [elements]. */
static treadle_status push_padding(const treadle_storage *storage, int32_t index, int32_t with,
                                   int64_t elems_held, treadle_pieces *pieces) {
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), elems = storage->bytes / size;
  if (elems_held == elems) return TREADLE_OK;
  treadle_piece fill = {.tensor = with,
                        .storage = index,
                        .dtype = storage->dtype,
                        .offset = storage->offset + elems_held * size};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) fill.box.size[a] = 1;
  fill.box.size[0] = elems - elems_held;
  fill.stride[0] = size;
  return treadle_array_push(pieces, fill);
}

/* The same of what lies behind each part (rule->least), in all experts at once. The box of a fill is
 * [experts, rows, columns] here, without the axes that are not there. */
static treadle_status push_gaps(const treadle_grid_rule *rule, const treadle_storage *storage,
                                int32_t index, int32_t with, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype);
  for (int p = 0; p < storage->nparts; p++) {
    treadle_gap gap = treadle_cut_gap(rule, p);
    if (gap.elems == 0 || (rule->ep && storage->slots == 0)) continue;
    treadle_piece fill = {.tensor = with,
                          .storage = index,
                          .dtype = storage->dtype,
                          .offset = storage->offset + gap.offset * size};
    for (int a = 0; a < TREADLE_MAX_AXES; a++) fill.box.size[a] = 1;
    int axis = 0;
    if (rule->ep) {
      fill.box.size[axis] = storage->slots;
      fill.stride[axis++] = storage->slot_stride;
    }
    for (int d = 0; d < gap.ndim; d++) {
      fill.box.size[axis] = gap.size[d];
      fill.stride[axis++] = gap.stride[d] * size;
    }
    TRY(treadle_array_push(pieces, fill));
  }
out:
  return status;
}

/* Appends the pieces of storage tensor `index` of a stage on a layout rank. */
static treadle_status push_storage(const treadle_layout *layout, int64_t layout_rank, int32_t index,
                                   const treadle_grid_stage *stage, treadle_parts *parts,
                                   treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_storage *storage = &stage->storages[index];
  const treadle_grid_rule *rule = &treadle_grid_of(layout)->rules[storage->rule];
  size_t before = pieces->count;
  for (int p = 0; p < storage->nparts; p++)
    TRY(push_part(layout, layout_rank, index, storage, p, parts, pieces));
  int32_t with = rule->rule->minus_infinity ? TREADLE_FILL_MINUS_INFINITY : TREADLE_FILL_ZEROS;
  if (rule->padded_rows || rule->round || rule->rule->cut == TREADLE_CUT_FIRST) {
    int64_t elems = 0;
    for (size_t k = before; k < pieces->count; k++) elems += treadle_box_elems(&pieces->items[k].box);
    TRY(push_padding(storage, index, with, elems, pieces));
  }
  if (rule->least) TRY(push_gaps(rule, storage, index, with, pieces));
out:
  return status;
}

/* Pieces come in the order of storage tensors in the window, and in each part by part. */
static treadle_status grid_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  int64_t at = treadle_order_layout(&layout->order, rank);
  const treadle_grid_stage *stage = stage_of(layout, at);
  treadle_parts parts = {0};
  for (int32_t i = 0; i < stage->count; i++) TRY(push_storage(layout, at, i, stage, &parts, pieces));
out:
  treadle_array_release(&parts);
  return status;
}

static treadle_status grid_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                     treadle_pieces *pieces) {
  int64_t at = treadle_order_layout(&layout->order, rank);
  treadle_parts parts = {0};
  treadle_status status = push_storage(layout, at, storage, stage_of(layout, at), &parts, pieces);
  treadle_array_release(&parts);
  return status;
}

/* Every holder of the tensor on the rank's stage, those of no region too: a copy that is cut in another way
 * is the rank's own all the same. */
static treadle_status grid_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                     treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = treadle_grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank), own = treadle_dim_index(grid->pp, at);
  const treadle_grid_stage *stage = stage_of(layout, at);
  treadle_parts parts = {0};
  for (int32_t h = grid->holder_first[tensor]; h < grid->holder_first[tensor + 1]; h++) {
    const treadle_holder *holder = &grid->holders[h];
    if (holder->stage != own) continue;
    TRY(push_part(layout, at, holder->storage, &stage->storages[holder->storage], holder->part, &parts,
                  pieces));
  }
out:
  treadle_array_release(&parts);
  return status;
}

static uint64_t grid_placement(const treadle_layout *layout, int32_t tensor) {
  return treadle_grid_of(layout)->placement[tensor];
}

static const treadle_mesh *grid_mesh(const treadle_layout *layout) {
  return &treadle_grid_of(layout)->mesh;
}

static const treadle_storage *grid_storages(const treadle_layout *layout, int64_t rank, int32_t *count_p) {
  const treadle_grid_stage *stage = stage_of(layout, treadle_order_layout(&layout->order, rank));
  *count_p = stage->count;
  return stage->storages;
}

/* With experts that have a storage tensor each, users count each of them, and the table has one for all. */
static int32_t grid_public_count(const treadle_layout *layout, int64_t rank) {
  return stage_of(layout, treadle_order_layout(&layout->order, rank))->public_count;
}

static void grid_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                              int64_t expert, char *text, size_t capacity) {
  (void)rank;
  const treadle_grid *grid = treadle_grid_of(layout);
  bool draft = storage->chunk > 0 && !layout->is_train; /* a model of its own */
  size_t length = draft ? 0 : strlen(grid->outer);
  if (length >= capacity) length = capacity - 1;
  memcpy(text, grid->outer, length);
  treadle_name_format(grid->rules[storage->rule].name, storage->layer, layout->model->layers,
                      storage->local_layer, expert, text + length, capacity - length);
}

static int64_t grid_window_bytes(const treadle_layout *layout, int64_t rank) {
  return stage_of(layout, treadle_order_layout(&layout->order, rank))->window_bytes;
}

static int64_t grid_window_bytes_max(const treadle_layout *layout) {
  return treadle_grid_of(layout)->window_bytes_max;
}

/* The stage, and the place in each dimension that a rule cuts over; of rules of experts, too, or not. */
static uint64_t hash_of_cuts(const treadle_layout *layout, int64_t rank, bool experts) {
  const treadle_grid *grid = treadle_grid_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  uint64_t hash = (uint64_t)treadle_dim_index(grid->pp, at);
  const treadle_dim *before = NULL;
  for (int32_t r = 0; r < grid->rule_count; r++) {
    const treadle_grid_rule *rule = &grid->rules[r];
    if (rule->ep && !experts) continue;
    if (rule->over && rule->over != before)
      hash = treadle_hash_more(hash, (uint64_t)treadle_dim_index(rule->over, at));
    before = rule->over;
  }
  return hash;
}

/* Ranks that agree in all of these, and in ep, have the same pieces, whatever their place in dp or cp. */
static uint64_t grid_coordinate(const treadle_layout *layout, int64_t rank) {
  const treadle_grid *grid = treadle_grid_of(layout);
  uint64_t hash = hash_of_cuts(layout, rank, true);
  if (!grid->ep) return hash;
  return treadle_hash_more(
      hash, (uint64_t)treadle_dim_index(grid->ep, treadle_order_layout(&layout->order, rank)));
}

static uint64_t grid_dense_coordinate(const treadle_layout *layout, int64_t rank) {
  return hash_of_cuts(layout, rank, false);
}

static void grid_destroy(treadle_layout *layout) {
  treadle_grid *grid = layout->state;
  treadle_arena_release(&grid->arena);
  treadle_free(grid);
}

const treadle_layout_ops treadle_grid_ops = {
    .pieces = grid_pieces,
    .pieces_in = grid_pieces_in,
    .pieces_of = grid_pieces_of,
    .cells = treadle_grid_cells,
    .cell_rank = treadle_grid_cell_rank,
    .cell_find = treadle_grid_cell_find,
    .cell_locate = treadle_grid_cell_locate,
    .cell_is_plain = treadle_grid_cell_is_plain,
    .placement = grid_placement,
    .mesh = grid_mesh,
    .storages = grid_storages,
    .public_count = grid_public_count,
    .storage_name = grid_storage_name,
    .window_bytes = grid_window_bytes,
    .window_bytes_max = grid_window_bytes_max,
    .coordinate = grid_coordinate,
    .dense_coordinate = grid_dense_coordinate,
    .destroy = grid_destroy,
};

treadle_status treadle_grid_start(treadle_layout *layout, treadle_grid **grid_p) {
  *grid_p = treadle_alloc(sizeof **grid_p);
  if (!*grid_p) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  layout->ops = &treadle_grid_ops;
  layout->state = *grid_p;
  return TREADLE_OK;
}
