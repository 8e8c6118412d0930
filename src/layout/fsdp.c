/* fsdp and fsdp2: torch's FullyShardedDataParallel and fully_shard. Facts: layouts.md sections 10.1, 10.2, 16.14. */
#include "base/dtype.h"
#include "layout/flat_grid.h"
#include "layout/kinds.h"
#include "layout/modules.h"

#include <inttypes.h>
#include <string.h>

#define REFUSE(...) return treadle_fail(TREADLE_REFUSED, __VA_ARGS__)

typedef struct options {
  bool orig_params, by_layer;
} options;

/* Lays the parameters of a layer, or (-1) those of no layer, or (-2) all, as one flat parameter. */
static treadle_status lay_unit(treadle_layout *layout, const options *o, const treadle_dim *dp,
                               int32_t layer, const char *name) {
  enum { ALL = -2 };
  treadle_status status = TREADLE_OK;
  treadle_flat_stage *stage = ((treadle_flat_grid *)layout->kind)->stages;
  treadle_flat_param *first = NULL;
  int64_t count = 0;
  int64_t *numels = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *numels);
  int64_t *starts = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *starts);
  treadle_flat_unit unit;
  int32_t number;
  if (!numels || !starts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  for (int32_t i = 0; i < stage->param_count; i++) {
    treadle_flat_param *param = &stage->params[i];
    if (param->buffer || (layer != ALL && param->storage->layer != layer)) continue;
    if (!first) first = param;
    if (param->storage->dtype != first->storage->dtype) {
      status = treadle_fail(
          TREADLE_REFUSED,
          "layout '%s': FSDP flattens parameters of one dtype, and %s and %s are %s and %s; dtype= "
          "makes them one",
          layout->text, layout->model->tensors[first->storage->parts[0]].name,
          layout->model->tensors[param->storage->parts[0]].name, treadle_dtype_name(first->storage->dtype),
          treadle_dtype_name(param->storage->dtype));
      goto out;
    }
    numels[count++] = param->elems;
  }
  if (!first) goto out;
  TRY(treadle_fsdp1_unit(numels, count, dp->size, o->orig_params,
                         (int64_t)treadle_dtype_bytes(first->storage->dtype), starts, &unit));
  TRY(treadle_flat_unit_add(layout, 0, first, name, dp, unit.shard, &number));
  count = 0;
  for (int32_t i = 0; i < stage->param_count; i++) {
    treadle_flat_param *param = &stage->params[i];
    if (param->buffer || (layer != ALL && param->storage->layer != layer)) continue;
    param->unit = number;
    param->start = starts[count++];
  }
out:
  treadle_free(numels);
  treadle_free(starts);
  return status;
}

/* The root unit comes first, as in torch's named_parameters. */
static treadle_status lay(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                          const void *context) {
  treadle_status status = TREADLE_OK;
  const options *o = context;
  const treadle_dim *dp = treadle_mesh_find(&grid->mesh, "dp");
  const treadle_model *model = layout->model;
  (void)spec;
  TRY(treadle_flat_list(layout));
  TRY(lay_unit(layout, o, dp, o->by_layer ? -1 : -2, "_flat_param"));
  for (int32_t layer = 0; o->by_layer && layer < model->layers + model->mtp_layers; layer++) {
    const char *name = treadle_arena_format(&grid->arena, "model.layers.%d._flat_param", layer);
    if (!name) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    TRY(lay_unit(layout, o, dp, layer, name));
  }
  TRY(treadle_flat_finish(layout, !o->by_layer));
out:
  return status;
}

static treadle_status create_fsdp(treadle_layout *layout, treadle_words *words, treadle_arena *words_arena,
                                  treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  options o = {.by_layer = true};
  treadle_grid_spec spec = {.dtype = layout->dtype, .lay = lay, .lay_context = &o};
  treadle_flat_grid *flat;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_modules_read(layout, words, true, &flat->grid, &spec, normal));
  TRY(treadle_words_flag(words, "orig_params", &o.orig_params));
  const char *wrap = treadle_words_get(words, "wrap");
  if (wrap) o.by_layer = strcmp(wrap, "layer") == 0;
  if (wrap && !o.by_layer && strcmp(wrap, "none") != 0)
    REFUSE("layout '%s': wrap=%s is neither layer nor none", words->text, wrap);
  if (o.orig_params) treadle_normal_text(normal, "orig_params", "on");
  if (!o.by_layer) treadle_normal_text(normal, "wrap", "none");
  TRY(treadle_grid_build(layout, &flat->grid, &spec));
out:
  return status;
}

/* ---- fsdp2 ---- */

static treadle_status lay_rows(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                               const void *context) {
  (void)spec;
  (void)context;
  return treadle_flat_lay_each(layout, treadle_mesh_find(&grid->mesh, "dp"), true);
}

static treadle_status create_fsdp2(treadle_layout *layout, treadle_words *words, treadle_arena *words_arena,
                                   treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  treadle_grid_spec spec = {.lay = lay_rows};
  treadle_flat_grid *flat;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_modules_read(layout, words, true, &flat->grid, &spec, normal));
  TRY(treadle_grid_build(layout, &flat->grid, &spec));
out:
  return status;
}

static const char *const keys[] = {"dp", "tp", "replicate", "orig_params", "wrap", "dtype", NULL};
const treadle_layout_kind treadle_kind_fsdp = {"fsdp", keys, false, create_fsdp};
static const char *const keys2[] = {"dp", "tp", "replicate", "dtype", NULL};
const treadle_layout_kind treadle_kind_fsdp2 = {"fsdp2", keys2, false, create_fsdp2};
