/* Twins: copies in host memory of classes that leave the device.
 *
 *   1. A twin is made with the switch, touched once, and never grows.
 *   2. Gradients and optimizer state are copied before the first wave; params page by page, each before the wave
 *      that reclaims it, and the rest after the last wave: reading and copying a page are one pass.
 *   3. On the way back, only pages that the class no longer owns are loaded.
 *   4. Pages that the infer window shares leave only for mode HOST. If the switch cannot enter HOST, the twin has addresses
 *      for them and no memory. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "memory/host.h"

#include <string.h>

static const size_t PART_BYTES = (size_t)64 << 20; /* of a copy that can be cancelled in between */

/* ---- Memory ---- */

bool treadle_twin_is_wanted(const treadle_switch *sw, treadle_class which) {
  if (which == TREADLE_PARAMS)
    return sw->terms.options.host ||
           (sw->terms.leaves[which] && sw->terms.options.keep == TREADLE_KEEP_HOST);
  if (sw->terms.leaves[which]) return sw->terms.copied[which];
  return sw->terms.options.host || (which == TREADLE_OPTIMIZER && sw->terms.options.reference_bytes);
}

/* Does a page of params never leave? */
static bool stays(const treadle_switch *sw, int64_t page) {
  return sw->space.aliased && sw->space.aliased[page] && !sw->terms.options.host;
}

int64_t treadle_twin_pages(const treadle_switch *sw, treadle_class which) {
  int64_t count = 0;
  for (int64_t i = 0; i < sw->space.tables.pages[which]; i++)
    count += !(which == TREADLE_PARAMS && stays(sw, i));
  return count;
}

static treadle_status make_twin(treadle_switch *sw, treadle_class which, size_t bytes, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_twin *twin = &sw->twins[which];
  size_t page = (size_t)sw->carry.plan->page_bytes;
  if (!(twin->base = treadle_host_reserve(bytes, what))) return TREADLE_NO_MEMORY;
  twin->bytes = bytes;
  for (int64_t i = 0, end, count = sw->space.tables.pages[which]; i < count; i = end + 1) {
    for (end = i; end < count && !(which == TREADLE_PARAMS && stays(sw, end)); end++) {
    }
    if (end > i) TRY(treadle_host_touch(twin->base + (size_t)i * page, (size_t)(end - i) * page, what));
    sw->stats.host_bytes += (size_t)(end - i) * page;
  }
out:
  return status;
}

treadle_status treadle_twins_create(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    size_t bytes = (size_t)(sw->space.tables.pages[c] * sw->carry.plan->page_bytes);
    if (bytes == 0 || !treadle_twin_is_wanted(sw, (treadle_class)c)) continue;
    TRY(make_twin(sw, (treadle_class)c, bytes, treadle_class_text((treadle_class)c)));
    if (c == TREADLE_PARAMS && !(sw->twins[c].has = treadle_alloc((size_t)sw->space.tables.pages[c])))
      TRY(treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"));
  }
out:
  return status;
}

void treadle_twins_release(treadle_switch *sw) {
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    treadle_host_destroy(sw->twins[c].base, sw->twins[c].bytes);
    treadle_free(sw->twins[c].has);
  }
}

/* ---- Copying ---- */

static void copy(const treadle_switch *sw, void *to, const void *from, size_t bytes) {
  sw->device.ops->move(&sw->device, to, from, bytes);
}

/* Pages of params, gradients and optimizer state follow each other in the pool. */
static char *device_of(const treadle_switch *sw, treadle_class which) {
  return sw->space.base + (int64_t)sw->space.tables.page[which][0] * sw->carry.plan->page_bytes;
}

/* To the twin, a part at a time: whoever cancels the switch need not wait for all of it. */
static treadle_status copy_out(const treadle_switch *sw, char *to, const char *from, size_t bytes) {
  treadle_status status = TREADLE_OK;
  for (size_t at = 0, part; at < bytes; at += part) {
    part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
    TRY(treadle_helm_check(sw));
    copy(sw, to + at, from + at, part);
  }
out:
  return status;
}

/* Copies pages begin..end - 1 of params between window and twin. */
static void copy_params(treadle_switch *sw, int64_t begin, int64_t end, bool out) {
  size_t page = (size_t)sw->carry.plan->page_bytes, at = (size_t)begin * page,
         bytes = (size_t)(end - begin) * page;
  char *device = device_of(sw, TREADLE_PARAMS) + at, *host = sw->twins[TREADLE_PARAMS].base + at;
  copy(sw, out ? host : device, out ? device : host, bytes);
  *(out ? &sw->stats.offloaded_bytes : &sw->stats.loaded_bytes) += bytes;
}

static treadle_status fill_page(treadle_switch *sw, int64_t page) {
  treadle_status status = TREADLE_OK;
  uint8_t *has = &sw->twins[TREADLE_PARAMS].has[page];
  if (*has || sw->books.owner[page] != TREADLE_PARAMS) return TREADLE_OK;
  TRY(treadle_helm_check(sw));
  copy_params(sw, page, page + 1, true);
  *has = 1;
out:
  return status;
}

treadle_status treadle_offload(treadle_switch *sw, treadle_class which) {
  treadle_status status = TREADLE_OK;
  const treadle_twin *twin = &sw->twins[which];
  double begin = treadle_clock_seconds();
  if (which == TREADLE_PARAMS) {
    for (int64_t page = 0; twin->base && page < sw->space.tables.pages[which]; page++)
      TRY(fill_page(sw, page));
  } else if (twin->base && sw->books.owner[sw->space.tables.page[which][0]] == which) {
    TRY(copy_out(sw, twin->base, device_of(sw, which), twin->bytes));
    sw->stats.offloaded_bytes += twin->bytes;
  }
  TRY(sw->device.ops->fence(&sw->device));
  treadle_account_leave(sw, which);
  treadle_account_tell(sw);
out:
  sw->stats.offload_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* Is it the infer window's too, with the same bytes? */
static bool shared(const treadle_switch *sw, int64_t page) {
  return stays(sw, page) ||
         (sw->space.aliased && sw->space.aliased[page] && sw->books.owner[page] == TREADLE_INFER_PARAMS);
}

/* Params: runs of pages that are not theirs. */
static void load_params(treadle_switch *sw) {
  int64_t count = sw->space.tables.pages[TREADLE_PARAMS];
  for (int64_t i = 0, end; i < count; i = end + 1) {
    for (end = i; end < count && sw->books.owner[end] != TREADLE_PARAMS && !shared(sw, end); end++) {
    }
    if (end > i) copy_params(sw, i, end, false);
  }
}

treadle_status treadle_load(treadle_switch *sw, treadle_class which) {
  const treadle_twin *twin = &sw->twins[which];
  double begin = treadle_clock_seconds();
  if (which == TREADLE_PARAMS && twin->base) {
    load_params(sw);
  } else if (twin->base && sw->books.owner[sw->space.tables.page[which][0]] != which) {
    copy(sw, device_of(sw, which), twin->base, twin->bytes);
    sw->stats.loaded_bytes += twin->bytes;
  }
  const treadle_status status = sw->device.ops->fence(&sw->device);
  treadle_account_take(sw, which);
  treadle_account_tell(sw);
  sw->stats.load_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* ---- Params, page by page ---- */

void treadle_twin_begin(treadle_switch *sw) {
  treadle_twin *twin = &sw->twins[TREADLE_PARAMS];
  if (twin->has) memset(twin->has, 0, (size_t)sw->space.tables.pages[TREADLE_PARAMS]);
}

treadle_status treadle_twin_fill(treadle_switch *sw, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_turns *turns = &sw->carry.turns[TREADLE_INFER];
  if (!sw->terms.copied[TREADLE_PARAMS]) return TREADLE_OK;
  double begin = treadle_clock_seconds();
  if (wave < 0) {
    for (int64_t page = 0; page < sw->space.tables.pages[TREADLE_PARAMS]; page++)
      if (!sw->space.aliased || !sw->space.aliased[page]) TRY(fill_page(sw, page));
  } else {
    for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++) {
      int32_t physical = sw->space.tables.page[TREADLE_INFER_PARAMS][turns->page[i]];
      if (physical < sw->space.tables.pages[TREADLE_PARAMS]) TRY(fill_page(sw, physical));
    }
  }
  TRY(sw->device.ops->fence(&sw->device)); /* the pages are written next */
out:
  sw->stats.offload_seconds += treadle_clock_seconds() - begin;
  return status;
}
