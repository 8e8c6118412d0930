/* Named conditions of the family that is extended. Where the lines of a name stand in other layers than the family says, the name
 * gets another meaning in the draft, and the rules that ask for it follow. */
#include "draft/draft.h"

#include <string.h>

typedef struct condition_lines {
  treadle_draft *d;
  const treadle_model *model;
  const char *text;      /* of the condition */
  uint8_t *layers;       /* where it has to hold */
  int32_t count, differ; /* lines that say so; layers where the family says otherwise */
  bool clear;            /* all lines say the same */
} condition_lines;

/* Is `when` the condition (1) or what it is not (-1)? */
static int compare_when(const condition_lines *c, const char *when) {
  if (!when) return 0;
  size_t length = strlen(c->text);
  if (strcmp(when, c->text) == 0) return 1;
  return strncmp(when, "not (", 5) == 0 && strncmp(when + 5, c->text, length) == 0 &&
                 strcmp(when + 5 + length, ")") == 0
             ? -1
             : 0;
}

/* Adds what a line says: its tensors stand in the layers where the condition holds, or does not. */
static void add_line(condition_lines *c, const treadle_draft_tensor *p, int which) {
  int32_t layers = c->model->layers;
  for (int32_t l = 0; l < layers; l++) {
    uint8_t here = (l < c->d->layers && p->layers[l]) == (which > 0);
    if (c->count && c->layers[l] != here) c->clear = false;
    c->layers[l] = here;
    if (!c->count) c->differ += (treadle_model_find(c->model, p->pattern, l) >= 0) != (p->layers[l] != 0);
  }
  c->count++;
}

static treadle_status settle(treadle_draft *d, const treadle_model *model, const char *name,
                             const char *text, bool *changed_p) {
  condition_lines c = {.d = d, .model = model, .text = text, .clear = true};
  const char *when;
  treadle_yaml *conditions;
  bool found;
  treadle_status status = TREADLE_OK;
  c.layers = treadle_arena_alloc(d->arena, (size_t)model->layers + 1);
  if (!c.layers) return treadle_family_no_memory();
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    int which = p->pattern >= 0 && p->in_layer ? compare_when(&c, d->like->patterns[p->pattern].when) : 0;
    if (which && d->layers >= model->layers) add_line(&c, p, which);
  }
  if (!c.count || !c.clear || !c.differ) return TREADLE_OK;
  TRY(treadle_draft_condition(d, c.layers, model->layers, &when, &found));
  if (!found) return TREADLE_OK;
  TRY(treadle_draft_part(d, d->root, "conditions", TREADLE_YAML_MAP, &conditions));
  TRY(treadle_draft_set(d, conditions, name, when ? when : "true"));
  *changed_p = true;
out:
  return status;
}

treadle_status treadle_draft_conditions(treadle_draft *d, const treadle_model *model, bool *changed_p) {
  const treadle_yaml *root;
  treadle_yaml *tree;
  treadle_status status;
  *changed_p = false;
  TRY(treadle_family_load(&d->assembly, d->root, d->like_name, false, &root));
  TRY(treadle_family_extend(&d->assembly, root, &tree));
  const treadle_yaml *conditions = treadle_yaml_get(tree, "conditions");
  for (size_t i = 0; conditions && i < conditions->count; i++)
    TRY(settle(d, model, conditions->keys[i], conditions->items[i]->text, changed_p));
out:
  return status;
}
