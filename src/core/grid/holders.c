/* Grid layouts: who holds what.
 *
 * Every part of every storage tensor is a holder of its tensor. Holders that take the same region of it and are cut
 * in the same way form one group. Regions are taken in model order, loaded tensors before derived ones, as long as they do
 * not overlap, and must tile the tensor. What is left over (a tied head cut in another way, W_UK, which repeats kv_b_proj)
 * is found on its own rank only. */
#include "base/hash.h"
#include "grid/grid.h"

#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

static const treadle_storage *storage_of(const treadle_grid *grid, const treadle_holder *holder) {
  return &grid->stages[holder->stage * grid->variants].storages[holder->storage];
}

static const treadle_part_shape *shape_of(const treadle_grid *grid, const treadle_holder *holder) {
  return &grid->rules[storage_of(grid, holder)->rule].parts[holder->part];
}

/* What a holder takes, whole experts apart. */
static treadle_box region_of(const treadle_grid *grid, const treadle_holder *holder) {
  const treadle_part_shape *shape = shape_of(grid, holder);
  treadle_box box;
  memcpy(box.start, shape->start, sizeof box.start);
  memcpy(box.size, shape->size, sizeof box.size);
  return box;
}

/* Are two holders of one region cut alike, so that the same shard number means the same box and strides?
 * Holders of one rule are, in the same part: layers and stages share it. Of two rules only simple ones are
 * compared, such as an embedding and its copy on the last stage. */
static bool cut_alike(const treadle_grid *grid, const treadle_holder *x, const treadle_holder *y) {
  const treadle_storage *sx = storage_of(grid, x), *sy = storage_of(grid, y);
  const treadle_grid_rule *a = &grid->rules[sx->rule], *b = &grid->rules[sy->rule];
  if (sx->flat_place != sy->flat_place) return false;
  if (a == b) return x->part == y->part;
  return a->rule->cut == b->rule->cut && !a->rule->fuse && !b->rule->fuse && a->over == b->over && !a->ep &&
         !b->ep && a->padded_rows == b->padded_rows && a->rule->nparts == 1 && b->rule->nparts == 1 &&
         a->rule->add == b->rule->add && sx->dtype == sy->dtype &&
         memcmp(&a->parts[0].axis, &b->parts[0].axis, sizeof a->parts[0].axis) == 0 &&
         memcmp(&a->parts[0].of_axis, &b->parts[0].of_axis, sizeof a->parts[0].of_axis) == 0;
}

/* Storage tensors of all stages as holders, by tensor: counts, then ends, then begins, one array in three
 * uses. With 2, 0 and 1 holders next is 0, 2, 2, 3 before the second walk, where each begins. That walk
 * moves each to its end, 2, 2, 3, and next is holder_first + 1: so holder_first is 0, 2, 2, 3. Holders of a
 * tensor come out in order of stage, storage tensor and part. */
static treadle_status sort_holders(treadle_layout *layout, treadle_grid *grid) {
  size_t tensors = (size_t)layout->model->tensor_count;
  grid->holder_first = treadle_arena_alloc_array(&grid->arena, tensors + 2, sizeof *grid->holder_first);
  if (!grid->holder_first) return no_memory();
  int32_t *next = grid->holder_first + 1;
  for (int32_t s = 0; s < grid->stage_count; s++) {
    const treadle_grid_stage *stage = &grid->stages[s * grid->variants];
    for (int32_t i = 0; i < stage->count; i++)
      for (int p = 0; p < stage->storages[i].nparts; p++) next[stage->storages[i].parts[p] + 1]++;
  }
  for (size_t t = 0; t < tensors; t++) next[t + 1] += next[t];
  grid->holders = treadle_arena_alloc_array(&grid->arena, (size_t)next[tensors] + 1, sizeof *grid->holders);
  if (!grid->holders) return no_memory();
  for (int32_t s = 0; s < grid->stage_count; s++) {
    const treadle_grid_stage *stage = &grid->stages[s * grid->variants];
    for (int32_t i = 0; i < stage->count; i++)
      for (int p = 0; p < stage->storages[i].nparts; p++)
        grid->holders[next[stage->storages[i].parts[p]]++] = (treadle_holder){s, i, p};
  }
  return TREADLE_OK;
}

/* Holders with the same number hold the same cells of tensors of one pattern: whole ones, or those of one rule. */
static uint64_t cut_number(const treadle_grid *grid, const treadle_holder *holder) {
  int32_t number = storage_of(grid, holder)->rule;
  const treadle_grid_rule *rule = &grid->rules[number];
  bool whole = rule->rule->cut == TREADLE_CUT_NONE && !rule->ep && rule->rule->parts[holder->part].view < 0;
  return whole ? 0 : 1 + (uint64_t)number;
}

static void swap_holders(treadle_holder *a, treadle_holder *b) {
  treadle_holder swap = *a;
  *a = *b;
  *b = swap;
}

/* Makes regions of the holders [0, count): each region's holders stand together, in order, those of none
 * last. holders[0, done) are in regions already. What overlaps a region is passed over and stays behind; it
 * is looked at again after the next region, and overlaps still. A part of kv_b_proj as W_UK is derived: it
 * becomes a region only where no loaded tensor has the rows. */
static int32_t make_regions(const treadle_grid *grid, treadle_holder *holders, int32_t count,
                            treadle_region *regions, int32_t base, int64_t *covered_p) {
  int32_t done = 0, region_count = 0;
  *covered_p = 0;
  for (int derived = 0; derived < 2; derived++)
    for (int32_t i = done; i < count; i++) {
      if (storage_of(grid, &holders[i])->derived != (bool)derived) continue;
      treadle_box box = region_of(grid, &holders[i]), common;
      bool apart = true;
      for (int32_t r = 0; r < region_count && apart; r++) {
        treadle_box taken = region_of(grid, &holders[regions[r].holder_first - base]);
        apart = !treadle_box_meet(&box, &taken, &common);
      }
      if (!apart) continue;
      treadle_region *region = &regions[region_count++];
      *region = (treadle_region){base + done, 0};
      treadle_holder like = holders[i];
      for (int32_t k = i; k < count; k++) { /* those alike move forward, and the rest keeps its order */
        treadle_box other = region_of(grid, &holders[k]);
        if (!treadle_box_equal(&box, &other) || !cut_alike(grid, &like, &holders[k])) continue;
        for (int32_t j = k; j > done; j--) swap_holders(&holders[j], &holders[j - 1]);
        done++;
        region->holder_count++;
      }
      *covered_p += treadle_box_elems(&box);
      i = done - 1;
    }
  return region_count;
}

/* Which tensors with scales no holder has in codes. */
static treadle_status list_values(treadle_layout *layout, treadle_grid *grid) {
  const treadle_model *model = layout->model;
  bool *values = treadle_arena_alloc(&grid->arena, (size_t)model->tensor_count + 1), any = false;
  if (!values) return no_memory();
  for (int32_t t = 0; t < model->tensor_count; t++) {
    values[t] = model->tensors[t].scale >= 0;
    for (int32_t h = grid->holder_first[t]; values[t] && h < grid->holder_first[t + 1]; h++)
      values[t] = storage_of(grid, &grid->holders[h])->dtype != TREADLE_FP8_E4M3;
    any |= values[t];
  }
  layout->values = any ? values : NULL;
  return TREADLE_OK;
}

treadle_status treadle_grid_list_holders(treadle_layout *layout, treadle_grid *grid) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = layout->model;
  size_t tensors = (size_t)model->tensor_count;
  TRY(sort_holders(layout, grid));
  if (layout->fp8) TRY(list_values(layout, grid));
  grid->region_first = treadle_arena_alloc_array(&grid->arena, tensors + 2, sizeof *grid->region_first);
  grid->regions = treadle_arena_alloc_array(&grid->arena, (size_t)grid->holder_first[tensors] + 1,
                                            sizeof *grid->regions);
  grid->placement = treadle_arena_alloc_array(&grid->arena, tensors + 1, sizeof *grid->placement);
  grid->dtypes = treadle_arena_alloc_array(&grid->arena, tensors + 1, sizeof *grid->dtypes);
  grid->adds = treadle_arena_alloc_array(&grid->arena, tensors + 1, sizeof *grid->adds);
  if (!grid->region_first || !grid->regions || !grid->placement || !grid->dtypes || !grid->adds)
    return no_memory();
  for (size_t t = 0; t < tensors; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    int32_t base = grid->holder_first[t], count = grid->holder_first[t + 1] - base,
            first = grid->region_first[t];
    int64_t covered;
    grid->region_first[t + 1] =
        first + make_regions(grid, grid->holders + base, count, grid->regions + first, base, &covered);
    if (count == 0 && tensor->scale_of >= 0 &&
        !treadle_layout_holds_codes(layout, (int32_t)t)) { /* values have no scales */
      grid->dtypes[t] = tensor->dtype;
      continue;
    }
    /* Regions lie inside of the tensor and do not overlap, so they tile it when their volumes add up. */
    if (covered != tensor->elems)
      REFUSE("layout '%s': %s %s: family %s has no rule for it", layout->text,
             covered ? "only a part of" : "no rank holds", tensor->name, model->family->name);
    grid->dtypes[t] = storage_of(grid, &grid->holders[base])->dtype;
    grid->adds[t] = grid->rules[storage_of(grid, &grid->holders[base])->rule].rule->add;
    /* Equal for tensors of one pattern whose holders have the same stages, chunks and cuts in the same
     * order and whose experts lie alike. */
    uint64_t placement = 0;
    for (int32_t h = base; h < base + count; h++) {
      const treadle_storage *storage = storage_of(grid, &grid->holders[h]);
      placement =
          treadle_hash_more(placement, (uint64_t)grid->holders[h].stage << 32 | (uint32_t)storage->chunk);
      if (storage->flat_place) placement = treadle_hash_more(placement, storage->flat_place);
      placement = treadle_hash_more(placement, cut_number(grid, &grid->holders[h]));
    }
    if (grid->slots && tensor->layer >= 0 && model->family->patterns[tensor->pattern].experts)
      placement = treadle_hash_more(placement, grid->slots[tensor->layer]->hash);
    grid->placement[t] = placement;
  }
  layout->dtypes = grid->dtypes;
  layout->adds = grid->adds;
out:
  return status;
}
