/* What vllm.c and sglang.c share: stages, expert maps, and the making of the grid. */
#ifndef TREADLE_GRID_ENGINES_H
#define TREADLE_GRID_ENGINES_H

#include "grid/grid.h"
#include "layout/layout_types.h"

typedef struct treadle_engine_grid {
  const char *name;
  treadle_layout *layout;
  treadle_settings *words;
  treadle_builder *normal;
  treadle_grid *grid;
  const treadle_engine_rules *rules;
  treadle_grid_spec spec;
} treadle_engine_grid;

/* Finds the family's section and begins the grid. */
treadle_status treadle_engine_grid_start(treadle_engine_grid *engine, const char *name,
                                         treadle_layout *layout, treadle_settings *words,
                                         treadle_builder *normal);

/* Refuses keys that speak of experts, unless they are off, for a model that has none. */
treadle_status treadle_engine_grid_refuse_experts(const treadle_engine_grid *engine,
                                                  const char *const *keys);

/* Reads redundant= and map=@file and fills spec.slots; linear where neither says otherwise. An expert of slot i of
 * `experts + redundant`, behind the experts, is i - experts or i modulo experts: the same for both engines as long as
 * redundant is at most experts. */
treadle_status treadle_engine_grid_place(treadle_engine_grid *engine, int64_t ep, bool round_robin);

/* names=old: adds the number old_names. */
treadle_status treadle_engine_grid_names(treadle_engine_grid *engine);

/* Reads partition=, makes stages, checks the family's requirements and builds the grid. */
treadle_status treadle_engine_grid_build(treadle_engine_grid *engine, bool remainder_last);

/* Padding of the vocabulary to a multiple of 64. */
int64_t treadle_engine_grid_rows(const void *context, int64_t rows, int64_t shards);

#endif
