/* Mapped files that others may change, or cut off, while they are read.
 *
 * A page that lies behind the end of its file, since that became shorter after it was mapped, cannot be read: the system
 * sends SIGBUS. So while files are mapped here the process has a handler for it (file_map.c). What lies in one of these
 * mappings reads as zeros from there on, the mapping is marked as lost, and whoever reads on asks before it believes
 * what it has read: treadle_file_intact(). What is not of these mappings goes to the handler that was there before, which
 * stands again when the last mapping is gone. A program that sets a handler of its own while treadle has files mapped
 * hands on from it what is none of its business.
 *
 * Safe in threads. */
#ifndef TREADLE_IO_FILE_MAP_H
#define TREADLE_IO_FILE_MAP_H

#include "base/status.h"

#include <stdint.h>
#include <time.h>

/* What the system says of a file at one moment. */
typedef struct treadle_file_stamp {
  uint64_t device, inode;
  int64_t bytes;
  struct timespec modified, changed;
} treadle_file_stamp;

/* Maps a plain file read-only. *image_p is NULL for an empty file; it is ended by unmap, which takes
 * NULL. */
treadle_status treadle_file_map(const char *path, const void **image_p, size_t *bytes_p);
void treadle_file_unmap(const void *image, size_t bytes);

/* Could all that was read of a mapping be read? TREADLE_DIFFERENT: no; its file is named. `at` lies anywhere in it; what
 * is none of treadle's mappings, NULL too, is intact. Costs next to nothing as long as nothing ever was lost. */
treadle_status treadle_file_intact(const void *at);

/* The same, and the file is what it was when it was mapped, as far as size and time of the last write say. A file that has
 * taken its name meanwhile does not count: the mapping has the old one. */
treadle_status treadle_file_unchanged(const void *at);

/* The stamp of the file as it was when it was mapped; false: this is not a mapping of treadle's. */
bool treadle_file_mapped_stamp(const void *image, treadle_file_stamp *stamp_p);

/* The stamp of a plain file now. It is opened for that: file systems of networks ask their server then. */
treadle_status treadle_file_stamp_now(const char *path, treadle_file_stamp *stamp_p);

#endif
