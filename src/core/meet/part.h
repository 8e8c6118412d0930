/* A part of the ranks of a group, which make a group of their own: what each of them knows before they meet. */
#ifndef TREADLE_MEET_PART_H
#define TREADLE_MEET_PART_H

#include "group/group.h"

enum { TREADLE_PART_NAME = 33, TREADLE_PART_ADDRESS = 128 };

typedef struct treadle_part {
  char name[TREADLE_PART_NAME]; /* by which they meet, new each time */
  int rank, size;               /* in the part */
  const int32_t *nodes;         /* [size] the node of each of them, by any numbers */
  /* Where the first one serves a store meanwhile, on one of its ports: needed where they are on several nodes. */
  char address[TREADLE_PART_ADDRESS];
  double timeout_seconds; /* of the meeting, and of the group */
} treadle_part;

/* A name that no other part has; a failure leaves it empty. */
treadle_status treadle_part_draw_name(char name[TREADLE_PART_NAME]);
/* An address of this rank's node, with a port that is free now. */
treadle_status treadle_part_address(const treadle_group *group, char address[TREADLE_PART_ADDRESS]);
/* Makes the group. It has the net of `whole`, to which it owes nothing else. Collective among the ranks of the part. */
treadle_status treadle_part_meet(const treadle_group *whole, const treadle_part *part,
                                 treadle_group **group_p);

#endif
