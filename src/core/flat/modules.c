/* Hugging Face modules: rules made from a family's patterns. */
#include "flat/modules.h"

#include "base/text.h"
#include "layout/layout_types.h"

#include <inttypes.h>
#include <string.h>

/* ---- Tensor parallel ---- */

/* How Hugging Face's plans cut what a pattern is the weight or bias of: rows ("colwise": output features) or columns
 * ("rowwise"); all else is replicated. */
static const struct {
  const char *module;
  bool attention;
  treadle_cut cut;
} plan[] = {{"q_proj", true, TREADLE_CUT_ROWS},     {"k_proj", true, TREADLE_CUT_ROWS},
            {"v_proj", true, TREADLE_CUT_ROWS},     {"o_proj", true, TREADLE_CUT_COLS},
            {"gate_proj", false, TREADLE_CUT_ROWS}, {"up_proj", false, TREADLE_CUT_ROWS},
            {"down_proj", false, TREADLE_CUT_COLS}, {"embed_tokens", false, TREADLE_CUT_ROWS},
            {"lm_head", false, TREADLE_CUT_ROWS}};

/* Does the module "...NAME.weight" or "...NAME.bias" bear this name? */
static bool is_of(const char *name, const char *module) {
  const char *dot = strrchr(name, '.');
  size_t length = strlen(module);
  if (!dot || (size_t)(dot - name) < length || strncmp(dot - length, module, length) != 0) return false;
  return dot - name == (ptrdiff_t)length || dot[-(ptrdiff_t)length - 1] == '.';
}

/* Latent attention has shapes of its own, and no plan cuts it. */
static bool is_latent(const treadle_family *family) {
  for (int32_t k = 0; k < family->pattern_count; k++)
    if (is_of(family->patterns[k].name, "kv_b_proj")) return true;
  return false;
}

static treadle_cut cut_of(const treadle_family *family, const treadle_pattern *pattern) {
  bool bias = strcmp(strrchr(pattern->name, '.') ? strrchr(pattern->name, '.') : "", ".bias") == 0;
  if (pattern->experts) return TREADLE_CUT_NONE;
  for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
    if (!is_of(pattern->name, plan[i].module) || (plan[i].attention && is_latent(family))) continue;
    return bias && plan[i].cut == TREADLE_CUT_COLS ? TREADLE_CUT_NONE : plan[i].cut;
  }
  return TREADLE_CUT_NONE;
}

/* ---- Rules ---- */

/* The rule of the family's packed form that has a pattern among its parts, NULL: none. */
static const treadle_rule *packed_rule(const treadle_family *family, int32_t pattern) {
  for (int32_t i = 0; i < family->packed.count; i++)
    for (int p = 0; p < family->packed.rules[i].nparts; p++)
      if (family->packed.rules[i].parts[p].pattern == pattern) return &family->packed.rules[i];
  return NULL;
}

/* A tied name is not a tensor of its own. A packed rule comes where the first of its patterns does. */
static treadle_status make_rules(const treadle_model *model, int64_t tp, treadle_arena *arena,
                                 treadle_grid_spec *spec) {
  const treadle_family *family = model->family;
  treadle_rule *rules = treadle_arena_alloc_array(arena, (size_t)family->pattern_count + 1, sizeof *rules);
  if (!rules) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (int32_t k = 0; k < family->pattern_count; k++) {
    const treadle_pattern *pattern = &family->patterns[k];
    int32_t tensor = model->first_tensor[k];
    if (tensor < 0 || model->tensors[tensor].pattern != k || pattern->scale_of >= 0) continue;
    const treadle_rule *packed = packed_rule(family, k);
    treadle_rule rule = {.name = pattern->name,
                         .full_name = pattern->full_name,
                         .at = pattern->in_layer ? TREADLE_AT_LAYER : TREADLE_AT_FIRST,
                         .nparts = 1,
                         .parts = {{k, -1}},
                         .experts = pattern->experts,
                         .buffer = pattern->buffer,
                         .cut = tp > 1 ? cut_of(family, pattern) : TREADLE_CUT_NONE,
                         .over = "tp",
                         .line = pattern->line};
    if (packed) {
      bool known = false;
      for (int32_t i = 0; i < spec->rule_count; i++)
        known |= rules[i].line == packed->line && strcmp(rules[i].name, packed->name) == 0;
      if (known) continue;
      rule = *packed;
    }
    rules[spec->rule_count++] = rule;
  }
  spec->rules = rules;
  return TREADLE_OK;
}

treadle_status treadle_modules_read(treadle_layout *layout, treadle_settings *words, bool may_replicate,
                                    treadle_grid *grid, treadle_grid_spec *spec, treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = layout->model;
  int64_t tp, dp, given, replicate = 1;
  TRY(treadle_settings_size(words, "tp", 1, &tp));
  TRY(treadle_settings_size(words, "dp", 0, &given));
  if (may_replicate) TRY(treadle_settings_size(words, "replicate", 1, &replicate));
  const int64_t sizes[] = {tp, replicate};
  TRY(treadle_check_ranks(layout, may_replicate ? "tp * replicate" : "tp", sizes, may_replicate ? 2 : 1,
                          &dp));
  if (given && given != dp)
    REFUSE("layout '%s': dp=%" PRId64 ", but %s leave%s dp=%" PRId64 "; give that, or leave dp out",
           words->text, given, treadle_text_of_count(layout->owners.count, "rank"),
           layout->owners.count == 1 ? "s" : "", dp);
  treadle_normal_size(normal, "dp", dp);
  treadle_normal_size(normal, "tp", tp);
  treadle_normal_size(normal, "replicate", replicate);
  layout->is_train = true;
  layout->tp = tp;
  spec->mesh.ranks = layout->owners.count;
  treadle_mesh_add(&spec->mesh, "tp", tp, 1);
  treadle_mesh_add(&spec->mesh, "dp", dp, tp);
  treadle_mesh_add(&spec->mesh, "replicate", replicate, tp * dp);
  treadle_mesh_add(&spec->mesh, "pp", 1, 1);
  treadle_mesh_add(&spec->mesh, "ep", 1, 1);
  TRY(treadle_stages_engine(words->text, model->layers, &(treadle_engine_stages){.pp = 1}, &grid->arena,
                            &spec->chunks));
  spec->chunks.items[0].mtp = model->mtp_layers > 0;
  TRY(make_rules(model, tp, &grid->arena, spec));
  TRY(treadle_slots_for_all(model->experts, 1, model->layers + model->mtp_layers, &grid->arena,
                            &spec->slots));
out:
  return status;
}
