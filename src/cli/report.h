/* The figures of a plan over all ranks, or of one rank: what `treadle plan` prints.
 *
 * One rank of each kind is measured (plan/kinds.h). Bytes by pair follow from a rank's number: they are measured
 * rank by rank, up to TREADLE_PAIR_RANKS ranks; above that the link load counts received bytes only.
 */
#ifndef TREADLE_CLI_REPORT_H
#define TREADLE_CLI_REPORT_H

#include "plan/kinds.h"
#include "plan/plan.h"

enum {
  TREADLE_PAIR_RANKS = 128, /* up to so many, bytes by pair are measured */
  TREADLE_SHOWN_RANKS = 16  /* up to so many, the matrix of pairs is kept */
};

typedef struct treadle_report_options {
  const char *from, *to; /* layout texts */
  int64_t ranks, rank;   /* rank -1: all */
  treadle_rank_map rank_map;
  size_t page_bytes;              /* 0: 2 MiB */
  size_t cap_bytes, budget_bytes; /* 0: not given */
  bool alias;
} treadle_report_options;

typedef struct treadle_report {
  treadle_layout *from, *to;
  const char *rank_map;
  int64_t ranks, rank; /* rank -1: all */
  size_t page_bytes;

  treadle_kinds kinds;      /* of ranks; none for one rank */
  treadle_plan_info *infos; /* figures of one rank of each kind; [1] for one rank */
  treadle_ground *grounds;  /* what they were measured on; [count] */
  int32_t ground_count;
  treadle_cuts_of_all cuts; /* parts that the plans have looked at */

  size_t model_bytes, moved_bytes, lower_bound_bytes, resident_bytes; /* sums over ranks */
  size_t infer_bytes, copied_bytes, aliased_bytes;                    /* and these */
  int32_t waves;
  size_t cap_bytes, cap_min_bytes;
  size_t window_max_bytes;          /* the largest window of all ranks */
  size_t peak_bytes;                /* the largest */
  size_t bound_bytes;               /* the bound of the rank with the least room */
  int64_t tight_rank;               /* that rank */
  double inbound_max, inbound_mean; /* received over model; the mean is NaN for one rank */
  double link_load;                 /* max over mean; NaN for one rank */
  size_t *pairs;                    /* [ranks * ranks], row by receiver; NULL above TREADLE_SHOWN_RANKS */

  bool fits;               /* without a budget: true */
  size_t budget_min_bytes; /* the smallest budget */

  double seconds, processor_seconds; /* from the model to here */
  size_t rss_bytes;                  /* growth of the peak resident size meanwhile */
} treadle_report;

/* Makes both layouts and the figures. Refused: what the layouts refuse, a page size that is none, a cap
 * below cap_min. A budget that is too small is an answer: then cap is cap_min, and fits is false. */
treadle_status treadle_report_make(const treadle_model *model, const treadle_report_options *options,
                                   treadle_report *report);
void treadle_report_release(treadle_report *report);

/* The figures of a rank of the report. */
const treadle_plan_info *treadle_report_rank(const treadle_report *report, int64_t rank);

/* Moved over lower bound; 1 when nothing moved. */
double treadle_ratio(size_t moved, size_t lower_bound);

#endif
