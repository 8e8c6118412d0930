/* Grid layouts: building the tables of stages and holders.
 *
 * Invariants: the storage tensors of a stage do not depend on the rank; a tensor's holders are sorted so that
 * the primary ones (all cut like the first) come first; every canonical tensor is held somewhere. */
#include "base/dtype.h"
#include "base/hash.h"
#include "layout/grid.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define REFUSE(...) return treadle_fail(TREADLE_REFUSED, __VA_ARGS__)

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

typedef struct rule_scope { /* names for `when`: mesh sizes, then the model's */
  const treadle_mesh *mesh;
  const treadle_model *model;
} rule_scope;

static treadle_status look_up(void *context, const char *name, int64_t *value_p, bool *found_p) {
  const rule_scope *scope = context;
  const treadle_dim *dim = treadle_mesh_find(scope->mesh, name);
  if (!dim) return treadle_model_lookup((void *)scope->model, name, value_p, found_p);
  *value_p = dim->size;
  *found_p = true;
  return TREADLE_OK;
}

/* Keeps the rules of this spec whose condition holds and whose parts the model has. */
static treadle_status choose_rules(treadle_layout *layout, treadle_grid *grid,
                                   const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = layout->model;
  rule_scope scope = {&grid->mesh, model};
  grid->rules = treadle_arena_alloc_array(&grid->arena, (size_t)spec->rule_count + 1, sizeof *grid->rules);
  if (!grid->rules) return no_memory();
  for (int32_t i = 0; i < spec->rule_count; i++) {
    const treadle_rule *rule = &spec->rules[i];
    if (rule->spec && (!spec->spec || strcmp(rule->spec, spec->spec) != 0)) continue;
    int present = 0;
    for (int p = 0; p < rule->nparts; p++) present += model->first_tensor[rule->parts[p]] >= 0;
    if (present == 0) continue;
    if (present < rule->nparts)
      REFUSE("family %s line %d: the model has %d of the %d parts of %s", model->family->name, rule->line,
             present, rule->nparts, rule->name);
    int64_t holds = 1;
    if (rule->when) TRY(treadle_expr_evaluate(rule->name, rule->when, look_up, &scope, &holds));
    if (!holds) continue;
    treadle_grid_rule *used = &grid->rules[grid->rule_count++];
    *used = (treadle_grid_rule){.rule = rule, .shards = 1};
    if (rule->cut == TREADLE_CUT_NONE) continue;
    used->over = treadle_mesh_find(&grid->mesh, rule->over);
    if (!used->over)
      REFUSE("family %s line %d: %s is cut over '%s', which layout '%s' does not have", model->family->name,
             rule->line, rule->name, rule->over, layout->text);
    used->shards = used->over->size;
    if (rule->pad_vocab) {
      int64_t rows = model->tensors[model->first_tensor[rule->parts[0]]].shape[0];
      used->padded_rows = spec->padded_rows(spec->context, rows, used->shards);
      if (used->padded_rows < rows)
        REFUSE("layout '%s': padded_vocab_size=%" PRId64 " is smaller than the vocabulary, %" PRId64,
               layout->text, used->padded_rows, rows);
      if (used->padded_rows % used->shards != 0)
        REFUSE("layout '%s': %s: the padded vocabulary, %" PRId64 ", is not divisible by %s=%" PRId64,
               layout->text, rule->name, used->padded_rows, rule->over, used->shards);
    }
  }
out:
  return status;
}

static bool rule_is_on(const treadle_rule *rule, const treadle_chunk *chunk) {
  switch (rule->at) {
  case TREADLE_AT_FIRST: return chunk->first;
  case TREADLE_AT_LAST: return chunk->last;
  case TREADLE_AT_NORM: return chunk->norm;
  case TREADLE_AT_EVERY: return chunk->number == 0;
  case TREADLE_AT_LAYER: return false; /* comes with its layers */
  }
  return false;
}

typedef TREADLE_ARRAY(treadle_storage) storage_array;

static treadle_status add_storage(treadle_layout *layout, treadle_grid *grid, int32_t rule_index,
                                  const treadle_chunk *chunk, int32_t layer, int32_t local_layer,
                                  int64_t *end, storage_array *storages) {
  treadle_status status = TREADLE_OK;
  const treadle_grid_rule *rule = &grid->rules[rule_index];
  treadle_storage storage = {.rule = rule_index,
                             .layer = layer,
                             .local_layer = local_layer,
                             .chunk = chunk->number,
                             .nparts = rule->rule->nparts};
  for (int p = 0; p < storage.nparts; p++) {
    storage.parts[p] = treadle_model_find(layout->model, rule->rule->parts[p], layer);
    assert(storage.parts[p] >= 0);
  }
  TRY(treadle_cut_shape(layout->text, layout->model, rule, &storage));
  storage.dtype = treadle_layout_dtype(layout, &layout->model->tensors[storage.parts[0]]);
  int64_t elems = 1;
  for (int d = 0; d < storage.ndim; d++) elems *= storage.shape[d];
  storage.bytes = elems * (int64_t)treadle_dtype_bytes(storage.dtype);
  treadle_storage_place(&storage, end);
  TRY(treadle_array_push(storages, storage));
out:
  return status;
}

/* The storage tensors of one chunk: rules in order; the rules of a layer are a block, once for each layer. */
static treadle_status add_chunk(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                                const treadle_chunk *chunk, int64_t *end, storage_array *storages) {
  treadle_status status = TREADLE_OK;
  for (int32_t r = 0; r < grid->rule_count; r++) {
    if (grid->rules[r].rule->at != TREADLE_AT_LAYER) {
      if (rule_is_on(grid->rules[r].rule, chunk))
        TRY(add_storage(layout, grid, r, chunk, -1, -1, end, storages));
      continue;
    }
    int32_t block_end = r;
    while (block_end < grid->rule_count && grid->rules[block_end].rule->at == TREADLE_AT_LAYER) block_end++;
    for (int32_t i = 0; i < chunk->layer_count; i++)
      for (int32_t k = r; k < block_end; k++)
        TRY(add_storage(layout, grid, k, chunk, chunk->layers[i],
                        spec->local_numbers ? i : chunk->layers[i], end, storages));
    r = block_end - 1;
  }
out:
  return status;
}

static treadle_status build_stages(treadle_layout *layout, treadle_grid *grid,
                                   const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  storage_array storages = {0};
  grid->stage_count = spec->chunks.stages;
  grid->stages = treadle_arena_alloc_array(&grid->arena, (size_t)grid->stage_count, sizeof *grid->stages);
  if (!grid->stages) return no_memory();
  int32_t chunk = 0;
  for (int32_t s = 0; s < grid->stage_count; s++) {
    treadle_grid_stage *stage = &grid->stages[s];
    int64_t end = 0;
    storages.count = 0;
    for (; chunk < spec->chunks.count && spec->chunks.items[chunk].stage == s; chunk++)
      TRY(add_chunk(layout, grid, spec, &spec->chunks.items[chunk], &end, &storages));
    stage->count = (int32_t)storages.count;
    stage->window_bytes = end;
    if (end > grid->window_bytes_max) grid->window_bytes_max = end;
    if (storages.count == 0) continue;
    stage->storages = treadle_arena_alloc_array(&grid->arena, storages.count, sizeof *stage->storages);
    if (!stage->storages) {
      status = no_memory();
      goto out;
    }
    memcpy(stage->storages, storages.items, storages.count * sizeof *stage->storages);
  }
out:
  treadle_array_release(&storages);
  return status;
}

/* Are two rules cut alike, so that the same shard number means the same box? */
static bool cut_alike(const treadle_grid_rule *a, const treadle_grid_rule *b) {
  if (a == b) return true;
  return a->rule->cut == b->rule->cut && !a->rule->fuse && !b->rule->fuse && a->over == b->over &&
         a->padded_rows == b->padded_rows && a->rule->nparts == 1 && b->rule->nparts == 1;
}

/* Lists, by canonical tensor, who holds it; primary holders first. */
static treadle_status build_holders(treadle_layout *layout, treadle_grid *grid) {
  const treadle_model *model = layout->model;
  size_t tensors = (size_t)model->tensor_count;
  grid->holder_first = treadle_arena_alloc_array(&grid->arena, tensors + 2, sizeof *grid->holder_first);
  grid->holder_primary = treadle_arena_alloc_array(&grid->arena, tensors + 1, sizeof *grid->holder_primary);
  grid->placement = treadle_arena_alloc_array(&grid->arena, tensors + 1, sizeof *grid->placement);
  if (!grid->holder_first || !grid->holder_primary || !grid->placement) return no_memory();
  int32_t *next = grid->holder_first + 1; /* counts, then ends, then begins: one array in three uses */
  for (int32_t s = 0; s < grid->stage_count; s++)
    for (int32_t i = 0; i < grid->stages[s].count; i++)
      for (int p = 0; p < grid->stages[s].storages[i].nparts; p++)
        next[grid->stages[s].storages[i].parts[p] + 1]++;
  for (size_t t = 0; t < tensors; t++) next[t + 1] += next[t];
  grid->holders = treadle_arena_alloc_array(&grid->arena, (size_t)next[tensors] + 1, sizeof *grid->holders);
  if (!grid->holders) return no_memory();
  for (int32_t s = 0; s < grid->stage_count; s++)
    for (int32_t i = 0; i < grid->stages[s].count; i++)
      for (int p = 0; p < grid->stages[s].storages[i].nparts; p++)
        grid->holders[next[grid->stages[s].storages[i].parts[p]]++] = (treadle_holder){s, i, p};
  /* next[t] is now the end of tensor t, so holder_first[t + 1] is: the array reads as begins. */
  for (size_t t = 0; t < tensors; t++) {
    treadle_holder *first = grid->holders + grid->holder_first[t];
    int32_t count = grid->holder_first[t + 1] - grid->holder_first[t], primary = 0;
    if (count == 0)
      REFUSE("layout '%s': no rank holds %s: family %s has no rule for it", layout->text,
             model->tensors[t].name, model->family->name);
    const treadle_grid_rule *like = &grid->rules[grid->stages[first->stage].storages[first->storage].rule];
    uint64_t placement = 0;
    for (int32_t h = 0; h < count; h++) {
      const treadle_storage *storage = &grid->stages[first[h].stage].storages[first[h].storage];
      placement = treadle_hash_more(placement, (uint64_t)first[h].stage << 32 | (uint32_t)storage->chunk);
      if (cut_alike(like, &grid->rules[storage->rule])) {
        treadle_holder swap = first[primary];
        first[primary++] = first[h];
        first[h] = swap;
      }
    }
    grid->holder_primary[t] = primary;
    grid->placement[t] = placement;
  }
  return TREADLE_OK;
}

treadle_status treadle_grid_build(treadle_layout *layout, treadle_grid *grid,
                                  const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  grid->mesh = spec->mesh;
  grid->pp = treadle_mesh_find(&grid->mesh, "pp");
  TRY(choose_rules(layout, grid, spec));
  TRY(build_stages(layout, grid, spec));
  TRY(build_holders(layout, grid));
out:
  return status;
}
