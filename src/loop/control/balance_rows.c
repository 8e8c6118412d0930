/* Coordinates take as many rows as they are told. With equal numbers of rows, these go by Karmarkar-Karp, as in verl. With others, the longest rows,
 * as many of them as the shortest coordinate times the number of coordinates, go so; the larger parts to coordinates with less room; then each other
 * row, the largest first, to the coordinate with the least work that has room. In the end the coordinates with the most work and with the least swap
 * two rows, as long as that brings them closer. Coordinates without rows have no part in it.
 *
 * Micro batches follow from the rows of each coordinate, as many as the coordinate with the most tokens needs. Since they have about equal work and
 * not equal tokens, one may have too many: then there is one more of them on all coordinates, until none has. In the end each row is one. */
#include "control/balance_rows.h"

#include "base/alloc.h"
#include "control/balance.h"

#include <stdlib.h>

typedef struct work {
  const treadle_balance_call *call;
  int64_t *loads, *owner, *sorted; /* [rows]; sorted: the largest work first */
  int64_t *some, *part_of;         /* [rows]: loads of rows that Karmarkar-Karp divides, and their parts */
  int64_t *room, *sums, *to;       /* [coordinates]: rows still to take, work so far; those with rows */
} work;

void treadle_balance_even_counts(size_t rows, size_t coordinates, int64_t *counts) {
  for (size_t c = 0; c < coordinates; c++)
    counts[c] = (int64_t)(rows / coordinates + (c < rows % coordinates));
}

/* ---- Coordinates ------------------------------------------------------------------------------------------ */

typedef struct ranked {
  int64_t by, number;
} ranked;

static int smaller_first(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->by != y->by) return x->by < y->by ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

/* numbers [count], by values [of each number], the smallest first; of equal ones the lower number. */
static treadle_status sort_by(const int64_t *values, bool largest_first, int64_t *numbers, size_t count) {
  ranked *all = treadle_alloc_array(count + 1, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory to order %zu numbers", count);
  for (size_t i = 0; i < count; i++)
    all[i] = (ranked){.by = largest_first ? -values[numbers[i]] : values[numbers[i]], .number = numbers[i]};
  qsort(all, count, sizeof *all, smaller_first);
  for (size_t i = 0; i < count; i++) numbers[i] = all[i].number;
  treadle_free(all);
  return TREADLE_OK;
}

/* As many rows for each of `parts` coordinates: the longest ones. */
static treadle_status give_equally(work *w, size_t parts, int64_t each) {
  const size_t count = parts * (size_t)each;
  size_t at = 0;
  treadle_status status;
  for (size_t i = 0; i < w->call->rows; i++) w->owner[i] = -1;
  for (size_t i = 0; i < count; i++) w->owner[w->sorted[i]] = 0;
  for (size_t i = 0; i < w->call->rows; i++)
    if (w->owner[i] == 0) w->some[at++] = w->loads[i];
  TRY(treadle_karmarkar_karp(w->some, count, parts, true, w->part_of));
  at = 0;
  for (size_t i = 0; i < w->call->rows; i++) {
    if (w->owner[i] < 0) continue;
    w->owner[i] = w->to[w->part_of[at++]];
    w->room[w->owner[i]]--;
    w->sums[w->owner[i]] += w->loads[i];
  }
out:
  return status;
}

static void give_rest(work *w, size_t parts, size_t first) {
  for (size_t i = first; i < w->call->rows; i++) {
    int64_t least = -1;
    for (size_t p = 0; p < parts; p++) {
      const int64_t c = w->to[p];
      if (!w->room[c]) continue;
      if (least < 0 || w->sums[c] < w->sums[least] || (w->sums[c] == w->sums[least] && c < least))
        least = c;
    }
    w->owner[w->sorted[i]] = least;
    w->room[least]--;
    w->sums[least] += w->loads[w->sorted[i]];
  }
}

/* rows: those of a coordinate, the largest first. */
static size_t list_of(const work *w, int64_t coordinate, int64_t *rows) {
  size_t count = 0;
  for (size_t i = 0; i < w->call->rows; i++)
    if (w->owner[w->sorted[i]] == coordinate) rows[count++] = w->sorted[i];
  return count;
}

/* The swap of a larger row of coordinate `most` with a smaller one of `least` that brings their work closest. Is there one? */
static bool swap_best(work *w, int64_t most, int64_t least) {
  const int64_t gap = w->sums[most] - w->sums[least];
  const size_t larger = list_of(w, most, w->some), smaller = list_of(w, least, w->part_of);
  int64_t best = gap, a = -1, b = -1; /* best: how far they are apart then */
  for (size_t i = 0, j = 0; i < larger; i++) {
    while (j < smaller && w->loads[w->some[i]] - w->loads[w->part_of[j]] < gap / 2) j++;
    for (size_t near = j ? j - 1 : 0; near <= j && near < smaller; near++) {
      const int64_t moved = w->loads[w->some[i]] - w->loads[w->part_of[near]],
                    apart = moved <= gap / 2 ? gap - 2 * moved : 2 * moved - gap;
      if (moved <= 0 || moved >= gap || apart >= best) continue;
      best = apart;
      a = w->some[i];
      b = w->part_of[near];
    }
  }
  if (a < 0) return false;
  w->owner[a] = least;
  w->owner[b] = most;
  w->sums[most] -= w->loads[a] - w->loads[b];
  w->sums[least] += w->loads[a] - w->loads[b];
  return true;
}

/* Each swap leaves both between what they were. */
static void bring_closer(work *w, size_t parts) {
  for (size_t swaps = 0; swaps < w->call->rows; swaps++) {
    int64_t most = w->to[0], least = w->to[0];
    for (size_t p = 1; p < parts; p++) {
      if (w->sums[w->to[p]] > w->sums[most]) most = w->to[p];
      if (w->sums[w->to[p]] < w->sums[least]) least = w->to[p];
    }
    if (!swap_best(w, most, least)) return;
  }
}

static treadle_status divide(work *w) {
  const treadle_balance_call *call = w->call;
  size_t parts = 0;
  int64_t each = (int64_t)call->rows;
  treadle_status status;
  for (size_t c = 0; c < call->coordinates; c++) {
    w->room[c] = call->counts[c];
    if (!call->counts[c]) continue;
    w->to[parts++] = (int64_t)c;
    if (call->counts[c] < each) each = call->counts[c];
  }
  for (size_t i = 0; i < call->rows; i++) w->sorted[i] = (int64_t)i;
  TRY(sort_by(w->loads, true, w->sorted, call->rows));
  TRY(sort_by(w->room, false, w->to, parts));
  TRY(give_equally(w, parts, each));
  if (parts * (size_t)each == call->rows) goto out;
  give_rest(w, parts, parts * (size_t)each);
  bring_closer(w, parts);
out:
  return status;
}

/* ---- Rows of a coordinate ---------------------------------------------------------------------------------- */

/* values [count]: of the rows at hand. */
static void pick(const int64_t *from, const int64_t *rows, int64_t count, int64_t *values) {
  for (int64_t i = 0; i < count; i++) values[i] = from[rows[i]];
}

/* Rows [count] of a coordinate: those with less work at both ends. */
static treadle_status put_small_at_ends(work *w, int64_t *rows, int64_t count) {
  int64_t *order = w->sorted, all; /* sorted has done its work */
  const treadle_balance_spec spec = {.struct_size = sizeof spec,
                                     .loads = w->some,
                                     .count = (size_t)count,
                                     .parts = 1,
                                     .equal = true,
                                     .ends_small = true};
  treadle_status status;
  if (!count) return TREADLE_OK;
  pick(w->loads, rows, count, w->some);
  TRY(treadle_balance_divide(&spec, order, &all));
  pick(rows, order, count, w->part_of);
  for (int64_t i = 0; i < count; i++) rows[i] = w->part_of[i];
out:
  return status;
}

static treadle_balance_micro_spec micro_spec(work *w, const int64_t *rows, int64_t count, int64_t least) {
  pick(w->call->lengths, rows, count, w->some);
  return (treadle_balance_micro_spec){.struct_size = sizeof(treadle_balance_micro_spec),
                                      .lengths = w->some,
                                      .count = (size_t)count,
                                      .max_tokens = w->call->max_tokens,
                                      .least = least < count ? least : count};
}

/* The number of micro batches that the coordinate with the most needs. */
static treadle_status count_micro(work *w, const int64_t *order, int64_t *most_p) {
  treadle_status status = TREADLE_OK;
  *most_p = 0;
  for (size_t c = 0; c < w->call->coordinates; order += w->call->counts[c], c++) {
    const treadle_balance_micro_spec spec = micro_spec(w, order, w->call->counts[c], 0);
    int64_t count;
    TRY(treadle_balance_micro_count(&spec, &count));
    if (count > *most_p) *most_p = count;
  }
out:
  return status;
}

/* Rows [count] of a coordinate in `least` micro batches. Does each fit? Else *fits_p is false, and rows are as they were. */
static treadle_status form(work *w, int64_t *rows, int64_t count, int64_t least, int64_t *micro_batches,
                           bool *fits_p) {
  int64_t *order = w->sorted, *counts = w->part_of, batches, at = 0;
  const treadle_balance_micro_spec spec = micro_spec(w, rows, count, least);
  treadle_status status;
  TRY(treadle_balance_micro_count(&spec, &batches));
  TRY(treadle_balance_micro_divide(&spec, order, counts));
  for (int64_t m = 0; m < batches; m++) {
    int64_t tokens = 0;
    for (int64_t end = at + counts[m]; at < end; at++) {
      tokens += w->some[order[at]];
      micro_batches[at] = m;
    }
    *fits_p = *fits_p && tokens <= w->call->max_tokens;
  }
  if (!*fits_p) goto out;
  pick(rows, order, count, w->part_of);
  for (int64_t i = 0; i < count; i++) rows[i] = w->part_of[i];
out:
  return status;
}

/* Of each coordinate, rows in the order of their numbers before: what has more tokens than may be is divided anew. */
static treadle_status form_all(work *w, int64_t *order, int64_t *micro_batches) {
  const treadle_balance_call *call = w->call;
  int64_t most, *kept = treadle_alloc_array(call->rows + 1, sizeof *kept);
  bool fits = false;
  treadle_status status = TREADLE_OK;
  if (!kept) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for micro batches of %zu rows", call->rows));
  for (size_t i = 0; i < call->rows; i++) kept[i] = order[i];
  TRY(count_micro(w, order, &most));
  for (; !fits; most++) {
    int64_t at = 0;
    fits = true;
    for (size_t i = 0; i < call->rows; i++) order[i] = kept[i];
    for (size_t c = 0; c < call->coordinates && fits; at += call->counts[c], c++)
      TRY(form(w, order + at, call->counts[c], most, micro_batches + at, &fits));
  }
out:
  treadle_free(kept);
  return status;
}

/* ---- All --------------------------------------------------------------------------------------------------- */

static treadle_status check(const treadle_balance_call *call) {
  int64_t left = (int64_t)call->rows;
  for (size_t c = 0; c < call->coordinates; c++) {
    if (call->counts[c] < 0 || call->counts[c] > left)
      REFUSE("coordinate %zu takes %lld rows; %lld of %zu are left", c, (long long)call->counts[c],
             (long long)left, call->rows);
    left -= call->counts[c];
  }
  if (left) REFUSE("nobody takes %lld of %zu rows", (long long)left, call->rows);
  return TREADLE_OK;
}

static treadle_status take_memory(work *w) {
  const size_t rows = w->call->rows, coordinates = w->call->coordinates;
  int64_t *all = treadle_alloc_array(5 * rows + 4 * coordinates, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory to divide %zu rows", rows);
  w->loads = all;
  w->owner = all + rows;
  w->sorted = all + 2 * rows;
  w->some = all + 3 * rows;
  w->part_of = all + 4 * rows;
  w->room = all + 5 * rows;
  w->sums = w->room + coordinates;
  w->to = w->sums + coordinates;
  return TREADLE_OK;
}

treadle_status treadle_balance_call_rows(const treadle_balance_call *call, int64_t *order,
                                         int64_t *micro_batches) {
  work w = {.call = call};
  int64_t all, *counts, at = 0;
  treadle_status status;
  TRY(check(call));
  if (!call->rows) goto out;
  TRY(take_memory(&w));
  counts = w.to + call->coordinates;
  TRY(treadle_balance_workload(call->lengths, call->rows, w.loads));
  TRY(treadle_balance_sum("work", w.loads, call->rows, &all));
  TRY(divide(&w));
  treadle_balance_list(w.owner, call->rows, call->coordinates, order, counts);
  if (call->max_tokens) TRY(form_all(&w, order, micro_batches));
  for (size_t c = 0; !call->max_tokens && c < call->coordinates; at += call->counts[c], c++)
    TRY(put_small_at_ends(&w, order + at, call->counts[c]));
out:
  treadle_free(w.loads);
  return status;
}
