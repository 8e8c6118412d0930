/* A hash table with open places; at most half of them are taken. */
#include "generate/token_counts.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <assert.h>

enum { FIRST_CAPACITY = 16 };

/* The place of a token, or the empty one where it belongs. */
static treadle_token_count *find(treadle_token_count *items, int64_t capacity, int32_t token) {
  uint64_t at = treadle_mix64((uint64_t)token);
  while (items[at & (uint64_t)(capacity - 1)].token >= 0 &&
         items[at & (uint64_t)(capacity - 1)].token != token)
    at++;
  return &items[at & (uint64_t)(capacity - 1)];
}

static treadle_status grow(treadle_token_counts *counts) {
  int64_t capacity = counts->capacity ? 2 * counts->capacity : FIRST_CAPACITY;
  treadle_token_count *items = treadle_alloc_array((size_t)capacity, sizeof *items);
  if (!items)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory to count %lld tokens", (long long)counts->count);
  for (int64_t i = 0; i < capacity; i++) items[i].token = -1;
  for (int64_t i = 0; i < counts->capacity; i++)
    if (counts->items[i].token >= 0) *find(items, capacity, counts->items[i].token) = counts->items[i];
  treadle_free(counts->items);
  counts->items = items;
  counts->capacity = capacity;
  return TREADLE_OK;
}

treadle_status treadle_token_counts_add(treadle_token_counts *counts, int32_t token, bool generated) {
  assert(token >= 0);
  treadle_status status = TREADLE_OK;
  if (2 * (counts->count + 1) > counts->capacity) TRY(grow(counts));
  treadle_token_count *item = find(counts->items, counts->capacity, token);
  counts->count += item->token < 0;
  item->token = token;
  item->generated += generated;
out:
  return status;
}

void treadle_token_counts_release(treadle_token_counts *counts) {
  treadle_free(counts->items);
  *counts = (treadle_token_counts){0};
}
