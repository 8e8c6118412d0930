/* A conversion from inside: its steps (convert.c) and what it writes beside the weights (beside.c). */
#ifndef TREADLE_CONVERT_CONVERT_PARTS_H
#define TREADLE_CONVERT_CONVERT_PARTS_H

#include "convert/convert.h"
#include "convert/folder.h"
#include "convert/source.h"
#include "convert/target.h"

struct treadle_convert {
  treadle_convert_options options;
  treadle_model *model;
  treadle_checkpoint *carried; /* of a source that is not hf */
  treadle_source *source;
  treadle_target *target;
  treadle_out_folder folder;
  const char *companions; /* folder of config.json and its like; NULL: */
  const char *config;     /* this file alone */
  char *buffer;
  treadle_convert_figures figures;
  int64_t total_bytes, done_bytes; /* of this process */
  treadle_arena arena;
};

/* The path of a file of OUT. */
treadle_status treadle_convert_path(treadle_convert *convert, const char *name, const char **path_p);

#endif
