/* Lines of tensors in a draft: how the family that is extended writes their names, and what is to be said of each. */
#ifndef TREADLE_DRAFT_LINES_H
#define TREADLE_DRAFT_LINES_H

#include "draft/draft.h"

/* The names of the family's patterns as its lines have them, before any scales. */
typedef struct treadle_draft_names {
  const char *const *written;
  int32_t count;
} treadle_draft_names;

treadle_draft_names treadle_draft_pattern_names(const treadle_draft *d);
/* The name of a drafted as lines have it; NULL: memory is out. */
const char *treadle_draft_written(const treadle_draft *d, const treadle_draft_tensor *drafted);

/* What becomes of one name of a line. */
typedef struct treadle_line_change {
  bool has_when, has_shape, drop;
  bool asks;                           /* it may be there by another name */
  const char *when;                    /* NULL: in all layers */
  const treadle_draft_tensor *drafted; /* what it is in the checkpoint; NULL: nothing */
  treadle_yaml *line;                  /* stands in its place; NULL: none */
} treadle_line_change;

/* fused.c: changes for tensors that are several of the family's; `changes` is by pattern. */
treadle_status treadle_draft_fuse(treadle_draft *d, treadle_line_change *changes);
/* Has the draft rules for the engine? */
bool treadle_draft_has_engine(const treadle_draft *d, const char *engine);
/* lines.c: changes of the family's lines: tensors that are not there, other layers, other shapes. */
treadle_status treadle_draft_change(treadle_draft *d, const treadle_model *model);
/* biases.c: the rules for a bias that follow from those of its matrix. *known_p: there are some, maybe with another bias that comes
 * first. */
treadle_status treadle_draft_bias_rules(treadle_draft *d, const treadle_draft_tensor *p, const char *engine,
                                        treadle_yaml *rules, bool *known_p);
/* added.c: tensors that the family does not have, with rules for them. */
treadle_status treadle_draft_add(treadle_draft *d, const treadle_model *model);
/* The shape of a drafted as texts; asks where it is not certain. `at` is the line for that. */
treadle_status treadle_draft_shape(treadle_draft *d, const treadle_model *model,
                                   const treadle_draft_tensor *drafted, treadle_yaml *at,
                                   treadle_yaml **shape_p);

#endif
