#include "layout/owners.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/limits.h"
#include "base/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef TREADLE_ARRAY(treadle_owner_run) run_list;

/* ---- The text ---- */

/* "7", or a part of "0-3", as a rank. */
static bool read_rank(const char *text, size_t length, int64_t *rank_p) {
  char number[24];
  if (length == 0 || length >= sizeof number) return false;
  memcpy(number, text, length);
  number[length] = 0;
  return treadle_text_to_int64(number, rank_p) && *rank_p >= 0;
}

/* One rank, or one range: `length` characters at `text`. */
static treadle_status read_run(const char *text, size_t length, int64_t ranks, const char *layout_text,
                               treadle_owner_run *run_p) {
  const char *dash = memchr(text, '-', length);
  size_t first_length = dash ? (size_t)(dash - text) : length;
  int64_t first, last;
  bool good = read_rank(text, first_length, &first);
  last = first;
  if (good && dash) good = read_rank(dash + 1, length - first_length - 1, &last);
  if (!good)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': on: '%.*s' is neither a rank nor a range like 0-3",
                        layout_text, (int)(length < 60 ? length : 60), text);
  if (last < first)
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': on: the range %" PRId64 "-%" PRId64 " ends before it begins",
                        layout_text, first, last);
  if (last >= ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': on: rank %" PRId64 " is not one of %" PRId64,
                        layout_text, last, ranks);
  *run_p = (treadle_owner_run){.first = first, .count = last - first + 1};
  return TREADLE_OK;
}

static int by_first(const void *a, const void *b) {
  int64_t x = ((const treadle_owner_run *)a)->first, y = ((const treadle_owner_run *)b)->first;
  return (x > y) - (x < y);
}

/* Sorts runs and makes one of those that touch. */
static treadle_status merge(run_list *list, const char *layout_text) {
  size_t kept = 0;
  qsort(list->items, list->count, sizeof *list->items, by_first);
  for (size_t i = 1; i < list->count; i++) {
    treadle_owner_run *last = &list->items[kept];
    const treadle_owner_run *next = &list->items[i];
    if (next->first < last->first + last->count)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': on: rank %" PRId64 " is there twice", layout_text,
                          next->first);
    if (next->first == last->first + last->count)
      last->count += next->count;
    else
      list->items[++kept] = *next;
  }
  list->count = kept + 1;
  return TREADLE_OK;
}

treadle_status treadle_owners_parse(const char *text, int64_t ranks, const char *layout_text,
                                    treadle_owners *owners_p) {
  treadle_status status = TREADLE_OK;
  run_list list = {0};
  *owners_p = (treadle_owners){.count = ranks};
  for (const char *at = text;; at++) {
    treadle_owner_run run;
    size_t length = strcspn(at, ",");
    TRY(read_run(at, length, ranks, layout_text, &run));
    if (list.count == TREADLE_MAX_OWNER_RUNS)
      TRY(treadle_fail(TREADLE_REFUSED, "layout '%s': on: more than %d ranges", layout_text,
                       TREADLE_MAX_OWNER_RUNS));
    TRY(treadle_array_push(&list, run));
    at += length;
    if (!*at) break;
  }
  TRY(merge(&list, layout_text));
  if (list.items[0].count == ranks) goto out;
  owners_p->count = 0;
  for (size_t i = 0; i < list.count; i++) {
    list.items[i].before = owners_p->count;
    owners_p->count += list.items[i].count;
  }
  owners_p->runs = list.items;
  owners_p->run_count = (int32_t)list.count;
  list = (run_list){0};
out:
  treadle_array_release(&list);
  return status;
}

void treadle_owners_release(treadle_owners *owners) {
  treadle_free(owners->runs);
  *owners = (treadle_owners){0};
}

void treadle_owners_print(const treadle_owners *owners, treadle_builder *builder) {
  for (int32_t i = 0; i < owners->run_count; i++) {
    const treadle_owner_run *run = &owners->runs[i];
    treadle_builder_add(builder, "%s%" PRId64, i ? "," : "", run->first);
    if (run->count > 1) treadle_builder_add(builder, "-%" PRId64, run->first + run->count - 1);
  }
}

/* ---- Ranks and owners ---- */

int64_t treadle_owners_find(const treadle_owners *owners, int64_t rank) {
  if (!owners->runs) return rank;
  const treadle_owner_run *runs = owners->runs;
  const treadle_owner_run *run =
      runs + treadle_last_at_most(&runs->first, sizeof *runs, owners->run_count, rank);
  int64_t in = rank - run->first;
  return in >= 0 && in < run->count ? run->before + in : -1;
}

int64_t treadle_owners_rank(const treadle_owners *owners, int64_t owner) {
  if (!owners->runs) return owner;
  const treadle_owner_run *runs = owners->runs;
  const treadle_owner_run *run =
      runs + treadle_last_at_most(&runs->before, sizeof *runs, owners->run_count, owner);
  return run->first + owner - run->before;
}
