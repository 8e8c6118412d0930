/* Which physical page each page of each window lies on. Decided when the switch is made, and never changed: an arrow
 * changes who owns a page, not where it is.
 *
 *      [ params | gradients | optimizer state | further pages ]
 *
 * Params, gradients and optimizer state have pages of their own. Pages of the infer window lie where the plan's
 * waves allow: on pages of params that are free by then, or on fresh ones. Fresh pages are first those of gradients and
 * optimizer state that leave the device before the first wave, then further pages.
 * Work memory of training lies after the pages of training, and the reference on those of gradients and optimizer state, which are away
 * while it is there, and then after the part of that work memory which mode FORWARD has.
 * Own tensors need no pages: where nothing else lies on a page of a window, it is a hole. Staging, in which others read them, lies on
 * pages that nobody else has in mode INFER.
 * With double_infer the infer window has a second set of pages, for the next version, which are nobody else's in mode INFER (double.c).
 * Pages that neither the infer window nor staging nor a kept class lies on are the engine's: first those of its work memory, then the KV cache on
 * all others. If they are too few for both, there are more pages. */
#include "switch/switch.h"

#include <inttypes.h>

static int64_t pages_of(size_t bytes, int64_t page) { return ((int64_t)bytes + page - 1) / page; }

static treadle_status make_table(treadle_page_tables *place, treadle_class which, int64_t pages) {
  place->pages[which] = pages;
  place->page[which] = treadle_arena_alloc_array(&place->arena, (size_t)pages + 1, sizeof(int32_t));
  return place->page[which] ? TREADLE_OK : treadle_memory_is_out();
}

int64_t treadle_place_held(const treadle_page_tables *place, treadle_class which) {
  int64_t count = 0;
  for (int64_t i = 0; i < place->pages[which]; i++) count += place->page[which][i] >= 0;
  return count;
}

/* Pages that follow each other. holes: NULL: there are none. */
static void put_in_line(treadle_page_tables *place, treadle_class which, const uint8_t *holes) {
  for (int64_t i = 0; i < place->pages[which]; i++)
    place->page[which][i] = holes && holes[i] ? -1 : (int32_t)place->physical++;
}

/* The physical page of the plan's n-th fresh page. */
static int64_t fresh_page(const treadle_place_terms *in, const treadle_page_tables *place, int64_t n) {
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (!in->terms->leaves[c]) continue;
    if (n < place->pages[c]) return place->page[c][n];
    n -= place->pages[c];
  }
  return treadle_place_held(place, TREADLE_PARAMS) + place->pages[TREADLE_GRADS] +
         place->pages[TREADLE_OPTIMIZER] + n;
}

/* By the plan's fresh page, how many of those before it are needed: number[fresh]. Those that only holes lie on are left out. */
static treadle_status number_fresh(const treadle_place_terms *in, int32_t **number_p) {
  const treadle_plan *plan = in->plan;
  const uint8_t *holes = in->holes->marks[TREADLE_INFER];
  int64_t count = plan->physical_pages - plan->from_pages, next = 0;
  int32_t *number = treadle_alloc_array((size_t)(count > 0 ? count : 0) + 1, sizeof *number);
  *number_p = number;
  if (!number) return treadle_memory_is_out();
  for (int64_t i = 0; i < plan->to_pages; i++)
    if (plan->to_page[i] >= plan->from_pages && !(holes && holes[i]))
      number[plan->to_page[i] - plan->from_pages] = 1;
  for (int64_t i = 0; i < count; i++) {
    bool needed = number[i];
    number[i] = (int32_t)next;
    next += needed;
  }
  return TREADLE_OK;
}

static treadle_status place_infer(const treadle_place_terms *in, treadle_page_tables *place) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = in->plan;
  const uint8_t *holes = in->holes->marks[TREADLE_INFER];
  int32_t *number = NULL;
  TRY(make_table(place, TREADLE_INFER_PARAMS, plan->to_pages));
  TRY(number_fresh(in, &number));
  for (int64_t i = 0; i < plan->to_pages; i++) {
    int64_t page = plan->to_page[i];
    if (page >= plan->from_pages) page = fresh_page(in, place, number[page - plan->from_pages]);
    if (holes && holes[i]) page = -1;
    place->page[TREADLE_INFER_PARAMS][i] = (int32_t)page;
    if (page >= place->physical) place->physical = page + 1;
  }
out:
  treadle_free(number);
  return status;
}

/* Marks the pages that both windows of parameters lie on. */
static treadle_status mark_aliased(const treadle_place_terms *in, treadle_page_tables *place) {
  const treadle_arrangement *arrangement = &in->plan->arrangement;
  if (arrangement->pages == 0) return TREADLE_OK;
  place->aliased = treadle_arena_alloc(&place->arena, (size_t)place->physical + 1);
  if (!place->aliased) return treadle_memory_is_out();
  for (int64_t i = 0; i < in->plan->to_pages; i++)
    if (arrangement->from_of[i] >= 0) place->aliased[place->page[TREADLE_INFER_PARAMS][i]] = 1;
  return TREADLE_OK;
}

/* After the pages of params, gradients and optimizer state. */
static treadle_status place_training(const treadle_place_terms *in, treadle_page_tables *place) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options *o = &in->terms->options;
  const int64_t page = in->plan->page_bytes, begin = place->physical,
                params = treadle_place_held(place, TREADLE_PARAMS);
  const int64_t forward = pages_of(o->forward_work_bytes, page);
  size_t work = o->train_work_bytes > o->forward_work_bytes ? o->train_work_bytes : o->forward_work_bytes;
  place->bytes[TREADLE_TRAIN_WORK] = work;
  place->bytes[TREADLE_REFERENCE] = o->reference_bytes;
  TRY(make_table(place, TREADLE_TRAIN_WORK, pages_of(work, page)));
  TRY(make_table(place, TREADLE_REFERENCE, pages_of(o->reference_bytes, page)));
  put_in_line(place, TREADLE_TRAIN_WORK, NULL);
  for (int64_t i = 0; i < place->pages[TREADLE_REFERENCE]; i++) {
    int64_t at = params + i < begin ? params + i : params + i + forward;
    place->page[TREADLE_REFERENCE][i] = (int32_t)at;
    if (at >= place->physical) place->physical = at + 1;
  }
out:
  return status;
}

/* Which pages the engine cannot have: those of the infer window, in both of its sets, and of classes that stay. */
static char *mark_taken(const treadle_place_terms *in, const treadle_page_tables *place, int64_t *count_p) {
  char *taken = treadle_alloc((size_t)place->physical + 1);
  *count_p = 0;
  for (int c = 0; taken && c < TREADLE_KV; c++) {
    bool stays = c == TREADLE_INFER_PARAMS || !in->terms->leaves[c];
    for (int64_t i = 0; stays && i < place->pages[c]; i++) {
      if (place->page[c][i] < 0) continue;
      *count_p += !taken[place->page[c][i]];
      taken[place->page[c][i]] = 1;
    }
  }
  for (int64_t i = 0; taken && place->other && i < place->pages[TREADLE_INFER_PARAMS]; i++) {
    ++*count_p;
    taken[place->other[i]] = 1;
  }
  return taken;
}

/* The other set of the infer window, where it has two, lies on pages that neither the first one nor a kept class lies on. */
static treadle_status place_other(const treadle_place_terms *in, treadle_page_tables *place) {
  treadle_status status = TREADLE_OK;
  int64_t held, marked = place->physical, at = 0, pages = place->pages[TREADLE_INFER_PARAMS];
  if (!in->terms->options.double_infer) return TREADLE_OK;
  int32_t *other = treadle_arena_alloc_array(&place->arena, (size_t)pages + 1, sizeof *other);
  char *taken = mark_taken(in, place, &held);
  if (!taken || !other) TRY(treadle_memory_is_out());
  for (int64_t i = 0; i < pages; at++)
    if (at >= marked || !taken[at]) other[i++] = (int32_t)at;
  if (at > place->physical) place->physical = at;
  place->other = other;
out:
  treadle_free(taken);
  return status;
}

/* The next `pages` free pages become a window's, from *at on. */
static treadle_status put_on_free(treadle_page_tables *place, treadle_class which, int64_t pages,
                                  const char *taken, int64_t marked, int64_t *at) {
  treadle_status status = TREADLE_OK;
  TRY(make_table(place, which, pages));
  for (int64_t i = 0; i < pages; (*at)++)
    if (*at >= marked || !taken[*at]) place->page[which][i++] = (int32_t)*at;
out:
  return status;
}

/* With a budget, all that the engine needs fits into it. */
static treadle_status check_budget(const treadle_place_terms *in, int64_t held, int64_t work, int64_t kv) {
  const int64_t page = in->plan->page_bytes, budget = (int64_t)in->terms->options.budget_bytes;
  const int64_t outside = (int64_t)in->terms->options.outside_bytes;
  const int64_t all = (held + work + kv) * page + outside;
  if (budget == 0 || all <= budget) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: the budget of %" PRId64 " bytes is too small: in mode infer rank %d holds %" PRId64
      " bytes (infer params, staging and what stays on the device), and its engine takes %" PRId64
      " of work memory (activations and packed weights) and %" PRId64
      " for the KV cache; give at least %" PRId64 " bytes",
      budget, in->rank, held * page + outside, work * page, kv * page, all);
}

/* With a budget, the reference fits into it beside what computes with it. */
static treadle_status check_training(const treadle_place_terms *in, const treadle_page_tables *place) {
  const treadle_switch_options *o = &in->terms->options;
  const size_t page = (size_t)in->plan->page_bytes,
               forward = (size_t)pages_of(o->forward_work_bytes, (int64_t)page) * page;
  const size_t params = (size_t)treadle_place_held(place, TREADLE_PARAMS) * page,
               reference = (size_t)place->pages[TREADLE_REFERENCE] * page;
  const size_t all = params + forward + reference + o->outside_bytes;
  if (!o->budget_bytes || !reference || all <= o->budget_bytes) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: the budget of %zu bytes is too small: in mode forward rank %d holds %zu bytes of params, "
      "%zu of the reference and %zu of work memory; give at least %zu bytes",
      o->budget_bytes, in->rank, params, reference, forward, all);
}

static treadle_status check_count(const treadle_place_terms *in, const treadle_page_tables *place) {
  if (place->physical <= INT32_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "switch: rank %d would have %" PRId64 " pages, more than 2^31 - 1: take larger pages",
                      in->rank, place->physical);
}

/* Work memory and KV cache. The pool has at least `least` pages. */
static treadle_status place_engine(const treadle_place_terms *in, treadle_page_tables *place,
                                   int64_t least) {
  treadle_status status = TREADLE_OK;
  int64_t page = in->plan->page_bytes, block = (int64_t)in->terms->options.kv_block_bytes;
  int64_t held, at = 0, marked = place->physical, work = pages_of(in->work_bytes, page);
  int64_t kv = block > 0 ? pages_of(in->terms->options.kv_bytes / (size_t)block * (size_t)block, page) : 0;
  char *taken = mark_taken(in, place, &held);
  if (!taken) return treadle_memory_is_out();
  for (int64_t i = 0; i < place->staging_pages; i++) taken[place->staging[i]] = 1; /* an update needs it */
  held += place->staging_pages;
  TRY(check_budget(in, held, work, kv));
  if (place->physical < held + work + kv) place->physical = held + work + kv;
  if (place->physical < least) place->physical = least;
  TRY(check_count(in, place));
  place->bytes[TREADLE_WORK] = in->work_bytes;
  TRY(put_on_free(place, TREADLE_WORK, work, taken, marked, &at));
  int64_t blocks = block > 0 ? (place->physical - held - work) * page / block : 0;
  place->bytes[TREADLE_KV] = (size_t)(blocks * block);
  TRY(put_on_free(place, TREADLE_KV, pages_of(place->bytes[TREADLE_KV], page), taken, marked, &at));
out:
  treadle_free(taken);
  return status;
}

/* Staging lies on pages that neither the infer window nor a kept class lies on, nor params, which are there when it is used, nor the engine's,
 * which stay in an update. */
static treadle_status place_staging(const treadle_place_terms *in, treadle_page_tables *place) {
  treadle_status status = TREADLE_OK;
  int64_t held, marked = place->physical, at = 0;
  place->staging_pages = in->staging_bytes / in->plan->page_bytes;
  place->staging =
      treadle_arena_alloc_array(&place->arena, (size_t)place->staging_pages + 1, sizeof *place->staging);
  char *taken = mark_taken(in, place, &held);
  if (!taken || !place->staging) TRY(treadle_memory_is_out());
  for (int64_t i = 0; i < place->pages[TREADLE_PARAMS]; i++)
    if (place->page[TREADLE_PARAMS][i] >= 0) taken[place->page[TREADLE_PARAMS][i]] = 1;
  for (int64_t i = 0; i < place->staging_pages; at++)
    if (at >= marked || !taken[at]) place->staging[i++] = (int32_t)at;
  if (at > place->physical) place->physical = at;
out:
  treadle_free(taken);
  return status;
}

treadle_status treadle_place_windows(const treadle_place_terms *in, int64_t least,
                                     treadle_page_tables *place) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = in->plan;
  place->bytes[TREADLE_PARAMS] = treadle_layout_window_bytes(in->plan->from, in->rank);
  place->bytes[TREADLE_GRADS] = in->terms->options.grads_bytes;
  place->bytes[TREADLE_OPTIMIZER] = in->terms->options.optimizer_bytes;
  place->bytes[TREADLE_INFER_PARAMS] = (size_t)plan->arrangement.window_bytes;
  TRY(make_table(place, TREADLE_PARAMS, plan->from_pages));
  TRY(make_table(place, TREADLE_GRADS, pages_of(in->terms->options.grads_bytes, plan->page_bytes)));
  TRY(make_table(place, TREADLE_OPTIMIZER, pages_of(in->terms->options.optimizer_bytes, plan->page_bytes)));
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++)
    put_in_line(place, (treadle_class)c, c == TREADLE_PARAMS ? in->holes->marks[TREADLE_TRAIN] : NULL);
  int64_t training = place->physical, infer;
  TRY(place_infer(in, place));
  infer = place->physical;
  place->physical = training;
  TRY(place_training(in, place));
  if (place->physical < infer) place->physical = infer;
  TRY(check_training(in, place));
  TRY(place_other(in, place));
  TRY(check_count(in, place));
  TRY(place_staging(in, place));
  TRY(check_count(in, place));
  TRY(place_engine(in, place, least));
  TRY(mark_aliased(in, place)); /* a mark for each page of the pool */
out:
  return status;
}
