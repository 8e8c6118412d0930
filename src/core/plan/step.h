/* A step of the planner: one way to make tensors of the destination window. The walk (direction.c) asks the steps, in the
 * order of its table, which of them takes a tensor; the last one takes all that are left.
 *
 *   fp8 blocks   block_rows.h: quantised, dequantised, or copied within their block rows' waves
 *   copies       direction.c */
#ifndef TREADLE_PLAN_STEP_H
#define TREADLE_PLAN_STEP_H

#include "layout/layout.h"

/* How a piece comes about. */
typedef enum treadle_making {
  TREADLE_MAKING_COPIES = 0, /* each element is copied from where a layout has it */
  TREADLE_MAKING_PIECE,      /* by make_piece, but for values that this window has already */
  TREADLE_MAKING_CODED,      /* by make_piece, all of it */
  TREADLE_MAKING_TENSOR,     /* by make_tensor, with all others of its tensor that say so */
  TREADLE_MAKING_ELSEWHERE   /* with the pieces of another tensor */
} treadle_making;

/* Takes a part of a box, all in one wave. */
typedef treadle_status (*treadle_step_emit)(void *context, const treadle_box *box, int32_t wave);

typedef struct treadle_step {
  const char *name;
  bool (*takes)(const treadle_layout *from, const treadle_layout *to, int32_t tensor);
  /* Boxes to be cut lie in one cell of each layout, and the walk has found these; else they are any boxes. */
  bool by_cells;
  bool alone; /* copies within a rank tell something without the others' */
  /* Cuts a box where its wave changes. self: of the step, in the walk. */
  treadle_status (*cut)(void *self, int32_t tensor, const treadle_box *box, treadle_step_emit emit,
                        void *context);
  treadle_making (*making)(const void *self, const treadle_piece *piece);
  treadle_status (*make_piece)(void *self, const treadle_piece *piece, const treadle_boxes *boxes);
  treadle_status (*make_tensor)(void *self, int32_t tensor);
} treadle_step;

#endif
