/* The figures of plans over all ranks, or of one rank.
 *
 * One rank of each set is measured (report/equal_ranks.h). Bytes by pair follow from a rank's number: they are measured rank by
 * rank, up to TREADLE_PAIR_RANKS ranks; above that the link load counts received bytes only. Where there are several nodes, every rank is
 * walked (report_nodes.c). */
#ifndef TREADLE_REPORT_REPORT_H
#define TREADLE_REPORT_REPORT_H

#include "base/nodes.h"
#include "base/watch.h"
#include "plan/lanes.h"
#include "plan/plan.h"
#include "report/equal_ranks.h"
#include "treadle_tools.h"

enum {
  TREADLE_PAIR_RANKS = 128, /* up to this many, bytes by pair are measured */
  TREADLE_KEPT_RANKS = 16   /* up to this many, the matrix of pairs is kept */
};

/* What a rank has to do with other nodes. */
typedef struct treadle_rank_net {
  int64_t moved_bytes, relayed_bytes; /* forward, as in treadle_direction */
  int64_t pulled_bytes,
      back_pulled_bytes; /* of a report over all ranks: from all other ranks, there and back */
} treadle_rank_net;

struct treadle_report {
  const treadle_layout *from, *to;
  treadle_watch watch;
  int64_t rank;                    /* -1: all */
  treadle_equal_ranks equal_ranks; /* of ranks; none for one rank */
  treadle_plan_info *infos;        /* figures of one rank of each set; [1] for one rank */
  treadle_plan_base *plan_bases;   /* what they were measured on; [count] */
  int32_t plan_base_count;
  struct treadle_sums *sums;         /* of bytes */
  uint64_t *kin;                     /* treadle_kin_list */
  treadle_lanes lanes;               /* of all ranks */
  struct treadle_tracks **tracks[2]; /* by layout and set, like lives; NULL: not kept */
  _Atomic size_t kept_tracks;        /* the sizes of those that are */
  struct treadle_page_life *
      *lives[2];            /* by layout and set: of its plain windows, with the waves at hand; of the first
                                                set that is cut alike */
  treadle_cuts_of_all cuts; /* parts that the plans have looked at */
  size_t *pairs;            /* [ranks * ranks], row by receiver; NULL above TREADLE_KEPT_RANKS */
  treadle_nodes nodes;      /* of the ranks */
  bool blocks_in_part;      /* of all ranks over nodes: what each moves was counted there, in rank_nets */
  treadle_node_info *by_node;
  treadle_rank_net *rank_nets;
  treadle_report_info info;
};

/* The figures of a rank of the report. */
const treadle_plan_info *treadle_report_figures(const treadle_report *report, int64_t rank);
/* What a rank moves: over nodes, where blocks may come in part, as it was counted there. */
size_t treadle_report_moved(const treadle_report *report, int64_t rank);
/* Adds up those of all ranks. */
void treadle_report_add_up(treadle_report *report);

/* Begins with the nodes, and adds what is to be known between them: of all ranks, or of one. */
treadle_status treadle_report_start_nodes(treadle_report *report, const int32_t *node_of);
treadle_status treadle_report_add_nodes(treadle_report *report);
treadle_status treadle_report_add_node(treadle_report *report, const treadle_plan *plan);
/* The nodes, NULL where there is one. */
const treadle_nodes *treadle_report_nodes(const treadle_report *report);

#endif
