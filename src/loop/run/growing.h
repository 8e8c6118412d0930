/* A file of a run to which lines are appended, each with one write: whoever reads beside the run, or after a kill, sees whole lines and at most one
 * that is not. What a full disk has taken of a line is taken back. */
#ifndef TREADLE_RUN_GROWING_H
#define TREADLE_RUN_GROWING_H

#include "base/text.h"

typedef struct treadle_growing {
  int fd;
  int64_t torn; /* the number of its last line, which was not whole and is cut off; 0: it was whole */
  char path[4096];
} treadle_growing;

/* Opens FOLDER/NAME, of JSON objects with a whole number "step", of a run that goes on after step `step`: lines of later steps, and a last one
 * that is not whole, are cut off. -1: the run is new, and nothing is kept. Another line is refused by its number. */
treadle_status treadle_growing_open(treadle_growing *file, const char *folder, const char *name,
                                    int64_t step);
/* A line for people, where a torn one was cut off; else "". */
void treadle_growing_note(const treadle_growing *file, char *text, size_t room);
/* All bytes, or none. */
treadle_status treadle_growing_append(treadle_growing *file, treadle_builder *text);

#endif
