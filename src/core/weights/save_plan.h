/* Which files a saved model has, and where each of its tensors lies in them: a function of layout and options alone, the same on all ranks. */
#ifndef TREADLE_WEIGHTS_SAVE_PLAN_H
#define TREADLE_WEIGHTS_SAVE_PLAN_H

#include "base/text.h"
#include "layout/layout.h"

typedef struct treadle_save_file {
  const char *name;     /* in the folder */
  int32_t first, count; /* entries of the model */
  treadle_builder beginning;
  int64_t bytes;
} treadle_save_file;

typedef struct treadle_save_plan {
  const treadle_layout *layout;
  treadle_stored *
      entries; /* by entry of the model: type, shape, and where it lies: `file`, and `begin` bytes from that file's begin */
  treadle_save_file *files;
  int32_t file_count;
  int64_t bytes, largest_file; /* of all files; of one */
  int64_t data_bytes, elems;   /* of all tensors */
  const bool *left_out;        /* [tensors] that no file gets; NULL: none */
  treadle_dtype dtype;         /* that all tensors have; NONE: they have several */
  treadle_arena arena;
} treadle_save_plan;

/* The plan is zeroed but for left_out, and ended by release in any case. dtype: of all tensors that layouts may cast; NONE: as the layout has it. Files have at
 * most shard_bytes of tensors, or one tensor. */
treadle_status treadle_save_plan_make(const treadle_layout *layout, treadle_dtype dtype,
                                      int64_t shard_bytes, treadle_save_plan *plan);
/* treadle_layout_save, without these tensors; left_out: [tensors], the same on all ranks. */
treadle_status treadle_layout_save_without(treadle_group *group, const treadle_layout *layout,
                                           const bool *left_out, const void *window, const char *folder,
                                           const treadle_save_options *options);
void treadle_save_plan_release(treadle_save_plan *plan);

/* model.safetensors.index.json; *text_p is ended by free(). */
treadle_status treadle_save_plan_index(const treadle_save_plan *plan, char **text_p);

/* Writes what `rank` answers for to the files in `folder`: of the n holders of a cell one, so that no element is written twice. *elems_p: how
 * many elements it was. Waits until the disk has them. */
treadle_status treadle_save_cells(const treadle_save_plan *plan, int64_t rank, const void *window,
                                  const char *folder, int64_t *elems_p);

/* Writes the index, where there are several files, and, unless weights_only, config.json with the type of the tensors and what else
 * stands beside the model's own weights. */
treadle_status treadle_save_beside(const treadle_save_plan *plan, const treadle_save_options *options,
                                   const char *folder);

#endif
