/* Rules that all ranks of a meeting keep. */
#include "meet/nodes_meet.h"

#include <string.h>

static treadle_status differ(int rank, const char *what, int theirs, int ours) {
  return treadle_fail(TREADLE_REFUSED, "rank %d has %s %d, and rank 0 has %d", rank, what, theirs, ours);
}

treadle_status treadle_meeting_check(const treadle_description *first, const treadle_description *one,
                                     int rank) {
  if (one->status != TREADLE_OK)
    return treadle_fail((treadle_status)one->status, "rank %d: %s", rank, one->text);
  if (one->size != first->size) return differ(rank, "a number of ranks of", one->size, first->size);
  if (one->rank != rank) REFUSE("what should be of rank %d is of rank %d", rank, one->rank);
  if (one->nodes != first->nodes && one->nodes && first->nodes)
    return differ(rank, "a number of nodes of", one->nodes, first->nodes);
  if (one->nodes != first->nodes)
    REFUSE("rank %d gives the number of nodes (%d), and rank %d does not: all have to say the same",
           one->nodes ? rank : 0, one->nodes ? one->nodes : first->nodes, one->nodes ? 0 : rank);
  if ((one->number < 0) != (first->number < 0))
    REFUSE("rank %d gives its node (%d), and rank %d lets it be found: all have to do the same",
           one->number < 0 ? 0 : rank, one->number < 0 ? first->number : one->number,
           one->number < 0 ? rank : 0);
  return TREADLE_OK;
}

/* Ranks of one node can map each other's memory. */
static treadle_status check_pair(const treadle_description *a, const treadle_description *b) {
  if (!treadle_node_is_same(&a->node, &b->node))
    REFUSE("ranks %d (%s) and %d (%s) should be on one node, and are on two machines, or in two "
           "containers: ranks "
           "of a node are in one kernel, one network and one process namespace",
           a->rank, a->host, b->rank, b->host);
  if (a->user != b->user)
    REFUSE("ranks %d and %d are on one node, and belong to users %u and %u: ranks of a node belong to one "
           "user",
           a->rank, b->rank, a->user, b->user);
  return TREADLE_OK;
}

static bool is_together(const treadle_description *a, const treadle_description *b) {
  if (a->nodes) return a->rank / (a->size / a->nodes) == b->rank / (b->size / b->nodes);
  if (a->number >= 0) return a->number == b->number;
  return treadle_node_is_same(&a->node, &b->node);
}

treadle_status treadle_meeting_divide(const treadle_description *all, int size, int32_t *of) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < size; rank++) {
    int first = 0; /* of its node */
    while (first < rank && (of[first] != first || !is_together(&all[first], &all[rank]))) first++;
    of[rank] = first;
    if (first < rank) TRY(check_pair(&all[first], &all[rank]));
  }
out:
  return status;
}
