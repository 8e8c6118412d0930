/* Attempts at plans that suit all ranks (agree.c makes them). */
#ifndef TREADLE_SWITCH_ATTEMPT_H
#define TREADLE_SWITCH_ATTEMPT_H

#include "group/group.h"

/* What a rank says of its plan. */
typedef struct treadle_proposal {
  uint64_t digest;
  int64_t over;    /* bytes of the peak above the bound */
  int64_t staging; /* bytes, which must fit in the cap */
} treadle_proposal;

/* What is planned now, and whether it will do. */
typedef struct treadle_attempt {
  int64_t cap;
  int32_t waves;
  bool may_grow; /* the cap was left open */
  bool given;    /* a plan was given: its waves are settled */
  bool done;
} treadle_attempt;

/* After all have said their proposals. Refused: ranks with different plans; nothing that could be tried next. */
treadle_status treadle_attempt_judge(const treadle_group *group, treadle_attempt *a);

#endif
