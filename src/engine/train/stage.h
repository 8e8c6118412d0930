/* The stage of a rank: its place in the pipeline, and its chunks of layers with the rings by which their rows come and go. */
#ifndef TREADLE_TRAIN_STAGE_H
#define TREADLE_TRAIN_STAGE_H

#include "pass/pass_steps.h"
#include "train/pipeline.h"
#include "train/ranks.h"

enum { TREADLE_TRAIN_CHUNKS = 30 /* of layers, in a pipeline */ };

/* A chunk of this rank's layers, and the ways that its rows take. NULL: it is the first, or the last. */
typedef struct treadle_train_chunk {
  int32_t number, first_layer, end_layer;
  int32_t place; /* of its first layer among this rank's */
  treadle_ring *from_before, *to_next, *from_next, *to_before;
} treadle_train_chunk;

typedef struct treadle_train_stage {
  treadle_pipeline pipeline; /* micro_batches: of the largest step there is memory for */
  int32_t number;            /* of the stage, in the pipeline */
  int32_t ranks;             /* that share its layers */
  int32_t chunk_count;       /* of this rank */
  treadle_train_chunk chunks[TREADLE_TRAIN_CHUNKS];
  int64_t slots; /* rows that may wait between two chunks */
} treadle_train_stage;

/* Does this rank have the last chunk of the model? */
static inline bool treadle_train_is_last(const treadle_train_stage *stage) {
  return stage->chunks[stage->chunk_count - 1].number == stage->pipeline.chunks - 1;
}

/* Finds this rank's chunks. The layout is what refusals name. */
treadle_status treadle_train_find_chunks(treadle_train_stage *stage, const treadle_pass *pass,
                                         const treadle_layout *layout);

/* Bytes of a ring. */
uint64_t treadle_train_ring_bytes(const treadle_train_room *room);
/* Makes the rings of this rank's chunks; they lie on each rank's part of the board from `at` on. */
treadle_status treadle_train_make_rings(treadle_train_stage *stage, const treadle_train_ranks *ranks,
                                        const treadle_pass *pass, uint64_t at);
void treadle_train_close_rings(treadle_train_stage *stage);

#endif
