/* Micro batches by tokens: how many, and which rows each has (verl's rearrange_micro_batches). */
#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/sized.h"
#include "control/balance.h"

#include <stdlib.h>

/* ---- How many ---- */

static treadle_status check(const treadle_balance_micro_spec *spec, const char *function,
                            int64_t *tokens_p) {
  treadle_status status;
  if (spec->count > TREADLE_MAX_ROWS)
    REFUSE("%zu rows; at most %lld", spec->count, (long long)TREADLE_MAX_ROWS);
  if (spec->count && !spec->lengths) return treadle_refuse_null(function, "lengths");
  if (spec->max_tokens < 1) REFUSE("micro batches of %lld tokens; at least 1", (long long)spec->max_tokens);
  if (spec->least < 0 || spec->multiple < 0 || spec->dp_most < 0)
    REFUSE("numbers of micro batches below 0: least %lld, multiple %lld, dp_most %lld",
           (long long)spec->least, (long long)spec->multiple, (long long)spec->dp_most);
  TRY(treadle_balance_sum("lengths", spec->lengths, spec->count, tokens_p));
  for (size_t i = 0; i < spec->count; i++)
    if (spec->lengths[i] > spec->max_tokens) /* verl's words */
      REFUSE("max_token_len must be greater than the sequence length: row %zu has %lld tokens, and a micro "
             "batch at most %lld",
             i, (long long)spec->lengths[i], (long long)spec->max_tokens);
out:
  return status;
}

static treadle_status count_micro(const treadle_balance_micro_spec *spec, const char *function,
                                  int64_t *count_p) {
  treadle_status status;
  int64_t tokens, rows = (int64_t)spec->count, multiple = spec->multiple ? spec->multiple : 1;
  TRY(check(spec, function, &tokens));
  int64_t count = tokens / spec->max_tokens + (tokens % spec->max_tokens != 0);
  if (count > rows) count = rows;
  if (count == 0 && rows > 0) count = 1; /* of rows without tokens */
  if (count < spec->least) count = spec->least;
  if (count < spec->dp_most) count = spec->dp_most;
  if (!treadle_round_up_fits(count, multiple, &count) || count > rows)
    REFUSE(
        "more micro batches than %lld rows: at least %lld, the most of a dp rank %lld, a multiple of %lld",
        (long long)rows, (long long)spec->least, (long long)spec->dp_most, (long long)multiple);
  *count_p = count;
out:
  return status;
}

treadle_status treadle_balance_micro_count(const treadle_balance_micro_spec *spec, int64_t *count_p) {
  treadle_status status;
  treadle_balance_micro_spec given;
  TREADLE_NEED(count_p);
  *count_p = 0;
  TREADLE_NEED(spec);
  TRY(TREADLE_TAKE(spec, &given));
  TRY(count_micro(&given, __func__, count_p));
out:
  return status;
}

/* ---- Which rows ---- */

typedef struct micro_batch {
  int64_t load, first; /* its work, its first row */
  size_t part;
} micro_batch;

static int larger_first(const void *a, const void *b) {
  const micro_batch *x = a, *y = b;
  if (x->load != y->load) return x->load > y->load ? -1 : 1;
  return x->first > y->first ? -1 : x->first < y->first;
}

/* place [parts]: where each part goes. By work, the most first, they go .. 4, 2, 0, 1, 3, 5 .., so that the largest stand in the middle. */
static treadle_status place_parts(const int64_t *loads, size_t count, const int64_t *owner, size_t parts,
                                  int64_t *place) {
  micro_batch *all = treadle_alloc_array(parts, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu micro batches", parts);
  for (size_t p = 0; p < parts; p++) all[p] = (micro_batch){.first = -1, .part = p};
  for (size_t i = 0; i < count; i++) {
    all[owner[i]].load += loads[i];
    if (all[owner[i]].first < 0) all[owner[i]].first = (int64_t)i;
  }
  qsort(all, parts, sizeof *all, larger_first);
  size_t even = (parts + 1) / 2;
  for (size_t i = 0; i < parts; i++)
    place[all[i].part] = (int64_t)(i % 2 ? even + i / 2 : even - 1 - i / 2);
  treadle_free(all);
  return TREADLE_OK;
}

treadle_status treadle_balance_micro_divide(const treadle_balance_micro_spec *spec, int64_t *order,
                                            int64_t *counts) {
  treadle_status status;
  treadle_balance_micro_spec given;
  int64_t parts, sum, *loads = NULL, *owner, *place;
  TREADLE_NEED(spec);
  TRY(TREADLE_TAKE(spec, &given));
  TRY(count_micro(&given, __func__, &parts));
  if (parts == 0) return TREADLE_OK; /* of no rows */
  TREADLE_NEED(order);
  TREADLE_NEED(counts);
  loads = treadle_alloc_array(3 * given.count, sizeof *loads);
  if (!loads) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory to divide %zu rows", given.count));
  owner = loads + given.count;
  place = owner + given.count; /* no more parts than rows */
  TRY(treadle_balance_workload(given.lengths, given.count, loads));
  TRY(treadle_balance_sum("work", loads, given.count, &sum));
  TRY(treadle_karmarkar_karp(loads, given.count, (size_t)parts, false, owner));
  TRY(place_parts(loads, given.count, owner, (size_t)parts, place));
  for (size_t i = 0; i < given.count; i++) owner[i] = place[owner[i]];
  treadle_balance_list(owner, given.count, (size_t)parts, order, counts);
out:
  treadle_free(loads);
  return status;
}
