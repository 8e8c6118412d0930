/* Twins: copies in host memory of classes that leave the device.
 *
 *   1. A twin is made with the switch, touched once, pinned, and never grows.
 *   2. Gradients and optimizer state are copied before the first wave; params page by page, each before the wave
 *      that reclaims it, and the rest after the last wave: reading and copying a page are one pass.
 *   3. On the way back, only pages that the class no longer owns are loaded.
 *   4. Pages that the infer window shares leave only for mode HOST. If the switch cannot enter HOST, the twin has addresses
 *      for them and no memory. */
#ifndef TREADLE_MEMORY_TWINS_H
#define TREADLE_MEMORY_TWINS_H

#include "memory/books.h"
#include "memory/device.h"

/* Host memory of a class. */
typedef struct treadle_twin {
  char *base; /* NULL: none */
  size_t bytes;
  uint8_t *has; /* params: by page of the window, has the twin what it holds? */
} treadle_twin;

typedef struct treadle_twins {
  const treadle_device *device;
  treadle_books *books;
  char
      *base; /* of the whole pool; pages of params, gradients and optimizer state follow each other there */
  bool shared_leave;                      /* aliased pages leave, too: there is a mode HOST */
  treadle_status (*check)(void *context); /* TREADLE_CANCELLED: copying out is to stop */
  void *context;
  treadle_switch_stats *figures;
  treadle_twin of[TREADLE_TRAIN_CLASSES];
  char *reference; /* host memory: parameters of another model, which never change; NULL: none */
  size_t reference_bytes;
} treadle_twins;

/* Pages of the class for which its twin has memory. Needs only books and shared_leave. */
int64_t treadle_twins_pages(const treadle_twins *twins, treadle_class which);
/* Those that are wanted; names: of the classes, for messages. */
treadle_status treadle_twins_create(treadle_twins *twins, const bool wanted[TREADLE_TRAIN_CLASSES],
                                    const char *const names[TREADLE_TRAIN_CLASSES]);
void treadle_twins_release(treadle_twins *twins);

/* The class leaves the device: copied to its twin, or dropped where it has none. It fails when it was told to stop: then the
 * class has not left. */
treadle_status treadle_twins_offload(treadle_twins *twins, treadle_class which);
/* The class comes back: what of its window is not its own is copied from the twin. It fails where the device does. */
treadle_status treadle_twins_load(treadle_twins *twins, treadle_class which);

/* ---- The reference: it comes, and nothing of it is ever copied back ---- */

/* Where the tables have pages of it. */
treadle_status treadle_twins_make_reference(treadle_twins *twins, const char *name);
/* Its pages are its own, and have its bytes. */
treadle_status treadle_twins_load_reference(treadle_twins *twins);

/* ---- Params, page by page ---- */

/* Nothing in the twin is up to date. */
void treadle_twins_begin(treadle_twins *twins);
/* Copies to the twin the pages of params under these pages of the infer window, unless it has them already. */
treadle_status treadle_twins_fill(treadle_twins *twins, const int32_t *pages, size_t count);
/* Copies all pages of params that the infer window does not share. */
treadle_status treadle_twins_fill_all(treadle_twins *twins);

#endif
