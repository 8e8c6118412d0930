/* Opening configs, as they are or scaled down. */
#include "model/scaled.h"

#include "io/file_look.h"
#include "model/build.h"
#include "model/scale_down.h"

static treadle_status scale(const char *path, json_t *config, const treadle_model_options *options,
                            treadle_arena *arena, json_t **smaller_p, const char **changes_p) {
  treadle_status status;
  treadle_builder changes = {0};
  *smaller_p = NULL;
  TRY(treadle_scale_down(path, config, options, options->scale_down, smaller_p, &changes));
  *changes_p = treadle_arena_copy_text(arena, changes.text ? changes.text : "nothing to change");
  if (!*changes_p) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a text", path));
out:
  treadle_builder_release(&changes);
  if (status) json_decref(*smaller_p);
  return status;
}

treadle_status treadle_config_open(const char *path, const treadle_model_options *options,
                                   treadle_arena *arena, json_t **config_p, const char **changes_p) {
  treadle_status status;
  treadle_file_type pattern;
  json_t *config = NULL, *smaller;
  *changes_p = NULL;
  TRY(treadle_file_look(path, &pattern));
  if (pattern == TREADLE_FILE_FOLDER) path = treadle_arena_format(arena, "%s/config.json", path);
  if (!path) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a path"));
  TRY(treadle_json_load(path, &config));
  if (options->scale_down) {
    TRY(scale(path, config, options, arena, &smaller, changes_p));
    json_decref(config);
    config = smaller;
  }
  *config_p = config;
  config = NULL;
out:
  json_decref(config);
  return status;
}

treadle_status treadle_model_open_config(const char *what, const char *path,
                                         const treadle_model_options *options, treadle_model **model_p) {
  treadle_status status;
  treadle_arena arena = {0};
  json_t *config = NULL;
  treadle_model *model = NULL;
  const char *changes;
  TRY(treadle_config_open(path, options, &arena, &config, &changes));
  TRY(treadle_model_from_config(what, config, options, &model));
  TRY(treadle_model_check_beside(model, path));
  if (changes && !(model->changes = treadle_arena_copy_text(&model->arena, changes)))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a text", what));
  *model_p = model;
  model = NULL;
out:
  treadle_model_close(model);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}
