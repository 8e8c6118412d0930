/* What a family is compared with, or drafted from: a config and, unless it is NULL, the names of a checkpoint (check.c). */
#ifndef TREADLE_MODEL_SUBJECT_H
#define TREADLE_MODEL_SUBJECT_H

#include "io/safetensors.h"

typedef struct treadle_subject {
  const char *config_path; /* the caller's, or the arena's */
  treadle_checkpoint *checkpoint;
} treadle_subject;

/* Of a folder, an index, a config.json alone, or a list of tensors; `model` is the config.json, or its folder, of what has none
 * beside it. What is there, also after a failure, the caller closes. */
treadle_status treadle_subject_open(const char *path, const char *model, treadle_arena *arena,
                                    treadle_subject *subject);

#endif
