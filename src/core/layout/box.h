/* Boxes: start and size per axis, in canonical coordinates without padding. Pure arithmetic. */
#ifndef TREADLE_LAYOUT_BOX_H
#define TREADLE_LAYOUT_BOX_H

#include "base/array.h"
#include "model/model.h"

typedef struct treadle_box {
  int64_t start[TREADLE_MAX_AXES];
  int64_t size[TREADLE_MAX_AXES]; /* an axis that the tensor lacks has start 0, size 1 */
} treadle_box;

typedef TREADLE_ARRAY(treadle_box) treadle_boxes;

treadle_box treadle_box_whole(const treadle_tensor *tensor);
int64_t treadle_box_elems(const treadle_box *box);
bool treadle_box_equal(const treadle_box *a, const treadle_box *b);
/* The common part; false when there is none (then *box_p is not written). */
bool treadle_box_meet(const treadle_box *a, const treadle_box *b, treadle_box *box_p);
/* Appends what of `from` lies outside `without`, as at most 2 * axes boxes. */
treadle_status treadle_box_subtract(const treadle_box *from, const treadle_box *without,
                                    treadle_boxes *boxes);

/* Replaces each box by what of it lies outside `without`; spare is room to work in. */
treadle_status treadle_boxes_subtract(treadle_boxes *boxes, const treadle_box *without,
                                      treadle_boxes *spare);

/* Elements [low, high) of the row-major order of axes first..last (both included) of `box`, all of the other
 * axes: appended as boxes, at most 2 * axes - 1, in that order. low and high count inside the box. */
treadle_status treadle_box_range(const treadle_box *box, int first, int last, int64_t low, int64_t high,
                                 treadle_boxes *boxes);

/* Do the boxes tile `whole`: each element once? Volumes and pairwise disjointness, by splitting at planes
 * that no box crosses. Sorts `boxes`. */
bool treadle_box_tiles(const treadle_box *whole, treadle_box *boxes, size_t count);

#endif
