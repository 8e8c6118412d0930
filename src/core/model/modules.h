/* Modules that a quantised model leaves unquantised: the lists modules_to_not_convert and ignored_layers of
 * quantization_config.
 *
 * An entry fits a module if it is, from its beginning up to a border ('.' or the end), the module's path or a regex for
 * it; if the path ends with it; or if it is a run of whole words of the path. These are the rules of transformers
 * (quantizers/quantizers_utils.py, should_convert_module) and of SGLang (quantization/utils.py). So mlp.gate fits the
 * router model.layers.0.mlp.gate, and not model.layers.0.mlp.gate_proj. An entry that is not a regex since a '*' in it
 * repeats nothing is a glob. */
#ifndef TREADLE_MODEL_MODULES_H
#define TREADLE_MODEL_MODULES_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct treadle_modules treadle_modules;

/* Reads a list of texts into *modules_p, which is made if it is NULL; `name` is the list's key in messages. Ended by
 * treadle_modules_destroy() whatever comes out. */
treadle_status treadle_modules_add(treadle_modules **modules_p, const char *name, const json_t *list);
void treadle_modules_destroy(treadle_modules *modules);

/* Does an entry fit the module of this path? NULL: no. */
bool treadle_modules_have(const treadle_modules *modules, const char *path);
/* May the number of an expert decide whether an entry fits? */
bool treadle_modules_name_experts(const treadle_modules *modules);

#endif
