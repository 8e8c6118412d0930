/* Arranging the to-window, and finding the pages that are the same.
 *
 * A unit is placed as a whole: a storage tensor, or a run of storage tensors that lie expert by expert. Places are
 * multiples of 64 bytes, as in the layouts. */
#include "plan/alias.h"

#include "base/limits.h"
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_AHEAD = 16 /* units among which the next one is chosen */ };

typedef struct unit {
  int32_t first, count;  /* storages */
  int64_t offset, bytes; /* in the window as the layout has it, and what follows up to the next one */
  int64_t turn;          /* where it would begin in the from-window; -1: no run, comes behind */
  size_t run_first, run_end;
  int64_t place; /* as arranged */
} unit;

typedef struct vote { /* for a remainder: how many bytes of whole pages it gives */
  int64_t remainder, bytes;
} vote;

typedef TREADLE_ARRAY(unit) units;
typedef TREADLE_ARRAY(vote) votes;

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

static int64_t pages_of(int64_t bytes, int64_t page_bytes) { return (bytes + page_bytes - 1) / page_bytes; }

static int64_t remainder_of(int64_t offset, int64_t page_bytes) {
  return (offset % page_bytes + page_bytes) % page_bytes;
}

/* Bytes of the whole pages in [begin, end). */
static int64_t whole_pages(int64_t begin, int64_t end, int64_t page_bytes) {
  int64_t first = pages_of(begin, page_bytes), last = end / page_bytes;
  return last > first ? (last - first) * page_bytes : 0;
}

treadle_status treadle_arrangement_plain(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                         int64_t page_bytes, treadle_arrangement *a) {
  *a = (treadle_arrangement){.window_bytes = (int64_t)treadle_layout_window_bytes(to, rank)};
  a->storages = treadle_layout_storages(to, rank, &a->storage_count);
  a->from_pages = pages_of((int64_t)treadle_layout_window_bytes(from, rank), page_bytes);
  a->to_pages = pages_of(a->window_bytes, page_bytes);
  bool from_is_larger = a->from_pages > a->to_pages;
  int64_t most = from_is_larger ? a->from_pages : a->to_pages;
  if (most > TREADLE_MAX_PAGES)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: rank %" PRId64 ": its window of '%s' has %" PRId64
                        " pages of %s; at most %d will do: take larger pages, or more ranks",
                        rank, (from_is_larger ? from : to)->text, most,
                        treadle_text_of_size((size_t)page_bytes), TREADLE_MAX_PAGES);
  return TREADLE_OK;
}

void treadle_arrangement_release(treadle_arrangement *a) {
  treadle_free(a->shift);
  treadle_free(a->from_of);
  treadle_free(a->to_of);
  treadle_free(a->runs);
  *a = (treadle_arrangement){0};
}

/* Memory with the bytes of an array, if there is one. */
static treadle_status copy_array(const void *items, int64_t count, size_t each, void **copy_p) {
  *copy_p = NULL;
  if (!items) return TREADLE_OK;
  *copy_p = treadle_alloc_array((size_t)count + 1, each);
  if (!*copy_p) return no_memory();
  memcpy(*copy_p, items, (size_t)count * each);
  return TREADLE_OK;
}

treadle_status treadle_arrangement_copy(const treadle_arrangement *a, treadle_arrangement *copy) {
  treadle_status status = TREADLE_OK;
  *copy = *a;
  copy->shift = NULL;
  copy->from_of = copy->to_of = NULL;
  copy->runs = NULL;
  TRY(copy_array(a->shift, a->storage_count, sizeof *a->shift, (void **)&copy->shift));
  TRY(copy_array(a->from_of, a->to_pages, sizeof *a->from_of, (void **)&copy->from_of));
  TRY(copy_array(a->to_of, a->from_pages, sizeof *a->to_of, (void **)&copy->to_of));
  TRY(copy_array(a->runs, a->run_count, sizeof *a->runs, (void **)&copy->runs));
out:
  if (status != TREADLE_OK) treadle_arrangement_release(copy);
  return status;
}

/* ---- Units and votes ---- */

/* Units in the order of the window, each with the runs that have bytes of it: [run_first, run_end). A run that spans several
 * units is of each of them; part_of says with which bytes. */
static treadle_status list_units(const treadle_arrangement *a, const treadle_resident_runs *runs,
                                 units *list) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < a->storage_count; i += a->storages[i].run)
    TRY(treadle_array_push(
        list, ((unit){.first = i, .count = a->storages[i].run, .offset = a->storages[i].offset})));
  size_t run = 0;
  for (size_t u = 0; u < list->count; u++) {
    unit *of = &list->items[u];
    int64_t end = u + 1 < list->count ? list->items[u + 1].offset : a->window_bytes;
    of->bytes = end - of->offset;
    while (run < runs->count && runs->items[run].to + runs->items[run].bytes <= of->offset) run++;
    of->run_first = of->run_end = run;
    while (of->run_end < runs->count && runs->items[of->run_end].to < end) of->run_end++;
  }
out:
  return status;
}

/* The part of a run that lies in a unit. */
static treadle_resident_run part_of(const unit *of, const treadle_resident_run *run) {
  int64_t begin = run->to > of->offset ? run->to : of->offset, end = run->to + run->bytes;
  if (end > of->offset + of->bytes) end = of->offset + of->bytes;
  return (treadle_resident_run){begin, end - begin, run->distance};
}

static int by_remainder(const void *a, const void *b) {
  const vote *x = a, *y = b;
  return (x->remainder > y->remainder) - (x->remainder < y->remainder);
}

/* The votes of a unit's runs, one for each remainder; and its turn, that of the run with the most bytes.
 * A unit at 128 has a run whose bytes lie 4,032 further on in the from-window. There the unit would begin at 4,160, which is 64
 * behind the start of a page of 4,096. So the run votes for remainder 64: where the unit begins 64 behind a page, the whole pages of
 * the run are pages of the from-window as well. */
static treadle_status count_votes(unit *of, const treadle_resident_runs *runs, int64_t page_bytes,
                                  votes *list) {
  treadle_status status = TREADLE_OK;
  int64_t most = 0;
  list->count = 0;
  of->turn = -1;
  for (size_t i = of->run_first; i < of->run_end; i++) {
    const treadle_resident_run part = part_of(of, &runs->items[i]);
    int64_t from = part.to + part.distance, place = of->offset + part.distance;
    if (part.bytes > most) {
      most = part.bytes;
      of->turn = place > 0 ? place : 0;
    }
    vote one = {remainder_of(place, page_bytes), whole_pages(from, from + part.bytes, page_bytes)};
    if (one.bytes > 0 && one.remainder % TREADLE_STORAGE_ALIGNMENT == 0) TRY(treadle_array_push(list, one));
  }
  if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, by_remainder);
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (kept > 0 && list->items[kept - 1].remainder == list->items[i].remainder)
      list->items[kept - 1].bytes += list->items[i].bytes;
    else
      list->items[kept++] = list->items[i];
  }
  list->count = kept;
out:
  return status;
}

static int by_turn(const void *a, const void *b) {
  const unit *x = a, *y = b;
  if ((x->turn < 0) != (y->turn < 0)) return x->turn < 0 ? 1 : -1;
  if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* The padding before a unit at `end` that gains most. *misses_p: how far the end is from the next place that any of its
 * runs votes for, or where that padding leads.
 * A byte of padding has to gain `thrift` bytes: a vote of 40,960 bytes for remainder 64, behind an end at 8,192, gains 40,960 less
 * 64 * thrift. */
static int64_t choose_padding(const unit *of, const votes *list, int64_t end, int64_t page_bytes,
                              int64_t thrift, int64_t *misses_p) {
  int64_t best = 0, padding = 0, least = remainder_of(of->turn - end, page_bytes); /* small: no votes */
  for (size_t i = 0; i < list->count; i++) {
    int64_t takes = remainder_of(list->items[i].remainder - end, page_bytes);
    int64_t gain = list->items[i].bytes - thrift * takes;
    if (i == 0 || takes < least) least = takes;
    if (gain > best) {
      best = gain;
      padding = takes;
    }
  }
  *misses_p = best > 0 ? padding : least;
  return padding;
}

/* Of the next units, the one that the end suits best: moves it to the front and places it, behind its padding. */
static treadle_status choose_next(const treadle_resident_runs *runs, int64_t page_bytes, int64_t thrift,
                                  int64_t end, unit *next, size_t count, votes *list) {
  treadle_status status = TREADLE_OK;
  size_t best = 0;
  int64_t least = INT64_MAX, place = end;
  for (size_t i = 0; i < count && i < LOOK_AHEAD && next[i].turn >= 0 && least > 0; i++) {
    int64_t misses, padding;
    TRY(count_votes(&next[i], runs, page_bytes, list));
    padding = choose_padding(&next[i], list, end, page_bytes, thrift, &misses);
    if (misses < least) {
      least = misses;
      best = i;
      place = end + padding;
    }
  }
  unit chosen = next[best];
  memmove(next + 1, next, best * sizeof *next);
  *next = chosen;
  next->place = place;
out:
  return status;
}

static treadle_status place_units(treadle_arrangement *a, const treadle_resident_runs *runs,
                                  int64_t page_bytes, int64_t thrift, units *list) {
  treadle_status status = TREADLE_OK;
  votes of_unit = {0};
  int64_t end = 0;
  for (size_t u = 0; u < list->count; u++) TRY(count_votes(&list->items[u], runs, page_bytes, &of_unit));
  if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, by_turn);
  a->shift = treadle_alloc_array((size_t)a->storage_count + 1, sizeof *a->shift);
  if (!a->shift) TRY(no_memory());
  for (size_t u = 0; u < list->count; u++) {
    unit *of = &list->items[u];
    TRY(choose_next(runs, page_bytes, thrift, end, of, list->count - u, &of_unit));
    a->padding_bytes += of->place - end;
    end = of->place + of->bytes;
    for (int32_t i = 0; i < of->count; i++) a->shift[of->first + i] = of->place - of->offset;
  }
  a->window_bytes = end;
  a->to_pages = pages_of(end, page_bytes);
out:
  treadle_array_release(&of_unit);
  return status;
}

/* ---- Pages ---- */

/* Aliases the whole pages of [begin, end) of the arranged window: of bytes 4,000 to 20,000 at distance 8,192, with pages of 4,096,
 * pages 1 to 3, which are pages 3 to 5 of the from-window. */
static treadle_status take_pages(treadle_arrangement *a, int64_t begin, int64_t end, int64_t distance,
                                 int64_t page_bytes) {
  int64_t first = pages_of(begin, page_bytes), last = end / page_bytes;
  if (distance % page_bytes != 0 || last <= first) return TREADLE_OK;
  for (int64_t y = first; y < last; y++) {
    int64_t z = y + distance / page_bytes;
    assert(a->from_of[y] < 0 && a->to_of[z] < 0);
    a->from_of[y] = (int32_t)z;
    a->to_of[z] = (int32_t)y;
  }
  a->pages += last - first;
  a->runs[a->run_count++] =
      (treadle_alias_run){first * page_bytes + distance, first * page_bytes, (last - first) * page_bytes};
  return TREADLE_OK;
}

static int by_unit_place(const void *a, const void *b) {
  const unit *x = a, *y = b;
  return (x->place > y->place) - (x->place < y->place);
}

/* Finds the pages: runs as they are arranged, joined where they follow each other at one distance. */
static treadle_status find_pages(treadle_arrangement *a, const treadle_resident_runs *runs,
                                 int64_t page_bytes, units *list) {
  treadle_status status = TREADLE_OK;
  size_t most = 1;
  for (size_t u = 0; u < list->count; u++) most += list->items[u].run_end - list->items[u].run_first;
  a->from_of = treadle_alloc_array((size_t)a->to_pages + 1, sizeof *a->from_of);
  a->to_of = treadle_alloc_array((size_t)a->from_pages + 1, sizeof *a->to_of);
  a->runs = treadle_alloc_array(most, sizeof *a->runs);
  if (!a->from_of || !a->to_of || !a->runs) TRY(no_memory());
  memset(a->from_of, -1, (size_t)a->to_pages * sizeof *a->from_of);
  memset(a->to_of, -1, (size_t)a->from_pages * sizeof *a->to_of);
  if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, by_unit_place);
  int64_t begin = 0, end = 0, distance = 0;
  for (size_t u = 0; u < list->count; u++) {
    const unit *of = &list->items[u];
    for (size_t i = of->run_first; i < of->run_end; i++) {
      const treadle_resident_run part = part_of(of, &runs->items[i]);
      int64_t shift = of->place - of->offset;
      if (part.to + shift != end || part.distance - shift != distance) {
        TRY(take_pages(a, begin, end, distance, page_bytes));
        begin = part.to + shift;
        distance = part.distance - shift;
      }
      end = part.to + shift + part.bytes;
    }
  }
  TRY(take_pages(a, begin, end, distance, page_bytes));
out:
  return status;
}

treadle_status treadle_arrangement_create(const treadle_layout *from, const treadle_layout *to,
                                          int64_t rank, int64_t page_bytes,
                                          const treadle_resident_runs *runs, int64_t thrift,
                                          treadle_arrangement *a) {
  treadle_status status = TREADLE_OK;
  units list = {0};
  TRY(treadle_arrangement_plain(from, to, rank, page_bytes, a));
  TRY(list_units(a, runs, &list));
  for (size_t u = 0; u < list.count; u++) list.items[u].place = list.items[u].offset;
  if (thrift) TRY(place_units(a, runs, page_bytes, thrift, &list));
  TRY(find_pages(a, runs, page_bytes, &list));
  if (a->pages == 0 || a->pages * page_bytes <= a->padding_bytes) {
    treadle_arrangement_release(a);
    TRY(treadle_arrangement_plain(from, to, rank, page_bytes, a));
  }
out:
  treadle_array_release(&list);
  if (status != TREADLE_OK) treadle_arrangement_release(a);
  return status;
}
