/* Sums of entries, by where these lie. */
#include "convert/entry_sums.h"

#include "base/crc.h"
#include "io/file_map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STEP = 4 << 20 };

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

static treadle_status judge(treadle_entry_sum *item) {
  const char *name = item->entry.name;
  treadle_status status;
  if (item->crc == item->entry.crc) return TREADLE_OK;
  TRY(treadle_file_intact(item->entry.data)); /* what is gone is not damage */
  status = treadle_fail(TREADLE_REFUSED,
                        "%s: %s%s%shas %s and is damaged: its CRC-32 is %08" PRIx32
                        ", and the archive says %08" PRIx32,
                        item->path, name ? "entry '" : "a chunk ", name ? name : "", name ? "' " : "",
                        item->tensor, item->crc, item->entry.crc);
out:
  return status;
}

/* The sum goes on to `end`, and is compared when it is whole. */
static treadle_status go_on(treadle_entry_sum *item, size_t end) {
  if (end > item->entry.bytes) end = item->entry.bytes;
  if (end <= item->summed) return TREADLE_OK;
  item->crc = treadle_crc32(item->crc, (const char *)item->entry.data + item->summed, end - item->summed);
  item->summed = end;
  return end == item->entry.bytes ? judge(item) : TREADLE_OK;
}

treadle_status treadle_entry_sums_ask(treadle_entry_sums *sums, const void *at, int64_t bytes) {
  size_t low = 0, high;
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
  if (byte < begin || byte >= begin + item->entry.bytes) return TREADLE_OK;
  return go_on(item, (size_t)(byte - begin) + (size_t)bytes);
}

/* A step at a time, whose pages are let go: nobody has asked for them. */
static treadle_status end_one(treadle_entry_sum *item) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
  treadle_status status = TREADLE_OK;
  while (item->summed < item->entry.bytes) {
    const uintptr_t from = (uintptr_t)item->entry.data + item->summed;
    TRY(go_on(item, item->summed + STEP));
    const uintptr_t to = (uintptr_t)item->entry.data + item->summed;
    madvise((void *)(from & ~page), to - (from & ~page),
            MADV_DONTNEED); /* the file stays in the system's cache */
  }
out:
  return status;
}

treadle_status treadle_entry_sums_end(treadle_entry_sums *sums) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sums->items.count; i++)
    if (sums->items.items[i].summed) TRY(end_one(&sums->items.items[i]));
out:
  return status;
}

void treadle_entry_sums_release(treadle_entry_sums *sums) {
  treadle_array_release(&sums->items);
  *sums = (treadle_entry_sums){0};
}
