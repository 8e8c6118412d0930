/* Inputs: what block rows read of ranks on other nodes.
 *
 * To fp8 these are the parts of a block row whose source is there, from fp8 the codes and the scales. Each travels like an op. They come to
 * lie in an area of staging, which has those of one wave at a time, each densely, in the order of its elements at the source; the block
 * rows of the wave are made when all are there. Pure functions. */
#ifndef TREADLE_MESSAGES_FAR_INPUTS_H
#define TREADLE_MESSAGES_FAR_INPUTS_H

#include "plan/plan.h"

/* The copies of codes and of scales between a window and scratch [rows, columns] and [blocks], of a block row alone; they go to the window
 * where it quantises. */
treadle_op treadle_block_row_codes(const treadle_block_row *block_row, int32_t rank);
treadle_op treadle_block_row_scales(const treadle_block_row *block_row, int32_t rank);

/* Which sources count: those of other nodes than the rank's; or one alone. */
typedef struct treadle_far_input_sources {
  const treadle_nodes *nodes; /* NULL: `rank` alone counts */
  int64_t rank;
} treadle_far_input_sources;

bool treadle_far_input_is(const treadle_far_input_sources *sources, int32_t source);

typedef treadle_status (*treadle_far_input_emit)(void *context, const treadle_op *op);

/* Takes the inputs of a run in their order: block row by block row, in each part by part, or its codes, then its scales. */
treadle_status treadle_far_inputs_walk(const treadle_far_input_sources *sources,
                                       const treadle_block_row *run, const treadle_block_row_part *parts,
                                       treadle_far_input_emit take, void *context);

/* Bytes of an input in the area, and on the way; with alignment. */
int64_t treadle_far_input_bytes(const treadle_op *op);
/* Of all inputs of one block row of a run, and of the run. 0: it reads nothing of other nodes. */
int64_t treadle_far_inputs_each(const treadle_far_input_sources *sources, const treadle_block_row *run,
                                const treadle_block_row_part *parts);

/* Where in the area the inputs of each run begin. A zeroed struct has none. */
typedef struct treadle_far_inputs {
  int64_t *at;   /* by block row of the direction; -1: it has none */
  int64_t bytes; /* of the area: of the fullest wave */
} treadle_far_inputs;

treadle_status treadle_far_inputs_make(const treadle_direction *direction, int32_t waves,
                                       const treadle_far_input_sources *sources,
                                       treadle_far_inputs *inputs);
void treadle_far_inputs_release(treadle_far_inputs *inputs);

#endif
