/* Keys of generation_config.json that treadle does not hear. */
#ifndef TREADLE_GENERATE_UNHEARD_H
#define TREADLE_GENERATE_UNHEARD_H

#include "base/text.h"

#include <jansson.h>

/* Adds the names of those that change what transformers generates, with the values that they have here: "num_beams, min_length". config
 * may be NULL. */
void treadle_generation_unheard(const json_t *config, treadle_builder *names);

#endif
