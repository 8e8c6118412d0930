/* Which physical page each page of each window lies on. Decided when the switch is made, and never changed: an arrow
 * changes who owns a page, not where it is.
 *
 *      [ params | gradients | optimizer state | further pages ]
 *
 * Params, gradients and optimizer state have pages of their own. Pages of the infer window lie where the plan's
 * waves allow: on pages of params that are free by then, or on fresh ones. Fresh pages are first those of gradients and
 * optimizer state that leave the device before the first wave, then further pages.
 * The KV cache lies on all pages that neither the infer window nor a kept class lies on. */
#include "switch/switch.h"

static int64_t pages_of(size_t bytes, int64_t page) { return ((int64_t)bytes + page - 1) / page; }

static treadle_status make_table(treadle_page_tables *place, treadle_class which, int64_t pages) {
  place->pages[which] = pages;
  place->page[which] = treadle_arena_alloc_array(&place->arena, (size_t)pages + 1, sizeof(int32_t));
  return place->page[which] ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
}

/* Pages that follow each other. */
static void put_in_line(treadle_page_tables *place, treadle_class which) {
  for (int64_t i = 0; i < place->pages[which]; i++) place->page[which][i] = (int32_t)(place->physical + i);
  place->physical += place->pages[which];
}

/* The physical page of the plan's n-th fresh page. */
static int64_t fresh_page(const treadle_switch *sw, int64_t n) {
  const treadle_page_tables *place = &sw->space.tables;
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (!sw->terms.leaves[c]) continue;
    if (n < place->pages[c]) return place->page[c][n];
    n -= place->pages[c];
  }
  return place->pages[TREADLE_PARAMS] + place->pages[TREADLE_GRADS] + place->pages[TREADLE_OPTIMIZER] + n;
}

static treadle_status place_infer(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_page_tables *place = &sw->space.tables;
  const treadle_plan *plan = sw->plan;
  TRY(make_table(place, TREADLE_INFER_PARAMS, plan->to_pages));
  for (int64_t i = 0; i < plan->to_pages; i++) {
    int64_t page = plan->to_page[i];
    if (page >= plan->from_pages) page = fresh_page(sw, page - plan->from_pages);
    place->page[TREADLE_INFER_PARAMS][i] = (int32_t)page;
    if (page >= place->physical) place->physical = page + 1;
  }
out:
  return status;
}

/* Marks the pages that both windows of parameters lie on. */
static treadle_status mark_aliased(treadle_switch *sw) {
  const treadle_arrangement *arrangement = &sw->plan->arrangement;
  if (arrangement->pages == 0) return TREADLE_OK;
  sw->space.aliased = treadle_arena_alloc(&sw->space.tables.arena, (size_t)sw->space.tables.physical + 1);
  if (!sw->space.aliased) return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  for (int64_t i = 0; i < sw->plan->to_pages; i++)
    if (arrangement->from_of[i] >= 0) sw->space.aliased[sw->space.tables.page[TREADLE_INFER_PARAMS][i]] = 1;
  return TREADLE_OK;
}

static treadle_status place_kv(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_page_tables *place = &sw->space.tables;
  int64_t count = 0, block = (int64_t)sw->terms.options.kv_block_bytes, page_bytes = sw->plan->page_bytes;
  char *taken = treadle_alloc((size_t)place->physical + 1);
  if (!taken) return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  for (int c = 0; c < TREADLE_KV; c++) {
    bool stays = c == TREADLE_INFER_PARAMS || !sw->terms.leaves[c];
    for (int64_t i = 0; stays && i < place->pages[c]; i++) taken[place->page[c][i]] = 1;
  }
  TRY(make_table(place, TREADLE_KV, place->physical));
  for (int64_t page = 0; page < place->physical; page++)
    if (!taken[page]) place->page[TREADLE_KV][count++] = (int32_t)page;
  int64_t blocks = block > 0 ? count * page_bytes / block : 0;
  place->bytes[TREADLE_KV] = (size_t)(blocks * block);
  place->pages[TREADLE_KV] = pages_of(place->bytes[TREADLE_KV], page_bytes);
out:
  treadle_free(taken);
  return status;
}

treadle_status treadle_stage_choice_make(treadle_switch *sw, int64_t least) {
  treadle_status status = TREADLE_OK;
  treadle_page_tables *place = &sw->space.tables;
  const treadle_plan *plan = sw->plan;
  place->bytes[TREADLE_PARAMS] = treadle_layout_window_bytes(sw->layouts[TREADLE_TRAIN], sw->group->rank);
  place->bytes[TREADLE_GRADS] = sw->terms.options.grads_bytes;
  place->bytes[TREADLE_OPTIMIZER] = sw->terms.options.optimizer_bytes;
  place->bytes[TREADLE_INFER_PARAMS] = (size_t)plan->arrangement.window_bytes;
  TRY(make_table(place, TREADLE_PARAMS, plan->from_pages));
  TRY(make_table(place, TREADLE_GRADS, pages_of(sw->terms.options.grads_bytes, plan->page_bytes)));
  TRY(make_table(place, TREADLE_OPTIMIZER, pages_of(sw->terms.options.optimizer_bytes, plan->page_bytes)));
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) put_in_line(place, (treadle_class)c);
  TRY(place_infer(sw));
  if (place->physical < least) place->physical = least;
  if (place->physical > INT32_MAX)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "switch: rank %d would have %lld pages, more than 2^31 - 1: take larger pages",
                     sw->group->rank, (long long)place->physical));
  TRY(mark_aliased(sw));
  TRY(place_kv(sw));
out:
  return status;
}
