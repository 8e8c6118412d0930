/* A family: a data file that says which tensors a model type has, and how each engine names, fuses
 * and cuts them. docs/families.md describes the file; families/llama.yaml is the one to read first.
 *
 * A pattern is a tensor's name without its layer number: one line of the family's `tensors`. A rule is one
 * storage tensor of an engine: one line of its `engines` section. */
#ifndef TREADLE_FAMILY_FAMILY_H
#define TREADLE_FAMILY_FAMILY_H

#include "base/arena.h"
#include "base/status.h"
#include "io/yaml.h"
#include "move/move.h"

#include <stdint.h>

enum { TREADLE_MAX_DIMS = 4, TREADLE_MAX_PARTS = 8, TREADLE_MAX_OTHERS = 3 };

/* A name as written in the file: prefixes expanded, {l} for the layer number, {m} for the number of an MTP layer,
 * '*' for the number of an expert. */
typedef struct treadle_name {
  const char *text; /* "model.layers.{l}.mlp.experts.*.up_proj.weight" */
  const char *mtp;  /* the same in MTP layers; NULL: as text */
  bool in_layer;    /* it has {l} or {m} */
  bool by_expert;   /* it has '*' */
} treadle_name;

/* One line of `tensors`. A pattern by expert, and one that is packed, is one stacked tensor: its first axis and
 * dimension count experts. */
typedef struct treadle_pattern {
  const char *name; /* text of full_name */
  treadle_name full_name;
  bool in_layer;       /* the name has {l} */
  bool experts;        /* the first axis counts experts */
  bool packed;         /* ... in Hugging Face's files too */
  treadle_dtype dtype; /* always of this type; NONE: the file's */
  bool buffer;         /* a buffer of its module: no parameter that is trained */
  bool shifted; /* some engine stores it with something added: a value near 1 that it can hold exactly */
  int ndim;     /* of the stacked tensor */
  int naxes;    /* of all dimensions together, at most TREADLE_MAX_AXES */
  const char *axis_text[TREADLE_MAX_AXES]; /* expression of each axis: "ng", "q", "hd", "H" */
  int8_t axis_dim[TREADLE_MAX_AXES];       /* the dimension it belongs to, ascending */
  const char *when;                        /* condition over the config, or NULL */
  int32_t scale_of; /* the block scales of this pattern, for models stored in fp8; -1: it is not a scale */
  int32_t same_as;  /* pattern that this one copies while same_when holds, or -1 */
  const char *same_when;
  const char *file; /* where it stands: the family's file or that of a block */
  int line;
} treadle_pattern;

/* One line of `views`: a part of a pattern with dimensions of its own. The expert axis is not among them. */
typedef struct treadle_family_view {
  const char *name;
  int32_t pattern;
  int takes;
  int8_t take_axis[TREADLE_MAX_AXES]; /* of the pattern */
  const char *take_start[TREADLE_MAX_AXES], *take_size[TREADLE_MAX_AXES];
  int ndim;
  int naxes;
  int8_t axis[TREADLE_MAX_AXES]; /* of the pattern */
  int8_t axis_dim[TREADLE_MAX_AXES];
  bool key_heads; /* of keys or values: no axis of it counts query heads */
  const char *file;
  int line;
} treadle_family_view;

/* How the index of a mesh dimension cuts a part. */
typedef enum treadle_cut {
  TREADLE_CUT_NONE,  /* every shard has all of it */
  TREADLE_CUT_ROWS,  /* dimension 0 in equal parts */
  TREADLE_CUT_COLS,  /* dimension 1 in equal parts */
  TREADLE_CUT_FIRST, /* shard 0 has all of it, the others zeros */
  TREADLE_CUT_HEADS  /* the first axis counts KV groups: whole groups; where there are more shards than
                       groups, the second axis (query heads of a group), if it is one of dimension 0 and
                       not the last, is cut too, and what has none is repeated */
} treadle_cut;

/* Which pipeline stages have it. */
typedef enum treadle_stage_choice {
  TREADLE_AT_LAYER,     /* the stage of its layer */
  TREADLE_AT_FIRST,     /* the first chunk: with the embedding */
  TREADLE_AT_LAST,      /* the last chunk: with the head */
  TREADLE_AT_NORM,      /* the chunk of the final norm (the last decoder layer's, or the last chunk) */
  TREADLE_AT_EVERY,     /* every stage */
  TREADLE_AT_MTP,       /* the chunk of the MTP layers, where it has no embedding of its own */
  TREADLE_AT_DRAFT,     /* the draft model of an engine */
  TREADLE_AT_MTP_LAYERS /* no rule: here come the MTP layers */
} treadle_stage_choice;

typedef struct treadle_part_name { /* a pattern, or a view of it */
  int32_t pattern, view;           /* view -1: all of the pattern */
} treadle_part_name;

/* One line of an engine's section. The storage tensor is, per shard: the parts one above the other
 * (dimension 0), each cut on its own; or, with fuse, all parts interleaved by the named axis (the first of
 * each part) into one matrix whose rows are then cut. */
typedef struct treadle_optional_name { /* of a storage tensor, while a number of the layout is not 0 */
  const char *number;
  treadle_name name;
} treadle_optional_name;

typedef struct treadle_rule {
  const char *name; /* text of full_name */
  treadle_name full_name;
  int others; /* the first whose number is not 0 counts */
  treadle_optional_name other[TREADLE_MAX_OTHERS];
  const char *spec; /* "te" or "local" (Megatron), or NULL: both */
  const char *when; /* condition over config and mesh (tp, pp, ...), or NULL */
  treadle_stage_choice at;
  int nparts; /* with those of `also` */
  int also;   /* the last parts, which are one more expert behind the others */
  treadle_part_name parts[TREADLE_MAX_PARTS];
  bool experts; /* parts are of experts: placed by the mesh dimension "ep" */
  treadle_cut cut;
  const char *over;    /* mesh dimension whose index cuts: "tp" unless said */
  const char *fuse;    /* axis name, or NULL */
  bool pad_vocab;      /* rows are padded by the engine's rule */
  int8_t add;          /* what is stored is the canonical value plus this */
  bool derived;        /* made after loading, no parameter */
  bool buffer;         /* listed behind the parameters of its chunk */
  treadle_dtype dtype; /* stored in this type; NONE: the layout's */
  bool beside;         /* parts stand side by side in dimension 1, instead of one above the other */
  const char
      *round; /* expression: rows of a shard are a multiple of it, with padding behind the parts; or NULL */
  const char
      *least; /* expression: a shard has so much room at least for what is cut of each part; or NULL */
  bool minus_infinity; /* is what padding holds; else zeros */
  int32_t shown_count; /* expressions: the shape that users see, of the same elements; 0: as it is cut */
  const char **shown;
  int8_t
      merge; /* a stack of experts is shown with experts and dimension merge - 1 as one; 0: with a dimension more */
  bool scales; /* block scales of the storage tensor before it */
  const char *file;
  int line;
} treadle_rule;

typedef struct treadle_trait { /* a fact of an engine about the family */
  const char *name, *value;    /* expression */
} treadle_trait;

typedef struct treadle_requirement {
  const char *that, *otherwise; /* expression; what is said when it does not hold */
} treadle_requirement;

typedef struct treadle_engine_rules {
  const char *engine; /* "megatron", "vllm", "sglang" */
  const char
      *outer; /* what stands before its names where the language model is part of a larger one, or NULL */
  int32_t count;
  treadle_rule *rules; /* in named_parameters order */
  int32_t trait_count, require_count;
  treadle_trait *traits;
  treadle_requirement *requirements;
} treadle_engine_rules;

typedef struct treadle_family {
  const char *name;
  const char *path;         /* for messages */
  const char **model_types; /* NULL-ended */
  int32_t dim_count;        /* names with expressions over config fields and earlier names */
  const char **dim_names, **dim_texts;
  const char *config; /* object of config.json whose fields come first, or NULL */
  const treadle_yaml
      *field_names;             /* a field of config.json, and another name that it may have; NULL: none */
  const treadle_yaml *defaults; /* a field, and its value where config.json lacks it; NULL: none */
  const char *layers;           /* expression: number of decoder layers */
  const char *mtp;              /* expression: number of MTP layers behind them, or NULL */
  const char *experts;          /* dim: number of experts, or NULL */
  int32_t pattern_count;
  treadle_pattern *patterns;
  int32_t view_count;
  treadle_family_view *views;
  treadle_engine_rules packed; /* Hugging Face's other form; count 0: none */
  int32_t quantised_count;
  const char **quantised; /* endings of the names of what fp8 files hold in fp8 with block scales */
  int32_t coded_count;
  const char **coded; /* other quant_methods of its files that are read */
  int32_t plain_only_count;
  const char **plain_only; /* those of published files of which only the plain weights are known */
  int32_t carried_count;
  const char **carried; /* beginnings of names of what is not part of the language model */
  int32_t stored_prefix_count;
  const char **stored_prefixes, **stored_instead; /* names may begin with `instead` in files */
  int32_t require_count;
  treadle_requirement *requirements; /* of every model, whatever the layout */
  int32_t engine_count;
  treadle_engine_rules *engines;
  const struct treadle_forward_section *forward; /* NULL: the built-in engine does not compute it */
  int32_t to_say_count;
  const char **to_say; /* "PATH line N: what is open" */
  treadle_arena *arena;
} treadle_family;

/* Builds a family from a parsed file; refuses unknown keys and names, cycles, repeated names, parts that
 * are not patterns. Blocks, and families that it extends, are those of `folder`, and those built in where that is NULL or has
 * none. Everything lives in `arena`, and its texts where `root` lives. */
treadle_status treadle_family_read(const char *path, const treadle_yaml *root, const char *folder,
                                   treadle_arena *arena, treadle_family **family_p);

/* All families: of `folder`, or those built in when NULL. */
treadle_status treadle_family_all(const char *folder, treadle_arena *arena, treadle_family ***families_p,
                                  int32_t *count_p);
/* The one whose model_types has `model_type`; otherwise TREADLE_REFUSED, naming the nearest, and the command that drafts one for
 * the model of `config_path`. */
treadle_status treadle_family_find(const char *folder, const char *model_type, const char *config_path,
                                   treadle_arena *arena, treadle_family **family_p);

/* The name of a tensor or rule in a layer (-1 outside) and, where it has '*', of an expert (-1: '*' stays). mtp: number
 * of decoder layers, from which on {m} counts. Returns the length, as snprintf. */
int treadle_name_format(const treadle_name *name, int32_t layer, int32_t decoder_layers, int64_t number,
                        int64_t expert, char *text, size_t capacity);

/* Is `text` a name of this form, and in which layer? With `mtp` the form of MTP layers is meant, where the name has one.
 * *layer_p is the value of {l} or, with *is_mtp_p, of {m}; -1 where the form has neither. */
bool treadle_name_match(const treadle_name *name, bool mtp, const char *text, int64_t *layer_p,
                        bool *is_mtp_p);

const treadle_engine_rules *treadle_family_engine(const treadle_family *family, const char *engine);

/* The family files that are built into the library (made by the build from families/). */
typedef struct treadle_family_text {
  const char *name; /* "llama.yaml" */
  const char *text;
} treadle_family_text;
extern const treadle_family_text treadle_family_texts[]; /* ended by a NULL name */
extern const treadle_family_text treadle_block_texts[];  /* of families/blocks/ */

#endif
