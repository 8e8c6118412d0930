/* What a run has measured, in its folder: metrics.jsonl, a JSON object a line, and events.out.tfevents.*, which TensorBoard opens.
 *
 * Each line, and each record, is one write: whoever reads beside the run, or after a kill, sees whole lines and at most one that is not. What a full
 * disk has taken of a line is taken back. One process writes. */
#ifndef TREADLE_RUN_METRICS_H
#define TREADLE_RUN_METRICS_H

#include "run/events.h"

typedef struct treadle_metrics treadle_metrics;

/* Opens the files of a run that goes on after step `step`: lines of later steps, and a last one that is not whole, are
 * cut off, and TensorBoard is told the same. -1: the run is new, and nothing is kept. A line that is not an object with
 * a whole number "step" is refused by its number. */
treadle_status treadle_metrics_open(const char *folder, int64_t step, treadle_metrics **metrics_p);
/* Appends {"step":N,"NAME":VALUE,...}. Numbers are read back to the same bits; what is not finite is null, and in TensorBoard's file
 * what it is. Allocates nothing once a line of this length was written. */
treadle_status treadle_metrics_write(treadle_metrics *metrics, int64_t step, const treadle_metric *values,
                                     size_t count);
/* As treadle_growing_note. */
void treadle_metrics_note(const treadle_metrics *metrics, char *text, size_t room);
void treadle_metrics_close(treadle_metrics *metrics);

#endif
