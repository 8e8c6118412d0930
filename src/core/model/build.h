/* Steps of making a model, shared by the files that make one. */
#ifndef TREADLE_MODEL_BUILD_H
#define TREADLE_MODEL_BUILD_H

#include "io/json.h"
#include "model/model.h"

/* Makes a zeroed model (its family may be set) from a config; treadle_model_close() ends it, whatever came out. */
treadle_status treadle_model_build(treadle_model *model, const char *what, json_t *config,
                                   const char *families);

/* The model of a config for files of this many bytes (0: not known): one that they cannot hold is refused before its tensors have
 * names. */
treadle_status treadle_model_from_files(const char *what, json_t *config,
                                        const treadle_model_options *options, size_t file_bytes,
                                        treadle_model **model_p);

/* What files say of a model beside its config. */
typedef struct treadle_model_found {
  int32_t mtp_layers; /* -1: nothing */
  bool score_bias;
} treadle_model_found;

/* The model of a config for files that say this. */
treadle_status treadle_model_with(const char *what, json_t *config, const treadle_model_options *options,
                                  const treadle_model_found *found, treadle_model **model_p);

/* The model of another config of the same family and with such a head; both share the family: `like` is closed later. For
 * many small models. */
treadle_status treadle_model_like(const treadle_model *like, const char *what, json_t *config,
                                  treadle_model **model_p);

/* The model of a config in this family, which outlives it; mtp_layers -1: as the config says. */
treadle_status treadle_model_of(treadle_family *family, const char *what, json_t *config,
                                int32_t mtp_layers, treadle_model **model_p);

/* A copy of the config with what the family's class of transformers adds to it: fields under other names, and defaults of
 * fields that it lacks (complete.c). Ended by json_decref(). */
treadle_status treadle_config_complete(const treadle_family *family, const json_t *config,
                                       json_t **complete_p);

/* Fills in dims, tensors and aliases of a model that has path, config and family. */
treadle_status treadle_model_fill(treadle_model *model);

/* ---- Names and fields (lookup.c) ---- */

/* The position of a dim that has a value; -1: it is none. */
int32_t treadle_model_find_dim(const treadle_model *model, const char *name);
/* The object of the config that the family looks at first; NULL: there is none. */
const json_t *treadle_model_inner_config(const treadle_model *model);
/* As treadle_model_lookup(), without the path in messages. */
treadle_status treadle_model_look_up(const treadle_model *model, const char *name, const int64_t *member,
                                     int64_t *value_p, bool *found_p);
/* Is a field true or false? */
bool treadle_model_is_boolean(const treadle_model *model, const char *name);

/* ---- What the config says of quantised weights (quantisation.c) ---- */

/* Fills in quantisation, block, unquantised and is_fp8, with a note where only plain weights are known. Refuses what treadle
 * does not understand. */
treadle_status treadle_model_read_quantisation(treadle_model *model);
/* Refuses a config beside which another file says that the weights are quantised. */
treadle_status treadle_model_check_beside(const treadle_model *model, const char *config_path);

/* ---- What follows the last norm (head.c) ---- */

/* Refuses a score head that the family, or the trainer, does not have, and a config with several labels. */
treadle_status treadle_model_check_head(const treadle_model *model);
/* Have the files score.bias? False of a model with another head. */
treadle_status treadle_names_score_bias(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                        bool *bias_p);

/* Adds a line to the model's notes: what was taken in another way than the config or the files say. */
treadle_status treadle_model_note(treadle_model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- Block scales (scales.c) ---- */

/* The tensor of the scales of `tensor`, whose pattern `pattern` is like. */
void treadle_scales_measure(const treadle_model *model, const treadle_pattern *pattern,
                            const treadle_tensor *tensor, treadle_tensor *scales);
/* Is the weight of these scales one that quantization_config leaves unquantised? Refused: some of its experts are. */
treadle_status treadle_scales_left_out(const treadle_model *model, const treadle_pattern *scales,
                                       int32_t layer, int64_t experts, bool *left_out_p);

/* Counts elements and bytes and makes the digest, from the tensors as they are. */
treadle_status treadle_model_sum(treadle_model *model);

/* Of a model with files that have all of its names: gives its tensors the dtypes of the files, and refuses types that cannot be moved
 * and copies of tied tensors that differ. What adopts files, and what only checks them, judges by this. */
treadle_status treadle_model_check_values(treadle_model *model, const char *what);

/* Gives the tensors the dtypes of the checkpoint, which must hold exactly this model: names, shapes, and
 * copies of tied tensors that are equal byte for byte. `what` names it in messages. On success the model
 * owns the checkpoint, and has files. */
treadle_status treadle_model_adopt(treadle_model *model, const char *what, treadle_checkpoint *checkpoint);

#endif
