/* How the ranks make their memory, once they have agreed on a plan (agree.c).
 *
 *   arrange   each rank: where its pages lie, counters                   -> agree
 *   room      is there memory for all of them?                           (room.c)
 *   build     each rank: pool, windows, page tables, twins               -> agree
 *   share     pools and tables of the others are mapped                  -> agree
 *
 * A rank that rejoins goes the same way with the memory that it has (rejoin.c). */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "switch/room.h"

#include <string.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT = 60, TABLES_MAGIC = 0x7461626c };

/* ---- Build ---- */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

/* How far storage tensors are moved is in the tables where any may be. */
static int64_t shifts_of(const treadle_plan *plan) {
  return plan->alias ? plan->arrangement.storage_count : 0;
}

/* Pages of the infer window's other set. */
static int64_t other_pages(const treadle_switch *sw) {
  return sw->space.tables.other ? sw->carry.plan->to_pages : 0;
}

size_t treadle_switch_tables_bytes(const treadle_switch *sw) {
  const treadle_plan *plan = sw->carry.plan;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t bytes =
      sizeof(treadle_tables) + (size_t)shifts_of(plan) * sizeof(int64_t) +
      (size_t)(plan->from_pages + plan->to_pages + sw->space.tables.staging_pages + other_pages(sw)) *
          sizeof(int32_t);
  return (bytes + page - 1) / page * page;
}

/* The page tables lie in a small pool of their own, which the others map. */
static treadle_status make_tables(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->carry.plan;
  const treadle_arrangement *arrangement = &plan->arrangement;
  int64_t page = sysconf(_SC_PAGESIZE), shifts = shifts_of(plan);
  int64_t bytes = (int64_t)treadle_switch_tables_bytes(sw);
  TRY(treadle_pool_create(bytes / page, page, bytes, &sw->space.table_pool));
  treadle_tables *tables = treadle_pool_base(sw->space.table_pool);
  tables->page_bytes = plan->page_bytes;
  tables->physical_pages = sw->space.tables.physical;
  tables->shifts = shifts;
  tables->pages[TREADLE_TRAIN] = plan->from_pages;
  tables->pages[TREADLE_INFER] = plan->to_pages;
  tables->staging = sw->space.tables.staging_pages;
  tables->other = other_pages(sw);
  for (int64_t i = 0; i < shifts; i++) tables->shift[i] = arrangement->shift ? arrangement->shift[i] : 0;
  int32_t *table = (int32_t *)(void *)(tables->shift + shifts);
  memcpy(table, sw->space.tables.page[TREADLE_PARAMS], (size_t)plan->from_pages * sizeof(int32_t));
  memcpy(table + plan->from_pages, sw->space.tables.page[TREADLE_INFER_PARAMS],
         (size_t)plan->to_pages * sizeof(int32_t));
  memcpy(table + plan->from_pages + plan->to_pages, sw->space.tables.staging,
         (size_t)tables->staging * sizeof(int32_t));
  if (tables->other > 0)
    memcpy(table + plan->from_pages + plan->to_pages + tables->staging, sw->space.tables.other,
           (size_t)tables->other * sizeof(int32_t));
  tables->magic = TABLES_MAGIC;
out:
  return status;
}

static treadle_status arrange(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->carry.plan;
  size_t ranks = (size_t)sw->group->size;
  sw->space.shared_pools = treadle_alloc_array(ranks, sizeof *sw->space.shared_pools);
  sw->space.shared_tables = treadle_alloc_array(ranks, sizeof *sw->space.shared_tables);
  sw->carry.views[0] = treadle_alloc_array(ranks, sizeof *sw->carry.views[0]);
  sw->carry.views[1] = treadle_alloc_array(ranks, sizeof *sw->carry.views[1]);
  sw->carry.others = treadle_alloc_array(ranks, sizeof *sw->carry.others);
  if (!sw->space.shared_pools || !sw->space.shared_tables || !sw->carry.views[0] || !sw->carry.views[1] ||
      !sw->carry.others)
    return no_memory();
  TRY(treadle_carry_create(&sw->carry));
  TRY(treadle_stage_choice_make(sw, sw->terms.options.kv_block_bytes
                                        ? (int64_t)sw->terms.options.budget_bytes / plan->page_bytes
                                        : 0));
  treadle_place_bound(sw);
  TRY(treadle_net_traffic(&sw->carry));
  TRY(treadle_switch_open_books(sw));
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) treadle_books_take(&sw->books, (treadle_class)c);
  treadle_books_train_work(&sw->books, sw->terms.options.train_work_bytes);
out:
  return status;
}

/* Of own tensors the caller has filled the memory, or does so. */
static treadle_status make_record(treadle_switch *sw) {
  treadle_status status;
  const treadle_own_spans *own = &sw->carry.own.spans[TREADLE_TRAIN];
  TRY(treadle_filled_create(sw->layouts[TREADLE_TRAIN], sw->group->rank, sw->space.windows[TREADLE_PARAMS],
                            sw->terms.options.allow_unfilled, &sw->filled));
  for (size_t i = 0; i < own->count; i++) treadle_filled_tensor(sw->filled, own->items[i].storage);
out:
  return status;
}

/* Messages of other nodes lie in staging, after what other ranks read of own tensors. */
static treadle_status map_slots(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_page_tables *tables = &sw->space.tables;
  const int64_t own = treadle_staging_bytes(&sw->carry) / sw->carry.plan->page_bytes;
  void *base = NULL;
  if (treadle_group_node_count(sw->group) == 1) return TREADLE_OK;
  TRY(sw->device.ops->map(sw->space.pool, tables->staging + own, tables->staging_pages - own, &base));
  treadle_net_place(&sw->carry, base);
out:
  return status;
}

static treadle_status make_twins(treadle_switch *sw) {
  bool wanted[TREADLE_TRAIN_CLASSES];
  const char *names[TREADLE_TRAIN_CLASSES];
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) {
    wanted[c] = treadle_twin_is_wanted(&sw->terms, (treadle_class)c);
    names[c] = treadle_class_text((treadle_class)c);
  }
  sw->twins.base = sw->space.base;
  return treadle_twins_create(&sw->twins, wanted, names);
}

static treadle_status build(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->carry.plan;
  const treadle_device_ops *device = sw->device.ops;
  TRY(device->create(&sw->device, sw->space.tables.physical, plan->page_bytes,
                     (int64_t)sw->agreed.pool_bound_bytes, &sw->space.pool));
  sw->space.base = device->base(sw->space.pool);
  sw->space.bytes = (size_t)(sw->space.tables.physical * plan->page_bytes);
  for (int c = 0; c < TREADLE_CLASSES; c++)
    TRY(device->map(sw->space.pool, sw->space.tables.page[c], sw->space.tables.pages[c],
                    &sw->space.windows[c]));
  TRY(treadle_double_map(sw));
  TRY(map_slots(sw));
  TRY(make_twins(sw));
  TRY(treadle_reference_create(sw));
  TRY(treadle_guard_create(sw));
  TRY(make_tables(sw));
  TRY(make_record(sw));
out:
  return status;
}

/* ---- Share ---- */

/* Where the physical pages stand in a rank's tables. */
static const int32_t *table_of(const treadle_tables *tables) {
  return (const int32_t *)(const void *)(tables->shift + tables->shifts);
}

/* A rank's tables lead to pages of its pool, whatever it has written there. */
static treadle_status check_tables(const treadle_switch *sw, int rank) {
  const treadle_tables *tables = sw->space.shared_tables[rank].base;
  size_t bytes = sw->space.shared_tables[rank].bytes;
  int64_t room = bytes < sizeof *tables ? 0 : (int64_t)((bytes - sizeof *tables) / sizeof(int32_t));
  bool good =
      room > 0 && tables->magic == TABLES_MAGIC && tables->page_bytes == sw->carry.plan->page_bytes &&
      tables->physical_pages * tables->page_bytes == (int64_t)sw->space.shared_pools[rank].bytes &&
      tables->shifts >= 0 && tables->shifts <= room / 2 && tables->pages[0] >= 0 && tables->pages[1] >= 0 &&
      tables->pages[0] <= room - 2 * tables->shifts &&
      tables->pages[1] <= room - 2 * tables->shifts - tables->pages[0] && tables->staging >= 0 &&
      tables->staging <= room - 2 * tables->shifts - tables->pages[0] - tables->pages[1] &&
      tables->other == (sw->terms.options.double_infer ? tables->pages[1] : 0) &&
      tables->other <= room - 2 * tables->shifts - tables->pages[0] - tables->pages[1] - tables->staging &&
      tables->present >= 0 && tables->present <= sw->terms.options.double_infer;
  int64_t windows = good ? tables->pages[0] + tables->pages[1] : 0;
  for (int64_t i = 0; good && i < windows + tables->staging + tables->other; i++) {
    int32_t least = i < windows && sw->carry.staging.of[0] ? -1 : 0; /* holes */
    good = table_of(tables)[i] >= least && table_of(tables)[i] < tables->physical_pages;
  }
  return good ? TREADLE_OK
              : treadle_fail(TREADLE_PEER, "switch: rank %d has published page tables that cannot be right",
                             rank);
}

static int shift_of(int64_t page_bytes) { return __builtin_ctzll((unsigned long long)page_bytes); }

static treadle_status make_views(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_paged *first = sw->carry.views[TREADLE_INFER], *second = sw->carry.others;
  for (int rank = 0; rank < sw->group->size; rank++) {
    if (!treadle_group_is_near(sw->group, rank)) continue;
    TRY(check_tables(sw, rank));
    const treadle_tables *tables = sw->space.shared_tables[rank].base;
    treadle_paged paged = {.base = sw->space.shared_pools[rank].base,
                           .into = rank == sw->group->rank ? sw->space.base : NULL,
                           .page_shift = shift_of(sw->carry.plan->page_bytes)};
    paged.table = table_of(tables);
    sw->carry.views[TREADLE_TRAIN][rank] = paged;
    paged.table += tables->pages[TREADLE_TRAIN];
    first[rank] = paged;
    paged.table += tables->pages[TREADLE_INFER];
    TRY(treadle_staging_take(&sw->carry, rank, paged, tables->staging));
    paged.table += tables->staging;
    second[rank] = paged;
    if (tables->present) {
      second[rank] = first[rank];
      first[rank] = paged;
    }
  }
out:
  return status;
}

static treadle_status publish_pool(treadle_switch *sw) {
  const treadle_offer offer = {.device = &sw->device,
                               .descriptor = sw->device.ops->export(sw->space.pool),
                               .base = sw->space.base,
                               .bytes = sw->space.bytes};
  return sw->group->link->publish(sw->group, &offer, sw->space.shared_pools);
}

static treadle_status publish_tables(treadle_switch *sw) {
  const treadle_pool *pool = sw->space.table_pool;
  const treadle_offer offer = {.device = treadle_device_host(),
                               .descriptor = treadle_pool_descriptor(pool),
                               .base = treadle_pool_base(pool),
                               .bytes = treadle_pool_bytes(pool)};
  return sw->group->link->publish(sw->group, &offer, sw->space.shared_tables);
}

/* The way back reads the others' infer windows as they have arranged them. */
static treadle_status place_peers(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < sw->group->size && sw->terms.options.alias; rank++) {
    const treadle_tables *tables = sw->space.shared_tables[rank].base;
    if (rank == sw->group->rank || !treadle_group_is_near(sw->group, rank)) continue;
    TRY(treadle_plan_place_peers(sw->carry.plan, rank, tables->shift, (int32_t)tables->shifts,
                                 tables->pages[TREADLE_INFER]));
  }
  if (sw->terms.options.alias) TRY(treadle_plan_check_placed(sw->carry.plan));
out:
  return status;
}

treadle_status treadle_switch_share(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_agree(sw->group, publish_pool(sw)));
  TRY(treadle_group_agree(sw->group, publish_tables(sw)));
  TRY(treadle_group_agree(sw->group, make_views(sw)));
  TRY(treadle_group_agree(sw->group, place_peers(sw)));
  TRY(treadle_net_arrange(&sw->carry));
  TRY(treadle_group_agree(sw->group, treadle_carry_lists_make(&sw->carry)));
out:
  return status;
}

void treadle_switch_unshare(treadle_switch *sw) {
  treadle_carry_lists_release(&sw->carry);
  treadle_net_release(&sw->carry);
  if (sw->space.shared_pools) sw->group->link->withdraw(sw->group, &sw->device, sw->space.shared_pools);
  if (sw->space.shared_tables)
    sw->group->link->withdraw(sw->group, treadle_device_host(), sw->space.shared_tables);
}

/* ---- All of it ---- */

/* From what is given to what it means. */
void treadle_switch_resolve(treadle_switch *sw, const treadle_switch_options *o,
                            const treadle_engine_hooks *engine) {
  sw->terms.options = *o;
  sw->terms.leaves[TREADLE_PARAMS] = o->offload_train_param != TREADLE_OFF;
  sw->terms.leaves[TREADLE_GRADS] = o->offload_train_grad == TREADLE_ON;
  sw->terms.leaves[TREADLE_OPTIMIZER] = o->offload_train_optimizer == TREADLE_ON;
  sw->terms.copied[TREADLE_PARAMS] = sw->terms.leaves[TREADLE_PARAMS] && o->keep == TREADLE_KEEP_HOST;
  sw->terms.copied[TREADLE_GRADS] = sw->terms.leaves[TREADLE_GRADS] && o->keep_grads;
  sw->terms.copied[TREADLE_OPTIMIZER] = sw->terms.leaves[TREADLE_OPTIMIZER];
  sw->engine.hooks = *engine;
  if (!o->kv_block_bytes) sw->terms.options.kv_block_bytes = engine->kv_block_bytes;
  /* What a source gives another node it finds where its layout has it. */
  bool several = sw->group && treadle_group_node_count(sw->group) > 1;
  if (sw->engine.hooks.transforms || several) sw->terms.options.alias = false;
  sw->terms.options.engine = NULL; /* the caller's may go */
}

treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train,
                                     const treadle_layout *infer, const treadle_switch_options *options,
                                     treadle_switch **switch_p) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(group);
  if (switch_p) *switch_p = NULL;
  treadle_switch_options o;
  treadle_engine_hooks engine;
  treadle_status checked = treadle_switch_check_arguments(train, infer, options, switch_p, &o, &engine);
  double group_timeout = group->timeout_seconds;
  treadle_demand demand;
  treadle_group_limit(group, o.timeout_seconds > 0 ? o.timeout_seconds : DEFAULT_TIMEOUT);
  treadle_switch *sw = treadle_alloc(sizeof *sw);
  treadle_helm *helm = sw ? treadle_helm_create(group->rank, &sw->stats) : NULL;
  TRY(treadle_group_agree(group, checked != TREADLE_OK ? checked : sw && helm ? TREADLE_OK : no_memory()));
  *sw = (treadle_switch){.group = group,
                         .layouts = {train, infer},
                         .terms.timeout_seconds = group->timeout_seconds,
                         .helm = helm};
  treadle_switch_carry_begin(sw);
  treadle_switch_resolve(sw, &o, &engine);
  TRY(treadle_device_open(&o.memory, &sw->device)); /* it was checked among the arguments */
  TRY(treadle_switch_plan_together(sw));
  TRY(treadle_group_agree(group, arrange(sw)));
  demand = treadle_room_exact(sw);
  TRY(treadle_room_ask(group, &demand));
  TRY(treadle_group_agree(group, build(sw)));
  TRY(treadle_switch_share(sw));
  treadle_guard_settle(sw);
  treadle_books_tell(&sw->books);
  treadle_helm_tell(sw->helm);
  sw->engine.attached = engine.attach != NULL;
  if (engine.attach) engine.attach(engine.context, sw);
  *switch_p = sw;
out:
  if (status != TREADLE_OK) {
    if (sw && sw->group) {
      treadle_switch_release(sw);
    } else {
      treadle_helm_destroy(helm);
      treadle_free(sw);
    }
  }
  treadle_group_limit(group, group_timeout);
  return status;
}
