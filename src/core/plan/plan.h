/* A plan: what one rank copies, in waves, forward (from -> to) and back (to -> from).
 *
 * Waves. Elements are grouped in lanes (pattern of the tensor, cell and placement in `from`, cell and placement
 * in `to`), each lane is cut in atoms (row blocks of at most a page), and an atom's wave follows from its
 * position in its lane alone: all ranks agree, and all lanes are moved at one pace. The way back
 * has the same atoms with the waves in reverse order (wave' = waves - 1 - wave). So both directions have
 * one peak, and every page gets its old place back.
 *
 * Pages. A page of the from-window is free two waves after its last atom; a page of the to-window is needed
 * from its first atom on. Both follow from this rank's own pieces. So the sharing of physical pages
 * between the two windows is decided when the plan is made: to-page y lies on the physical page of from-page
 * z where last(z) <= first(y) - 2, each at most once, greedily. Peak = physical pages. During a switch nothing is
 * mapped or unmapped, and there are no page faults; to reclaim a page is to let the other window write it.
 *
 * Alias (alias.h). If a whole page of the to-window would hold the same bytes as a whole page of this rank's own
 * from-window, both windows share one page: it is not copied in either direction, is never reclaimed and counts once.
 * Storage tensors of the to-window are arranged for that. treadle_plan_place() says where a byte of a window lies then;
 * layouts do not know of it.
 *
 * keep_params: the from-window is never reclaimed, and the way back has nothing to do. */
#ifndef TREADLE_PLAN_PLAN_H
#define TREADLE_PLAN_PLAN_H

#include "base/nodes.h"
#include "layout/cuts.h"
#include "move/move.h"

enum { TREADLE_LAG = 2, TREADLE_MAX_WAVES = 4096 };
/* Where nothing is said: pages, and the cap where cap_min is not larger. */
/* Where the caller gives none, by treadle_memory_kind. */
static inline size_t treadle_default_page(treadle_memory_kind memory) {
  return memory == TREADLE_MEMORY_CUDA ? (size_t)4 << 20 : (size_t)2 << 20;
}
static inline size_t treadle_default_cap(treadle_memory_kind memory) {
  return memory == TREADLE_MEMORY_CUDA ? (size_t)1 << 30 : (size_t)256 << 20;
}

typedef struct treadle_direction {
  treadle_op_array
      ops; /* by wave; in a wave: own, then others' by distance, then fills, then relays by distance, then twins */
  int32_t *wave_first; /* [waves + 1] index of the first op of each wave */
  int32_t *need; /* [waves] every rank must have finished this wave before this one writes; -1: none */
  int32_t first_reclaim;         /* the first wave that writes on a reclaimed page; waves when none */
  treadle_block_rows block_rows; /* runs of them, by wave; in a wave they are carried out before the ops */
  treadle_block_row_parts block_row_parts;
  int32_t *block_row_first; /* [waves + 1] index of the first block row of each wave */
  int64_t scratch_bytes, scratch_codes,
      scratch_scales; /* of the largest block row: values, codes and scales */
  int64_t moved_bytes, resident_bytes, fill_bytes, lower_bound_bytes;
  int64_t node_moved_bytes; /* of those moved, from other nodes */
  int64_t relayed_bytes;    /* and from ranks of the node that have them from other nodes */
  int64_t written_bytes;    /* destination bytes of data and fills, aliased too: what coverage must reach */
  int64_t aliased_bytes;    /* of these, on aliased pages: no op writes them */
  uint64_t
      coverage; /* sum of treadle_op_mark over ops, and of treadle_block_row_mark over block rows, and what
                            treadle_alias_mark adds */
} treadle_direction;

typedef struct treadle_alias_run { /* bytes of whole pages that are the same in both windows */
  int64_t from, to, bytes;         /* where they begin in each */
} treadle_alias_run;

/* How a rank's to-window is arranged, and which of its pages are pages of the from-window. */
typedef struct treadle_arrangement {
  const treadle_storage *storages; /* of the to-window, as its layout has them */
  int32_t storage_count;
  int64_t *shift;        /* [storage_count] bytes that each is moved; NULL: none is */
  int64_t window_bytes;  /* of the to-window as it is arranged */
  int64_t padding_bytes; /* of it, put in for the sake of aliases */
  int64_t from_pages, to_pages;
  int64_t pages;           /* aliased; 0: what follows is NULL and 0 */
  int32_t *from_of;        /* [to_pages] the page of the from-window that each is, or -1 */
  int32_t *to_of;          /* [from_pages] and the other way round */
  treadle_alias_run *runs; /* by `to`; no two touch with the same distance */
  int64_t run_count;
} treadle_arrangement;

struct treadle_plan {
  const treadle_layout *from, *to;
  int64_t rank;
  const treadle_nodes *nodes; /* of the ranks; NULL: there is one */
  treadle_nodes own_nodes;    /* where they are the plan's own */
  bool alias, keep_params;
  int32_t waves;
  int64_t page_bytes;
  int64_t cap_bytes, cap_min_bytes;
  int64_t from_pages, to_pages, physical_pages; /* physical_pages is the peak */
  int64_t plain_to_pages;          /* of the to-window without padding: what the bound counts */
  int32_t *from_page, *to_page;    /* physical page of each page of the windows */
  treadle_arrangement arrangement; /* with alias; else nothing is moved */
  uint8_t *placed;                 /* [ranks] are the reads of a peer's to-window placed? NULL: none is */
  treadle_direction forward, back;
  treadle_cuts_of_all *cuts_of_all; /* while it is made */
  uint64_t digest;
  bool lossless;
  treadle_arena arena;
};

/* ---- Windows as they are arranged ---- */

/* Where the byte that the to-layout has at `offset` lies in the rank's window. The one function that says so; the
 * from-window is as its layout has it. */
int64_t treadle_plan_place(const treadle_arrangement *arrangement, int64_t offset);

/* The way back reads other ranks' to-windows, which they have arranged alone; relays do so forward. Moves the reads of `peer` to where
 * its storage tensors lie: shift[count] (NULL: none is moved) and to_pages as that rank's plan has them. Once for each
 * peer, before the plan runs; without it the plan reads them where the layout has them. Refused, and nothing changed: a
 * peer that was placed, another number of storage tensors, one that does not lie at a multiple of 64 bytes or
 * not inside of to_pages pages, two that overlap. */
treadle_status treadle_plan_place_peers(treadle_plan *plan, int64_t peer, const int64_t *shift,
                                        int32_t count, int64_t to_pages);
/* Refused when the way back, or a relay, reads a peer that was not placed. */
treadle_status treadle_plan_check_placed(const treadle_plan *plan);

/* The one place where aliased bytes count as covered: compares the page tables of this rank's windows, in which each
 * aliased page has to lie on the physical page of the page that it is, and adds marks and bytes of the
 * aliased runs to what the ops of a direction have counted. TREADLE_DIFFERENT names the page that does not. */
treadle_status treadle_alias_mark(const treadle_plan *plan, bool back, const int32_t *from_page,
                                  const int32_t *to_page, uint64_t *coverage, int64_t *bytes);
/* What that adds to coverage. */
uint64_t treadle_alias_coverage(const treadle_arrangement *arrangement, bool back);

/* The most bytes that a rank may hold, both directions: the larger window and cap, or both windows and cap where
 * params are kept. Padding does not count. */
int64_t treadle_plan_bound(const treadle_plan *plan);

/* The number of waves for a cap: min(4096, max(1, ceil(8 * max(from, to) / cap))), from the largest windows
 * of both layouts in whole pages. */
int32_t treadle_plan_waves(const treadle_layout *from, const treadle_layout *to, int64_t page_bytes,
                           int64_t cap_bytes);

/* What the plans of one rank have in common, whatever their waves: how its windows are arranged, and the smallest
 * cap. Local; costs about as much as a plan. */
typedef struct treadle_plan_base_options {
  int64_t page_bytes;
  bool alias, keep_params;
  bool small_pages; /* tests: pages from 64 bytes on */
  const treadle_nodes
      *nodes; /* of the ranks; they outlive the plans. NULL, or one of them: all are on one node */
  treadle_cuts_of_all *cuts_of_all; /* of the report that these belong to; NULL: of none */
  const struct treadle_window_tracks
      *tracks; /* of plain windows with 4096 waves; NULL: they are not known */
} treadle_plan_base_options;

/* When each page of a rank's windows is touched, as their layouts have them; settled. */
typedef struct treadle_window_tracks {
  const struct treadle_page_life *from, *to;
  const struct treadle_lanes *lanes;  /* of the pair */
  const struct treadle_tracks *of_to; /* of the to-window, for its arrangements; NULL: they are not kept */
  const uint64_t *kin; /* treadle_kin_list of the pair: bytes are found once for tensors that lie alike */
  struct treadle_sums *sums; /* of all ranks of the pair */
} treadle_window_tracks;

enum { TREADLE_ARRANGEMENTS = 5 };

typedef struct treadle_plan_base {
  const treadle_layout *from, *to;
  int64_t rank;
  treadle_plan_base_options options;
  int32_t count; /* arrangements; the first is plain */
  treadle_arrangement arrangements[TREADLE_ARRANGEMENTS];
  int64_t cap_min[TREADLE_ARRANGEMENTS]; /* of each */
  int64_t cap_min_bytes;                 /* the smallest: never more than without alias */
} treadle_plan_base;

treadle_status treadle_plan_base_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                        const treadle_plan_base_options *options,
                                        treadle_plan_base *plan_base);
void treadle_plan_base_release(treadle_plan_base *plan_base);

/* Without alias and without looking for the smallest cap. */
treadle_status treadle_plan_base_plain(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                       const treadle_plan_base_options *options,
                                       treadle_plan_base *plan_base);
/* The arrangement that gains most with a cap. */
const treadle_arrangement *treadle_plan_base_choose(const treadle_plan_base *plan_base, int64_t cap_bytes);

/* Makes the plan with a given number of waves; cap_bytes chooses the arrangement. The plan base may go before the plan. */
treadle_status treadle_plan_make_on(const treadle_plan_base *plan_base, int32_t waves, int64_t cap_bytes,
                                    treadle_plan **plan_p);
/* Bytes and peak of one rank without ops, for reports over many ranks: as treadle_plan_info, without the
 * digest. tracks: of its plain windows with this many waves; like: the figures of a rank that
 * moves the same bytes; NULL: they are not known. */
treadle_status treadle_plan_measure_on(const treadle_plan_base *plan_base, int32_t waves, int64_t cap_bytes,
                                       const treadle_window_tracks *tracks, const treadle_plan_info *like,
                                       treadle_plan_info *info_p);

/* Refuses layouts of different models or rank counts, a rank that is none, a page size that is none. */
treadle_status treadle_plan_check(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                  int64_t page_bytes);
/* Does every value come back the same? */
bool treadle_plan_is_lossless(const treadle_layout *from, const treadle_layout *to);

/* Adds what a rank pulls forward to inbound, by source, without its plan. lanes are those of the pair; nodes: of the ranks, NULL:
 * one; all: of a report, or NULL. */
struct treadle_lanes;
treadle_status treadle_plan_add_inbound(const struct treadle_lanes *lanes, const treadle_nodes *nodes,
                                        int64_t rank, treadle_cuts_of_all *all, size_t *inbound);

#endif
