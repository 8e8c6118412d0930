/* Parking of page tables.
 *
 * MREMAP_DONTUNMAP (for shared memory since Linux 5.13) leaves the old mapping in place, without pages, so that at no moment
 * another thread's mmap can be given the address. On the way back the parking place is left so too, and the window's empty
 * mapping is replaced by the writable one in the same call. */
#include "memory/parking.h"

#include "base/text.h"
#include "memory/pool.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP /* older headers */
#define MREMAP_DONTUNMAP 4
#endif

enum { TABLE = TREADLE_HUGE_PAGE }; /* tables are moved whole where both addresses begin at this */

treadle_status treadle_parking_init(treadle_parking *parking, void *window, size_t bytes) {
  *parking = (treadle_parking){.window = window, .bytes = bytes};
  if (bytes == 0) return TREADLE_OK;
  char *room = mmap(NULL, bytes + TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return treadle_fail(TREADLE_NO_MEMORY, "no address range of %s: %s", treadle_text_of_size(bytes),
                        strerror(errno));
  parking->room = room;
  parking->place = room + (TABLE - (uintptr_t)room % TABLE) % TABLE;
  return TREADLE_OK;
}

void treadle_parking_release(treadle_parking *parking) {
  if (parking->room) munmap(parking->room, parking->bytes + TABLE);
  *parking = (treadle_parking){0};
}

/* The system call itself: libraries under an MPI (UCX) take the place of mremap() with one that drops the address. */
static bool move(char *from, char *to, size_t bytes) {
  const long flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  return syscall(SYS_mremap, from, bytes, bytes, flags, to) == (long)(uintptr_t)to;
}

void treadle_parking_close(treadle_parking *parking) {
  if (parking->closed || parking->bytes == 0) return;
  parking->parked = move(parking->window, parking->place, parking->bytes);
  mprotect(parking->window, parking->bytes, PROT_READ);
  parking->closed = true;
}

bool treadle_parking_open(treadle_parking *parking) {
  if (!parking->closed) return true;
  if ((!parking->parked || !move(parking->place, parking->window, parking->bytes)) &&
      mprotect(parking->window, parking->bytes, PROT_READ | PROT_WRITE) != 0)
    return false;
  parking->closed = parking->parked = false;
  return true;
}
