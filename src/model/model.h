/* The model: a family made concrete by a config.json, and the list of canonical tensors.
 *
 * A canonical tensor has its Hugging Face name and shape and, finer, its axes: dimension d is the product
 * of the axes whose axis_dim is d, row-major. Boxes and pieces are in axes. A tied name (lm_head.weight
 * when tie_word_embeddings) is an alias: no tensor of its own, its kind leads to the tensor it copies.
 *
 * Order: model order, which is the order of the family's kinds outside layers, with all layers, ascending,
 * at the place of the first kind that has {l}. */
#ifndef TREADLE_MODEL_MODEL_H
#define TREADLE_MODEL_MODEL_H

#include "base/arena.h"
#include "base/map.h"
#include "io/safetensors.h"
#include "model/expr.h"
#include "model/family.h"

typedef struct treadle_tensor {
  const char *name;
  int32_t kind;
  int32_t layer; /* -1 outside */
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS];
  int naxes;
  int64_t axis[TREADLE_MAX_AXES]; /* size of each */
  int8_t axis_dim[TREADLE_MAX_AXES];
  const char *axis_name[TREADLE_MAX_AXES]; /* text of its expression */
  int64_t elems;
  treadle_dtype dtype;
} treadle_tensor;

typedef struct treadle_alias {
  const char *name;
  int32_t tensor; /* the canonical tensor it copies */
} treadle_alias;

struct treadle_model {
  const char *path;
  treadle_family *family;
  struct json_t *config;
  int64_t *dim_values; /* of the family's dims */
  int32_t dim_known;   /* how many have a value: all, once the model is made */
  int32_t layers;
  int32_t tensor_count;
  int32_t layer_tensors; /* of them, in each layer */
  treadle_tensor *tensors;
  int32_t alias_count;
  treadle_alias *aliases;
  treadle_map by_name; /* names of tensors, and of aliases, to the canonical tensor */
  int32_t *first_tensor; /* by kind: its tensor, of layer 0 in layers; -1: the model has none */
  int64_t elems;
  int64_t bytes;
  treadle_checkpoint *checkpoint; /* NULL without weights */
  uint64_t digest;                /* of names, shapes, axes, dtypes and aliases */
  treadle_arena arena;
};

/* The canonical tensor of a kind in a layer (-1 outside), aliases followed; -1 when the model has none. */
int32_t treadle_model_find(const treadle_model *model, int32_t kind, int32_t layer);

/* The value of a name in expressions of this model: dims, then config fields (numbers and booleans);
 * TREADLE_OK and *found_p false when there is none. A treadle_lookup with the model as context. */
treadle_status treadle_model_lookup(void *model, const char *name, int64_t *value_p, bool *found_p);

/* Builds the model of a config without files: the test's door. `what` names the config in messages. All
 * tensors have the config's dtype: its dtype or torch_dtype, fp32 when it says neither, as torch does. The
 * model keeps a reference to config of its own. */
treadle_status treadle_model_from_config(const char *what, struct json_t *config,
                                         const treadle_model_options *options, treadle_model **model_p);

/* Compares the model with a checkpoint's index: names that are missing and names left over, and, where
 * shapes are known, shapes (a line among the missing). Both lists as texts, a name a line; empty when all
 * is well. Stored copies of tied tensors and rotary_emb.inv_freq buffers are neither. */
treadle_status treadle_model_compare(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                     treadle_arena *arena, const char **missing_p, const char **left_over_p,
                                     int32_t *differences_p);

#endif
