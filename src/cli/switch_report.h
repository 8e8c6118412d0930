/* What `treadle switch` found: figures of all ranks, printed by rank 0 as a table or as JSON. */
#ifndef TREADLE_CLI_SWITCH_REPORT_H
#define TREADLE_CLI_SWITCH_REPORT_H

#include "base/status.h"

/* One rank's figures, direction to infer; peak over both. */
typedef struct treadle_rank_figures {
  size_t moved_bytes, lower_bound_bytes, copied_bytes;
  size_t peak_bytes, held_bytes, bound_bytes; /* accounted, in the pool's file, allowed */
  double seconds, memcpy_seconds;             /* medians of this rank's own times */
} treadle_rank_figures;

typedef struct treadle_switch_report {
  const treadle_model *model;
  const char *train, *infer, *rank_map;
  int64_t cycles;
  int ranks;
  const treadle_rank_figures *figures; /* [ranks] */
  double to_infer, to_train, memcpy,
      rate; /* medians over cycles, barrier to barrier; to_train NaN one way */
  size_t cap_bytes, page_bytes;
  int32_t waves;
  bool pass;
  bool compared;   /* every byte was compared */
  bool lossless;   /* so the digest is the same in both layouts */
  uint64_t digest; /* of the weights */
} treadle_switch_report;

/* Of some times, the median; without the first two where there are more than two. Sorts `times`. */
double treadle_median(double *times, int64_t count);

void treadle_switch_report_text(const treadle_switch_report *report);
void treadle_switch_report_json(const treadle_switch_report *report);

#endif
