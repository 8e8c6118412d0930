/* In which order a rank takes micro batches forward and backward through its chunks of layers: one forward, one backward (1F1B), and
 * interleaved where a rank has several chunks.
 *
 * Chunk c is on stage c % stages. Of each chunk, micro batches come in ascending order, forward and backward alike, so what is added up
 * over micro batches has one order. Each stage first takes some chunks forward (the warm-up), then one forward and one backward by turns, and
 * then backward what is left. The order is Megatron's. It is a pure function: each rank makes its own, and knows those of the others. */
#ifndef TREADLE_TRAIN_PIPELINE_H
#define TREADLE_TRAIN_PIPELINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_pipeline {
  int32_t stages, chunks; /* chunks: of all stages, a multiple of them */
  int32_t micro_batches;  /* at least 1 */
} treadle_pipeline;

typedef struct treadle_pipeline_item {
  int32_t chunk, micro_batch;
  bool backward;
} treadle_pipeline_item;

/* Items of a stage. */
int64_t treadle_pipeline_length(const treadle_pipeline *pipeline);
treadle_pipeline_item treadle_pipeline_at(const treadle_pipeline *pipeline, int32_t stage, int64_t number);

/* Without backward: the first half of the items. */
treadle_pipeline_item treadle_pipeline_forward_at(const treadle_pipeline *pipeline, int32_t stage,
                                                  int64_t number);

typedef struct treadle_pipeline_memory {
  int32_t
      kept; /* micro batches of one chunk that are forward and not yet backward, at most, over all chunks of the stage asked for */
  int32_t slots; /* rows that may wait between two chunks, at least, so that no stage waits for ever */
} treadle_pipeline_memory;

/* Plays all stages. Refused: chunks that are no multiple of stages. */
treadle_status treadle_pipeline_play(const treadle_pipeline *pipeline, int32_t stage,
                                     treadle_pipeline_memory *needs_p);
/* The same; `fewer`: of every number of micro batches up to the pipeline's. */
treadle_status treadle_pipeline_play_most(const treadle_pipeline *pipeline, int32_t stage, bool fewer,
                                          treadle_pipeline_memory *needs_p);

#endif
