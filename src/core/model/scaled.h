/* The config of a path, perhaps scaled down. */
#ifndef TREADLE_MODEL_SCALED_H
#define TREADLE_MODEL_SCALED_H

#include "io/json.h"
#include "model/model.h"

/* config.json of a folder, or the file itself, scaled down where options->scale_down says so; then *changes_p is what was changed,
 * a text of the arena, else NULL. *config_p is ended by json_decref(). */
treadle_status treadle_config_open(const char *path, const treadle_model_options *options,
                                   treadle_arena *arena, json_t **config_p, const char **changes_p);

/* The model of such a config, without weights. `what` names it in messages. */
treadle_status treadle_model_open_config(const char *what, const char *path,
                                         const treadle_model_options *options, treadle_model **model_p);

#endif
