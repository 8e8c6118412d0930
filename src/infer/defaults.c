/* What a model's folder says of sampling. */
#include "infer/engine.h"

#include "io/file_look.h"
#include "io/json.h"

#include <string.h>

/* The folder of a model that was opened by its folder, or by its config.json. */
static char *path_beside(const treadle_transformer *transformer, treadle_arena *arena, const char *name) {
  const char *path = transformer->model->path;
  size_t length = strlen(path);
  if (length >= 5 && strcmp(path + length - 5, ".json") == 0) {
    const char *slash = strrchr(path, '/');
    return slash ? treadle_arena_format(arena, "%.*s/%s", (int)(slash - path), path, name)
                 : treadle_arena_format(arena, "%s", name);
  }
  return treadle_arena_format(arena, "%s/%s", path, name);
}

treadle_status treadle_engine_sampling(const treadle_engine *engine, treadle_arena *arena,
                                       treadle_sampling *sampling_p, treadle_eos *eos_p) {
  return treadle_transformer_sampling(engine->transformer, arena, sampling_p, eos_p);
}

treadle_status treadle_transformer_sampling(const treadle_transformer *transformer, treadle_arena *arena,
                                            treadle_sampling *sampling_p, treadle_eos *eos_p) {
  char *path = path_beside(transformer, arena, "generation_config.json");
  json_t *config = NULL;
  treadle_file_type type;
  treadle_status status;
  *eos_p = (treadle_eos){0};
  treadle_sampling_default(sampling_p);
  if (!path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  TRY(treadle_file_look(path, &type));
  if (type == TREADLE_FILE_PLAIN) {
    TRY(treadle_json_load(path, &config));
    TRY(treadle_sampling_read_config(path, config, sampling_p));
    TRY(treadle_eos_read(path, config, arena, eos_p));
  }
  if (!eos_p->count)
    TRY(treadle_eos_read(transformer->model->path, treadle_transformer_config(transformer), arena, eos_p));
out:
  json_decref(config);
  return status;
}
