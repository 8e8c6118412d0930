/* zero1, zero2, zero3: DeepSpeed's stages. zero1 and zero2 are the fp32 master weights of one parameter group, cut as
 * one buffer. zero3 is each parameter on its own: rank r has the r-th ceil(n / world) elements of its row-major order, stored with
 * zeros up to that many, parameters below the persistence threshold too (DeepSpeed, runtime/zero/partition_parameters.py; read,
 * not run). world is smaller than the data parallel group with MiCS; hpZ adds copies, the shards stay. docs/rules.md 10.4; flat.h. */
#include "flat/flat_grid.h"
#include "flat/modules.h"
#include "layout/layout_types.h"

/* All parameters but buffers, in the order of modules, as one unit of dp ranges. numel 5 and 3 over dp=2:
 * total 8, ranges of 4; rank 0 has elements 0-3 of the first, rank 1 its element 4 and all of the second. */
static treadle_status lay_group(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                                const void *context) {
  treadle_status status = TREADLE_OK;
  const treadle_dim *dp = treadle_mesh_find(&grid->mesh, "dp");
  int64_t *numels = NULL, *starts = NULL, count = 0;
  treadle_flat_unit unit;
  int32_t number;
  (void)spec;
  (void)context;
  TRY(treadle_flat_list(layout));
  treadle_flat_stage *stage = ((treadle_flat_grid *)layout->state)->stages;
  numels = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *numels);
  starts = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *starts);
  if (!numels || !starts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  for (int32_t i = 0; i < stage->param_count; i++)
    if (!stage->params[i].buffer) numels[count++] = stage->params[i].elems;
  TRY(treadle_zero12_unit(numels, count, dp->size, starts, &unit));
  count = 0;
  for (int32_t i = 0; i < stage->param_count; i++) {
    treadle_flat_param *param = &stage->params[i];
    if (param->buffer) continue;
    if (count == 0)
      TRY(treadle_flat_unit_add(layout, 0, param, "single_partition_of_fp32_groups.0", dp, unit.shard,
                                &number));
    param->unit = number;
    param->start = starts[count++];
  }
  TRY(treadle_flat_finish(layout, true));
out:
  treadle_free(numels);
  treadle_free(starts);
  return status;
}

/* One unit a parameter, cut by elements, not by rows: a range may begin within a row. */
static treadle_status lay_each(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                               const void *context) {
  (void)spec;
  (void)context;
  return treadle_flat_lay_each(layout, treadle_mesh_find(&grid->mesh, "dp"), false);
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_builder *normal,
                             bool each) {
  treadle_status status = TREADLE_OK;
  treadle_grid_spec spec = {.lay = each ? lay_each : lay_group};
  treadle_flat_grid *flat;
  if (!each) spec.dtype = layout->dtype ? layout->dtype : TREADLE_FP32;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_modules_read(layout, words, false, &flat->grid, &spec, normal));
  TRY(treadle_grid_build(layout, &flat->grid, &spec));
  if (each) TRY(treadle_flat_make_forms(layout));
out:
  return status;
}

static treadle_status create_group(treadle_layout *layout, treadle_settings *words,
                                   treadle_arena *words_arena, treadle_builder *normal) {
  (void)words_arena;
  return create(layout, words, normal, false);
}

static treadle_status create_each(treadle_layout *layout, treadle_settings *words,
                                  treadle_arena *words_arena, treadle_builder *normal) {
  (void)words_arena;
  return create(layout, words, normal, true);
}

static const char *const keys[] = {"dp", "tp", "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_zero1 = {"zero1", keys, false, create_group};
const treadle_layout_type treadle_layout_type_zero2 = {"zero2", keys, false, create_group};
const treadle_layout_type treadle_layout_type_zero3 = {"zero3", keys, false, create_each};
