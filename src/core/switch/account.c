/* Accounting: who holds which physical page.
 *
 * A page has one owner at any time, a class or nobody, and is counted once. On the way to a mode, pages of the new window
 * get their new owner in the wave that first writes them (carry/turns.c). If a twin must have what lies there, it has it by then. */
#include "switch/switch.h"

#include "base/alloc.h"

#include <string.h>

treadle_status treadle_account_create(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_page_tables *place = &sw->space.tables;
  const int64_t counts[2] = {place->pages[TREADLE_PARAMS], place->pages[TREADLE_INFER_PARAMS]};
  sw->books.owner = treadle_alloc((size_t)place->physical + 1);
  if (!sw->books.owner) TRY(treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"));
  memset(sw->books.owner, TREADLE_NOBODY, (size_t)place->physical);
  sw->books.held[TREADLE_NOBODY] = place->physical;
  treadle_switch_place_windows(sw);
  TRY(treadle_turns_create(&sw->carry, counts, place->physical));
out:
  return status;
}

void treadle_account_release(treadle_switch *sw) { treadle_free(sw->books.owner); }

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
  const int64_t pages = ((int64_t)bytes + sw->carry.plan->page_bytes - 1) / sw->carry.plan->page_bytes;
  treadle_account_leave(sw, TREADLE_TRAIN_WORK);
  for (int64_t i = 0; i < pages && i < place->pages[TREADLE_TRAIN_WORK]; i++)
    treadle_account_set(sw, place->page[TREADLE_TRAIN_WORK][i], TREADLE_TRAIN_WORK);
}

void treadle_account_tell(treadle_switch *sw) {
  size_t bytes[TREADLE_CLASSES];
  if (!sw->terms.options.watch) return;
  for (int c = 0; c < TREADLE_CLASSES; c++)
    bytes[c] = (size_t)(sw->books.held[c] * sw->carry.plan->page_bytes);
  sw->terms.options.watch(sw->terms.options.watch_context, bytes, TREADLE_CLASSES);
}

/* ---- Waves ---- */

treadle_status treadle_account_wave(treadle_switch *sw, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_class new = treadle_class_of_side(sw->carry.to), old = treadle_class_opposite(new);
  const treadle_turns *turns = &sw->carry.turns[sw->carry.to];
  for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++) {
    int32_t page = turns->page[i], physical = sw->space.tables.page[new][page];
    treadle_class owner = (treadle_class)sw->books.owner[physical];
    if (owner == old) {
      if (old == TREADLE_PARAMS && sw->terms.copied[old] &&
          !sw->twins[old].has[physical]) /* params are in line */
        TRY(treadle_turns_fail(&sw->carry, wave, page,
                               "the twin has not yet what lies there (twin copied late)"));
      treadle_guard_spoil(sw, physical);
    } else if ((int)owner != TREADLE_NOBODY) {
      TRY(treadle_turns_fail(&sw->carry, wave, page,
                             "the page is held by a class that stays on the device"));
    }
    treadle_account_set(sw, physical, new);
  }
  /* A KV cache that stays in an update has what is free, and is not part of the switch. */
  int64_t held = sw->space.tables.physical - sw->books.held[TREADLE_NOBODY] - sw->books.held[TREADLE_KV];
  size_t bytes = (size_t)(held * sw->carry.plan->page_bytes);
  if (bytes > sw->stats.peak_bytes) sw->stats.peak_bytes = bytes;
  treadle_account_tell(sw);
out:
  return status;
}
