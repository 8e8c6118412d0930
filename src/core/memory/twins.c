#include "memory/twins.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "memory/host.h"

#include <string.h>

static const size_t PART_BYTES = (size_t)64 << 20; /* of a copy that can be cancelled in between */

static int64_t pages_of(const treadle_twins *twins, treadle_class which) {
  return twins->books->tables->pages[which];
}

/* ---- Memory ---- */

/* Is a page of params the infer window's too? */
static bool is_aliased(const treadle_twins *twins, int64_t page) {
  const uint8_t *aliased = twins->books->tables->aliased;
  return aliased && aliased[page];
}

/* Does it never leave? */
static bool stays(const treadle_twins *twins, int64_t page) {
  return is_aliased(twins, page) && !twins->shared_leave;
}

int64_t treadle_twins_pages(const treadle_twins *twins, treadle_class which) {
  int64_t count = 0;
  for (int64_t i = 0; i < pages_of(twins, which); i++)
    count += !(which == TREADLE_PARAMS && stays(twins, i));
  return count;
}

/* The end of the pages from `begin` on that a twin has memory for. */
static int64_t end_of(const treadle_twins *twins, treadle_class which, int64_t begin) {
  int64_t end = begin;
  while (end < pages_of(twins, which) && !(which == TREADLE_PARAMS && stays(twins, end))) end++;
  return end;
}

static treadle_status make_twin(treadle_twins *twins, treadle_class which, size_t bytes, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_twin *twin = &twins->of[which];
  const size_t page = (size_t)twins->books->page_bytes;
  if (!(twin->base = treadle_host_reserve(bytes, what))) return TREADLE_NO_MEMORY;
  twin->bytes = bytes;
  for (int64_t i = 0, end, count = pages_of(twins, which); i < count; i = end + 1) {
    end = end_of(twins, which, i);
    if (end == i) continue;
    char *at = twin->base + (size_t)i * page;
    const size_t part = (size_t)(end - i) * page;
    TRY(treadle_host_touch(at, part, what));
    TRY(twins->device->ops->pin(twins->device, at, part));
    twins->figures->host_bytes += part;
  }
out:
  return status;
}

treadle_status treadle_twins_create(treadle_twins *twins, const bool wanted[TREADLE_TRAIN_CLASSES],
                                    const char *const names[TREADLE_TRAIN_CLASSES]) {
  treadle_status status = TREADLE_OK;
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    const int64_t pages = pages_of(twins, (treadle_class)c);
    if (pages == 0 || !wanted[c]) continue;
    TRY(make_twin(twins, (treadle_class)c, (size_t)(pages * twins->books->page_bytes), names[c]));
    if (c == TREADLE_PARAMS && !(twins->of[c].has = treadle_alloc((size_t)pages)))
      TRY(treadle_memory_is_out());
  }
out:
  return status;
}

void treadle_twins_release(treadle_twins *twins) {
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    const int64_t count = twins->of[c].base ? pages_of(twins, (treadle_class)c) : 0;
    for (int64_t i = 0; i < count; i = end_of(twins, (treadle_class)c, i) + 1)
      twins->device->ops->unpin(twins->device, twins->of[c].base + i * twins->books->page_bytes);
    treadle_host_destroy(twins->of[c].base, twins->of[c].bytes);
    treadle_free(twins->of[c].has);
  }
  treadle_host_unpinned(twins->device, twins->reference, twins->reference_bytes);
}

/* ---- Copying ---- */

static void copy(const treadle_twins *twins, void *to, const void *from, size_t bytes) {
  twins->device->ops->move(twins->device, to, from, bytes);
}

static char *device_of(const treadle_twins *twins, treadle_class which) {
  const treadle_books *books = twins->books;
  return twins->base + (int64_t)books->tables->page[which][0] * books->page_bytes;
}

/* To the twin, a part at a time: whoever cancels the switch need not wait for all of it. */
static treadle_status copy_out(const treadle_twins *twins, char *to, const char *from, size_t bytes) {
  treadle_status status = TREADLE_OK;
  for (size_t at = 0, part; at < bytes; at += part) {
    part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
    TRY(twins->check(twins->context));
    copy(twins, to + at, from + at, part);
    TRY(twins->device->ops->fence(twins->device));
  }
out:
  return status;
}

/* Copies pages begin..end - 1 of params between window and twin. */
static void copy_params(treadle_twins *twins, int64_t begin, int64_t end, bool out) {
  const size_t page = (size_t)twins->books->page_bytes, at = (size_t)begin * page,
               bytes = (size_t)(end - begin) * page;
  char *device = device_of(twins, TREADLE_PARAMS) + at, *host = twins->of[TREADLE_PARAMS].base + at;
  copy(twins, out ? host : device, out ? device : host, bytes);
  *(out ? &twins->figures->offloaded_bytes : &twins->figures->loaded_bytes) += bytes;
}

static treadle_status fill_page(treadle_twins *twins, int64_t page) {
  treadle_status status = TREADLE_OK;
  uint8_t *has = &twins->of[TREADLE_PARAMS].has[page];
  if (*has || twins->books->owner[page] != TREADLE_PARAMS) return TREADLE_OK;
  TRY(twins->check(twins->context));
  copy_params(twins, page, page + 1, true);
  *has = 1;
out:
  return status;
}

static bool holds(const treadle_twins *twins, treadle_class which) {
  return twins->books->owner[twins->books->tables->page[which][0]] == which;
}

treadle_status treadle_twins_offload(treadle_twins *twins, treadle_class which) {
  treadle_status status = TREADLE_OK;
  const treadle_twin *twin = &twins->of[which];
  double begin = treadle_clock_seconds();
  if (which == TREADLE_PARAMS) {
    for (int64_t page = 0; twin->base && page < pages_of(twins, which); page++) {
      TRY(fill_page(twins, page));
      if ((page + 1) * twins->books->page_bytes % PART_BYTES == 0)
        TRY(twins->device->ops->fence(twins->device));
    }
  } else if (twin->base && holds(twins, which)) {
    TRY(copy_out(twins, twin->base, device_of(twins, which), twin->bytes));
    twins->figures->offloaded_bytes += twin->bytes;
  }
  TRY(twins->device->ops->fence(twins->device));
  treadle_books_leave(twins->books, which);
  treadle_books_tell(twins->books);
out:
  if (status != TREADLE_OK) status = treadle_device_finish(twins->device, status);
  twins->figures->offload_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* Is it the infer window's too, with the same bytes? */
static bool shared(const treadle_twins *twins, int64_t page) {
  return stays(twins, page) ||
         (is_aliased(twins, page) && twins->books->owner[page] == TREADLE_INFER_PARAMS);
}

/* Params: runs of pages that are not theirs. */
static void load_params(treadle_twins *twins) {
  const int64_t count = pages_of(twins, TREADLE_PARAMS);
  for (int64_t i = 0, end; i < count; i = end + 1) {
    for (end = i; end < count && twins->books->owner[end] != TREADLE_PARAMS && !shared(twins, end); end++) {
    }
    if (end > i) copy_params(twins, i, end, false);
  }
}

treadle_status treadle_twins_load(treadle_twins *twins, treadle_class which) {
  const treadle_twin *twin = &twins->of[which];
  double begin = treadle_clock_seconds();
  if (which == TREADLE_PARAMS && twin->base) {
    load_params(twins);
  } else if (twin->base && !holds(twins, which)) {
    copy(twins, device_of(twins, which), twin->base, twin->bytes);
    twins->figures->loaded_bytes += twin->bytes;
  }
  const treadle_status status = twins->device->ops->fence(twins->device);
  treadle_books_take(twins->books, which);
  treadle_books_tell(twins->books);
  twins->figures->load_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* ---- The reference ---- */

treadle_status treadle_twins_make_reference(treadle_twins *twins, const char *name) {
  const size_t bytes = (size_t)(pages_of(twins, TREADLE_REFERENCE) * twins->books->page_bytes);
  if (bytes == 0) return TREADLE_OK;
  if (!(twins->reference = treadle_host_pinned(twins->device, bytes, name))) return TREADLE_NO_MEMORY;
  twins->reference_bytes = bytes;
  twins->figures->host_bytes += bytes;
  return TREADLE_OK;
}

/* Page by page: they need not follow each other in the pool. */
treadle_status treadle_twins_load_reference(treadle_twins *twins) {
  const size_t page = (size_t)twins->books->page_bytes;
  const int32_t *table = twins->books->tables->page[TREADLE_REFERENCE];
  treadle_books_take(twins->books, TREADLE_REFERENCE);
  for (int64_t i = 0, end, count = pages_of(twins, TREADLE_REFERENCE); i < count; i = end) {
    for (end = i + 1; end < count && table[end] == table[end - 1] + 1; end++) {
    }
    copy(twins, twins->base + (size_t)table[i] * page, twins->reference + (size_t)i * page,
         (size_t)(end - i) * page);
  }
  twins->figures->loaded_bytes += twins->reference_bytes;
  return twins->device->ops->fence(twins->device);
}

/* ---- Params, page by page ---- */

void treadle_twins_begin(treadle_twins *twins) {
  uint8_t *has = twins->of[TREADLE_PARAMS].has;
  if (has) memset(has, 0, (size_t)pages_of(twins, TREADLE_PARAMS));
}

treadle_status treadle_twins_fill(treadle_twins *twins, const int32_t *pages, size_t count) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds();
  for (size_t i = 0; i < count; i++) {
    const int32_t physical = twins->books->tables->page[TREADLE_INFER_PARAMS][pages[i]];
    if (physical < pages_of(twins, TREADLE_PARAMS))
      TRY(fill_page(twins, physical)); /* params are in line */
  }
out: /* the device writes the pages next, after it has copied them */
  twins->figures->offload_seconds += treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_twins_fill_all(treadle_twins *twins) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds();
  for (int64_t page = 0; page < pages_of(twins, TREADLE_PARAMS); page++)
    if (!is_aliased(twins, page)) TRY(fill_page(twins, page));
  TRY(twins->device->ops->fence(twins->device));
out:
  twins->figures->offload_seconds += treadle_clock_seconds() - begin;
  return status;
}
