/* Sorting out the names of a checkpoint: which tensor stands where, what is missing, what is left over. */
#include "model/match.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct shape_text {
  char text[200];
} shape_text;

/* "[4, 8]" */
static shape_text print_shape(int ndim, const int64_t *shape) {
  shape_text out = {"["};
  size_t length = 1;
  for (int d = 0; d < ndim; d++)
    length += (size_t)snprintf(out.text + length, sizeof out.text - length, "%s%" PRId64, d ? ", " : "",
                               shape[d]);
  snprintf(out.text + length, sizeof out.text - length, "]");
  return out;
}

/* ---- What the steps use ------------------------------------------------------------------------ */

const treadle_stored *treadle_match_take(treadle_match *match, const char *name) {
  int32_t at = treadle_names_find(&match->names, name);
  if (at < 0) return NULL;
  match->names.roles[at] = TREADLE_ROLE_TENSOR;
  return &match->checkpoint->tensors[at];
}

treadle_status treadle_match_place(treadle_match *match, int32_t tensor, const treadle_stored_box *place) {
  treadle_status status;
  TRY(treadle_array_push(&match->places, *place));
  TRY(treadle_array_push(&match->place_tensors, tensor));
out:
  return status;
}

void treadle_match_missing(treadle_match *match, const char *format, ...) {
  char line[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  treadle_builder_add(&match->files->missing, "%s\n", treadle_text_shown(line));
  match->files->missing_count++;
}

bool treadle_match_shape(treadle_match *match, const char *name, const treadle_stored *stored, int ndim,
                         const int64_t *shape) {
  if (stored->ndim < 0) return true;
  if (stored->ndim == ndim && memcmp(stored->shape, shape, (size_t)ndim * sizeof *shape) == 0) return true;
  treadle_match_missing(match, "%s is %s instead of %s", name,
                        print_shape(stored->ndim, stored->shape).text, print_shape(ndim, shape).text);
  return false;
}

/* ---- Steps ------------------------------------------------------------------------------------- */

/* A stacked tensor is stored expert by expert. */
static void match_entries(treadle_match *match) {
  const treadle_model *model = match->model;
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_entry *entry = &model->entries[i];
    const treadle_tensor *tensor = &model->tensors[entry->tensor];
    if (match->stacked[entry->tensor] || tensor->scale_of >= 0)
      continue; /* scales are matched with weights */
    const treadle_stored *stored = treadle_match_take(match, entry->name);
    match->files->entries[i] = stored;
    if (!stored && !treadle_match_is_zeros(match, entry))
      treadle_match_missing(match, "%s", entry->name);
    else if (stored)
      treadle_match_shape(match, entry->name, stored, tensor->ndim - tensor->by_expert,
                          tensor->shape + tensor->by_expert);
  }
  for (int32_t i = 0; i < model->tied_count; i++)
    match->files->tied[i] = treadle_match_take(match, model->tied[i].name);
}

/* wanted: of the tensor that it is; only integers are told from other values. */
static void match_type(treadle_match *match, const treadle_stored *stored, treadle_dtype wanted) {
  bool integers = stored->dtype == TREADLE_INT32;
  if (stored->ndim >= 0 && stored->dtype != TREADLE_DTYPE_NONE && integers != (wanted == TREADLE_INT32))
    treadle_match_missing(match, "%s is of type %s, and %s are wanted", stored->name, stored->dtype_text,
                          integers ? "no integers" : "integers (I32)");
  if (stored->ndim >= 0 && stored->dtype == TREADLE_DTYPE_NONE)
    treadle_match_missing(match, "%s is of type %s, which cannot be moved", stored->name,
                          stored->dtype_text);
}

/* Values of a type that treadle does not know. */
static void match_types(treadle_match *match) {
  const treadle_files *files = match->files;
  const treadle_stored *before = NULL;
  for (int32_t i = 0; i < match->model->entry_count; i++)
    if (files->entries[i] && !files->entry_scales[i])
      match_type(match, files->entries[i], match->model->tensors[match->model->entries[i].tensor].dtype);
  for (size_t i = 0; i < match->places.count; i++) { /* parts of a stacked one lie side by side */
    const treadle_stored_box *place = &match->places.items[i];
    if (place->coding == TREADLE_CODED_PLAIN && place->stored != before)
      match_type(match, place->stored, TREADLE_DTYPE_NONE);
    before = place->stored;
  }
}

/* Puts the places in the order of tensors. */
static treadle_status sort_places(treadle_match *match) {
  treadle_files *files = match->files;
  size_t tensors = (size_t)match->model->tensor_count, count = match->places.count;
  files->first_place = treadle_arena_alloc_array(match->arena, tensors + 2, sizeof *files->first_place);
  files->places = treadle_arena_alloc_array(match->arena, count + 1, sizeof *files->places);
  if (!files->first_place || !files->places)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the places of %zu tensors", tensors);
  int32_t *ends = files->first_place + 1; /* ends[t], while they are filled, is the next place of t */
  for (size_t i = 0; i < count; i++) ends[match->place_tensors.items[i] + 1]++;
  for (size_t t = 1; t <= tensors; t++) ends[t] += ends[t - 1];
  for (size_t i = 0; i < count; i++)
    files->places[ends[match->place_tensors.items[i]]++] = match->places.items[i];
  return TREADLE_OK;
}

static treadle_status collect(treadle_match *match, treadle_name_role role, const treadle_stored ***list_p,
                              int32_t *count_p) {
  const treadle_checkpoint *checkpoint = match->checkpoint;
  int32_t count = 0;
  for (int32_t i = 0; i < checkpoint->count; i++) count += match->names.roles[i] == role;
  *list_p = treadle_arena_alloc_array(match->arena, (size_t)count + 1, sizeof **list_p);
  if (!*list_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d names", count);
  for (int32_t i = 0; i < checkpoint->count; i++)
    if (match->names.roles[i] == role) (*list_p)[(*count_p)++] = &checkpoint->tensors[i];
  return TREADLE_OK;
}

/* Names of the form that the files do not have otherwise say so. */
static void list_left_over(treadle_match *match) {
  const treadle_model *model = match->model;
  treadle_files *files = match->files;
  for (int32_t i = 0; i < match->checkpoint->count; i++) {
    if (match->names.roles[i] != TREADLE_ROLE_NONE) continue;
    int32_t entry = (int32_t)treadle_hash_map_get(&model->by_name, match->names.names[i], -1);
    bool other = entry >= 0 && match->stacked[model->entries[entry].tensor];
    treadle_builder_add(&files->left_over, "%s%s\n", treadle_text_shown(match->checkpoint->tensors[i].name),
                        other ? " (beside the stacked form)" : "");
    files->left_over_count++;
  }
}

static treadle_status make_room(treadle_match *match) {
  const treadle_model *model = match->model;
  treadle_files *files = match->files;
  size_t entries = (size_t)model->entry_count + 1, tied = (size_t)model->tied_count + 1;
  files->checkpoint = match->checkpoint;
  files->entries = treadle_arena_alloc_array(match->arena, entries, sizeof *files->entries);
  files->entry_scales = treadle_arena_alloc_array(match->arena, entries, sizeof *files->entry_scales);
  files->tied = treadle_arena_alloc_array(match->arena, tied, sizeof *files->tied);
  match->stacked =
      treadle_arena_alloc_array(match->arena, (size_t)model->tensor_count + 1, sizeof *match->stacked);
  if (!files->entries || !files->entry_scales || !files->tied || !match->stacked)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the names of %s", model->path);
  return TREADLE_OK;
}

treadle_status treadle_files_match(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                   treadle_arena *arena, treadle_files *files) {
  treadle_match match = {.model = model, .checkpoint = checkpoint, .arena = arena, .files = files};
  treadle_status status;
  TRY(make_room(&match));
  TRY(treadle_names_make(model->family, checkpoint, arena, &match.names));
  treadle_match_skip_head(&match);
  TRY(treadle_match_stacked(&match));
  TRY(treadle_match_mxfp4(&match));
  match_entries(&match);
  TRY(treadle_match_scales(&match));
  match_types(&match);
  TRY(sort_places(&match));
  TRY(collect(&match, TREADLE_ROLE_CARRIED, &files->carried, &files->carried_count));
  TRY(collect(&match, TREADLE_ROLE_SKIPPED, &files->skipped, &files->skipped_count));
  list_left_over(&match);
  TRY(treadle_match_zeros(&match));
  if (files->missing.failed || files->left_over.failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the differences of %s", model->path);
out:
  treadle_names_release(&match.names);
  treadle_array_release(&match.places);
  treadle_array_release(&match.place_tensors);
  return status;
}

void treadle_files_release(treadle_files *files) {
  treadle_builder_release(&files->missing);
  treadle_builder_release(&files->left_over);
}
