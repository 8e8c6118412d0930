/* Reading whole files. Writing them is in file_write.c, mapping them in file_map.c. */
#include "io/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
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

bool treadle_file_is_folder(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* A link that leads nowhere is a name that is there, and so is what may not be looked at: whoever opens it says why it cannot. */
bool treadle_file_exists(const char *path) {
  struct stat about;
  if (stat(path, &about) == 0) return true;
  if (errno == ENOENT) return lstat(path, &about) == 0;
  return errno != ENOTDIR && errno != ENAMETOOLONG;
}
