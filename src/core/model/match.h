/* What matching a checkpoint (match.c) and the geometry of places (stored.c) share. */
#ifndef TREADLE_MODEL_MATCH_H
#define TREADLE_MODEL_MATCH_H

#include "base/array.h"
#include "model/names.h"
#include "model/stored.h"

/* The shape of the stored tensor whose parts are these, one above the other. Returns its dimensions, at most
 * 1 + TREADLE_MAX_DIMS. */
int treadle_rule_stored_shape(const treadle_part_shape *parts, int count, int64_t experts, int64_t *shape);

/* Where a part of a tensor lies in a stored tensor of `shape`, from row `rows` on. */
treadle_stored_box treadle_part_place(const treadle_part_shape *part, const treadle_tensor *tensor,
                                      int64_t rows, const treadle_stored *stored, const int64_t *shape);

/* While a checkpoint is matched. */
typedef struct treadle_match {
  const treadle_model *model;
  const treadle_checkpoint *checkpoint;
  treadle_arena *arena;
  treadle_names names;
  treadle_files *files;
  TREADLE_ARRAY(treadle_stored_box) places; /* in any order; place_tensors says whose */
  TREADLE_ARRAY(int32_t) place_tensors;
  bool *stacked; /* by tensor: it stands in a stacked form, or should */
} treadle_match;

/* A tensor of the checkpoint that has this name in the family's form, marked as used; NULL: there is none. */
const treadle_stored *treadle_match_take(treadle_match *match, const char *name);
treadle_status treadle_match_place(treadle_match *match, int32_t tensor, const treadle_stored_box *place);
/* A line about what is missing or of another shape. */
void treadle_match_missing(treadle_match *match, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same unless the shape is this one, or not known. */
bool treadle_match_shape(treadle_match *match, const char *name, const treadle_stored *stored, int ndim,
                         const int64_t *shape);

/* The steps. Stacked forms first: what they do not take stands single. */
treadle_status treadle_match_stacked(treadle_match *match); /* packed.c */
treadle_status treadle_match_mxfp4(treadle_match *match);   /* coded.c */
treadle_status treadle_match_scales(treadle_match *match);  /* coded.c */

/* ---- head.c ---- */

/* Files of a model with a score head may have the head of a language model, too, which is not loaded. */
void treadle_match_skip_head(treadle_match *match);
/* Does an entry that the files do not have start with zeros? The score head of a critic does. */
bool treadle_match_is_zeros(const treadle_match *match, const treadle_entry *entry);
/* The last step: what is none of the files' tensors. */
treadle_status treadle_match_zeros(treadle_match *match);

#endif
