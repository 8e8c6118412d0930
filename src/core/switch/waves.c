/* The carry of a switch: what the switch puts into it, and what it does around its waves. It injects faults, saves pages in their twin before
 * they are written, keeps the books, and tells how far it is. */
#include "switch/switch.h"

#include "group/outcome.h"

/* ---- Between waves ---- */

static treadle_status check(void *context) {
  return treadle_helm_check(((const treadle_switch *)context)->helm);
}

static treadle_status before(void *context, int32_t wave) {
  return treadle_switch_point(context, TREADLE_AT_WAVE, wave);
}

/* The pages that a wave first writes change hands. Fails when one of them is not in the twin that must have it. */
static treadle_status take_pages(treadle_switch *sw, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_class new = treadle_class_of_side(sw->carry.to), old = treadle_class_opposite(new);
  const treadle_turns *turns = &sw->carry.turns[sw->carry.to];
  for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++) {
    int32_t page = turns->page[i], physical = sw->space.tables.page[new][page];
    treadle_class owner = (treadle_class)sw->books.owner[physical];
    if (owner == old) {
      if (old == TREADLE_PARAMS && sw->terms.copied[old] &&
          !sw->twins.of[old].has[physical]) /* params are in line */
        TRY(treadle_turns_fail(&sw->carry, wave, page,
                               "the twin has not yet what lies there (twin copied late)"));
      treadle_guard_spoil(sw, physical);
    } else if ((int)owner != TREADLE_NOBODY) {
      TRY(treadle_turns_fail(&sw->carry, wave, page,
                             "the page is held by a class that stays on the device"));
    }
    treadle_books_set(&sw->books, physical, new);
  }
  /* A KV cache that stays in an update is not part of the switch. */
  const size_t bytes = treadle_books_held_beside_kv(&sw->books);
  if (bytes > sw->stats.peak_bytes) sw->stats.peak_bytes = bytes;
  treadle_books_tell(&sw->books);
out:
  return status;
}

static treadle_status reclaim(void *context, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = context;
  const treadle_carry *c = &sw->carry;
  const treadle_turns *turns = &c->turns[c->to];
  const bool saves = c->to == TREADLE_SIDE_INFER && sw->terms.copied[TREADLE_PARAMS];
  if (wave == treadle_carry_direction(c, c->to)->first_reclaim)
    TRY(treadle_epoch_reclaim(&sw->carry, c->epoch));
  if (saves && c->faults.planted != TREADLE_FAULT_LATE_TWIN)
    TRY(treadle_twins_fill(&sw->twins, turns->page + turns->first[wave],
                           (size_t)(turns->first[wave + 1] - turns->first[wave])));
  TRY(take_pages(sw, wave));
out:
  return status;
}

/* One byte of what this wave has copied is flipped, where that was asked for. */
static treadle_status corrupt(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_injection *injection = &c->faults.injection;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  const treadle_device_ops *device = c->device->ops;
  if (injection->what != TREADLE_INJECT_CORRUPT || wave < injection->wave) return TREADLE_OK;
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    if (direction->ops.items[i].source < 0) continue;
    const treadle_paged into = treadle_own_view(c, c->to, direction->ops.items[i].to);
    char *at = treadle_paged_into(&into, direction->ops.items[i].to), byte;
    device->move(c->device, &byte, at, 1);
    TRY(device->fence(c->device));
    byte ^= 0x10;
    device->move(c->device, at, &byte, 1);
    TRY(device->fence(c->device));
    injection->what = TREADLE_INJECT_NOTHING;
    break;
  }
out:
  return status;
}

/* A planted mistake puts the first page that both windows share elsewhere, or back again. No wave writes it. */
static void misplace_alias(const treadle_arrangement *arrangement, treadle_page_tables *tables) {
  for (int64_t page = 0; page < arrangement->to_pages && arrangement->from_of; page++)
    if (arrangement->from_of[page] >= 0) {
      tables->page[TREADLE_INFER_PARAMS][page] ^= 1;
      return;
    }
}

static treadle_status after(void *context, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = context;
  TRY(corrupt(&sw->carry, wave));
  treadle_helm_tell(sw->helm);
out:
  return status;
}

/* ---- The carry of a switch ---- */

static const treadle_carry_hooks hooks = {
    .check = check, .before = before, .reclaim = reclaim, .after = after};

void treadle_switch_carry_begin(treadle_switch *sw) {
  sw->carry.group = sw->group;
  sw->carry.device = &sw->device;
  sw->carry.hooks = &hooks;
  sw->carry.context = sw;
  sw->carry.figures = &sw->stats;
  sw->carry.epoch = 0;
}

void treadle_switch_carry_terms(treadle_switch *sw) {
  const treadle_switch_options *o = &sw->terms.options;
  sw->carry.terms = (treadle_carry_terms){.page_bytes = treadle_switch_page_bytes(o),
                                          .net_devices = o->net_devices,
                                          .goes_back = treadle_switch_rebuilds(sw) && !o->one_way,
                                          .doubled = o->double_infer,
                                          .delta = o->delta,
                                          .transforms = sw->engine.hooks.transforms};
}

treadle_status treadle_switch_place(treadle_switch *sw) {
  const treadle_switch_options *o = &sw->terms.options;
  const treadle_place_terms in = {.plan = sw->carry.plan,
                                  .terms = &sw->terms,
                                  .holes = &sw->holes,
                                  .rank = sw->group->rank,
                                  .work_bytes = sw->engine.hooks.work_bytes,
                                  .staging_bytes = treadle_staging_bytes(&sw->carry)};
  const int64_t least =
      o->kv_block_bytes ? (int64_t)treadle_switch_windows_budget(o) / sw->carry.plan->page_bytes : 0;
  return treadle_place_windows(&in, least, &sw->space.tables);
}

void treadle_switch_bound_pool(treadle_switch *sw) {
  const size_t bytes = (size_t)(sw->space.tables.physical * sw->carry.plan->page_bytes);
  if (bytes > sw->agreed.pool_bound_bytes) sw->agreed.pool_bound_bytes = bytes;
}

treadle_status treadle_switch_open_books(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options *o = &sw->terms.options;
  const treadle_page_tables *tables = &sw->space.tables;
  sw->books = (treadle_books){.tables = tables,
                              .page_bytes = sw->carry.plan->page_bytes,
                              .params_stay = !sw->terms.leaves[TREADLE_PARAMS],
                              .watch = o->watch,
                              .watch_context = o->watch_context};
  sw->twins = (treadle_twins){.device = &sw->device,
                              .books = &sw->books,
                              .shared_leave = o->host,
                              .check = check,
                              .context = sw,
                              .figures = &sw->stats};
  TRY(treadle_books_open(&sw->books));
  treadle_switch_show_pages(&sw->carry, tables);
  TRY(treadle_turns_create(&sw->carry, tables->physical));
out:
  return status;
}

void treadle_switch_show_pages(treadle_carry *c, const treadle_page_tables *tables) {
  for (int side = 0; side < 2; side++)
    c->pages[side] = tables->page[treadle_class_of_side((treadle_side)side)];
}

treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to) {
  const bool spoils = sw->carry.faults.planted == TREADLE_FAULT_ALIAS;
  if (spoils) misplace_alias(&sw->carry.plan->arrangement, &sw->space.tables);
  treadle_status status = treadle_carry_run(&sw->carry, treadle_side_of(to), treadle_epoch_now(sw->group));
  if (spoils) misplace_alias(&sw->carry.plan->arrangement, &sw->space.tables);
  return status;
}
