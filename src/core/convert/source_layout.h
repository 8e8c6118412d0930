/* Sources that a layout describes: what rank r of the layout has is what one file holds, tensor by tensor. Files have
 * a storage tensor in chunks, boxes of its dimensions: one chunk that is all of it, or several. */
#ifndef TREADLE_CONVERT_SOURCE_LAYOUT_H
#define TREADLE_CONVERT_SOURCE_LAYOUT_H

#include "convert/source.h"

/* Of the storage tensor that users know by `number` on a rank. */
typedef struct treadle_stored_shard {
  int64_t offset[TREADLE_MAX_DIMS], size[TREADLE_MAX_DIMS];
  int64_t stride[TREADLE_MAX_DIMS]; /* in elements */
  const char *data;                 /* the element at `offset` */
  int32_t file;
} treadle_stored_shard;

/* The n-th chunk; false: no more. */
typedef bool (*treadle_stored_shard_of)(const treadle_source *source, int64_t rank, int32_t number,
                                        int32_t n, treadle_stored_shard *chunk_p);

/* Appends the places of a box, of the first holder of each cell. */
treadle_status treadle_layout_places(treadle_source *source, treadle_stored_shard_of chunk_of,
                                     int32_t tensor, const treadle_box *box, treadle_file_boxes *places);

/* Compares all holders of each cell of a tensor with the first, byte for byte; cells of less than `limit` bytes. */
treadle_status treadle_layout_compare(treadle_source *source, treadle_stored_shard_of chunk_of,
                                      int32_t tensor, int64_t limit, int64_t *bytes);

#endif
