/* Bytes of a target's tensors, made from a source. */
#ifndef TREADLE_CONVERT_FILL_H
#define TREADLE_CONVERT_FILL_H

#include "adapter/adapter.h"
#include "convert/source.h"
#include "convert/target.h"
#include "flat/flat.h"

/* Begins as {.source = ...}. */
typedef struct treadle_filler {
  treadle_source *source;
  const treadle_adapter *adapter; /* is merged into what is filled; NULL: none is */
  const float *adapter_values;    /* [elems] */
  bool wrong;                     /* a merged value was not finite */
  int64_t read_bytes;             /* of the source's files, so far */
  treadle_file_boxes places;      /* scratch, as is what follows */
  treadle_strideds parts;
  float *values, *scales; /* of a row of fp8 blocks */
  unsigned char *codes;
  int64_t room;
} treadle_filler;

void treadle_filler_release(treadle_filler *filler);

/* Where the step that begins at a byte of a tensor ends: `most` bytes on or less; of codes and scales, a row of blocks. */
int64_t treadle_fill_end(const treadle_out_tensor *tensor, int64_t at, int64_t most);

/* Bytes [low, high) of a tensor of a file, one step. They lie in `buffer`, of high - low bytes, or, when the source or the
 * filler has just them one behind the other, there: *bytes_p. Every byte is proved to be written once. */
treadle_status treadle_fill(treadle_filler *filler, const treadle_out_file *file,
                            const treadle_out_tensor *tensor, int64_t low, int64_t high, char *buffer,
                            const char **bytes_p);

/* A piece of a window, at its place in it. */
treadle_status treadle_fill_piece(treadle_filler *filler, const treadle_piece *piece, char *window);

/* Adds what the adapter has for a part that has been filled (fill_merge.c). Refused: a sum that is not finite where
 * the part was. */
treadle_status treadle_fill_merge(treadle_filler *filler, const treadle_piece *piece,
                                  const treadle_strided *part, char *buffer);

/* Of codes and scales (fill_blocks.c). */
int64_t treadle_fill_blocks_end(const treadle_out_tensor *tensor, int64_t at);
treadle_status treadle_fill_blocks(treadle_filler *filler, const treadle_out_file *file,
                                   const treadle_out_tensor *tensor, int64_t low, int64_t high,
                                   const char **bytes_p);
void treadle_filler_release_blocks(treadle_filler *filler);

#endif
