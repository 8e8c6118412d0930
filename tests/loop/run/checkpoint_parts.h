/* What a checkpoint of a test has in actor/: windows in layouts, each saved as its part. */
#ifndef TREADLE_TESTS_CHECKPOINT_PARTS_H
#define TREADLE_TESTS_CHECKPOINT_PARTS_H

#include "run/checkpoint.h"
#include "weights/load.h"

#include <stdio.h>
#include <string.h>

enum { PARTS = TREADLE_CHECKPOINT_PARTS };

typedef struct parts {
  treadle_group *group;
  const treadle_layout *layouts[PARTS];
  const void *windows[PARTS];
} parts;

/* As save of treadle_train_checkpoint, with parts as its context. */
static inline treadle_status save_parts(void *context, const char *folder) {
  const parts *p = context;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < PARTS; i++) {
    char path[4096];
    const treadle_save_options options = {.struct_size = sizeof options,
                                          .dtype = i ? TREADLE_FP32 : TREADLE_DTYPE_NONE};
    snprintf(path, sizeof path, "%s%s", folder, strchr(treadle_train_checkpoint_parts[i], '/'));
    TRY(treadle_layout_save(p->group, p->layouts[i], p->windows[i], path, &options));
  }
out:
  return status;
}

static inline treadle_status load_part(const char *folder, int part, const treadle_layout *layout,
                                       int64_t rank, void *window) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, treadle_train_checkpoint_parts[part]);
  return treadle_layout_load_saved(layout, rank, path, NULL, window);
}

#endif
