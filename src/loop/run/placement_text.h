/* The text of a place in RLinf's cluster.component_placement (rlinf/scheduler/placement/placement.py): parts with commas between, each RESOURCES or
 * RESOURCES:PROCESSES, a number or a range as 0-3. Resources are accelerators. Processes are numbered over all parts, and there is one for each
 * resource where they are not given; "0-1:0-3" has processes 0 and 1 on accelerator 0, and 2 and 3 on accelerator 1. */
#ifndef TREADLE_RUN_PLACEMENT_TEXT_H
#define TREADLE_RUN_PLACEMENT_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct treadle_placement_part {
  int64_t first, last;        /* accelerators */
  int64_t process, processes; /* the first one, and how many */
} treadle_placement_part;

enum { TREADLE_PLACEMENT_PARTS = 64 };

typedef struct treadle_placement_text {
  bool is_all; /* all accelerators, with a process each; then there are no parts */
  size_t count;
  treadle_placement_part parts[TREADLE_PLACEMENT_PARTS];
} treadle_placement_text;

/* `head` begins a refusal. Refused: what is not such a text; accelerators that are named twice; processes that do not ascend without a gap; numbers
 * of accelerators and processes of which neither divides the other. */
treadle_status treadle_placement_parse(const char *head, const char *text,
                                       treadle_placement_text *placement);
/* The first accelerator of a process of a part, and how many it has. */
int64_t treadle_placement_resource(const treadle_placement_part *part, int64_t process, int64_t *count_p);

/* "3" or "0-3", without spaces around; the length without spaces, where the text begins then. */
bool treadle_placement_range(const char *text, size_t length, int64_t *first_p, int64_t *last_p);
size_t treadle_placement_trim(const char **text_p, size_t length);

#endif
