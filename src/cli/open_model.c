/* The model of --model: a folder or a config.json, scaled down with --scale-down. */
#include "cli/cli.h"

#include "io/file_look.h"
#include "io/json.h"
#include "model/scale_down.h"

#include <inttypes.h>

enum { MILLION = 1000000 };

treadle_status treadle_scaled_config(const treadle_arguments *arguments, const char *path, bool say,
                                     json_t **config_p) {
  treadle_model_options options = {.struct_size = sizeof(treadle_model_options),
                                   .families = arguments->families};
  treadle_arena arena = {0};
  treadle_builder changes = {0};
  json_t *config = NULL;
  treadle_status status;
  treadle_file_kind kind;
  const char *config_path = path;
  TRY(treadle_file_look(path, &kind));
  if (kind == TREADLE_FILE_FOLDER) config_path = treadle_arena_format(&arena, "%s/config.json", path);
  if (!config_path) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a path"));
  if (arguments->scale_down > INT64_MAX / MILLION)
    TRY(treadle_fail(TREADLE_REFUSED, "--scale-down is %" PRId64 " million parameters, more than 2^63",
                     arguments->scale_down));
  TRY(treadle_json_load(config_path, &config));
  TRY(treadle_scale_down(config_path, config, &options, arguments->scale_down * MILLION, config_p,
                         &changes));
  if (say)
    fprintf(stderr, "scaled down to at most %" PRId64 " million parameters: %s\n", arguments->scale_down,
            changes.text ? changes.text : "nothing to change");
out:
  treadle_builder_release(&changes);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_open_model(const treadle_arguments *arguments, const char *path, bool say,
                                  treadle_model **model_p) {
  treadle_model_options options = {.struct_size = sizeof(treadle_model_options),
                                   .families = arguments->families};
  json_t *config = NULL;
  treadle_status status;
  if (!arguments->scale_down) return treadle_model_open(path, &options, model_p);
  TRY(treadle_scaled_config(arguments, path, say, &config));
  TRY(treadle_model_from_config(path, config, &options, model_p));
out:
  json_decref(config);
  return status;
}
