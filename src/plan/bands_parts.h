/* What the files of bands say to each other: bands.c walks and gives waves, bands_quantise.c makes blocks,
 * bands_dequantise.c takes them apart. */
#ifndef TREADLE_PLAN_BANDS_PARTS_H
#define TREADLE_PLAN_BANDS_PARTS_H

#include "plan/bands.h"

static inline int64_t treadle_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Quantises all codes of a tensor in the rank's window of `to`, scales with them (bands_quantise.c). */
treadle_status treadle_bands_quantise(treadle_band_walk *walk, int32_t tensor);
/* Dequantises the boxes of a piece (bands_dequantise.c). */
treadle_status treadle_bands_dequantise(treadle_band_walk *walk, const treadle_piece *piece,
                                        const treadle_boxes *boxes);

/* Turns to a tensor and to what there is of it on this rank, unless it is at hand already. */
treadle_status treadle_bands_start_sources(treadle_band_walk *w, int32_t tensor);
/* The wave of a band: that of its first element, on every rank and both ways. *end_p: bands down..*end_p - 1 are known to have
 * it; they may go on behind the last one. */
treadle_status treadle_bands_wave(treadle_band_walk *w, int64_t expert, int64_t down, int32_t *wave_p,
                                  int64_t *end_p);
/* Rows are one axis, so that bands may be alike. */
static inline bool treadle_bands_plain(const treadle_blocks *blocks) {
  return blocks->first_column - blocks->first_row == 1;
}
/* A copy between a box of a piece and its place in the scratch of `of`, whose values are of type `value`. */
treadle_band_part treadle_bands_part(const treadle_band_walk *w, const treadle_rectangle *of,
                                     const treadle_box *box, const treadle_piece *piece,
                                     treadle_dtype value, bool to_scratch);
/* What two rectangles of one expert share; no rows or columns, or fewer, where that is nothing. */
treadle_rectangle treadle_bands_meet(const treadle_rectangle *a, const treadle_rectangle *b);
/* A band without parts and wave. */
treadle_band treadle_bands_band(const treadle_band_walk *w, const treadle_rectangle *of,
                                const treadle_spot *codes, const treadle_spot *scales);
/* The rank of holder k of a cell, beginning at another one for each expert and reader. */
int64_t treadle_bands_holder(const treadle_band_walk *w, const treadle_cell *cell, int64_t expert,
                             int64_t k);
/* Of the tensor at hand, for messages. */
const char *treadle_bands_name(const treadle_band_walk *w);

#endif
