/* Writing whole files.
 *
 * The content goes to a new file beside the path, reaches the disk (fsync), takes the path's name (rename,
 * which replaces in one step), and then the folder that has the name reaches the disk. So at any moment the
 * path is the old file or the new one, whole. Until the rename, every failure ends with unlinking the new
 * file. The folder is opened before anything is written, since a folder that cannot be opened could not be
 * synced after the rename.
 *
 * A rename would put a plain file in the place of whatever has the name: a device that a program writes to, a link that
 * leads to where the file was meant to be. So what is there must be a plain file, when the writer begins and again when it
 * ends.
 *
 * What is written may lie in a mapped file that has become shorter. The system then says "bad address" of the write; the
 * same bytes are touched here, so that the mapping is known to be lost, and it is blamed. */
#include "io/file.h"
#include "io/file_look.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "io/file_map.h"
#include "io/file_sum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of one call. Longer ones make the system look for larger stretches of free memory for its cache, which may take
 * ten times as long as the copy (docs/speed.md). */
enum { WRITE_MAX = 1 << 20 };

struct treadle_file_writer {
  int fd, folder;
  bool created; /* the temporary is there */
  char *path, *temporary;
  size_t temporary_bytes; /* of room */
  treadle_file_sums sums;
  int64_t bytes;
  uint64_t sum; /* from the commit on */
};

/* "path: cannot <verb>: <why>"; errno is that of the call that failed. */
static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

/* The folder of a path, opened; `buffer` has room for the path. */
static treadle_status open_folder(const char *path, char *buffer, int *fd_p) {
  strcpy(buffer, path);
  char *slash = strrchr(buffer, '/');
  if (!slash)
    strcpy(buffer, ".");
  else
    slash[slash == buffer] = 0; /* of "/x" the "/" stays */
  *fd_p = open(buffer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return *fd_p < 0 ? system_says(buffer, "open the folder") : TREADLE_OK;
}

/* A new file beside path. Its name has this process's id and a number; one that a killed process left
 * behind is passed over. */
static treadle_status create_beside(const char *path, char *buffer, size_t buffer_bytes, int *fd_p) {
  static atomic_uint number;
  for (int attempt = 0; attempt < 100; attempt++) {
    snprintf(buffer, buffer_bytes, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&number, 1));
    *fd_p = open(buffer, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd_p >= 0) return TREADLE_OK;
    if (errno != EEXIST) break;
  }
  return system_says(buffer, "create");
}

treadle_status treadle_file_writer_create(const char *path, treadle_file_writer **writer_p) {
  treadle_status status;
  size_t length = strlen(path);
  treadle_file_writer *writer = treadle_alloc(sizeof *writer);
  *writer_p = NULL;
  if (!writer) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path);
  writer->fd = writer->folder = -1;
  writer->temporary_bytes = length + 64;
  writer->path = treadle_alloc(length + 1);
  writer->temporary = treadle_alloc(writer->temporary_bytes);
  if (!writer->path || !writer->temporary) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path);
    goto out;
  }
  memcpy(writer->path, path, length);
  TRY(open_folder(path, writer->temporary, &writer->folder));
  TRY(treadle_file_check_plain(path));
  TRY(create_beside(path, writer->temporary, writer->temporary_bytes, &writer->fd));
  writer->created = true;
  *writer_p = writer;
  writer = NULL;
out:
  treadle_file_writer_destroy(writer);
  return status;
}

/* A write from bytes that the system cannot read: they are read here, and whose they are says what has happened. */
static treadle_status blame(const treadle_file_writer *writer, const void *bytes, size_t count) {
  treadle_file_stamp stamp;
  treadle_status status = TREADLE_OK;
  if (treadle_file_mapped_stamp(bytes, &stamp)) {
    volatile uint64_t sum = treadle_hash_bytes(bytes, count, 0);
    (void)sum;
    TRY(treadle_file_intact(bytes));
  }
  status = treadle_fail(TREADLE_SYSTEM, "%s: cannot write: %s", writer->path, strerror(EFAULT));
out:
  return status;
}

treadle_status treadle_file_writer_append(treadle_file_writer *writer, const void *bytes, size_t count) {
  treadle_status status = TREADLE_OK;
  for (size_t done = 0, summed = 0; done < count;) {
    size_t some = count - done < WRITE_MAX ? count - done : WRITE_MAX;
    const char *from = (const char *)bytes + done;
    if (done + some > summed) {
      TRY(treadle_file_sums_add(&writer->sums, (const char *)bytes + summed, done + some - summed));
      summed = done + some;
      TRY(treadle_file_intact(from)); /* zeros in the place of what is gone are not written */
    }
    ssize_t put = write(writer->fd, from, some);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EFAULT) TRY(blame(writer, from, some));
    if (put < 0) TRY(system_says(writer->path, "write"));
    done += (size_t)put;
    writer->bytes += put;
  }
out:
  return status;
}

treadle_status treadle_file_writer_patch(treadle_file_writer *writer, int64_t at, const void *bytes,
                                         size_t count) {
  treadle_status status;
  TRY(treadle_file_sums_patch(&writer->sums, at, count));
  for (size_t done = 0; done < count;) {
    ssize_t put = pwrite(writer->fd, (const char *)bytes + done, count - done, at + (off_t)done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) TRY(system_says(writer->path, "write"));
    done += (size_t)put;
  }
out:
  return status;
}

void treadle_file_writer_sum(const treadle_file_writer *writer, int64_t *bytes_p, uint64_t *sum_p) {
  *bytes_p = writer->bytes;
  *sum_p = writer->sum;
}

treadle_status treadle_file_writer_commit(treadle_file_writer *writer) {
  treadle_status status;
  TRY(treadle_file_sums_end(&writer->sums, writer->path, writer->fd, &writer->sum));
  if (fsync(writer->fd) != 0) return system_says(writer->path, "sync");
  int closed = close(writer->fd);
  writer->fd = -1;
  if (closed != 0) return system_says(writer->path, "close");
  TRY(treadle_file_check_plain(writer->path));
  if (rename(writer->temporary, writer->path) != 0)
    return system_says(writer->path, "rename the new file to it");
  writer->created = false;
  if (fsync(writer->folder) != 0 && errno != EINVAL) /* EINVAL: a file system that does not sync folders */
    return system_says(writer->path, "sync its folder");
out:
  return status;
}

void treadle_file_writer_destroy(treadle_file_writer *writer) {
  if (!writer) return;
  if (writer->fd >= 0) close(writer->fd);
  if (writer->created) unlink(writer->temporary);
  if (writer->folder >= 0) close(writer->folder);
  treadle_file_sums_release(&writer->sums);
  treadle_free(writer->temporary);
  treadle_free(writer->path);
  treadle_free(writer);
}

treadle_status treadle_file_write_parts(const char *path, const treadle_file_part *parts, size_t count) {
  treadle_file_writer *writer = NULL;
  treadle_status status;
  TRY(treadle_file_writer_create(path, &writer));
  for (size_t i = 0; i < count; i++)
    TRY(treadle_file_writer_append(writer, parts[i].bytes, parts[i].count));
  TRY(treadle_file_writer_commit(writer));
out:
  treadle_file_writer_destroy(writer);
  return status;
}

treadle_status treadle_file_write(const char *path, const void *bytes, size_t count) {
  treadle_file_part part = {bytes, count};
  return treadle_file_write_parts(path, &part, 1);
}
