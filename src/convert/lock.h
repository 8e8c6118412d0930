/* One conversion a folder: a lock on OUT/treadle-convert.lock, from before the first look at the folder to the end.
 *
 * The system holds it for an open file, and ends it with the process, however that ends: what a kill leaves is a file that
 * nobody holds. It is a lock of byte ranges (F_OFD_SETLK), which NFS asks its server for. Rank 0 takes all bytes, and keeps the
 * first when the others come, one byte each: whoever comes from outside wants all, so it waits for the last of them even
 * when rank 0 has died. A file that was locked may have been removed, or the whole folder, before the lock came: then it is
 * another file that has the name now, and the lock is taken anew.
 *
 * Where a file system does not lock, the folder is refused: two conversions could not be told from one. */
#ifndef TREADLE_CONVERT_LOCK_H
#define TREADLE_CONVERT_LOCK_H

#include "base/status.h"

#define TREADLE_LOCK_FILE "treadle-convert.lock"

typedef struct treadle_folder_lock {
  const char *folder;
  int fd;           /* -1: not held */
  bool made_folder; /* by taking it */
} treadle_folder_lock;

/* Makes the folder if there is none. Held by another: TREADLE_STATE, "another treadle writes here". */
treadle_status treadle_folder_lock_take(const char *folder, treadle_folder_lock *lock);
/* Lets processes 1, 2, ... of the same conversion in. */
treadle_status treadle_folder_lock_share(treadle_folder_lock *lock);
treadle_status treadle_folder_lock_join(const char *folder, int rank, treadle_folder_lock *lock);
/* Ends it. With `remove`, which is for the one that took it: removes the file, and the folder that it made, where nothing
 * else is in it. */
void treadle_folder_lock_end(treadle_folder_lock *lock, bool remove);

#endif
