/* Is there enough memory?
 *
 * Every rank publishes what it will take and which limits it is under. All ranks then come to the same result from the same
 * figures. A limit has an id, so that ranks in one control group count together, from whichever container they see it. If ranks read
 * different amounts of free memory for a limit, the smallest counts. It is without what ranks have taken already.
 *
 * The kernel's page tables count: 8 bytes for each 4 KiB that a process maps, and every rank maps all pools. Pools of huge pages
 * need a 512th of that. For twins and for memory of the caller, page tables of small pages are counted in either case. */
#include "switch/room.h"

#include "base/larger.h"
#include "base/text.h"
#include "switch/switch.h"

#include <stdio.h>

_Static_assert(sizeof(treadle_demand) <= TREADLE_GROUP_PAYLOAD, "said at once");

enum { TABLE_SHARE = 512, ALIGNMENT = TREADLE_HUGE_PAGE };

/* What a rank takes beside all that is counted: the system's own books, buffers of files that are read. */
static const uint64_t SPARE = 1 << 20;

/* Numbers from outside: what does not fit is more than there is. */
static uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t whole_pages(uint64_t bytes, uint64_t page) {
  uint64_t sum = plus(bytes, page - 1);
  return sum == UINT64_MAX ? sum : sum / page * page;
}

/* ---- The verdict ---- */

static const treadle_demand *said(const treadle_group *group, int rank) {
  return treadle_group_said(group, rank);
}

static uint64_t process_of(const treadle_group *group, int rank) {
  return said(group, rank)->limits.addresses.id;
}

/* Are both on one node? */
static bool is_together(const treadle_group *group, int a, int b) {
  return !group->nodes || group->nodes->of[a] == group->nodes->of[b];
}

/* What the ranks of other processes share with this one. */
static uint64_t peers_of(const treadle_group *group, int rank) {
  uint64_t sum = 0, process = process_of(group, rank);
  for (int peer = 0; peer < group->size; peer++)
    if (is_together(group, peer, rank) && process_of(group, peer) != process)
      sum = plus(sum, said(group, peer)->shared);
  return sum;
}

static uint64_t tables_of(const treadle_group *group, int rank) {
  const treadle_demand *d = said(group, rank);
  uint64_t pools = plus(d->mapped, peers_of(group, rank)) / TABLE_SHARE;
  return plus(d->tables,
              plus(d->huge ? pools / TABLE_SHARE : pools, plus(d->host, d->others) / TABLE_SHARE));
}

typedef struct shares { /* of the ranks under a limit */
  int ranks, first;
  uint64_t pool, host, tables, others, sum, left;
} shares;

static bool is_on_device(const treadle_demand *d) { return d->device.id != 0; }

static const treadle_limit *find(const treadle_demand *d, uint64_t id) {
  if (is_on_device(d) && d->device.id == id) return &d->device;
  for (int32_t i = 0; i < d->limits.count; i++)
    if (d->limits.memory[i].id == id) return &d->limits.memory[i];
  return NULL;
}

/* Of the node of that rank. */
static shares add_up(const treadle_group *group, int of, uint64_t id) {
  shares s = {.left = UINT64_MAX};
  for (int rank = group->size - 1; rank >= 0; rank--) {
    const treadle_demand *d = said(group, rank);
    const treadle_limit *limit = find(d, id);
    if (!limit || !is_together(group, of, rank)) continue;
    s.ranks++;
    s.first = rank;
    if (limit->left < s.left) s.left = limit->left;
    if (is_on_device(d) == (limit == &d->device)) s.pool = plus(s.pool, d->pool);
    if (limit == &d->device) continue;
    s.host = plus(s.host, d->host);
    s.others = plus(s.others, d->others);
    s.tables = plus(s.tables, plus(tables_of(group, rank), SPARE));
  }
  s.sum = plus(plus(s.pool, s.host), plus(s.tables, s.others));
  return s;
}

static treadle_status refuse(const treadle_group *group, const shares *s, uint64_t id) {
  const treadle_limit *limit = find(said(group, s->first), id);
  char who[40];
  if (s->ranks == 1)
    snprintf(who, sizeof who, "rank %d needs", s->first);
  else
    snprintf(who, sizeof who, "%d ranks need", s->ranks);
  return treadle_fail(TREADLE_NO_MEMORY,
                      "switch: %s %s of memory (pools %s, host memory %s, tables %s, the caller's own %s), "
                      "and %s leaves %s of %s",
                      who, treadle_text_of_size(s->sum), treadle_text_of_size(s->pool),
                      treadle_text_of_size(s->host), treadle_text_of_size(s->tables),
                      treadle_text_of_size(s->others), limit->text, treadle_text_of_size(s->left),
                      treadle_text_of_size(limit->bytes));
}

/* The memory limit by which most is missing. */
static treadle_status check_memory(const treadle_group *group) {
  uint64_t missing = 0, worst_id = 0;
  shares worst = {0};
  for (int rank = 0; rank < group->size; rank++) {
    const treadle_demand *d = said(group, rank);
    for (int32_t i = 0; i < d->limits.count + is_on_device(d); i++) {
      uint64_t id = i < d->limits.count ? d->limits.memory[i].id : d->device.id;
      if (rank > 0 && is_together(group, rank - 1, rank) && find(said(group, rank - 1), id))
        continue; /* was looked at */
      shares s = add_up(group, rank, id);
      if (s.sum <= s.left || s.sum - s.left <= missing) continue;
      missing = s.sum - s.left;
      worst = s;
      worst_id = id;
    }
  }
  return missing ? refuse(group, &worst, worst_id) : TREADLE_OK;
}

/* Of the process that this rank is in. */
static treadle_status check_addresses(const treadle_group *group, int rank) {
  const treadle_demand *d = said(group, rank);
  uint64_t needed = peers_of(group, rank);
  if (!d->limits.has_addresses) return TREADLE_OK;
  for (int other = 0; other < group->size; other++)
    if (is_together(group, other, rank) && process_of(group, other) == d->limits.addresses.id)
      needed = plus(needed, said(group, other)->addresses);
  if (needed <= d->limits.addresses.left) return TREADLE_OK;
  return treadle_fail(
      TREADLE_NO_MEMORY,
      "switch: rank %d needs %s of addresses (its pool of %s, windows, host memory of %s, the "
      "pools of its peers, the caller's own %s), and %s leaves %s of %s",
      rank, treadle_text_of_size(needed), treadle_text_of_size(d->pool), treadle_text_of_size(d->host),
      treadle_text_of_size(d->others), d->limits.addresses.text,
      treadle_text_of_size(d->limits.addresses.left), treadle_text_of_size(d->limits.addresses.bytes));
}

treadle_status treadle_room_ask(treadle_group *group, const treadle_demand *mine) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_say(group, mine, sizeof *mine));
  TRY(check_memory(group));
  for (int rank = 0; rank < group->size; rank++) TRY(check_addresses(group, rank));
out:
  return status;
}

/* ---- What a switch takes ---- */

/* Of the device whose memory the pool lies in; none where that is the host's. */
static treadle_status read_device_limit(const treadle_device *device, treadle_limit *limit) {
  treadle_device_room room = {0};
  const treadle_status status = device->ops->room(device, &room);
  if (status != TREADLE_OK || room.id == 0) return status;
  limit->id = room.id;
  limit->bytes = room.bytes;
  limit->left = room.left_bytes;
  snprintf(limit->text, sizeof limit->text, "device %s:%d", device->ops->name, device->number);
  return TREADLE_OK;
}

treadle_status treadle_room_limits(treadle_group *group, const treadle_device *device,
                                   const treadle_switch_options *options, treadle_demand *demand_p) {
  *demand_p = (treadle_demand){.huge = treadle_pool_is_huge((int64_t)treadle_switch_page_bytes(options))};
  treadle_limits_read("", &demand_p->limits);
  return treadle_group_agree(group, read_device_limit(device, &demand_p->device));
}

/* Pages on a device need no page tables and no addresses of the host's. */
static treadle_demand settle(treadle_demand d) {
  if (!is_on_device(&d)) return d;
  d.shared -= d.pool;
  d.addresses -= d.mapped;
  d.mapped = 0;
  return d;
}

/* Of a rank that has its memory; a group on more nodes may need more for messages. */
static treadle_demand rejoining(const treadle_space *space, const treadle_carry *c, treadle_demand d) {
  const size_t messages = treadle_net_bytes(c), has = c->net.bytes;
  d.host = d.addresses = messages > has ? messages : 0;
  d.shared = (is_on_device(&d) ? 0 : space->bytes) + treadle_pool_bytes(space->table_pool);
  return d;
}

treadle_demand treadle_room_least(const treadle_switch *sw, treadle_demand d) {
  const treadle_switch_options *o = &sw->terms.options;
  if (sw->space.pool) return rejoining(&sw->space, &sw->carry, d);
  uint64_t page = treadle_switch_page_bytes(o), training = 0, kept = 0;
  const uint64_t bytes[TREADLE_TRAIN_CLASSES] = {treadle_own_held_bytes(sw, TREADLE_TRAIN), o->grads_bytes,
                                                 o->optimizer_bytes};
  uint64_t infer = treadle_own_held_bytes(sw, TREADLE_INFER);
  if (o->double_infer) infer = plus(infer, infer);
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    uint64_t pages = whole_pages(bytes[c], page);
    training = plus(training, pages);
    /* Params that stay, and their twin, may share pages with the infer window. */
    if (c != TREADLE_PARAMS && !sw->terms.leaves[c]) kept = plus(kept, pages);
    if (treadle_twin_is_wanted(&sw->terms, (treadle_class)c) &&
        (c != TREADLE_PARAMS || o->host || !o->alias))
      d.host = plus(d.host, pages);
  }
  if (!sw->terms.leaves[TREADLE_PARAMS] && !o->alias)
    kept = plus(kept, whole_pages(bytes[TREADLE_PARAMS], page));
  training = plus(training, whole_pages(o->train_work_bytes, page));
  d.host = plus(plus(d.host, o->reference_bytes), plus(treadle_net_bytes(&sw->carry), sw->undo.bytes));
  uint64_t engine = plus(whole_pages(sw->engine.hooks.work_bytes, page),
                         o->kv_block_bytes ? whole_pages(o->kv_bytes, page) : 0);
  d.pool = treadle_larger_size(training, plus(plus(kept, infer), engine));
  if (o->kv_block_bytes)
    d.pool = treadle_larger_size(d.pool, treadle_switch_windows_budget(o) / page * page);
  d.shared = d.mapped = d.pool;
  d.others = o->other_bytes;
  d.addresses = plus(d.mapped, plus(d.host, d.others));
  return settle(d);
}

treadle_demand treadle_room_exact(const treadle_switch *sw, treadle_demand d) {
  if (sw->space.pool) return rejoining(&sw->space, &sw->carry, d);
  const treadle_page_tables *place = &sw->space.tables;
  uint64_t page = (uint64_t)sw->carry.plan->page_bytes, twins = 0;
  d.pool = (uint64_t)place->physical * page;
  d.mapped = d.pool;
  for (int c = 0; c < TREADLE_CLASSES; c++) d.mapped += (uint64_t)place->pages[c] * page;
  if (sw->terms.options.double_infer) d.mapped += (uint64_t)place->pages[TREADLE_INFER_PARAMS] * page;
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++)
    if (treadle_twin_is_wanted(&sw->terms, (treadle_class)c)) {
      twins += (uint64_t)place->pages[c] * page;
      d.host += (uint64_t)treadle_twins_pages(&sw->twins, (treadle_class)c) * page;
    }
  d.host += whole_pages(sw->terms.options.reference_bytes, page);
  twins += whole_pages(sw->terms.options.reference_bytes, page);
  const uint64_t others =
      treadle_net_bytes(&sw->carry) + treadle_net_delta_bytes(&sw->carry) + sw->undo.bytes;
  d.host += others;
  twins += others;
  d.tables = treadle_tables_bytes(sw->carry.plan, place);
  d.shared = d.pool + d.tables;
  d.others = sw->terms.options.other_bytes;
  d.addresses = d.mapped + d.tables + twins + ALIGNMENT;
  if (sw->space.tables.aliased && !is_on_device(&d))
    d.addresses += (uint64_t)place->pages[TREADLE_PARAMS] * page + ALIGNMENT; /* parking */
  d.addresses = plus(d.addresses, d.others);
  return settle(d);
}
