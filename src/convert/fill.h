/* Bytes of a target's tensors, made from a source. */
#ifndef TREADLE_CONVERT_FILL_H
#define TREADLE_CONVERT_FILL_H

#include "convert/source.h"
#include "convert/target.h"
#include "layout/flat.h"

/* Begins as {.source = ...}. */
typedef struct treadle_filler {
  treadle_source *source;
  int64_t read_bytes;        /* of the source's files, so far */
  treadle_file_boxes places; /* scratch, as is what follows */
  treadle_strideds parts;
} treadle_filler;

void treadle_filler_release(treadle_filler *filler);

/* Bytes [low, high) of a tensor of a file, on borders of elements. They lie in `buffer`, of high - low bytes, or, when
 * the source has just them one behind the other, there: *bytes_p. Every byte is proved to be written once. */
treadle_status treadle_fill(treadle_filler *filler, const treadle_out_file *file,
                            const treadle_out_tensor *tensor, int64_t low, int64_t high, char *buffer,
                            const char **bytes_p);

#endif
