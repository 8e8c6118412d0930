/* Alias: which pages of a rank's to-window can be pages of its own from-window, and how the to-window is arranged so
 * that there are many of them.
 *
 * A run is a stretch of bytes that lie in both windows in the same order and type. The plan would copy them from this
 * rank's own window, and the way back would copy them to the same place: no cast, no value offset, no fp8 blocks, no
 * second copy of the same bytes. If a run begins at the same offset within a page in both windows, the whole pages inside of
 * it are aliased, and its head and tail are copied.
 *
 * Storage tensors of the to-window may lie anywhere, so each (a run of them by expert as one) is put where it helps: in
 * the order of the from-window, at the offset within a page that gives most bytes on whole shared pages (its runs vote for
 * it), if these are at least `thrift` times the padding that it takes. Storage tensors without runs come last, in their
 * order. */
#ifndef TREADLE_PLAN_ALIAS_H
#define TREADLE_PLAN_ALIAS_H

#include "plan/lanes.h"
#include "plan/plan.h"

typedef struct treadle_resident_run {
  int64_t to, bytes; /* in the to-window as its layout has it */
  int64_t distance;  /* from there to the place in the from-window */
} treadle_resident_run;

typedef TREADLE_ARRAY(treadle_resident_run) treadle_resident_runs;

/* The runs of a rank, by `to`. lanes are those of the pair. */
treadle_status treadle_resident_runs_find(const treadle_lanes *lanes, int64_t rank, int64_t page_bytes,
                                          treadle_resident_runs *runs);

/* The to-window as its layout has it, without aliases. */
treadle_status treadle_arrangement_plain(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                         int64_t page_bytes, treadle_arrangement *arrangement);
/* Fills an arrangement from the runs. thrift 0: nothing is moved. Without an aliased page nothing is either. */
treadle_status treadle_arrangement_create(const treadle_layout *from, const treadle_layout *to,
                                          int64_t rank, int64_t page_bytes,
                                          const treadle_resident_runs *runs, int64_t thrift,
                                          treadle_arrangement *arrangement);
void treadle_arrangement_release(treadle_arrangement *arrangement);
treadle_status treadle_arrangement_copy(const treadle_arrangement *arrangement, treadle_arrangement *copy);

/* Cuts an op, whose destination lies where the window is arranged, by the aliased pages of that window (from_of or
 * to_of; NULL: there are none), and gives what is left of it to `keep`. *dropped_p grows by the bytes that are not. */
typedef treadle_status (*treadle_alias_keep)(void *context, const treadle_op *op);
treadle_status treadle_alias_clip(const treadle_op *op, const int32_t *aliased, int64_t page_bytes,
                                  treadle_alias_keep keep, void *context, int64_t *dropped_p);

#endif
