/* The largest differencing method, for any number of parts (Karmarkar and Karp 1982), with the ties of verl's utils/seqlen_balancing.py.
 *
 * A state is a way to divide some rows into parts: sets of rows, the largest first. It begins with a row in one set, or, if parts are to be equal,
 * with as many rows as parts, one in each, neighbours in the order of loads. The two states with the largest spread, from the largest set to the
 * smallest, become one: the largest set of one and the smallest of the other are united, and so on. The last state is the outcome.
 *
 * Sets are lists through `next`, so uniting two costs nothing. Only sets with rows are kept: no more than rows, in all states together. */
#include "control/balance.h"

#include "base/alloc.h"
#include "base/status.h"

#include <stdlib.h>

typedef struct row_set {
  int64_t sum, count;
  int64_t first, last; /* rows; the others between them through `next` */
} row_set;

typedef struct state {
  row_set *sets; /* [count] with rows, the largest first; others up to the number of parts are empty */
  size_t count;
} state;

typedef struct work {
  int64_t *next; /* [rows] */
  state *heap;   /* [count], the state that is taken next at 0 */
  size_t count, parts;
} work;

/* ---- What is larger ---- */

/* By sum, then by number of rows, then by the rows as they came into the set: two sets differ in the first one. */
static int compare_sets(const row_set *a, const row_set *b) {
  if (a->sum != b->sum) return a->sum < b->sum ? -1 : 1;
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  return a->first < b->first ? -1 : a->first > b->first;
}

static int larger_first(const void *a, const void *b) { return compare_sets(b, a); }

static int64_t spread(const work *w, const state *s) {
  return s->sets[0].sum - (s->count == w->parts ? s->sets[s->count - 1].sum : 0);
}

/* Is `a` taken before `b`? */
static bool is_before(const work *w, const state *a, const state *b) {
  int64_t x = spread(w, a), y = spread(w, b);
  return x != y ? x > y : compare_sets(&a->sets[0], &b->sets[0]) > 0;
}

/* ---- The heap ---- */

static void swap(state *a, state *b) {
  state kept = *a;
  *a = *b;
  *b = kept;
}

static void push(work *w, state s) {
  size_t at = w->count++;
  w->heap[at] = s;
  for (; at > 0 && is_before(w, &w->heap[at], &w->heap[(at - 1) / 2]); at = (at - 1) / 2)
    swap(&w->heap[at], &w->heap[(at - 1) / 2]);
}

static state pop(work *w) {
  state taken = w->heap[0];
  w->heap[0] = w->heap[--w->count];
  for (size_t at = 0, child; (child = 2 * at + 1) < w->count; at = child) {
    if (child + 1 < w->count && is_before(w, &w->heap[child + 1], &w->heap[child])) child++;
    if (!is_before(w, &w->heap[child], &w->heap[at])) break;
    swap(&w->heap[at], &w->heap[child]);
  }
  return taken;
}

/* ---- States ---- */

static treadle_status no_memory(size_t rows) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory to divide %zu rows", rows);
}

/* Rows rows[0] up to rows[count - 1], a set each. */
static treadle_status begin(work *w, const int64_t *loads, const int64_t *rows, size_t count) {
  state s = {.sets = treadle_alloc_array(count, sizeof *s.sets), .count = count};
  if (!s.sets) return no_memory(count);
  for (size_t i = 0; i < count; i++)
    s.sets[i] = (row_set){.sum = loads[rows[i]], .count = 1, .first = rows[i], .last = rows[i]};
  qsort(s.sets, count, sizeof *s.sets, larger_first);
  push(w, s);
  return TREADLE_OK;
}

static row_set unite(work *w, row_set a, row_set b) {
  w->next[a.last] = b.first;
  return (row_set){.sum = a.sum + b.sum, .count = a.count + b.count, .first = a.first, .last = b.last};
}

/* Set i of one with set parts - 1 - i of the other. Both are ended. */
static treadle_status merge(work *w, state a, state b, state *made_p) {
  treadle_status status = TREADLE_OK;
  size_t parts = w->parts, all = a.count + b.count;
  state made = {.count = all < parts ? all : parts};
  made.sets = treadle_alloc_array(made.count, sizeof *made.sets);
  if (!made.sets) TRY(no_memory(all));
  for (size_t i = 0; i < a.count; i++)
    made.sets[i] = parts - 1 - i < b.count ? unite(w, a.sets[i], b.sets[parts - 1 - i]) : a.sets[i];
  /* Empty sets of the first get the others of the second, which are its largest. */
  for (size_t i = a.count; i < made.count; i++) made.sets[i] = b.sets[i - a.count];
  qsort(made.sets, made.count, sizeof *made.sets, larger_first);
  *made_p = made;
out:
  treadle_free(a.sets);
  treadle_free(b.sets);
  return status;
}

/* ---- All ---- */

typedef struct loaded_row {
  int64_t load, row;
} loaded_row;

static int smaller_first(const void *a, const void *b) {
  const loaded_row *x = a, *y = b;
  if (x->load != y->load) return x->load < y->load ? -1 : 1;
  return x->row < y->row ? -1 : x->row > y->row;
}

/* rows [count], by load and number. */
static treadle_status sort_rows(const int64_t *loads, size_t count, int64_t *rows) {
  loaded_row *sorted = treadle_alloc_array(count, sizeof *sorted);
  if (!sorted) return no_memory(count);
  for (size_t i = 0; i < count; i++) sorted[i] = (loaded_row){.load = loads[i], .row = (int64_t)i};
  qsort(sorted, count, sizeof *sorted, smaller_first);
  for (size_t i = 0; i < count; i++) rows[i] = sorted[i].row;
  treadle_free(sorted);
  return TREADLE_OK;
}

treadle_status treadle_karmarkar_karp(const int64_t *loads, size_t count, size_t parts, bool equal,
                                      int64_t *owner) {
  treadle_status status = TREADLE_OK;
  work w = {.parts = parts};
  size_t each = equal ? parts : 1;
  int64_t *rows = treadle_alloc_array(count, sizeof *rows);
  w.next = treadle_alloc_array(count, sizeof *w.next);
  w.heap = treadle_alloc_array(count / each, sizeof *w.heap);
  if (!rows || !w.next || !w.heap) TRY(no_memory(count));
  TRY(sort_rows(loads, count, rows));
  for (size_t i = 0; i < count; i += each) TRY(begin(&w, loads, rows + i, each));
  while (w.count > 1) {
    state first = pop(&w), second = pop(&w), merged;
    TRY(merge(&w, first, second, &merged));
    push(&w, merged);
  }
  for (size_t part = 0; part < w.heap[0].count; part++) {
    const row_set *set = &w.heap[0].sets[part];
    for (int64_t i = 0, row = set->first; i < set->count; row = w.next[row], i++)
      owner[row] = (int64_t)part;
  }
out:
  for (size_t i = 0; i < w.count; i++) treadle_free(w.heap[i].sets);
  treadle_free(w.heap);
  treadle_free(w.next);
  treadle_free(rows);
  return status;
}
