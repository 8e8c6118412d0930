/* Sums of entries, by where these lie. */
#include "convert/entry_sums.h"

#include "base/crc.h"
#include "io/file_map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of a large entry the pages are let go as the sum goes on, as the caller does with those of others. */
enum { LARGE = 32 << 20, STEP = 4 << 20 };

treadle_status treadle_entry_sums_add(treadle_entry_sums *sums, const treadle_torch_entry *entry,
                                      const char *path, const char *tensor) {
  const treadle_entry_sum item = {.entry = *entry, .path = path, .tensor = tensor};
  sums->sorted = false;
  return entry->summed && entry->bytes ? treadle_array_push(&sums->items, item) : TREADLE_OK;
}

static int compare(const void *a_, const void *b_) {
  const treadle_entry_sum *a = a_, *b = b_;
  return (a->entry.data > b->entry.data) - (a->entry.data < b->entry.data);
}

/* In the order of their places, each once. */
static void sort(treadle_entry_sums *sums) {
  treadle_entry_sum *items = sums->items.items;
  size_t count = 0;
  qsort(items, sums->items.count, sizeof *items, compare);
  for (size_t i = 0; i < sums->items.count; i++)
    if (!count || items[count - 1].entry.data != items[i].entry.data) items[count++] = items[i];
  sums->items.count = count;
  sums->sorted = true;
}

static uint32_t sum(const treadle_torch_entry *entry) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
  uint32_t crc = 0;
  for (size_t at = 0; at < entry->bytes; at += STEP) {
    const size_t some = entry->bytes - at < STEP ? entry->bytes - at : STEP;
    const char *from = (const char *)entry->data + at;
    crc = treadle_crc32(crc, from, some);
    char *begin = (char *)((uintptr_t)from & ~page);
    if (entry->bytes >= LARGE) madvise(begin, (size_t)(from - begin) + some, MADV_DONTNEED);
  }
  return crc;
}

static treadle_status check(treadle_entry_sum *item) {
  treadle_status status;
  const uint32_t crc = sum(&item->entry);
  item->done = true;
  if (crc == item->entry.crc) return TREADLE_OK;
  TRY(treadle_file_intact(item->entry.data)); /* what is gone is no damage */
  status = treadle_fail(
      TREADLE_REFUSED,
      "%s: %s%s%shas %s and is damaged: its CRC-32 is %08" PRIx32 ", and the archive says %08" PRIx32,
      item->path, item->entry.name ? "entry '" : "a chunk ", item->entry.name ? item->entry.name : "",
      item->entry.name ? "' " : "", item->tensor, crc, item->entry.crc);
out:
  return status;
}

treadle_status treadle_entry_sums_ask(treadle_entry_sums *sums, const void *at,
                                      const treadle_torch_entry **read_p) {
  size_t low = 0, high;
  *read_p = NULL;
  if (!sums->items.count) return TREADLE_OK;
  if (!sums->sorted) sort(sums);
  for (high = sums->items.count; high - low > 1;) { /* the last that begins at `at` or before it */
    const size_t middle = low + (high - low) / 2;
    if ((const char *)sums->items.items[middle].entry.data <= (const char *)at)
      low = middle;
    else
      high = middle;
  }
  treadle_entry_sum *item = &sums->items.items[low];
  const char *begin = item->entry.data, *byte = at;
  if (item->done || byte < begin || byte >= begin + item->entry.bytes) return TREADLE_OK;
  *read_p = &item->entry;
  return check(item);
}

void treadle_entry_sums_release(treadle_entry_sums *sums) {
  treadle_array_release(&sums->items);
  *sums = (treadle_entry_sums){0};
}
