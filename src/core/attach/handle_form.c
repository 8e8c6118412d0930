/* The bytes of a handle.
 *
 * All that the system is asked afterwards (a socket's name, a process, sizes of files) comes out of these bytes, so they are checked
 * to the last one first: size, magic, format, sum, and then whether each number can be. A sum is not a seal: who makes handles of his own
 * makes sums, too, so the numbers are not trusted for it. */
#include "attach/handle.h"

#include "base/checked.h"
#include "base/hash.h"
#include "group/node.h"
#include "treadle.h"

#include <string.h>
#include <unistd.h>

static const char magic[8] = {'t', 'r', 'e', 'a', 'd', 'l', 'e', 'h'};

enum {
  HEAD = offsetof(treadle_handle, library), /* what all formats have: magic, format, bytes */
  LEAST_PAGE = 4096,
  MOST_SHEET = 1 << 30
};
static const int64_t most_bytes = (int64_t)1 << 60;

_Static_assert(sizeof(treadle_handle) < 4096, "a handle fits");

static uint64_t sum_of(const treadle_handle *handle) {
  return treadle_hash_bytes(handle, offsetof(treadle_handle, sum), 0);
}

void treadle_handle_seal(treadle_handle *handle) {
  memcpy(handle->magic, magic, sizeof magic);
  handle->format = TREADLE_HANDLE_FORMAT;
  handle->bytes = sizeof *handle;
  handle->library = TREADLE_VERSION_NUMBER;
  handle->sum = sum_of(handle);
}

static treadle_status check_format(const treadle_handle *head, size_t count) {
  if (memcmp(head->magic, magic, sizeof magic) != 0)
    REFUSE("attach: %zu bytes that are not a handle of treadle", count);
  if (head->format != TREADLE_HANDLE_FORMAT)
    REFUSE("attach: the handle has format %u; this library (version %s) has format %d: %s treadle made it",
           head->format, treadle_version_text(), TREADLE_HANDLE_FORMAT,
           head->format < TREADLE_HANDLE_FORMAT ? "an older" : "a newer");
  if (count < head->bytes)
    REFUSE("attach: the handle was cut: %zu of its %u bytes are there", count, head->bytes);
  if (count > head->bytes)
    REFUSE("attach: the handle has %u bytes, and %zu were given", head->bytes, count);
  if (count != sizeof *head)
    REFUSE("attach: a handle of format %d has %zu bytes, this one %zu", TREADLE_HANDLE_FORMAT, sizeof *head,
           count);
  return TREADLE_OK;
}

/* Can there be such a window? */
static bool is_possible(const treadle_handle *h) {
  bool page = h->page_bytes >= LEAST_PAGE && h->page_bytes <= most_bytes &&
              (h->page_bytes & (h->page_bytes - 1)) == 0;
  if (!page || h->pages < 0 || h->pages > INT32_MAX || h->pool_pages < h->pages ||
      h->pool_pages > INT32_MAX)
    return false;
  if (h->pool_pages > most_bytes / h->page_bytes) return false;
  int64_t bytes = h->pages * h->page_bytes;
  return h->window_bytes >= 0 && h->window_bytes <= bytes && bytes - h->window_bytes < h->page_bytes &&
         h->sheet_bytes >= treadle_sheet_size(0, h->pages) && h->sheet_bytes <= MOST_SHEET;
}

treadle_status treadle_handle_check(const void *bytes, size_t count, treadle_handle *handle_p) {
  treadle_status status = TREADLE_OK;
  treadle_handle h;
  memset(&h, 0, sizeof h);
  if (count < HEAD) REFUSE("attach: the handle was cut: %zu bytes are there", count);
  memcpy(&h, bytes, HEAD);
  TRY(check_format(&h, count));
  memcpy(&h, bytes, sizeof h);
  if (h.sum != sum_of(&h))
    REFUSE("attach: the handle was altered: its bytes have not the sum that they had");
  if (h.which >= TREADLE_CLASSES || h.ranks < 1 || h.rank < 0 || h.rank >= h.ranks || h.process < 1 ||
      h.process >= 1 << TREADLE_PROCESS_BITS || h.start_time == 0 || !is_possible(&h))
    REFUSE("attach: the handle says what cannot be: process %d, rank %d of %d, class %u, %lld bytes in "
           "%lld of %lld pages of %lld bytes, a sheet of %lld",
           h.process, h.rank, h.ranks, h.which, (long long)h.window_bytes, (long long)h.pages,
           (long long)h.pool_pages, (long long)h.page_bytes, (long long)h.sheet_bytes);
  *handle_p = h;
out:
  return status;
}

/* ---- This place ---- */

treadle_status treadle_handle_here(treadle_handle *handle) {
  treadle_status status = TREADLE_OK;
  treadle_node node;
  TRY(treadle_node_here(&node));
  memcpy(handle->machine, node.boot, sizeof handle->machine);
  handle->process_space = node.processes;
  handle->user = (uint32_t)geteuid();
out:
  return status;
}

treadle_status treadle_handle_check_here(const treadle_handle *handle) {
  treadle_status status = TREADLE_OK;
  treadle_handle here;
  TRY(treadle_handle_here(&here));
  if (memcmp(handle->machine, here.machine, sizeof here.machine) != 0)
    REFUSE("attach: the handle is of another machine, or of a time before this one was started");
  if (handle->process_space != here.process_space)
    REFUSE("attach: the handle is of another process namespace (container); both processes must be in one");
  if (handle->user != here.user)
    REFUSE("attach: the handle is of user %u, this process is one of user %u", handle->user, here.user);
out:
  return status;
}
