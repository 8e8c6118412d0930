/* A smaller model of the same structure: for trying out layouts of models that no machine here could hold. */
#ifndef TREADLE_MODEL_SCALE_DOWN_H
#define TREADLE_MODEL_SCALE_DOWN_H

#include "base/text.h"
#include "model/model.h"

/* A copy of the config whose model has at most `elems` elements: fewer layers, experts, words and heads, narrower
 * matrices. Every pattern of tensor stays, and in decoder and MTP layers alike; at least two layers have experts; heads
 * keep their ratio; sizes stay divisible by small powers of two. Deterministic. `changes` gets what was changed,
 * "num_hidden_layers=4 hidden_size=256"; the caller ends it. *smaller_p is ended by json_decref(). */
treadle_status treadle_scale_down(const char *what, const struct json_t *config,
                                  const treadle_model_options *options, int64_t elems,
                                  struct json_t **smaller_p, treadle_builder *changes);

#endif
