/* Owners: the ranks of a group that hold a layout, as on= of its text says.
 *
 * They are numbered in the order of their ranks, and a layout's mesh is made for as many ranks as there are owners: place i of it is
 * owner i. The set is kept as runs of ranks that follow each other, so that what it costs does not grow with the ranks. */
#ifndef TREADLE_LAYOUT_OWNERS_H
#define TREADLE_LAYOUT_OWNERS_H

#include "base/text.h"

typedef struct treadle_owner_run {
  int64_t first, count; /* ranks first .. first + count - 1 */
  int64_t before;       /* owners of the runs before it */
} treadle_owner_run;

typedef struct treadle_owners {
  int64_t count;
  int32_t run_count;
  treadle_owner_run *runs; /* ascending, no two of them touch; NULL: all ranks are owners */
} treadle_owners;

/* From "0-3,8", in any order; layout_text is for messages. Refused: what is not a rank or range, a rank that is none of `ranks`, one that
 * is there twice, a range that ends before it begins, too many runs. With all ranks there are no runs. */
treadle_status treadle_owners_parse(const char *text, int64_t ranks, const char *layout_text,
                                    treadle_owners *owners_p);
void treadle_owners_release(treadle_owners *owners);
/* Appends the normal form: sorted, runs as long as they can be. */
void treadle_owners_print(const treadle_owners *owners, treadle_builder *builder);

/* The number of a rank among the owners; -1: it is none. */
int64_t treadle_owners_find(const treadle_owners *owners, int64_t rank);
/* The rank of an owner. */
int64_t treadle_owners_rank(const treadle_owners *owners, int64_t owner);

#endif
