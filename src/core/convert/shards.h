/* The shape of a model's own files, kept beside a checkpoint that is none of Hugging Face: hf/treadle-shards.json has
 * their names, headers and sizes, so that the way back gives the same bytes. */
#ifndef TREADLE_CONVERT_SHARDS_H
#define TREADLE_CONVERT_SHARDS_H

#include "model/model.h"

#define TREADLE_SHARDS_FILE "treadle-shards.json"

/* Writes the headers of a checkpoint. */
treadle_status treadle_shards_write(const char *path, const treadle_checkpoint *checkpoint);

/* Opens the model of a folder with config.json and, where they were kept, the headers of its files: tensors have the
 * types that these say. */
treadle_status treadle_shards_open_model(const char *folder, const treadle_model_options *options,
                                         treadle_model **model_p);

#endif
