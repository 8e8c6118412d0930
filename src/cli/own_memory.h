/* treadle switch --own: weights in memory of the rank's own, each tensor in a place of its own. */
#ifndef TREADLE_CLI_OWN_MEMORY_H
#define TREADLE_CLI_OWN_MEMORY_H

#include "treadle.h"

typedef struct treadle_own_memory {
  treadle_own_tensor *tensors[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  size_t count[2];
} treadle_own_memory;

/* Memory for all storage tensors of a rank in `layout`, touched; for a zeroed struct. */
treadle_status treadle_own_memory_add(treadle_own_memory *own, treadle_mode mode,
                                      const treadle_layout *layout, int64_t rank);
/* Says so in the options of a switch: params stay with them, unless they are kept in host memory. */
void treadle_own_memory_give(const treadle_own_memory *own, treadle_switch_options *options);
/* A copy of options without own tensors, and with what these asked for left out. */
treadle_switch_options treadle_own_memory_without(const treadle_switch_options *options);
void treadle_own_memory_release(treadle_own_memory *own);

/* Fills the params of a switch with what its rank has in the layout, wherever they lie. */
treadle_status treadle_load_params(treadle_switch *sw, const treadle_layout *layout, int64_t rank);

#endif
