/* The model: a family made concrete by a config.json, and the list of canonical tensors.
 *
 * A canonical tensor has its Hugging Face name and shape and, finer, its axes: dimension d is the product
 * of the axes whose axis_dim is d, row-major. Boxes and pieces are in axes. A tied name (lm_head.weight
 * when tie_word_embeddings) is an alias: no tensor of its own, its pattern leads to the tensor it copies.
 *
 * Experts: Hugging Face has one tensor per expert, the model one stacked tensor, whose first axis and dimension
 * count experts; so the number of tensors, and with it the cost of plans, does not grow with experts. Names of
 * Hugging Face are entries: tensor, and expert where it is one of many. Users see entries only.
 *
 * Layers: decoder layers, and behind them the MTP layers. A pattern may be absent in some.
 *
 * Order: model order, which is the order of the family's patterns outside layers, with all layers, ascending,
 * at the place of the first pattern that has {l}. */
#ifndef TREADLE_MODEL_MODEL_H
#define TREADLE_MODEL_MODEL_H

#include "base/arena.h"
#include "base/hash_map.h"
#include "base/text.h"
#include "family/expr.h"
#include "family/family.h"
#include "io/safetensors.h"

typedef struct treadle_tensor {
  const char *name; /* with '*' in the place of the expert's number */
  int32_t pattern;
  int32_t layer; /* -1 outside */
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS];
  int naxes;
  int64_t axis[TREADLE_MAX_AXES]; /* size of each */
  int8_t axis_dim[TREADLE_MAX_AXES];
  const char *axis_name[TREADLE_MAX_AXES]; /* text of its expression */
  int64_t elems;
  treadle_dtype dtype;
  bool fixed_dtype;    /* of this type in every layout */
  bool by_expert;      /* its entries are its experts; shape[0] of them */
  int32_t first_entry; /* its Hugging Face names are entries first_entry, ... */
  int32_t scale;       /* the tensor of its block scales; -1: none, it is not quantised */
  int32_t scale_of;    /* the tensor whose block scales these are; -1: it is not a scale */
} treadle_tensor;

typedef struct treadle_entry { /* a tensor as Hugging Face names it */
  const char *name;
  int32_t tensor;
  int32_t expert; /* -1: the whole tensor */
} treadle_entry;

typedef struct treadle_tied {
  const char *name;
  int32_t tensor; /* the canonical tensor it copies */
} treadle_tied;

/* A pattern, or a view of it, with the axes that rules cut: without the expert axis, transposed, taken in part. */
typedef struct treadle_part_shape {
  int32_t pattern;
  bool experts; /* each expert has one of these */
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS];
  int naxes;
  int64_t axis[TREADLE_MAX_AXES];
  int8_t axis_dim[TREADLE_MAX_AXES];
  int8_t of_axis[TREADLE_MAX_AXES];                        /* of the tensor */
  int64_t elems;                                           /* of one expert */
  int64_t start[TREADLE_MAX_AXES], size[TREADLE_MAX_AXES]; /* by axis of the tensor: what of it is taken */
  bool key_heads; /* its heads are those of keys or values, whatever axes it has */
  bool rows_only; /* heads are not to be seen in it: where they are cut, its rows are */
} treadle_part_shape;

/* Values of the model that come from elsewhere than its own files: a piece of a layout, at its place in `window`. */
struct treadle_piece;
typedef struct treadle_model_values {
  treadle_status (*read)(void *context, const struct treadle_piece *piece,
                         char *window); /* NULL: they do not */
  void *context;
  const char *folder; /* of what stands beside them */
} treadle_model_values;

/* What follows the last norm (head.c). */
typedef struct treadle_model_head {
  treadle_head kind;
  bool bias;  /* of a score head: it has score.bias */
  bool zeros; /* files without score.weight mean zeros */
} treadle_model_head;

struct treadle_model {
  const char *path;   /* of its config.json */
  const char *folder; /* that was opened; NULL: it was a config.json alone */
  treadle_family *family;
  struct json_t *config; /* completed: what it lacks has the defaults of the family */
  const char *changes;   /* to a config, by scaling it down; NULL: it is as it was */
  treadle_builder notes; /* a line each: what was taken in another way than the config or the files say */
  int64_t *dim_values;   /* of the family's dims */
  int32_t dim_known;     /* how many have a value: all, once the model is made */
  int32_t layers;        /* decoder layers */
  int32_t mtp_layers;    /* behind them, numbered on */
  bool without_mtp;      /* the files have none, whatever the config says */
  int32_t
      mtp_found; /* the files have this many, though the config says nothing of them; 0: no more is known */
  size_t file_bytes;                   /* of all tensors of the files that it is made for; 0: not known */
  int64_t experts;                     /* routed experts; 0: none */
  struct json_t *quantisation;         /* the config's, understood: in `config`; NULL: it speaks of none */
  struct treadle_modules *unquantised; /* what it leaves as it was; NULL: nothing */
  int64_t block[2];                    /* rows and columns of an fp8 block; 0: the config speaks of none */
  bool is_fp8;                         /* the files hold quantised tensors in fp8 */
  treadle_weights weights;             /* where values come from, but for those of `values` */
  treadle_model_head head;
  int32_t tensor_count;
  treadle_tensor *tensors;
  int32_t entry_count;
  treadle_entry *entries;
  int32_t tied_count;
  treadle_tied *tied;
  treadle_hash_map by_name; /* names of entries, and of aliases, to the entry */
  int32_t *first_tensor;    /* by pattern: its first tensor, aliases followed; -1: the model has none */
  int32_t *
      tensor_at; /* by pattern, and layer + 1 (layers + mtp_layers + 1 of them): aliases followed; -1: none */
  int64_t elems;
  int64_t bytes;
  treadle_checkpoint *checkpoint; /* NULL without weights */
  treadle_model_values values;    /* in place of the checkpoint's */
  struct treadle_files *files;    /* of the checkpoint: where tensors lie in it, and what else it holds */
  uint64_t digest;                /* of names, shapes, axes, dtypes and aliases */
  treadle_arena arena;
};

/* The canonical tensor of a pattern in a layer (-1 outside), aliases followed; -1 when the model has none. */
int32_t treadle_model_find(const treadle_model *model, int32_t pattern, int32_t layer);

/* Is the language model part of a larger one, whose config.json has it in an object? */
bool treadle_model_is_part(const treadle_model *model);

/* Resolves a part of a rule, or a view. Refused when the view takes what is not there. */
treadle_status treadle_model_part(const treadle_model *model, treadle_part_name name,
                                  treadle_part_shape *part_p);

/* The value of a name in expressions of this model: "score_head" and "score_bias", which say what its head has; dims;
 * config fields (numbers and booleans); "mtp", the number of MTP layers; TREADLE_OK and *found_p false when there is none. What treadle_lookup (family/expr.h) says of a
 * member holds here. */
treadle_status treadle_model_lookup(const treadle_model *model, const char *name, const int64_t *member,
                                    int64_t *value_p, bool *found_p);

/* Builds the model of a config without files: the test's door. `what` names the config in messages. All
 * tensors have the config's dtype: its dtype or torch_dtype, fp32 when it says neither, as torch does. Its weights are
 * made up. The model keeps a reference to config of its own. */
treadle_status treadle_model_from_config(const char *what, struct json_t *config,
                                         const treadle_model_options *options, treadle_model **model_p);

/* What a folder has in place of weights, for messages: "; it has GGUF files (a.gguf), ...: what to do", or "". In the arena. */
treadle_status treadle_model_folder_text(const char *folder, treadle_arena *arena, const char **text_p);
/* Refuses a model without weights, in these words. else_what: what else could be done, a sentence; "" for nothing. */
treadle_status treadle_model_refuse_absent(const treadle_model *model, const char *else_what);

/* The model of a config for the files of a checkpoint: without MTP layers where these have none, and with those that
 * they have where the config speaks of none. Names and shapes are not compared. */
treadle_status treadle_model_for_files(const char *what, struct json_t *config,
                                       const treadle_model_options *options,
                                       const treadle_checkpoint *checkpoint, treadle_model **model_p);

#endif
