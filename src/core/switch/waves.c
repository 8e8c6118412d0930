/* What a switch does around the waves of its carry: it comes by where faults are injected, saves pages in their twin before they are written,
 * keeps the books, and tells how far it is. */
#include "switch/switch.h"

#include "group/outcome.h"

/* ---- Between waves ---- */

static treadle_status check(void *context) { return treadle_helm_check(context); }

static treadle_status before(void *context, int32_t wave) {
  return treadle_switch_point(context, TREADLE_AT_WAVE, wave);
}

static treadle_status reclaim(void *context, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = context;
  const treadle_carry *c = &sw->carry;
  if (wave == treadle_carry_direction(c, c->to)->first_reclaim) TRY(treadle_epoch_reclaim(sw, c->epoch));
  if (c->to == TREADLE_SIDE_INFER && c->faults.planted != TREADLE_FAULT_LATE_TWIN)
    TRY(treadle_twin_fill(sw, wave));
  TRY(treadle_account_wave(sw, wave));
out:
  return status;
}

/* One byte of what this wave has copied is flipped, where that was asked for. */
static treadle_status corrupt(treadle_switch *sw, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_carry *c = &sw->carry;
  treadle_injection *injection = &sw->carry.faults.injection;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  const treadle_device_ops *device = sw->device.ops;
  if (injection->what != TREADLE_INJECT_CORRUPT || wave < injection->wave) return TREADLE_OK;
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    if (direction->ops.items[i].source < 0) continue;
    const treadle_paged into = treadle_own_view(c, c->to, direction->ops.items[i].to);
    char *at = treadle_paged_into(&into, direction->ops.items[i].to), byte;
    device->move(&sw->device, &byte, at, 1);
    TRY(device->fence(&sw->device));
    byte ^= 0x10;
    device->move(&sw->device, at, &byte, 1);
    TRY(device->fence(&sw->device));
    injection->what = TREADLE_INJECT_NOTHING;
    break;
  }
out:
  return status;
}

/* A planted mistake puts the first page that both windows share elsewhere, or back again. No wave writes it. */
static void misplace_alias(treadle_switch *sw) {
  const treadle_arrangement *arrangement = &sw->carry.plan->arrangement;
  for (int64_t page = 0; page < arrangement->to_pages && arrangement->from_of; page++)
    if (arrangement->from_of[page] >= 0) {
      sw->space.tables.page[TREADLE_INFER_PARAMS][page] ^= 1;
      return;
    }
}

static treadle_status after(void *context, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = context;
  TRY(corrupt(sw, wave));
  treadle_helm_tell(sw);
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
}

void treadle_switch_carry_settle(treadle_switch *sw) {
  const treadle_switch_options *o = &sw->terms.options;
  sw->carry.terms = (treadle_carry_terms){.page_bytes = treadle_switch_page_bytes(o),
                                          .net_devices = o->net_devices,
                                          .goes_back = treadle_switch_rebuilds(sw) && !o->one_way,
                                          .doubled = o->double_infer,
                                          .delta = o->delta,
                                          .transforms = sw->engine.hooks.transforms};
}

void treadle_switch_place_windows(treadle_switch *sw) {
  for (int side = 0; side < 2; side++)
    sw->carry.pages[side] = sw->space.tables.page[treadle_class_of_side((treadle_side)side)];
}

treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to) {
  const bool spoils = sw->carry.faults.planted == TREADLE_FAULT_ALIAS;
  if (spoils) misplace_alias(sw);
  treadle_status status = treadle_carry_run(&sw->carry, treadle_side_of(to), treadle_epoch_now(sw->group));
  if (spoils) misplace_alias(sw);
  return status;
}
