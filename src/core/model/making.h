/* A model that is being made from a config, for the files that do (build.c, values.c). */
#ifndef TREADLE_MODEL_MAKING_H
#define TREADLE_MODEL_MAKING_H

#include "model/build.h"

typedef struct treadle_pattern_state {
  bool own;              /* the model has tensors of it */
  bool tied;             /* the model has copies of another pattern's by its name */
  bool by_layer;         /* its condition speaks of l */
  treadle_tensor tensor; /* all but name, layer */
} treadle_pattern_state;

typedef struct treadle_model_making {
  treadle_model *model;
  treadle_pattern_state *patterns;
  bool *dim_is_boolean;
  bool saw_boolean; /* by the last evaluation */
  int64_t layer;    /* value of l; -1: not to be had */
  treadle_dtype dtype;
} treadle_model_making;

/* Evaluates an expression that `role` and `name` describe in messages: "dim", "hd". */
treadle_status treadle_making_evaluate(treadle_model_making *b, const char *role, const char *name,
                                       const char *text, int64_t *value_p);

/* Fill in the model's dims, its numbers of layers, and of experts. In this order. */
treadle_status treadle_making_dims(treadle_model_making *b);
treadle_status treadle_making_layers(treadle_model_making *b);
treadle_status treadle_making_experts(treadle_model_making *b);
/* Refuses a model that the family does not speak of. */
treadle_status treadle_making_require(treadle_model_making *b);

#endif
