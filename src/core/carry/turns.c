/* Turns: which pages of a window a wave is the first to write, and until when what lies there is read through the other window.
 *
 * Both follow from the plan and from where pages lie, and are listed when they are made. What is checked in a wave is independent of the waves
 * that the plan waits for (need): the other ranks have finished the last one that reads the page. */
#include "carry/carry_parts.h"

#include "base/alloc.h"
#include "plan/pages.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>

/* The waves in which each page of the window that a direction writes is first and last written. */
static treadle_status find_lives(const treadle_carry *c, treadle_side to, treadle_page_life **lives_p) {
  const treadle_plan *plan = c->plan;
  const treadle_direction *direction = treadle_carry_direction(c, to);
  const int64_t count = treadle_carry_pages(c, to);
  treadle_page_life *lives = treadle_alloc_array((size_t)count + 1, sizeof *lives);
  *lives_p = lives;
  if (!lives) return treadle_memory_is_out();
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
static bool has_turn(const int32_t *pages, const treadle_page_life *lives, int64_t page) {
  return lives[page].last >= 0 && pages[page] >= 0;
}

/* Lists pages by the wave that first writes them: a counting sort. */
static treadle_status list_turns(treadle_carry *c, treadle_side to, const treadle_page_life *lives) {
  const int64_t count = treadle_carry_pages(c, to);
  const int32_t waves = c->plan->waves, *pages = c->pages[to];
  treadle_turns *turns = &c->turns[to];
  turns->page = treadle_alloc_array((size_t)count + 1, sizeof *turns->page);
  turns->first = treadle_alloc_array((size_t)waves + 1, sizeof *turns->first);
  turns->last_use = treadle_alloc_array((size_t)count + 1, sizeof *turns->last_use);
  if (!turns->page || !turns->first || !turns->last_use) return treadle_memory_is_out();
  int32_t *first = turns->first;
  for (int64_t i = 0; i < count; i++) first[has_turn(pages, lives, i) ? lives[i].first + 1 : 0]++;
  first[0] = 0; /* others are not listed */
  for (int32_t w = 0; w < waves; w++) first[w + 1] += first[w];
  for (int64_t i = 0; i < count; i++)
    if (has_turn(pages, lives, i)) turns->page[first[lives[i].first]++] = (int32_t)i;
  for (int32_t w = waves; w > 0; w--) first[w] = first[w - 1];
  first[0] = 0;
  return TREADLE_OK;
}

/* When the other window's page under each page of the window is last read; other_lives: of the direction that writes those. */
static treadle_status find_last_use(treadle_carry *c, treadle_side to, const treadle_page_life *other_lives,
                                    int64_t physical) {
  const treadle_side other = treadle_side_other(to);
  const int32_t *new_pages = c->pages[to], *old_pages = c->pages[other];
  int32_t *last_use = c->turns[to].last_use;
  int32_t *at = treadle_alloc_array((size_t)physical + 1, sizeof *at);
  if (!at) return treadle_memory_is_out();
  for (int64_t i = 0; i < physical; i++) at[i] = -1;
  for (int64_t i = 0; i < treadle_carry_pages(c, other); i++)
    if (old_pages[i] >= 0) at[old_pages[i]] = (int32_t)i;
  for (int64_t i = 0; i < treadle_carry_pages(c, to); i++) {
    int32_t page = new_pages[i] < 0 ? -1 : at[new_pages[i]];
    last_use[i] =
        page < 0 || other_lives[page].last < 0 ? -1 : c->plan->waves - 1 - other_lives[page].first;
  }
  treadle_free(at);
  return TREADLE_OK;
}

/* The plan promises that nothing is reclaimed before first_reclaim; a failure's message relies on it. */
static void check_first_reclaim(const treadle_carry *c, treadle_side to) {
  const treadle_turns *turns = &c->turns[to];
  for (int32_t i = 0; i < turns->first[treadle_carry_direction(c, to)->first_reclaim]; i++)
    assert(turns->last_use[turns->page[i]] < 0);
  (void)turns;
}

treadle_status treadle_turns_create(treadle_carry *c, int64_t physical) {
  treadle_status status = TREADLE_OK;
  treadle_page_life *lives[2] = {NULL, NULL};
  for (int to = 0; to < 2; to++) {
    TRY(find_lives(c, (treadle_side)to, &lives[to]));
    TRY(list_turns(c, (treadle_side)to, lives[to]));
  }
  for (int to = 0; to < 2; to++) {
    TRY(find_last_use(c, (treadle_side)to, lives[!to], physical));
    check_first_reclaim(c, (treadle_side)to);
  }
out:
  treadle_free(lives[0]);
  treadle_free(lives[1]);
  return status;
}

void treadle_turns_release(treadle_carry *c) {
  for (int to = 0; to < 2; to++) {
    treadle_free(c->turns[to].page);
    treadle_free(c->turns[to].first);
    treadle_free(c->turns[to].last_use);
  }
}

/* ---- In a wave ---- */

treadle_status treadle_turns_fail(const treadle_carry *c, int32_t wave, int32_t page, const char *what) {
  static const char *const names[2] = {"train", "infer"};
  treadle_storage_info info = {.struct_size = sizeof info, .name = "(none)"};
  const int rank = c->group->rank;
  const treadle_layout *layout = c->to == TREADLE_SIDE_INFER ? c->plan->to : c->plan->from;
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    if (c->to == TREADLE_SIDE_INFER ? treadle_plan_storage(c->plan, i, &info)
                                    : treadle_layout_storage(layout, rank, i, &info))
      break;
    if ((int64_t)(info.offset_bytes + info.bytes) > page * c->plan->page_bytes) break;
  }
  return treadle_fail(TREADLE_DIFFERENT, "rank %d: wave %d, tensor '%s' (page %d of the %s window): %s",
                      rank, wave, info.name, page, names[c->to], what);
}

static treadle_status check_read(const treadle_carry *c, int32_t wave, int32_t page) {
  const treadle_group *group = c->group;
  const int32_t last_use = c->turns[c->to].last_use[page];
  const uint64_t wanted = treadle_done_of(c->epoch, last_use);
  char what[96];
  if (last_use < 0) return TREADLE_OK;
  for (int rank = 0; rank < group->size; rank++) {
    if (rank == group->rank || !treadle_group_is_near(group, rank)) continue;
    if (treadle_word_of(group, rank, TREADLE_WORD_DONE) >= wanted) continue;
    snprintf(what, sizeof what, "reclaimed early: rank %d still reads what lies there, up to wave %d", rank,
             last_use);
    return treadle_turns_fail(c, wave, page, what);
  }
  return TREADLE_OK;
}

treadle_status treadle_turns_check(const treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_turns *turns = &c->turns[c->to];
  for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++)
    TRY(check_read(c, wave, turns->page[i]));
out:
  return status;
}
