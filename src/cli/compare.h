/* Comparing a window with what it should hold, in words a user can act on. */
#ifndef TREADLE_CLI_COMPARE_H
#define TREADLE_CLI_COMPARE_H

#include "base/status.h"

/* A window: that of a class of a switch, whose memory need not be the host's; or (sw NULL) host memory. */
typedef struct treadle_window_source {
  treadle_switch *sw;
  treadle_class which;
  const void *memory;
} treadle_window_source;

/* Compares the window of `rank` in `layout` with `wanted`, byte by byte. TREADLE_DIFFERENT names the first
 * difference: rank, tensor, coordinate in Hugging Face's shape, both values. `when` is for the message. plan: of a
 * switch whose infer window this is, which says where storage tensors lie in both; else NULL. */
treadle_status treadle_compare_window(const treadle_layout *layout, const treadle_model *model,
                                      int64_t rank, const treadle_plan *plan,
                                      const treadle_window_source *window, const void *wanted,
                                      const char *when);

#endif
