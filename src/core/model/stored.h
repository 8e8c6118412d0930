/* Where the values of canonical tensors lie in a checkpoint, and what else the checkpoint holds.
 *
 * Files of one family differ: experts stand single (`experts.3.up_proj.weight`) or stacked (the family's `packed`
 * rules), names stand under other prefixes (`stored_prefixes`), values may be coded: fp8 with a scale for each block
 * in `NAME_scale_inv`, MXFP4 in `NAME_blocks` and `NAME_scales`. Matching a checkpoint sorts its names out, once; then
 * any box of a canonical tensor is a few places, each a strided box of one stored tensor.
 *
 * A form is that of a rule, once for all decoder layers and once for the MTP layers: a rule is stacked where its
 * stacked names are at least as many as the layers that have single ones. Names of the other form are left over. */
#ifndef TREADLE_MODEL_STORED_H
#define TREADLE_MODEL_STORED_H

#include "base/text.h"
#include "model/model.h"

/* How the values of a stored tensor are coded. */
typedef enum treadle_coding {
  TREADLE_CODED_PLAIN, /* elements of stored->dtype */
  TREADLE_CODED_FP8,   /* stored is fp8; value = element * scale of its block_rows x block_cols block */
  TREADLE_CODED_MXFP4  /* stored is U8 [.., rows, cols / 32, 16], scales U8 [.., rows, cols / 32] */
} treadle_coding;

/* A box of a canonical tensor and its elements in one stored tensor. With MXFP4, elements are those of the decoded
 * [.., rows, cols]. */
typedef struct treadle_stored_box {
  const treadle_stored *stored;
  const treadle_stored *scales; /* of coded values, else NULL */
  treadle_coding coding;
  int64_t block[2];                                        /* fp8: rows and columns that share a scale */
  int64_t start[TREADLE_MAX_AXES], size[TREADLE_MAX_AXES]; /* in axes of the canonical tensor */
  int64_t at;                       /* element of `stored` that is the first of the box */
  int64_t stride[TREADLE_MAX_AXES]; /* elements of `stored` from one step of an axis to the next */
} treadle_stored_box;

/* The places of a box of a tensor, one after the other, each cut to the box; *next_p is 0 at first. False: no more.
 * Together they are the box, each element once. The model has a checkpoint (treadle_model_has_weights). */
bool treadle_model_stored(const treadle_model *model, int32_t tensor, const int64_t *start,
                          const int64_t *size, int32_t *next_p, treadle_stored_box *place_p);

/* A checkpoint whose names are sorted out. Everything lies in the arena that it was made with. */
struct treadle_files {
  const treadle_checkpoint *checkpoint;
  const treadle_stored **entries;      /* by entry: where it stands single; NULL: stacked, or missing */
  int64_t block[2];                    /* fp8: rows and columns that share a scale */
  const treadle_stored **entry_scales; /* by entry: its fp8 scales, or NULL */
  int32_t *first_place;                /* by tensor, and one more: its range of places */
  treadle_stored_box *places;          /* of tensors that do not stand single */
  const treadle_stored **tied;         /* by alias: its copy in the files, or NULL */
  int32_t carried_count;
  const treadle_stored **carried; /* no part of the language model */
  int32_t skipped_count;
  const treadle_stored **skipped;     /* buffers that no engine loads */
  int32_t scale_count, stacked_count; /* fp8 scales; stacked tensors */
  int32_t missing_count, left_over_count;
  treadle_builder missing, left_over; /* a name a line; ended by treadle_files_release() */
};
typedef struct treadle_files treadle_files;

/* Sorts out the names of a checkpoint, which may be an index alone. OK whatever is missing or left over. The files
 * are zeroed, and ended by treadle_files_release(). */
treadle_status treadle_files_match(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                   treadle_arena *arena, treadle_files *files);
/* What the files of a model would hold with all that can be stacked being so: names, types and shapes, without data. In
 * the arena. */
treadle_status treadle_files_stacked(const treadle_model *model, treadle_arena *arena,
                                     treadle_stored **tensors_p, int32_t *count_p);

void treadle_files_release(treadle_files *files); /* the builders; the rest is the arena's */

#endif
