/* One owner a folder: a lock on FOLDER/treadle.lock, from before the first look at the folder to the end of what is
 * written in it.
 *
 * The system holds it for an open file, and ends it with the process, however that ends: what a kill leaves is a file
 * that nobody holds. The file says who has it: host, process, and since when. It is a lock of byte ranges
 * (F_OFD_SETLK), which NFS asks its server for. Rank 0 takes all bytes. Where the others write on their own, it keeps
 * the first byte when they come, one byte each: whoever comes from outside wants all, so it waits for the last of them
 * even when rank 0 has died. A file that was locked may have been removed, or the whole folder, before the lock came:
 * then it is another file that has the name now, and the lock is taken anew.
 *
 * Where a file system does not lock, the owner goes on without, and says so (treadle_folder_lock_note): two owners
 * could not be told from one. */
#ifndef TREADLE_IO_FOLDER_LOCK_H
#define TREADLE_IO_FOLDER_LOCK_H

#include "base/status.h"

#define TREADLE_LOCK_FILE "treadle.lock"

/* Zeroed: not held. */
typedef struct treadle_folder_lock {
  const char *folder; /* the caller's text */
  int fd;
  bool open;        /* the file is */
  bool unlocked;    /* the file system has no locks */
  int error;        /* what it says of them */
  int made;         /* folders that taking it made: this one, and this many above it */
  char before[300]; /* unlocked: whom the file named */
} treadle_folder_lock;

/* Makes the folder if there is none; with `above`, those above it, too. Refused: held by another ("another treadle
 * writes here", with what the file says), a link, no folder. */
treadle_status treadle_folder_lock_take(const char *folder, bool above, treadle_folder_lock *lock);
/* Lets processes 1, 2, ... of the same owner in. */
treadle_status treadle_folder_lock_share(treadle_folder_lock *lock);
treadle_status treadle_folder_lock_join(const char *folder, int rank, treadle_folder_lock *lock);
/* The folder, with the lock in it, has another name now. */
void treadle_folder_lock_moved(treadle_folder_lock *lock, const char *folder);
/* Is it held, so that nobody else owns the folder? */
static inline bool treadle_folder_lock_holds(const treadle_folder_lock *lock) {
  return lock->open && !lock->unlocked;
}
/* A line for people, where a lock was taken that the file system does not hold; "" where it does. */
void treadle_folder_lock_note(const treadle_folder_lock *lock, char *text, size_t room);
/* Ends it. With `remove`, which is for the one that took it: removes the file, and the folders that it made, where
 * nothing else is in them. */
void treadle_folder_lock_end(treadle_folder_lock *lock, bool remove);

#endif
