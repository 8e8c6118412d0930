/* A draft of a family file, made of a checkpoint's config and the names and shapes of its tensors: what the file would say as far
 * as that can be seen, and what has to be said by who knows the model.
 *
 *   tensors.c    names to drafted: {l} for the layer, * for the expert, shapes, the layers that have them
 *   roles.c       what a tensor is, by the words of its name: the matrix of queries, the norm before the MLP, ...
 *   nearest.c     the family that is like it most; which of its tensors each drafted is
 *   options.c     options of its blocks that fit better
 *   fields.c      fields of the config by other names
 *   dims.c        the family's dims, by fields and by the shapes of tensors
 *   sizes.c       a size as text in a shape
 *   layers.c      a set of layers as a condition
 *   varying.c     layers of other sizes
 *   conditions.c  named conditions that have another meaning
 *   compose.c     the file: what it extends, and what is different
 *   fused.c       one tensor for several of the family
 *   lines.c       changes of lines that the family has
 *   biases.c      rules for new biases of known matrices
 *   added.c       lines for tensors that it has not
 *   draft.c       the order of all this; the draft is read and compared with the checkpoint as any family is
 *
 * All lies in one arena. What is open is a point of the draft's to_say, and a comment where it belongs. */
#ifndef TREADLE_DRAFT_DRAFT_H
#define TREADLE_DRAFT_DRAFT_H

#include "base/array.h"
#include "family/assemble.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/model.h"

enum {
  TREADLE_MAX_PATTERNS = 1000,    /* patterns of tensors: the largest family has 70 */
  TREADLE_MAX_PATTERN_NAME = 250, /* characters */
  TREADLE_MAX_DRAFT_LAYERS = 100000,
  TREADLE_DRAFT_SHAPES = 16,
  TREADLE_DRAFT_OTHERWISE = -2, /* in the place of a pattern: the family has it in another way */
  TREADLE_DRAFT_FUSED = -3,     /* it is several patterns, one above the other */
  TREADLE_DRAFT_SCALES = -4     /* the fp8 scales of another drafted */
};

/* What a tensor is in a decoder. */
typedef enum treadle_role {
  TREADLE_ROLE_UNKNOWN,
  TREADLE_IS_EMBEDDING,
  TREADLE_IS_HEAD,
  TREADLE_IS_FINAL_NORM,
  TREADLE_IS_NORM_BEFORE, /* of a layer: before attention, ... */
  TREADLE_IS_NORM_BETWEEN,
  TREADLE_IS_Q,
  TREADLE_IS_K,
  TREADLE_IS_V,
  TREADLE_IS_O,
  TREADLE_IS_Q_NORM,
  TREADLE_IS_K_NORM,
  TREADLE_IS_QKV,
  TREADLE_IS_GATE,
  TREADLE_IS_UP,
  TREADLE_IS_DOWN,
  TREADLE_IS_GATE_UP,
  TREADLE_IS_ROUTER
} treadle_role;

/* Names that differ in the numbers of layer and expert alone. */
typedef struct treadle_draft_tensor {
  const char *text; /* "model.layers.{l}.mlp.experts.*.up_proj.weight" */
  const char *rest; /* in layers: what stands behind the number of the layer and its dot; else the whole */
  bool in_layer, by_expert;
  int32_t count;   /* names */
  int32_t experts; /* one more than the largest number of an expert */
  int ndim;        /* of `first`; -1: not known */
  int64_t shape[8];
  const treadle_stored *first;                        /* of the shape that most layers have */
  const treadle_stored *shapes[TREADLE_DRAFT_SHAPES]; /* in layers: one of each shape */
  int shape_count;
  bool mixed; /* some layer has several shapes, or there are more of them, or they differ in dimensions */
  bool explained;  /* the draft has layer_dims that say the shapes */
  uint8_t *layers; /* a byte a layer: 1 and the number of the shape that it has there */
  int32_t layer_count;
  int32_t role;    /* treadle_role, and 1024 for each of: bias, of experts, of the shared expert */
  int32_t pattern; /* of the family that is extended; -1: none, or as below */
} treadle_draft_tensor;

typedef struct treadle_draft {
  treadle_arena *arena;
  treadle_assembly assembly; /* for nodes of trees, and messages */
  const char *folder;        /* of families; NULL: those built in */
  json_t *config;
  const char *inner_name; /* the object of the config that has the fields; NULL: the config itself */
  json_t *inner;          /* lent, as is the config */
  const char *config_path, *name;
  const treadle_checkpoint *checkpoint;
  treadle_draft_tensor *drafted;
  int32_t drafted_count;
  const char *layer_prefix; /* "model.layers."; NULL: no name has a layer */
  int32_t layers;           /* that names speak of */
  int64_t experts;          /* of the config, or of the names; 0: none */
  treadle_family *like;
  bool *taken;           /* by pattern of `like`: the checkpoint has it, in whatever form */
  const char *like_name; /* of its file */
  const treadle_yaml *like_tree;
  treadle_yaml *dims;   /* of it, with those of the draft in place */
  treadle_yaml *blocks; /* of it with other options, for the draft; NULL: none. `like` has them */
  treadle_yaml *root;   /* the draft */
  treadle_builder text; /* the draft as it was written last */
  treadle_yaml *to_say; /* what is to be said, of the draft; NULL: nothing */
  treadle_builder open; /* the same, a line each */
  int32_t open_count;
} treadle_draft;

/* A node in the draft. */
treadle_status treadle_draft_text(treadle_draft *d, const char *text, treadle_yaml **node_p);
treadle_status treadle_draft_new(treadle_draft *d, treadle_yaml_type type, treadle_yaml **node_p);
treadle_status treadle_draft_append(treadle_draft *d, treadle_yaml *list, treadle_yaml *item);
/* The map or list of a key, made where it is not there. */
treadle_status treadle_draft_part(treadle_draft *d, treadle_yaml *map, const char *key,
                                  treadle_yaml_type type, treadle_yaml **part_p);
treadle_status treadle_draft_set(treadle_draft *d, treadle_yaml *map, const char *key, const char *text);
/* Something is open: a comment above `at`, a point of to_say, and a line of `open`. */
treadle_status treadle_draft_ask(treadle_draft *d, treadle_yaml *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* tensors.c: fills drafted, layer_prefix and layers. Refused: names that no rule has in common. */
treadle_status treadle_draft_patterns(treadle_draft *d);
/* roles.c */
int32_t treadle_draft_role(const char *rest, bool in_layer, bool by_expert, bool has_experts);

/* fields.c: a field of the config as a number; false: it is absent, or no such number. */
bool treadle_draft_field(const treadle_draft *d, const char *name, int64_t *value_p);
bool treadle_draft_has_field(const treadle_draft *d, const char *name); /* whatever it is */
/* The field that is there for one that families know by this name; NULL: none. */
const char *treadle_draft_other_field(const treadle_draft *d, const char *name);
/* The fields of the config with a value: how many, and the first. Of those that no dim uses, where there are any. */
int treadle_draft_fields_of(const treadle_draft *d, int64_t value, const char **field_p);
/* dims.c: dims of the family that is extended which are others for this config. */
treadle_status treadle_draft_dims(treadle_draft *d);
/* Their values in this config, -1 for one that has none; those that `fixed` has (not -1) are so; NULL: none is. */
void treadle_draft_evaluate(treadle_draft *d, const int64_t *fixed, int64_t *values);
/* The place of a dim among the first `known`; -1: it is none of them. */
int64_t treadle_draft_find_dim(const treadle_draft *d, size_t known, const char *name);
/* What an axis of a pattern says: the value of a dim, or a number; -1: neither. values: by dim. */
int64_t treadle_draft_axis_value(const treadle_draft *d, const int64_t *values, const char *axis);
/* varying.c: layer_dims for tensors that have other shapes in some layers; what they do not explain is asked in plain words. */
treadle_status treadle_draft_vary(treadle_draft *d, const treadle_model *model);
/* sizes.c: a size as a dim or a product of dims of the model; *certain_p false: others would do as well. New dims are added. */
treadle_status treadle_draft_size(treadle_draft *d, const treadle_model *model, int64_t size,
                                  const char **text_p, bool *certain_p);

/* Are two patterns of a family, or one, of the same name? It has layer_dims then. */
bool treadle_draft_is_twin(const treadle_family *family, int32_t a, int32_t b);
/* The role of a line of a family. */
int32_t treadle_draft_pattern_role(const treadle_family *family, const treadle_pattern *pattern);
/* fused.c: pairs drafted that are several patterns; `patterns` is by drafted. Returns how many. */
int32_t treadle_draft_pair_fused(const treadle_draft *d, const treadle_family *family, int32_t *patterns,
                                 bool *taken);

/* How much a family is like the checkpoint. */
treadle_status treadle_draft_score(const treadle_draft *d, const treadle_family *family, int64_t *score_p);
/* options.c: turns options of the family's blocks on with which it is more like the checkpoint. */
treadle_status treadle_draft_options(treadle_draft *d);

/* nearest.c: chooses the family, pairs drafted with its patterns. */
treadle_status treadle_draft_choose(treadle_draft *d, const char *like);
treadle_status treadle_draft_pair(treadle_draft *d);

/* layers.c: the condition on l that holds in these layers alone; NULL text: in all. *found_p false: there is none. */
treadle_status treadle_draft_condition(treadle_draft *d, const uint8_t *layers, int32_t count,
                                       const char **text_p, bool *found_p);

/* The same by a list of the config that has the number for these layers alone; false: there is none. */
bool treadle_draft_list_of(treadle_draft *d, const uint8_t *layers, int32_t count, int64_t number,
                           const char **text_p);

/* Asks which dims differ: a tensor that has several shapes, and in which layers. */
treadle_status treadle_draft_ask_shapes(treadle_draft *d, treadle_yaml *at, const treadle_draft_tensor *p);

/* conditions.c: gives named conditions of the family another meaning, where the layers of all their lines say so. */
treadle_status treadle_draft_conditions(treadle_draft *d, const treadle_model *model, bool *changed_p);

/* compose.c: what it extends, and no more; the first draft, which has names and dims; then all that is different. */
treadle_status treadle_draft_extend(treadle_draft *d);
treadle_status treadle_draft_begin(treadle_draft *d);
treadle_status treadle_draft_compose(treadle_draft *d, const treadle_model *model);
/* The draft as text, read back, and the model that it makes of the config. */
treadle_status treadle_draft_model(treadle_draft *d, treadle_model **model_p);

#endif
