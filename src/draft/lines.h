/* Lines of tensors in a draft: how the family that is extended writes their names, and what is to be said of each. */
#ifndef TREADLE_DRAFT_LINES_H
#define TREADLE_DRAFT_LINES_H

#include "draft/draft.h"

/* The names of the family's kinds as its lines have them, before any scales. */
typedef struct treadle_draft_names {
  const char *const *written;
  int32_t count;
} treadle_draft_names;

treadle_draft_names treadle_draft_kind_names(const treadle_draft *d);
/* The name of a pattern as lines have it; NULL: memory is out. */
const char *treadle_draft_written(const treadle_draft *d, const treadle_pattern *pattern);

/* lines.c: changes of the family's lines: tensors that are not there, other layers, other shapes. */
treadle_status treadle_draft_change(treadle_draft *d, const treadle_model *model);
/* added.c: tensors that the family does not have, with rules for them. */
treadle_status treadle_draft_add(treadle_draft *d, const treadle_model *model);
/* The shape of a pattern as texts; asks where it is not certain. `at` is the line for that. */
treadle_status treadle_draft_shape(treadle_draft *d, const treadle_model *model,
                                   const treadle_pattern *pattern, treadle_yaml *at,
                                   treadle_yaml **shape_p);

#endif
