/* Forms: which tensors lie in the same way in every rank's window, if each parameter is a unit of its own (ZeRO-3, FSDP2).
 *
 * A rank's part of such a unit follows from the parameter's shape, how it is cut, and the rank; not from the layer. So
 * tensors of one form differ only in where they begin, and one of them is enough to know all. So it is with the experts of one tensor. */
#include "flat/flat_grid.h"

#include "base/hash.h"
#include "base/hash_index.h"

/* What a unit's place in windows does not say: equal for parameters that are cut alike. */
static uint64_t hash_param(const treadle_flat_grid *flat, const treadle_flat_stage *stage,
                           const treadle_flat_param *param) {
  const treadle_flat_share *unit = &stage->units[param->unit];
  uint64_t hash = treadle_hash_more((uint64_t)param->elems, (uint64_t)param->start);
  hash = treadle_hash_more(hash, (uint64_t)unit->shard);
  hash = treadle_hash_more(hash, (uint64_t)unit->rows);
  return treadle_hash_more(hash, unit->over ? (uint64_t)(unit->over - flat->grid.mesh.dims) + 1 : 0);
}

/* The form of a tensor, and a number that is equal for tensors of one form; 0: it is not of one storage tensor alone. */
static uint64_t find_form(const treadle_layout *layout, int32_t tensor, treadle_form *form) {
  const treadle_flat_grid *flat = treadle_flat_of(layout);
  const treadle_grid *grid = &flat->grid;
  const treadle_flat_stage *stage = flat->stages;
  const treadle_tensor *of = &layout->model->tensors[tensor];
  if (grid->holder_first[tensor + 1] - grid->holder_first[tensor] != 1) return 0;
  const treadle_holder *holder = &grid->holders[grid->holder_first[tensor]];
  const treadle_storage *storage = treadle_flat_grid_storage(flat, holder->stage, holder->storage);
  if (storage->nparts != 1) return 0;
  const treadle_flat_param *first = treadle_flat_param_of(stage, storage, 0);
  uint64_t key = hash_param(flat, stage, first);
  *form = (treadle_form){.storage = first->unit, .at = stage->storages[first->unit].offset, .experts = 1};
  key = treadle_hash_more(treadle_hash_more(key, (uint64_t)of->pattern), (uint64_t)storage->rule);
  key = treadle_hash_more(treadle_hash_more(key, (uint64_t)storage->dtype), (uint64_t)of->naxes);
  for (int a = 0; a < of->naxes; a++) key = treadle_hash_more(key, (uint64_t)of->axis[a]);
  bool alike = storage->by_expert && storage->slots > 1;
  for (int64_t e = 1; storage->by_expert && e < storage->slots; e++) {
    const treadle_flat_param *param = treadle_flat_param_of(stage, storage, e);
    int64_t at = stage->storages[param->unit].offset - form->at;
    if (e == 1) form->distance = at;
    alike = alike && at == e * form->distance && at > 0 &&
            hash_param(flat, stage, param) == hash_param(flat, stage, first);
    key = treadle_hash_more(treadle_hash_more(key, (uint64_t)at), hash_param(flat, stage, param));
  }
  if (alike) form->experts = storage->slots;
  return key ? key : 1;
}

treadle_status treadle_flat_make_forms(treadle_layout *layout) {
  treadle_status status = TREADLE_OK;
  treadle_flat_grid *flat = layout->state;
  int32_t tensors = layout->model->tensor_count;
  treadle_hash_index first = {0}; /* of each form */
  if (flat->grid.stage_count != 1 || flat->stages->unit_count != flat->stages->param_count)
    return TREADLE_OK;
  treadle_form *forms = treadle_arena_alloc_array(&flat->grid.arena, (size_t)tensors + 1, sizeof *forms);
  if (!forms) TRY(treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"));
  for (int32_t t = 0; t < tensors; t++) {
    uint64_t key = find_form(layout, t, &forms[t]);
    if (key == 0) goto out;
    TRY(treadle_hash_index_put(&first, key, t, &forms[t].like));
  }
  flat->forms = forms;
out:
  treadle_hash_index_release(&first);
  return status;
}
