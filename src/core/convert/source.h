/* A source: the values of a checkpoint, wherever they lie in its files.
 *
 * Every type of checkpoint answers one question: where do the elements of a box of a canonical tensor lie in the
 * mapped files? Types: safetensors (source_hf.c), and those that a layout describes (source_layout.c): Megatron's
 * archives, a file a rank (source_megatron.c), and torch.distributed.checkpoint (source_dist.c). A new type is one file
 * and one row of the table in source.c. */
#ifndef TREADLE_CONVERT_SOURCE_H
#define TREADLE_CONVERT_SOURCE_H

#include "convert/entry_sums.h"
#include "convert/inputs.h"
#include "layout/layout.h"
#include "model/stored.h"

#include <sys/types.h>

/* A box of a canonical tensor, and its elements in one file. */
typedef struct treadle_file_box {
  treadle_box box;
  const char *data;                 /* the element at box.start */
  int64_t stride[TREADLE_MAX_AXES]; /* bytes */
  treadle_dtype dtype;
  int8_t add;   /* what is stored is the canonical value plus this */
  int32_t file; /* of the source's files */
  bool coded;   /* fp8 with scales, or MXFP4: `stored` says how, and data and strides say nothing */
  treadle_stored_box stored;
} treadle_file_box;

typedef TREADLE_ARRAY(treadle_file_box) treadle_file_boxes;

typedef struct treadle_source treadle_source;

typedef struct treadle_touched_pages { /* pages of a mapping */
  char *begin, *end;
} treadle_touched_pages;

typedef struct treadle_source_type {
  const char *name; /* as --from has it */
  /* Sets files, layout and type. */
  treadle_status (*open)(treadle_source *source, const char *folder, const char *layout_text);
  treadle_status (*places)(treadle_source *source, int32_t tensor, const treadle_box *box,
                           treadle_file_boxes *places);
  /* Compares what several files hold of a tensor: copies of less than `limit` bytes. Adds what was read. NULL: nothing is
   * there twice. */
  treadle_status (*compare)(treadle_source *source, int32_t tensor, int64_t limit, int64_t *bytes);
  /* Where a file is mapped; NULL: it is not. */
  const void *(*image)(const treadle_source *source, int32_t file);
  void (*close)(treadle_source *source);
} treadle_source_type;

struct treadle_source {
  const treadle_source_type *type;
  const treadle_model *model;
  const treadle_checkpoint *kept; /* originals of values with an offset (kept.h); may be NULL */
  treadle_inputs *inputs;         /* gets every file before, or as, it is read */
  treadle_layout *layout;         /* NULL: none */
  const char **files;             /* paths */
  int32_t file_count;
  int64_t iteration;                            /* -1: a release, or not known */
  int64_t skipped, opaque;                      /* values of the files that are no weights */
  void *state;                                  /* of the type */
  TREADLE_ARRAY(treadle_touched_pages) touched; /* since they were let go */
  int64_t touched_bytes;
  treadle_entry_sums sums; /* entries of archives; of other types none */
  treadle_arena arena;
};

extern const treadle_source_type treadle_source_hf, treadle_source_megatron, treadle_source_dist;

/* The type of a layout text; refused when it is none that can be read. */
treadle_status treadle_source_type_of(const char *layout_text, const treadle_source_type **type_p);

/* `model`, its checkpoint and `inputs` outlive the source. */
treadle_status treadle_source_open(const treadle_source_type *type, const treadle_model *model,
                                   treadle_inputs *inputs, const char *folder, const char *layout_text,
                                   treadle_source **source_p);
void treadle_source_close(treadle_source *source);

/* Appends the places of a box: disjoint, together at least the box. */
treadle_status treadle_source_places(treadle_source *source, int32_t tensor, const treadle_box *box,
                                     treadle_file_boxes *places);

/* Before values at `data` are taken: is what has them whole, as far as its archive says? (entry_sums.h) */
treadle_status treadle_source_ask(treadle_source *source, const void *data, int64_t bytes);

/* Pages of files that were read count as memory of this process until they are let go: what was read is noted, and let
 * go whenever it is much. Pointers into the mappings stay good. */
treadle_status treadle_source_touch(treadle_source *source, const void *begin, int64_t bytes);
void treadle_source_let_go(treadle_source *source);

/* The folder of the weights in a Megatron checkpoint: `folder` itself when it has `mark`, else the one that
 * latest_checkpointed_iteration.txt names. */
treadle_status treadle_source_folder(treadle_source *source, const char *folder, const char *mark,
                                     const char **folder_p);

#endif
