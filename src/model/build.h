/* Steps of making a model, shared by the files that make one. */
#ifndef TREADLE_MODEL_BUILD_H
#define TREADLE_MODEL_BUILD_H

#include "io/json.h"
#include "model/model.h"

/* Makes a zeroed model from a config; treadle_model_close() ends it, whatever came out. */
treadle_status treadle_model_build(treadle_model *model, const char *what, json_t *config,
                                   const char *families);

/* Fills in dims, tensors and aliases of a model that has path, config and family. */
treadle_status treadle_model_fill(treadle_model *model);

/* Counts elements and bytes and makes the digest, from the tensors as they are. */
treadle_status treadle_model_sum(treadle_model *model);

/* Gives the tensors the dtypes of the checkpoint, which must hold exactly this model: names, shapes, and
 * copies of tied tensors that are equal byte for byte. `what` names it in messages. On success the model
 * owns the checkpoint. */
treadle_status treadle_model_adopt(treadle_model *model, const char *what, treadle_checkpoint *checkpoint);

#endif
