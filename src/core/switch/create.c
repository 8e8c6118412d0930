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

enum { DEFAULT_TIMEOUT = 60 };

/* ---- Build ---- */

static treadle_status arrange(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  size_t ranks = (size_t)sw->group->size;
  sw->space.shared_pools = treadle_alloc_array(ranks, sizeof *sw->space.shared_pools);
  sw->space.shared_tables = treadle_alloc_array(ranks, sizeof *sw->space.shared_tables);
  sw->carry.views[0] = treadle_alloc_array(ranks, sizeof *sw->carry.views[0]);
  sw->carry.views[1] = treadle_alloc_array(ranks, sizeof *sw->carry.views[1]);
  sw->carry.others = treadle_alloc_array(ranks, sizeof *sw->carry.others);
  if (!sw->space.shared_pools || !sw->space.shared_tables || !sw->carry.views[0] || !sw->carry.views[1] ||
      !sw->carry.others)
    return treadle_memory_is_out();
  TRY(treadle_carry_create(&sw->carry));
  TRY(treadle_switch_place(sw));
  treadle_switch_bound_pool(sw);
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

/* All that is mapped of the pool, here and by others. */
static int list_views(const treadle_page_tables *tables, int64_t page_bytes,
                      treadle_view_of views[TREADLE_CLASSES + 2]) {
  const int shift = __builtin_ctzll((unsigned long long)page_bytes);
  int count = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++)
    views[count++] = (treadle_view_of){tables->page[c], tables->pages[c], shift};
  views[count++] = (treadle_view_of){tables->staging, tables->staging_pages, shift};
  if (tables->other)
    views[count++] = (treadle_view_of){tables->other, tables->pages[TREADLE_INFER_PARAMS], shift};
  return count;
}

static treadle_status build(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_view_of views[TREADLE_CLASSES + 2];
  const int view_count = list_views(&sw->space.tables, sw->carry.plan->page_bytes, views);
  const treadle_plan *plan = sw->carry.plan;
  const treadle_device_ops *device = sw->device.ops;
  TRY(device->create(&sw->device, sw->space.tables.physical, plan->page_bytes,
                     (int64_t)sw->agreed.pool_bound_bytes, views, view_count, &sw->space.pool));
  sw->space.base = device->base(sw->space.pool);
  sw->space.bytes = (size_t)(sw->space.tables.physical * plan->page_bytes);
  for (int c = 0; c < TREADLE_CLASSES; c++)
    TRY(device->map(sw->space.pool, sw->space.tables.page[c], sw->space.tables.pages[c],
                    &sw->space.windows[c]));
  for (int c = 0; c < TREADLE_CLASSES; c++)
    TRY(treadle_device_claim(&sw->device, sw->space.windows[c],
                             (size_t)(sw->space.tables.pages[c] * plan->page_bytes)));
  TRY(treadle_double_map(sw));
  TRY(treadle_own_pin(&sw->carry));
  TRY(treadle_undo_create(&sw->carry, &sw->undo));
  TRY(make_twins(sw));
  TRY(treadle_twins_make_reference(&sw->twins, treadle_class_text(TREADLE_REFERENCE)));
  TRY(treadle_guard_create(sw));
  TRY(treadle_tables_make(&sw->space, sw->carry.plan));
  TRY(make_record(sw));
  TRY(treadle_guard_settle(sw));
out:
  return status;
}

/* ---- Share ---- */

treadle_status treadle_switch_share(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_tables_share(&sw->space, &sw->carry));
  TRY(treadle_net_arrange(&sw->carry));
  TRY(treadle_group_agree(sw->group, treadle_carry_lists_make(&sw->carry)));
out:
  return status;
}

void treadle_switch_unshare(treadle_switch *sw) {
  treadle_carry_lists_release(&sw->carry);
  treadle_net_release(&sw->carry);
  treadle_tables_unshare(&sw->space, &sw->carry);
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
  treadle_helm *helm =
      sw ? treadle_helm_create(treadle_group_called(group, group->rank), &sw->stats) : NULL;
  treadle_device device = {0};
  if (checked == TREADLE_OK && !(sw && helm)) checked = treadle_memory_is_out();
  if (checked == TREADLE_OK) checked = treadle_device_open(&o.memory, &device);
  TRY(treadle_group_agree(group, checked));
  *sw = (treadle_switch){.group = group,
                         .device = device,
                         .layouts = {train, infer},
                         .terms.timeout_seconds = group->timeout_seconds,
                         .helm = helm};
  treadle_switch_carry_begin(sw);
  treadle_switch_resolve(sw, &o, &engine);
  TRY(treadle_switch_plan_together(sw));
  TRY(treadle_group_agree(group, arrange(sw)));
  TRY(treadle_room_limits(group, &sw->device, &sw->terms.options, &demand));
  demand = treadle_room_exact(sw, demand);
  TRY(treadle_room_ask(group, &demand));
  TRY(treadle_group_agree(group, build(sw)));
  TRY(treadle_switch_share(sw));
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
      treadle_device_close(&device);
      treadle_helm_destroy(helm);
      treadle_free(sw);
    }
  }
  treadle_group_limit(group, group_timeout);
  return status;
}
