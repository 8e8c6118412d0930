/* Megatron's files: which ranks of a layout have one, and what it is called. */
#ifndef TREADLE_CONVERT_MEGATRON_FILES_H
#define TREADLE_CONVERT_MEGATRON_FILES_H

#include "layout/layout.h"

typedef struct treadle_megatron_files {
  treadle_layout *layout; /* of the smallest world in which every (tp, pp, ep) is there */
  int32_t file_count;
  const char **names; /* "mp_rank_01_003", ascending */
  int64_t *ranks;     /* of each file, the first rank that has what it holds */
  int32_t *file_of;   /* by rank */
  bool
      chunked; /* ranks have several chunks: their entries are "model0", "model1", ... instead of "model" */
} treadle_megatron_files;

/* Everything lies in the arena but the layout, which is the caller's to destroy. */
treadle_status treadle_megatron_files_make(const treadle_model *model, const char *layout_text,
                                           treadle_arena *arena, treadle_megatron_files *world);

#endif
