/* Dividing a group: all say which part they go to, and each then knows who is with it. */
#include "meet/part.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <stdlib.h>
#include <string.h>

typedef struct words { /* of a rank */
  int32_t colour, key, rank;
  char name[TREADLE_PART_NAME];       /* of the part whose first rank it is */
  char address[TREADLE_PART_ADDRESS]; /* the same; "": all ranks of the group are on one node */
} words;

static int by_key(const void *a, const void *b) {
  const words *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Those of this rank's colour, in the order of the new group, to the front of all [ranks]. */
static int gather_part(words *all, int ranks, int32_t colour) {
  int count = 0;
  for (int rank = 0; rank < ranks; rank++)
    if (all[rank].colour == colour) all[count++] = all[rank];
  qsort(all, (size_t)count, sizeof *all, by_key);
  return count;
}

static treadle_status meet(treadle_group *group, const words *of, int size, treadle_group **part_p) {
  int32_t *nodes = treadle_alloc_array((size_t)size, sizeof *nodes);
  treadle_part part = {.size = size, .nodes = nodes, .timeout_seconds = group->timeout_seconds};
  treadle_status status = TREADLE_OK;
  if (!nodes) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a group of %d ranks", size));
  for (int i = 0; i < size; i++) {
    nodes[i] = treadle_group_node(group, of[i].rank);
    if (of[i].rank == group->rank) part.rank = i;
  }
  memcpy(part.name, of->name, sizeof part.name);
  memcpy(part.address, of->address, sizeof part.address);
  TRY(treadle_part_meet(group, &part, part_p));
  for (int i = 0; i < size; i++) nodes[i] = treadle_group_called(group, of[i].rank);
  if (group->called) TRY(treadle_group_call_ranks(*part_p, nodes));
out:
  treadle_free(nodes);
  return status;
}

static treadle_status check(int colour) {
  if (colour >= -1) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "treadle_group_split: colour %d; it is from 0, or -1: this rank is in no part",
                      colour);
}

/* What this rank says, and room for what all say. */
static treadle_status prepare(const treadle_group *group, words *mine, words **all_p) {
  treadle_status status;
  TRY(check(mine->colour));
  *all_p = treadle_alloc_array((size_t)group->size, sizeof **all_p);
  if (!*all_p) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the words of %d ranks", group->size));
  TRY(treadle_part_draw_name(mine->name));
  if (group->nodes) TRY(treadle_part_address(group, mine->address));
out:
  return status;
}

treadle_status treadle_group_split(treadle_group *group, int colour, int key, treadle_group **part_p) {
  words mine = {.colour = colour, .key = key}, *all = NULL;
  treadle_group *part = NULL;
  treadle_status status;
  TREADLE_NEED(part_p);
  *part_p = NULL;
  TREADLE_NEED(group);
  mine.rank = group->rank;
  status = prepare(group, &mine, &all);
  TRY(treadle_group_agree_on(group, status, &(treadle_group_call){.name = "treadle_group_split"}));
  TRY(treadle_group_gather(group, &mine, sizeof mine, all));
  if (colour >= 0) status = meet(group, all, gather_part(all, group->size, colour), &part);
  TRY(treadle_group_agree(group, status));
  *part_p = part;
  part = NULL;
out:
  treadle_group_close(part);
  treadle_free(all);
  return status;
}
