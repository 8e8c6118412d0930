/* A conversion from inside: its steps (convert.c) and what it writes beside the weights (beside.c). */
#ifndef TREADLE_CONVERT_CONVERT_PARTS_H
#define TREADLE_CONVERT_CONVERT_PARTS_H

#include "adapter/adapter.h"
#include "base/watch.h"
#include "convert/convert.h"
#include "convert/folder.h"
#include "convert/inputs.h"
#include "convert/source.h"
#include "convert/target.h"

/* The first `bytes` of the tensors of a file were made while the inputs were not settled. */
typedef struct treadle_unsettled {
  int32_t file;
  int64_t bytes;
  uint64_t sum;
} treadle_unsettled;

enum {
  TREADLE_CONVERT_STEP = 4 << 20
}; /* bytes made at once: what is written comes from the processor's cache */

/* How far a conversion is. */
typedef enum treadle_convert_step {
  TREADLE_CONVERT_OPENED = 0,
  TREADLE_CONVERT_COMPARED,
  TREADLE_CONVERT_BEGUN, /* rank 0 alone */
  TREADLE_CONVERT_WRITTEN,
  TREADLE_CONVERT_FINISHED, /* rank 0 alone */
  TREADLE_CONVERT_BROKEN
} treadle_convert_step;

struct treadle_convert {
  treadle_convert_step step;
  treadle_convert_options options; /* with texts of the arena */
  treadle_watch watch;
  treadle_model *model;
  treadle_checkpoint *carried; /* of a source that is not hf */
  treadle_source *source;
  treadle_target *target;
  treadle_adapter *adapter; /* that is merged; NULL: none is */
  float *adapter_values;    /* [elems] */
  char *adapter_mark;       /* the text of TREADLE_ADAPTER_MARK in OUT; NULL: it has none, or that of IN */
  treadle_inputs inputs;
  treadle_out_folder folder;
  const char *companions; /* folder of config.json and its like; NULL: */
  const char *config;     /* this file alone */
  const char *name;       /* of the folder when all is in it; NULL: it has its name */
  char *buffer;
  bool *kept; /* by file of the target: it is there, whole; of this process's files */
  TREADLE_ARRAY(treadle_unsettled) unsettled;
  bool torn;  /* a second reading gave something else */
  bool wrong; /* what the inputs come to cannot be written */
  treadle_convert_figures figures;
  int64_t total_bytes, done_bytes; /* of this process */
  treadle_arena arena;
};

/* Opens the adapters of options.lora, if there is one, and makes the mark of OUT (adapter.c). */
treadle_status treadle_convert_open_adapter(treadle_convert *convert, bool from_hf);

/* Are all names that go to OUT different, and do they stay there? (names.c) */
treadle_status treadle_convert_check_names(treadle_convert *convert);

/* Do the inputs stand as they were? What the status is then: a failure, or a result, of inputs that have changed is
 * that. What was written of such inputs is removed, and of those whose values are wrong. */
treadle_status treadle_convert_look_again(treadle_convert *convert, treadle_status status);

/* Parts of steps, without asking whether it is their turn. */
treadle_status treadle_convert_compare_files(treadle_convert *convert);
treadle_status treadle_convert_begin_folder(treadle_convert *convert);
treadle_status treadle_convert_write_files(treadle_convert *convert);
treadle_status treadle_convert_finish_folder(treadle_convert *convert);

/* The path of a file of OUT. */
treadle_status treadle_convert_path(treadle_convert *convert, const char *name, const char **path_p);

#endif
