/* Records of TensorBoard's event files, byte by byte: the messages Event and Summary of its event.proto and summary.proto, in the frames of
 * TensorFlow's record writer. A frame is the length as 8 bytes, its masked CRC-32C, the message, the masked CRC-32C of that. */
#ifndef TREADLE_RUN_EVENTS_H
#define TREADLE_RUN_EVENTS_H

#include "base/text.h"

typedef struct treadle_metric {
  const char *name; /* "train/loss"; letters, digits, '_' and '/' */
  double value;
  bool is_whole; /* written without a fraction */
} treadle_metric;

/* Each appends one record. */
void treadle_event_version(treadle_builder *to, double wall_seconds); /* the first of a file */
/* The values of `step` and later ones in older files are void: a run goes on from a checkpoint. */
void treadle_event_start(treadle_builder *to, double wall_seconds, int64_t step);
/* The values, as fp32. */
void treadle_event_values(treadle_builder *to, double wall_seconds, int64_t step,
                          const treadle_metric *metrics, size_t count);

#endif
