/* When each page of a window is touched, found once for tensors that lie alike.
 *
 * A walk of a window takes each tensor; but those whose cells are alike in both layouts, and of which the rank holds the same,
 * differ in nothing but where they begin in the window and which one of their lane they are. So one of them is walked, with
 * atoms in place of waves, and what it touches is played for all. The plain twin is a walk of the whole window
 * (treadle_direction_walk with a page sink); a test compares them. */
#ifndef TREADLE_PLAN_TRACKS_H
#define TREADLE_PLAN_TRACKS_H

#include "layout/signatures.h"
#include "plan/lanes.h"
#include "plan/pages.h"

/* Pages that are marked: of a window as it is arranged (NULL: as its layout has it). */
typedef struct treadle_track_target {
  treadle_page_life *pages;
  const treadle_arrangement *arrangement;
} treadle_track_target;

typedef struct treadle_tracks treadle_tracks;

/* Of a rank's window in one layout of the pair, and of all windows that are cut alike. kin: treadle_kin_list of the pair. all: of
 * a report, or NULL. The positions of the lanes live as long. */
treadle_status treadle_tracks_create(const treadle_lanes *lanes, const uint64_t *kin, int side,
                                     int64_t rank, treadle_cuts_of_all *all, treadle_tracks **tracks_p);
/* Marks the pages of the window, with this many waves, in all of these arrangements. Any number of threads may play at once. */
void treadle_tracks_play(const treadle_tracks *tracks, int32_t waves, const treadle_track_target *targets,
                         int32_t count);
/* The same of the to-window of a rank of which this is known, whether its tracks were kept or not. all: as above. */
treadle_status treadle_tracks_play_to(const treadle_window_tracks *known, int64_t rank,
                                      treadle_cuts_of_all *all, int32_t waves,
                                      const treadle_track_target *targets, int32_t count);
/* Parts of the window that it keeps: what its memory grows with. */
size_t treadle_tracks_size(const treadle_tracks *tracks);
void treadle_tracks_destroy(treadle_tracks *tracks);

#endif
