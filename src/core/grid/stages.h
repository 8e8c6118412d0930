/* Pipeline tables: which decoder layers each chunk of each stage has. Model-sized, so tables are fine.
 * Rules: docs/rules.md 2.1 to 2.5; Megatron-core (transformer_block.py get_num_layers_to_build, transformer_layer.py
 * get_transformer_layer_offset, pipeline_parallel_layer_layout.py), vLLM and SGLang (distributed/utils.py
 * get_pp_indices). */
#ifndef TREADLE_GRID_STAGES_H
#define TREADLE_GRID_STAGES_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

typedef struct treadle_chunk {
  int32_t stage, number; /* pipeline stage; virtual stage on it */
  int32_t layer_count;
  int32_t *layers;        /* global numbers, from 0 */
  bool first, norm, last; /* has the embedding; the final norm; the head */
  bool mtp, draft;        /* has the MTP layers; is the draft model of an engine */
} treadle_chunk;

typedef struct treadle_chunks {
  int32_t count;
  treadle_chunk *items; /* by stage, then number */
  int32_t stages;
} treadle_chunks;

typedef struct treadle_megatron_stages {
  int64_t pp, vpp;     /* vpp 1: none */
  int64_t first, last; /* layers of these stages; 0: not given */
  bool embedding_split, loss_split;
  int64_t mtp;        /* MTP layers of the model */
  const char *layout; /* the layout string, or NULL */
} treadle_megatron_stages;

/* `what` is the layout's text, for messages. vpp of a layout string is put into options->vpp. */
treadle_status treadle_stages_megatron(const char *what, int64_t layers, treadle_megatron_stages *options,
                                       treadle_arena *arena, treadle_chunks *chunks_p);

typedef struct treadle_engine_stages {
  int64_t pp;
  const int64_t *partition; /* layers of each stage */
  int partition_count;      /* 0: as even as can be */
  bool remainder_last;      /* what is left over goes to the last stages (SGLang); else, from the
                               second-to-last one backwards (vLLM) */
} treadle_engine_stages;

/* The engines: contiguous stages. */
treadle_status treadle_stages_engine(const char *what, int64_t layers, const treadle_engine_stages *options,
                                     treadle_arena *arena, treadle_chunks *chunks_p);
/* Appends a chunk to the last stage: the draft model, which has the MTP layers. */
treadle_status treadle_stages_add_draft(treadle_arena *arena, treadle_chunks *chunks);

#endif
