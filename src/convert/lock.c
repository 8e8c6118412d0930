/* Taking, sharing and ending the lock of a folder. */
#include "convert/lock.h"

#include "base/alloc.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 1000, PATH_BYTES = 4096 };

typedef struct lock_path {
  char text[PATH_BYTES];
} lock_path;

static treadle_status path_of(const char *folder, lock_path *path) {
  int length = snprintf(path->text, sizeof path->text, "%s/%s", folder, TREADLE_LOCK_FILE);
  return length > 0 && (size_t)length < sizeof path->text
             ? TREADLE_OK
             : treadle_fail(TREADLE_REFUSED, "%s: the path is too long", folder);
}

/* `length` 0: to the end, wherever that is. */
static int set_lock(int fd, short type, off_t start, off_t length) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
  int done;
  do {
    done = fcntl(fd, F_OFD_SETLK, &range);
  } while (done != 0 && errno == EINTR);
  return done;
}

static treadle_status make_folder(const char *folder, bool *made) {
  if (mkdir(folder, 0777) == 0) {
    *made = true;
    return TREADLE_OK;
  }
  if (errno != EEXIST)
    return treadle_fail(TREADLE_SYSTEM, "%s: the folder cannot be made: %s", folder, strerror(errno));
  if (!treadle_file_is_folder(folder))
    return treadle_fail(TREADLE_REFUSED, "%s: is a file, and the result is a folder", folder);
  return TREADLE_OK;
}

/* Opens the file; *fd_p is -1 where the folder has gone meanwhile. */
static treadle_status open_file(const char *folder, const char *path, int flags, int *fd_p) {
  struct stat about;
  *fd_p = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0666);
  if (*fd_p < 0 && errno == ENOENT && (flags & O_CREAT)) return TREADLE_OK;
  if (*fd_p < 0 && errno == ELOOP)
    return treadle_fail(TREADLE_REFUSED, "%s: is a symbolic link, and must be a plain file", path);
  if (*fd_p < 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: cannot be written to: %s: %s", folder, TREADLE_LOCK_FILE,
                        strerror(errno));
  if (fstat(*fd_p, &about) == 0 && S_ISREG(about.st_mode)) return TREADLE_OK;
  close(*fd_p);
  *fd_p = -1;
  return treadle_fail(TREADLE_REFUSED, "%s: is no plain file", path);
}

static treadle_status say_why(const char *folder) {
  if (errno == EAGAIN || errno == EACCES)
    return treadle_fail(TREADLE_STATE, "%s: another treadle writes here", folder);
  return treadle_fail(
      TREADLE_SYSTEM,
      "%s: its file system holds no locks (%s), so that two conversions into one folder could "
      "not be told apart: convert into a folder elsewhere, and move it",
      folder, strerror(errno));
}

static bool has_name(int fd, const char *path) {
  struct stat held, named;
  return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

treadle_status treadle_folder_lock_take(const char *folder, treadle_folder_lock *lock) {
  treadle_status status;
  lock_path path;
  *lock = (treadle_folder_lock){.folder = folder, .fd = -1};
  TRY(path_of(folder, &path));
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    TRY(make_folder(folder, &lock->made_folder));
    TRY(open_file(folder, path.text, O_CREAT, &lock->fd));
    if (lock->fd < 0) continue;
    if (set_lock(lock->fd, F_WRLCK, 0, 0) != 0) {
      bool held = errno == EAGAIN || errno == EACCES;
      status = say_why(folder);
      if (!held) unlink(path.text); /* nobody can hold it */
      goto out;
    }
    if (has_name(lock->fd, path.text)) return TREADLE_OK;
    close(lock->fd);
    lock->fd = -1;
  }
  status =
      treadle_fail(TREADLE_STATE, "%s: other treadles come and go here: it could not be locked", folder);
out:
  treadle_folder_lock_end(lock, false);
  if (lock->made_folder) rmdir(folder); /* fails where somebody else is in it */
  lock->made_folder = false;
  return status;
}

treadle_status treadle_folder_lock_share(treadle_folder_lock *lock) {
  return set_lock(lock->fd, F_UNLCK, 1, 0) == 0 ? TREADLE_OK : say_why(lock->folder);
}

treadle_status treadle_folder_lock_join(const char *folder, int rank, treadle_folder_lock *lock) {
  treadle_status status;
  lock_path path;
  *lock = (treadle_folder_lock){.folder = folder, .fd = -1};
  TRY(path_of(folder, &path));
  TRY(open_file(folder, path.text, 0, &lock->fd));
  if (set_lock(lock->fd, F_WRLCK, rank, 1) != 0) TRY(say_why(folder));
out:
  if (status) treadle_folder_lock_end(lock, false);
  return status;
}

void treadle_folder_lock_end(treadle_folder_lock *lock, bool remove) {
  lock_path path;
  if (lock->fd < 0) return;
  if (remove && path_of(lock->folder, &path) == TREADLE_OK) unlink(path.text);
  close(
      lock->fd); /* before the folder goes: NFS keeps a removed file by another name as long as it is open */
  lock->fd = -1;
  if (remove && lock->made_folder) rmdir(lock->folder);
}
