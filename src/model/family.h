/* A family: a data file that says which tensors a model type has, and how each engine names, fuses
 * and cuts them. docs/families.md describes the file; families/llama.yaml is the one to read first.
 *
 * A kind is a tensor's name without its layer number: one line of the family's `tensors`. A rule is one
 * storage tensor of an engine: one line of its `engines` section. */
#ifndef TREADLE_MODEL_FAMILY_H
#define TREADLE_MODEL_FAMILY_H

#include "base/arena.h"
#include "base/status.h"
#include "io/yaml.h"

#include <stdint.h>

enum { TREADLE_MAX_AXES = 6, TREADLE_MAX_DIMS = 4, TREADLE_MAX_PARTS = 4 };

/* One line of `tensors`. */
typedef struct treadle_kind {
  const char *name; /* with {l} for the layer number, prefixes expanded: "model.layers.{l}.mlp..." */
  bool in_layer;    /* the name has {l} */
  int ndim;
  int naxes;                               /* of all dimensions together, at most TREADLE_MAX_AXES */
  const char *axis_text[TREADLE_MAX_AXES]; /* expression of each axis: "ng", "q", "hd", "H" */
  int8_t axis_dim[TREADLE_MAX_AXES];       /* the dimension it belongs to, ascending */
  const char *when;                        /* condition over the config, or NULL */
  int32_t same_as;                         /* kind that this one copies while same_when holds, or -1 */
  const char *same_when;
  int line;
} treadle_kind;

/* How the index of a mesh dimension cuts a part. */
typedef enum treadle_cut {
  TREADLE_CUT_NONE, /* every shard has all of it */
  TREADLE_CUT_ROWS, /* dimension 0 in equal parts */
  TREADLE_CUT_COLS, /* dimension 1 in equal parts */
  TREADLE_CUT_HEADS /* the first axis counts KV groups: whole groups; where there are more shards than
                       groups, the second axis (query heads of a group), if it is one of dimension 0 and
                       not the last, is cut too, and what has none is repeated */
} treadle_cut;

/* Which pipeline stages have it. */
typedef enum treadle_place {
  TREADLE_AT_LAYER, /* the stage of its layer */
  TREADLE_AT_FIRST, /* the first chunk: with the embedding */
  TREADLE_AT_LAST,  /* the last chunk: with the head */
  TREADLE_AT_NORM,  /* the chunk of the final norm (the last decoder layer's, or the last chunk) */
  TREADLE_AT_EVERY  /* every stage */
} treadle_place;

/* One line of an engine's section. The storage tensor is, per shard: the parts one above the other
 * (dimension 0), each cut on its own; or, with fuse, all parts interleaved by the named axis (the first of
 * each part) into one matrix whose rows are then cut. */
typedef struct treadle_rule {
  const char *name; /* with {l}, prefixes expanded */
  const char *spec; /* "te" or "local" (Megatron), or NULL: both */
  const char *when; /* condition over config and mesh (tp, pp, ...), or NULL */
  treadle_place at;
  int nparts;
  int32_t parts[TREADLE_MAX_PARTS]; /* kinds */
  treadle_cut cut;
  const char *over; /* mesh dimension whose index cuts: "tp" unless said */
  const char *fuse; /* axis name, or NULL */
  bool pad_vocab;   /* rows are padded by the engine's rule */
  int line;
} treadle_rule;

typedef struct treadle_engine_rules {
  const char *engine; /* "megatron", "vllm", "sglang" */
  int32_t count;
  treadle_rule *rules; /* in named_parameters order */
} treadle_engine_rules;

typedef struct treadle_family {
  const char *name;
  const char *path;         /* for messages */
  const char **model_types; /* NULL-ended */
  int32_t dim_count;        /* names with expressions over config fields and earlier names */
  const char **dim_names, **dim_texts;
  const char *layers; /* expression: number of decoder layers */
  int32_t kind_count;
  treadle_kind *kinds;
  int32_t engine_count;
  treadle_engine_rules *engines;
  treadle_arena *arena;
} treadle_family;

/* Builds a family from a parsed file; refuses unknown keys and names, cycles, repeated names, parts that
 * are not kinds. Everything lives in `arena`, and its texts where `root` lives. */
treadle_status treadle_family_read(const char *path, const treadle_yaml *root, treadle_arena *arena,
                                   treadle_family **family_p);

/* All families: of `folder`, or those built in when NULL. */
treadle_status treadle_family_all(const char *folder, treadle_arena *arena, treadle_family ***families_p,
                                  int32_t *count_p);
/* The one whose model_types has `model_type`; otherwise TREADLE_REFUSED, naming the nearest. */
treadle_status treadle_family_find(const char *folder, const char *model_type, treadle_arena *arena,
                                   treadle_family **family_p);

const treadle_engine_rules *treadle_family_engine(const treadle_family *family, const char *engine);

/* The family files that are built into the library (made by the build from families/). */
typedef struct treadle_family_text {
  const char *name; /* "llama.yaml" */
  const char *text;
} treadle_family_text;
extern const treadle_family_text treadle_family_texts[]; /* ended by a NULL name */

#endif
