/* A model with the values of a checkpoint as a source of conversions finds them: a piece of a window is filled as a file of a target would be. */
#include "convert/values.h"

#include "base/alloc.h"
#include "convert/fill.h"
#include "convert/source.h"
#include "io/file.h"
#include "layout/layout.h"

#include <limits.h>

struct treadle_values {
  treadle_model model; /* what it was made of, but for its values, and shares all else with it */
  treadle_inputs inputs;
  treadle_checkpoint *carried; /* originals of values with an offset (kept.h); may be NULL */
  treadle_source *source;
  treadle_filler filler;
};

static treadle_status read_piece(void *context, const struct treadle_piece *piece, char *window) {
  treadle_values *v = context;
  treadle_status status;
  TRY(treadle_fill_piece(&v->filler, piece, window));
  TRY(treadle_entry_sums_end(&v->source->sums));
  TRY(treadle_inputs_intact(&v->inputs));
out:
  treadle_source_let_go(v->source);
  return status;
}

static treadle_status open_carried(treadle_values *v, const char *folder) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/hf/carried.safetensors", folder) >= (int)sizeof path)
    return treadle_fail(TREADLE_REFUSED, "%s: too long for a path", folder);
  return treadle_file_exists(path) ? treadle_checkpoint_open(path, &v->carried) : TREADLE_OK;
}

treadle_status treadle_values_open(const treadle_model *model, const char *folder, const char *layout,
                                   treadle_values **values_p) {
  const treadle_source_type *type;
  treadle_status status;
  treadle_values *v = treadle_alloc(sizeof *v);
  *values_p = NULL;
  if (!v) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a checkpoint", folder);
  v->model = *model;
  v->model.values =
      (treadle_model_values){read_piece, v, treadle_arena_format(&v->inputs.arena, "%s/hf", folder)};
  if (!v->model.values.folder)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a checkpoint", folder));
  TRY(treadle_source_type_of(layout, &type));
  TRY(open_carried(v, folder));
  TRY(treadle_source_open(type, model, &v->inputs, folder, layout, &v->source));
  v->source->kept = v->carried;
  v->filler.source = v->source;
  *values_p = v;
  v = NULL;
out:
  treadle_values_close(v);
  return status;
}

const treadle_model *treadle_values_model(const treadle_values *values) { return &values->model; }

void treadle_values_close(treadle_values *values) {
  if (!values) return;
  treadle_filler_release(&values->filler);
  treadle_source_close(values->source);
  treadle_checkpoint_close(values->carried);
  treadle_inputs_release(&values->inputs);
  treadle_free(values);
}
