/* The text of one prompt as it comes: on standard output, character by character; its samples one below the other. */
#ifndef TREADLE_CLI_SAMPLE_STREAM_H
#define TREADLE_CLI_SAMPLE_STREAM_H

#include "cli/cli.h"

#include "base/text.h"

/* A zeroed struct begins. */
typedef struct treadle_sample_stream {
  bool shows;     /* to a terminal: what it would obey is shown */
  int64_t sample; /* whose text is printed; that of later ones waits */
  treadle_builder *waiting;
  int64_t room;
} treadle_sample_stream;

/* New text of a sample, maybe none. */
treadle_status treadle_sample_stream_put(treadle_sample_stream *stream, int64_t sample, const char *text,
                                         size_t bytes);
/* The sample whose text is printed has ended. */
treadle_status treadle_sample_stream_next(treadle_sample_stream *stream);
void treadle_sample_stream_release(treadle_sample_stream *stream);

#endif
