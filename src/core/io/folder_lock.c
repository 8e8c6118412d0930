/* Taking, sharing and ending the lock of a folder. */
#include "io/folder_lock.h"

#include "base/json.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"
#include "io/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS = 1000, OWNER_BYTES = 300, FILE_BYTES = 512 };

/* `length` 0: to the end, wherever that is. */
static int set_lock(int fd, short type, off_t start, off_t length) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
  int done;
  do {
    done = fcntl(fd, F_OFD_SETLK, &range);
  } while (done != 0 && errno == EINTR);
  return done;
}

/* ---- The folder -------------------------------------------------------------------------------- */

/* The last `count` folders of a path. */
static void remove_folders(const char *folder, int count) {
  treadle_path path;
  snprintf(path.text, sizeof path.text, "%s", folder);
  for (size_t length = strlen(path.text); count > 0 && length > 0; count--) {
    while (length > 1 && path.text[length - 1] == '/') length--;
    path.text[length] = 0;
    if (rmdir(path.text) != 0) return; /* somebody else is in it */
    while (length > 0 && path.text[length - 1] != '/') length--;
  }
}

/* *made_p: how many were not there. */
static treadle_status make_folders(const char *folder, bool above, int *made_p) {
  const size_t length = strlen(folder);
  treadle_path part;
  for (size_t i = 1; i <= length; i++) {
    const bool last = folder[i + strspn(folder + i, "/")] == 0;
    if ((folder[i] != '/' && folder[i] != 0) || folder[i - 1] == '/' || (!above && !last)) continue;
    memcpy(part.text, folder, i);
    part.text[i] = 0;
    if (mkdir(part.text, 0777) == 0)
      ++*made_p;
    else if (errno != EEXIST)
      return treadle_fail(TREADLE_SYSTEM, "%s: the folder cannot be made: %s", folder, strerror(errno));
  }
  return treadle_file_check_folder(folder);
}

/* ---- The file ---------------------------------------------------------------------------------- */

/* fd is -1 where the folder has gone meanwhile. */
static treadle_status open_file(treadle_folder_lock *lock, const char *path, int flags) {
  struct stat about;
  lock->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0666);
  if (lock->fd < 0 && errno == ENOENT && (flags & O_CREAT)) return TREADLE_OK;
  if (lock->fd < 0 && errno == ELOOP) return treadle_file_check_plain(path);
  if (lock->fd < 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: cannot be written to: %s: %s", lock->folder, TREADLE_LOCK_FILE,
                        strerror(errno));
  lock->open = true;
  if (fstat(lock->fd, &about) == 0 && S_ISREG(about.st_mode)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: is not a plain file", path);
}

static bool has_name(int fd, const char *path) {
  struct stat held, named;
  return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

/* " process 12 on HOST, since ...": whom the file names; "" where it names nobody, as its owner has only just come. */
static void read_owner(int fd, char owner[OWNER_BYTES]) {
  char text[FILE_BYTES];
  ssize_t got = pread(fd, text, sizeof text - 1, 0);
  const treadle_json_source source = {
      .what = TREADLE_LOCK_FILE, .text = text, .count = got > 0 ? (size_t)got : 0};
  json_t *root = NULL;
  (void)treadle_json_read(&source, &root);
  const char *host = json_string_value(json_object_get(root, "host"));
  const char *start = json_string_value(json_object_get(root, "start"));
  const json_int_t process = json_integer_value(json_object_get(root, "process"));
  owner[0] = 0;
  if (host && start && process > 0)
    snprintf(owner, OWNER_BYTES, "process %lld on %.200s, since %.40s", (long long)process, host, start);
  json_decref(root);
}

static treadle_status write_owner(const treadle_folder_lock *lock) {
  char host[256] = "", start[32] = "", text[FILE_BYTES];
  const time_t now = time(NULL);
  struct tm utc;
  int length;
  if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "localhost");
  if (gmtime_r(&now, &utc)) strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", &utc);
  host[strcspn(host, "\"\\")] = 0;
  length = snprintf(text, sizeof text, "{\"host\": \"%s\", \"process\": %ld, \"start\": \"%s\"}\n", host,
                    (long)getpid(), start);
  if (ftruncate(lock->fd, 0) == 0 && pwrite(lock->fd, text, (size_t)length, 0) == length) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot write: %s: %s", lock->folder, TREADLE_LOCK_FILE,
                      strerror(errno));
}

/* ---- Locking ----------------------------------------------------------------------------------- */

/* What the failure of set_lock means: another has it, or nobody can. */
static treadle_status take_answer(treadle_folder_lock *lock) {
  char owner[OWNER_BYTES];
  lock->error = errno;
  if (lock->error != EAGAIN && lock->error != EACCES) {
    lock->unlocked = true;
    return TREADLE_OK;
  }
  read_owner(lock->fd, owner);
  return treadle_fail(TREADLE_REFUSED,
                      "%s: another treadle writes here%s%s (" TREADLE_LOCK_FILE
                      "): wait until it ends, or name another folder",
                      lock->folder, *owner ? ": " : "", owner);
}

treadle_status treadle_folder_lock_take(const char *folder, bool above, treadle_folder_lock *lock) {
  treadle_status status;
  treadle_path path;
  int made = 0, now;
  *lock = (treadle_folder_lock){.folder = folder};
  TRY(treadle_path_join(folder, TREADLE_LOCK_FILE, &path));
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    now = 0;
    status = make_folders(folder, above, &now);
    if (now > made) made = now;
    if (status) goto out;
    TRY(open_file(lock, path.text, O_CREAT));
    if (!lock->open) continue;
    if (set_lock(lock->fd, F_WRLCK, 0, 0) != 0) TRY(take_answer(lock));
    if (lock->unlocked || has_name(lock->fd, path.text)) {
      lock->made = made;
      if (lock->unlocked) read_owner(lock->fd, lock->before);
      status = write_owner(lock);
      goto out;
    }
    treadle_folder_lock_end(lock, false);
  }
  status =
      treadle_fail(TREADLE_REFUSED, "%s: other treadles come and go here: it could not be locked", folder);
out:
  if (status) {
    treadle_folder_lock_end(lock, false);
    remove_folders(folder, made);
  }
  return status;
}

treadle_status treadle_folder_lock_share(treadle_folder_lock *lock) {
  if (lock->unlocked || set_lock(lock->fd, F_UNLCK, 1, 0) == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s: the lock cannot be shared: %s", lock->folder, strerror(errno));
}

treadle_status treadle_folder_lock_join(const char *folder, int rank, treadle_folder_lock *lock) {
  treadle_status status;
  treadle_path path;
  *lock = (treadle_folder_lock){.folder = folder};
  TRY(treadle_path_join(folder, TREADLE_LOCK_FILE, &path));
  TRY(open_file(lock, path.text, 0));
  if (set_lock(lock->fd, F_WRLCK, rank, 1) != 0) TRY(take_answer(lock));
out:
  if (status) treadle_folder_lock_end(lock, false);
  return status;
}

void treadle_folder_lock_moved(treadle_folder_lock *lock, const char *folder) {
  lock->folder = folder;
  lock->made = 0;
}

void treadle_folder_lock_note(const treadle_folder_lock *lock, char *text, size_t room) {
  const char *owner = lock->before;
  if (room) text[0] = 0;
  if (!lock->open || !lock->unlocked) return;
  snprintf(
      text, room,
      "%s: its file system holds no locks (%s), so that another treadle could write here unseen: see to it "
      "that none does%s%s%s",
      lock->folder, strerror(lock->error), *owner ? "; the last one was " : "", owner,
      *owner ? " (" TREADLE_LOCK_FILE ")" : "");
}

void treadle_folder_lock_end(treadle_folder_lock *lock, bool remove) {
  treadle_path path;
  if (!lock->open) return;
  if (remove && treadle_path_join(lock->folder, TREADLE_LOCK_FILE, &path) == TREADLE_OK &&
      has_name(lock->fd, path.text))
    unlink(path.text);
  close(
      lock->fd); /* before the folder goes: NFS keeps a removed file by another name as long as it is open */
  lock->open = false;
  if (remove) remove_folders(lock->folder, lock->made);
}
