/* Looking at a path, by stat for what is read and by lstat for what is written. */
#include "io/file_look.h"

#include "base/alloc.h"
#include "base/foreign.h"
#include "base/text.h"
#include "io/file.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static treadle_status cannot_look(const char *path) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot look there: %s", path, strerror(errno));
}

treadle_status treadle_file_look(const char *path, treadle_file_type *type_p) {
  struct stat about;
  *type_p = TREADLE_FILE_NONE;
  if (stat(path, &about) == 0) {
    *type_p = S_ISREG(about.st_mode)   ? TREADLE_FILE_PLAIN
              : S_ISDIR(about.st_mode) ? TREADLE_FILE_FOLDER
                                       : TREADLE_FILE_OTHER;
    return TREADLE_OK;
  }
  if (errno != ENOENT) return cannot_look(path);
  if (lstat(path, &about) == 0)
    return treadle_fail(TREADLE_REFUSED, "%s: is a symbolic link that leads nowhere", path);
  return errno == ENOENT ? TREADLE_OK : cannot_look(path);
}

/* The folder that a file at `path` is a name in, and whether names can be made there. */
static treadle_status check_above(const char *path) {
  const char *slash = strrchr(path, '/');
  size_t length = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
  treadle_status status = TREADLE_OK;
  treadle_file_type type;
  char *folder = treadle_alloc(length + 2);
  if (!folder) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path);
  memcpy(folder, slash ? path : ".", slash ? length : 1);
  TRY(treadle_file_look(folder, &type));
  if (type == TREADLE_FILE_NONE)
    status = treadle_fail(TREADLE_REFUSED, "%s: its folder %s does not exist", path, folder);
  else if (type != TREADLE_FILE_FOLDER)
    status = treadle_fail(TREADLE_REFUSED, "%s: %s is not a folder", path, folder);
  else if (access(folder, W_OK | X_OK) != 0)
    status = treadle_fail(TREADLE_REFUSED, "%s: cannot write in its folder %s: %s", path, folder,
                          strerror(errno));
out:
  treadle_free(folder);
  return status;
}

static const char *name_type(const struct stat *about) {
  static const struct {
    mode_t type;
    const char *words;
  } types[] = {{S_IFLNK, "a symbolic link"}, {S_IFDIR, "a folder"},       {S_IFCHR, "a device"},
               {S_IFREG, "a file"},          {S_IFBLK, "a block device"}, {S_IFIFO, "a pipe"},
               {S_IFSOCK, "a socket"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if ((about->st_mode & S_IFMT) == types[i].type) return types[i].words;
  return "of no known type";
}

treadle_status treadle_file_check_plain(const char *path) {
  struct stat about;
  if (lstat(path, &about) != 0) return errno == ENOENT ? TREADLE_OK : cannot_look(path);
  if (S_ISREG(about.st_mode)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: is %s, and only a plain file is replaced", path,
                      name_type(&about));
}

treadle_status treadle_file_check_folder(const char *path) {
  treadle_status status = TREADLE_OK;
  struct stat about;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--; /* behind a slash a link is followed */
  char *name = treadle_alloc(length + 1);
  if (!name) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path);
  memcpy(name, path, length);
  if (lstat(name, &about) != 0)
    status = errno == ENOENT ? TREADLE_OK : cannot_look(path);
  else if (S_ISLNK(about.st_mode))
    status = treadle_fail(
        TREADLE_REFUSED,
        "%s: is a symbolic link, and the folder of an output is not a link: give the path that it "
        "leads to",
        path);
  else if (!S_ISDIR(about.st_mode))
    status =
        treadle_fail(TREADLE_REFUSED, "%s: is %s, and the result is a folder", path, name_type(&about));
  treadle_free(name);
  return status;
}

treadle_status treadle_file_may_write(const char *path) {
  treadle_status status = TREADLE_OK;
  struct stat about;
  size_t length = strlen(path);
  if (length == 0) return treadle_fail(TREADLE_REFUSED, "an empty path names no file to write");
  if (lstat(path, &about) != 0) {
    if (errno != ENOENT) return cannot_look(path);
    if (path[length - 1] == '/')
      return treadle_fail(TREADLE_REFUSED, "%s: names a folder, not a file", path);
    return check_above(path);
  }
  TRY(treadle_file_check_plain(path));
  if (access(path, W_OK) != 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: cannot be written: %s", path, strerror(errno)));
  TRY(check_above(path));
out:
  return status;
}

treadle_status treadle_file_room(const char *folder, uint64_t bytes, uint64_t largest_file) {
  struct statvfs about;
  struct rlimit longest;
  if (statvfs(folder, &about) != 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: does not say how much room there is: %s", folder,
                        strerror(errno));
  uint64_t room = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
  if (room < bytes)
    return treadle_fail(TREADLE_SYSTEM, "%s: there is room for %s on its disk, and %s are to be written",
                        folder, treadle_text_of_size((size_t)room), treadle_text_of_size((size_t)bytes));
  if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur != RLIM_INFINITY &&
      longest.rlim_cur < largest_file)
    return treadle_fail(
        TREADLE_SYSTEM, "%s: a file of %s is to be written there, and RLIMIT_FSIZE (ulimit -f) allows %s",
        folder, treadle_text_of_size((size_t)largest_file), treadle_text_of_size((size_t)longest.rlim_cur));
  return TREADLE_OK;
}

treadle_status treadle_file_check_lines(const char *path) {
  char first[TREADLE_FOREIGN_BYTES];
  size_t bytes;
  int fd;
  if (treadle_file_open(path, &fd, &bytes)) return TREADLE_OK;
  ssize_t got = pread(fd, first, sizeof first, 0);
  close(fd);
  return got > 0 ? treadle_foreign_check(path, first, (size_t)got) : TREADLE_OK;
}
