/* What tracks are made of: tracks.c walks and makes them, tracks_play.c plays them. */
#ifndef TREADLE_PLAN_TRACKS_PARTS_H
#define TREADLE_PLAN_TRACKS_PARTS_H

#include "plan/tracks.h"

/* Something that an op touches: bytes from `begin` to `last`, counted in the window of the tensor that was walked. */
typedef struct treadle_track_touch {
  int64_t begin, last;
  int32_t atom; /* -1: the last wave */
  int32_t turn; /* the turn of the walk: which experts it stands for */
  int32_t next; /* of the same model, or -1 */
  int32_t op;   /* where it is not one range; or -1 */
  int32_t storage;
} treadle_track_touch;

typedef struct
    treadle_track_stretch { /* experts [first, end) of a model, for which one was walked in a turn */
  int64_t first, end, walked;
  int32_t turn;
} treadle_track_stretch;

typedef struct treadle_track_model { /* a tensor that is walked */
  int32_t tensor;
  int64_t distance; /* from expert to expert, where they are one piece */
  size_t stretch_first, stretch_end;
  int32_t touches; /* the first one, or -1 */
} treadle_track_model;

typedef struct treadle_track_fill { /* of a window without forms */
  int32_t touch;
  int32_t tensor; /* that has the data before it, and so its wave; -1: none */
} treadle_track_fill;

struct treadle_tracks {
  treadle_lanes lanes; /* as they were given */
  const treadle_layout *own, *other;
  treadle_atoms atoms;
  TREADLE_ARRAY(treadle_track_model) models;
  int32_t *model_of; /* by tensor; -1: the window has nothing of it */
  int64_t *shift;    /* by tensor: how far behind its model it begins */
  TREADLE_ARRAY(treadle_track_stretch) stretches;
  TREADLE_ARRAY(treadle_track_touch) touches;
  TREADLE_ARRAY(treadle_op) ops;
  TREADLE_ARRAY(treadle_track_fill) fills;
};

#endif
