/* Flat grids: making their tables. Units are added in the order in which they lie in the window. */
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "flat/flat_grid.h"

#include <assert.h>
#include <stdlib.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

/* ---- Parameters ---- */

/* Parameters in the order of named_parameters. Storage with one tensor an expert has `slots` of them, and
 * those of a run alternate: two such storages of one run are listed as a.0, b.0, a.1, b.1, with run = 2
 * and run_at = 0 and 1. */
static treadle_status list_stage(treadle_flat_grid *flat, const treadle_grid_stage *from,
                                 treadle_flat_stage *stage) {
  treadle_arena *arena = &flat->grid.arena;
  size_t count = (size_t)from->public_count;
  if (from->public_count > TREADLE_MAX_STORAGES)
    return treadle_fail(TREADLE_REFUSED, "a flat layout of %d parameters; at most %d will do",
                        (int)from->public_count, TREADLE_MAX_STORAGES);
  stage->param_count = from->public_count;
  stage->params = treadle_arena_alloc_array(arena, count + 1, sizeof *stage->params);
  stage->units =
      treadle_arena_alloc_array(arena, count + 1, sizeof *stage->units); /* no unit is without one */
  stage->storages = treadle_arena_alloc_array(arena, count + 1, sizeof *stage->storages);
  stage->gaps =
      treadle_arena_alloc_array(arena, 2 * count + 1, sizeof *stage->gaps); /* before each, and tails */
  if (!stage->params || !stage->units || !stage->storages || !stage->gaps) return no_memory();
  for (int32_t i = 0; i < from->count; i++) {
    const treadle_storage *storage = &from->storages[i];
    const treadle_rule *rule = flat->grid.rules[storage->rule].rule;
    int64_t copies = storage->by_expert ? storage->slots : 1;
    for (int64_t e = 0; e < copies; e++)
      stage->params[storage->public_first + e * storage->run + storage->run_at] =
          (treadle_flat_param){.storage = storage,
                               .expert = e,
                               .elems = storage->bytes / (int64_t)treadle_dtype_bytes(storage->dtype),
                               .buffer = rule->buffer || storage->derived,
                               .unit = -1};
  }
  return TREADLE_OK;
}

treadle_status treadle_flat_list(treadle_layout *layout) {
  treadle_status status = TREADLE_OK;
  treadle_flat_grid *flat = layout->state;
  assert(flat->grid.variants == 1);
  flat->stages =
      treadle_arena_alloc_array(&flat->grid.arena, (size_t)flat->grid.stage_count, sizeof *flat->stages);
  if (!flat->stages) return no_memory();
  for (int32_t s = 0; s < flat->grid.stage_count; s++)
    TRY(list_stage(flat, &flat->grid.stages[s], &flat->stages[s]));
out:
  return status;
}

/* ---- Units ---- */

/* The name that the grid gives a parameter. */
static const char *name_of(treadle_layout *layout, const treadle_flat_param *param) {
  treadle_flat_grid *flat = layout->state;
  const treadle_storage *storage = param->storage;
  char text[256];
  treadle_name_format(flat->grid.rules[storage->rule].name, storage->layer, layout->model->layers,
                      storage->local_layer, param->expert, text, sizeof text);
  return treadle_arena_format(&flat->grid.arena, "%s%s", flat->grid.outer, text);
}

treadle_status treadle_flat_unit_add(treadle_layout *layout, int32_t stage_number,
                                     const treadle_flat_param *param, const char *name,
                                     const treadle_dim *over, int64_t elems, int32_t *unit_p) {
  treadle_flat_grid *flat = layout->state;
  treadle_flat_stage *stage = &flat->stages[stage_number];
  assert(stage->unit_count < stage->param_count);
  *unit_p = stage->unit_count++;
  stage->units[*unit_p] =
      (treadle_flat_share){.name = name ? name : name_of(layout, param), .over = over, .shard = elems};
  stage->storages[*unit_p] = (treadle_storage){.rule = param->storage->rule,
                                               .layer = param->storage->layer,
                                               .local_layer = param->storage->local_layer,
                                               .chunk = param->storage->chunk,
                                               .ndim = 1,
                                               .shape = {elems},
                                               .dtype = param->storage->dtype,
                                               .derived = param->storage->derived,
                                               .public_first = *unit_p,
                                               .run = 1};
  return stage->units[*unit_p].name ? TREADLE_OK : no_memory();
}

/* A parameter as a unit of its own; over NULL: not cut.
 * by_rows: ranges of ceil(rows / ranks) whole rows; [9, 2] over 4 has ranges of 3 rows, shard = 6 elements,
 * and keeps its shape. Otherwise ceil(elems / ranks) elements, a vector. */
static treadle_status lay_alone(treadle_layout *layout, int32_t stage_number, treadle_flat_param *param,
                                const treadle_dim *over, bool by_rows) {
  treadle_status status = TREADLE_OK;
  treadle_flat_stage *stage = &((treadle_flat_grid *)layout->state)->stages[stage_number];
  const treadle_storage *storage = param->storage;
  int64_t ranks = over ? over->size : 1, rows = by_rows ? storage->shape[0] : param->elems;
  int64_t each = rows / ranks + (rows % ranks != 0); /* rows of a range */
  TRY(treadle_flat_unit_add(layout, stage_number, param, NULL, over, each * (param->elems / rows),
                            &param->unit));
  if (!by_rows && over) return TREADLE_OK;
  treadle_storage *window = &stage->storages[param->unit];
  window->ndim = storage->ndim;
  for (int d = 0; d < storage->ndim; d++) window->shape[d] = storage->shape[d];
  if (!over) return TREADLE_OK;
  window->shape[0] = each;
  stage->units[param->unit].rows = rows;
out:
  return status;
}

/* ---- Gaps and places ---- */

typedef struct address { /* of a parameter, while they are sorted */
  int64_t start;
  int32_t unit, param;
} address;

static int by_address(const void *a, const void *b) {
  const address *x = a, *y = b;
  if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
  return (x->start > y->start) - (x->start < y->start);
}

static void add_gap(treadle_flat_stage *stage, int32_t unit, int64_t low, int64_t high) {
  if (low < high) stage->gaps[stage->gap_count++] = (treadle_flat_gap){unit, {low, high}};
}

/* Lists the parameters of each unit: by unit, then by address. Every unit has a parameter, so the last one
 * of unit u sets unit_first[u + 1], the end. */
static treadle_status list_units(treadle_flat_grid *flat, treadle_flat_stage *stage) {
  size_t count = (size_t)stage->param_count;
  address *sorted = treadle_alloc_array(count + 1, sizeof *sorted);
  stage->unit_first = treadle_arena_alloc_array(&flat->grid.arena, (size_t)stage->unit_count + 1,
                                                sizeof *stage->unit_first);
  stage->unit_params = treadle_arena_alloc_array(&flat->grid.arena, count + 1, sizeof *stage->unit_params);
  if (!sorted || !stage->unit_first || !stage->unit_params) {
    treadle_free(sorted);
    return no_memory();
  }
  for (size_t i = 0; i < count; i++)
    sorted[i] = (address){stage->params[i].start, stage->params[i].unit, (int32_t)i};
  if (count > 0) qsort(sorted, count, sizeof *sorted, by_address);
  for (size_t i = 0; i < count; i++) {
    stage->unit_params[i] = sorted[i].param;
    stage->unit_first[sorted[i].unit + 1] = (int32_t)i + 1;
  }
  treadle_free(sorted);
  return TREADLE_OK;
}

/* Whole rows have no gaps: what torch allocates behind a short shard is not part of it.
 * Else gaps lie before a parameter, and from the last one's end to the end of all ranges. */
static void note_gaps(treadle_flat_stage *stage) {
  for (int32_t u = 0; u < stage->unit_count; u++) {
    const treadle_flat_share *unit = &stage->units[u];
    int64_t at = 0;
    for (int32_t i = stage->unit_first[u]; i < stage->unit_first[u + 1]; i++) {
      const treadle_flat_param *param = &stage->params[stage->unit_params[i]];
      assert(param->start >= at);
      add_gap(stage, u, at, param->start);
      at = param->start + param->elems;
    }
    if (unit->rows == 0) add_gap(stage, u, at, unit->shard * (unit->over ? unit->over->size : 1));
  }
}

/* Says of each storage tensor of the grid where it lies (flat_place).
 * Equal numbers: at the same addresses of units that are cut alike. The grid then takes their ranks for
 * holders of one cell (grid/holders.c), and clips cells for all of them at once. */
static void note_places(const treadle_flat_grid *flat, const treadle_flat_stage *stage,
                        treadle_grid_stage *of) {
  for (int32_t i = 0; i < of->count; i++) {
    treadle_storage *storage = &of->storages[i];
    uint64_t place = 1;
    for (int64_t e = 0; e < (storage->by_expert ? storage->slots : 1); e++) {
      const treadle_flat_param *param =
          &stage->params[storage->public_first + e * storage->run + storage->run_at];
      const treadle_flat_share *unit = &stage->units[param->unit];
      place = treadle_hash_more(place, (uint64_t)param->start);
      place = treadle_hash_more(place, (uint64_t)unit->shard);
      place = treadle_hash_more(place, unit->over ? (uint64_t)(unit->over - flat->grid.mesh.dims) + 1 : 0);
    }
    storage->flat_place = place ? place : 1;
  }
}

/* Buffers come last, behind all units of parameters. Storage tensors are placed in the order of units. */
treadle_status treadle_flat_finish(treadle_layout *layout, bool long_units) {
  treadle_status status = TREADLE_OK;
  treadle_flat_grid *flat = layout->state;
  for (int32_t s = 0; s < flat->grid.stage_count; s++) {
    treadle_flat_stage *stage = &flat->stages[s];
    for (int32_t i = 0; i < stage->param_count; i++)
      if (stage->params[i].buffer) TRY(lay_alone(layout, s, &stage->params[i], NULL, false));
    TRY(list_units(flat, stage));
    note_gaps(stage);
    note_places(flat, stage, &flat->grid.stages[s]);
    if (long_units) TRY(treadle_flat_order(flat, stage));
    for (int32_t u = 0; u < stage->unit_count; u++) {
      treadle_storage *storage = &stage->storages[u];
      storage->bytes = stage->units[u].shard * (int64_t)treadle_dtype_bytes(storage->dtype);
      TRY(treadle_storage_place(layout, stage->units[u].name, storage, 1, &stage->window_bytes));
    }
    if (stage->window_bytes > flat->window_bytes_max) flat->window_bytes_max = stage->window_bytes;
  }
out:
  return status;
}

treadle_status treadle_flat_lay_each(treadle_layout *layout, const treadle_dim *dp, bool by_rows) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_flat_list(layout));
  treadle_flat_stage *stage = ((treadle_flat_grid *)layout->state)->stages;
  for (int32_t i = 0; i < stage->param_count; i++)
    if (!stage->params[i].buffer) TRY(lay_alone(layout, 0, &stage->params[i], dp, by_rows));
  TRY(treadle_flat_finish(layout, false));
out:
  return status;
}
