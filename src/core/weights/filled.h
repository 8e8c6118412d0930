/* Which storage tensors of a window were given their values: by a load, by the caller's own memory, or by a word of the caller.
 *
 * A window begins full of zeros, which look like weights. So the owner of a window keeps such a record, and asks it before the window is
 * served or saved. Records are known by the addresses of their windows: what fills one (load.c, the trainer) need not know whose it is.
 * Any thread. To ask a record of a full window is to look at one number. */
#ifndef TREADLE_WEIGHTS_FILLED_H
#define TREADLE_WEIGHTS_FILLED_H

#include "layout/layout.h"

typedef struct treadle_filled treadle_filled;

/* Of the window of a rank in a layout, which outlives it. `all`: nothing of it is to be asked for. */
treadle_status treadle_filled_create(const treadle_layout *layout, int64_t rank, const void *window,
                                     bool all, treadle_filled **filled_p);
void treadle_filled_destroy(treadle_filled *filled);

/* A storage tensor, by the number that users know; those that lie in some bytes of the window as a whole; all. */
void treadle_filled_tensor(treadle_filled *filled, int32_t storage);
void treadle_filled_bytes(treadle_filled *filled, size_t offset, size_t bytes);
void treadle_filled_all(treadle_filled *filled);
/* Memory was filled, whatever it is: records of windows in it hear of that. */
void treadle_filled_memory(const void *memory, size_t bytes);

/* Refused where a storage tensor that has values was not given any: their names (the first ones) and their number. what: "switch to
 * infer". */
treadle_status treadle_filled_check(treadle_filled *filled, const char *what);
/* The same of the record of a window, where there is one. */
treadle_status treadle_filled_check_window(const void *window, const char *what);

#endif
