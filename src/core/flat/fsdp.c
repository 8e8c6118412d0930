/* fsdp and fsdp2: torch's FullyShardedDataParallel and fully_shard. docs/rules.md 10.1, 10.2. */
#include "base/dtype.h"
#include "flat/flat_grid.h"
#include "flat/modules.h"
#include "layout/layout_types.h"

#include <inttypes.h>
#include <string.h>

typedef struct options {
  bool orig_params, by_layer;
} options;

/* Lays some parameters, by their numbers, as one flat parameter.
 * Addresses are those of docs/rules.md 10.1: numels[i] and starts[i] are of params[i], in the order of
 * modules. The unit is a vector of dp ranges, unit.shard elements each. */
static treadle_status lay_unit(treadle_layout *layout, const options *o, const treadle_dim *dp,
                               const int32_t *params, int64_t count, const char *name) {
  treadle_status status = TREADLE_OK;
  treadle_flat_stage *stage = ((treadle_flat_grid *)layout->state)->stages;
  int64_t *numels = treadle_alloc_array((size_t)count + 1, sizeof *numels);
  int64_t *starts = treadle_alloc_array((size_t)count + 1, sizeof *starts);
  treadle_flat_unit unit;
  int32_t number;
  if (!numels || !starts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  if (count == 0) goto out;
  const treadle_flat_param *first = &stage->params[params[0]];
  for (int64_t i = 0; i < count; i++) {
    const treadle_flat_param *param = &stage->params[params[i]];
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
    numels[i] = param->elems;
  }
  TRY(treadle_fsdp1_unit(numels, count, dp->size, o->orig_params,
                         (int64_t)treadle_dtype_bytes(first->storage->dtype), starts, &unit));
  TRY(treadle_flat_unit_add(layout, 0, first, name, dp, unit.shard, &number));
  for (int64_t i = 0; i < count; i++) {
    stage->params[params[i]].unit = number;
    stage->params[params[i]].start = starts[i];
  }
out:
  treadle_free(numels);
  treadle_free(starts);
  return status;
}

/* Parameters by unit, 0 being the root and 1 that of layer 0: those of unit u are sorted[first[u]] and on,
 * in their order. Turn 0 counts, turn 1 places. With 3 parameters of the root and 2 of layer 0, first is
 * 0, 3, 5 in the end, and sorted has the numbers of the root's three before those of the layer's two. */
static void sort_by_unit(const treadle_flat_stage *stage, const options *o, int32_t units, int32_t *first,
                         int32_t *sorted) {
  int32_t *next = first + 1; /* of each unit: how many, then its begin, then its end */
  for (int turn = 0; turn < 2; turn++) {
    for (int32_t i = 0; i < stage->param_count; i++) {
      int32_t unit = o->by_layer ? stage->params[i].storage->layer + 1 : 0;
      if (stage->params[i].buffer) continue;
      if (turn == 0)
        next[unit + 1]++;
      else
        sorted[next[unit]++] = i;
    }
    for (int32_t u = 0; turn == 0 && u < units; u++) next[u + 1] += next[u];
  }
}

/* The root unit comes first, as in torch's named_parameters. */
static treadle_status lay(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                          const void *context) {
  treadle_status status = TREADLE_OK;
  const options *o = context;
  const treadle_dim *dp = treadle_mesh_find(&grid->mesh, "dp");
  const treadle_model *model = layout->model;
  int32_t units = o->by_layer ? 1 + model->layers + model->mtp_layers : 1, *first = NULL, *sorted = NULL;
  (void)spec;
  TRY(treadle_flat_list(layout));
  const treadle_flat_stage *stage = ((treadle_flat_grid *)layout->state)->stages;
  first = treadle_alloc_array((size_t)units + 2, sizeof *first);
  sorted = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *sorted);
  if (!first || !sorted) TRY(treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"));
  sort_by_unit(stage, o, units, first, sorted);
  for (int32_t u = 0; u < units; u++) {
    const char *name =
        u == 0 ? "_flat_param" : treadle_arena_format(&grid->arena, "model.layers.%d._flat_param", u - 1);
    if (!name) TRY(treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"));
    TRY(lay_unit(layout, o, dp, sorted + first[u], first[u + 1] - first[u], name));
  }
  TRY(treadle_flat_finish(layout, !o->by_layer));
out:
  treadle_free(first);
  treadle_free(sorted);
  return status;
}

/* wrap=layer: a unit for the root and one for each layer. wrap=none: all parameters are one unit of many
 * layers, so that its cells say where they come (treadle_flat_finish). */
static treadle_status create_fsdp(treadle_layout *layout, treadle_settings *words,
                                  treadle_arena *words_arena, treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  options o = {.by_layer = true};
  treadle_grid_spec spec = {.dtype = layout->dtype, .lay = lay, .lay_context = &o};
  treadle_flat_grid *flat;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_modules_read(layout, words, true, &flat->grid, &spec, normal));
  TRY(treadle_settings_flag(words, "orig_params", &o.orig_params));
  const char *wrap = treadle_settings_get(words, "wrap");
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

static treadle_status create_fsdp2(treadle_layout *layout, treadle_settings *words,
                                   treadle_arena *words_arena, treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  treadle_grid_spec spec = {.lay = lay_rows};
  treadle_flat_grid *flat;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_modules_read(layout, words, true, &flat->grid, &spec, normal));
  TRY(treadle_grid_build(layout, &flat->grid, &spec));
  TRY(treadle_flat_make_forms(layout));
out:
  return status;
}

static const char *const keys[] = {"dp", "tp", "replicate", "orig_params", "wrap", "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_fsdp = {"fsdp", keys, false, create_fsdp};
static const char *const keys2[] = {"dp", "tp", "replicate", "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_fsdp2 = {"fsdp2", keys2, false, create_fsdp2};
