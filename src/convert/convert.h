/* Converting a checkpoint: a plan between files.
 *
 * Files are ranks of a layout: Hugging Face's are one rank of hf, Megatron's those of the smallest world in which every
 * (tp, pp, ep) is there. Each file that is written is filled from the source's files in the order of its bytes, a few
 * MiB at a time, so memory does not depend on the model. A run that was killed is taken up where it stopped: files stand
 * under their names when they are whole.
 *
 * Several processes share a conversion: each opens it, writes files rank, rank + ranks, ..., and all wait for one
 * another between the steps, which the caller sees to:
 *
 *   treadle_convert_open     everything that can be refused from names, shapes and types
 *   treadle_convert_compare  copies of one weight in several files are the same (a part on each process)
 *   treadle_convert_begin    rank 0: the folder, room on the disk
 *   treadle_convert_write    the weights (a part on each process)
 *   treadle_convert_finish   rank 0: what stands beside the weights, what makes the checkpoint be found */
#ifndef TREADLE_CONVERT_CONVERT_H
#define TREADLE_CONVERT_CONVERT_H

#include "base/status.h"

#include <stdint.h>

typedef struct treadle_convert treadle_convert;

typedef struct treadle_convert_options {
  const char *in, *out;  /* folders */
  const char *from, *to; /* layouts */
  const char *model;     /* of a source that is not hf: a directory or config.json; NULL: in/hf */
  const char *families;  /* NULL: those built in */
  bool trust;            /* copies of 1 MiB and more are not compared */
  int rank, ranks;
  void (*progress)(int64_t done, int64_t total); /* bytes of this process's files; NULL: none */
} treadle_convert_options;

typedef struct treadle_convert_figures {
  int64_t bytes_read, bytes_written; /* weights */
  int64_t tensors;                   /* of all files */
  int64_t files, resumed;            /* files that this process had to write; those that were there */
  int64_t skipped, opaque;           /* values of the source that are no weights */
} treadle_convert_figures;

treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p);
treadle_status treadle_convert_compare(treadle_convert *convert);
treadle_status treadle_convert_begin(treadle_convert *convert);
treadle_status treadle_convert_write(treadle_convert *convert);
treadle_status treadle_convert_finish(treadle_convert *convert);
void treadle_convert_close(treadle_convert *convert);

/* Rank 0, after opening: was the same conversion begun before, so that its files were compared already? */
bool treadle_convert_resumes(const treadle_convert *convert);

const treadle_convert_figures *treadle_convert_result(const treadle_convert *convert);

#endif
