/* The views of a family file: parts of a pattern with dimensions of their own.
 *
 * What holds afterwards: taken and named axes are axes of the pattern, each at most once; every axis but that of
 * experts is named, or taken (with a size of 1, which is checked when a config.json gives it a value). */
#include "family/expr.h"
#include "family/read.h"

#include <string.h>

static const char *const view_keys[] = {"name", "of", "take", "shape", "key_heads", NULL};

/* The axis of a pattern by its text; the first, which counts experts, has no name here. */
static treadle_status find_axis(const treadle_family_reader *reader, const treadle_yaml *node,
                                const treadle_pattern *pattern, const char *text, int8_t *axis_p) {
  int found = -1, count = 0;
  treadle_nearest nearest = treadle_nearest_to(text);
  for (int a = pattern->experts; a < pattern->naxes; a++) {
    treadle_nearest_try(&nearest, pattern->axis_text[a]);
    if (strcmp(pattern->axis_text[a], text) != 0) continue;
    found = a;
    count++;
  }
  if (count == 0)
    return treadle_family_fail(reader, node, "'%s' is not an axis of %s; the nearest is %s", text,
                               pattern->name, nearest.best);
  if (count > 1)
    return treadle_family_fail(reader, node, "%s has %d axes '%s'; give them different names",
                               pattern->name, count, text);
  *axis_p = (int8_t)found;
  return TREADLE_OK;
}

static treadle_status read_takes(const treadle_family_reader *reader, const treadle_yaml *node,
                                 treadle_family_view *view) {
  const treadle_pattern *pattern = &reader->family->patterns[view->pattern];
  const treadle_yaml *takes = treadle_yaml_get(node, "take");
  treadle_status status = TREADLE_OK;
  if (!takes) return TREADLE_OK;
  if (takes->type != TREADLE_YAML_MAP || takes->count > TREADLE_MAX_AXES)
    return treadle_family_fail(reader, takes, "%s must be a map of axes to [start, size]", "take");
  for (size_t i = 0; i < takes->count; i++) {
    const treadle_yaml *range = takes->items[i];
    TRY(find_axis(reader, takes, pattern, takes->keys[i], &view->take_axis[i]));
    for (size_t k = 0; k < i; k++)
      if (view->take_axis[k] == view->take_axis[i])
        return treadle_family_fail(reader, takes, "take: %s stands twice", takes->keys[i]);
    TRY(treadle_family_check_list(reader, takes, range, takes->keys[i]));
    if (range->count != 2)
      return treadle_family_fail(reader, range, "take: %s needs [start, size]", takes->keys[i]);
    view->take_start[i] = range->items[0]->text;
    view->take_size[i] = range->items[1]->text;
    const char *what = treadle_family_place(reader, range);
    if (!what) return treadle_family_no_memory();
    TRY(treadle_expr_check(what, view->take_start[i], NULL, NULL));
    TRY(treadle_expr_check(what, view->take_size[i], NULL, NULL));
    view->takes++;
  }
out:
  return status;
}

/* "ng*q*hd" to axes of dimension `dim`. */
static treadle_status read_dimension(const treadle_family_reader *reader, const treadle_yaml *node, int dim,
                                     treadle_family_view *view) {
  const treadle_pattern *pattern = &reader->family->patterns[view->pattern];
  treadle_status status = TREADLE_OK;
  for (const char *at = node->text;; at++) {
    size_t length = strcspn(at, "*"), begin = strspn(at, " "), end = length;
    if (begin > length) begin = length;
    while (end > begin && at[end - 1] == ' ') end--;
    char *axis = treadle_arena_format(reader->arena, "%.*s", (int)(end - begin), at + begin);
    if (!axis) return treadle_family_no_memory();
    if (view->naxes == TREADLE_MAX_AXES)
      return treadle_family_fail(reader, node, "%s has more than %d axes", view->name, TREADLE_MAX_AXES);
    TRY(find_axis(reader, node, pattern, axis, &view->axis[view->naxes]));
    for (int k = 0; k < view->naxes; k++)
      if (view->axis[k] == view->axis[view->naxes])
        return treadle_family_fail(reader, node, "%s names axis %s twice", view->name, axis);
    view->axis_dim[view->naxes++] = (int8_t)dim;
    at += length;
    if (!*at) break;
  }
out:
  return status;
}

static treadle_status read_view(treadle_family_reader *reader, const treadle_yaml *node,
                                treadle_family_view *view) {
  const char *text;
  treadle_name name;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, node, view_keys));
  TRY(treadle_family_text_of(reader, node, "name", true, &text));
  TRY(treadle_family_expand_marked(reader, node, text, &name, &view->name));
  view->file = node->file;
  view->line = node->line;
  if (treadle_hash_map_get(&reader->patterns, view->name, -1) >= 0 ||
      treadle_hash_map_get(&reader->views, view->name, -1) >= 0)
    return treadle_family_fail(reader, node, "%s stands twice", view->name);
  TRY(treadle_family_text_of(reader, node, "of", true, &text));
  TRY(treadle_family_pattern(reader, node, text, &view->pattern));
  TRY(treadle_family_flag(reader, node, "key_heads", &view->key_heads));
  TRY(read_takes(reader, node, view));
  const treadle_yaml *shape = treadle_yaml_get(node, "shape");
  const treadle_pattern *pattern = &reader->family->patterns[view->pattern];
  TRY(treadle_family_check_list(reader, node, shape, "shape"));
  if (shape->count + pattern->experts > TREADLE_MAX_DIMS)
    return treadle_family_fail(reader, shape, "%s has more than %d dimensions", view->name,
                               TREADLE_MAX_DIMS);
  for (size_t d = 0; d < shape->count; d++) TRY(read_dimension(reader, shape->items[d], (int)d, view));
  view->ndim = (int)shape->count;
  for (int a = pattern->experts; a < pattern->naxes; a++) {
    bool there = false;
    for (int i = 0; i < view->naxes; i++) there |= view->axis[i] == a;
    for (int i = 0; i < view->takes; i++) there |= view->take_axis[i] == a;
    if (!there)
      return treadle_family_fail(reader, node, "axis %s of %s is neither in the shape of %s nor taken",
                                 pattern->axis_text[a], pattern->name, view->name);
  }
out:
  return status;
}

treadle_status treadle_family_read_views(treadle_family_reader *reader, const treadle_yaml *views) {
  treadle_family *family = reader->family;
  treadle_status status = TREADLE_OK;
  if (!views) return TREADLE_OK;
  if (views->type != TREADLE_YAML_LIST || !views->count)
    return treadle_family_fail(reader, views, "%s must be a list of views", "views");
  family->views = treadle_arena_alloc_array(reader->arena, views->count, sizeof *family->views);
  if (!family->views) return treadle_family_no_memory();
  for (size_t i = 0; i < views->count; i++) {
    treadle_family_view *view = &family->views[family->view_count];
    TRY(read_view(reader, views->items[i], view));
    TRY(treadle_hash_map_put(&reader->views, view->name, family->view_count));
    family->view_count++;
  }
out:
  return status;
}

const char *treadle_family_axis(const treadle_family *family, treadle_part_name part, int index,
                                int *dim_p) {
  const treadle_pattern *pattern = &family->patterns[part.pattern];
  if (part.view < 0) {
    index += pattern->experts;
    if (index >= pattern->naxes) return NULL;
    *dim_p = pattern->axis_dim[index] - pattern->experts;
    return pattern->axis_text[index];
  }
  const treadle_family_view *view = &family->views[part.view];
  if (index >= view->naxes) return NULL;
  *dim_p = view->axis_dim[index];
  return pattern->axis_text[view->axis[index]];
}

bool treadle_family_same_width(const treadle_family *family, treadle_part_name a, treadle_part_name b) {
  int i = 0, j = 0, a_dim = 0, b_dim = 0;
  while (treadle_family_axis(family, a, i, &a_dim) && a_dim == 0) i++;
  while (treadle_family_axis(family, b, j, &b_dim) && b_dim == 0) j++;
  for (;; i++, j++) {
    const char *x = treadle_family_axis(family, a, i, &a_dim),
               *y = treadle_family_axis(family, b, j, &b_dim);
    if (!x || !y) return !x && !y;
    if (a_dim != b_dim || strcmp(x, y) != 0) return false;
  }
}
