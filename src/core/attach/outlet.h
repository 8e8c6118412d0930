/* The owner's side of handles: the outlet, through which other processes read one window. It has the sheet, and the
 * thread that gives readers descriptors of sheet and pool (service.c).
 *
 * An outlet gets the facts of its window once, and they never change. Its owner tells it which version is in the
 * window, and ends all holds before it takes the window away. One thread at a time may use it. */
#ifndef TREADLE_ATTACH_OUTLET_H
#define TREADLE_ATTACH_OUTLET_H

#include "attach/handle.h"
#include "memory/device.h"
#include "treadle.h"

/* The window that an outlet is for. The outlet copies what it needs; device and pool are there
 * as long as it is. */
typedef struct treadle_outlet_window {
  treadle_class which;
  int32_t rank, ranks;
  const char *layout;                   /* its text form */
  const treadle_storage_info *storages; /* [storage_count] */
  int32_t storage_count;
  int64_t bytes; /* of what is in the window */
  int64_t page_bytes, pages, pool_pages;
  const int32_t *table; /* [pages] physical page of each page; NULL: there are none */
  const treadle_device *device;
  const treadle_pool *pool; /* of the device */
} treadle_outlet_window;

typedef struct treadle_outlet treadle_outlet;

/* Readers can attach from here on, and find no version in the window. */
treadle_status treadle_outlet_create(const treadle_outlet_window *window, treadle_outlet **outlet_p);
/* Readers hear that the owner is gone. In a child made by fork, this frees only what is the child's. */
void treadle_outlet_destroy(treadle_outlet *outlet);

/* The handle, to be copied. */
const treadle_handle *treadle_outlet_handle(const treadle_outlet *outlet);

/* Readers hear which version is in the window (0: none), and which was committed last. They are woken only for news. */
void treadle_outlet_tell(treadle_outlet *outlet, uint64_t valid, uint64_t committed);

/* The window is about to be taken away: readers hear that no version is in it, and this waits until nobody holds one.
 * If a reader still does after `seconds`, it is named: TREADLE_TIMEOUT. `check` is called often meanwhile; a status
 * other than TREADLE_OK ends the wait. Whether this fails or not, call treadle_outlet_tell in the end. */
treadle_status treadle_outlet_end_holds(treadle_outlet *outlet, uint64_t committed, double seconds,
                                        treadle_status (*check)(void *context), void *context);

#endif
