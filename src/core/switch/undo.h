/* What an arrow to INFER overwrites is kept in host memory, where undo_bytes asks for it, and given back when the arrow
 * fails: own infer tensors, which an engine may go on using with what they held; and in an update the rest of the infer
 * window, if there is room for it. */
#ifndef TREADLE_SWITCH_UNDO_H
#define TREADLE_SWITCH_UNDO_H

#include "carry/carry.h"
#include "switch/terms.h"

/* A storage tensor of the infer window. */
typedef struct treadle_undo_part {
  int64_t offset, bytes; /* in the window */
  bool own;
} treadle_undo_part;

typedef struct treadle_undo {
  treadle_undo_part *parts; /* [count], in the order of the window; NULL: nothing is kept */
  size_t count;
  size_t own_bytes, other_bytes; /* of the own ones, and of the rest */
  bool whole;                    /* in an update the rest is kept, too */
  char *kept;                    /* [bytes], pinned host memory; NULL: none */
  size_t bytes;
  bool has, has_rest; /* something is kept now; the rest is among it */
} treadle_undo;

/* What undo_bytes means for this rank, once its own tensors are known; refused where it is too little. */
treadle_status treadle_undo_take(const treadle_terms *terms, const treadle_layout *infer,
                                 const treadle_carry *c, treadle_undo *undo);
/* The memory for it. */
treadle_status treadle_undo_create(const treadle_carry *c, treadle_undo *undo);
void treadle_undo_release(const treadle_carry *c, treadle_undo *undo);

/* Before the first byte is written. rest: what else lies in the infer window is a version, too. Ends where the arrow is
 * cancelled. */
treadle_status treadle_undo_keep(const treadle_carry *c, bool rest, treadle_undo *undo);
/* After a failure, when no rank reads there any more: what was kept is there again. */
treadle_status treadle_undo_give_back(const treadle_carry *c, treadle_undo *undo);
/* It is committed. */
static inline void treadle_undo_forget(treadle_undo *undo) { undo->has = false; }

#endif
