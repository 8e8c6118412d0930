/* The model of --model: a folder or a config.json, scaled down with --scale-down. */
#include "cli/cli.h"

#include "base/utf8.h"
#include "treadle_tools.h"

#include <string.h>

enum { MILLION = 1000000 };

treadle_status treadle_scale_down_elems(const treadle_model_arguments *arguments, int64_t *elems_p) {
  if (arguments->scale_down > INT64_MAX / MILLION)
    return treadle_fail(TREADLE_REFUSED, "--scale-down is %lld million parameters, more than 2^63",
                        (long long)arguments->scale_down);
  *elems_p = arguments->scale_down * MILLION;
  return TREADLE_OK;
}

void treadle_say_scaled(const treadle_model_arguments *arguments, const treadle_model *model) {
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_model_get_info(model, &info);
  if (info.changes)
    fprintf(stderr, "scaled down to at most %lld million parameters: %s\n",
            (long long)arguments->scale_down, treadle_text_shown(info.changes));
}

void treadle_say_notes(const treadle_model *model) {
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_model_get_info(model, &info);
  for (const char *line = info.notes; line && *line;) {
    size_t length = strcspn(line, "\n");
    fprintf(stderr, "warning: %.*s\n", (int)length, line);
    line += length + (line[length] == '\n');
  }
}

void treadle_say_open(const treadle_model *model) {
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_model_get_info(model, &info);
  if (info.open)
    fprintf(stderr,
            "warning: %s is not finished, %d point%s of to_say %s open: treadle family check says which\n",
            treadle_text_shown(info.family_path), (int)info.open, info.open == 1 ? "" : "s",
            info.open == 1 ? "is" : "are");
  treadle_say_notes(model);
}

treadle_status treadle_open_model(const treadle_model_arguments *arguments, const char *path, bool say,
                                  treadle_model **model_p) {
  treadle_status status;
  treadle_model_options options = {.struct_size = sizeof options,
                                   .families = arguments->families,
                                   .weights = (treadle_weights)arguments->weights};
  TRY(treadle_scale_down_elems(arguments, &options.scale_down));
  TRY(treadle_model_open(path, &options, model_p));
  if (say) treadle_say_scaled(arguments, *model_p);
  if (say) treadle_say_open(*model_p);
out:
  return status;
}

const char *treadle_weights_name(treadle_weights weights) {
  static const char *const names[] = {"none", "files", "made_up"};
  return names[weights];
}

treadle_status treadle_need_weights(const treadle_model *model, const char *path, bool say) {
  treadle_status status = treadle_model_need_weights(model);
  if (!status && say && treadle_model_weights(model) == TREADLE_WEIGHTS_RANDOM) treadle_say_made_up(path);
  return status;
}

void treadle_say_made_up(const char *path) {
  fprintf(stderr, "the weights of %s are made up, not read from files\n", treadle_text_shown(path));
}

size_t treadle_overrides_of(const treadle_arguments *arguments, const char **texts) {
  static const char *const weights[] = {NULL, "actor_config.weights=files", "actor_config.weights=random"};
  size_t count = 0;
  for (int i = 1; i < arguments->word_count; i++) texts[count++] = arguments->words[i];
  if (arguments->model.weights) texts[count++] = weights[arguments->model.weights];
  return count;
}
