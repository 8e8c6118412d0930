/* Hugging Face modules as grids: what FSDP and ZeRO shard. The parameters of the model class in transformers 5,
 * in module order, experts stacked (the family's `packed`), cut by tp as Hugging Face's tp_plan does. */
#ifndef TREADLE_FLAT_MODULES_H
#define TREADLE_FLAT_MODULES_H

#include "base/text.h"
#include "grid/grid.h"
#include "layout/settings.h"

/* Reads dp, tp and, if there may be one, replicate; makes the mesh (replicate, dp, tp), tp fastest, the rules
 * and all else of the spec. */
treadle_status treadle_modules_read(treadle_layout *layout, treadle_settings *words, bool may_replicate,
                                    treadle_grid *grid, treadle_grid_spec *spec, treadle_builder *normal);

#endif
