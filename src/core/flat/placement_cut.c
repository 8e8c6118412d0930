/* Placements, one dimension: every function walks the steps once, from the whole dimension to what a rank has. */
#include "flat/placement_cut.h"

#include <stdlib.h>

/* n elements in parts: `full` of them have `part` elements, and one, perhaps, has `last` of them, less than that. A chunk of a full one
 * has `each` elements, one of the last one `last_each`; where these end, fewer. */
typedef struct parts {
  int64_t part, full, last, each, last_each;
} parts;

static int64_t divide_up(int64_t n, int64_t by) { return n / by + (n % by != 0); }

/* Divisions are most of what it costs to find an element, so there are no more than needed: most steps have split = 1. */
static parts parts_of(const treadle_placement_step *step, int64_t n) {
  parts p = {.part = n, .full = n > 0};
  if (n > 0 && step->split > 1) {
    p.part = divide_up(n, step->split);
    p.full = n / p.part;
    p.last = n % p.part;
    p.last_each = divide_up(p.last, step->size);
  }
  p.each = divide_up(p.part, step->size);
  return p;
}

/* Elements of chunk i of a part. */
static int64_t chunk_of(int64_t part, int64_t each, int64_t i) {
  int64_t left = part - i * each;
  return left < 0 ? 0 : left < each ? left : each;
}

/* Of all parts. */
static int64_t chunks_of(const parts *p, int64_t i) {
  return p->full * chunk_of(p->part, p->each, i) + chunk_of(p->last, p->last_each, i);
}

int64_t treadle_placement_length(const treadle_placement_cut *cut, int dim, int64_t n,
                                 const int64_t *coordinates) {
  for (int32_t s = cut->first[dim]; s < cut->first[dim + 1]; s++) {
    const parts p = parts_of(&cut->steps[s], n);
    n = chunks_of(&p, coordinates[cut->steps[s].mesh_dim]);
  }
  return n;
}

/* ---- The longest ---- */

typedef TREADLE_ARRAY(int64_t) lengths;

static int descending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static void keep_once(lengths *some) {
  size_t kept = 0;
  if (some->count > 1) qsort(some->items, some->count, sizeof *some->items, descending);
  for (size_t i = 0; i < some->count; i++)
    if (kept == 0 || some->items[kept - 1] != some->items[i]) some->items[kept++] = some->items[i];
  some->count = kept;
}

/* Chunks of one part change their length twice: full ones, perhaps a short one, empty ones. So the lengths of a step are those at
 * these places of its two kinds of parts. */
static treadle_status push_lengths(const treadle_placement_step *step, int64_t n, lengths *next) {
  treadle_status status = TREADLE_OK;
  const parts p = parts_of(step, n);
  const int64_t full[2] = {p.part > 0 ? p.part / p.each : 0, p.last > 0 ? p.last / p.last_each : 0};
  TRY(treadle_array_push(next, chunks_of(&p, 0)));
  for (int k = 0; k < 2; k++)
    for (int64_t i = full[k]; i <= full[k] + 1; i++)
      if (i < step->size) TRY(treadle_array_push(next, chunks_of(&p, i)));
out:
  return status;
}

/* The first rank has most of what one step divides, but with _StridedShard more elements may give it less: 13 in 4 parts over 2
 * are 2 + 2 + 2 + 1, and 12 are 2 + 2 + 2 + 2. So all lengths that there are go into the next step. */
treadle_status treadle_placement_longest(const treadle_placement_cut *cut, int dim, int64_t n,
                                         int64_t *longest_p) {
  treadle_status status = TREADLE_OK;
  lengths now = {0}, next = {0};
  TRY(treadle_array_push(&now, n));
  for (int32_t s = cut->first[dim]; s < cut->first[dim + 1]; s++) {
    next.count = 0;
    for (size_t i = 0; i < now.count; i++) TRY(push_lengths(&cut->steps[s], now.items[i], &next));
    keep_once(&next);
    lengths swap = now;
    now = next;
    next = swap;
  }
  *longest_p = now.items[0];
out:
  treadle_array_release(&now);
  treadle_array_release(&next);
  return status;
}

/* ---- Elements ---- */

treadle_placement_run treadle_placement_find(const treadle_placement_cut *cut, int dim, int64_t n,
                                             int64_t at, int64_t *coordinates) {
  int64_t local = at, behind = at, ahead = n - at; /* elements of the run before `at`, and from it on */
  for (int32_t s = cut->first[dim]; s < cut->first[dim + 1]; s++) {
    const treadle_placement_step *step = &cut->steps[s];
    const parts p = parts_of(step, n);
    int64_t number = local < p.part ? 0 : local / p.part, in = local - number * p.part;
    bool full = number < p.full;
    int64_t part = full ? p.part : p.last, each = full ? p.each : p.last_each;
    int64_t i = in / each, rest = in - i * each, chunk = chunk_of(part, each, i);
    if (rest < behind) behind = rest;
    if (chunk - rest < ahead) ahead = chunk - rest;
    coordinates[step->mesh_dim] = i;
    local = number * chunk_of(p.part, p.each, i) + rest;
    n = chunks_of(&p, i);
  }
  return (treadle_placement_run){at - behind, at + ahead, local - behind, n};
}

int64_t treadle_placement_element(const treadle_placement_cut *cut, int dim, int64_t n,
                                  const int64_t *coordinates, int64_t local) {
  parts cut_in[TREADLE_MAX_PLACED_DIMS]; /* by step */
  for (int32_t s = cut->first[dim]; s < cut->first[dim + 1]; s++) {
    parts *p = &cut_in[s - cut->first[dim]];
    *p = parts_of(&cut->steps[s], n);
    n = chunks_of(p, coordinates[cut->steps[s].mesh_dim]);
  }
  for (int32_t s = cut->first[dim + 1]; s-- > cut->first[dim];) {
    const parts *p = &cut_in[s - cut->first[dim]];
    int64_t i = coordinates[cut->steps[s].mesh_dim], chunk = chunk_of(p->part, p->each, i);
    int64_t number = chunk > 0 && local / chunk < p->full ? local / chunk : p->full;
    int64_t each = number < p->full ? p->each : p->last_each;
    local = number * p->part + i * each + (local - number * chunk);
  }
  return local;
}
