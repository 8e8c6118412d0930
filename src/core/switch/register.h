/* Memory of the caller in place of a part of a window: registered, and copied at every arrow that needs it (register.c). */
#ifndef TREADLE_SWITCH_REGISTER_H
#define TREADLE_SWITCH_REGISTER_H

#include "treadle.h"

/* The caller's own memory. */
typedef struct treadle_caller_memory {
  treadle_class which;
  size_t offset, bytes; /* offset: in the window of params */
  char *memory, *twin;  /* twin: of gradients and optimizer state that is copied */
  bool away;            /* what it holds was copied out, and not back yet */
} treadle_caller_memory;

/* Is all memory that was registered still there? */
treadle_status treadle_caller_memory_check(const treadle_switch *sw);
/* The caller's params to the window; gradients and optimizer state to their twins. Back: what was copied out. */
treadle_status treadle_caller_memory_out(treadle_switch *sw, treadle_class which);
/* In mode TRAIN: the caller's params are in the window, for who reads it there. */
treadle_status treadle_caller_memory_show(treadle_switch *sw);
treadle_status treadle_caller_memory_back(treadle_switch *sw, treadle_class which);
void treadle_caller_memory_release(treadle_switch *sw);

#endif
