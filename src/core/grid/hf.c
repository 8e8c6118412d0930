/* hf: the Hugging Face form; every rank has the whole model, or one rank alone (hf:root=R). The rules are
 * made from the family's patterns: each tensor is its own storage, not cut. */
#include "grid/grid.h"
#include "layout/layout_types.h"

#include <inttypes.h>

/* A tied name is not a tensor of its own: a rule for it would store the embedding twice. */
static treadle_status make_rules(const treadle_layout *layout, treadle_arena *arena,
                                 treadle_grid_spec *spec) {
  const treadle_model *model = layout->model;
  const treadle_family *family = model->family;
  treadle_rule *rules = treadle_arena_alloc_array(arena, (size_t)family->pattern_count + 1, sizeof *rules);
  if (!rules) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (int32_t k = 0; k < family->pattern_count; k++) {
    const treadle_pattern *pattern = &family->patterns[k];
    int32_t tensor = model->first_tensor[k];
    if (tensor < 0 || model->tensors[tensor].pattern != k || (pattern->scale_of >= 0 && !layout->fp8))
      continue;
    treadle_rule *rule = &rules[spec->rule_count++];
    *rule = (treadle_rule){.name = pattern->name,
                           .full_name = pattern->full_name,
                           .at = pattern->in_layer ? TREADLE_AT_LAYER : TREADLE_AT_FIRST,
                           .nparts = 1,
                           .parts = {{k, -1}},
                           .experts = pattern->experts,
                           .file = pattern->file,
                           .line = pattern->line};
  }
  spec->rules = rules;
  return TREADLE_OK;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  treadle_grid *grid;
  TRY(treadle_grid_start(layout, &grid));
  layout->is_train = true;
  treadle_grid_spec spec = {.mesh = {.ranks = layout->owners.count}};
  const treadle_model *model = layout->model;
  const char *root_text = treadle_settings_get(words, "root");
  int64_t root = 0;
  if (root_text && layout->owners.runs) {
    status = treadle_fail(TREADLE_REFUSED,
                          "layout '%s': root and on both say which ranks hold it: root=%s is on=%s alone",
                          words->text, root_text, root_text);
    goto out;
  }
  if (root_text) {
    if (!treadle_text_to_int64(root_text, &root) || root < 0 || root >= layout->ranks) {
      status = treadle_fail(TREADLE_REFUSED, "layout '%s': root=%s is not a rank from 0 to %" PRId64,
                            words->text, root_text, layout->ranks - 1);
      goto out;
    }
    treadle_normal_text(normal, "root", root_text);
  }
  /* With a root every rank is a stage and the root's stage has everything; else there is one stage. */
  int64_t stages = root_text ? layout->ranks : 1; /* all ranks are owners */
  treadle_mesh_add(&spec.mesh, "pp", stages, 1);
  TRY(treadle_stages_engine(words->text, model->layers, &(treadle_engine_stages){.pp = 1}, &grid->arena,
                            &spec.chunks));
  spec.chunks.stages = (int32_t)stages;
  spec.chunks.items[0].stage = (int32_t)root;
  spec.chunks.items[0].mtp = model->mtp_layers > 0;
  treadle_mesh_add(&spec.mesh, "ep", 1, 1);
  TRY(make_rules(layout, &grid->arena, &spec));
  TRY(treadle_slots_for_all(model->experts, 1, model->layers + model->mtp_layers, &grid->arena,
                            &spec.slots));
  TRY(treadle_grid_build(layout, grid, &spec));
out:
  return status;
}

static const char *const keys[] = {"root", "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_hf = {"hf", keys, true, create};
