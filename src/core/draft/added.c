/* Tensors that the family which is extended does not have: a block of the draft's own, with a line for each in `tensors` and in each
 * engine. How engines name, cut and order them nobody can see in a checkpoint: here they have the file's names, are whole on every
 * rank, and stand at the end of the layer. */
#include "draft/lines.h"

#include "base/dtype.h"

#include <string.h>

/* ---- Shapes ------------------------------------------------------------------------------------- */

treadle_status treadle_draft_shape(treadle_draft *d, const treadle_model *model,
                                   const treadle_draft_tensor *p, treadle_yaml *at,
                                   treadle_yaml **shape_p) {
  treadle_yaml *item;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_LIST, shape_p));
  for (int i = 0; i < p->ndim; i++) {
    const char *text;
    bool certain;
    TRY(treadle_draft_size(d, model, p->shape[i], &text, &certain));
    TRY(treadle_draft_text(d, text, &item));
    TRY(treadle_draft_append(d, *shape_p, item));
    if (!certain)
      TRY(treadle_draft_ask(d, at, "%s: is dimension %d, of size %lld, %s?", p->text, i,
                            (long long)p->shape[i], text));
  }
  if (p->ndim < 0) {
    TRY(treadle_draft_text(d, "1", &item));
    TRY(treadle_draft_append(d, *shape_p, item));
    TRY(treadle_draft_ask(d, at, "%s: its shape; there is only an index here", p->text));
  }
out:
  return status;
}

/* ---- Lines -------------------------------------------------------------------------------------- */

static treadle_status add_tensor(treadle_draft *d, const treadle_model *model,
                                 const treadle_draft_tensor *p, treadle_yaml *line) {
  int32_t all = model->layers + model->mtp_layers;
  const char *when = NULL;
  treadle_yaml *shape;
  bool found = true;
  treadle_status status;
  const char *name = treadle_draft_written(d, p);
  if (!name) return treadle_family_no_memory();
  TRY(treadle_draft_set(d, line, "name", name));
  TRY(treadle_draft_shape(d, model, p, line, &shape));
  TRY(treadle_tree_set(&d->assembly, line, "shape", shape));
  if (p->in_layer) {
    uint8_t *layers = treadle_arena_alloc(d->arena, (size_t)all + 1);
    if (!layers) return treadle_family_no_memory();
    for (int32_t l = 0; l < all; l++) layers[l] = l < d->layers && p->layers[l];
    TRY(treadle_draft_condition(d, layers, all, &when, &found));
  } else {
    TRY(treadle_draft_set(d, line, "to", "mtp_begin"));
  }
  if (when) TRY(treadle_draft_set(d, line, "when", when));
  if (!found)
    TRY(treadle_draft_ask(d, line, "%s stands in %d of %d layers, by no rule that is plain: when?", p->text,
                          (int)p->layer_count, (int)all));
  if (p->shape_count > 1) TRY(treadle_draft_ask_shapes(d, line, p));
out:
  return status;
}

static treadle_status add_rule(treadle_draft *d, const treadle_draft_tensor *p, const char *engine,
                               treadle_yaml *rules) {
  const char *prefix = strcmp(engine, "megatron") == 0 ? "D." : strcmp(engine, "vllm") == 0 ? "W." : "S.";
  const char *of = treadle_draft_written(d, p), *name = of;
  treadle_yaml *rule, *parts, *part;
  treadle_status status;
  if (p->in_layer) name = treadle_arena_format(d->arena, "%s%s", prefix, p->rest);
  if (!of || !name) return treadle_family_no_memory();
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &rule));
  TRY(treadle_draft_set(d, rule, "name", name));
  if (!p->in_layer) TRY(treadle_draft_set(d, rule, "at", "first"));
  TRY(treadle_draft_part(d, rule, "of", TREADLE_YAML_LIST, &parts));
  TRY(treadle_draft_text(d, of, &part));
  TRY(treadle_draft_append(d, parts, part));
  if (!p->in_layer) TRY(treadle_draft_set(d, rule, "to", "mtp_begin"));
  TRY(treadle_draft_append(d, rules, rule));
out:
  return status;
}

static treadle_status add_pattern(treadle_draft *d, const treadle_model *model,
                                  const treadle_draft_tensor *p, treadle_yaml *block) {
  treadle_yaml *tensors, *engines, *rules, *line;
  treadle_status status;
  TRY(treadle_draft_part(d, block, "tensors", TREADLE_YAML_LIST, &tensors));
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &line));
  TRY(treadle_draft_append(d, tensors, line));
  TRY(add_tensor(d, model, p, line));
  TRY(treadle_draft_part(d, block, "engines", TREADLE_YAML_MAP, &engines));
  bool all_known = d->like->engine_count > 0;
  for (int32_t e = 0; e < d->like->engine_count; e++) {
    const char *engine = d->like->engines[e].engine;
    bool known;
    if (!treadle_draft_has_engine(d, engine)) continue;
    TRY(treadle_draft_part(d, engines, engine, TREADLE_YAML_LIST, &rules));
    TRY(treadle_draft_bias_rules(d, p, engine, rules, &known));
    if (!known) TRY(add_rule(d, p, engine, rules));
    all_known &= known;
  }
  if (all_known)
    return treadle_draft_ask(d, line, "%s is new: is it fused and cut as its matrix is?", p->text);
  TRY(treadle_draft_ask(d, line,
                        p->in_layer ? "%s is new: its names in the engines%s"
                                    : "%s is new: its names in the engines, and which stage has it (at)%s",
                        p->text, p->ndim == 1 ? "" : ", and how they cut it (cut, over)"));
out:
  return status;
}

/* Does the family have a tensor of this name, of other dimensions? */
static bool is_name_of_family(const treadle_draft *d, const treadle_draft_names *names,
                              const treadle_draft_tensor *p) {
  const char *own = treadle_draft_written(d, p);
  for (int32_t k = 0; own && names->written && k < names->count; k++)
    if (strcmp(names->written[k], own) == 0) return true;
  return false;
}

treadle_status treadle_draft_add(treadle_draft *d, const treadle_model *model) {
  const treadle_draft_names names = treadle_draft_pattern_names(d);
  treadle_yaml *blocks, *block = NULL;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    if (p->pattern != -1) continue;
    if (p->ndim == 0 || p->ndim > TREADLE_MAX_DIMS - p->by_expert || (p->by_expert && !d->like->experts) ||
        is_name_of_family(d, &names, p)) {
      TRY(treadle_draft_ask(d, d->root->items[0], "%s, of %d dimensions%s, is left over", p->text, p->ndim,
                            p->by_expert ? ", of experts" : ""));
      continue;
    }
    if (!block) {
      TRY(treadle_draft_part(d, d->root, "blocks", TREADLE_YAML_LIST, &blocks));
      TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &block));
      TRY(treadle_draft_append(d, blocks, block));
      TRY(treadle_draft_set(d, block, "fills", "mlp"));
    }
    TRY(add_pattern(d, model, p, block));
  }
out:
  return status;
}
