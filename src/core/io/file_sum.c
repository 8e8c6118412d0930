/* Sums of files, leaf by leaf. */
#include "io/file_sum.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "io/file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static treadle_status end_leaf(treadle_file_sums *sums, const void *bytes) {
  return treadle_array_push(&sums->leaves, treadle_hash_bytes(bytes, TREADLE_SUM_LEAF, 0));
}

treadle_status treadle_file_sums_add(treadle_file_sums *sums, const void *bytes, size_t count) {
  treadle_status status = TREADLE_OK;
  const unsigned char *from = bytes;
  if (!sums->part) sums->part = treadle_alloc(TREADLE_SUM_LEAF);
  if (!sums->part) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a sum");
  while (count > 0) {
    size_t room = TREADLE_SUM_LEAF - sums->part_bytes, some = count < room ? count : room;
    if (some == TREADLE_SUM_LEAF) {
      TRY(end_leaf(sums, from));
    } else {
      memcpy(sums->part + sums->part_bytes, from, some);
      sums->part_bytes += some;
      if (sums->part_bytes == TREADLE_SUM_LEAF) {
        sums->part_bytes = 0;
        TRY(end_leaf(sums, sums->part));
      }
    }
    from += some;
    count -= some;
  }
out:
  return status;
}

treadle_status treadle_file_sums_patch(treadle_file_sums *sums, int64_t at, size_t count) {
  treadle_status status = TREADLE_OK;
  for (int64_t leaf = at / TREADLE_SUM_LEAF; leaf * TREADLE_SUM_LEAF < at + (int64_t)count; leaf++)
    if (!sums->stale.count || sums->stale.items[sums->stale.count - 1] != leaf)
      TRY(treadle_array_push(&sums->stale, leaf));
out:
  return status;
}

/* Reads until there are this many bytes, or no more. */
static treadle_status read_at(const char *path, int fd, int64_t at, void *bytes, size_t count,
                              size_t *got_p) {
  for (*got_p = 0; *got_p < count;) {
    ssize_t got = pread(fd, (char *)bytes + *got_p, count - *got_p, (off_t)at + (off_t)*got_p);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return treadle_fail(TREADLE_SYSTEM, "%s: cannot read: %s", path, strerror(errno));
    if (got == 0) break;
    *got_p += (size_t)got;
  }
  return TREADLE_OK;
}

static treadle_status read_again(treadle_file_sums *sums, const char *path, int fd, int64_t leaf,
                                 unsigned char *bytes) {
  treadle_status status;
  bool whole = leaf < (int64_t)sums->leaves.count;
  size_t wanted = whole ? TREADLE_SUM_LEAF : sums->part_bytes, got;
  TRY(read_at(path, fd, leaf * TREADLE_SUM_LEAF, bytes, wanted, &got));
  if (got != wanted) TRY(treadle_fail(TREADLE_DIFFERENT, "%s: became shorter while it was written", path));
  if (whole)
    sums->leaves.items[leaf] = treadle_hash_bytes(bytes, TREADLE_SUM_LEAF, 0);
  else
    memcpy(sums->part, bytes, got);
out:
  return status;
}

treadle_status treadle_file_sums_end(treadle_file_sums *sums, const char *path, int fd, uint64_t *sum_p) {
  treadle_status status = TREADLE_OK;
  uint64_t sum = 0;
  unsigned char *bytes = sums->stale.count ? treadle_alloc(TREADLE_SUM_LEAF) : NULL;
  if (sums->stale.count && !bytes) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a sum", path);
  for (size_t i = 0; i < sums->stale.count; i++)
    TRY(read_again(sums, path, fd, sums->stale.items[i], bytes));
  sums->stale.count = 0;
  for (size_t i = 0; i < sums->leaves.count; i++) sum = treadle_hash_more(sum, sums->leaves.items[i]);
  *sum_p = treadle_hash_bytes(sums->part_bytes ? sums->part : (const void *)"", sums->part_bytes, sum);
out:
  treadle_free(bytes);
  return status;
}

void treadle_file_sums_release(treadle_file_sums *sums) {
  treadle_array_release(&sums->leaves);
  treadle_array_release(&sums->stale);
  treadle_free(sums->part);
  *sums = (treadle_file_sums){0};
}

treadle_status treadle_file_sum(const char *path, int64_t *bytes_p, uint64_t *sum_p) {
  enum { STEP = 1 << 20 };
  treadle_status status;
  treadle_file_sums sums = {0};
  int fd = -1;
  size_t got;
  unsigned char *bytes = treadle_alloc(STEP);
  if (!bytes) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to read it", path));
  TRY(treadle_file_open(path, &fd, &got));
  for (*bytes_p = 0;; *bytes_p += (int64_t)got) {
    TRY(read_at(path, fd, *bytes_p, bytes, STEP, &got));
    if (got == 0) break;
    TRY(treadle_file_sums_add(&sums, bytes, got));
  }
  TRY(treadle_file_sums_end(&sums, path, fd, sum_p));
out:
  treadle_file_sums_release(&sums);
  treadle_free(bytes);
  if (fd >= 0) close(fd);
  return status;
}
