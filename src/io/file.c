/* Whole files.
 *
 * Writing: the content goes to a new file beside the path, reaches the disk (fsync), takes the path's name
 * (rename, which replaces in one step), and then the folder that has the name reaches the disk. So at any
 * moment the path is the old file or the new one, whole. Until the rename, every failure ends with
 * unlinking the new file. The folder is opened before anything is written, since a folder that cannot be
 * opened could not be synced after the rename. */
#include "io/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "path: cannot <verb>: <why>"; errno is that of the call that failed. */
static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

treadle_status treadle_file_open(const char *path, int *fd_p, size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  struct stat about;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait for its writer */
  if (fd < 0) return system_says(path, "open");
  if (fstat(fd, &about) != 0) {
    status = system_says(path, "stat");
    goto out;
  }
  if (!S_ISREG(about.st_mode)) {
    status = treadle_fail(TREADLE_REFUSED, "%s: is a %s, not a file", path,
                          S_ISDIR(about.st_mode) ? "folder" : "pipe or a device");
    goto out;
  }
  *fd_p = fd;
  *bytes_p = (size_t)about.st_size;
out:
  if (status != TREADLE_OK) close(fd);
  return status;
}

treadle_status treadle_file_read(const char *path, size_t limit, char **bytes_p, size_t *count_p) {
  int fd = -1;
  char *bytes = NULL;
  size_t count = 0, done = 0;
  treadle_status status;
  TRY(treadle_file_open(path, &fd, &count));
  if (count > limit) {
    status = treadle_fail(TREADLE_REFUSED, "%s: has %zu bytes, at most %zu are read", path, count, limit);
    goto out;
  }
  bytes = treadle_alloc(count + 1);
  if (!bytes) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its %zu bytes", path, count);
    goto out;
  }
  while (done < count) {
    ssize_t got = read(fd, bytes + done, count - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status = system_says(path, "read");
      goto out;
    }
    if (got == 0) {
      status = treadle_fail(TREADLE_SYSTEM, "%s: ended after %zu of %zu bytes", path, done, count);
      goto out;
    }
    done += (size_t)got;
  }
  *bytes_p = bytes;
  *count_p = count;
  bytes = NULL;
out:
  treadle_free(bytes);
  if (fd >= 0) close(fd);
  return status;
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
    *fd_p = open(buffer, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd_p >= 0) return TREADLE_OK;
    if (errno != EEXIST) break;
  }
  return system_says(buffer, "create");
}

static treadle_status write_all(int fd, const char *path, const void *bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    ssize_t put = write(fd, (const char *)bytes + done, count - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_says(path, "write");
    done += (size_t)put;
  }
  return TREADLE_OK;
}

treadle_status treadle_file_write_parts(const char *path, const treadle_file_part *parts, size_t count) {
  int fd = -1, folder = -1;
  bool created = false;
  treadle_status status;
  size_t buffer_bytes = strlen(path) + 64;
  char *buffer = treadle_alloc(buffer_bytes);
  if (!buffer) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path);

  TRY(open_folder(path, buffer, &folder));
  TRY(create_beside(path, buffer, buffer_bytes, &fd));
  created = true;
  for (size_t i = 0; i < count; i++) TRY(write_all(fd, path, parts[i].bytes, parts[i].count));
  if (fsync(fd) != 0) {
    status = system_says(path, "sync");
    goto out;
  }
  int closed = close(fd);
  fd = -1;
  if (closed != 0) {
    status = system_says(path, "close");
    goto out;
  }
  if (rename(buffer, path) != 0) {
    status = system_says(path, "rename the new file to it");
    goto out;
  }
  created = false;
  if (fsync(folder) != 0 && errno != EINVAL) /* EINVAL: a file system that does not sync folders */
    status = system_says(path, "sync its folder");
out:
  if (fd >= 0) close(fd);
  if (created) unlink(buffer);
  if (folder >= 0) close(folder);
  treadle_free(buffer);
  return status;
}

treadle_status treadle_file_write(const char *path, const void *bytes, size_t count) {
  treadle_file_part part = {bytes, count};
  return treadle_file_write_parts(path, &part, 1);
}

bool treadle_file_is_folder(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

bool treadle_file_exists(const char *path) {
  struct stat about;
  return stat(path, &about) == 0;
}
