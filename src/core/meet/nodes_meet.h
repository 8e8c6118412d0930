/* How ranks find out which of them are on which node, by a store that all of them reach (treadle_store).
 *
 *     treadle/JOB/meeting      rank 0: a random number N
 *     treadle/JOB/N/R          rank R: its description
 *     treadle/JOB/N/table      rank 0, when it has read all: who is on which node and where, and a random key; or why not
 *
 * What an older job has left under the same name does no harm: its number N has descriptions and a table of that job, and in a table
 * each rank finds the random number that it has put into its own description, or it is not of this meeting. Then the rank waits, and looks
 * again whether rank 0 has left another number. A number that is lost, a description that is lost, a rank that does not come: all end at the
 * deadline, and name it. A rank that comes twice is seen by the one whose number is not in the table. */
#ifndef TREADLE_MEET_NODES_MEET_H
#define TREADLE_MEET_NODES_MEET_H

#include "base/nodes.h"
#include "meet/meeting_form.h"

typedef struct treadle_meeting_options {
  int rank, size;
  int number; /* of this rank's node, from the caller; -1: to be found. All give one, or none */
  int nodes;  /* this many equal groups of neighbours are the nodes; 0: not so. All say the same */
  const char *
      host; /* by which others reach this machine, as numbers; NULL: the end of a treadle_store_open, else found */
  double deadline; /* of treadle_clock_seconds() */
} treadle_meeting_options;

/* A zeroed struct is an empty one. */
typedef struct treadle_meeting {
  treadle_nodes nodes;
  uint8_t key[TREADLE_MEETING_KEY];    /* random, the same on all ranks, new in each meeting */
  char (*hosts)[TREADLE_MEETING_HOST]; /* [ranks] */
} treadle_meeting;

/* Ranks of one node are in one kernel and its namespaces, and belong to one user. Refused on all ranks, with the first rank that breaks a rule;
 * one that fails by itself makes all fail with its message. All return by the deadline and a little. Collective. */
treadle_status treadle_nodes_meet(const treadle_store *store, const treadle_meeting_options *options,
                                  treadle_meeting *meeting_p);
void treadle_meeting_release(treadle_meeting *meeting);

/* ---- meeting_rules.c: what rank 0 makes of the descriptions. Pure ---- */

/* Does this one fit to that of rank 0? `rank` is whose it should be. */
treadle_status treadle_meeting_check(const treadle_description *first, const treadle_description *one,
                                     int rank);
/* Which node each rank is on, from [size] descriptions that were checked: of [size]. */
treadle_status treadle_meeting_divide(const treadle_description *all, int size, int32_t *of);

#endif
