/* Any bytes as a handle: as they are, and, with a first byte that is odd, with magic, format, size and sum put right, so that the numbers
 * are looked at. What is taken has numbers that can be used, and attaching to it finds nobody. A handle that is refused says why. */
#include "attach/handle.h"

#include "treadle_attach.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check(const treadle_handle *h) {
  assert(h->process > 0 && h->process < 1 << 22 && h->start_time != 0);
  assert(h->ranks > 0 && h->rank >= 0 && h->rank < h->ranks && h->which < TREADLE_CLASSES);
  assert(h->page_bytes >= 4096 && (h->page_bytes & (h->page_bytes - 1)) == 0);
  assert(h->pages >= 0 && h->pages <= h->pool_pages && h->pool_pages <= INT32_MAX);
  assert(h->pool_pages <= INT64_MAX / h->page_bytes); /* so that no product of them overflows */
  assert(h->window_bytes >= 0 && h->window_bytes <= h->pages * h->page_bytes);
  assert(h->sheet_bytes >= treadle_sheet_size(0, h->pages) && h->sheet_bytes <= 1 << 30);
}

static void try_one(const void *bytes, size_t count) {
  treadle_handle h;
  treadle_attached *attached = NULL;
  treadle_status status = treadle_handle_check(bytes, count, &h);
  if (status == TREADLE_OK)
    check(&h);
  else
    assert(status == TREADLE_REFUSED && *treadle_error_message());
  treadle_status got = treadle_attach(bytes, count, 0.01, &attached);
  assert(got != TREADLE_OK && !attached && *treadle_error_message());
  assert(status == TREADLE_OK || got == TREADLE_REFUSED);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  treadle_handle h;
  if (count == 0) return 0;
  try_one(bytes + 1, count - 1);
  if (bytes[0] % 2 == 0) return 0;
  memset(&h, 0, sizeof h);
  memcpy(&h, bytes + 1, count - 1 < sizeof h ? count - 1 : sizeof h);
  if (bytes[0] % 4 == 3 && treadle_handle_here(&h) != TREADLE_OK)
    return 0; /* of this place: the process is looked for */
  treadle_handle_seal(&h);
  try_one(&h, sizeof h);
  return 0;
}
