/* What the types of layouts on Megatron's grids share: megatron, and distopt. */
#ifndef TREADLE_GRID_MEGATRON_H
#define TREADLE_GRID_MEGATRON_H

#include "base/text.h"
#include "grid/grid.h"
#include "layout/settings.h"

#define TREADLE_MEGATRON_KEYS                                                                              \
  "tp", "pp", "vpp", "cp", "dp", "ep", "etp", "order", "first", "last", "embedding_split", "loss_split",   \
      "layout", "padded_vocab_size", "vocab_divisible_by", "spec", "experts", "mla_down_proj_fusion"

typedef struct treadle_megatron_options {
  int64_t tp, cp, dp, pp, ep, etp, edp;
  const char *order;
  int64_t padded, divisible;
} treadle_megatron_options;

/* Reads the keys into options, an empty spec (which then points to them) and the normal form. */
treadle_status treadle_megatron_read(treadle_layout *layout, treadle_settings *words, treadle_grid *grid,
                                     treadle_megatron_options *options, treadle_grid_spec *spec,
                                     treadle_builder *normal);

#endif
