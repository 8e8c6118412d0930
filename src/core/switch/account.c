/* Accounting: who holds which physical page.
 *
 * A page has one owner at any time, a class or nobody, and is counted once. On the way to a mode, pages of the new window
 * get their new owner in the wave that first writes them; which pages these are follows from the plan and is listed when the
 * switch is made. Two rules are checked then, independently of the waves that the plan waits for (need):
 *
 *   1. all ranks have read what the old mode has on the page: the other ranks have finished the last wave that
 *      reads it;
 *   2. if a twin must have the old bytes, it has them. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "plan/pages.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- What is listed when the switch is made ---- */

/* The waves in which each page of the window that a direction writes is first and last written. */
static treadle_status find_lives(const treadle_switch *sw, treadle_mode to, treadle_page_life **lives_p) {
  const treadle_plan *plan = sw->plan;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  int64_t count = to == TREADLE_INFER ? plan->to_pages : plan->from_pages;
  treadle_page_life *lives = treadle_alloc_array((size_t)count + 1, sizeof *lives);
  *lives_p = lives;
  if (!lives) return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  for (int64_t i = 0; i < count; i++) lives[i] = (treadle_page_life){.first = INT32_MAX, .last = -1};
  for (size_t i = 0; i < direction->ops.count; i++)
    treadle_pages_touch(lives, plan->page_bytes, &direction->ops.items[i], direction->ops.items[i].to);
  for (size_t i = 0; i < direction->block_rows.count; i++) {
    const treadle_block_row *block_row = &direction->block_rows.items[i];
    treadle_pages_touch_block_row(lives, plan->page_bytes, block_row,
                                  &direction->block_row_parts.items[block_row->part_first]);
  }
  return TREADLE_OK;
}

/* Has the page of the window a wave? Not those that are never written, and no holes. */
static bool has_turn(const treadle_switch *sw, treadle_mode to, const treadle_page_life *lives,
                     int64_t page) {
  return lives[page].last >= 0 && sw->space.tables.page[treadle_class_of(to)][page] >= 0;
}

/* Lists pages by the wave that first writes them: a counting sort. */
static treadle_status list_turns(treadle_switch *sw, treadle_mode to, const treadle_page_life *lives) {
  int32_t waves = sw->plan->waves;
  treadle_first_writes *turns = &sw->books.turns[to];
  int64_t count = sw->space.tables.pages[treadle_class_of(to)];
  turns->page = treadle_alloc_array((size_t)count + 1, sizeof *turns->page);
  turns->first = treadle_alloc_array((size_t)waves + 1, sizeof *turns->first);
  turns->last_use = treadle_alloc_array((size_t)count + 1, sizeof *turns->last_use);
  if (!turns->page || !turns->first || !turns->last_use)
    return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  int32_t *first = turns->first;
  for (int64_t i = 0; i < count; i++) first[has_turn(sw, to, lives, i) ? lives[i].first + 1 : 0]++;
  first[0] = 0; /* others are not listed */
  for (int32_t w = 0; w < waves; w++) first[w + 1] += first[w];
  for (int64_t i = 0; i < count; i++)
    if (has_turn(sw, to, lives, i)) turns->page[first[lives[i].first]++] = (int32_t)i;
  for (int32_t w = waves; w > 0; w--) first[w] = first[w - 1];
  first[0] = 0;
  return TREADLE_OK;
}

/* When the old mode's page under each page of the new window is last read; old_lives: of the direction that writes those. */
static treadle_status find_last_use(treadle_switch *sw, treadle_mode to,
                                    const treadle_page_life *old_lives) {
  treadle_class new = treadle_class_of(to), old = treadle_class_opposite(new);
  const treadle_page_tables *place = &sw->space.tables;
  int32_t *last_use = sw->books.turns[to].last_use;
  int32_t *at = treadle_alloc_array((size_t)place->physical + 1, sizeof *at);
  if (!at) return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  for (int64_t i = 0; i < place->physical; i++) at[i] = -1;
  for (int64_t i = 0; i < place->pages[old]; i++)
    if (place->page[old][i] >= 0) at[place->page[old][i]] = (int32_t)i;
  for (int64_t i = 0; i < place->pages[new]; i++) {
    int32_t page = place->page[new][i] < 0 ? -1 : at[place->page[new][i]];
    last_use[i] = page < 0 || old_lives[page].last < 0 ? -1 : sw->plan->waves - 1 - old_lives[page].first;
  }
  treadle_free(at);
  return TREADLE_OK;
}

/* The plan promises that nothing is reclaimed before first_reclaim; a failure's message relies on it. */
static void check_first_reclaim(const treadle_switch *sw, treadle_mode to) {
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  const treadle_first_writes *turns = &sw->books.turns[to];
  for (int32_t i = 0; i < turns->first[direction->first_reclaim]; i++)
    assert(turns->last_use[turns->page[i]] < 0);
  (void)turns;
}

treadle_status treadle_account_create(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_page_life *lives[2] = {NULL, NULL};
  sw->books.owner = treadle_alloc((size_t)sw->space.tables.physical + 1);
  if (!sw->books.owner) TRY(treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"));
  memset(sw->books.owner, TREADLE_NOBODY, (size_t)sw->space.tables.physical);
  sw->books.held[TREADLE_NOBODY] = sw->space.tables.physical;
  for (int to = 0; to < 2; to++) {
    TRY(find_lives(sw, (treadle_mode)to, &lives[to]));
    TRY(list_turns(sw, (treadle_mode)to, lives[to]));
  }
  for (int to = 0; to < 2; to++) {
    TRY(find_last_use(sw, (treadle_mode)to, lives[!to]));
    check_first_reclaim(sw, (treadle_mode)to);
  }
out:
  treadle_free(lives[0]);
  treadle_free(lives[1]);
  return status;
}

void treadle_account_release(treadle_switch *sw) {
  for (int to = 0; to < 2; to++) {
    treadle_free(sw->books.turns[to].page);
    treadle_free(sw->books.turns[to].first);
    treadle_free(sw->books.turns[to].last_use);
  }
  treadle_free(sw->books.owner);
}

/* ---- Owners ---- */

void treadle_account_set(treadle_switch *sw, int32_t physical, int owner) {
  sw->books.held[sw->books.owner[physical]]--;
  sw->books.owner[physical] = (uint8_t)owner;
  sw->books.held[owner]++;
}

void treadle_account_take(treadle_switch *sw, treadle_class which) {
  for (int64_t i = 0; i < sw->space.tables.pages[which]; i++) {
    int32_t page = sw->space.tables.page[which][i];
    bool hole = page < 0, kept = !hole && which == TREADLE_INFER_PARAMS &&
                                 !sw->terms.leaves[TREADLE_PARAMS] &&
                                 sw->books.owner[page] == TREADLE_PARAMS;
    if (!hole && !kept)
      treadle_account_set(sw, page, which); /* a page of both stays with params where they stay */
  }
}

void treadle_account_leave(treadle_switch *sw, treadle_class which) {
  for (int64_t i = 0; i < sw->space.tables.pages[which]; i++) {
    int32_t page = sw->space.tables.page[which][i];
    if (page >= 0 && sw->books.owner[page] == which) treadle_account_set(sw, page, TREADLE_NOBODY);
  }
}

void treadle_account_staging(treadle_switch *sw, bool there) {
  for (int64_t i = 0; i < sw->space.tables.staging_pages; i++) {
    int32_t page = sw->space.tables.staging[i];
    if (there || sw->books.owner[page] == TREADLE_WORK)
      treadle_account_set(sw, page, there ? TREADLE_WORK : (int)TREADLE_NOBODY);
  }
}

size_t treadle_account_train_work_of(const treadle_switch *sw, treadle_mode mode) {
  const treadle_switch_options *o = &sw->terms.options;
  return mode == TREADLE_TRAIN ? o->train_work_bytes : mode == TREADLE_FORWARD ? o->forward_work_bytes : 0;
}

void treadle_account_train_work(treadle_switch *sw, size_t bytes) {
  const treadle_page_tables *place = &sw->space.tables;
  const int64_t pages = ((int64_t)bytes + sw->plan->page_bytes - 1) / sw->plan->page_bytes;
  treadle_account_leave(sw, TREADLE_TRAIN_WORK);
  for (int64_t i = 0; i < pages && i < place->pages[TREADLE_TRAIN_WORK]; i++)
    treadle_account_set(sw, place->page[TREADLE_TRAIN_WORK][i], TREADLE_TRAIN_WORK);
}

void treadle_account_tell(treadle_switch *sw) {
  size_t bytes[TREADLE_CLASSES];
  if (!sw->terms.options.watch) return;
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes[c] = (size_t)(sw->books.held[c] * sw->plan->page_bytes);
  sw->terms.options.watch(sw->terms.options.watch_context, bytes, TREADLE_CLASSES);
}

/* ---- Waves ---- */

static treadle_status page_fails(const treadle_switch *sw, treadle_mode to, int32_t wave, int32_t page,
                                 const char *what) {
  treadle_storage_info info = {.struct_size = sizeof info, .name = "(none)"};
  int rank = sw->group->rank;
  const treadle_layout *layout = sw->layouts[to];
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    if ((to == TREADLE_INFER ? treadle_plan_storage(sw->plan, i, &info)
                             : treadle_layout_storage(layout, rank, i, &info)))
      break;
    if ((int64_t)(info.offset_bytes + info.bytes) > page * sw->plan->page_bytes) break;
  }
  return treadle_fail(TREADLE_DIFFERENT, "rank %d: wave %d, tensor '%s' (page %d of the %s window): %s",
                      rank, wave, info.name, page, treadle_mode_text(to), what);
}

/* Rule 1. */
static treadle_status check_read(const treadle_switch *sw, treadle_mode to, int32_t wave, int32_t page,
                                 uint64_t epoch) {
  const treadle_group *group = sw->group;
  int32_t last_use = sw->books.turns[to].last_use[page];
  uint64_t wanted = treadle_done_of(epoch, last_use);
  char what[96];
  for (int rank = 0; rank < group->size; rank++) {
    if (rank == group->rank || last_use < 0 || !treadle_group_is_near(group, rank)) continue;
    if (treadle_word_of(group, rank, TREADLE_WORD_DONE) >= wanted) continue;
    snprintf(what, sizeof what, "reclaimed early: rank %d still reads what lies there, up to wave %d", rank,
             last_use);
    return page_fails(sw, to, wave, page, what);
  }
  return TREADLE_OK;
}

treadle_status treadle_account_wave(treadle_switch *sw, treadle_mode to, int32_t wave, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  treadle_class new = treadle_class_of(to), old = treadle_class_opposite(new);
  const treadle_first_writes *turns = &sw->books.turns[to];
  for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++) {
    int32_t page = turns->page[i], physical = sw->space.tables.page[new][page];
    treadle_class owner = (treadle_class)sw->books.owner[physical];
    if (owner == old) {
      TRY(check_read(sw, to, wave, page, epoch));
      if (old == TREADLE_PARAMS && sw->terms.copied[old] &&
          !sw->twins[old].has[physical]) /* params are in line */
        TRY(page_fails(sw, to, wave, page, "the twin has not yet what lies there (twin copied late)"));
      treadle_guard_spoil(sw, physical);
    } else if ((int)owner != TREADLE_NOBODY) {
      TRY(page_fails(sw, to, wave, page, "the page is held by a class that stays on the device"));
    }
    treadle_account_set(sw, physical, new);
  }
  /* A KV cache that stays in an update has what is free, and is not part of the switch. */
  int64_t held = sw->space.tables.physical - sw->books.held[TREADLE_NOBODY] - sw->books.held[TREADLE_KV];
  size_t bytes = (size_t)(held * sw->plan->page_bytes);
  if (bytes > sw->stats.peak_bytes) sw->stats.peak_bytes = bytes;
  treadle_account_tell(sw);
out:
  return status;
}
