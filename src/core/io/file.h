/* Whole files: read into memory, written whole or not at all. */
#ifndef TREADLE_IO_FILE_H
#define TREADLE_IO_FILE_H

#include "base/status.h"

#include <stdint.h>

/* Reads at most limit bytes; a larger file is refused. *bytes_p is ended by treadle_free(); a 0 byte
 * follows the content. */
treadle_status treadle_file_read(const char *path, size_t limit, char **bytes_p, size_t *count_p);

/* Writes a temporary file beside path, fsync, rename, fsync of the folder. On failure nothing is left, and
 * a file that was there before stands. What is there before must be a plain file: a link, a folder, a device, a pipe or a
 * socket at the end of the path is TREADLE_REFUSED. Folders on the way may be links. */
treadle_status treadle_file_write(const char *path, const void *bytes, size_t count);

/* The same for content that lies in several places. */
typedef struct treadle_file_part {
  const void *bytes;
  size_t count;
} treadle_file_part;
treadle_status treadle_file_write_parts(const char *path, const treadle_file_part *parts, size_t count);

/* The same in steps, for content that is made piece by piece. Until the commit the path is as it was; the
 * path shows the new file, whole, from the commit on. destroy ends the writer and, without a commit, the
 * temporary file; NULL is fine. */
typedef struct treadle_file_writer treadle_file_writer;
treadle_status treadle_file_writer_create(const char *path, treadle_file_writer **writer_p);
treadle_status treadle_file_writer_append(treadle_file_writer *writer, const void *bytes, size_t count);
/* Overwrites `count` bytes at `at`, which were appended before. */
treadle_status treadle_file_writer_patch(treadle_file_writer *writer, int64_t at, const void *bytes,
                                         size_t count);
treadle_status treadle_file_writer_commit(treadle_file_writer *writer);

/* After the commit: bytes and sum of the file, as treadle_file_sum() finds them. */
void treadle_file_writer_sum(const treadle_file_writer *writer, int64_t *bytes_p, uint64_t *sum_p);
void treadle_file_writer_destroy(treadle_file_writer *writer);

/* Bytes and sum of a plain file: XXH3 of its blocks, block after block. */
treadle_status treadle_file_sum(const char *path, int64_t *bytes_p, uint64_t *sum_p);

/* Opens a plain file for reading, ready to be mapped or read. *fd_p is ended by close(). A folder, a pipe
 * or a device is TREADLE_REFUSED, what the system does not open TREADLE_SYSTEM. */
treadle_status treadle_file_open(const char *path, int *fd_p, size_t *bytes_p);

bool treadle_file_is_folder(const char *path);
/* Is the name there? Also where it is a link that leads nowhere, or where one may not look: absence is not what cannot be read. */
bool treadle_file_exists(const char *path);

#endif
