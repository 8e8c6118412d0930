/* Mapping files, and living through what becomes of them.
 *
 * Every mapping has a row of a table. Rows are added and emptied under a lock; the handler, which may come at any moment in
 * any thread, reads them without one. Blocks of rows are never given back, so what it walks along is always there. It finds
 * the row of an address that its own thread is just reading, and that row is not going anywhere: whoever unmaps a file
 * that another thread reads has a fault of his own. Of other rows it may see halves, which `begin`, written last and
 * cleared first, keeps apart.
 *
 * Pages of zeros take the place of all that follows in the mapping. So a thread never faults twice on one page, and a
 * loop over what is gone ends. */
#include "io/file_map.h"

#include "base/alloc.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 32 };

typedef struct row {
  atomic_uintptr_t begin, end; /* whole pages; begin 0: empty */
  atomic_bool lost;
  void *image;
  char *path;
  treadle_file_stamp stamp;
} row;

typedef struct block {
  row rows[ROWS];
  struct block *next;
} block;

static _Atomic(block *) blocks;
static atomic_uint losses; /* so far, of all mappings */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t mapped; /* rows in use */
static bool handling; /* our handler was set, and the former one not yet again */
static struct sigaction former;

static uintptr_t page_bytes(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

/* The row whose mapping has an address; NULL: none. */
static row *find(uintptr_t at) {
  for (block *b = atomic_load(&blocks); b; b = b->next)
    for (int i = 0; i < ROWS; i++) {
      uintptr_t begin = atomic_load(&b->rows[i].begin), end = atomic_load(&b->rows[i].end);
      if (begin && at >= begin && at < end && atomic_load(&b->rows[i].begin) == begin) return &b->rows[i];
    }
  return NULL;
}

/* ---- The handler ------------------------------------------------------------------------------- */

static void hand_on(int number, siginfo_t *info, void *context) {
  if (former.sa_flags & SA_SIGINFO) {
    former.sa_sigaction(number, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(number);
  } else if (former.sa_handler == SIG_DFL || info->si_code > 0) { /* a fault cannot be ignored */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(number, &plain, NULL);
    raise(number); /* comes when this handler is left */
  }
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
  int error = errno;
  uintptr_t at = (uintptr_t)info->si_addr;
  row *r = info->si_code > 0 ? find(at) : NULL; /* else somebody has sent it */
  if (r) {
    uintptr_t page = at & ~(page_bytes() - 1), end = atomic_load(&r->end);
    atomic_store(&r->lost, true);
    atomic_fetch_add(&losses, 1);
    void *zeros = mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) r = NULL;
  }
  if (!r) hand_on(number, info, context);
  errno = error;
}

/* With the lock held. */
static void begin_handling(void) {
  struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&ours.sa_mask);
  if (handling) return;
  handling = sigaction(SIGBUS, NULL, &former) == 0 && sigaction(SIGBUS, &ours, NULL) == 0;
}

/* A handler that was set over ours stays, and ours behind it: it may know of no other way to hand things on. */
static void end_handling(void) {
  struct sigaction now;
  if (!handling || sigaction(SIGBUS, NULL, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_bus_error) return;
  handling = sigaction(SIGBUS, &former, NULL) != 0;
}

/* ---- The table --------------------------------------------------------------------------------- */

static row *free_row(void) {
  for (block *b = atomic_load(&blocks); b; b = b->next)
    for (int i = 0; i < ROWS; i++)
      if (!atomic_load(&b->rows[i].begin)) return &b->rows[i];
  block *fresh = calloc(1, sizeof *fresh); /* not one of the allocations that end with their caller */
  if (!fresh) return NULL;
  fresh->next = atomic_load(&blocks);
  atomic_store(&blocks, fresh);
  return &fresh->rows[0];
}

static bool add_row(void *image, size_t bytes, char *path, const treadle_file_stamp *stamp) {
  uintptr_t page = page_bytes();
  pthread_mutex_lock(&lock);
  row *r = free_row();
  if (r) {
    r->image = image;
    r->path = path;
    r->stamp = *stamp;
    atomic_store(&r->lost, false);
    atomic_store(&r->end, ((uintptr_t)image + bytes + page - 1) & ~(page - 1));
    atomic_store(&r->begin, (uintptr_t)image);
    mapped++;
    begin_handling();
  }
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

void treadle_file_unmap(const void *image, size_t bytes) {
  char *path = NULL;
  if (!image) return;
  pthread_mutex_lock(&lock);
  row *r = find((uintptr_t)image);
  if (r) {
    munmap(r->image, bytes);
    atomic_store(&r->begin, 0);
    path = r->path;
    r->path = NULL;
    if (--mapped == 0) end_handling();
  }
  pthread_mutex_unlock(&lock);
  treadle_free(path);
}

/* ---- Stamps ------------------------------------------------------------------------------------ */

static treadle_file_stamp stamp_of(const struct stat *about) {
  return (treadle_file_stamp){.device = (uint64_t)about->st_dev,
                              .inode = (uint64_t)about->st_ino,
                              .bytes = (int64_t)about->st_size,
                              .modified = about->st_mtim,
                              .changed = about->st_ctim};
}

static treadle_status stamp_descriptor(const char *path, int fd, treadle_file_stamp *stamp_p) {
  struct stat about;
  if (fstat(fd, &about) != 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: cannot stat: %s", path, strerror(errno));
  *stamp_p = stamp_of(&about);
  return TREADLE_OK;
}

treadle_status treadle_file_stamp_now(const char *path, treadle_file_stamp *stamp_p) {
  treadle_status status;
  int fd = -1;
  size_t bytes;
  TRY(treadle_file_open(path, &fd, &bytes));
  TRY(stamp_descriptor(path, fd, stamp_p));
out:
  if (fd >= 0) close(fd);
  return status;
}

bool treadle_file_mapped_stamp(const void *image, treadle_file_stamp *stamp_p) {
  pthread_mutex_lock(&lock);
  const row *r = image ? find((uintptr_t)image) : NULL;
  if (r) *stamp_p = r->stamp;
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

/* ---- Mapping ----------------------------------------------------------------------------------- */

treadle_status treadle_file_map(const char *path, const void **image_p, size_t *bytes_p) {
  int fd = -1;
  char *name = NULL;
  treadle_file_stamp stamp;
  treadle_status status;
  *image_p = NULL;
  TRY(treadle_file_open(path, &fd, bytes_p));
  TRY(stamp_descriptor(path, fd, &stamp));
  *bytes_p = (size_t)stamp.bytes;
  if (*bytes_p == 0) goto out; /* of nothing there is no mapping */
  name = treadle_alloc(strlen(path) + 1);
  if (!name) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to map it", path));
  strcpy(name, path);
  void *image = mmap(NULL, *bytes_p, PROT_READ, MAP_PRIVATE, fd, 0);
  if (image == MAP_FAILED)
    TRY(treadle_fail(TREADLE_SYSTEM, "%s: cannot map %zu bytes: %s", path, *bytes_p, strerror(errno)));
  if (!add_row(image, *bytes_p, name, &stamp)) {
    munmap(image, *bytes_p);
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to map it", path));
  }
  name = NULL;
  *image_p = image;
out:
  treadle_free(name);
  if (fd >= 0) close(fd);
  return status;
}

static treadle_status say_lost(const char *path, const treadle_file_stamp *first) {
  struct stat about;
  bool there = stat(path, &about) == 0;
  if (there && stamp_of(&about).inode == first->inode && about.st_size >= first->bytes)
    return treadle_fail(TREADLE_DIFFERENT,
                        "%s: a part of its %lld bytes could not be read: its disk fails, or it was cut off "
                        "and written anew while it was read",
                        path, (long long)first->bytes);
  if (there && stamp_of(&about).inode == first->inode)
    return treadle_fail(TREADLE_DIFFERENT,
                        "%s: became shorter while it was read (%lld bytes at first, now %lld)", path,
                        (long long)first->bytes, (long long)about.st_size);
  return treadle_fail(TREADLE_DIFFERENT,
                      "%s: became shorter while it was read (%lld bytes at first), and was replaced or "
                      "removed",
                      path, (long long)first->bytes);
}

treadle_status treadle_file_intact(const void *at) {
  treadle_status status = TREADLE_OK;
  if (!at || !atomic_load(&losses)) return TREADLE_OK;
  pthread_mutex_lock(&lock);
  const row *r = find((uintptr_t)at);
  if (r && atomic_load(&r->lost)) status = say_lost(r->path, &r->stamp);
  pthread_mutex_unlock(&lock);
  return status;
}

treadle_status treadle_file_unchanged(const void *at) {
  treadle_status status = treadle_file_intact(at);
  struct stat about;
  if (status || !at) return status;
  pthread_mutex_lock(&lock);
  const row *r = find((uintptr_t)at);
  if (r && stat(r->path, &about) == 0) {
    const treadle_file_stamp now = stamp_of(&about), *first = &r->stamp;
    bool same_file = now.inode == first->inode && now.device == first->device;
    if (same_file && now.bytes < first->bytes)
      status = say_lost(r->path, first);
    else if (same_file && (now.bytes != first->bytes || now.modified.tv_sec != first->modified.tv_sec ||
                           now.modified.tv_nsec != first->modified.tv_nsec))
      status = treadle_fail(TREADLE_DIFFERENT,
                            "%s: was written to since it was opened: what was read may be torn", r->path);
  }
  pthread_mutex_unlock(&lock);
  return status;
}
