/* Filling windows, inside: values of any box, and blocks that are made of them. */
#ifndef TREADLE_WEIGHTS_LOAD_H
#define TREADLE_WEIGHTS_LOAD_H

#include "layout/layout.h"
#include "memory/device.h"

/* As treadle_layout_load, with the values that a switch from `source` leaves in the window: where that holds fp8 blocks,
 * values are what comes back of them. source may be NULL. shift: bytes that each storage tensor is moved, as a plan has
 * arranged them; NULL: none is. device: whose memory the window is (treadle_device_at). */
treadle_status treadle_layout_load_from(const treadle_layout *layout, const treadle_layout *source,
                                        int64_t rank, const int64_t *shift, const treadle_device *device,
                                        void *window);

/* The same with the values of a folder that treadle_layout_save has written, of whatever type. Refused: it has other tensors, or none of its
 * values. options: of treadle_model_open. */
treadle_status treadle_layout_load_saved(const treadle_layout *layout, int64_t rank, const char *folder,
                                         const treadle_model_options *options, void *window);

/* The canonical values of a piece, from the checkpoint or generated, at its place in `window`. */
treadle_status treadle_load_values(const treadle_model *model, const treadle_piece *piece,
                                   const treadle_device *device, char *window);

/* Must the piece be made of blocks, as it is one of codes or scales without files that hold them, or of what comes back
 * of blocks? model: whose values they are. */
bool treadle_load_is_blocks(const treadle_model *model, const treadle_layout *layout,
                            const treadle_layout *source, const treadle_piece *piece);
/* Makes it. */
treadle_status treadle_load_blocks(const treadle_model *model, const treadle_piece *piece,
                                   const treadle_device *device, char *window);

#endif
