/* Whole files: read into memory, written whole or not at all. */
#ifndef TREADLE_IO_FILE_H
#define TREADLE_IO_FILE_H

#include "base/status.h"

/* Reads at most limit bytes; a larger file is refused. *bytes_p is ended by treadle_free(); a 0 byte
 * follows the content. */
treadle_status treadle_file_read(const char *path, size_t limit, char **bytes_p, size_t *count_p);

/* Writes a temporary file beside path, fsync, rename, fsync of the folder. On failure nothing is left, and
 * a file that was there before stands. */
treadle_status treadle_file_write(const char *path, const void *bytes, size_t count);

/* The same for content that lies in several places. */
typedef struct treadle_file_part {
  const void *bytes;
  size_t count;
} treadle_file_part;
treadle_status treadle_file_write_parts(const char *path, const treadle_file_part *parts, size_t count);

/* Opens a plain file for reading, ready to be mapped or read. *fd_p is ended by close(). A folder, a pipe
 * or a device is TREADLE_REFUSED, what the system does not open TREADLE_SYSTEM. */
treadle_status treadle_file_open(const char *path, int *fd_p, size_t *bytes_p);

bool treadle_file_is_folder(const char *path);
bool treadle_file_exists(const char *path);

#endif
