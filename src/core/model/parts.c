/* Parts of rules: patterns and views of them, with the sizes that a config gives. */
#include "model/model.h"

#include <inttypes.h>

/* A treadle_lookup; context: where the model's address is. */
static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  const treadle_model *const *model = context;
  return treadle_model_lookup(*model, name, member, value_p, found_p);
}

static treadle_status take_axis(const treadle_model *model, const treadle_family_view *view, int take,
                                treadle_part_shape *part) {
  const treadle_pattern *pattern = &model->family->patterns[view->pattern];
  const treadle_tensor *tensor = &model->tensors[model->first_tensor[view->pattern]];
  int axis = view->take_axis[take];
  treadle_status status;
  TRY(treadle_expr_evaluate(view->name, view->take_start[take], look_up, &model, &part->start[axis]));
  TRY(treadle_expr_evaluate(view->name, view->take_size[take], look_up, &model, &part->size[axis]));
  if (part->start[axis] < 0 || part->size[axis] < 1 || part->start[axis] > tensor->axis[axis] ||
      part->size[axis] > tensor->axis[axis] - part->start[axis])
    return treadle_fail(TREADLE_REFUSED,
                        "%s line %d: %s takes [%" PRId64 ", +%" PRId64
                        ") of axis %s of %s, which has %" PRId64,
                        view->file, view->line, view->name, part->start[axis], part->size[axis],
                        pattern->axis_text[axis], pattern->name, tensor->axis[axis]);
out:
  return status;
}

treadle_status treadle_model_part(const treadle_model *model, treadle_part_name name,
                                  treadle_part_shape *part_p) {
  const treadle_pattern *pattern = &model->family->patterns[name.pattern];
  const treadle_family_view *view = name.view >= 0 ? &model->family->views[name.view] : NULL;
  const treadle_tensor *tensor = &model->tensors[model->first_tensor[name.pattern]];
  treadle_part_shape part = {.pattern = name.pattern, .experts = pattern->experts, .elems = 1};
  treadle_status status = TREADLE_OK;
  bool named[TREADLE_MAX_AXES] = {false};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) part.size[a] = a < tensor->naxes ? tensor->axis[a] : 1;
  for (int i = 0; view && i < view->takes; i++) TRY(take_axis(model, view, i, &part));
  part.ndim = view ? view->ndim : tensor->ndim - pattern->experts;
  part.naxes = view ? view->naxes : tensor->naxes - pattern->experts;
  part.key_heads = view && view->key_heads;
  for (int d = 0; d < part.ndim; d++) part.shape[d] = 1;
  for (int a = 0; a < part.naxes; a++) {
    int of = view ? view->axis[a] : a + pattern->experts;
    part.of_axis[a] = (int8_t)of;
    part.axis[a] = part.size[of];
    part.axis_dim[a] = view ? view->axis_dim[a] : (int8_t)(tensor->axis_dim[of] - pattern->experts);
    part.shape[part.axis_dim[a]] *= part.axis[a];
    part.elems *= part.axis[a];
    named[of] = true;
  }
  for (int a = pattern->experts; a < tensor->naxes; a++)
    if (!named[a] && part.size[a] != 1)
      return treadle_fail(
          TREADLE_REFUSED, "%s line %d: %s leaves out axis %s of %s, of which it takes %" PRId64,
          view ? view->file : pattern->file, view ? view->line : pattern->line,
          view ? view->name : pattern->name, pattern->axis_text[a], pattern->name, part.size[a]);
  if (pattern->scale_of >= 0) { /* rows of heads that blocks do not show, or of query heads */
    const treadle_pattern *weight = &model->family->patterns[pattern->scale_of];
    int rows = 0, dim = weight->experts;
    for (int a = 0; a < weight->naxes; a++) rows += weight->axis_dim[a] == dim;
    part.rows_only =
        rows >= 3 || part.axis[0] != model->tensors[model->first_tensor[pattern->scale_of]].axis[dim];
  }
  *part_p = part;
out:
  return status;
}
